# SPDX-License-Identifier: Apache-2.0
"""torchvision's ResNets in plain PyTorch: the same names, shapes, initial distributions and numbers.

    resnet.py DIR             writes PyTorch's initial weights and results of each model (DIR/NAME.safetensors,
                              DIR/NAME.results.safetensors); tests/models/test_models.c loads and compares them
    resnet.py DIR back        loads DIR/NAME.back.safetensors strictly and compares its results with
                              DIR/NAME.back_results.safetensors
    resnet.py --record        prints tests/models/recorded.h: results with weights of a formula
"""
import sys
import zlib

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import nn

# The name, and the depth, small_stem, num_classes, shape of the input
MODELS = {
    "resnet18": (18, False, 5, (2, 3, 64, 64)),
    "resnet18_small": (18, True, 5, (2, 3, 32, 32)),
    "resnet18_features": (18, False, 0, (2, 3, 64, 64)),
    "resnet20": (20, True, 10, (4, 3, 32, 32)),
    "resnet34": (34, False, 5, (2, 3, 64, 64)),
    "resnet50": (50, False, 5, (2, 3, 64, 64)),
    "resnet101": (101, False, 5, (2, 3, 64, 64)),
}
BLOCKS = {18: (2, 2, 2, 2), 20: (3, 3, 3), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class Plain(nn.Module):
    """A shortcut without parameters: every second pixel, and zeros for new channels."""

    def __init__(self, more):
        super().__init__()
        self.more = more

    def forward(self, x):
        return nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))


class Block(nn.Module):
    def __init__(self, inp, width, stride, bottleneck, plain):
        super().__init__()
        out = 4 * width if bottleneck else width
        self.n = 3 if bottleneck else 2
        for i in range(self.n):
            a, b = width if i else inp, out if i == self.n - 1 else width
            k = 1 if bottleneck and i != 1 else 3
            conv = nn.Conv2d(a, b, k, stride if i == self.n - 2 else 1, k // 2, bias=False)
            setattr(self, f"conv{i + 1}", conv)
            setattr(self, f"bn{i + 1}", nn.BatchNorm2d(b))
        self.downsample = None
        if stride != 1 or inp != out:
            self.downsample = Plain(out - inp) if plain else nn.Sequential(
                nn.Conv2d(inp, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = x
        for i in range(1, self.n + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.n:
                y = y.relu()
        return (y + (self.downsample(x) if self.downsample else x)).relu()


class ResNet(nn.Module):
    def __init__(self, depth, small_stem, num_classes):
        super().__init__()
        inp = width = 16 if depth == 20 else 64
        bottleneck = depth >= 50
        self.conv1 = nn.Conv2d(3, width, 3 if small_stem else 7, 1 if small_stem else 2, 1 if small_stem else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small_stem else nn.MaxPool2d(3, 2, 1)
        for s, n in enumerate(BLOCKS[depth]):
            blocks = []
            for i in range(n):
                blocks.append(Block(inp, width, 2 if s and not i else 1, bottleneck, depth == 20))
                inp = 4 * width if bottleneck else width
            setattr(self, f"layer{s + 1}", nn.Sequential(*blocks))
            width *= 2
        self.fc = nn.Linear(inp, num_classes) if num_classes else nn.Identity()
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for s in range(1, 5):
            x = getattr(self, f"layer{s}", nn.Identity())(x)
        return self.fc(x.mean((2, 3)))


def model(name):
    depth, small, classes, shape = MODELS[name]
    return ResNet(depth, small, classes), shape


def results(net, x):
    """One step of training, with the mean of squares as the loss; then evaluation."""
    net.train()
    y = net(x)
    (y * y).mean().backward()
    r = {"train": y.detach()}
    r.update({"grad." + k: p.grad for k, p in net.named_parameters()})
    r.update({"after." + k: b.clone() for k, b in net.named_buffers()})
    net.eval()
    with torch.no_grad():
        r["eval"] = net(x)
    return {k: v.contiguous() for k, v in r.items()}


# ---- values of a formula, which test_models.c has as well ----

def numbers(name, shape):
    """In [-1, 1), from a mix of the name's checksum and the index."""
    n = int(numpy.prod(shape)) if shape else 1
    with numpy.errstate(over="ignore"):
        h = numpy.uint32(zlib.crc32(name.encode())) + numpy.arange(n, dtype=numpy.uint32) * numpy.uint32(0x9E3779B9)
        h ^= h >> numpy.uint32(16)
        h *= numpy.uint32(0x85EBCA6B)
        h ^= h >> numpy.uint32(13)
        h *= numpy.uint32(0xC2B2AE35)
        h ^= h >> numpy.uint32(16)
    return torch.from_numpy((h >> numpy.uint32(8)).astype(numpy.float64) / 2**23 - 1).reshape(shape)


def value(name, shape):
    u = numbers(name, shape)
    if name.endswith("num_batches_tracked"):
        return torch.zeros((), dtype=torch.int64)
    if len(shape) > 1:
        return u * (6 / int(numpy.prod(shape[1:]))) ** 0.5
    if name.endswith("bias") or name.endswith("running_mean"):
        return u / 8
    return 1 + u / 4


def record():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Results of PyTorch with weights of a formula, in f64; `tests/torch/resnet.py --record` has printed them. */")
    print("static const recorded_model recorded[] = {")
    torch.set_default_dtype(torch.float64)
    for name in MODELS:
        net, shape = model(name)
        net.load_state_dict({k: value(k, tuple(v.shape)) for k, v in net.state_dict().items()})
        r = results(net, numbers("x", shape))
        grads = [v for k, v in r.items() if k.startswith("grad.")]
        depth, small, classes, _ = MODELS[name]
        sums = [r["train"].sum(), (r["train"] ** 2).sum(), r["eval"].sum(), (r["eval"] ** 2).sum(),
                r["grad.conv1.weight"].sum(), (r["grad.conv1.weight"] ** 2).sum(), sum((g ** 2).sum() for g in grads),
                r["after.bn1.running_var"].sum()]
        count = sum(p.numel() for p in net.parameters())
        print(f'    {{"{name}", {depth}, {str(small).lower()}, {classes}, {{{", ".join(map(str, shape))}}}, {count},')
        print("     {" + ", ".join(f"{float(v):.15g}" for v in sums) + "}},")
    print("};")


def write(folder, name):
    torch.manual_seed(1)
    net, shape = model(name)
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, f"{folder}/{name}.safetensors")
    net = net.double()
    save_file(results(net, numbers("x", shape)), f"{folder}/{name}.results.safetensors")


def back(folder, name):
    net, shape = model(name)
    net.load_state_dict(load_file(f"{folder}/{name}.back.safetensors"), strict=True)
    ours, theirs = results(net.double(), numbers("x", shape)), load_file(f"{folder}/{name}.back_results.safetensors")
    for k in ("train", "eval"):
        off = (ours[k] - theirs[k]).abs().max() / ours[k].abs().max()
        if not off < 1e-3:
            sys.exit(f"{name}: {k} is off by {off:.2g}")


if __name__ == "__main__":
    torch.set_num_threads(2)
    if sys.argv[1] == "--record":
        record()
    else:
        for each in MODELS:
            (back if sys.argv[2:] == ["back"] else write)(sys.argv[1], each)
