# SPDX-License-Identifier: Apache-2.0
"""The type in which PyTorch's autocast for the CPU computes each operator, compared with lc_autocast_class_of.

    autocast.py DIR

DIR: classes.json (lightc's, by operator). An operator is "low" if f32 operands give bf16, "f32" if bf16 operands give
f32, and "follow" if they give bf16. DIFFERENCES lists where lightc decides otherwise, each with the reason."""
import json
import sys

import torch

SUMS = "sums and moments of many numbers leave the operator unrounded"
RANGE = "the result may exceed the range of f16, or lose most digits; autocast for CUDA computes it in f32, too"
LOSSES = "mostly the last step to a loss; autocast for CUDA computes it in f32, too"
POWERS = "xlogy, a product with a logarithm, is like log"

# operator: (lightc's class, PyTorch's on the CPU, the reason)
DIFFERENCES = {name: ("f32", "follow", reason) for names, reason in (
    ("sum mean cumsum var std norm", SUMS),
    ("exp expm1 log log1p pow pow_scalar reciprocal rsqrt softplus", RANGE),
    ("softmax log_softmax logsumexp", LOSSES),
    ("xlogy", POWERS),
) for name in names.split()}
DIFFERENCES["prelu"] = ("follow", "low", "it multiplies each number once; f32 ones stay f32")


