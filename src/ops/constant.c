/* SPDX-License-Identifier: Apache-2.0 */
/* Operators without operands: full (ints dtype, shape; floats value), arange (ints dtype, n; floats start, step),
 * scalar (ints dtype; floats value: a tensor of no dimensions). Their floats may change from step to step. And assign
 * (target, value): the one that writes its operand. */
#include "ops/infer.h"
#include "record/graph_impl.h"
#include "base/number.h"
#include "ops/ops.h"
#include "ops/walk.h"

static lc_status infer_constant(lc_infer *call, int floats)
{
    LC_TRY(lc__infer_operands(call, 0));
    LC_TRY(lc__infer_attributes(call, 1, floats));
    lc_type *y = &call->out[0];
    y->dtype = (lc_dtype)call->ints[0];
    if (!lc_dtype_size(y->dtype)) return lc_fail(LC_ERR_DTYPE, "unknown data type %lld", (long long)call->ints[0]);
    y->ndim = call->n_int - 1;
    if (y->ndim > LC_MAX_DIMS)
        return lc_fail(LC_ERR_SHAPE, "%d dimensions; at most %d are allowed", y->ndim, LC_MAX_DIMS);
    for (int d = 0; d < y->ndim; d++) {
        y->shape[d] = call->ints[1 + d];
        if (y->shape[d] < 0)
            return lc_fail(LC_ERR_SHAPE, "dimension %d has the invalid size %lld", d, (long long)y->shape[d]);
    }
    if (lc__type_numel(y) < 0) return lc_fail(LC_ERR_SHAPE, "the result is too large");
    return LC_OK;
}

static lc_status infer_full(lc_infer *call)
{
    return infer_constant(call, 1);
}

static lc_status infer_arange(lc_infer *call)
{
    LC_TRY(lc__infer_attributes(call, 2, 2));
    return infer_constant(call, 2);
}

/* full and scalar */
static void fill_run(const lc_call *call)
{
    const lc_view *y = &call->out[0];
    char value[8];
    if (y->ndim == 0) {
        lc__store_number(y->data, y->dtype, call->floats[0]);
        return;
    }
    lc__store_number(value, y->dtype, call->floats[0]);
    lc_view fill = {.data = value, .dtype = y->dtype};
    lc__copy_view(y, &fill);
}

static void arange_run(const lc_call *call)
{
    const lc_view *y = &call->out[0];
    int64_t step = y->stride[0] * (int64_t)lc_dtype_size(y->dtype);
    for (int64_t i = 0; i < y->shape[0]; i++)
        lc__store_number((char *)y->data + i * step, y->dtype, call->floats[0] + call->floats[1] * (double)i);
}

static void assign_run(const lc_call *call)
{
    lc__copy_view(&call->in[0], &call->in[1]);
}

static lc_status assign_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 2));
    LC_TRY(lc__infer_same_dtype(call, 0, 1));
    const lc_type *to = call->in[0], *value = call->in[1];
    bool same = to->ndim == value->ndim;
    for (int d = 0; same && d < to->ndim; d++) same = to->shape[d] == value->shape[d];
    char a[LC__SHAPE_TEXT], b[LC__SHAPE_TEXT];
    if (!same)
        return lc_fail(LC_ERR_SHAPE, "the target is %s but the value %s", lc__shape_text(to, a, sizeof a),
                       lc__shape_text(value, b, sizeof b));
    call->n_out = 0;
    return LC_OK;
}

static const lc_kernel fill_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = fill_run};
static const lc_kernel arange_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = arange_run};
static const lc_kernel assign_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = assign_run};

const lc_op lc__op_full = {
    .name = "full", .flags = LC_OP_NO_GRAD, .n_out = 1, .infer = infer_full, .kernel = &fill_kernel};
const lc_op lc__op_scalar = {
    .name = "scalar", .flags = LC_OP_NO_GRAD, .n_out = 1, .infer = infer_full, .kernel = &fill_kernel};
const lc_op lc__op_arange = {
    .name = "arange", .flags = LC_OP_NO_GRAD, .n_out = 1, .infer = infer_arange, .kernel = &arange_kernel};
const lc_op lc__op_assign = {.name = "assign",
                             .inputs = "target value",
                             .flags = LC_OP_NO_GRAD | LC_OP_MUTATES,
                             .n_out = 0,
                             .infer = assign_infer,
                             .mutated_inputs = 1,
                             .kernel = &assign_kernel};

/* ---- functions ---- */

static int64_t known(lc_dtype dtype)
{
    return dtype == LC_DTYPE_DEFAULT ? LC_F32 : dtype;
}

/* Asked in every step: a step that repeats its plan may bring another value. */
static bool takes_value(double value, lc_dtype dtype, const char *name, lc_site site)
{
    lc_status status = lc__infer_value(value, (lc_dtype)known(dtype));
    if (status < 0) lc__refuse_call(status, name, site);
    return status >= 0;
}

static lc_tensor *full(const char *name, double value, lc_dtype dtype, int ndim, const int64_t *shape, lc_site site)
{
    int64_t ints[1 + LC_MAX_DIMS] = {known(dtype)};
    if (ndim > 0 && !shape) {
        lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, "shape is NULL"), name, site);
        return lc__error_tensor();
    }
    if (!takes_value(value, dtype, name, site)) return lc__error_tensor();
    if (ndim < 0 || ndim > LC_MAX_DIMS) ints[1] = ndim = -1; /* reported as a size below 0 */
    for (int d = 0; d < ndim; d++) ints[1 + d] = shape[d];
    return lc_op_call(&lc__op_full, 0, NULL, ndim < 0 ? 2 : 1 + ndim, ints, 1, &value, site);
}

lc_tensor *lc_full_at(double value, lc_dtype dtype, int ndim, const int64_t *shape, lc_site site)
{
    return full("full", value, dtype, ndim, shape, site);
}

lc_tensor *lc_full_like_at(lc_tensor *x, double value, lc_site site)
{
    if (lc__is_bad(x)) return lc__op1(&lc__op_full, x, site);
    const lc_type *t = lc_tensor_type(x);
    return full("full_like", value, t->dtype, t->ndim, t->shape, site);
}

lc_tensor *lc_scalar_at(double value, lc_dtype dtype, lc_site site)
{
    int64_t d = known(dtype);
    if (!takes_value(value, dtype, "scalar", site)) return lc__error_tensor();
    return lc_op_call(&lc__op_scalar, 0, NULL, 1, &d, 1, &value, site);
}

lc_tensor *lc_arange_at(double start, double step, int64_t n, lc_dtype dtype, lc_site site)
{
    int64_t ints[] = {known(dtype), n};
    double floats[] = {start, step}, last = start + step * (double)(n - 1);
    if (n > 0 && (!takes_value(start, dtype, "arange", site) || !takes_value(last, dtype, "arange", site)))
        return lc__error_tensor();
    return lc_op_call(&lc__op_arange, 0, NULL, 2, ints, 2, floats, site);
}

void lc_assign_at(lc_tensor *target, lc_tensor *value, lc_site site)
{
    if (!lc__check_tensor(target, "target", "assign", site) || !lc__check_tensor(value, "value", "assign", site))
        return;
    lc__op2(&lc__op_assign, target, value, site);
}
