/* SPDX-License-Identifier: Apache-2.0 */
/* State of a run in this room; signals. */
#ifndef LC_CORE_TRAINER_RUN_H
#define LC_CORE_TRAINER_RUN_H

#include "core/hooks/trainer_internal.h"
#include "device/device.h"

typedef struct lc__run {
    bool on_device;          /* what this thread makes is on the device of the graph; */
    const lc_device *before; /* before the run it was there (lc__device_use) */
    bool setup_done;         /* teardown is due */
    bool own_loop;           /* the program drives the loop (lc_trainer_begin, lc_trainer_step) */
    bool idle_reported;      /* options that do nothing */
    int64_t time_start_ns;
    struct lc__signals *signals;
} lc__run;

/* Everything before the loop (begin.c); m NULL: the module of the previous run. The trainer must not be running. */
lc_status lc__run_begin(lc_trainer *t, lc_module *m, const lc_run_args *args, lc_stage stage) LC_MUST_USE;
/* After lc__run_begin, for a fit: makes optimizers and restores progress from a checkpoint. */
/* As the options and the precision want it. max_bytes: of planned memory; 0: as much as there is. */
lc_status lc__make_graph(lc_trainer *t, int64_t max_bytes) LC_MUST_USE;
lc_status lc__fit_begin(lc_trainer *t) LC_MUST_USE;
/* Everything after the loop, also after an error (finish.c). s: result of the loop; returns the result of the run. */
lc_status lc__run_finish(lc_trainer *t, lc_status s) LC_MUST_USE;
/* Whether the module is never whole: a checkpoint's weights are read into slices, and evaluation works on them. */
static inline bool lc__stays_in_slices(const lc_trainer *t)
{
    return t->comm && t->strategy->shard_parameters && !t->opt.gather_parameters;
}

/* ---- idle_options.c ---- */
/* At the start of a trainer's first run. */
void lc__report_idle_options(lc_trainer *t);

/* ---- signals.c ---- */
lc_status lc__signals_begin(lc_trainer *t) LC_MUST_USE;
void lc__signals_end(lc_trainer *t);
void lc__signals_keep(lc_trainer *t); /* after an interrupted run: keeps watching until another run begins */

#endif
