/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: matmul with broadcast leading dimensions, linear, and what the planner makes of linear layers. */
#include "ops/elementwise_math.h"
#include "ops/nn_util.h"

double lc__activate(double v, int64_t activation)
{
    switch (activation) {
    case 1:
        return v > 0 ? v : v != v ? v : 0;
    case 2:
        return tanh(v);
    case 3:
        return 1 / (1 + exp(-v));
    default:
        return v;
    }
}

#define LC_TEMPLATE "ops/matmul.inl"
#include "ops/for_floats.h"

/* ---- matmul ---- */
static lc_status infer_product(lc_infer *call)
{
    LC_TRY(lc__check_float(call, 0, "x"));
    LC_TRY(lc__check_dtype_of(call, 1, "y", 0, "x"));
    const lc_type *x = call->in[0], *y = call->in[1];
    if (x->ndim < 2 || y->ndim < 2) return lc_fail(LC_ERR_SHAPE, "both operands need at least 2 dimensions");
    int64_t k = x->shape[x->ndim - 1], ky = y->shape[y->ndim - 2];
    if (k != ky) return lc_fail(LC_ERR_SHAPE, "x has %lld columns but y has %lld rows", (long long)k, (long long)ky);
    lc_type *z = &call->out[0];
    int n = x->ndim > y->ndim ? x->ndim : y->ndim;
    lc__set_type(z, x->dtype, n, x->ndim == n ? x->shape : y->shape);
    for (int d = 0; d < n - 2; d++) {
        int dx = d - n + x->ndim, dy = d - n + y->ndim;
        int64_t sx = dx < 0 ? 1 : x->shape[dx], sy = dy < 0 ? 1 : y->shape[dy];
        if (sx != sy && sx != 1 && sy != 1)
            return lc_fail(LC_ERR_SHAPE, "leading dimensions do not broadcast: %lld in x, %lld in y", (long long)sx,
                           (long long)sy);
        z->shape[d] = sx == 1 ? sy : sx;
    }
    z->shape[n - 2] = x->shape[x->ndim - 2];
    z->shape[n - 1] = y->shape[y->ndim - 1];
    return LC_OK;
}

static lc_status matmul_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 3, 0, 0));
    return infer_product(call);
}

static lc_status matmul_grad(lc_grad *g)
{
    lc_tensor *x = g->in[0], *y = g->in[1], *dz = g->dout[0];
    int nx = lc_tensor_ndim(x), ny = lc_tensor_ndim(y);
    if (g->need[0]) {
        lc_tensor *yt = lc__transpose_last(y, LC_HERE);
        g->din[0] = lc__sum_to(lc_op_call(&lc__op_matmul, LC_IN(dz, yt), LC_NONE, LC_NONE, LC_HERE), lc_tensor_type(x));
    }
    if (g->need[1]) {
        /* One matrix for a whole batch: the sum over the batch becomes part of the product. */
        if (ny == 2 && nx > 2) {
            x = lc__to_matrix(x, 1, LC_HERE);
            dz = lc__to_matrix(dz, 1, LC_HERE);
        }
        lc_tensor *xt = lc__transpose_last(x, LC_HERE);
        g->din[1] = lc__sum_to(lc_op_call(&lc__op_matmul, LC_IN(xt, dz), LC_NONE, LC_NONE, LC_HERE), lc_tensor_type(y));
    }
    return LC_OK;
}

LC_NN_KERNEL_ADDING(matmul)
const lc_op lc__op_matmul = {
    .name = "matmul", .n_out = 1, .infer = matmul_infer, .grad = matmul_grad, .kernel = &matmul_kernel};

