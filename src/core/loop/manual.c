/* SPDX-License-Identifier: Apache-2.0 */
/* Manual optimization: a module's training_step calls backward and the updates itself (lightc/trainer.h). */
#include "core/loop/loop.h"
#include "core/split/step.h"
#include "base/grow.h"
#include "base/handle.h"
#include "core/ranks/ranks.h"
#include "optim/optim_internal.h"
#include "engine/run/run.h"
#include "parallel/reduce/reducer.h"

#include <math.h>

/* ---- one batch ---- */

/* With manual optimization, gradients restored from a checkpoint may be read or applied before the first backward pass,
 * so make them sums over ranks right away. */
static lc_status sum_restored(lc_trainer *t)
{
    const lc__reducer *r = lc__reducer_of_graph(t->graph);
    return r && lc__reducer_has_shares(r) ? lc__sync_gradients(t) : LC_OK;
}

static void untoggle(lc_trainer *t)
{
    for (int i = 0; i < t->loop->n_toggled; i++) lc_tensor_set_requires_grad(t->loop->toggled[i], true);
    t->loop->n_toggled = 0;
    t->graph->toggled = false;
}

lc_status lc__optimize_manually(lc_trainer *t, const lc_batch *batch, int64_t batch_idx)
{
    lc_closure c = {.mark = LC__MARK_OF(CLOSURE), .t = t, .optimizer = -1, .batch = batch, .batch_idx = batch_idx};
    t->graph->sync_keeps = LC__KEEPS_ALL; /* training_step continues after a backward pass */
    lc_graph_set_window(t->graph, 1);     /* gradients of several backward passes add up */
    LC_TRY(sum_restored(t));
    lc_status s = lc__run_training_step(&c);
    if (s >= 0 && t->loop->n_toggled) s = lc__graph_flush(t->graph);
    untoggle(t);
    t->outputs.loss = c.loss;
    return s;
}

/* ---- for modules ---- */

lc_optimizer *lc_manual_optimizer(lc_module *self, int i)
{
    LC__IS(self, MODULE, NULL);
    lc_trainer *t = lc_module_root(self)->trainer;
    return t && i >= 0 && i < t->optimizers.n ? t->optimizers.optimizers[i].optimizer : NULL;
}

static lc_status manual_trainer(lc_module *self, const char *what, lc_site site, lc_trainer **out)
{
    lc_trainer *t = *out = lc_module_root(self)->trainer;
    if (!t || !t->in_run || !t->mo.manual_optimization)
        return lc_fail(LC_ERR_STATE, "%s is for modules with .manual_optimization = true, inside training_step%s", what,
                       lc__at_site(site).text);
    /* An error that lc_log could not return ends the step here. */
    if (t->deferred) return lc_fail(t->deferred_status, "%s", t->deferred_message ? t->deferred_message : "");
    return LC_OK;
}

lc_status lc_manual_zero_grad_at(lc_module *self, lc_optimizer *optimizer, lc_site site)
{
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    lc_trainer *t = NULL;
    LC_TRY(manual_trainer(self, "lc_manual_zero_grad", site, &t));
    if (optimizer)
        lc_optimizer_zero_grad_at(optimizer, site);
    else
        lc_zero_grad(t->graph);
    return LC_OK;
}

lc_status lc_manual_backward_at(lc_module *self, lc_tensor *loss, lc_site site)
{
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    lc_trainer *t = NULL;
    LC_TRY(manual_trainer(self, "lc_manual_backward", site, &t));
    if (!loss) return lc_fail(LC_ERR_ARGUMENT, "lc_manual_backward: the loss is missing%s", lc__at_site(site).text);
    LC_TRY(lc_step_status(t->graph));
    t->loop->backward_site = site;
    lc_status s = lc__backward(t, loss);
    t->loop->backward_site = LC__NO_SITE;
    return s;
}

