#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Prints the linker flags that stamp a binary with its version. They depend on the commit only, never on the time of
# the build, so that the same commit gives the same binary.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=k8s.io/component-base/version
version="$(<VERSION)"
release="${version#v}"
minor="${release#*.}"

flags=(-s -w
  -X "$package.gitVersion=$version"
  -X "$package.gitMajor=${release%%.*}"
  -X "$package.gitMinor=${minor%%.*}")

# A source archive has no commit to tell.
if commit="$(git rev-parse --verify --quiet HEAD 2>/dev/null)"; then
  state=clean
  [[ -z "$(git status --porcelain)" ]] || state=dirty
  date="$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)"
  flags+=(
    -X "$package.gitCommit=$commit"
    -X "$package.gitTreeState=$state"
    -X "$package.buildDate=$date")
fi

echo "${flags[*]}"
