/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: operators become kernel calls, and every value gets a place in memory.
 *
 * Values are views (offset, strides) of storages. Operators flagged LC_OP_VIEW cost nothing: their result is another
 * view of the same storage. If a kernel cannot take an operand's layout, a copy is inserted (once per value and
 * layout). */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "ops/ops.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static lc_status new_storage(lc_build *b, size_t bytes, int32_t *out)
{
    LC_TRY(lc__grow(&b->storages, &b->cap_storages, b->n_storages, 1, "the plan of a step"));
    b->storages[b->n_storages] = (lc_storage){.bytes = bytes, .first = INT_MAX, .last = -1, .merged = -1};
    *out = b->n_storages++;
    return LC_OK;
}

static lc_status new_call(lc_build *b, lc_ir_node *node, const lc_call *call)
{
    LC_TRY(lc__grow(&b->calls, &b->cap_calls, b->n_calls, 1, "the plan of a step"));
    b->calls[b->n_calls++] = (lc_ir_call){.node = node, .kernel = call->kernel, .threads = call->threads};
    return LC_OK;
}

/* ---- places of values ---- */

static bool is_within(const void *data, const lc_tensor *t)
{
    const char *at = data, *begin = t->device_data;
    return t->kind == LC_TENSOR_PERSISTENT && !t->is_slice && at >= begin && at < begin + t->bytes;
}

static lc_status other_device(const lc_build *b, const lc_tensor *t, const char *what)
{
    char is[LC__DEVICE_NAME], runs[LC__DEVICE_NAME];
    return lc_fail(LC_ERR_STATE,
                   "%s is on %s, but the step runs on %s; a trainer moves the tensors of its module, other tensors are "
                   "where they were made",
                   what, lc__device_name(t->on, is), lc__device_name(b->g->on, runs));
}

/* What is written must be on the device of the graph: what the host has is only uploaded. */
static lc_status check_written(const lc_build *b, const lc_ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (!(n->op->mutated_inputs >> i & 1) || n->in[i] == LC_ABSENT) continue;
        const lc_tensor *t = lc__storage_root(b, b->values[n->in[i]].storage)->external;
        if (t && t->on != b->g->on) return other_device(b, t, "what it writes");
    }
    return LC_OK;
}

/* A value defined outside this segment: a persistent or input tensor, or a result of an earlier segment. */
static lc_status place_outside(lc_build *b, uint32_t value)
{
    lc_ir_value *v = &b->values[value];
    lc_tensor *t = v->outside ? v->outside : value < b->g->n_values ? b->g->values[value] : NULL;
    int32_t storage;
    int64_t offset = 0;
    if (!t) return lc_fail(LC_ERR_INTERNAL, "value %u is used before it is made", value);
    if (t->is_slice)
        return lc_fail(LC_ERR_STATE,
                       "this rank has only a slice of an input: the strategy sharded spreads it over the ranks");
    if (t->kind >= LC_TENSOR_PERSISTENT) {
        if (t->on != b->g->on && !lc__on_host(t->on)) return other_device(b, t, "an input");
        LC_TRY(new_storage(b, t->bytes, &storage));
        b->storages[storage].external = t;
        lc__dense_strides(&v->type, t->layout, v->stride);
    } else {
        const lc_location *where = NULL;
        for (int i = 0; i < b->g->n_chain; i++) {
            const lc_plan *p = b->g->chain[i];
            if (value >= p->value_0 && value < p->value_0 + p->n_values) where = &p->locations[value - p->value_0];
        }
        if (!where || !where->made)
            return lc_fail(LC_ERR_STATE, "an input was not kept when its part of the step ran; call lc_keep on it "
                                         "where it is computed");
        LC_TRY(new_storage(b, 0, &storage));
        b->storages[storage].fixed = where->data;
        if (where->in_input) b->storages[storage].external = b->g->values[where->input];
        memcpy(v->stride, where->stride, sizeof v->stride);
        offset = where->in_input ? where->offset : 0;
        lc_tensor *of = lc__viewed_tensor(b->g, value);
        if (!where->in_input && of && is_within(where->data, of)) {
            b->storages[storage].external = of;
            offset = ((char *)where->data - (char *)of->device_data) / (int64_t)lc_dtype_size(of->type.dtype);
        }
    }
    v->storage = storage;
    v->offset = offset;
    return LC_OK;
}

