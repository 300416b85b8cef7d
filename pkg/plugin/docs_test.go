// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
)

var (
	inBlock  = regexp.MustCompile(`(?m)^(?:\$ )?kubectl preserve ([^#\n]*)`)
	ruleText = regexp.MustCompile(`\[([A-Z][0-9]+)\]`)
)

// texts returns the documents, and what the plugin writes, by their paths.
func texts() map[string]string {
	GinkgoHelper()
	files := map[string]string{}
	read := func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".md", ".txt"}, filepath.Ext(path)) {
			var text []byte
			text, err = os.ReadFile(path)
			files[path] = string(text)
		}
		return err
	}
	for _, root := range []string{"../../docs", "testdata"} {
		Expect(filepath.WalkDir(root, read)).To(Succeed())
	}
	readme, err := os.ReadFile("../../README.md")
	Expect(err).NotTo(HaveOccurred())
	files["README.md"] = string(readme)
	return files
}

var _ = Describe("What is written of the plugin", func() {
	It("should name rules that there are", func() {
		ids := map[string]bool{}
		for _, rule := range conformance.Rules() {
			ids[rule.ID] = true
		}
		for path, text := range texts() {
			for _, match := range ruleText.FindAllStringSubmatch(text, -1) {
				Expect(ids).To(HaveKey(match[1]), path)
			}
		}
	})

	It("should be what happens, on the page for those whose node failed", func() {
		var archive bytes.Buffer
		_, err := (&evidence.Bundle{Node: "node-2"}).WriteTo(&archive, 1<<20)
		Expect(err).NotTo(HaveOccurred())
		page, commands := texts()["../../docs/usage/my-node-failed.md"], 0
		GinkgoT().Chdir(GinkgoT().TempDir()) // evidence is written
		for i, block := range strings.Split(page, "```") {
			for _, match := range inBlock.FindAllStringSubmatch(block, -1) {
				if i%2 == 0 {
					continue
				}
				commands++
				args := match[1]
				if slices.Contains([]string{"extend", "release", "when-failed"}, strings.Fields(args)[0]) {
					args += " --dry-run=client"
				}
				p := newPerson(append(ledgerObjects(), evidenceOf("node-2", archive.Bytes())), nil)
				Expect(p.runs(args)).To(Succeed(), args)
				if head, output, _ := strings.Cut(block, "\n$ "); head == "text" {
					_, output, _ = strings.Cut(output, "\n")
					Expect(p.out.String()).To(Equal(output))
				}
			}
		}
		Expect(commands).To(Equal(13))
	})

	It("should show what is written", func() {
		files := texts()
		trim := regexp.MustCompile(`(?m) +$`)
		for block := range strings.SplitSeq(files["../../docs/usage/kubectl-preserve.md"], "```text\n") {
			block, _, _ = strings.Cut(block, "```")
			if !strings.HasPrefix(block, "$ ") {
				continue
			}
			for example := range strings.SplitSeq("\n"+block, "\n$ ") {
				command, output, _ := strings.Cut(strings.TrimPrefix(example, "$ "), "\n")
				if output = strings.TrimSpace(output); output == "" {
					continue
				}
				written := false
				for path, text := range files {
					written = written || strings.HasPrefix(path, "testdata/") && strings.TrimSpace(trim.ReplaceAllString(text, "")) == output
				}
				Expect(written).To(BeTrue(), command)
			}
		}
	})
})
