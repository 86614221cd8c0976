/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of gradients: recording, held sums, and the kernel that adds. */
#include "base/number.h"
#include "tensor/slice.h"
#include "base/grow.h"
#include "optim/state_buffers.h"
#include "parallel/tree/tree_impl.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

static const lc_peer_ops tree_ops;

lc__tree *lc__tree_of_graph(const lc_graph *g)
{
    return (lc__tree *)lc__peer_of(g, &tree_ops);
}

lc_status lc__tree_new(lc_graph *g, int ranks, lc__tree **out)
{
    lc__tree *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return lc_fail(LC_ERR_MEMORY, "out of memory: the sums of gradients");
    t->g = g;
    t->id = ++g->next_peer;
    t->ranks = ranks;
    lc__peer_join(&t->peer, &tree_ops, g);
    *out = t;
    return LC_OK;
}

static void held_free(const lc_flat *flat, lc__held *h)
{
    for (int i = 0; h->range && i < flat->n; i++) lc_tensor_unref(h->range[i]);
    free(h->range);
    lc_tensor_unref(h->whole);
    *h = (lc__held){0};
}

void lc__tree_free(lc__tree *t)
{
    if (!t) return;
    lc__peer_leave(&t->peer);
    for (int f = 0; f < t->n_flats; f++) {
        for (int k = 0; k < LC__TREES * LC__TREE_LEVELS; k++)
            held_free(t->flats[f].flat, &t->flats[f].held[k / LC__TREE_LEVELS][k % LC__TREE_LEVELS]);
        free(t->flats[f].trained);
        lc__flat_unref(t->flats[f].flat);
    }
    free(t->flats);
    free(t->allowed);
    free(t);
}

lc_status lc__tree_of_device(lc_graph *g, const lc__tree *of, lc__tree **out)
{
    LC_TRY(lc__tree_new(g, of->ranks, out));
    (*out)->of = of;
    return LC_OK;
}

lc_status lc__tree_add_flat(lc__tree *t, lc_flat *flat)
{
    for (int f = 0; f < t->n_flats; f++)
        if (t->flats[f].flat == flat) return LC_OK;
    LC_TRY(lc__grow_one(&t->flats, t->n_flats, "the sums of gradients"));
    t->flats[t->n_flats++] = (lc__tree_flat){.flat = flat};
    __atomic_fetch_add(&flat->refs, 1, __ATOMIC_RELAXED);
    return LC_OK;
}

lc_status lc__tree_add(lc__tree *t, lc_optimizer *opt)
{
    LC_TRY(lc__optimizer_prepare(opt));
    for (int i = 0; i < opt->n_groups; i++)
        for (int k = 0; k < opt->groups[i].n_parameters; k++)
            LC_TRY(lc__tree_add_flat(t, opt->groups[i].parameters[k]->flat));
    return LC_OK;
}

lc_status lc__tree_held(lc__tree_flat *f, int which, int level, lc__held **out)
{
    const lc_flat *flat = f->flat;
    lc__held *h = *out = &f->held[which][level];
    if (h->whole) return LC_OK;
    lc_status status = LC_OK;
    const int64_t *count = which == LC__TREE_WINDOW && flat->sharding ? &flat->sharding->count : &flat->count;
    h->range = calloc((size_t)flat->n, sizeof *h->range);
    if (!h->range) return lc_fail(LC_ERR_MEMORY, "out of memory: the sums of gradients");
    const lc_tensor *g = flat->gradient;
    LC_TRY_GOTO(status, done, lc__tensor_new_on(g->on, g->type.dtype, 1, count, LC_ROW_MAJOR, &h->whole));
    for (int i = 0; i < flat->n; i++) {
        const lc_tensor *p = flat->parameters[i];
        if (!p) continue;
        lc_type type = lc__gradient_type(p);
        size_t offset = (size_t)flat->offset[i] * lc_dtype_size(type.dtype);
        LC_TRY_GOTO(status, done,
                    which == LC__TREE_WINDOW ? lc__flat_state_tensor(h->whole, p, &h->range[i])
                                             : lc__tensor_range(h->whole, offset, &type, p->layout, &h->range[i]));
    }
done:
    if (status < 0) held_free(flat, h);
    return status;
}

int lc__tree_path(int64_t index, bool last, int levels[LC__TREE_LEVELS], int *to)
{
    int n = 0, level = 0;
    for (; index >> level; level++) {
        if (index >> level & 1)
            levels[n++] = level;
        else if (!last)
            break;
    }
    *to = last ? -1 : level;
    return n;
}

