/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalization: with the statistics of the batch, with running ones, and fused with relu and max pooling. */
#include "base/number.h"
#include "ops/infer.h"
#include "ops/nn_util.h"
#include "ops/take.h"

/* x[N,C,R..,L]: rows of L elements. */
typedef struct planes {
    int64_t N, C, R, L;
} planes;

static planes planes_of(const lc_view *x)
{
    planes d = {x->shape[0], x->shape[1], 1, 1};
    if (x->ndim > 2) {
        d.L = x->shape[x->ndim - 1];
        d.R = lc__view_extent(x, 2, x->ndim - 1);
    }
    return d;
}

static int64_t row_at(const lc_view *v, int64_t n, int64_t ch, int64_t r)
{
    return n * v->stride[0] + ch * v->stride[1] + (v->ndim > 3 ? lc__inner_offset(v, 2, v->ndim - 1, r) : 0);
}

/* Stride within a row. */
static int64_t d_last(const lc_view *v)
{
    return v->ndim > 2 ? v->stride[v->ndim - 1] : 0;
}

#define LC_TEMPLATE "ops/batch_norm.inl"
#include "ops/for_floats.h"

/* ---- inference ---- */
/* Checks x and the vectors of its channels from input `first` on. */
static lc_status check_channels(const lc_infer *call, int x, int first, int count)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    LC_TRY(lc__check_float(call, x, "x"));
    if (call->in[x]->ndim < 2)
        return lc_fail(LC_ERR_SHAPE, "x must have at least 2 dimensions [N,C,...], has %d", call->in[x]->ndim);
    for (int i = 0; i < count; i++) {
        LC_TRY(lc__check_dtype_of(call, first + i, names[i], x, "x"));
        LC_TRY(lc__check_vector(call, first + i, names[i], call->in[x]->shape[1], "channels"));
    }
    return LC_OK;
}

static void channel_outputs(lc_infer *call, const lc_type *x, int first, int count)
{
    for (int i = 0; i < count; i++) lc__set_type(&call->out[first + i], x->dtype, 1, &x->shape[1]);
}

static lc_status batch_norm_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 1, 1, 1));
    LC_TRY(check_channels(call, 0, 1, 2));
    const lc_type *x = call->in[0];
    if (lc__extent(x, 0, 1) * lc__extent(x, 2, x->ndim) < 2)
        return lc_fail(LC_ERR_SHAPE, "statistics need more than one value per channel; use a larger batch");
    call->out[0] = *x;
    channel_outputs(call, x, 1, 2);
    return LC_OK;
}

static lc_status batch_norm_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 6, 1 | 2 | 16 | 32, 1, 1));
    LC_TRY(check_channels(call, 1, 2, 4));
    const lc_type *x = call->in[1];
    LC_TRY(lc__check_dtype_of(call, 0, "dy", 1, "x"));
    LC_TRY(lc__check_shape(call, 0, "dy", x->ndim, x->shape));
    call->out[0] = *x;
    channel_outputs(call, x, 1, 2);
    return LC_OK;
}

static lc_status batch_norm_relu_backward_infer(lc_infer *call)
{
    LC_TRY(batch_norm_backward_infer(call));
    call->out[3] = *call->in[1];
    return LC_OK;
}

static lc_status batch_norm_inference_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 5, 1 | 8 | 16, 1, 1));
    LC_TRY(check_channels(call, 0, 1, 4));
    call->out[0] = *call->in[0];
    return LC_OK;
}

/* The pooled type of x, as max_pool2d infers it. */
static lc_status pooled(const lc_infer *call, const lc_type *x, lc_type *y, lc_type *index)
{
    lc_type out[2];
    lc_infer pool = {
        .op = &lc__op_max_pool2d, .n_in = 1, .in = &x, .n_int = 9, .ints = call->ints, .n_out = 2, .out = out};
    LC_TRY(lc__op_max_pool2d.infer(&pool));
    *y = out[0];
    *index = out[1];
    return LC_OK;
}

static lc_status batch_norm_relu_pool_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 1, 9, 1));
    LC_TRY(check_channels(call, 0, 1, 2));
    LC_TRY(pooled(call, call->in[0], &call->out[0], &call->out[1]));
    channel_outputs(call, call->in[0], 2, 2);
    return LC_OK;
}

