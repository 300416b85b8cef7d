#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Writes which modules are in a binary, for any platform, as CycloneDX has it. It asks no network, and says the same for the same
# binary:
#   hack/sbom.sh bin/kubectl-preserve bin/kubectl-preserve.cdx.json

set -euo pipefail
binary="$(realpath "$1")" out="$(realpath -m "$2")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p "$(dirname "$out")"
CGO_ENABLED=0 go tool -modfile=hack/tools/security/go.mod cyclonedx-gomod bin \
  -json -std -noserial -notimestamp -version "$(<VERSION)" -output "$out" "$binary"
