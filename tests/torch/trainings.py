# SPDX-License-Identifier: Apache-2.0
"""Trains the trainings of tests/random/random_training.h in PyTorch, in f64, and says where lightc's numbers differ.

Reads trainings from stdin, each with records of lightc's losses, rates and parameters after every step, until "end";
answers each with one line: "ok", "ok within noise D", or "differs ...". Numbers that differ by more than rounding are checked
again: the training runs with every layer's result, every gradient and every update off by some units in the last place,
and the tolerance is 50 times the differences of these runs, or in f32 4 times those of PyTorch's runs in f32; D is the
largest such difference, relative to its tensor."""
import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from judge import Noise

GENERATOR = torch.Generator().manual_seed(3)


class Hardsigmoid(nn.Module):
    def forward(self, x):  # PyTorch rounds the slope 1/6 to f32
        return (x + 3).clamp(0, 6) / 6


ACTIVATIONS = [
    lambda a: nn.ReLU(), lambda a: nn.Tanh(), lambda a: nn.Sigmoid(), lambda a: nn.GELU(),
    lambda a: nn.GELU(approximate="tanh"), lambda a: nn.SiLU(), lambda a: nn.LeakyReLU(a or 0.01),
    lambda a: nn.ELU(a or 1.0), lambda a: nn.ReLU6(), lambda a: nn.Hardswish(), lambda a: Hardsigmoid(),
    lambda a: nn.Softplus(), lambda a: nn.Softsign(), lambda a: nn.Mish(), lambda a: nn.LogSigmoid(),
    lambda a: nn.Softmax(-1), lambda a: nn.LogSoftmax(-1)]


def layer(op, i, f, shape, vocabulary, single):
    if op == "linear":
        return nn.Linear(shape[-1], i[0], bias=not i[1])
    if op == "embedding":
        return nn.Embedding(vocabulary, i[0], padding_idx=i[1] - 1 if i[1] else None)
    if op == "conv":
        kind = nn.Conv1d if len(shape) == 2 else nn.Conv2d
        return kind(shape[0], i[0], i[1], i[2], i[3], i[4], i[5], bias=not i[6])
    if op == "conv_t":
        kind = nn.ConvTranspose1d if len(shape) == 2 else nn.ConvTranspose2d
        return kind(shape[0], i[0], i[1], i[2], i[3], i[4], bias=not i[6])
    if op == "batch_norm":
        kind = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
        return kind(shape[0], f[1] or 1e-5, f[0] or 0.1, not i[0], not i[1])
    if op == "layer_norm":
        return nn.LayerNorm(shape[-1], f[0] or 1e-5, not i[0], not i[1])
    if op == "rms_norm":
        return nn.RMSNorm(shape[-1], f[0] or torch.finfo(torch.float32 if single else torch.float64).eps, not i[0])
    if op == "group_norm":
        return nn.GroupNorm(i[0], shape[0], f[0] or 1e-5, not i[1])
    if op == "activation":
        return ACTIVATIONS[i[0]](f[0])
    if op == "max_pool":
        return nn.MaxPool2d(i[0], i[1], i[2], ceil_mode=bool(i[3]))
    if op == "avg_pool":
        return nn.AvgPool2d(i[0], i[1], i[2], bool(i[3]), not i[4])
    if op == "adaptive":
        return nn.AdaptiveAvgPool2d(i[0])
    if op == "flatten":
        return nn.Flatten()
    if op in ("lstm", "gru"):
        kind = nn.LSTM if op == "lstm" else nn.GRU
        return kind(shape[-1], i[0], i[1], bias=not i[3], batch_first=True, bidirectional=bool(i[2]))
    if op == "attention":
        return nn.MultiheadAttention(shape[-1], i[0], bias=not i[1], batch_first=True)
    return nn.Module()


