/* SPDX-License-Identifier: Apache-2.0 */
/* The macros of optimizers: updates, clipping, and gradients. Recorded here, expanded in expand_update.c. */
#include "base/number.h"
#include "ops/infer.h"
#include "engine/plan/plan.h"
#include "engine/run/run.h"
#include "optim/optim_internal.h"
#include "base/handle.h"
#include "optim/state_buffers.h"
#include "optim/expand_update.h"

#include <lightc/ops_math.h>
#include <lightc/optim.h>
#include <math.h>

static lc_status infer_norm(lc_infer *call)
{
    for (int i = 0; i < call->n_out; i++) call->out[i] = (lc_type){.dtype = (lc_dtype)call->ints[1]};
    return LC_OK;
}

/* ints: an optimizer and its id */
static const lc_macro macro_zero_grad = {{.name = "zero_grad", .flags = LC__OP_MACRO, .infer = lc__infer_nothing},
                                         lc__expand_zero_grad};
/* in: lc_graph.unscale; ints: optimizer, dtype, the optimizer's id, whether it only matters that the norm is finite;
 * floats: max_norm, window. Results: norm, factor for gradients. */
static const lc_macro macro_clip_norm = {
    {.name = "clip_grad_norm", .flags = LC__OP_MACRO, .n_out = 2, .infer = infer_norm}, lc__expand_clip_norm};
/* in: factor for gradients or absent; ints: optimizer, its id, whether to clip by value, whether to update by bucket,
 * whether to skip the update if the factor is not finite; floats: window */
static const lc_macro macro_step = {{.name = "optimizer_step", .flags = LC__OP_MACRO, .infer = lc__infer_nothing},
                                    lc__expand_step};
/* in: parameter, lc_graph.unscale; floats: window */
static const lc_macro macro_gradient = {
    {.name = "gradient", .flags = LC__OP_MACRO, .n_out = 1, .infer = lc__infer_same}, lc__expand_gradient};

/* The same without unscale. */
static double gradient_factor(const lc_graph *g)
{
    double window = g->window > 0 ? g->window : (double)g->backwards;
    for (const lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->ranks) window *= p->ops->ranks(p);
    return window > 0 ? 1.0 / window : 1.0;
}

lc_status lc__gradient_factor_now(const lc_graph *g, double *factor)
{
    double unscale = 1;
    if (g && g->unscale) LC_TRY(lc_item(g->unscale, &unscale));
    *factor = g ? gradient_factor(g) * unscale : 1;
    return LC_OK;
}

static bool check_optimizer(const lc_optimizer *opt, const char *title, lc_site site)
{
    if (lc__has_mark(opt, LC__MARK_OF(OPTIMIZER))) return true;
    lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, opt ? "this is not an optimizer; it was never made, or has been freed"
                                                 : "the optimizer is NULL"),
                    title, site);
    return false;
}

static bool is_trained_in(const lc_tensor *p, const lc_graph *g)
{
    for (int i = 0; p->requires_grad && i < g->n_flats; i++)
        if (p->flat == g->flats[i]) return true;
    return false;
}

/* Adds to g what the step has read without a plan; false: there is something that cannot be added yet. */
static bool know_flats(lc_graph *g)
{
    bool known = true;
    for (uint32_t i = g->ext_0; !g->expect && i < g->n_externals; i++) {
        const lc_tensor *t = g->values[g->externals[i].value];
        if (t->requires_grad) known &= t->flat && lc__graph_add_flat(g, t->flat) >= 0;
    }
    return known;
}

/* Whether all parameters that can have gradients in g belong to opt. */
static bool trains_all(const lc_optimizer *opt, lc_graph *g)
{
    int64_t all = 0, own = 0;
    if (g->toggled || !know_flats(g)) return false;
    for (int i = 0; i < g->n_flats; i++)
        for (int k = 0; k < g->flats[i]->n; k++) {
            const lc_tensor *p = g->flats[i]->parameters[k]; /* NULL: it was freed, or has moved to another buffer */
            all += p && p->requires_grad;
        }
    for (int i = 0; i < opt->n_groups; i++)
        for (int k = 0; k < opt->groups[i].n_parameters; k++) own += is_trained_in(opt->groups[i].parameters[k], g);
    return all > 0 && own == all;
}

