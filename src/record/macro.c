/* SPDX-License-Identifier: Apache-2.0 */
/* Macro nodes: what a step asks for beyond operators. Recorded like operators (so that they are part of what a plan is
 * keyed by), expanded into operators when a plan is made. Also the few operators of the engine itself. */
#include "optim/optim_internal.h"
#include "base/handle.h"
#include "optim/state_buffers.h"
#include "record/graph_impl.h"
#include "tensor/slice.h"

#include <lightc/optim.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- inference ---- */

static lc_status infer_nothing(lc_infer *call)
{
    call->n_out = 0;
    return LC_OK;
}

static lc_status infer_backward(lc_infer *call)
{
    call->n_out = 0;
    if (lc__numel(call->in[0]) != 1)
        return lc_fail(LC_ERR_SHAPE, "a loss must have one element; reduce it first (lc_mean, lc_sum)");
    if (!lc_dtype_is_float(call->in[0]->dtype)) return lc_fail(LC_ERR_DTYPE, "a loss must be a floating-point value");
    return LC_OK;
}

static lc_status infer_scalars(lc_infer *call)
{
    for (int i = 0; i < call->n_out; i++)
        call->out[i] = (lc_type){.dtype = call->n_int > 1 ? (lc_dtype)call->ints[1] : LC_F32};
    return LC_OK;
}

static lc_status infer_like_first(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

/* Of a chunk: ints: place on the tree (tree.h); floats: weight */
const lc_op lc__macro_backward = {.name = "backward", .infer = infer_backward};
/* ints: none, or an optimizer and its id */
const lc_op lc__macro_zero_grad = {.name = "zero_grad", .infer = infer_nothing};
const lc_op lc__macro_keep = {.name = "keep", .infer = infer_nothing};
/* in: a tensor of the step that the host has written since */
const lc_op lc__macro_write = {.name = "lc_tensor_write", .infer = infer_nothing};
/* ints: optimizer, dtype, the optimizer's id; floats: max_norm, window. Results: norm, factor for gradients. */
const lc_op lc__macro_clip_norm = {.name = "clip_grad_norm", .n_out = 2, .infer = infer_scalars};
/* in: factor for gradients or absent; ints: optimizer, its id, whether to clip by value; floats: window */
const lc_op lc__macro_step = {.name = "optimizer_step", .infer = infer_nothing};
/* in: parameter; floats: window */
const lc_op lc__macro_gradient = {.name = "gradient", .n_out = 1, .infer = infer_like_first};

/* Of the graph's reducer. */
const lc_op lc__macro_sync = {.name = "sync", .infer = infer_nothing};
const lc_op lc__macro_share_sum = {.name = "share_sum", .infer = infer_nothing};
/* ints: place on the tree. A chunk without gradients; and the sum over a window */
const lc_op lc__macro_absent = {.name = "no_backward", .infer = infer_nothing};
const lc_op lc__macro_window = {.name = "window", .infer = infer_nothing};

bool lc__is_macro(const lc_op *op)
{
    return op == &lc__macro_backward || op == &lc__macro_zero_grad || op == &lc__macro_keep ||
           op == &lc__macro_clip_norm || op == &lc__macro_step || op == &lc__macro_gradient || op == &lc__macro_sync ||
           op == &lc__macro_share_sum || op == &lc__macro_absent || op == &lc__macro_window || op == &lc__macro_write;
}

/* ---- recording ---- */

double lc__gradient_factor(const lc_graph *g)
{
    double window = g->window > 0 ? g->window : (double)g->backwards;
    for (const lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->ranks) window *= p->ops->ranks(p);
    return window > 0 ? 1.0 / window : 1.0;
}

static bool check_optimizer(const lc_optimizer *opt, const char *title, lc_site site)
{
    if (lc__has_mark(opt, LC__MARK_OF(OPTIMIZER))) return true;
    lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, opt ? "this is not an optimizer; it was never made, or has been freed"
                                                 : "the optimizer is NULL"),
                    title, site);
    return false;
}

