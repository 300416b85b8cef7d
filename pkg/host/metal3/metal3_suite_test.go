// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package metal3_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMetal3(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Host Metal3 Suite")
}
