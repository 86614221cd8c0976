/* SPDX-License-Identifier: Apache-2.0 */
/* "sharded": as ddp, but each rank keeps only a slice of what ddp has whole on all (ZeRO; tensor/slice.h):
 *
 *   sharded_1              optimizer state
 *   sharded_2              optimizer state and gradients
 *   sharded_3, "sharded"   these and the parameters, which are gathered ahead of use: what users of FSDP expect
 *   sharded_hybrid         as sharded_3, but among the ranks of a node, each of which has a copy of the whole
 *
 * Results are those of ddp. Between runs the module is whole, or with gather_parameters=false in slices. */
#include "strategies/processes.h"

#include "comm/comm_internal.h"
#include "base/status.h"

#include <stdlib.h>

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

static lc_status shard_parameters(void *self, lc_graph *graph, lc_module *m)
{
    return lc__processes_share(self, graph, m, NULL, 0, 3);
}

static lc_status finish(void *self)
{
    lc__processes *d = self;
    return d->reducer ? lc__reducer_gather(d->reducer) : LC_OK;
}

/* Parameters are gathered when they are used, by all ranks or by none. */
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

/* ---- hybrid ---- */

/* Every slice needs the same number of replicas. */
static lc_status check_equal(lc_comm *comm, lc_comm *slices)
{
    int64_t mine = lc_comm_size(slices), *all = calloc((size_t)lc_comm_size(comm), sizeof *all);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: the nodes of %d ranks", lc_comm_size(comm));
    lc_status status = lc_comm_all_gather(comm, &mine, all, 1, LC_I64, NULL);
    for (int i = 0; i < lc_comm_size(comm) && status >= 0; i++)
        if (all[i] != all[0])
            status = lc_fail(LC_ERR_CONFIG,
                             "sharded_hybrid: all nodes need the same number of ranks, but the node of rank 0 has %lld "
                             "and that of rank %d %lld; start the same number on each, set how many ranks share a copy "
                             "(--shard_size, which must divide %d), or use --strategy sharded",
                             (long long)all[0], i, (long long)all[i], lc_comm_size(comm));
    free(all);
    return status;
}

static lc_status make_groups(lc__processes *d, int64_t shard_size)
{
    int n = lc_comm_size(d->comm), rank = lc_comm_rank(d->comm), node;
    if (shard_size && n % shard_size)
        return lc_fail(LC_ERR_CONFIG,
                       "shard_size=%lld does not divide the number of ranks, %d; use one that does, or drop it: then "
                       "the ranks of a node share a copy",
                       (long long)shard_size, n);
    if (n == 1) return LC_OK;
    if (shard_size)
        node = rank / (int)shard_size;
    else
        LC_TRY(lc__comm_node(d->comm, &node));
    LC_TRY(lc_comm_split(d->comm, node, rank, &d->slices));
    LC_TRY(check_equal(d->comm, d->slices));
    if (lc_comm_size(d->slices) == n) return LC_OK;
    return lc_comm_split(d->comm, lc_comm_rank(d->slices), node, &d->replicas);
}

static lc_status join_hybrid(void **self, const lc_strategy_request *request)
{
    LC_TRY(lc__processes_join(self, request));
    lc_status status = make_groups(*self, request->shard_size);
    if (status >= 0) return LC_OK;
    char why[1024];
    lc__copy_message(why, sizeof why);
    /* An error in the configuration has been found by every rank. */
    if (status != LC_ERR_CONFIG && status != LC_ERR_PEER) lc__processes_fail(*self, why);
    lc__processes_teardown(*self);
    *self = NULL;
    return lc_fail(status, "%s", why);
}

#define STAGE_3(join)                                                                                                  \
    LC__PROCESSES_OPS(join), .shards_state = true, .setup = setup_3, .shard_parameters = shard_parameters,             \
                             .syncs_every_backward = true, .begin_batch = begin_batch, .end_batch = end_batch,         \
                             .finish = finish

const lc_strategy_ops lc__strategy_sharded_1 = {
    LC_STRATEGY_OPS_INIT("sharded_1"), LC__PROCESSES_OPS(lc__processes_join), .shards_state = true, .setup = setup_1};
const lc_strategy_ops lc__strategy_sharded_2 = {LC_STRATEGY_OPS_INIT("sharded_2"),
                                                LC__PROCESSES_OPS(lc__processes_join), .shards_state = true,
                                                .setup = setup_2, .syncs_every_backward = true};
const lc_strategy_ops lc__strategy_sharded_3 = {LC_STRATEGY_OPS_INIT("sharded_3"), STAGE_3(lc__processes_join)};
const lc_strategy_ops lc__strategy_sharded = {LC_STRATEGY_OPS_INIT("sharded"), STAGE_3(lc__processes_join)};
const lc_strategy_ops lc__strategy_sharded_hybrid = {LC_STRATEGY_OPS_INIT("sharded_hybrid"), STAGE_3(join_hybrid),
                                                     .replicates = true};