void lc_backward_at(lc_tensor *loss, lc_site site)
{
    if (!lc__check_tensor(loss, "the loss", "backward", site)) return;
    lc_graph *g = lc_current_graph();
    for (lc_peer *p = g ? g->peers : NULL; p; p = p->next)
        if (p->ops->backward && p->ops->backward(p, loss, site)) return;
    if (g) lc__peers_before_backward(g);
    lc_op_call(&lc__macro_backward, 1, &loss, 0, NULL, 0, NULL, site);
    if (g) g->backwards++;
}

void lc_zero_grad(lc_graph *g)
{
    LC__IS(g, GRAPH, );
    if (g != lc_current_graph()) {
        /* Between steps there is nothing to order it against. */
        for (int i = 0; i < g->n_flats; i++) memset(g->flats[i]->has_gradient, 0, (size_t)g->flats[i]->n);
    } else {
        lc_op_call(&lc__macro_zero_grad, 0, NULL, 0, NULL, 0, NULL, LC__NO_SITE);
    }
    g->backwards = 0;
    for (lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->zeroed) p->ops->zeroed(p);
}

static bool is_trained_in(const lc_tensor *p, const lc_graph *g)
{
    for (int i = 0; p->requires_grad && i < g->n_flats; i++)
        if (p->flat == g->flats[i]) return true;
    return false;
}

/* Whether no other optimizer can have gradients in g. */
static bool trains_all(const lc_optimizer *opt, const lc_graph *g)
{
    int64_t all = 0, own = 0;
    for (int i = 0; i < g->n_flats; i++)
        for (int k = 0; k < g->flats[i]->n; k++) all += g->flats[i]->parameters[k]->requires_grad;
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
        lc_op_call(&lc__macro_zero_grad, 0, NULL, 2, ints, 0, NULL, site);
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

void lc_graph_set_window(lc_graph *g, double window)
{
    LC__IS(g, GRAPH, );
    g->window = window;
}

lc_tensor *lc_keep_at(lc_tensor *t, lc_site site)
{
    if (!lc__check_tensor(t, "the value", "keep", site)) return lc__error_tensor();
    if (t->kind == LC_TENSOR_STEP) lc_op_call(&lc__macro_keep, 1, &t, 0, NULL, 0, NULL, site);
    return t;
}

void lc__record_host_write(lc_tensor *t)
{
    lc_graph *g = lc_current_graph();
    if (g && t->graph == g && t->generation == g->generation && g->status == LC_OK)
        lc_op_call(&lc__macro_write, 1, &t, 0, NULL, 0, NULL, LC_HERE);
}

/* Where every rank has a part of the gradient, that is one of the sum over ranks only behind the sync. (A backward pass
 * that has not run yet: lc__expand_whole_gradient.) */
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
    double window = g ? lc__gradient_factor(g) : 1.0;
    return lc_op_call(&lc__macro_gradient, 1, &parameter, 0, NULL, 1, &window, site);
}

static void scale(lc_tensor *t, double factor)
{
    int64_t n = lc__numel(&t->type);
    for (int64_t i = 0; i < n; i++) {
        if (t->type.dtype == LC_F64)
            ((double *)t->data)[i] *= factor;
        else
            ((float *)t->data)[i] *= (float)factor;
    }
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
        return lc_fail(LC_ERR_UNSUPPORTED, "lc_gradient_write: with the strategy sharded no rank has the whole "
                                           "gradient; use --strategy ddp");
    lc_tensor *gradient = flat->gradients[parameter->flat_index];
    if (g) LC_TRY(lc__peers_settle(g));
    LC_TRY(lc_tensor_write(gradient, data, bytes));
    double window = g ? lc__gradient_factor(g) : 1.0;
    if (window != 1.0) scale(gradient, 1 / window);
    flat->has_gradient[parameter->flat_index] = 1;
    return LC_OK;
}

