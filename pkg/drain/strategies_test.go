// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

var _ = Describe("Patterns", func() {
	DescribeTable("M17: should refuse those that become large, and say why", func(pattern, why string) {
		_, _, err := CompilePattern(pattern)
		Expect(err).To(MatchError(ContainSubstring(why)))
		_, err = CompileNamespacePattern(pattern)
		Expect(err).To(MatchError(ContainSubstring(why)))
	},
		Entry("many bytes", strings.Repeat("a", 257), "it has 257 bytes"),
		Entry("a class of Unicode", `\pL`, "invalid "),
		Entry("parentheses that are closed elsewhere", ")|(", "unexpected )"),
		Entry("a large repetition", "(abcd){300}", "it repeats too much"),
		Entry("one of what matches anything", "(.*.*.*.*.*.*.*.*.*.*){30}Z", "it repeats too much"),
		Entry("one around any number, which may be none", "(?:(?:"+strings.Repeat("a", 200)+"){0,}){1000}", "it repeats too much"),
		Entry("one around none", "(?:(?:"+strings.Repeat("a", 200)+"){0}b{1000})", "it repeats too much"),
		Entry("one of classes", "([a-z]{31}[^a-z]{31}){17}", "it repeats too much"),
	)

	const (
		label = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
		end   = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
	)
	DescribeTable("M17: should take all that names are looked for with", func(pattern string) {
		_, _, err := CompilePattern(pattern)
		Expect(err).NotTo(HaveOccurred())
		_, err = CompileNamespacePattern(pattern)
		Expect(err).NotTo(HaveOccurred())
	},
		Entry("a name", "nvidia.com/rdma*"),
		Entry("some names", "^(nvidia|amd|intel)[.]com/(gpu|mig-[1-7]g[.][0-9]+gb)(-[a-z0-9]+)*$"),
		Entry("a label of a domain", "^"+label+"$"),
		Entry("any name that there can be", "^("+label+"([.]"+label+")*/)?"+end+"$"),
		Entry("as many bytes as there may be", strings.Repeat("a", 256)),
		Entry("as many that match anything", strings.Repeat(".*", 128)),
		Entry("as many alternatives", strings.Repeat("a|", 127)+"b"),
		Entry("as many groups", strings.Repeat("(a)", 85)),
		Entry("in large and small letters", "(?i)"+strings.Repeat("k", 252)),
	)
})
