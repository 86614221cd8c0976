/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adam and AdamW: the same update; AdamW always decouples the weight decay, and has some by default. */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/adam.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/adam.inl"

LC_DEFINE_UPDATE(adam, 2)
LC_DEFINE_UPDATE(adam_amsgrad, 3)

static const char *const hyper_names[] = {"lr", "weight_decay", "beta1", "beta2", "eps", NULL};
static const double hyper_defaults[] = {1e-3, 0, 0.9, 0.999, 1e-8};

static const char *const adam_state[] = {"exp_avg", "exp_avg_sq", NULL};
static const lc_optimizer_ops adam_ops = {
    LC_OPTIMIZER_OPS_INIT,     .name = "Adam",        .hyper_names = hyper_names, .hyper_defaults = hyper_defaults,
    .state_names = adam_state, .update = record_adam, .elementwise = true,        .check = lc__check_moments,
};

static const char *const adam_amsgrad_state[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", NULL};
static const lc_optimizer_ops adam_amsgrad_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "Adam",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = adam_amsgrad_state,
    .update = record_adam_amsgrad,
    .elementwise = true,
    .check = lc__check_moments,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper;
    return flags & LC_OPT_AMSGRAD ? &adam_amsgrad_ops : &adam_ops;
}

const lc__optimizer_class lc__class_adam = {
    .name = "Adam",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE | LC_OPT_AMSGRAD | LC_OPT_DECOUPLED_WEIGHT_DECAY,
    .variant = variant,
};

static const double adamw_defaults[] = {1e-3, 1e-2, 0.9, 0.999, 1e-8};
static const lc_optimizer_ops adamw_ops = {
    LC_OPTIMIZER_OPS_INIT,     .name = "AdamW",       .hyper_names = hyper_names, .hyper_defaults = adamw_defaults,
    .state_names = adam_state, .update = record_adam, .elementwise = true,        .check = lc__check_moments,
};
static const lc_optimizer_ops adamw_amsgrad_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "AdamW",
    .hyper_names = hyper_names,
    .hyper_defaults = adamw_defaults,
    .state_names = adam_amsgrad_state,
    .update = record_adam_amsgrad,
    .elementwise = true,
    .check = lc__check_moments,
};

static const lc_optimizer_ops *adamw_variant(const double *hyper, unsigned flags)
{
    (void)hyper;
    return flags & LC_OPT_AMSGRAD ? &adamw_amsgrad_ops : &adamw_ops;
}

const lc__optimizer_class lc__class_adamw = {
    .name = "AdamW",
    .hyper_names = hyper_names,
    .defaults = adamw_defaults,
    .flags = LC_OPT_DECOUPLED_WEIGHT_DECAY,
    .allowed = LC_OPT_MAXIMIZE | LC_OPT_AMSGRAD,
    .variant = adamw_variant,
};

lc_optimizer *lc_adam_with(const lc_adam_args *args)
{
    LC__TAKE(a, lc_adam, lc_adam_args, args, NULL);
    const double values[] = {a.beta1, a.beta2, a.eps};
    unsigned flags = (a.amsgrad ? LC_OPT_AMSGRAD : 0) | (a.decoupled_weight_decay ? LC_OPT_DECOUPLED_WEIGHT_DECAY : 0);
    return lc__optimizer_construct(&lc__class_adam, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values), flags);
}

lc_optimizer *lc_adamw_with(const lc_adam_args *args)
{
    LC__TAKE(a, lc_adamw, lc_adam_args, args, NULL);
    const double values[] = {a.beta1, a.beta2, a.eps};
    return lc__optimizer_construct(&lc__class_adamw, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values),
                                   a.amsgrad ? LC_OPT_AMSGRAD : 0);
}
