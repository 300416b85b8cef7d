#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Checks that the generated files are up to date: generates in a copy of the checkout, uncommitted changes included, and
# compares. The checkout itself is left alone.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "> generated files"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/checkout" "$work/generated"

files="$(git -c core.quotePath=off ls-files --cached --others --exclude-standard)"
while IFS= read -r file; do
  # Listed although deleted, as long as the deletion is not committed.
  [[ ! -e "$file" && ! -L "$file" ]] || printf '%s\n' "$file"
done <<<"$files" >"$work/files"
tar --create --file=- --files-from="$work/files" | tar --extract --file=- --directory="$work/checkout"
cp -a "$work/checkout/." "$work/generated"

if ! (cd "$work/generated" && hack/update-codegen.sh) >"$work/log" 2>&1; then
  cat "$work/log" >&2
  echo "Generating failed." >&2
  exit 1
fi

if ! diff --recursive --new-file --unified=1 "$work/checkout" "$work/generated" >"$work/diff"; then
  head -n 100 "$work/diff" | sed "s|$work/||g" >&2
  echo "Generated files are not up to date; the difference begins above. Run \`make generate\`." >&2
  exit 1
fi
