# SPDX-License-Identifier: Apache-2.0
"""Writes tests/image/pictures: small files of every kind, and what Pillow and torchvision make of them (as PPM).

    pip install pillow torchvision
    python tests/peers/record_images.py tests/image/pictures

NAME.EXT is a file. NAME.EXT.ppm is Pillow's convert("RGB") of it, NAME.EXT.upright.ppm the same after
ImageOps.exif_transpose, and NAME.EXT.HEIGHTxWIDTH.ppm torchvision's v2 resize of the first, as a tensor of bytes.
many.npz has 200 more files, with options at random, and both pictures of each, one after the other.
"""
import io
import struct
import sys
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional

FOLDER = sys.argv[1]


def picture(height, width, channels=3, seed=0):
    """Smooth colors with edges in them, so that upsampled color planes and filters show."""
    y, x = np.mgrid[0:height, 0:width]
    rng = np.random.default_rng(seed)
    planes = [127 + 90 * np.sin(x / (2.5 + c) + c) * np.cos(y / (3 + c)) for c in range(channels)]
    a = np.stack(planes, axis=-1) + rng.normal(0, 8, (height, width, channels))
    a[height // 3 : height // 2, width // 4 : width // 2] = [240, 20, 60, 200][:channels]
    return np.clip(a, 0, 255).astype(np.uint8)


def write(name, data):
    with open(f"{FOLDER}/{name}", "wb") as f:
        f.write(data)


def ppm(name, array):
    height, width, _ = array.shape
    write(name + ".ppm", b"P6\n%d %d\n255\n" % (width, height) + array.tobytes())


def record(name, data, upright=False, sizes=()):
    write(name, data)
    image = Image.open(io.BytesIO(data))
    rgb = np.array(image.convert("RGB"))
    if image.mode == "I;16":  # Pillow clips these at 255, so nearly everything is white; lightc takes the high byte
        rgb = np.repeat((np.array(image) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    ppm(name, rgb)
    if upright:
        turned = np.array(ImageOps.exif_transpose(image).convert("RGB"))
        assert name == "turned1.jpg" or turned.shape != rgb.shape or (turned != rgb).any(), name
        ppm(name + ".upright", turned)
    for height, width in sizes:
        tensor = torch.from_numpy(rgb).permute(2, 0, 1)
        resized = functional.resize(tensor, [height, width], antialias=True)
        ppm(f"{name}.{height}x{width}", resized.permute(1, 2, 0).contiguous().numpy())


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(rows, depth):
    """Rows of samples [height, samples] as a PNG's, without a filter."""
    out = b""
    for row in rows:
        if depth == 16:
            line = row.astype(">u2").tobytes()
        elif depth == 8:
            line = row.astype(np.uint8).tobytes()
        else:
            bits = "".join(format(int(v), f"0{depth}b") for v in row)
            bits += "0" * (-len(bits) % 8)
            line = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        out += b"\0" + line
    return out


def png(samples, depth, color, before=(), after=(), interlaced=False):
    """samples [height, width, channels]; `before` and `after`: chunks on either side of the pixels."""
    height, width, channels = samples.shape
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    data = b""
    for y, x, down, right in passes:
        part = samples[y::down, x::right]
        if part.size:
            data += packed(part.reshape(part.shape[0], -1), depth)
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    pieces = [chunk(b"IHDR", head), *before, chunk(b"IDAT", zlib.compress(data, 9)), *after, chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


def exif(orientation, order="<"):
    mark = b"II" if order == "<" else b"MM"
    entries = [(0x0100, 4, 1, 5, "I"), (0x0112, 3, 1, orientation, "Hxx")]
    data = mark + struct.pack(order + "HIH", 42, 8, len(entries))
    for tag, kind, count, value, form in entries:
        data += struct.pack(order + "HHI" + form, tag, kind, count, value)
    return data + struct.pack(order + "I", 0)


def profile(data, deflated=False):
    """As ImageMagick writes it."""
    digits = (b"Exif\0\0" + data).hex()
    lines = "".join(digits[i : i + 72] + "\n" for i in range(0, len(digits), 72))
    text = f"\nexif\n{len(digits) // 2:8}\n{lines}".encode()
    return b"Raw profile type exif\0" + (b"\0" + zlib.compress(text) if deflated else text)


def jpegs():
    rgb = Image.fromarray(picture(17, 23))
    record("color420.jpg", saved(rgb, "JPEG", quality=85))
    record("color422.jpg", saved(rgb, "JPEG", quality=85, subsampling="4:2:2"))
    record("color444.jpg", saved(rgb, "JPEG", quality=85, subsampling="4:4:4"))
    record("progressive.jpg", saved(rgb, "JPEG", quality=85, progressive=True))
    record("grey.jpg", saved(Image.fromarray(picture(17, 23, 1)[:, :, 0]), "JPEG"))
    record("cmyk.jpg", saved(Image.fromarray(picture(17, 23, 4), "CMYK"), "JPEG", quality=95))
    for n in range(1, 9):
        data = b"Exif\0\0" + exif(n, "<" if n % 2 else ">")
        record(f"turned{n}.jpg", saved(Image.fromarray(picture(6, 9, seed=n)), "JPEG", exif=data), upright=True)
    sizes = [(13, 17), (61, 90), (30, 17), (13, 40), (100, 7), (1, 1), (29, 41)]
    record("photo.jpg", saved(Image.fromarray(picture(30, 40, seed=5)), "JPEG", quality=92), sizes=sizes)


def pngs():
    rgba = picture(9, 13, 4)
    rgb, gray = rgba[:, :, :3], rgba[:, :, :1]
    wide = rgba.astype(np.uint16) * 256 + 201 - rgba // 2
    palette = np.random.default_rng(1).integers(0, 256, (16, 3), dtype=np.uint8)
    indices = gray // 16
    plte = chunk(b"PLTE", palette.tobytes())
    record("rgb.png", png(rgb, 8, 2))
    record("rgb_interlaced.png", png(rgb, 8, 2, interlaced=True))
    record("rgb_transparent.png", png(rgb, 8, 2, [chunk(b"tRNS", struct.pack(">3H", *map(int, rgb[0, 0])))]))
    record("rgba.png", png(rgba, 8, 6))
    record("grey.png", png(gray, 8, 0))
    record("grey_transparent.png", png(gray, 8, 0, [chunk(b"tRNS", struct.pack(">H", int(gray[0, 0, 0])))]))
    record("grey_alpha.png", png(rgba[:, :, [0, 3]], 8, 4))
    record("grey1.png", png(gray // 128, 1, 0))
    record("grey2.png", png(gray // 64, 2, 0))
    record("grey4.png", png(gray // 16, 4, 0))
    record("grey16.png", png(wide[:, :, :1], 16, 0))
    record("grey_alpha16.png", png(wide[:, :, [0, 3]], 16, 4))
    record("rgb16.png", png(wide[:, :, :3], 16, 2))
    record("rgba16.png", png(wide, 16, 6))
    record("palette.png", png(indices, 8, 3, [plte]))
    record("palette4.png", png(indices, 4, 3, [plte]))
    record("palette_transparent.png", png(indices, 8, 3, [plte, chunk(b"tRNS", bytes(range(0, 160, 16)))]))
    record("gamma.png", png(rgb, 8, 2, [chunk(b"gAMA", struct.pack(">I", 100000))]))
    record("animated.png", saved(Image.fromarray(rgb), "PNG", save_all=True,
                                 append_images=[Image.fromarray(255 - rgb)], duration=50))
    record("turned6.png", png(rgb, 8, 2, [chunk(b"eXIf", exif(6))]), upright=True)
    record("turned8_after.png", png(rgb, 8, 2, [], [chunk(b"eXIf", exif(8, ">"))]), upright=True)
    record("turned6_header.png", png(rgb, 8, 2, [chunk(b"eXIf", b"Exif\0\0" + exif(6))]), upright=True)
    record("turned5_text.png", png(rgb, 8, 2, [chunk(b"tEXt", profile(exif(5)))]), upright=True)
    record("turned6_deflated.png", png(rgb, 8, 2, [], [chunk(b"zTXt", profile(exif(6), True))]), upright=True)


def webps():
    rgba = picture(17, 23, 4, seed=2)
    rgb, moved = Image.fromarray(rgba[:, :, :3]), Image.fromarray(255 - rgba[:, :, :3])
    record("lossy.webp", saved(rgb, "WEBP", quality=80))
    record("lossless.webp", saved(rgb, "WEBP", lossless=True))
    record("alpha.webp", saved(Image.fromarray(rgba), "WEBP", lossless=True, exact=True))
    record("lossy_alpha.webp", saved(Image.fromarray(rgba), "WEBP", quality=80))
    record("animated.webp", saved(rgb, "WEBP", save_all=True, append_images=[moved], duration=50, lossless=True))
    record("turned7.webp", saved(rgb, "WEBP", lossless=True, exif=exif(7)), upright=True)


def any_jpeg(rng, size, seed):
    mode = rng.choice(["L", "RGB", "CMYK"])
    array = picture(*size, {"L": 1, "RGB": 3, "CMYK": 4}[mode], seed)
    options = {"quality": int(rng.choice([5, 40, 90, 100])), "progressive": bool(rng.integers(2))}
    if mode != "L":
        options["subsampling"] = int(rng.integers(3))
    if rng.integers(3) == 0:
        options["restart_marker_blocks"] = 2
    options["exif"] = b"Exif\0\0" + exif(int(rng.integers(10)), rng.choice(["<", ">"]))
    return saved(Image.fromarray(array[:, :, 0] if mode == "L" else array, mode), "JPEG", **options)


def any_png(rng, size, seed):
    color = int(rng.choice([0, 2, 3, 4, 6]))
    depth = int(rng.choice({0: [1, 2, 4, 8], 3: [1, 2, 4, 8]}.get(color, [8, 16])))
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    samples = rng.integers(0, 2**depth, (*size, channels), dtype=np.uint16)
    before = [chunk(b"PLTE", rng.bytes(3 * 2**depth))] if color == 3 else []
    if color < 4 and rng.integers(2):
        before.append(chunk(b"tRNS", bytes([0, 1, 0, 1, 0, 1][: 2 * channels])))
    if rng.integers(2):
        before.append(chunk(b"eXIf", exif(int(rng.integers(10)))))
    return png(samples, depth, color, before, interlaced=bool(rng.integers(2)))


def any_filtered_png(rng, size, seed):
    mode = rng.choice(["L", "LA", "RGB", "RGBA", "1", "P"])
    return saved(Image.fromarray(picture(*size, 4, seed), "RGBA").convert("RGB").convert(mode), "PNG")


def any_webp(rng, size, seed):
    array = picture(*size, int(rng.choice([3, 4])), seed)
    options = {"lossless": bool(rng.integers(2)), "quality": int(rng.choice([10, 80])), "exact": bool(rng.integers(2))}
    if rng.integers(4) == 0:
        options.update(save_all=True, append_images=[Image.fromarray(255 - array)], duration=50)
    return saved(Image.fromarray(array), "WEBP", exif=exif(int(rng.integers(1, 9))), **options)


def many():
    rng = np.random.default_rng(7)
    files = []
    for i in range(200):
        size = [int(n) for n in rng.choice([1, 2, 3, 5, 7, 8, 9, 15, 16, 17], 2)]
        files.append([any_jpeg, any_png, any_filtered_png, any_webp][i % 4](rng, size, i))
    images = [Image.open(io.BytesIO(data)) for data in files]
    arrays = {"files": np.frombuffer(b"".join(files), np.uint8), "bytes": np.array([len(f) for f in files])}
    for name, turned in ("stored", images), ("upright", [ImageOps.exif_transpose(image) for image in images]):
        pictures = [np.array(image.convert("RGB")) for image in turned]
        arrays[name] = np.concatenate([p.reshape(-1) for p in pictures])
        arrays[name + "_sizes"] = np.array([p.shape[:2] for p in pictures])
    np.savez_compressed(f"{FOLDER}/many.npz", **arrays)


jpegs()
pngs()
webps()
many()
