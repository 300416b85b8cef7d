#!/usr/bin/env bash
# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

# Draws the pictures of terminals in the documentation anew, from a real run: runs the demo, and looks with kubectl preserve
# at the machines of its landscape, when one of them has failed and one is asked for.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

images="$PWD/docs/usage/images"
work="$(mktemp -d)"
demo=
trap '[[ -z "$demo" ]] || { kill "$demo"; wait "$demo"; } 2>/dev/null || true; rm -rf "$work"' EXIT

# eventually SECONDS COMMAND... tries once a second, for as long as the demo runs.
eventually() {
  local seconds=$1 i
  shift
  for ((i = 0; i < seconds; i++)); do
    ! "$@" >/dev/null || return 0
    kill -0 "$demo"
    sleep 1
  done
  echo "Not seen: $*" >&2
  return 1
}

go build -o "$work/" ./cmd/kubectl-preserve ./test/demo
go -C hack/tools/terminal build -o "$work/" .
"$work/demo" >"$work/log" &
demo=$!
tail -f --pid="$demo" "$work/log" &
eventually 3600 grep 'All steps were seen' "$work/log"
# What a terminal shows when the machine that failed is drained.
sed '/\[drain\] seen/q' "$work/log" | tail -n 50 >"$work/screen"
"$work/terminal" "$images/demo.svg" 'make demo' cat "$work/screen"

# The pictures say what is called, so nothing of this machine may be in that.
cd .landscape
export PATH="$PWD/bin:$work:$PATH" KUBECONFIG=shoot.kubeconfig
seed=(--seed-kubeconfig seed.kubeconfig --seed-namespace shoot--local--demo)

picture() {
  local file=$1
  shift
  "$work/terminal" "$images/$file.svg" "$*" "$@"
}
ready_node() {
  kubectl get nodes --no-headers -l "topology.kubernetes.io/zone=$1" | awk '$2 == "Ready" { print $1; exit }'
}
drained() {
  kubectl preserve list "$1" | grep -w Drained
}

failed="$(ready_node 0)" asked="$(ready_node 1)"
kubectl --kubeconfig seed.kubeconfig -n infra-shoot--local--demo annotate pod "$failed" \
  landscape.machine-preservation/failure=kubelet-dead
kubectl preserve now "$asked" --for 6h --wait --timeout 1m
eventually 300 drained "$failed"
picture kubectl-preserve-list kubectl preserve list "${seed[@]}"
picture kubectl-preserve-explain kubectl preserve explain "$failed" "${seed[@]}"

# What a shoot owner sees of machines that are gone: one that the demo had replaced.
gone="$(kubectl get machinefailures -o jsonpath='{range .items[?(@.status.outcome=="Replaced")]}{.spec.node}{"\n"}{end}' | head -n 1)"
picture kubectl-preserve-history kubectl preserve history
picture kubectl-preserve-why kubectl preserve why "$gone"
