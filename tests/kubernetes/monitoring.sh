#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# monitoring.sh: prints a folder with the CustomResourceDefinitions of the Prometheus operator, out
# of the Go module proxy, by which an apiserver judges a ServiceMonitor. The module is pinned by
# go.mod and go.sum in monitoring/, and Go keeps what it has downloaded.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$("$here/go.sh"):$PATH
export GOTOOLCHAIN=local GOWORK=off GOFLAGS=
module=$(sed -n 's/^require \([^ ]*\) .*/\1/p' "$here/monitoring/go.mod")
version=$(sed -n 's/^require [^ ]* //p' "$here/monitoring/go.mod")
# In a copy, because Go writes sums of other modules into the file.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/monitoring/go.* "$work"
cd "$work"
folder=$(go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
echo "$folder/example/prometheus-operator-crd"
