/* SPDX-License-Identifier: Apache-2.0 */
/* Values on a device, mapped by the host: a copy as long as they are mapped. */
#include "tensor/host_access.h"

#include <stdlib.h>

static void drop(lc_tensor *t)
{
    if (t->mirror != &t->one) free(t->mirror);
    t->mirror = NULL;
}

lc_status lc__mirror_map(lc_tensor *t, const lc_device *on, lc__access access, lc_view *v)
{
    size_t bytes = lc__view_span(v);
    if (!t->maps) {
        t->mirror = bytes <= sizeof t->one ? &t->one : malloc(bytes);
        if (!t->mirror) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for a tensor's value", bytes);
        lc_status status = LC_OK;
        if (access & LC__READ) status = lc__device_copy(lc__host_device(), t->mirror, on, v->data, bytes);
        if (status < 0) {
            drop(t);
            return status;
        }
    }
    t->maps++;
    v->data = t->mirror;
    return LC_OK;
}

/* A copy that fails is reported by the device's next call. */
void lc__mirror_unmap(lc_tensor *t, lc__access access)
{
    size_t bytes = t->is_slice ? (size_t)t->slice_count * lc_dtype_size(t->type.dtype) : t->bytes;
    if (access & LC__WRITE) (void)!lc__device_copy(t->on, t->device_data, lc__host_device(), t->mirror, bytes);
    if (--t->maps == 0) drop(t);
}

lc_status lc__tensor_fetch(lc_tensor *t, const lc_device *on, void *to, lc_dtype *fetched)
{
    t = lc__tensor_own(t);
    lc_view v = {.data = t->device_data, .dtype = t->type.dtype};
    const lc_device *at = t->on;
    *fetched = 0;
    if (lc_tensor_is_error(t) || t->is_slice || t->initial) return LC_OK;
    LC_TRY(t->kind == LC_TENSOR_STEP ? lc__tensor_find(t, &v, &at) : lc__tensor_run(t));
    if (at != on) return LC_OK;
    *fetched = v.dtype;
    return on->ops->copy(on->context, to, v.data, lc_dtype_size(v.dtype));
}
