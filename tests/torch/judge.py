# SPDX-License-Identifier: Apache-2.0
"""Computes the programs of tests/random/random_program.h in PyTorch, in f64, and says where lightc's numbers differ.

Reads programs from stdin, each with records of lightc's numbers, until "end"; answers each with one line: "ok", or
"differs ...", or "refused ..." if PyTorch refuses it too.

The tolerance of f32 numbers is measured, not chosen: four times the error of PyTorch's own f32 against its f64 in the
same tensor, plus two units in the last place of the tensor's largest number, or of 1 (terms that cancel are about 1).
PyTorch may be lucky, so numbers beyond that are checked again: the program runs in f64 with each result off by a unit in
the last place of f32 (by the same factor for equal values, so that ties stay, and by different ones), and the tolerance
is NOISE times the errors of these runs. This does not cover rounding within an operator, such as that of the mean in
x - mean, which has the same sign in all elements and large effects if they cancel; so the program also runs in f32 with
the same noise, several times. In f64 PyTorch's numbers are no better than lightc's, so the first bound is a digit that no
kernel may lose."""
import math
import sys
import warnings

import torch
import torch.nn.functional as F

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
EPS32 = 2.0**-23
NOISE = 12
OWN = 4
ZERO = 32  # the size of terms that cancel in a tensor that is exactly 0 in f64: norms amplify their input by up to 31
REDUCTION = ["mean", "sum", "none", "batchmean"]


def reduce_(fn):
    def run(v, i, f):
        x, keep = v[0], bool(i[0])
        dims = tuple(i[1:]) or tuple(range(x.dim()))
        return fn(x, dims, keep, f)
    return run


def norm(x, dims, keep, f):
    return torch.linalg.vector_norm(x, f[0], dim=dims, keepdim=keep)


def variance(x, dims, keep, f):
    return torch.var(x, dim=dims, correction=f[0], keepdim=keep)


def std(x, dims, keep, f):
    return torch.std(x, dim=dims, correction=f[0], keepdim=keep)


def kl_div(v, i, f):
    return F.kl_div(v[0], v[1], reduction=REDUCTION[i[0]], log_target=bool(i[1]))


def bce(v, i, f):
    return F.binary_cross_entropy_with_logits(v[0], v[1], weight=v[2], pos_weight=v[3], reduction=REDUCTION[i[0]])


def conv(nd, back):
    fn = [[F.conv1d, F.conv2d, F.conv3d], [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]][back][nd - 1]

    def run(v, i, f):
        stride, padding, dilation, output, groups = i[:nd], i[nd:2 * nd], i[2 * nd:3 * nd], i[3 * nd:4 * nd], i[4 * nd]
        if back:
            return fn(v[0], v[1], v[2], stride, padding, output, groups, dilation)
        return fn(v[0], v[1], v[2], stride, padding, dilation, groups)
    return run


def max_pool(v, i, f):
    return F.max_pool2d(v[0], i[0:2], i[2:4], i[4:6], i[6:8], bool(i[8]))


def avg_pool(v, i, f):
    return F.avg_pool2d(v[0], i[0:2], i[2:4], i[4:6], bool(i[8]), not i[9], i[10] or None)


def max_pool1(v, i, f):
    return F.max_pool1d(v[0], i[0], i[2], i[4], i[6], bool(i[8]))


def avg_pool1(v, i, f):
    return F.avg_pool1d(v[0], i[0], i[2], i[4], bool(i[8]), not i[9])


def interpolate(x, mode, align, **how):
    if mode == 0:
        return F.interpolate(x, mode="nearest", **how)
    return F.interpolate(x, mode="bilinear", align_corners=bool(align), **how)