static lc_status batch_norm_relu_pool_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 7, 1 | 2 | 4 | 32 | 64, 9, 1));
    LC_TRY(check_channels(call, 2, 3, 4));
    const lc_type *x = call->in[2];
    lc_type y, index;
    LC_TRY(pooled(call, x, &y, &index));
    LC_TRY(lc__check_dtype_of(call, 0, "dy", 2, "x"));
    LC_TRY(lc__check_shape(call, 0, "dy", 4, y.shape));
    LC_TRY(lc__check_shape(call, 1, "index", 4, y.shape));
    call->out[0] = *x;
    channel_outputs(call, x, 1, 2);
    return LC_OK;
}

/* ---- gradients ---- */
static lc_status batch_norm_grad(lc_grad *g)
{
    if (g->dout[1] || g->dout[2])
        return lc_fail(LC_ERR_UNSUPPORTED, "no gradient flows through the statistics of batch_norm");
    if (g->ints[0]) return lc_fail(LC_ERR_INTERNAL, "batch_norm with a fused activation has no gradient rule");
    lc_tensor *out[3];
    lc_op_call_n(&lc__op_batch_norm_backward, LC_IN(g->dout[0], g->in[0], g->in[1], g->in[2], g->out[1], g->out[2]),
                 g->n_int, g->ints, g->n_float, g->floats, out, LC_HERE);
    for (int i = 0; i < 3; i++)
        if (g->need[i]) g->din[i] = out[i];
    return LC_OK;
}

static lc_status batch_norm_inference_grad(lc_grad *g)
{
    lc_tensor *x = g->in[0], *w = g->in[1], *dy = g->dout[0];
    if (g->ints[0]) return lc_fail(LC_ERR_INTERNAL, "batch_norm with a fused activation has no gradient rule");
    if (g->need[3] || g->need[4])
        return lc_fail(LC_ERR_UNSUPPORTED, "no gradient flows to the running statistics of batch_norm");
    lc_tensor *shifted = lc_op_call(&lc__op_add_scalar, LC_IN(g->in[4]), LC_NONE, 1, g->floats, LC_HERE);
    lc_tensor *rstd = lc__op1(&lc__op_rsqrt, shifted, LC_HERE);
    if (g->need[0]) {
        lc_tensor *scale = w ? lc__op2(&lc__op_mul, rstd, w, LC_HERE) : rstd;
        g->din[0] = lc__op2(&lc__op_mul, dy, lc__over_channels(scale, x), LC_HERE);
    }
    if (g->need[1]) {
        lc_tensor *centered = lc__op2(&lc__op_sub, x, lc__over_channels(g->in[3], x), LC_HERE);
        lc_tensor *sum = lc__sum_but(lc__op2(&lc__op_mul, dy, centered, LC_HERE), 1, LC_HERE);
        g->din[1] = lc__op2(&lc__op_mul, sum, rstd, LC_HERE);
    }
    if (g->need[2]) g->din[2] = lc__sum_but(dy, 1, LC_HERE);
    return LC_OK;
}

LC_NN_KERNEL(batch_norm)
LC_NN_KERNEL(batch_norm_backward)
LC_NN_KERNEL(batch_norm_relu_backward)
LC_NN_KERNEL(batch_norm_inference)
LC_NN_KERNEL(batch_norm_relu_pool)
LC_NN_KERNEL(batch_norm_relu_pool_backward)
const lc_op lc__op_batch_norm = {.name = "batch_norm",
                                 .inputs = "x weight bias",
                                 .n_out = 3,
                                 .infer = batch_norm_infer,
                                 .grad = batch_norm_grad,
                                 .kernel = &batch_norm_kernel};
const lc_op lc__op_batch_norm_backward = {.name = "batch_norm_backward",
                                          .flags = LC_OP_NO_GRAD,
                                          .n_out = 3,
                                          .infer = batch_norm_backward_infer,
                                          .kernel = &batch_norm_backward_kernel};
const lc_op lc__op_batch_norm_inference = {.name = "batch_norm_inference",
                                           .inputs = "x weight bias running_mean running_var",
                                           .n_out = 1,
                                           .infer = batch_norm_inference_infer,
                                           .grad = batch_norm_inference_grad,
                                           .kernel = &batch_norm_inference_kernel};