void lc__build_view(const lc_build *b, uint32_t value, lc_view *out)
{
    if (value == LC_ABSENT) {
        *out = (lc_view){.ndim = -1};
        return;
    }
    const lc_ir_value *v = &b->values[value];
    *out = (lc_view){.dtype = v->type.dtype, .ndim = v->type.ndim};
    memcpy(out->shape, v->type.shape, sizeof out->shape);
    memcpy(out->stride, v->stride, sizeof out->stride);
}

static lc_status place_dense(lc_build *b, uint32_t value, const int64_t *stride)
{
    lc_ir_value *v = &b->values[value];
    LC_TRY(new_storage(b, (size_t)lc__numel(&v->type) * lc_dtype_size(v->type.dtype), &v->storage));
    b->values[value].offset = 0;
    memcpy(b->values[value].stride, stride, LC_MAX_DIMS * sizeof *stride);
    return LC_OK;
}

/* An operand that no node before has made. */
static lc_status place_operand(lc_build *b, uint32_t value)
{
    int64_t stride[LC_MAX_DIMS] = {0};
    if (!b->values[value].in_parts) return place_outside(b, value);
    lc__dense_strides(&b->values[value].type, LC_ROW_MAJOR, stride);
    return place_dense(b, value, stride);
}

static bool dense(const lc_ir_value *v, lc_layout layout)
{
    return lc__is_dense(v->type.ndim, v->type.shape, v->stride, layout);
}

/* ---- copies into another layout ---- */

static lc_status copied(lc_build *b, uint32_t value, lc_layout layout, lc_site site, uint32_t *out)
{
    lc_ir_node *n = lc__build_alloc(b, sizeof *n);
    uint32_t *ends = lc__build_alloc(b, 2 * sizeof *ends);
    if (!n || !ends) return LC_ERR_MEMORY;
    lc_type type = b->values[value].type;
    uint32_t copy = lc__build_value(b, &type);
    if (copy == LC_ABSENT) return LC_ERR_MEMORY;
    ends[0] = value;
    ends[1] = copy;
    *n = (lc_ir_node){.op = &lc__op_contiguous, .n_in = 1, .n_out = 1, .in = ends, .out = ends + 1, .site = site};
    int64_t stride[LC_MAX_DIMS] = {0};
    lc__dense_strides(&type, layout, stride);
    LC_TRY(place_dense(b, copy, stride));
    lc_view views[2];
    lc__build_view(b, value, &views[0]);
    lc__build_view(b, copy, &views[1]);
    lc_call call = {.op = n->op, .n_in = 1, .n_out = 1, .in = views, .out = views + 1};
    LC_TRY(lc__choose_kernel(b, &call));
    LC_TRY(new_call(b, n, &call));
    *out = copy;
    return LC_OK;
}

/* The value as a dense array in that layout: itself, an earlier copy, or a new one. */
static lc_status in_layout(lc_build *b, uint32_t value, lc_layout layout, lc_site site, uint32_t *out)
{
    *out = value;
    if (dense(&b->values[value], layout)) return LC_OK;
    /* Results never change; persistent tensors may. */
    bool stable = !lc__storage_root(b, b->values[value].storage)->external;
    for (int i = b->n_calls - 1; stable && i >= 0; i--) {
        const lc_ir_node *n = b->calls[i].node;
        if (n->op == &lc__op_contiguous && n->in[0] == value && dense(&b->values[n->out[0]], layout)) {
            *out = n->out[0];
            return LC_OK;
        }
    }
    return copied(b, value, layout, site, out);
}

static lc_layout natural(const lc_ir_value *v, lc_kernel_layout want)
{
    return want == LC_WANT_CHANNELS_LAST && v->type.ndim >= 3 ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
}

/* The memory order that most full operands of an elementwise call already have. */
static lc_layout common_layout(const lc_build *b, const lc_ir_node *n)
{
    int64_t votes[2] = {0, 0};
    const lc_type *shape = &b->values[n->out[0]].type;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == LC_ABSENT) continue;
        const lc_ir_value *v = &b->values[n->in[i]];
        if (!lc__same_shape(&v->type, shape)) continue;
        bool row = dense(v, LC_ROW_MAJOR), last = dense(v, LC_CHANNELS_LAST);
        if (row != last) votes[last]++;
    }
    return votes[1] > votes[0] ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
}

