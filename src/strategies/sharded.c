/* SPDX-License-Identifier: Apache-2.0 */
/* "sharded": as ddp, but each rank keeps only a part of what ddp has whole on all (ZeRO; tensor/shard.h):
 *
 *   sharded_1              optimizer state
 *   sharded_2              optimizer state and gradients
 *   sharded_3, "sharded"   these and the parameters, which are gathered ahead of use: what users of FSDP expect
 *
 * Numbers are those of ddp. The module is whole outside of runs. */
#include "strategies/processes.h"

static lc_status setup_1(void *self, lc_graph *graph, lc_module *m, lc_optimizer *const *optimizers, int n)
{
    return lc__processes_share(self, graph, m, optimizers, n, 1);
}

static lc_status setup_2(void *self, lc_graph *graph, lc_module *m, lc_optimizer *const *optimizers, int n)
{
    return lc__processes_share(self, graph, m, optimizers, n, 2);
}

static lc_status setup_3(void *self, lc_graph *graph, lc_module *m, lc_optimizer *const *optimizers, int n)
{
    return lc__processes_share(self, graph, m, optimizers, n, 3);
}

static lc_status finish(void *self)
{
    lc__processes *d = self;
    return d->reducer ? lc__reducer_gather(d->reducer) : LC_OK;
}

/* Parameters are gathered when they are used, by all ranks or none. */
static lc_status begin_batch(void *self, int64_t passes)
{
    lc__processes *d = self;
    return d->reducer ? lc__reducer_begin_batch(d->reducer, passes) : LC_OK;
}

static lc_status end_batch(void *self)
{
    lc__processes *d = self;
    return d->reducer ? lc__reducer_end_batch(d->reducer) : LC_OK;
}

#define STAGE_3                                                                                                        \
    LC__PROCESSES_OPS, .shards_state = true, .setup = setup_3, .syncs_every_backward = true,                           \
                       .begin_batch = begin_batch, .end_batch = end_batch, .finish = finish

const lc_strategy_ops lc__strategy_sharded_1 = {LC_STRATEGY_OPS_INIT("sharded_1"), LC__PROCESSES_OPS,
                                                .shards_state = true, .setup = setup_1};
const lc_strategy_ops lc__strategy_sharded_2 = {LC_STRATEGY_OPS_INIT("sharded_2"), LC__PROCESSES_OPS,
                                                .shards_state = true, .setup = setup_2, .syncs_every_backward = true};
const lc_strategy_ops lc__strategy_sharded_3 = {LC_STRATEGY_OPS_INIT("sharded_3"), STAGE_3};
const lc_strategy_ops lc__strategy_sharded = {LC_STRATEGY_OPS_INIT("sharded"), STAGE_3};
