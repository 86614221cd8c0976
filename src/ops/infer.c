/* SPDX-License-Identifier: Apache-2.0 */
/* Checks shared by the operators' type inference. */
#include "ops/infer.h"
#include "base/number.h"
#include "record/graph_impl.h"

#include <math.h>

lc_status lc__infer_operands(const lc_infer *call, int n)
{
    if (call->n_in != n) return lc_fail(LC_ERR_ARGUMENT, "takes %d operands, not %d", n, call->n_in);
    for (int i = 0; i < n; i++)
        if (!call->in[i]) return lc_fail(LC_ERR_ARGUMENT, "operand %d is missing (NULL)", i);
    return LC_OK;
}

lc_status lc__infer_attributes(const lc_infer *call, int ints, int floats)
{
    if (call->n_int < ints || call->n_float < floats)
        return lc_fail(LC_ERR_ARGUMENT, "needs %d integer and %d number attributes, got %d and %d", ints, floats,
                       call->n_int, call->n_float);
    return LC_OK;
}

lc_status lc__infer_float(const lc_infer *call, int i)
{
    lc_dtype d = call->in[i]->dtype;
    if (d == LC_F32 || d == LC_F64) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "operand %d is %s, but f32 or f64 is needed; convert it with lc_cast", i,
                   lc_dtype_name(d));
}

lc_status lc__infer_same_dtype(const lc_infer *call, int i, int j)
{
    lc_dtype a = call->in[i]->dtype, b = call->in[j]->dtype;
    if (a == b) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "operands %d and %d are %s and %s; convert one with lc_cast", i, j, lc_dtype_name(a),
                   lc_dtype_name(b));
}

lc_status lc__infer_index(const lc_infer *call, int i)
{
    lc_dtype d = call->in[i]->dtype;
    if (d == LC_I64 || d == LC_I32) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "operand %d holds indices and must be i64 or i32, not %s", i, lc_dtype_name(d));
}

lc_status lc__infer_dim(const lc_type *t, int64_t dim)
{
    if (dim >= 0 && dim < t->ndim) return LC_OK;
    char text[LC__SHAPE_TEXT];
    return lc_fail(LC_ERR_SHAPE, "dimension %lld is out of range for shape %s", (long long)dim,
                   lc__shape_text(t, text, sizeof text));
}

lc_status lc__infer_broadcast(const lc_infer *call, int first, int n, lc_type *out)
{
    int ndim = 0;
    for (int i = first; i < first + n; i++)
        if (call->in[i]->ndim > ndim) ndim = call->in[i]->ndim;
    out->ndim = ndim;
    for (int d = 0; d < ndim; d++) out->shape[d] = 1;
    for (int i = first; i < first + n; i++) {
        const lc_type *t = call->in[i];
        for (int d = 0; d < t->ndim; d++) {
            int64_t *to = &out->shape[d + ndim - t->ndim];
            if (t->shape[d] == *to || t->shape[d] == 1) continue;
            if (*to != 1) {
                char text[LC__SHAPE_TEXT];
                return lc_fail(
                    LC_ERR_SHAPE,
                    "shapes do not broadcast: dimension %d from the end is %lld in %s but %lld in an earlier operand",
                    t->ndim - d, (long long)t->shape[d], lc__shape_text(t, text, sizeof text), (long long)*to);
            }
            *to = t->shape[d];
        }
    }
    return LC_OK;
}

lc_status lc__infer_value(double value, lc_dtype dtype)
{
    if (lc__number_fits(value, dtype)) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%g does not fit %s", value, lc_dtype_name(dtype));
}

lc_status lc__infer_scalar(double value, lc_dtype dtype)
{
    if (lc_dtype_is_float(dtype) || (value == rint(value) && lc__number_fits(value, LC_I64))) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "%g is not an integer%s, but x is %s; convert it with lc_cast", value,
                   value == rint(value) && isfinite(value) ? " of 64 bits" : "", lc_dtype_name(dtype));
}

lc_status lc__infer_nothing(lc_infer *call)
{
    call->n_out = 0;
    return LC_OK;
}

lc_status lc__infer_same(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

int64_t lc__type_numel(const lc_type *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] == 0) return 0;
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(n, t->shape[d], &n)) return -1;
    return n;
}

int64_t lc__wrap_dim(int64_t dim, int ndim)
{
    return dim < 0 && dim + ndim >= 0 ? dim + ndim : dim;
}

lc_tensor *lc__unchanged(lc_tensor *x, lc_site site)
{
    const lc_graph *g = lc_current_graph();
    return g && g->no_grad && lc_tensor_requires_grad(x) ? lc_detach_at(x, site) : x;
}

bool lc__is_bad(const lc_tensor *x)
{
    return !x || lc_tensor_is_error(x);
}
