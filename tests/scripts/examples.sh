#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one example as a user would, on small data that is generated here, and checks its results.
# Usage: examples.sh BIN_DIR NAME. To add an example, add a `case`.
set -u
bin=$(cd "$1" && pwd) name=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
checks=0 failures=0
export NO_COLOR=1 OMP_WAIT_POLICY=passive

run() { # arguments of the example; its output goes to out
  "$bin/$name" "$@" >out 2>err
}
check() { # what it means, command...
  local what=$1
  shift
  checks=$((checks + 1))
  "$@" && return
  echo "FAIL $name: $what"
  tail -n 5 out err
  failures=$((failures + 1))
}
says() { grep -qE "$1" out; }
complains() { grep -qE "$1" err; }
fails() { ! run "$@"; }
loses() { # it exits with an error if its output is lost
  [ -c /dev/full ] || return 0
  ! "$bin/$name" "$@" >/dev/full 2>err && [ "$(grep -c 'cannot write "standard output": ' err)" = 1 ]
}
value() { # a line of the program's own, or of the trainer's table of results
  sed -nE "s/^((validate|test) +)?$1 +([0-9.eE+-]+)$/\3/p" out err | tail -1
}
at_least() { awk -v a="$(value "$1")" -v b="$2" 'BEGIN {exit !(a != "" && a + 0 >= b)}'; }
at_most() { awk -v a="$(value "$1")" -v b="$2" 'BEGIN {exit !(a != "" && a + 0 <= b)}'; }
picture() { # 708 x 708, by the header of the PNG: 8 x 8 pictures of 84 x 84, with margins of 4
  [ "$(head -c 24 "$1" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a0000000d49484452000002c4000002c4 ]
}
png() { [ "$(head -c 8 "$1" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ]; }
once() { [ "$(cat out err | tr '\r' '\n' | grep -c "$1 ")" = 1 ]; }
same_value() { [ "$(value "$1")" = "$2" ]; }
exists() { compgen -G "$1" >/dev/null; }

common() { # options of every program with a trainer
  check "--help ends well" run --help
  check "--help names the trainer's options" says '^ +--max_epochs'
  check "--help into a full disk is an error" loses --help
  check "a misspelled option is an error" fails --max_epoch 2
  check "with the right name in it" complains 'did you mean "max_epochs"'
}

without_trainer() { # the same for programs that use few of the trainer's options
  check "--help ends well" run --help
  check "--help names what starts ranks" says '^ +--devices'
  check "and nothing else of the trainer" test "$(grep -cE -- '--(logger|limit_train_batches|deterministic) ' out)" = 0
  check "--help into a full disk is an error" loses --help
  check "a misspelled option is an error" fails --device 2
  check "with the right name in it" complains 'did you mean "devices"'
  check "an option that would have no effect is one, too" fails --limit_train_batches 3
  check "which says so" complains 'option "limit_train_batches" of the trainer is not available in this program'
}

started_by() { # launcher and its arguments, --, arguments of the example
  local launcher=()
  while [ "$1" != -- ]; do launcher+=("$1") && shift; done
  shift
  "${launcher[@]}" "$bin/$name" "$@" >out 2>err
}
under_mpirun() { # arguments; if mpirun is installed
  command -v mpirun >/dev/null || return 0
  if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
  check "runs under mpirun" started_by mpirun --oversubscribe -np 2 -- "$@"
  check "as two ranks" says 'on 2 ranks$|rank 1 '
}

case $name in
mnist_mlp | fashion_cnn)
  mkdir data && "$bin/make_idx" data || exit 1
  args=(--data data --batch_size 50 --seed 3 --default_root_dir root --deterministic --threads 1)
  common
  check "trains" run "${args[@]}" --max_epochs 3
  check "learns" at_least test_acc 0.9
  check "which it says once" once test_acc
  [ "$name" = mnist_mlp ] || check "and every class" at_least test_f1 0.9
  check "writes metrics.csv" grep -q val_acc root/lightning_logs/version_0/metrics.csv
  check "writes a checkpoint" exists 'root/lightning_logs/version_0/checkpoints/*.ckpt/model.safetensors'
  check "writes the run database" test -s root/lightc.db
  loss=$(value test_loss)
  check "trains again" run "${args[@]}" --max_epochs 3
  check "to the same end" same_value test_loss "$loss"
  check "one epoch" run "${args[@]}" --max_epochs 1 --default_root_dir parts
  check "goes on from the last checkpoint" run "${args[@]}" --max_epochs 3 --default_root_dir parts --ckpt_path last
  check "to the same end as without the stop" same_value test_loss "$loss"
  check "fast_dev_run" run "${args[@]}" --fast_dev_run 1 --default_root_dir fast
  check "fast_dev_run leaves nothing behind" test ! -e fast/lightc.db
  check "understands --data-dir" run "${args[@]:2}" --data-dir data --fast_dev_run 1
  check "a folder without data is an error" fails --data nowhere
  check "that names it" complains 'there is no directory "nowhere"'
  check "as is one without files" fails --data root
  check "which says what it lacks" complains '"root" contains neither train-images-idx3-ubyte'
  ;;
image_folder)
  "$bin/make_pictures" data || exit 1
  echo "no picture" >data/train/along/30.png
  args=(--data data --seed 3 --lr 0.003 --default_root_dir root --threads 1)
  common
  check "trains" run "${args[@]}" --max_epochs 4
  if grep -q 'built without libpng' err; then echo "skipped: this build lacks libpng" && exit 0; fi
  check "learns" at_least test_acc 0.9
  check "counts what it skips" complains 'fit, epoch 0: 1 sample could not be read .*train/along/30\.png'
  loss=$(value test_loss)
  for workers in 0 4; do
    check "trains with $workers workers" run "${args[@]}" --max_epochs 4 --num_workers $workers
    check "to the same end" same_value test_loss "$loss"
  done
  check "a folder without classes is an error" fails --data data/train/along
  check "that names it" complains 'data/train/along/train'
  rm -r data/test/plain
  check "classes that differ are an error" fails "${args[@]}"
  check "which counts them" complains '3 classes in data/train/, but 2 in data/test/'
  cp -r data/test/along data/test/zigzag
  check "as are classes with other names" fails "${args[@]}"
  check "which names the first" complains 'class 2 is plain in data/train/, but zigzag in data/test/'
  check "as are workers that are not a number" fails "${args[@]}" --num_workers two
  check "which says what is" complains 'num_workers must be a whole number, 0 or more, or auto, not "two"'
  ;;
lfw_dataset)
  check "--help ends well" run --help
  check "--help into a full disk is an error" loses --help
  check "runs without arguments" run
  if grep -q 'built without libpng' err; then echo "skipped: this build lacks libpng" && exit 0; fi
  check "on pictures that it makes" exists 'lfw_small/Ada_Brown/Ada_Brown_0001.png'
  check "measures" says '^1 worker: [0-9.]+ s a pass, deviation [0-9.]+ s, [0-9]+ pictures a second$'
  check "shows a batch" says '^saved as batch\.png$'
  check "with names below the pictures" says '(Ada|Ben|Cleo|Dan)_[BGW]'
  check "and as a picture" png batch.png
  rm batch.png
  check "measures several numbers of workers" run -get_timing -num_workers 0,1,2 -batch_size 7
  check "each" test "$(grep -cE ' workers?: ' out)" = 3
  check "as a plot" png timing.png
  check "and in half blocks" says '▄▄▄'
  check "and nothing else" test ! -e batch.png
  check "what is not a number is an error" fails -get_timing -num_workers 1,x
  check "that says what is expected" complains 'num_workers is "1,x"; it must be numbers'
  check "as is a negative number of pictures" fails -batch_size -5
  check "which names it" complains 'batch_size is -5'
  check "and of workers" fails -get_timing -num_workers -1
  check "which names it" complains 'num_workers is "-1"; it must be numbers'
  check "as many workers as there is room for" run -get_timing -num_workers auto
  check "whose number it says" says '^[0-9]+ workers?: [0-9.]+ s a pass'
  "$bin/make_pictures" data || exit 1
  check "shows another folder, with two dashes" run --path data/train --visualize_batch --batch_size 4
  check "with its classes" says 'plain|across|along'
  check "a folder that is not there is an error" fails -path nowhere
  check "that names it" complains 'cannot read the folder "nowhere"'
  check "a full disk is an error" loses -get_timing
  ;;
