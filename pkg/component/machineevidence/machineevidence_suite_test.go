// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machineevidence_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMachineEvidence(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Component MachineEvidence Suite")
}
