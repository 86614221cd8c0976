/* SPDX-License-Identifier: Apache-2.0 */
/* Layer, RMS and group normalization over any strides, statistics in double. */

static void FN(layer_norm)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *w = &c->in[1], *b = &c->in[2], *y = &c->out[0];
    int nd = x->ndim, first = nd - (int)c->ints[0], inner = (int)c->ints[0];
    int64_t rows = lc__view_extent(x, 0, first), n = lc__view_extent(x, first, nd);
    for (int64_t r = 0; r < rows; r++) {
        const T *row = (const T *)x->data + lc__offset(x, 0, first, r);
        T *out = (T *)y->data + lc__offset(y, 0, first, r);
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)row[lc__inner_offset(x, first, nd, i)];
        double mean = sum / (double)n;
        for (int64_t i = 0; i < n; i++) {
            double v = (double)row[lc__inner_offset(x, first, nd, i)] - mean;
            squares += v * v;
        }
        double rstd = 1 / sqrt(squares / (double)n + c->floats[0]);
        for (int64_t i = 0; i < n; i++) {
            double v = ((double)row[lc__inner_offset(x, first, nd, i)] - mean) * rstd;
            if (lc__given(w)) v *= (double)((const T *)w->data)[lc__inner_offset(w, 0, inner, i)];
            if (lc__given(b)) v += (double)((const T *)b->data)[lc__inner_offset(b, 0, inner, i)];
            out[lc__inner_offset(y, first, nd, i)] = (T)v;
        }
        ((T *)c->out[1].data)[lc__offset(&c->out[1], 0, first, r)] = (T)mean;
        ((T *)c->out[2].data)[lc__offset(&c->out[2], 0, first, r)] = (T)rstd;
    }
}

/* Adds up dw and db in scratch, in double. `mean` is absent for RMS normalization, which has no bias either. */
static void FN(row_norm_backward)(const lc_call *c, const lc_view *mean, const lc_view *rstd)
{
    const lc_view *dy = &c->in[0], *x = &c->in[1], *w = &c->in[2], *dx = &c->out[0];
    int nd = x->ndim, first = nd - (int)c->ints[0], inner = (int)c->ints[0];
    int64_t rows = lc__view_extent(x, 0, first), n = lc__view_extent(x, first, nd);
    double *dw = c->scratch, *db = dw + n;
    memset(dw, 0, (size_t)n * 2 * sizeof *dw);
    for (int64_t r = 0; r < rows; r++) {
        const T *row = (const T *)x->data + lc__offset(x, 0, first, r);
        const T *in = (const T *)dy->data + lc__offset(dy, 0, first, r);
        T *out = (T *)dx->data + lc__offset(dx, 0, first, r);
        double m = mean ? (double)((const T *)mean->data)[lc__offset(mean, 0, first, r)] : 0;
        double s = (double)((const T *)rstd->data)[lc__offset(rstd, 0, first, r)], sum = 0, product = 0;
        for (int64_t i = 0; i < n; i++) {
            double xhat = ((double)row[lc__inner_offset(x, first, nd, i)] - m) * s;
            double v = (double)in[lc__inner_offset(dy, first, nd, i)];
            dw[i] += v * xhat;
            db[i] += v;
            if (lc__given(w)) v *= (double)((const T *)w->data)[lc__inner_offset(w, 0, inner, i)];
            sum += v;
            product += v * xhat;
        }
        sum = mean ? sum / (double)n : 0;
        product /= (double)n;
        for (int64_t i = 0; i < n; i++) {
            double xhat = ((double)row[lc__inner_offset(x, first, nd, i)] - m) * s;
            double v = (double)in[lc__inner_offset(dy, first, nd, i)];
            if (lc__given(w)) v *= (double)((const T *)w->data)[lc__inner_offset(w, 0, inner, i)];
            out[lc__inner_offset(dx, first, nd, i)] = (T)(s * (v - sum - xhat * product));
        }
    }
    for (int64_t i = 0; i < n; i++) {
        ((T *)c->out[1].data)[lc__inner_offset(&c->out[1], 0, inner, i)] = (T)dw[i];
        if (mean) ((T *)c->out[2].data)[lc__inner_offset(&c->out[2], 0, inner, i)] = (T)db[i];
    }
}

static void FN(layer_norm_backward)(const lc_call *c)
{
    FN(row_norm_backward)(c, &c->in[3], &c->in[4]);
}

static void FN(rms_norm)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    int nd = x->ndim, first = nd - (int)c->ints[0], inner = (int)c->ints[0];
    int64_t rows = lc__view_extent(x, 0, first), n = lc__view_extent(x, first, nd);
    for (int64_t r = 0; r < rows; r++) {
        const T *row = (const T *)x->data + lc__offset(x, 0, first, r);
        T *out = (T *)y->data + lc__offset(y, 0, first, r);
        double squares = 0;
        for (int64_t i = 0; i < n; i++) {
            double v = (double)row[lc__inner_offset(x, first, nd, i)];
            squares += v * v;
        }
        double rstd = 1 / sqrt(squares / (double)n + c->floats[0]);
        for (int64_t i = 0; i < n; i++) {
            double v = (double)row[lc__inner_offset(x, first, nd, i)] * rstd;
            if (lc__given(w)) v *= (double)((const T *)w->data)[lc__inner_offset(w, 0, inner, i)];
            out[lc__inner_offset(y, first, nd, i)] = (T)v;
        }
        ((T *)c->out[1].data)[lc__offset(&c->out[1], 0, first, r)] = (T)rstd;
    }
}

