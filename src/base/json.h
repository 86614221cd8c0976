/* SPDX-License-Identifier: Apache-2.0 */
/* A small strict JSON, for what must be exact (docs/design.md says what that is, and where cJSON is used): headers of
 * safetensors files, state.json, manifest.json, configurations, lines of loggers.
 *
 * Strict means: UTF-8 checked, no trailing text, no leading zeros, integers that fit 64 bits or an error, no number
 * that overflows a double, at most LC__JSON_DEPTH levels. Duplicate keys are left to the code that uses the tokens
 * (lc_state_parse and the safetensors reader do). */
#ifndef LC_BASE_JSON_H
#define LC_BASE_JSON_H

#include <lightc/state.h>

#define LC__JSON_DEPTH 64

typedef enum lc__json_token {
    LC__JSON_END, /* of the text */
    LC__JSON_OBJECT,
    LC__JSON_OBJECT_END,
    LC__JSON_ARRAY,
    LC__JSON_ARRAY_END,
    LC__JSON_KEY,
    LC__JSON_TEXT,
    LC__JSON_INT,
    LC__JSON_DOUBLE,
    LC__JSON_BOOL,
    LC__JSON_NULL,
} lc__json_token;

/* Reads a text token by token; the text must outlive it. */
typedef struct lc__json_reader {
    const char *start, *p, *end;
    int depth, line;    /* lines begin at 1; only blanks have line ends */
    uint64_t is_object; /* bit d: level d is an object */
    bool after_value, after_key, finished;
    char *scratch; /* decoded text, if it had escapes */
    size_t scratch_size;
    /* The value of the token just read. */
    const char *text; /* KEY, TEXT: not zero-terminated; valid until the next token */
    size_t text_length;
    int64_t integer;
    double number; /* INT and DOUBLE */
    bool boolean;
} lc__json_reader;

/* Checks that the text is UTF-8. */
lc_status lc__json_begin(lc__json_reader *r, const char *text, size_t length);
void lc__json_release(lc__json_reader *r);
/* Errors name line and column. */
lc_status lc__json_next(lc__json_reader *r, lc__json_token *token);
/* "line 3, column 7: <message>" */
lc_status lc__json_fail(const lc__json_reader *r, const char *message);

/* The first byte that is not part of a UTF-8 character; NULL: there is none. */
const char *lc__utf8_first_bad(const char *text, size_t length);
/* Replaces every such byte with "?". */
void lc__utf8_repair(char *text, size_t length);

/* ---- writing ---- */
typedef struct lc__text {
    char *data; /* zero-terminated */
    size_t length, capacity;
} lc__text;

lc_status lc__text_add(lc__text *t, const char *data, size_t n);
lc_status lc__text_puts(lc__text *t, const char *text);
lc_status lc__text_int(lc__text *t, int64_t v);
/* With quotes and escapes. Refuses what is not UTF-8. */
lc_status lc__text_quoted(lc__text *t, const char *text);
void lc__text_release(lc__text *t);

/* A double as Python's repr prints it: the shortest text that reads back as the same number, "1.0", "1e-05", "nan",
 * "-inf"; in any locale. Returns the length. */
#define LC__DOUBLE_SIZE 32
int lc__print_double(char text[LC__DOUBLE_SIZE], double value);

#endif
