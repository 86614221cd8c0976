/* SPDX-License-Identifier: Apache-2.0 */
/* "data_parallel" and "central_storage": one process drives several devices, each of which computes its part of every
 * batch; gradients are added over the devices, and one update follows. parallel/devices/devices.h describes devices,
 * and core/split/device_parts.h how the trainer cuts batches. In data_parallel all devices read the same parameters; in
 * central_storage parameters and optimizer are the host's, and every device gets a copy of the parameters before each
 * step. */
#include "comm/world/world.h"
#include "core/options/options.h"
#include "strategies/strategies.h"
#include "parallel/devices/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct several {
    int n;
} several;

static lc_status setup_environment(void **self, const lc_strategy_request *r, const char *name)
{
    int n;
    *self = NULL;
    if (r->num_nodes != 1 || r->comm)
        return lc_fail(LC_ERR_UNSUPPORTED, "%s runs in one process%s; use --strategy ddp for several", name,
                       r->comm ? ", but the program supplies a communicator" : ", but num_nodes is not 1");
    lc__world here;
    LC_TRY(lc__world_find(&here));
    if (here.size > 1)
        return lc_fail(LC_ERR_UNSUPPORTED, "%s runs in one process, but this one is rank %d of %d; use --strategy ddp",
                       name, here.rank, here.size);
    LC_TRY(lc__devices_parse(r->devices, LC__MAX_DEVICES, "devices of one process", &n));
    several *s = calloc(1, sizeof *s);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: the strategy %s", name);
    s->n = n ? n : 1; /* more must be requested explicitly, since they change the statistics of batch norm */
    *self = s;
    return LC_OK;
}

static lc_status setup_data_parallel(void **self, const lc_strategy_request *r)
{
    return setup_environment(self, r, "data_parallel");
}

static lc_status setup_central_storage(void **self, const lc_strategy_request *r)
{
    return setup_environment(self, r, "central_storage");
}

static lc_comm *comm(void *self)
{
    (void)self;
    return NULL;
}

static int devices(void *self)
{
    return ((several *)self)->n;
}

const lc_strategy_ops lc__strategy_data_parallel = {
    LC_STRATEGY_OPS_INIT("data_parallel"),
    .setup_environment = setup_data_parallel,
    .comm = comm,
    .teardown = free,
    .devices = devices,
};

const lc_strategy_ops lc__strategy_central_storage = {
    LC_STRATEGY_OPS_INIT("central_storage"),
    .setup_environment = setup_central_storage,
    .comm = comm,
    .teardown = free,
    .devices = devices,
    .copies_parameters = true,
};
