// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Program mcm061 writes an overlay to a directory, with which package mcm of the simulation is compiled with
// machine-controller-manager 0.61: no program can have two versions of a module, so the older one becomes packages of this one.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
)

const (
	module = "github.com/gardener/machine-controller-manager"
	// using is the package that imports MCM, and copied are the packages below it that MCM becomes.
	using, copied = "test/simulation/mcm", "test/simulation/mcm/copied"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage, in the root of the repository: mcm061 DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes overlay.json and what it refers to.
func run(dir string) error {
	source, err := binaries.Source(context.Background(), binaries.MCM061, module)
	if err != nil {
		return err
	}
	own, err := goList("list", "-m")
	if err != nil {
		return err
	}
	overlay := map[string]string{}
	for _, tree := range []struct{ from, to string }{
		{filepath.Join(source.Dir, "pkg"), filepath.Join(copied, "pkg")},
		{filepath.Join(source.Dir, "cmd"), filepath.Join(copied, "cmd")},
		{using, using},
	} {
		err := filepath.WalkDir(tree.from, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(tree.from, path)
			if err != nil {
				return err
			}
			replaced, err := filepath.Abs(filepath.Join(tree.to, name))
			if err != nil {
				return err
			}
			code, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			code = bytes.ReplaceAll(code, []byte(`"`+module+"/"), []byte(`"`+own+"/"+copied+"/"))
			overlay[replaced] = filepath.Join(dir, tree.to, name)
			return errors.Join(os.MkdirAll(filepath.Dir(overlay[replaced]), 0o755), os.WriteFile(overlay[replaced], code, 0o644))
		})
		if err != nil {
			return fmt.Errorf("failed to copy %s: %w", tree.from, err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return fmt.Errorf("failed to write the overlay: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644)
}

func goList(args ...string) (string, error) {
	command := exec.Command("go", args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("failed to run go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