/* Made by the planner after gradients have been recorded. */
const lc_op lc__op_batch_norm_relu_backward = {.name = "batch_norm_relu_backward",
                                               .flags = LC_OP_NO_GRAD,
                                               .n_out = 4,
                                               .infer = batch_norm_relu_backward_infer,
                                               .kernel = &batch_norm_relu_backward_kernel};
const lc_op lc__op_batch_norm_relu_pool = {.name = "batch_norm_relu_pool",
                                           .flags = LC_OP_NO_GRAD,
                                           .n_out = 4,
                                           .infer = batch_norm_relu_pool_infer,
                                           .kernel = &batch_norm_relu_pool_kernel};
const lc_op lc__op_batch_norm_relu_pool_backward = {.name = "batch_norm_relu_pool_backward",
                                                    .flags = LC_OP_NO_GRAD,
                                                    .n_out = 3,
                                                    .infer = batch_norm_relu_pool_backward_infer,
                                                    .kernel = &batch_norm_relu_pool_backward_kernel};

/* ---- public function ---- */
/* target = (1 - momentum) target + momentum * factor * value */
static void move(lc_tensor *target, lc_tensor *value, double momentum, double factor, lc_site site)
{
    lc_tensor *kept = lc_op_call(&lc__op_mul_scalar, LC_IN(target), LC_NONE, LC_FLOATS(1 - momentum), site);
    lc_tensor *added = lc_op_call(&lc__op_mul_scalar, LC_IN(value), LC_NONE, LC_FLOATS(momentum * factor), site);
    lc_assign_at(target, lc__op2(&lc__op_add, kept, added, site), site);
}

/* ---- statistics of several ranks ---- */

typedef struct statistics {
    lc_tensor *mean, *var, *unbiased; /* [C] */
} statistics;

/* Each rank contributes the number of its values per channel, their mean, and the sum of their squared deviations from
 * it. Every rank merges the contributions in the order of ranks (Chan, Golub, LeVeque), so that no two large sums are
 * subtracted and all ranks get the same bits. A contribution of zeros changes nothing. Made of differentiable
 * operators: all_gather's gradient sums over the ranks in the backward pass. */
static statistics statistics_of_ranks(lc_tensor *x, lc_comm *comm, lc_site site)
{
    const lc_type *t = lc_tensor_type(x);
    int64_t C = t->shape[1], N = lc_comm_size(comm), one = 1;
    double n = (double)(lc__extent(t, 0, 1) * lc__extent(t, 2, t->ndim));
    lc_dims all_but_channels = {0}, ranks = LC_DIMS(0);
    for (int d = 0; d < t->ndim; d++)
        if (d != 1) all_but_channels.dim[all_but_channels.n++] = d;
    lc_tensor *count = lc_full_at(n, t->dtype, 1, &one, site);
    lc_tensor *mean = LC__CALL_AT(lc_mean, lc_reduce, (), site, .x = x, .dims = all_but_channels);
    lc_tensor *var = LC__CALL_AT(lc_var, lc_reduce, (), site, .x = x, .dims = all_but_channels, .correction = 0);
    lc_tensor *mine = lc_cat_at(0, 3, (lc_tensor *[]){count, mean, lc_mul_scalar_at(var, n, site)}, site);
    lc_tensor *all = lc__reshape(lc_all_gather_at(mine, comm, site), 2, (int64_t[]){N, 2 * C + 1}, site);
    lc_tensor *counts = lc_slice_at(all, 1, 0, 1, site), *means = lc_slice_at(all, 1, 1, C, site);
    lc_tensor *within =
        LC__CALL_AT(lc_sum, lc_reduce, (), site, .x = lc_slice_at(all, 1, 1 + C, C, site), .dims = ranks);
    lc_tensor *total = LC__CALL_AT(lc_sum, lc_reduce, (), site, .x = counts);
    statistics s;
    lc_tensor *sum = LC__CALL_AT(lc_sum, lc_reduce, (), site, .x = lc_mul_at(counts, means, site), .dims = ranks);
    s.mean = lc_div_at(sum, total, site);
    lc_tensor *off = lc_mul_at(counts, lc_square_at(lc_sub_at(means, s.mean, site), site), site);
    lc_tensor *squares = lc_add_at(within, LC__CALL_AT(lc_sum, lc_reduce, (), site, .x = off, .dims = ranks), site);
    s.var = lc_div_at(squares, total, site);
    lc_tensor *others = LC__CALL_AT(lc_clamp, lc_clamp, (), site, .x = lc_add_scalar_at(total, -1, site), .min = 1);
    s.unbiased = lc_div_at(squares, others, site);
    return s;
}

