// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// words is what is refused, and where.
type words struct {
	Phrases []*phrase `json:"phrases"`
	// ToBeRewritten are files, or directories, whose texts may still have phrases. Their links are checked.
	ToBeRewritten []string `json:"toBeRewritten"`
}

type phrase struct {
	// Pattern is a regular expression, in which case is no matter and a blank is any space.
	Pattern string `json:"pattern"`
	// Instead is what to say.
	Instead string `json:"instead"`
	// In is where it is refused: kinds of texts, or paths. Empty means everywhere.
	In []string `json:"in,omitempty"`
	// Except is where it is not: paths.
	Except []string `json:"except,omitempty"`

	expression *regexp.Regexp
}

func parseWords(data []byte) (*words, error) {
	w := &words{}
	if err := yaml.UnmarshalStrict(data, w); err != nil {
		return nil, fmt.Errorf("failed to read the list of words: %w", err)
	}
	for _, p := range w.Phrases {
		if p.Pattern == "" || p.Instead == "" {
			return nil, fmt.Errorf("phrase %q: both the pattern and what to say instead must be there", p.Pattern)
		}
		var err error
		if p.expression, err = regexp.Compile(`(?i)` + p.Pattern); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// isIn says that a file is one of the paths, or below one.
func isIn(file string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		return file == path || strings.HasPrefix(file, strings.TrimSuffix(path, "/")+"/")
	})
}

// find returns what is refused in a text.
func (w *words) find(t *text) (found []string) {
	for _, p := range w.Phrases {
		if isIn(t.file, p.Except) || len(p.In) > 0 && !slices.Contains(p.In, string(t.kind)) && !isIn(t.file, p.In) {
			continue
		}
		for _, at := range p.expression.FindAllIndex(t.prose, -1) {
			found = append(found, fmt.Sprintf("%s:%d: %q: not %q, but: %s", t.file, t.lineAt(at[0]), t.sentence(at[0], at[1]), t.prose[at[0]:at[1]], p.Instead))
		}
	}
	return found
}

// without returns the list of words without items of toBeRewritten.
func without(data []byte, done []string) []byte {
	var kept [][]byte
	isList := false
	for _, line := range bytes.SplitAfter(data, []byte("\n")) {
		item := strings.TrimSpace(string(line))
		if len(line) > 0 && line[0] != ' ' && line[0] != '-' && line[0] != '#' {
			isList = strings.HasPrefix(item, "toBeRewritten:")
		}
		if path, ok := strings.CutPrefix(item, "- "); !isList || !ok || !slices.Contains(done, path) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, nil)
}
