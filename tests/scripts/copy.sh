# SPDX-License-Identifier: Apache-2.0
# Sourced by patches.sh and mutations.sh: their arguments, and a copy of the sources with a build of its own. The caller
# first sets `copy`, the folder.
source=$(cd "$(dirname "$0")/../.." && pwd)
jobs=2 list=0 names=()
while [ $# -gt 0 ]; do
  case $1 in
    -j) jobs=$2; shift 2 ;;
    -l) list=1; shift ;;
    *) names+=("$1"); shift ;;
  esac
done
export LIGHTC_TEST_BIN=$copy/build/bin LIGHTC_TEST_SOURCE=$copy LIGHTC_CACHE=off OMP_WAIT_POLICY=passive

# Copies files that are new or differ, and removes those that no longer exist, which would still be built. Copied files
# get a new time, since an object may have been built from a file that was changed in the copy.
prepare() {
  local file
  mkdir -p "$copy"
  git -C "$source" ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -f "$source/$file" ] || cmp -s "$source/$file" "$copy/$file" || { mkdir -p "$copy/$(dirname "$file")" && cp "$source/$file" "$copy/$file"; }
  done
  (cd "$copy" && find include src tests bench examples -type f) | while IFS= read -r file; do
    [ -f "$source/$file" ] || rm "$copy/$file"
  done
}

# Whether the arguments name it, or there are none.
wanted() {
  [ ${#names[@]} -eq 0 ] && return 0
  local part
  for part in "${names[@]}"; do [[ $1 == *$part* ]] && return 0; done
  return 1
}
