#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures lightc against its peer, side by side on this machine. See docs/benchmarks.md.
#
#   bench/compare.sh [WORK...] [--rounds N] [--threads N] [--peers FILE] [--bench FILE] [--json FILE] [--quick]
#                    [--precision P|best] [--matmul_precision P]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
case " $* " in
*" --help "* | *" -h "*) exec python3 "$root/bench/compare.py" --help ;;
esac
python=$(LIGHTC_PEERS_PYTHON=${LIGHTC_PEERS_PYTHON:-} "$root/bench/setup_peers.sh")
exec "$python" "$root/bench/compare.py" --python "$python" "$@"
