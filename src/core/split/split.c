/* SPDX-License-Identifier: Apache-2.0 */
#include "core/split/split.h"

#include "base/grow.h"
#include "base/status.h"
#include "tensor/tensor_impl.h"

#include <lightc/ops_math.h>

#include <stdlib.h>
#include <string.h>

/* ---- cutting ---- */

static lc_status room_for(lc__split *s, int64_t n)
{
    int64_t cap[] = {s->cap, s->cap, s->cap};
    LC_TRY(lc__grow(&s->piece, &cap[0], 0, n, "pieces of a batch"));
    LC_TRY(lc__grow(&s->values, &cap[1], 0, n, "pieces of a batch"));
    LC_TRY(lc__grow(&s->samples, &cap[2], 0, n, "pieces of a batch"));
    for (; s->cap < cap[0]; s->cap++) s->piece[s->cap] = (lc__piece){0};
    return LC_OK;
}

static int64_t samples_of(const lc__split *s, int64_t i)
{
    int64_t begin, n, left = s->batch->size - i * s->size;
    if (s->size) return left < s->size ? left : s->size;
    lc__batch_share(s->batch->size, s->units, i, s->n, &begin, &n);
    return n;
}

static lc_status cut(lc__split *s, int64_t i)
{
    lc__piece *p = &s->piece[i];
    if (s->n == 1)
        p->batch = s->batch;
    else if (s->size)
        LC_TRY(lc__batch_cut(&p->slice, s->batch, i * s->size, p->samples, &p->batch));
    else
        LC_TRY(lc__batch_cut_share(&p->slice, s->batch, s->units, i, s->n, &p->batch));
    return LC_OK;
}

lc_status lc__split_begin(const lc_trainer *t, lc__split *s, const lc_batch *batch, int64_t n, int64_t size,
                          int64_t units)
{
    LC_TRY(room_for(s, n));
    s->batch = batch;
    s->n = n;
    s->size = size;
    s->units = units;
    s->entered = -1;
    for (int64_t i = 0; i < n; i++) {
        lc__piece *p = &s->piece[i];
        p->batch = NULL;
        p->samples = samples_of(s, i);
        p->value = NULL;
        p->outputs = t->outputs;
    }
    return LC_OK;
}

lc_status lc__split_enter(lc_trainer *t, lc__split *s, int64_t i)
{
    lc__piece *p = &s->piece[i];
    if (!p->batch) LC_TRY(cut(s, i));
    s->entered = i;
    s->outer = t->batch;
    s->before = t->outputs;
    s->outer_piece = t->place.piece;
    t->place.piece = ++t->pieces;
    t->batch = p->batch;
    t->outputs = p->outputs;
    return LC_OK;
}

void lc__split_leave(lc_trainer *t, lc__split *s)
{
    s->piece[s->entered].outputs = t->outputs;
    t->outputs = s->before;
    t->batch = s->outer;
    t->place.piece = s->outer_piece;
    s->entered = -1;
}

void lc__split_free(lc__split *s)
{
    for (int64_t i = 0; i < s->cap; i++) lc__batch_slice_release(&s->piece[i].slice);
    free(s->piece);
    free(s->values);
    free(s->samples);
    *s = (lc__split){0};
}

/* ---- putting together ---- */

static void add(const lc__split *s, lc__given *g, int64_t i, lc_tensor *value)
{
    if (!value) return;
    g->values[g->n] = value;
    g->samples[g->n++] = (double)s->piece[i].samples;
}

/* Finds the type of the joined value. A loss of any shape is a number; so is a floating-point scalar. */
static lc_status join_types(lc__given *g, bool is_loss, const char *what)
{
    int64_t rows = 0;
    const lc_type *first = &g->values[0]->type;
    g->is_mean = is_loss || (first->ndim == 0 && lc_dtype_is_float(first->dtype));
    for (int i = 0; i < g->n; i++) {
        const lc_type *one = &g->values[i]->type;
        bool same = first->dtype == one->dtype && (is_loss || first->ndim == one->ndim);
        for (int d = 1; !is_loss && same && d < one->ndim; d++) same = first->shape[d] == one->shape[d];
        if (!same)
            return lc_fail(
                LC_ERR_SHAPE,
                "%s: the outputs of the pieces of the batch cannot be concatenated: the first dimension must "
                "be the samples, and the others must be equal for all pieces",
                what);
        rows += one->ndim ? one->shape[0] : 1;
    }
    g->type = *first;
    if (g->is_mean) return LC_OK;
    if (!g->type.ndim) g->type.ndim = 1;
    g->type.shape[0] = rows;
    return LC_OK;
}

static lc__given nothing_given(const lc__split *s)
{
    return (lc__given){.values = s->values, .samples = s->samples, .all = (double)s->batch->size};
}

lc_status lc__split_value(const lc_trainer *t, lc__split *s, lc__join_fn *join, void *ctx, lc_tensor **value)
{
    lc__given g = nothing_given(s);
    *value = NULL;
    for (int64_t i = 0; i < s->n; i++) add(s, &g, i, s->piece[i].value);
    if (!g.n) return LC_OK;
    LC_TRY(join_types(&g, t->stage != LC_STAGE_PREDICT, "the value of a step"));
    return join(ctx, -1, &g, value);
}

lc_status lc__split_outputs(lc_trainer *t, lc__split *s, lc__join_fn *join, void *ctx)
{
    if (!s->n) return LC_OK;
    const lc_outputs *first = &s->piece[0].outputs;
    for (int o = t->outputs.n; o < first->n; o++) {
        lc__given g = nothing_given(s);
        const char *name = first->names[o];
        for (int64_t i = 0; i < s->n; i++) {
            const lc_outputs *its = &s->piece[i].outputs;
            if (its->n != first->n || strcmp(its->names[o], name) != 0)
                return lc_fail(LC_ERR_USER, "lc_output(\"%.60s\"): not every piece of the batch returned it", name);
            add(s, &g, i, its->values[o]);
        }
        LC_TRY(join_types(&g, false, name));
        LC_TRY(join(ctx, o, &g, &t->outputs.values[o]));
        t->outputs.names[o] = name;
    }
    t->outputs.n = first->n;
    return LC_OK;
}

static lc_tensor *mean(const lc__given *g)
{
    lc_tensor *sum = NULL;
    for (int i = 0; i < g->n; i++) {
        lc_tensor *value = lc_mul_scalar(g->values[i], g->samples[i] / g->all);
        sum = sum ? lc_add(sum, value) : value;
    }
    return sum;
}

lc_status lc__join_recorded(void *ctx, int output, const lc__given *g, lc_tensor **out)
{
    (void)ctx, (void)output;
    *out = g->values[0];
    if (g->n == 1 && g->samples[0] == g->all) return LC_OK;
    lc_no_grad_begin();
    for (int i = 0; i < g->n && !g->is_mean && !g->values[i]->type.ndim; i++)
        g->values[i] = lc_reshape(g->values[i], 1);
    *out = lc_keep(g->is_mean ? mean(g) : lc_cat_at(0, g->n, g->values, LC_HERE));
    lc_no_grad_end();
    return LC_OK;
}
