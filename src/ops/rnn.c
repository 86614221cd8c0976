/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU, one layer in one direction. Layers and directions are stacked by lightc/nn.h. */
#include "ops/nn_util.h"
#include "ops/take.h"

#define LC_TEMPLATE "ops/rnn.inl"
#include "ops/for_floats.h"

/* ---- inference ---- */
/* gx[B,T,n*H] w_hh[n*H,H] b_hh?[n*H], and `states` initial states [B,H]. Fills sizes[] = B, T, H. */
static lc_status check_rnn(const lc_infer *call, int n, int states, int64_t *sizes)
{
    static const char *const names[] = {"gates of x", "w_hh", "b_hh", "h0", "c0"};
    LC_TRY(lc__check_float(call, 0, names[0]));
    for (int i = 1; i < 3 + states; i++) LC_TRY(lc__check_dtype_of(call, i, names[i], 0, "x"));
    const lc_type *gx = call->in[0], *w = call->in[1];
    if (gx->ndim != 3) return lc_fail(LC_ERR_SHAPE, "x must have 3 dimensions [B,T,I], has %d", gx->ndim);
    if (w->ndim != 2 || w->shape[0] != n * w->shape[1] || w->shape[1] < 1)
        return lc_fail(LC_ERR_SHAPE, "w_hh must be [%d*H,H]", n);
    if (gx->shape[2] != w->shape[0])
        return lc_fail(LC_ERR_SHAPE, "w_ih has %lld rows but w_hh has %lld", (long long)gx->shape[2],
                       (long long)w->shape[0]);
    if (gx->shape[1] < 1) return lc_fail(LC_ERR_SHAPE, "the sequence is empty");
    LC_TRY(lc__check_vector(call, 2, names[2], w->shape[0], "gates"));
    sizes[0] = gx->shape[0];
    sizes[1] = gx->shape[1];
    sizes[2] = w->shape[1];
    for (int i = 3; i < 3 + states; i++) LC_TRY(lc__check_shape(call, i, names[i], 2, (int64_t[]){sizes[0], sizes[2]}));
    return LC_OK;
}

static void set_sequence(lc_infer *call, int out, lc_dtype dtype, const int64_t *sizes, int64_t factor)
{
    lc__set_type(&call->out[out], dtype, 3, (int64_t[]){sizes[0], sizes[1], factor * sizes[2]});
}

static void set_state(lc_infer *call, int out, lc_dtype dtype, const int64_t *sizes)
{
    lc__set_type(&call->out[out], dtype, 2, (int64_t[]){sizes[0], sizes[2]});
}

static lc_status lstm_infer(lc_infer *call)
{
    int64_t sizes[3];
    LC_TRY(lc__check_call(call, 5, 3, 0, 0));
    LC_TRY(check_rnn(call, 4, 2, sizes));
    lc_dtype dtype = call->in[0]->dtype;
    set_sequence(call, 0, dtype, sizes, 1);
    set_state(call, 1, dtype, sizes);
    set_state(call, 2, dtype, sizes);
    set_sequence(call, 3, dtype, sizes, 4);
    set_sequence(call, 4, dtype, sizes, 1);
    return LC_OK;
}

static lc_status gru_infer(lc_infer *call)
{
    int64_t sizes[3];
    LC_TRY(lc__check_call(call, 4, 3, 0, 0));
    LC_TRY(check_rnn(call, 3, 1, sizes));
    lc_dtype dtype = call->in[0]->dtype;
    set_sequence(call, 0, dtype, sizes, 1);
    set_state(call, 1, dtype, sizes);
    set_sequence(call, 2, dtype, sizes, 4);
    return LC_OK;
}

/* Sizes are y's; gradients and states must match. */
static lc_status check_backward(const lc_infer *call, int y, int w, int gates, int n, int states, int first_state,
                                int64_t *sizes)
{
    LC_TRY(lc__check_float(call, y, "y"));
    const lc_type *t = call->in[y];
    if (t->ndim != 3) return lc_fail(LC_ERR_SHAPE, "y must have 3 dimensions [B,T,H], has %d", t->ndim);
    for (int i = 0; i < call->n_in; i++) LC_TRY(lc__check_dtype_of(call, i, "an operand", y, "y"));
    memcpy(sizes, t->shape, 3 * sizeof *sizes);
    LC_TRY(lc__check_shape(call, 0, "dy", 3, sizes));
    for (int i = 1; i < 1 + states; i++)
        LC_TRY(lc__check_shape(call, i, "a state's gradient", 2, (int64_t[]){sizes[0], sizes[2]}));
    for (int i = first_state; i < first_state + states; i++)
        LC_TRY(lc__check_shape(call, i, "a state", 2, (int64_t[]){sizes[0], sizes[2]}));
    LC_TRY(lc__check_shape(call, gates, "gates", 3, (int64_t[]){sizes[0], sizes[1], 4 * sizes[2]}));
    return lc__check_shape(call, w, "w_hh", 2, (int64_t[]){n * sizes[2], sizes[2]});
}

static lc_status lstm_backward_infer(lc_infer *call)
{
    int64_t sizes[3];
    LC_TRY(lc__check_call(call, 9, 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8, 0, 0));
    LC_TRY(check_backward(call, 6, 3, 7, 4, 2, 4, sizes));
    LC_TRY(lc__check_shape(call, 8, "cells", 3, sizes));
    lc_dtype dtype = call->in[6]->dtype;
    set_sequence(call, 0, dtype, sizes, 4);
    set_sequence(call, 1, dtype, sizes, 1);
    set_state(call, 2, dtype, sizes);
    set_state(call, 3, dtype, sizes);
    return LC_OK;
}

