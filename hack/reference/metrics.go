// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"regexp"
	"strings"
)

// metric is what is served under a name.
type metric struct {
	name, kind, help string
	labels           []string
	dir              string
}

var constructor = regexp.MustCompile(`^New(Counter|Gauge|Histogram|Summary)(?:Vec|Func)?$`)

// metrics returns all that the code makes, by the functions of prometheus and promauto that make them.
func (c code) metrics() (found []metric, err error) {
	for _, p := range c {
		for _, file := range p.files {
			for _, declaration := range file.Decls {
				for _, s := range c.scopesOf(p, file, declaration) {
					ast.Inspect(declaration, func(node ast.Node) bool {
						call, ok := node.(*ast.CallExpr)
						if !ok || err != nil {
							return err == nil
						}
						selector, ok := call.Fun.(*ast.SelectorExpr)
						if !ok || len(call.Args) == 0 {
							return true
						}
						kind := constructor.FindStringSubmatch(selector.Sel.Name)
						options, ok := call.Args[0].(*ast.CompositeLit)
						if kind == nil || !ok {
							return true
						}
						m := metric{kind: strings.ToLower(kind[1]), dir: p.dir}
						if err = c.options(s, options, &m); err == nil && strings.HasSuffix(selector.Sel.Name, "Vec") && len(call.Args) > 1 {
							m.labels, err = c.list(s, call.Args[1])
						}
						found = append(found, m)
						return true
					})
				}
			}
		}
	}
	return found, err
}

// scopesOf returns one scope for each call of a function within its package where it has parameters that are texts, and else the package's.
func (c code) scopesOf(p *pkg, file *ast.File, declaration ast.Decl) (scopes []*scope) {
	function, ok := declaration.(*ast.FuncDecl)
	if !ok || function.Recv != nil || function.Type.Params.NumFields() == 0 {
		return []*scope{{pkg: p, file: file}}
	}
	for _, from := range p.files {
		ast.Inspect(from, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); !ok || name.Name != function.Name.Name {
				return true
			}
			s := &scope{pkg: p, file: file, parameters: map[string]ast.Expr{}, caller: &scope{pkg: p, file: from}}
			i := 0
			for _, field := range function.Type.Params.List {
				for _, name := range field.Names {
					if _, isVariadic := field.Type.(*ast.Ellipsis); isVariadic {
						s.parameters[name.Name] = &ast.CompositeLit{Elts: call.Args[min(i, len(call.Args)):]}
					} else if i < len(call.Args) {
						s.parameters[name.Name] = call.Args[i]
					}
					i++
				}
			}
			scopes = append(scopes, s)
			return true
		})
	}
	return scopes
}

// options reads the name and the help.
func (c code) options(s *scope, options *ast.CompositeLit, m *metric) error {
	parts := map[string]string{}
	for _, element := range options.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := pair.Key.(*ast.Ident).Name; key {
		case "Namespace", "Subsystem", "Name", "Help":
			var err error
			if parts[key], err = c.evaluate(s, pair.Value); err != nil {
				return err
			}
		}
	}
	for _, key := range []string{"Namespace", "Subsystem", "Name"} {
		if parts[key] != "" {
			m.name = strings.TrimPrefix(m.name+"_"+parts[key], "_")
		}
	}
	m.help = parts["Help"]
	return nil
}

// list returns the texts in a list.
func (c code) list(s *scope, expression ast.Expr) (list []string, err error) {
	switch e := expression.(type) {
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			item, err := c.evaluate(s, element)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	case *ast.Ident:
		if e.Name == "nil" {
			return nil, nil
		}
		if parameter, ok := s.parameters[e.Name]; ok {
			return c.list(s.caller, parameter)
		}
		if v := s.values[e.Name]; v != nil {
			return c.list(&scope{pkg: v.pkg, file: v.file}, v.expr)
		}
	case *ast.CallExpr: // append(a, b...)
		if name, ok := e.Fun.(*ast.Ident); ok && name.Name == "append" && len(e.Args) == 2 && e.Ellipsis.IsValid() {
			first, err := c.list(s, e.Args[0])
			if err != nil {
				return nil, err
			}
			second, err := c.list(s, e.Args[1])
			return append(first, second...), err
		}
	}
	_, err = c.evaluate(s, &ast.BadExpr{})
	return nil, err
}