class Net(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case
        for k, (op, frozen, _, i, f, shape) in enumerate(case.layers):
            module = layer(op, i, f, shape, case.vocabulary, case.single)
            self.add_module(f"l{k}", module)
            if frozen:
                module.requires_grad_(False)

    def call(self, k, x):
        op, _, _, i, f, _ = self.case.layers[k]
        module = getattr(self, f"l{k}")
        if op == "again":
            return self.call(i[0], x)
        if op == "tied":
            return F.linear(x, getattr(self, f"l{i[0]}").weight)
        if op == "dropout":  # drops what lightc has dropped, by the mask of this batch
            return self.drop(x + 0.73, f[0])
        if op == "attention":
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if i[2] else None
            if f[0]:
                return self.attention(module, x, i[0], mask, f[0])
            return module(x, x, x, need_weights=False, attn_mask=mask)[0]
        if op in ("lstm", "gru"):
            return self.layers(module, x, f[0]) if f[0] else module(x)[0]
        return module(x)

    def drop(self, x, p):
        kept = torch.tensor([c == "1" for c in self.masks.pop(0)]) if self.masks else torch.ones(x.numel())
        return x * kept.reshape(x.shape) / (1 - p)

    def attention(self, module, x, heads, mask, p):
        """By hand, since PyTorch's own draws its own masks."""
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                   for part in F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        y = self.drop(scores.softmax(-1), p) @ v
        return module.out_proj(y.transpose(1, 2).flatten(-2))

    def layers(self, module, x, p):
        """LSTM or GRU, one layer after the other."""
        directions = 2 if module.bidirectional else 1
        zeros = x.new_zeros(directions, len(x), module.hidden_size)
        run, start = (torch._VF.lstm, (zeros, zeros)) if module.mode == "LSTM" else (torch._VF.gru, zeros)
        for k in range(module.num_layers):
            weights = sum(module.all_weights[directions * k:directions * (k + 1)], [])
            x = self.drop(x, p) if k else x
            x = run(x, start, weights, module.bias, 1, 0.0, True, module.bidirectional, True)[0]
        return x

    def forward(self, x, noise, masks=None):
        self.masks = masks
        for k in range(len(self.case.layers)):
            y = self.call(k, x)
            x = x + y if self.case.layers[k][2] else y
            if noise:
                x = noise(x)
        return x


def loss_of(case, x, y, noise=None):
    kind, sums, ignore, weighted, f = case.loss
    if noise and x.requires_grad and kind in ("bce", "kl", "cross_entropy", "nll"):
        x.register_hook(lambda g: noise.probabilities(g, 0.05 if sums else 1 / len(g)))
    how = dict(reduction="sum" if sums else "mean")
    weight = 0.5 + 0.25 * (torch.arange(x.shape[-1]) % 4) if weighted else None
    if kind in ("cross_entropy", "nll"):
        x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1)
        how.update(weight=weight, ignore_index=0 if ignore else -100)
    if kind == "mse":
        loss = F.mse_loss(x, y, **how)
    elif kind == "l1":
        loss = F.l1_loss(x, y, **how)
    elif kind == "smooth_l1":
        loss = F.smooth_l1_loss(x, y, beta=f, **how)
    elif kind == "huber":
        loss = F.huber_loss(x, y, delta=f, **how)
    elif kind == "bce":
        loss = F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=weight, **how)
    elif kind == "kl":
        loss = F.kl_div(x.log_softmax(-1), y.softmax(-1), **how)
    elif kind == "cross_entropy":
        loss = F.cross_entropy(x, y, label_smoothing=f, **how)
    else:
        loss = F.nll_loss(x.log_softmax(-1), y, **how)
    loss = loss * 0.05 if sums else loss
    return -loss if "maximize" in case.optimizer[1] else loss


FLAGS = {"nesterov", "maximize", "amsgrad", "centered", "decoupled_weight_decay"}
DEFAULTS = dict(beta1=0.9, beta2=0.999, eta_minus=0.5, eta_plus=1.2, step_size_min=1e-6, step_size_max=50)


def arguments(given, all_=None):
    """Translates lightc's names and numbers to PyTorch's."""
    out, known = {}, {**DEFAULTS, **(all_ or {}), **given}
    for name, value in given.items():
        if name in ("beta1", "beta2"):
            out["betas"] = (known["beta1"], known["beta2"])
        elif name in ("eta_minus", "eta_plus"):
            out["etas"] = (known["eta_minus"], known["eta_plus"])
        elif name in ("step_size_min", "step_size_max"):
            out["step_sizes"] = (known["step_size_min"], known["step_size_max"])
        elif name == "strong_wolfe":
            out["line_search_fn"] = "strong_wolfe" if value else None
        elif name in ("max_iter", "max_eval", "history_size"):
            out[name] = int(value)
        else:
            out[name] = bool(value) if name in FLAGS else value
    return out


