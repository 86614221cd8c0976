#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests, stage by stage; `tests/run_all.sh STAGE...` runs some of them:
#   release      the release build, everything ctest knows
#   reference    its operators and engine only on the reference kernels; not laws, of which sim_laws runs most on them
#   unplanned    the same node by node (LIGHTC_PLAN=off)
#   asan         everything under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan         what has threads under ThreadSanitizer
#   plain        a build without oneDNN and OpenMP: engine, operators, modules, optimizers; with the kernels for AMX, whose
#                instructions are emulated on other machines that have AVX512_BF16
#   clang        everything compiled by clang, with its UndefinedBehaviorSanitizer, which knows more than gcc's; and what
#                computes, reads files, takes arguments and starts ranks run under it
#   fuzz         each fuzzer for FUZZ_SECONDS (30)
#   install      an installed copy, used from outside through find_package and pkg-config, from C and C++
# Builds must be free of warnings. Ends with one line "N passed, N failed, N skipped" that counts test cases; what was
# skipped is listed above it, with the reason. BUILD_ROOT names another folder for the builds, TMPDIR one for what tests
# write. A stage builds what it runs, and nothing else.
set -u
cd "$(dirname "$0")/.." || exit 1
stages=${*:-release reference unplanned asan tsan plain clang fuzz install}
passed=0 failed=0 skipped=0
jobs=$(nproc)
root=${BUILD_ROOT:-.}

# Tests save and sync thousands of small files, and a disk may take a tenth of a second for each: they are written to
# memory where there is a gigabyte of it that may hold programs, too.
memory_has_room() {
  local kilobytes
  kilobytes=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}')
  [ -w /dev/shm ] && [ "${kilobytes:-0}" -gt 1000000 ] && ! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts
}
if [ -z "${TMPDIR:-}" ] && memory_has_room; then TMPDIR=/dev/shm; fi
log_dir=$(mktemp -d "${TMPDIR:-/tmp}/lc-XXXXXX")
export TMPDIR=$log_dir
trap 'rm -rf "$log_dir"' EXIT
operators='^(image|engine|laws|ops_math|ops_cases|ops_nn|ops_nn_kernels|nn|module|optim|random)$'
plain="${operators%)$}|product_low|conv_low|matmul_precision|mixed_run|random_precision)\$"
# What starts threads, whose races only this stage finds. Left out: deterministic, resume_ranks, random_ranks and
# winograd, which take minutes each and whose code the others run; exposed, which takes one, and whose ranks are processes
# that ThreadSanitizer sees one at a time; tune, which measures within a limit of time, and of which a case fails if that
# is over early, as on a busy machine; what starts threads in other programs.
threads='^(pool|thread_start|cpu_(backend|kernels|training_kernels|rnn)|product|bad_index|profilers|no_memory'
threads+='|endings|split|late_values|trainer_(order|resume|random|loaders|signals)|loader|loader_timeout|waiting|images|image_cache|tokens|hdf5'
threads+='|combined_ranks|loggers|csv|sqlite|sqlite_lock|stream|mlflow|tensorboard|notifier|watch|log_again'
threads+='|log_ranks|log_metric_ranks|checkpoint|checkpoint_(faults|sharded|ranges)|load_weights|save_errors_ranks'
threads+='|comm|comm_arguments|shm|tcp|secure|seal|control.*|progress_thread|under_way|collectives'
threads+='|compression|sync|sync_batch_norm|partial_gradients|sharded_gradients|slices|gather|data_parallel.*'
threads+='|sim_(fit|ranks|devices)|unused_parameters|ddp.*|ranks_apart|rank_times|halves_run|scaled_loss_run|tuner_ranks|fabric_ranks)$'
# Left out under AddressSanitizer, where it takes minutes: what runs there on the host, or without a sanitizer, and
# examples whose code other tests run.
slow='^(backend_check|attention_digits|sim_(resume_everything|callbacks_resume|deterministic(_windows|_resume)?|laws|sync'
slow+='|optim|ops_math|ops_nn|ops_cases|under_way|sharded_gradients|slices)'
slow+='|example_(sharded_gpt|cifar_resnet|fashion_cnn|bench_devices|ddp_by_hand|ddp_mnist|finetune))$'
# What runs under clang's UndefinedBehaviorSanitizer (gcc's does not see that 0 is added to NULL): what computes, reads
# files, takes arguments and starts ranks. UNDEFINED=. runs everything (.ci/long ubsan).
undefined='^(engine|ops_.*|nn|module|optim|random|random_(programs|trainings)|cpu_.*|winograd|product.*|conv_.*|.*_f64'
undefined+='|(mixed|true|halves)_run|stored_writes|sync|partial_gradients|data.*|loader|image|images|safetensors|checkpoint'
undefined+='|hostile_.*|json|options|sched|metrics|csv|loggers|stream|sqlite|bad_index|tuner|trainer_resume|launch|elastic'
undefined+='|ddp|ddp_(data|ends|exception|loaders|sharded))$'
undefined=${UNDEFINED:-$undefined}

say() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }

pass() {
  echo "$*"
  passed=$((passed + 1))
}

fail() {
  echo "FAIL $*"
  failed=$((failed + 1))
}

# Adds up the closing lines of the programs in a ctest log. A program without one counts as one case, and so does one
# that failed without a failed case.
count() { # log name
  local p f s
  read -r p f s < <(awk '
    { id = $1; sub(/:$/, "", id) }
    match($0, /[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped/) && $1 ~ /^[0-9]+:$/ {
      split(substr($0, RSTART, RLENGTH), n, " "); p += n[1]; f += n[3]; s += n[5]; seen[id] = 1; bad[id] += n[3]; left[id] += n[5]
    }
    match($0, /Test +#[0-9]+:/) && /(Passed|\*\*\*)/ {
      id = substr($0, RSTART, RLENGTH); gsub(/[^0-9]/, "", id)
      if (/\*\*\*Skipped/) { if (!left[id]) s++ }
      else if (/\*\*\*/) { if (!bad[id]) f++ }
      else if (!seen[id]) p++
      programs++
    }
    END { if (!programs) f++; print p + 0, f + 0, s + 0 }' "$1")
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "$2: $p passed, $f failed, $s skipped"
}

programs() { # pattern of names
  local file name
  find tests -name "test_*.c" | sort | while read -r file; do
    name=$(basename "$file" .c)
    if [[ ${name#test_} =~ $1 ]]; then echo "$name"; fi
  done
}

# What the build of a stage is: folder, cmake's options, and targets, all if none is named.
describe() { # stage; false: it has no build of its own
  folder=$root/build-$1 options=() targets=()
  case $1 in
  release) folder=$root/build options=(--preset release) ;;
  asan) options=(--preset asan) ;;
  tsan)
    # The preset leaves OpenMP out: ThreadSanitizer does not know libgomp's barriers and would report them as races.
    options=(--preset tsan)
    mapfile -t targets < <(programs "$threads")
    ;;
  plain)
    options=(-G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo '-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG'
      -DLIGHTC_WITH_ONEDNN=OFF -DLIGHTC_WITH_OPENMP=OFF -DLIGHTC_WITH_OPENSSL=OFF
      -DLIGHTC_WITH_JPEG=OFF -DLIGHTC_WITH_PNG=OFF -DLIGHTC_WITH_WEBP=OFF)
    if ! grep -q amx_bf16 /proc/cpuinfo; then options+=(-DLIGHTC_EMULATE_AMX=ON); fi
    mapfile -t targets < <(programs "$plain")
    ;;
  clang)
    options=(-G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo '-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG'
      -DCMAKE_C_COMPILER=clang -DLIGHTC_SANITIZE=undefined,float-cast-overflow -DLIGHTC_WITH_OPENMP=OFF)
    ;;
  fuzz) options=(--preset fuzz) targets=(fuzzers) ;;
  *) return 1 ;;
  esac
  if [[ $1 =~ ^(clang|fuzz)$ ]]; then command -v clang >/dev/null; fi
}

# Most tests wait for most of their time, for each other's processes or for time to pass. The builds of later stages take
# what that leaves of the processors, in the order of the stages: with the lowest priority, so that tests hardly notice.
build_all() {
  local stage
  for stage in $stages; do
    describe "$stage" || continue
    cmake -S . -B "$folder" "${options[@]}" >"$log_dir/build-$stage" 2>&1 &&
      cmake --build "$folder" -j "$jobs" ${targets[@]+--target "${targets[@]}"} >>"$log_dir/build-$stage" 2>&1
    echo $? >"$log_dir/built-$stage"
  done
}

priority() { renice -n "$1" -g "$builder" >/dev/null 2>&1; } # of the builds; only root may raise it again

build() { # stage: waits until it is built
  local log="$log_dir/build-$1" how
  priority 0
  until how=$(cat "$log_dir/built-$1" 2>/dev/null) && [ "$how" ]; do
    kill -0 "$builder" 2>/dev/null || break
    sleep 0.2
  done
  say "$1 is built"
  if [ "${how:-1}" != 0 ]; then
    fail "build $1"
    grep -E 'error|undefined|CMake Error' "$log" | head -20
    return 1
  fi
  if grep -q 'warning:' "$log"; then
    fail "build $1: warnings"
    grep -A3 'warning:' "$log" | head -30
  else
    pass "build $1: no warning"
  fi
}

