#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Checks docs, comments, messages and alerts for phrases that hack/tools/docs/words.yaml refuses, and the links within the repository.
# Needs no network.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "> words and links"

go -C hack/tools/docs run . -root ../../..
