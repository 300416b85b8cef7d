// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"sort"
	"strings"
)

// kind is where a text is.
type kind string

const (
	docs     kind = "docs"
	comments kind = "comments"
	// messages are the strings of the code, and what alerts say.
	messages kind = "messages"
)

// code stands for each byte of what is no prose.
const code = '`'

// text is a paragraph: what people read in one go. All whitespace is one blank in it.
type text struct {
	file string
	kind kind
	// shown is what is there, and prose the same, byte for byte, but for what is no prose.
	shown, prose []byte
	starts       []start
}

// start is where in a text a line begins.
type start struct{ offset, line int }

// add appends what begins in a line. Its own line breaks count as lines if it is raw.
func (t *text) add(added []byte, line int, isRaw, isCode bool) {
	t.starts = append(t.starts, start{len(t.shown), line})
	for _, b := range added {
		p := b
		if isCode {
			p = code
		}
		if b == '\n' || b == '\t' {
			p, b = ' ', ' '
			if isRaw {
				line++
			}
			t.starts = append(t.starts, start{len(t.shown) + 1, line})
		}
		if n := len(t.shown); b == ' ' && n > 0 && t.shown[n-1] == ' ' {
			t.starts[len(t.starts)-1].offset = min(t.starts[len(t.starts)-1].offset, n)
			continue
		}
		t.shown, t.prose = append(t.shown, b), append(t.prose, p)
	}
}

// mask takes what an expression matches out of the prose.
func (t *text) mask(expression *regexp.Regexp) {
	for _, at := range expression.FindAllIndex(t.prose, -1) {
		for i := at[0]; i < at[1]; i++ {
			t.prose[i] = code
		}
	}
}

func (t *text) lineAt(offset int) int {
	i := sort.Search(len(t.starts), func(i int) bool { return t.starts[i].offset > offset })
	return t.starts[max(i-1, 0)].line
}

var endOfSentence = regexp.MustCompile(`[.!?]['")]* `)

// longest is how much of a sentence is shown at most.
const longest = 200

// sentence returns the one that something is in.
func (t *text) sentence(from, to int) string {
	begin, end := 0, len(t.shown)
	for _, at := range endOfSentence.FindAllIndex(t.prose, -1) {
		switch {
		case at[1] <= from:
			begin = at[1]
		case at[0] >= to-1:
			end = min(end, at[1])
		}
	}
	if cut := from - longest/2; cut > begin {
		begin = cut + bytes.IndexByte(t.shown[cut:], ' ') // there is one: nobody writes such words
	}
	if cut := to + longest/2; cut < end {
		end = max(to, bytes.LastIndexByte(t.shown[:cut], ' '))
	}
	begin = min(begin, from)
	return strings.Join(strings.Fields(string(t.shown[begin:end])), " ")
}
