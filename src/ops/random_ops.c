/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers as operators: dropout, Bernoulli, uniform, normal. The recorder fills the first two ints (the place
 * of the call, and how often it was reached in this step), unless they are given, as a gradient rule does. */
#include "base/number.h"
#include "base/philox.h"
#include "ops/infer.h"
#include "record/graph_impl.h"
#include "ops/nn_util.h"
#include "ops/take.h"

#define LC_TEMPLATE "ops/random_ops.inl"
#include "ops/for_floats.h"

static lc_status same_infer(lc_infer *call, int n_float)
{
    LC_TRY(lc__check_call(call, 1, 1, 2, n_float));
    LC_TRY(lc__check_float(call, 0, "x"));
    call->out[0] = *call->in[0];
    return LC_OK;
}

static lc_status dropout_infer(lc_infer *call)
{
    LC_TRY(same_infer(call, 1));
    if (!(call->floats[0] >= 0 && call->floats[0] <= 1))
        return lc_fail(LC_ERR_ARGUMENT, "p must be between 0 and 1, is %g", call->floats[0]);
    return LC_OK;
}

static lc_status bernoulli_infer(lc_infer *call)
{
    return same_infer(call, 0);
}

/* ints: site occurrence dtype shape... */
static lc_status fill_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 0, 0, -3, 2));
    int n = call->n_int - 3;
    int64_t dtype = call->ints[2], numel = 1;
    if (dtype != LC_F32 && dtype != LC_F64) return lc_fail(LC_ERR_DTYPE, "random numbers must be f32 or f64");
    if (n > LC_MAX_DIMS) return lc_fail(LC_ERR_SHAPE, "%d dimensions are not supported", n);
    for (int d = 0; d < n; d++)
        if (call->ints[3 + d] < 0 || __builtin_mul_overflow(numel, call->ints[3 + d], &numel))
            return lc_fail(LC_ERR_SHAPE, "size %lld in dimension %d is out of range", (long long)call->ints[3 + d], d);
    lc__set_type(&call->out[0], (lc_dtype)dtype, n, call->ints + 3);
    return LC_OK;
}

/* The same elements are dropped: the two ints that identify the stream are passed on. */
static lc_status dropout_grad(lc_grad *g)
{
    if (g->need[0])
        g->din[0] = lc_op_call(&lc__op_dropout, LC_IN(g->dout[0]), g->n_int, g->ints, g->n_float, g->floats, LC_HERE);
    return LC_OK;
}

LC_NN_KERNEL(dropout)
LC_NN_KERNEL(bernoulli)
LC_NN_KERNEL(uniform)
LC_NN_KERNEL(normal)
const lc_op lc__op_dropout = {.name = "dropout",
                              .flags = LC_OP_RANDOM,
                              .n_out = 1,
                              .infer = dropout_infer,
                              .grad = dropout_grad,
                              .kernel = &dropout_kernel};
const lc_op lc__op_bernoulli = {.name = "bernoulli",
                                .flags = LC_OP_RANDOM | LC_OP_NO_GRAD,
                                .n_out = 1,
                                .infer = bernoulli_infer,
                                .kernel = &bernoulli_kernel};
const lc_op lc__op_uniform = {.name = "uniform",
                              .flags = LC_OP_RANDOM | LC_OP_NO_GRAD,
                              .n_out = 1,
                              .infer = fill_infer,
                              .kernel = &uniform_kernel};
const lc_op lc__op_normal = {
    .name = "normal", .flags = LC_OP_RANDOM | LC_OP_NO_GRAD, .n_out = 1, .infer = fill_infer, .kernel = &normal_kernel};

lc_tensor *lc_dropout_at(lc_tensor *x, double p, lc_site site)
{
    if (p == 0 && x && !lc_tensor_is_error(x)) return lc__unchanged(x, site);
    return lc_op_call(&lc__op_dropout, LC_IN(x), LC_ATTRS(0, 0), LC_FLOATS(p), site);
}

lc_tensor *lc_bernoulli_at(lc_tensor *x, lc_site site)
{
    return lc_op_call(&lc__op_bernoulli, LC_IN(x), LC_ATTRS(0, 0), LC_NONE, site);
}

static lc_tensor *fill(const lc_op *op, int ndim, const int64_t *shape, lc_dtype dtype, double a, double b,
                       lc_site site)
{
    int64_t ints[3 + LC_MAX_DIMS] = {0, 0, dtype ? lc__wide_dtype(dtype) : LC_F32};
    if (ndim > 0 && !shape) {
        lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, "shape is NULL"), op->name, site);
        return lc__error_tensor();
    }
    for (int d = 0; d < ndim && d < LC_MAX_DIMS; d++) ints[3 + d] = shape[d];
    /* A negative or too large ndim gives a count that inference refuses. */
    int n = ndim < 0 ? 0 : ndim > LC_MAX_DIMS ? 0 : 3 + ndim;
    lc_tensor *x = lc_op_call(op, LC_NONE, n, ints, LC_FLOATS(a, b), site);
    return lc__is_half(dtype) ? lc_cast_at(x, dtype, site) : x;
}

lc_tensor *lc_uniform_at(int ndim, const lc_random_args *given, lc_site site)
{
    LC__TAKE_OP(args, "uniform", lc_random, given, site);
    if (!(args.low <= args.high) || isinf(args.low) || isinf(args.high)) {
        lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, "there are no numbers from %g to %g to draw", args.low, args.high),
                        "uniform", site);
        return lc__error_tensor();
    }
    return fill(&lc__op_uniform, ndim, args.shape, args.dtype, args.low, args.high, site);
}

lc_tensor *lc_normal_at(int ndim, const lc_random_args *given, lc_site site)
{
    LC__TAKE_OP(args, "normal", lc_random, given, site);
    if (!(args.std >= 0)) {
        lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, "std must not be negative, is %g", args.std), "normal", site);
        return lc__error_tensor();
    }
    return fill(&lc__op_normal, ndim, args.shape, args.dtype, args.mean, args.std, site);
}

lc_tensor *lc_rand_like_at(lc_tensor *x, lc_site site)
{
    if (!lc__check_tensor(x, "x", "rand_like", site)) return lc__error_tensor();
    if (lc_tensor_is_error(x)) return x;
    return fill(&lc__op_uniform, lc_tensor_ndim(x), lc_tensor_shape(x), lc_tensor_dtype(x), 0, 1, site);
}

lc_tensor *lc_randn_like_at(lc_tensor *x, lc_site site)
{
    if (!lc__check_tensor(x, "x", "randn_like", site)) return lc__error_tensor();
    if (lc_tensor_is_error(x)) return x;
    return fill(&lc__op_normal, lc_tensor_ndim(x), lc_tensor_shape(x), lc_tensor_dtype(x), 0, 1, site);
}
