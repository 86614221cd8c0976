/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalization, a channel at a time, statistics in double. */

/* One channel: sums over batch and space of `body`, with `at` the offset of the row and l the place in it. */
#define CHANNEL_ROWS(n, r)                                                                                             \
    for (int64_t n = 0; n < d.N; n++)                                                                                  \
        for (int64_t r = 0; r < d.R; r++)

/* Mean and variance are rounded to the type that they are stored in, so that a backward pass, which reads them,
 * computes the same results again. */
static void FN(statistics)(const lc_view *x, planes d, int64_t ch, double *mean, double *var)
{
    double sum = 0, squares = 0, count = (double)(d.N * d.R * d.L);
    CHANNEL_ROWS(n, r)
    {
        const T *row = (const T *)x->data + row_at(x, n, ch, r);
        for (int64_t l = 0; l < d.L; l++) sum += (double)row[l * d_last(x)];
    }
    *mean = sum / count;
    CHANNEL_ROWS(n, r)
    {
        const T *row = (const T *)x->data + row_at(x, n, ch, r);
        for (int64_t l = 0; l < d.L; l++) {
            double v = (double)row[l * d_last(x)] - *mean;
            squares += v * v;
        }
    }
    *var = (double)(T)(squares / count);
    *mean = (double)(T)*mean;
}

/* y = x * scale + shift for one channel. */
static void FN(affine)(const lc_view *x, const lc_view *y, planes d, int64_t ch, double mean, double scale,
                       double shift, bool relu)
{
    CHANNEL_ROWS(n, r)
    {
        const T *row = (const T *)x->data + row_at(x, n, ch, r);
        T *out = (T *)y->data + row_at(y, n, ch, r);
        for (int64_t l = 0; l < d.L; l++) {
            double v = ((double)row[l * d_last(x)] - mean) * scale + shift;
            out[l * d_last(y)] = (T)(relu && v <= 0 ? 0 : v);
        }
    }
}

static void FN(batch_norm)(const lc_call *c)
{
    const lc_view *x = &c->in[0];
    planes d = planes_of(x);
    for (int64_t ch = 0; ch < d.C; ch++) {
        double mean, var;
        FN(statistics)(x, d, ch, &mean, &var);
        ((T *)c->out[1].data)[ch * c->out[1].stride[0]] = (T)mean;
        ((T *)c->out[2].data)[ch * c->out[2].stride[0]] = (T)var;
        double scale = LC_VEC(T, &c->in[1], ch, 1.0) / sqrt(var + c->floats[0]);
        FN(affine)(x, &c->out[0], d, ch, mean, scale, LC_VEC(T, &c->in[2], ch, 0.0), c->ints[0] == 1);
    }
}

static void FN(batch_norm_inference)(const lc_call *c)
{
    const lc_view *x = &c->in[0];
    planes d = planes_of(x);
    for (int64_t ch = 0; ch < d.C; ch++) {
        double mean = LC_VEC(T, &c->in[3], ch, 0.0), var = LC_VEC(T, &c->in[4], ch, 1.0);
        double scale = LC_VEC(T, &c->in[1], ch, 1.0) / sqrt(var + c->floats[0]);
        FN(affine)(x, &c->out[0], d, ch, mean, scale, LC_VEC(T, &c->in[2], ch, 0.0), c->ints[0] == 1);
    }
}

/* dx from dy (which may be dx itself) for one channel; with `relu`, dy passes only where the result was positive. */
static void FN(backward_channel)(const lc_view *dy, const lc_view *x, const lc_view *dx, planes d, int64_t ch,
                                 double mean, double rstd, double w, double b, bool relu, double *dw, double *db)
{
    double sum = 0, product = 0, count = (double)(d.N * d.R * d.L);
    CHANNEL_ROWS(n, r)
    {
        const T *row = (const T *)x->data + row_at(x, n, ch, r);
        const T *in = (const T *)dy->data + row_at(dy, n, ch, r);
        for (int64_t l = 0; l < d.L; l++) {
            double xhat = ((double)row[l * d_last(x)] - mean) * rstd, v = (double)in[l * d_last(dy)];
            if (relu && xhat * w + b <= 0) v = 0;
            sum += v;
            product += v * xhat;
        }
    }
    CHANNEL_ROWS(n, r)
    {
        const T *row = (const T *)x->data + row_at(x, n, ch, r);
        const T *in = (const T *)dy->data + row_at(dy, n, ch, r);
        T *out = (T *)dx->data + row_at(dx, n, ch, r);
        for (int64_t l = 0; l < d.L; l++) {
            double xhat = ((double)row[l * d_last(x)] - mean) * rstd, v = (double)in[l * d_last(dy)];
            if (relu && xhat * w + b <= 0) v = 0;
            out[l * d_last(dx)] = (T)(w * rstd * (v - sum / count - xhat * product / count));
        }
    }
    *dw = product;
    *db = sum;
}

