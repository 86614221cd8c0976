#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `lightc_bench everything`: the cost in Lightning of a step that does nothing, with everything on that
acts at each step, as in bench/noop.c. One JSON line per measurement, as peers.py prints them.

    peer_everything.py everything --impl lightning [--threads N] [--steps N]

Needs torch, lightning, psutil (DeviceStatsMonitor) and tensorboard.
"""
import argparse
import json
import logging
import os
import resource
import tempfile
import time
import warnings

ap = argparse.ArgumentParser()
ap.add_argument("work", choices=["everything"])
ap.add_argument("--impl", default="lightning", choices=["lightning"])
ap.add_argument("--threads", type=int, default=0)
ap.add_argument("--steps", type=int, default=1000)
ap.add_argument("--data", help="ignored")
a = ap.parse_args()

warnings.filterwarnings("ignore")
import lightning.pytorch as pl
import torch
from lightning.pytorch import callbacks as cb

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
if a.threads:
    torch.set_num_threads(a.threads)


class Noop(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx):
        loss = self.w.sum()
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("twice", loss + loss, prog_bar=True)
        self.log("batch", float(batch_idx))
        self.log("half", 0.5, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)


def emit(metric, value, **more):
    print(json.dumps(dict(work=a.work, impl=a.impl, precision="32", threads=torch.get_num_threads(), device="cpu",
                          metric=metric, value=round(value, 4), unit="us", torch=torch.__version__,
                          peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1), **more)),
          flush=True)


def bare():
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([w], 0.0)
    for i in range(-100, a.steps):
        if i == 0:
            start = time.perf_counter()
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()
    return (time.perf_counter() - start) / a.steps


def everything(folder):
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, default_root_dir=folder, log_every_n_steps=1, gradient_clip_val=1,
        profiler="simple", logger=[pl.loggers.CSVLogger(folder), pl.loggers.TensorBoardLogger(folder)],
        callbacks=[
            cb.TQDMProgressBar(), cb.ModelSummary(), cb.Timer(duration={"seconds": 1000000}),
            cb.LearningRateMonitor(logging_interval="step", log_momentum=True, log_weight_decay=True),
            cb.DeviceStatsMonitor(cpu_stats=True), cb.ThroughputMonitor(batch_size_fn=lambda batch: 1),
            cb.GradientAccumulationScheduler({0: 1}), cb.EMAWeightAveraging(), cb.EarlyStopping("loss_epoch"),
            cb.ModelCheckpoint(every_n_train_steps=1000)])
    loader = torch.utils.data.DataLoader([torch.zeros(1)] * a.steps, batch_size=None)
    start = time.perf_counter()
    trainer.fit(Noop(), loader)
    return (time.perf_counter() - start) / a.steps


base = bare()
emit("bare_step", 1e6 * base)
times = []
for _ in range(3):
    with tempfile.TemporaryDirectory() as folder:
        times.append(everything(folder))
emit("trainer_step_everything", 1e6 * min(times), over_bare_us=round(1e6 * (min(times) - base), 1), steps=a.steps,
     lightning=pl.__version__)
