/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders and datamodules in a run. */
#ifndef LC_CORE_INPUT_INPUT_H
#define LC_CORE_INPUT_INPUT_H

#include "core/hooks/trainer_internal.h"

/* A loader in a run. If its length is unknown, one batch is read ahead (and copied) to detect the last one. */
typedef struct lc__source {
    lc_dataloader *loader;
    bool owned, running, sequential;
    bool shared_out;       /* by the run, which undoes it at the end */
    lc_share share_before; /* the share before */
    int64_t length;        /* batches per epoch, after limits; -1: unknown */
    int64_t own_length;    /* for training: before the ranks agreed on the smallest length */
    int64_t limit;         /* for an unknown length; -1: none */
    int64_t fetched;
    struct lc__batch_copy *ahead[2];
    int which;            /* index in `ahead` of the next batch; -1: none */
    unsigned char *state; /* the loader's state, if any, for checkpoints */
    size_t n_state, cap_state;
} lc__source;

typedef struct lc__sources {
    lc__source s[LC_MAX_LOADERS];
    int n;
} lc__sources;

/* The training loader's times when fit began, from which the end computes those of this fit. */
typedef struct lc__waiting {
    lc_dataloader *loader;
    lc_loader_times before;
    int64_t start_ns;
} lc__waiting;

/* When validation is due within an epoch. */
typedef enum lc__val_check {
    LC__VAL_BATCHES,   /* every val_check_batch batches */
    LC__VAL_EPOCH_END, /* at the end of an epoch of unknown length */
    LC__VAL_TIME,
    LC__VAL_STEPS
} lc__val_check;

typedef struct lc__input {
    lc__source train;
    lc__sources eval;
    lc__waiting waiting;
    bool eval_loaded;
    int64_t loaders_epoch;
    bool uneven_reported; /* the warning about different numbers of batches was given */
    bool transfers;       /* datamodule or module has one of the three transfer hooks */
    lc_batch arrived;     /* the batch from these hooks */

    bool enable_validation;
    lc__val_check val_check;
    int64_t val_check_batch;                 /* LC__VAL_BATCHES */
    int64_t val_time_ns;                     /* LC__VAL_TIME: time of the last validation */
    int64_t val_batch_count[LC_MAX_LOADERS]; /* validation batches so far: the step of their rows */
    int64_t eval_batches;                    /* batches of the evaluation, with the one being run; 0: there is none */
} lc__input;

/* ---- source.c ---- */
/* Whether a limit allows no batch. Then no loader is asked for, and none is needed. */
bool lc__allows_none(lc_duration limit);
lc_status lc__source_begin(lc__source *s, int64_t epoch, int64_t start) LC_MUST_USE;
/* *out NULL at the end. */
lc_status lc__source_next(lc__source *s, const lc_batch **out, bool *is_last) LC_MUST_USE;
void lc__source_end(lc__source *s);
/* Whether ranks have shares of the loader's batches; if not, the loader is this rank's own. */
bool lc__source_is_shared(const lc__source *s);
/* Whether some rank's share of a divided batch is empty. Not collective. */
bool lc__leaves_ranks_empty(const lc_trainer *t, const lc__source *source, const lc_batch *batch);
void lc__source_close(lc__source *s);
void lc__sources_close(lc__sources *s);
void lc__input_close(lc_trainer *t); /* all loaders of a run */
lc_status lc__setup_train_data(lc_trainer *t) LC_MUST_USE;
lc_status lc__setup_eval_data(lc_trainer *t) LC_MUST_USE;

/* ---- waiting.c: between them fit trains ---- */
void lc__waiting_begin(lc_trainer *t);
void lc__waiting_end(lc_trainer *t);

/* ---- source_state.c ---- */
/* Records the loader's state as of the batch being handed out, before the next one is prefetched. */
lc_status lc__source_remember(lc__source *s) LC_MUST_USE;
/* Whether the loader has state besides its position. */
bool lc__source_has_state(const lc__source *s);
lc_status lc__source_save(lc_comm *comm, lc__source *s, lc_state *out) LC_MUST_USE; /* collective; NULL: one rank */
/* Replaces *hex by this rank's state in a checkpoint's `loop`, for lc__source_load; NULL: none. */
lc_status lc__source_saved(const lc_trainer *t, const lc_state *in, char **hex) LC_MUST_USE;
lc_status lc__source_load(lc__source *s, const char *hex) LC_MUST_USE; /* before lc__source_begin */

/* ---- datamodule.c ---- */
lc_status lc__datamodule_attach(lc_trainer *t, const lc_datamodule *d) LC_MUST_USE;
/* Loaders come from the datamodule or, if there is none, from the module. */
bool lc__has_loaders(const lc_trainer *t, lc_stage stage); /* FIT: loaders for training */
lc_status lc__ask_loaders(lc_trainer *t, lc_hook hook, lc_loaders *out) LC_MUST_USE;
/* Runs the transfer hooks, inside a step; *batch becomes their result. */
lc_status lc__transfer(lc_trainer *t, const lc_batch **batch, int dataloader_idx) LC_MUST_USE;
lc_status lc__datamodule_save(lc_trainer *t, lc_state *root) LC_MUST_USE;
lc_status lc__datamodule_load(lc_trainer *t, const lc_state *root) LC_MUST_USE;

#endif
