#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# demo.sh: two containers share an emulated GPU in the test machine, with NVIDIA's own driver, CUDA
# and nvidia-smi (tests/driver/demo.sh): a table on stdout, progress on stderr.
set -euo pipefail
here=$(dirname "$0")
# As much memory as an H100 has, of which the machine need not keep account page by page (HMM).
REAL_MEMORY=81920 exec "$here/run.sh" --name demo --driver real --limit 1800 \
	--fake uvm_disable_hmm=1 \
	--file "$here/guest-check.sh" --file "$here/../driver/demo.sh" -- sh /files/demo.sh
