/* SPDX-License-Identifier: Apache-2.0 */
/* Backward passes: recorded as a macro, and expanded by the gradient rules of the operators before it, from the loss
 * back to the parameters. */
#include "base/status.h"
#include "base/number.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "tensor/slice.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

typedef struct backward {
    lc_build *build;
    lc_graph *g;
    const lc__summed_by *of; /* NULL: gradients go to their places */
    uint32_t n_values;
    lc_tensor **gradient; /* by value */
    lc_tensor **again;    /* by value: recomputed, in checkpointed regions */
    uint32_t *first_use;  /* by value: first differentiated node that reads it */
    bool *region_done;
    bool any_write;      /* in this step, so far */
    lc__origin *origins; /* if there was any write */
    uint32_t n_origins, cap_origins;
} backward;

static lc_tensor *tensor_of(const backward *b, uint32_t value)
{
    if (value == LC_ABSENT) return NULL;
    return b->again[value] ? b->again[value] : b->g->values[value];
}

static bool differentiated(const lc_node *n)
{
    return lc__passes_gradients(n->op) && !(n->flags & LC_NODE_NO_GRAD);
}

/* Nodes expanded from `first` on belong to node k of the user's tape. */
static lc_status note_origin(backward *b, uint32_t first, uint32_t k)
{
    uint32_t end = b->g->ir.n_nodes;
    if (!b->any_write || first == end) return LC_OK;
    LC_TRY(lc__grow(&b->origins, &b->cap_origins, b->n_origins, 1, "the plan of a step"));
    b->origins[b->n_origins++] = (lc__origin){first, end, k};
    return LC_OK;
}

/* Nodes expanded from `first` on are computed as the user's node is. */
static void keep_modes(lc_graph *g, uint32_t first, const lc_node *n, int more)
{
    for (uint32_t i = first; i < g->ir.n_nodes; i++)
        g->ir.nodes[i].flags |= (uint16_t)((n->flags & LC_NODE_AUTOCAST) | more);
}

/* Records the nodes of a checkpointed region once more; gradients then use those results. */
static lc_status recompute(backward *b, uint32_t region, uint32_t end)
{
    lc_graph *g = b->g;
    for (uint32_t k = 0; k < end; k++) {
        const lc_node *n = &g->tape.nodes[k];
        if (n->region != region || lc__is_macro(n->op) || (n->op->flags & (LC_OP_MUTATES | LC_OP_SIDE_EFFECT)))
            continue;
        lc_tensor *in[64], *out[LC_MAX_OUTPUTS];
        if (n->n_in > 64)
            return lc_fail(LC_ERR_UNSUPPORTED, "%s in a checkpointed region has too many inputs", n->op->name);
        for (uint32_t i = 0; i < n->n_in; i++) in[i] = tensor_of(b, g->tape.in[n->in_at + i]);
        uint32_t before = g->ir.n_nodes;
        lc_op_call_n(n->op, n->n_in, in, n->n_int, g->tape.ints + n->int_at, n->n_float, g->tape.floats + n->float_at,
                     out, g->tape.sites[k]);
        LC_TRY(g->status);
        keep_modes(g, before, n, 0);
        LC_TRY(note_origin(b, before, k));
        for (uint32_t i = 0; i < n->n_out; i++) b->again[n->first_out + i] = out[i];
    }
    return LC_OK;
}

static lc_tensor *add(lc_tensor *x, lc_tensor *y)
{
    lc_dtype dtype = x->type.dtype, wide = lc__wide_dtype(dtype);
    lc_tensor *in[] = {lc__as(x, wide), lc__as(y, wide)};
    return lc__as(lc_op_call(&lc__op_add, 2, in, 0, NULL, 0, NULL, LC_HERE), dtype);
}

