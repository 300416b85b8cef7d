// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package kwok

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestKwok(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Landscape Kwok Suite")
}
