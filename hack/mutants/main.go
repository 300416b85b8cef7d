// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Command mutants breaks the code of packages at random places, one at a time, and says of which breaks the packages' own tests see
// nothing. It changes no file: the broken one takes the place of the other in an overlay of the build.
//
//	go run ./hack/mutants -n 60 -seed 1 ./pkg/preservation ./pkg/share
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mutant is one break.
type mutant struct {
	pkg, file, text string
	line            int
	// apply breaks the parsed file.
	apply func()
}

// operators are what an operator becomes.
var operators = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
}

func main() {
	n := flag.Int("n", 60, "how many mutants are tried")
	seed := flag.Uint64("seed", 1, "what their choice follows from")
	timeout := flag.Duration("timeout", 10*time.Minute, "for how long the tests of a package may run with one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survived, err := try(ctx, flag.Args(), *n, *seed, *timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// try returns how many of n mutants of packages have survived. Those that do not compile are replaced by others.
func try(ctx context.Context, packages []string, n int, seed uint64, timeout time.Duration) (survived int, err error) {
	files := token.NewFileSet()
	sources := map[string]*ast.File{}
	var all []mutant
	for _, pkg := range packages {
		names, err := filepath.Glob(filepath.Join(pkg, "*.go"))
		if err != nil {
			return 0, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(filepath.Base(name), "zz_generated") {
				continue
			}
			if sources[name], err = parser.ParseFile(files, name, nil, parser.ParseComments); err != nil {
				return 0, err
			}
			all = append(all, mutantsOf(files, sources[name], pkg, name)...)
		}
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("there is nothing to break in %q", packages)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	killed, late := 0, 0
	for _, m := range all {
		if killed+late+survived == n || ctx.Err() != nil {
			break
		}
		// The same tree is broken and mended again, by applying the break twice.
		m.apply()
		source := &bytes.Buffer{}
		err := format.Node(source, files, sources[m.file])
		m.apply()
		if err != nil {
			return survived, err
		}
		outcome, err := test(ctx, m, source.Bytes(), timeout)
		if err != nil {
			return survived, err
		}
		switch outcome {
		case "killed":
			killed++
		case "late":
			late++
		case "survived":
			survived++
		}
		fmt.Printf("%-8s %s:%d %s\n", outcome, m.file, m.line, m.text)
	}
	fmt.Printf("%d of %d places, seed %d: %d killed, %d survived, %d ran out of time\n", killed+late+survived, len(all), seed, killed, survived, late)
	return survived, ctx.Err()
}

// mutantsOf returns the breaks of a file. Each one undoes itself when it is applied twice.
func mutantsOf(files *token.FileSet, file *ast.File, pkg, name string) (all []mutant) {
	add := func(pos token.Pos, text string, apply func()) {
		all = append(all, mutant{pkg: pkg, file: name, line: files.Position(pos).Line, text: text, apply: apply})
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.BinaryExpr:
			for _, other := range operators[x.Op] {
				was, other := x.Op, other
				add(x.OpPos, fmt.Sprintf("%s becomes %s", was, other), func() { x.Op, other = other, x.Op })
			}
		case *ast.UnaryExpr:
			if x.Op == token.NOT { // !!x is x
				negated := ast.Expr(&ast.UnaryExpr{Op: token.NOT, X: x.X})
				add(x.OpPos, "! goes", func() { x.X, negated = negated, x.X })
			}
		case *ast.Ident:
			if other := map[string]string{"true": "false", "false": "true"}[x.Name]; other != "" {
				add(x.Pos(), fmt.Sprintf("%s becomes %s", x.Name, other), func() { x.Name, other = other, x.Name })
			}
		case *ast.BlockStmt:
			for i, statement := range x.List {
				if isEffect(statement) {
					gone := ast.Stmt(&ast.EmptyStmt{Semicolon: statement.Pos()})
					add(statement.Pos(), "the statement goes", func() { x.List[i], gone = gone, x.List[i] })
				}
			}
		case *ast.CaseClause:
			for i, statement := range x.Body {
				if isEffect(statement) {
					gone := ast.Stmt(&ast.EmptyStmt{Semicolon: statement.Pos()})
					add(statement.Pos(), "the statement goes", func() { x.Body[i], gone = gone, x.Body[i] })
				}
			}
		}
		return true
	})
	return all
}

// isEffect says that a statement can go, and the rest still compiles: it calls, or assigns to what is there.
func isEffect(statement ast.Stmt) bool {
	switch x := statement.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return x.Tok != token.DEFINE && !slices.ContainsFunc(x.Lhs, func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == "_" })
	}
	return false
}

// test runs the tests of a package with a broken file, and returns whether that is killed, survives, takes too long, or is invalid.
func test(ctx context.Context, m mutant, source []byte, timeout time.Duration) (string, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	content, err := json.Marshal(map[string]map[string]string{"Replace": {original: broken}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(broken, source, 0o600), os.WriteFile(overlay, content, 0o600)); err != nil {
		return "", err
	}
	output, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-failfast", "-timeout", timeout.String(), "-overlay", overlay, m.pkg).CombinedOutput()
	switch {
	case err == nil:
		return "survived", nil
	case bytes.Contains(output, []byte("[build failed]")):
		return "invalid", nil
	case bytes.Contains(output, []byte("test timed out after")):
		return "late", nil
	}
	return "killed", ctx.Err()
}
