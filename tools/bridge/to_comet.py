# SPDX-License-Identifier: Apache-2.0
"""Forwards runs to Comet: --logger "csv,stream:|python3 to_comet.py PROJECT" (docs/loggers.md)"""
import base64
import io
import json
import sys

import comet_ml
from PIL import Image

run = None
for line in sys.stdin:
    r = json.loads(line)
    kind = r["type"]
    if kind == "start":
        run = comet_ml.start(project_name=sys.argv[1] if len(sys.argv) > 1 else r["name"])
        run.set_name(f"{r['name']}-{r['version']}")
        run.log_others({"run_id": r["run_id"], "run_dir": r["run_dir"]})
        run.log_parameters(r["options"], prefix="trainer")
    elif kind == "hparams":
        run.log_parameters(r["values"])
    elif kind == "row":
        run.log_metrics({k: float(v) for k, v in r["values"].items()}, step=r["step"], epoch=r.get("epoch"))
    elif kind == "image":
        run.log_image(Image.open(io.BytesIO(base64.b64decode(r["png"]))), name=r["name"], step=r["step"])
    elif kind == "text":
        run.log_text(r["text"], step=r["step"], metadata={"name": r["name"]})
    elif kind == "histogram":
        run.log_asset_data(r, name=f"histograms/{r['name']}/{r['step']}.json", step=r["step"])
    elif kind == "finish":
        run.log_other("status", r["status"])
        run.end()
