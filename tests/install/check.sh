#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build into a folder of its own and builds a program against it from outside the tree: with find_package,
# with pkg-config, as C++17. Usage: check.sh BUILD_DIR
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build_dir=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build_dir" --prefix "$work/prefix" >/dev/null
cmp "$source_dir/LICENSE" "$work/prefix/share/doc/lightc/LICENSE"
# quickstart.sh builds the target installed_parts, so that it can be installed: all programs and libraries belong to it.
built=$(ninja -C "$build_dir" -t commands installed_parts)
for file in $(cd "$work/prefix" && find . -type f \( -path './bin/*' -o -name 'liblightc*.so.*' \) -printf '%f\n'); do
  case $built in *"/$file "*) ;; *) echo "installed_parts does not build $file"; exit 1 ;; esac
done
[ -z "$(find "$work/prefix" -name '*sim*')" ] || { echo "the simulated device is installed"; exit 1; }
cp "$source_dir"/tests/install/{CMakeLists.txt,program.c,program.cc,precision.c,ranks.c} "$work"
cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build"
"$work/build/program"
"$work/build/program_cc"
(cd "$work" && ./build/precision)
mkdir "$work/other"
printf 'cmake_minimum_required(VERSION 3.22)\nproject(other C)\nfind_package(lightc REQUIRED COMPONENTS other)\n' \
  >"$work/other/CMakeLists.txt"
said=$(cmake -S "$work/other" -B "$work/other/build" -DCMAKE_PREFIX_PATH="$work/prefix" 2>&1 && exit 1 || true)
case $said in *"no component other"*) ;; *) echo "of a component that there is not cmake says: $said"; exit 1 ;; esac
export PKG_CONFIG_PATH="$(dirname "$(find "$work/prefix" -name lightc.pc)")"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror "$work/program.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs lightc)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir lightc) "$work/by_pkg_config"
# The program of the README, unchanged; run where its data are, with the mistake whose message is shown there.
sed -n '/^```c$/,/^```$/p' "$source_dir/README.md" | sed '/^```/d' >"$work/classifier.c"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror "$work/classifier.c" -o "$work/classifier" $(pkg-config --cflags --libs lightc)
mkdir "$work/wrong"
sed 's/28 \* 28/100/' "$work/classifier.c" >"$work/wrong/classifier.c"
# shellcheck disable=SC2046
(cd "$work/wrong" && cc -std=c11 classifier.c -o classifier $(pkg-config --cflags --libs lightc))
if [ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]; then
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir lightc)
  export LD_LIBRARY_PATH
  "$work/classifier" --fast_dev_run 3 --default_root_dir "$work"
  said=$("$work/wrong/classifier" --fast_dev_run 3 --enable_model_summary false 2>&1 || true)
  grep -qF "$said" "$source_dir/README.md" || { echo "the README shows another message than: $said"; exit 1; }
fi
# A module for the installed `lightc`, as its manual page says.
# shellcheck disable=SC2046
cc -shared -fPIC "$source_dir/examples/modules/spiral.c" -o "$work/spiral.so" $(pkg-config --cflags --libs lightc) -lm
"$work/prefix/bin/lightc" run "$work/spiral.so" --fast_dev_run 1 --enable_progress_bar false
test -s "$(find "$work/prefix" -name lightc.1)"
test -s "$(find "$work/prefix" -name lc_backend_check.1)"
"$work/prefix/bin/lc_backend_check" --version
# An MPI program; and the plug-in as a site builds it, with the command of its README.
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=vader,self
  export OMPI_MCA_rmaps_base_oversubscribe=1
  if [ -x "$work/build/ranks" ]; then timeout 120 mpirun -n 3 "$work/build/ranks"; fi
  cp -r "$work/prefix/share/lightc/mpi" "$work/site"
  (cd "$work/site" && bash -euc "$(grep '^mpicc' README.md)")
  find "$work/prefix" -name 'liblightc_mpi.so*' -delete
  measure=("$work/prefix/bin/lightc" bench comm --backends mpi --ranks 2 --collectives all_reduce --max_bytes 3000 --seconds 0.001)
  said=$("${measure[@]}" 2>&1 && exit 1 || true)
  case $said in *"built without MPI"*) ;; *) echo "without the plug-in it says: $said"; exit 1 ;; esac
  LIGHTC_MPI_PLUGIN=$work/site/liblightc_mpi.so timeout 120 "${measure[@]}" >/dev/null
fi
# Only lc_ names are visible.
library=$(find "$work/prefix" -name 'liblightc.so' | head -1)
foreign=$(nm -D --defined-only "$library" | awk '$2 ~ /[TDBRV]/ {print $3}' | grep -vE '^(lc_|_init$|_fini$)' || true)
[ -z "$foreign" ] || { echo "visible names that are not lc_*: $foreign"; exit 1; }
hidden=$(nm -D --defined-only "$library" | awk '{print $3}' | grep '^lc__' || true)
[ -z "$hidden" ] || { echo "internal names are visible: $hidden"; exit 1; }
