#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures training on two ranks of one thread: against Lightning's ddp over gloo, against the same ranks without
communication, from exec to the first step, and sharded against ddp. Prints a table and writes all values as JSON.

Every measurement alternates what it compares, and gives medians with the range. The machine must be idle otherwise.

To add a measurement: a function that returns rows, and its name in MEASUREMENTS.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# work: (options of both, options of lightc, options of the peer, goal: times as fast as Lightning's ddp)
PEER_WORKS = {
    "mlp": ([], ["--epochs", "3"], [], 25),
    "fashion": (["--steps", "150"], [], [], 4),
    "gpt": (["--batch", "4", "--steps", "16"], [], [], 2.5),
}


def note(text):
    print(text, file=sys.stderr, flush=True)


def parse(command, out, status):
    rows = {}
    for line in out.splitlines():
        try:
            row = json.loads(line)
            rows[row["metric"]] = row
        except (ValueError, KeyError, TypeError):
            continue
    if status or not rows:
        raise RuntimeError(f"{' '.join(command)} ended with {status}")
    return rows


def start(command, core=None, **variables):
    environment = dict(os.environ, OMP_NUM_THREADS="1", **variables)
    command = command if core is None else ["taskset", "-c", str(core), *command]
    log = tempfile.TemporaryFile("w+")
    return command, subprocess.Popen(command, stdout=log, stderr=subprocess.DEVNULL, env=environment), log


def finish(started):
    command, process, log = started
    status = process.wait()
    log.seek(0)
    return parse(command, log.read(), status)


def run(command, core=None):
    return finish(start(command, core))


def spread(values, scale=1.0, digits=4):
    values = [v * scale for v in values]
    return f"{statistics.median(values):.{digits}g} ({min(values):.{digits}g}-{max(values):.{digits}g})"


def ours(a, work, *options):
    return [a.bench, work, "--threads", "1", "--only_epochs", "--data", a.data, *options]


def against_lightning(a, log):
    if not os.path.exists(a.peers) or not a.python:
        note("ranks: no peer (--peers FILE, --python with torch and lightning): left out")
        return []
    rows = []
    for work, (both, own, theirs, goal) in PEER_WORKS.items():
        if a.work and work not in a.work:
            continue
        values = {"lightc": [], "Lightning": []}
        for r in range(a.rounds):
            note(f"{work}: round {r + 1} of {a.rounds}")
            peer = [a.python, a.peers, work, "--devices", "2", "--threads", "1", "--data", a.data, *both, *theirs]
            values["Lightning"].append(run(peer)["step"]["value"])
            values["lightc"].append(run(ours(a, work, "--devices", "2", *both, *own))["step"]["value"])
        log[f"ddp_{work}"] = values
        ratio = statistics.median(values["Lightning"]) / statistics.median(values["lightc"])
        rows.append([f"ddp {work}, step, ms", spread(values["lightc"], 1e-3), "Lightning " + spread(values["Lightning"], 1e-3),
                     f"{ratio:.2f}", f">= {goal}"])
    return rows


def scaling(a, log):
    """Images per second of two ranks, as a share of what the same two processes, each pinned to its core, reach without each
    other. lightc_bench share alternates ten steps of each."""
    rows = []
    launch = [os.path.join(os.path.dirname(a.bench), "lightc"), "launch", "-np", "2"]
    for r in range(a.rounds):
        note(f"scaling: round {r + 1} of {a.rounds}")
        rows.append(run([*launch, a.bench, "share", "--threads", "1"])["share"])
    log["scaling"] = rows
    share = [row["value"] for row in rows]
    half = ", ".join(f"{row['quarter']:.3f}-{row['three_quarters']:.3f}" for row in rows)
    return [["ddp fashion, share of two independent runs", spread(share),
             f"images/s without each other {spread([row['alone'] for row in rows])}; half of the pairs in {half}",
             f"{statistics.median(share):.3f}", ">= 0.95"],
            ["the same, were both cores as slow as the slower one", spread([row["of_slowest"] for row in rows]), "",
             f"{statistics.median(row['of_slowest'] for row in rows):.3f}", ""]]


def startup(a, log):
    times = []
    for r in range(3 * a.rounds):
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        rows = run(ours(a, "mlp", "--devices", "2", "--steps", "2", "--since", repr(now)))
        times.append(1e3 * rows["step"]["first_step_s"])
    log["startup_ms"] = times
    return [["exec to the first step of two ranks, ms", spread(times), "-", f"{statistics.median(times):.0f}", "<= 300"]]


def sharded(a, log):
    values = {"ddp": [], a.sharded: []}
    for r in range(a.rounds):
        note(f"sharded: round {r + 1} of {a.rounds}")
        for strategy in values:
            rows = run(ours(a, "gpt", "--devices", "2", "--strategy", strategy, "--batch", "4", "--steps", "6"))
            values[strategy].append(rows["step"]["value"])
    log["sharded"] = values
    ratio = statistics.median(values[a.sharded]) / statistics.median(values["ddp"])
    return [[f"{a.sharded} gpt, step, ms", spread(values[a.sharded], 1e-3), "ddp " + spread(values["ddp"], 1e-3),
             f"{ratio:.3f}", "<= 1.25"]]


