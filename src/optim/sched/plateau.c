/* SPDX-License-Identifier: Apache-2.0 */
/* ReduceLROnPlateau */
#include "optim/sched/sched_internal.h"

enum { P_MAX, P_FACTOR, P_PATIENCE, P_THRESHOLD, P_ABSOLUTE, P_COOLDOWN, P_MIN_LR, P_EPS };
enum { S_BEST, S_BAD, S_COOLDOWN };

static bool better(const lc_scheduler *s, double metric)
{
    double best = s->state[S_BEST], threshold = s->args[P_THRESHOLD];
    if (s->args[P_ABSOLUTE] != 0) return s->args[P_MAX] != 0 ? metric > best + threshold : metric < best - threshold;
    return s->args[P_MAX] != 0 ? metric > best * (1 + threshold) : metric < best * (1 - threshold);
}

static lc_status apply(lc_scheduler *s)
{
    s->state[S_BEST] = s->args[P_MAX] != 0 ? -INFINITY : INFINITY;
    s->state[S_BAD] = s->state[S_COOLDOWN] = 0;
    return LC_OK;
}

static lc_status step(lc_scheduler *s, double metric)
{
    s->last_epoch++;
    if (better(s, metric)) {
        s->state[S_BEST] = metric;
        s->state[S_BAD] = 0;
    } else {
        s->state[S_BAD] += 1;
    }
    if (s->state[S_COOLDOWN] > 0) {
        s->state[S_COOLDOWN] -= 1;
        s->state[S_BAD] = 0;
    }
    if (s->state[S_BAD] <= s->args[P_PATIENCE]) return LC_OK;
    for (int g = 0; g < s->n_groups; g++) {
        double *lr = lc__sched_lr(s, g), reduced = *lr * s->args[P_FACTOR];
        if (reduced < s->args[P_MIN_LR]) reduced = s->args[P_MIN_LR];
        if (*lr - reduced > s->args[P_EPS]) *lr = reduced;
    }
    s->state[S_COOLDOWN] = s->args[P_COOLDOWN];
    s->state[S_BAD] = 0;
    return LC_OK;
}

static lc_status check(lc_scheduler *s)
{
    LC_TRY(lc__sched_whole(s, P_PATIENCE, 0));
    LC_TRY(lc__sched_whole(s, P_COOLDOWN, 0));
    if (s->args[P_FACTOR] < 1) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "ReduceLROnPlateau: factor is %g, must be below 1", s->args[P_FACTOR]);
}

const lc_scheduler_ops lc__sched_plateau = {
    LC_SCHEDULER_OPS_INIT,
    .name = "ReduceLROnPlateau",
    .args =
        (const char *const[]){"max", "factor", "patience", "threshold", "absolute", "cooldown", "min_lr", "eps", NULL},
    .defaults = (const double[]){0, 0.1, 10, 1e-4, 0, 0, 0, 1e-8},
    .state = (const char *const[]){"best", "num_bad_epochs", "cooldown_counter", NULL},
    .apply = apply,
    .check = check,
    .step = step,
    .needs_metric = true,
};

lc_scheduler *lc_reduce_lr_on_plateau_with(const lc_reduce_lr_on_plateau_args *args)
{
    LC__TAKE(a, lc_reduce_lr_on_plateau, lc_reduce_lr_on_plateau_args, args, NULL);
    const double values[] = {a.max,      a.factor,           (double)a.patience, a.threshold,
                             a.absolute, (double)a.cooldown, a.min_lr,           a.eps};
    return lc__scheduler_construct(&lc__sched_plateau, a.optimizer, values, (lc__scheduler_parts){0});
}