def optimizer_of(case, net):
    parameters = dict(net.named_parameters())
    groups = [dict(params=[parameters[n] for n in names], **arguments(given, case.optimizer[1]))
              for given, names in case.groups]
    name, given = case.optimizer
    if name == "LBFGS":
        groups = groups[0]["params"]
    return getattr(torch.optim, name)(groups, **arguments(given))


def schedule(optimizer, part, children=None):
    name, given, milestones = part
    args = {k: int(v) if k in ("step_size", "total_iters", "T_max", "T_0", "T_mult", "total_steps", "step_size_up",
                               "step_size_down", "patience", "cooldown", "anneal_epochs") else v
            for k, v in given.items()}
    if "linear" in args:
        args["anneal_strategy"] = "linear" if args.pop("linear") else "cos"
    if "mode" in args:
        args["mode"] = ["triangular", "triangular2", "exp_range"][int(args["mode"])]
    if "max" in args:
        args["mode"] = "max" if args.pop("max") else "min"
    if "absolute" in args:
        args["threshold_mode"] = "abs" if args.pop("absolute") else "rel"
    for flag in ("cycle_momentum", "three_phase"):
        if flag in args:
            args[flag] = bool(args[flag])
    if name == "SWALR":
        return torch.optim.swa_utils.SWALR(optimizer, **args)
    if name == "LambdaLR":
        base = given["base"]
        return lr_scheduler.LambdaLR(optimizer, (lambda e: 1 / (1 + base * e)) if given["inverse"] else
                                     (lambda e: base**e))
    if name == "MultiStepLR":
        args["milestones"] = milestones
    if name == "SequentialLR":
        return lr_scheduler.SequentialLR(optimizer, children, milestones)
    if name == "ChainedScheduler":
        return lr_scheduler.ChainedScheduler(children, optimizer)
    return getattr(lr_scheduler, name)(optimizer, **args)


class Trace:
    def __init__(self):
        self.losses, self.rates, self.states, self.masks = [], [], [], {}