void lc_optimizer_zero_grad_at(lc_optimizer *opt, lc_site site)
{
    if (!check_optimizer(opt, "zero_grad", site)) return;
    lc_graph *g = lc_current_graph();
    lc_status status = lc__optimizer_prepare(opt);
    if (g && status >= 0 && g->backwards && trains_all(opt, g)) {
        lc_zero_grad(g);
        return;
    }
    if (g && g->recording && status >= 0) {
        int64_t ints[] = {(int64_t)(uintptr_t)opt, (int64_t)opt->steps->id};
        lc_op_call(&macro_zero_grad.op, 0, NULL, 2, ints, 0, NULL, site);
    } else if (g && g->recording) {
        lc__record_error(g, status, "zero_grad", site, NULL, NULL, 0);
    } else {
        for (int k = 0; k < opt->n_groups && status >= 0; k++)
            for (int i = 0; i < opt->groups[k].n_parameters; i++) {
                const lc_tensor *p = opt->groups[k].parameters[i];
                p->flat->has_gradient[p->flat_index] = 0;
            }
    }
}

/* With sharding a gradient is the sum over ranks only after the sync. (For a backward pass that has not run yet:
 * whole_gradient of lc_peer_ops.) */
static lc_status check_summed(const lc_graph *g, const lc_tensor *parameter)
{
    if (!g || !parameter || !parameter->flat || !parameter->flat->sharding) return LC_OK;
    for (const lc_peer *p = g->peers; p && parameter->flat->has_gradient[parameter->flat_index]; p = p->next)
        if (p->ops->check_summed) LC_TRY(p->ops->check_summed(p, parameter));
    return LC_OK;
}

lc_tensor *lc_gradient_at(lc_tensor *parameter, lc_site site)
{
    if (!lc__check_tensor(parameter, "the parameter", "gradient", site)) return lc__error_tensor();
    lc_graph *g = lc_current_graph();
    lc_status status = check_summed(g, parameter);
    if (status < 0) {
        lc__record_error(g, status, "gradient", site, NULL, NULL, 0);
        return lc__error_tensor();
    }
    double window = g ? gradient_factor(g) : 1.0;
    lc_tensor *in[] = {parameter, g ? g->unscale : NULL};
    lc_tensor *gradient = lc_op_call(&macro_gradient.op, 2, in, 0, NULL, 1, &window, site);
    return parameter->seen ? lc_cast_at(gradient, parameter->seen->dtype, site) : gradient;
}

static lc_status scale(lc_tensor *t, double factor)
{
    int64_t n = lc__numel(&t->type);
    lc_view v;
    LC_TRY(lc__tensor_map(t, LC__READ_WRITE, &v));
    for (int64_t i = 0; i < n; i++) lc__set_number(v.data, v.dtype, i, factor * lc__number_at(v.data, v.dtype, i));
    lc__tensor_unmap(t, LC__READ_WRITE);
    return LC_OK;
}

lc_status lc_gradient_write(lc_tensor *parameter, const void *data, size_t bytes)
{
    LC__IS_TENSOR_OR_NULL(parameter, LC_ERR_ARGUMENT);
    lc_graph *g = lc_current_graph();
    lc_flat *flat;
    if (!parameter || parameter->kind != LC_TENSOR_PERSISTENT || !parameter->requires_grad)
        return lc_fail(LC_ERR_ARGUMENT, "lc_gradient_write: only persistent tensors that require a gradient have one");
    if (g) LC_TRY(lc__graph_flush(g));
    LC_TRY(lc__flat_of(parameter, &flat));
    if (flat->sharding)
        return lc_fail(LC_ERR_UNSUPPORTED, "lc_gradient_write: with the strategy sharded, no rank has the whole "
                                           "gradient; use --strategy ddp");
    lc_tensor *gradient = flat->gradients[parameter->flat_index];
    const lc_type *type = lc__seen_type(parameter);
    const size_t needed = (size_t)lc__numel(type) * lc_dtype_size(type->dtype);
    if (bytes != needed)
        return lc_fail(LC_ERR_ARGUMENT, "lc_gradient_write: the gradient has %zu bytes as %s, not %zu", needed,
                       lc_dtype_name(type->dtype), bytes);
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    if (g) LC_TRY(lc__peers_settle(g));
    LC_TRY(lc__tensor_write_as(gradient, type, data));
    double factor;
    LC_TRY(lc__gradient_factor_now(g, &factor));
    if (factor != 1.0) LC_TRY(scale(gradient, 1 / factor));
    flat->has_gradient[parameter->flat_index] = 1;
    return LC_OK;
}

static lc_tensor *clip_norm(lc_optimizer *opt, double max_norm, bool only_finite, lc_site site)
{
    lc_graph *g = lc_current_graph();
    lc_tensor *out[2] = {NULL};
    lc_dtype dtype = opt->n_groups && opt->groups[0].n_parameters ? opt->groups[0].parameters[0]->type.dtype : LC_F32;
    dtype = lc__wide_dtype(dtype);
    lc_status status = lc__optimizer_prepare(opt);
    if (status < 0) {
        lc__record_error(g, status, "clip_grad_norm", site, NULL, NULL, 0);
        return lc__error_tensor();
    }
    int64_t ints[] = {(int64_t)(uintptr_t)opt, dtype, (int64_t)opt->steps->id, only_finite};
    double floats[] = {max_norm, g ? gradient_factor(g) : 1.0};
    lc_op_call_n(&macro_clip_norm.op, 1, (lc_tensor *[]){g ? g->unscale : NULL}, 4, ints, 2, floats, out, site);
    opt->clip_factor = out[1];
    return out[0];
}

