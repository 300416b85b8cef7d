// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	yamlExample     = regexp.MustCompile("(?s)```yaml\n(apiVersion:.*?)```")
	patchExample    = regexp.MustCompile(`(?s)--type=json -p '(.*?)'`)
	selectorExample = regexp.MustCompile(`--field-selector (\S+)`)
)

// examples returns what a document in docs/usage shows, and fails if that is nothing.
func examples(document string, kind *regexp.Regexp) []string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "usage", document))
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, match := range kind.FindAllStringSubmatch(string(content), -1) {
		found = append(found, match[1])
	}
	Expect(found).NotTo(BeEmpty())
	return found
}