def rnn(lstm):
    def run(v, i, f):
        x, w_ih, w_hh, b_ih, b_hh, h = v
        b, steps, hidden = x.shape[0], x.shape[1], w_hh.shape[1]
        h = x.new_zeros(b, hidden) if h is None else h
        c, out = h, []
        for t in range(steps):
            gx, gh = F.linear(x[:, t], w_ih, b_ih), F.linear(h, w_hh, b_hh)
            if lstm:
                a, forget, g, o = (gx + gh).chunk(4, 1)
                c = torch.sigmoid(forget) * c + torch.sigmoid(a) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
            else:
                (rx, zx, nx), (rh, zh, nh) = gx.chunk(3, 1), gh.chunk(3, 1)
                r, z = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
                n = torch.tanh(nx + r * nh)
                h = (1 - z) * n + z * h
            out.append(h)
        y, last = torch.stack(out, 1), h + c if lstm else h
        return y if i[0] == 0 else last if i[0] == 1 else y * last.unsqueeze(1)
    return run


def parts(split):
    def run(v, i, f):
        out = v[0].split(i[0], i[1]) if split else v[0].chunk(i[0], i[1])
        if i[2] >= 0:
            return out[i[2] % len(out)]
        return (out[-1] * 2).sum(i[1], keepdim=True)
    return run


def sdpa(v, i, f):
    q, k, value, mask = v
    scores = q @ k.transpose(-1, -2) * (f[0] or 1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if i[0]:
        see = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~see, -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)  # a query that sees nothing gives 0
    return torch.softmax(scores.masked_fill(blind, 0), -1).masked_fill(blind, 0) @ value


def batch_norm(v, i, f):
    x, w, b, mean, var = v
    if mean is None:
        return F.batch_norm(x, None, None, w, b, True, f[0], f[1])
    mean_, var_ = mean.value().clone(), var.value().clone()
    y = F.batch_norm(x, mean_, var_, w, b, bool(i[0]), f[0], f[1])
    if i[0]:
        mean.assign(mean_), var.assign(var_)
    return y


def classes(fn):
    def run(v, i, f):
        how = dict(weight=v[2], reduction=REDUCTION[i[0]], ignore_index=i[2] if i[1] else -100)
        if f[0]:
            how["label_smoothing"] = f[0]
        return fn(v[0], v[1], **how)
    return run


def squeeze(v, i, f):
    return v[0].squeeze(i[0])


def norm_layer(v, i, f):
    shape = v[0].shape[-i[0]:]
    return F.layer_norm(v[0], shape, v[1], v[2], f[0] or 1e-5)


