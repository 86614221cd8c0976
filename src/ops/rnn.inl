/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrent part of LSTM and GRU: what depends on the previous step. The products with x are one linear operator
 * before it, those for the weight gradients one product after it. */

/* The previous hidden state at step t: y[:,t-1], or h0; NULL stands for zeros. */
static const T *FN(previous)(const lc_view *y, const lc_view *h0, int64_t t, int64_t *rows, int64_t *columns)
{
    const lc_view *v = t ? y : h0;
    if (!lc__given(v)) return NULL;
    *rows = v->stride[0];
    *columns = t ? y->stride[2] : h0->stride[1];
    return (const T *)v->data + (t ? (t - 1) * y->stride[1] : 0);
}

static double FN(at2)(const lc_view *v, int64_t i, int64_t j)
{
    return lc__given(v) ? (double)((const T *)v->data)[i * v->stride[0] + j * v->stride[1]] : 0;
}

static double FN(at3)(const lc_view *v, int64_t i, int64_t j, int64_t k)
{
    return lc__given(v) ? (double)((const T *)v->data)[i * v->stride[0] + j * v->stride[1] + k * v->stride[2]] : 0;
}

static void FN(put2)(const lc_view *v, int64_t i, int64_t j, double value)
{
    ((T *)v->data)[i * v->stride[0] + j * v->stride[1]] = (T)value;
}

static void FN(put3)(const lc_view *v, int64_t i, int64_t j, int64_t k, double value)
{
    ((T *)v->data)[i * v->stride[0] + j * v->stride[1] + k * v->stride[2]] = (T)value;
}

/* z[B,n] = h_prev w_hh^T + b_hh for step t, into scratch. */
static void FN(hidden_part)(const lc_call *c, const lc_view *y, int64_t t, T *z)
{
    const lc_view *w = &c->in[1], *b = &c->in[2], *h0 = &c->in[3];
    int64_t B = y->shape[0], H = y->shape[2], n = w->shape[0], rows = 0, columns = 0;
    const T *h = FN(previous)(y, h0, t, &rows, &columns);
    FN(lc__gemm)
    (B, n, h ? H : 0, h, rows, columns, (const T *)w->data, w->stride[1], w->stride[0], z, n, 1,
     lc__given(b) ? (const T *)b->data : NULL, lc__given(b) ? b->stride[0] : 0, 0, false);
}

static void FN(lstm)(const lc_call *c)
{
    const lc_view *gx = &c->in[0], *c0 = &c->in[4], *y = &c->out[0], *gates = &c->out[3], *cells = &c->out[4];
    int64_t B = y->shape[0], steps = y->shape[1], H = y->shape[2];
    T *z = c->scratch;
    for (int64_t t = 0; t < steps; t++) {
        FN(hidden_part)(c, y, t, z);
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                double v[4], before = t ? FN(at3)(cells, b, t - 1, j) : FN(at2)(c0, b, j);
                for (int g = 0; g < 4; g++) {
                    double sum = FN(at3)(gx, b, t, g * H + j) + (double)z[b * 4 * H + g * H + j];
                    v[g] = g == 2 ? tanh(sum) : 1 / (1 + exp(-sum));
                    FN(put3)(gates, b, t, g * H + j, v[g]);
                }
                double cell = v[1] * before + v[0] * v[2];
                FN(put3)(cells, b, t, j, cell);
                FN(put3)(y, b, t, j, v[3] * tanh(cell));
            }
    }
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            FN(put2)(&c->out[1], b, j, FN(at3)(y, b, steps - 1, j));
            FN(put2)(&c->out[2], b, j, FN(at3)(cells, b, steps - 1, j));
        }
}

/* The hidden states before every step, for the gradient of w_hh. */
static void FN(store_previous)(const lc_view *y, const lc_view *h0, const lc_view *to)
{
    for (int64_t b = 0; b < y->shape[0]; b++)
        for (int64_t t = 0; t < y->shape[1]; t++)
            for (int64_t j = 0; j < y->shape[2]; j++)
                FN(put3)(to, b, t, j, t ? FN(at3)(y, b, t - 1, j) : FN(at2)(h0, b, j));
}

