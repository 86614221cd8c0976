/* SPDX-License-Identifier: Apache-2.0 */
/* The elementwise operators: entries and reference kernels, made from elementwise_table.h (add new ones there).
 *
 * A kernel is one function per data type that works on a row; operands come with any strides. f32 is computed in double
 * and rounded once, so that the fast kernels can be measured against these. */
#include "ops/elementwise.h"

#include "base/number.h"
#include "ops/ops.h"
#include "ops/fused.h"
#include "ops/elementwise_math.h"
#include "ops/infer.h"
#include "ops/walk.h"

/* data[0] is the result, data[1...] the operands; steps in bytes. */
typedef void row_fn(int64_t n, char *const *data, const int64_t *step, const double *p, const int64_t *k);

/* Index in the tables of row functions. */
#define DTYPES 9

#define AT(type, operand) (*(const type *)(data[operand] + i * step[operand]))
#define ROW(name, n_in, in0, in1, in2, out, T, expr)                                                                   \
    static void name(int64_t n, char *const *data, const int64_t *step, const double *p, const int64_t *k)             \
    {                                                                                                                  \
        typedef T number __attribute__((unused));                                                                      \
        (void)p, (void)k;                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T a = (T)AT(in0, 1);                                                                                 \
            const T b = (n_in) > 1 ? (T)AT(in1, (n_in) > 1 ? 2 : 1) : 0;                                               \
            const T c = (n_in) > 2 ? (T)AT(in2, (n_in) > 2 ? 3 : 1) : 0;                                               \
            (void)b, (void)c;                                                                                          \
            *(out *)(data[0] + i * step[0]) = (out)(expr);                                                             \
        }                                                                                                              \
    }
#define S(i) ((number)p[i])

