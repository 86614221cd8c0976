/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the tensors of a module to a device. */
#include "base/grow.h"
#include "module/tensors.h"
#include "tensor/tensor_impl.h"

#include <stdlib.h>

typedef struct moving {
    const lc_device *on;
    lc_dtype dtype;
    lc_tensor **flat; /* parameters in flat buffers, which move together */
    int n, cap;
} moving;

static bool moves(const moving *m, const lc_tensor *t)
{
    return t->kind == LC_TENSOR_PERSISTENT && t->on != m->on && !t->is_slice;
}

static lc_status collect_flat(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    moving *m = ctx;
    if (!moves(m, t->tensor) || !t->tensor->flat || t->tensor->type.dtype != m->dtype) return LC_OK;
    LC_TRY(lc__grow(&m->flat, &m->cap, m->n, 1, "the tensors of a module"));
    m->flat[m->n++] = t->tensor;
    return LC_OK;
}

static lc_status move_other(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    const moving *m = ctx;
    if (!moves(m, t->tensor)) return LC_OK;
    lc_status status = lc__tensor_to(t->tensor, m->on);
    return status < 0 ? lc_fail_context(status, "%s", path) : LC_OK;
}

/* New flat buffers for those that have some. The rest of a run makes them for the others, if it trains. */
static lc_status move_flats(lc_module *root, moving *m)
{
    static const lc_dtype dtypes[] = {LC_F32, LC_F64, LC_F16, LC_BF16};
    lc_status status = LC_OK;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0] && status >= 0; i++) {
        lc_flat *flat;
        m->n = 0;
        m->dtype = dtypes[i];
        status = lc_module_visit(root, collect_flat, m);
        if (status >= 0 && m->n) status = lc__flat_new(m->flat, m->n, true, &flat);
    }
    return status;
}

lc_status lc__module_move(lc_module *root, const lc_device *on)
{
    moving m = {.on = on};
    const lc_device *before = lc__device_use(on);
    lc_status status = move_flats(root, &m);
    if (status >= 0) status = lc_module_visit(root, move_other, &m);
    lc__device_use(before);
    free(m.flat);
    return status;
}
