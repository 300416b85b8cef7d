// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestDrain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Drain Suite")
}

type podOption = builder.PodOption

var (
	pod, mirror, terminating = builder.Pod, builder.Mirror, builder.Terminating
	ownedBy, volume          = builder.OwnedBy, builder.Volume
)
