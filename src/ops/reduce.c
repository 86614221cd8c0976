/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions: sum, mean, amax, amin, var, std, norm, logsumexp (ints: keepdim, number of dimensions, dimensions in
 * ascending order; var, std: then the bits of the correction; norm: floats p), argmax and argmin (ints: dimension or -1
 * for all, keepdim).
 *
 * All of them are folds over the reduced dimensions, once per result element, in double (integers: int64_t). To add
 * one: a case in fold_row, a run function, an entry. */
#include <math.h>
#include <string.h>

#include "ops/infer.h"
#include "base/number.h"
#include "ops/ops.h"
#include "ops/walk.h"

typedef enum fold_kind { SUM, SQUARES, EXPONENTIALS, POWERS, MAX, MIN } fold_kind;

typedef struct fold {
    fold_kind kind;
    double value;  /* so far */
    double origin; /* SQUARES of x - origin, EXPONENTIALS of x - origin, POWERS: the exponent */
    int64_t whole; /* integers, so far */
    int64_t seen;  /* elements */
    int64_t at;    /* MAX, MIN: index of the element */
} fold;

/* NaN beats everything; of equal elements the first stays. */
static bool beats(fold_kind kind, double x, double best)
{
    if (best != best) return false;
    return x != x || (kind == MAX ? x > best : x < best);
}

#define LOOP(T, statement)                                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        const double x = (double)*(const T *)(p + i * step);                                                           \
        statement;                                                                                                     \
    }
#define FOLD_FLOAT(T)                                                                                                  \
    static void fold_##T(fold *f, int64_t n, const char *p, int64_t step)                                              \
    {                                                                                                                  \
        double v = f->value;                                                                                           \
        const double o = f->origin;                                                                                    \
        switch (f->kind) {                                                                                             \
        case SUM:                                                                                                      \
            LOOP(T, v += x) break;                                                                                     \
        case SQUARES:                                                                                                  \
            LOOP(T, v += (x - o) * (x - o)) break;                                                                     \
        case EXPONENTIALS:                                                                                             \
            LOOP(T, v += exp(x - o)) break;                                                                            \
        case POWERS:                                                                                                   \
            LOOP(T, v += pow(fabs(x), o)) break;                                                                       \
        case MAX:                                                                                                      \
        case MIN:                                                                                                      \
            LOOP(                                                                                                      \
                T, if (f->seen + i == 0 || beats(f->kind, x, v)) {                                                     \
                    v = x;                                                                                             \
                    f->at = f->seen + i;                                                                               \
                })                                                                                                     \
            break;                                                                                                     \
        }                                                                                                              \
        f->value = v;                                                                                                  \
        f->seen += n;                                                                                                  \
    }
FOLD_FLOAT(float)
FOLD_FLOAT(double)

static void fold_integers(fold *f, lc_dtype dtype, int64_t n, const char *p, int64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t x = lc__load_integer(p + i * step, dtype);
        if (f->kind == SUM) {
            f->whole += x;
        } else if (f->seen + i == 0 || (f->kind == MAX ? x > f->whole : x < f->whole)) {
            f->whole = x;
            f->at = f->seen + i;
        }
    }
    f->seen += n;
}

/* Folds all elements of `from`. */
static void fold_view(fold *f, const lc_view *from)
{
    lc__walk w;
    lc__walk_start(&w, from->ndim, from->shape, 1, &from);
    while (lc__walk_next(&w)) {
        if (from->dtype == LC_F32)
            fold_float(f, w.length, w.data[0], w.step[0]);
        else if (from->dtype == LC_F64)
            fold_double(f, w.length, w.data[0], w.step[0]);
        else
            fold_integers(f, from->dtype, w.length, w.data[0], w.step[0]);
    }
}

/* The operands, taken apart into kept and reduced dimensions. */
typedef struct parts {
    lc_view in, out; /* kept dimensions */
    lc_view reduced; /* reduced dimensions of the input */
    int64_t count;   /* elements of `reduced` */
} parts;

static void take_apart(const lc_call *call, bool keepdim, int n, const int64_t *dims, parts *s)
{
    const lc_view *in = &call->in[0], *out = &call->out[0];
    s->in = s->reduced = *in;
    s->out = *out;
    s->in.ndim = s->out.ndim = s->reduced.ndim = 0;
    s->count = 1;
    for (int d = 0, r = 0; d < in->ndim; d++) {
        if (r < n && dims[r] == d) {
            r++;
            s->reduced.shape[s->reduced.ndim] = in->shape[d];
            s->reduced.stride[s->reduced.ndim++] = in->stride[d];
            s->count *= in->shape[d];
        } else {
            s->in.shape[s->in.ndim] = s->out.shape[s->in.ndim] = in->shape[d];
            s->in.stride[s->in.ndim] = in->stride[d];
            s->out.stride[s->in.ndim] = out->stride[keepdim ? d : s->in.ndim];
            s->out.ndim = ++s->in.ndim;
        }
    }
}

