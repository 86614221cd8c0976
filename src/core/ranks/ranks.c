/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks run the same loop in step: every rank calls every hook, and whatever decides how the loop goes on is
 * decided for all at once. A wish of one rank (to stop, to save, a signal) rides on the next sync of gradients as a
 * byte, the largest of all wins; numbers that callbacks look at are reduced, or rank 0's. */
#include "comm/agree.h"
#include "core/ranks/ranks.h"

#include "core/split/chunks.h"
#include "core/ranks/rank_times.h"
#include "core/resume/run_state.h"
#include "base/status.h"
#include "data/batch_slice.h"
#include "record/graph_impl.h"
#include "parallel/reduce/compress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__ranks_are_there(const lc_trainer *t)
{
    if (t->n_ranks == 1 || t->comm) return LC_OK;
    return lc_fail(LC_ERR_PEER, "an earlier run of this trainer has lost its ranks; start the program again");
}

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

lc_status lc__request_check(const lc_strategy_request *ask, const lc_strategy_ops *strategy, const lc_comm *comm,
                            bool deterministic)
{
    const char *name = ask->gradient_compression;
    lc_dtype wire;
    if (ask->shard_size && !strategy->replicates)
        return lc_fail(LC_ERR_CONFIG,
                       "shard_size=%lld: the strategy %s has no copies that ranks share; use --strategy sharded_hybrid",
                       (long long)ask->shard_size, strategy->name);
    LC_TRY(lc__wire_find(name, &wire));
    if (wire == LC_F32 || (!strategy->devices && (!comm || lc_comm_size(comm) == 1))) return LC_OK;
    if (!strategy->compresses)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "gradient_compression=%s: the strategy %s keeps gradients as they are; use --strategy ddp", name,
                       strategy->name);
    if (deterministic)
        return lc_fail(LC_ERR_CONFIG,
                       "gradient_compression=%s rounds what ranks send, so that deterministic cannot give "
                       "the bits of one process; leave out one of the two",
                       name);
    return LC_OK;
}

void lc__tell_progress(lc_trainer *t)
{
    if (!t->comm || !t->strategy->progress) return;
    t->strategy->progress(t->strategy_self, t->global_step,
                          t->sanity       ? "sanity check"
                          : t->validating ? "validation"
                                          : lc_stage_name(t->stage));
}

/* ---- gradients and wishes ---- */

enum { WISH_STOP, WISH_SIGNAL, WISH_SAVE, WISH_VALIDATE, BACKWARDS };

void lc__weigh_batch(lc_trainer *t, const lc_batch *batch)
{
    double weight = 1;
    lc__rank_times_start(t);
    if (!t->comm || !t->strategy->before_backward) return;
    if (batch && batch->global_size > 0)
        weight = (double)batch->size * lc_comm_size(t->comm) / (double)batch->global_size;
    t->strategy->before_backward(t->strategy_self, weight);
}

static bool is_uneven(const lc_batch *batch, int64_t shares)
{
    bool uneven = lc__batch_units(batch, shares) == 0;
    int64_t all = lc__batch_samples(batch);
    for (int i = 0; i < batch->n_parts && !uneven; i++) { /* a loader of the program's own, perhaps, which cannot */
        const lc_batch *b = batch->parts[i];
        uneven = b && b->size * all != batch->size * lc__batch_samples(b);
    }
    return uneven;
}

void lc__tell_uneven(lc_trainer *t, const lc_batch *batch, int64_t shares)
{
    lc__str sizes = {0};
    char loader[40] = "train";
    if (t->parts_told || shares < 2 || lc__cuts_chunks(t) || !is_uneven(batch, shares)) return;
    t->parts_told = true;
    for (int i = 0; i < batch->n_parts; i++)
        if (batch->parts[i])
            lc__str_add(&sizes, "%s%lld", sizes.n ? ", " : "", (long long)lc__batch_samples(batch->parts[i]));
    if (t->validating || t->stage != LC_STAGE_FIT)
        snprintf(loader, sizeof loader, "%s %d", lc_stage_name(t->stage), t->dataloader_idx);
    lc_trainer_message(
        t, "warning",
        "the combined %s loader has a batch of parts with %s samples, of which %lld %s cannot have equal "
        "shares: some samples count more than with one, and results differ a little; drop_last leaves "
        "such batches out",
        loader, sizes.failed ? "different numbers of" : sizes.s, (long long)shares,
        t->device_parts ? "devices" : "ranks");
    lc__str_free(&sizes);
}

