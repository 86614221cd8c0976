/* SPDX-License-Identifier: Apache-2.0 */
/* The profilers by name. To add one: its file in this folder and a line in the table. */
#include "profilers/registry.h"
#include "base/handle.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    lc_status (*make)(lc_profiler *out);
} profilers[] = {
    {"simple", lc__simple_profiler_new},
    {"ops", lc__ops_profiler_new},
    {"trace", lc__trace_profiler_new},
};

lc_status lc_profiler_new(const char *name, lc_profiler *out)
{
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    char known[128] = "";
    for (size_t i = 0; i < sizeof profilers / sizeof *profilers; i++) {
        if (!strcmp(profilers[i].name, name)) return profilers[i].make(out);
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", profilers[i].name);
    }
    return lc_fail(LC_ERR_CONFIG, "there is no profiler \"%.60s\"; known are: %s", name, known);
}
