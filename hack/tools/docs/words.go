// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// words has the phrases that are refused.
type words struct {
	Phrases []*phrase `json:"phrases"`
}

type phrase struct {
	// Pattern is a regular expression. It ignores case, and a blank in it matches a line break, too.
	Pattern string `json:"pattern"`
	// Instead is what to say.
	Instead string `json:"instead"`
	// In is where the phrase is refused: kinds of texts, or paths. Empty means everywhere.
	In []string `json:"in,omitempty"`
	// Except are paths where the phrase is allowed.
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

// isIn says whether a file is one of the paths, or below one of them.
func isIn(file string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		return file == path || strings.HasPrefix(file, strings.TrimSuffix(path, "/")+"/")
	})
}

// find returns the refused phrases in a text.
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
