/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and compositions that several operators of neural networks use. */
#include "ops/nn_util.h"

#include <stdio.h>

#include "record/graph_impl.h"

lc_tensor *lc__transpose_last(lc_tensor *x, lc_site site)
{
    if (lc__unusable(x)) return x;
    int n = lc_tensor_ndim(x);
    int64_t dims[LC_MAX_DIMS];
    for (int d = 0; d < n; d++) dims[d] = d;
    dims[n - 2] = n - 1;
    dims[n - 1] = n - 2;
    return lc_op_call(&lc__op_permute, LC_IN(x), n, dims, LC_NONE, site);
}

lc_tensor *lc__to_matrix(lc_tensor *x, int keep, lc_site site)
{
    if (lc__unusable(x)) return x;
    const lc_type *t = lc_tensor_type(x);
    if (t->ndim == 2 && keep == 1) return x;
    return lc__reshape(x, 2, (int64_t[]){lc__extent(t, 0, t->ndim - keep), lc__extent(t, t->ndim - keep, t->ndim)},
                       site);
}

lc_tensor *lc__over_channels(lc_tensor *v, lc_tensor *x)
{
    int n = lc_tensor_ndim(x);
    int64_t shape[LC_MAX_DIMS];
    for (int d = 0; d < n; d++) shape[d] = 1;
    shape[0] = lc_tensor_dim(x, 1);
    return lc__reshape(v, n - 1, shape, LC_HERE);
}

lc_tensor *lc__sum_but(lc_tensor *x, int dim, lc_site site)
{
    if (lc__unusable(x)) return x;
    int n = lc_tensor_ndim(x);
    if (n == 1) return x;
    int64_t ints[LC_MAX_DIMS + 2] = {0, n - 1};
    int count = 2;
    for (int d = 0; d < n; d++)
        if (d != dim) ints[count++] = d;
    return lc_op_call(&lc__op_sum, LC_IN(x), count, ints, LC_NONE, site);
}

bool lc__is_given(lc_tensor *x, const char *what, const char *name, lc_site site)
{
    if (!lc__check_tensor(x, what, name, site)) return false;
    if (!lc_tensor_is_error(x)) return true;
    lc_graph *g = lc_current_graph();
    if (g && g->status == LC_OK)
        lc__refuse_call(lc_fail(LC_ERR_STATE, "%s is the result of a failed operation: %s", what, lc_error_message()),
                        name, site);
    return false;
}

lc_tensor *lc__refuse(lc_status status, const char *name, lc_tensor *x, lc_site site)
{
    lc__record_error(lc_current_graph(), status, name, site, NULL, &x, 1);
    return lc__error_tensor();
}

lc_status lc__check_call(const lc_infer *call, int n_in, unsigned required, int n_int, int n_float)
{
    if (call->n_in != n_in)
        return lc_fail(LC_ERR_ARGUMENT, "takes %d inputs (NULL for those not given), got %d", n_in, call->n_in);
    if ((n_int >= 0 && call->n_int != n_int) || (n_int < 0 && call->n_int < -n_int))
        return lc_fail(LC_ERR_ARGUMENT, "takes %s%d integer attributes, got %d", n_int < 0 ? "at least " : "",
                       n_int < 0 ? -n_int : n_int, call->n_int);
    if (call->n_float != n_float)
        return lc_fail(LC_ERR_ARGUMENT, "takes %d float attributes, got %d", n_float, call->n_float);
    for (int i = 0; i < n_in; i++)
        if (required >> i & 1 && !call->in[i]) {
            char what[80];
            lc__input_title(call->op->inputs, i, what, sizeof what);
            return lc_fail(LC_ERR_ARGUMENT, "%s is NULL", what);
        }
    return LC_OK;
}

lc_status lc__check_float(const lc_infer *call, int i, const char *name)
{
    lc_dtype dtype = call->in[i]->dtype;
    if (dtype == LC_F32 || dtype == LC_F64) return LC_OK;
    if (lc_dtype_is_float(dtype)) /* halves were converted before, unless there is an f64 */
        return lc_fail(LC_ERR_DTYPE, "%s is %s, which cannot be combined with f64; cast one of them", name,
                       lc_dtype_name(dtype));
    return lc_fail(LC_ERR_DTYPE, "%s is %s, but must be f32, f64, f16 or bf16; cast it", name, lc_dtype_name(dtype));
}

lc_status lc__check_dtype_of(const lc_infer *call, int i, const char *name, int of, const char *of_name)
{
    if (!call->in[i] || call->in[i]->dtype == call->in[of]->dtype) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "%s is %s but %s is %s; cast one of them", name, lc_dtype_name(call->in[i]->dtype),
                   of_name, lc_dtype_name(call->in[of]->dtype));
}

lc_status lc__check_vector(const lc_infer *call, int i, const char *name, int64_t n, const char *what)
{
    const lc_type *t = call->in[i];
    if (!t) return LC_OK;
    if (t->ndim == 1 && t->shape[0] == n) return LC_OK;
    if (t->ndim != 1)
        return lc_fail(LC_ERR_SHAPE, "%s must have 1 dimension with %lld %s, has %d dimensions", name, (long long)n,
                       what, t->ndim);
    return lc_fail(LC_ERR_SHAPE, "%s has %lld elements, but there are %lld %s", name, (long long)t->shape[0],
                   (long long)n, what);
}

lc_status lc__check_index(const lc_infer *call, int i, const char *name)
{
    lc_dtype dtype = call->in[i]->dtype;
    if (dtype == LC_I64 || dtype == LC_I32) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "%s must be i64 or i32, is %s", name, lc_dtype_name(dtype));
}

static const char *shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int d = 0; d < ndim && n < size; d++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? "," : "", (long long)shape[d]);
    return text;
}

lc_status lc__check_shape(const lc_infer *call, int i, const char *name, int ndim, const int64_t *shape)
{
    const lc_type *t = call->in[i];
    if (!t) return LC_OK;
    if (t->ndim == ndim && !memcmp(t->shape, shape, (size_t)ndim * sizeof *shape)) return LC_OK;
    char want[128], got[128];
    return lc_fail(LC_ERR_SHAPE, "%s must be [%s], is [%s]", name, shape_text(ndim, shape, want, sizeof want),
                   shape_text(t->ndim, t->shape, got, sizeof got));
}

void lc__set_type(lc_type *out, lc_dtype dtype, int ndim, const int64_t *shape)
{
    memset(out, 0, sizeof *out);
    out->dtype = dtype;
    out->ndim = ndim;
    if (ndim) memcpy(out->shape, shape, (size_t)ndim * sizeof *shape);
}

int64_t lc__extent(const lc_type *type, int first, int last)
{
    int64_t n = 1;
    for (int d = first; d < last; d++) n *= type->shape[d];
    return n;
}
