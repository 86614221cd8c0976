#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh [NAME...]: trainings started, ended, signaled and queued again by a real Slurm: munged, slurmctld and two
# slurmd, set up in a scratch directory only for this test, and removed afterwards. LIGHTC_TEST_BIN: the programs,
# build/bin by default. LIGHTC_TEST_KEEP=1 keeps the directory. Exits with 77 if Slurm is not installed. To add a case,
# add a function `case_NAME`, which runs in a directory of its own.
set -u
PATH=$PATH:/usr/sbin:/sbin
bin=$(cd "${LIGHTC_TEST_BIN:-$(dirname "$0")/../../build/bin}" && pwd) || exit 1
program=$bin/fault_program
skip() { echo "SKIP: $*" && exit 77; }
for tool in munged slurmctld slurmd srun sbatch salloc scancel scontrol squeue setpriv; do
  command -v $tool >/dev/null || skip "$tool is not there (apt install slurm-wlm munge)"
done
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 LIGHTC_CACHE=off SLURM_CONF
unset "${!SLURM_@}" 2>/dev/null
ulimit -u 2000 2>/dev/null
ulimit -c 0
work=$(mktemp -d) && chmod 755 "$work"
checks=0 failures=0 daemons=()

# ---- the cluster ----

daemon() { # NAME COMMAND...: in the foreground, so that it is a child of this script, and ends with it
  local name=$1
  shift
  setpriv --pdeathsig KILL "$@" </dev/null >"$work/$name.out" 2>&1 &
  daemons+=($!)
}
take_down() {
  scancel --user="$(id -un)" 2>/dev/null
  for _ in {1..40}; do
    [ -n "$(squeue --noheader 2>/dev/null)" ] || break
    sleep 0.1
  done
  kill "${daemons[@]}" 2>/dev/null
  for _ in {1..50}; do
    kill -0 "${daemons[@]}" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "${daemons[@]}" 2>/dev/null
  wait 2>/dev/null
  [ -n "${LIGHTC_TEST_KEEP:-}" ] && echo "kept: $work" || rm -rf "$work"
}
trap take_down EXIT
trap 'exit 1' INT TERM
free_ports() { # the first of four unused ports
  local first port
  for _ in {1..50}; do
    first=$((10000 + RANDOM % 5000))
    for port in $first $((first + 1)) $((first + 2)); do
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue 2
    done
    echo $first && return
  done
}
bring_up() {
  local host port user
  host=$(hostname -s) port=$(free_ports) user=$(id -un)
  mkdir -p "$work"/{state,spool}
  (umask 077 && head -c 1024 /dev/urandom >"$work/key")
  daemon munged munged --foreground --force --key-file="$work/key" --socket="$work/munge" --pid-file="$work/munged.pid" \
    --log-file="$work/munged.log" --seed-file="$work/seed"
  # Nodes are named by their addresses, so that ranks find them. A job that is queued again starts when the
  # credential of its first life has expired: after 2 minutes by default, and 5 seconds at least.
  SLURM_CONF=$work/slurm.conf
  cat >"$SLURM_CONF" <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/munge,cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=$((3 * ${LIGHTC_TEST_SLACK:-1}))
NodeName=127.0.0.1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=127.0.0.2 NodeHostname=$host NodeAddr=127.0.0.2 Port=$((port + 2)) CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
EOF
  for _ in {1..50}; do
    [ -S "$work/munge" ] && break
    sleep 0.1
  done
  daemon slurmctld slurmctld -D -c
  daemon slurmd-1 slurmd -D -N 127.0.0.1
  daemon slurmd-2 slurmd -D -N 127.0.0.2
  for _ in {1..200}; do
    [ "$(sinfo --noheader --format '%D %t' 2>/dev/null)" = "2 idle" ] && return
    sleep 0.1
  done
  tail -n 3 "$work"/*.out
  skip "Slurm does not start here"
}

# ---- checking ----

check() { # what it means, command...
  local what=$1
  shift
  checks=$((checks + 1))
  "$@" && return
  echo "FAIL $name: $what"
  tail -n 8 out err job 2>/dev/null
  failures=$((failures + 1))
}
fails() { ! "$@"; }
says() { grep -qE -- "$1" out err job 2>/dev/null; }
run() { timeout -k 5 100 "$@" >out 2>err; }
train() { # the same numbers in every case, whatever the number of ranks: --batch times their number is 8
  command=("$program" --dir . --default_root_dir . --deterministic true --threads 1 "$@")
}
batch_job() { # options of sbatch, --, lines of a script
  local options=()
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  printf '#!/bin/sh\n' >script
  printf '%s\n' "$@" >>script
  rm -f job
  job=$(sbatch --parsable --output=job --open-mode=append "${options[@]}" script)
}
state() { scontrol show job "$job" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p'; }
is() { [ "$(state)" = "$1" ]; }
within() { # seconds (times LIGHTC_TEST_SLACK), command...
  local tries=$(($1 * 10 * ${LIGHTC_TEST_SLACK:-1}))
  shift
  for ((; tries > 0; tries--)); do
    "$@" && return
    sleep 0.1
  done
  return 1
}
is_over() { [[ $(state) != PENDING && $(state) != CONFIGURING && $(state) != RUNNING && $(state) != COMPLETING ]]; }
exists() { compgen -G "$1" >/dev/null; }
trains() { [ "$(compgen -G 'trains-*' | wc -l)" -ge "$1" ]; } # whether so many ranks have reached a step
a_rank() { # the process of rank $1
  local life
  life=$(grep -lE "^[0-9.]+ $1 " life-* | tail -n 1)
  echo "${life#life-}"
}
nobody_left() { ! pgrep -f -- "$program --dir [.] " >/dev/null; }
same_numbers() { cmp -s result "$work/one/result"; }
places() { [ "$(cat place-* | tr '\n' ';')" = "$1" ]; }

# ---- cases ----

case_started_by_srun() {
  train --batch 4
  check "srun -n 2" run srun -n 2 "${command[@]}"
  check "has the numbers of one process" same_numbers
  check "and its places" places "size=2 local=0 node=0 nodes=1;size=2 local=1 node=0 nodes=1;"
  rm -f result place-*
  check "srun -N 2" run srun -N 2 --ntasks-per-node 1 "${command[@]}" --strategy ddp --num_nodes 2 --devices 1
  check "has the numbers of one process" same_numbers
  check "and its places" places "size=2 local=0 node=0 nodes=2;size=2 local=0 node=1 nodes=2;"
  rm -f result place-*
  train --batch 2 --strategy sharded_2
  check "srun -N 2, two tasks each" run srun -N 2 --ntasks-per-node 2 "${command[@]}" --num_nodes 2 --devices 2
  check "has the numbers of one process" same_numbers
  check "and its places" places "size=4 local=0 node=0 nodes=2;size=4 local=1 node=0 nodes=2;size=4 local=0 node=1 \
nodes=2;size=4 local=1 node=1 nodes=2;"
}

case_started_by_scripts() {
  train --batch 4
  batch_job -n 2 -- "srun ${command[*]}"
  check "sbatch with srun ends" within 30 is_over
  check "well" is COMPLETED
  check "with the numbers of one process" same_numbers
  rm -f result
  batch_job -n 1 -c 2 -- "${command[*]} --devices 2"
  check "sbatch with ranks that the program starts" within 30 is_over
  check "with the numbers of one process" same_numbers
  rm -f result
  check "salloc with srun" run salloc -n 2 srun "${command[@]}"
  check "with the numbers of one process" same_numbers
  rm -f result
  check "srun with a script" run srun -n 2 bash -c "${command[*]} </dev/null"
  check "with the numbers of one process" same_numbers
}

case_wrong_numbers() {
  train
  check "fewer tasks than --devices" fails run srun -n 2 "${command[@]}" --devices 4
  check "are named" says 'devices=4, but slurm started 2 on node 0'
  check "fewer nodes than --num_nodes" fails run srun -n 2 "${command[@]}" --num_nodes 2
  check "are named" says 'num_nodes=2, but the 2 ranks that slurm started are on 1'
}

case_killed() {
  train --batch 2 --max_epochs 1000
  batch_job -N 2 --ntasks-per-node 2 -- "srun ${command[*]}"
  check "four ranks train" within 30 trains 4
  sleep 1
  kill -KILL "$(a_rank 3)"
  check "the job of a killed rank is over in 3 s" within 3 is_over
  check "as one that failed" is FAILED
  check "and says which" says 'error: rank 3 \(host [^)]*\), step [0-9]+'
  check "no rank is left" nobody_left
}

case_canceled() {
  train --batch 4 --max_epochs 1000
  batch_job -n 2 -- "srun ${command[*]}"
  check "two ranks begin" within 30 trains 2
  scancel "$job"
  check "scancel ends the job" within 5 is_over
  check "as canceled" is CANCELLED
  check "no rank is left" nobody_left
  check "with a checkpoint" exists '*/*/checkpoints/interrupted.ckpt'
  check "as one rank says" [ "$(grep -c 'stopped by SIGTERM' job)" = 1 ]
}

