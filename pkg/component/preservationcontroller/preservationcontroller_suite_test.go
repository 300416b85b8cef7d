// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

func TestPreservationController(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Preservation Controller Component Suite")
}

// Other than those of the packages that are imported, this metric is there only where somebody has it served.
var _ = BeforeSuite(func() {
	Expect((&shoot.Nodes{}).Report(nil)).To(Succeed())
})
