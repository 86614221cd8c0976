/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that a training saves as it goes: how their writing went, and what follows (after_save.c). */
#ifndef LC_CORE_RESUME_AFTER_SAVE_H
#define LC_CORE_RESUME_AFTER_SAVE_H

#include "core/hooks/trainer_internal.h"

typedef struct lc__save_plan {
    const char *path;
    bool weights_only, wait, verbose;
    double score;
    bool has_score;
    void *owner;               /* a callback's self */
    lc__save_settled *settled; /* called once, if lc__save returns LC_OK, perhaps before it does */
} lc__save_plan;

/* Saves the state. Errors of putting it together, and with `wait` those of writing that stop the run, are returned;
 * others come with lc__settle. Settles the save before. Collective. */
lc_status lc__save(lc_trainer *t, const lc__save_plan *plan) LC_MUST_USE;
/* What is at `path` will have been removed when the save that was begun last is done: its row is to say so. */
void lc__saves_replaced(lc_trainer *t, const char *path);

/* Of the option on_save_error (NULL: continue). */
lc_status lc__on_save_error(const char *asked, bool *stops) LC_MUST_USE;
void lc__saves_begin(lc_trainer *t); /* of a fit */
/* A save of the run's own that is not lc__save's ended so, on all ranks. */
void lc__saves_count(lc_trainer *t, const char *path, lc_status status);
/* After the last one: an error if that was not saved. The same on all ranks. */
lc_status lc__saves_verdict(lc_trainer *t) LC_MUST_USE;
/* Before a save that comes because the run ends: what went wrong with the one before is said, and no reason not to. */
void lc__settle_before_the_end(lc_trainer *t);
void lc__saves_free(lc_trainer *t);

#endif
