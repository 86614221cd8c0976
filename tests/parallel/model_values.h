/* SPDX-License-Identifier: Apache-2.0 */
/* All values of a model, one tensor after the other, to be compared bit for bit. */
#ifndef LC_TESTS_MODEL_VALUES_H
#define LC_TESTS_MODEL_VALUES_H

#include <lightc/module.h>
#include <stdlib.h>

typedef struct values {
    float *v;
    int64_t n;
} values;

/* For lc_module_visit, with a `values` as ctx: adds an f32 tensor. Collective if each rank has a part. */
static lc_status copy_out(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    values *o = ctx;
    if (lc_tensor_dtype(t->tensor) != LC_F32) return LC_OK;
    int64_t n = lc_tensor_numel(t->tensor);
    float *p = realloc(o->v, (size_t)(o->n + n) * sizeof *p);
    if (!p) return LC_ERR_MEMORY;
    o->v = p;
    o->n += n;
    return lc_tensor_gather(t->tensor, p + o->n - n, (size_t)n * sizeof *p);
}

#endif
