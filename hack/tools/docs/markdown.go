// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	markdowntext "github.com/yuin/goldmark/text"
)

// document is a file in Markdown.
type document struct {
	texts []*text
	links []link
	// anchors are what links can name in it.
	anchors map[string]bool
}

type link struct {
	line int
	to   string
}

var (
	markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))
	htmlLink = regexp.MustCompile(`\b(?:href|src|srcset)="([^"\s]+)`)
	htmlID   = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
)

func readMarkdown(file string, source []byte) *document {
	d := &document{anchors: map[string]bool{}}
	lineAt := func(offset int) int { return 1 + bytes.Count(source[:offset], []byte("\n")) }
	html := func(lines *markdowntext.Segments) {
		for i := range lines.Len() {
			segment := lines.At(i)
			for _, match := range htmlLink.FindAllSubmatch(segment.Value(source), -1) {
				d.links = append(d.links, link{lineAt(segment.Start), string(match[1])})
			}
			for _, match := range htmlID.FindAllSubmatch(segment.Value(source), -1) {
				d.anchors[string(match[1])] = true
			}
		}
	}

	line := 1 // of what was read last: a link has none of its own
	var read func(t *text, node ast.Node, isCode bool)
	read = func(t *text, node ast.Node, isCode bool) {
		for child := node.FirstChild(); child != nil; child = child.NextSibling() {
			switch n := child.(type) {
			case *ast.Text:
				line = lineAt(n.Segment.Start)
				t.add(n.Segment.Value(source), line, true, isCode)
				if n.SoftLineBreak() || n.HardLineBreak() {
					t.add([]byte(" "), line, true, false)
				}
			case *ast.String:
				t.add(n.Value, line, true, isCode)
			case *ast.AutoLink:
				t.add(n.Label(source), line, true, true)
			case *ast.RawHTML:
				html(n.Segments)
			case *ast.CodeSpan:
				read(t, n, true)
			case *ast.Link:
				read(t, n, isCode || isName(n, source))
				d.links = append(d.links, link{line, string(n.Destination)})
			case *ast.Image:
				read(t, n, isCode)
				d.links = append(d.links, link{line, string(n.Destination)})
			default:
				read(t, n, isCode)
			}
		}
	}

	_ = ast.Walk(markdown.Parser().Parse(markdowntext.NewReader(source)), func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering || node.Type() == ast.TypeInline {
			return ast.WalkContinue, nil
		}
		if block, ok := node.(*ast.HTMLBlock); ok {
			html(block.Lines())
		}
		if child := node.FirstChild(); child == nil || child.Type() != ast.TypeInline {
			return ast.WalkContinue, nil
		}
		t := &text{file: file, kind: docs}
		if lines := node.Lines(); lines != nil && lines.Len() > 0 {
			line = lineAt(lines.At(0).Start)
		}
		read(t, node, false)
		if _, ok := node.(*ast.Heading); ok {
			d.addHeading(string(t.shown))
		}
		d.texts = append(d.texts, t)
		return ast.WalkSkipChildren, nil
	})
	return d
}

// isName says that the text of a link is the name of the file that it leads to, with folders or without.
func isName(n *ast.Link, source []byte) bool {
	named, ok := n.FirstChild().(*ast.Text)
	if !ok || n.FirstChild() != n.LastChild() {
		return false
	}
	name := "/" + string(n.Destination)
	return strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(name, path.Ext(name)), "_test"), "/"+string(named.Segment.Value(source)))
}

// addHeading adds the anchor that GitHub gives to a heading.
func (d *document) addHeading(heading string) {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
	anchor := slug
	for n := 1; d.anchors[anchor]; n++ {
		anchor = fmt.Sprint(slug, "-", n)
	}
	d.anchors[anchor] = true
}
