// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/baremetalhost"
)

// hosts returns what the seed needs so that machines run on hosts of that kind: custom resource definitions, and controllers.
func (l *Landscape) hosts(_ context.Context, kind string) (crds []string, add []func(manager.Manager) error, err error) {
	switch kind {
	case hosts.BareMetalHost:
		crds, add = []string{baremetalhost.CRD}, []func(manager.Manager) error{baremetalhost.AddToManager}
	default:
		return nil, nil, nil
	}
	return crds, add, os.WriteFile(l.Directory.hostsFile(), []byte(kind), 0o644)
}
