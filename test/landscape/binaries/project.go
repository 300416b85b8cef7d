// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// project is where this process has built the project's own commands: linking them takes half a minute, and many landscapes need them.
var project struct {
	sync.Mutex
	paths map[string]string
}

// EnsureProject builds the project's own commands into the given directory, once in a process, and returns their paths by name.
func EnsureProject(ctx context.Context, out io.Writer, dir string) (map[string]string, error) {
	project.Lock()
	defer project.Unlock()
	if paths, err := linkAll(project.paths, dir); err == nil && len(paths) > 0 {
		return paths, nil
	}
	environment, err := goEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	paths, err := buildProject(ctx, out, "the project's commands", environment.root(), dir)
	if err == nil {
		project.paths = paths
	}
	return paths, err
}

// linkAll links files into a directory, and returns their paths there by name. It fails where one of them is gone.
func linkAll(files map[string]string, dir string) (map[string]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for name, file := range files {
		path := filepath.Join(dir, name)
		if paths[name] = path; path != file {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if err := os.Link(file, path); err != nil {
				return nil, err
			}
		}
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func buildProject(ctx context.Context, out io.Writer, what, source, dir string, flags ...string) (map[string]string, error) {
	var err error
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := report(out, what, func() error {
		_, err := run(ctx, source, "go", slices.Concat([]string{"build", "-o", dir + string(filepath.Separator)}, flags, []string{"./cmd/..."})...)
		return err
	}); err != nil {
		return nil, err
	}
	commands, err := os.ReadDir(filepath.Join(source, "cmd"))
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, command := range commands {
		paths[command.Name()] = filepath.Join(dir, command.Name())
	}
	return paths, nil
}
