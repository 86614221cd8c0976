#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `compare.sh --precision P`: training steps of bare PyTorch on batches in memory, in that precision.

    peer_precision.py WORK --precision P [--matmul_precision M] [--impl raw] [--fused] [--compile] [--channels_last]
                      [--threads N] [--steps N] [--batch N] [--only_saved]

WORK: mlp, fashion, resnet18, gpt. P is a name of lightc's: mixed ones use torch.autocast, 16-mixed with a GradScaler;
in true ones parameters and batches have the type. M: highest, high, medium. One JSON line; saved_mb is what autograd
keeps from forward to backward, without parameters and the batch; --only_saved measures nothing else.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "torch"))
from train import GPT, MLP, FashionCNN  # noqa: E402

ROUNDS = 5
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
STORED = {"64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


class Block(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        plain = s == 1 and i == o
        self.short = nn.Sequential() if plain else nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.short(x))


def resnet18():
    layers, i = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for o, s in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(i, o, s), Block(o, o, 1)]
        i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def images(*shape):
    return torch.randn(*shape), torch.randint(0, 10, shape[:1])


def tokens():
    return torch.randint(0, 65, (16, 256)), torch.randint(0, 65, (16, 256))


# work: (model, batch, optimizer, unit, its parts of a second, steps of a round)
WORKS = {
    "mlp": (MLP, lambda: images(64, 1, 28, 28), lambda p, fused: torch.optim.Adam(p, 1e-3, fused=fused), "us", 1e6, 500),
    "fashion": (FashionCNN, lambda: images(100, 1, 28, 28), lambda p, fused: torch.optim.Adam(p, 1e-3, fused=fused),
                "ms", 1e3, 40),
    "resnet18": (resnet18, lambda: images(128, 3, 32, 32),
                 lambda p, fused: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=5e-4, fused=fused), "ms", 1e3, 4),
    "gpt": (lambda: GPT(6, 6, 384, 256, 65), tokens,
            lambda p, fused: torch.optim.AdamW(p, 1e-3, weight_decay=0.1, fused=fused), "ms", 1e3, 5),
}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("work", choices=WORKS)
    ap.add_argument("--precision", default="32-true", choices=["32-true", *AUTOCAST, *STORED])
    ap.add_argument("--matmul_precision", default="highest", choices=["highest", "high", "medium"])
    ap.add_argument("--impl", default="raw", choices=["raw"])
    for switch in ("--fused", "--compile", "--channels_last", "--only_saved"):
        ap.add_argument(switch, action="store_true")
    ap.add_argument("--batch", type=int, default=0, help="samples, at most the work's own; 0: those")
    ap.add_argument("--threads", type=int, default=0)
    ap.add_argument("--steps", type=int, default=0)
    ap.add_argument("--data", help="not used")
    a = ap.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(a.matmul_precision)
    new, batch, optimizer_of, unit, scale, steps = WORKS[a.work]
    steps = a.steps or steps
    model, (x, y) = new(), batch()
    x, y = (t[:a.batch or None] for t in (x, y))
    if a.precision in STORED:
        model = model.to(STORED[a.precision])
        x = x.to(STORED[a.precision]) if x.is_floating_point() else x
    if a.channels_last and x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = optimizer_of(model.parameters(), a.fused or None)
    scaler = torch.amp.GradScaler("cpu", enabled=a.precision == "16-mixed")
    forward = torch.compile(model) if a.compile else model
    low = AUTOCAST.get(a.precision)

    def loss_of():
        with torch.autocast("cpu", dtype=low or torch.bfloat16, enabled=low is not None):
            logits = forward(x)
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss_of()).backward()
        scaler.step(optimizer)
        scaler.update()

    def saved():
        """Bytes of the storages that a forward pass saves."""
        own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers(), x, y)}
        found = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = loss_of()  # alive while the bytes are added up: no address was used twice
        size = sum(found.values())
        del loss
        return size

    line = {"work": a.work, "impl": a.impl, "precision": a.precision}
    if a.only_saved:
        print(json.dumps({**line, "metric": "saved", "value": round(saved() / 2**20, 3), "unit": "MB"}))
        return
    for _ in range(max(3, steps // 10)):
        step()
    spread = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        spread.append(scale * (time.perf_counter() - start) / steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**line, "metric": "step_no_loader",
                      "value": round(statistics.median(spread), 4), "unit": unit, "threads": torch.get_num_threads(),
                      "torch": torch.__version__, "peak_rss_mb": round(peak, 1),
                      "saved_mb": round(saved() / 2**20, 3),
                      "spread": [round(v, 4) for v in spread]}))


if __name__ == "__main__":
    main()
