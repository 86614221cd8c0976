/* SPDX-License-Identifier: Apache-2.0 */
/* GradientNormMonitor: norms of the gradients before clipping, under the names of Lightning's grad_norm:
 * "grad_2.0_norm/PATH" for each parameter, and "grad_2.0_norm_total". They are operators of the step, read back when it
 * has run, so that monitoring splits no plan. */
#include "base/c_locale.h"
#include "core/logging/logging.h"
#include "callbacks/callbacks.h"
#include "base/handle.h"

#include <stdio.h>

#include <lightc/ops.h>
#include "optim/optim_internal.h"

typedef struct gradient_norms {
    lc_gradient_norm_monitor_args a;
    lc__parameters parameters; /* under the names of their norms */
    char total[64];
} gradient_norms;

/* "2.0", "1.5", "inf": as Python prints the order */
static void order_text(double p, char *text, size_t size)
{
    if (isinf(p))
        snprintf(text, size, "inf");
    else
        lc__snprintf(text, size, p == floor(p) ? "%.1f" : "%g", p);
}

static lc_status gn_train_start(void *self, lc_trainer *t)
{
    gradient_norms *g = self;
    char order[32], prefix[64];
    order_text(g->a.norm_type, order, sizeof order);
    snprintf(g->total, sizeof g->total, "grad_%s_norm_total", order);
    snprintf(prefix, sizeof prefix, "grad_%s_norm/", order);
    return lc__parameters_collect(t->m, prefix, "", &g->parameters);
}

static lc_status gn_before_step(void *self, lc_trainer *t, lc_optimizer *opt)
{
    gradient_norms *g = self;
    double p = g->a.norm_type;
    lc_tensor *total = NULL;
    if (!t->window_backwards || !(g->a.every_step || lc__should_log(t))) return LC_OK;
    lc_no_grad_begin();
    for (int i = 0; i < g->parameters.n; i++) {
        lc_tensor *of = g->parameters.v[i];
        if (!lc_tensor_requires_grad(of) || !lc__optimizer_owns(opt, of)) continue;
        lc_tensor *norm = lc_norm(lc_gradient(of), .p = p);
        if (!g->a.total_only) lc_log(t->m, g->parameters.names[i], norm, .on_step = true, .on_epoch = false);
        lc_tensor *part = isinf(p) ? norm : lc_pow_scalar(norm, p);
        total = !total ? part : isinf(p) ? lc_maximum(total, part) : lc_add(total, part);
    }
    if (total)
        lc_log(t->m, g->total, isinf(p) ? total : lc_pow_scalar(total, 1 / p), .on_step = true, .on_epoch = false,
               .prog_bar = g->a.prog_bar);
    lc_no_grad_end();
    return LC_OK;
}

static void gn_release(void *self)
{
    lc__parameters_free(&((gradient_norms *)self)->parameters);
}

static const lc_callback_ops gradient_norm_ops = {
    LC_CALLBACK_OPS_INIT("GradientNormMonitor"), .no_vote = true,        .on_train_start = gn_train_start,
    .on_before_optimizer_step = gn_before_step,  .free = lc__owned_free,
};

lc_status lc_gradient_norm_monitor_new(const lc_gradient_norm_monitor_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_gradient_norm_monitor, given);
    gradient_norms *g = lc__owned_new(sizeof *g, gn_release);
    if (!g) return lc_fail(LC_ERR_MEMORY, "out of memory: GradientNormMonitor");
    g->a = *args;
    if (!(g->a.norm_type > 0)) {
        double p = g->a.norm_type;
        lc__owned_free(g);
        return lc_fail(LC_ERR_CONFIG, "GradientNormMonitor: norm_type is %g; it must be positive", p);
    }
    *out = (lc_callback){&gradient_norm_ops, g};
    return LC_OK;
}
