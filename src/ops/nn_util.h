/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the neural network operators: argument lists, checks for inference, walking over views. */
#ifndef LC_OPS_NN_UTIL_H
#define LC_OPS_NN_UTIL_H

#include <math.h>
#include <string.h>

#include <lightc/graph.h>
#include "ops/ops.h"

/* ---- recording: lc_op_call(&lc__op_linear, LC_IN(x, w, b), LC_ATTRS(0), LC_NONE, site) ---- */
#define LC_IN(...)                                                                                                     \
    (int)(sizeof((lc_tensor *[]){__VA_ARGS__}) / sizeof(lc_tensor *)), (lc_tensor *[])                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define LC_ATTRS(...)                                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define LC_FLOATS(...)                                                                                                 \
    (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[])                                                \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define LC_NONE 0, NULL

/* True if x has no type: then the operator is recorded at once, and reports it. */
static inline bool lc__unusable(const lc_tensor *x)
{
    return !x || lc_tensor_is_error(x);
}

static inline lc_tensor *lc__reshape(lc_tensor *x, int ndim, const int64_t *shape, lc_site site)
{
    return lc_op_call(&lc__op_reshape, LC_IN(x), ndim, shape, LC_NONE, site);
}
/* Whether x has no dimensions, and dim is 0 or -1: then a function along a dimension takes x as [1], as in PyTorch. */
static inline bool lc__is_point(const lc_tensor *x, int64_t dim)
{
    return !lc__unusable(x) && lc_tensor_ndim(x) == 0 && (dim == 0 || dim == -1);
}

/* x without dimensions as [1]; any other x as it is. */
static inline lc_tensor *lc__as_line(lc_tensor *x, lc_site site)
{
    return lc__unusable(x) || lc_tensor_ndim(x) > 0 ? x : lc__reshape(x, 1, (const int64_t[]){1}, site);
}

/* [1] without its dimension. */
static inline lc_tensor *lc__as_point(lc_tensor *y, lc_site site)
{
    return lc__unusable(y) ? y : lc__reshape(y, 0, NULL, site);
}
/* Swaps the last two dimensions. */
lc_tensor *lc__transpose_last(lc_tensor *x, lc_site site);
/* [..., n] -> [M, n], where the last `keep` dimensions become one. */
lc_tensor *lc__to_matrix(lc_tensor *x, int keep, lc_site site);
/* Sum over every dimension except `dim`. */
lc_tensor *lc__sum_but(lc_tensor *x, int dim, lc_site site);
/* A vector over channels as [C,1,..], to broadcast against x[N,C,*]. For gradient rules and functions of several
 * operators. */
lc_tensor *lc__over_channels(lc_tensor *v, lc_tensor *x);
/* For functions made of several operators: whether x is a tensor, and not the result of a failed operation; if not,
 * reports `what` as an operand of `name`. */
bool lc__is_given(lc_tensor *x, const char *what, const char *name, lc_site site);
/* For functions made of several operators: reports lc_error_message() as an error of `name`, and returns the error
 * tensor. */
lc_tensor *lc__refuse(lc_status status, const char *name, lc_tensor *x, lc_site site);

/* ---- inference ---- */
/* The operator was called with this many operands (bit i of `required`: input i must be given) and attributes; n_int <
 * 0: at least -n_int ints. */
lc_status lc__check_call(const lc_infer *call, int n_in, unsigned required, int n_int, int n_float);
/* Input i is f32 or f64. */
lc_status lc__check_float(const lc_infer *call, int i, const char *name);
/* Input i, if given, has the data type of input `of`. */
lc_status lc__check_dtype_of(const lc_infer *call, int i, const char *name, int of, const char *of_name);
/* Input i, if given, is a vector of n numbers, with input `of`'s data type. */
lc_status lc__check_vector(const lc_infer *call, int i, const char *name, int64_t n, const char *what);
/* Input i is i64 or i32. */
lc_status lc__check_index(const lc_infer *call, int i, const char *name);
/* Input i has the shape (and type, if `of` >= 0: of that input). */
lc_status lc__check_shape(const lc_infer *call, int i, const char *name, int ndim, const int64_t *shape);
void lc__set_type(lc_type *out, lc_dtype dtype, int ndim, const int64_t *shape);
/* Elements of dimensions first..last-1. */
int64_t lc__extent(const lc_type *type, int first, int last);

