/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules that multiply the current rate: StepLR, MultiStepLR, ExponentialLR, ConstantLR, LinearLR, PolynomialLR; and
 * LambdaLR. */
#include "optim/sched/sched_internal.h"

static lc_status scale(lc_scheduler *s, double factor)
{
    for (int g = 0; g < s->n_groups; g++) *lc__sched_lr(s, g) *= factor;
    return LC_OK;
}

/* ---- StepLR ---- */

static lc_status step_apply(lc_scheduler *s)
{
    int64_t size = (int64_t)s->args[0];
    return s->last_epoch == 0 || s->last_epoch % size ? LC_OK : scale(s, s->args[1]);
}

static double step_closed(const lc_scheduler *s, int g)
{
    return s->base_lrs[g] * pow(s->args[1], (double)(s->last_epoch / (int64_t)s->args[0]));
}

static lc_status step_check(lc_scheduler *s)
{
    return lc__sched_whole(s, 0, 1);
}

const lc_scheduler_ops lc__sched_step = {
    LC_SCHEDULER_OPS_INIT,
    .name = "StepLR",
    .args = (const char *const[]){"step_size", "gamma", NULL},
    .defaults = (const double[]){NAN, 0.1},
    .apply = step_apply,
    .check = step_check,
    .closed_form = step_closed,
};

lc_scheduler *lc_step_lr_with(const lc_step_lr_args *args)
{
    LC__TAKE(a, lc_step_lr, lc_step_lr_args, args, NULL);
    const double values[] = {a.step_size ? (double)a.step_size : NAN, a.gamma};
    return lc__scheduler_construct(&lc__sched_step, a.optimizer, values, (lc__scheduler_parts){0});
}

/* ---- MultiStepLR ---- */

static lc_status multi_step_apply(lc_scheduler *s)
{
    int count = 0;
    for (int i = 0; i < s->n_milestones; i++) count += s->milestones[i] == s->last_epoch;
    return count ? scale(s, pow(s->args[0], count)) : LC_OK;
}

static double multi_step_closed(const lc_scheduler *s, int g)
{
    int count = 0;
    for (int i = 0; i < s->n_milestones; i++) count += s->milestones[i] <= s->last_epoch;
    return s->base_lrs[g] * pow(s->args[0], count);
}

const lc_scheduler_ops lc__sched_multi_step = {
    LC_SCHEDULER_OPS_INIT,
    .name = "MultiStepLR",
    .args = (const char *const[]){"gamma", NULL},
    .defaults = (const double[]){0.1},
    .apply = multi_step_apply,
    .closed_form = multi_step_closed,
};

lc_scheduler *lc_multi_step_lr_with(const lc_multi_step_lr_args *args)
{
    LC__TAKE(a, lc_multi_step_lr, lc_multi_step_lr_args, args, NULL);
    const double values[] = {a.gamma};
    return lc__scheduler_construct(&lc__sched_multi_step, a.optimizer, values,
                                   (lc__scheduler_parts){.milestones = a.milestones, .n_milestones = a.n_milestones});
}

/* ---- ExponentialLR ---- */

static lc_status exponential_apply(lc_scheduler *s)
{
    return s->last_epoch == 0 ? LC_OK : scale(s, s->args[0]);
}

static double exponential_closed(const lc_scheduler *s, int g)
{
    return s->base_lrs[g] * pow(s->args[0], (double)s->last_epoch);
}

const lc_scheduler_ops lc__sched_exponential = {
    LC_SCHEDULER_OPS_INIT,
    .name = "ExponentialLR",
    .args = (const char *const[]){"gamma", NULL},
    .defaults = (const double[]){NAN},
    .apply = exponential_apply,
    .closed_form = exponential_closed,
};

lc_scheduler *lc_exponential_lr_with(const lc_exponential_lr_args *args)
{
    LC__TAKE(a, lc_exponential_lr, lc_exponential_lr_args, args, NULL);
    const double values[] = {a.gamma};
    return lc__scheduler_construct(&lc__sched_exponential, a.optimizer, values, (lc__scheduler_parts){0});
}

/* ---- ConstantLR ---- */

static lc_status constant_apply(lc_scheduler *s)
{
    if (s->last_epoch == 0) return scale(s, s->args[0]);
    return s->last_epoch == (int64_t)s->args[1] ? scale(s, 1 / s->args[0]) : LC_OK;
}

static double constant_closed(const lc_scheduler *s, int g)
{
    return s->base_lrs[g] * (s->last_epoch >= (int64_t)s->args[1] ? 1 : s->args[0]);
}

static lc_status constant_check(lc_scheduler *s)
{
    if (!(s->args[0] > 0 && s->args[0] <= 1)) {
        return lc_fail(LC_ERR_ARGUMENT, "ConstantLR: factor is %g, must be in (0, 1]", s->args[0]);
    }
    return lc__sched_whole(s, 1, 0);
}

const lc_scheduler_ops lc__sched_constant = {
    LC_SCHEDULER_OPS_INIT,
    .name = "ConstantLR",
    .args = (const char *const[]){"factor", "total_iters", NULL},
    .defaults = (const double[]){1.0 / 3, 5},
    .apply = constant_apply,
    .check = constant_check,
    .closed_form = constant_closed,
};

