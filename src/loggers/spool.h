/* SPDX-License-Identifier: Apache-2.0 */
/* A file of lines that wait to be sent. Its owner holds a lock on it; a file without an owner was left by a finished
 * run, and any later run may send it. */
#ifndef LC_LOGGERS_SPOOL_H
#define LC_LOGGERS_SPOOL_H

#include "base/json.h"

typedef struct lc__spool {
    char *path;
    int fd;
    uint64_t size; /* of complete lines */
    uint64_t sent;
} lc__spool;

/* Opens or creates the file. LC_SKIP: another process owns it. */
lc_status lc__spool_open(lc__spool *s, const char *path) LC_MUST_USE;
/* Closes it; the file stays, unless `remove`. */
void lc__spool_close(lc__spool *s, bool remove);
/* Whether the file is empty: not even an incomplete line. */
bool lc__spool_is_empty(const lc__spool *s);
/* Writes lines, completely or not at all. */
lc_status lc__spool_append(lc__spool *s, const char *lines, size_t n) LC_MUST_USE;
/* Everything was sent: restarts the file with these lines, which count as sent. */
lc_status lc__spool_restart(lc__spool *s, const char *lines, size_t n) LC_MUST_USE;
/* Reads the next lines to send, all or some of them, at least one complete line; empty: there are none. Replaces the
 * content of `out`. */
lc_status lc__spool_read(lc__spool *s, lc__text *out) LC_MUST_USE;

/* Calls fn for every spool in a directory that nobody owns, then closes it, and removes it if fn returned LC_OK. Stops
 * at the first error. A directory that does not exist is empty. */
lc_status lc__spool_orphans(const char *dir, lc_status (*fn)(void *ctx, lc__spool *s), void *ctx) LC_MUST_USE;

#endif
