# SPDX-License-Identifier: Apache-2.0
"""Reads the file of an offline run with the messages of Weights & Biases: python read_wandb.py DIR"""
import glob
import json
import math
import struct
import sys

from wandb.proto import wandb_internal_pb2

(path,) = glob.glob(sys.argv[1] + "/wandb/offline-run-*/*.wandb")
config, history, run, code = {}, [], None, None


def scan(data):
    """LevelDB's log format: blocks of 32 KiB with pieces of records; 7 bytes in front name the file."""
    at, record = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def key(item):
    return item.key or "/".join(item.nested_key)


for data in scan(open(path, "rb").read()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "run":
        run = record.run
        config.update({key(i): json.loads(i.value_json) for i in record.run.config.update})
    elif kind == "config":
        config.update({key(i): json.loads(i.value_json) for i in record.config.update})
    elif kind == "history":
        history.append({key(i): json.loads(i.value_json) for i in record.history.item})
    elif kind == "exit":
        code = record.exit.exit_code

assert run.run_id == "run-1" and run.project == "study" and run.display_name == "lightning_logs-3", run
assert {k: config[k] for k in ("lr", "layers", "bias", "name", "clip")} == {
    "lr": 0.001, "layers": 4, "bias": True, "name": "résnet", "clip": None}, config
rows = [h for h in history if "train_loss" in h]
assert [h["trainer/global_step"] for h in rows] == [0, 1, 2**40], rows
assert [h["train_loss"] for h in rows[:2]] == [0.5, 0.25] and math.isnan(float(rows[2]["train_loss"])), rows
assert rows[0]["val/acc"] == 1 and rows[0]["epoch"] == 0, rows
merged = {k: v for h in history for k, v in h.items()}
assert merged["weights/values"] == [1, 2, 3] and merged["weights/bins"] == [-2, 0, 1, 3], merged
assert (merged["picture/width"], merged["picture/height"]) == (3, 2) and merged["note/_type"] == "table-file", merged
assert code == 0, code
print("wandb has it")
