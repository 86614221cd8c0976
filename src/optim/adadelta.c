/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adadelta */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/adadelta.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/adadelta.inl"

LC_DEFINE_UPDATE(adadelta, 2)

static const char *const hyper_names[] = {"lr", "weight_decay", "rho", "eps", NULL};
static const double hyper_defaults[] = {1, 0, 0.9, 1e-6};

static lc_status check(const lc_optimizer *opt)
{
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc__check_at_least(opt, "weight_decay", 0));
    LC_TRY(lc__check_below(opt, "rho", 0, nextafter(1, 2)));
    LC_TRY(lc__check_at_least(opt, "eps", 0));
    return LC_OK;
}

static const char *const adadelta_state[] = {"square_avg", "acc_delta", NULL};
static const lc_optimizer_ops adadelta_ops = {
    LC_OPTIMIZER_OPS_INIT,         .name = "Adadelta",
    .hyper_names = hyper_names,    .hyper_defaults = hyper_defaults,
    .state_names = adadelta_state, .update = record_adadelta,
    .elementwise = true,           .check = check,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper, (void)flags;
    return &adadelta_ops;
}

const lc__optimizer_class lc__class_adadelta = {
    .name = "Adadelta",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE,
    .variant = variant,
};

lc_optimizer *lc_adadelta_with(const lc_adadelta_args *args)
{
    LC__TAKE(a, lc_adadelta, lc_adadelta_args, args, NULL);
    const double values[] = {a.rho, a.eps};
    return lc__optimizer_construct(&lc__class_adadelta, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values), 0);
}
