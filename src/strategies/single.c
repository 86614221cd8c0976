/* SPDX-License-Identifier: Apache-2.0 */
/* "single_device": one process, one device. Nothing is ever exchanged. */
#include "strategies/registry.h"

#include <string.h>

static lc_status setup_environment(void **self, const char *devices, int64_t num_nodes)
{
    *self = NULL;
    if (devices && strcmp(devices, "auto") != 0 && strcmp(devices, "1") != 0)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "devices=%.60s: this version trains on one device; use --devices 1 (or auto)", devices);
    if (num_nodes != 1)
        return lc_fail(LC_ERR_UNSUPPORTED, "num_nodes=%lld: this version trains on one machine; use --num_nodes 1",
                       (long long)num_nodes);
    return LC_OK;
}

static int rank(void *self)
{
    (void)self;
    return 0;
}

static int world_size(void *self)
{
    (void)self;
    return 1;
}

const lc_strategy_ops lc__strategy_single = {
    LC_STRATEGY_OPS_INIT("single_device"),
    .setup_environment = setup_environment,
    .rank = rank,
    .world_size = world_size,
};
