#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Generates deepcopy, defaults and conversion of all API types, the reference, and what follows from the version. It
# needs nothing but Go: the generators are built from the versions that hack/tools/codegen pins, outside the checkout.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOTOOLCHAIN=local
export GOBIN="${XDG_CACHE_HOME:-$HOME/.cache}/gardener-extension-machine-preservation/codegen"

tools="$PWD/hack/tools/codegen"
(cd "$tools" && go mod download k8s.io/code-generator)
# shellcheck disable=SC1091 # it is in the module cache
source "$(cd "$tools" && go list -m -f '{{ .Dir }}' k8s.io/code-generator)/kube_codegen.sh"

echo "> deepcopy, defaults, conversion"
kube::codegen::gen_helpers --boilerplate hack/LICENSE_BOILERPLATE.txt pkg/apis

echo "> CRDs"
go tool -modfile="$tools/go.mod" controller-gen crd:headerFile=hack/LICENSE_BOILERPLATE.yaml.txt paths=./pkg/apis/maintenance/... output:crd:dir=pkg/component/nodemaintenance/crds
go tool -modfile="$tools/go.mod" controller-gen crd:headerFile=hack/LICENSE_BOILERPLATE.yaml.txt paths=./pkg/apis/failures/... output:crd:dir=pkg/component/machinefailures/crds

echo "> API reference"
for api in preservation config maintenance failures; do
  go tool -modfile="$tools/go.mod" crd-ref-docs \
    --source-path="pkg/apis/$api/v1alpha1" \
    --config=hack/api-reference/config.yaml \
    --renderer=markdown \
    --log-level=ERROR \
    --output-path="hack/api-reference/$api.md"
done

echo "> registration and versions of the charts"
go run ./hack/registration

echo "> rules, their code and their tests"
rules="$(go run ./hack/rules)"
printf '%s\n' "$rules" >docs/development/rules.md
mkdir -p docs/reference
rules="$(go run ./hack/rules -reference)"
printf '%s\n' "$rules" >docs/reference/rules.md

echo "> reference"
for page in kubectl-preserve objects; do
  text="$(go run ./hack/reference "$page")"
  printf '%s\n' "$text" >"docs/reference/$page.md"
done
