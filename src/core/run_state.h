/* SPDX-License-Identifier: Apache-2.0 */
/* What saving and restoring a run share: the format, and a walk over the state of an optimizer. */
#ifndef LC_CORE_RUN_STATE_H
#define LC_CORE_RUN_STATE_H

#include "core/trainer_internal.h"

#define LC__STATE_FORMAT 1

/* Views of flat buffers that live until the checkpoint is committed or read. */
typedef struct lc__views {
    lc_tensor **v;
    int n, cap;
} lc__views;

void lc__views_free(lc__views *l);

/* Calls fn("optimizers.I.PATH.STATE", view) for each state tensor of optimizer i that exists. */
typedef lc_status lc__state_fn(void *ctx, const char *name, lc_tensor *view);
lc_status lc__walk_states(lc_trainer *t, int i, lc__views *views, lc__state_fn *fn, void *ctx) LC_MUST_USE;

/* The key of a callback's state. */
const char *lc__state_key(const lc__callback *cb);
/* Calls fn("callbacks.KEY.NAME", tensor) for each tensor of a callback. */
lc_status lc__walk_callback(lc_trainer *t, const lc__callback *cb, lc__state_fn *fn, void *ctx) LC_MUST_USE;

/* lc_scheduler_visit_state writes to `out`, or reads from `in`. */
typedef struct lc__scheduler_io {
    lc_state *out;
    const lc_state *in;
} lc__scheduler_io;
lc_status lc__scheduler_value(void *ctx, const char *name, double *value) LC_MUST_USE;

#endif