static lc_status fit_inputs(lc_build *b, lc_ir_node *n, const lc_kernel *kernel, lc_layout common)
{
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == LC_ABSENT || (n->op->mutated_inputs >> i & 1)) continue;
        lc_ir_value *v = &b->values[n->in[i]];
        bool fits = true;
        lc_layout layout = LC_ROW_MAJOR;
        switch (kernel->layout) {
        case LC_WANT_STRIDED:
            break;
        case LC_WANT_ROW_MAJOR:
        case LC_WANT_CHANNELS_LAST:
            fits = dense(v, layout = natural(v, kernel->layout));
            break;
        case LC_WANT_ELEMENTWISE:
            layout = common;
            fits = !lc__same_shape(&v->type, &b->values[n->out[0]].type) || dense(v, common);
            break;
        case LC_WANT_MATRIX:
            fits = lc__is_matrix(v->type.ndim, v->type.shape, v->stride);
            break;
        case LC_WANT_LAST_DENSE:
            fits = v->type.ndim == 0 || v->type.shape[v->type.ndim - 1] == 1 || v->stride[v->type.ndim - 1] == 1;
            break;
        }
        if (!fits) LC_TRY(in_layout(b, n->in[i], layout, n->site, &n->in[i]));
    }
    return LC_OK;
}

