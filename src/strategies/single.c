/* SPDX-License-Identifier: Apache-2.0 */
/* "single_device": one process, one device. Nothing is ever exchanged. */
#include "core/options/options.h"
#include "strategies/strategies.h"

#include <lightc/launch.h>

static lc_status setup_environment(void **self, const lc_strategy_request *r)
{
    int devices;
    *self = NULL;
    LC_TRY(lc__devices_parse(r->devices, LC_MAX_LOCAL_RANKS, "processes on this machine", &devices));
    if (devices > 1)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "devices=%d: single_device runs one process; use --devices 1 (or auto), or --strategy ddp",
                       devices);
    if (r->num_nodes != 1)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "num_nodes=%lld: single_device runs one process; use --num_nodes 1, or --strategy ddp",
                       (long long)r->num_nodes);
    return LC_OK;
}

static lc_comm *comm(void *self)
{
    (void)self;
    return NULL;
}

const lc_strategy_ops lc__strategy_single = {
    LC_STRATEGY_OPS_INIT("single_device"),
    .setup_environment = setup_environment,
    .comm = comm,
};
