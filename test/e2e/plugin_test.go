// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"

	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

// pluginOf returns kubectl preserve as the landscape has built it.
func pluginOf(l *landscape.Landscape) *conformance.Plugin {
	absolute := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			panic(err)
		}
		return path
	}
	return &conformance.Plugin{
		Binary:          absolute(filepath.Join(l.Directory.Binaries(), "kubectl-preserve")),
		SeedKubeconfig:  absolute(l.Directory.SeedKubeconfig()),
		ShootKubeconfig: absolute(l.Directory.ShootKubeconfig()),
	}
}
