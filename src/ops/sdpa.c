/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention. */
#include "ops/nn_util.h"
#include "ops/take.h"

/* Sizes, and strides of the last two dimensions. */
typedef struct attention {
    const lc_view *q;
    int64_t B, S, Sk, D, Dv;
    int64_t qd, ks, kd, vs, vd;
    double scale;
} attention;

/* ints: causal has_scale; floats: scale. */
static attention attention_of(const lc_call *c, const lc_view *q, const lc_view *k, const lc_view *v)
{
    int n = q->ndim;
    attention a = {.q = q,
                   .B = lc__view_extent(q, 0, n - 2),
                   .S = q->shape[n - 2],
                   .Sk = k->shape[n - 2],
                   .D = q->shape[n - 1],
                   .Dv = v->shape[n - 1],
                   .qd = q->stride[n - 1],
                   .ks = k->stride[n - 2],
                   .kd = k->stride[n - 1],
                   .vs = v->stride[n - 2],
                   .vd = v->stride[n - 1]};
    a.scale = c->ints[1] ? c->floats[0] : 1 / sqrt((double)a.D);
    return a;
}

#define LC_TEMPLATE "ops/sdpa.inl"
#include "ops/for_floats.h"

/* Checks q, k, v, mask from input `q` on. */
static lc_status check_attention(const lc_infer *call, int q, int mask)
{
    LC_TRY(lc__check_float(call, q, "query"));
    LC_TRY(lc__check_dtype_of(call, q + 1, "key", q, "query"));
    LC_TRY(lc__check_dtype_of(call, q + 2, "value", q, "query"));
    const lc_type *Q = call->in[q], *K = call->in[q + 1], *V = call->in[q + 2], *M = call->in[mask];
    int n = Q->ndim;
    if (n < 2) return lc_fail(LC_ERR_SHAPE, "query must have at least 2 dimensions [..,S,D], has %d", n);
    if (K->ndim != n || V->ndim != n)
        return lc_fail(LC_ERR_SHAPE, "query, key and value must have the same number of dimensions (%d, %d, %d)", n,
                       K->ndim, V->ndim);
    for (int d = 0; d < n - 2; d++)
        if (K->shape[d] != Q->shape[d] || V->shape[d] != Q->shape[d])
            return lc_fail(LC_ERR_SHAPE,
                           "leading dimension %d differs: %lld in query, %lld in key, %lld in value; "
                           "expand them",
                           d, (long long)Q->shape[d], (long long)K->shape[d], (long long)V->shape[d]);
    if (K->shape[n - 1] != Q->shape[n - 1])
        return lc_fail(LC_ERR_SHAPE, "query has %lld features but key has %lld", (long long)Q->shape[n - 1],
                       (long long)K->shape[n - 1]);
    if (V->shape[n - 2] != K->shape[n - 2])
        return lc_fail(LC_ERR_SHAPE, "there are %lld keys but %lld values", (long long)K->shape[n - 2],
                       (long long)V->shape[n - 2]);
    if (Q->shape[n - 1] < 1) return lc_fail(LC_ERR_SHAPE, "query has no features");
    if (!M) return LC_OK;
    if (M->dtype != Q->dtype && M->dtype != LC_BOOL)
        return lc_fail(LC_ERR_DTYPE, "mask must be bool or %s, is %s", lc_dtype_name(Q->dtype),
                       lc_dtype_name(M->dtype));
    if (M->ndim < 2 || M->ndim > n)
        return lc_fail(LC_ERR_SHAPE, "mask must have 2 to %d dimensions, has %d", n, M->ndim);
    for (int d = 0; d < M->ndim; d++) {
        int to = n - M->ndim + d;
        int64_t want = to == n - 1 ? K->shape[n - 2] : Q->shape[to];
        if (M->shape[d] != 1 && M->shape[d] != want)
            return lc_fail(LC_ERR_SHAPE, "mask has size %lld in dimension %d, but the scores have %lld",
                           (long long)M->shape[d], d, (long long)want);
    }
    return LC_OK;
}

static lc_status sdpa_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 4, 7, 2, 1));
    LC_TRY(check_attention(call, 0, 3));
    const lc_type *q = call->in[0], *v = call->in[2];
    call->out[0] = *q;
    call->out[0].shape[q->ndim - 1] = v->shape[q->ndim - 1];
    lc__set_type(&call->out[1], q->dtype, q->ndim - 1, q->shape);
    return LC_OK;
}

static lc_status sdpa_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 7, 1 | 2 | 4 | 8 | 32 | 64, 2, 1));
    LC_TRY(check_attention(call, 1, 4));
    LC_TRY(lc__check_dtype_of(call, 0, "dy", 1, "query"));
    LC_TRY(lc__check_dtype_of(call, 5, "y", 1, "query"));
    LC_TRY(lc__check_dtype_of(call, 6, "lse", 1, "query"));
    lc_type y = *call->in[1];
    y.shape[y.ndim - 1] = call->in[3]->shape[y.ndim - 1];
    LC_TRY(lc__check_shape(call, 0, "dy", y.ndim, y.shape));
    LC_TRY(lc__check_shape(call, 5, "y", y.ndim, y.shape));
    for (int i = 0; i < 3; i++) call->out[i] = *call->in[1 + i];
    return LC_OK;
}

