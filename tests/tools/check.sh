#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs `lightc` on the example module, and on files that are not modules. Usage: check.sh BIN_DIR LIB_DIR
set -u
here=$(cd "$(dirname "$0")" && pwd) bin=$(cd "$1" && pwd) lib=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$lib"/modules/spiral.{so,json} "$work"
cd "$work" || exit 1
checks=0 failures=0
export NO_COLOR=1

check() { # what it means, command...
  local what=$1
  shift
  checks=$((checks + 1))
  "$@" && return
  echo "FAIL $what"
  tail -n 5 out err
  failures=$((failures + 1))
}
run() { "$bin/lightc" "$@" >out 2>err; }
ends_with() { # status, arguments
  local want=$1
  shift
  run "$@"
  [ $? -eq "$want" ]
}
says() { grep -qE -- "$1" out; }
complains() { grep -qE -- "$1" err; }
below() { awk -v want="$2" -v name="$1" '$1 == name {found = $2 < want} END {exit !found}' out; }

check "--version" run --version
check "names the version" says '^lightc [0-9]+\.[0-9]+'
check "no command is wrong usage" ends_with 2
loses() { # status, arguments; it reports that its output was lost
  local want=$1
  shift
  [ -c /dev/full ] || return 0
  "$bin/lightc" "$@" >/dev/full 2>err
  [ $? -eq "$want" ] && [ "$(grep -c 'cannot write "standard output": ' err)" = 1 ]
}
check "--version into a full disk is an error" loses 1 --version
check "as is --help" loses 1 --help
check "and that of a command" loses 1 bench comm --help
check "doctor comm into one" loses 1 doctor comm --seconds 0.001
check "also on two ranks" loses 1 launch -np 2 "$bin/lightc" doctor comm --seconds 0.001
check "bench comm into one" loses 1 bench comm --ranks 2 --max_bytes 1024 --seconds 0.001
check "an unknown command is wrong usage" ends_with 2 fly
check "that is named" complains '"fly"'
check "one of data too" ends_with 2 data fly
check "and it is named" complains 'unknown command "fly"'
check "a misspelled option of data pack is wrong usage" ends_with 2 data pack --sample 4 photos x
check "with the one that was meant" complains 'unknown option "--sample"; did you mean "--samples"\?'
check "a checkpoint that does not exist is an error" ends_with 1 ckpt inspect nowhere
check "that names it" complains 'cannot open checkpoint "nowhere"'
check "and nothing else is printed" test ! -s out
check "a misspelled command too" ends_with 2 lunch
check "with the one that was meant" complains 'unknown command "lunch"; did you mean "launch"\?'
for command in "" run launch ckpt data doctor bench; do
  # shellcheck disable=SC2086
  check "lightc $command --help succeeds" run $command --help
  check "and fits 80 columns" awk 'length > 80 {wide = 1} END {exit wide || !NR}' out
done
for command in $("$bin/lightc" --help | awk '/^  [a-z]/ {print $1}'); do
  check "the manual page describes $command" grep -q "^\.B $command" "$here/../../src/tools/lightc.1"
done

mkdir -p photos/cat photos/dog
for i in 1 2 3; do echo "$i" | tee photos/cat/$i.png >photos/dog/$i.png; done
check "data pack" run data pack --samples 4 photos shards
check "says how many shards" says '^2 shards: shards-000000.tar'
check "data show" run data show 'shards-{000000..000001}.tar'
check "says how many samples" says '^6 samples in 2 shards'
check "and of which targets" says '^  1: 3'
check "a pattern that the shell has expanded is wrong usage" ends_with 2 data show shards-000000.tar shards-000001.tar
check "that says what to do" complains 'data show takes one shard, folder or pattern, not 2; quote a pattern'
check "data index" run data index shards-000001.tar
check "names it" says '^shards-000001.tar.idx: 2 samples'
for i in 1 2 3; do cp photos/cat/$i.png $i.png; done
echo -9223372036854775808 >1.cls; echo 0 >2.cls; echo 9223372036854775807 >3.cls
tar cf far.tar 1.png 1.cls 2.png 2.cls 3.png 3.cls
check "data show of targets that are far apart" run data show far.tar
check "says from where to where" says '^targets from -9223372036854775808 to 9223372036854775807$'
tar cf most.tar 3.png 3.cls
"$bin/lightc" data show most.tar 2>err | head -n 5 >out
check "data show of the largest target ends" [ "$(wc -l <out)" = 4 ]
check "and counts it" says '^  9223372036854775807: 1$'
check "packing over shards is an error" ends_with 1 data pack photos shards
check "that names the first" complains 'shards-000000.tar exists'
check "data pack without a prefix is wrong usage" ends_with 2 data pack photos
check "what is not a number too" ends_with 2 data pack --samples many photos x
check "and its option is named" complains '--samples needs a whole number'
check "a number that is too large too" ends_with 2 data pack --seed 99999999999999999999 photos x

