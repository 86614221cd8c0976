#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a precision costs accuracy: trains FashionCNN with several seeds in each, and prints the means of the
accuracy of the last validation and of the test, their spread, and their distance from the first precision.

    bench/accuracy.py [--precisions 32-true,bf16-mixed,...] [--seeds 5] [--max_epochs 6] [--jobs N] [--data DIR]
                      [ARGUMENT...]

ARGUMENTs go to examples/fashion_cnn: `--limit_train_batches 5` makes a run short, and `--jobs 2 --threads 1` has two
runs share two cores. The distance of means is compared with
--allowed (0.004): a larger loss of accuracy ends with 1. All values are in --json.
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
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
METRICS = ("val_acc", "test_acc")


def last_values(folder):
    """The last value of each metric in the CSV files of a run."""
    found = {}
    for path in glob.glob(os.path.join(folder, "**", "metrics.csv"), recursive=True):
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                found.update({m: float(row[m]) for m in METRICS if row.get(m)})
    missing = [m for m in METRICS if m not in found]
    if missing:
        raise RuntimeError(f"the run has logged no {missing[0]}")
    return found


def train(a, precision, seed, more):
    with tempfile.TemporaryDirectory() as folder:
        command = [a.program, "--seed", str(seed), "--precision", precision, "--max_epochs", str(a.max_epochs),
                   "--default_root_dir", folder, "--logger", "csv", "--enable_progress_bar", "false",
                   "--enable_model_summary", "false", *(["--data", a.data] if a.data else []), *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
        values = last_values(folder)
    print(f"seed {seed}, {precision}: {values}", file=sys.stderr, flush=True)
    return values


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--precisions", default="32-true,bf16-mixed,16-mixed,bf16-true", help="the first is what others are compared with")
    ap.add_argument("--seeds", type=int, default=5)
    ap.add_argument("--max_epochs", type=int, default=6)
    ap.add_argument("--jobs", type=int, default=1, help="runs at a time")
    ap.add_argument("--data", default="", help="folder of the IDX files of Fashion-MNIST")
    ap.add_argument("--allowed", type=float, default=0.004)
    ap.add_argument("--program", default=os.path.join(ROOT, "build", "bin", "fashion_cnn"))
    ap.add_argument("--json", default=os.path.join(ROOT, "build", "accuracy.json"))
    a, more = ap.parse_known_args()
    if not os.access(a.program, os.X_OK):
        sys.exit(f"accuracy: {a.program} is missing; build it: cmake --preset release && ninja -C build fashion_cnn")
    precisions = a.precisions.split(",")
    with ThreadPoolExecutor(a.jobs) as pool:
        begun = [(p, pool.submit(train, a, p, seed, more)) for seed in range(a.seeds) for p in precisions]
        runs = {p: [run.result() for own, run in begun if own == p] for p in precisions}
    print("| precision | " + " | ".join(f"{m} | spread | difference" for m in METRICS) + " |")
    print("|---|" + "---|---|---|" * len(METRICS))
    worst = 0.0
    for p in precisions:
        cells = []
        for m in METRICS:
            values = [r[m] for r in runs[p]]
            mean, base = statistics.mean(values), statistics.mean(r[m] for r in runs[precisions[0]])
            worst = max(worst, base - mean)
            cells += [f"{100 * mean:.2f} %", f"{100 * (max(values) - min(values)):.2f}", f"{100 * (mean - base):+.2f}"]
        print(f"| {p} | " + " | ".join(cells) + " |")
    with open(a.json, "w") as f:
        json.dump({"seeds": a.seeds, "max_epochs": a.max_epochs, "arguments": more, "runs": runs}, f, indent=1)
    if worst > a.allowed:
        print(f"a mean is {100 * worst:.2f} points below that of {precisions[0]}; {100 * a.allowed:g} are allowed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