/* ---- kernels ---- */
/* The activation that a fused operator ends with: 0 none, 1 relu, 2 tanh, 3 sigmoid. */
double lc__activate(double v, int64_t activation);
/* z[m,n] = sum over k of x[m,k] y[k,n], plus bias[n], activated; added to z with `accumulate`. Strides in elements. */
#define LC_GEMM_ARGUMENTS(T)                                                                                           \
    (int64_t M, int64_t N, int64_t K, const T *x, int64_t xm, int64_t xk, const T *y, int64_t yk, int64_t yn, T *z,    \
     int64_t zm, int64_t zn, const T *bias, int64_t bn, int64_t activation, bool accumulate)
void lc__gemm_f32 LC_GEMM_ARGUMENTS(float);
void lc__gemm_f64 LC_GEMM_ARGUMENTS(double);

/* The reference kernel of an operator from its template; runs on one thread. */
#define LC_NN_KERNEL(op)                   LC_NN_KERNEL_FULL(op, 0, NULL)
#define LC_NN_KERNEL_PREPARED(op, prepare) LC_NN_KERNEL_FULL(op, 0, prepare)
/* One that honors call->accumulate. */
#define LC_NN_KERNEL_ADDING(op) LC_NN_KERNEL_FULL(op, LC_KERNEL_ACCUMULATES, NULL)
#define LC_NN_KERNEL_FULL(op, more, prepare_call)                                                                      \
    static void op##_run(const lc_call *c)                                                                             \
    {                                                                                                                  \
        if (c->out[0].dtype == LC_F64)                                                                                 \
            op##_f64(c);                                                                                               \
        else                                                                                                           \
            op##_f32(c);                                                                                               \
    }                                                                                                                  \
    static const lc_kernel op##_kernel = {.name = "reference",                                                         \
                                          .layout = LC_WANT_STRIDED,                                                   \
                                          .flags = LC_KERNEL_SERIAL | (more),                                          \
                                          .prepare = prepare_call,                                                     \
                                          .run = op##_run};

static inline bool lc__given(const lc_view *v)
{
    return v->ndim >= 0;
}

static inline int64_t lc__view_extent(const lc_view *v, int first, int last)
{
    int64_t n = 1;
    for (int d = first; d < last; d++) n *= v->shape[d];
    return n;
}

/* Offset of row-major element i of dimensions first..last-1. */
static inline int64_t lc__offset(const lc_view *v, int first, int last, int64_t i)
{
    int64_t at = 0;
    for (int d = last - 1; d >= first; d--) {
        int64_t n = v->shape[d];
        at += i % n * v->stride[d];
        i /= n;
    }
    return at;
}

/* The same for v broadcast to `shape`, of which its own dimensions are the last. */
static inline int64_t lc__offset_broadcast(const lc_view *v, int v_last, const int64_t *shape, int last, int64_t i)
{
    int64_t at = 0;
    for (int d = last - 1; d >= 0; d--) {
        int own = d - last + v_last;
        if (own >= 0 && v->shape[own] != 1) at += i % shape[d] * v->stride[own];
        i /= shape[d];
    }
    return at;
}

/* Integer i of a view of indices, at an offset in elements. */
static inline int64_t lc__index_at(const lc_view *v, int64_t at)
{
    switch (v->dtype) {
    case LC_I64:
        return ((const int64_t *)v->data)[at];
    case LC_I32:
        return ((const int32_t *)v->data)[at];
    default:
        return ((const uint8_t *)v->data)[at];
    }
}

/* As lc__offset; faster if there is only one dimension, which is the usual case. */
static inline int64_t lc__inner_offset(const lc_view *v, int first, int last, int64_t i)
{
    return last - first == 1 ? i * v->stride[first] : lc__offset(v, first, last, i);
}

/* Element i of a vector of T that may be absent. */
#define LC_VEC(T, v, i, otherwise) (lc__given(v) ? (double)((const T *)(v)->data)[(i) * (v)->stride[0]] : (otherwise))

#endif