/* Stores one result element at a time: finish() folds s->reduced and stores. */
typedef void finish_fn(const lc_call *call, parts *s, void *to);

static void each_result(const lc_call *call, parts *s, finish_fn *finish)
{
    lc__walk w;
    const lc_view *v[] = {&s->out, &s->in};
    lc__walk_start(&w, s->out.ndim, s->out.shape, 2, v);
    while (lc__walk_next(&w))
        for (int64_t i = 0; i < w.length; i++) {
            s->reduced.data = w.data[1] + i * w.step[1];
            finish(call, s, w.data[0] + i * w.step[0]);
        }
}

static void reduce(const lc_call *call, finish_fn *finish)
{
    parts s;
    take_apart(call, call->ints[0] != 0, (int)call->ints[1], call->ints + 2, &s);
    each_result(call, &s, finish);
}

static void store(const lc_call *call, void *to, const fold *f)
{
    if (lc_dtype_is_float(call->in[0].dtype))
        lc__store_number(to, call->out[0].dtype, f->value);
    else
        lc__store_integer(to, call->out[0].dtype, f->whole);
}

static void finish_sum(const lc_call *call, parts *s, void *to)
{
    fold f = {.kind = SUM};
    fold_view(&f, &s->reduced);
    store(call, to, &f);
}

static void finish_mean(const lc_call *call, parts *s, void *to)
{
    fold f = {.kind = SUM};
    fold_view(&f, &s->reduced);
    lc__store_number(to, call->out[0].dtype, f.value / (double)s->count);
}

static void finish_amax(const lc_call *call, parts *s, void *to)
{
    fold f = {.kind = MAX};
    fold_view(&f, &s->reduced);
    store(call, to, &f);
}

static void finish_amin(const lc_call *call, parts *s, void *to)
{
    fold f = {.kind = MIN};
    fold_view(&f, &s->reduced);
    store(call, to, &f);
}

/* The divisor of a variance of n numbers. The correction is a double whose bits are in an int, since gradients need its
 * value. */
static double moment_divisor(int64_t n, const int64_t *ints)
{
    double correction;
    memcpy(&correction, &ints[2 + ints[1]], sizeof correction);
    double divisor = (double)n - correction;
    return divisor < 0 ? 0 : divisor;
}

static double variance(const lc_call *call, parts *s)
{
    fold f = {.kind = SUM};
    fold_view(&f, &s->reduced);
    fold squares = {.kind = SQUARES, .origin = f.value / (double)s->count};
    fold_view(&squares, &s->reduced);
    return squares.value / moment_divisor(s->count, call->ints);
}

static void finish_var(const lc_call *call, parts *s, void *to)
{
    lc__store_number(to, call->out[0].dtype, variance(call, s));
}

static void finish_std(const lc_call *call, parts *s, void *to)
{
    lc__store_number(to, call->out[0].dtype, sqrt(variance(call, s)));
}

static void finish_norm(const lc_call *call, parts *s, void *to)
{
    double p = call->floats[0];
    fold f = {.kind = p == 2 ? SQUARES : POWERS, .origin = p == 2 ? 0 : p};
    fold_view(&f, &s->reduced);
    lc__store_number(to, call->out[0].dtype, p == 2 ? sqrt(f.value) : pow(f.value, 1 / p));
}

static void finish_logsumexp(const lc_call *call, parts *s, void *to)
{
    fold max = {.kind = MAX, .value = -INFINITY};
    fold_view(&max, &s->reduced);
    double value = max.value;
    if (isfinite(value)) {
        fold f = {.kind = EXPONENTIALS, .origin = value};
        fold_view(&f, &s->reduced);
        value += log(f.value);
    }
    lc__store_number(to, call->out[0].dtype, value);
}

static void finish_argmax(const lc_call *call, parts *s, void *to)
{
    (void)call;
    fold f = {.kind = MAX};
    fold_view(&f, &s->reduced);
    *(int64_t *)to = f.at;
}

static void finish_argmin(const lc_call *call, parts *s, void *to)
{
    (void)call;
    fold f = {.kind = MIN};
    fold_view(&f, &s->reduced);
    *(int64_t *)to = f.at;
}

static void reduce_index(const lc_call *call, finish_fn *finish)
{
    int64_t all[LC_MAX_DIMS];
    for (int d = 0; d < LC_MAX_DIMS; d++) all[d] = d;
    bool one = call->ints[0] >= 0;
    parts s;
    take_apart(call, call->ints[1] != 0, one ? 1 : call->in[0].ndim, one ? call->ints : all, &s);
    each_result(call, &s, finish);
}

