/* SPDX-License-Identifier: Apache-2.0 */
/* One checkpoint that several ranks write: what their background threads do with each other (share.c), and
 * what the ranks themselves do (ranks.c). */
#ifndef LC_CORE_CHECKPOINT_SHARE_H
#define LC_CORE_CHECKPOINT_SHARE_H

#include "core/checkpoint/write_job.h"

#include <lightc/strategy.h>

/* ---- background threads; `dir` is the temporary directory ---- */

/* Begins the list of the files that this rank will write. */
void lc__share_begin(const lc_ckpt_writer *w, const char *dir, lc__manifest *m);
/* Another rank than 0 is done: its files are safe, or `status` (and this thread's message) says why not. Returns the
 * status. */
lc_status lc__share_tell(lc_ckpt_writer *w, const char *dir, const lc__manifest *m, lc_status status);
/* Rank 0: waits for the others, and adds what they have written. Fails if one of them failed, and when the rest was
 * given up. */
lc_status lc__share_collect(lc_ckpt_writer *w, const char *dir, lc__manifest *m);
/* Rank 0: all that every rank has is in somebody's files, and ranges of tensors add up to whole ones. */
lc_status lc__share_check(lc_ckpt_writer *w, const char *dir, const lc__manifest *m);

/* ---- the ranks' own threads ---- */

/* What an option state_dict_type asks for: "full", "sharded", or what suits the strategy ("auto" or NULL). */
lc_status lc__state_dict_type(const char *asked, const lc_strategy_ops *strategy, bool *sharded) LC_MUST_USE;

/* Commits what all ranks of `comm` (NULL: only this one) have begun, as one checkpoint in which each has written a
 * share: of tensors that all have added, under the same names, whole ones; and the ranges that each has. state.json is
 * rank 0's. With `wait` it returns the same on all ranks, when the checkpoint has its name; otherwise
 * lc__ckpt_wait_together must follow before the next one. Collective. */
lc_status lc__ckpt_commit_together(lc_ckpt_writer *w, lc_comm *comm, bool wait) LC_MUST_USE;
/* As lc_ckpt_wait; after lc__ckpt_commit_together it is collective, and returns the same on all ranks: an error of one
 * of them is everybody's. Does not wait for ranks that are lost. `comm` NULL: the other ranks are not there (any more),
 * whose files count if they are done. */
lc_status lc__ckpt_wait_together(lc_ckpt_writer *w, lc_comm *comm) LC_MUST_USE;

/* Elements [first, first + count) of a tensor of type `whole`, in the memory order of `layout`. The memory must not
 * change until the commit returns. The range may be empty. */
lc_status lc__ckpt_add_range(lc_ckpt_writer *w, lc_ckpt_part part, const char *name, const lc_type *whole,
                             lc_layout layout, int64_t first, int64_t count, const void *data) LC_MUST_USE;
/* A tensor that no other rank adds. */
lc_status lc__ckpt_add_own(lc_ckpt_writer *w, lc_ckpt_part part, const char *name, lc_tensor *t) LC_MUST_USE;

/* lc_checkpoint_open by all ranks at once, each of which verifies a part of the files. Collective. */
lc_status lc__ranks_open_checkpoint(lc_comm *comm, const char *path, lc_checkpoint **out) LC_MUST_USE;

#endif
