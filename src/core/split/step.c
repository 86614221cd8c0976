/* SPDX-License-Identifier: Apache-2.0 */
#include "core/split/step.h"
#include "core/split/device_parts.h"

#include "base/status.h"
#include "core/hooks/hooks.h"
#include "core/hooks/precision_calls.h"
#include "core/hooks/profiling.h"
#include "data/batch_slice.h"
#include "engine/plan/plan.h"
#include "record/graph_impl.h"

#include <lightc/ops_math.h>

static lc_status not_a_loss(const lc_tensor *t)
{
    char shape[96];
    return lc_fail(LC_ERR_SHAPE, "training_step must return a loss of one element; reduce it with lc_mean (it is %s%s)",
                   lc__shape_text(&t->type, shape, sizeof shape), lc__at_site(lc__site_of(t)).text);
}

/* With automatic optimization the trainer calls lc_backward, and the gradients of both calls would be added. */
static lc_status check_backward(const lc_trainer *t, const lc_tensor *loss)
{
    const lc_graph *g = t->device_parts ? lc_current_graph() : t->graph;
    if (t->mo.manual_optimization || !g || !lc__graph_went_backward(g, loss)) return LC_OK;
    return lc_fail(
        LC_ERR_STATE,
        "training_step called lc_backward with the loss that it returns, and the trainer would call it again; "
        "leave out lc_backward, or optimize by hand (.manual_optimization = true)%s",
        lc__at_site(lc__site_of(loss)).text);
}

lc_training_step_fn *lc__training_step_of(const lc_trainer *t, int optimizer)
{
    lc_training_step_fn *own =
        optimizer >= 0 && optimizer < t->optimizers.n ? t->optimizers.optimizers[optimizer].training_step : NULL;
    return own ? own : t->mo.training_step;
}

lc_status lc__run_training_step(lc_closure *c)
{
    lc_trainer *t = c->t;
    if (lc__is_empty_share(c->batch)) return LC_OK; /* the other ranks have samples */
    lc__outer_hook outer = lc__hook_enter(t, LC_HOOK_TRAINING_STEP);
    int64_t start = LC__PROFILE_START(t);
    c->loss = lc__training_step_of(t, c->optimizer)(t->m, c->batch, c->batch_idx);
    LC__PROFILE_HOOK(t, NULL, start);
    lc_status s = lc_step_status(t->graph); /* the first operation that failed */
    if (s >= 0 && !c->loss) s = lc__error_since(t->errors_before_hook);
    if (s >= 0 && c->loss && lc_tensor_is_error(c->loss))
        s = lc_fail(LC_ERR_STATE,
                    "training_step returned the result of a failed operation, or a tensor of another step");
    if (s >= 0 && c->loss && lc_tensor_numel(c->loss) != 1) s = not_a_loss(c->loss);
    if (s >= 0 && c->loss) s = check_backward(t, c->loss);
    if (s < 0 || t->deferred) s = lc__hook_result(t, s, NULL);
    lc__hook_leave(t, outer);
    if (s >= 0 && c->loss) lc_keep(c->loss);
    return s;
}

lc_tensor *lc__scaled_loss(lc_trainer *t, lc_tensor *loss)
{
    if (!t->precision.scale_loss) return loss;
    loss = lc__precision_scale_loss(&t->precision, t->precision_self, loss);
    lc__device_parts_unscale(t);
    return loss;
}

void lc__scale_no_loss(lc_trainer *t)
{
    if (t->precision.scale_loss && !t->graph->unscale)
        t->precision.scale_loss(t->precision_self, lc_full_at(0, LC_F32, 0, NULL, LC_HERE));
}

lc_status lc__backward_hooks(lc_trainer *t, lc_tensor *loss)
{
    t->loss = loss;
    loss = lc__scaled_loss(t, loss);
    LC_TRY(lc__hook(t, LC_HOOK_ON_BEFORE_BACKWARD, &(lc__hook_args){.loss = loss}));
    return lc__hook(t, LC_HOOK_BACKWARD, &(lc__hook_args){.loss = loss});
}

lc_optimizer *lc__closure_optimizer(const lc_closure *c)
{
    return c->optimizer >= 0 ? c->t->optimizers.optimizers[c->optimizer].optimizer : NULL;
}

lc_status lc__closure_zero_grad(lc_closure *c)
{
    lc_trainer *t = c->t;
    lc_optimizer *opt = lc__closure_optimizer(c);
    const lc__hook_args args = {.batch_idx = c->batch_idx, .optimizer = opt};
    LC_TRY(lc__hook(t, LC_HOOK_ON_BEFORE_ZERO_GRAD, &args));
    LC_TRY(lc__hook(t, LC_HOOK_OPTIMIZER_ZERO_GRAD, &args));
    t->window_backwards = 0;
    t->graph->backwards = 0; /* lc_optimizer_zero_grad, which a module may call, does not reset this */
    return LC_OK;
}
