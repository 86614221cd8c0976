/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that is computed in pieces. A piece is a run of consecutive samples. A step function runs once for each
 * piece, and the results of the pieces are put together again.
 *
 *     begin            how many pieces, and of how many samples
 *     enter, leave     in between, t->batch, t->outputs and t->place are those of one piece, a view of the batch's
 *                      memory
 *     value, outputs   those of the whole batch
 *
 * A piece is weighted by its samples, in the loss and in the gradient; a piece without a loss adds nothing to either.
 * Clients say how large pieces are, and where each is computed: device_parts.h gives each device one, and chunks.h cuts
 * the batch, or a device's part of it, into chunks. */
#ifndef LC_CORE_SPLIT_SPLIT_H
#define LC_CORE_SPLIT_SPLIT_H

#include "core/hooks/trainer_internal.h"
#include "data/batch_slice.h"

typedef struct lc__piece {
    lc__batch_slice slice;
    const lc_batch *batch; /* NULL: not entered yet */
    int64_t samples;
    lc_tensor *value;   /* NULL: the piece gave none */
    lc_outputs outputs; /* those from before the batch was cut, then the piece's own */
} lc__piece;

/* Values that several pieces gave under one name. */
typedef struct lc__given {
    lc_tensor **values; /* of the pieces that gave one; a client may change the list */
    double *samples;    /* of each of these pieces */
    int n;
    double all;   /* samples of the batch */
    bool is_mean; /* join numbers as their mean over samples; else concatenate */
    lc_type type; /* of the joined value */
} lc__given;

typedef struct lc__split {
    const lc_batch *batch; /* the batch being cut */
    int64_t n, cap;
    int64_t size;  /* samples of a piece; the last may have fewer. 0: a piece is a share (lc__batch_share) */
    int64_t units; /* for shares: units of the batch (lc__batch_units) */
    lc__piece *piece;
    lc_tensor **values; /* for lc__given */
    double *samples;
    int64_t entered;       /* the running piece; -1: none */
    const lc_batch *outer; /* outside of the running piece: */
    lc_outputs before;
    int64_t outer_piece;
} lc__split;

/* Calls a step function for a piece. *value: its result, or NULL. */
typedef lc_status lc__piece_fn(void *ctx, const lc_batch *piece, lc_tensor **value);
/* Joins the values given for output number `output`; -1: the values of the step. */
typedef lc_status lc__join_fn(void *ctx, int output, const lc__given *given, lc_tensor **out);

/* Prepares n pieces of `size` samples each or, if size is 0, shares of `units` (lc__batch_units). `batch` must live
 * until the next call. A new split is all zeros. */
lc_status lc__split_begin(const lc_trainer *t, lc__split *s, const lc_batch *batch, int64_t n, int64_t size,
                          int64_t units) LC_MUST_USE;
/* A piece may be entered several times; only the first can fail. */
lc_status lc__split_enter(lc_trainer *t, lc__split *s, int64_t i) LC_MUST_USE;
void lc__split_leave(lc_trainer *t, lc__split *s);
/* *value: NULL if no piece gave one. */
lc_status lc__split_value(const lc_trainer *t, lc__split *s, lc__join_fn *join, void *ctx,
                          lc_tensor **value) LC_MUST_USE;
/* Adds the outputs of the pieces to t->outputs. */
lc_status lc__split_outputs(lc_trainer *t, lc__split *s, lc__join_fn *join, void *ctx) LC_MUST_USE;
void lc__split_free(lc__split *s);

/* An lc__join_fn for pieces of one graph, in which it is recorded. */
lc_status lc__join_recorded(void *ctx, int output, const lc__given *given, lc_tensor **out) LC_MUST_USE;

#endif