case_queued_again() {
  train --batch 4 --max_epochs 30 --log_every_n_steps 1 --enable_progress_bar true
  check "undisturbed" run "${command[@]}" --devices 2
  mv result undisturbed
  rm -f life-* trains-* place-*
  batch_job --requeue -n 2 -- "srun ${command[*]}"
  check "two ranks begin" within 30 trains 2
  sleep 0.3
  scancel --signal=USR1 "$job"
  check "SIGUSR1 saves" within 20 [ -e hpc_ckpt_1.ckpt ]
  check "the job begins again" within 30 trains 4
  check "and ends" within 30 is_over
  check "well" is COMPLETED
  check "from the checkpoint" [ "$(sed -n 2p lightning_logs/version_2/metrics.csv | cut -d, -f2)" -gt 0 ]
  check "as it says" says 'hpc_ckpt_1.ckpt'
  check "with the numbers of an undisturbed run" cmp -s result undisturbed
}

case_queued_again_without_srun() {
  train --batch 4 --max_epochs 1000 --devices 2
  batch_job --requeue -n 1 -c 2 -- "exec ${command[*]}"
  check "two ranks begin" within 30 trains 2
  sleep 0.5
  scancel --batch --signal=USR1 "$job"
  check "SIGUSR1 saves" within 20 [ -e hpc_ckpt_1.ckpt ]
  check "the job waits for its turn" within 10 is PENDING
  check "no rank is left" within 5 nobody_left
  scancel "$job"
}

