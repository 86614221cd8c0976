# SPDX-License-Identifier: Apache-2.0
"""Compares the distribution of initial values with PyTorch's.

    initial.py DIR

DIR/initial.safetensors holds every parameter of the zoo for many seeds ([seeds, ...]). All seeds' values of a parameter
are two samples of one distribution if the greatest distance of their distribution functions (Kolmogorov, Smirnov) is
small; here the limit is exceeded by chance once in a million. The seeds are fixed, so the result is too."""
import math
import sys

import torch
from safetensors.torch import load_file

from zoo import zoo


def distance(a, b):
    a, b = a.sort().values, b.sort().values
    both = torch.cat([a, b])
    fa = torch.searchsorted(a, both, right=True).double() / len(a)
    fb = torch.searchsorted(b, both, right=True).double() / len(b)
    return (fa - fb).abs().max().item()


def main(folder):
    ours, theirs, bad = load_file(folder + "/initial.safetensors"), {}, 0
    seeds = next(v.shape[0] for k, v in ours.items() if k == "linear.weight")
    for seed in range(seeds):
        torch.manual_seed(seed)
        for k, v in zoo().state_dict().items():
            theirs.setdefault(k, []).append(v)
    for k, v in theirs.items():
        want, got = torch.stack(v), ours[k]
        if not got.is_floating_point():
            ok, text = bool((got == want[0]).all()), "another value"
        elif (want == want.flatten()[0]).all():
            ok, text = bool((got == want).all()), f"constant {want.flatten()[0].item()} in PyTorch"
        else:
            # also element by element: a padding row of zeros must stay one
            zeros = bool(((want == 0).all(0) == (got == 0).all(0)).all())
            a, b = got.flatten().double(), want.flatten().double()
            d, limit = distance(a, b), math.sqrt(-math.log(1e-6 / 2) / 2 * 2 / len(a))
            seeds_differ = bool((got[0] != got[1]).any())
            ok = d <= limit and zeros and seeds_differ
            text = (f"distance {d:.4f} (limit {limit:.4f}); mean {a.mean():.5f} and {b.mean():.5f}, std {a.std():.5f} and "
                    f"{b.std():.5f}, range [{a.min():.5f}, {a.max():.5f}] and [{b.min():.5f}, {b.max():.5f}]")
        if not ok:
            bad += 1
            print(f"  {k}: {text}")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
