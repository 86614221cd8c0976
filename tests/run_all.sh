#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests: the release build, the same without fast kernels and without plans, ASan+UBSan, TSan on what has threads,
# the fuzzers for a minute each, an installed copy used from outside. Ends with one line "N passed, N failed, N skipped"
# that counts test cases. FUZZ_SECONDS=10 shortens the fuzzing.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0
jobs=$(nproc)
log_dir=$(mktemp -d)

# Adds up the closing lines of the programs in a ctest log; a program without one counts as one case.
count() { # log name
  local p f s programs_failed
  read -r p f s < <(grep -aoE '[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$1" |
    awk '{p += $1; f += $3; s += $5} END {print p + 0, f + 0, s + 0}')
  programs_failed=$(grep -acE '\*\*\*(Failed|Timeout|Exception|Not Run)' "$1")
  [ "$programs_failed" -gt 0 ] && [ "$f" -eq 0 ] && f=$programs_failed
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "$2: $p passed, $f failed, $s skipped"
}

build() { # preset [options]
  local preset=$1
  shift
  if ! { cmake --preset "$preset" "$@" && cmake --build --preset "$preset" -j "$jobs"; } >"$log_dir/build-$preset" 2>&1; then
    echo "build of $preset failed:"
    grep -E 'error|undefined|CMake Error' "$log_dir/build-$preset" | head -20
    failed=$((failed + 1))
    return 1
  fi
}

suite() { # name folder [ctest options]; the environment is the caller's
  local name=$1 folder=$2
  shift 2
  ctest --test-dir "$folder" -j "$jobs" -V "$@" >"$log_dir/$name" 2>&1
  count "$log_dir/$name" "$name"
  grep -aE '(FAIL |\*\*\*|SKIP )' "$log_dir/$name" | sed 's/^[0-9]*: //' | sort | uniq -c | head -60
  if grep -aqE '(FAIL |\*\*\*Failed|\*\*\*Exception)' "$log_dir/$name"; then
    grep -aE -B3 '^[0-9]+: FAIL ' "$log_dir/$name" | head -80
    grep -aE 'ERROR: (Address|Leak|Thread)Sanitizer|runtime error|WARNING: ThreadSanitizer' -A12 "$log_dir/$name" | head -80
  fi
}

build release && suite release build
if [ -d build/bin ]; then
  LIGHTC_KERNELS=reference suite reference-kernels build -R '^(engine|ops_math|ops_nn|nn|optim)$'
  LIGHTC_PLAN=off suite without-plans build -R '^(engine|ops_math|ops_nn|nn|optim)$'
fi
build asan && ASAN_OPTIONS=detect_leaks=1 suite asan build-asan -LE slow
build tsan && TSAN_OPTIONS=suppressions="$PWD/tests/tsan.supp" suite tsan build-tsan -R '^(loader|loggers|checkpoint)$'

if command -v clang >/dev/null; then
  if CC=clang cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLIGHTC_BUILD_FUZZERS=ON \
    -DLIGHTC_BUILD_EXAMPLES=OFF -DLIGHTC_BUILD_BENCH=OFF -DLIGHTC_WITH_OPENMP=OFF -DLIGHTC_WITH_ONEDNN=OFF >"$log_dir/build-fuzz" 2>&1 &&
    cmake --build build-fuzz -j "$jobs" >>"$log_dir/build-fuzz" 2>&1; then
    for fuzzer in build-fuzz/bin/fuzz_*; do
      [ -x "$fuzzer" ] || continue
      name=$(basename "$fuzzer")
      mkdir -p "$log_dir/corpus-$name"
      if "$fuzzer" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 "$log_dir/corpus-$name" >"$log_dir/$name" 2>&1; then
        echo "$name: $(grep -aoE 'Done [0-9]+ runs' "$log_dir/$name")"
        passed=$((passed + 1))
      else
        echo "$name failed:"
        tail -25 "$log_dir/$name"
        failed=$((failed + 1))
      fi
    done
  else
    echo "build with clang failed:"
    grep -E 'error|warning' "$log_dir/build-fuzz" | head
    failed=$((failed + 1))
  fi
else
  echo "SKIP fuzzers: no clang"
  skipped=$((skipped + 1))
fi

if [ -d build/bin ]; then
  if tests/install/check.sh build >"$log_dir/install" 2>&1; then
    echo "installed copy: used through find_package and pkg-config, from C and C++"
    passed=$((passed + 1))
  else
    echo "installed copy failed:"
    tail -20 "$log_dir/install"
    failed=$((failed + 1))
  fi
fi

rm -rf "$log_dir"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
