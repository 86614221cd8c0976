#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# faults.sh [--rounds N] [--seed N] [--backends shm,tcp,mpi] [--round N] [--kind NAME] [--break CHECK]: trainings that are
# killed, stopped, cut off, denied disk space, started twice and contacted by strangers (see fault_rounds.c).
# LIGHTC_TEST_BIN: the programs, build/bin by default.
set -u
export LIGHTC_TEST_BIN=${LIGHTC_TEST_BIN:-$(dirname "$0")/../../build/bin}
ulimit -u 600 2>/dev/null # a rank that takes itself for the first process would start ranks endlessly
ulimit -c 0
exec "$LIGHTC_TEST_BIN/fault_rounds" "$@"
