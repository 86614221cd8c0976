# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/transforms/recorded.safetensors: what torchvision's v2 functions make of a picture of bytes.

    pip install torchvision
    python tests/peers/record_transforms.py tests/data/transforms/recorded.safetensors

Each tensor is [C,H,W], u8, except those named normalize and magnitudes (f32). `source` is what all are made of; the other names are
those of the cases in test_recorded.c.
"""
import json
import struct
import sys

import numpy as np
import torch
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

H, W = 30, 41
NEAREST, EXACT, BILINEAR, BICUBIC = Mode.NEAREST, Mode.NEAREST_EXACT, Mode.BILINEAR, Mode.BICUBIC


def picture(height, width, seed=0):
    """Smooth colors with edges in them, and noise."""
    y, x = np.mgrid[0:height, 0:width]
    rng = np.random.default_rng(seed)
    planes = [127 + 90 * np.sin(x / (2.5 + c) + c) * np.cos(y / (3 + c)) for c in range(3)]
    a = np.stack(planes) + rng.normal(0, 8, (3, height, width))
    a[:, height // 3 : height // 2, width // 4 : width // 2] = np.array([240, 20, 60])[:, None, None]
    a[:, -6:, -9:] = 90
    return torch.from_numpy(np.clip(a, 0, 255).astype(np.uint8))


source = picture(H, W)
square = source[:, :30, :30].contiguous()
gray = F.rgb_to_grayscale(source, 1)
odd = picture(45, 44)  # turned by 90 degrees, many centers are on the border of two pixels
out = {"source": source, "square": square, "gray": gray, "odd": odd}


def record(name, tensor):
    assert name not in out, name
    out[name] = tensor.contiguous()


for mode, called in ((NEAREST, "nearest"), (EXACT, "nearest_exact"), (BILINEAR, "bilinear"), (BICUBIC, "bicubic")):
    for height, width in ((30, 41), (17, 23), (47, 61), (12, 90), (30, 19), (7, 3)):
        for antialias in (True, False):
            if antialias or mode in (BILINEAR, BICUBIC):
                name = f"resize {called} {height}x{width}" + ("" if antialias else " plain")
                record(name, F.resize(source, [height, width], interpolation=mode, antialias=antialias))
    record(f"resized_crop {called}", F.resized_crop(source, 4, 9, 21, 13, [16, 20], interpolation=mode))
record("resize shorter", F.resize(source, [20]))
record("resize shorter max", F.resize(source, [20], max_size=24))
record("resize gray", F.resize(gray, [17, 23]))
for height, width in ((12, 12), (13, 14), (40, 20), (60, 61)):
    record(f"center_crop {height}x{width}", F.center_crop(source, [height, width]))
for mode in ("constant", "edge", "reflect", "symmetric"):
    record(f"pad {mode}", F.pad(source, [3, 5, 7, 2], fill=9, padding_mode=mode))
color = [250, 3, 120.6]
record("pad color", F.pad(source, [3, 5, 7, 2], fill=color))
record("horizontal_flip", F.horizontal_flip(source))
record("vertical_flip", F.vertical_flip(source))
for mode, called in ((NEAREST, "nearest"), (BILINEAR, "bilinear")):
    for angle in (17, -63.5, 180):
        record(f"rotate {called} {angle}", F.rotate(source, angle, interpolation=mode, fill=0))
        record(f"rotate {called} {angle} fill", F.rotate(source, angle, interpolation=mode, fill=77))
    record(f"rotate {called} color", F.rotate(source, 31, interpolation=mode, fill=color))
    record(f"rotate {called} center", F.rotate(source, 31, interpolation=mode, center=[5, 8], fill=0))
    record(f"rotate {called} 90", F.rotate(square, 90, interpolation=mode, fill=0))
    record(f"rotate {called} 270", F.rotate(square, 270, interpolation=mode, fill=0))
    for angle in (90, 270):
        record(f"rotate {called} {angle} odd", F.rotate(odd, angle, interpolation=mode, fill=0))
    record(f"affine {called}", F.affine(source, 23, [4, -3], 1.3, [11, -7], interpolation=mode, fill=0))
    record(f"affine {called} center", F.affine(source, -8, [0, 0], 0.7, [5, 0], interpolation=mode, fill=30, center=[9, 2]))
    corners = [[0, 0], [W - 1, 0], [W - 1, H - 1], [0, H - 1]]
    moved = [[3, 5], [W - 8, 2], [W - 2, H - 4], [6, H - 3]]
    record(f"affine {called} color", F.affine(source, -8, [0, 0], 0.7, [5, 0], interpolation=mode, fill=color))
    record(f"perspective {called}", F.perspective(source, corners, moved, interpolation=mode, fill=0))
for factor in (0.0, 0.6, 1.7):
    for name in ("brightness", "contrast", "saturation"):
        record(f"{name} {factor}", getattr(F, "adjust_" + name)(source, factor))
    record(f"contrast gray {factor}", F.adjust_contrast(gray, factor))
for factor in (-0.5, -0.2, 0.13):
    record(f"hue {factor}", F.adjust_hue(source, factor))
record("grayscale 1", F.rgb_to_grayscale(source, 1))
record("grayscale 3", F.rgb_to_grayscale(source, 3))
record("grayscale gray 3", F.rgb_to_grayscale(gray, 3))
for size, sigma in (((5, 5), 1.1), ((3, 9), 0.6), ((23, 23), 7.0)):
    record(f"blur {size[0]}x{size[1]}", F.gaussian_blur(source, [size[1], size[0]], [sigma, sigma]))
for name, call in {
    "shear_x": lambda m: F.affine(source, 0.0, [0, 0], 1.0, [float(np.degrees(np.arctan(m))), 0.0], center=[0, 0]),
    "shear_y": lambda m: F.affine(source, 0.0, [0, 0], 1.0, [0.0, float(np.degrees(np.arctan(m)))], center=[0, 0]),
    "translate_x": lambda m: F.affine(source, 0.0, [int(m * 20), 0], 1.0, [0.0, 0.0]),
    "translate_y": lambda m: F.affine(source, 0.0, [0, int(m * 20)], 1.0, [0.0, 0.0]),
    "rotate": lambda m: F.rotate(source, m * 60),
    "sharpness": lambda m: F.adjust_sharpness(source, 1 + m),
}.items():
    for magnitude in (-0.37, 0.83):
        record(f"augment {name} {magnitude}", call(magnitude))
record("augment posterize", F.posterize(source, 3))
record("augment solarize", F.solarize(source, 255 * 0.4))
# The threshold is 240, which the picture has, only after it is rounded to f32.
record("augment solarize 1 of 18", F.solarize(source, 255.0 * float(torch.linspace(1, 0, 18)[1])))
record("augment autocontrast", F.autocontrast(F.adjust_contrast(source, 0.4)))
record("augment autocontrast source", F.adjust_contrast(source, 0.4))
record("augment equalize", F.equalize(source))
record("augment invert", F.invert(source))
for name, policy, bins, height, width in (
    ("trivial", v2.TrivialAugmentWide, 31, 64, 64),
    ("rand", v2.RandAugment, 31, 331, 662),
    ("auto", v2.AutoAugment, 10, 227, 500),
):
    # In the order of lc__augment. [1,O,B]
    order = "Identity ShearX ShearY TranslateX TranslateY Rotate Brightness Color Contrast Sharpness Posterize Solarize"
    makers = [policy._AUGMENTATION_SPACE.get(op, (lambda *a: None, False))[0] for op in order.split()]
    rows = [make(bins, height, width) for make in makers]
    record(f"magnitudes {name}", torch.stack([torch.zeros(bins) if r is None else r.float() for r in rows])[None])
mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
record("normalize", F.normalize(F.to_dtype(source, torch.float32, scale=True), mean, std))

header, data = {}, b""
for name, tensor in out.items():
    raw = tensor.numpy().tobytes()
    kind = {torch.uint8: "U8", torch.float32: "F32"}[tensor.dtype]
    header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
