/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by progress bars: what the terminal can do, clocks, pieces of text. */
#ifndef LC_CALLBACKS_TERMINAL_H
#define LC_CALLBACKS_TERMINAL_H

#include "callbacks/callbacks.h"

typedef struct lc__terminal {
    int fd;
    bool off;  /* nothing is to be shown (LIGHTC_PROGRESS=off) */
    bool live; /* lines can be redrawn */
    bool color, unicode;
} lc__terminal;

/* LIGHTC_PROGRESS=bar, lines or off overrides the detection; NO_COLOR, TERM=dumb and COLUMNS are honored. */
lc__terminal lc__terminal_find(int fd, lc_progress_style style);
/* At least 20 columns. */
int lc__terminal_width(const lc__terminal *t);

/* Shows the text with one write(2), so that lines of several processes do not tear, and empties it. */
void lc__terminal_show(const lc__terminal *t, lc__str *text);

/* The title of the current evaluation, and its number of batches over all loaders (-1: unknown). */
const char *lc__eval_name(const lc_trainer *t);
int64_t lc__eval_batches(const lc_trainer *t);

/* A row for each result of validate or test; the stage in `color` (NULL: as it is). */
void lc__add_results(lc__str *out, const lc__terminal *term, const lc_trainer *t, const char *color);

/* The columns that UTF-8 text without control characters takes. */
int lc__columns(const char *text);
/* Cuts a name that is longer than `room` columns, with an ellipsis; `name` must have room for three more bytes. */
void lc__cut_name(char *name, size_t room, bool unicode);
/* The name, and spaces until it has `width` columns. */
void lc__add_padded(lc__str *out, const char *name, int width);
/* Lines of less than `columns` columns, broken at spaces. */
void lc__add_wrapped(lc__str *out, int columns, const char *text);

/* "01:05", "1:02:03", "?" */
void lc__add_time(lc__str *out, double seconds);
/* The remaining time (ETA) until `total`, at `rate` per second: for bars the mean since the epoch began. "?" if nothing
 * is done yet. */
void lc__add_remaining(lc__str *out, int64_t done, int64_t total, double rate);
/* "12.3it/s" */
void lc__add_rate(lc__str *out, double rate);

#endif
