/* SPDX-License-Identifier: Apache-2.0 */
#include "strategies/processes.h"

#include "core/options/options.h"
#include "core/ranks/ranks.h"
#include "base/status.h"
#include "parallel/shard/shard.h"
#include "parallel/reduce/compress.h"

#include <lightc/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__processes_join(void **self, const lc_strategy_request *r)
{
    lc__processes *d = calloc(1, sizeof *d);
    if (!d) return lc_fail(LC_ERR_MEMORY, "out of memory: the ranks of a strategy");
    lc_status named = lc__wire_find(r->gradient_compression, &d->wire);
    if (named < 0) {
        free(d);
        return named;
    }
    d->comm = r->comm;
    d->bucket_bytes = (size_t)(r->bucket_cap_mb * (1 << 20));
    lc__world_args o = {.times = {.start = r->start_timeout,
                                  .silence = r->silence_timeout,
                                  .progress = r->progress_timeout,
                                  .grace = r->grace_period},
                        .security = r->comm_security,
                        .say = r->say,
                        .ctx = r->ctx};
    if (r->comm) {
        lc_status s = lc__world_given(r->comm, &o, &d->world);
        if (s < 0) {
            free(d);
            return s;
        }
    } else {
        lc_status s = lc__world_join(&o, &d->world);
        int devices;
        if (s >= 0) s = lc__devices_parse(r->devices, LC_MAX_LOCAL_RANKS, "processes on a machine", &devices);
        if (s >= 0) s = lc__world_check_number(d->world, devices, r->num_nodes);
        if (s < 0 && d->world) s = lc__world_refuse(d->world, s);
        if (s >= 0 && d->world->control)
            lc__control_terms(d->world->control,
                              (r->own_data ? LC__OWN_DATA : 0) | (r->deterministic ? LC__POWER_OF_TWO : 0));
        if (s < 0) {
            free(d);
            return s;
        }
        d->comm = d->world->comm;
    }
    *self = d;
    return LC_OK;
}

lc_comm *lc__processes_comm(void *self)
{
    return ((lc__processes *)self)->comm;
}

/* A program that supplies the communicator places its ranks itself. */
void lc__processes_place(void *self, int *rank, int *ranks)
{
    const lc__world *w = ((lc__processes *)self)->world;
    bool ours = w && !w->given;
    *rank = ours ? w->local_rank : 0;
    *ranks = ours ? w->local_size : 1;
}

/* ---- the model ---- */

/* Makes whole what no optimizer of this run has, and so is not sharded, before the previous run's slices are dropped.
 */
static lc_status gather_rest(void *before, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    const lc_tensor *p = t->tensor;
    return p->is_slice && p->slices && p->slices->owner == before ? lc__flat_gather(p->flat) : LC_OK;
}

lc_status lc__processes_share(void *self, lc_graph *graph, lc_module *m, lc_optimizer *const *optimizers, int n,
                              int stage)
{
    lc__processes *d = self;
    if (!d->comm) return LC_OK;
    LC_TRY(lc__ranks_model(d->comm, m, stage == 3));
    /* The slices of the previous run become this run's. Without slices the previous reducer goes first, since gradients
     * can be exposed only once at a time. */
    lc__reducer *before = stage == 3 ? d->reducer : NULL;
    if (!before) lc__reducer_free(d->reducer);
    d->reducer = NULL;
    lc_status status = lc__reducer_new(graph, d->comm, d->bucket_bytes, &d->reducer);
    if (status >= 0) status = lc__reducer_compress(d->reducer, d->wire);
    if (status >= 0) {
        lc__reducer_shard(d->reducer, stage);
        if (d->slices) lc__reducer_replicate(d->reducer, d->slices, d->replicas);
    }
    for (int i = 0; i < n && status >= 0; i++) status = lc__reducer_add(d->reducer, optimizers[i]);
    if (status >= 0 && !n && stage == 3) status = lc__reducer_add_module(d->reducer, m);
    if (status >= 0 && before) status = lc_module_visit(m, gather_rest, before);
    lc__reducer_free(before);
    LC_TRY(status);
    return stage == 3 ? lc__ranks_fill(d->comm, m) : LC_OK;
}

/* ---- a step ---- */

void lc__processes_before_backward(void *self, double weight)
{
    lc__processes *d = self;
    if (d->reducer) lc__reducer_set_weight(d->reducer, weight);
}

_Static_assert(LC_SYNC_FLAGS == LC__SYNC_FLAGS, "the reducer's flags are the trainer's");

lc_status lc__processes_after_backward(void *self, uint8_t flags[LC_SYNC_FLAGS])
{
    lc__processes *d = self;
    return d->reducer ? lc__reducer_sync(d->reducer, flags) : LC_OK;
}

void lc__processes_progress(void *self, int64_t step, const char *where)
{
    lc__processes *d = self;
    if (d->world && d->world->control) lc__control_progress(d->world->control, step, where);
}

void lc__processes_fail(void *self, const char *why)
{
    lc__processes *d = self;
    char text[1200];
    snprintf(text, sizeof text, "rank %d failed: %s", lc_comm_rank(d->comm), why);
    lc__comm_give_up(d->comm, text);
    if (d->world && d->world->control) lc__control_fail_and_wait(d->world->control, why);
}

/* If ranks are watched, the cause becomes known shortly after connections break; otherwise the rank that noticed
 * reports it. A rank that sees the failure in another group passes it on. */
void lc__processes_explain(void *self)
{
    lc__processes *d = self;
    char why[1024];
    if (d->world) (void)!lc__world_pass_on(d->world, LC_ERR_PEER);
    lc__copy_message(why, sizeof why);
    lc__comm_give_up(d->comm, why);
}

void lc__processes_teardown(void *self)
{
    lc__processes *d = self;
    lc__reducer_free(d->reducer);
    lc_comm_free(d->replicas);
    lc_comm_free(d->slices);
    lc__world_leave(d->world);
    free(d);
}
