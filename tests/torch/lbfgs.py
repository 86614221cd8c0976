# SPDX-License-Identifier: Apache-2.0
"""Runs torch.optim.LBFGS on the same functions and compares the parameters after each step.

    lbfgs.py DIR

DIR/lbfgs.txt: a line per step, "function line_search lr max_iter max_eval history_size x0 x1 ...", where max_eval 0 is
the default. Each starts at sin(1), sin(2), ...; all in f64."""
import sys

import torch

torch.set_default_dtype(torch.float64)
INPUTS = (0.25 * (torch.arange(8.0) - 4)).reshape(8, 1)


def rosenbrock(x):
    return ((1 - x[:-1]) ** 2).sum() + 100 * ((x[1:] - x[:-1] ** 2) ** 2).sum()


def quadratic(x):
    return (2.0 ** torch.arange(len(x)) * (x - 1) ** 2).sum()


def net(x):
    return ((torch.tanh(INPUTS * x[0:2] + x[2:4]) @ x[4:6, None] - torch.sin(3 * INPUTS)) ** 2).mean()


FUNCTIONS = {"rosenbrock": rosenbrock, "quadratic": quadratic, "net": net}
cases = {}
for line in open(sys.argv[1] + "/lbfgs.txt"):
    function, search, lr, max_iter, max_eval, history, *x = line.split()
    cases.setdefault((function, search, float(lr), int(max_iter), int(max_eval), int(history)), []).append(
        [float(v) for v in x])
bad = not cases
for (function, search, lr, max_iter, max_eval, history), got in cases.items():
    x = torch.sin(torch.arange(1, len(got[0]) + 1, dtype=torch.float64)).requires_grad_()
    opt = torch.optim.LBFGS([x], lr=lr, max_iter=max_iter, max_eval=max_eval or None, history_size=history,
                            line_search_fn="strong_wolfe" if search == "strong_wolfe" else None)

    def closure():
        opt.zero_grad()
        loss = FUNCTIONS[function](x)
        loss.backward()
        return loss

    for step, values in enumerate(got):
        opt.step(closure)
        want = x.detach()
        error = ((torch.tensor(values) - want).abs() / want.abs().clamp(min=1)).max().item()
        if not error < 1e-6:
            print(f"LBFGS {search} on {function}, lr {lr}, max_iter {max_iter}, max_eval {max_eval}: step {step} "
                  f"differs by {error:g}: {values[:3]} {want[:3].tolist()}")
            bad = True
            break
sys.exit(1 if bad else 0)
