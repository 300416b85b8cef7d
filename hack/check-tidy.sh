#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Checks that `go mod tidy` has nothing to change, in this module and in the modules that pin tools.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "> go mod tidy"

modules="$(git -c core.quotePath=off ls-files --cached --others --exclude-standard -- 'go.mod' '*/go.mod')"

untidy=()
while IFS= read -r file; do
  # Listed although deleted, as long as the deletion is not committed.
  [[ -f "$file" ]] || continue
  module="$(dirname "$file")"
  if ! difference="$(cd "$module" && go mod tidy -diff 2>&1)"; then
    untidy+=("$module")
    printf '%s:\n' "$module" >&2
    awk '!/^go: downloading / && shown++ < 30 { print "  " $0 }' <<<"$difference" >&2
  fi
done <<<"$modules"

if ((${#untidy[@]})); then
  printf 'Run "go mod tidy" in: %s\n' "${untidy[*]}" >&2
  exit 1
fi
