/* SPDX-License-Identifier: Apache-2.0 */
/* How reference kernels visit the elements of strided, broadcast operands: row by row, a row being the last dimension.
 *
 *   lc__walk w;
 *   const lc_view *v[] = {&call->out[0], &call->in[0]};
 *   lc__walk_start(&w, call->out[0].ndim, call->out[0].shape, 2, v);
 *   while (lc__walk_next(&w))
 *       for (int64_t i = 0; i < w.length; i++) use(w.data[0] + i * w.step[0], w.data[1] + i * w.step[1]); */
#ifndef LC_OPS_WALK_H
#define LC_OPS_WALK_H

#include <string.h>
#include <lightc/op.h>

#define LC__WALK_OPERANDS 6

typedef struct lc__walk {
    int n, ndim;                                    /* operands; dimensions outside the row */
    int64_t rows;                                   /* still to visit */
    int64_t length;                                 /* of a row */
    int64_t step[LC__WALK_OPERANDS];                /* bytes from element to element of a row */
    char *data[LC__WALK_OPERANDS];                  /* the row's first elements */
    int64_t shape[LC_MAX_DIMS], index[LC_MAX_DIMS]; /* outer dimensions */
    int64_t stride[LC__WALK_OPERANDS][LC_MAX_DIMS]; /* bytes */
    bool started;
} lc__walk;

/* Bytes between neighbors along dimension d of a shape of ndim dimensions to which v is broadcast. */
static inline int64_t lc__byte_stride(const lc_view *v, int ndim, const int64_t *shape, int d)
{
    int own = d - (ndim - v->ndim);
    if (own < 0 || (v->shape[own] == 1 && shape[d] != 1)) return 0;
    return v->stride[own] * (int64_t)lc_dtype_size(v->dtype);
}

static inline void lc__walk_start(lc__walk *w, int ndim, const int64_t *shape, int n, const lc_view *const *views)
{
    w->n = n;
    w->ndim = ndim > 0 ? ndim - 1 : 0;
    w->length = ndim > 0 ? shape[ndim - 1] : 1;
    w->rows = w->length ? 1 : 0;
    w->started = false;
    for (int d = 0; d < w->ndim; d++) {
        w->shape[d] = shape[d];
        w->index[d] = 0;
        w->rows *= shape[d];
    }
    for (int v = 0; v < n; v++) {
        w->data[v] = (char *)views[v]->data;
        w->step[v] = ndim > 0 ? lc__byte_stride(views[v], ndim, shape, ndim - 1) : 0;
        for (int d = 0; d < w->ndim; d++) w->stride[v][d] = lc__byte_stride(views[v], ndim, shape, d);
    }
}

/* Moves on to the next row (at first: to the first one). False at the end. */
static inline bool lc__walk_next(lc__walk *w)
{
    if (w->rows-- <= 0) return false;
    if (!w->started) {
        w->started = true;
        return true;
    }
    for (int d = w->ndim - 1; d >= 0; d--) {
        if (++w->index[d] < w->shape[d]) {
            for (int v = 0; v < w->n; v++) w->data[v] += w->stride[v][d];
            return true;
        }
        for (int v = 0; v < w->n; v++) w->data[v] -= w->stride[v][d] * (w->shape[d] - 1);
        w->index[d] = 0;
    }
    return true;
}

/* Copies `n` elements of `size` bytes. */
static inline void lc__copy_row(int64_t n, size_t size, char *to, int64_t to_step, const char *from, int64_t from_step)
{
    if (to_step == (int64_t)size && from_step == (int64_t)size) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++) to[i * to_step] = from[i * from_step];
        return;
    case 4:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 4);
        return;
    case 8:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 8);
        return;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, size);
    }
}

/* Copies `from`, broadcast, to `to`: any strides, same data type. */
static inline void lc__copy_view(const lc_view *to, const lc_view *from)
{
    lc__walk w;
    const lc_view *v[] = {to, from};
    lc__walk_start(&w, to->ndim, to->shape, 2, v);
    size_t size = lc_dtype_size(to->dtype);
    while (lc__walk_next(&w)) lc__copy_row(w.length, size, w.data[0], w.step[0], w.data[1], w.step[1]);
}

#endif
