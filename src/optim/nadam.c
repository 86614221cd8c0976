/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.NAdam */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/nadam.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/nadam.inl"

LC_DEFINE_UPDATE(nadam, 3)

static const char *const hyper_names[] = {"lr", "weight_decay", "beta1", "beta2", "eps", "momentum_decay", NULL};
static const double hyper_defaults[] = {2e-3, 0, 0.9, 0.999, 1e-8, 4e-3};

static lc_status check(const lc_optimizer *opt)
{
    LC_TRY(lc__check_moments(opt));
    return lc__check_at_least(opt, "momentum_decay", 0);
}

static double initial_state(const lc_optimizer *opt, const lc_param_group *group, int k)
{
    (void)opt, (void)group;
    return k == 2; /* mu_product starts at 1 */
}

static const char *const nadam_state[] = {"exp_avg", "exp_avg_sq", "mu_product", NULL};
static const lc_optimizer_ops nadam_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "NAdam",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = nadam_state,
    .update = record_nadam,
    .elementwise = true,
    .check = check,
    .initial_state = initial_state,
    .scalar_state = 4,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper, (void)flags;
    return &nadam_ops;
}

const lc__optimizer_class lc__class_nadam = {
    .name = "NAdam",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE | LC_OPT_DECOUPLED_WEIGHT_DECAY,
    .variant = variant,
};

lc_optimizer *lc_nadam_with(const lc_nadam_args *args)
{
    LC__TAKE(a, lc_nadam, lc_nadam_args, args, NULL);
    const double values[] = {a.beta1, a.beta2, a.eps, a.momentum_decay};
    return lc__optimizer_construct(&lc__class_nadam, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values),
                                   a.decoupled_weight_decay ? LC_OPT_DECOUPLED_WEIGHT_DECAY : 0);
}
