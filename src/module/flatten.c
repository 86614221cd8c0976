/* SPDX-License-Identifier: Apache-2.0 */
/* Moves all parameters of a module into flat buffers. */
#include "base/grow.h"
#include "module/tensors.h"
#include "tensor/tensor_impl.h"

#include <stdlib.h>

typedef struct collect {
    lc_tensor **tensors;
    int n, cap;
    lc_dtype dtype;
} collect;

static lc_status collect_parameter(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    collect *c = ctx;
    if (!t->is_parameter || t->tensor->kind != LC_TENSOR_PERSISTENT || t->tensor->type.dtype != c->dtype) return LC_OK;
    if (t->tensor->flat && t->tensor->flat->n > 1) return LC_OK;
    LC_TRY(lc__grow(&c->tensors, &c->cap, c->n, 1, "flat buffers"));
    c->tensors[c->n++] = t->tensor;
    return LC_OK;
}

lc_status lc__module_flatten(lc_module *root)
{
    static const lc_dtype dtypes[] = {LC_F32, LC_F64, LC_F16, LC_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        collect c = {.dtype = dtypes[i]};
        lc_flat *flat;
        lc_status status = lc_module_visit(root, collect_parameter, &c);
        bool single = c.n == 1 && c.tensors[0]->flat;
        if (status >= 0 && c.n && !single) status = lc__flat_new(c.tensors, c.n, true, &flat);
        free(c.tensors);
        if (status < 0) return status;
    }
    return LC_OK;
}
