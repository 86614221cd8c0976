/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks run the same loop in step: every rank calls every hook, and every decision about the loop is made for
 * all ranks at once. A wish of one rank (to stop, to save, a signal) is sent as a byte with the next sync of gradients,
 * and all ranks get the largest value. */
#include "core/input/input.h"
#include "core/ranks/ranks.h"

#include "comm/agree.h"
#include "core/ranks/rank_times.h"
#include "base/status.h"
#include "record/graph_impl.h"

#include <string.h>

lc_status lc__ranks_are_there(const lc_trainer *t)
{
    if (t->n_ranks == 1 || t->comm) return LC_OK;
    return lc_fail(LC_ERR_PEER, "an earlier run of this trainer lost its ranks; restart the program");
}

void lc__note_progress(lc_trainer *t)
{
    if (!t->comm || !t->strategy->progress) return;
    t->strategy->progress(t->strategy_self, t->global_step,
                          t->sanity       ? "sanity check"
                          : t->validating ? "validation"
                                          : lc_stage_name(t->stage));
}

enum { WISH_STOP, WISH_SIGNAL, WISH_SAVE, WISH_VALIDATE, BACKWARDS };

bool lc__validation_time_is_up(const lc_trainer *t)
{
    return (double)(lc__now_ns() - t->input->val_time_ns) * 1e-9 >= t->opt.val_check_interval.value;
}

static void wishes(lc_trainer *t, uint8_t flags[LC_SYNC_FLAGS])
{
    memset(flags, 0, LC_SYNC_FLAGS);
    flags[WISH_STOP] = t->stop_wish;
    flags[WISH_SIGNAL] = (uint8_t)atomic_load(&t->ranks->signal);
    flags[WISH_SAVE] = atomic_load(&t->ranks->save_requested) != 0;
    flags[WISH_VALIDATE] = t->input->val_check == LC__VAL_TIME && lc__validation_time_is_up(t);
    /* With manual optimization nothing is divided by this count, and no window resets it. */
    int64_t backwards = t->mo.manual_optimization ? 0 : t->window_backwards;
    flags[BACKWARDS] = (uint8_t)(backwards < UINT8_MAX ? backwards : UINT8_MAX);
}

static void agree(lc_trainer *t, const uint8_t flags[LC_SYNC_FLAGS])
{
    if (flags[WISH_STOP]) t->user_stop = true;
    t->ranks->agreed_signal = flags[WISH_SIGNAL];
    t->ranks->agreed_save = flags[WISH_SAVE];
    t->ranks->agreed_validate = flags[WISH_VALIDATE];
}

lc_status lc__sync_gradients(lc_trainer *t)
{
    uint8_t flags[LC_SYNC_FLAGS];
    if (!t->strategy->after_backward) return LC_OK;
    wishes(t, flags);
    lc__rank_times_sync(t);
    LC_TRY(t->strategy->after_backward(t->strategy_self, flags));
    agree(t, flags);
    /* A rank without samples or a loss in a micro-batch must divide by the same count as the others. */
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
    bool skip = t->mo.on_before_optimizer_step || t->precision.before_optimizer_step,
         stop = t->has_late_hooks || t->mo.on_train_batch_end;
    for (int i = 0; i < t->n_callbacks; i++) {
        const lc_callback_ops *ops = &t->callbacks[i]->ops;
        if (ops->no_vote) continue;
        skip |= ops->on_before_optimizer_step != NULL;
        stop |= ops->on_before_optimizer_step || ops->on_after_backward || ops->on_train_batch_end;
    }
    uint8_t votes[] = {skip, stop};
    if (t->comm) LC_TRY(lc_comm_all_reduce(t->comm, votes, votes, 2, LC_U8, LC_COMM_MAX, NULL));
    t->ranks->votes_skip = votes[0];
    t->ranks->votes_stop = votes[1];
    return LC_OK;
}

lc_status lc__vote_skip(lc_trainer *t, bool *skip)
{
    return t->ranks->votes_skip ? lc__ranks_any(t->comm, skip) : LC_OK;
}

lc_status lc__vote_stop(lc_trainer *t)
{
    return t->ranks->votes_stop ? lc__sync_wishes(t) : LC_OK;
}

int lc__signal_of(const lc_trainer *t)
{
    return t->comm ? t->ranks->agreed_signal : atomic_load_explicit(&t->ranks->signal, memory_order_relaxed);
}

bool lc__save_requested(const lc_trainer *t)
{
    return t->comm ? t->ranks->agreed_save : atomic_load_explicit(&t->ranks->save_requested, memory_order_relaxed) != 0;
}
