#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step keeps from forward to backward: lightc, from the dump of its plan, next to PyTorch's autograd.

    bench/kept.py [WORK...] [--precisions 32-true,bf16-mixed] [--batch N] [--python PYTHON]

WORK: resnet18, gpt (the default), mlp, fashion. Counted are results of the forward pass that the backward pass reads, but
neither parameters nor the batch. Copies of weights in 16 bits are such results of PyTorch's; lightc keeps them between
steps. PYTHON has torch; without it only lightc is measured. --parts lists lightc's by the operators that write and read
them.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BYTES = {"bool": 1, "u8": 1, "f16": 2, "bf16": 2, "f32": 4, "i32": 4, "f64": 8, "i64": 8}
CALL = re.compile(r" *\d+ +[\d.]+ us +\d+ thr +(\S+) +\S+(.*)$")
VIEW = re.compile(r"(\w+)\[([\d,]*)\](?::\w+)?@(\d+)")

# first, end: bytes of the arena; made: what wrote them
Result = collections.namedtuple("Result", "first end made shape")


def results(text, made):
    for dtype, shape, first in VIEW.findall(text):
        size = BYTES[dtype]
        for n in filter(None, shape.split(",")):
            size *= int(n)
        yield Result(int(first), int(first) + size, made, f"{dtype}[{shape}]")


def calls_of(path):
    """Of the only plan of a dump: (operator, what it reads, what it writes), of what is in the arena."""
    with open(path) as f:
        lines = f.read().splitlines()
    if sum(line.startswith("plan ") for line in lines) != 1:
        raise RuntimeError("the step has several plans: what a plan keeps for another one is not in a dump")
    for found in filter(None, map(CALL.match, lines)):
        reads, _, writes = found[2].partition(" -> ")
        yield found[1], list(results(reads, "")), list(results(writes, found[1]))


def kept(path):
    """{result: operators of the backward pass that read it}"""
    there, found, backward = [], collections.defaultdict(set), False
    for name, reads, writes in calls_of(path):
        for r in reads if backward else ():
            for t in there:
                if t.first <= r.first < t.end:
                    found[t].add(name)
        there = [t for t in there if not any(t.first < w.end and w.first < t.end for w in writes)]
        there += [] if backward else writes
        backward = backward or name == "cross_entropy"
    return found


def ours(a, work, precision):
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "plan.txt")
        command = [a.bench, work, "--only_steps", "--steps", "1", "--precision", precision, "--batch", str(a.batch)]
        subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, "LIGHTC_PLAN_DUMP": dump})
        return kept(dump)


def peers(a, work, precision):
    command = [a.python, os.path.join(ROOT, "bench", "peer_precision.py"), work, "--precision", precision, "--only_saved",
               "--batch", str(a.batch)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])["value"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("works", nargs="*", default=["resnet18", "gpt"], metavar="WORK")
    ap.add_argument("--precisions", default="32-true,bf16-mixed")
    ap.add_argument("--batch", type=int, default=0, help="samples; 0: the work's own")
    ap.add_argument("--python", default=os.environ.get("LIGHTC_PEERS_PYTHON", ""))
    ap.add_argument("--bench", default=os.path.join(ROOT, "build", "bin", "lightc_bench"))
    ap.add_argument("--parts", action="store_true")
    a = ap.parse_args()
    print("| work | precision | lightc, MB | PyTorch, MB | lightc / PyTorch |")
    print("|---|---|---|---|---|")
    for work in a.works:
        for precision in a.precisions.split(","):
            found = ours(a, work, precision)
            size = sum(r.end - r.first for r in found) / 2**20
            saved = peers(a, work, precision) if a.python else 0
            cells = f"{saved:.1f} | {size / saved:.2f}" if saved else "- | -"
            print(f"| {work} | {precision} | {size:.1f} | {cells} |", flush=True)
            parts = collections.Counter()
            for r, readers in found.items() if a.parts else ():
                parts[f"{r.made} -> {', '.join(sorted(readers))}"] += r.end - r.first
            for part, n in parts.most_common():
                print(f"  {n / 2**20:8.1f} MB  {part}", file=sys.stderr)


if __name__ == "__main__":
    main()
