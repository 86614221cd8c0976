/* SPDX-License-Identifier: Apache-2.0 */
/* OneCycleLR, CyclicLR: they move the momentum (or beta1) against the rate. */
#include "optim/optim_internal.h"
#include "optim/sched/sched_internal.h"

/* ---- OneCycleLR ---- */

enum { O_MAX, O_TOTAL, O_PCT, O_LINEAR, O_MOMENTUM, O_BASE_M, O_MAX_M, O_DIV, O_FINAL_DIV, O_THREE };

/* One phase of the cycle: its end, and the values between which it moves. */
typedef struct phase {
    double end, lr_from, lr_to, momentum_from, momentum_to;
} phase;

static int one_cycle_phases(const lc_scheduler *s, phase out[3])
{
    const double *a = s->args;
    double top = a[O_MAX], first = top / a[O_DIV], last = first / a[O_FINAL_DIV], up = a[O_PCT] * a[O_TOTAL];
    out[0] = (phase){up - 1, first, top, a[O_MAX_M], a[O_BASE_M]};
    if (a[O_THREE] == 0) {
        out[1] = (phase){a[O_TOTAL] - 1, top, last, a[O_BASE_M], a[O_MAX_M]};
        return 2;
    }
    out[1] = (phase){2 * up - 2, top, first, a[O_BASE_M], a[O_MAX_M]};
    out[2] = (phase){a[O_TOTAL] - 1, first, last, a[O_MAX_M], a[O_MAX_M]};
    return 3;
}

static double anneal(const lc_scheduler *s, double from, double to, double part)
{
    if (s->args[O_LINEAR] != 0) return (to - from) * part + from;
    return to + (from - to) / 2 * (1 + cos(LC_PI * part));
}

static lc_status one_cycle_apply(lc_scheduler *s)
{
    phase phases[3];
    int n = one_cycle_phases(s, phases), i = 0;
    double epoch = (double)s->last_epoch, start = 0;
    if (s->initial) {
        for (int g = 0; g < s->n_groups; g++) {
            s->base_lrs[g] = phases[0].lr_from;
            s->optimizer->groups[g].initial_lr = phases[0].lr_from;
        }
    }
    if (epoch > s->args[O_TOTAL]) {
        return lc_fail(LC_ERR_STATE, "OneCycleLR was stepped %lld times; it was made for total_steps = %g",
                       (long long)s->last_epoch, s->args[O_TOTAL]);
    }
    for (; i < n - 1 && epoch > phases[i].end; i++) start = phases[i].end;
    double part = (epoch - start) / (phases[i].end - start);
    for (int g = 0; g < s->n_groups; g++) *lc__sched_lr(s, g) = anneal(s, phases[i].lr_from, phases[i].lr_to, part);
    if (s->args[O_MOMENTUM] == 0) return LC_OK;
    return lc__sched_set_momentum(s, anneal(s, phases[i].momentum_from, phases[i].momentum_to, part));
}

static lc_status one_cycle_check(lc_scheduler *s)
{
    LC_TRY(lc__sched_whole(s, O_TOTAL, 1));
    if (!(s->args[O_PCT] >= 0 && s->args[O_PCT] <= 1)) {
        return lc_fail(LC_ERR_ARGUMENT, "OneCycleLR: pct_start is %g, must be in [0, 1]", s->args[O_PCT]);
    }
    return LC_OK;
}

const lc_scheduler_ops lc__sched_one_cycle = {
    LC_SCHEDULER_OPS_INIT,
    .name = "OneCycleLR",
    .args = (const char *const[]){"max_lr", "total_steps", "pct_start", "linear", "cycle_momentum", "base_momentum",
                                  "max_momentum", "div_factor", "final_div_factor", "three_phase", NULL},
    .defaults = (const double[]){NAN, NAN, 0.3, 0, 1, 0.85, 0.95, 25, 1e4, 0},
    .apply = one_cycle_apply,
    .check = one_cycle_check,
};

