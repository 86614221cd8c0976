/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks run the same loop in step: every rank calls every hook, and whatever decides how the loop goes on is
 * decided for all at once. A wish of one rank (to stop, to save, a signal) rides on the next sync of gradients as a
 * byte, the largest of all wins; numbers that callbacks look at are reduced, or rank 0's. */
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

lc_status lc__ranks_reduce(lc_comm *comm, double *values, int n, lc_log_reduce how)
{
    static const lc_reduce_op ops[] = {[LC_LOG_MEAN] = LC_COMM_SUM,
                                       [LC_LOG_SUM] = LC_COMM_SUM,
                                       [LC_LOG_MIN] = LC_COMM_MIN,
                                       [LC_LOG_MAX] = LC_COMM_MAX};
    if (!comm || n == 0) return LC_OK;
    LC_TRY(lc_comm_all_reduce(comm, values, values, n, LC_F64, ops[how], NULL));
    for (int i = 0; i < n && how == LC_LOG_MEAN; i++) values[i] /= lc_comm_size(comm);
    return LC_OK;
}

lc_status lc__ranks_reduce_exact(lc_comm *comm, lc__exact_sum *s)
{
    if (!comm) return LC_OK;
    lc__exact_tidy(s);
    LC_TRY(lc_comm_all_reduce(comm, s->digit, s->digit, LC__EXACT_DIGITS, LC_I64, LC_COMM_SUM, NULL));
    LC_TRY(lc_comm_all_reduce(comm, &s->special, &s->special, 1, LC_F64, LC_COMM_SUM, NULL));
    lc__exact_tidy(s);
    return LC_OK;
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

lc_status lc__from_rank_zero(lc_trainer *t, void *data, size_t bytes)
{
    return t->comm ? lc_comm_broadcast(t->comm, data, (int64_t)bytes, LC_U8, 0, NULL) : LC_OK;
}

lc_status lc__metric_from_rank_zero(lc_trainer *t, const char *name, bool *found, double *value)
{
    const lc__metric_map *m = &t->metrics[LC_CALLBACK_METRICS];
    int at = lc__map_find(m, name);
    double v[2] = {at >= 0, at >= 0 ? m->v[at].value : 0};
    LC_TRY(lc__from_rank_zero(t, v, sizeof v));
    *found = v[0] != 0;
    *value = v[1];
    return LC_OK;
}

lc_status lc__ranks_text(lc_comm *comm, char **text)
{
    if (!comm) return LC_OK;
    bool root = lc_comm_rank(comm) == 0;
    int64_t n = *text && root ? (int64_t)strlen(*text) + 1 : 0;
    LC_TRY(lc_comm_broadcast(comm, &n, 1, LC_I64, 0, NULL));
    if (!root) {
        free(*text);
        *text = n ? malloc((size_t)n) : NULL;
        if (n && !*text) return lc_fail(LC_ERR_MEMORY, "out of memory: a text of rank 0");
    }
    lc_status s = n ? lc_comm_broadcast(comm, *text, n, LC_U8, 0, NULL) : LC_OK;
    if (s < 0 && !root) free(*text), *text = NULL; /* it has no end, maybe */
    return s;
}

lc_status lc__ranks_agree(lc_comm *comm, lc_status mine)
{
    enum { TEXT = 1024 };
    char why[TEXT];
    if (!comm) return mine;
    int rank = lc_comm_rank(comm), first = 0;
    int size = lc_comm_size(comm), of = mine < 0 ? lc__error_rank() : -1;
    int64_t code = mine < 0 ? mine : 0, all[2] = {code ? size - rank + (of < 0 ? size : 0) : 0, 0};
    lc__copy_message(why, sizeof why);
    /* The first rank with an error of its own has the largest number; then come those that have one of another rank. */
    LC_TRY(lc_comm_all_reduce(comm, &all[0], &all[1], 1, LC_I64, LC_COMM_MAX, NULL));
    if (!all[1]) return mine;
    first = size - (int)(all[1] > size ? all[1] - size : all[1]);
    char theirs[TEXT];
    int64_t error[2] = {code, of};
    memcpy(theirs, why, sizeof theirs);
    LC_TRY(lc_comm_broadcast(comm, error, 2, LC_I64, first, NULL));
    LC_TRY(lc_comm_broadcast(comm, theirs, TEXT, LC_U8, first, NULL));
    if (mine < 0) return lc_fail(mine, "%s", why);
    theirs[TEXT - 1] = 0;
    lc_status status = lc_fail((lc_status)error[0], "rank %d: %s", first, theirs);
    lc__note_rank(error[1] < 0 ? first : (int)error[1]);
    return status;
}

lc_status lc__text_from_rank_zero(lc_trainer *t, char **text)
{
    return lc__ranks_text(t->comm, text);
}

lc_status lc__ranks_barrier(lc_trainer *t)
{
    return t->comm ? lc_comm_barrier(t->comm, NULL) : LC_OK;
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

bool lc__leaves_ranks_empty(const lc_trainer *t, const lc__source *source, const lc_batch *batch)
{
    const lc_shard *s = lc_dataloader_get_shard(source->loader);
    if (batch->global_size < 1) return false;
    if (batch->piece > 0) { /* the last one is */
        int64_t each = (s->pieces + s->size - 1) / s->size * batch->piece;
        return batch->global_size <= each * (t->n_ranks - 1);
    }
    int64_t units = lc__batch_units(batch, t->n_ranks);
    return units > 0 && units < t->n_ranks;
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

lc_status lc__ranks_any(lc_comm *comm, bool *any)
{
    uint8_t flag = *any;
    if (comm) LC_TRY(lc_comm_all_reduce(comm, &flag, &flag, 1, LC_U8, LC_COMM_MAX, NULL));
    *any = flag;
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