lc_status lc__begin_batch(lc_trainer *t, const lc_batch *batch)
{
    if (batch->n_parts && batch->global_size > 0) lc__tell_uneven(t, batch, t->n_ranks);
    if (!t->comm || !t->strategy->begin_batch) return LC_OK;
    int64_t passes = lc__is_empty_share(batch) ? 0 : lc__chunks_in(t, batch);
    return t->strategy->begin_batch(t->strategy_self, passes);
}

lc_status lc__end_batch(lc_trainer *t)
{
    return t->comm && t->strategy->end_batch ? t->strategy->end_batch(t->strategy_self) : LC_OK;
}

static void wishes(lc_trainer *t, uint8_t flags[LC_SYNC_FLAGS])
{
    memset(flags, 0, LC_SYNC_FLAGS);
    flags[WISH_STOP] = t->stop_wish;
    flags[WISH_SIGNAL] = (uint8_t)atomic_load(&t->signal);
    flags[WISH_SAVE] = atomic_load(&t->save_requested) != 0;
    flags[WISH_VALIDATE] = t->val_check == LC__VAL_TIME && lc__validation_time_is_up(t);
    /* By hand nothing is divided by them, and no window ends their count. */
    int64_t backwards = t->mo.manual_optimization ? 0 : t->window_backwards;
    flags[BACKWARDS] = (uint8_t)(backwards < UINT8_MAX ? backwards : UINT8_MAX);
}

static void agree(lc_trainer *t, const uint8_t flags[LC_SYNC_FLAGS])
{
    if (flags[WISH_STOP]) t->user_stop = true;
    t->agreed_signal = flags[WISH_SIGNAL];
    t->agreed_save = flags[WISH_SAVE];
    t->agreed_validate = flags[WISH_VALIDATE];
}

lc_status lc__sync_gradients(lc_trainer *t)
{
    uint8_t flags[LC_SYNC_FLAGS];
    if (!t->strategy->after_backward) return LC_OK;
    wishes(t, flags);
    lc__rank_times_sync(t);
    LC_TRY(t->strategy->after_backward(t->strategy_self, flags));
    agree(t, flags);
    /* A rank without samples, or without a loss, in a micro-batch divides by as many as the others. */
    int64_t most = flags[BACKWARDS];
    if (most == UINT8_MAX && t->comm) {
        most = t->window_backwards;
        LC_TRY(lc_comm_all_reduce(t->comm, &most, &most, 1, LC_I64, LC_COMM_MAX, NULL));
    }
    if (most <= t->window_backwards) return LC_OK;
    t->graph->backwards += most - t->window_backwards;
    t->window_backwards = most;
    return LC_OK;
}

lc_status lc__sync_wishes(lc_trainer *t)
{
    uint8_t flags[LC_SYNC_FLAGS];
    if (!t->comm) return LC_OK;
    wishes(t, flags);
    LC_TRY(lc_comm_all_reduce(t->comm, flags, flags, LC_SYNC_FLAGS, LC_U8, LC_COMM_MAX, NULL));
    agree(t, flags);
    return LC_OK;
}

lc_status lc__votes_begin(lc_trainer *t)
{
    bool skip = t->has_before_optimizer_step || t->precision->before_optimizer_step,
         stop = t->has_late_hooks || t->has_train_batch_end;
    for (int i = 0; i < t->n_callbacks; i++) {
        const lc_callback_ops *ops = &t->callbacks[i]->ops;
        if (ops->no_vote) continue;
        skip |= ops->on_before_optimizer_step != NULL;
        stop |= ops->on_before_optimizer_step || ops->on_after_backward || ops->on_train_batch_end;
    }
    uint8_t votes[] = {skip, stop};
    if (t->comm) LC_TRY(lc_comm_all_reduce(t->comm, votes, votes, 2, LC_U8, LC_COMM_MAX, NULL));
    t->votes_skip = votes[0];
    t->votes_stop = votes[1];
    return LC_OK;
}

lc_status lc__vote_skip(lc_trainer *t, bool *skip)
{
    return t->votes_skip ? lc__ranks_any(t->comm, skip) : LC_OK;
}

lc_status lc__vote_stop(lc_trainer *t)
{
    return t->votes_stop ? lc__sync_wishes(t) : LC_OK;
}

int lc__signal_of(const lc_trainer *t)
{
    return t->comm ? t->agreed_signal : atomic_load_explicit(&t->signal, memory_order_relaxed);
}

bool lc__save_requested(const lc_trainer *t)
{
    return t->comm ? t->agreed_save : atomic_load_explicit(&t->save_requested, memory_order_relaxed) != 0;
}
