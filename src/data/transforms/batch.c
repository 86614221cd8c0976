/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of a whole batch, as operators of a step: a device computes them if it has a kernel. The reference kernel
 * gives each of its threads samples, which are transformed as by the loader.
 *
 *   transform_batch  x[B,...] keys[B] | ops n number[n] *self | -> y[B,...]
 *
 * The numbers are those of the parts that a transform is of chains. Its `self`, which is plain data, is copied into the
 * ints: plans are made of values, not of what a program may free. */
#include "data/transforms/batch.h"
#include "data/transforms/transform.h"
#include "base/pool.h"
#include "ops/infer.h"
#include "ops/nn_util.h"
#include "record/graph_impl.h"
#include "ops/walk.h"

#include <lightc/op.h>

#include <stdint.h>
#include <string.h>

enum {
    MOST_PARTS = 8,   /* chains in chains */
    MOST_SELF = 1024, /* ints */
};

/* ---- the operator of a transform ---- */

typedef struct recorded {
    const lc_transform_ops *ops;
    void *self;
    int n;
    const int64_t *numbers;
} recorded;

static recorded recorded_of(const int64_t *ints)
{
    recorded r = {.ops = (const lc_transform_ops *)(intptr_t)ints[0], .n = (int)ints[1], .numbers = ints + 2};
    r.self = (void *)(uintptr_t)(ints + 2 + r.n);
    return r;
}

static uint64_t key_of(const recorded *r, uint64_t key)
{
    for (int i = 0; i < r->n; i++) key = lc_random_key(key, (uint64_t)r->numbers[i]);
    return key;
}

lc_field lc__sample_of(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout)
{
    lc_field f = {.name = "x", .dtype = dtype, .layout = layout, .ndim = ndim - 1};
    memcpy(f.shape, shape + 1, (size_t)f.ndim * sizeof *shape);
    return f;
}

lc_status lc__check_keys(const lc_infer *call, int input)
{
    const lc_type *keys = call->in[input];
    if (keys->dtype == LC_I64 && keys->ndim == 1) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "keys must be i64 [B], the field that lc_dataset_keys adds");
}

static lc_status transform_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 2));
    const recorded r = recorded_of(call->ints);
    const lc_transform t = {r.ops, r.self};
    const lc_type *x = call->in[0];
    LC_TRY(lc__check_keys(call, 1));
    if (x->ndim < 1 || x->shape[0] != call->in[1]->shape[0])
        return lc_fail(LC_ERR_SHAPE, "x needs a sample for each of the %lld keys", (long long)call->in[1]->shape[0]);
    for (int d = 1; d < x->ndim; d++)
        if (!x->shape[d]) return lc_fail(LC_ERR_SHAPE, "samples of x are empty");
    const lc_field in = lc__sample_of(x->dtype, x->ndim, x->shape, LC_ROW_MAJOR);
    lc_field out = {0};
    LC_TRY(lc__transform_describe(&t, &in, &out));
    lc_type *y = &call->out[0];
    y->dtype = out.dtype ? out.dtype : LC_F32;
    y->ndim = out.ndim + 1;
    y->shape[0] = x->shape[0];
    memcpy(y->shape + 1, out.shape, (size_t)out.ndim * sizeof *out.shape);
    return LC_OK;
}

/* Sample b of a batch. */
static lc_view sample_view(const lc_view *v, int64_t b)
{
    lc_view s = {.dtype = v->dtype, .ndim = v->ndim - 1};
    s.data = (char *)v->data + b * v->stride[0] * (int64_t)lc_dtype_size(v->dtype);
    memcpy(s.shape, v->shape + 1, (size_t)s.ndim * sizeof *s.shape);
    memcpy(s.stride, v->stride + 1, (size_t)s.ndim * sizeof *s.stride);
    return s;
}

static bool is_dense(const lc_view *batch, lc_layout layout)
{
    return lc__is_dense(batch->ndim, batch->shape, batch->stride, layout);
}

/* How a call works: in which layout, and where each of its threads keeps samples that are in another one. */
typedef struct places {
    lc_layout layout;
    lc_field in, out;
    size_t in_bytes, out_bytes, own; /* of a thread's scratch, one after the other; 0: none is needed */
    size_t of_thread;                /* all of it */
} places;

static places places_of(const lc_call *c)
{
    const recorded r = recorded_of(c->ints);
    const lc_view *x = &c->in[0], *y = &c->out[0];
    const lc_transform t = {r.ops, r.self};
    places p = {.layout = y->ndim == 4 && is_dense(y, LC_CHANNELS_LAST) ? LC_CHANNELS_LAST : LC_ROW_MAJOR};
    p.in = lc__sample_of(x->dtype, x->ndim, x->shape, p.layout);
    p.out = lc__sample_of(y->dtype, y->ndim, y->shape, p.layout);
    if (!is_dense(x, p.layout)) p.in_bytes = lc__align64(lc_field_bytes(&p.in));
    if (!is_dense(y, p.layout)) p.out_bytes = lc__align64(lc_field_bytes(&p.out));
    p.own = lc__align64(lc__transform_scratch(&t, &p.in));
    p.of_thread = p.in_bytes + p.out_bytes + p.own;
    return p;
}

/* Only of the types that the transform says: a plan may ask for others, in which it stores all values. */
static bool transform_supports(const lc_call *c)
{
    const recorded r = recorded_of(c->ints);
    const lc_field in = places_of(c).in;
    lc_field out = {0};
    return r.ops->describe(r.self, &in, &out) >= 0 && (out.dtype ? out.dtype : LC_F32) == c->out[0].dtype;
}

