/* SPDX-License-Identifier: Apache-2.0 */
/* CosineAnnealingLR, CosineAnnealingWarmRestarts */
#include "optim/sched/sched_internal.h"

/* ---- CosineAnnealingLR: T_max, eta_min ---- */

static lc_status cosine_apply(lc_scheduler *s)
{
    int64_t t_max = (int64_t)s->args[0], epoch = s->last_epoch;
    double period = s->args[0], low = s->args[1];
    if (epoch == 0) return LC_OK;
    for (int g = 0; g < s->n_groups; g++) {
        double *lr = lc__sched_lr(s, g);
        if ((epoch - 1 - t_max) % (2 * t_max) == 0) {
            /* The recursion divides by zero at the minimum; from there the rate rises by its first step. */
            *lr += (s->base_lrs[g] - low) * (1 - cos(LC_PI / period)) / 2;
        } else {
            *lr = (1 + cos(LC_PI * (double)epoch / period)) / (1 + cos(LC_PI * (double)(epoch - 1) / period)) *
                      (*lr - low) +
                  low;
        }
    }
    return LC_OK;
}

static double cosine_closed(const lc_scheduler *s, int g)
{
    return s->args[1] + (s->base_lrs[g] - s->args[1]) * (1 + cos(LC_PI * (double)s->last_epoch / s->args[0])) / 2;
}

static lc_status cosine_check(lc_scheduler *s)
{
    return lc__sched_whole(s, 0, 1);
}

const lc_scheduler_ops lc__sched_cosine = {
    LC_SCHEDULER_OPS_INIT,
    .name = "CosineAnnealingLR",
    .args = (const char *const[]){"T_max", "eta_min", NULL},
    .defaults = (const double[]){NAN, 0},
    .apply = cosine_apply,
    .check = cosine_check,
    .closed_form = cosine_closed,
};

lc_scheduler *lc_cosine_annealing_lr_with(const lc_cosine_annealing_lr_args *args)
{
    LC__TAKE(a, lc_cosine_annealing_lr, lc_cosine_annealing_lr_args, args, NULL);
    const double values[] = {a.T_max ? (double)a.T_max : NAN, a.eta_min};
    return lc__scheduler_construct(&lc__sched_cosine, a.optimizer, values, (lc__scheduler_parts){0});
}

/* ---- CosineAnnealingWarmRestarts: T_0, T_mult, eta_min; state: T_cur, T_i ---- */

enum { T_CUR = 0, T_I = 1 };

static lc_status restarts_apply(lc_scheduler *s)
{
    double low = s->args[2];
    if (s->last_epoch == 0) {
        s->state[T_CUR] = 0;
        s->state[T_I] = s->args[0];
    }
    for (int g = 0; g < s->n_groups; g++) {
        *lc__sched_lr(s, g) = low + (s->base_lrs[g] - low) * (1 + cos(LC_PI * s->state[T_CUR] / s->state[T_I])) / 2;
    }
    return LC_OK;
}

static lc_status restarts_step(lc_scheduler *s, double metric)
{
    (void)metric;
    s->last_epoch++;
    s->state[T_CUR] += 1;
    if (s->state[T_CUR] >= s->state[T_I]) {
        s->state[T_CUR] -= s->state[T_I];
        s->state[T_I] *= s->args[1];
    }
    return restarts_apply(s);
}

static lc_status restarts_check(lc_scheduler *s)
{
    LC_TRY(lc__sched_whole(s, 0, 1));
    return lc__sched_whole(s, 1, 1);
}

const lc_scheduler_ops lc__sched_warm_restarts = {
    LC_SCHEDULER_OPS_INIT,
    .name = "CosineAnnealingWarmRestarts",
    .args = (const char *const[]){"T_0", "T_mult", "eta_min", NULL},
    .defaults = (const double[]){NAN, 1, 0},
    .state = (const char *const[]){"T_cur", "T_i", NULL},
    .apply = restarts_apply,
    .check = restarts_check,
    .step = restarts_step,
};

lc_scheduler *lc_cosine_annealing_warm_restarts_with(const lc_cosine_annealing_warm_restarts_args *args)
{
    LC__TAKE(a, lc_cosine_annealing_warm_restarts, lc_cosine_annealing_warm_restarts_args, args, NULL);
    const double values[] = {a.T_0 ? (double)a.T_0 : NAN, (double)a.T_mult, a.eta_min};
    return lc__scheduler_construct(&lc__sched_warm_restarts, a.optimizer, values, (lc__scheduler_parts){0});
}
