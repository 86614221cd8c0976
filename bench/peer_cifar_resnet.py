#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of examples/cifar_resnet: PyTorch trains ResNet-20 on the same folders with the same recipe (batches of 128,
random crop with padding 4, flip, normalize, MixUp 0.2, SGD with Nesterov momentum under a one-cycle schedule, label
smoothing 0.1). One JSON line: milliseconds per step with the loader, seconds of the training, accuracy of the test.

    peer_cifar_resnet.py --data DIR [--max_epochs 5] [--seed N] [--precision 32-true|bf16-mixed] [--channels_last]
                         [--compile] [--decode_jpeg] [--steps N]

DIR has train/CLASS/PICTURE and test/CLASS/PICTURE. Needs torch, torchvision and pillow.
"""
import argparse
import contextlib
import json
import os
import time

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--data", required=True)
ap.add_argument("--max_epochs", type=int, default=5)
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--precision", default="32-true", choices=["32-true", "bf16-mixed"])
ap.add_argument("--channels_last", action="store_true")
ap.add_argument("--compile", action="store_true")
ap.add_argument("--decode_jpeg", action="store_true", help="with torchvision.io in place of Pillow")
ap.add_argument("--workers", type=int, default=2)
ap.add_argument("--threads", type=int, default=os.cpu_count())
ap.add_argument("--steps", type=int, default=0, help="only so many steps, after as many that warm up, and no test")
a = ap.parse_args()

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torchvision.transforms import v2

BATCH, CLASSES, MIXUP = 128, 10, 0.2
torch.manual_seed(a.seed)
torch.set_num_threads(a.threads)


class Block(nn.Module):
    """Shortcuts have no parameters: every second pixel, and channels of zeros."""

    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.stride, self.more = stride, width - before

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.stride != 1 or self.more:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return F.relu(y + x)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        blocks, before = [], 16
        for width in (16, 32, 64):
            for i in range(3):
                blocks.append(Block(before, width, 2 if width > 16 and not i else 1))
                before = width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(64, CLASSES)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        return self.fc(self.blocks(F.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


def read_jpeg(path):
    return torchvision.io.decode_jpeg(torchvision.io.read_file(path), mode=torchvision.io.ImageReadMode.RGB)


def loader(part):
    train = part == "train"
    # Pillow's crops and flips are faster before it.
    to_image = [] if a.decode_jpeg else [v2.PILToTensor()]
    steps = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()] if train else []
    steps += [*to_image, v2.ToDtype(torch.float32, scale=True),
              v2.Normalize([0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616])]
    more = {"loader": read_jpeg} if a.decode_jpeg else {}
    data = torchvision.datasets.ImageFolder(os.path.join(a.data, part), v2.Compose(steps), **more)
    kept = dict(persistent_workers=True) if a.workers else {}
    return torch.utils.data.DataLoader(data, BATCH, shuffle=train, drop_last=train, num_workers=a.workers, **kept)


def mixed_precision():
    return torch.autocast("cpu", torch.bfloat16) if a.precision == "bf16-mixed" else contextlib.nullcontext()


def main():
    train = loader("train")
    net = ResNet20()
    if a.channels_last:
        net = net.to(memory_format=torch.channels_last)
    forward = torch.compile(net) if a.compile else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=a.max_epochs * len(train))
    mixup = v2.MixUp(alpha=MIXUP, num_classes=CLASSES)
    start, steps, result = time.perf_counter(), 0, {}
    for _ in range(a.max_epochs):
        for x, y in train:
            x, y = mixup(x, y)
            if a.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            with mixed_precision():
                loss = F.cross_entropy(forward(x), y, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            steps += 1
            if a.steps and steps == a.steps:
                start = time.perf_counter()
            if a.steps and steps == 2 * a.steps:
                break
        if a.steps and steps >= 2 * a.steps:
            break
    seconds = time.perf_counter() - start
    if not a.steps:
        net.eval()
        right = total = 0
        with torch.no_grad(), mixed_precision():
            for x, y in loader("test"):
                right += (net(x).argmax(1) == y).sum().item()
                total += len(y)
        result["test_acc"] = right / total
    print(json.dumps(dict(ms_step=1e3 * seconds / (a.steps or steps), train_s=seconds, torch=torch.__version__,
                          torchvision=torchvision.__version__, **result)))


main()
