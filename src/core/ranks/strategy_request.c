/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the options to a strategy. */
#include "core/ranks/ranks.h"

#include "base/status.h"
#include "core/options/options.h"
#include "parallel/reduce/compress.h"

#include <lightc/launch.h>

lc_strategy_request lc__strategy_request(const lc_trainer_options *o)
{
    return (lc_strategy_request){.devices = o->devices,
                                 .num_nodes = o->num_nodes,
                                 .comm = o->comm,
                                 .bucket_cap_mb = o->bucket_cap_mb,
                                 .gradient_compression = o->gradient_compression,
                                 .shard_size = o->shard_size,
                                 .comm_security = o->comm_security,
                                 .own_data = !o->use_distributed_sampler,
                                 .deterministic = o->deterministic,
                                 .start_timeout = o->start_timeout,
                                 .silence_timeout = o->silence_timeout,
                                 .progress_timeout = o->progress_timeout,
                                 .grace_period = o->grace_period,
                                 .say = lc__say};
}

/* The ranks of the program's own communicator, against the number that the options ask for. */
static lc_status check_number(const lc_strategy_request *ask)
{
    int devices, ranks = lc_comm_size(ask->comm);
    LC_TRY(lc__devices_parse(ask->devices, LC_MAX_LOCAL_RANKS, "processes on a machine", &devices));
    int64_t nodes = ask->num_nodes > 1 ? ask->num_nodes : 1;
    if (!devices || devices * nodes == ranks) return LC_OK;
    return lc_fail(
        LC_ERR_CONFIG,
        "devices=%d and num_nodes=%lld, but the program's own communicator has %d rank%s; drop --devices, or "
        "start that many",
        devices, (long long)nodes, ranks, ranks == 1 ? "" : "s");
}

lc_status lc__request_check(const lc_strategy_request *ask, const lc_strategy_ops *strategy, const lc_comm *comm,
                            bool deterministic)
{
    const char *name = ask->gradient_compression;
    lc_dtype wire;
    if (ask->comm && strategy->launches) LC_TRY(check_number(ask));
    if (ask->shard_size && !strategy->replicates)
        return lc_fail(LC_ERR_CONFIG,
                       "shard_size=%lld: with the strategy %s ranks do not share copies; use --strategy sharded_hybrid",
                       (long long)ask->shard_size, strategy->name);
    LC_TRY(lc__wire_find(name, &wire));
    if (wire == LC_F32 || (!strategy->devices && (!comm || lc_comm_size(comm) == 1))) return LC_OK;
    if (!strategy->compresses)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "gradient_compression=%s: the strategy %s does not compress gradients; use --strategy ddp", name,
                       strategy->name);
    if (deterministic)
        return lc_fail(LC_ERR_CONFIG,
                       "gradient_compression=%s rounds what ranks send, so deterministic cannot reproduce the results "
                       "of one process bit for bit; drop one of the two",
                       name);
    return LC_OK;
}
