# SPDX-License-Identifier: Apache-2.0
"""Runs torch.optim.LBFGS on the same function and compares the parameters after each step.

    lbfgs.py DIR

DIR/lbfgs.txt: a line per step, "line_search lr max_iter history_size x0 x1 ...". The function is Rosenbrock's, the
start sin(1), sin(2), ...; all in f64."""
import sys

import torch

torch.set_default_dtype(torch.float64)
cases = {}
for line in open(sys.argv[1] + "/lbfgs.txt"):
    search, lr, max_iter, history, *x = line.split()
    cases.setdefault((search, float(lr), int(max_iter), int(history)), []).append([float(v) for v in x])
bad = not cases
for (search, lr, max_iter, history), got in cases.items():
    x = torch.sin(torch.arange(1, len(got[0]) + 1, dtype=torch.float64)).requires_grad_()
    opt = torch.optim.LBFGS([x], lr=lr, max_iter=max_iter, history_size=history,
                            line_search_fn="strong_wolfe" if search == "strong_wolfe" else None)

    def closure():
        opt.zero_grad()
        loss = ((1 - x[:-1]) ** 2).sum() + 100 * ((x[1:] - x[:-1] ** 2) ** 2).sum()
        loss.backward()
        return loss

    for step, values in enumerate(got):
        opt.step(closure)
        want = x.detach()
        error = ((torch.tensor(values) - want).abs() / want.abs().clamp(min=1)).max().item()
        if not error < 1e-6:
            print(f"LBFGS {search} lr {lr}: step {step} differs by {error:g}: {values[:3]} {want[:3].tolist()}")
            bad = True
            break
sys.exit(1 if bad else 0)
