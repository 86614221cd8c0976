/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints saved during training: the result of their writing, and what follows (after_save.c). */
#ifndef LC_CORE_RESUME_AFTER_SAVE_H
#define LC_CORE_RESUME_AFTER_SAVE_H

#include "core/hooks/trainer_internal.h"

typedef void lc__save_settled(void *owner, bool saved);
typedef struct lc__saves {
    /* The save in progress, the same on all ranks: */
    bool under_way;
    char *path;
    int64_t step, epoch;
    double score;
    bool has_score, verbose, is_retry;
    void *owner;
    lc__save_settled *settled;
    /* On this rank: */
    bool known, noted; /* `status` is the result; loggers have been notified */
    lc_status status;
    char early[1024];             /* the message of `status` */
    struct lc__replaced {         /* checkpoints that may have been removed meanwhile */
        char *path, training[48]; /* its training; "": unknown */
    } * replaced;
    int n_replaced;
    /* State of the fit, the same on all ranks: */
    int64_t failures;
    bool last_failed;
    char why[1024];
    int why_of; /* the rank that failed; -1: this one */
    char *good; /* the newest saved one; NULL: none */
} lc__saves;

typedef struct lc__save_plan {
    const char *path;
    bool weights_only, wait, verbose;
    bool is_retry; /* of the run's last save, which failed: if this one fails as well, only fit's error says so */
    double score;
    bool has_score;
    void *owner;               /* a callback's self */
    lc__save_settled *settled; /* called once if lc__save returns LC_OK, perhaps before it returns */
} lc__save_plan;

/* Saves the state. Returns errors of collecting it and, with `wait`, errors of writing that stop the run; others come
 * with lc__settle. Settles the previous save first. Collective. */
lc_status lc__save(lc_trainer *t, const lc__save_plan *plan) LC_MUST_USE;
/* The checkpoint at `path` will be removed by the save begun last: notify the loggers then. */
void lc__saves_replaced(lc_trainer *t, const char *path);

/* Parses the option on_save_error (NULL: continue). */
lc_status lc__on_save_error(const char *asked, bool *stops) LC_MUST_USE;
void lc__saves_begin(lc_trainer *t); /* at the start of a fit */
/* Counts the result, on all ranks, of a save that the run made without lc__save. */
void lc__saves_count(lc_trainer *t, const char *path, lc_status status);
/* After the last save: an error, on all ranks, if it failed. */
lc_status lc__saves_verdict(lc_trainer *t) LC_MUST_USE;
/* Before a save at the end of the run: an error of the previous save is reported, but does not prevent this one. */
void lc__settle_before_the_end(lc_trainer *t);
void lc__saves_free(lc_trainer *t);

#endif
