/* SPDX-License-Identifier: Apache-2.0 */
/* How long storages live, and which of them can share memory to save memory or a pass: results overwrite inputs that
 * die there, and gradients are computed directly in their place in the flat gradient buffer. */
#include "engine/plan/plan_impl.h"
#include "ops/ops.h"

#include <limits.h>

static void uses(lc_build *b)
{
    for (int i = 0; i < b->n_calls; i++) {
        const lc_ir_node *n = b->calls[i].node;
        if (!n) continue;
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            uint32_t value = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
            if (value == LC_ABSENT) continue;
            lc_storage *s = lc__storage_root(b, b->values[value].storage);
            if (i < s->first) s->first = i;
            if (i > s->last) s->last = i;
        }
    }
    for (uint32_t v = 0; v < b->n_values; v++)
        if (b->values[v].keep && b->values[v].storage >= 0) lc__storage_root(b, b->values[v].storage)->last = INT_MAX;
}

static bool same_strides(const lc_ir_value *a, const lc_ir_value *b)
{
    for (int i = 0; i < a->type.ndim; i++)
        if (a->type.shape[i] > 1 && a->stride[i] != b->stride[i]) return false;
    return true;
}

/* Calls that read or write a storage: how many, and the first. */
static int touches(lc_build *b, const lc_storage *s, int *first)
{
    int n = 0;
    for (int i = 0; i < b->n_calls; i++) {
        const lc_ir_node *node = b->calls[i].node;
        bool touched = false;
        for (int k = 0; node && k < node->n_in + node->n_out; k++) {
            uint32_t value = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
            touched |= value != LC_ABSENT && lc__storage_root(b, b->values[value].storage) == s;
        }
        if (touched && n++ == 0) *first = i;
    }
    return n;
}

/* Computes gradients directly in their place, in a flat buffer or a unit's memory: the first overwrites, others use an
 * accumulating kernel. */
static void deposit_directly(lc_build *b, int position)
{
    lc_ir_node *n = b->calls[position].node;
    const lc_ir_value *place = &b->values[n->in[0]], *value = &b->values[n->in[1]];
    lc_storage *s = lc__storage_root(b, value->storage);
    size_t bytes = (size_t)lc__numel(&place->type) * lc_dtype_size(place->type.dtype);
    if (s->external || s->fixed || s->placed || value->offset != 0 || !same_strides(value, place) || s->bytes != bytes)
        return;
    if (s->last > position && lc__peers_sum_in_place(b->g))
        return; /* ranks add it up from here on, while it is still being read */
    if (n->ints[0]) {
        int first = 0;
        if (touches(b, s, &first) != 2 || s->last == INT_MAX) return;
        const lc_ir_node *producer = b->calls[first].node;
        if (!(b->calls[first].kernel->flags & LC_KERNEL_ACCUMULATES) || !producer->n_out ||
            lc__storage_root(b, b->values[producer->out[0]].storage) != s)
            return;
        b->calls[first].accumulate = true;
    }
    int32_t to = place->storage;
    int64_t offset = place->offset;
    lc__storage_root(b, to)->placed = true;
    for (uint32_t v = 0; v < b->n_values; v++) {
        if (b->values[v].storage < 0 || lc__storage_root(b, b->values[v].storage) != s) continue;
        b->values[v].storage = to;
        b->values[v].offset += offset;
    }
    b->calls[position].node = NULL;
}

static void overwrite_input(lc_build *b, int position)
{
    const lc_ir_call *c = &b->calls[position];
    const lc_ir_node *n = c->node;
    if (b->g->nan_check) return; /* anomaly.c reads the inputs afterwards */
    if (!(c->kernel->flags & (LC_KERNEL_INPLACE_0 | LC_KERNEL_INPLACE_ANY)) || !n->n_out || c->accumulate) return;
    const lc_ir_value *out = &b->values[n->out[0]];
    lc_storage *to = lc__storage_root(b, out->storage);
    if (to->external || to->first != position) return;
    int last = c->kernel->flags & LC_KERNEL_INPLACE_ANY ? n->n_in : 1;
    for (int i = 0; i < last && i < n->n_in; i++) {
        if (n->in[i] == LC_ABSENT) continue;
        const lc_ir_value *in = &b->values[n->in[i]];
        lc_storage *from = lc__storage_root(b, in->storage);
        if (from == to || from->external || from->fixed || from->last != position || in->offset != 0 ||
            from->bytes != to->bytes || !lc__type_equal(&in->type, &out->type) || !same_strides(in, out))
            continue;
        /* No other operand may use the same storage with another layout. */
        bool clash = false;
        for (int k = 0; k < n->n_in; k++) {
            if (k == i || n->in[k] == LC_ABSENT) continue;
            const lc_ir_value *other = &b->values[n->in[k]];
            if (lc__storage_root(b, other->storage) == from &&
                (other->offset != 0 || !lc__type_equal(&other->type, &out->type) || !same_strides(other, out)))
                clash = true;
        }
        if (clash) continue;
        from->last = to->last;
        to->merged = (int32_t)(from - b->storages);
        return;
    }
}

static void drop_empty_calls(lc_build *b)
{
    int n = 0;
    for (int i = 0; i < b->n_calls; i++)
        if (b->calls[i].node) b->calls[n++] = b->calls[i];
    b->n_calls = n;
}

lc_status lc__share_memory(lc_build *b)
{
    if (b->optimize) {
        uses(b);
        for (int i = 0; i < b->n_calls; i++)
            if (b->calls[i].node->op == &lc__op_accumulate) deposit_directly(b, i);
        drop_empty_calls(b);
        for (int i = 0; i < b->n_storages; i++) {
            b->storages[i].first = INT_MAX;
            b->storages[i].last = -1;
        }
    }
    uses(b);
    if (b->optimize)
        for (int i = 0; i < b->n_calls; i++) overwrite_input(b, i);
    return LC_OK;
}
