// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// TestDefects keeps the table in step with the product: what a defect breaks is there once, and is Go when it is broken.
func TestDefects(t *testing.T) {
	whats := map[string]bool{}
	for _, d := range slices.Concat(defects, defectsOf061, defectsOf062) {
		if whats[d.what] {
			t.Errorf("there are two defects %q", d.what)
		}
		whats[d.what] = true
		broken, err := d.broken("../../../..")
		if err != nil {
			t.Errorf("%s: %v", d.what, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), d.file, broken, 0); err != nil {
			t.Errorf("%s: %v", d.what, err)
		}
	}
}
