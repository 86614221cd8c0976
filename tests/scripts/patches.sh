#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# patches.sh [-j N] [-l] [PART_OF_A_NAME...]: CONTRIBUTING.md lists the files to touch to add one of each kind, and
# docs/design.md counts them. Each patch of tests/patches adds one: applied by itself to a copy of the sources, it must
# build without a warning, its tests must pass, and the files that it touches must be those of its row. -l builds nothing:
# it compares the files, and checks that the patches still apply.
#
# A patch begins with a line that says what it adds, and a line "Test: TEST[:CASE,CASE]...", which also names programs
# that the tests start; the rest is a diff. In a row, a path from the root is a file to change, and one that ends in / a
# folder for a new file. The copy and its build stay in $PATCHES_DIR (/tmp/lightc-patches) for the next time.
set -u
copy=${PATCHES_DIR:-/tmp/lightc-patches}
. "$(dirname "$0")/copy.sh"
failed=0 count=0

# The paths in the row "an operator" or "a data source" of CONTRIBUTING.md.
row() {
  sed -nE "s/^\| an? $1 \|//p" "$source/CONTRIBUTING.md" | grep -oE '`(src|include|tests|docs)/[^` *]+`' | tr -d '`' | sort -u
}

# The same for what a patch touches: a file, or the folder of a new one.
touched() {
  awk '/^--- /{old = $2} /^\+\+\+ /{path = substr($2, 3); if (old == "/dev/null") sub(/[^\/]*$/, "", path); print path}' "$1" | sort
}

# Prints what fails in the build and the tests of the patched copy.
try() {
  local tests t cases
  read -ra tests <<<"$(sed -n 's/^Test: //p' "$1")"
  [ ${#tests[@]} -gt 0 ] || { echo 'NAMES NO TEST'; return; }
  cmake -S "$copy" -B "$copy/build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$copy/log" 2>&1 &&
    cmake --build "$copy/build" -j"$jobs" --target lightc lightc_program "${tests[@]%%:*}" >"$copy/log" 2>&1 ||
    { echo 'DOES NOT BUILD'; return; }
  if grep -A3 'warning:' "$copy/log" >"$copy/warnings"; then
    mv "$copy/warnings" "$copy/log"
    echo 'BUILDS WITH WARNINGS'
    return
  fi
  for t in "${tests[@]}"; do
    [[ $t == test_* ]] || continue
    cases=()
    [[ $t == *:* ]] && IFS=, read -ra cases <<<"${t#*:}"
    timeout -k 5 300 "$copy/build/bin/${t%%:*}" "${cases[@]}" >"$copy/log" 2>&1 || { echo "FAILS: $t"; return; }
  done
}

check() {
  local patch=$1 kind result='' files expected number
  kind=$(basename "$patch" .patch)
  wanted "$kind" || return 0
  count=$((count + 1))
  files=$(touched "$patch")
  expected=$(row "${kind//_/ }")
  number=$(wc -l <<<"$files")
  if [ "$files" != "$expected" ]; then
    result='TOUCHES OTHER FILES THAN ITS ROW'
    diff <(echo "$expected") <(echo "$files")
  elif ! grep -q "^| ${kind//_/ } | $number |" "$source/docs/design.md"; then
    result='IS COUNTED OTHERWISE IN docs/design.md'
  elif [ $list = 1 ]; then
    git -C "$source" apply --check -C1 "$patch" || result='DOES NOT APPLY'
  elif ! git -C "$copy" apply -C1 "$patch"; then
    result='DOES NOT APPLY'
  else
    result=$(try "$patch")
    git -C "$copy" apply -C1 -R "$patch"
    [ -z "$result" ] || tail -n 20 "$copy/log"
  fi
  [ -z "$result" ] || failed=$((failed + 1))
  printf '%-12s %2d files  %s\n' "$kind" "$number" "${result:-as its row}"
}

# git would take the paths for those of a repository around the copy.
export GIT_CEILING_DIRECTORIES=$(dirname "$copy"):$(dirname "$source")
[ $list = 1 ] || prepare
for patch in "$source"/tests/patches/*.patch; do check "$patch"; done
while IFS= read -r kind; do
  [ -f "$source/tests/patches/${kind// /_}.patch" ] || { failed=$((failed + 1)); printf '%-12s HAS NO PATCH\n' "$kind"; }
done < <(sed -nE '/^## Counts/,$s/^\| ([a-z ]+) \| [0-9]+ \|.*/\1/p' "$source/docs/design.md")
printf '%d patches, %d failed\n' $count $failed
[ $failed = 0 ] && [ $count -gt 0 ]
