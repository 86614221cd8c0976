/* SPDX-License-Identifier: Apache-2.0 */
/* Taking names (checkpoint_taken.h). */
#define _GNU_SOURCE
#include "core/checkpoint_taken.h"

#include "base/remove.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PREFIX "lightc"
#define KIND   ".taken-"
#define MOST   160

struct lc__taken {
    char *link;
    char target[MOST];
};

bool lc__taken_is_name(const char *name)
{
    return !strncmp(name, KIND, strlen(KIND)) && name[strlen(KIND)];
}

static bool read_target(int at, const char *name, char target[MOST])
{
    ssize_t n = readlinkat(at, name, target, MOST - 1);
    target[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* Of a dead process. False for links that are not of lightc's form. */
static bool is_stale(int at, const char *name)
{
    char target[MOST];
    struct stat st;
    lc__temp_owner owner;
    return read_target(at, name, target) && lc__temp_owner_parse(target, target + strlen(target), &owner) &&
           owner.base_length == strlen(PREFIX) && !strncmp(target, PREFIX, strlen(PREFIX)) &&
           fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) &&
           lc__temp_owner_is_dead(&owner, &st);
}

lc_status lc__taken_clean(int at, const char *name, const char *path)
{
    lc_status status = LC_OK;
    if (!is_stale(at, name)) return LC_OK;
    /* Of two that clean, one would take the other's new link for the old one. */
    int lock = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return lc__io_fail(errno, "open the directory of", path);
    bool alone = flock(lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (alone && is_stale(at, name)) status = lc__remove(&lc__io_system, at, name, path, NULL);
    close(lock);
    return status;
}

/* *made: the link is this one's. */
static lc_status make(lc__taken *t, bool *made, bool *there)
{
    *there = *made = false;
    for (int attempt = 0; attempt < 2 && !*made; attempt++) {
        *made = symlink(t->target, t->link) == 0;
        if (*made || errno != EEXIST) break;
        *there = true;
        if (attempt) break;
        int dir;
        const char *name;
        LC_TRY(lc__open_parent(t->link, 0, &dir, &name));
        lc_status status = lc__taken_clean(dir, name, t->link);
        close(dir);
        LC_TRY(status);
    }
    if (*made) *there = false;
    return LC_OK;
}

lc_status lc__take_name(const char *path, bool *taken, lc__taken **out)
{
    char *dir = NULL, *name = NULL;
    bool made = false;
    struct stat st;
    lc_status status = LC_OK;
    *out = NULL;
    *taken = lstat(path, &st) == 0;
    if (*taken) return LC_OK;
    lc__taken *t = calloc(1, sizeof *t);
    if (!t) return lc_fail(LC_ERR_MEMORY, "no memory to take the name \"%s\"", path);
    LC_TRY_GOTO(status, done, lc__path_dir(path, &dir));
    (void)!lc__make_dirs(&lc__io_system, dir); /* what keeps it from being made is said when it is saved */
    LC_TRY_GOTO(status, done, lc__temp_name("", "tmp", PREFIX, &name));
    snprintf(t->target, sizeof t->target, "%s", name + strlen("/.tmp-"));
    LC_TRY_GOTO(status, done, lc__format(&t->link, "%s/" KIND "%.200s", dir, lc__path_base(path)));
    LC_TRY_GOTO(status, done, make(t, &made, taken));
    if (made && lstat(path, &st) == 0) *taken = true; /* it was given to something in between */
    if (made && !*taken) {
        *out = t;
        t = NULL;
    }
done:
    if (t && made) lc__remove_made(&lc__io_system, t->link);
    if (t) free(t->link);
    free(t);
    free(name);
    free(dir);
    return status;
}

void lc__taken_release(lc__taken *t)
{
    char target[MOST];
    if (!t) return;
    if (read_target(AT_FDCWD, t->link, target) && !strcmp(target, t->target)) lc__remove_made(&lc__io_system, t->link);
    free(t->link);
    free(t);
}
