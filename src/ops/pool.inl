/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling over windows of two dimensions. The backward kernels walk the windows in order and add to a zeroed result. */

static void FN(clear)(const lc_view *v)
{
    int64_t n = lc__view_extent(v, 0, v->ndim);
    for (int64_t i = 0; i < n; i++) ((T *)v->data)[lc__offset(v, 0, v->ndim, i)] = 0;
}

static void FN(max_pool2d)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0], *index = &c->out[1];
    window k = window_of(c->ints);
    int64_t planes = y->shape[0] * y->shape[1];
    for (int64_t p = 0; p < planes; p++) {
        const T *from = (const T *)x->data + lc__offset(x, 0, 2, p);
        for (int64_t oh = 0; oh < y->shape[2]; oh++)
            for (int64_t ow = 0; ow < y->shape[3]; ow++) {
                double best = -INFINITY;
                int64_t place = -1;
                for (int64_t i = 0; i < k.kh; i++) {
                    int64_t h = oh * k.sh - k.ph + i * k.dh;
                    if (h < 0 || h >= x->shape[2]) continue;
                    for (int64_t j = 0; j < k.kw; j++) {
                        int64_t w = ow * k.sw - k.pw + j * k.dw;
                        if (w < 0 || w >= x->shape[3]) continue;
                        double v = (double)from[h * x->stride[2] + w * x->stride[3]];
                        /* The first maximum wins, and a NaN beats every number, so that it is not lost. */
                        if (place < 0 || v > best || (v != v && best == best)) best = v, place = i * k.kw + j;
                    }
                }
                ((T *)y->data)[lc__offset(y, 0, 2, p) + oh * y->stride[2] + ow * y->stride[3]] = (T)best;
                put_index(index, lc__offset(index, 0, 2, p) + oh * index->stride[2] + ow * index->stride[3],
                          place < 0 ? 0 : place);
            }
    }
}

static void FN(max_pool2d_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *index = &c->in[1], *dx = &c->out[0];
    window k = window_of(c->ints);
    FN(clear)(dx);
    int64_t planes = dy->shape[0] * dy->shape[1];
    for (int64_t p = 0; p < planes; p++) {
        T *to = (T *)dx->data + lc__offset(dx, 0, 2, p);
        for (int64_t oh = 0; oh < dy->shape[2]; oh++)
            for (int64_t ow = 0; ow < dy->shape[3]; ow++) {
                int64_t place =
                    lc__index_at(index, lc__offset(index, 0, 2, p) + oh * index->stride[2] + ow * index->stride[3]);
                int64_t h = oh * k.sh - k.ph + place / k.kw * k.dh, w = ow * k.sw - k.pw + place % k.kw * k.dw;
                if (h < 0 || h >= dx->shape[2] || w < 0 || w >= dx->shape[3]) continue;
                to[h * dx->stride[2] + w * dx->stride[3]] +=
                    ((const T *)dy->data)[lc__offset(dy, 0, 2, p) + oh * dy->stride[2] + ow * dy->stride[3]];
            }
    }
}

static void FN(avg_pool2d)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0];
    int64_t planes = y->shape[0] * y->shape[1];
    for (int64_t p = 0; p < planes; p++)
        for (int64_t oh = 0; oh < y->shape[2]; oh++)
            for (int64_t ow = 0; ow < y->shape[3]; ow++) {
                cell r = average_cell(c->ints, x->shape[2], x->shape[3], oh, ow);
                double sum = 0;
                for (int64_t h = r.h0; h < r.h1; h++)
                    for (int64_t w = r.w0; w < r.w1; w++)
                        sum +=
                            (double)((const T *)x->data)[lc__offset(x, 0, 2, p) + h * x->stride[2] + w * x->stride[3]];
                ((T *)y->data)[lc__offset(y, 0, 2, p) + oh * y->stride[2] + ow * y->stride[3]] = (T)(sum / r.divisor);
            }
}

static void FN(avg_pool2d_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *dx = &c->out[0];
    int64_t planes = dy->shape[0] * dy->shape[1];
    FN(clear)(dx);
    for (int64_t p = 0; p < planes; p++)
        for (int64_t oh = 0; oh < dy->shape[2]; oh++)
            for (int64_t ow = 0; ow < dy->shape[3]; ow++) {
                cell r = average_cell(c->ints, dx->shape[2], dx->shape[3], oh, ow);
                double v =
                    (double)((const T *)dy->data)[lc__offset(dy, 0, 2, p) + oh * dy->stride[2] + ow * dy->stride[3]];
                for (int64_t h = r.h0; h < r.h1; h++)
                    for (int64_t w = r.w0; w < r.w1; w++)
                        ((T *)dx->data)[lc__offset(dx, 0, 2, p) + h * dx->stride[2] + w * dx->stride[3]] +=
                            (T)(v / r.divisor);
            }
}

static void FN(adaptive_avg_pool2d)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0];
    int64_t planes = y->shape[0] * y->shape[1];
    for (int64_t p = 0; p < planes; p++)
        for (int64_t oh = 0; oh < y->shape[2]; oh++)
            for (int64_t ow = 0; ow < y->shape[3]; ow++) {
                cell r = adaptive_cell(x->shape[2], x->shape[3], y->shape[2], y->shape[3], oh, ow);
                double sum = 0;
                for (int64_t h = r.h0; h < r.h1; h++)
                    for (int64_t w = r.w0; w < r.w1; w++)
                        sum +=
                            (double)((const T *)x->data)[lc__offset(x, 0, 2, p) + h * x->stride[2] + w * x->stride[3]];
                ((T *)y->data)[lc__offset(y, 0, 2, p) + oh * y->stride[2] + ow * y->stride[3]] = (T)(sum / r.divisor);
            }
}

static void FN(adaptive_avg_pool2d_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *dx = &c->out[0];
    int64_t planes = dy->shape[0] * dy->shape[1];
    FN(clear)(dx);
    for (int64_t p = 0; p < planes; p++)
        for (int64_t oh = 0; oh < dy->shape[2]; oh++)
            for (int64_t ow = 0; ow < dy->shape[3]; ow++) {
                cell r = adaptive_cell(dx->shape[2], dx->shape[3], dy->shape[2], dy->shape[3], oh, ow);
                double v =
                    (double)((const T *)dy->data)[lc__offset(dy, 0, 2, p) + oh * dy->stride[2] + ow * dy->stride[3]];
                for (int64_t h = r.h0; h < r.h1; h++)
                    for (int64_t w = r.w0; w < r.w1; w++)
                        ((T *)dx->data)[lc__offset(dx, 0, 2, p) + h * dx->stride[2] + w * dx->stride[3]] +=
                            (T)(v / r.divisor);
            }
}
