#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains examples/cifar_resnet and its peer, bench/peer_cifar_resnet.py, by turns, with several seeds, and prints the
milliseconds of a step with the loader and the accuracy on the test set of both.

    bench/cifar_resnet.py --python PYTHON --data DIR [--max_epochs 5] [--seeds 3] [--precision 32-true] [PEER_OPTION...]

PYTHON has torch and torchvision (bench/setup_peers.sh prints one). DIR has train/CLASS/PICTURE and test/CLASS/PICTURE.
PEER_OPTIONs go to the peer: --channels_last, --compile, --decode_jpeg. Its time is that of its training; ours is
that of the whole process, with its start, its checkpoints and the test.
"""
import argparse
import csv
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH = 128


def output_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def train_ours(a, seed):
    pictures = len(glob.glob(os.path.join(a.data, "train", "*", "*")))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        output_of([os.path.join(ROOT, "build", "bin", "cifar_resnet"), "--data", a.data, "--seed", str(seed),
                   "--max_epochs", str(a.max_epochs), "--precision", a.precision, "--default_root_dir", folder,
                   "--logger", "csv", "--enable_progress_bar", "false", "--enable_model_summary", "false"])
        seconds = time.perf_counter() - start
        row = {}
        for path in glob.glob(os.path.join(folder, "**", "metrics.csv"), recursive=True):
            with open(path, newline="") as f:
                for line in csv.DictReader(f):
                    row.update({name: float(text) for name, text in line.items() if text})
    return dict(ms_step=1e3 * seconds / (a.max_epochs * (pictures // BATCH)), train_s=seconds, test_acc=row["test_acc"])


def train_peer(a, seed, options):
    script = os.path.join(ROOT, "bench", "peer_cifar_resnet.py")
    return json.loads(output_of([a.python, script, "--data", a.data, "--seed", str(seed), "--max_epochs",
                                 str(a.max_epochs), "--precision", a.precision, *options]).splitlines()[-1])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                 allow_abbrev=False)  # what is not known here goes to the peer
    ap.add_argument("--python", required=True)
    ap.add_argument("--data", required=True)
    ap.add_argument("--max_epochs", type=int, default=5)
    ap.add_argument("--seeds", type=int, default=3)
    ap.add_argument("--precision", default="32-true")
    a, options = ap.parse_known_args()
    sides = {"lightc": train_ours, "PyTorch": lambda a, seed: train_peer(a, seed, options)}
    runs = {name: [] for name in sides}
    for seed in range(a.seeds):
        for name, train in sides.items():
            runs[name].append(train(a, seed))
            print(f"seed {seed}, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    for name, values in runs.items():
        acc = [v["test_acc"] for v in values]
        print(f"{name}: {statistics.median(v['ms_step'] for v in values):.1f} ms a step, accuracy "
              f"{statistics.mean(acc):.4f} ({min(acc):.4f}-{max(acc):.4f})")
    times = [statistics.median(v["train_s"] for v in runs[name]) for name in ("PyTorch", "lightc")]
    print(f"lightc is {times[0] / times[1]:.2f} times as fast")


main()