static void FN(batch_norm_backward)(const lc_call *c)
{
    const lc_view *x = &c->in[1];
    planes d = planes_of(x);
    for (int64_t ch = 0; ch < d.C; ch++) {
        double mean = LC_VEC(T, &c->in[4], ch, 0.0), rstd = 1 / sqrt(LC_VEC(T, &c->in[5], ch, 1.0) + c->floats[0]);
        double dw, db;
        FN(backward_channel)
        (&c->in[0], x, &c->out[0], d, ch, mean, rstd, LC_VEC(T, &c->in[2], ch, 1.0), LC_VEC(T, &c->in[3], ch, 0.0),
         c->ints[0] == 1, &dw, &db);
        ((T *)c->out[1].data)[ch * c->out[1].stride[0]] = (T)dw;
        ((T *)c->out[2].data)[ch * c->out[2].stride[0]] = (T)db;
    }
}

/* Computes the result y again: with the statistics that were stored for it. */
static void FN(batch_norm_relu_backward)(const lc_call *c)
{
    const lc_view *x = &c->in[1];
    planes d = planes_of(x);
    FN(batch_norm_backward)(c);
    for (int64_t ch = 0; ch < d.C; ch++) {
        double scale = LC_VEC(T, &c->in[2], ch, 1.0) / sqrt(LC_VEC(T, &c->in[5], ch, 1.0) + c->floats[0]);
        FN(affine)
        (x, &c->out[3], d, ch, LC_VEC(T, &c->in[4], ch, 0.0), scale, LC_VEC(T, &c->in[3], ch, 0.0), true);
    }
}

/* ---- batch norm, relu and max pooling in one ---- */
static void FN(batch_norm_relu_pool)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0], *index = &c->out[1];
    planes d = planes_of(x);
    const int64_t *k = c->ints;
    for (int64_t ch = 0; ch < d.C; ch++) {
        double mean, var;
        FN(statistics)(x, d, ch, &mean, &var);
        ((T *)c->out[2].data)[ch * c->out[2].stride[0]] = (T)mean;
        ((T *)c->out[3].data)[ch * c->out[3].stride[0]] = (T)var;
        double scale = LC_VEC(T, &c->in[1], ch, 1.0) / sqrt(var + c->floats[0]), shift = LC_VEC(T, &c->in[2], ch, 0.0);
        for (int64_t n = 0; n < d.N; n++)
            for (int64_t oh = 0; oh < y->shape[2]; oh++)
                for (int64_t ow = 0; ow < y->shape[3]; ow++) {
                    T best = 0;
                    int64_t place = -1;
                    for (int64_t i = 0; i < k[0] * k[1]; i++) {
                        int64_t h = oh * k[2] - k[4] + i / k[1] * k[6], w = ow * k[3] - k[5] + i % k[1] * k[7];
                        if (h < 0 || h >= x->shape[2] || w < 0 || w >= x->shape[3]) continue;
                        const T *at = (const T *)x->data + row_at(x, n, ch, h) + w * x->stride[3];
                        double z = ((double)*at - mean) * scale + shift;
                        T v = (T)(z <= 0 ? 0 : z);
                        if (place < 0 || v > best || (v != v && best == best)) best = v, place = i;
                    }
                    ((T *)y->data)[row_at(y, n, ch, oh) + ow * y->stride[3]] = best;
                    int64_t at = row_at(index, n, ch, oh) + ow * index->stride[3];
                    if (index->dtype == LC_U8)
                        ((uint8_t *)index->data)[at] = (uint8_t)place;
                    else
                        ((int32_t *)index->data)[at] = (int32_t)place;
                }
    }
}

static void FN(batch_norm_relu_pool_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *index = &c->in[1], *x = &c->in[2], *dx = &c->out[0];
    planes d = planes_of(x);
    const int64_t *k = c->ints;
    for (int64_t ch = 0; ch < d.C; ch++) {
        CHANNEL_ROWS(n, r)
        for (int64_t l = 0; l < d.L; l++) ((T *)dx->data)[row_at(dx, n, ch, r) + l * dx->stride[3]] = 0;
        for (int64_t n = 0; n < d.N; n++)
            for (int64_t oh = 0; oh < dy->shape[2]; oh++)
                for (int64_t ow = 0; ow < dy->shape[3]; ow++) {
                    int64_t i = lc__index_at(index, row_at(index, n, ch, oh) + ow * index->stride[3]);
                    int64_t h = oh * k[2] - k[4] + i / k[1] * k[6], w = ow * k[3] - k[5] + i % k[1] * k[7];
                    if (h < 0 || h >= x->shape[2] || w < 0 || w >= x->shape[3]) continue;
                    ((T *)dx->data)[row_at(dx, n, ch, h) + w * dx->stride[3]] +=
                        ((const T *)dy->data)[row_at(dy, n, ch, oh) + ow * dy->stride[3]];
                }
        double mean = LC_VEC(T, &c->in[5], ch, 0.0), rstd = 1 / sqrt(LC_VEC(T, &c->in[6], ch, 1.0) + c->floats[0]);
        double dw, db;
        FN(backward_channel)
        (dx, x, dx, d, ch, mean, rstd, LC_VEC(T, &c->in[3], ch, 1.0), LC_VEC(T, &c->in[4], ch, 0.0), true, &dw, &db);
        ((T *)c->out[1].data)[ch * c->out[1].stride[0]] = (T)dw;
        ((T *)c->out[2].data)[ch * c->out[2].stride[0]] = (T)db;
    }
}
#undef CHANNEL_ROWS
