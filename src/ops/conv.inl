/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as plain loops over every spatial dimension (missing ones have size 1), summed in double. */

/* y[n,o,*] = sum over c, k of x[n,c,*] w[o,c,*] (+ b, activation). A row of results is summed at once. */
static void FN(conv)(const lc_call *c)
{
    enum { ROW = 32 };
    conv_dims d = dims_of(c->ints, &c->in[0], &c->in[1], &c->out[0]);
    const lc_view *b = &c->in[2];
    const T *x = c->in[0].data, *w = c->in[1].data;
    T *y = c->out[0].data;
    int64_t total = d.N * d.O * d.out[0] * d.out[1], og = d.O / d.groups, cg = d.C / d.groups;
    for (int64_t i = 0; i < total; i++) {
        int64_t h = i % d.out[1], t = i / d.out[1] % d.out[0], o = i / d.out[1] / d.out[0] % d.O;
        int64_t n = i / d.out[1] / d.out[0] / d.O, first = o / og * cg;
        for (int64_t w0 = 0; w0 < d.out[2]; w0 += ROW) {
            double sum[ROW];
            int64_t nw = d.out[2] - w0 < ROW ? d.out[2] - w0 : ROW;
            double start = LC_VEC(T, b, o, 0.0);
            for (int64_t j = 0; j < nw; j++) sum[j] = start;
            for (int64_t ch = 0; ch < cg; ch++)
                for (int64_t kt = 0; kt < d.k[0]; kt++) {
                    int64_t xt = t * d.s[0] + kt * d.d[0] - d.p[0];
                    if (xt < 0 || xt >= d.in[0]) continue;
                    for (int64_t kh = 0; kh < d.k[1]; kh++) {
                        int64_t xh = h * d.s[1] + kh * d.d[1] - d.p[1];
                        if (xh < 0 || xh >= d.in[1]) continue;
                        const T *row = x + n * d.xn + (first + ch) * d.xc + xt * d.xs[0] + xh * d.xs[1];
                        for (int64_t kw = 0; kw < d.k[2]; kw++) {
                            double v = (double)w[o * d.wo + ch * d.wc + kt * d.ws[0] + kh * d.ws[1] + kw * d.ws[2]];
                            int64_t at = w0 * d.s[2] + kw * d.d[2] - d.p[2];
                            int64_t from = at < 0 ? (-at + d.s[2] - 1) / d.s[2] : 0;
                            int64_t to = at >= d.in[2] ? 0 : (d.in[2] - 1 - at) / d.s[2] + 1;
                            if (to > nw) to = nw;
                            for (int64_t j = from; j < to; j++) sum[j] += v * (double)row[(at + j * d.s[2]) * d.xs[2]];
                        }
                    }
                }
            T *out = y + n * d.yn + o * d.yc + t * d.ys[0] + h * d.ys[1] + w0 * d.ys[2];
            for (int64_t j = 0; j < nw; j++) {
                double v = lc__activate(sum[j], c->ints[2 + 3 * d.nd]);
                out[j * d.ys[2]] = (T)(c->accumulate ? v + (double)out[j * d.ys[2]] : v);
            }
        }
    }
}

/* dx[n,c,*] = sum over o, k of dy[n,o,*] w[o,c,*] (+ b[c]): a row of dx collects the contributions of the results that
 * its elements were used for. */