static void FN(rms_norm_backward)(const lc_call *c)
{
    FN(row_norm_backward)(c, NULL, &c->in[3]);
}

/* ---- group normalization: x[N,C,*], channels g*C/G .. (g+1)*C/G-1 together ---- */
static void FN(group_norm)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0];
    int nd = x->ndim;
    int64_t G = c->ints[0], C = x->shape[1], per = C / G, S = lc__view_extent(x, 2, nd);
    double count = (double)(per * S);
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t g = 0; g < G; g++) {
            const T *from = (const T *)x->data + n * x->stride[0] + g * per * x->stride[1];
            T *to = (T *)y->data + n * y->stride[0] + g * per * y->stride[1];
            double sum = 0, squares = 0;
            for (int64_t ch = 0; ch < per; ch++)
                for (int64_t i = 0; i < S; i++) sum += (double)from[ch * x->stride[1] + lc__inner_offset(x, 2, nd, i)];
            double mean = sum / count;
            for (int64_t ch = 0; ch < per; ch++)
                for (int64_t i = 0; i < S; i++) {
                    double v = (double)from[ch * x->stride[1] + lc__inner_offset(x, 2, nd, i)] - mean;
                    squares += v * v;
                }
            double rstd = 1 / sqrt(squares / count + c->floats[0]);
            for (int64_t ch = 0; ch < per; ch++) {
                double w = LC_VEC(T, &c->in[1], g * per + ch, 1.0), b = LC_VEC(T, &c->in[2], g * per + ch, 0.0);
                for (int64_t i = 0; i < S; i++) {
                    double v = (double)from[ch * x->stride[1] + lc__inner_offset(x, 2, nd, i)];
                    to[ch * y->stride[1] + lc__inner_offset(y, 2, nd, i)] = (T)((v - mean) * rstd * w + b);
                }
            }
            ((T *)c->out[1].data)[n * c->out[1].stride[0] + g * c->out[1].stride[1]] = (T)mean;
            ((T *)c->out[2].data)[n * c->out[2].stride[0] + g * c->out[2].stride[1]] = (T)rstd;
        }
}

static void FN(group_norm_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *x = &c->in[1], *mean = &c->in[3], *rstd = &c->in[4], *dx = &c->out[0];
    int nd = x->ndim;
    int64_t G = c->ints[0], C = x->shape[1], per = C / G, S = lc__view_extent(x, 2, nd);
    double count = (double)(per * S), *dw = c->scratch, *db = dw + C;
    memset(dw, 0, (size_t)C * 2 * sizeof *dw);
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t g = 0; g < G; g++) {
            double m = (double)((const T *)mean->data)[n * mean->stride[0] + g * mean->stride[1]];
            double s = (double)((const T *)rstd->data)[n * rstd->stride[0] + g * rstd->stride[1]];
            double sum = 0, product = 0;
            for (int64_t ch = g * per; ch < (g + 1) * per; ch++) {
                const T *from = (const T *)x->data + n * x->stride[0] + ch * x->stride[1];
                const T *in = (const T *)dy->data + n * dy->stride[0] + ch * dy->stride[1];
                double w = LC_VEC(T, &c->in[2], ch, 1.0), a = 0, p = 0;
                for (int64_t i = 0; i < S; i++) {
                    double v = (double)in[lc__inner_offset(dy, 2, nd, i)];
                    a += v;
                    p += v * ((double)from[lc__inner_offset(x, 2, nd, i)] - m) * s;
                }
                dw[ch] += p;
                db[ch] += a;
                sum += w * a;
                product += w * p;
            }
            sum /= count;
            product /= count;
            for (int64_t ch = g * per; ch < (g + 1) * per; ch++) {
                const T *from = (const T *)x->data + n * x->stride[0] + ch * x->stride[1];
                const T *in = (const T *)dy->data + n * dy->stride[0] + ch * dy->stride[1];
                T *to = (T *)dx->data + n * dx->stride[0] + ch * dx->stride[1];
                double w = LC_VEC(T, &c->in[2], ch, 1.0);
                for (int64_t i = 0; i < S; i++) {
                    double xhat = ((double)from[lc__inner_offset(x, 2, nd, i)] - m) * s;
                    double v = w * (double)in[lc__inner_offset(dy, 2, nd, i)];
                    to[lc__inner_offset(dx, 2, nd, i)] = (T)(s * (v - sum - xhat * product));
                }
            }
        }
    for (int64_t ch = 0; ch < C; ch++) {
        ((T *)c->out[1].data)[ch * c->out[1].stride[0]] = (T)dw[ch];
        ((T *)c->out[2].data)[ch * c->out[2].stride[0]] = (T)db[ch];
    }
}
