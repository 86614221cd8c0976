/* SPDX-License-Identifier: Apache-2.0 */
/* Finds strategies, precisions, profilers and loggers by name. src/builtin.c lists them. */
#include "base/owned.h"
#include "base/args.h"
#include "builtin.h"
#include "core/hooks/hooks.h"
#include "core/options/options.h"
#include "comm/world/world.h"
#include "base/handle.h"

#include <string.h>

/* `what`: the option that chooses one. */
static lc_status unknown(lc_status status, const char *what, const char *name, const char *advice)
{
    lc__str known = {0};
    (void)lc__option_available(what, &known);
    (void)lc_fail(status, "unknown %s \"%.60s\"%s; available: %s", what, name, advice, known.n ? known.s : "");
    lc__str_free(&known);
    return status;
}

/* ---- strategies ---- */

/* Advice for strategies that have another name in Lightning, or are not needed here. */
static const char *advice_for(const char *name)
{
    if (!strncmp(name, "fsdp", 4) || !strncmp(name, "deepspeed", 9)) return "; use sharded instead";
    if (!strncmp(name, "ddp_find_unused", 15)) return "; ddp finds unused parameters by itself";
    if (!strcmp(name, "ddp_spawn") || !strcmp(name, "ddp_fork") || !strcmp(name, "ddp_notebook"))
        return "; ddp starts its processes by itself";
    return "";
}

lc_status lc_strategy_find(const char *name, const lc_strategy_ops **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!name || !strcmp(name, "auto")) {
        lc__world here;
        LC_TRY(lc__world_find(&here));
        bool several = lc__world_batches(here.size) > 1; /* also if ranks were lost since the start */
        name = several ? "ddp" : "single_device";
    }
    if (!strcmp(name, "dp")) name = "data_parallel";
    for (const lc_strategy_ops *const *s = lc__builtin->strategies; *s; s++) {
        if (!strcmp((*s)->name, name)) {
            *out = *s;
            return LC_OK;
        }
    }
    return unknown(LC_ERR_CONFIG, "strategy", name, advice_for(name));
}

/* ---- precisions ---- */

lc_status lc_precision_find(const char *name, const lc_precision_ops **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!name) name = "32-true";
    for (const lc__named_precision *p = lc__builtin->precisions; p->name; p++) {
        if (!strcmp(p->name, name)) {
            *out = p->ops;
            return LC_OK;
        }
    }
    return unknown(LC_ERR_UNSUPPORTED, "precision", name, "");
}

lc_status lc__precision_take(const char *name, const lc_precision *plugin, lc_precision_ops *ops, void **self)
{
    const lc_precision_ops *found;
    *self = NULL;
    if (!plugin) {
        LC_TRY(lc_precision_find(name, &found));
        *ops = *found;
        return LC_OK;
    }
    LC_TRY(lc__ops_take(ops, sizeof *ops, plugin->ops, offsetof(lc_precision_ops, scale_changes), "a precision",
                        "LC_PRECISION_OPS_INIT"));
    LC_TRY(lc__own(ops->teardown, plugin->self, "precision", ops->name ? ops->name : ""));
    *self = plugin->self; /* from here on it must be torn down */
    if (!ops->name) return lc_fail(LC_ERR_ARGUMENT, "a precision needs ops with a name");
    if (!name || !strcmp(name, ops->name)) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "precision is \"%s\", but precision_plugin is %s; drop one of them", name, ops->name);
}

/* ---- profilers ---- */

lc_status lc_profiler_new(const char *name, lc_profiler *out)
{
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    for (const lc__named_profiler *p = lc__builtin->profilers; p->name; p++)
        if (!strcmp(p->name, name)) return p->make(out);
    return unknown(LC_ERR_CONFIG, "profiler", name, "");
}

/* ---- loggers ---- */

lc_status lc_logger_new(const char *name, lc_logger *out)
{
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    size_t length = strcspn(name, ":");
    const char *argument = name[length] ? name + length + 1 : NULL;
    for (const lc__named_logger *l = lc__builtin->loggers; l->name; l++) {
        if (strlen(l->name) == length && !strncmp(l->name, name, length)) {
            if (l->make_with) return l->make_with(argument, out);
            if (argument) return lc_fail(LC_ERR_CONFIG, "logger %s takes no argument (found a colon)", l->name);
            return l->make(out);
        }
    }
    return unknown(LC_ERR_CONFIG, "logger", name, "");
}
