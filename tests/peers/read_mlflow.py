# SPDX-License-Identifier: Apache-2.0
"""Checks with MLflow's own client what tests/loggers/test_mlflow.c sent to its server: python read_mlflow.py URI"""
import io
import math
import sys
import tempfile

import mlflow
import numpy
from PIL import Image

mlflow.set_tracking_uri(sys.argv[1])
client = mlflow.MlflowClient()
(experiment,) = [e for e in client.search_experiments() if e.name == "a study, über all"]
runs = {r.data.tags["lightc.run_id"]: r for r in client.search_runs([experiment.experiment_id])}
assert sorted(runs) == ["run-1", "run-2"], runs

run = runs["run-1"]
assert run.info.status == "FINISHED" and run.info.run_name == "version_3", run.info
assert run.data.params == {"lr": "0.001", "layers": "4", "bias": "True", "name": "résnet", "clip": "None"}, run.data.params
loss = client.get_metric_history(run.info.run_id, "train_loss")
assert [(m.step, m.timestamp) for m in loss] == [(0, 1700000000250), (1, 1700000001250), (2**40, 1700000002250)], loss
assert [m.value for m in loss[:2]] == [0.5, 0.25] and math.isnan(loss[2].value), loss
assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "epoch")] == [(0, 0), (1, 0)]
assert run.data.metrics["val/acc"] == 1
assert run.data.tags["lightc.checkpoint"].endswith("/epoch=0-step=1.ckpt"), run.data.tags


def fetch(path):
    with tempfile.TemporaryDirectory() as folder:
        return open(client.download_artifacts(run.info.run_id, path, folder), "rb").read()


pixels = numpy.asarray(Image.open(io.BytesIO(fetch("images/picture/8.png"))))
assert pixels.ravel().tolist() == [i * 13 % 256 for i in range(18)], pixels
assert fetch("texts/note/9.txt").decode() == "**größer** than\nthis"
assert b'"counts":[1.0,2.0,3.0]' in fetch("histograms/weights/7.json")
assert fetch("checkpoints/epoch=0-step=1.ckpt/state.json") == b"{}"

# A run whose process was killed while the server was away; the next run sent what it left.
other = runs["run-2"]
assert other.info.status == "KILLED", other.info
assert [m.step for m in client.get_metric_history(other.info.run_id, "x")] == list(range(100))
print("mlflow has it")
