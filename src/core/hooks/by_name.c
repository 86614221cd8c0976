/* SPDX-License-Identifier: Apache-2.0 */
/* Finds strategies, precisions, profilers and loggers by name. src/builtin.c lists them. */
#include "builtin.h"
#include "comm/world/world.h"
#include "base/handle.h"

#include <stdio.h>
#include <string.h>

/* ---- strategies ---- */

/* Advice for strategies that have another name in Lightning, or are not needed here. */
static const char *instead_of(const char *name)
{
    if (!strncmp(name, "fsdp", 4) || !strncmp(name, "deepspeed", 9)) return "; use sharded instead";
    if (!strncmp(name, "ddp_find_unused", 15)) return "; ddp finds unused parameters by itself";
    if (!strcmp(name, "ddp_spawn") || !strcmp(name, "ddp_fork") || !strcmp(name, "ddp_notebook"))
        return "; ddp starts its processes by itself";
    return "";
}

lc_status lc_strategy_find(const char *name, const lc_strategy_ops **out)
{
    char known[256] = "auto";
    size_t n = strlen(known);
    if (!name || !strcmp(name, "auto")) {
        lc__world here;
        LC_TRY(lc__world_find(&here));
        bool several = lc__world_batches(here.size) > 1; /* also if ranks were lost since the start */
        name = several ? "ddp" : "single_device";
    }
    if (!strcmp(name, "dp")) name = "data_parallel";
    for (const lc_strategy_ops *const *s = lc__builtin.strategies; *s; s++) {
        if (!strcmp((*s)->name, name)) {
            *out = *s;
            return LC_OK;
        }
        if (n < sizeof known) n += (size_t)snprintf(known + n, sizeof known - n, ", %s", (*s)->name);
    }
    return lc_fail(LC_ERR_CONFIG, "unknown strategy \"%.60s\"%s; available: %s", name, instead_of(name), known);
}

/* ---- precisions ---- */

lc_status lc_precision_find(const char *name, const lc_precision_ops **out)
{
    char known[256] = "";
    size_t n = 0;
    if (!name) name = "32-true";
    for (const lc__named_precision *p = lc__builtin.precisions; p->name; p++) {
        if (!strcmp(p->name, name)) {
            *out = p->ops;
            return LC_OK;
        }
        if (n < sizeof known) n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", p->name);
    }
    return lc_fail(LC_ERR_UNSUPPORTED, "unknown precision \"%.60s\"; available: %s", name, known);
}

/* ---- profilers ---- */

lc_status lc_profiler_new(const char *name, lc_profiler *out)
{
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    char known[128] = "";
    for (const lc__named_profiler *p = lc__builtin.profilers; p->name; p++) {
        if (!strcmp(p->name, name)) return p->make(out);
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", p->name);
    }
    return lc_fail(LC_ERR_CONFIG, "unknown profiler \"%.60s\"; available: %s", name, known);
}

/* ---- loggers ---- */

lc_status lc_logger_new(const char *name, lc_logger *out)
{
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    char known[256] = "";
    size_t length = strcspn(name, ":");
    const char *argument = name[length] ? name + length + 1 : NULL;
    for (const lc__named_logger *l = lc__builtin.loggers; l->name; l++) {
        if (strlen(l->name) == length && !strncmp(l->name, name, length)) {
            if (l->make_with) return l->make_with(argument, out);
            if (argument) return lc_fail(LC_ERR_CONFIG, "logger %s takes no argument (found a colon)", l->name);
            return l->make(out);
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", l->name);
    }
    return lc_fail(LC_ERR_CONFIG, "unknown logger \"%s\"; available: %s", name, known);
}
