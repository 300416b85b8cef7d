// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestBareMetalHost(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Landscape BareMetalHost Suite")
}