static lc_status transform_prepare(lc_call *c)
{
    c->scratch_bytes = places_of(c).of_thread * (size_t)c->threads;
    return LC_OK;
}

/* A sample of the batch in `memory`, dense in this layout. */
static lc_view in_memory(const lc_view *batch, lc_layout layout, void *memory)
{
    lc_view dense = *batch;
    lc_type type = {.dtype = batch->dtype, .ndim = batch->ndim};
    memcpy(type.shape, batch->shape, sizeof type.shape);
    lc__dense_strides(&type, layout, dense.stride);
    lc_view sample = sample_view(&dense, 0);
    sample.data = memory;
    return sample;
}

typedef struct work {
    const lc_call *call;
    recorded what;
    places places;
    int64_t each; /* samples of a piece */
} work;

/* The end of a part of the scratch memory, where the next part begins. Without parts the memory is NULL. */
static char *after(char *part, size_t bytes)
{
    return bytes ? part + bytes : part;
}

static void transform_sample(const work *w, int64_t b, char *scratch)
{
    const places *p = &w->places;
    const lc_view *x = &w->call->in[0], *keys = &w->call->in[1], *y = &w->call->out[0];
    const lc_view from = sample_view(x, b), to = sample_view(y, b);
    const uint64_t key = (uint64_t)((const int64_t *)keys->data)[b * keys->stride[0]];
    char *const in_room = scratch, *const out_room = after(in_room, p->in_bytes);
    char *const own = after(out_room, p->out_bytes);
    if (p->in_bytes) {
        const lc_view copy = in_memory(x, p->layout, in_room);
        lc__copy_view(&copy, &from);
    }
    /* It cannot fail: describe has accepted these sizes. */
    (void)!w->what.ops->apply(w->what.self, &p->in, p->in_bytes ? in_room : from.data, &p->out,
                              p->out_bytes ? out_room : to.data, key_of(&w->what, key), own);
    if (p->out_bytes) {
        const lc_view copy = in_memory(y, p->layout, out_room);
        lc__copy_view(&to, &copy);
    }
}

static void transform_piece(void *context, int64_t piece, int seat)
{
    const work *w = context;
    int64_t samples = w->call->in[0].shape[0], end = (piece + 1) * w->each;
    char *scratch = after(w->call->scratch, (size_t)seat * w->places.of_thread);
    for (int64_t b = piece * w->each; b < end && b < samples; b++) transform_sample(w, b, scratch);
}

static void transform_run(const lc_call *c)
{
    work w = {.call = c, .what = recorded_of(c->ints), .places = places_of(c)};
    const int64_t samples = c->in[0].shape[0];
    if (!samples) return;
    w.each = samples / LC__POOL_MAX_PIECES + 1;
    const int64_t pieces = (samples - 1) / w.each + 1;
    if (c->threads > 1)
        lc__pool_run(c->threads, pieces, transform_piece, &w);
    else
        for (int64_t i = 0; i < pieces; i++) transform_piece(&w, i, 0);
}

static const lc_kernel transform_kernel = {.name = "reference",
                                           .layout = LC_WANT_STRIDED,
                                           .supports = transform_supports,
                                           .prepare = transform_prepare,
                                           .run = transform_run};
const lc_op lc__op_transform_batch = {.name = "transform_batch",
                                      .inputs = "x keys",
                                      .flags = LC_OP_NO_GRAD,
                                      .n_out = 1,
                                      .infer = transform_infer,
                                      .kernel = &transform_kernel};

/* `numbers`: of the chains that t is in. */
static lc_tensor *record(const lc_transform *t, lc_tensor *x, lc_tensor *keys, int n, int64_t *numbers, lc_site site)
{
    int n_parts;
    int64_t ints[2 + MOST_PARTS + MOST_SELF];
    const lc_transform *parts = lc__compose_parts(t, &n_parts);
    if (parts && n == MOST_PARTS)
        return lc__refuse(lc_fail(LC_ERR_UNSUPPORTED, "more than %d chains in chains", MOST_PARTS), "transform_batch",
                          x, site);
    for (int i = 0; i < n_parts; i++) {
        numbers[n] = i;
        x = record(&parts[i], x, keys, n + 1, numbers, site);
    }
    if (parts) return x;
    const size_t size = LC__SLOT(t->ops, self_size) ? t->ops->self_size : 0, words = (size + 7) / 8;
    if (!size || !t->self || words > MOST_SELF)
        return lc__refuse(lc_fail(LC_ERR_UNSUPPORTED,
                                  "transform '%s' runs in the loader only (lc_dataset_transform), since it has no "
                                  "self_size",
                                  t->ops->name),
                          "transform_batch", x, site);
    ints[0] = (intptr_t)t->ops;
    ints[1] = n;
    memcpy(ints + 2, numbers, (size_t)n * sizeof *numbers);
    memset(ints + 2 + n, 0, words * sizeof *ints);
    memcpy(ints + 2 + n, t->self, size);
    return lc_op_call(&lc__op_transform_batch, LC_IN(x, keys), 2 + n + (int)words, ints, LC_NONE, site);
}

lc_tensor *lc_transform_batch_at(const lc_transform *t, lc_tensor *x, lc_tensor *keys, lc_site site)
{
    int64_t numbers[MOST_PARTS];
    if (!lc__check_tensor(x, "x", "transform_batch", site)) return lc__error_tensor();
    if (!lc__check_tensor(keys, "keys", "transform_batch", site)) return lc__error_tensor();
    lc_status status = t && t->ops ? lc__transform_check(t) : lc__is_null("lc_transform_batch", "t");
    return status < 0 ? lc__refuse(status, "transform_batch", x, site) : record(t, x, keys, 0, numbers, site);
}