static lc_status add_gradient(backward *b, uint32_t value, lc_tensor *d, const lc_node *n)
{
    lc_graph *g = b->g;
    const lc_type place = lc__gradient_type(g->values[value]), *want = &place;
    /* A gradient of 16 bits may be summed in f32, and an operator may have 16 bits though its rule computes in f32. */
    if (lc__wide_dtype(d->type.dtype) == lc__wide_dtype(place.dtype)) d = lc__as(d, place.dtype);
    if (!lc__type_equal(&d->type, want)) {
        char got[128], wanted[128];
        return lc_fail(LC_ERR_INTERNAL, "the gradient rule of %s gave %s %s for an input of %s %s", n->op->name,
                       lc_dtype_name(d->type.dtype), lc__shape_text(&d->type, got, sizeof got),
                       lc_dtype_name(want->dtype), lc__shape_text(want, wanted, sizeof wanted));
    }
    lc_tensor *sum = b->gradient[value];
    b->gradient[value] = sum ? add(sum, d) : d;
    return g->status;
}

/* The gradient of a parameter is complete: into its place in the flat buffer. */
static lc_status deposit(backward *b, uint32_t value)
{
    lc_tensor *p = b->g->values[value];
    lc_flat *flat;
    lc_flat_state *state;
    if (!b->gradient[value]) return LC_OK;
    LC_TRY(lc__flat_of(p, &flat));
    LC_TRY(lc__expand_flat_state(b->build, flat, &state));
    /* With slices the first gradient of a segment begins a new sum, which the sync adds to the slices. With chunks only
     * the gradient of the last chunk does; the sums of the others are held whole. */
    bool sliced = flat->sharding && flat->sharding->gradient && (!b->of || b->of->last);
    uint8_t *has = &state->after[p->flat_index];
    int64_t add = sliced ? (*has & LC_FLAT_PENDING) != 0 : *has;
    *has |= sliced ? LC_FLAT_PENDING : 1;
    bool taken = false;
    if (b->of) LC_TRY(b->of->deposit(b->of->ctx, b->build, p, b->gradient[value], &taken));
    if (taken) {
        b->gradient[value] = NULL;
        return LC_OK;
    }
    lc_tensor *in[] = {flat->gradients[p->flat_index], b->gradient[value]};
    lc_tensor *none[LC_MAX_OUTPUTS];
    lc_op_call_n(&lc__op_accumulate, 2, in, 1, &add, 0, NULL, none, LC_HERE);
    b->gradient[value] = NULL;
    return b->g->status;
}

/* The gradients of parameters that no node before k reads. */
static lc_status deposit_complete(backward *b, uint32_t k)
{
    const lc_graph *g = b->g;
    const lc_node *n = &g->tape.nodes[k];
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t value = g->tape.in[n->in_at + i];
        if (value != LC_ABSENT && b->first_use[value] == k && g->values[value]->kind == LC_TENSOR_PERSISTENT &&
            g->values[value]->requires_grad)
            LC_TRY(deposit(b, value));
    }
    return LC_OK;
}

/* Whether an operator that passes gradients has a rule for them. */
static lc_status check_rule(const lc_op *op)
{
    if (op->grad) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED,
                   "%s has no gradient rule, but the gradient of the loss reaches it, and an input wants one; give the "
                   "operator a rule (lc_op.grad), or the flag LC_OP_NO_GRAD, where gradients stop",
                   op->name);
}

/* Rules compute in f32; that of a conversion converts. */
static void widen(const lc_node *n, lc_tensor **dout)
{
    for (uint32_t i = 0; i < n->n_out && n->op != &lc__op_cast; i++)
        if (dout[i]) dout[i] = lc__as(dout[i], lc__wide_dtype(dout[i]->type.dtype));
}

