// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package kwok

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Stages", func() {
	It("should look at the annotation that the package documents", func() {
		Expect(string(stages)).To(ContainSubstring(`.metadata.annotations["` + AnnotationReady + `"]`))
		Expect(string(stages)).To(ContainSubstring(AnnotationReady + `: "false"`))
	})
})
