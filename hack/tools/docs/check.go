// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	scheme = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9+.-]*:|//)`)
	lines  = regexp.MustCompile(`^L[0-9]+(?:-L[0-9]+)?$`)
	// ours is a link from elsewhere to a file of this repository. named is a page that the code names.
	ours  = regexp.MustCompile(`https://github\.com/gardener/gardener-extension-machine-preservation/(?:blob|tree|raw)/main/([\w./-]*\w(?:#[\w-]+)?)`)
	named = regexp.MustCompile(`(?:^|[\s"(` + "`" + `])(docs/[\w/-]+\.md(?:#[\w-]+)?)`)
)

// check reads the named files and returns their problems. The names must be those of all files, because links may lead to any of them.
func check(files fs.FS, names []string, w *words) (problems []string, err error) {
	paths := map[string]bool{".": true}
	documents := map[string]*document{}
	type dead struct {
		file string
		link
	}
	var links []dead

	for _, name := range names {
		for p := name; p != "."; p = path.Dir(p) {
			paths[p] = true
		}
	}
	for _, name := range names {
		if strings.Contains("/"+name, "/testdata/") {
			continue
		}
		isGo := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && isIn(name, []string{"cmd", "pkg"})
		isChart := strings.HasPrefix(name, "charts/") && path.Ext(name) == ".yaml"
		if !isGo && !isChart && path.Ext(name) != ".md" {
			continue
		}
		source, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var texts []*text
		switch {
		case isGo:
			if texts, err = readGo(name, source); err != nil {
				return nil, err
			}
			for i, line := range bytes.Split(source, []byte("\n")) {
				for _, match := range named.FindAllSubmatch(line, -1) {
					links = append(links, dead{name, link{i + 1, "/" + string(match[1])}})
				}
			}
		case isChart:
			texts = readAlerts(name, source)
		default:
			d := readMarkdown(name, source)
			documents[name], texts = d, d.texts
			for _, l := range d.links {
				if !scheme.MatchString(l.to) {
					links = append(links, dead{name, l})
				}
			}
		}
		for i, line := range bytes.Split(source, []byte("\n")) {
			for _, match := range ours.FindAllSubmatch(line, -1) {
				links = append(links, dead{name, link{i + 1, "/" + string(match[1])}})
			}
		}
		for _, t := range texts {
			problems = append(problems, w.find(t)...)
		}
	}

	for _, l := range links {
		if problem := resolve(l.file, l.to, paths, documents); problem != "" {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", l.file, l.line, strings.TrimPrefix(l.to, "/"), problem))
		}
	}
	return problems, nil
}

// resolve returns what is wrong with a link in a file, empty for nothing.
func resolve(file, to string, paths map[string]bool, documents map[string]*document) string {
	target, anchor, hasAnchor := strings.Cut(to, "#")
	target, err := url.PathUnescape(target)
	if err != nil {
		return err.Error()
	}
	switch {
	case target == "":
		target = file
	case strings.HasPrefix(target, "/"):
		target = path.Clean(target[1:])
	default:
		target = path.Join(path.Dir(file), target)
	}
	if !paths[target] {
		return "there is no file " + target
	}
	if d := documents[target]; hasAnchor && d != nil && !d.anchors[anchor] && !lines.MatchString(anchor) {
		return fmt.Sprintf("%s has no heading with the anchor %q", target, anchor)
	}
	return ""
}
