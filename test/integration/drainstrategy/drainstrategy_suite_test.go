// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestDrainStrategy(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Integration DrainStrategy Suite")
}
