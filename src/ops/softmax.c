/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, log_softmax and their gradients: ints dim. One line along dim at a time, in double. */
#include <math.h>

#include "ops/infer.h"
#include "base/number.h"
#include "ops/nn_util.h"
#include "ops/ops.h"
#include "ops/walk.h"

/* Lines of `length` elements along one dimension of the result and of up to two operands. */
typedef struct line {
    int64_t length;
    char *data[3];
    int64_t step[3];
    lc_dtype dtype;
} line;

static double get(const line *l, int v, int64_t i)
{
    return lc__load_number(l->data[v] + i * l->step[v], l->dtype);
}

static void put(const line *l, int64_t i, double x)
{
    lc__store_number(l->data[0] + i * l->step[0], l->dtype, x);
}

static void each_line(const lc_call *call, void (*run)(const line *l))
{
    int dim = (int)call->ints[0], n = 1 + call->n_in;
    lc_view views[3] = {call->out[0]};
    const lc_view *v[3];
    line l = {.length = views[0].shape[dim], .dtype = views[0].dtype};
    for (int i = 0; i < n; i++) {
        if (i) views[i] = call->in[i - 1];
        l.step[i] = views[i].stride[dim] * (int64_t)lc_dtype_size(l.dtype);
        views[i].shape[dim] = l.length > 0;
        v[i] = &views[i];
    }
    lc__walk w;
    lc__walk_start(&w, views[0].ndim, views[0].shape, n, v);
    while (lc__walk_next(&w))
        for (int64_t i = 0; i < w.length; i++) {
            for (int j = 0; j < n; j++) l.data[j] = w.data[j] + i * w.step[j];
            run(&l);
        }
}

static void max_and_sum(const line *l, double *max, double *sum)
{
    *max = get(l, 1, 0);
    *sum = 0;
    for (int64_t i = 1; i < l->length; i++) {
        double x = get(l, 1, i);
        if (x > *max || x != x) *max = x;
    }
    for (int64_t i = 0; i < l->length; i++) *sum += exp(get(l, 1, i) - *max);
}

static void softmax_line(const line *l)
{
    double max, sum;
    max_and_sum(l, &max, &sum);
    for (int64_t i = 0; i < l->length; i++) put(l, i, exp(get(l, 1, i) - max) / sum);
}

static void log_softmax_line(const line *l)
{
    double max, sum;
    max_and_sum(l, &max, &sum);
    double shift = max + log(sum);
    for (int64_t i = 0; i < l->length; i++) put(l, i, get(l, 1, i) - shift);
}

/* dx = y (dy - sum(dy y)) */
static void softmax_backward_line(const line *l)
{
    double sum = 0;
    for (int64_t i = 0; i < l->length; i++) sum += get(l, 1, i) * get(l, 2, i);
    for (int64_t i = 0; i < l->length; i++) put(l, i, get(l, 2, i) * (get(l, 1, i) - sum));
}

/* dx = dy - exp(y) sum(dy) */
static void log_softmax_backward_line(const line *l)
{
    double sum = 0;
    for (int64_t i = 0; i < l->length; i++) sum += get(l, 1, i);
    for (int64_t i = 0; i < l->length; i++) put(l, i, get(l, 1, i) - exp(get(l, 2, i)) * sum);
}

static lc_status infer_line(lc_infer *call, int n)
{
    LC_TRY(lc__infer_operands(call, n));
    LC_TRY(lc__infer_attributes(call, 1, 0));
    LC_TRY(lc__infer_float(call, 0));
    LC_TRY(lc__infer_dim(call->in[0], call->ints[0]));
    if (n == 2) LC_TRY(lc__infer_same_dtype(call, 0, 1));
    return lc__infer_same(call);
}

static lc_status infer_forward(lc_infer *call)
{
    return infer_line(call, 1);
}

static lc_status infer_backward(lc_infer *call)
{
    return infer_line(call, 2);
}

static lc_status grad_by_result(lc_grad *g, const lc_op *backward)
{
    lc_tensor *in[] = {g->dout[0], g->out[0]};
    g->din[0] = lc_op_call(backward, 2, in, 1, g->ints, 0, NULL, LC_HERE);
    return LC_OK;
}

static lc_status grad_softmax(lc_grad *g)
{
    return grad_by_result(g, &lc__op_softmax_backward);
}

static lc_status grad_log_softmax(lc_grad *g)
{
    return grad_by_result(g, &lc__op_log_softmax_backward);
}

#define LINE_OP(id, infer_function, ...)                                                                               \
    static void run_##id(const lc_call *call)                                                                          \
    {                                                                                                                  \
        each_line(call, id##_line);                                                                                    \
    }                                                                                                                  \
    static const lc_kernel kernel_##id = {.name = "reference", .layout = LC_WANT_STRIDED, .run = run_##id};            \
    const lc_op lc__op_##id = {.name = #id, .n_out = 1, .infer = infer_function, .kernel = &kernel_##id, __VA_ARGS__};

LINE_OP(softmax, infer_forward, .grad = grad_softmax)
LINE_OP(log_softmax, infer_forward, .grad = grad_log_softmax)
LINE_OP(softmax_backward, infer_backward, .flags = LC_OP_NO_GRAD)
LINE_OP(log_softmax_backward, infer_backward, .flags = LC_OP_NO_GRAD)

static lc_tensor *call_line(const lc_op *op, lc_tensor *x, int dim, lc_site site)
{
    if (lc__is_bad(x)) return lc__op1(op, x, site);
    if (lc__is_point(x, dim)) return lc__as_point(call_line(op, lc__as_line(x, site), 0, site), site);
    int64_t d = lc__wrap_dim(dim, lc_tensor_ndim(x));
    return lc_op_call(op, 1, &x, 1, &d, 0, NULL, site);
}

lc_tensor *lc_softmax_at(lc_tensor *x, int dim, lc_site site)
{
    return call_line(&lc__op_softmax, x, dim, site);
}

lc_tensor *lc_log_softmax_at(lc_tensor *x, int dim, lc_site site)
{
    return call_line(&lc__op_log_softmax, x, dim, site);
}
