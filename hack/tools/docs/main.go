// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// The docs command checks documents, comments, messages and alerts: no text may have a phrase that words.yaml refuses, and no link
// within the repository may be dead. It needs no network.
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
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	data, err := os.ReadFile(filepath.Join(root, "hack/tools/docs/words.yaml"))
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
	problems, err := check(os.DirFS(root), names, words)
	if err != nil {
		return err
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "\n"))
}

// filesOf returns the files that exist and that git does not ignore, committed or not.
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
