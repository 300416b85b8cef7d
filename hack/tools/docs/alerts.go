// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
)

var (
	sentenceOfAlert = regexp.MustCompile(`^( *)(?:summary|description|message):\s*(.*)$`)
	alert           = regexp.MustCompile(`(?m)^\s*- alert: `)
	blockScalar     = regexp.MustCompile(`^[|>][+-]?\s*$`)
	variable        = regexp.MustCompile(`\{\{\s*\$[^}]*\}\}`)
)

// readAlerts returns what alerts say in a template of a chart, which is no YAML yet.
func readAlerts(file string, source []byte) (texts []*text) {
	if !alert.Match(source) {
		return nil
	}
	lines := bytes.Split(source, []byte("\n"))
	for i := 0; i < len(lines); i++ {
		match := sentenceOfAlert.FindSubmatch(lines[i])
		if match == nil {
			continue
		}
		t := &text{file: file, kind: messages}
		if !blockScalar.Match(match[2]) {
			t.add(match[2], i+1, true, false)
		}
		for indent := len(match[1]); i+1 < len(lines); i++ {
			next := lines[i+1]
			if body := bytes.TrimLeft(next, " "); len(body) == 0 || len(next)-len(body) <= indent {
				break
			}
			t.add(append([]byte(" "), bytes.TrimSpace(next)...), i+2, true, false)
		}
		t.mask(variable)
		texts = append(texts, t)
	}
	return texts
}
