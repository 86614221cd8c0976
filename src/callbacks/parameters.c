/* SPDX-License-Identifier: Apache-2.0 */
/* A list of a model's parameters with names, for callbacks that log something of each. */
#include "callbacks/callbacks.h"
#include "base/grow.h"

#include <stdlib.h>

void lc__parameters_free(lc__parameters *list)
{
    for (int i = 0; i < list->n; i++) free(list->names[i]);
    free(list->names);
    free(list->v);
    *list = (lc__parameters){0};
}

typedef struct parameter_walk {
    lc__parameters *list;
    const char *prefix, *suffix;
} parameter_walk;

static lc_status add(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    parameter_walk *w = ctx;
    lc__parameters *l = w->list;
    lc__str name = {0};
    (void)owner;
    if (!mt->is_parameter) return LC_OK;
    int cap = l->cap;
    LC_TRY(lc__grow(&l->v, &cap, l->n, 1, "a list of parameters"));
    LC_TRY(lc__grow(&l->names, &l->cap, l->n, 1, "a list of parameters"));
    lc__str_add(&name, "%s%s%s", w->prefix, path, w->suffix);
    if (name.failed) {
        lc__str_free(&name);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a list of parameters");
    }
    l->v[l->n] = mt->tensor;
    l->names[l->n++] = name.s;
    return LC_OK;
}

lc_status lc__parameters_collect(lc_module *m, const char *prefix, const char *suffix, lc__parameters *list)
{
    lc__parameters_free(list);
    return lc_module_visit(m, add, &(parameter_walk){list, prefix, suffix});
}