cifar_resnet)
  "$bin/make_pictures" data || exit 1
  args=(--data data --seed 3 --batch_size 30 --max_lr 0.05 --default_root_dir root --threads 1)
  common
  check "trains" run "${args[@]}" --max_epochs 4
  if grep -q 'built without libpng' err; then echo "skipped: this build lacks libpng" && exit 0; fi
  check "learns" at_least test_acc 0.8
  loss=$(value test_loss)
  check "trains with 4 workers" run "${args[@]}" --max_epochs 4 --num_workers 4
  check "to the same end" same_value test_loss "$loss"
  check "without mixing" run "${args[@]}" --max_epochs 1 --mixup 0 --label_smoothing 0
  check "another depth" run "${args[@]}" --max_steps 1 --depth 18 --batch_size 4
  check "a depth that there is not is an error" fails "${args[@]}" --depth 21
  check "that says which there are" complains 'depth must be 18, 20, 34, 50 or 101'
  check "as is a schedule without an end" fails "${args[@]}" --max_epochs -1
  check "which says what it needs" complains 'give --max_epochs or --max_steps'
  check "and a batch larger than the folder" fails "${args[@]}" --batch_size 1000
  check "which says so" complains 'fewer pictures than a batch .--batch_size 1000'
  check "workers as there is room for" run "${args[@]}" --max_epochs 1 --num_workers auto
  mv data/test/plain data/test/zigzag
  check "classes with other names are an error" fails "${args[@]}"
  check "which names the first" complains 'class 2 is plain in data/train/, but zigzag in data/test/'
  ;;
