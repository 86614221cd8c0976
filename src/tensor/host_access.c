/* SPDX-License-Identifier: Apache-2.0 */
/* The values of tensors, read and written by the host. */
#include "tensor/host_access.h"

#include "base/number.h"
#include "tensor/initial.h"
#include "tensor/low.h"
#include "tensor/slice.h"

#include <stdio.h>
#include <stdlib.h>

_Thread_local lc_graph *lc__current; /* a thread's only binding: the graph it records into */

static const lc__host_ops *ops_of(const lc_graph *g)
{
    return ((const lc__recorder *)g)->host;
}

lc_tensor *lc__tensor_own(lc_tensor *t)
{
    return t->replicas && lc__current ? ops_of(lc__current)->own(t) : t;
}

lc_status lc__tensor_run(lc_tensor *t)
{
    return lc__current ? ops_of(lc__current)->run(t) : LC_OK;
}

bool lc__tensor_keep(lc_tensor *t)
{
    return lc__current && ops_of(lc__current)->keep(t);
}

lc_status lc__tensor_wait(lc_tensor *t)
{
    LC_TRY(lc__tensor_run(t));
    return lc__current ? ops_of(lc__current)->wait(lc__current) : LC_OK;
}

lc_status lc__tensor_find(lc_tensor *t, lc_view *out, const lc_device **on)
{
    return t->graph ? ops_of(t->graph)->find(t, out, on) : lc__tensor_expired();
}

lc_status lc__tensor_expired(void)
{
    return lc_fail(LC_ERR_STATE,
                   "this tensor is a result of an earlier step, which has expired; read it in its step, or "
                   "lc_assign it to a persistent tensor to carry it over");
}

lc_status lc__input_check(const lc_tensor *input)
{
    char shape[128];
    if (__builtin_expect(input->kind != LC_TENSOR_INPUT || input->device_data || !input->bytes, 1)) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "an input tensor of %s %s has no data (NULL); give it memory with lc_input_set",
                   lc_dtype_name(input->type.dtype), lc__shape_text(&input->type, shape, sizeof shape));
}

lc_status lc__tensor_map(lc_tensor *t, lc__access access, lc_view *out)
{
    t = lc__tensor_own(t);
    const lc_device *on = t->on;
    if (t->kind == LC_TENSOR_STEP) {
        LC_TRY(lc__tensor_find(t, out, &on));
        LC_TRY(ops_of(t->graph)->wait(t->graph));
        return lc__on_host(on) ? LC_OK : lc__mirror_map(t, on, access, out);
    }
    LC_TRY(lc__input_check(t));
    LC_TRY(lc__tensor_wait(t));
    if (access & LC__READ)
        LC_TRY(lc__tensor_fill(t));
    else
        lc__tensor_forget_initial(t);
    const lc_type slice = {.dtype = t->type.dtype, .ndim = 1, .shape = {t->slice_count}};
    lc__view_of(t->is_slice ? &slice : &t->type, t->layout, t->device_data, out);
    return lc__on_host(on) ? LC_OK : lc__mirror_map(t, on, access, out);
}

void lc__tensor_unmap(lc_tensor *t, lc__access access)
{
    t = lc__tensor_own(t);
    if (t->maps) lc__mirror_unmap(t, access);
    if (!(access & LC__WRITE)) return;
    lc__tensor_written(t);
    if (lc__current) ops_of(lc__current)->wrote(t);
}

lc_status lc__tensor_broadcast(lc_tensor *t, lc_comm *comm, int root)
{
    lc_view v;
    LC_TRY(lc__tensor_map(t, LC__READ_WRITE, &v));
    lc_status status = lc_comm_broadcast(comm, v.data, lc__numel(&t->type), v.dtype, root, NULL);
    lc__tensor_unmap(t, LC__READ_WRITE);
    return status;
}

void *lc__tensor_address(const lc_tensor *t)
{
    return t->device_data;
}

/* The place in the program that made t, for messages. */
static lc__site_text site_text(const lc_tensor *t)
{
    return lc__at_site(lc__current ? ops_of(lc__current)->site(t) : (lc_site){0});
}

static lc_status check_host_bytes(const lc_tensor *t, size_t bytes, const char *what)
{
    const lc_type *seen = lc__seen_type(t);
    size_t want = (size_t)lc__numel(seen) * lc_dtype_size(seen->dtype);
    if (bytes == want || bytes == (size_t)lc__numel(&t->type) * lc_dtype_size(t->type.dtype)) return LC_OK;
    char text[128];
    return lc_fail(LC_ERR_ARGUMENT, "%s: a tensor of %s %s has %zu bytes, not %zu%s", what, lc_dtype_name(seen->dtype),
                   lc__shape_text(&t->type, text, sizeof text), want, bytes, site_text(t).text);
}

