// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestIronCore(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Landscape IronCore Suite")
}
