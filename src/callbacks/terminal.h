/* SPDX-License-Identifier: Apache-2.0 */
/* What progress bars share: what the terminal can do, clocks, pieces of text. */
#ifndef LC_CALLBACKS_TERMINAL_H
#define LC_CALLBACKS_TERMINAL_H

#include "callbacks/callbacks.h"

typedef struct lc__terminal {
    int fd;
    bool off;  /* nothing is to be shown (LIGHTC_PROGRESS=off) */
    bool live; /* lines can be drawn anew */
    bool colour, unicode;
} lc__terminal;

/* LIGHTC_PROGRESS=bar, lines or off decides against what is found; NO_COLOR, TERM=dumb and COLUMNS are honoured. */
lc__terminal lc__terminal_find(int fd, lc_progress_style style);
int lc__terminal_width(const lc__terminal *t);

/* What evaluates now, for people; and its batches, of all loaders (-1: unknown). */
const char *lc__eval_name(const lc_trainer *t);
int64_t lc__eval_batches(const lc_trainer *t);

int64_t lc__coarse_ns(void); /* monotonic, to a few milliseconds, and cheap */
/* "01:05", "1:02:03", "?" */
void lc__add_time(lc__str *out, double seconds);
/* "12.3it/s" */
void lc__add_rate(lc__str *out, double rate);

#endif
