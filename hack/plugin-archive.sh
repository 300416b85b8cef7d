#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Builds kubectl preserve for an operating system and an architecture into an archive as krew unpacks it, which is the same
# for the same commit, and writes beside it which modules are in it:
#   hack/plugin-archive.sh linux amd64 bin   # bin/kubectl-preserve_linux_amd64.tar.gz and .cdx.json

set -euo pipefail
os=$1 arch=$2 out="$(realpath -m "$3")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extension=
[[ "$os" != windows ]] || extension=.exe

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 GOOS="$os" GOARCH="$arch" go build -trimpath -ldflags "$(hack/ldflags.sh)" \
  -o "$work/kubectl-preserve$extension" ./cmd/kubectl-preserve
hack/sbom.sh "$work/kubectl-preserve$extension" "$out/kubectl-preserve_${os}_${arch}.cdx.json"
cp LICENSE "$work/"
tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s -cf - . |
  gzip -n >"$out/kubectl-preserve_${os}_${arch}.tar.gz"
