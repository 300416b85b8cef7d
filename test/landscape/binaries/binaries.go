// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package binaries builds what the landscape runs from Go modules, and keeps it outside the checkout.
package binaries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/lock"
)

// Names of the tools modules, which are the directories in test/landscape/modules.
const (
	Etcd       = "etcd"
	Gardener   = "gardener"
	Kubernetes = "kubernetes"
	Kwok       = "kwok"
	MCM061     = "mcm-0.61"
	MCM062     = "mcm-0.62"

	MetalOperator03 = "metal-operator-0.3"
	MetalOperator07 = "metal-operator-0.7"
)

// Names of the binaries of a metal-operator: itself, and its mock of a BMC.
const (
	MetalOperator = "metal-operator"
	Redfish       = "redfish"
)

const (
	projectModule = "github.com/gardener/gardener-extension-machine-preservation"
	mcmModule     = "github.com/gardener/machine-controller-manager"
	versionPkg    = "k8s.io/component-base/version"

	reportInterval = 10 * time.Second
)

// module describes how the tools of a module are built.
type module struct {
	ldflags []string
	// names maps what `go build` calls a binary to what it is called here.
	names map[string]string
}

func (m module) flags() []string {
	return []string{"-ldflags=" + strings.Join(append([]string{"-s", "-w"}, m.ldflags...), " ")}
}

var modules = map[string]module{
	Etcd: {names: map[string]string{"server": "etcd"}},
	Gardener: {ldflags: []string{
		"-X", versionPkg + ".gitVersion=v1.150.0",
		"-X", versionPkg + ".gitMajor=1",
		"-X", versionPkg + ".gitMinor=150",
	}},
	// machine-controller-manager refuses a server that does not tell a semantic version.
	Kubernetes: {ldflags: []string{
		"-X", versionPkg + ".gitVersion=v1.36.3",
		"-X", versionPkg + ".gitMajor=1",
		"-X", versionPkg + ".gitMinor=36",
	}},
	Kwok:   {},
	MCM061: {},
	MCM062: {},

	MetalOperator03: {names: map[string]string{"cmd": MetalOperator}},
	MetalOperator07: {names: map[string]string{"cmd": MetalOperator}},
}

// Ensure builds the tools of the given modules unless the cache has them, and returns the paths by name of the binary.
// It tells on out what is being built. It can be called at the same time by several processes.
func Ensure(ctx context.Context, out io.Writer, names ...string) (map[string]string, error) {
	environment, err := goEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDirectory()
	if err != nil {
		return nil, err
	}

	paths := map[string]string{}
	for _, name := range names {
		dir, err := environment.ensure(ctx, out, cache, name)
		if err != nil {
			return nil, err
		}
		tools, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, tool := range tools {
			paths[tool.Name()] = filepath.Join(dir, tool.Name())
		}
	}
	return paths, nil
}

// Assets returns a directory with the binaries that controller-runtime's envtest needs. It builds them unless the cache
// has them.
func Assets(ctx context.Context, out io.Writer) (string, error) {
	paths, err := Ensure(ctx, out, Etcd, Kubernetes)
	if err != nil {
		return "", err
	}
	cache, err := cacheDirectory()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "envtest-"+filepath.Base(filepath.Dir(paths["etcd"]))+"-"+filepath.Base(filepath.Dir(paths["kube-apiserver"])))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(paths[name], filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}

// Module is a Go module that a tools module requires.
type Module struct {
	// Version is the required version.
	Version string
	// Dir is the directory with the source.
	Dir string
}

// Source returns where the source of a Go module is, in the version that the tools module requires. If a directory takes
// its place, it is that one, and the version says so.
func Source(ctx context.Context, name, path string) (Module, error) {
	environment, err := goEnvironment(ctx)
	if err != nil {
		return Module{}, err
	}
	return environment.source(ctx, name, path)
}

func (e environment) source(ctx context.Context, name, path string) (Module, error) {
	flags, done, err := e.modFlags(ctx, name)
	if err != nil {
		return Module{}, err
	}
	defer done()
	var listed struct {
		Module
		Replace *Module
	}
	if err := e.query(ctx, name, &listed, slices.Concat([]string{"list", "-m", "-json"}, flags, []string{path})...); err != nil {
		return Module{}, err
	}
	switch {
	case listed.Replace != nil && listed.Replace.Version == "":
		return Module{Version: listed.Version + "-checkout", Dir: listed.Replace.Dir}, nil
	case listed.Replace != nil:
		listed.Module = *listed.Replace
	}
	if listed.Dir != "" {
		return listed.Module, nil
	}
	var downloaded Module
	err = e.query(ctx, name, &downloaded, "mod", "download", "-json", path)
	return downloaded, err
}