lc_status lc_manual_step_at(lc_module *self, lc_optimizer *optimizer, lc_site site)
{
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    lc_trainer *t = NULL;
    bool skip;
    LC_TRY(manual_trainer(self, "lc_manual_step", site, &t));
    if (!optimizer)
        return lc_fail(LC_ERR_ARGUMENT, "lc_manual_step: the optimizer is missing%s", lc__at_site(site).text);
    if (lc__evaluates(optimizer))
        return lc_fail(LC_ERR_STATE,
                       "lc_manual_step: %s evaluates the loss several times per step; use lc_manual_step_closure%s",
                       optimizer->ops->name, lc__at_site(site).text);
    LC_TRY(lc__before_step(t, optimizer, &skip));
    if (!skip) lc_optimizer_step_at(optimizer, site);
    t->global_step++;
    return LC_OK;
}

typedef struct manual_closure {
    lc_trainer *t;
    lc_optimizer *optimizer;
    lc_manual_closure_fn *fn;
    void *ctx;
    lc_tensor *loss;
} manual_closure;

static lc_status evaluate_manual(void *ctx, double *loss)
{
    manual_closure *c = ctx;
    lc_trainer *t = c->t;
    lc_status status = LC_OK;
    bool skip;
    c->loss = c->fn(c->ctx, &status);
    if (status < 0) return status;
    LC_TRY(lc_step_status(t->graph));
    if (!c->loss) return LC_SKIP;
    LC_TRY(lc__before_step(t, c->optimizer, &skip));
    if (skip) return LC_SKIP;
    *loss = NAN;
    return lc__evaluates(c->optimizer) ? lc__read_loss(t, c->loss, loss) : LC_OK;
}

lc_status lc_manual_step_closure_at(lc_module *self, lc_optimizer *optimizer, lc_manual_closure_fn *closure, void *ctx,
                                    lc_tensor **loss, lc_site site)
{
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    manual_closure c = {.optimizer = optimizer, .fn = closure, .ctx = ctx};
    LC_TRY(manual_trainer(self, "lc_manual_step_closure", site, &c.t));
    if (!optimizer || !closure)
        return lc_fail(LC_ERR_ARGUMENT, "lc_manual_step_closure: the %s is missing%s",
                       optimizer ? "closure" : "optimizer", lc__at_site(site).text);
    LC_TRY(lc_optimizer_step_closure(optimizer, evaluate_manual, &c));
    if (loss) *loss = c.loss;
    c.t->global_step++;
    return LC_OK;
}

/* ---- toggling ---- */

static lc_status freeze(lc_trainer *t, lc_tensor *p)
{
    LC_TRY(lc__grow(&t->loop->toggled, &t->loop->cap_toggled, t->loop->n_toggled, 1, "toggled parameters"));
    t->loop->toggled[t->loop->n_toggled++] = p;
    t->graph->toggled = true;
    lc_tensor_set_requires_grad(p, false);
    return LC_OK;
}

/* A plan decides which parameters get gradients when it is made, so operations recorded under the old setting are run
 * first. */
lc_status lc_toggle_optimizer(lc_module *self, const lc_optimizer *optimizer)
{
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    lc_trainer *t = NULL;
    LC_TRY(manual_trainer(self, "lc_toggle_optimizer", LC__NO_SITE, &t));
    if (!optimizer) return lc_fail(LC_ERR_ARGUMENT, "lc_toggle_optimizer: the optimizer is missing");
    if (t->loop->n_toggled)
        return lc_fail(LC_ERR_STATE, "lc_toggle_optimizer: another one is already toggled; untoggle it first");
    LC_TRY(lc__graph_flush(t->graph));
    for (int k = 0; k < t->optimizers.n; k++) {
        const lc_optimizer *other = t->optimizers.optimizers[k].optimizer;
        for (int g = 0; g < other->n_groups; g++)
            for (int i = 0; i < other->groups[g].n_parameters; i++) {
                lc_tensor *p = other->groups[g].parameters[i];
                if (lc_tensor_requires_grad(p) && !lc__optimizer_owns(optimizer, p)) LC_TRY(freeze(t, p));
            }
    }
    return LC_OK;
}

lc_status lc_untoggle_optimizer(lc_module *self)
{
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    lc_trainer *t = NULL;
    LC_TRY(manual_trainer(self, "lc_untoggle_optimizer", LC__NO_SITE, &t));
    if (t->loop->n_toggled) LC_TRY(lc__graph_flush(t->graph));
    untoggle(t);
    return LC_OK;
}
