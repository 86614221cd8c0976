/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a CSV file, as RFC 4180 describes them: between delimiters, or in quotes, in which two quotes are one
 * and lines may end. */
#ifndef LC_DATA_CSV_READER_H
#define LC_DATA_CSV_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lc__csv {
    const char *p, *end;
    int64_t line; /* counted from 1 */
    char delimiter;
} lc__csv;

typedef struct lc__csv_value {
    const char *text; /* without quotes around it */
    size_t n;
    bool quoted;  /* quotes in it are doubled */
    bool last;    /* of its row */
    int64_t line; /* where it begins */
} lc__csv_value;

/* Passes over the byte order mark of UTF-8; NULL, or what is wrong with the file. */
const char *lc__csv_begin(lc__csv *r);
/* Passes over empty lines; false at the end. */
bool lc__csv_next_row(lc__csv *r);
/* Takes the next value of a row; NULL, or what is wrong with it. */
const char *lc__csv_next(lc__csv *r, lc__csv_value *v);
/* The value as text with a zero at its end: copies to `to`, n + 1 bytes at most, and returns what follows. */
char *lc__csv_copy(const lc__csv_value *v, char *to);
/* lc__csv_next, and then v->text ends with a zero, in place: the file can be written, and a byte follows it. */
const char *lc__csv_next_text(lc__csv *r, lc__csv_value *v);

#endif