static lc_status prepare_scores(lc_call *c)
{
    c->scratch_bytes = (size_t)c->in[1].shape[c->in[1].ndim - 2] * sizeof(double);
    return LC_OK;
}

static lc_status prepare_backward(lc_call *c)
{
    int n = c->in[1].ndim;
    int64_t Sk = c->in[2].shape[n - 2], D = c->in[2].shape[n - 1], Dv = c->in[3].shape[n - 1];
    c->scratch_bytes = (size_t)(Sk * (1 + D + Dv)) * sizeof(double);
    return LC_OK;
}

/* The gradient of a mask that is added to the scores is that of the scores. Made of operators, with matrices of all
 * scores: a learned bias is rare, and is small in models that need the fast kernel. */
static lc_tensor *mask_gradient(const lc_grad *g)
{
    lc_tensor *q = g->in[0], *k = g->in[1], *v = g->in[2], *mask = g->in[3], *lse = g->out[1];
    const lc_type *t = lc_tensor_type(q);
    int n = t->ndim;
    int64_t S = t->shape[n - 2], Sk = lc_tensor_dim(k, n - 2), last = n - 1;
    double own = 1 / sqrt((double)t->shape[n - 1]);
    const double *scale = g->ints[1] ? g->floats : &own;
    lc_tensor *scores = lc_matmul(q, lc_transpose(k, -1, -2));
    scores = lc_add(lc_op_call(&lc__op_mul_scalar, LC_IN(scores), LC_NONE, 1, scale, LC_HERE), mask);
    if (g->ints[0]) {
        lc_tensor *seen = lc_op_call(&lc__op_tril, LC_IN(lc_full(1, LC_F32, S, Sk)), LC_ATTRS(0), LC_NONE, LC_HERE);
        scores = lc_masked_fill(scores, lc_eq(seen, lc_scalar(0, LC_F32)), -INFINITY);
    }
    /* A query that sees nothing has weights of 0. */
    lc_tensor *blind = lc_unsqueeze(lc_eq(lse, lc_scalar(-INFINITY, t->dtype)), -1);
    lc_tensor *p = lc_op_call(&lc__op_softmax, LC_IN(lc_masked_fill(scores, blind, 0)), 1, &last, LC_NONE, LC_HERE);
    p = lc_masked_fill(p, blind, 0);
    lc_tensor *dp = lc_matmul(g->dout[0], lc_transpose(v, -1, -2));
    lc_tensor *ds = lc_op_call(&lc__op_softmax_backward, LC_IN(dp, p), 1, &last, LC_NONE, LC_HERE);
    return lc__sum_to(ds, lc_tensor_type(mask));
}

static lc_status sdpa_grad(lc_grad *g)
{
    if (g->dout[1]) return lc_fail(LC_ERR_UNSUPPORTED, "gradients flow only through the result of sdpa");
    if (g->need[3]) g->din[3] = mask_gradient(g);
    if (!g->need[0] && !g->need[1] && !g->need[2]) return LC_OK;
    lc_tensor *out[3];
    lc_op_call_n(&lc__op_sdpa_backward, LC_IN(g->dout[0], g->in[0], g->in[1], g->in[2], g->in[3], g->out[0], g->out[1]),
                 g->n_int, g->ints, g->n_float, g->floats, out, LC_HERE);
    for (int i = 0; i < 3; i++)
        if (g->need[i]) g->din[i] = out[i];
    return LC_OK;
}

LC_NN_KERNEL_PREPARED(sdpa, prepare_scores)
LC_NN_KERNEL_PREPARED(sdpa_backward, prepare_backward)
const lc_op lc__op_sdpa = {
    .name = "sdpa", .inputs = "q k v mask", .n_out = 2, .infer = sdpa_infer, .grad = sdpa_grad, .kernel = &sdpa_kernel};
const lc_op lc__op_sdpa_backward = {.name = "sdpa_backward",
                                    .flags = LC_OP_NO_GRAD,
                                    .n_out = 3,
                                    .infer = sdpa_backward_infer,
                                    .kernel = &sdpa_backward_kernel};

lc_tensor *lc_sdpa_at(lc_tensor *q, lc_tensor *k, const lc_sdpa_args *given, lc_site site)
{
    LC__TAKE_OP(args, "sdpa", lc_sdpa, given, site);
    lc_tensor *out[2];
    lc_op_call_n(&lc__op_sdpa, LC_IN(q, k, args.value, args.mask), LC_ATTRS(args.causal, !isnan(args.scale)),
                 LC_FLOATS(isnan(args.scale) ? 0 : args.scale), out, site);
    return out[0];
}
