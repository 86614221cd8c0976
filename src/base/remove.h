/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that lightc deletes goes through here: the rule is in docs/checkpoints.md ("What lightc deletes"), and
 * tests/source/test_removals.c reads the sources for other ways to delete.
 *
 * Two kinds of things go: a file (or link) that the caller has made itself, and a directory of which rules say, from
 * what is inside, that lightc has made it and everything in it. Names are looked up in open directories, so that what
 * was looked at is what is removed, and links are removed, never followed. */
#ifndef LC_BASE_REMOVE_H
#define LC_BASE_REMOVE_H

#include "base/io.h"

#include <sys/stat.h>

typedef enum lc__verdict {
    LC__STAYS, /* not ours: nothing of the directory is removed */
    LC__GOES,
    LC__GOES_LAST, /* it shows that the directory is ours; removed last so that leftovers of a crash still have it */
} lc__verdict;

typedef struct lc__removal_rules {
    /* Whether the open directory is ours; an error says why not. */
    lc_status (*is_ours)(void *ctx, int dir, const char *path);
    /* An entry of it that is not a directory. */
    lc__verdict (*entry)(void *ctx, const char *name, const struct stat *st);
    void *ctx;
    const char *aside; /* a name next to its own that it gets first, so that nobody sees half of it; NULL: none */
    const char *done;  /* for messages: "removed" */
    const char *hint;  /* what to do about an entry that is not ours */
} lc__removal_rules;

/* Removes `name` in the open directory `at` (AT_FDCWD: `name` is a path). `path` is for messages. What does not exist
 * is fine. rules NULL: a file or a link that the caller has made; a directory is an error. Else a directory that
 * keeps the rules (LC_ERR_STATE: it has an entry that is not ours, and is left as it was), or a link. */
lc_status lc__remove(const lc__io *io, int at, const char *name, const char *path, const lc__removal_rules *rules);
/* Whether that would remove it; removes nothing. */
lc_status lc__may_remove(int at, const char *name, const char *path, const lc__removal_rules *rules);
/* A file, or link, that the caller has made: errors are nobody's concern. */
void lc__remove_made(const lc__io *io, const char *path);

/* The same of a directory, which stays if anything is in it. */
void lc__remove_empty(const lc__io *io, int at, const char *name);

/* Gives a finished file the name of what it replaces: a file that lightc was asked to write, or nothing. A directory
 * there is an error. If that fails `temp` is removed. */
lc_status lc__replace_by(const lc__io *io, const char *temp, const char *path);

/* The directory in which `path` is, and the name there; `trusted` bytes of the path are a directory that the caller
 * names itself, which may be reached by links; what follows is data: a `..`, `.`, empty name or link in it is an error
 * (LC_ERR_ARGUMENT). trusted 0: all but the last name is trusted. */
lc_status lc__open_parent(const char *path, size_t trusted, int *dir, const char **name);

#endif
