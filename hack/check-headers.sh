#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Names the source files without a licence header. Looks at all files that git does not ignore, committed or not.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "> licence headers"

# REUSE-IgnoreStart
holder='SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors'
licence='SPDX-License-Identifier: Apache-2.0'
# REUSE-IgnoreEnd

files="$(git -c core.quotePath=off ls-files --cached --others --exclude-standard -- \
  '*.go' '*.sh' '*.yaml' '*.yml' '*Makefile' '*.mk' '*Dockerfile' '*.tpl' '.dockerignore' '.ci/*')"

missing=()
while IFS= read -r file; do
  # Listed although deleted, as long as the deletion is not committed.
  [[ -f "$file" ]] || continue
  header="$(head -n 10 -- "$file" | tr -d '\0')"
  [[ "$header" == *"$holder"* && "$header" == *"$licence"* ]] || missing+=("$file")
done <<<"$files"

if ((${#missing[@]})); then
  printf 'The licence header is missing or differs in:\n' >&2
  printf '  %s\n' "${missing[@]}" >&2
  printf 'It is:\n  %s\n  %s\n' "$holder" "$licence" >&2
  exit 1
fi