def sh(*commands):
    for c in commands:
        subprocess.run(c.split(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


class Hosts:
    """Two hosts with a link of the given rate: network namespaces of this machine. Without pacing (reno, not
    bbr), which real hosts offload to network cards."""

    def __init__(self, rate):
        self.names = [f"lcb{os.getpid()}{i}" for i in "ab"]
        self.rate = rate

    def __enter__(self):
        a, b = self.names
        sh(f"ip netns add {a}", f"ip netns add {b}", f"ip -n {a} link add eth0 type veth peer name eth0 netns {b}")
        for i, n in enumerate(self.names):
            sh(f"ip -n {n} addr add 10.213.7.{i + 1}/24 dev eth0", f"ip -n {n} link set eth0 up", f"ip -n {n} link set lo up",
               f"ip netns exec {n} sysctl -qw net.ipv4.tcp_congestion_control=reno",
               f"tc -n {n} qdisc add dev eth0 root tbf rate {self.rate} burst 256kb latency 100ms")
        return self

    def __exit__(self, *_):
        for n in self.names:
            subprocess.run(["ip", "netns", "del", n], stderr=subprocess.DEVNULL)

    def ranks(self, command, port):
        both = [start(["ip", "netns", "exec", n, "taskset", "-c", str(i), *command], MASTER_ADDR="10.213.7.1",
                      MASTER_PORT=str(port), RANK=str(i), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                      LIGHTC_COMM="tcp")
                for i, n in enumerate(self.names)]
        rows = finish(both[0])
        both[1][1].wait()
        return rows


def exposed(a, log):
    """What communication adds to a step over a link of 1 Gbit/s: with buckets during backward, as a share of what an
    all-reduce of the same size after the step takes. lightc_bench exposed alternates the three kinds of steps."""
    if os.geteuid() != 0:
        note("ranks: exposed needs root, for network namespaces: left out")
        return []
    rows, bare = [], []
    command = [a.bench, "exposed", "--threads", "1", "--batch", str(a.exposed_batch), "--steps", "10"]
    with Hosts("1gbit") as hosts:
        for r in range(a.rounds):
            note(f"exposed: round {r + 1} of {a.rounds}")
            rows.append(hosts.ranks(command, 29600 + 10 * r)["exposed"])
            bare.append(hosts.ranks([a.bench, "link"], 29605 + 10 * r)["link"])
    log["exposed"], log["link"] = rows, bare
    share = [row["value"] for row in rows]
    waited = [row["waited_ms"] / (row["sequential_ms"] - row["alone_ms"]) for row in rows]

    def ms(kind):
        return spread([row[kind + "_ms"] for row in rows])
    backward = [1.5 * (row["sequential_ms"] - row["alone_ms"]) / row["alone_ms"]
                for row in rows]  # two thirds of a step
    steps = f"step alone {ms('alone')} ms, overlapped {ms('overlapped')}, sequential {ms('sequential')}"
    return [["ddp gpt over 1 Gbit/s, exposed part of communication", spread(share), steps,
             f"{statistics.median(share):.3f}", "<= 0.08"],
            ["communication, as a share of backward", spread(backward), "", "", "0.5-1"],
            ["of it, waiting", spread(waited), f"{ms('waited')} ms a step", f"{statistics.median(waited):.3f}", ""],
            ["share of a core that send and recv take on that link", spread([row["value"] for row in bare]), "", "", ""]]


MEASUREMENTS = {"lightning": against_lightning, "scaling": scaling, "startup": startup, "sharded": sharded, "exposed": exposed}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", nargs="*", metavar="WHAT", help=f"default: all of {', '.join(MEASUREMENTS)}")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    ap.add_argument("--bench", default=os.path.join(ROOT, "build", "bin", "lightc_bench"))
    ap.add_argument("--peers", default=os.path.join(ROOT, "..", "shared", "bench", "peers.py"))
    ap.add_argument("--python", default=os.environ.get("LIGHTC_PEERS_PYTHON", ""))
    ap.add_argument("--sharded", default="sharded", metavar="STRATEGY")
    ap.add_argument("--work", action="append", choices=list(PEER_WORKS), help="only this work of the peer; may be repeated")
    ap.add_argument("--exposed_batch", type=int, default=6, metavar="N", help="samples per rank in the work exposed")
    ap.add_argument("--json", default=os.path.join(ROOT, "build", "ranks.json"))
    a = ap.parse_args()
    unknown = [w for w in a.what if w not in MEASUREMENTS]
    if unknown:
        sys.exit(f"ranks: unknown measurement {unknown[0]}; available: {', '.join(MEASUREMENTS)}")
    if os.getloadavg()[0] > 0.3 * os.cpu_count():
        note(f"ranks: the machine is busy (load {os.getloadavg()[0]:.1f}): ratios will be off")
    log, rows = {"load_before": os.getloadavg()[0]}, [["what", "lightc", "compared with", "ratio or value", "goal"]]
    for name in a.what or MEASUREMENTS:
        rows += MEASUREMENTS[name](a, log)
    widths = [max(len(r[i]) for r in rows) for i in range(5)]
    rows.insert(1, ["-" * w for w in widths])
    for r in rows:
        print("| " + " | ".join(c.ljust(w) for c, w in zip(r, widths)) + " |")
    with open(a.json, "w") as f:
        json.dump(log, f, indent=1)
    note(f"\nall values: {a.json}")


if __name__ == "__main__":
    main()
