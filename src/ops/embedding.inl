/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table. The gradient adds rows up in the order of the ids, so that it is deterministic. */

static void FN(embedding)(const lc_call *c)
{
    const lc_view *ids = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    int64_t n = lc__view_extent(ids, 0, ids->ndim), D = w->shape[1];
    for (int64_t i = 0; i < n; i++) {
        int64_t id = lc__index_at(ids, lc__offset(ids, 0, ids->ndim, i));
        T *out = (T *)y->data + lc__offset(y, 0, ids->ndim, i);
        bool inside = id >= 0 && id < w->shape[0];
        if (!inside) lc_call_bad_index(c, &(lc_bad_index){.input = 0, .at = i, .index = id, .size = w->shape[0]});
        const T *row = (const T *)w->data + (inside ? id * w->stride[0] : 0);
        for (int64_t d = 0; d < D; d++) out[d * y->stride[ids->ndim]] = inside ? row[d * w->stride[1]] : (T)NAN;
    }
}

static void FN(embedding_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *ids = &c->in[1], *dw = &c->out[0];
    int64_t n = lc__view_extent(ids, 0, ids->ndim), V = dw->shape[0], D = dw->shape[1];
    if (!c->accumulate)
        for (int64_t v = 0; v < V; v++)
            for (int64_t d = 0; d < D; d++) ((T *)dw->data)[v * dw->stride[0] + d * dw->stride[1]] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = lc__index_at(ids, lc__offset(ids, 0, ids->ndim, i));
        if (id < 0 || id >= V) {
            lc_call_bad_index(c, &(lc_bad_index){.input = 1, .at = i, .index = id, .size = V});
            continue;
        }
        if (id == c->ints[1]) continue;
        const T *in = (const T *)dy->data + lc__offset(dy, 0, ids->ndim, i);
        T *row = (T *)dw->data + id * dw->stride[0];
        for (int64_t d = 0; d < D; d++) row[d * dw->stride[1]] += in[d * dy->stride[ids->ndim]];
    }
}
