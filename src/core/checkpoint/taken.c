/* SPDX-License-Identifier: Apache-2.0 */
/* Reserves names (taken.h). */
#define _GNU_SOURCE
#include "core/checkpoint/taken.h"

#include "base/crc32c.h"
#include "base/remove.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY_S     86400
#define MOST_NAME 200

struct lc__taken {
    char *of;   /* the checkpoint's path */
    char *path; /* of the directory */
    int fd;     /* open, with the lock */
};

bool lc__taken_is_name(const char *name)
{
    return !strncmp(name, LC__TAKEN, strlen(LC__TAKEN)) && name[strlen(LC__TAKEN)];
}

/* Whether the name still belongs to the open directory. */
static bool is_same(int fd, int at, const char *name)
{
    struct stat open, named;
    return fstat(fd, &open) == 0 && fstatat(at, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

static int open_directory(int at, const char *name)
{
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A process that makes or cleans up a name locks its directory meanwhile. Whether a name's owner lives is found out by
 * trying its lock, and a lock that is only being tried would look like an owner's. A process that was stopped is not
 * waited for. -1: the directory cannot be opened. */
static int begin_turn(int at, const char *dir)
{
    int fd = openat(at, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK && ms < 1000; ms++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return fd;
}

static void end_turn(int fd)
{
    if (fd < 0) return;
    (void)!flock(fd, LOCK_UN); /* a child of this process may have a copy */
    close(fd);
}

static void clean(int at, const char *name)
{
    struct stat st;
    int fd = open_directory(at, name);
    if (fd < 0) return;
    bool dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!dead && errno != EWOULDBLOCK) /* the file system has no locks */
        dead = fstat(fd, &st) == 0 && time(NULL) - st.st_mtime > DAY_S;
    /* If the directory is not empty, it is not lightc's and stays. */
    if (dead && is_same(fd, at, name)) lc__remove_empty(&lc__io_system, at, name);
    close(fd);
}

void lc__taken_clean(int at, const char *name)
{
    int turn = begin_turn(at, ".");
    clean(at, name);
    end_turn(turn);
}

/* Makes and locks the directory; -1: another process has the name (*taken), or the directory cannot be made or opened.
 */
static int make(const char *path, bool *taken)
{
    bool cleaned = false;
    for (int attempt = 0; attempt < 1000; attempt++) { /* in case another process does not wait for its turn */
        *taken = false;
        if (lc__io_system.mkdir(&lc__io_system, path, 0777) < 0) {
            *taken = errno == EEXIST;
            if (!*taken || cleaned) return -1;
            cleaned = true;
            clean(AT_FDCWD, path);
            continue;
        }
        int fd = open_directory(AT_FDCWD, path);
        if (fd < 0 && errno != ENOENT) return -1; /* too many open files, or the umask: then so for every other name */
        bool locked = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
        if (locked && is_same(fd, AT_FDCWD, path)) return fd;
        if (fd >= 0) close(fd); /* removed by another process before it was locked */
    }
    *taken = true;
    return -1;
}

/* DIR/.taken-NAME. A name that leaves no room for the prefix is cut, and told from others by its checksum. */
static lc_status directory_of(const char *dir, const char *name, char **out)
{
    size_t n = strlen(name);
    if (n <= MOST_NAME) return lc__format(out, "%s/" LC__TAKEN "%s", dir, name);
    return lc__format(out, "%s/" LC__TAKEN "%.*s-%08x", dir, MOST_NAME - 9, name, (unsigned)lc__crc32c(0, name, n));
}

lc_status lc__take_name(const char *path, bool *taken, lc__taken **out)
{
    char *dir = NULL;
    struct stat st;
    lc_status status = LC_OK;
    *out = NULL;
    *taken = lstat(path, &st) == 0;
    if (*taken) return LC_OK;
    lc__taken *t = calloc(1, sizeof *t);
    if (!t) return lc_fail(LC_ERR_MEMORY, "out of memory: reserving the name \"%s\"", path);
    t->fd = -1;
    LC_TRY_GOTO(status, done, lc__path_dir(path, &dir));
    LC_TRY_GOTO(status, done, lc__format(&t->of, "%s", path));
    LC_TRY_GOTO(status, done, directory_of(dir, lc__path_base(path), &t->path));
    (void)!lc__make_dirs(&lc__io_system, dir); /* saving reports the error */
    int turn = begin_turn(AT_FDCWD, dir);
    t->fd = make(t->path, taken);
    end_turn(turn);
    if (t->fd >= 0 && lstat(path, &st) == 0) *taken = true; /* the name was used in between */
    if (t->fd >= 0 && !*taken) {
        *out = t;
        t = NULL;
    }
done:
    lc__taken_release(t);
    free(dir);
    return status;
}

void lc__taken_release(lc__taken *t)
{
    if (!t) return;
    if (t->fd >= 0) {
        if (is_same(t->fd, AT_FDCWD, t->path)) lc__remove_empty(&lc__io_system, AT_FDCWD, t->path);
        close(t->fd);
    }
    free(t->of);
    free(t->path);
    free(t);
}

bool lc__taken_is_of(const lc__taken *t, const char *path)
{
    return !strcmp(t->of, path);
}
