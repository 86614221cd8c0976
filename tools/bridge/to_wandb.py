# SPDX-License-Identifier: Apache-2.0
"""Forwards runs to Weights & Biases: --logger "csv,stream:|python3 to_wandb.py PROJECT" (docs/loggers.md)"""
import base64
import io
import json
import sys

import wandb
from PIL import Image

run = None
for line in sys.stdin:
    r = json.loads(line)
    kind, at = r["type"], {"trainer/global_step": r.get("step", 0)}
    if kind == "start":
        name = f"{r['name']}-{r['version']}"
        run = wandb.init(project=sys.argv[1] if len(sys.argv) > 1 else r["name"], id=r["run_id"], name=name, resume="allow")
        run.config.update({"trainer": r["options"]}, allow_val_change=True)
        run.define_metric("trainer/global_step")  # the axis Lightning's WandbLogger uses
        run.define_metric("*", step_metric="trainer/global_step")
    elif kind == "hparams":
        run.config.update(r["values"], allow_val_change=True)
    elif kind == "row":
        epoch = {"epoch": r["epoch"]} if "epoch" in r else {}
        run.log({**epoch, **{k: float(v) for k, v in r["values"].items()}, **at})  # float: "nan", "inf", "-inf"
    elif kind == "image":
        run.log({r["name"]: wandb.Image(Image.open(io.BytesIO(base64.b64decode(r["png"])))), **at})
    elif kind == "text":
        run.log({r["name"]: wandb.Table(columns=["text"], data=[[r["text"]]]), **at})
    elif kind == "histogram":
        edges, counts = r["edges"], r["counts"]
        while len(counts) > 512:  # W&B's limit: merge neighbors
            edges = edges[:-1:2] + edges[-1:]
            counts = [sum(counts[i : i + 2]) for i in range(0, len(counts), 2)]
        run.log({r["name"]: wandb.Histogram(np_histogram=(counts, edges)), **at})
    elif kind == "finish":
        run.finish(exit_code=0 if r["status"] == "success" else 1)
