// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
)

func TestIDsIn(t *testing.T) {
	g := NewWithT(t)
	for text, ids := range map[string][]string{
		"P13 R6: should refuse":                 {"P13", "R6"},
		"Q1: should know a letter to come":      {"Q1"},
		"D1 to D4, D9: should drain":            {"D1", "D2", "D3", "D4", "D9"},
		"M9 to M11, of two digits":              {"M9", "M10", "M11"},
		"H4 to T5 is no range":                  {"H4", "T5"},
		"of UTF8, MCM062, T100 and a T none is": nil,
	} {
		g.Expect(idsIn(text)).To(Equal(ids), text)
	}
}

func TestTextsOfFile(t *testing.T) {
	g := NewWithT(t)
	file, err := parser.ParseFile(token.NewFileSet(), "f.go", `// Package p begins with T1.
package p

// Rule ends (T2).
const Rule, other = "T3", "T4 is in a text"

func init() {
	It("T5: should be one", func() {}) // T6
	Entry("T7", "T8")
	Skip("T9")
}
`, parser.SkipObjectResolution|parser.ParseComments)
	g.Expect(err).NotTo(HaveOccurred())
	ids := func(texts []string) (ids []string) {
		for _, text := range texts {
			ids = append(ids, idsIn(text)...)
		}
		return ids
	}
	g.Expect(ids(testsIn(file))).To(ConsistOf("T5", "T7"))
	g.Expect(ids(namedIn(file))).To(ConsistOf("T1", "T2", "T3", "T6", "T7", "T8", "T9"))
}

func TestFiles(t *testing.T) {
	g := NewWithT(t)
	for path, code := range map[string]bool{
		"pkg/preservation/ongoing.go": true, "pkg/preservation/doc.go": false, "pkg/preservation/ongoing_test.go": false,
		"pkg/preservation/testdata/reasons.txt": false, "pkg/apis/preservation/v1alpha1/annotations.go": false, "pkg/explain/whatif.go": false, "pkg/plugin/list.go": false,
	} {
		g.Expect(isCode(path)).To(Equal(code), path)
	}
	g.Expect(mostOf([]string{"g", "f", "e", "pkg/drain/d", "c", "b", "g", "g", "f"})).To(Equal([]string{"g", "f", "pkg/drain/d", "b", "c"}))
	g.Expect(mostOf(nil)).To(BeEmpty())
	g.Expect(links([]string{"pkg/p/f.go", "pkg/p/g_test.go"})).To(Equal("[f](../../pkg/p/f.go), [g](../../pkg/p/g_test.go)"))
	g.Expect(links([]string{"pkg/p/f.go", "pkg/q/f.go"})).To(Equal("[p/f](../../pkg/p/f.go), [q/f](../../pkg/q/f.go)"))
	g.Expect(links([]string{"pkg/p/f.go", "pkg/q/p/f.go"})).To(Equal("[pkg/p/f](../../pkg/p/f.go), [q/p/f](../../pkg/q/p/f.go)"))
}

func TestReference(t *testing.T) {
	g := NewWithT(t)
	var page strings.Builder
	g.Expect(writeReference(&page, conformance.Rules())).To(Succeed())
	for _, rule := range conformance.Rules() {
		g.Expect(page.String()).To(ContainSubstring("</a>" + rule.ID + " | " + rule.Text + " |\n"))
	}
	g.Expect(page.String()).To(ContainSubstring("## Requests\n\n| id | rule |\n| --- | --- |\n| <a id=\"r1\"></a>R1 | "))
	g.Expect(writeReference(&page, []conformance.Rule{{ID: "Y1", Text: "It is of no domain."}})).To(MatchError("0 of 1 rules are of a domain"))
}