lc_tensor *lc_clip_grad_norm_at(lc_optimizer *opt, double max_norm, lc_site site)
{
    if (!check_optimizer(opt, "clip_grad_norm", site)) return lc__error_tensor();
    return clip_norm(opt, max_norm, false, site);
}

lc_status lc__optimizer_settle(const lc_optimizer *opt)
{
    lc_graph *g = lc_current_graph();
    for (uint32_t i = g && g->recording ? g->node_0 : UINT32_MAX; g && i < g->tape.n_nodes; i++) {
        const lc_node *n = &g->tape.nodes[i];
        if (n->op == &macro_step.op && g->tape.ints[n->int_at] == (int64_t)(uintptr_t)opt) return lc__graph_flush(g);
    }
    return LC_OK;
}

/* 0: no step is being recorded. */
static uint64_t number_of_step(const lc_graph *g)
{
    return g && g->recording ? (uint64_t)g->generation + 1 : 0;
}

void lc_clip_grad_value_at(lc_optimizer *opt, double clip_value, lc_site site)
{
    if (!check_optimizer(opt, "clip_grad_value", site)) return;
    bool same = true;
    for (int i = 0; i < opt->n_groups; i++) same &= opt->groups[i].hyper[LC_HYPER_CLIP_VALUE] == clip_value;
    lc_status status = same ? LC_OK : lc__optimizer_settle(opt);
    if (status < 0) lc__record_error(lc_current_graph(), status, "clip_grad_value", site, NULL, NULL, 0);
    for (int i = 0; i < opt->n_groups; i++) opt->groups[i].hyper[LC_HYPER_CLIP_VALUE] = clip_value;
    opt->clip_by_value = true;
    opt->clip_step = number_of_step(lc_current_graph());
}

/* A clipping that came after the last update, or for which none came, belongs to a step that is over. */
static lc_status check_clipped(lc_optimizer *opt, const lc_graph *g)
{
    const lc_tensor *factor = opt->clip_factor;
    const bool by_norm = factor && factor->kind == LC_TENSOR_STEP &&
                         (factor->graph != g || factor->generation != g->generation),
               by_value = opt->clip_by_value && opt->clip_step && opt->clip_step != number_of_step(g);
    if (!by_norm && !by_value) return LC_OK;
    opt->clip_factor = NULL;
    opt->clip_by_value = false;
    return lc_fail(LC_ERR_STATE, "the gradients were clipped in an earlier step, after its update; clip them between "
                                 "the backward pass and the update");
}

void lc_optimizer_step_at(lc_optimizer *opt, lc_site site)
{
    if (!check_optimizer(opt, "optimizer_step", site)) return;
    lc_graph *g = lc_current_graph();
    if (!g) {
        lc_op_call(&macro_step.op, 0, NULL, 0, NULL, 0, NULL, site); /* reports what is missing */
        return;
    }
    lc_status status = check_clipped(opt, g);
    if (status >= 0) status = lc__optimizer_prepare(opt);
    if (status < 0) {
        lc__record_error(g, status, "optimizer_step", site, NULL, NULL, 0);
        return;
    }
    /* The factor with the scale of the loss comes from the norm, which is finite only if all gradients are. */
    if (g->unscale && !opt->clip_factor) clip_norm(opt, INFINITY, true, site);
    /* If the update comes first after a backward pass, it need not wait for the last bucket before it begins. */
    bool by_bucket = lc__peers_owe(g) && g->tape.n_nodes == g->node_0 && !opt->clip_factor && opt->ops->elementwise;
    int64_t ints[] = {(int64_t)(uintptr_t)opt, (int64_t)opt->steps->id, opt->clip_by_value, by_bucket,
                      g->unscale != NULL};
    double window = gradient_factor(g);
    lc_op_call(&macro_step.op, 1, &opt->clip_factor, 5, ints, 1, &window, site);
    opt->factor = opt->clip_factor;
    opt->clip_factor = NULL;
    opt->clip_by_value = false;
    if (g->after_update) g->after_update(g->after_update_ctx, opt);
    status = lc__optimizer_updated(opt);
    if (status < 0) lc__record_error(g, status, "optimizer_step", site, NULL, NULL, 0);
}
