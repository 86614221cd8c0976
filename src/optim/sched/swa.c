/* SPDX-License-Identifier: Apache-2.0 */
/* SWALR: from each group's rate to that of stochastic weight averaging, over a number of epochs. */
#include "optim/sched/sched_internal.h"

/* The share of the way that the rate has gone at that epoch, from 0 to 1. */
static double share(const lc_scheduler *s, int64_t epoch)
{
    double n = s->args[1] > 1 ? s->args[1] : 1, x = (double)epoch / n;
    x = x < 0 ? 0 : x > 1 ? 1 : x;
    return s->args[2] != 0 ? x : (1 - cos(LC_PI * x)) / 2;
}

static lc_status swa_apply(lc_scheduler *s)
{
    int64_t epoch = s->args[1] == 0 && s->last_epoch < 1 ? 1 : s->last_epoch;
    double before = share(s, epoch - 1), now = share(s, epoch);
    for (int g = 0; g < s->n_groups; g++) {
        double *lr = lc__sched_lr(s, g), end = s->base_lrs[g];
        double start = before == 1 ? end : (*lr - before * end) / (1 - before);
        *lr = end * now + start * (1 - now);
    }
    return LC_OK;
}

static lc_status swa_check(lc_scheduler *s)
{
    if (s->args[0] != -1) LC_TRY(lc__sched_at_least(s, 0, 0));
    for (int g = 0; g < s->n_groups && s->args[0] != -1; g++) s->base_lrs[g] = s->args[0];
    return lc__sched_whole(s, 1, 0);
}

const lc_scheduler_ops lc__sched_swa = {
    LC_SCHEDULER_OPS_INIT,
    .name = "SWALR",
    .args = (const char *const[]){"swa_lr", "anneal_epochs", "linear", NULL},
    .defaults = (const double[]){-1, 10, 0},
    .apply = swa_apply,
    .check = swa_check,
};

lc_scheduler *lc_swa_lr_with(const lc_swa_lr_args *args)
{
    LC__TAKE(a, lc_swa_lr, lc_swa_lr_args, args, NULL);
    const double values[] = {a.swa_lr, (double)a.anneal_epochs, a.linear};
    return lc__scheduler_construct(&lc__sched_swa, a.optimizer, values, (lc__scheduler_parts){0});
}