/* ---- type inference ---- */

static lc_status infer_reduce(lc_infer *call, int extra_ints, int floats)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__infer_attributes(call, 2, floats));
    const lc_type *x = call->in[0];
    int64_t n = call->ints[1];
    if (n < 0 || n > LC_MAX_DIMS) return lc_fail(LC_ERR_ARGUMENT, "cannot reduce over %lld dimensions", (long long)n);
    LC_TRY(lc__infer_attributes(call, (int)(2 + n + extra_ints), floats));
    const int64_t *dims = call->ints + 2;
    for (int i = 0; i < n; i++) {
        LC_TRY(lc__infer_dim(x, dims[i]));
        if (i && dims[i] <= dims[i - 1])
            return lc_fail(LC_ERR_ARGUMENT, "dimension %lld is named twice (or dimensions are not ascending)",
                           (long long)dims[i]);
    }
    lc_type *y = &call->out[0];
    y->dtype = x->dtype;
    y->ndim = 0;
    for (int d = 0, r = 0; d < x->ndim; d++) {
        bool reduced = r < n && dims[r] == d;
        r += reduced;
        if (reduced && !call->ints[0]) continue;
        y->shape[y->ndim++] = reduced ? 1 : x->shape[d];
    }
    return LC_OK;
}

static lc_status check_computable(const lc_type *x, bool bools)
{
    if (x->dtype == LC_F16 || x->dtype == LC_BF16 || (x->dtype == LC_BOOL && !bools))
        return lc_fail(LC_ERR_DTYPE, "operand 0 is %s, which does not support arithmetic; convert it with lc_cast",
                       lc_dtype_name(x->dtype));
    return LC_OK;
}

/* Sums of integers and bools are i64. */
static lc_status infer_sum(lc_infer *call)
{
    LC_TRY(infer_reduce(call, 0, 0));
    LC_TRY(check_computable(call->in[0], true));
    if (!lc_dtype_is_float(call->out[0].dtype)) call->out[0].dtype = LC_I64;
    return LC_OK;
}

static lc_status infer_float_reduce(lc_infer *call)
{
    LC_TRY(infer_reduce(call, 0, 0));
    return lc__infer_float(call, 0);
}

static lc_status infer_var(lc_infer *call)
{
    LC_TRY(infer_reduce(call, 1, 0));
    return lc__infer_float(call, 0);
}

static lc_status infer_norm(lc_infer *call)
{
    LC_TRY(infer_reduce(call, 0, 1));
    return lc__infer_float(call, 0);
}

static lc_status infer_extreme(lc_infer *call)
{
    LC_TRY(infer_reduce(call, 0, 0));
    LC_TRY(check_computable(call->in[0], false));
    for (int64_t i = 0; i < call->ints[1]; i++)
        if (call->in[0]->shape[call->ints[2 + i]] == 0)
            return lc_fail(LC_ERR_SHAPE, "dimension %lld is empty: there is no minimum or maximum",
                           (long long)call->ints[2 + i]);
    return LC_OK;
}

static lc_status infer_arg(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__infer_attributes(call, 2, 0));
    LC_TRY(check_computable(call->in[0], true));
    const lc_type *x = call->in[0];
    if (call->ints[0] != -1) LC_TRY(lc__infer_dim(x, call->ints[0]));
    lc_type *y = &call->out[0];
    y->dtype = LC_I64;
    y->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = call->ints[0] == -1 || call->ints[0] == d;
        if (reduced && x->shape[d] == 0)
            return lc_fail(LC_ERR_SHAPE, "dimension %d is empty: there is no minimum or maximum", d);
        if (reduced && !call->ints[1]) continue;
        y->shape[y->ndim++] = reduced ? 1 : x->shape[d];
    }
    return LC_OK;
}

/* ---- gradients ---- */

/* A reduced value with the reduced dimensions put back as 1, so that it broadcasts against the input. */
static lc_tensor *with_dims(const lc_grad *g, lc_tensor *t)
{
    if (g->ints[0] || lc__is_bad(t)) return t;
    const lc_type *x = lc_tensor_type(g->in[0]);
    int64_t shape[LC_MAX_DIMS];
    for (int d = 0, r = 0; d < x->ndim; d++) {
        bool reduced = r < g->ints[1] && g->ints[2 + r] == d;
        r += reduced;
        shape[d] = reduced ? 1 : x->shape[d];
    }
    return lc_reshape_at(t, x->ndim, shape, LC_HERE);
}

