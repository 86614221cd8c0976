/* SPDX-License-Identifier: Apache-2.0 */
/* Removing checkpoints: only a directory that is a checkpoint of lightc, or what is left of one, and contains nothing
 * else (docs/checkpoints.md, "What lightc deletes"). */
#ifndef LC_CORE_CHECKPOINT_REMOVAL_H
#define LC_CORE_CHECKPOINT_REMOVAL_H

#include "core/checkpoint/checkpoint.h"
#include "base/remove.h"

typedef enum lc__ckpt_what {
    LC__CKPT_WHOLE,    /* a checkpoint: lightc wrote its manifest, though it may be damaged */
    LC__CKPT_REPLACED, /* the same, or an empty directory */
    LC__CKPT_LEFTOVER, /* the same, or a directory with LC__MARK in it, or with only notes of ranks */
    LC__CKPT_OWN,      /* a directory with a temporary name made by the caller */
} lc__ckpt_what;

typedef struct lc__ckpt_removal {
    lc__removal_rules rules; /* for lc__remove */
    lc__ckpt_what what;
    const char *owner; /* not NULL: only a checkpoint of this training */
    bool readable;     /* the manifest could be read, and is in `m` */
    lc__manifest m;
} lc__ckpt_removal;

/* Borrows `owner`. rules.aside may be set. */
void lc__ckpt_removal_init(lc__ckpt_removal *p, lc__ckpt_what what, const char *owner);
void lc__ckpt_removal_release(lc__ckpt_removal *p);

/* Removes a directory with a temporary name that the caller has made, if its entries are those of a checkpoint. */
lc_status lc__ckpt_remove_own(const lc__io *io, const char *dir);
/* lc_checkpoint_remove for a checkpoint of training `owner` (NULL: of any). `trusted`: as in lc__open_parent. */
lc_status lc__ckpt_remove(const char *path, size_t trusted, const char *owner);
/* An error unless a checkpoint of training `owner` (NULL: of any) may replace the entry at `path`, if there is one: a
 * link, an empty directory, or a checkpoint of that training with nothing else in it. */
lc_status lc__ckpt_may_replace(const char *path, const char *owner);
/* The training that has saved the checkpoint at `path`, "" if it does not say; false if there is no checkpoint. */
bool lc__ckpt_training_of(const char *path, char training[48]);

/* leftovers.c: restores the names of checkpoints moved away for new ones whose writers died. */
lc_status lc__ckpt_restore_names(const char *dir);

#endif
