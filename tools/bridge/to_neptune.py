# SPDX-License-Identifier: Apache-2.0
"""Forwards runs to Neptune: --logger "csv,stream:|python3 to_neptune.py WORKSPACE/PROJECT" (docs/loggers.md)"""
import base64
import io
import json
import math
import sys

import neptune
from neptune.types import File
from PIL import Image

run = None
for line in sys.stdin:
    r = json.loads(line)
    kind = r["type"]
    if kind == "start":
        name = f"{r['name']}-{r['version']}"
        run = neptune.init_run(project=sys.argv[1] if len(sys.argv) > 1 else None, custom_run_id=r["run_id"][:36], name=name)
        run["trainer"] = {k: str(v) for k, v in r["options"].items()}
    elif kind == "hparams":
        for k, v in r["values"].items():
            run[f"hyperparameters/{k}"] = "None" if v is None else v
    elif kind == "row":
        for k, v in {**r["values"], **({"epoch": r["epoch"]} if "epoch" in r else {})}.items():
            if math.isfinite(float(v)):  # Neptune accepts only finite values
                run[f"metrics/{k}"].append(float(v), step=r["step"], timestamp=r["time"])
    elif kind == "image":
        run[f"images/{r['name']}"].append(File.as_image(Image.open(io.BytesIO(base64.b64decode(r["png"])))), step=r["step"])
    elif kind == "text":
        run[f"texts/{r['name']}"].append(r["text"], step=r["step"])
    elif kind == "histogram":
        run[f"histograms/{r['name']}/{r['step']}"].upload(File.from_content(json.dumps(r), extension="json"))
    elif kind == "finish":
        run["status"] = r["status"]
        run.stop()
