/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors whose f32 values are stored in another type: in 16 bits, or as f64. */
#include "base/number.h"
#include "tensor/host_access.h"
#include "tensor/initial.h"

#include <stdlib.h>
#include <string.h>

static void convert_dims(const lc_view *from, const lc_view *to, int dim, int64_t f, int64_t t)
{
    if (dim == to->ndim) {
        lc__set_number(to->data, to->dtype, t, lc__number_at(from->data, from->dtype, f));
        return;
    }
    for (int64_t i = 0; i < to->shape[dim]; i++)
        convert_dims(from, to, dim + 1, f + i * from->stride[dim], t + i * to->stride[dim]);
}

void lc__convert_strided(const lc_view *from, const lc_view *to)
{
    if (from->dtype == to->dtype)
        lc__copy_strided(from, to);
    else
        convert_dims(from, to, 0, 0, 0);
}

lc_status lc__tensor_raw(lc_tensor *t, lc_tensor **view)
{
    const lc_tensor *v = *view;
    if (v && v->base == t && v->device_data == t->device_data && v->type.dtype == t->type.dtype) return LC_OK;
    lc_tensor_unref(*view);
    *view = NULL;
    return lc__tensor_range(t, 0, &t->type, t->layout, view);
}

lc_status lc__tensor_seen_as(lc_tensor *t, const lc_tensor *like)
{
    if (!like->seen) return LC_OK;
    t->seen = malloc(sizeof *t->seen);
    if (!t->seen) return lc_fail(LC_ERR_MEMORY, "out of memory: a type");
    *t->seen = *like->seen;
    return LC_OK;
}

/* The values of t, in the order of its memory, as `type`. */
static lc_status converted(lc_tensor *t, const lc_type *type, void **out)
{
    lc_view from, to;
    *out = malloc((size_t)lc__numel(type) * lc_dtype_size(type->dtype) + 1);
    if (!*out) return lc_fail(LC_ERR_MEMORY, "out of memory: a tensor as %s", lc_dtype_name(type->dtype));
    lc_status status = lc__tensor_map(t, LC__READ, &from);
    if (status < 0) {
        free(*out);
        return status;
    }
    lc__view_of(type, t->layout, *out, &to);
    lc__convert_strided(&from, &to);
    lc__tensor_unmap(t, LC__READ);
    return LC_OK;
}

lc_status lc__tensor_store(lc_tensor *t, lc_dtype dtype)
{
    if (t->kind != LC_TENSOR_PERSISTENT || lc__seen_type(t)->dtype != LC_F32 || t->type.dtype == dtype) return LC_OK;
    if (t->is_slice) return lc_fail(LC_ERR_STATE, "a tensor cannot change its type while ranks have slices of it");
    lc_type type = t->type, *seen = NULL;
    lc_tensor *base = NULL;
    void *values = NULL;
    lc_status status = LC_OK;
    type.dtype = dtype;
    if (!t->initial) LC_TRY(converted(t, &type, &values)); /* an initial value is made in the new type */
    LC_TRY_GOTO(status, done, lc__tensor_reserve_on(t->on, &type, t->layout, &base));
    if (values)
        LC_TRY_GOTO(status, done, lc__device_copy(t->on, base->device_data, lc__host_device(), values, base->bytes));
    if (dtype != LC_F32 && !(seen = malloc(sizeof *seen)))
        LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: a type"));
    if (seen) *seen = *lc__seen_type(t);
    free(t->seen);
    t->seen = seen;
    lc__flat_leave(t);
    lc__tensor_rehome(t, base, 0);
    t->type = type;
    t->bytes = base->bytes;
done:
    lc_tensor_unref(base);
    free(values);
    return status;
}
