# SPDX-License-Identifier: Apache-2.0
"""Reads what tests/loggers/test_tensorboard.c wrote, with TensorBoard's own reader: python read_tensorboard.py RUN_DIR"""
import io
import sys

import numpy
from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import api_pb2, metadata

run = sys.argv[1]
events = event_accumulator.EventAccumulator(run, size_guidance={k: 0 for k in ("scalars", "images", "histograms", "tensors")})
events.Reload()
tags = events.Tags()

assert sorted(tags["scalars"]) == ["epoch", "hp_metric", "train_loss", "val/acc"], tags
loss = events.Scalars("train_loss")
assert [e.step for e in loss] == [0, 1, 2**40], loss
assert [e.value for e in loss[:2]] == [0.5, 0.25] and numpy.isnan(loss[2].value), loss
assert loss[0].wall_time == 1700000000.25, loss
assert [(e.step, e.value) for e in events.Scalars("epoch")] == [(0, 0.0), (1, 0.0)]
assert [(e.step, e.value) for e in events.Scalars("hp_metric")] == [(0, -1.0)]

(h,) = events.Histograms("weights")
v = h.histogram_value
assert h.step == 7 and (v.min, v.max, v.num, v.sum, v.sum_squares) == (-2.0, 3.0, 6.0, 4.0, 14.5), v
assert list(v.bucket_limit) == [-2, 0, 1, 3] and list(v.bucket) == [0, 1, 2, 3], v

(g,) = events.Images("picture")
assert (g.step, g.width, g.height) == (8, 3, 2), g
pixels = numpy.asarray(Image.open(io.BytesIO(g.encoded_image_string)))
assert pixels.shape == (2, 3, 3) and pixels.ravel().tolist() == [i * 13 % 256 for i in range(18)], pixels
(g,) = events.Images("gray")
assert numpy.asarray(Image.open(io.BytesIO(g.encoded_image_string))).tolist() == [[0, 255]]

assert "note/text_summary" in tags["tensors"], tags
(t,) = events.Tensors("note/text_summary")
assert t.step == 9 and t.tensor_proto.string_val[0].decode() == "**größer** than\nthis", t

plugin = events.summary_metadata
assert plugin["note/text_summary"].plugin_data.plugin_name == "text"
start = metadata.parse_session_start_info_plugin_data(plugin[metadata.SESSION_START_INFO_TAG].plugin_data.content)
values = {k: getattr(x, x.WhichOneof("kind")) for k, x in start.hparams.items()}
assert values == {"lr": 1e-3, "layers": 4.0, "bias": True, "name": "résnet", "clip": "None"}, values
assert start.group_name == "run-1"
experiment = metadata.parse_experiment_plugin_data(plugin[metadata.EXPERIMENT_TAG].plugin_data.content)
kinds = {i.name: i.type for i in experiment.hparam_infos}
assert kinds["lr"] == kinds["layers"] == api_pb2.DATA_TYPE_FLOAT64, kinds
assert kinds["bias"] == api_pb2.DATA_TYPE_BOOL and kinds["name"] == api_pb2.DATA_TYPE_STRING, kinds
assert [m.name.tag for m in experiment.metric_infos] == ["hp_metric"]
end = metadata.parse_session_end_info_plugin_data(plugin[metadata.SESSION_END_INFO_TAG].plugin_data.content)
assert end.status == api_pb2.STATUS_SUCCESS
print("tensorboard reads it")
