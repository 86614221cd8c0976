/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses among the checkpoints in directories. */
#ifndef LC_CORE_CHECKPOINT_FIND_NEWEST_H
#define LC_CORE_CHECKPOINT_FIND_NEWEST_H

#include "core/checkpoint/checkpoint.h"

typedef struct lc__ckpt_found {
    char *path;
    int64_t saved_ns;
} lc__ckpt_found;

typedef struct lc__ckpt_list {
    lc__ckpt_found *found;
    int n, capacity;
} lc__ckpt_list;

/* Adds the checkpoints in `dir` that have a valid manifest (symbolic links are not followed). `origin`: only those of
 * that fit, and of its run if it names one; NULL: all. */
lc_status lc__ckpt_list_add(lc__ckpt_list *l, const char *dir, const lc__ckpt_origin *origin) LC_MUST_USE;
/* The most recently saved one that can be opened; to_continue: not one with only weights. NULL: none. Borrowed. */
const char *lc__ckpt_list_newest(lc__ckpt_list *l, bool to_continue);
void lc__ckpt_list_free(lc__ckpt_list *l);
/* lc_checkpoint_find_last_good without changing anything in the directory. */
lc_status lc__ckpt_find_good(const char *dir, char *path, size_t size) LC_MUST_USE;

#endif
