/* SPDX-License-Identifier: Apache-2.0 */
/* The precisions there are. To add one: its file here, and a line below. */
#include "precision/registry.h"
#include "base/handle.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const lc_precision_ops *ops;
} precisions[] = {
    {"32-true", &lc__precision_32_true},
    {"32", &lc__precision_32_true},
};

lc_status lc_precision_find(const char *name, const lc_precision_ops **out)
{
    char known[256] = "";
    size_t n = 0;
    if (!name) name = "32-true";
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        if (!strcmp(precisions[i].name, name)) {
            *out = precisions[i].ops;
            return LC_OK;
        }
        if (n < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", precisions[i].name);
    }
    return lc_fail(LC_ERR_UNSUPPORTED, "this version has no precision \"%.60s\"; it has: %s", name, known);
}