static lc_status gru_backward_infer(lc_infer *call)
{
    int64_t sizes[3];
    LC_TRY(lc__check_call(call, 6, 1 << 2 | 1 << 4 | 1 << 5, 0, 0));
    LC_TRY(check_backward(call, 4, 2, 5, 3, 1, 3, sizes));
    lc_dtype dtype = call->in[4]->dtype;
    set_sequence(call, 0, dtype, sizes, 3);
    set_sequence(call, 1, dtype, sizes, 3);
    set_sequence(call, 2, dtype, sizes, 1);
    set_state(call, 3, dtype, sizes);
    return LC_OK;
}

/* ---- scratch ---- */
/* h_prev w_hh^T of one step. */
static lc_status prepare_forward(lc_call *c)
{
    c->scratch_bytes = (size_t)(c->out[0].shape[0] * c->in[1].shape[0]) * lc_dtype_size(c->out[0].dtype);
    return LC_OK;
}

/* Gradients of the states: dc in double, dh. */
static lc_status prepare_backward(lc_call *c)
{
    const lc_view *dgx = &c->out[0], *w = c->n_in == 9 ? &c->in[3] : &c->in[2];
    c->scratch_bytes = (size_t)(dgx->shape[0] * w->shape[1]) * (sizeof(double) + lc_dtype_size(dgx->dtype));
    return LC_OK;
}

/* ---- gradients ---- */
/* dw_hh and db_hh from the gradient of the hidden part of the gates. */
static void weight_grads(lc_grad *g, lc_tensor *dgates, lc_tensor *h_prev)
{
    if (g->need[1]) {
        lc_tensor *rows = lc__transpose_last(lc__to_matrix(dgates, 1, LC_HERE), LC_HERE);
        g->din[1] =
            lc_op_call(&lc__op_matmul, LC_IN(rows, lc__to_matrix(h_prev, 1, LC_HERE)), LC_NONE, LC_NONE, LC_HERE);
    }
    if (g->need[2]) g->din[2] = lc__sum_but(dgates, 2, LC_HERE);
}

static lc_status lstm_grad(lc_grad *g)
{
    lc_tensor *out[4];
    if (g->dout[3] || g->dout[4]) return lc_fail(LC_ERR_UNSUPPORTED, "no gradient flows through the gates of lstm");
    lc_op_call_n(
        &lc__op_lstm_backward,
        LC_IN(g->dout[0], g->dout[1], g->dout[2], g->in[1], g->in[3], g->in[4], g->out[0], g->out[3], g->out[4]),
        LC_NONE, LC_NONE, out, LC_HERE);
    if (g->need[0]) g->din[0] = out[0];
    if (g->need[3]) g->din[3] = out[2];
    if (g->need[4]) g->din[4] = out[3];
    weight_grads(g, out[0], out[1]);
    return LC_OK;
}

static lc_status gru_grad(lc_grad *g)
{
    lc_tensor *out[4];
    if (g->dout[2]) return lc_fail(LC_ERR_UNSUPPORTED, "no gradient flows through the gates of gru");
    lc_op_call_n(&lc__op_gru_backward, LC_IN(g->dout[0], g->dout[1], g->in[1], g->in[3], g->out[0], g->out[2]), LC_NONE,
                 LC_NONE, out, LC_HERE);
    if (g->need[0]) g->din[0] = out[0];
    if (g->need[3]) g->din[3] = out[3];
    weight_grads(g, out[1], out[2]);
    return LC_OK;
}

LC_NN_KERNEL_PREPARED(lstm, prepare_forward)
LC_NN_KERNEL_PREPARED(lstm_backward, prepare_backward)
LC_NN_KERNEL_PREPARED(gru, prepare_forward)
LC_NN_KERNEL_PREPARED(gru_backward, prepare_backward)
const lc_op lc__op_lstm = {.name = "lstm", .n_out = 5, .infer = lstm_infer, .grad = lstm_grad, .kernel = &lstm_kernel};
const lc_op lc__op_lstm_backward = {.name = "lstm_backward",
                                    .flags = LC_OP_NO_GRAD,
                                    .n_out = 4,
                                    .infer = lstm_backward_infer,
                                    .kernel = &lstm_backward_kernel};
const lc_op lc__op_gru = {.name = "gru", .n_out = 3, .infer = gru_infer, .grad = gru_grad, .kernel = &gru_kernel};
const lc_op lc__op_gru_backward = {.name = "gru_backward",
                                   .flags = LC_OP_NO_GRAD,
                                   .n_out = 4,
                                   .infer = gru_backward_infer,
                                   .kernel = &gru_backward_kernel};

/* ---- public functions ---- */
lc_tensor *lc_lstm_at(lc_tensor *x, lc_tensor *w_ih, const lc_rnn_args *given, lc_site site)
{
    LC__TAKE_OP(args, "lstm", lc_rnn, given, site);
    lc_tensor *gx = lc_linear_at(x, w_ih, args.b_ih, site), *out[5];
    lc_op_call_n(&lc__op_lstm, LC_IN(gx, args.w_hh, args.b_hh, args.h0, args.c0), LC_NONE, LC_NONE, out, site);
    if (args.h_n) *args.h_n = out[1];
    if (args.c_n) *args.c_n = out[2];
    return out[0];
}

lc_tensor *lc_gru_at(lc_tensor *x, lc_tensor *w_ih, const lc_rnn_args *given, lc_site site)
{
    LC__TAKE_OP(args, "gru", lc_rnn, given, site);
    lc_tensor *gx = lc_linear_at(x, w_ih, args.b_ih, site), *out[3];
    lc_op_call_n(&lc__op_gru, LC_IN(gx, args.w_hh, args.b_hh, args.h0), LC_NONE, LC_NONE, out, site);
    if (args.h_n) *args.h_n = out[1];
    return out[0];
}
