/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.SGD */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/sgd.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/sgd.inl"

LC_DEFINE_UPDATE(sgd, 0)
LC_DEFINE_UPDATE(sgd_momentum, 1)

static const char *const hyper_names[] = {"lr", "weight_decay", "momentum", "dampening", NULL};
static const double hyper_defaults[] = {1e-3, 0, 0, 0};

static lc_status check(const lc_optimizer *opt)
{
    double momentum, dampening;
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc__check_at_least(opt, "weight_decay", 0));
    LC_TRY(lc__check_at_least(opt, "momentum", 0));
    LC_TRY(lc_optimizer_get(opt, -1, "momentum", &momentum));
    LC_TRY(lc_optimizer_get(opt, -1, "dampening", &dampening));
    if ((opt->flags & LC_OPT_NESTEROV) && (momentum <= 0 || dampening != 0)) {
        return lc_fail(LC_ERR_ARGUMENT, "SGD: nesterov needs a momentum above 0 and no dampening");
    }
    return LC_OK;
}

static const char *const sgd_state[] = {NULL};
static const lc_optimizer_ops sgd_ops = {
    LC_OPTIMIZER_OPS_INIT,    .name = "SGD",        .hyper_names = hyper_names, .hyper_defaults = hyper_defaults,
    .state_names = sgd_state, .update = record_sgd, .elementwise = true,        .check = check,
};

static const char *const sgd_momentum_state[] = {"momentum_buffer", NULL};
static const lc_optimizer_ops sgd_momentum_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "SGD",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = sgd_momentum_state,
    .update = record_sgd_momentum,
    .elementwise = true,
    .check = check,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)flags;
    return hyper[2] != 0 ? &sgd_momentum_ops : &sgd_ops;
}

const lc__optimizer_class lc__class_sgd = {
    .name = "SGD",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE | LC_OPT_NESTEROV,
    .variant = variant,
};

lc_optimizer *lc_sgd_with(const lc_sgd_args *args)
{
    LC__TAKE(a, lc_sgd, lc_sgd_args, args, NULL);
    const double values[] = {a.momentum, a.dampening};
    return lc__optimizer_construct(&lc__class_sgd, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values),
                                   a.nesterov ? LC_OPT_NESTEROV : 0);
}
