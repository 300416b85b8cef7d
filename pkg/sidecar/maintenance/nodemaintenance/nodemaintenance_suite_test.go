// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestNodeMaintenance(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sidecar NodeMaintenance Suite")
}
