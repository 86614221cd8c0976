/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the strategies with one process per device: finding the other ranks, the same model on all of them, and
 * gradients reduced over them (parallel/reduce/reducer.h). Slots of lc_strategy_ops; `self` is an lc__processes. */
#ifndef LC_STRATEGIES_PROCESSES_H
#define LC_STRATEGIES_PROCESSES_H

#include "comm/world/world.h"
#include "strategies/strategies.h"
#include "parallel/reduce/reducer.h"

typedef struct lc__processes {
    lc_comm *comm;
    lc__world *world;           /* NULL: the program supplied the communicator, which is not watched */
    lc_comm *slices, *replicas; /* groups of these ranks (lc__reducer_replicate); NULL: all have a slice each */
    lc__reducer *reducer;
    size_t bucket_bytes; /* 0: the reducer's default */
    lc_dtype wire;       /* data type of gradients when they are sent */
} lc__processes;

lc_status lc__processes_join(void **self, const lc_strategy_request *r);
lc_comm *lc__processes_comm(void *self);
void lc__processes_place(void *self, int *rank, int *ranks);
/* For ops->setup; in stage 3 also, without optimizers, for ops->shard_parameters. stage: of sharding, 0: none
 * (parallel/shard/shard.h). */
lc_status lc__processes_share(void *self, lc_graph *graph, lc_module *m, lc_optimizer *const *optimizers, int n,
                              int stage);
void lc__processes_before_backward(void *self, double weight);
lc_status lc__processes_after_backward(void *self, uint8_t flags[LC_SYNC_FLAGS]);
void lc__processes_progress(void *self, int64_t step, const char *where);
void lc__processes_fail(void *self, const char *why);
void lc__processes_explain(void *self);
void lc__processes_teardown(void *self);

/* join: lc__processes_join, or a function that calls it */
#define LC__PROCESSES_OPS(join)                                                                                        \
    .setup_environment = (join), .comm = lc__processes_comm, .before_backward = lc__processes_before_backward,         \
    .after_backward = lc__processes_after_backward, .progress = lc__processes_progress, .fail = lc__processes_fail,    \
    .teardown = lc__processes_teardown, .explain = lc__processes_explain, .launches = true,                            \
    .place = lc__processes_place

#endif
