/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.RAdam */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/radam.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/radam.inl"

LC_DEFINE_UPDATE(radam, 2)

static const char *const hyper_names[] = {"lr", "weight_decay", "beta1", "beta2", "eps", NULL};
static const double hyper_defaults[] = {1e-3, 0, 0.9, 0.999, 1e-8};

static const char *const radam_state[] = {"exp_avg", "exp_avg_sq", NULL};
static const lc_optimizer_ops radam_ops = {
    LC_OPTIMIZER_OPS_INIT,      .name = "RAdam",        .hyper_names = hyper_names, .hyper_defaults = hyper_defaults,
    .state_names = radam_state, .update = record_radam, .elementwise = true,        .check = lc__check_moments,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper, (void)flags;
    return &radam_ops;
}

const lc__optimizer_class lc__class_radam = {
    .name = "RAdam",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE | LC_OPT_DECOUPLED_WEIGHT_DECAY,
    .variant = variant,
};

lc_optimizer *lc_radam_with(const lc_radam_args *args)
{
    LC__TAKE(a, lc_radam, lc_radam_args, args, NULL);
    const double values[] = {a.beta1, a.beta2, a.eps};
    return lc__optimizer_construct(&lc__class_radam, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values),
                                   a.decoupled_weight_decay ? LC_OPT_DECOUPLED_WEIGHT_DECAY : 0);
}