#define ROWS_FLOAT(name, n, expr)                                                                                      \
    ROW(name##_f32, n, float, float, float, float, double, expr)                                                       \
    ROW(name##_f64, n, double, double, double, double, double, expr)                                                   \
    static row_fn *const name##_rows[DTYPES] = {[LC_F32] = name##_f32, [LC_F64] = name##_f64};
#define ROWS_ARITH(name, n, expr)                                                                                      \
    ROW(name##_f32, n, float, float, float, float, double, expr)                                                       \
    ROW(name##_f64, n, double, double, double, double, double, expr)                                                   \
    ROW(name##_i64, n, int64_t, int64_t, int64_t, int64_t, int64_t, expr)                                              \
    ROW(name##_i32, n, int32_t, int32_t, int32_t, int32_t, int64_t, expr)                                              \
    ROW(name##_u8, n, uint8_t, uint8_t, uint8_t, uint8_t, int64_t, expr)                                               \
    static row_fn *const name##_rows[DTYPES] = {[LC_F32] = name##_f32,                                                 \
                                                [LC_F64] = name##_f64,                                                 \
                                                [LC_I64] = name##_i64,                                                 \
                                                [LC_I32] = name##_i32,                                                 \
                                                [LC_U8] = name##_u8};
#define ROWS_COMPARE(name, n, expr)                                                                                    \
    ROW(name##_f32, n, float, float, float, uint8_t, double, (expr) ? 1 : 0)                                           \
    ROW(name##_f64, n, double, double, double, uint8_t, double, (expr) ? 1 : 0)                                        \
    ROW(name##_i64, n, int64_t, int64_t, int64_t, uint8_t, int64_t, (expr) ? 1 : 0)                                    \
    ROW(name##_i32, n, int32_t, int32_t, int32_t, uint8_t, int64_t, (expr) ? 1 : 0)                                    \
    ROW(name##_u8, n, uint8_t, uint8_t, uint8_t, uint8_t, int64_t, (expr) ? 1 : 0)                                     \
    static row_fn *const name##_rows[DTYPES] = {[LC_F32] = name##_f32, [LC_F64] = name##_f64, [LC_I64] = name##_i64,   \
                                                [LC_I32] = name##_i32, [LC_U8] = name##_u8,   [LC_BOOL] = name##_u8};
/* Elements are only copied, so data types of equal size share a function. */
#define ROWS_SELECT(name, n, expr)                                                                                     \
    ROW(name##_8, n, uint8_t, uint8_t, uint8_t, uint8_t, uint64_t, expr)                                               \
    ROW(name##_16, n, uint8_t, uint16_t, uint16_t, uint16_t, uint64_t, expr)                                           \
    ROW(name##_32, n, uint8_t, uint32_t, uint32_t, uint32_t, uint64_t, expr)                                           \
    ROW(name##_64, n, uint8_t, uint64_t, uint64_t, uint64_t, uint64_t, expr)                                           \
    static row_fn *const name##_rows[DTYPES] = {                                                                       \
        [LC_F32] = name##_32, [LC_F64] = name##_64, [LC_F16] = name##_16, [LC_BF16] = name##_16,                       \
        [LC_I64] = name##_64, [LC_I32] = name##_32, [LC_U8] = name##_8,   [LC_BOOL] = name##_8};
#define ROWS_FILL(name, n, expr)                                                                                       \
    ROW(name##_f32, n, float, uint8_t, uint8_t, float, double, expr)                                                   \
    ROW(name##_f64, n, double, uint8_t, uint8_t, double, double, expr)                                                 \
    ROW(name##_i64, n, int64_t, uint8_t, uint8_t, int64_t, int64_t, expr)                                              \
    ROW(name##_i32, n, int32_t, uint8_t, uint8_t, int32_t, int64_t, expr)                                              \
    ROW(name##_u8, n, uint8_t, uint8_t, uint8_t, uint8_t, int64_t, expr)                                               \
    static row_fn *const name##_rows[DTYPES] = {[LC_F32] = name##_f32, [LC_F64] = name##_f64, [LC_I64] = name##_i64,   \
                                                [LC_I32] = name##_i32, [LC_U8] = name##_u8,   [LC_BOOL] = name##_u8};

static void run_rows(const lc_call *call, row_fn *const *rows, int typed)
{
    lc__walk w;
    const lc_view *v[4] = {&call->out[0]};
    for (int i = 0; i < call->n_in; i++) v[1 + i] = &call->in[i];
    row_fn *row = rows[call->in[typed].dtype];
    lc__walk_start(&w, call->out[0].ndim, call->out[0].shape, 1 + call->n_in, v);
    while (lc__walk_next(&w)) row(w.length, w.data, w.step, call->floats, call->ints);
}

/* Which operand's data type chooses the row function. */
enum { TYPED_FLOAT = 0, TYPED_ARITH = 0, TYPED_COMPARE = 0, TYPED_SELECT = 1, TYPED_FILL = 0 };

#define KERNEL(id, kind, n, expr)                                                                                      \
    ROWS_##kind(id, n, expr) static void id##_run(const lc_call *call)                                                 \
    {                                                                                                                  \
        run_rows(call, id##_rows, TYPED_##kind);                                                                       \
    }                                                                                                                  \
    static const lc_kernel id##_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = id##_run};
#define KERNEL_FLOAT(id, n, expr)   KERNEL(id, FLOAT, n, expr)
#define KERNEL_ARITH(id, n, expr)   KERNEL(id, ARITH, n, expr)
#define KERNEL_COMPARE(id, n, expr) KERNEL(id, COMPARE, n, expr)
#define KERNEL_SELECT(id, n, expr)  KERNEL(id, SELECT, n, expr)
#define KERNEL_FILL(id, n, expr)    KERNEL(id, FILL, n, expr)
#define KERNEL_CAST(id, n, expr)                                                                                       \
    static const lc_kernel id##_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = lc__cast_run};

/* ---- type inference ---- */

static lc_status infer_typed(lc_infer *call, int n_in, int n_float, bool integers, bool bools)
{
    LC_TRY(lc__infer_operands(call, n_in));
    LC_TRY(lc__infer_attributes(call, 0, n_float));
    lc_dtype d = call->in[0]->dtype;
    if (d == LC_BOOL && !bools)
        return lc_fail(LC_ERR_DTYPE, "operand 0 is bool, which does not support arithmetic; convert it with lc_cast");
    for (int i = 1; i < n_in; i++) LC_TRY(lc__infer_same_dtype(call, i, 0));
    if (!integers || lc__is_half(d)) LC_TRY(lc__infer_float(call, 0)); /* halves were converted before */
    call->out[0].dtype = d;
    return lc__infer_broadcast(call, 0, n_in, &call->out[0]);
}

static lc_status infer_FLOAT(lc_infer *call, int n_in, int n_float)
{
    return infer_typed(call, n_in, n_float, false, false);
}

static lc_status infer_ARITH(lc_infer *call, int n_in, int n_float)
{
    LC_TRY(infer_typed(call, n_in, n_float, true, false));
    for (int i = 0; i < n_float; i++) LC_TRY(lc__infer_scalar(call->floats[i], call->out[0].dtype));
    return LC_OK;
}

static lc_status infer_COMPARE(lc_infer *call, int n_in, int n_float)
{
    LC_TRY(infer_typed(call, n_in, n_float, true, true));
    call->out[0].dtype = LC_BOOL;
    return LC_OK;
}

static lc_status check_mask(const lc_infer *call, int i)
{
    lc_dtype d = call->in[i]->dtype;
    if (d == LC_BOOL || d == LC_U8) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "operand %d is a condition and must be bool or u8, not %s; use a comparison", i,
                   lc_dtype_name(d));
}

static lc_status infer_SELECT(lc_infer *call, int n_in, int n_float)
{
    LC_TRY(lc__infer_operands(call, n_in));
    LC_TRY(lc__infer_attributes(call, 0, n_float));
    LC_TRY(check_mask(call, 0));
    LC_TRY(lc__infer_same_dtype(call, 1, 2));
    call->out[0].dtype = call->in[1]->dtype;
    return lc__infer_broadcast(call, 0, n_in, &call->out[0]);
}

static lc_status infer_FILL(lc_infer *call, int n_in, int n_float)
{
    LC_TRY(lc__infer_operands(call, n_in));
    LC_TRY(lc__infer_attributes(call, 0, n_float));
    LC_TRY(check_mask(call, 1));
    if (lc__is_half(call->in[0]->dtype)) LC_TRY(lc__infer_float(call, 0)); /* halves were converted before */
    call->out[0].dtype = call->in[0]->dtype;
    return lc__infer_broadcast(call, 0, n_in, &call->out[0]);
}

static lc_status infer_CAST(lc_infer *call, int n_in, int n_float)
{
    LC_TRY(lc__infer_operands(call, n_in));
    LC_TRY(lc__infer_attributes(call, 1, n_float));
    call->out[0] = *call->in[0];
    call->out[0].dtype = (lc_dtype)call->ints[0];
    if (!lc_dtype_size(call->out[0].dtype))
        return lc_fail(LC_ERR_DTYPE, "unknown data type %lld", (long long)call->ints[0]);
    return LC_OK;
}

/* ---- the entries ---- */

#define GRAD_FN_NONE(name)
#define GRAD_FN_OWN(name)
#define GRAD_FN_ZERO(name)
#define GRAD_FN_BY_X(name)                                                                                             \
    static lc_status name##_grad(lc_grad *g)                                                                           \
    {                                                                                                                  \
        return lc__grad_by(g, &lc__op_##name##_backward, g->in[0]);                                                    \
    }
#define GRAD_FN_BY_Y(name)                                                                                             \
    static lc_status name##_grad(lc_grad *g)                                                                           \
    {                                                                                                                  \
        return lc__grad_by(g, &lc__op_##name##_backward, g->out[0]);                                                   \
    }
#define GRAD_NONE(name) .flags = LC_OP_ELEMENTWISE | LC_OP_NO_GRAD
#define GRAD_ZERO(name) .flags = LC_OP_ELEMENTWISE, .grad = lc__grad_zero
#define GRAD_BY_X(name) .flags = LC_OP_ELEMENTWISE, .grad = name##_grad
#define GRAD_BY_Y(name) .flags = LC_OP_ELEMENTWISE, .grad = name##_grad
#define GRAD_OWN(name)  .flags = LC_OP_ELEMENTWISE, .grad = lc__grad_##name

#define ENTRY(name, n_inputs, n_floats, kind, gradient, expr)                                                          \
    KERNEL_##kind(name, n_inputs, expr) static lc_status name##_infer(lc_infer *call)                                  \
    {                                                                                                                  \
        return infer_##kind(call, n_inputs, n_floats);                                                                 \
    }                                                                                                                  \
    GRAD_FN_##gradient(name) const lc_op lc__op_##name = {#name, .n_out = 1, .infer = name##_infer,                    \
                                                          .kernel = &name##_kernel, GRAD_##gradient(name)};

/* a != a is the test for NaN, and never true for integers. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtautological-compare"
LC_ELEMENTWISE_LIST(ENTRY)
#pragma GCC diagnostic pop

#define ADDRESS(name, ...) &lc__op_##name,
const lc_op *const lc__elementwise_table[] = {LC_ELEMENTWISE_LIST(ADDRESS)};
const int lc__elementwise_count = sizeof lc__elementwise_table / sizeof lc__elementwise_table[0];

int lc__elementwise_index(const lc_op *op)
{
    for (int i = 0; i < lc__elementwise_count; i++)
        if (lc__elementwise_table[i] == op) return i;
    return -1;
}
