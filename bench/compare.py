#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures lightc against its peer: alternates the two, prints medians, spread and ratios as a table and as JSON.

Called by compare.sh, which finds a Python that has the peer's packages. The peer is a program with the interface of
lightc_bench: `peers.py WORK --impl raw|lightning [--fused] [--compile] [--channels_last]`, JSON lines on stdout. Each
of its variants runs once; the fastest of each metric then takes part in the rounds.

To add a work: a line in WORKS.
"""
import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# work: ({impl: options worth trying}, {metric: {impl: how many times faster lightc should be}})
SWITCHES = ("--fused", "--compile", "--channels_last")
WORKS = {
    "noop": ({"lightning": ()}, {"trainer_step_barebones:over_bare_us": {}, "trainer_step_quiet:over_bare_us": {},
                                 "trainer_step_log:over_bare_us": {}, "trainer_step_default:over_bare_us": {}}),
    "everything": ({"lightning": ()}, {"trainer_step_everything:over_bare_us": {"lightning": 50},
                                       "trainer_step_everything": {"lightning": 50}}),
    "mlp": ({"raw": ("--fused", "--compile"), "lightning": ("--fused",)},
            {"step": {"lightning": 15, "raw": 5}, "step_no_loader": {}, "step:peak_rss_mb": {"lightning": 5, "raw": 5}}),
    "fashion": ({"raw": SWITCHES, "lightning": ("--fused",)},
                {"step": {"lightning": 3, "raw": 3}, "step_no_loader": {"raw": 2.2},
                 "step:peak_rss_mb": {"lightning": 5, "raw": 5}}),
    "gpt": ({"raw": ("--fused", "--compile")}, {"step_no_loader": {"raw": 1.8}, "step_no_loader:peak_rss_mb": {}}),
    "resnet18": ({"raw": ("--compile",)}, {"step_no_loader": {"raw": 1.3}, "step_no_loader:peak_rss_mb": {}}),
    "ckpt": ({"raw": ()}, {"save_fsync": {"raw": 1.5}, "load": {"raw": 1}, "stall": {}, "stall:copy_s": {}}),
    "startup": ({}, {"first_step": {}, "mnist_mlp_first_step": {}}),
    "images": ({"raw": ("--decode_jpeg",)},
               {**{f"{kind}_{workers}w": {} for kind in ("lfw", "imagenet", "imagenet_fast_scale", "cifar")
                   for workers in range(3)}, "tokens_0w": {}}),
    "record": ({}, {"record_add": {}, "record_gpt": {}, "replay_node": {}}),
}
# With --precision: steps in memory, memory of the process, and of our plan (all results of a step), next to what the
# peer's autograd keeps from forward to backward.
IN_PRECISION = {
    work: ({"raw": switches}, {"step_no_loader": {}, "step_no_loader:peak_rss_mb": {}, "step_no_loader:planned_mb": {}})
    for work, switches in (("mlp", ("--fused", "--compile")), ("fashion", SWITCHES), ("resnet18", ("--channels_last",)),
                           ("gpt", ("--fused", "--compile")))
}
# --precision best: each side in whichever of these is fastest.
BEST = ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true")
PEER_FIELDS = {"planned_mb": "saved_mb"}
# Works whose peer is a separate program.
PEERS = {work: os.path.join(ROOT, "bench", f"peer_{work}.py") for work in ("everything", "images")}
WITH_FOLDER = ("images",)  # works whose files lightc_bench writes for both
OWN_STEPS = ("noop", "everything")  # without --steps: the start and end of a run must not count


def run(command, log, limit=None):
    """The JSON lines of a program, by metric; other lines come from its libraries and are ignored. limit: in seconds."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(command)} takes more than {limit} s") from None
    rows = {}
    for line in done.stdout.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "metric" in row:
            rows[row["metric"]] = row
            log.append(row)
    if done.returncode or not rows:
        tail = "\n".join((done.stderr or done.stdout).splitlines()[-5:])
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    return rows


def value(rows, metric):
    name, _, field = metric.partition(":")
    row = rows.get(name)
    if row is None:
        return None
    return row.get(field or "value", row.get(PEER_FIELDS.get(field)))


def unit(rows, metric):
    name, _, field = metric.partition(":")
    return {"over_bare_us": "us", "peak_rss_mb": "MB", "planned_mb": "MB", "copy_s": "s"}.get(field) or rows[name]["unit"]


def variants(switches):
    for n in range(len(switches) + 1):
        yield from itertools.combinations(switches, n)