// query decodes what the go command says in the directory of a tools module.
func (e environment) query(ctx context.Context, name string, answer any, arguments ...string) error {
	output, err := run(ctx, e.moduleDir(name), "go", arguments...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(output, answer); err != nil {
		return fmt.Errorf("could not read what go %s says: %w", strings.Join(arguments, " "), err)
	}
	return nil
}

// Checkout returns the root directory of this project.
func Checkout(ctx context.Context) (string, error) {
	environment, err := goEnvironment(ctx)
	return environment.root(), err
}

// environment is what a build depends on beside the files of the module.
type environment struct {
	GOMOD, GOVERSION, GOOS, GOARCH string
	// replacement is optional.
	replacement replacement
}

// replacement is a directory that takes the place of a module that a tools module requires.
type replacement struct {
	// name is that of the tools module.
	name string
	// path is that of the module that is replaced.
	path, dir string
}

// mcmCheckout returns what MCM_SOURCE says: a checkout of machine-controller-manager takes the place of the module of the
// generation that MCM names. The other generation stays as it is. The error names the variable and what is valid.
func mcmCheckout(getenv func(string) string) (replacement, error) {
	dir := getenv("MCM_SOURCE")
	if dir == "" {
		return replacement{}, nil
	}
	r := replacement{name: "mcm-" + getenv("MCM"), path: mcmModule, dir: dir}
	if r.name != MCM061 && r.name != MCM062 {
		return r, fmt.Errorf("MCM=%q must say for which generation MCM_SOURCE is built: 0.61 or 0.62", getenv("MCM"))
	}
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !filepath.IsAbs(dir) || !strings.HasPrefix(string(content), "module "+mcmModule+"\n") {
		return r, fmt.Errorf("MCM_SOURCE=%q must be the absolute path of a checkout of %s", dir, mcmModule)
	}
	return r, nil
}

func goEnvironment(ctx context.Context) (environment, error) {
	var result environment
	output, err := run(ctx, "", "go", "env", "-json", "GOMOD", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(output, &result); err != nil {
		return result, fmt.Errorf("could not read the Go environment: %w", err)
	}
	content, err := os.ReadFile(result.GOMOD)
	if err != nil || !strings.HasPrefix(string(content), "module "+projectModule+"\n") {
		return result, fmt.Errorf("the working directory is not in a checkout of %s", projectModule)
	}
	result.replacement, err = mcmCheckout(os.Getenv)
	return result, err
}

func (e environment) root() string { return filepath.Dir(e.GOMOD) }

func (e environment) moduleDir(name string) string {
	return filepath.Join(e.root(), "test", "landscape", "modules", name)
}

func (e environment) ensure(ctx context.Context, out io.Writer, cache, name string) (string, error) {
	module, ok := modules[name]
	if !ok {
		return "", fmt.Errorf("unknown tools module %q", name)
	}
	flags := module.flags()
	key, err := e.key(name, flags)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name+"-"+key)
	if exists(dir) {
		return dir, nil
	}

	lock, err := lock.Acquire(ctx, filepath.Join(cache, name+".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Release()
	// Another process may have built it while this one waited for the lock.
	if exists(dir) {
		return dir, nil
	}

	// One that exists is left from a build that was killed.
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", err
	}
	what := name
	if e.replacement.name == name {
		what += " from " + e.replacement.dir
	}
	if err := report(out, what, func() error {
		modFlags, done, err := e.modFlags(ctx, name)
		if err != nil {
			return err
		}
		defer done()
		arguments := slices.Concat([]string{"build"}, modFlags, flags, []string{"-o", partial + string(filepath.Separator), "tool"})
		_, err = run(ctx, e.moduleDir(name), "go", arguments...)
		return err
	}); err != nil {
		return "", err
	}
	for from, to := range module.names {
		if err := os.Rename(filepath.Join(partial, from), filepath.Join(partial, to)); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(partial, dir)
}

// modFlags returns the flags with which the go command reads a tools module: where a directory takes the place of one that
// it requires, a copy of its go.mod says so. What the directory requires beyond is added there. The copy is to be removed.
func (e environment) modFlags(ctx context.Context, name string) (flags []string, remove func(), err error) {
	if e.replacement.name != name {
		return nil, func() {}, nil
	}
	dir, err := os.MkdirTemp("", name+"-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			remove()
		}
	}()
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(e.moduleDir(name), file))
		if err != nil {
			return nil, nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			return nil, nil, err
		}
	}
	modfile := filepath.Join(dir, "go.mod")
	if _, err := run(ctx, dir, "go", "mod", "edit", "-replace="+e.replacement.path+"="+e.replacement.dir, modfile); err != nil {
		return nil, nil, err
	}
	return []string{"-mod=mod", "-modfile=" + modfile}, remove, nil
}

// hashDirectory covers all files but those in hidden directories, in which there is nothing to build.
func hashDirectory(hash io.Writer, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n", strings.TrimPrefix(path, dir), len(content))
		_, err = hash.Write(content)
		return err
	})
}

// key changes whenever a build would give something else.
func (e environment) key(name string, flags []string) (string, error) {
	hash := sha256.New()
	dir := e.moduleDir(name)
	own, err := filepath.Glob(filepath.Join(dir, "*", "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range append([]string{filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")}, own...) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%d\n", len(content))
		hash.Write(content)
	}
	fmt.Fprintln(hash, flags, e.GOVERSION, e.GOOS, e.GOARCH)
	if e.replacement.name == name {
		if err := hashDirectory(hash, e.replacement.dir); err != nil {
			return "", fmt.Errorf("could not read %s: %w", e.replacement.dir, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

func cacheDirectory() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("could not find the cache directory: %w", err)
	}
	return filepath.Join(dir, "gardener-extension-machine-preservation", "bin"), nil
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}

// report tells what is being built, and how long it has taken so far. A build that is quick is not mentioned.
func report(out io.Writer, what string, build func() error) error {
	start := time.Now()
	elapsed := func() time.Duration { return time.Since(start).Round(time.Second) }

	result := make(chan error, 1)
	go func() { result <- build() }()

	first := time.NewTimer(time.Second)
	defer first.Stop()
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	reported := false
	for {
		select {
		case err := <-result:
			if err != nil {
				return fmt.Errorf("could not build %s: %w", what, err)
			}
			if reported {
				fmt.Fprintf(out, "Built %s in %s\n", what, elapsed())
			}
			return nil
		case <-first.C:
			fmt.Fprintf(out, "Building %s, without a warm cache this takes minutes\n", what)
			reported = true
		case <-ticker.C:
			fmt.Fprintf(out, "Building %s, %s so far\n", what, elapsed())
		}
	}
}

func run(ctx context.Context, dir, name string, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s failed: %w\n%s", strings.Join(command.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return output, nil
}
