// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package imagevector_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/component-base/version"

	"github.com/gardener/gardener-extension-machine-preservation/imagevector"
)

var _ = Describe("#MachinePreservationController", func() {
	It("should have the version of the extension", func() {
		Expect(imagevector.MachinePreservationController()).To(Equal(
			"europe-docker.pkg.dev/gardener-project/public/gardener/extensions/machine-preservation-controller:" + version.Get().GitVersion))
	})
})
