/* SPDX-License-Identifier: Apache-2.0 */
/* The values of tensors, read and written by the host. */
#include "record/graph_impl.h"
#include "tensor/initial.h"
#include "tensor/slice.h"

static lc_status check_host_bytes(const lc_tensor *t, size_t bytes, const char *what)
{
    size_t want = (size_t)lc__numel(&t->type) * lc_dtype_size(t->type.dtype);
    if (bytes == want) return LC_OK;
    char text[128];
    return lc_fail(LC_ERR_ARGUMENT, "%s: a tensor of %s %s has %zu bytes, not %zu%s", what,
                   lc_dtype_name(t->type.dtype), lc__shape_text(&t->type, text, sizeof text), want, bytes,
                   lc__at_site(lc__site_of(t)).text);
}

lc_status lc_tensor_read(lc_tensor *t, void *data, size_t bytes)
{
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    lc_view from, to;
    if (lc_tensor_is_error(t))
        return lc_fail(LC_ERR_ARGUMENT, "lc_tensor_read: the operation that made this tensor failed");
    LC_TRY(check_host_bytes(t, bytes, "lc_tensor_read"));
    LC_TRY(lc__graph_host_view(t, &from));
    lc__view_of(&t->type, LC_ROW_MAJOR, data, &to);
    lc__copy_strided(&from, &to);
    return LC_OK;
}

lc_status lc_tensor_write(lc_tensor *t, const void *data, size_t bytes)
{
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    lc_view from, to;
    if (lc_tensor_is_error(t) || t->kind == LC_TENSOR_STEP)
        return lc_fail(LC_ERR_ARGUMENT, "lc_tensor_write: only persistent tensors can be written");
    LC_TRY(check_host_bytes(t, bytes, "lc_tensor_write"));
    if (t->is_slice) {
        if (lc_current_graph()) LC_TRY(lc__graph_flush(lc_current_graph()));
        lc__record_host_write(t);
        return lc__tensor_write_slice(t, data);
    }
    lc__tensor_forget_initial(t);
    LC_TRY(lc__graph_host_view(t, &to));
    lc__record_host_write(t);
    lc__view_of(&t->type, LC_ROW_MAJOR, (void *)(uintptr_t)data, &from);
    lc__copy_strided(&from, &to);
    return LC_OK;
}

lc_status lc_tensor_gather(lc_tensor *t, void *data, size_t bytes)
{
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    if (lc_tensor_is_error(t))
        return lc_fail(LC_ERR_ARGUMENT, "lc_tensor_gather: the operation that made this tensor failed");
    LC_TRY(check_host_bytes(t, bytes, "lc_tensor_gather"));
    if (t->is_slice && lc_current_graph()) LC_TRY(lc__graph_flush(lc_current_graph()));
    return lc__tensor_gather(t, -1, data);
}

lc_status lc_item(lc_tensor *t, double *value)
{
    lc_view v;
    if (lc_tensor_is_error(t)) return lc_fail(LC_ERR_ARGUMENT, "lc_item: the operation that made this tensor failed");
    if (lc__numel(&t->type) != 1) {
        char text[128];
        return lc_fail(LC_ERR_ARGUMENT, "lc_item: the tensor has shape %s, not one element%s",
                       lc__shape_text(&t->type, text, sizeof text), lc__at_site(lc__site_of(t)).text);
    }
    LC_TRY(lc__graph_host_view(t, &v));
    switch (t->type.dtype) {
    case LC_F32:
        *value = *(const float *)v.data;
        break;
    case LC_F64:
        *value = *(const double *)v.data;
        break;
    case LC_I64:
        *value = (double)*(const int64_t *)v.data;
        break;
    case LC_I32:
        *value = *(const int32_t *)v.data;
        break;
    case LC_U8:
    case LC_BOOL:
        *value = *(const uint8_t *)v.data;
        break;
    default:
        return lc_fail(LC_ERR_UNSUPPORTED, "lc_item does not support %s", lc_dtype_name(t->type.dtype));
    }
    return LC_OK;
}