static void FN(lstm_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *dhn = &c->in[1], *dcn = &c->in[2], *w = &c->in[3], *h0 = &c->in[4], *c0 = &c->in[5],
                  *y = &c->in[6], *gates = &c->in[7], *cells = &c->in[8], *dgx = &c->out[0];
    int64_t B = y->shape[0], steps = y->shape[1], H = y->shape[2];
    double *dc = c->scratch;
    T *dh = (T *)(dc + B * H);
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            dh[b * H + j] = (T)FN(at2)(dhn, b, j);
            dc[b * H + j] = FN(at2)(dcn, b, j);
        }
    for (int64_t t = steps - 1; t >= 0; t--) {
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                double i = FN(at3)(gates, b, t, j), f = FN(at3)(gates, b, t, H + j);
                double g = FN(at3)(gates, b, t, 2 * H + j), o = FN(at3)(gates, b, t, 3 * H + j);
                double before = t ? FN(at3)(cells, b, t - 1, j) : FN(at2)(c0, b, j);
                double tc = tanh(FN(at3)(cells, b, t, j)), d = (double)dh[b * H + j] + FN(at3)(dy, b, t, j);
                double dcell = dc[b * H + j] + d * o * (1 - tc * tc);
                FN(put3)(dgx, b, t, j, dcell * g * i * (1 - i));
                FN(put3)(dgx, b, t, H + j, dcell * before * f * (1 - f));
                FN(put3)(dgx, b, t, 2 * H + j, dcell * i * (1 - g * g));
                FN(put3)(dgx, b, t, 3 * H + j, d * tc * o * (1 - o));
                dc[b * H + j] = dcell * f;
            }
        FN(lc__gemm)
        (B, H, 4 * H, (const T *)dgx->data + t * dgx->stride[1], dgx->stride[0], dgx->stride[2], (const T *)w->data,
         w->stride[0], w->stride[1], dh, H, 1, NULL, 0, 0, false);
    }
    FN(store_previous)(y, h0, &c->out[1]);
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            FN(put2)(&c->out[2], b, j, (double)dh[b * H + j]);
            FN(put2)(&c->out[3], b, j, dc[b * H + j]);
        }
}

static void FN(gru)(const lc_call *c)
{
    const lc_view *gx = &c->in[0], *h0 = &c->in[3], *y = &c->out[0], *gates = &c->out[2];
    int64_t B = y->shape[0], steps = y->shape[1], H = y->shape[2];
    T *z = c->scratch;
    for (int64_t t = 0; t < steps; t++) {
        FN(hidden_part)(c, y, t, z);
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                const T *hidden = z + b * 3 * H + j;
                double before = t ? FN(at3)(y, b, t - 1, j) : FN(at2)(h0, b, j);
                double reset = 1 / (1 + exp(-(FN(at3)(gx, b, t, j) + (double)hidden[0])));
                double update = 1 / (1 + exp(-(FN(at3)(gx, b, t, H + j) + (double)hidden[H])));
                double fresh = tanh(FN(at3)(gx, b, t, 2 * H + j) + reset * (double)hidden[2 * H]);
                FN(put3)(gates, b, t, j, reset);
                FN(put3)(gates, b, t, H + j, update);
                FN(put3)(gates, b, t, 2 * H + j, fresh);
                FN(put3)(gates, b, t, 3 * H + j, (double)hidden[2 * H]);
                FN(put3)(y, b, t, j, (1 - update) * fresh + update * before);
            }
    }
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) FN(put2)(&c->out[1], b, j, FN(at3)(y, b, steps - 1, j));
}

static void FN(gru_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *dhn = &c->in[1], *w = &c->in[2], *h0 = &c->in[3], *y = &c->in[4],
                  *gates = &c->in[5], *dgx = &c->out[0], *dgh = &c->out[1];
    int64_t B = y->shape[0], steps = y->shape[1], H = y->shape[2];
    T *dh = c->scratch;
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) dh[b * H + j] = (T)FN(at2)(dhn, b, j);
    for (int64_t t = steps - 1; t >= 0; t--) {
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                double r = FN(at3)(gates, b, t, j), z = FN(at3)(gates, b, t, H + j);
                double n = FN(at3)(gates, b, t, 2 * H + j), hidden = FN(at3)(gates, b, t, 3 * H + j);
                double before = t ? FN(at3)(y, b, t - 1, j) : FN(at2)(h0, b, j);
                double d = (double)dh[b * H + j] + FN(at3)(dy, b, t, j);
                double dn = d * (1 - z) * (1 - n * n), dr = dn * hidden * r * (1 - r);
                double dz = d * (before - n) * z * (1 - z);
                FN(put3)(dgx, b, t, j, dr);
                FN(put3)(dgx, b, t, H + j, dz);
                FN(put3)(dgx, b, t, 2 * H + j, dn);
                FN(put3)(dgh, b, t, j, dr);
                FN(put3)(dgh, b, t, H + j, dz);
                FN(put3)(dgh, b, t, 2 * H + j, dn * r);
                dh[b * H + j] = (T)(d * z);
            }
        FN(lc__gemm)
        (B, H, 3 * H, (const T *)dgh->data + t * dgh->stride[1], dgh->stride[0], dgh->stride[2], (const T *)w->data,
         w->stride[0], w->stride[1], dh, H, 1, NULL, 0, 0, true);
    }
    FN(store_previous)(y, h0, &c->out[2]);
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) FN(put2)(&c->out[3], b, j, (double)dh[b * H + j]);
}
