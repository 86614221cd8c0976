/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point operations of a kernel call, from its shapes: multiplications and additions of products (matrices,
 * convolutions, attention, recurrent layers), by the usual convention. Memory-bound operators count 0. */
#include "engine/plan/plan.h"
#include "ops/ops.h"

/* Each output is a sum over the weights of its channel. */
static double convolution(const lc_view *weight, const lc_view *output)
{
    return 2 * lc__view_numel(output) * lc__view_numel(weight) / (double)(weight->shape[0] > 0 ? weight->shape[0] : 1);
}

/* q [..,T,D], k [..,S,D]: a product is T x S x D. */
static double attention(const lc_view *q, const lc_view *k)
{
    return 2 * lc__view_numel(q) * (double)k->shape[k->ndim - 2];
}

/* The state of every step and sample [T,B,..] times the recurrent matrix. */
static double recurrent(const lc_view *sequence, const lc_view *weight)
{
    return 2 * (double)sequence->shape[0] * (double)sequence->shape[1] * lc__view_numel(weight);
}

double lc__call_flop(const lc_call *c)
{
    const lc_op *op = c->op;
    if (op == &lc__op_linear || op == &lc__op_linear_gelu)
        return 2 * lc__view_numel(&c->in[0]) * (double)c->in[1].shape[0];
    if (op == &lc__op_linear_weight_grad || op == &lc__op_linear_weight_grad_finite)
        return 2 * lc__view_numel(&c->in[0]) * (double)c->in[1].shape[1];
    if (op == &lc__op_matmul || op == &lc__op_matmul_gelu_backward)
        return 2 * lc__view_numel(&c->out[0]) * (double)c->in[0].shape[c->in[0].ndim - 1];
    if (op == &lc__op_conv) return convolution(&c->in[1], &c->out[0]);
    if (op == &lc__op_conv_input_grad) return convolution(&c->in[1], &c->in[0]);
    if (op == &lc__op_conv_weight_grad) return convolution(&c->out[0], &c->in[0]);
    if (op == &lc__op_sdpa) return 2 * attention(&c->in[0], &c->in[1]);
    if (op == &lc__op_sdpa_backward) return 5 * attention(&c->in[1], &c->in[2]);
    if (op == &lc__op_lstm || op == &lc__op_gru) return recurrent(&c->in[0], &c->in[1]);
    if (op == &lc__op_lstm_backward) return recurrent(&c->in[0], &c->in[3]);
    if (op == &lc__op_gru_backward) return recurrent(&c->in[0], &c->in[2]);
    return 0;
}
