#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# company.sh LIGHTC_BENCH ROUNDS WORK...: a step on a machine with two cores or more: quiet, with a busy loop pinned to one
# core, and with one on each of two. First on one and on two threads (batches in memory), then of one rank and of two ranks
# of ddp with a thread each (an epoch, with its loader). Cases alternate; the medians are printed.
set -eu
bench=$1 rounds=$2
shift 2
step() { # work threads|ranks N core...
    local work=$1 kind=$2 n=$3 loops=() core
    shift 3
    local run=("$bench" "$work" --only_steps --threads "$n" --steps 10) metric=step_no_loader
    case $work in mlp) run[6]=1000 ;; gpt) run[6]=2 ;; esac
    if [ "$kind" = ranks ]; then
        run=("$bench" "$work" --only_epochs --threads 1 --devices "$n") metric=step
        [ "$n" = 1 ] || run+=(--strategy ddp)
        case $work in mlp) run+=(--epochs 20) ;; fashion) run+=(--steps 150) ;; *) run+=(--batch 4 --steps 16) ;; esac
    fi
    for core in "$@"; do
        taskset -c "$core" bash -c 'while :; do :; done' &
        loops+=($!)
    done
    "${run[@]}" 2>/dev/null | sed -n 's/.*"'$metric'", "value": \([0-9.]*\).*/\1/p'
    [ ${#loops[@]} = 0 ] || { kill "${loops[@]}"; wait "${loops[@]}" 2>/dev/null || true; }
}
cases=("threads 1" "threads 2" "threads 1 1" "threads 2 1" "threads 1 0 1" "threads 2 0 1"
    "ranks 1" "ranks 2" "ranks 1 1" "ranks 2 1" "ranks 1 0 1" "ranks 2 0 1")
for work in "$@"; do
    out=$(mktemp -d)
    for ((i = 0; i < rounds; i++)); do
        for c in "${!cases[@]}"; do step "$work" ${cases[c]} >>"$out/$c"; done
    done
    for c in "${!cases[@]}"; do
        median=$(sort -n "$out/$c" | sed -n "$(((rounds + 1) / 2))p")
        read -r kind n cores <<<"${cases[c]}"
        [ "$n$cores" = 1 ] && quiet=$median
        echo "$work, $kind: $n, busy cores: ${cores:-none}: $median, $(echo "$median $quiet" | awk '{printf "%.2f", $1 / $2}') of the quiet time of one"
    done
    rm -r "$out"
done