def operators():
    f = torch.nn.functional
    rows = {
        "matmul": lambda r: torch.matmul(r(3, 4), r(4, 5)),
        "linear": lambda r: f.linear(r(3, 4), r(5, 4), r(5)),
        "conv": lambda r: f.conv2d(r(2, 4, 6, 6), r(3, 4, 3, 3), r(3)),
        "sdpa": lambda r: f.scaled_dot_product_attention(r(2, 2, 4, 8), r(2, 2, 4, 8), r(2, 2, 4, 8)),
        "cross_entropy": lambda r: f.cross_entropy(r(3, 4), torch.tensor([0, 1, 2])),
        "nll_loss": lambda r: f.nll_loss(r(3, 4), torch.tensor([0, 1, 2])),
        "mse": lambda r: f.mse_loss(r(3, 4), r(3, 4)),
        "l1": lambda r: f.l1_loss(r(3, 4), r(3, 4)),
        "smooth_l1": lambda r: f.smooth_l1_loss(r(3, 4), r(3, 4)),
        "huber": lambda r: f.huber_loss(r(3, 4), r(3, 4)),
        "kl_div": lambda r: f.kl_div(r(3, 4), r(3, 4)),
        "bce_with_logits": lambda r: f.binary_cross_entropy_with_logits(r(3, 4), r(3, 4)),
        "batch_norm": lambda r: f.batch_norm(r(2, 4, 6, 6), None, None, torch.ones(4), torch.zeros(4), training=True),
        "layer_norm": lambda r: f.layer_norm(r(3, 4), (4,), torch.ones(4), torch.zeros(4)),
        "rms_norm": lambda r: f.rms_norm(r(3, 4), (4,)),
        "group_norm": lambda r: f.group_norm(r(2, 4, 6, 6), 2),
        "embedding": lambda r: f.embedding(torch.tensor([0, 1]), r(3, 4)),
        "prelu": lambda r: f.prelu(r(3, 4), torch.ones(4) / 8),
        "dropout": lambda r: f.dropout(r(3, 4), 0.5),
        "max_pool2d": lambda r: f.max_pool2d(r(2, 4, 6, 6), 2),
        "avg_pool2d": lambda r: f.avg_pool2d(r(2, 4, 6, 6), 2),
        "adaptive_avg_pool2d": lambda r: f.adaptive_avg_pool2d(r(2, 4, 6, 6), 2),
        "interpolate": lambda r: f.interpolate(r(2, 4, 6, 6), scale_factor=2),
        "cat": lambda r: torch.cat([r(3, 4), r(3, 4)]),
        "pad": lambda r: f.pad(r(3, 4), (1, 1)),
        "tril": lambda r: torch.tril(r(4, 4)),
        "triu": lambda r: torch.triu(r(4, 4)),
        "flip": lambda r: torch.flip(r(3, 4), (0,)),
        "gather": lambda r: torch.gather(r(3, 4), 0, torch.zeros(2, 4, dtype=torch.long)),
        "index_select": lambda r: torch.index_select(r(3, 4), 0, torch.tensor([0, 2])),
        "scatter_add": lambda r: torch.scatter_add(r(3, 4), 0, torch.zeros(2, 4, dtype=torch.long), r(2, 4)),
        "index_add": lambda r: torch.index_add(r(3, 4), 0, torch.tensor([0, 2]), r(2, 4)),
        "sum": lambda r: torch.sum(r(3, 4)),
        "mean": lambda r: torch.mean(r(3, 4)),
        "amax": lambda r: torch.amax(r(3, 4), 0),
        "amin": lambda r: torch.amin(r(3, 4), 0),
        "var": lambda r: torch.var(r(3, 4)),
        "std": lambda r: torch.std(r(3, 4)),
        "norm": lambda r: torch.linalg.vector_norm(r(3, 4)),
        "logsumexp": lambda r: torch.logsumexp(r(3, 4), 1),
        "softmax": lambda r: f.softmax(r(3, 4), 1),
        "log_softmax": lambda r: f.log_softmax(r(3, 4), 1),
        "cumsum": lambda r: torch.cumsum(r(3, 4), 1),
        "topk": lambda r: torch.topk(r(3, 4), 2)[0],
        "pow": lambda r: torch.pow(r(3, 4), r(3, 4)),
        "pow_scalar": lambda r: torch.pow(r(3, 4), 2.5),
        "xlogy": lambda r: torch.xlogy(r(3, 4), r(3, 4)),
        "clamp": lambda r: torch.clamp(r(3, 4), 0, 1),
        "where": lambda r: torch.where(torch.ones(3, 4, dtype=torch.bool), r(3, 4), r(3, 4)),
        "masked_fill": lambda r: r(3, 4).masked_fill(torch.ones(3, 4, dtype=torch.bool), 0.5),
        "add_scalar": lambda r: r(3, 4) + 2.5,
        "mul_scalar": lambda r: r(3, 4) * 2.5,
        "reshape": lambda r: r(3, 4).reshape(4, 3),
        "permute": lambda r: r(3, 4).permute(1, 0),
        "slice": lambda r: r(3, 4)[1:],
        "expand": lambda r: r(1, 4).expand(3, 4),
        "contiguous": lambda r: r(3, 4).t().contiguous(),
    }
    for name in ("neg exp expm1 log log1p sqrt rsqrt reciprocal abs sign floor ceil round square sin cos tanh sigmoid "
                 "erf").split():
        rows[name] = lambda r, name=name: getattr(torch, name)(r(3, 4))
    for name in "relu silu softplus softsign logsigmoid hardswish hardsigmoid mish selu leaky_relu elu gelu".split():
        rows[name] = lambda r, name=name: getattr(f, name)(r(3, 4))
    for name in "add sub mul div maximum minimum".split():
        rows[name] = lambda r, name=name: getattr(torch, name)(r(3, 4), r(3, 4))
    return rows


def class_of(operator):
    def make(dtype):
        return lambda *shape: (torch.rand(*shape) * 0.9 + 0.05).to(dtype)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        if operator(make(torch.float32)).dtype == torch.bfloat16:
            return "low"
        return "follow" if operator(make(torch.bfloat16)).dtype == torch.bfloat16 else "f32"


def main(folder):
    ours = json.load(open(folder + "/classes.json"))
    found, wrong = {}, []
    for name, operator in operators().items():
        if name not in ours:
            continue
        theirs = class_of(operator)
        if theirs != ours[name]:
            found[name] = (ours[name], theirs)
    for name in sorted(set(found) | set(DIFFERENCES)):
        listed = DIFFERENCES.get(name)
        if (listed and listed[:2]) != found.get(name):
            wrong.append(name)
            print(f"  {name}: lightc and PyTorch {found.get(name, 'agree')}, listed {listed and listed[:2]}")
    compared = sum(name in ours for name in operators())
    print(f"  {compared} operators, {len(found)} in another type than PyTorch's, {len(DIFFERENCES)} listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