for command in "bench comm" "doctor comm" ckpt data launch bench doctor; do
  # shellcheck disable=SC2086
  check "$command --help" run $command --help
  check "names the command" says "^usage: lightc $command"
done
check "an unknown backend of bench comm is an error" ends_with 1 bench comm --backends nosuch
check "that lists those there are" complains '"nosuch"; available: all, threads, shm'
check "a file that it cannot write is one before it measures" ends_with 1 bench comm --json nowhere/out.json
check "that names the file" complains 'json: cannot write nowhere/out.json: No such file'
check "run --help" run run spiral.json --help
check "lists the module's options" says '^spiral:'
check "and the trainer's" says '--max_epochs'
check "trains" run run spiral.json --seed 3
run_dir=lightning_logs/version_0
check "leaves its configuration" grep -q '"width": 48' $run_dir/config.json
check "with the module" grep -q "\"module\": \"$work/spiral.so\"" $run_dir/config.json
check "and its hyperparameters" grep -q width $run_dir/hparams.yaml
check "evaluates" run run $run_dir/config.json --command validate --ckpt_path "$(echo $run_dir/checkpoints/*.ckpt)"
check "what it learned" below val_loss 0.2
for precision in 64-true bf16-mixed 16-mixed bf16-true 16-true; do
  check "trains in $precision" run run spiral.json --seed 3 --precision $precision --run_name $precision
  check "evaluates in it" run run $precision/version_0/config.json --command validate \
    --ckpt_path "$(echo $precision/version_0/checkpoints/*.ckpt)"
  check "what it learned" below val_loss 0.2
done
mkdir elsewhere
check "runs its own configuration again, from elsewhere" \
  env -C elsewhere "$bin/lightc" run ../$run_dir/config.json --max_epochs 1 --width 5 --enable_progress_bar false \
  --enable_model_summary false
check "with what was typed" grep -q '"width": 5,' elsewhere/lightning_logs/version_0/config.json
check "only a shared object" run run ./spiral.so --fast_dev_run 1 --enable_progress_bar false
check "--print_config" run run spiral.json --print_config
cp out again.json
check "is a configuration" run run again.json --fast_dev_run 1
{ head -c 16777216 /dev/zero | tr '\0' ' ' && cat spiral.json; } >large.json
check "one that is too large is an error" ends_with 1 run large.json
check "that says its size" complains "large.json has $(wc -c <large.json) bytes"
rm large.json

