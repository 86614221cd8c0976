/* SPDX-License-Identifier: Apache-2.0 */
/* "single_device": one process, one device. Nothing is ever exchanged. */
#include "strategies/registry.h"

#include <string.h>

static lc_status setup_environment(void **self, const lc_strategy_request *r)
{
    *self = NULL;
    if (r->devices && strcmp(r->devices, "auto") != 0 && strcmp(r->devices, "1") != 0)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "devices=%.60s: single_device is one process; use --devices 1 (or auto), or --strategy ddp",
                       r->devices);
    if (r->num_nodes != 1)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "num_nodes=%lld: single_device is one process; use --num_nodes 1, or --strategy ddp",
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
