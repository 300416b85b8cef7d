// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

var (
	// identifiers in comments are code.
	identifiers = regexp.MustCompile("`[^`]*`" + `|\b\w*[a-z0-9][A-Z]\w*|\b\w+_\w+|\b[\w-]+(?:[./][\w-]+)+`)
	directive   = regexp.MustCompile(`^//(?:go:|nolint\b|\+|SPDX-)`)
	sentences   = regexp.MustCompile(`\pL['")%]*[,.:;]?\s+['"(%]*\pL`)
	quoted      = regexp.MustCompile("`[^`]*`")
)

// readGo returns the comments of a file, and those of its strings that are sentences.
func readGo(file string, source []byte) ([]*text, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return nil, err
	}
	lineOf := func(pos token.Pos) int { return files.Position(pos).Line }

	var texts []*text
	names := namesOf(parsed)
	for _, group := range parsed.Comments {
		t := &text{file: file, kind: comments}
		for _, comment := range group.List {
			if directive.MatchString(comment.Text) {
				continue
			}
			body, line := strings.TrimPrefix(comment.Text, "//"), lineOf(comment.Pos())
			if block, ok := strings.CutPrefix(body, "/*"); ok {
				body = strings.TrimSuffix(block, "*/")
			}
			for i, part := range strings.Split(body, "\n") {
				t.add([]byte(part+" "), line+i, false, strings.HasPrefix(part, "\t")) // gofmt indents code so
			}
		}
		t.mask(identifiers)
		for _, name := range names[group] {
			t.mask(regexp.MustCompile(`^ *` + regexp.QuoteMeta(name) + `\b`))
		}
		texts = append(texts, t)
	}

	// one is whether something is a string, or several that are put together, and its text.
	var one func(t *text, expression ast.Expr) bool
	one = func(t *text, expression ast.Expr) bool {
		switch e := expression.(type) {
		case *ast.BasicLit:
			if e.Kind != token.STRING {
				return false
			}
			value, err := strconv.Unquote(e.Value)
			t.add([]byte(value), lineOf(e.Pos()), e.Value[0] == '`', false)
			return err == nil
		case *ast.BinaryExpr:
			if e.Op != token.ADD {
				return false
			}
			left := one(t, e.X)
			right := one(t, e.Y)
			return left || right
		case *ast.ParenExpr:
			return one(t, e.X)
		default:
			t.add([]byte("…"), lineOf(e.Pos()), false, true)
			return false
		}
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BinaryExpr, *ast.BasicLit:
			t := &text{file: file, kind: messages}
			if !one(t, n.(ast.Expr)) {
				return true
			}
			t.mask(quoted)
			if sentences.Match(t.prose) {
				texts = append(texts, t)
			}
			return false
		}
		return true
	})
	return texts, nil
}

// namesOf returns what comments are about.
func namesOf(file *ast.File) map[*ast.CommentGroup][]string {
	names := map[*ast.CommentGroup][]string{file.Doc: {"Package " + file.Name.Name}}
	ast.Inspect(file, func(node ast.Node) bool {
		add := func(doc *ast.CommentGroup, identifiers ...*ast.Ident) {
			for _, identifier := range identifiers {
				names[doc] = append(names[doc], identifier.Name)
			}
		}
		switch n := node.(type) {
		case *ast.FuncDecl:
			add(n.Doc, n.Name)
		case *ast.Field:
			add(n.Doc, n.Names...)
		case *ast.ValueSpec:
			add(n.Doc, n.Names...)
		case *ast.TypeSpec:
			add(n.Doc, n.Name)
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					add(n.Doc, s.Names...)
				case *ast.TypeSpec:
					add(n.Doc, s.Name)
				}
			}
		}
		return true
	})
	delete(names, nil)
	return names
}
