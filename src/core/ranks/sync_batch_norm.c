/* SPDX-License-Identifier: Apache-2.0 */
/* The option sync_batchnorm: batch norm layers use statistics of all ranks (lc_sync_batch_norm).
 *
 * The layers have their own communicator. Its calls come in the order in which the layers are recorded, reversed in the
 * backward pass. The order is the same on all ranks, since collectives are neither moved nor dropped. Buckets of
 * gradients use the other communicator and are sent when each rank's plan has them ready. Up to sharded_1 no order
 * between the two is needed: nothing waits for a bucket before the plan has run, including its calls for batch norm.
 * From sharded_2 on the plan itself waits for buckets, so they must be ready at the same place among these calls on all
 * ranks, which must therefore use the same parameters.
 *
 * A rank without a sample of a batch records no layer. It makes the same calls as the others with zeros, which change
 * no sum; a rank with samples announces the calls (comm_internal.h). The way batches are sliced determines which ranks
 * have samples, so all ranks know. A rank without samples gets the running statistics afterwards. */
#include "core/input/input.h"
#include "comm/comm_internal.h"
#include "core/ranks/ranks.h"
#include "data/batch_slice.h"
#include "nn/nn_internal.h"
#include "tensor/host_access.h"
#include "tensor/tensor_impl.h"

static lc_status find_norm(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    bool *found = ctx;
    (void)path, (void)mt;
    *found |= lc__as_batch_norm(owner) != NULL;
    return LC_OK;
}

/* Reports that results depend on the number of ranks or devices. Deterministic runs do not: their chunks are the same
 * for any number. */
static lc_status report_unsynced(lc_trainer *t, bool devices)
{
    bool found = false;
    if (t->opt.deterministic || (t->n_ranks == 1 && !devices)) return LC_OK;
    LC_TRY(lc_module_visit(t->m, find_norm, &found));
    if (found)
        lc_trainer_message(t, LC_INFO,
                           "batch norm: each %s normalizes its own part of a batch, so results depend on their number; "
                           "%s--sync_batchnorm true gives the results of one process",
                           devices ? "device" : "rank", devices ? "--strategy ddp with " : "");
    return LC_OK;
}

lc_status lc__batch_norms_setup(lc_trainer *t, int devices)
{
    if (!t->opt.sync_batchnorm) return report_unsynced(t, devices > 1);
    if (!t->comm) return LC_OK;
    lc__batch_norms_release(t);
    LC_TRY(lc_comm_split(t->comm, 0, t->rank, &t->ranks->batch_norm_comm));
    t->ranks->batch_norm_leader = -1;
    if (!lc_sync_batch_norm(t->m, t->ranks->batch_norm_comm))
        lc_trainer_message(t, LC_WARNING, "sync_batchnorm: %s has no batch norm layers", t->mo.name);
    return LC_OK;
}

void lc__batch_norms_release(lc_trainer *t)
{
    if (!t->ranks->batch_norm_comm) return;
    lc_sync_batch_norm(t->m, NULL);
    lc_comm_free(t->ranks->batch_norm_comm);
    t->ranks->batch_norm_comm = NULL;
}

/* The last rank with samples, if some ranks have none; else -1. *alone: it is the only one. */
static int leader_of(const lc_trainer *t, const lc_batch *batch, bool *alone)
{
    int64_t units = lc__batch_units(batch, t->n_ranks), samples = units ? units : batch->global_size;
    const lc_share *given = t->input->train.loader ? lc_dataloader_get_share(t->input->train.loader) : NULL;
    lc_share s = given ? *given : (lc_share){.size = t->n_ranks};
    int leader = -1, empty = 0;
    for (s.rank = 0; s.rank < s.size; s.rank++) {
        int64_t begin, n;
        lc_share_range(&s, samples, samples, &begin, &n);
        if (n)
            leader = s.rank;
        else
            empty++;
    }
    *alone = empty > 0 && empty == s.size - 1;
    return empty ? leader : -1;
}

lc_status lc__batch_norms_begin(lc_trainer *t, const lc_batch *batch)
{
    if (!t->ranks->batch_norm_comm || batch->global_size < 1) return LC_OK;
    bool empty = lc__is_empty_share(batch), alone;
    t->ranks->batch_norm_leader = leader_of(t, batch, &alone);
    if (empty ? t->ranks->batch_norm_leader < 0 || t->ranks->batch_norm_leader == t->rank : false)
        return lc_fail(LC_ERR_USER,
                       "rank %d got no samples of a batch of %lld on %d ranks; with sync_batchnorm a loader must "
                       "divide them as lc_share_range does",
                       t->rank, (long long)lc__batch_least(batch), t->n_ranks);
    if (t->ranks->batch_norm_leader >= 0 &&
        t->strategy->syncs_every_backward) /* the plan would have to run in two parts */
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "sync_batchnorm with the strategy %s needs a sample of every batch on every rank, but this one "
                       "has %lld for %d ranks; skip it (drop_last), or use --strategy ddp or sharded_1",
                       t->strategy->name, (long long)lc__batch_least(batch), t->n_ranks);
    if (t->ranks->batch_norm_leader >= 0 && !empty)
        lc__comm_announce(t->ranks->batch_norm_comm, t->ranks->batch_norm_leader);
    if (alone && !empty) lc_sync_batch_norm(t->m, NULL); /* which refuses a single value */
    return LC_OK;
}

static lc_status send_statistics(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    const lc_trainer *t = ctx;
    (void)path;
    if (mt->is_parameter || !lc__as_batch_norm(owner)) return LC_OK;
    return lc__tensor_broadcast(mt->tensor, t->ranks->batch_norm_comm, t->ranks->batch_norm_leader);
}

lc_status lc__batch_norms_end(lc_trainer *t, bool has_loss)
{
    if (!t->ranks->batch_norm_comm) return LC_OK;
    bool empty = lc__is_empty_share(t->batch);
    if (!has_loss && !empty)
        return lc_fail(LC_ERR_USER,
                       "training_step returned no loss: with sync_batchnorm the other ranks wait for this one in the "
                       "backward pass; return one on every rank");
    if (t->ranks->batch_norm_leader < 0) return LC_OK;
    LC_TRY(lc_step_run(t->graph)); /* makes the calls, and those of an update that was recorded before */
    if (empty) {
        LC_TRY(lc__comm_follow(t->ranks->batch_norm_comm, t->ranks->batch_norm_leader));
    } else {
        LC_TRY(lc__comm_announce_end(t->ranks->batch_norm_comm));
        lc_sync_batch_norm(t->m, t->ranks->batch_norm_comm); /* if this rank was alone */
    }
    lc_status s = lc_module_visit(t->m, send_statistics, t);
    t->ranks->batch_norm_leader = -1;
    return s;
}
