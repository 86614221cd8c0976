/* SPDX-License-Identifier: Apache-2.0 */
/* The type in which the parameters of a module are stored. */
#include "module/tensors.h"
#include "tensor/tensor_impl.h"

static lc_status store_one(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    if (!t->is_parameter) return LC_OK;
    lc_status status = lc__tensor_store(t->tensor, *(const lc_dtype *)ctx);
    return status < 0 ? lc_fail_context(status, "%s", path) : LC_OK;
}

lc_status lc__module_store(lc_module *m, lc_dtype dtype)
{
    return lc_module_visit(m, store_one, &dtype);
}
