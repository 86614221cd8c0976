# SPDX-License-Identifier: Apache-2.0
"""What Lightning's Tuner finds, recorded for tests/core/tuner/test_tuner_peers.c: record_tuner.py > ../conformance/tuner.json

lr_find: y = w x with one float32 weight, w = 1 at first, learned with SGD from sample k of `samples`:
    x = sin(0.37 k) + 0.2, y = sin(1.3 x) + noise sin(7.7 k)
in batches of `batch`, in their order; the loss is the mean square, training_step gives none for the steps of `none`
(counted from 0) and NaN for those of `nan`. Recorded are Lightning's rates and smoothed losses of a search that never
stops early, how many points one with early_stop_threshold has, what suggestion(skip) says, and, as `log10`, the same
with the slope over log10 of the rate, by torch.gradient.

scale_batch_size: a loader of `samples` samples; a step with more than `fits` samples raises what a CPU without memory
raises. Recorded is the size that is found."""

import json
import logging
import math
import sys
import warnings

import lightning as L
import torch
from lightning.pytorch.tuner import Tuner

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.CRITICAL)

LR_FIND = [
    dict(name="quiet", noise=0.0),
    dict(name="noisy", noise=0.6),
    dict(name="noisier", noise=2.0, batch=4),
    dict(name="linear", noise=0.6, mode="linear", min_lr=1e-4, max_lr=0.3),
    dict(name="short", noise=0.6, num_training=20, min_lr=1e-6),
    dict(name="too_short", noise=0.6, num_training=12),
    dict(name="diverges", noise=0.3, max_lr=300.0),
    dict(name="never_stops", noise=0.3, max_lr=30.0, early_stop_threshold=None),
    dict(name="linear_diverges", noise=0.3, mode="linear", min_lr=0.01, max_lr=60.0),
    dict(name="accumulates", noise=0.6, accumulate=4, num_training=40),
    dict(name="skips", noise=0.6, none=[17, 18, 40]),
    dict(name="nan", noise=0.6, nan=[60]),
    dict(name="wide_skip", noise=0.6, skip=[30, 25]),
]
SCALE = [
    dict(name="power", fits=100),
    dict(name="power_exact", fits=64),
    dict(name="power_begins_too_large", fits=100, init_val=300),
    dict(name="power_three", fits=1000, init_val=3, max_trials=4),
    dict(name="power_one_trial", fits=1000, max_trials=1),
    dict(name="power_max_val", fits=4000, max_val=256),
    dict(name="bisect", fits=100, mode="binsearch", margin=0.0),
    dict(name="bisect_margin", fits=100, mode="binsearch"),
    dict(name="bisect_large_margin", fits=77, mode="binsearch", margin=0.3),
    dict(name="bisect_begins_too_large", fits=100, mode="binsearch", init_val=300, margin=0.0),
    dict(name="bisect_few_trials", fits=700, mode="binsearch", max_trials=6, margin=0.0),
    dict(name="bisect_counts_what_fits", fits=700, mode="binsearch", max_trials=12, margin=0.0),
    dict(name="whole", fits=100000, samples=1000),
    dict(name="whole_bisect", fits=100000, samples=1000, mode="binsearch"),
]


class Line(L.LightningModule):
    def __init__(self, case):
        super().__init__()
        self.case, self.lr, self.step = case, 0.1, 0
        self.w = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch, i):
        x, y = batch
        step, self.step = self.step, self.step + 1
        if step in self.case["none"]:
            return None
        loss = ((self.w * x - y) ** 2).mean()
        return loss * float("nan") if step in self.case["nan"] else loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def trainer(**more):
    return L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                     enable_model_summary=False, num_sanity_val_steps=0, **more)


def argmin(results, spacing, skip):
    losses = torch.tensor(results["loss"][skip[0]:-skip[1]], dtype=torch.float64)
    at = torch.tensor(spacing[skip[0]:-skip[1]], dtype=torch.float64)
    finite = torch.isfinite(losses)
    if finite.sum() < 2:
        return -1
    slopes = torch.gradient(losses[finite], spacing=[at[finite]])[0]
    return skip[0] + torch.arange(len(losses))[finite][slopes.argmin()].item()


def lr_find(given):
    case = dict(batch=16, samples=512, noise=0.0, mode="exponential", min_lr=1e-8, max_lr=1.0, num_training=100,
                early_stop_threshold=4.0, accumulate=1, none=[], nan=[], skip=[10, 1])
    case.update(given)
    k = torch.arange(case["samples"], dtype=torch.float64)
    x = torch.sin(0.37 * k) + 0.2
    y = torch.sin(1.3 * x) + case["noise"] * torch.sin(7.7 * k)
    data = torch.utils.data.TensorDataset(x.float(), y.float())
    loader = torch.utils.data.DataLoader(data, batch_size=case["batch"])

    def find(threshold):
        return Tuner(trainer(max_epochs=-1, accumulate_grad_batches=case["accumulate"])).lr_find(
            Line(case), loader, update_attr=False, early_stop_threshold=threshold,
            **{n: case[n] for n in ("mode", "min_lr", "max_lr", "num_training")})

    case["stops_after"] = len(find(case["early_stop_threshold"]).results["loss"])
    finder = find(None)
    r = finder.results
    suggestion = finder.suggestion(*case["skip"])
    case["lr"] = [float("%.12g" % v) for v in r["lr"][:len(r["loss"])]]
    case["loss"] = [float("%.9g" % v) if math.isfinite(v) else str(v) for v in r["loss"]]
    case["suggested"] = -1 if suggestion is None else r["lr"].index(suggestion)
    case["log10"] = argmin(r, [math.log10(v) for v in r["lr"]], case["skip"])
    return case


class Sized(Line):
    def __init__(self, case):
        super().__init__(dict(none=[], nan=[]))
        self.sizes, self.batch_size = case, 16

    def train_dataloader(self):
        n = self.sizes["samples"]
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(n), torch.ones(n)),
                                           batch_size=self.batch_size)

    def training_step(self, batch, i):
        if len(batch[0]) > self.sizes["fits"]:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return super().training_step(batch, i)


def scale(given):
    case = dict(samples=5000, mode="power", steps_per_trial=3, init_val=2, max_trials=25, margin=0.05, max_val=8192)
    case.update(given)
    case["found"] = Tuner(trainer(max_epochs=1)).scale_batch_size(
        Sized(case),
        **{n: case[n] for n in ("mode", "steps_per_trial", "init_val", "max_trials", "margin", "max_val")})
    return case


def write(case):
    return "  " + json.dumps({k: "none" if v is None else v for k, v in case.items()})


torch.set_num_threads(1)
print('{\n "lightning": "%s",\n "torch": "%s",' % (L.__version__, torch.__version__.split("+")[0]))
print(' "lr_find": [\n' + ",\n".join(write(lr_find(c)) for c in LR_FIND) + "\n ],")
print(' "scale_batch_size": [\n' + ",\n".join(write(scale(c)) for c in SCALE) + "\n ]\n}")
