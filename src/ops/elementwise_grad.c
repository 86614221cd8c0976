/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of elementwise operators that are more than NAME_backward(dy, x).
 *
 * Rules pass floats on by pointer, never by value (lightc/op.h). */
#include "ops/elementwise.h"

#include "ops/infer.h"
#include "ops/ops.h"
#include "tensor/tensor_impl.h"

lc_tensor *lc__op1(const lc_op *op, lc_tensor *x, lc_site site)
{
    lc_tensor *in[] = {x};
    return lc_op_call(op, 1, in, 0, NULL, 0, NULL, site);
}

lc_tensor *lc__op2(const lc_op *op, lc_tensor *x, lc_tensor *y, lc_site site)
{
    lc_tensor *in[] = {x, y};
    return lc_op_call(op, 2, in, 0, NULL, 0, NULL, site);
}

lc_tensor *lc__op3(const lc_op *op, lc_tensor *x, lc_tensor *y, lc_tensor *z, lc_site site)
{
    lc_tensor *in[] = {x, y, z};
    return lc_op_call(op, 3, in, 0, NULL, 0, NULL, site);
}

lc_tensor *lc__sum_to(lc_tensor *dy, const lc_type *like)
{
    if (lc__is_bad(dy)) return dy;
    const lc_type *t = lc_tensor_type(dy);
    int lead = t->ndim - like->ndim, n = 0;
    bool inner = false;
    lc_reduce_args a = lc_reduce_defaults();
    a.x = dy;
    for (int d = 0; d < t->ndim; d++) {
        if (d >= lead && (like->shape[d - lead] == t->shape[d])) continue;
        inner = inner || d >= lead;
        a.dims.dim[n++] = d;
    }
    if (n == 0) return dy;
    a.dims.n = n;
    a.keepdim = inner;
    lc_tensor *sum = lc_sum_at(&a, LC_HERE);
    return inner && lead ? lc_reshape_at(sum, like->ndim, like->shape, LC_HERE) : sum;
}

lc_tensor *lc__zeros_of(const lc_tensor *x)
{
    const lc_type *t = lc_tensor_type(x);
    return lc_full_at(0, t->dtype, t->ndim, t->shape, LC_HERE);
}

lc_status lc__grad_by(lc_grad *g, const lc_op *op, lc_tensor *by)
{
    lc_tensor *in[] = {g->dout[0], by};
    g->din[0] = lc_op_call(op, 2, in, g->n_int, g->ints, g->n_float, g->floats, LC_HERE);
    return LC_OK;
}

/* Zeros, not NULL, which would mean that the result does not depend on the input: PyTorch's optimizers see zeros here,
 * too. */
lc_status lc__grad_zero(lc_grad *g)
{
    g->din[0] = lc__zeros_of(g->in[0]);
    return LC_OK;
}

/* Sets the gradient of input i to d, summed over the dimensions that were broadcast. */
static void set_gradient(lc_grad *g, int i, lc_tensor *d)
{
    g->din[i] = lc__sum_to(d, lc_tensor_type(g->in[i]));
}

lc_status lc__grad_add(lc_grad *g)
{
    for (int i = 0; i < 2; i++)
        if (g->need[i]) set_gradient(g, i, g->dout[0]);
    return LC_OK;
}

lc_status lc__grad_sub(lc_grad *g)
{
    if (g->need[0]) set_gradient(g, 0, g->dout[0]);
    if (g->need[1]) g->din[1] = lc_neg(lc__sum_to(g->dout[0], lc_tensor_type(g->in[1])));
    return LC_OK;
}

lc_status lc__grad_mul(lc_grad *g)
{
    for (int i = 0; i < 2; i++)
        if (g->need[i]) set_gradient(g, i, lc_mul(g->dout[0], g->in[1 - i]));
    return LC_OK;
}

lc_status lc__grad_div(lc_grad *g)
{
    if (g->need[0]) set_gradient(g, 0, lc_div(g->dout[0], g->in[1]));
    if (g->need[1]) set_gradient(g, 1, lc__op3(&lc__op_div_backward_other, g->dout[0], g->in[0], g->in[1], LC_HERE));
    return LC_OK;
}

lc_status lc__grad_neg(lc_grad *g)
{
    g->din[0] = lc_neg(g->dout[0]);
    return LC_OK;
}

lc_status lc__grad_add_scalar(lc_grad *g)
{
    g->din[0] = g->dout[0];
    return LC_OK;
}

lc_status lc__grad_mul_scalar(lc_grad *g)
{
    g->din[0] = lc_op_call(&lc__op_mul_scalar, 1, g->dout, 0, NULL, 1, g->floats, LC_HERE);
    return LC_OK;
}

lc_status lc__grad_exp(lc_grad *g)
{
    g->din[0] = lc_mul(g->dout[0], g->out[0]);
    return LC_OK;
}

lc_status lc__grad_log(lc_grad *g)
{
    g->din[0] = lc_div(g->dout[0], g->in[0]);
    return LC_OK;
}