static lc_tensor *expanded(const lc_grad *g, lc_tensor *t)
{
    const lc_type *x = lc_tensor_type(g->in[0]);
    return lc_expand_at(with_dims(g, t), x->ndim, x->shape, LC_HERE);
}

static int64_t reduced_count(const lc_grad *g)
{
    int64_t n = 1;
    for (int64_t i = 0; i < g->ints[1]; i++) n *= lc_tensor_shape(g->in[0])[g->ints[2 + i]];
    return n;
}

static lc_tensor *reduce_like(const lc_grad *g, lc_tensor *(*function)(const lc_reduce_args *, lc_site), lc_tensor *x)
{
    lc_reduce_args a = lc_reduce_defaults();
    a.x = x, a.keepdim = true, a.dims.n = (int)g->ints[1];
    for (int i = 0; i < a.dims.n; i++) a.dims.dim[i] = g->ints[2 + i];
    return a.dims.n ? function(&a, LC_HERE) : x;
}

static lc_status grad_sum(lc_grad *g)
{
    if (lc_dtype_is_float(lc_tensor_dtype(g->in[0]))) g->din[0] = expanded(g, g->dout[0]);
    return LC_OK;
}

static lc_status grad_mean(lc_grad *g)
{
    g->din[0] = expanded(g, lc_mul_scalar(g->dout[0], 1 / (double)reduced_count(g)));
    return LC_OK;
}

/* Shared equally among all elements that equal the extreme. */
static lc_status grad_extreme(lc_grad *g)
{
    lc_tensor *is = lc_cast(lc_eq(g->in[0], with_dims(g, g->out[0])), lc_tensor_dtype(g->in[0]));
    lc_tensor *share = lc_div(with_dims(g, g->dout[0]), reduce_like(g, lc_sum_at, is));
    g->din[0] = lc_mul(is, share);
    return LC_OK;
}

/* dvar times 2 (x - mean) / (n - correction) */
static lc_status through_variance(lc_grad *g, lc_tensor *dvar)
{
    lc_tensor *dy = lc_mul_scalar(with_dims(g, dvar), 2 / moment_divisor(reduced_count(g), g->ints));
    g->din[0] = lc_mul(dy, lc_sub(g->in[0], reduce_like(g, lc_mean_at, g->in[0])));
    return LC_OK;
}

static lc_status grad_var(lc_grad *g)
{
    return through_variance(g, g->dout[0]);
}

/* If all elements are equal the gradient is 0. */
static lc_status grad_std(lc_grad *g)
{
    return through_variance(g, lc__op2(&lc__op_root_of_var_backward, g->dout[0], g->out[0], LC_HERE));
}

static lc_status grad_norm(lc_grad *g)
{
    lc_tensor *in[] = {with_dims(g, g->dout[0]), g->in[0], with_dims(g, g->out[0])};
    g->din[0] = lc_op_call(&lc__op_norm_backward, 3, in, 0, NULL, 1, g->floats, LC_HERE);
    return LC_OK;
}

static lc_status grad_logsumexp(lc_grad *g)
{
    g->din[0] =
        lc__op3(&lc__op_logsumexp_backward, with_dims(g, g->dout[0]), g->in[0], with_dims(g, g->out[0]), LC_HERE);
    return LC_OK;
}

/* ---- the entries ---- */

#define REDUCTION(id, how, infer_function, ...)                                                                        \
    static void run_##id(const lc_call *call)                                                                          \
    {                                                                                                                  \
        how(call, finish_##id);                                                                                        \
    }                                                                                                                  \
    static const lc_kernel kernel_##id = {.name = "reference", .layout = LC_WANT_STRIDED, .run = run_##id};            \
    const lc_op lc__op_##id = {.name = #id, .n_out = 1, .infer = infer_function, .kernel = &kernel_##id, __VA_ARGS__};

REDUCTION(sum, reduce, infer_sum, .grad = grad_sum)
REDUCTION(mean, reduce, infer_float_reduce, .grad = grad_mean)
REDUCTION(amax, reduce, infer_extreme, .grad = grad_extreme)
REDUCTION(amin, reduce, infer_extreme, .grad = grad_extreme)
REDUCTION(var, reduce, infer_var, .grad = grad_var)
REDUCTION(std, reduce, infer_var, .grad = grad_std)
REDUCTION(norm, reduce, infer_norm, .grad = grad_norm)
REDUCTION(logsumexp, reduce, infer_float_reduce, .grad = grad_logsumexp)
REDUCTION(argmax, reduce_index, infer_arg, .flags = LC_OP_NO_GRAD)
REDUCTION(argmin, reduce_index, infer_arg, .flags = LC_OP_NO_GRAD)
