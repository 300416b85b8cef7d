// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestExplain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Explain Suite")
}

// expectGolden compares a text with a file in testdata. With WRITE_GOLDEN=true, it writes the file and fails.
func expectGolden(name, text string) {
	GinkgoHelper()
	path := filepath.Join("testdata", name)
	if os.Getenv("WRITE_GOLDEN") == "true" {
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		Fail("wrote " + path)
	}
	want, err := os.ReadFile(path) // #nosec G304 -- of this package
	Expect(err).NotTo(HaveOccurred())
	Expect(text).To(Equal(string(want)))
}
