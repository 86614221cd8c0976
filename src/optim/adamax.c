/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adamax */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/adamax.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/adamax.inl"

LC_DEFINE_UPDATE(adamax, 2)

static const char *const hyper_names[] = {"lr", "weight_decay", "beta1", "beta2", "eps", NULL};
static const double hyper_defaults[] = {2e-3, 0, 0.9, 0.999, 1e-8};

static const char *const adamax_state[] = {"exp_avg", "exp_inf", NULL};
static const lc_optimizer_ops adamax_ops = {
    LC_OPTIMIZER_OPS_INIT,       .name = "Adamax",        .hyper_names = hyper_names, .hyper_defaults = hyper_defaults,
    .state_names = adamax_state, .update = record_adamax, .elementwise = true,        .check = lc__check_moments,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper, (void)flags;
    return &adamax_ops;
}

const lc__optimizer_class lc__class_adamax = {
    .name = "Adamax",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE,
    .variant = variant,
};

lc_optimizer *lc_adamax_with(const lc_adamax_args *args)
{
    LC__TAKE(a, lc_adamax, lc_adamax_args, args, NULL);
    const double values[] = {a.beta1, a.beta2, a.eps};
    return lc__optimizer_construct(&lc__class_adamax, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values), 0);
}