/* Symmetric operators of two operands: op(dy, own, other) for either. */
static lc_status grad_symmetric(lc_grad *g, const lc_op *op)
{
    for (int i = 0; i < 2; i++) {
        if (!g->need[i]) continue;
        lc_tensor *in[] = {g->dout[0], g->in[i], g->in[1 - i]};
        set_gradient(g, i, lc_op_call(op, 3, in, 0, NULL, g->n_float, g->floats, LC_HERE));
    }
    return LC_OK;
}

lc_status lc__grad_maximum(lc_grad *g)
{
    return grad_symmetric(g, &lc__op_maximum_backward);
}

lc_status lc__grad_minimum(lc_grad *g)
{
    return grad_symmetric(g, &lc__op_minimum_backward);
}

lc_status lc__grad_mse(lc_grad *g)
{
    return grad_symmetric(g, &lc__op_mse_backward);
}

lc_status lc__grad_l1(lc_grad *g)
{
    return grad_symmetric(g, &lc__op_l1_backward);
}

lc_status lc__grad_smooth_l1(lc_grad *g)
{
    return grad_symmetric(g, &lc__op_smooth_l1_backward);
}

lc_status lc__grad_huber(lc_grad *g)
{
    return grad_symmetric(g, &lc__op_huber_backward);
}

lc_status lc__grad_where(lc_grad *g)
{
    if (g->need[1]) set_gradient(g, 1, lc_masked_fill(g->dout[0], lc_logical_not(g->in[0]), 0));
    if (g->need[2]) set_gradient(g, 2, lc_masked_fill(g->dout[0], g->in[0], 0));
    return LC_OK;
}

lc_status lc__grad_masked_fill(lc_grad *g)
{
    if (g->need[0]) set_gradient(g, 0, lc_masked_fill(g->dout[0], g->in[1], 0));
    return LC_OK;
}

lc_status lc__grad_cast(lc_grad *g)
{
    lc_dtype from = lc__gradient_type(g->in[0]).dtype;
    if (lc_dtype_is_float(from) && lc_dtype_is_float(lc_tensor_dtype(g->out[0]))) g->din[0] = lc_cast(g->dout[0], from);
    return LC_OK;
}

lc_status lc__grad_prelu(lc_grad *g)
{
    if (g->need[0]) set_gradient(g, 0, lc__op3(&lc__op_prelu_backward, g->dout[0], g->in[0], g->in[1], LC_HERE));
    if (g->need[1]) set_gradient(g, 1, lc__op2(&lc__op_prelu_backward_weight, g->dout[0], g->in[0], LC_HERE));
    return LC_OK;
}

lc_status lc__grad_pow(lc_grad *g)
{
    if (g->need[0]) set_gradient(g, 0, lc__op3(&lc__op_pow_backward, g->dout[0], g->in[0], g->in[1], LC_HERE));
    if (g->need[1]) set_gradient(g, 1, lc__op3(&lc__op_pow_backward_exponent, g->dout[0], g->in[0], g->in[1], LC_HERE));
    return LC_OK;
}

lc_status lc__grad_xlogy(lc_grad *g)
{
    if (g->need[0]) set_gradient(g, 0, lc__op3(&lc__op_xlogy_backward, g->dout[0], g->in[0], g->in[1], LC_HERE));
    if (g->need[1]) set_gradient(g, 1, lc__op3(&lc__op_xlogy_backward_other, g->dout[0], g->in[0], g->in[1], LC_HERE));
    return LC_OK;
}

lc_status lc__grad_bce_with_logits(lc_grad *g)
{
    if (g->need[0])
        set_gradient(g, 0, lc__op3(&lc__op_bce_with_logits_backward, g->dout[0], g->in[0], g->in[1], LC_HERE));
    if (g->need[1]) set_gradient(g, 1, lc_neg(lc_mul(g->dout[0], g->in[0])));
    return LC_OK;
}

/* t log t - t x */
lc_status lc__grad_kl_div(lc_grad *g)
{
    lc_tensor *dy = g->dout[0], *x = g->in[0], *t = g->in[1];
    if (g->need[0]) set_gradient(g, 0, lc_neg(lc_mul(dy, t)));
    if (g->need[1]) {
        lc_tensor *d = lc_add(lc__op3(&lc__op_xlogy_backward, dy, t, t, LC_HERE),
                              lc__op3(&lc__op_xlogy_backward_other, dy, t, t, LC_HERE));
        set_gradient(g, 1, lc_sub(d, lc_mul(dy, x)));
    }
    return LC_OK;
}

/* exp(t) (t - x) */
lc_status lc__grad_kl_div_log(lc_grad *g)
{
    lc_tensor *dy = g->dout[0], *probability = lc_exp(g->in[1]);
    if (g->need[0]) set_gradient(g, 0, lc_neg(lc_mul(dy, probability)));
    if (g->need[1]) set_gradient(g, 1, lc_mul(dy, lc_add(g->out[0], probability)));
    return LC_OK;
}