def train(case, noise=None):
    net, out = Net(case), Trace()
    names = [name for name, _, _ in case.tensors]
    net.load_state_dict({name: value.clone() for name, _, value in case.tensors}, strict=False)
    own = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    if set(own) != set(names):
        raise ValueError(f"the state has {sorted(names)}, PyTorch's {sorted(own)}")
    for name, value in own.items():
        if value.is_floating_point() and value.requires_grad and noise:
            value.register_hook(noise.gradient)
    optimizer = optimizer_of(case, net)
    trained = [p for g in optimizer.param_groups for p in g["params"]]
    schedulers = [(s, schedule(optimizer, s["self"], [schedule(optimizer, p) for p in s["parts"]]))
                  for s in case.schedulers]
    samples, batch, epochs, max_steps, accumulate = case.data
    batches, steps = -(-samples // batch), 0
    for epoch in range(epochs):
        logged = 0.0
        for i in range(batches):
            x, y = case.x[batch * i:batch * (i + 1)], case.y[batch * i:batch * (i + 1)]
            place, length = i % accumulate, min(accumulate, batches - i // accumulate * accumulate)
            evaluations = []

            def closure():
                if place == 0:
                    for p in net.parameters():
                        p.grad = None
                draws = case.masks.get(len(out.losses))  # one for each evaluation; rounding may make one more here
                masks = draws[min(len(evaluations), len(draws) - 1)].split() if draws else None
                loss = loss_of(case, net(x, noise, masks), y, noise)
                if loss.requires_grad:
                    loss.backward()
                if place == length - 1:
                    for p in net.parameters():
                        if p.grad is not None:
                            p.grad /= length
                    if case.clip and case.clip[0] == "norm":
                        nn.utils.clip_grad_norm_(trained, case.clip[1])
                    elif case.clip:
                        nn.utils.clip_grad_value_(trained, case.clip[1])
                evaluations.append(loss.item())
                return loss

            if place < length - 1:
                closure()
            elif case.optimizer[0] == "LBFGS":
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
            out.losses.append(evaluations[-1])
            logged += evaluations[-1] * len(x)
            if place < length - 1:
                continue
            if noise:
                with torch.no_grad():
                    for p in trained:
                        p.copy_(noise.update(p))
            steps += 1
            for every, done in (("step", steps), ("epoch", epoch + 1)):
                for s, made in schedulers:
                    now = s["every"] == every and done % s["frequency"] == 0 and (every == "step" or i == batches - 1)
                    if now and s["self"][0] != "ReduceLROnPlateau":
                        made.step()
            out.rates.append([float(g["lr"]) for g in optimizer.param_groups])
            out.states.append([own[n].detach().double().reshape(-1).clone() for n in names])
            if steps == max_steps:
                return out
        for s, made in schedulers:
            if (epoch + 1) % s["frequency"] == 0 and s["self"][0] == "ReduceLROnPlateau":
                made.step(logged / samples)
    return out


class TrainingNoise(Noise):
    def gradient(self, g):
        return g * (1 + self.size * torch.randn(g.shape, generator=GENERATOR))

    def probabilities(self, g, weight):
        """The gradient of such a loss is p - 1 or the like, as exact as p: if the loss is small it may have no correct digit."""
        return g + weight * self.size * torch.randn(g.shape, generator=GENERATOR)

    def update(self, p):
        return p * (1 + self.size * torch.randn(p.shape, generator=GENERATOR))


def train_single(case, noise):
    """Trains in f32, which rounds within layers as lightc does; noise on their results does not."""
    single = copy.copy(case)
    torch.set_default_dtype(torch.float32)
    single.x, single.y = (v.float() if v.is_floating_point() else v for v in (case.x, case.y))
    single.tensors = [(name, shape, v.float() if v.is_floating_point() else v) for name, shape, v in case.tensors]
    try:
        return train(single, noise)
    finally:
        torch.set_default_dtype(torch.float64)


def series(case, trace, losses=True):
    """(what, step, values). LBFGS has several losses per step, any of which may be kept."""
    losses = losses and case.optimizer[0] != "LBFGS"
    out = [("loss", k, torch.tensor([v])) for k, v in enumerate(trace.losses) if losses]
    out += [("rate", k, torch.tensor(v)) for k, v in enumerate(trace.rates)]
    for k, state in enumerate(trace.states):
        out += [(name, k, v) for (name, _, _), v in zip(case.tensors, state)]
    return out


def judge(case):
    case.masks = case.records[0][1].masks if case.records else {}
    twin, noisy, single, largest, verdict = train(case), None, [], 0.0, None
    for how, trace in case.records:
        if trace.masks != case.masks:  # chunks and devices have masks of their own
            case.masks = trace.masks
            twin, noisy, single = train(case), None, []
        got, want = series(case, trace), series(case, twin, bool(trace.losses))
        if len(got) != len(want):
            return f"differs: {how}: {len(trace.states)} steps, {len(trace.losses)} losses, PyTorch has another number"
        for at, ((what, step, g), (_, _, w)) in enumerate(zip(got, want)):
            if g.shape != w.shape:
                return f"differs: {how}: {what} has {list(g.shape)} numbers, PyTorch's {list(w.shape)}"
            scale = w.abs().max().item() if len(w) else 0
            if not scale < 1e9:  # it diverges, at a rate decided by rounding
                continue
            tight = 1e-12 * scale if what == "rate" else ((2e-7 if case.single else 1e-13) * (3 + step)
                                                          * (scale + 0.05))
            wrong = ~(((g - w).abs() <= tight) | (g == w) | (g.isnan() & w.isnan()))
            if not wrong.any():
                continue
            if noisy is None:
                noisy = [train(case, TrainingNoise(s * (1.2e-7 if case.single else 2.3e-16), p))
                         for s, p in ((1, 0.0), (1, 1.6), (2, 2.9), (4, -1))]
                if case.single:
                    single = [train_single(case, n) for n in [None] + 5 * [TrainingNoise(1.2e-7, -1)]]
            off = torch.stack([(series(case, n, bool(trace.losses))[at][2] - w).abs() for n in noisy]).max(0)[0]
            may = torch.maximum(50 * off, 50 * off.mean()) if what != "rate" else 10 * off
            if single and what != "rate":
                own = torch.stack([(series(case, n, bool(trace.losses))[at][2] - w).abs() for n in single]).max(0)[0]
                may = torch.maximum(may, 4 * torch.maximum(own, own.mean()))
            still = wrong & ~((g - w).abs() <= may) & ~may.isnan()
            if still.any():
                k = int(still.nonzero()[0])
                return (f"differs: {how}: {what}[{k}] of {len(w)} after step {step} is {g[k].item():.12g}, PyTorch's "
                        f"{w[k].item():.12g} (may be off by {may[k].item():.3g})")
            largest = max(largest, ((g - w).abs().max() / (scale + 0.05)).item())
            verdict = f"ok within noise {largest:.2g}"
    return verdict or "ok"


class Case:
    def __init__(self):
        self.layers, self.groups, self.schedulers, self.tensors, self.records = [], [], [], [], []
        self.vocabulary, self.clip, self.error = 0, None, None


def numbers(text):
    return torch.tensor([float(v) for v in text.split()], dtype=torch.float64)


def named(words):
    return {w.split("=")[0]: float(w.split("=")[1]) for w in words if "=" in w}


def read_schedule(words, milestones):
    return words[0], named(words[1:]), [int(m) for m in milestones.split()]


def read_case(lines):
    case = Case()
    for line in lines:
        head, _, rest = line.partition(" ")
        if head == "end":
            return case
        if head == "training":
            case.single = rest == "f32"
        elif head == "vocabulary":
            case.vocabulary = int(rest)
        elif head == "layer":
            words, ints, floats, shape = rest.split(";")
            _, op, *flags = words.split()
            case.layers.append((op, "frozen" in flags, "residual" in flags, [int(v) for v in ints.split()],
                                [float(v) for v in floats.split()], [int(v) for v in shape.split()]))
        elif head == "loss":
            words, f = rest.split(";")
            kind, *flags = words.split()
            case.loss = (kind, *[int(v) for v in flags], float(f))
        elif head == "data":
            case.data = [int(v) for v in rest.split()]
        elif head == "clip":
            case.clip = (rest.split()[0], float(rest.split()[1]))
        elif head == "optimizer":
            case.optimizer = (rest.split()[0], named(rest.split()))
        elif head == "group":
            words, names = rest.split(":")
            case.groups.append((named(words.split()), names.split()))
        elif head == "scheduler":
            words, milestones = rest.split(";")
            every, frequency, *words = words.split()
            case.schedulers.append({"every": every, "frequency": int(frequency), "parts": [],
                                    "self": read_schedule(words, milestones)})
        elif head == "part":
            words, milestones = rest.split(";")
            case.schedulers[-1]["parts"].append(read_schedule(words.split(), milestones))
        elif head in ("x", "y"):
            words, values = rest.split(":")
            kind, *shape = words.split()
            values = numbers(values).reshape([int(n) for n in shape])
            setattr(case, head, values.long() if kind == "ids" else values)
        elif head == "tensor":
            words, values = rest.split(":")
            name, *shape = words.split()
            case.tensors.append((name, [int(n) for n in shape], numbers(values).reshape([int(n) for n in shape])))
        elif head == "record":
            case.records.append((rest, Trace()))
        elif head == "losses":
            case.records[-1][1].losses = numbers(rest).tolist()
        elif head == "masks":
            batch, _, masks = rest.partition(" ")
            case.records[-1][1].masks.setdefault(int(batch), []).append(masks)
        elif head == "rates":
            case.records[-1][1].rates.append(numbers(rest).tolist())
        elif head == "state":
            sizes = [math.prod(shape) for _, shape, _ in case.tensors]
            case.records[-1][1].states.append(list(numbers(rest).split(sizes)))
        elif head == "refused":
            case.error = rest
    return None


def main():
    lines = (line.rstrip("\n") for line in sys.stdin)
    for line in lines:
        if line != "judge":
            continue
        case = read_case(lines)
        try:
            verdict = judge(case)
        except Exception as e:
            verdict = f"differs: PyTorch refuses: {type(e).__name__} {e}"
            if case.error:
                verdict = f"refused by both: {type(e).__name__} {e}"
        if case.error and not verdict.startswith("refused"):
            verdict = "differs: lightc refuses: " + case.error
        print(verdict.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
