#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the programs of the guides exactly as printed. Every block of C in them begins with /* NAME.c */ and
# is a whole program. Usage: docs.sh BIN_DIR LIB_DIR [SANITIZERS]
set -u
source_dir=$(cd "$(dirname "$0")/../.." && pwd) bin=$(cd "$1" && pwd) lib=$(cd "$2" && pwd) sanitize=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
checks=0 failures=0
export NO_COLOR=1 OMP_WAIT_POLICY=passive LD_LIBRARY_PATH="$lib"
flags=(-std=gnu11 -O1 -Wall -Wextra -Werror -I"$source_dir/include" -L"$lib")
[ -n "$sanitize" ] && flags+=("-fsanitize=$sanitize")

check() { # what it means, command...
  local what=$1
  shift
  checks=$((checks + 1))
  "$@" && return
  echo "FAIL $what"
  tail -n 5 err 2>/dev/null
  failures=$((failures + 1))
}
compile() { cc "${flags[@]}" "$1.c" -o "$1" -llightc -lm 2>err; }
run() { # program, its arguments
  local program=$1
  shift
  "./$program" "$@" >out 2>err
}
loss_below() { awk -v want="$1" '$1 == "loss" {ok = $2 + 0 < want && $2 + 0 > 0} END {exit !ok}' out; }

for guide in from-lightning from-a-loop; do
  awk '/^```c$/ {inside = 1; name = ""; next}
       /^```/ {inside = 0; next}
       inside && name == "" {
         name = $2
         if ($0 !~ /^\/\* [a-z0-9]+\.c \*\/$/) {print "a block without a name: " $0; exit 1}
       }
       inside {print > name}' "$source_dir/docs/$guide.md" || failures=$((failures + 1))
done
for name in classifier loop0 loop1 loop2; do check "$name.c compiles" compile $name; done

mkdir data && "$bin/make_idx" data || exit 1
check "the classifier trains" run classifier --data data --max_epochs 2 --width 32 --default_root_dir root
check "and leaves its hyperparameters" grep -q 'width: 32' root/lightning_logs/version_0/hparams.yaml
check "the loop by hand runs" run loop0
check "and learns" loss_below 0.01
check "with Fabric" run loop1
check "it learns too" loss_below 0.01
check "with the trainer" run loop2 --default_root_dir root2
check "it learns too" loss_below 0.01
check "goes on" run loop2 --default_root_dir root2 --ckpt_path last --max_epochs 60
echo "$((checks - failures)) passed, $failures failed, 0 skipped"
[ "$failures" -eq 0 ]
