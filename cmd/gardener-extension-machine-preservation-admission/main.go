// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Command gardener-extension-machine-preservation-admission validates Shoots in a garden.
package main

import (
	"os"

	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation-admission/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(signals.SetupSignalHandler()); err != nil {
		logf.Log.Error(err, "Error executing the main admission command")
		os.Exit(1)
	}
}
