/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.RMSprop */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/rmsprop.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/rmsprop.inl"

LC_DEFINE_UPDATE(rmsprop, 1)
LC_DEFINE_UPDATE(rmsprop_momentum, 2)
LC_DEFINE_UPDATE(rmsprop_centered, 2)
LC_DEFINE_UPDATE(rmsprop_centered_momentum, 3)

static const char *const hyper_names[] = {"lr", "weight_decay", "momentum", "alpha", "eps", NULL};
static const double hyper_defaults[] = {1e-2, 0, 0, 0.99, 1e-8};

static lc_status check(const lc_optimizer *opt)
{
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc__check_at_least(opt, "weight_decay", 0));
    LC_TRY(lc__check_at_least(opt, "momentum", 0));
    LC_TRY(lc__check_at_least(opt, "alpha", 0));
    LC_TRY(lc__check_at_least(opt, "eps", 0));
    return LC_OK;
}

static const char *const rmsprop_state[] = {"square_avg", NULL};
static const lc_optimizer_ops rmsprop_ops = {
    LC_OPTIMIZER_OPS_INIT,        .name = "RMSprop",
    .hyper_names = hyper_names,   .hyper_defaults = hyper_defaults,
    .state_names = rmsprop_state, .update = record_rmsprop,
    .elementwise = true,          .check = check,
};

static const char *const rmsprop_momentum_state[] = {"square_avg", "momentum_buffer", NULL};
static const lc_optimizer_ops rmsprop_momentum_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "RMSprop",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = rmsprop_momentum_state,
    .update = record_rmsprop_momentum,
    .elementwise = true,
    .check = check,
};

static const char *const rmsprop_centered_state[] = {"square_avg", "grad_avg", NULL};
static const lc_optimizer_ops rmsprop_centered_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "RMSprop",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = rmsprop_centered_state,
    .update = record_rmsprop_centered,
    .elementwise = true,
    .check = check,
};

static const char *const rmsprop_centered_momentum_state[] = {"square_avg", "momentum_buffer", "grad_avg", NULL};
static const lc_optimizer_ops rmsprop_centered_momentum_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "RMSprop",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = rmsprop_centered_momentum_state,
    .update = record_rmsprop_centered_momentum,
    .elementwise = true,
    .check = check,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    if (flags & LC_OPT_CENTERED) return hyper[2] != 0 ? &rmsprop_centered_momentum_ops : &rmsprop_centered_ops;
    return hyper[2] != 0 ? &rmsprop_momentum_ops : &rmsprop_ops;
}

const lc__optimizer_class lc__class_rmsprop = {
    .name = "RMSprop",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE | LC_OPT_CENTERED,
    .variant = variant,
};

lc_optimizer *lc_rmsprop_with(const lc_rmsprop_args *args)
{
    LC__TAKE(a, lc_rmsprop, lc_rmsprop_args, args, NULL);
    const double values[] = {a.momentum, a.alpha, a.eps};
    return lc__optimizer_construct(&lc__class_rmsprop, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values),
                                   a.centered ? LC_OPT_CENTERED : 0);
}
