/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows, and writing it to a file descriptor in one piece. */
#ifndef LC_BASE_STR_H
#define LC_BASE_STR_H

#include <lightc/status.h>

typedef struct lc__str {
    char *s; /* always terminated once something was added; NULL before */
    size_t n, cap;
    bool failed; /* out of memory: what follows is dropped */
} lc__str;

void lc__str_add(lc__str *t, const char *format, ...) LC_PRINTF(2, 3);
void lc__str_add_bytes(lc__str *t, const char *bytes, size_t n);
/* Adds what lc_printable makes of the text. */
void lc__str_add_printable(lc__str *t, const char *from, bool lines);
void lc__str_clear(lc__str *t); /* keeps the memory */
void lc__str_free(lc__str *t);
/* Writes all of it, whatever signals arrive. It waits for a slow reader even if the descriptor is nonblocking, which
 * another program that shares a terminal or a pipe may have set. Returns false and sets errno on failure, which callers
 * that only inform may ignore; a pipe that nobody reads any more is one (EPIPE), without SIGPIPE. */
bool lc__show(int fd, const char *s, size_t n);
/* Shows a line, however long, in one piece; control characters in it, and newlines unless the format has some or is
 * just "%s", become \xNN. */
void lc__show_line(int fd, const char *format, ...) LC_PRINTF(2, 3);
/* Prints a line on standard error, as a `say` function of what waits for ranks (control.h). `ctx` is ignored. */
void lc__say(void *ctx, const char *text);

/* strdup with the library's message. */
lc_status lc__copy_text(const char *s, char **out) LC_MUST_USE;

#endif
