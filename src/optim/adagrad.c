/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adagrad */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/adagrad.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/adagrad.inl"

LC_DEFINE_UPDATE(adagrad, 1)

static const char *const hyper_names[] = {"lr", "weight_decay", "lr_decay", "initial_accumulator_value", "eps", NULL};
static const double hyper_defaults[] = {1e-2, 0, 0, 0, 1e-10};

static lc_status check(const lc_optimizer *opt)
{
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc__check_at_least(opt, "weight_decay", 0));
    LC_TRY(lc__check_at_least(opt, "lr_decay", 0));
    LC_TRY(lc__check_at_least(opt, "initial_accumulator_value", 0));
    LC_TRY(lc__check_at_least(opt, "eps", 0));
    return LC_OK;
}

static double initial_state(const lc_optimizer *opt, const lc_param_group *group, int k)
{
    (void)opt, (void)k;
    return group->hyper[3];
}

static const char *const adagrad_state[] = {"sum", NULL};
static const lc_optimizer_ops adagrad_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "Adagrad",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = adagrad_state,
    .update = record_adagrad,
    .elementwise = true,
    .check = check,
    .initial_state = initial_state,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper, (void)flags;
    return &adagrad_ops;
}

const lc__optimizer_class lc__class_adagrad = {
    .name = "Adagrad",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE,
    .variant = variant,
};

lc_optimizer *lc_adagrad_with(const lc_adagrad_args *args)
{
    LC__TAKE(a, lc_adagrad, lc_adagrad_args, args, NULL);
    const double values[] = {a.lr_decay, a.initial_accumulator_value, a.eps};
    return lc__optimizer_construct(&lc__class_adagrad, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values), 0);
}