case_goes_on_without_a_rank() {
  train --batch 4 --devices 2 --max_restarts 1 --max_epochs 30
  check "undisturbed" run "${command[@]}"
  mv result undisturbed
  rm -f life-* trains-* place-*
  batch_job -n 1 -c 2 -- "exec ${command[*]}"
  check "two ranks begin" within 30 trains 2
  sleep 0.5
  kill -KILL "$(a_rank 1)"
  check "the job ends" within 30 is_over
  check "well" is COMPLETED
  check "with the remaining rank" places "size=1 local=0 node=0 nodes=1;"
  check "with the numbers of an undisturbed run" cmp -s result undisturbed
}

case_time_is_over() {
  train --batch 4 --max_epochs 100000 --slurm_margin 54s --enable_progress_bar true
  batch_job -n 2 --time 1 -- "srun ${command[*]}"
  check "the run ends before the job must" within 30 is_over
  check "well" is COMPLETED
  check "and says why" says "time limit reached: the Slurm job ends in (5[0-4]|[1-4]?[0-9]) s"
  check "with its result" [ -e result ]
}

case_mpirun() {
  command -v mpirun >/dev/null || return 0
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  train --batch 4
  check "salloc with mpirun" run salloc -n 2 mpirun "${command[@]}"
  check "has the numbers of one process" same_numbers
  check "and its places" places "size=2 local=0 node=0 nodes=1;size=2 local=1 node=0 nodes=1;"
}

mapfile -t all < <(declare -F | sed -n 's/^declare -f case_//p')
bring_up
mkdir "$work/one"
cd "$work/one" && name=reference && train --batch 8 && check "one process" run "${command[@]}"
[ $# -gt 0 ] || set -- "${all[@]}"
for name; do
  mkdir -p "$work/$name" && cd "$work/$name" || exit 1
  "case_$name"
done
echo "slurm: $checks checks, $failures failed"
[ $failures -eq 0 ]
