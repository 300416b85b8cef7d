// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// Release is an earlier version of this project.
type Release struct {
	// Commands are the paths of its commands by name. Images of its own have the tag Version.
	Commands map[string]string
	Version  string
	// Chart is its Helm chart of the extension, packed.
	Chart []byte
}

// EnsureRelease builds the project's own commands into the given directory in which they were in a revision that git knows. The source
// gets there, too.
func EnsureRelease(ctx context.Context, out io.Writer, dir, revision, chart string) (*Release, error) {
	environment, err := goEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	source, err := filepath.Abs(filepath.Join(dir, "source"))
	if err != nil {
		return nil, err
	}
	root := environment.root()
	commit, err := run(ctx, root, "git", "rev-parse", "--verify", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return nil, err
	}
	hash := strings.TrimSpace(string(commit))
	if _, err := run(ctx, root, "git", "clone", "--quiet", "--no-checkout", "--shared", root, source); err != nil {
		return nil, err
	}
	if _, err := run(ctx, source, "git", "checkout", "--quiet", "--detach", hash); err != nil {
		return nil, err
	}
	r := &Release{Version: "v0.0.0-" + hash[:12]}
	if r.Chart, err = run(ctx, source, "git", "archive", "--format=tar.gz", "--prefix="+path.Base(chart)+"/", hash+":charts/"+chart); err != nil {
		return nil, err
	}
	r.Commands, err = buildProject(ctx, out, "the project's commands of "+revision, source, filepath.Join(dir, "bin"), "-ldflags=-X "+versionPkg+".gitVersion="+r.Version)
	return r, err
}

// LastRelease returns the last tag before what is checked out, empty if there is none.
func LastRelease(ctx context.Context) (string, error) {
	environment, err := goEnvironment(ctx)
	if err != nil {
		return "", err
	}
	tags, err := run(ctx, environment.root(), "git", "tag", "--list", "v*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-version:refname")
	tag, _, _ := strings.Cut(string(tags), "\n")
	return tag, err
}
