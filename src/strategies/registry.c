/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies there are. To add one: its file here, and a line below. */
#include "comm/world/world.h"
#include "base/handle.h"
#include "strategies/registry.h"

#include <stdio.h>
#include <string.h>

static const lc_strategy_ops *const strategies[] = {
    &lc__strategy_single,         &lc__strategy_ddp,           &lc__strategy_sharded,
    &lc__strategy_sharded_1,      &lc__strategy_sharded_2,     &lc__strategy_sharded_3,
    &lc__strategy_sharded_hybrid, &lc__strategy_data_parallel, &lc__strategy_central_storage};

/* What Lightning calls otherwise, or does not need here. */
static const char *instead_of(const char *name)
{
    if (!strncmp(name, "fsdp", 4) || !strncmp(name, "deepspeed", 9)) return "; sharded does what that does";
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
        bool several = lc__world_batches(here.size) > 1; /* or were, before ranks were lost */
        name = (several ? &lc__strategy_ddp : &lc__strategy_single)->name;
    }
    if (!strcmp(name, "dp")) name = lc__strategy_data_parallel.name;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (!strcmp(strategies[i]->name, name)) {
            *out = strategies[i];
            return LC_OK;
        }
        if (n < sizeof known) n += (size_t)snprintf(known + n, sizeof known - n, ", %s", strategies[i]->name);
    }
    return lc_fail(LC_ERR_CONFIG, "there is no strategy \"%.60s\"%s; there is: %s", name, instead_of(name), known);
}