lc_tensor *lc_matmul_at(lc_tensor *x, lc_tensor *y, lc_site site)
{
    if (lc__unusable(x) || lc__unusable(y)) return lc_op_call(&lc__op_matmul, LC_IN(x, y), LC_NONE, LC_NONE, site);
    int nx = lc_tensor_ndim(x), ny = lc_tensor_ndim(y);
    int64_t sx = nx ? lc_tensor_dim(x, 0) : 0, sy = ny ? lc_tensor_dim(y, 0) : 0;
    lc_tensor *mx = nx == 1 ? lc__reshape(x, 2, (int64_t[]){1, sx}, site) : x;
    lc_tensor *my = ny == 1 ? lc__reshape(y, 2, (int64_t[]){sy, 1}, site) : y;
    lc_tensor *z = lc_op_call(&lc__op_matmul, LC_IN(mx, my), LC_NONE, LC_NONE, site);
    if (lc__unusable(z) || (nx > 1 && ny > 1)) return z;
    /* Drop the dimension that was added to a vector. */
    const lc_type *t = lc_tensor_type(z);
    int64_t shape[LC_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->ndim; d++)
        if (!(d == t->ndim - 2 && nx == 1) && !(d == t->ndim - 1 && ny == 1)) shape[n++] = t->shape[d];
    return lc__reshape(z, n, shape, site);
}

/* ---- linear ---- */
static lc_status linear_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 3, 1, 0));
    LC_TRY(lc__check_float(call, 0, "x"));
    LC_TRY(lc__check_dtype_of(call, 1, "weight", 0, "x"));
    LC_TRY(lc__check_dtype_of(call, 2, "bias", 0, "x"));
    const lc_type *x = call->in[0], *w = call->in[1];
    if (x->ndim < 1) return lc_fail(LC_ERR_SHAPE, "x must have at least 1 dimension");
    if (w->ndim != 2) return lc_fail(LC_ERR_SHAPE, "weight must have 2 dimensions [out,in], has %d", w->ndim);
    if (w->shape[1] != x->shape[x->ndim - 1])
        return lc_fail(LC_ERR_SHAPE, "weight expects %lld input features, but x has %lld", (long long)w->shape[1],
                       (long long)x->shape[x->ndim - 1]);
    LC_TRY(lc__check_vector(call, 2, "bias", w->shape[0], "output features"));
    call->out[0] = *x;
    call->out[0].shape[x->ndim - 1] = w->shape[0];
    return LC_OK;
}

static lc_status linear_grad(lc_grad *g)
{
    lc_tensor *x = g->in[0], *w = g->in[1], *dy = g->dout[0];
    if (g->ints[0]) return lc_fail(LC_ERR_INTERNAL, "linear with a fused activation has no gradient rule");
    if (g->need[0]) {
        lc_tensor *rows =
            lc_tensor_ndim(dy) == 1 ? lc__reshape(dy, 2, (int64_t[]){1, lc_tensor_dim(dy, 0)}, LC_HERE) : dy;
        lc_tensor *dx = lc_op_call(&lc__op_matmul, LC_IN(rows, w), LC_NONE, LC_NONE, LC_HERE);
        g->din[0] = rows == dy ? dx : lc__reshape(dx, 1, lc_tensor_shape(x), LC_HERE);
    }
    if (g->need[1]) {
        lc_tensor *dyt = lc__transpose_last(lc__to_matrix(dy, 1, LC_HERE), LC_HERE);
        g->din[1] = lc_op_call(&lc__op_matmul, LC_IN(dyt, lc__to_matrix(x, 1, LC_HERE)), LC_NONE, LC_NONE, LC_HERE);
    }
    if (g->n_in > 2 && g->need[2]) g->din[2] = lc__sum_but(dy, lc_tensor_ndim(dy) - 1, LC_HERE);
    return LC_OK;
}

LC_NN_KERNEL(linear)
const lc_op lc__op_linear = {.name = "linear",
                             .inputs = "x weight bias",
                             .n_out = 1,
                             .infer = linear_infer,
                             .grad = linear_grad,
                             .kernel = &linear_kernel};