static lc_tensor *normalized(lc_tensor *x, lc_tensor *w, lc_tensor *b, statistics s, double eps, lc_site site)
{
    lc_tensor *scale = lc_rsqrt_at(lc_add_scalar_at(s.var, eps, site), site);
    if (w) scale = lc_mul_at(scale, w, site);
    lc_tensor *y = lc_mul_at(lc_sub_at(x, lc__over_channels(s.mean, x), site), lc__over_channels(scale, x), site);
    return b ? lc_add_at(y, lc__over_channels(b, x), site) : y;
}

/* Like the operator, it computes in f32 what is stored in 16 bits, and rounds only the result: in f16 the number of
 * values and the sums of their squares are soon infinite. */
static lc_tensor *normalized_over_ranks(lc_tensor *x, lc_tensor *w, lc_tensor *b, lc_comm *comm, double eps,
                                        lc_site site, statistics *s)
{
    const lc_graph *g = lc_current_graph();
    lc_dtype dtype = lc_tensor_dtype(x), all = g ? g->options.storage : 0;
    lc_dtype stored = dtype == LC_F32 && lc__is_half(all) ? all : dtype;
    if (all != LC_F64) lc__exact_begin();
    x = lc__as(lc__as(x, stored), lc__wide_dtype(stored));
    *s = statistics_of_ranks(x, comm, site);
    lc_tensor *y = lc__as(lc__as(normalized(x, w, b, *s, eps, site), stored), dtype);
    if (all != LC_F64) lc__exact_end();
    return y;
}

lc_tensor *lc_batch_norm_at(lc_tensor *x, lc_tensor *w, const lc_batch_norm_args *given, lc_site site)
{
    LC__TAKE_OP(args, "batch_norm", lc_batch_norm, given, site);
    double eps = args.eps, momentum = args.momentum;
    bool running = args.running_mean && args.running_var;
    if (running && args.training && isnan(momentum) && !lc__unusable(x))
        return lc__refuse(lc_fail(LC_ERR_ARGUMENT, "momentum must be a number"), "batch_norm", x, site);
    if (running && !args.training)
        return lc_op_call(&lc__op_batch_norm_inference, LC_IN(x, w, args.bias, args.running_mean, args.running_var),
                          LC_ATTRS(0), LC_FLOATS(eps), site);
    if (args.comm && lc_comm_size(args.comm) > 1) {
        if (lc__unusable(x) || lc_tensor_ndim(x) < 2) /* the operator reports it */
            return lc_op_call(&lc__op_batch_norm, LC_IN(x, w, args.bias), LC_ATTRS(0), LC_FLOATS(eps), site);
        statistics s;
        lc_tensor *y = normalized_over_ranks(x, w, args.bias, args.comm, eps, site, &s);
        lc_no_grad_begin();
        if (running) move(args.running_mean, lc__as(s.mean, lc_tensor_dtype(args.running_mean)), momentum, 1, site);
        if (running) move(args.running_var, lc__as(s.unbiased, lc_tensor_dtype(args.running_var)), momentum, 1, site);
        lc_no_grad_end();
        return y;
    }
    lc_tensor *out[3];
    lc_op_call_n(&lc__op_batch_norm, LC_IN(x, w, args.bias), LC_ATTRS(0), LC_FLOATS(eps), out, site);
    if (running && !lc__unusable(out[0])) {
        const lc_type *t = lc_tensor_type(x);
        double count = (double)(lc__extent(t, 0, 1) * lc__extent(t, 2, t->ndim));
        lc_no_grad_begin();
        move(args.running_mean, out[1], momentum, 1, site);
        move(args.running_var, out[2], momentum, count / (count - 1), site);
        lc_no_grad_end();
    }
    return out[0];
}
