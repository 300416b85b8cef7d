// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// TestAnnotations holds the lists to what the comments of the constants say.
func TestAnnotations(t *testing.T) {
	for kind, list := range map[string][]string{"Machine": MachineAnnotations, "Node": NodeAnnotations} {
		keys := keysOn(t, kind)
		for _, key := range keys {
			if !slices.Contains(list, key) {
				t.Errorf("%sAnnotations lack %s, whose comment says that it is on a %s", kind, key, kind)
			}
		}
		for _, key := range list {
			if !slices.Contains(keys, key) {
				t.Errorf("%sAnnotations have %s, and no comment says that it is on a %s", kind, key, kind)
			}
		}
	}
}

// keysOn returns the keys of this extension whose comments say that they are on objects of a kind.
func keysOn(t *testing.T, kind string) []string {
	t.Helper()
	// "AnnotationX on a failed Machine ...", "AnnotationX on a Node or a Machine ..."
	on := regexp.MustCompile(`^Annotation\w+ on (?:an?(?: [\w-]+)? [A-Z]\w+ or )*an?(?: [\w-]+)? ` + kind + `\b`)
	var keys []string
	for _, name := range []string{"annotations.go", "powercycle.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			sum, ok := spec.Values[0].(*ast.BinaryExpr)
			if !ok || !on.MatchString(spec.Doc.Text()) {
				return true
			}
			if prefix, ok := sum.X.(*ast.Ident); !ok || prefix.Name != "annotationPrefix" {
				return true
			}
			suffix, err := strconv.Unquote(sum.Y.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, GroupName+"/"+suffix)
			return true
		})
	}
	if len(keys) == 0 {
		t.Fatalf("no comment says that a key is on a %s", kind)
	}
	return keys
}