/* Dense strides whose order of dimensions is that of `like`, if its last dimension is innermost. */
static bool strides_like(const lc_type *type, const lc_ir_value *like, int64_t *stride)
{
    int n = type->ndim, order[LC_MAX_DIMS];
    if (n != like->type.ndim || n < 2) return false;
    for (int i = 0; i < n; i++) {
        int at = i;
        while (at > 0 && like->stride[order[at - 1]] < like->stride[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    if (order[n - 1] != n - 1) return false;
    int64_t step = 1;
    for (int i = n - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= type->shape[order[i]];
    }
    return true;
}

/* Results of kernels that take any strides keep the order of the first operand: the nodes after them were planned for
 * it. */
static lc_layout layout_like_first(const lc_build *b, const lc_ir_node *n, const lc_type *result)
{
    const lc_ir_value *first = n->n_in && n->in[0] != LC_ABSENT ? &b->values[n->in[0]] : NULL;
    bool channels = first && first->type.ndim >= 3 && dense(first, LC_CHANNELS_LAST) && !dense(first, LC_ROW_MAJOR);
    return channels && result->ndim == first->type.ndim ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
}

static lc_status place_outputs(lc_build *b, lc_ir_node *n, const lc_kernel *kernel, lc_layout common)
{
    bool first = n->n_in && n->in[0] != LC_ABSENT;
    for (int k = 0; k < n->n_out; k++) {
        const lc_type type = b->values[n->out[k]].type;
        int64_t stride[LC_MAX_DIMS] = {0};
        lc_layout layout = LC_ROW_MAJOR;
        switch (kernel->layout) {
        case LC_WANT_ROW_MAJOR:
        case LC_WANT_MATRIX:
            break;
        case LC_WANT_CHANNELS_LAST:
            layout = type.ndim >= 3 ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
            break;
        case LC_WANT_ELEMENTWISE:
            layout = common;
            break;
        case LC_WANT_STRIDED:
            layout = layout_like_first(b, n, &type);
            break;
        case LC_WANT_LAST_DENSE:
            break;
        }
        lc__dense_strides(&type, layout, stride);
        if (kernel->layout == LC_WANT_LAST_DENSE && first) strides_like(&type, &b->values[n->in[0]], stride);
        LC_TRY(place_dense(b, n->out[k], stride));
    }
    return LC_OK;
}

/* ---- one node ---- */

static lc_status lower_view(lc_build *b, lc_ir_node *n)
{
    lc_infer infer = {.op = n->op,
                      .n_in = n->n_in,
                      .n_int = n->n_int,
                      .ints = n->ints,
                      .n_float = n->n_float,
                      .floats = n->floats,
                      .n_out = 1};
    const lc_type *types[1] = {&b->values[n->in[0]].type};
    lc_type out_type = b->values[n->out[0]].type;
    infer.in = types;
    infer.out = &out_type;
    for (int attempt = 0; attempt < 2; attempt++) {
        lc_view in, out;
        int64_t offset = 0;
        lc__build_view(b, n->in[0], &in);
        out = (lc_view){.dtype = out_type.dtype, .ndim = out_type.ndim};
        memcpy(out.shape, out_type.shape, sizeof out.shape);
        if (n->op->view(&infer, &in, &out, &offset)) {
            lc_ir_value *from = &b->values[n->in[0]], *to = &b->values[n->out[0]];
            to->storage = from->storage;
            to->offset = from->offset + offset;
            memcpy(to->stride, out.stride, sizeof to->stride);
            return LC_OK;
        }
        LC_TRY(in_layout(b, n->in[0], LC_ROW_MAJOR, n->site, &n->in[0]));
        types[0] = &b->values[n->in[0]].type;
    }
    return lc_fail(LC_ERR_INTERNAL, "%s cannot be expressed as a view", n->op->name);
}

/* The value may be in the target's memory in another order, so it must be read before the target is written. */
static lc_status fit_assigned(lc_build *b, lc_ir_node *n)
{
    const lc_ir_value *to = &b->values[n->in[0]], *from = &b->values[n->in[1]];
    const lc_tensor *target = lc__storage_root(b, to->storage)->external,
                    *source = lc__storage_root(b, from->storage)->external;
    if (!target || !source || !lc__overlap(target, source)) return LC_OK;
    return copied(b, n->in[1], LC_ROW_MAJOR, n->site, &n->in[1]);
}

static lc_status choose_for_views(lc_build *b, const lc_ir_node *n, lc_view *views, lc_call *call)
{
    for (int i = 0; i < n->n_in; i++) lc__build_view(b, n->in[i], &views[i]);
    for (int i = 0; i < n->n_out; i++) {
        /* Kernels that take only one layout may assume that they get it; the others get the actual layout. */
        const lc_type *type = &b->values[n->out[i]].type;
        lc__view_of(type, layout_like_first(b, n, type), NULL, &views[n->n_in + i]);
    }
    return lc__choose_kernel(b, call);
}

/* Storage types of 16 bits were given to nodes that have a kernel for them if operands are dense. If it does not take
 * the operands' strides, it gets dense copies: the reference kernel, which does, knows only f32 and f64. */
static lc_status choose_kernel(lc_build *b, lc_ir_node *n, lc_view *views, lc_call *call)
{
    const lc_kernel *dense;
    bool halves = false;
    LC_TRY(choose_for_views(b, n, views, call));
    for (int i = 0; i < n->n_in + n->n_out; i++)
        halves |= views[i].ndim >= 0 && (views[i].dtype == LC_F16 || views[i].dtype == LC_BF16);
    if (call->kernel != n->op->kernel || !halves) return LC_OK;
    LC_TRY(lc__kernel_of(b, n, &dense));
    if (dense == call->kernel) return LC_OK;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != LC_ABSENT && !(n->op->mutated_inputs >> i & 1))
            LC_TRY(in_layout(b, n->in[i], LC_ROW_MAJOR, n->site, &n->in[i]));
    return choose_for_views(b, n, views, call);
}

static lc_status lower_node(lc_build *b, lc_ir_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != LC_ABSENT && b->values[n->in[i]].storage < 0) LC_TRY(place_operand(b, n->in[i]));
    if (n->op->flags & LC_OP_VIEW) return lower_view(b, n);
    if (n->op->mutated_inputs) LC_TRY(check_written(b, n));
    if (n->op == &lc__op_assign) LC_TRY(fit_assigned(b, n));
    lc_view *views = lc__build_alloc(b, (size_t)(n->n_in + n->n_out + 1) * sizeof *views);
    if (!views) return LC_ERR_MEMORY;
    lc_call call = lc__call_of(b, n, views);
    LC_TRY(choose_kernel(b, n, views, &call));
    const lc_kernel *kernel = call.kernel;
    lc_layout common = kernel->layout == LC_WANT_ELEMENTWISE && n->n_out ? common_layout(b, n) : LC_ROW_MAJOR;
    LC_TRY(fit_inputs(b, n, kernel, common));
    LC_TRY(place_outputs(b, n, kernel, common));
    return new_call(b, n, &call);
}

lc_status lc__lower(lc_build *b)
{
    for (int i = 0; i < b->n_nodes; i++) {
        lc_ir_node *n = &b->nodes[i];
        if (!n->op) continue;
        lc_status status = lower_node(b, n);
        if (status < 0) {
            lc__record_error(b->g, status, n->op->name, n->site, NULL, NULL, 0);
            return status;
        }
    }
    return LC_OK;
}
