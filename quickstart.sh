#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets lightc up on Debian or Ubuntu and runs it.
#
#   ./quickstart.sh [--data DIR] [option of fashion_cnn ...]   build, then train a network on Fashion-MNIST
#   ./quickstart.sh test                                       build and run all tests
#   ./quickstart.sh setup                                      only install what is missing
#
# Only what is missing is installed, with apt (through sudo where needed). Without apt or a network it says what to
# install and uses what it finds.
set -u
cd "$(dirname "$0")" || exit 1

BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev libsqlite3-dev libcjson-dev zlib1g-dev"
DATA_PACKAGES="dataset-fashion-mnist"
TEST_PACKAGES="g++ clang libclang-rt-dev sqlite3 clang-format cppcheck"
DATA_DIR=/usr/share/datasets/fashion-mnist

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }
[ -t 2 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$*" >&2; }

usage() { sed -n '3,11s/^# \{0,1\}//p' "$0"; }

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# What of the named packages is missing and known to apt; unknown names are left out with a word.
install_missing() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "This is not Debian or Ubuntu: using what is installed. Needed: a C compiler, cmake >= 3.22, ninja, oneDNN, SQLite, cJSON, zlib."
    return 0
  fi
  for package in "$@"; do installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null; then root=(sudo); else
      say "Not root and no sudo. Ask for: apt-get install ${missing[*]}"
      return 0
    fi
  fi
  say "Installing: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  "${root[@]}" apt-get update -qq || say "apt-get update failed (no network?); trying with the lists there are"
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 || { say "apt knows no $package here; going on without it"; continue; }
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
      say "Could not install $package; going on without it"
  done
}

need() {
  local lacking=() tool
  for tool in cmake ninja cc; do command -v "$tool" >/dev/null || lacking+=("$tool"); done
  [ ${#lacking[@]} -eq 0 ] && return 0
  say "Missing: ${lacking[*]}. On Debian or Ubuntu: sudo apt-get install $BUILD_PACKAGES $DATA_PACKAGES"
  exit 1
}

build() { # preset [cmake options]
  local preset=$1 log
  shift
  log=$(mktemp)
  say "Building ($preset)"
  if ! { cmake --preset "$preset" "$@" && cmake --build --preset "$preset"; } >"$log" 2>&1; then
    grep -nE 'error|CMake Error|not found' "$log" | head -20 >&2
    say "The build failed; the whole log: $log"
    exit 1
  fi
  rm -f "$log"
}

train() {
  local data=$DATA_DIR args=()
  while [ $# -gt 0 ]; do
    case $1 in
      --data) data=${2:?--data needs a folder}; shift 2 ;;
      --data=*) data=${1#--data=}; shift ;;
      *) args+=("$1"); shift ;;
    esac
  done
  # shellcheck disable=SC2086
  install_missing $BUILD_PACKAGES
  [ -e "$data/train-images-idx3-ubyte.gz" ] || [ -e "$data/train-images-idx3-ubyte" ] ||
    { [ "$data" = "$DATA_DIR" ] && install_missing $DATA_PACKAGES; }
  if [ ! -e "$data/train-images-idx3-ubyte.gz" ] && [ ! -e "$data/train-images-idx3-ubyte" ]; then
    say "There is no Fashion-MNIST in $data. Install the package $DATA_PACKAGES, or give the folder of the four IDX files: ./quickstart.sh --data DIR"
    exit 1
  fi
  need
  build release
  say "Training a convolutional network on Fashion-MNIST"
  build/bin/fashion_cnn --data "$data" ${args[@]+"${args[@]}"} || exit 1
  cat <<'EOT'

The run's metrics, checkpoints and options lie under lightning_logs/, all runs together in lightc.db.
Three things to try next:
  sqlite3 lightc.db 'select * from v_latest'          what every run reached
  build/bin/fashion_cnn --ckpt_path last --max_epochs 8   go on where it stopped, bit for bit
  build/bin/char_gpt --help                           a small language model, and every option there is
EOT
}

run_tests() {
  # shellcheck disable=SC2086
  install_missing $BUILD_PACKAGES $DATA_PACKAGES $TEST_PACKAGES
  need
  tests/run_all.sh
}

case ${1:-} in
  -h | --help) usage ;;
  test) shift; run_tests "$@" ;;
  setup) install_missing $BUILD_PACKAGES $DATA_PACKAGES $TEST_PACKAGES ;;
  *) train "$@" ;;
esac