finetune)
  "$bin/make_pictures" data || exit 1
  args=(--data data --seed 3 --side 32 --batch_size 30 --unfreeze_at 1 --default_root_dir root --threads 1)
  common
  check "trains" run "${args[@]}" --max_epochs 2
  if grep -q 'built without libpng' err; then echo "skipped: this build lacks libpng" && exit 0; fi
  check "only the head first" grep -qE '11\.2 M parameters, 1\.5 K|K of them trainable' err
  check "then the backbone too" grep -qE 'epoch 1: learning rate 0\.001, backbone 0\.0001' out err
  weights=$(echo root/lightning_logs/version_0/checkpoints/*.ckpt/model.safetensors)
  check "weights with other names are an error" fails "${args[@]}" --weights "$weights"
  check "which names some" complains 'conv1\.weight|no tensor'
  check "as is a file that is not there" fails "${args[@]}" --weights nowhere.safetensors
  if command -v python3 >/dev/null; then
    python3 - "$weights" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = {k.replace("backbone.", "").replace("head.", "fc."): v for k, v in json.loads(data[8 : 8 + n]).items()}
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open("torchvision.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n :])
END
    check "torchvision's names load" run "${args[@]}" --weights torchvision.safetensors --max_epochs 1
    check "all except the classifier" says '^loaded 120 tensors$'
  fi
  mv data/test/plain data/test/zigzag
  check "classes with other names are an error" fails "${args[@]}"
  check "which names the first" complains 'class 2 is plain in data/train/, but zigzag in data/test/'
  ;;
sharded_gpt)
  args=(--threads 1 --max_steps 20)
  common
  check "ddp does not fit" fails "${args[@]}" --devices 2 --strategy ddp --memory_limit 24MiB
  check "which is reported with the figures" complains 'a rank needs 28\.73 MiB .*memory_limit is 24\.00 MiB'
  check "and with what would help" complains '24\.00 MiB\. --strategy sharded'
  check "once" test "$(grep -c 'a rank needs' err)" = 1
  check "and without calls that it is not about" test "$(grep -c 'the last calls' err)" = 0
  check "a limit without room for steps" fails "${args[@]}" --memory_limit 29MiB
  enough=$(sed -nE 's/.*raise memory_limit to ([0-9.]+MiB) or more$/\1/p' err)
  check "is enough as reported" run "${args[@]}" --memory_limit "${enough:-none}" --default_root_dir enough
  check "a limit that sharded does not meet" fails "${args[@]}" --devices 2 --strategy sharded --memory_limit 15MiB
  check "because the model is whole in the end" complains '15\.00 MiB\. --gather_parameters false leaves them in slices'
  check "a limit below the model" fails "${args[@]}" --devices 2 --strategy sharded --memory_limit 5MiB
  check "needs more ranks" complains '5\.00 MiB\. More ranks would have smaller slices'
  check "sharded does" run "${args[@]}" --devices 2 --strategy sharded --memory_limit 24MiB --default_root_dir root
  check "writing its checkpoint in parts" exists 'root/lightning_logs/version_0/checkpoints/*.ckpt/model-00002-of-00002.safetensors'
  check "with half of everything" says 'parameters 3\.59, gradients 3\.59, optimizer state 7\.19'
  check "with one file where that is asked for" run "${args[@]}" --devices 2 --strategy sharded --default_root_dir root2 --state_dict_type full
  check "in slices to the end" run "${args[@]}" --devices 2 --strategy sharded --default_root_dir slices --state_dict_type full --gather_parameters false
  check "with the same bits" cmp {root2,slices}/lightning_logs/version_0/checkpoints/epoch=0-step=20.ckpt/model.safetensors
  check "ddp without a limit" run "${args[@]}" --devices 2 --strategy ddp --default_root_dir ddp
  check "ends with the same bits" cmp {root2,ddp}/lightning_logs/version_0/checkpoints/epoch=0-step=20.ckpt/model.safetensors
  for s in sharded_1 sharded_2 sharded_3; do
    check "$s on 3 ranks" run "${args[@]}" --devices 3 --strategy $s --default_root_dir $s --state_dict_type full
  done
  check "with the same bits" cmp {sharded_1,sharded_3}/lightning_logs/version_0/checkpoints/epoch=0-step=20.ckpt/model.safetensors
  check "a limit that is not a size is an error" fails "${args[@]}" --memory_limit many
  check "a full disk is an error" loses "${args[@]}" --max_steps 1 --devices 2 --strategy ddp
  ;;
char_gpt)
  for _ in {1..300}; do echo "the quick brown fox jumps over the lazy dog, and the dog sleeps on"; done >input.txt
  args=(--data . --layers 1 --width 32 --heads 2 --context 32 --batch_size 8 --lr 1e-2 --dropout 0 --sample 400 --threads 1)
  common
  check "trains" run "${args[@]}" --max_steps 200 --val_check_interval 100 --default_root_dir root
  check "prints a sample" test "$(wc -c <out)" -ge 400
  check "of words it saw" says 'the .*(quick|lazy|dog|jumps|over|sleeps)'
  check "writes a checkpoint" exists 'root/lightning_logs/version_0/checkpoints/*.ckpt/model.safetensors'
  check "heads that do not divide the width are an error" fails --data . --width 33 --heads 2
  check "no text is an error" fails --data nowhere
  check "a full disk is an error" loses "${args[@]}" --max_steps 1
  ;;
gan)
  mkdir data && "$bin/make_idx" data || exit 1
  args=(--data data --batch_size 30 --width 64 --lr 1e-3 --seed 3 --deterministic --threads 1)
  common
  check "trains" run "${args[@]}" --max_epochs 5 --default_root_dir root
  check "both optimizers step" same_value steps 200
  check "comes near the images" at_most mean_distance 0.35
  check "draws samples after an epoch" picture root/lightning_logs/version_0/samples-epoch=4.png
  check "logs both losses" grep -q loss_d_epoch root/lightning_logs/version_0/metrics.csv
  distance=$(value mean_distance)
  check "a part of it" run "${args[@]}" --max_steps 110 --max_epochs 5 --default_root_dir parts
  check "goes on inside the epoch" run "${args[@]}" --max_epochs 5 --default_root_dir parts --ckpt_path last
  check "to the same end as without the stop" same_value mean_distance "$distance"
  for s in ddp sharded_3; do
    check "trains on two ranks, $s" run --data data --batch_size 15 --width 64 --lr 1e-3 --seed 3 --threads 1 --max_epochs 1 --devices 2 --strategy $s --default_root_dir $s
    check "in as many steps" same_value steps 40
  done
  check "a full disk is an error" loses "${args[@]}" --max_steps 1
  ;;
custom_callback)
  common
  check "trains" run --stop_below 0.02 --max_epochs 50 --default_root_dir root
  check "stops early" says '^stopped after [0-9] epochs: loss 0\.0[01]'
  check "says each epoch" says '^epoch 2 starts$'
  check "logs the norm" grep -q weight_norm root/lightning_logs/version_0/metrics.csv
  check "weights (2, -1)" says 'weight norm 2\.[12]'
  norm=$(sed -nE 's/.*weight norm //p' out)
  for s in ddp sharded sharded_3; do
    check "on two ranks, $s" run --batch_size 16 --devices 2 --strategy $s --threads 1 --default_root_dir $s
    check "with the same norm" says "weight norm $norm\$"
  done
  check "a full disk is an error" loses --max_epochs 1
  ;;
dp_linear)
  args=(--seed 3 --threads 2)
  common
  numbers() { sed -nE 's/^(train_loss|weights) //p' out | tr ' ' '\n'; }
  near() { paste <(cat one) <(numbers) | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-6 {bad = 1} END {exit bad || NR != 11}'; }
  check "trains on one device" run "${args[@]}"
  check "with whole batches" says '^training_step has 20 samples$'
  numbers >one
  check "on two" run "${args[@]}" --strategy data_parallel --devices 2
  check "with half batches" test "$(grep -c '^training_step has 10 samples$' out)" = 2
  check "to the same end" near
  check "on three, of which the last has fewer" run "${args[@]}" --strategy dp --devices 3
  check "samples" says '^training_step has 6 samples$'
  check "to the same end again" near
  check "with the parameters on the host" run "${args[@]}" --strategy central_storage --devices 4
  check "to the same end, too" near
  "$bin/$name" "${args[@]}" >mixed 2>&1
  check "in a log file, things are in their order" \
    awk '/^training_step has/ {first = NR} /^Epoch 0/ {exit !first}' mixed
  check "a full disk is an error" loses "${args[@]}"
  ;;
bench_devices)
  without_trainer
  check "measures" run --batch_sizes 8,64 --repeats 2 --seconds 0.01
  for kind in training inference; do
    check "reports $kind on each" says "^(data_parallel|ddp) on 2 devices, $kind: (pays|does not pay).* in place of 2x"
  done
  check "in tables" test "$(grep -cE '^\| 64 \|' out)" = 8
  check "and draws" grep -q '<polyline' bench_devices.svg
  check "the ranks of inference are waited for" awk -F'|' \
    '/^inference: where/ {on = 1} on && $3 ~ /ddp/ && $7 > 0 {seen = 1} END {exit !seen}' out
  check "sizes in any order, and twice" run --batch_sizes 64,8,8 --repeats 2 --seconds 0.001 --most 1 --svg sorted.svg
  check "are drawn once, in theirs" test "$(grep -oE 'middle">(8|64)<' sorted.svg | tr -d '\n')" = 'middle">8<middle">64<middle">8<middle">64<'
  check "no sizes are an error" fails --batch_sizes ""
  check "a plot that cannot be written is one before anything is measured" fails --svg nowhere/x.svg
  check "that names the cause" complains 'nowhere/x.svg cannot be written: No such file'
  check "options of one measurement are errors, too" fails --batch_size 8
  interrupted() {
    "$bin/$name" --seconds 2 --batch_sizes 8,64 --svg part.svg >out 2>err &
    sleep 3 && kill -TERM $! && wait $!
    [ $? = 143 ]
  }
  check "interrupted, it says so with its status" interrupted
  check "and prints its results so far" says '^training: samples a second'
  check "does not start with ranks" fails --devices 2
  check "which is said once" test "$(grep -c 'run it alone' err)" = 1
  check "nor with a strategy" fails --strategy ddp
  check "measures nothing else" fails --measure walk
  check "batches that no two devices share" run --batch_sizes 3 --repeats 2 --seconds 0.001
  check "are not measured with two" says '^ddp on 2 devices, training: not measured'
  check "a batch size that is not a number is an error" fails --batch_sizes 8,x
  check "a full disk is an error" loses --batch_sizes 8 --most 1 --repeats 2 --seconds 0.01
  ;;
ddp_mnist | ddp_by_hand)
  mkdir data && "$bin/make_idx" data || exit 1
  args=(--data data --batch_size 20 --seed 3 --max_epochs 2 --threads 1)
  if [ "$name" = ddp_mnist ]; then common; else without_trainer; fi
  by_strategy() { "$bin/ddp_mnist" "${args[@]}" "$@" >/dev/null 2>err; }
  for n in 1 2 3; do
    check "trains on $n" run "${args[@]}" --devices $n --default_root_dir "root$n"
    check "says so" says "on $n ranks?$"
    check "learns" at_least test_acc 0.9
    check "which it says once" once test_acc
  done
  case $name in
  ddp_mnist)
    check "understands other names" run --data data --accelerator cpu --nodes 1 --gpus 2 --epochs 1
    check "of the same options" says '^trained on 2 ranks$'
    check "--gpus wants GPUs" fails --data data --nodes 2 --gpus 2 --epochs 5
    check "and names what there is" complains 'accelerator.cpu'
    check "a batch larger than the data" run --data data --devices 2 --batch_size 500 --max_epochs 1
    check "is warned of" complains 'no training batches'
    check "a misspelled strategy is an error" fails --data data --devices 2 --strategy dpp
    check "with the strategies in it" complains 'ddp'
    same=(--data data --seed 3 --max_epochs 2 --deterministic)
    for n in 1 2 4; do
      check "deterministic on $n" run "${same[@]}" --batch_size $((80 / n)) --devices $n --default_root_dir "same$n"
      check "is one rank bit for bit" cmp {same1,same$n}/lightning_logs/version_0/checkpoints/epoch=1-step=14.ckpt/model.safetensors
    done
    for n in 1 3; do
      check "deterministic on $n" run "${same[@]}" --batch_size $((90 / n)) --devices $n --deterministic_chunk 15 \
        --default_root_dir "thirds$n"
    done
    check "is one rank bit for bit" cmp thirds{1,3}/lightning_logs/version_0/checkpoints/epoch=1-step=12.ckpt/model.safetensors
    check "chunks that cannot be shared" fails "${same[@]}" --batch_size 30 --devices 3
    check "say what can" complains 'deterministic_chunk of 30, 15, 8'
    check "in one sentence" test "$(grep -c 'the last calls' err)" = 0
    ;;
  ddp_by_hand)
    for n in 1 2 3; do
      check "$n ranks by hand" run "${args[@]}" --devices $n
      check "which says where the model is" says '^model: by_hand.ckpt$'
      check "the same model by the strategy" by_strategy --devices $n --default_root_dir "by_strategy$n"
      check "bit for bit" cmp by_hand.ckpt/model.safetensors \
        "by_strategy$n"/lightning_logs/version_0/checkpoints/*.ckpt/model.safetensors
    done
    check "another strategy is an error" fails "${args[@]}" --strategy dp --devices 2
    check "epochs without an end are, too" fails "${args[@]}" --max_epochs -1
    check "and none at all" fails "${args[@]}" --max_epochs 0
    check "the same sums on any number of ranks are not promised" fails "${args[@]}" --deterministic
    mkdir -p mine && echo precious >mine/by_hand.ckpt
    check "a file in the way is an error" fails "${args[@]}" --default_root_dir mine
    check "that says what to do" complains 'is not a checkpoint, so it is not replaced; remove it'
    check "and does not touch it" grep -qx precious mine/by_hand.ckpt
    check "and batches larger than the data" fails "${args[@]}" --batch_size 5000 --devices 2
    check "which is reported" complains 'there is no batch'
    check "is started by lightc launch" started_by "$bin/lightc" launch -np 2 -- "${args[@]}"
    check "as two ranks" says 'on 2 ranks$'
    ;;
  esac
  check "a full disk is an error" loses "${args[@]}" --devices 2 --default_root_dir full
  under_mpirun "${args[@]}" --default_root_dir mpi
  ;;
collectives)
  without_trainer
  for n in 1 2 3 4; do
    check "$n ranks" run --devices $n
    check "8 pictures" test "$(grep -c -- '->' out)" = $((8 * n))
  done
  check "a sum" grep -qx '  rank 3   40  41  42  43   -> 100 104 108 112' out
  check "an exchange" grep -qx '  rank 1   20  21  22  23   ->  11  21  31  41' out
  mv out four
  check "is started by lightc launch" started_by "$bin/lightc" launch -np 4 --
  check "with the same pictures" cmp four out
  check "too many ranks are an error" fails --devices 10
  check "that says how many are right" complains 'room for 9'
  check "a strategy is an error" fails --strategy data_parallel --devices 2
  check "one rank" run
  check "suggests more ranks" says 'try --devices 4'
  check "a full disk is an error" loses
  check "on two ranks, too" loses --devices 2
  under_mpirun
  ;;
own_loop)
  common
  check "trains" run --max_epochs 4 --default_root_dir root
  check "learns" says '^epoch 3  loss 0\.0'
  one=$(grep '^epoch 0' out)
  check "on two ranks" run --max_epochs 1 --devices 2 --threads 1 --default_root_dir root
  check "with pendulums of their own" test "$(grep '^epoch 0' out)" != "$one"
  check "a full disk is an error" loses --max_epochs 4 --default_root_dir full
  ;;
fabric)
  without_trainer
  check "learns, and goes on from its checkpoint to the same end" run
  check "says so" says '^loss 0\.0[0-9]+ half-way, 0\.00'
  for s in ddp sharded; do
    check "does on two ranks, $s" run --devices 2 --strategy $s --threads 1 --default_root_dir $s
    check "and saves its checkpoint in the given folder" exists "$s/half.ckpt/model*.safetensors"
  done
  check "a full disk is an error" loses
  ;;
custom_optimizer)
  check "its own optimizer learns" run --default_root_dir root
  check "well" at_most loss 0.01
  whole=$(value loss)
  check "half of it" run --max_epochs 100 --default_root_dir half
  check "and the rest" run --ckpt_path last --default_root_dir half
  check "are the whole, bit for bit" same_value loss "$whole"
  check "several devices update slices of it" run --strategy sharded --devices 2 --max_epochs 400 --default_root_dir two
  check "as one" at_most loss 0.01
  check "a scaled loss" run --precision 16-mixed --max_epochs 2 --default_root_dir mixed
  check "a type that its kernel lacks is an error" fails --precision bf16-true --default_root_dir true
  check "which says so" complains 'trains parameters of f32, not of bf16'
  check "a full disk is an error" loses --max_epochs 1 --default_root_dir full
  ;;
custom_op)
  check "its own operator learns, with one plan" run
  check "says so" says '1 plan'
  check "a full disk is an error" loses
  ;;
*)
  check "fast_dev_run" run --fast_dev_run 1
  ;;
esac
echo "$((checks - failures)) passed, $failures failed, 0 skipped"
[ "$failures" -eq 0 ]
