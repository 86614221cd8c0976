# SPDX-License-Identifier: Apache-2.0
"""Trains in mixed precision from the same weights on the same batches, and compares how far losses are from f64.

    mixed.py DIR N

DIR/0 to DIR/N-1: what train.py reads, with lightc's losses by the name of the precision. The distance is the root of
the mean square over all steps and seeds; lightc's is at most twice PyTorch's."""
import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from train import MODELS

MOST = 2


def train(folder, run, dtype):
    """The losses with autocast to the dtype, or in f64."""
    data = load_file(folder + "/data.safetensors")
    model = MODELS[run["model"]]()
    model.load_state_dict(load_file(folder + "/start.safetensors"), strict=True)
    if dtype is None:
        model.double()
    optimizer = getattr(torch.optim, run["optimizer"])(model.parameters(), **run["args"])
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    losses, n = [], run["batch"]
    for i in range(len(run["bf16-mixed"])):
        x, y = data["x"][n * i:n * (i + 1)], data["y"][n * i:n * (i + 1)]
        if dtype is None and x.is_floating_point():
            x = x.double()
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            logits = model(x)
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if run["clip"]:
            nn.utils.clip_grad_norm_(model.parameters(), run["clip"])
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def main(folder, n):
    off = {}
    for k in range(n):
        at = f"{folder}/{k}"
        run = json.load(open(at + "/run.json"))
        exact = train(at, run, None)
        for name, dtype in (("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)):
            for who, losses in (("lightc", run[name]), ("PyTorch", train(at, run, dtype))):
                off.setdefault((name, who), []).extend((a - b) ** 2 for a, b in zip(losses, exact))
    ok = True
    for name in ("bf16-mixed", "16-mixed"):
        ours, theirs = ((sum(off[name, who]) / len(off[name, who])) ** 0.5 for who in ("lightc", "PyTorch"))
        ok = ok and ours <= MOST * theirs
        print(f"  {run['model']} {name}: losses {exact[0]:.4f} to {exact[-1]:.4f}; from f64: lightc {ours:.3g}, PyTorch {theirs:.3g}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
