// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"regexp/syntax"
	"strings"
	"testing"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

// FuzzCompilePattern looks for anything in anything (M17).
func FuzzCompilePattern(f *testing.F) {
	for _, pattern := range []string{
		"", "nvidia.com/rdma*", "^(nvidia|amd)[.]com/(gpu|mig-[1-7]g[.][0-9]+gb)$", "(a", ")|(", `\pL`, "(?i)k", "(?U)a+?", "[^a]", `\Q.\E\z\b`, `\Qa`,
		"(.*.*.*.*.*.*.*.*.*.*){30}Z", "(.*.*.*.*.*.*.*.*.*.*){22}Z", "((a{10}){10}){10}", "((a{0,}){0,}){1000}", "(?:(?:aaaaaaaaaa){0,}){1000}", "(?:){1000}", "x{0}", "\xff",
		strings.Repeat("a", 257),
	} {
		f.Add(pattern, "nvidia.com/gpu")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		compiled, count, err := CompilePattern(pattern)
		ofNamespaces, namespaceErr := CompileNamespacePattern(pattern)
		if (err == nil) != (namespaceErr == nil) {
			t.Errorf("%q: %v, but %v", pattern, err, namespaceErr)
		}
		if err != nil {
			return
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil || len(program.Inst) != count || count > 500 {
			t.Errorf("%q has %d instructions and not %d: %v", pattern, len(program.Inst), count, err)
		}
		if ofNamespaces.MatchString(name) && !compiled.MatchString(name) {
			t.Errorf("%q matches all of %q, but nothing in it", pattern, name)
		}
	})
}