lc_tensor *lc_clip_grad_norm_at(lc_optimizer *opt, double max_norm, lc_site site)
{
    if (!check_optimizer(opt, "clip_grad_norm", site)) return lc__error_tensor();
    lc_graph *g = lc_current_graph();
    lc_tensor *out[2] = {NULL};
    lc_dtype dtype = opt->n_groups && opt->groups[0].n_parameters ? opt->groups[0].parameters[0]->type.dtype : LC_F32;
    lc_status status = lc__optimizer_prepare(opt);
    if (status < 0) {
        lc__record_error(g, status, "clip_grad_norm", site, NULL, NULL, 0);
        return lc__error_tensor();
    }
    int64_t ints[] = {(int64_t)(uintptr_t)opt, dtype, (int64_t)opt->steps->id};
    double floats[] = {max_norm, g ? lc__gradient_factor(g) : 1.0};
    lc_op_call_n(&lc__macro_clip_norm, 0, NULL, 3, ints, 2, floats, out, site);
    opt->clip_factor = out[1];
    return out[0];
}

void lc_clip_grad_value_at(lc_optimizer *opt, double clip_value, lc_site site)
{
    if (!check_optimizer(opt, "clip_grad_value", site)) return;
    for (int i = 0; i < opt->n_groups; i++) opt->groups[i].hyper[LC_HYPER_CLIP_VALUE] = clip_value;
    opt->clip_by_value = true;
}

void lc_optimizer_step_at(lc_optimizer *opt, lc_site site)
{
    if (!check_optimizer(opt, "optimizer_step", site)) return;
    lc_graph *g = lc_current_graph();
    if (!g) {
        lc_op_call(&lc__macro_step, 0, NULL, 0, NULL, 0, NULL, site); /* says what is missing */
        return;
    }
    lc_status status = lc__optimizer_prepare(opt);
    if (status < 0) {
        lc__record_error(g, status, "optimizer_step", site, NULL, NULL, 0);
        return;
    }
    /* Where it comes first behind a backward pass, it need not wait for the last bucket before it begins. */
    bool by_bucket =
        lc__peers_owe(g) && g->tape.n_nodes == g->node_0 && !opt->clip_factor && lc__is_elementwise(opt->ops);
    int64_t ints[] = {(int64_t)(uintptr_t)opt, (int64_t)opt->steps->id, opt->clip_by_value, by_bucket};
    double window = lc__gradient_factor(g);
    lc_op_call(&lc__macro_step, 1, &opt->clip_factor, 4, ints, 1, &window, site);
    opt->clip_factor = NULL;
    opt->clip_by_value = false;
}

/* ---- the engine's own operators ---- */

static bool view_same(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset)
{
    (void)call;
    memcpy(out->stride, in->stride, sizeof out->stride);
    *offset = 0;
    return true;
}

const lc_op lc__op_detach = {
    .name = "detach", .flags = LC_OP_VIEW | LC_OP_NO_GRAD, .n_out = 1, .infer = infer_like_first, .view = view_same};

lc_tensor *lc_detach_at(lc_tensor *x, lc_site site)
{
    if (!lc__check_tensor(x, "x", "detach", site)) return lc__error_tensor();
    return lc_op_call(&lc__op_detach, 1, &x, 0, NULL, 0, NULL, site);
}

/* in: gradient range (persistent), value; ints: 0 overwrite, 1 add. */
static void add_dims(const lc_view *to, const lc_view *from, int dim, int64_t t, int64_t f)
{
    if (dim == to->ndim) {
        if (to->dtype == LC_F64)
            ((double *)to->data)[t] += ((const double *)from->data)[f];
        else
            ((float *)to->data)[t] += ((const float *)from->data)[f];
        return;
    }
    for (int64_t i = 0; i < to->shape[dim]; i++)
        add_dims(to, from, dim + 1, t + i * to->stride[dim], f + i * from->stride[dim]);
}

static void run_accumulate(const lc_call *c)
{
    if (!c->ints[0]) {
        lc__copy_strided(&c->in[1], &c->in[0]);
        return;
    }
    int64_t n = 1;
    bool same = true;
    for (int i = 0; i < c->in[0].ndim; i++) {
        n *= c->in[0].shape[i];
        same &= c->in[0].shape[i] == 1 || c->in[0].stride[i] == c->in[1].stride[i];
    }
    if (same && c->in[0].dtype == LC_F32) {
        float *to = c->in[0].data;
        const float *from = c->in[1].data;
        for (int64_t i = 0; i < n; i++) to[i] += from[i];
        return;
    }
    add_dims(&c->in[0], &c->in[1], 0, 0, 0);
}

