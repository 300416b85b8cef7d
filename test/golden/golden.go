// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package golden compares what is written for people with files.
package golden

import (
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// Expect expects a text to be that of a file in testdata. With WRITE_GOLDEN=true, it writes the file and fails.
func Expect(file, text string) {
	ginkgo.GinkgoHelper()
	path := filepath.Join("testdata", file)
	if os.Getenv("WRITE_GOLDEN") == "true" {
		gomega.Expect(os.WriteFile(path, []byte(text), 0o600)).To(gomega.Succeed())
		ginkgo.Fail("wrote " + path)
	}
	want, err := os.ReadFile(path) // #nosec G304 -- a file of the test
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(text).To(gomega.Equal(string(want)))
}
