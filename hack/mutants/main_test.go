// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/format"
	"go/parser"
	"go/token"
	"testing"
)

func TestMutantsOf(t *testing.T) {
	const source = `package p

func f(a, b int, c bool) bool {
	a++
	switch {
	case a < b:
		f(b, a, c)
	}
	return !c && true
}
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "f.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	printed := func() string {
		out := &bytes.Buffer{}
		if err := format.Node(out, files, file); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	seen := map[string]bool{source: true}
	for _, m := range mutantsOf(files, file, ".", "f.go") {
		m.apply()
		if broken := printed(); seen[broken] {
			t.Errorf("line %d, %s: is as before, or as another one", m.line, m.text)
		} else {
			seen[broken] = true
		}
		if m.apply(); printed() != source {
			t.Errorf("line %d, %s: is not mended", m.line, m.text)
		}
	}
	if len(seen) != 8 { // the source, a++, two of <, the call, !, &&, true
		t.Errorf("there are %d sources", len(seen))
	}
}