static const lc_kernel accumulate_kernel = {.name = "accumulate", .layout = LC_WANT_STRIDED, .run = run_accumulate};
const lc_op lc__op_accumulate = {.name = "accumulate_grad",
                                 .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                                 .infer = infer_nothing,
                                 .mutated_inputs = 1,
                                 .kernel = &accumulate_kernel};

/* in: gradients, 1-D; ints: dtype, peer or 0, then (offset, count) per parameter; floats: max_norm, window.
 * out: total norm of gradients * window, and the factor window * min(1, max_norm / (norm + 1e-6)).
 * Squares are added in blocks of 256 bytes from a parameter's begin on, and those exactly: the result does not depend
 * on threads, buckets, or which rank has which block. With a peer the norm is that of all ranks' blocks. */
static void add_squares(const void *data, lc_dtype dtype, int64_t n, lc__exact_sum *sum)
{
    int64_t block = (int64_t)(LC__NORM_BLOCK_BYTES / lc_dtype_size(dtype));
    for (int64_t at = 0; at < n; at += block) {
        int64_t end = at + block < n ? at + block : n;
        double s[8] = {0};
        for (int64_t i = at; i < end; i++) {
            double x = dtype == LC_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
            s[i % 8] += x * x;
        }
        lc__exact_add(sum, ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
    }
}

static void add_over_ranks(lc_peer *peer, lc__exact_sum *sum)
{
    int64_t words[LC__EXACT_DIGITS + 2];
    lc__exact_tidy(sum);
    memcpy(words, sum->digit, sizeof sum->digit);
    words[LC__EXACT_DIGITS] = isinf(sum->special);
    words[LC__EXACT_DIGITS + 1] = isnan(sum->special);
    peer->ops->add_up(peer, words, LC__EXACT_DIGITS + 2);
    memcpy(sum->digit, words, sizeof sum->digit);
    sum->special = words[LC__EXACT_DIGITS + 1] ? NAN : words[LC__EXACT_DIGITS] ? INFINITY : 0;
}

void lc__clip_finish(const lc_call *c, lc__exact_sum *sum)
{
    lc_peer *peer = (lc_peer *)(uintptr_t)c->ints[LC__CLIP_PEER];
    if (peer) add_over_ranks(peer, sum);
    double window = c->floats[1], norm = sqrt(lc__exact_value(sum)) * window;
    double factor = c->floats[0] / (norm + 1e-6);
    if (!(factor < 1)) factor = isnan(factor) ? factor : 1;
    factor *= window;
    if (c->out[0].dtype == LC_F64) {
        *(double *)c->out[0].data = norm;
        *(double *)c->out[1].data = factor;
    } else {
        *(float *)c->out[0].data = (float)norm;
        *(float *)c->out[1].data = (float)factor;
    }
}

static void run_clip_coefficient(const lc_call *c)
{
    lc__exact_sum sum = {0};
    size_t size = lc_dtype_size(c->in[0].dtype);
    for (int i = LC__CLIP_FIRST; i + 1 < c->n_int; i += 2)
        add_squares((const char *)c->in[0].data + (size_t)c->ints[i] * size, c->in[0].dtype, c->ints[i + 1], &sum);
    lc__clip_finish(c, &sum);
}

static lc_status infer_clip(lc_infer *call)
{
    call->out[0] = call->out[1] = (lc_type){.dtype = (lc_dtype)call->ints[0]};
    return LC_OK;
}

static const lc_kernel clip_kernel = {
    .name = "clip_coefficient", .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_clip_coefficient};
const lc_op lc__op_clip_coefficient = {.name = "clip_coefficient",
                                       .flags = LC_OP_NO_GRAD | LC_OP_SIDE_EFFECT,
                                       .n_out = 2,
                                       .infer = infer_clip,
                                       .kernel = &clip_kernel};