DRAWS = set("dropout bernoulli rand_like randn_like uniform normal".split())
OPS = {
    "contiguous": lambda v, i, f: v[0].clone(),
    "detach": lambda v, i, f: v[0].detach(),
    "ln": lambda v, i, f: v[0].log(),
    "silu": lambda v, i, f: F.silu(v[0]), "softplus": lambda v, i, f: F.softplus(v[0]),
    "softsign": lambda v, i, f: F.softsign(v[0]), "logsigmoid": lambda v, i, f: F.logsigmoid(v[0]),
    "hardswish": lambda v, i, f: F.hardswish(v[0]),
    # PyTorch rounds the slope 1/6 to f32.
    "hardsigmoid": lambda v, i, f: (v[0] + 3).clamp(0, 6) / 6,
    "mish": lambda v, i, f: F.mish(v[0]), "selu": lambda v, i, f: F.selu(v[0]),
    "relu6": lambda v, i, f: F.relu6(v[0]),
    "rsub_scalar": lambda v, i, f: f[0] - v[0],
    "pow_scalar": lambda v, i, f: v[0] ** f[0],
    "add_scalar": lambda v, i, f: v[0] + f[0], "sub_scalar": lambda v, i, f: v[0] - f[0],
    "mul_scalar": lambda v, i, f: v[0] * f[0], "div_scalar": lambda v, i, f: v[0] / f[0],
    "sum": reduce_(lambda x, d, k, f: x.sum(d, keepdim=k) if x.dim() else x.sum()),
    "mean": reduce_(lambda x, d, k, f: x.mean(d, keepdim=k) if x.dim() else x.mean()),
    "amax": reduce_(lambda x, d, k, f: x.amax(d, keepdim=k)), "amin": reduce_(lambda x, d, k, f: x.amin(d, keepdim=k)),
    "logsumexp": reduce_(lambda x, d, k, f: x.logsumexp(d, keepdim=k)),
    "var": reduce_(variance), "std": reduce_(std), "norm": reduce_(norm),
    "mse_loss": lambda v, i, f: F.mse_loss(v[0], v[1], reduction=REDUCTION[i[0]]),
    "l1_loss": lambda v, i, f: F.l1_loss(v[0], v[1], reduction=REDUCTION[i[0]]),
    "smooth_l1_loss": lambda v, i, f: F.smooth_l1_loss(v[0], v[1], reduction=REDUCTION[i[0]], beta=f[0]),
    "huber_loss": lambda v, i, f: F.huber_loss(v[0], v[1], reduction=REDUCTION[i[0]], delta=f[0]),
    "bce_with_logits": bce, "kl_div": kl_div,
    "leaky_relu": lambda v, i, f: F.leaky_relu(v[0], f[0]), "elu": lambda v, i, f: F.elu(v[0], f[0]),
    "gelu": lambda v, i, f: F.gelu(v[0], approximate="tanh" if i[0] else "none"),
    "clamp": lambda v, i, f: v[0].clamp(f[0] if i[0] else None, f[1] if i[1] else None),
    "hardtanh": lambda v, i, f: F.hardtanh(v[0], f[0], f[1]),
    "prelu": lambda v, i, f: F.prelu(v[0], v[1]), "glu": lambda v, i, f: F.glu(v[0], i[0]),
    "through_f64": lambda v, i, f: v[0].double().square().to(v[0].dtype),
    "where": lambda v, i, f: torch.where(v[0], v[1], v[2]),
    "masked_fill": lambda v, i, f: v[0].masked_fill(v[1], f[0]),
    "softmax": lambda v, i, f: v[0].softmax(i[0]), "log_softmax": lambda v, i, f: v[0].log_softmax(i[0]),
    "cumsum": lambda v, i, f: v[0].cumsum(i[0]),
    "topk": lambda v, i, f: (v[0].sort(dim=i[0], descending=not i[2], stable=True)[0]).narrow(i[0], 0, i[1]),
    "sort": lambda v, i, f: v[0].sort(dim=i[0], descending=bool(i[1]), stable=True)[0],
    "argmax": lambda v, i, f: v[0].argmax(i[0], keepdim=bool(i[1])),
    "argmin": lambda v, i, f: v[0].argmin(i[0], keepdim=bool(i[1])),
    "reshape": lambda v, i, f: v[0].reshape(i), "flatten": lambda v, i, f: v[0].flatten(i[0]),
    "unflatten": lambda v, i, f: v[0].unflatten(i[0], (i[1], v[0].shape[i[0]] // i[1])),
    "permute": lambda v, i, f: v[0].permute(i), "transpose": lambda v, i, f: v[0].transpose(i[0], i[1]),
    "slice": lambda v, i, f: v[0].narrow(i[0], i[1], i[2]), "select": lambda v, i, f: v[0].select(i[0], i[1]),
    "squeeze": squeeze, "unsqueeze": lambda v, i, f: v[0].unsqueeze(i[0]),
    "expand": lambda v, i, f: v[0].expand(i), "split": parts(True), "chunk": parts(False),
    "cat": lambda v, i, f: torch.cat(v, i[0]), "stack": lambda v, i, f: torch.stack(v, i[0]),
    "pad": lambda v, i, f: F.pad(v[0], i, value=f[0]), "flip": lambda v, i, f: v[0].flip(i),
    "tril": lambda v, i, f: v[0].tril(i[0]), "triu": lambda v, i, f: v[0].triu(i[0]),
    "gather": lambda v, i, f: v[0].gather(i[0], v[1]),
    "index_select": lambda v, i, f: v[0].index_select(i[0], v[1]),
    "scatter_add": lambda v, i, f: v[0].scatter_add(i[0], v[1], v[2]),
    "index_add": lambda v, i, f: v[0].index_add(i[0], v[1], v[2]),
    "embedding": lambda v, i, f: F.embedding(v[0], v[1], i[1] if i[0] else None),
    "full": lambda v, i, f: torch.full(i, f[0]),
    "cosine_similarity": lambda v, i, f: F.cosine_similarity(v[0], v[1], i[0]),
    "linear": lambda v, i, f: F.linear(v[0], v[1], v[2]),
    "max_pool1d": max_pool1, "avg_pool1d": avg_pool1, "max_pool2d": max_pool, "avg_pool2d": avg_pool,
    "adaptive_avg_pool2d": lambda v, i, f: F.adaptive_avg_pool2d(v[0], (i[0], i[1])),
    "interpolate": lambda v, i, f: interpolate(v[0], i[0], i[3], size=(i[1], i[2])),
    "interpolate_by": lambda v, i, f: interpolate(v[0], i[0], i[1], scale_factor=(f[0], f[1])),
    "pixel_shuffle": lambda v, i, f: F.pixel_shuffle(v[0], i[0]),
    "pixel_unshuffle": lambda v, i, f: F.pixel_unshuffle(v[0], i[0]),
    "batch_norm": batch_norm, "layer_norm": norm_layer,
    "rms_norm": lambda v, i, f: F.rms_norm(v[0], v[0].shape[-i[0]:], v[1], f[0]),
    "group_norm": lambda v, i, f: F.group_norm(v[0], i[0], v[1], v[2], f[0] or 1e-5),
    "cross_entropy": classes(F.cross_entropy), "nll_loss": classes(F.nll_loss),
    "sdpa": sdpa, "lstm": rnn(True), "gru": rnn(False),
}
for name in "neg exp expm1 log1p sqrt rsqrt reciprocal abs sign floor ceil round square sin cos tanh sigmoid erf relu".split():
    OPS[name] = lambda v, i, f, fn=getattr(torch, name): fn(v[0])
for name in ("add sub mul div pow maximum minimum xlogy eq ne lt le gt ge logical_and logical_or logical_xor matmul").split():
    OPS[name] = lambda v, i, f, fn=getattr(torch, name): fn(v[0], v[1])
for n in (1, 2, 3):
    OPS[f"conv{n}d"], OPS[f"conv_transpose{n}d"] = conv(n, 0), conv(n, 1)
# Operators with exact results, to which no noise is added.
EXACT = set("""neg abs sign floor ceil round relu relu6 contiguous detach maximum minimum amax amin clamp hardtanh where
masked_fill topk sort reshape flatten unflatten permute transpose slice select squeeze unsqueeze expand cat stack pad flip
tril triu gather index_select embedding full max_pool1d max_pool2d pixel_shuffle pixel_unshuffle""".split())


class Leaf:
    """A persistent tensor. An assignment makes a new version: values read before keep the old one, views do not."""

    def __init__(self, kind, value):
        self.kind, self.initial = kind, value  # with the same layout as in lightc

    def begin(self):
        self.versions, self.assigned, self.at = [], False, None
        self.assign(self.initial)
        self.assigned = False

    def assign(self, value):
        self.assigned = True
        dtype = torch.get_default_dtype() if value.is_floating_point() else value.dtype
        self.at = torch.empty_strided(value.shape, self.initial.stride(), dtype=dtype).copy_(value.detach())
        if self.kind == "parameter":
            self.at.requires_grad_(True)
            self.versions.append(self.at)

    def value(self):
        return self.at

    def gradient(self):
        total = torch.zeros(self.at.shape)
        for v in self.versions:
            if v.grad is not None:
                total = total + v.grad
        return total

    def zero(self):
        for v in self.versions:
            v.grad = None
        del self.versions[:-1]


class View:
    """A view of a persistent tensor, or of another view: it sees later assignments to it."""

    def __init__(self, of, fn, no_grad):
        self.of, self.fn, self.no_grad = of, fn, no_grad

    def value(self):
        with torch.set_grad_enabled(not self.no_grad):
            return self.fn(self.of.value())


VIEWS = set("detach reshape flatten unflatten permute transpose slice select squeeze unsqueeze expand split chunk".split())


def view_of(x, name, ints, no_grad):
    """The result of an operator on x, a Leaf or a View, as a View; None if it is a copy."""
    if name not in VIEWS or (name in ("split", "chunk") and ints[2] < 0):
        return None
    now = x.value().detach()
    result = OPS[name]([now], ints, [])
    shares = result.numel() == 0 or result.untyped_storage().data_ptr() == now.untyped_storage().data_ptr()
    return View(x, lambda v: OPS[name]([v], ints, []), no_grad) if shares else None


# PyTorch uses the numbers that lightc drew: masks are read from results of x + 0.73, which is seldom 0.
def draw(name, v, f, drawn):
    if name == "dropout":
        scale = 1 / (1 - f[0]) if f[0] < 1 else 0.0
        return torch.where(drawn != 0, v[0] * scale, torch.zeros_like(v[0]))
    return drawn


class Totals:
    """Sums of (number - mean) and of the variances of all drawn numbers: detects small errors that thousands of numbers
    have in common."""

    def __init__(self):
        self.sums = {}

    def add(self, name, off, variance):
        sums = self.sums.setdefault(name, [0.0, 0.0, 0])
        sums[0] += off.sum().item()
        sums[1] += variance.sum().item() if isinstance(variance, torch.Tensor) else variance * off.numel()
        sums[2] += off.numel()

    def verdict(self):
        """Bernstein's bound for numbers between -1 and 1, with a chance of 1e-9; 8 deviations for squares of normal
        ones, which have longer tails."""
        words = []
        for name, (off, variance, n) in sorted(self.sums.items()):
            chance = math.log(2e9)
            may = chance / 3 + math.sqrt(chance * chance / 9 + 2 * chance * variance)
            if name.startswith("normal"):
                may = 8 * math.sqrt(variance) + 50
            words.append(f"{n} of {name}: {off:+.4g} (+- {may:.3g})")
            if not abs(off) <= may:
                return f"differs: the sum of {n} numbers of {name} is off by {off:.6g} (allowed: {may:.4g})"
        return "ok " + ", ".join(words)


TOTALS = Totals()


def check_draws(code, out, drawn):
    """None, or the error in the drawn numbers. `out` has PyTorch's arguments of the draws."""
    seen = {}
    for key, g in drawn.items():
        name, _, _, _, f = code[int(key.split("draw")[1])]
        g = g.to(torch.float64)
        x = out[key + ".x"]
        if name == "dropout":
            kept = g[x.isfinite() & (x != 0)] != 0
            TOTALS.add("dropout", kept.double() - (1 - f[0]), f[0] * (1 - f[0]))
            if f[0] in (0, 1) and kept.numel() and kept.double().mean() != 1 - f[0]:
                return f"{key}: dropout with p = {f[0]}"
        elif name == "bernoulli":
            if not ((g == 0) | (g == 1) | x.isnan()).all():
                return f"{key}: bernoulli gives other numbers than 0 and 1"
            g, p = g[~x.isnan()], x[~x.isnan()]
            TOTALS.add("bernoulli", g - p, p * (1 - p))
        elif name in ("rand_like", "uniform"):
            low, high = (0.0, 1.0) if name == "rand_like" else f
            if not ((g >= low) & (g < high)).all():
                return f"{key}: a number is not in [{low}, {high})"
            u = (g - low) / (high - low)
            TOTALS.add("uniform", u - 0.5, 1 / 12)
            TOTALS.add("uniform's squares", u * u - 1 / 3, 4 / 45)
        else:
            mean, deviation = (0.0, 1.0) if name == "randn_like" else f
            z = (g - mean) / deviation
            TOTALS.add("normal", z, 1.0)
            TOTALS.add("normal's squares", z * z - 1, 2.0)
        if name not in ("dropout", "bernoulli") and g.numel() > 2:
            if any(torch.equal(g, other) for other in seen.values()):
                return f"{key}: the same numbers were drawn twice"
            seen[key] = g
    return None


GENERATOR = torch.Generator().manual_seed(5)


class Noise:
    """Changes results by a relative error of `size`; with a phase of -1 equal values get different factors."""

    def __init__(self, size, phase):
        self.size, self.phase = size, phase

    def __call__(self, x):
        if not x.is_floating_point():
            return x
        if self.phase < 0:
            x = x * (1 + self.size * torch.randn(x.shape, generator=GENERATOR))
            if x.requires_grad:
                x.register_hook(lambda g: g * (1 + self.size * torch.randn(g.shape, generator=GENERATOR)))
            return x
        x = x * (1 + self.size * torch.sin(x.detach() * 1234.5 + self.phase).nan_to_num(0))
        if x.requires_grad:
            x.register_hook(lambda g: g * (1 + self.size * torch.sin(g * 4321.5 + self.phase).nan_to_num(0)))
        return x


def run(leaves, code, steps, drawn, noise=None, dtype=torch.float64, inputs=None):
    """The numbers of a program, by name. inputs: receives the arguments of draws."""
    out = {}
    torch.set_default_dtype(dtype)
    for leaf in leaves.values():
        leaf.begin()
    passes = 0
    for step in range(steps):
        values, late = [], []
        for leaf in leaves.values():
            leaf.assigned = False
        if step != 1:
            passes = 0
            for leaf in leaves.values():
                leaf.zero()
        for at, (name, no_grad, ins, ints, floats) in enumerate(code):
            v = [None if k < 0 else values[k] for k in ins]
            if name == "leaf":
                values.append(leaves[ints[0]])
                continue
            raw = name in ("assign", "batch_norm")
            args = [x.value() if isinstance(x, (Leaf, View)) and not (raw and (k == 0 if name == "assign" else k > 2))
                    else x for k, x in enumerate(v)]
            view = view_of(v[0], name, ints, no_grad) if v and isinstance(v[0], (Leaf, View)) else None
            result = None
            if view:
                result = view
            elif name == "assign":
                args[0].assign(args[1])
            elif name == "backward":
                x = args[0]
                loss = x.reshape(()) if x.numel() == 1 else x.sum() * 0.375
                late.append((f"{step}.loss{at}", v[0] if x.numel() == 1 else loss))
                passes += 1
                if loss.requires_grad:
                    loss.backward(retain_graph=True)
            elif name == "keep":
                late.append((f"{step}.keep{at}", v[0]))
            elif name == "read":
                out[f"{step}.read{at}"] = args[0].detach().clone()
            elif name in DRAWS:
                key = f"{step}.draw{at}"
                if inputs is not None:
                    inputs[key + ".x"] = args[0].detach() if args else None
                with torch.set_grad_enabled(not no_grad):
                    given = drawn[key].to(dtype) if key in drawn else torch.ones_like(args[0]) if args else torch.ones(ints)
                    result = draw(name, args, floats, given)
                late.append((key, result))
            elif not name.startswith("checkpoint_"):
                with torch.set_grad_enabled(not no_grad):
                    if noise and noise.phase < 0:  # equal inputs do not stay equal within an operator either
                        args = [noise(x) if isinstance(x, torch.Tensor) else x for x in args]
                    result = OPS[name](args, ints, floats)
                    if noise and (name not in EXACT or noise.phase < 0):
                        result = noise(result)
            values.append(result)
        for name, x in late:
            out[name] = (x.value() if isinstance(x, (Leaf, View)) else x).detach().clone()
        for k, leaf in leaves.items():
            if leaf.kind == "parameter":
                out[f"{step}.grad{k}"] = leaf.gradient().detach() / max(passes, 1)
        for k, leaf in leaves.items():
            if leaf.kind == "buffer" or leaf.assigned:
                out[f"{step}.state{k}"] = leaf.value().detach().clone()
    return out


def read_program(lines):
    _, dtype, steps, _ = next(lines).split()
    leaves, code, records = {}, [], []
    kinds = {"ids": torch.int64, "mask": torch.bool}
    for line in lines:
        if line.startswith("leaf"):
            head, values = line.split(":")
            _, k, kind, *shape = head.split()
            kind, _, layout = kind.partition("/")
            data = torch.tensor([float(x) for x in values.split()], dtype=torch.float64)
            data = data.to(kinds.get(kind, torch.float64)).reshape([int(x) for x in shape])
            if layout:  # the second dimension is innermost
                data = data.movedim(1, -1).contiguous().movedim(-1, 1)
            leaves[int(k)] = Leaf(kind, data)
        elif line.startswith("record"):
            records.append((line[7:], {}))
        elif line.startswith("="):
            name, rest = line[1:].split(" ", 1)
            shape, values = rest.split(":")
            values = torch.tensor([float(x) for x in values.split()], dtype=torch.float64)
            records[-1][1][name] = ([int(x) for x in shape.split()], values)
        elif line.startswith("refused"):
            records.append((None, line[8:]))
        elif line == "end":
            return dtype, int(steps), leaves, code, records
        else:
            head, ints, floats = line.split(";")
            _, name, *ins = head.split()
            code.append((name.lstrip("@"), name[0] == "@", [int(x) for x in ins], [int(x) for x in ints.split()],
                         [float(x) for x in floats.split()]))
    return None


def mismatch(want, got):
    """The first difference in names or shapes, or None."""
    for name in want:
        if name not in got:
            return f"{name}: lightc has no such number"
    for name, (shape, _) in got.items():
        if name not in want:
            return f"{name}: PyTorch has no such number"
        if list(want[name].shape) != shape:
            return f"{name} has shape {shape}, PyTorch's {list(want[name].shape)}"
    return None


def flat(x):
    return x.reshape(-1).to(torch.float64)


def largest(x):
    x = x[x.isfinite()]
    return x.abs().max().item() if x.numel() else 0.0


def off(run, name, w):
    """The largest error of a run's numbers against w, or infinity at an element that rounding has changed altogether."""
    d = (flat(run[name]) - w).abs()
    return torch.where(d.isfinite(), torch.full_like(d, largest(d)), torch.full_like(d, math.inf))


def judge(program):
    dtype, steps, leaves, code, records = program
    single = dtype == "f32"
    drawn, inputs = {}, {}
    for how, got in records[:1]:
        if how is not None:
            drawn = {name: g.reshape(shape) for name, (shape, g) in got.items() if ".draw" in name}
    try:
        want = run(leaves, code, steps, drawn, inputs=inputs)
    except Exception as e:
        if all(how is None for how, _ in records):
            return "refused by PyTorch too: " + str(e).splitlines()[0]
        return f"differs: PyTorch refuses: {type(e).__name__} {str(e).splitlines()[0]}"
    if records[0][0] is not None:
        wrong = check_draws(code, inputs, drawn)
        if wrong:
            return "differs: " + wrong
    own = run(leaves, code, steps, drawn, dtype=torch.float32) if single else None
    noisy = None
    for how, got in records:
        if how is None:
            return "differs: lightc refuses: " + got
        names = mismatch(want, got)
        if names:
            return f"differs: {how}: {names}"
        for name, (_, g) in got.items():
            w = flat(want[name])
            if single:
                w = torch.where(w.abs() > 3e38, w.sign() * math.inf, w)
                may = OWN * off(own, name, w) + 2 * EPS32 * max(largest(w), 1.0 if largest(w) else ZERO)
            else:
                may = torch.full_like(w, 1e-10 * (largest(w) + 1e-3))
            same = (w == g) | (w.isnan() & g.isnan())
            wrong = ~same & ~((w - g).abs() <= may) & (may < math.inf)
            if not wrong.any():
                continue
            if noisy is None:
                noisy = [(NOISE if single else 50, run(leaves, code, steps, drawn, Noise(EPS32 if single else 1e-14, p)))
                         for p in (0.0, 1.6, 2.9, -1, -1, -1)]
                if single:
                    noisy += [(OWN, run(leaves, code, steps, drawn, Noise(EPS32, p), torch.float32))
                              for p in (0.0, 1.6, 2.9, -1, -1, -1)]
            for factor, n in noisy:
                may = torch.maximum(may, factor * off(n, name, w))
            wrong &= ~((w - g).abs() <= may) & (may < math.inf) & ~(w.abs() > 1e18)
            if wrong.any():
                at = int(wrong.nonzero()[0])
                return (f"differs: {how}: {name}[{at}] of {list(want[name].shape)} is {g[at].item():.12g}, "
                        f"PyTorch's {w[at].item():.12g} (may be off by {may[at].item():.3g})")
    return "ok"


def main():
    lines = (line.rstrip("\n") for line in sys.stdin)
    for line in lines:
        if line == "totals":
            print(TOTALS.verdict(), flush=True)
        if line != "judge":
            continue
        program = read_program(lines)
        try:
            print(judge(program), flush=True)
        except Exception as e:  # an error of this script: answer all the same, the other side waits
            print(f"differs: judge.py fails: {type(e).__name__} {e}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
