# SPDX-License-Identifier: Apache-2.0
"""The layers of tests/torch/test_torch.c in PyTorch.

    zoo.py DIR

Loads DIR/zoo.ckpt/model.safetensors with load_state_dict(strict=True), computes the same forwards from
DIR/inputs.safetensors and compares with DIR/results.safetensors; then writes weights of its own
(DIR/back.safetensors) and PyTorch's results (DIR/back_results.safetensors)."""
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn


def zoo():
    return nn.ModuleDict(dict(
        linear=nn.Linear(5, 7),
        linear_bare=nn.Linear(5, 7, bias=False),
        conv1d=nn.Conv1d(4, 6, 3, groups=2, stride=2, padding=1, dilation=2),
        conv2d=nn.Conv2d(3, 16, 3, padding=1),
        conv2d_wide=nn.Conv2d(8, 8, (1, 5), stride=(1, 2), padding=(0, 2), groups=8, bias=False),
        conv3d=nn.Conv3d(2, 3, 2, stride=2, padding=1),
        conv_transpose1d=nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1),
        conv_transpose2d=nn.ConvTranspose2d(8, 6, 4, groups=2, stride=2, padding=1, dilation=2),
        conv_transpose2d_padded=nn.ConvTranspose2d(4, 6, 3, stride=2, dilation=3, output_padding=2),
        conv_transpose3d=nn.ConvTranspose3d(2, 3, 2, stride=2, bias=False),
        batch_norm1d=nn.BatchNorm1d(6),
        batch_norm1d_line=nn.BatchNorm1d(5, eps=1e-3, momentum=0.3),
        batch_norm2d=nn.BatchNorm2d(16),
        batch_norm2d_bare=nn.BatchNorm2d(4, affine=False),
        batch_norm2d_untracked=nn.BatchNorm2d(4, track_running_stats=False),
        batch_norm3d=nn.BatchNorm3d(3),
        layer_norm=nn.LayerNorm(9),
        layer_norm_plane=nn.LayerNorm((3, 5), bias=False, eps=1e-3),
        rms_norm=nn.RMSNorm(9),
        group_norm=nn.GroupNorm(4, 8),
        embedding=nn.Embedding(11, 6),
        embedding_padded=nn.Embedding(11, 6, padding_idx=3),
        attention=nn.MultiheadAttention(16, 4, batch_first=True),
        attention_causal=nn.MultiheadAttention(16, 2, bias=False, batch_first=True),
        attention_seq_first=nn.MultiheadAttention(16, 4),
        lstm=nn.LSTM(6, 5, batch_first=True),
        lstm_deep=nn.LSTM(6, 5, num_layers=3, bidirectional=True, batch_first=True),
        lstm_bare=nn.LSTM(6, 8, num_layers=2, bias=False),
        gru=nn.GRU(6, 5, batch_first=True),
        gru_deep=nn.GRU(6, 5, num_layers=2, bidirectional=True, batch_first=True),
        gru_bare=nn.GRU(6, 8, bidirectional=True, bias=False),
        sequential=nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.MaxPool2d(2),
                                 nn.Dropout(0.0), nn.Flatten(1), nn.Linear(8 * 16, 10)),
    ))


def forward(name, layer, x):
    if isinstance(layer, nn.MultiheadAttention):
        q, k, v = x if len(x) == 3 else (x[0],) * 3
        mask = nn.Transformer.generate_square_subsequent_mask(q.shape[1]) if name.endswith("causal") else None
        return [layer(q, k, v, attn_mask=mask, need_weights=False)[0]]
    if isinstance(layer, nn.LSTM):
        y, (h, c) = layer(x[0], (x[1], x[2]) if len(x) > 1 else None)
        return [y, h, c]
    if isinstance(layer, nn.GRU):
        return list(layer(*x))
    return [layer(*x)]


def results(model, inputs):
    """Evaluation, then training mode, then the state afterwards."""
    out = {}
    with torch.no_grad():
        for mode in ("eval", "train"):
            model.train(mode == "train")
            for name, layer in model.items():
                x = [inputs[k] for k in (f"{name}.in{i}" for i in range(3)) if k in inputs]
                for i, y in enumerate(forward(name, layer, x)):
                    out[f"{mode}.{name}.out{i}"] = y.contiguous()
    out.update((k, v.contiguous()) for k, v in model.state_dict().items())
    return out


def main(folder):
    inputs = load_file(folder + "/inputs.safetensors")
    model = zoo()
    weights = load_file(folder + "/zoo.ckpt/model.safetensors")
    model.load_state_dict(weights, strict=True)
    assert all(weights[k].dtype == v.dtype and weights[k].shape == v.shape for k, v in model.state_dict().items())
    got, want, bad = load_file(folder + "/results.safetensors"), results(model, inputs), 0
    for k in sorted(set(got) ^ set(want)):
        bad += 1
        print(f"  {k}: only in", "PyTorch" if k in want else "lightc")
    for k in sorted(set(got) & set(want)):
        a, b = got[k], want[k]
        if a.shape != b.shape or a.dtype != b.dtype:
            bad += 1
            print(f"  {k}: {a.dtype} {list(a.shape)} in lightc, {b.dtype} {list(b.shape)} in PyTorch")
            continue
        off = (a.double() - b.double()).abs().max().item() / max(1.0, b.double().abs().max().item())
        if not off <= (1e-5 if a.is_floating_point() else 0):
            bad += 1
            print(f"  {k}: off by {off:.3g}")
    torch.manual_seed(9)
    model = zoo()
    with torch.no_grad():  # statistics and scales that are not all zero or one
        for p in model.state_dict().values():
            if p.dtype == torch.float32:
                p.add_(torch.rand_like(p) * 0.5)
            else:
                p.add_(41)
    save_file({k: v.clone() for k, v in model.state_dict().items()}, folder + "/back.safetensors")
    save_file({k: v.clone() for k, v in results(model, inputs).items()}, folder + "/back_results.safetensors")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