ckpt=$(echo $run_dir/checkpoints/*.ckpt)
check "ckpt inspect" run ckpt inspect "$ckpt"
check "lists files, and that they are whole" says '^model\.safetensors +[0-9]+  [0-9a-f]{8}  ok$'
check "and tensors" says '^model +l1\.weight +F32 +\[48,2\] +384$'
check "and states of the optimizer" says '^optimizer +optimizers\.0\.l1\.weight\.exp_avg '
check "and counters" says '^  batches_done '
check "the epoch" says '^epoch +[0-9]+$'
check "the optimizer" says '^optimizer 0: [a-zA-Z]+$'
check "hyperparameters" says '^  width +48$'
check "what wrote it" says '^strategy +single_device$'
check "ckpt inspect --json" run ckpt inspect --json "$ckpt"
cp out ckpt.json
check "is JSON" awk '/"name": "l1.weight"/ {found = 1} END {exit !found}' ckpt.json
check "ckpt diff of one with itself" run ckpt diff "$ckpt" "$ckpt"
check "finds no difference" says 'and all of state.json are bit-identical'
weights=$ckpt/model.safetensors
check "ckpt inspect of a safetensors file" run ckpt inspect "$weights"
check "lists its tensors" says '^model +l1\.weight +F32 +\[48,2\] +384$'
check "and how many bytes they have" says '^[0-9]+ tensors, [0-9]+ bytes$'
check "and its metadata" says '^  format +pt$'
check "as JSON" run ckpt inspect --json "$weights"
check "too" grep -q '"metadata": {' out
head -c 300 "$weights" >short.safetensors
check "one that is cut off is an error" ends_with 1 ckpt inspect short.safetensors
check "that says so once" test "$(grep -c short.safetensors err)" = 1
check "and prints nothing else" test ! -s out
check "inspect into a full disk is an error" loses 1 ckpt inspect "$ckpt"
check "of JSON too" loses 1 ckpt inspect --json "$ckpt"
check "diff into one ends with 2, since 1 says that two differ" loses 2 ckpt diff "$ckpt" "$ckpt"
check "trains with another seed" run run spiral.json --seed 4 --max_epochs 2 --dirpath other
other=$(echo other/*.ckpt)
check "ckpt diff of two that differ ends with 1" ends_with 1 ckpt diff "$ckpt" "$other"
check "says which tensors, and how far" says '^model  l1\.weight: [0-9]+ of 96 elements differ, by up to [0-9.e-]+ \(relative '
check "and which values of the state" says '^state\.json  seed: 3 \| 4$'
check "--tensors leaves the state out" ends_with 1 ckpt diff --tensors "$ckpt" "$other"
check "and nothing else" awk '/^model  / {tensors = 1} /^state\.json/ {state = 1} END {exit !tensors || state}' out
check "--json" ends_with 1 ckpt diff --json "$ckpt" "$other"
check "has the distances" says '"max_abs": [0-9.e-]+'
check "ckpt consolidate" run ckpt consolidate "$ckpt" whole.ckpt
check "keeps all there is" run ckpt diff "$ckpt" whole.ckpt
check "byte for byte" cmp "$ckpt/optimizer.safetensors" whole.ckpt/optimizer.safetensors
check "and goes on from it" run run $run_dir/config.json --ckpt_path whole.ckpt --max_epochs 65 --enable_progress_bar false
check "overwrites nothing" ends_with 1 ckpt consolidate "$ckpt" whole.ckpt
check "and says so" complains 'already exists'
check "two ranks write a sharded one" run run spiral.json --seed 3 --max_epochs 1 --devices 2 --strategy ddp \
  --state_dict_type sharded --dirpath parts
parts=$(echo parts/*.ckpt)
check "ckpt inspect of it" run ckpt inspect "$parts"
check "says which file has a tensor" says '^model +l2\.weight .* model-0000[12]-of-00002\.safetensors$'
check "and how many ranks wrote it" says '^world size +2$'
check "ckpt consolidate of it" run ckpt consolidate "$parts" joined.ckpt
check "leaves one file of a kind" test "$(echo joined.ckpt/model*)" = joined.ckpt/model.safetensors
check "with the same values" run ckpt diff "$parts" joined.ckpt
check "one process goes on from the parts" run run spiral.json --seed 3 --max_epochs 2 --ckpt_path "$parts" --dirpath on_a
check "or from the whole" run run spiral.json --seed 3 --max_epochs 2 --ckpt_path joined.ckpt --dirpath on_b
check "and gets the same" run ckpt diff --tensors on_a/*.ckpt on_b/*.ckpt
on() { # hosts, options...
  local hosts=$1
  shift
  run launch -H "$hosts" "$bin/lightc" run spiral.json --seed 3 --enable_progress_bar false "$@"
}
check "four ranks of two nodes" on local:2,local:2 --max_epochs 2 --strategy ddp --dirpath replicas
check "or with a copy for each node, in parts" on local:2,local:2 --max_epochs 2 --strategy sharded_hybrid --dirpath copies
check "train the same" run ckpt diff --tensors replicas/*.ckpt copies/*.ckpt
check "ckpt inspect of copies" run ckpt inspect copies/*.ckpt
check "shows all four" says '^world size +4$'
check "and of the strategy" says '^strategy +sharded_hybrid$'
check "ckpt consolidate of copies" run ckpt consolidate copies/*.ckpt whole_copy.ckpt
check "leaves one copy" run ckpt diff --tensors replicas/*.ckpt whole_copy.ckpt
check "from which one process goes on" run run spiral.json --seed 3 --max_epochs 3 --ckpt_path "$(echo copies/*.ckpt)" --dirpath on_c
check "and copies from another's" on local:1,local:1 --max_epochs 3 --strategy sharded_hybrid --ckpt_path "$(echo replicas/*.ckpt)" --dirpath on_d
check "nodes that are not equal are an error" ends_with 1 launch -H local:3,local:1 "$bin/lightc" run spiral.json --strategy sharded_hybrid
check "that says so" complains 'the node of rank 0 has 3 and that of rank 3 1; start the same number on each'
check "where they need not be the nodes" on local:3,local:1 --max_epochs 1 --strategy sharded_hybrid --shard_size 2 --dirpath pairs
printf x | dd of=whole.ckpt/model.safetensors bs=1 seek=900 conv=notrunc status=none
check "damage ends inspect with 1" ends_with 1 ckpt inspect whole.ckpt
check "which shows the file" says '^model\.safetensors .*is damaged: its checksum is'
check "and those that are whole" says '^state\.json .* ok$'
check "damage ends diff with 2" ends_with 2 ckpt diff "$ckpt" whole.ckpt
check "a file that holds no tensors is an error" ends_with 1 ckpt inspect spiral.json
check "that says what it is" complains 'spiral\.json" is not a safetensors file'
check "as is a directory" ends_with 1 ckpt inspect elsewhere
check "with what it lacks" complains 'has no manifest.json'
check "and nothing at all" ends_with 1 ckpt inspect nowhere
check "ckpt without a command is wrong usage" ends_with 2 ckpt
check "ckpt diff of one is wrong usage" ends_with 2 ckpt diff "$ckpt"
check "a misspelled command of ckpt too" ends_with 2 ckpt inspct "$ckpt"
check "with the one that was meant" complains 'unknown command "inspct"; did you mean "inspect"\?'
check "and an option of it" ends_with 2 ckpt inspect --jsn "$ckpt"
check "with the right one" complains 'unknown option "--jsn"; did you mean "--json"\?'
check "and one of launch" ends_with 2 launch --max_restart 2 true
check "as well" complains 'unknown option "--max_restart"; did you mean "--max_restarts"\?'
check "-- ends the options of launch" ends_with 3 launch -np 1 -- sh -c 'exit 3'
check "a configuration that is not there is an error" ends_with 1 run nowhere.json
check "which says so" complains 'cannot open the configuration nowhere.json: No such file or directory'

# Every error is reported once: no line comes twice, nor does a part of a line between colons.
once() {
  run "$@" && return 1
  awk '/^usage:/ {exit} seen[$0]++ {bad = 1}
    {n = split($0, part, /: /); for (i in had) delete had[i]
     for (i = 1; i <= n; i++) if (had[part[i]]++) bad = 1}
    END {exit bad || !NR}' err
}
echo '{' >text.json
echo '{"module": "spiral.so", "max_epochs": "x"}' >word.json
echo '{"module": "spiral.so", "max_epoch": 3}' >option.json
echo '{"module": 5}' >number.json
echo '[1]' >list.json
echo '{"module": "nowhere.so"}' >absent.json
echo x >short.so
mkdir -p damaged && echo '{}' >damaged/manifest.json
for wrong in text.json word.json option.json number.json list.json absent.json short.so elsewhere; do
  check "$wrong is reported once" once run $wrong
done
while read -r wrong; do
  # shellcheck disable=SC2086
  check "$wrong is reported once" once $wrong
done <<'EOF'
run spiral.json --max_epochs
run spiral.json --max_epochs -5
run spiral.json --lr -1
run spiral.json --batch_size 0
run spiral.json --ckpt_path nowhere.ckpt
run spiral.json --ckpt_path damaged
run spiral.json --ckpt_path spiral.json
run spiral.json --devices 4000
run spiral.json --strategy dpp
run spiral.json --strategy ddp --devices 2 --lr -1
run spiral.json --strategy ddp --devices 2 --ckpt_path nowhere
run spiral.json --default_root_dir /proc/x
run spiral.json --logger nosuch
run spiral.json --logger csv:x
run spiral.json --precision 8-mixed
run spiral.json --accelerator cuda
run spiral.json --command test
run spiral.json --profiler x
ckpt inspect damaged
ckpt diff damaged nowhere
ckpt consolidate damaged new.ckpt
launch -np x true
launch -np 2 nowhere
launch -np 2 false
doctor comm --secnds 1
bench comm --ranks x
EOF
check "ranks of launch too" once launch -np 2 "$bin/lightc" run spiral.json --lr -1
check "or what they cannot open" once launch -np 2 "$bin/lightc" run spiral.json --ckpt_path nowhere

check "a misspelled hyperparameter is an error" ends_with 1 run spiral.json --widht 3
check "with the right one" complains '"width"'
check "a command there is not" ends_with 1 run spiral.json --command fly
check "names those there are" complains 'validate'
check "no file" ends_with 1 run nowhere.json
check "no shared object" ends_with 1 run ./nowhere.so
echo '{"max_epochs": 1}' >none.json
check "a configuration without a module" ends_with 1 run none.json
check "says what it needs" complains '"module"'
check "a library that is not a module" ends_with 1 run "$lib/liblightc.so"
check "says so" complains 'LC_PLUGIN'
check "a module of another version" ends_with 1 run "$lib/old_plugin.so"
check "says which, and what to do" complains '0\.2\.7.*recompile it'
echo "$((checks - failures)) passed, $failures failed, 0 skipped"
[ "$failures" -eq 0 ]
