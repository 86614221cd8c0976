/* SPDX-License-Identifier: Apache-2.0 */
/* A run as the trainer's face keeps it; signals. */
#ifndef LC_CORE_TRAINER_RUN_H
#define LC_CORE_TRAINER_RUN_H

#include "core/hooks/trainer_internal.h"

typedef struct lc__run {
    bool setup_done; /* so teardown is due */
    bool own_loop;   /* the program's: lc_trainer_begin, lc_trainer_step */
    int64_t time_start_ns;
    struct lc__signals *signals;
} lc__run;

/* ---- signals.c ---- */
lc_status lc__signals_begin(lc_trainer *t) LC_MUST_USE;
void lc__signals_end(lc_trainer *t);
void lc__signals_keep(lc_trainer *t); /* after an interrupted run: the process watches on until another run begins */

#endif
