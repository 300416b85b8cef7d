// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Command redfish runs metal-operator's mock of a BMC with one system, at the address that is its argument.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr/funcr"
	"github.com/ironcore-dev/metal-operator/bmc/mock/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := funcr.New(func(_, args string) { fmt.Println(args) }, funcr.Options{LogTimestamp: true})
	if err := server.NewMockServer(log, os.Args[1]).Start(ctx); err != nil {
		log.Error(err, "could not run the mock")
		os.Exit(1)
	}
}
