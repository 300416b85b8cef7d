// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import "go/ast"

// metric is what is served under a name.
type metric struct {
	name, kind, help string
	labels           []string
	dir              string
}

// ours is the package whose functions make all metrics.
const ours = "pkg/metrics"

// constructors say what the functions of that package make, and after how many arguments their labels come.
var constructors = map[string]struct {
	kind   string
	before int
}{
	"Counter":   {"counter", 2},
	"Gauge":     {"gauge", 2},
	"GaugeFunc": {"gauge", 3},
	"Histogram": {"histogram", 3},
}

// metrics returns all that the code makes.
func (c code) metrics() (found []metric, err error) {
	for _, p := range c {
		for _, file := range p.files {
			ast.Inspect(file, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || err != nil {
					return err == nil
				}
				selector, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				name, ok := selector.X.(*ast.Ident)
				if !ok || importOf(file, name.Name) != module+ours {
					return true
				}
				constructor, ok := constructors[selector.Sel.Name]
				if !ok {
					return true
				}
				var namespace string
				if namespace, err = c.evaluate(&scope{pkg: p, file: file}, &ast.SelectorExpr{X: name, Sel: ast.NewIdent("Namespace")}); err != nil {
					return false
				}
				texts := make([]string, 0, len(call.Args))
				for i, argument := range call.Args {
					if i >= 2 && i < constructor.before {
						continue // the buckets, or the function
					}
					var text string
					if text, err = c.evaluate(&scope{pkg: p, file: file}, argument); err != nil {
						return false
					}
					texts = append(texts, text)
				}
				found = append(found, metric{namespace + "_" + texts[0], constructor.kind, texts[1], texts[2:], p.dir})
				return true
			})
		}
	}
	return found, err
}