lc_scheduler *lc_constant_lr_with(const lc_constant_lr_args *args)
{
    LC__TAKE(a, lc_constant_lr, lc_constant_lr_args, args, NULL);
    const double values[] = {a.factor, (double)a.total_iters};
    return lc__scheduler_construct(&lc__sched_constant, a.optimizer, values, (lc__scheduler_parts){0});
}

/* ---- LinearLR ---- */

static lc_status linear_apply(lc_scheduler *s)
{
    double start = s->args[0], end = s->args[1], total = s->args[2], epoch = (double)s->last_epoch;
    if (s->last_epoch == 0) return scale(s, start);
    if (epoch > total) return LC_OK;
    return scale(s, 1 + (end - start) / (total * start + (epoch - 1) * (end - start)));
}

static double linear_closed(const lc_scheduler *s, int g)
{
    double start = s->args[0], end = s->args[1], total = s->args[2], epoch = (double)s->last_epoch;
    return s->base_lrs[g] * (start + (end - start) * (epoch < total ? epoch / total : 1));
}

static lc_status linear_check(lc_scheduler *s)
{
    if (!(s->args[0] > 0 && s->args[0] <= 1 && s->args[1] >= 0 && s->args[1] <= 1)) {
        return lc_fail(LC_ERR_ARGUMENT, "LinearLR: start_factor %g must be in (0, 1] and end_factor %g in [0, 1]",
                       s->args[0], s->args[1]);
    }
    return lc__sched_whole(s, 2, 1);
}

const lc_scheduler_ops lc__sched_linear = {
    LC_SCHEDULER_OPS_INIT,
    .name = "LinearLR",
    .args = (const char *const[]){"start_factor", "end_factor", "total_iters", NULL},
    .defaults = (const double[]){1.0 / 3, 1, 5},
    .apply = linear_apply,
    .check = linear_check,
    .closed_form = linear_closed,
};

lc_scheduler *lc_linear_lr_with(const lc_linear_lr_args *args)
{
    LC__TAKE(a, lc_linear_lr, lc_linear_lr_args, args, NULL);
    const double values[] = {a.start_factor, a.end_factor, (double)a.total_iters};
    return lc__scheduler_construct(&lc__sched_linear, a.optimizer, values, (lc__scheduler_parts){0});
}

/* ---- PolynomialLR ---- */

static lc_status polynomial_apply(lc_scheduler *s)
{
    double total = s->args[0], epoch = (double)s->last_epoch;
    if (s->last_epoch == 0 || epoch > total) return LC_OK;
    return scale(s, pow((1 - epoch / total) / (1 - (epoch - 1) / total), s->args[1]));
}

static double polynomial_closed(const lc_scheduler *s, int g)
{
    double total = s->args[0], epoch = (double)s->last_epoch;
    return s->base_lrs[g] * pow(1 - (epoch < total ? epoch : total) / total, s->args[1]);
}

static lc_status polynomial_check(lc_scheduler *s)
{
    return lc__sched_whole(s, 0, 1);
}

const lc_scheduler_ops lc__sched_polynomial = {
    LC_SCHEDULER_OPS_INIT,
    .name = "PolynomialLR",
    .args = (const char *const[]){"total_iters", "power", NULL},
    .defaults = (const double[]){5, 1},
    .apply = polynomial_apply,
    .check = polynomial_check,
    .closed_form = polynomial_closed,
};

lc_scheduler *lc_polynomial_lr_with(const lc_polynomial_lr_args *args)
{
    LC__TAKE(a, lc_polynomial_lr, lc_polynomial_lr_args, args, NULL);
    const double values[] = {(double)a.total_iters, a.power};
    return lc__scheduler_construct(&lc__sched_polynomial, a.optimizer, values, (lc__scheduler_parts){0});
}

/* ---- LambdaLR ---- */

static double lambda_closed(const lc_scheduler *s, int g)
{
    return s->base_lrs[g] * s->lambda(s->lambda_ctx, s->last_epoch);
}

static lc_status lambda_apply(lc_scheduler *s)
{
    for (int g = 0; g < s->n_groups; g++) *lc__sched_lr(s, g) = lambda_closed(s, g);
    return LC_OK;
}

static lc_status lambda_check(lc_scheduler *s)
{
    return s->lambda ? LC_OK : lc_fail(LC_ERR_ARGUMENT, "LambdaLR needs a function; make it with lc_lambda_lr");
}

const lc_scheduler_ops lc__sched_lambda = {
    LC_SCHEDULER_OPS_INIT, .name = "LambdaLR",           .apply = lambda_apply,
    .check = lambda_check, .closed_form = lambda_closed,
};

lc_scheduler *lc_lambda_lr_with(const lc_lambda_lr_args *args)
{
    LC__TAKE(a, lc_lambda_lr, lc_lambda_lr_args, args, NULL);
    return lc__scheduler_construct(&lc__sched_lambda, a.optimizer, NULL,
                                   (lc__scheduler_parts){.lambda = a.fn, .lambda_ctx = a.ctx});
}