static lc_status backward_node(backward *b, uint32_t k)
{
    lc_graph *g = b->g;
    const lc_node *n = &g->tape.nodes[k];
    lc_tensor *dout[LC_MAX_OUTPUTS] = {NULL}, *out[LC_MAX_OUTPUTS];
    bool any = false;
    for (uint32_t i = 0; i < n->n_out; i++) any |= (dout[i] = b->gradient[n->first_out + i]) != NULL;
    if (!any || !differentiated(n)) return LC_OK;
    if (n->region && !b->region_done[n->region]) {
        b->region_done[n->region] = true;
        LC_TRY(recompute(b, n->region, k + 1));
    }
    lc_tensor *few[3 * 16];
    bool few_need[16];
    lc_tensor **in = few, **din = few + 16;
    bool *need = few_need;
    if (n->n_in > 16) {
        in = lc__build_alloc(b->build, 2 * n->n_in * sizeof *in);
        need = lc__build_alloc(b->build, n->n_in);
        if (!in || !need) return LC_ERR_MEMORY;
        din = in + n->n_in;
    }
    bool wanted = false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t value = g->tape.in[n->in_at + i];
        in[i] = tensor_of(b, value);
        din[i] = NULL;
        need[i] = value != LC_ABSENT && g->values[value]->requires_grad;
        wanted |= need[i];
    }
    if (!wanted) return LC_OK;
    LC_TRY(check_rule(n->op));
    for (uint32_t i = 0; i < n->n_out; i++) out[i] = tensor_of(b, n->first_out + i);
    lc_grad rule = {.op = n->op,
                    .n_in = n->n_in,
                    .n_out = n->n_out,
                    .in = in,
                    .out = out,
                    .dout = dout,
                    .need = need,
                    .din = din,
                    .n_int = n->n_int,
                    .ints = g->tape.ints + n->int_at,
                    .n_float = n->n_float,
                    .floats = g->tape.floats + n->float_at};
    uint32_t before = g->ir.n_nodes;
    widen(n, dout);
    unsigned errors = lc__error_count();
    lc_status status = lc__said(n->op->grad(&rule), errors);
    /* To the user these operators belong to the call they differentiate. */
    for (uint32_t i = before; i < g->ir.n_nodes; i++) g->ir.sites[i] = g->tape.sites[k];
    if (status < 0) return lc_fail_context(status, "gradient of %s", n->op->name);
    LC_TRY(g->status);
    LC_TRY(note_origin(b, before, k));
    for (uint32_t i = 0; i < n->n_in; i++)
        if (need[i] && din[i]) LC_TRY(add_gradient(b, g->tape.in[n->in_at + i], din[i], n));
    keep_modes(g, before, n, LC_NODE_GRADIENT);
    for (uint32_t i = 0; i < n->n_out; i++) b->gradient[n->first_out + i] = NULL;
    return deposit_complete(b, k);
}

/* A backward pass may have a weight of its own (a chunk's). On several ranks or devices the loss is weighted by this
 * one's share of the samples. */
static lc_tensor *seed_of(lc_graph *g, const lc_node *n, int64_t dtype)
{
    double one = 1;
    if (n->n_float) return lc_op_call(&lc__op_scalar, 0, NULL, 1, &dtype, 1, g->tape.floats + n->float_at, LC_HERE);
    if (g->loss_weight) return lc_op_call_live(&lc__op_scalar, 0, NULL, 1, &dtype, 1, g->loss_weight, LC_HERE);
    return lc_op_call(&lc__op_scalar, 0, NULL, 1, &dtype, 1, &one, LC_HERE);
}

static bool of_others(const backward *b, uint32_t k)
{
    return b->of && k >= b->of->others && k < b->of->end;
}

static lc_status check_apart(const backward *b, uint32_t k)
{
    const lc_node *n = &b->g->tape.nodes[k];
    for (uint32_t i = 0; i < n->n_out; i++)
        if (b->gradient[n->first_out + i]) return lc_fail(LC_ERR_STATE, "%s", b->of->apart);
    return LC_OK;
}

static lc_status backward_error(lc_graph *g, lc_status status, uint32_t k)
{
    if (g->status == LC_OK) lc__record_error(g, status, "backward", g->tape.sites[k], NULL, NULL, 0);
    return status;
}

