// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// module is that of the code that is read.
const module = "github.com/gardener/gardener-extension-machine-preservation/"

// code is the packages that are delivered, by their directories.
type code map[string]*pkg

type pkg struct {
	dir    string
	files  []*ast.File
	values map[string]*value
}

// value is a constant or a variable of a package.
type value struct {
	*pkg
	file *ast.File
	name string
	expr ast.Expr
	// doc is what is said of it alone, and group what is said of all that are declared with it.
	doc, group string
	isConst    bool
}

// readCode parses what is delivered and not generated.
func readCode(files fs.FS) (code, error) {
	c := code{}
	for _, root := range []string{"pkg", "cmd"} {
		if _, err := fs.Stat(files, root); err != nil {
			continue
		}
		if err := fs.WalkDir(files, root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
			if err == nil && !ast.IsGenerated(file) {
				c.add(path.Dir(name), file)
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c code) add(dir string, file *ast.File) {
	p := c[dir]
	if p == nil {
		p = &pkg{dir: dir, values: map[string]*value{}}
		c[dir] = p
	}
	p.files = append(p.files, file)
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST && group.Tok != token.VAR {
			continue
		}
		for _, spec := range group.Specs {
			s := spec.(*ast.ValueSpec)
			doc, groupDoc := textOf(s.Doc, s.Comment), textOf(group.Doc)
			if !group.Lparen.IsValid() {
				doc, groupDoc = textOf(group.Doc, s.Comment), ""
			}
			for i, name := range s.Names {
				if i < len(s.Values) {
					p.values[name.Name] = &value{p, file, name.Name, s.Values[i], doc, groupDoc, group.Tok == token.CONST}
				}
			}
		}
	}
}

func textOf(groups ...*ast.CommentGroup) string {
	for _, group := range groups {
		if group != nil {
			return strings.Join(strings.Fields(group.Text()), " ")
		}
	}
	return ""
}

// scope is where an expression stands.
type scope struct {
	*pkg
	file *ast.File
}

// evaluate returns the text that a constant expression is, as far as it needs no other module.
func (c code) evaluate(s *scope, expression ast.Expr) (string, error) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strconv.Unquote(e.Value)
		}
	case *ast.ParenExpr:
		return c.evaluate(s, e.X)
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			break
		}
		left, err := c.evaluate(s, e.X)
		if err != nil {
			return "", err
		}
		right, err := c.evaluate(s, e.Y)
		return left + right, err
	case *ast.CallExpr: // of a type, as string(x)
		if len(e.Args) == 1 {
			return c.evaluate(s, e.Args[0])
		}
	case *ast.Ident:
		if v := s.values[e.Name]; v != nil {
			return c.evaluate(&scope{pkg: v.pkg, file: v.file}, v.expr)
		}
	case *ast.SelectorExpr:
		if name, ok := e.X.(*ast.Ident); ok {
			if p := c[strings.TrimPrefix(importOf(s.file, name.Name), module)]; p != nil && p.values[e.Sel.Name] != nil {
				v := p.values[e.Sel.Name]
				return c.evaluate(&scope{pkg: v.pkg, file: v.file}, v.expr)
			}
		}
	}
	return "", fmt.Errorf("%s: there is an expression (%T) that cannot be read", s.dir, expression)
}

// importOf returns the path of the package that has a name in a file.
func importOf(file *ast.File, name string) string {
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err == nil && (spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path.Base(imported) == name) {
			return imported
		}
	}
	return ""
}