/* The type of `bytes` bytes of values: that which the program sees, or that of their storage. */
static const lc_type *type_of_bytes(const lc_tensor *t, size_t bytes)
{
    const lc_type *seen = lc__seen_type(t);
    return bytes == (size_t)lc__numel(seen) * lc_dtype_size(seen->dtype) ? seen : &t->type;
}

static lc_status check_whole(const lc_tensor *t)
{
    if (!t->is_slice) return LC_OK;
    return lc_fail(LC_ERR_STATE, "each rank has a slice of this tensor (strategy sharded); lc_tensor_gather, "
                                 "called on all of them, gives its value");
}

/* The error of the operation is what the thread reported last, unless the program went on to something else. */
static lc_status check_made(const lc_tensor *t, const char *call)
{
    char why[512];
    if (!lc_tensor_is_error(t)) return LC_OK;
    snprintf(why, sizeof why, "%s", lc_error_message());
    return lc_fail(LC_ERR_ARGUMENT, "%s: %s%s%s", call,
                   t ? "the operation that made this tensor failed" : "the tensor is NULL",
                   *why ? "; the last error: " : "", why);
}

lc_status lc_tensor_read(lc_tensor *t, void *data, size_t bytes)
{
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    lc_view from, to;
    LC_TRY(check_made(t, "lc_tensor_read"));
    LC_TRY(check_host_bytes(t, bytes, "lc_tensor_read"));
    LC_TRY(check_whole(t));
    LC_TRY(lc__tensor_map(t, LC__READ, &from));
    lc__view_of(type_of_bytes(t, bytes), LC_ROW_MAJOR, data, &to);
    lc__convert_strided(&from, &to);
    lc__tensor_unmap(t, LC__READ);
    return LC_OK;
}

static lc_status check_persistent(const lc_tensor *t)
{
    if (!lc_tensor_is_error(t) && t->kind != LC_TENSOR_STEP) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "lc_tensor_write: only persistent tensors can be written");
}

lc_status lc__tensor_write_as(lc_tensor *t, const lc_type *type, const void *data)
{
    lc_view from, to;
    LC_TRY(check_persistent(t));
    lc__view_of(type, LC_ROW_MAJOR, (void *)(uintptr_t)data, &from);
    if (t->is_slice && type->dtype == t->type.dtype) return lc__tensor_write_slice(t, data);
    if (!t->is_slice) {
        LC_TRY(lc__tensor_map(t, LC__WRITE, &to));
        lc__convert_strided(&from, &to);
        lc__tensor_unmap(t, LC__WRITE);
        return LC_OK;
    }
    void *values = malloc((size_t)lc__numel(&t->type) * lc_dtype_size(t->type.dtype) + 1);
    if (!values) return lc_fail(LC_ERR_MEMORY, "out of memory: a tensor as %s", lc_dtype_name(t->type.dtype));
    lc__view_of(&t->type, LC_ROW_MAJOR, values, &to);
    lc__convert_strided(&from, &to);
    lc_status status = lc__tensor_write_slice(t, values); /* of which this rank keeps its slice */
    free(values);
    return status;
}

lc_status lc_tensor_write(lc_tensor *t, const void *data, size_t bytes)
{
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    LC_TRY(check_persistent(t));
    LC_TRY(check_host_bytes(t, bytes, "lc_tensor_write"));
    return lc__tensor_write_as(t, type_of_bytes(t, bytes), data);
}

lc_status lc_tensor_gather(lc_tensor *t, void *data, size_t bytes)
{
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    LC_TRY(check_made(t, "lc_tensor_gather"));
    LC_TRY(check_host_bytes(t, bytes, "lc_tensor_gather"));
    const lc_type *type = type_of_bytes(t, bytes);
    if (type == &t->type) return lc__tensor_gather(t, LC_OK, -1, data);
    lc_view from, to;
    void *values = malloc((size_t)lc__numel(&t->type) * lc_dtype_size(t->type.dtype) + 1);
    lc_status mine =
        values ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: a tensor as %s", lc_dtype_name(t->type.dtype));
    lc_status status = lc__tensor_gather(t, mine, -1, values);
    lc__view_of(&t->type, LC_ROW_MAJOR, values, &from);
    lc__view_of(type, LC_ROW_MAJOR, data, &to);
    if (status >= 0) lc__convert_strided(&from, &to);
    free(values);
    return status;
}

lc_status lc_item(lc_tensor *t, double *value)
{
    lc_view v;
    LC__NEEDS(value, LC_ERR_ARGUMENT);
    LC_TRY(check_made(t, "lc_item"));
    if (lc__numel(&t->type) != 1) {
        char text[128];
        return lc_fail(LC_ERR_ARGUMENT, "lc_item: the tensor has shape %s, not one element%s",
                       lc__shape_text(&t->type, text, sizeof text), site_text(t).text);
    }
    LC_TRY(check_whole(t));
    LC_TRY(lc__tensor_map(t, LC__READ, &v));
    *value = lc__load_number(v.data, v.dtype);
    lc__tensor_unmap(t, LC__READ);
    return LC_OK;
}
