// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package fences checks what golangci-lint cannot: that depguard's rules leave out no file, and name none that is gone.
package fences

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

func TestFences(t *testing.T) {
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct{ Files []string }
				}
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(root, ".golangci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}

	var files []string
	for _, dir := range []string{"cmd", "pkg", "test"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") {
				files = append(files, strings.TrimPrefix(path, root))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}

	floors := map[string][]string{}
	for rule, settings := range config.Linters.Settings.Depguard.Rules {
		var selects, leavesOut []*regexp.Regexp
		for _, pattern := range settings.Files {
			glob, negated := strings.CutPrefix(pattern, "!")
			if glob == "$test" {
				glob = "**/*_test.go"
			}
			expression := compile(glob)
			if !slices.ContainsFunc(files, expression.MatchString) {
				t.Errorf("%s: there is no file %q", rule, pattern)
			}
			if negated {
				leavesOut = append(leavesOut, expression)
			} else {
				selects = append(selects, expression)
			}
		}
		if !strings.HasPrefix(rule, "floor-") {
			continue
		}
		for _, file := range files {
			matches := func(expression *regexp.Regexp) bool { return expression.MatchString(file) }
			if slices.ContainsFunc(selects, matches) && !slices.ContainsFunc(leavesOut, matches) {
				floors[file] = append(floors[file], rule)
			}
		}
	}
	for _, file := range files {
		if strings.HasPrefix(file, "/pkg/") && !strings.HasSuffix(file, "_test.go") && len(floors[file]) != 1 {
			t.Errorf("%s must be on exactly one floor, is on %q", file, floors[file])
		}
	}
}

// compile returns what matches the files that depguard's pattern does.
func compile(glob string) *regexp.Regexp {
	expression := strings.NewReplacer("**", ".*", "*", "[^/]*", ".", "[.]", "{", "(", ",", "|", "}", ")").Replace(glob)
	return regexp.MustCompile("^" + expression + "$")
}
