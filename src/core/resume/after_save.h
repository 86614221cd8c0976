/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that a training saves as it goes: how their writing went, and what follows (after_save.c). */
#ifndef LC_CORE_RESUME_AFTER_SAVE_H
#define LC_CORE_RESUME_AFTER_SAVE_H

#include "core/hooks/trainer_internal.h"

typedef void lc__save_settled(void *owner, bool saved);
typedef struct lc__saves {
    /* The save that is under way: the same on all ranks. */
    bool under_way;
    char *path;
    int64_t step, epoch;
    double score;
    bool has_score, verbose;
    void *owner;
    lc__save_settled *settled;
    /* On this rank: */
    bool known, noted; /* `status` is how it went; loggers know of it */
    lc_status status;
    char early[1024];             /* the message of `status` */
    struct lc__replaced {         /* what may have been removed meanwhile */
        char *path, training[48]; /* of which training, "" if that is not known */
    } * replaced;
    int n_replaced;
    /* State of the fit, the same on all ranks: */
    int64_t failures;
    bool last_failed;
    char why[1024];
    int why_of; /* the rank on which that happened; -1: this one */
    char *good; /* the newest that is saved; NULL: none is */
} lc__saves;

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

/* Parses the option on_save_error (NULL: continue). */
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
