# SPDX-License-Identifier: Apache-2.0
"""The scale of torch.amp.GradScaler after each step is lightc's.

    scaler.py DIR

DIR: scales.json (lightc's), start.safetensors, data.safetensors. The network and what overflows are those of
test_torch_precision.c."""
import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

BATCH, INTERVAL = 8, 7


def overflows(i):
    return (i < 150 and i % 13 == 5) or i == 40 or 90 <= i < 94


def main(folder):
    ours = json.load(open(folder + "/scales.json"))
    data = load_file(folder + "/data.safetensors")
    p = {k: v.requires_grad_() for k, v in load_file(folder + "/start.safetensors").items()}
    optimizer = torch.optim.SGD(p.values(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=INTERVAL)
    seen = set()
    for i, scale in enumerate(ours):
        x, y = (data[k][BATCH * i:BATCH * (i + 1)] for k in ("x", "y"))
        with torch.autocast("cpu", dtype=torch.float16):
            h = F.relu(F.linear(x, p["l1.weight"], p["l1.bias"]))
            loss = F.cross_entropy(F.linear(h, p["l2.weight"], p["l2.bias"]), y)
        if overflows(i):
            loss = loss * 1e30
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() != scale:
            print(f"  after step {i} the scale is {scale}, and PyTorch's is {scaler.get_scale()}")
            return 1
        seen.add(scale)
    print(f"  {len(ours)} steps: the same scale after each, {len(seen)} different ones from {min(seen)} to {max(seen)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