int64_t lc__tree_bytes(const lc__tree *t)
{
    int64_t bytes = 0;
    for (int f = 0; f < t->n_flats; f++)
        for (int k = 0; k < LC__TREES * LC__TREE_LEVELS; k++) {
            const lc__held *h = &t->flats[f].held[k / LC__TREE_LEVELS][k % LC__TREE_LEVELS];
            if (h->whole) bytes += (int64_t)h->whole->bytes;
        }
    return bytes;
}

static int64_t peer_bytes(const lc_peer *p)
{
    return lc__tree_bytes((const lc__tree *)p);
}

/* ---- writes of chunks ---- */

lc_status lc__tree_allow(lc__tree *t, const lc_tensor *tensor)
{
    LC_TRY(lc__grow_one(&t->allowed, t->n_allowed, "the sums of gradients"));
    t->allowed[t->n_allowed++] = tensor->id;
    return LC_OK;
}

static lc_status check_write(const lc_peer *p, const lc_op *op, lc_tensor *const *in)
{
    const lc__tree *t = (const lc__tree *)p;
    if (t->ranks < 2 || !t->g->chunk.sums || !(op->flags & LC_OP_MUTATES)) return LC_OK;
    const lc__tree *by = t->of ? t->of : t;
    for (int i = 0; i < by->n_allowed; i++)
        if (by->allowed[i] == in[0]->id) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED,
                   "with deterministic on several ranks or devices training_step cannot change a persistent tensor: it "
                   "is called for one chunk of a batch at a time, with different chunks on each of them. Statistics of "
                   "batch norm layers are an exception; change other tensors in on_train_batch_end");
}

/* ---- recording ---- */

static void tree_ints(const lc__tree *t, int64_t index, bool last, int64_t ints[LC__TREE_INTS])
{
    ints[0] = (int64_t)(uintptr_t)t;
    ints[1] = (int64_t)t->id; /* another tree may get the same address */
    ints[2] = index;
    ints[3] = last;
    ints[4] = t->first_node;
    ints[5] = t->node;
}

lc__tree_place lc__tree_place_of(const int64_t *ints)
{
    return (lc__tree_place){(lc__tree *)(uintptr_t)ints[0], ints[2], ints[3] != 0, (uint32_t)ints[4],
                            (uint32_t)ints[5]};
}

static bool record_backward(lc_peer *p, lc_tensor *loss, lc_site site)
{
    lc__tree *t = (lc__tree *)p;
    lc_graph *g = t->g;
    int64_t ints[LC__TREE_INTS];
    if (!g->chunk.sums) return false;
    if (g->chunk.backward) {
        lc_fail(LC_ERR_STATE, "deterministic training allows one backward pass per step; add the losses");
        lc__record_error(g, LC_ERR_STATE, "backward", site, NULL, NULL, 0);
        return true;
    }
    tree_ints(t, t->index, t->last, ints);
    lc_op_call(&lc__macro_chunk.op, 1, &loss, LC__TREE_INTS, ints, 1, &t->weight, site);
    g->chunk.backward = true;
    return true;
}

static const lc_peer_ops tree_ops = {.check_write = check_write, .backward = record_backward, .bytes = peer_bytes};

static void record(const lc_op *op, const lc__tree *t, int64_t index, bool last)
{
    int64_t ints[LC__TREE_INTS];
    tree_ints(t, index, last, ints);
    lc_op_call(op, 0, NULL, LC__TREE_INTS, ints, 0, NULL, LC_HERE);
}

void lc__tree_chunk_begin(lc__tree *t, int64_t number, int64_t index, int64_t count, double weight)
{
    t->index = index;
    t->last = index == count - 1;
    t->weight = weight;
    t->node = t->g->tape.n_nodes;
    if (index == 0) t->first_node = t->node;
    lc__graph_chunk(t->g, number);
    t->g->chunk.sums = true;
}

void lc__tree_chunk_end(lc__tree *t)
{
    if (!t->g->chunk.backward) record(&lc__macro_absent.op, t, t->index, t->last);
    lc__graph_chunk(t->g, -1);
}

void lc__tree_no_chunk(lc__tree *t)
{
    record(&lc__macro_absent.op, t, 0, true);
}

/* Sums of a parameter are held for the batches in which it is trained, so these must be all of a window, or
 * none. */
static lc_status check_trained(lc__tree *t, int64_t index)
{
    for (int f = 0; f < t->n_flats; f++) {
        lc__tree_flat *tf = &t->flats[f];
        size_t n = (size_t)tf->flat->n;
        if (tf->trained && index > 0 && memcmp(tf->trained, tf->flat->trained, n) != 0)
            return lc_fail(LC_ERR_UNSUPPORTED, "with deterministic a parameter cannot be frozen or thawed inside an "
                                               "accumulation window; do it before the window's first batch");
        if (!tf->trained && !(tf->trained = malloc(n)))
            return lc_fail(LC_ERR_MEMORY, "out of memory: the sums of gradients");
        memcpy(tf->trained, tf->flat->trained, n);
    }
    return LC_OK;
}

