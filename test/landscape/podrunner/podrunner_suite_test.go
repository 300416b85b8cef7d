// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestPodrunner(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Landscape Podrunner Suite")
}
