#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `lightc_bench images`: PyTorch's DataLoader with the same files, transforms and workers, as in
bench/images.c. One JSON line per measurement, as peers.py prints them.

    peer_images.py images --keep DIR [--impl raw] [--decode_jpeg] [--threads N] [--steps N]

DIR is written by `lightc_bench images --keep DIR`. Pictures are decoded by Pillow, or with --decode_jpeg by
torchvision.io. Needs torch, torchvision, pillow and numpy.
"""
import argparse
import json
import os
import resource
import statistics
import time

ap = argparse.ArgumentParser()
ap.add_argument("work", choices=["images"])
ap.add_argument("--keep", required=True)
ap.add_argument("--impl", default="raw", choices=["raw"])
ap.add_argument("--decode_jpeg", action="store_true")
ap.add_argument("--threads", type=int, default=0, help="of PyTorch in this process; workers have one, as always")
ap.add_argument("--steps", type=int, default=0, help="batches of an epoch; 0: all pictures")
ap.add_argument("--data", help="ignored")
a = ap.parse_args()

import numpy
import torch
import torchvision
from torchvision.transforms import v2

ROUNDS, BATCH, WINDOW, BATCHES = 3, 64, 1024, 512
if a.threads:
    torch.set_num_threads(a.threads)


def emit(metric, seconds, **more):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps(dict(work=a.work, impl=a.impl, precision="32", threads=torch.get_num_threads(), device="cpu",
                          metric=metric, value=round(1e6 * seconds, 4), unit="us", torch=torch.__version__,
                          torchvision=torchvision.__version__, peak_rss_mb=round(peak / 1024, 1), **more)), flush=True)


def read_jpeg(path):
    return torchvision.io.decode_jpeg(torchvision.io.read_file(path), mode=torchvision.io.ImageReadMode.RGB)


def pictures(folder, crop):
    to_image = [] if a.decode_jpeg else [v2.PILToTensor()]  # Pillow's crops and flips are faster before it
    steps = [crop, v2.RandomHorizontalFlip(), *to_image, v2.ToDtype(torch.float32, scale=True),
             v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    more = {"loader": read_jpeg} if a.decode_jpeg else {}
    return torchvision.datasets.ImageFolder(os.path.join(a.keep, folder), v2.Compose(steps), **more)


def epoch(loader):
    """Seconds per sample, from the start of the workers on, or with workers that are there already."""
    samples, start = 0, time.perf_counter()
    for x, y in loader:
        samples += len(x)
    return (time.perf_counter() - start) / samples


def measure_pictures(name, folder, crop, workers):
    data = pictures(folder, crop)
    if a.steps:
        order = torch.randperm(len(data))[:a.steps * BATCH].tolist()
        data = torch.utils.data.Subset(data, order)
    more = dict(persistent_workers=True, prefetch_factor=2) if workers else {}
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=workers, **more)
    epoch(loader)  # starts the workers
    seconds = statistics.median(epoch(loader) for _ in range(ROUNDS))
    emit(f"{name}_{workers}w", seconds, pictures_s=round(1 / seconds, 1), workers=workers)


def measure_tokens():
    """As nanoGPT makes batches."""
    tokens = numpy.memmap(os.path.join(a.keep, "tokens.bin"), dtype=numpy.uint16, mode="r")
    batches, seconds = a.steps or BATCHES, []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        for _ in range(batches):
            at = torch.randint(len(tokens) - WINDOW, (BATCH,)).tolist()
            x = torch.stack([torch.from_numpy(tokens[i:i + WINDOW].astype(numpy.int64)) for i in at])
            y = torch.stack([torch.from_numpy(tokens[i + 1:i + 1 + WINDOW].astype(numpy.int64)) for i in at])
        seconds.append((time.perf_counter() - start) / batches)
    emit("tokens_0w", statistics.median(seconds[1:]), tokens_s=round(BATCH * WINDOW / seconds[-1]))


for workers in range(3):
    measure_pictures("lfw", "lfw", v2.RandomCrop(224), workers)
    measure_pictures("imagenet", "imagenet", v2.RandomResizedCrop(224), workers)
    measure_pictures("cifar", "cifar", v2.RandomCrop(32, padding=4), workers)
measure_tokens()
