#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Checks what packages import indirectly, and that golangci-lint's depguard, which looks at direct imports, leaves out none.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "> imports"

failed=false

# must_not_reach PACKAGE REGEXP REASON
must_not_reach() {
  local package=$1 regexp=$2 reason=$3 found
  found="$(go list -deps "$package" | { grep -E "$regexp" || true; })"
  if [[ -n "$found" ]]; then
    failed=true
    {
      echo "$package must not import these, not even indirectly: $reason"
      # One import brings its own: a few names are enough to see which.
      awk 'NR <= 10 { print "  " $0 } END { if (NR > 10) print "  and " NR - 10 " more" }' <<<"$found"
    } >&2
  fi
}

clients='^(k8s\.io/client-go|sigs\.k8s\.io/controller-runtime)/'
for pure in apis/... brief drain/... evidence/retention explain facts failure intent maintenance observed paging panics preservation providerconfig/... quarantine reason remediation share; do
  must_not_reach "./pkg/$pure" "$clients" 'it decides on objects that are passed in'
done
must_not_reach ./cmd/machine-preservation-controller '^github\.com/gardener/gardener/' \
  'it runs once per shoot and must stay small'

if ! output="$(go test ./hack/fences)"; then
  failed=true
  echo "$output" >&2
fi

[[ "$failed" == false ]]
