// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

// MaxSteps is for tests.
const MaxSteps = maxSteps

// Work returns how many names a round looks at, and how many steps that takes.
func Work(spec v1alpha1.DrainSpec, pods []drain.Pod) (names, steps int) {
	f, err := newFilter(&spec)
	if err != nil {
		panic(err)
	}
	f.split(pods)
	return len(f.known), maxSteps - f.steps
}