void lc__tree_window(lc__tree *t, int64_t index, bool last)
{
    if (index == 0 && last) return;
    lc_status status = check_trained(t, index);
    if (status < 0)
        lc__record_error(t->g, status, "window", LC_HERE, NULL, NULL, 0);
    else
        record(&lc__macro_window.op, t, index, last);
}

/* ---- sums held between two batches ---- */

lc_status lc__tree_window_held(lc__tree *t, const lc_tensor *p, int level, lc_tensor **out)
{
    *out = NULL;
    for (int f = 0; f < t->n_flats; f++) {
        lc__held *h;
        if (t->flats[f].flat != p->flat) continue;
        LC_TRY(lc__tree_held(&t->flats[f], LC__TREE_WINDOW, level, &h));
        *out = h->range[p->flat_index];
    }
    return LC_OK;
}

static lc_status clear(lc_tensor *whole)
{
    lc_view v;
    LC_TRY(lc__tensor_map(whole, LC__WRITE, &v));
    for (int64_t i = 0; i < lc__numel(&whole->type); i++) lc__set_number(v.data, v.dtype, i, -0.0);
    lc__tensor_unmap(whole, LC__WRITE);
    return LC_OK;
}

lc_status lc__tree_window_clear(lc__tree *t, int64_t batches)
{
    for (int f = 0; f < t->n_flats; f++)
        for (int level = 0; batches >> level; level++) {
            lc__held *h;
            if (!(batches >> level & 1)) continue;
            LC_TRY(lc__tree_held(&t->flats[f], LC__TREE_WINDOW, level, &h));
            LC_TRY(clear(h->whole));
        }
    return LC_OK;
}

/* ---- adding ---- */

#define COMBINE(name, type)                                                                                            \
    static void name(type *to, const type *value, const type *const *held, int n, int64_t count)                       \
    {                                                                                                                  \
        if (!value)                                                                                                    \
            for (int64_t i = 0; i < count; i++) to[i] = (type)-0.0;                                                    \
        else if (value != to && n == 0)                                                                                \
            memcpy(to, value, (size_t)count * sizeof *to);                                                             \
        for (int k = 0; k < n; k++, value = to) {                                                                      \
            const type *from = value ? value : to;                                                                     \
            for (int64_t i = 0; i < count; i++) to[i] = held[k][i] + from[i];                                          \
        }                                                                                                              \
    }
COMBINE(combine_f32, float)
COMBINE(combine_f64, double)

static bool same_order(const lc_view *a, const lc_view *b)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != 1 && a->stride[i] != b->stride[i]) return false;
    return true;
}

/* Ranges of flat buffers are dense, in the parameter's layout; the value may have another order. */
static void run_combine(const lc_call *c)
{
    enum { BLOCK = 4096 };
    const void *held[LC__TREE_LEVELS];
    const lc_view *to = &c->in[0], *value = c->in[1].ndim >= 0 ? &c->in[1] : NULL;
    size_t width = lc_dtype_size(to->dtype);
    int64_t count = 1;
    for (int i = 0; i < to->ndim; i++) count *= to->shape[i];
    if (value && !same_order(to, value)) {
        lc__copy_strided(value, to);
        value = to;
    }
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        size_t offset = (size_t)at * width;
        const char *from = value ? (const char *)value->data + offset : NULL;
        for (int k = 2; k < c->n_in; k++) held[k - 2] = (const char *)c->in[k].data + offset;
        if (to->dtype == LC_F64)
            combine_f64((double *)((char *)to->data + offset), (const double *)(const void *)from,
                        (const double *const *)held, c->n_in - 2, n);
        else
            combine_f32((float *)((char *)to->data + offset), (const float *)(const void *)from,
                        (const float *const *)held, c->n_in - 2, n);
    }
}

static lc_status infer_combine(lc_infer *call)
{
    call->n_out = 0;
    if (call->in[0]->dtype != LC_F32 && call->in[0]->dtype != LC_F64)
        return lc_fail(LC_ERR_INTERNAL, "sums of gradients are f32 or f64, not %s", lc_dtype_name(call->in[0]->dtype));
    return LC_OK;
}

static const lc_kernel combine_kernel = {
    .name = "combine", .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_combine};
const lc_op lc__op_combine = {.name = "combine_grad",
                              .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                              .infer = infer_combine,
                              .mutated_inputs = 1,
                              .kernel = &combine_kernel};
