/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that lightc deletes goes through here: the rule is in docs/checkpoints.md ("What lightc deletes"), and
 * tests/source/test_removals.c searches the sources for other ways to delete.
 *
 * Two kinds of things go: a file (or link) that the caller has made itself, and a directory whose contents show, by
 * rules, that lightc has made it and everything in it. Names are looked up in open directories, so that what was
 * checked is what is removed, and links are removed, never followed. */
#ifndef LC_BASE_REMOVE_H
#define LC_BASE_REMOVE_H

#include "base/io.h"

#include <sys/stat.h>

typedef enum lc__verdict {
    LC__STAYS, /* not ours: nothing in the directory is removed */
    LC__GOES,
    LC__GOES_LAST, /* it shows that the directory is ours; removed last so that leftovers of a crash still have it */
} lc__verdict;

typedef struct lc__removal_rules {
    /* Whether the open directory is ours; an error says why not. */
    lc_status (*is_ours)(void *ctx, int dir, const char *path);
    /* The verdict on an entry that is not a directory. */
    lc__verdict (*entry)(void *ctx, const char *name, const struct stat *st);
    void *ctx;
    const char *aside; /* renamed to this first, so that nobody sees half of it; NULL: it is not */
    const char *done;  /* for messages: "removed" */
    const char *hint;  /* what to do about an entry that is not ours */
} lc__removal_rules;

/* Removes `name` in the open directory `at` (AT_FDCWD: `name` is a path). `path` is for messages. A missing entry is
 * fine. rules NULL: removes a file or a link that the caller has made; a directory is an error. Else removes a link, or
 * a directory that fits the rules (LC_ERR_STATE: it has an entry that is not ours, and is left as it was). */
lc_status lc__remove(const lc__io *io, int at, const char *name, const char *path, const lc__removal_rules *rules);
/* Whether lc__remove would remove it; removes nothing. */
lc_status lc__may_remove(int at, const char *name, const char *path, const lc__removal_rules *rules);
/* Removes a file or link that the caller has made, and ignores errors. */
void lc__remove_made(const lc__io *io, const char *path);

/* The same for a directory, which stays if anything is in it. */
void lc__remove_empty(const lc__io *io, int at, const char *name);

/* Renames the finished file `temp` to `path`, replacing the file there, which lightc was asked to write. A directory
 * there is an error. On failure `temp` is removed. */
lc_status lc__replace_by(const lc__io *io, const char *temp, const char *path);

/* Opens the directory in which `path` is; *name is the name there. The first `trusted` bytes of the path are a
 * directory that the caller chose, which may be reached by links. The rest is data: a `..`, `.`, empty name or link in
 * it is an error (LC_ERR_ARGUMENT). trusted 0: all except the last name is trusted. */
lc_status lc__open_parent(const char *path, size_t trusted, int *dir, const char **name);

#endif
