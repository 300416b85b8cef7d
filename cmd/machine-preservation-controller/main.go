// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// The machine-preservation-controller runs beside machine-controller-manager in the control plane of a shoot and preserves
// failed machines for a limited time.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		logf.Log.Error(err, "Error executing the command")
		os.Exit(1)
	}
}
