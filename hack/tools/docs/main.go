// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// The docs command checks what is written: that no text has a phrase that words.yaml refuses, in documents, comments, messages and
// alerts, and that no link within the repository is dead. It asks no network.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	shrink := flag.Bool("shrink", false, "take what has been rewritten, or is gone, off the list in words.yaml")
	flag.Parse()
	if err := run(*root, *shrink); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const wordsPath = "hack/tools/docs/words.yaml"

func run(root string, shrink bool) error {
	data, err := os.ReadFile(filepath.Join(root, wordsPath))
	if err != nil {
		return err
	}
	words, err := parseWords(data)
	if err != nil {
		return err
	}
	names, err := filesOf(root)
	if err != nil {
		return err
	}
	report, err := check(os.DirFS(root), names, words)
	if err != nil {
		return err
	}
	if shrink {
		return os.WriteFile(filepath.Join(root, wordsPath), without(data, report.done), 0o600)
	}
	for _, done := range report.done {
		report.problems = append(report.problems, fmt.Sprintf("%s: %s has nothing to be rewritten any more, or is gone: take it off the list", wordsPath, done))
	}
	if len(report.problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(report.problems, "\n"))
}

// filesOf returns the files that git does not ignore, committed or not, and that are there.
func filesOf(root string) ([]string, error) {
	command := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("failed to list the files: %w", err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			names = append(names, name)
		}
	}
	return names, nil
}