lc_scheduler *lc_one_cycle_lr_with(const lc_one_cycle_lr_args *args)
{
    LC__TAKE(a, lc_one_cycle_lr, lc_one_cycle_lr_args, args, NULL);
    int64_t total = a.total_steps ? a.total_steps : a.epochs * a.steps_per_epoch;
    const double values[] = {a.max_lr,
                             total ? (double)total : NAN,
                             a.pct_start,
                             a.linear,
                             !a.no_cycle_momentum,
                             a.base_momentum,
                             a.max_momentum,
                             a.div_factor,
                             a.final_div_factor,
                             a.three_phase};
    return lc__scheduler_construct(&lc__sched_one_cycle, a.optimizer, values, (lc__scheduler_parts){0});
}

/* ---- CyclicLR ---- */

enum { C_BASE, C_MAX, C_UP, C_DOWN, C_MODE, C_GAMMA, C_MOMENTUM, C_BASE_M, C_MAX_M };

static lc_status cyclic_apply(lc_scheduler *s)
{
    const double *a = s->args;
    double epoch = (double)s->last_epoch, down = a[C_DOWN] >= 0 ? a[C_DOWN] : a[C_UP], total = a[C_UP] + down;
    double cycle = floor(1 + epoch / total), x = 1 + epoch / total - cycle, ratio = a[C_UP] / total;
    double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    if (a[C_MODE] == LC_TRIANGULAR2)
        height *= pow(2, 1 - cycle);
    else if (a[C_MODE] == LC_EXP_RANGE)
        height *= pow(a[C_GAMMA], epoch);
    for (int g = 0; g < s->n_groups; g++) {
        lc_param_group *group = &s->optimizer->groups[g];
        if (s->initial) s->base_lrs[g] = a[C_BASE];
        if (s->initial && !lc__optimizer_scheduled(s->optimizer)) group->initial_lr = a[C_BASE];
        /* After other schedules it begins with their initial rate, as in PyTorch. */
        double base = s->initial ? group->initial_lr : a[C_BASE];
        *lc__sched_lr(s, g) = base + (a[C_MAX] - base) * height;
    }
    return a[C_MOMENTUM] == 0 ? LC_OK : lc__sched_set_momentum(s, a[C_MAX_M] - (a[C_MAX_M] - a[C_BASE_M]) * height);
}

static lc_status cyclic_check(lc_scheduler *s)
{
    LC_TRY(lc__sched_whole(s, C_UP, 1));
    LC_TRY(lc__sched_whole(s, C_DOWN, -1));
    if (s->args[C_MODE] != LC_TRIANGULAR && s->args[C_MODE] != LC_TRIANGULAR2 && s->args[C_MODE] != LC_EXP_RANGE) {
        return lc_fail(LC_ERR_ARGUMENT,
                       "CyclicLR: mode is %g, must be 0 (triangular), 1 (triangular2) or 2 (exp_range)",
                       s->args[C_MODE]);
    }
    return LC_OK;
}

const lc_scheduler_ops lc__sched_cyclic = {
    LC_SCHEDULER_OPS_INIT,
    .name = "CyclicLR",
    .args = (const char *const[]){"base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma",
                                  "cycle_momentum", "base_momentum", "max_momentum", NULL},
    .defaults = (const double[]){NAN, NAN, 2000, -1, LC_TRIANGULAR, 1, 1, 0.8, 0.9},
    .apply = cyclic_apply,
    .check = cyclic_check,
};

lc_scheduler *lc_cyclic_lr_with(const lc_cyclic_lr_args *args)
{
    LC__TAKE(a, lc_cyclic_lr, lc_cyclic_lr_args, args, NULL);
    const double values[] = {a.base_lr,      a.max_lr, (double)a.step_size_up, (double)a.step_size_down,
                             (double)a.mode, a.gamma,  !a.no_cycle_momentum,   a.base_momentum,
                             a.max_momentum};
    return lc__scheduler_construct(&lc__sched_cyclic, a.optimizer, values, (lc__scheduler_parts){0});
}
