#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Runs the golangci-lint that hack/tools/lint pins. It is built from source once per pinned version and Go version and
# kept outside the checkout, so that only the first run on a machine takes minutes.
#
#   hack/golangci-lint.sh run ./...     any golangci-lint command line
#   hack/golangci-lint.sh --build-only  just make sure that the binary is there

set -euo pipefail

export CGO_ENABLED=0 GOTOOLCHAIN=local

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
module="$root/hack/tools/lint"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/gardener-extension-machine-preservation/bin"

# The linter refuses code for a newer Go than it was built with, so the Go version is part of the key.
key="$({ go env GOVERSION && cat "$module/go.mod" "$module/go.sum"; } | sha256sum | cut -c1-12)"
binary="$cache/golangci-lint-$key"

if [[ ! -x "$binary" ]]; then
  mkdir -p "$cache"
  partial="$binary.$$"
  trap 'rm -f "$partial"' EXIT

  started=$SECONDS
  echo "Building golangci-lint from source, once per version; this takes a few minutes." >&2
  (cd "$module" && exec nice go build -trimpath -ldflags '-s -w' -o "$partial" github.com/golangci/golangci-lint/v2/cmd/golangci-lint) &
  build=$!
  while kill -0 "$build" 2>/dev/null; do
    sleep 1
    if (((SECONDS - started) % 60 == 59)); then
      echo "  still building golangci-lint ($((SECONDS - started))s)" >&2
    fi
  done
  wait "$build"

  # Renamed at the end, so that neither an interrupted nor a parallel build leaves half a binary behind.
  mv "$partial" "$binary"
  trap - EXIT
  echo "Built golangci-lint in $((SECONDS - started))s." >&2
fi

[[ "${1:-}" == --build-only ]] || exec "$binary" "$@"
