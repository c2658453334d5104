#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# test.sh [CASE ...]: runs the cases of cgpu-dra/tests/cluster on a control plane that build.sh has
# built. Each CASE is a part of a name. KEEP=1 keeps the logs of the components; CLAIMS and NODES
# say how large the large cases are, and KUBERNETES=v1.37.2 which version it is.
set -euo pipefail
cd "$(dirname "$0")/../.."
CGPU_KUBERNETES=$(tests/kubernetes/build.sh)
CGPU_MONITORING=$(tests/kubernetes/monitoring.sh)
export CGPU_KUBERNETES CGPU_MONITORING CLAIMS=${CLAIMS:-10000} NODES=${NODES:-1000}
exec cargo test --quiet --locked -p cgpu-dra --test cluster -- "$@"
