/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint written by several ranks: calls of their background threads (joint.c) and of their training threads
 * (ranks.c). */
#ifndef LC_CORE_CHECKPOINT_JOINT_H
#define LC_CORE_CHECKPOINT_JOINT_H

#include "core/checkpoint/write_job.h"

#include <lightc/strategy.h>

/* ---- background threads; `dir` is the temporary directory ---- */

/* Begins the list of the files that this rank will write. */
void lc__joint_begin(const lc_ckpt_writer *w, const char *dir, lc__manifest *m);
/* A rank other than 0 reports that its files are safe, or why not (`status`, with this thread's message). Returns the
 * status. */
lc_status lc__joint_report(lc_ckpt_writer *w, const char *dir, const lc__manifest *m, lc_status status);
/* Rank 0: waits for the others and adds their files. Fails if one of them failed, or if unfinished ranks were given
 * up. */
lc_status lc__joint_collect(lc_ckpt_writer *w, const char *dir, lc__manifest *m);
/* Rank 0: checks that every tensor that all ranks have is in some file, and that ranges of tensors add up to whole
 * ones. */
lc_status lc__joint_check(lc_ckpt_writer *w, const char *dir, const lc__manifest *m);

/* ---- the training threads ---- */

/* Parses the option state_dict_type: "full", "sharded", or the strategy's choice ("auto" or NULL). */
lc_status lc__state_dict_type(const char *asked, const lc_strategy_ops *strategy, bool *sharded) LC_MUST_USE;

/* Commits the checkpoint that all ranks of `comm` (NULL: only this one) have begun. Each rank writes a part: some of
 * the tensors that all have added under the same names, and its own ranges. state.json is rank 0's. With `wait`,
 * returns the same on all ranks, when the checkpoint has its name; otherwise lc__ckpt_wait_together must follow before
 * the next checkpoint. Collective. */
lc_status lc__ckpt_commit_together(lc_ckpt_writer *w, lc_comm *comm, bool wait) LC_MUST_USE;
/* As lc_ckpt_wait. After lc__ckpt_commit_together it is collective and returns the same on all ranks: an error of one
 * is an error of all. Does not wait for lost ranks. `comm` NULL: there are no other ranks (any more); their files count
 * if they are complete. */
lc_status lc__ckpt_wait_together(lc_ckpt_writer *w, lc_comm *comm) LC_MUST_USE;

/* Elements [first, first + count) of a tensor of type `whole`, in the memory order of `layout`. The memory must not
 * change until the commit returns. The range may be empty. */
lc_status lc__ckpt_add_range(lc_ckpt_writer *w, lc_ckpt_kind kind, const char *name, const lc_type *whole,
                             lc_layout layout, int64_t first, int64_t count, const void *data) LC_MUST_USE;
/* A tensor that no other rank adds. */
lc_status lc__ckpt_add_own(lc_ckpt_writer *w, lc_ckpt_kind kind, const char *name, lc_tensor *t) LC_MUST_USE;

/* lc_checkpoint_open by all ranks at once, each of which verifies a part of the files. Collective. */
lc_status lc__ranks_open_checkpoint(lc_comm *comm, const char *path, lc_checkpoint **out) LC_MUST_USE;

#endif