def machine_words(a):
    words = {"cpu": platform.processor(), "cores": os.cpu_count(), "kernel": platform.release(), "system": platform.platform()}
    try:
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                words["cpu"] = line.split(":", 1)[1].strip()
                break
        for line in open("/proc/meminfo"):
            if line.startswith("MemTotal"):
                words["memory_gb"] = round(int(line.split()[1]) / 2**20, 1)
        for line in open("/etc/os-release"):
            if line.startswith("PRETTY_NAME"):
                words["system"] = line.split("=", 1)[1].strip().strip('"')
    except OSError:
        pass
    words["load_before"] = os.getloadavg()[0]
    if a.python:
        script = "import json,torch,lightning;print(json.dumps(dict(torch=torch.__version__,lightning=lightning.__version__)))"
        done = subprocess.run([a.python, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode == 0:
            words.update(json.loads(done.stdout.splitlines()[-1]))
    return words


def floor(row, limits):
    """Seconds that the arithmetic and the unavoidable memory traffic of a step take on this machine."""
    if not limits or "flop" not in row:
        return None
    bandwidth = limits["triad_l2" if row["bytes"] < 8e6 else "triad_memory"]["value"]
    return row["flop"] / (1e9 * limits["fma"]["value"]) + row["bytes"] / (1e9 * bandwidth)


SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "ns": 1e-9}


def measure(work, a, limits, log, failures, folder=None):
    """The metrics of a work. A round that fails is added to failures, and the others count."""
    peers, metrics = (IN_PRECISION if a.precision else WORKS)[work]
    common = ["--threads", str(a.threads)] if a.threads else []
    common += ["--data", a.data] if a.data else []
    common += ["--steps", str(a.steps)] if a.steps and work not in OWN_STEPS else []
    if folder:
        common += ["--keep", folder]
        note(f"{work}: writing the files")
        run([a.bench, work, "--keep", folder, "--steps", "1"], [])
    ours = [a.bench, work] + common
    peer = PEERS.get(work, a.peers)
    precisions = [()]
    if a.precision:
        common += ["--matmul_precision", a.matmul_precision] if a.matmul_precision else []
        common += ["--precision", a.precision] if a.precision != "best" else []
        ours = [a.bench, work, "--only_steps"] + common
        peer = os.path.join(ROOT, "bench", "peer_precision.py")
        precisions = [("--precision", p) for p in BEST] if a.precision == "best" else [()]

    def command(impl, variant):
        return ours + list(variant) if impl == "lightc" else [a.python, peer, work, "--impl", impl, *variant, *common]

    candidates = {"lightc": precisions}
    for impl, switches in peers.items() if a.peers else ():
        chosen = [v for v in variants(switches) if not (a.quick and v) and (not a.variant or v in a.variant)]
        candidates[impl] = [p + v for p in precisions for v in chosen or [()]]
    fastest, notes = {}, []  # (impl, metric) -> variant
    tried = {}
    for impl, choices in candidates.items():
        if impl == "lightc" and len(choices) == 1:
            fastest.update({(impl, metric): choices[0] for metric in metrics})
            continue
        for variant in choices:
            note(f"{work}: trying {impl} {' '.join(variant)}")
            try:
                tried[impl, variant] = run(command(impl, variant), log, a.try_limit)
            except RuntimeError as error:
                notes.append(f"{impl} {' '.join(variant)} does not run here, or takes more than {a.try_limit} s")
                note(str(error))
        for metric in metrics:
            # Other members of a line (memory) are those of the fastest variant.
            name = metric.partition(":")[0]
            found = [(value(rows, name), v) for (i, v), rows in tried.items() if i == impl and value(rows, name) is not None]
            if found:
                fastest[impl, metric] = min(found)[1]
    samples = {}  # (impl, metric) -> values
    units, last = {}, {}

    def take(impl, variant, rows):
        for metric in metrics:
            if value(rows, metric) is None or fastest.get((impl, metric)) != variant:
                continue
            samples.setdefault((impl, metric), []).append(value(rows, metric))
            units.setdefault(metric, unit(rows, metric))

    for r in range(a.rounds):
        for impl, variant in sorted({(i, v) for (i, _), v in fastest.items()}):
            note(f"{work}: round {r + 1} of {a.rounds}: {impl} {' '.join(variant)}")
            try:
                rows = run(command(impl, variant), log)
            except RuntimeError as error:
                notes.append(f"{impl} {' '.join(variant)} failed in round {r + 1}")
                failures.append(f"{work}: {error}")
                note(str(error))
                continue
            last = rows if impl == "lightc" else last
            take(impl, variant, rows)
    out = {}
    for metric, goals in metrics.items():
        if ("lightc", metric) not in samples:
            continue
        line = out[metric] = {"unit": units[metric], "goals": goals, "notes": notes}
        for impl in ("lightc", "raw", "lightning"):
            if (impl, metric) in samples:
                v = samples[impl, metric]
                line[impl] = {"median": statistics.median(v), "min": min(v), "max": max(v), "values": v,
                              "variant": " ".join(fastest.get((impl, metric), ()))}
        for impl in ("raw", "lightning"):
            if impl in line and line["lightc"]["median"] > 0:
                line["ratio_" + impl] = line[impl]["median"] / line["lightc"]["median"]
        if ":" not in metric and metric in last:
            f = floor(last[metric], limits)
            if f:
                line["floor"] = f / SECONDS[units[metric]]
                line["times_floor"] = line["lightc"]["median"] / line["floor"]
    # The arithmetic is the same with a loader.
    if "step" in out and "floor" in out.get("step_no_loader", {}):
        scale = SECONDS[units["step_no_loader"]] / SECONDS[units["step"]]
        out["step"]["floor"] = out["step_no_loader"]["floor"] * scale
        out["step"]["times_floor"] = out["step"]["lightc"]["median"] / out["step"]["floor"]
    return out


def note(text):
    print(text, file=sys.stderr, flush=True)


def number(v):
    return f"{v:.0f}" if v >= 1000 else f"{v:.4g}"


def cell(line, impl):
    if impl not in line:
        return "-"
    x = line[impl]
    text = f"{number(x['median'])} ({number(x['min'])}-{number(x['max'])})"
    return text + (f" {x['variant']}" if x["variant"] else "")


def table(results):
    head = ["work", "metric", "unit", "lightc", "raw PyTorch", "Lightning", "raw / lightc", "Lightning / lightc", "x floor"]
    rows = [head]
    for work, metrics in results.items():
        for metric, line in metrics.items():
            row = [work, metric.replace(":", " "), line["unit"]] + [cell(line, i) for i in ("lightc", "raw", "lightning")]
            for impl in ("raw", "lightning"):
                ratio, goal = line.get("ratio_" + impl), line["goals"].get(impl)
                text = "-" if ratio is None else f"{ratio:.2f}"
                row.append(text + (f" (goal {goal:g})" if goal and ratio is not None else ""))
            row.append(f"{line['times_floor']:.2f}" if "times_floor" in line else "-")
            rows.append(row)
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths)) + " |" for r in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("works", nargs="*", metavar="WORK", help=f"default: all of {', '.join(WORKS)}")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--steps", type=int, default=0, help="batches per epoch, steps per round; 0: each work's default")
    ap.add_argument("--precision", default="", help=f"compare in this precision ({', '.join(IN_PRECISION)}), without a loader; best: each side in its fastest")
    ap.add_argument("--matmul_precision", default="", help="with --precision: what products of f32 may be computed in, on both sides")
    ap.add_argument("--try_limit", type=int, default=120, metavar="S", help="a variant that takes longer is not the fastest")
    ap.add_argument("--data", default="", help="folder of the IDX files")
    ap.add_argument("--peers", default=os.path.join(ROOT, "..", "shared", "bench", "peers.py"))
    ap.add_argument("--bench", default=os.path.join(ROOT, "build", "bin", "lightc_bench"))
    ap.add_argument("--python", default="")
    ap.add_argument("--json", default=os.path.join(ROOT, "build", "compare.json"))
    ap.add_argument("--quick", action="store_true", help="one round, no variants: a smoke test")
    ap.add_argument("--variant", action="append", type=lambda text: tuple(text.split()), metavar="SWITCHES",
                    help='try only these variants of the peer ("--fused"; "" is the plain one); may be repeated')
    ap.add_argument("--machine", action="store_true", help="only describe the machine")
    a = ap.parse_args()
    known = IN_PRECISION if a.precision else WORKS
    works = a.works or list(known)
    unknown = [w for w in works if w not in known]
    if unknown:
        sys.exit(f"compare: unknown work {unknown[0]}; available: {', '.join(known)}")
    if not os.access(a.bench, os.X_OK):
        sys.exit(f"compare: {a.bench} is missing; build it: cmake --preset release && ninja -C build lightc_bench")
    if not os.path.exists(a.peers):
        note(f"compare: {a.peers} does not exist (--peers FILE): measuring only lightc")
        a.peers = ""
    a.rounds = 1 if a.quick else a.rounds
    log = []
    words = machine_words(a)
    if words["load_before"] > 0.3 * os.cpu_count():
        note(f"compare: the machine is busy (load {words['load_before']:.1f}): ratios will be off")
    limits = run([a.bench, "machine", "--threads", str(a.threads)], log)
    words["limits"] = {m: {k: r[k] for k in ("value", "one_thread", "unit")} for m, r in limits.items()}
    words["threads"] = a.threads
    print(json.dumps(words, indent=2))
    results, failures = {}, []
    if not a.machine:
        for work in works:
            if work in WITH_FOLDER:
                with tempfile.TemporaryDirectory() as folder:
                    results[work] = measure(work, a, limits, log, failures, folder)
            else:
                results[work] = measure(work, a, limits, log, failures)
        print("\n" + table(results))
    os.makedirs(os.path.dirname(os.path.abspath(a.json)), exist_ok=True)
    with open(a.json, "w") as f:
        json.dump({"machine": words, "precision": a.precision or "32", "rounds": a.rounds, "results": results, "lines": log}, f, indent=1)
    note(f"\nall values: {a.json}")
    if failures:
        sys.exit("compare: rounds failed:\n" + "\n".join(failures))


if __name__ == "__main__":
    main()