/* From the loss, which node k takes, back to the parameters. */
static lc_status differentiate(backward *b, uint32_t loss, uint32_t k)
{
    lc_graph *g = b->g;
    uint32_t first = g->ir.n_nodes, at = k;
    const lc_type *type = &g->values[loss]->type;
    lc_tensor *seed = seed_of(g, &g->tape.nodes[k], type->dtype);
    if (type->ndim) seed = lc_op_call(&lc__op_reshape, 1, &seed, type->ndim, type->shape, 0, NULL, LC_HERE);
    LC_TRY(g->status);
    keep_modes(g, first, &g->tape.nodes[k], LC_NODE_GRADIENT);
    b->gradient[loss] = seed;
    if (g->values[loss]->kind == LC_TENSOR_PERSISTENT) return deposit(b, loss);
    for (uint32_t i = k; i-- > 0;) {
        lc_status status = of_others(b, i) ? check_apart(b, i) : backward_node(b, i);
        if (status < 0) return backward_error(g, status, i);
    }
    /* Parameters whose first reader did not get a gradient itself. */
    for (uint32_t v = 0; v < b->n_values; v++)
        if (b->gradient[v] && g->values[v]->kind == LC_TENSOR_PERSISTENT && g->values[v]->requires_grad)
            LC_TRY(deposit(b, v));
    lc_status status = lc__expand_check_reads(b->build, first, b->origins, b->n_origins, &at);
    return status < 0 ? backward_error(g, status, at) : LC_OK;
}

lc_status lc__expand_backward(lc_build *build, const lc__summed_by *of)
{
    lc_graph *g = build->g;
    uint32_t k = build->position, loss = g->tape.in[g->tape.nodes[k].in_at];
    if (!g->values[loss]->requires_grad)
        return lc_fail(LC_ERR_STATE,
                       "the loss depends on no parameter that requires a gradient, or was computed while gradients are "
                       "off: after lc_no_grad_begin, or in an evaluation (see the option inference_mode)");
    backward b = {.build = build, .g = g, .of = of, .n_values = g->n_values, .any_write = lc__expand_any_write(build)};
    b.gradient = lc__build_alloc(build, g->n_values * sizeof *b.gradient);
    b.again = lc__build_alloc(build, g->n_values * sizeof *b.again);
    b.first_use = lc__build_alloc(build, g->n_values * sizeof *b.first_use);
    b.region_done = lc__build_alloc(build, g->n_regions + 1);
    if (!b.gradient || !b.again || !b.first_use || !b.region_done) return LC_ERR_MEMORY;
    memset(b.first_use, 0xff, g->n_values * sizeof *b.first_use);
    for (uint32_t i = 0; i < k; i++) {
        const lc_node *n = &g->tape.nodes[i];
        if (!differentiated(n) || of_others(&b, i)) continue;
        for (uint32_t j = 0; j < n->n_in; j++) {
            uint32_t value = g->tape.in[n->in_at + j];
            if (value != LC_ABSENT && b.first_use[value] == LC_ABSENT) b.first_use[value] = i;
        }
    }
    lc_status status = differentiate(&b, loss, k);
    free(b.origins);
    return status;
}

/* ---- the macro ---- */

lc_status lc__infer_backward(lc_infer *call)
{
    call->n_out = 0;
    if (lc__numel(call->in[0]) != 1)
        return lc_fail(LC_ERR_SHAPE, "a loss must have one element; reduce it first (lc_mean, lc_sum)");
    if (!lc_dtype_is_float(call->in[0]->dtype)) return lc_fail(LC_ERR_DTYPE, "a loss must be a floating-point value");
    return LC_OK;
}

static lc_status expand_backward(lc_build *b, const lc_node *n)
{
    (void)n;
    return lc__expand_backward(b, NULL);
}

static const lc_macro macro_backward = {{.name = "backward", .flags = LC__OP_MACRO, .infer = lc__infer_backward},
                                        expand_backward};

void lc_backward_at(lc_tensor *loss, lc_site site)
{
    if (!lc__check_tensor(loss, "the loss", "backward", site)) return;
    lc_graph *g = lc_current_graph();
    for (lc_peer *p = g ? g->peers : NULL; p; p = p->next)
        if (p->ops->backward && p->ops->backward(p, loss, site)) return;
    if (g) lc__peers_before_backward(g);
    lc_op_call(&macro_backward.op, 1, &loss, 0, NULL, 0, NULL, site);
    if (g) g->backwards++;
}

bool lc__graph_went_backward(const lc_graph *g, const lc_tensor *loss)
{
    if (!g->backwards || loss->graph != g || loss->generation != g->generation) return false;
    for (uint32_t i = 0; i < g->tape.n_nodes; i++) {
        const lc_node *n = &g->tape.nodes[i];
        if (n->op == &macro_backward.op && g->tape.in[n->in_at] == loss->value) return true;
    }
    return false;
}