lc_tensor *lc_linear_at(lc_tensor *x, lc_tensor *w, lc_tensor *b, lc_site site)
{
    return lc_op_call(&lc__op_linear, LC_IN(x, w, b), LC_ATTRS(0), LC_NONE, site);
}

/* ---- made by the planner after gradients have been recorded ---- */
static lc_status linear_gelu_infer(lc_infer *call)
{
    LC_TRY(linear_infer(call));
    if (call->n_out > 1) call->out[1] = call->out[0];
    return LC_OK;
}

static lc_status matmul_gelu_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 7, 1, 0));
    LC_TRY(infer_product(call));
    LC_TRY(lc__check_dtype_of(call, 2, "z", 0, "x"));
    if (call->n_out > 1) call->out[1] = call->out[0];
    return lc__check_shape(call, 2, "z", call->out[0].ndim, call->out[0].shape);
}

static lc_status gelu_backward_gelu_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 3, 1, 0));
    LC_TRY(lc__check_float(call, 1, "x"));
    LC_TRY(lc__check_dtype_of(call, 0, "dy", 1, "x"));
    call->out[0] = call->out[1] = *call->in[1];
    return lc__check_shape(call, 0, "dy", call->in[1]->ndim, call->in[1]->shape);
}

static lc_status linear_weight_grad_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 3, 0, 0));
    LC_TRY(lc__check_float(call, 0, "dy"));
    LC_TRY(lc__check_dtype_of(call, 1, "x", 0, "dy"));
    const lc_type *dy = call->in[0], *x = call->in[1];
    if (dy->ndim != 2 || x->ndim != 2 || dy->shape[0] != x->shape[0])
        return lc_fail(LC_ERR_SHAPE, "dy and x must be matrices with the same number of rows");
    lc__set_type(&call->out[0], dy->dtype, 2, (int64_t[]){dy->shape[1], x->shape[1]});
    lc__set_type(&call->out[1], dy->dtype, 1, &dy->shape[1]);
    if (call->n_out > 2) lc__set_type(&call->out[2], dy->dtype, 0, NULL);
    return LC_OK;
}

LC_NN_KERNEL(linear_gelu)
LC_NN_KERNEL(matmul_gelu_backward)
LC_NN_KERNEL(gelu_backward_gelu)
LC_NN_KERNEL_ADDING(linear_weight_grad)
LC_NN_KERNEL(linear_weight_grad_finite)
const lc_op lc__op_linear_gelu = {.name = "linear_gelu",
                                  .flags = LC_OP_NO_GRAD,
                                  .inputs = "x weight bias",
                                  .n_out = 2,
                                  .infer = linear_gelu_infer,
                                  .kernel = &linear_gelu_kernel};
const lc_op lc__op_matmul_gelu_backward = {.name = "matmul_gelu_backward",
                                           .flags = LC_OP_NO_GRAD,
                                           .n_out = 2,
                                           .infer = matmul_gelu_backward_infer,
                                           .kernel = &matmul_gelu_backward_kernel};
const lc_op lc__op_gelu_backward_gelu = {.name = "gelu_backward_gelu",
                                         .flags = LC_OP_NO_GRAD,
                                         .n_out = 2,
                                         .infer = gelu_backward_gelu_infer,
                                         .kernel = &gelu_backward_gelu_kernel};
const lc_op lc__op_linear_weight_grad = {.name = "linear_weight_grad",
                                         .flags = LC_OP_NO_GRAD,
                                         .n_out = 2,
                                         .infer = linear_weight_grad_infer,
                                         .kernel = &linear_weight_grad_kernel};
const lc_op lc__op_linear_weight_grad_finite = {.name = "linear_weight_grad_finite",
                                                .flags = LC_OP_NO_GRAD,
                                                .n_out = 3,
                                                .infer = linear_weight_grad_infer,
                                                .kernel = &linear_weight_grad_finite_kernel};