# More tests at once than there are processors: many wait for each other's processes, or for time to pass.
suite() { # name folder [ctest options]; the environment is the caller's
  local name=$1 folder=$2 log="$log_dir/$1"
  shift 2
  priority 19
  ctest --test-dir "$folder" -j $((2 * jobs)) -V "$@" >"$log" 2>&1
  count "$log" "$name"
  sed -nE "s/^[0-9]+: (SKIP[ :].*)/$name: \1/p" "$log" >>"$log_dir/skips"
  if grep -aqE '^[0-9]+: FAIL |\*\*\*(Failed|Exception|Timeout|Not Run)' "$log"; then
    grep -aE '\*\*\*' "$log" | head -40
    grep -aE -B4 '^[0-9]+: FAIL ' "$log" | head -100
    grep -aE 'ERROR: (Address|Leak)Sanitizer|runtime error|WARNING: ThreadSanitizer' -A12 "$log" | head -100
  fi
}

# Starts from tests/fuzz/corpus/NAME where that is there; only the first folder, which is empty, is written to.
fuzz_one() { # program
  local name folders
  name=$(basename "$1")
  folders=("$log_dir/corpus-$name")
  if [ -d "tests/fuzz/corpus/${name#fuzz_}" ]; then folders+=("tests/fuzz/corpus/${name#fuzz_}"); fi
  mkdir -p "${folders[0]}"
  "$1" -max_total_time="${FUZZ_SECONDS:-30}" -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="$log_dir/" "${folders[@]}" >"$log_dir/$name" 2>&1
  echo $? >"$log_dir/$name.status"
}

run_stages() { # a function, so that bash has read all of it before it starts
  set -m # the builds are a process group, which ends with this script
  build_all &
  builder=$!
  set +m
  trap 'kill -- "-$builder" 2>/dev/null; rm -rf "$log_dir"' EXIT
  for stage in $stages; do
    say "$stage"
    describe "$stage"
    case $stage in
    release) build release && suite release "$folder" ;;
    reference) LIGHTC_KERNELS=reference suite reference "$root/build" -R "$operators" -E '^laws$' ;;
    unplanned) LIGHTC_PLAN=off suite unplanned "$root/build" -R "$operators" ;;
    asan) build asan && ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 suite asan "$folder" -E "$slow" ;;
    tsan) build tsan && suite tsan "$folder" -R "$threads" ;;
    plain) build plain && suite plain "$folder" -R "$plain" ;;
    clang | fuzz)
      if ! command -v clang >/dev/null; then
        skipped=$((skipped + 1))
        echo "$stage: SKIP there is no clang" >>"$log_dir/skips"
        continue
      fi
      build "$stage" || continue
      if [ "$stage" = clang ]; then
        UBSAN_OPTIONS=print_stacktrace=1 suite clang "$folder" -R "$undefined"
        continue
      fi
      running=()
      for fuzzer in "$folder"/bin/fuzz_*; do
        fuzz_one "$fuzzer" &
        running+=($!)
        [ $((${#running[@]} % jobs)) -eq 0 ] && wait "${running[@]}"
      done
      wait "${running[@]}"
      for fuzzer in "$folder"/bin/fuzz_*; do
        name=$(basename "$fuzzer")
        if [ "$(cat "$log_dir/$name.status")" = 0 ]; then
          pass "$name: $(grep -aoE 'Done [0-9]+ runs in [0-9]+ second' "$log_dir/$name")s"
        else
          fail "$name"
          tail -n 30 "$log_dir/$name"
          for input in "$log_dir"/crash-* "$log_dir"/timeout-* "$log_dir"/oom-* "$log_dir"/leak-*; do
            [ -e "$input" ] && { echo "input $(basename "$input"):"; base64 "$input" | head -c 4000; rm -f "$input"; }
          done
        fi
      done
      ;;
    install)
      if tests/install/check.sh "$root/build" >"$log_dir/install" 2>&1; then
        pass "installed copy: used through find_package and pkg-config, from C and C++"
      else
        fail "installed copy"
        tail -n 20 "$log_dir/install"
      fi
      ;;
    *) fail "there is no stage $stage" ;;
    esac
  done

  if [ -s "$log_dir/skips" ]; then
    echo "== skipped"
    sort "$log_dir/skips" | uniq
  fi
  say "all"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}

run_stages; exit # on one line, for the same reason
