# SPDX-License-Identifier: Apache-2.0
"""Trains the same network from the same weights on the same batches and compares losses.

    train.py DIR

DIR: run.json (the run, and lightc's losses), start.safetensors, data.safetensors (x, y of all batches in order),
end.safetensors. Losses may differ by 1e-3 of their value."""
import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(784, 128), nn.Linear(128, 10)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x.flatten(1))))


class FashionCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.c2, self.b2 = nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64)
        self.fc1, self.fc2, self.fc3 = nn.Linear(64 * 6 * 6, 600), nn.Linear(600, 120), nn.Linear(120, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.b2(self.c2(x))), 2)
        return self.fc3(self.fc2(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(w), nn.LayerNorm(w)
        self.qkv, self.proj = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.up, self.down = nn.Linear(w, 4 * w), nn.Linear(4 * w, w)

    def forward(self, x, heads):
        b, t, w = x.shape
        q, k, v = (y.view(b, t, heads, w // heads).transpose(1, 2) for y in self.qkv(self.n1(x)).split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers=2, heads=2, width=32, context=16, vocabulary=11):
        super().__init__()
        self.layers, self.heads = layers, heads
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        for i in range(layers):
            self.add_module(str(i), Block(width))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[:ids.shape[1]]
        for i in range(self.layers):
            x = getattr(self, str(i))(x, self.heads)
        return F.linear(self.norm(x), self.tok.weight)


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(28, 24, batch_first=True), nn.Linear(24, 10)

    def forward(self, x):
        return self.out(self.rnn(x.view(-1, 28, 28))[0][:, 27])


MODELS = dict(mlp=MLP, fashion=FashionCNN, gpt_small=GPT, lstm=LSTM)


def main(folder):
    run = json.load(open(folder + "/run.json"))
    data = load_file(folder + "/data.safetensors")
    model = MODELS[run["model"]]()
    model.load_state_dict(load_file(folder + "/start.safetensors"), strict=True)
    optimizer = getattr(torch.optim, run["optimizer"])(model.parameters(), **run["args"])
    worst, at, losses, n = 0.0, 0, [], run["batch"]
    for i, ours in enumerate(run["losses"]):
        x, y = data["x"][n * i:n * (i + 1)], data["y"][n * i:n * (i + 1)]
        logits = model(x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        if run["clip"]:
            nn.utils.clip_grad_norm_(model.parameters(), run["clip"])
        optimizer.step()
        losses.append(loss.item())
        off = abs(ours - losses[-1]) / abs(losses[-1])
        if not off <= worst:
            worst, at = off, i
    ok = worst <= 1e-3 and losses[-1] < losses[0]
    end = load_file(folder + "/end.safetensors")
    drift = 0.0
    for k, v in model.state_dict().items():
        if v.is_floating_point():
            drift = max(drift, ((v - end[k]).norm() / v.norm().clamp_min(1e-3)).item())
        else:
            ok = ok and bool((v == end[k]).all())
    print(f"  {run['model']} {run['optimizer']}: {len(losses)} losses, {losses[0]:.4f} to {losses[-1]:.4f}; greatest "
          f"difference {worst:.2g} at step {at} ({run['losses'][at]:.6g}, PyTorch {losses[at]:.6g}); weights {drift:.2g}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
