/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products over any strides, summed in double. Blocks of y are copied together so that the innermost loop runs
 * over neighbors whatever the strides are. */

/* z[m,n] = sum over k of x[m,k] y[k,n] (+ bias[n], activation) */
void FN(lc__gemm)(int64_t M, int64_t N, int64_t K, const T *x, int64_t xm, int64_t xk, const T *y, int64_t yk,
                  int64_t yn, T *z, int64_t zm, int64_t zn, const T *bias, int64_t bn, int64_t activation,
                  bool accumulate)
{
    enum { BM = 16, BN = 32, BK = 64 };
    double sum[BM][BN], block[BK][BN];
    for (int64_t n0 = 0; n0 < N; n0 += BN) {
        int64_t nn = N - n0 < BN ? N - n0 : BN;
        for (int64_t m0 = 0; m0 < M; m0 += BM) {
            int64_t mm = M - m0 < BM ? M - m0 : BM;
            memset(sum, 0, sizeof sum);
            for (int64_t k0 = 0; k0 < K; k0 += BK) {
                int64_t kk = K - k0 < BK ? K - k0 : BK;
                for (int64_t k = 0; k < kk; k++) {
                    for (int64_t n = 0; n < nn; n++) block[k][n] = (double)y[(k0 + k) * yk + (n0 + n) * yn];
                    for (int64_t n = nn; n < BN; n++) block[k][n] = 0;
                }
                for (int64_t m = 0; m < mm; m++)
                    for (int64_t k = 0; k < kk; k++) {
                        double a = (double)x[(m0 + m) * xm + (k0 + k) * xk];
                        for (int n = 0; n < BN; n++) sum[m][n] += a * block[k][n];
                    }
            }
            for (int64_t m = 0; m < mm; m++)
                for (int64_t n = 0; n < nn; n++) {
                    T *out = &z[(m0 + m) * zm + (n0 + n) * zn];
                    double v = sum[m][n] + (bias ? (double)bias[(n0 + n) * bn] : 0);
                    v = lc__activate(v, activation);
                    *out = (T)(accumulate ? v + (double)*out : v);
                }
        }
    }
}

static void FN(matmul)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->in[1], *z = &c->out[0];
    int zl = z->ndim - 2, xl = x->ndim - 2, yl = y->ndim - 2;
    int64_t batch = lc__view_extent(z, 0, zl);
    for (int64_t b = 0; b < batch; b++) FN(lc__gemm)
    (z->shape[zl], z->shape[zl + 1], x->shape[xl + 1],
     (const T *)x->data + lc__offset_broadcast(x, xl, z->shape, zl, b), x->stride[xl], x->stride[xl + 1],
     (const T *)y->data + lc__offset_broadcast(y, yl, z->shape, zl, b), y->stride[yl], y->stride[yl + 1],
     (T *)z->data + lc__offset(z, 0, zl, b), z->stride[zl], z->stride[zl + 1], NULL, 0, 0, c->accumulate);
}

static void FN(linear_into)(const lc_call *c, const lc_view *y, int64_t activation)
{
    const lc_view *x = &c->in[0], *w = &c->in[1], *b = &c->in[2];
    int last = x->ndim - 1;
    int64_t rows = lc__view_extent(x, 0, last), inner = last ? x->shape[last - 1] : 1;
    if (!rows) return;
    /* The last leading dimension has a regular stride; those before it are walked. */
    for (int64_t r = 0; r < rows / inner; r++) FN(lc__gemm)
    (inner, y->shape[last], x->shape[last], (const T *)x->data + (last ? lc__offset(x, 0, last - 1, r) : 0),
     last ? x->stride[last - 1] : 0, x->stride[last], (const T *)w->data, w->stride[1], w->stride[0],
     (T *)y->data + (last ? lc__offset(y, 0, last - 1, r) : 0), last ? y->stride[last - 1] : 0, y->stride[last],
     lc__given(b) ? (const T *)b->data : NULL, lc__given(b) ? b->stride[0] : 0, activation, c->accumulate);
}

static void FN(linear)(const lc_call *c)
{
    FN(linear_into)(c, &c->out[0], c->ints[0]);
}

static T FN(gelu_of)(double v, int64_t tanh)
{
    return (T)(tanh ? lc__gelu_tanh(v) : lc__gelu_erf(v));
}

/* Like linear and gelu one after the other, so that both results round as theirs. */
static void FN(linear_gelu)(const lc_call *c)
{
    const lc_view *y = &c->out[0], *sum = &c->out[c->n_out - 1];
    int64_t n = lc__view_extent(y, 0, y->ndim);
    FN(linear_into)(c, sum, 0);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)((const T *)sum->data)[lc__offset(sum, 0, sum->ndim, i)];
        ((T *)y->data)[lc__offset(y, 0, y->ndim, i)] = FN(gelu_of)(v, c->ints[0]);
    }
}

static void FN(matmul_gelu_backward)(const lc_call *c)
{
    const lc_view *y = &c->out[0], *x = &c->in[2], *gelu = c->n_out > 1 ? &c->out[1] : NULL;
    int64_t n = lc__view_extent(y, 0, y->ndim);
    FN(matmul)(c);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)((const T *)x->data)[lc__offset(x, 0, x->ndim, i)];
        T *to = &((T *)y->data)[lc__offset(y, 0, y->ndim, i)];
        *to = (T)((double)*to * (c->ints[0] ? lc__gelu_tanh_slope(v) : lc__gelu_erf_slope(v)));
        if (gelu) ((T *)gelu->data)[lc__offset(gelu, 0, gelu->ndim, i)] = FN(gelu_of)(v, c->ints[0]);
    }
}

static void FN(gelu_backward_gelu)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *x = &c->in[1], *dx = &c->out[0], *y = &c->out[1];
    int64_t n = lc__view_extent(x, 0, x->ndim);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)((const T *)x->data)[lc__offset(x, 0, x->ndim, i)];
        double slope = c->ints[0] ? lc__gelu_tanh_slope(v) : lc__gelu_erf_slope(v);
        ((T *)dx->data)[lc__offset(dx, 0, dx->ndim, i)] =
            (T)((double)((const T *)dy->data)[lc__offset(dy, 0, dy->ndim, i)] * slope);
        ((T *)y->data)[lc__offset(y, 0, y->ndim, i)] = FN(gelu_of)(v, c->ints[0]);
    }
}

static void FN(linear_weight_grad)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0], *db = &c->out[1];
    int64_t rows = dy->shape[0], n = dy->shape[1];
    FN(lc__gemm)
    (n, x->shape[1], rows, (const T *)dy->data, dy->stride[1], dy->stride[0], (const T *)x->data, x->stride[0],
     x->stride[1], (T *)dw->data, dw->stride[0], dw->stride[1], NULL, 0, 0, c->accumulate);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += (double)((const T *)dy->data)[r * dy->stride[0] + i * dy->stride[1]];
        ((T *)db->data)[i * db->stride[0]] = (T)sum;
    }
}

static void FN(linear_weight_grad_finite)(const lc_call *c)
{
    const lc_view *dw = &c->out[0];
    T zero = 0;
    FN(linear_weight_grad)(c);
    for (int64_t i = 0; i < dw->shape[0]; i++)
        for (int64_t k = 0; k < dw->shape[1]; k++)
            zero += 0 * ((const T *)dw->data)[i * dw->stride[0] + k * dw->stride[1]];
    *(T *)c->out[2].data = zero;
}
