#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# company.sh LIGHTC_BENCH ROUNDS WORK...: a step on one and on two threads of a machine with two cores or more: quiet, with
# a busy loop pinned to one core, and with one on each of two. Cases alternate; the medians are printed.
set -eu
bench=$1 rounds=$2
shift 2
step() { # work threads core...
    local work=$1 threads=$2 loops=() core steps=10
    shift 2
    case $work in mlp) steps=1000 ;; gpt) steps=2 ;; esac
    for core in "$@"; do
        taskset -c "$core" bash -c 'while :; do :; done' &
        loops+=($!)
    done
    "$bench" "$work" --only_steps --threads "$threads" --steps "$steps" | sed -n 's/.*"step_no_loader", "value": \([0-9.]*\).*/\1/p'
    [ ${#loops[@]} = 0 ] || { kill "${loops[@]}"; wait "${loops[@]}" 2>/dev/null || true; }
}
cases=("1" "2" "1 1" "2 1" "1 0 1" "2 0 1")
for work in "$@"; do
    out=$(mktemp -d)
    for ((i = 0; i < rounds; i++)); do
        for c in "${!cases[@]}"; do step "$work" ${cases[c]} >>"$out/$c"; done
    done
    for c in "${!cases[@]}"; do
        median=$(sort -n "$out/$c" | sed -n "$(((rounds + 1) / 2))p")
        [ "$c" = 0 ] && quiet=$median
        echo "$work threads and busy cores ${cases[c]}: $median, $(echo "$median $quiet" | awk '{printf "%.2f", $1 / $2}') of one thread's quiet time"
    done
    rm -r "$out"
done
