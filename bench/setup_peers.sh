#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets up the Python packages that lightc is measured against and checked with, and prints the Python that has them.
#
#   bench/setup_peers.sh            in .cache/peers of the project, or in $LIGHTC_PEERS_VENV
# If $LIGHTC_PEERS_PYTHON has the packages, it is used as it is. Installed packages are not installed again.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
packages=(numpy torch lightning==2.6.5 torchmetrics safetensors pandas)
more=(psutil tensorboard torchvision pillow) # only for bench/peer_*.py: not required

# Whether this Python has the packages, without importing them (which takes seconds).
has_all() {
    [ -x "$1" ] && "$1" - "${packages[@]}" >/dev/null 2>&1 <<'PY'
import importlib.metadata, sys
for package in sys.argv[1:]:
    name, _, version = package.partition("==")
    assert importlib.metadata.version(name) == version or not version
PY
}

if [ -n "${LIGHTC_PEERS_PYTHON:-}" ]; then
    if has_all "$LIGHTC_PEERS_PYTHON"; then
        echo "$LIGHTC_PEERS_PYTHON"
        exit 0
    fi
    echo "setup_peers: $LIGHTC_PEERS_PYTHON lacks some of: ${packages[*]}; setting up a virtual environment" >&2
fi

venv=${LIGHTC_PEERS_VENV:-$root/.cache/peers}
python=$venv/bin/python
if ! has_all "$python"; then
    command -v python3 >/dev/null || { echo "setup_peers: python3 is missing (Debian: apt install python3-venv)" >&2; exit 1; }
    if [ ! -x "$python" ]; then
        echo "setup_peers: making a virtual environment in $venv" >&2
        python3 -m venv "$venv" || { echo "setup_peers: python3 cannot make one (Debian: apt install python3-venv)" >&2; exit 1; }
    fi
    echo "setup_peers: installing ${packages[*]} from PyPI" >&2
    "$python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" "${more[@]}" >&2
    has_all "$python" || { echo "setup_peers: not all packages were installed" >&2; exit 1; }
fi
echo "$python"
