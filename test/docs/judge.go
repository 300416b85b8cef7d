// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/plugin"
)

var (
	assignment = regexp.MustCompile(`^([A-Z_]+)=`)
	packages   = regexp.MustCompile(`\./test/[\w/]+`)
	// flagsOfGo are those flags of go test that pages use.
	flagsOfGo = []string{"bench", "benchtime", "count", "run", "timeout", "v"}
)

// IsJudged says that a command builds or tests, so it is judged and not run.
func (c Command) IsJudged() bool {
	words := strings.Fields(c.Text)
	first := slices.IndexFunc(words, func(word string) bool { return !assignment.MatchString(word) })
	return first >= 0 && (words[first] == "make" || strings.HasPrefix(c.Text, "go test "))
}

// Judge returns what is wrong with a command that builds or tests, or with a kubectl preserve, in a repository: the target, a
// variable, the package, the test or a flag does not exist.
func (c Command) Judge(root string) (err error) {
	switch {
	case strings.HasPrefix(c.Text, "kubectl preserve "):
		err = JudgePlugin(strings.TrimPrefix(c.Text, "kubectl preserve "))
	case strings.HasPrefix(c.Text, "go test "):
		err = judgeTest(root, c.Text)
	case c.IsJudged():
		err = judgeMake(root, strings.Fields(c.Text))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}

// JudgePlugin returns what is wrong with the arguments of kubectl preserve: there is no such command or flag.
func JudgePlugin(args string) error {
	root := plugin.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
	command, rest, err := root.Find(strings.Fields(placeholder.ReplaceAllString(args, "x")))
	if err != nil {
		return err
	}
	if !command.HasParent() {
		return fmt.Errorf("there is no such command: %s", args)
	}
	return command.ParseFlags(rest)
}

// judgeMake wants each target to exist. A variable is read in its recipe, outside of recipes, or by the test package that it runs.
func judgeMake(root string, words []string) error {
	content, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	recipes, elsewhere, target := map[string]string{}, "", ""
	rule := regexp.MustCompile(`^([\w-]+):( |$)`)
	for line := range strings.Lines(string(content)) {
		if match := rule.FindStringSubmatch(strings.TrimRight(line, "\n")); match != nil {
			target = match[1]
			recipes[target] = "\n"
		} else if target != "" && (strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "  ")) {
			recipes[target] += line
		} else {
			target, elsewhere = "", elsewhere+line
		}
	}
	recipe, variables := elsewhere, []string(nil)
	for _, word := range words {
		if match := assignment.FindStringSubmatch(word); match != nil {
			variables = append(variables, match[1])
		} else if word != "make" {
			if recipes[word] == "" {
				return fmt.Errorf("the Makefile has no target %s", word)
			}
			recipe += recipes[word]
		}
	}
	for _, name := range variables {
		isRead := strings.Contains(recipe, "$("+name+")")
		for _, dir := range packages.FindAllString(recipe, -1) {
			source, err := sourceOf(filepath.Join(root, dir))
			if err != nil {
				return err
			}
			isRead = isRead || strings.Contains(source, `"`+name+`"`)
		}
		if !isRead {
			return fmt.Errorf("nothing reads %s", name)
		}
	}
	return nil
}

// judgeTest wants the package and each flag to exist, and a test or benchmark for what the flags select.
func judgeTest(root, text string) error {
	words := strings.Fields(text)[2:]
	dir := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "./") })
	if dir < 0 {
		return fmt.Errorf("it names no package")
	}
	source, err := sourceOf(filepath.Join(root, words[dir]))
	if err != nil {
		return err
	}
	for i, word := range words {
		if !strings.HasPrefix(word, "-") {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !hasValue && name != "v" && i+1 < len(words) {
			value = words[i+1]
		}
		if !slices.Contains(flagsOfGo, name) && !strings.Contains(source, `"`+name+`"`) {
			return fmt.Errorf("%s has no flag -%s", words[dir], name)
		}
		kind := map[string]string{"run": "Test", "bench": "Benchmark"}[name]
		value, _, _ = strings.Cut(strings.Trim(value, "'"), "/")
		if kind == "" || value == "^$" {
			continue
		}
		selected, err := regexp.Compile(value)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(regexp.MustCompile(`func (`+kind+`\w*)\(`).FindAllStringSubmatch(source, -1), func(match []string) bool {
			return selected.MatchString(match[1])
		}) {
			return fmt.Errorf("%s has no %s that %s selects", words[dir], strings.ToLower(kind), value)
		}
	}
	return nil
}

// sourceOf returns the Go files of a package.
func sourceOf(dir string) (source string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no package in %s", dir)
	}
	for _, file := range files {
		content, readErr := os.ReadFile(file)
		if readErr != nil {
			return "", readErr
		}
		source += string(content)
	}
	return source, err
}