static void FN(conv_input_grad)(const lc_call *c)
{
    enum { ROW = 32 };
    conv_dims d = dims_of(c->ints, &c->out[0], &c->in[1], &c->in[0]);
    const lc_view *b = &c->in[2];
    const T *dy = c->in[0].data, *w = c->in[1].data;
    T *dx = c->out[0].data;
    int64_t total = d.N * d.C * d.in[0] * d.in[1], og = d.O / d.groups, cg = d.C / d.groups;
    for (int64_t i = 0; i < total; i++) {
        int64_t xh = i % d.in[1], xt = i / d.in[1] % d.in[0], ch = i / d.in[1] / d.in[0] % d.C;
        int64_t n = i / d.in[1] / d.in[0] / d.C, first = ch / cg * og;
        for (int64_t x0 = 0; x0 < d.in[2]; x0 += ROW) {
            double sum[ROW];
            int64_t nx = d.in[2] - x0 < ROW ? d.in[2] - x0 : ROW;
            double start = LC_VEC(T, b, ch, 0.0);
            for (int64_t j = 0; j < nx; j++) sum[j] = start;
            for (int64_t kt = 0; kt < d.k[0]; kt++) {
                int64_t t = xt + d.p[0] - kt * d.d[0];
                if (t < 0 || t % d.s[0] || t / d.s[0] >= d.out[0]) continue;
                for (int64_t kh = 0; kh < d.k[1]; kh++) {
                    int64_t h = xh + d.p[1] - kh * d.d[1];
                    if (h < 0 || h % d.s[1] || h / d.s[1] >= d.out[1]) continue;
                    for (int64_t kw = 0; kw < d.k[2]; kw++) {
                        /* dx at x0 + from + m * s was used for y at `at` + m, if that is there. */
                        int64_t v = x0 + d.p[2] - kw * d.d[2], at = v > 0 ? (v + d.s[2] - 1) / d.s[2] : 0;
                        int64_t from = at * d.s[2] - v;
                        int64_t many = from < nx ? (nx - 1 - from) / d.s[2] + 1 : 0;
                        if (many > d.out[2] - at) many = d.out[2] - at;
                        const T *row =
                            dy + n * d.yn + first * d.yc + t / d.s[0] * d.ys[0] + h / d.s[1] * d.ys[1] + at * d.ys[2];
                        const T *weight =
                            w + first * d.wo + ch % cg * d.wc + kt * d.ws[0] + kh * d.ws[1] + kw * d.ws[2];
                        for (int64_t o = 0; o < og; o++) {
                            double k = (double)weight[o * d.wo];
                            for (int64_t m = 0; m < many; m++)
                                sum[from + m * d.s[2]] += (double)row[o * d.yc + m * d.ys[2]] * k;
                        }
                    }
                }
            }
            T *out = dx + n * d.xn + ch * d.xc + xt * d.xs[0] + xh * d.xs[1] + x0 * d.xs[2];
            for (int64_t j = 0; j < nx; j++)
                out[j * d.xs[2]] = (T)(c->accumulate ? sum[j] + (double)out[j * d.xs[2]] : sum[j]);
        }
    }
}

/* dw[o,c,*] = sum over n and places of dy[n,o,*] x[n,c,*] */
static void FN(conv_weight_grad)(const lc_call *c)
{
    conv_dims d = dims_of(c->ints, &c->in[1], &c->out[0], &c->in[0]);
    const T *dy = c->in[0].data, *x = c->in[1].data;
    T *dw = c->out[0].data;
    int64_t kernel = d.k[0] * d.k[1] * d.k[2], og = d.O / d.groups, cg = d.C / d.groups;
    for (int64_t i = 0; i < d.O * cg * kernel; i++) {
        int64_t kw = i % d.k[2], kh = i / d.k[2] % d.k[1], kt = i / d.k[2] / d.k[1] % d.k[0];
        int64_t ch = i / kernel % cg, o = i / kernel / cg, first = o / og * cg;
        double sum = 0;
        for (int64_t n = 0; n < d.N; n++)
            for (int64_t t = 0; t < d.out[0]; t++) {
                int64_t xt = t * d.s[0] + kt * d.d[0] - d.p[0];
                if (xt < 0 || xt >= d.in[0]) continue;
                for (int64_t h = 0; h < d.out[1]; h++) {
                    int64_t xh = h * d.s[1] + kh * d.d[1] - d.p[1];
                    if (xh < 0 || xh >= d.in[1]) continue;
                    const T *a = dy + n * d.yn + o * d.yc + t * d.ys[0] + h * d.ys[1];
                    const T *e = x + n * d.xn + (first + ch) * d.xc + xt * d.xs[0] + xh * d.xs[1];
                    int64_t at = kw * d.d[2] - d.p[2];
                    int64_t from = at < 0 ? (-at + d.s[2] - 1) / d.s[2] : 0;
                    int64_t to = at >= d.in[2] ? 0 : (d.in[2] - 1 - at) / d.s[2] + 1;
                    if (to > d.out[2]) to = d.out[2];
                    for (int64_t j = from; j < to; j++)
                        sum += (double)a[j * d.ys[2]] * (double)e[(at + j * d.s[2]) * d.xs[2]];
                }
            }
        T *out = dw + o * d.wo + ch * d.wc + kt * d.ws[0] + kh * d.ws[1] + kw * d.ws[2];
        *out = (T)(c->accumulate ? sum + (double)*out : sum);
    }
}
