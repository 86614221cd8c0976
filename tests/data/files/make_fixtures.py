#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files in fixtures/ with NumPy, and those that the live tests compare:

    make_fixtures.py FOLDER        (pip install numpy pandas safetensors h5py)

Element i of an array, in row-major order, is a function of i, which the tests know."""
import sys
import zipfile

import numpy as np
from numpy.lib import format as npy


def numbers(dtype, shape):
    """0, 1, 2, ... for floats and signed types as -3, -2, -1, ...; for bool every third is True."""
    i = np.arange(int(np.prod(shape))).reshape(shape)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return i % 3 == 0
    return (i - 3 if kind in "if" else i).astype(dtype)


def make_npy(folder):
    for dtype in "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 b1".split():
        np.save(f"{folder}/{dtype}.npy", numbers("<" + dtype, (4, 3)))
    for dtype in "u2 i4 f2 f8".split():
        np.save(f"{folder}/big_{dtype}.npy", numbers(">" + dtype, (4, 3)))
    np.save(f"{folder}/fortran.npy", np.asfortranarray(numbers("<f4", (4, 2, 3))))
    np.save(f"{folder}/fortran_big.npy", np.asfortranarray(numbers(">i2", (4, 2, 3))))
    np.save(f"{folder}/scalar.npy", np.float32(7))
    np.save(f"{folder}/vector.npy", numbers("<i8", (5,)))
    np.save(f"{folder}/empty.npy", np.zeros((0, 3), "<f4"))
    np.save(f"{folder}/hollow.npy", np.zeros((4, 0), "<f4"))
    np.save(f"{folder}/object.npy", np.array([{}, None], dtype=object))
    np.save(f"{folder}/structured.npy", np.zeros(2, [("a", "<f4"), ("b (x)", "<i2", (2,))]))
    np.save(f"{folder}/text.npy", np.array(["a", "bc"]))
    np.save(f"{folder}/complex.npy", np.zeros(2, "<c8"))
    for version in (1, 2, 3):
        with open(f"{folder}/v{version}.npy", "wb") as f:
            npy.write_array(f, numbers("<f4", (4, 3)), (version, 0))


def make_npz(folder):
    arrays = {"images": numbers("<u1", (4, 2, 3)), "labels": numbers("<i8", (4,)), "a,b": numbers("<u2", (4,))}
    np.savez(f"{folder}/stored.npz", **arrays)
    np.savez_compressed(f"{folder}/deflated.npz", **arrays, objects=np.array([{}], dtype=object))
    with zipfile.ZipFile(f"{folder}/zip64.npz", "w", zipfile.ZIP_DEFLATED) as z:
        for name, a in arrays.items():
            with z.open(name + ".npy", "w", force_zip64=True) as f:
                npy.write_array(f, a)
        z.writestr("readme.txt", "not an array")
    with zipfile.ZipFile(f"{folder}/lzma.npz", "w", zipfile.ZIP_LZMA) as z:
        with z.open("a.npy", "w") as f:
            npy.write_array(f, arrays["labels"])
    with zipfile.ZipFile(f"{folder}/none.npz", "w") as z:
        z.writestr("readme.txt", "not an array")


def make_tokens(folder):
    """As nanoGPT's data/*/prepare.py and llm.c's dev/data/data_common.py write them."""
    tokens = np.arange(1000) * 7 % 50257
    tokens.astype(np.uint16).tofile(f"{folder}/nanogpt.bin")
    np.save(f"{folder}/tokens.npy", tokens.astype(np.uint16))
    for name, magic, version, dtype in ("llmc", 20240520, 1, np.uint16), ("llama3", 20240801, 7, np.uint32):
        header = np.zeros(256, dtype=np.int32)
        header[:3] = magic, version, len(tokens)
        with open(f"{folder}/{name}.bin", "wb") as f:
            f.write(header.tobytes())
            f.write(tokens.astype(dtype).tobytes())


def make_csv(folder):
    try:
        import pandas
    except ImportError:
        return
    pandas.DataFrame({"number": range(-3, 2), "real": [np.nan, 0.1, 1e-300, 3, np.nan],
                      "text, quoted": ["plain", "a \"quote\"", "two\nlines", " ,", "last"]}).to_csv(f"{folder}/pandas.csv", index=False)


def make_safetensors(folder):
    try:
        from safetensors.numpy import save_file
    except ImportError:
        return
    save_file({"images": numbers("<u1", (4, 2, 3)), "labels": numbers("<i8", (4,)), "u16": numbers("<u2", (4, 3)),
               "i8": numbers("<i1", (4,)), "f16": numbers("<f2", (4, 3)), "number": np.array(7, "<f4")},
              f"{folder}/some.safetensors")


def make_hdf5(folder):
    try:
        import h5py
    except ImportError:
        return
    with h5py.File(f"{folder}/some.h5", "w") as f:
        for dtype in "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 b1".split():
            f[f"types/{dtype}"] = numbers("<" + dtype, (4, 3))
        f["types/big"] = numbers(">i4", (4, 3))
        f.create_dataset("train/images", data=numbers("<u2", (300, 2, 3)), chunks=(16, 2, 3), compression="gzip")
        f.create_dataset("wide", data=np.repeat(numbers("<u1", (4, 1)), 300000, 1), chunks=(1, 300000), compression="gzip")
        f["train/labels"] = numbers("<i8", (300,))
        f["scalar"] = np.float32(7)
        f["texts"] = ["a", "bc"]
        f["again"] = f["train/labels"]
    with h5py.File(f"{folder}/enums.h5", "w") as f:
        for name, values in ("bool", (1, 0)), ("numbers", (1, 2)), ("three", (0, 1, 2)):
            kind = h5py.enum_dtype({chr(65 + i): v for i, v in enumerate(values)}, basetype="i1")
            f.create_dataset(name, data=np.array(values, "i1"), dtype=kind)
    with h5py.File(f"{folder}/user.h5", "w", userblock_size=512) as f:
        f["x"] = numbers("<f4", (4, 3))
    with h5py.File(f"{folder}/unwritten.h5", "w", userblock_size=512) as f:
        f.create_dataset("x", (4, 3), "<f4", fillvalue=7)
    with h5py.File(f"{folder}/outside.h5", "w") as f:
        f.create_dataset("x", (4,), "<f4", external="somewhere.raw")
    with h5py.File(f"{folder}/filters.h5", "w") as f:
        values = np.r_[np.zeros(300), np.arange(500) ** 2 % 97, np.random.default_rng(0).normal(size=200)].astype("<f4")
        f["values"] = values
        f.create_dataset("lzf", data=values, compression="lzf", chunks=(70,))
        f.create_dataset("all", data=values, compression="lzf", chunks=(999,), shuffle=True, fletcher32=True)
        f.create_dataset("gzip", data=values, compression="gzip", shuffle=True, fletcher32=True)
        chunks = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        chunks.set_chunk((10,))
        chunks.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))  # zstd's number
        h5py.h5d.create(f.id, b"zstd", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((1000,)), chunks)
    with h5py.File(f"{folder}/chunks.h5", "w") as f:  # 64 of 256 KiB
        rows = np.repeat(numbers("<u1", (1024, 1)), 16384, 1)
        f.create_dataset("rows", data=rows, chunks=(16, 16384), compression="gzip", compression_opts=9)


if __name__ == "__main__":
    make_npy(sys.argv[1])
    make_npz(sys.argv[1])
    make_tokens(sys.argv[1])
    make_csv(sys.argv[1])
    make_safetensors(sys.argv[1])
    make_hdf5(sys.argv[1])
