#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets lightc up on Debian or Ubuntu and runs it.
#
#   ./quickstart.sh [--data DIR] [option of fashion_cnn ...]   build, then train a network on Fashion-MNIST
#   ./quickstart.sh test                                       build and run all tests
#   ./quickstart.sh setup                                      only install what is missing
#
# Only what is missing is installed, with apt (through sudo if needed). Without apt or a network it prints what to
# install and uses what it finds.
set -u
from=$PWD
cd "$(dirname "$0")" || exit 1

BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev libsqlite3-dev libcjson-dev zlib1g-dev libjpeg-dev libpng-dev libwebp-dev libcurl4-openssl-dev libssl-dev libhdf5-dev"
DATA_PACKAGES="dataset-fashion-mnist"
TEST_PACKAGES="libopenmpi-dev openmpi-bin g++ clang lld libclang-rt-dev sqlite3 clang-format cppcheck"
DATA_DIR=/usr/share/datasets/fashion-mnist

bold='' plain=''
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain" >&2; }

usage() { sed -n '3,11s/^# \{0,1\}//p' "$0"; }

have_data() { [ -e "$1/train-images-idx3-ubyte.gz" ] || [ -e "$1/train-images-idx3-ubyte" ]; }

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# Installs the named packages that are missing, all at once; if that fails, one by one, so that a package which this
# release does not have does not keep the others from being installed.
install_missing() {
  local missing=() known=() become=() package
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "This is not Debian or Ubuntu: using what is installed."
    return 0
  fi
  for package in "$@"; do installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "Not root, and sudo is not installed. As root, run: apt-get install ${missing[*]}"
      return 0
    fi
    become=(sudo)
  fi
  say "Installing with apt: ${missing[*]}"
  ${become[@]+"${become[@]}"} apt-get update -qq >&2 || say "apt-get update failed (no network?); trying with the existing package lists"
  for package in "${missing[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); else say "apt has no package $package here"; fi
  done
  [ ${#known[@]} -eq 0 ] && return 0
  local install=(${become[@]+"${become[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
  "${install[@]}" "${known[@]}" >/dev/null && return 0
  for package in "${known[@]}"; do
    installed "$package" || "${install[@]}" "$package" >/dev/null || say "Could not install $package"
  done
}

# Exits with a list of missing build dependencies.
need() {
  local lacking=() tool header
  for tool in cmake ninja "${CC:-cc}"; do command -v "$tool" >/dev/null || lacking+=("$tool"); done
  if [ ${#lacking[@]} -eq 0 ]; then
    for header in sqlite3.h cjson/cJSON.h zlib.h; do
      echo "#include <$header>" | "${CC:-cc}" -E -x c - >/dev/null 2>&1 || lacking+=("$header")
    done
  fi
  [ ${#lacking[@]} -eq 0 ] && return 0
  say "Missing: ${lacking[*]}"
  cat >&2 <<EOT
lightc needs a C11 compiler (gcc or clang), cmake 3.22 or later, ninja, SQLite, cJSON and zlib with their headers, and is
fast only with oneDNN (2.6 or later); libcurl is only needed for the mlflow logger, OpenSSL only for ranks on several hosts,
libjpeg, libpng and libwebp only for pictures. On Debian or Ubuntu:
  sudo apt-get install $BUILD_PACKAGES $DATA_PACKAGES
EOT
  exit 1
}

# In a terminal, shows the build's progress on one line; otherwise prints nothing.
progress() {
  local line
  if [ ! -t 2 ] || [ "${TERM:-dumb}" = dumb ]; then cat >/dev/null; return; fi
  while IFS= read -r line; do
    case $line in "["*) printf '\r\033[K%.70s' "$line" >&2 ;; esac
  done
  printf '\r\033[K' >&2
}

build() { # preset [target ...]
  local preset=$1 log target targets=()
  shift
  for target in "$@"; do targets+=(--target "$target"); done
  log=$(mktemp)
  say "Building ($preset; a few minutes the first time)"
  { cmake --preset "$preset" && cmake --build --preset "$preset" ${targets[@]+"${targets[@]}"}; } 2>&1 | tee "$log" | progress
  if [ "${PIPESTATUS[0]}" -ne 0 ]; then
    grep -nE 'error|CMake Error|not found' "$log" | head -20 >&2
    say "The build failed; the whole log: $log"
    exit 1
  fi
  if grep -q 'oneDNN 0' "$log"; then
    say "oneDNN was not found (Debian and Ubuntu: libdnnl-dev). lightc works without it, but many times slower."
  fi
  rm -f "$log"
}

train() {
  local data=$DATA_DIR args=() examples=() example root=.
  while [ $# -gt 0 ]; do
    case $1 in
      --data) data=${2:?--data needs a folder}; shift 2 ;;
      --data=*) data=${1#--data=}; shift ;;
      --default_root_dir | --default-root-dir) root=${2:?$1 needs a folder}; args+=("$1" "$2"); shift 2 ;;
      --default_root_dir=* | --default-root-dir=*) root=${1#*=}; args+=("$1"); shift ;;
      *) args+=("$1"); shift ;;
    esac
  done
  case $data in /*) ;; *) data=$from/$data ;; esac
  # shellcheck disable=SC2086
  if [ "$data" = "$DATA_DIR" ] && ! have_data "$data"; then
    install_missing $BUILD_PACKAGES $DATA_PACKAGES
  else
    install_missing $BUILD_PACKAGES
  fi
  need
  if ! have_data "$data"; then
    say "Fashion-MNIST was not found in $data. Install the package $DATA_PACKAGES, or name the folder of the four IDX files (gzipped or not): ./quickstart.sh --data DIR"
    exit 1
  fi
  for example in examples/*.c examples/modules/*.c; do examples+=("$(basename "$example" .c)"); done
  build release installed_parts "${examples[@]}" # so that cmake --install build works as well
  say "Training a convolutional network on Fashion-MNIST"
  build/bin/fashion_cnn --data "$data" ${args[@]+"${args[@]}"} || exit 1
  [ "$data" = "$DATA_DIR" ] && data= || data=" --data $data"
  local same=
  [ "$root" = . ] || same=" --default_root_dir $root"
  cat <<EOT

Each run has a folder with its metrics and checkpoints under $root/lightning_logs; all runs together are in $root/lightc.db.
Three things to try next:
  build/bin/fashion_cnn --ckpt_path last --max_epochs 8$same$data
      continue from the last checkpoint to 8 epochs in total, bit for bit as if it had never stopped
  sqlite3 -box $root/lightc.db 'select run_name, version, name, step, value from v_latest'
      the last value of every metric of every run, also while one trains (apt install sqlite3)
  build/bin/fashion_cnn --help
      every option; the programs are in examples/, the one that just ran is examples/fashion_cnn.c
EOT
}

run_tests() {
  # shellcheck disable=SC2086
  install_missing $BUILD_PACKAGES $DATA_PACKAGES $TEST_PACKAGES
  need
  tests/run_all.sh
}

# shellcheck disable=SC2086
case ${1:-} in
  -h | --help | help) usage ;;
  test) shift; run_tests "$@" ;;
  setup) install_missing $BUILD_PACKAGES $DATA_PACKAGES $TEST_PACKAGES ;;
  *) train "$@" ;;
esac
