/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Rprop */
#include "optim/loop.h"

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/rprop.inl"
#undef REAL
#undef LC_LOOP_SUFFIX
#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/rprop.inl"

LC_DEFINE_UPDATE(rprop, 2)

static const char *const hyper_names[] = {
    "lr", "weight_decay", "eta_minus", "eta_plus", "step_size_min", "step_size_max", NULL};
static const double hyper_defaults[] = {1e-2, 0, 0.5, 1.2, 1e-6, 50};

static lc_status check(const lc_optimizer *opt)
{
    double minus, plus, decay;
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc_optimizer_get(opt, -1, "eta_minus", &minus));
    LC_TRY(lc_optimizer_get(opt, -1, "eta_plus", &plus));
    LC_TRY(lc_optimizer_get(opt, -1, "weight_decay", &decay));
    if (!(minus > 0 && minus < 1 && plus > 1)) {
        return lc_fail(LC_ERR_ARGUMENT, "Rprop: eta_minus %g must be in (0, 1) and eta_plus %g above 1", minus, plus);
    }
    if (decay != 0) return lc_fail(LC_ERR_ARGUMENT, "Rprop has no weight_decay");
    return LC_OK;
}

static const char *const rprop_state[] = {"prev", "step_size", NULL};
static const lc_optimizer_ops rprop_ops = {
    LC_OPTIMIZER_OPS_INIT,      .name = "Rprop",        .hyper_names = hyper_names, .hyper_defaults = hyper_defaults,
    .state_names = rprop_state, .update = record_rprop, .elementwise = true,        .check = check,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper, (void)flags;
    return &rprop_ops;
}

const lc__optimizer_class lc__class_rprop = {
    .name = "Rprop",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = 0,
    .allowed = LC_OPT_MAXIMIZE,
    .variant = variant,
};

lc_optimizer *lc_rprop_with(const lc_rprop_args *args)
{
    LC__TAKE(a, lc_rprop, lc_rprop_args, args, NULL);
    const double values[] = {a.eta_minus, a.eta_plus, a.step_size_min, a.step_size_max};
    return lc__optimizer_construct(&lc__class_rprop, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values), 0);
}
