/* SPDX-License-Identifier: Apache-2.0 */
/* The initial values of all tensors of a module. */
#include "module/tensors.h"
#include "tensor/initial.h"
#include "tensor/slice.h"

static lc_status fill_one(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)ctx, (void)owner;
    lc_status s = lc__tensor_fill(t->tensor);
    return s < 0 ? lc_fail_context(s, "%s", path) : LC_OK;
}

static lc_status revive_one(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    const lc__initial zeros = {.init = {.kind = LC_INIT_CONSTANT}};
    (void)ctx, (void)path, (void)owner;
    if (!t->tensor->is_slice || t->tensor->slices) return LC_OK;
    LC_TRY(lc__tensor_revive(t->tensor));
    return lc__tensor_set_initial(t->tensor, &zeros);
}

lc_status lc__module_revive(lc_module *m)
{
    return lc_module_visit(m, revive_one, NULL);
}

lc_status lc__module_fill(lc_module *m)
{
    return lc_module_visit(m, fill_one, NULL);
}
