/* SPDX-License-Identifier: Apache-2.0 */
/* The temporary directory in which a checkpoint is written, and the renames that give it its name (write_job.c has the
 * whole order). */
#define _GNU_SOURCE
#include "core/checkpoint/write_job.h"
#include "core/checkpoint/removal.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Marks the directory as made by lightc, in case the writer dies. */
static lc_status mark(const lc__io *io, const char *dir)
{
    char *path;
    LC_TRY(lc__path_join(dir, LC__MARK, &path));
    int fd = io->open(io, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    lc_status status = fd < 0 ? lc__io_fail(errno, "create", path) : LC_OK;
    if (fd >= 0) io->close(io, fd);
    free(path);
    return status;
}

void lc__ckpt_unmark(const lc__io *io, const char *dir)
{
    char *path;
    if (lc__path_join(dir, LC__MARK, &path) < 0) return;
    lc__remove_made(io, path);
    free(path);
}

lc_status lc__ckpt_make_temp(const lc__io *io, const char *path, char **temp, int *lock_fd)
{
    char *parent = NULL;
    lc_status status;
    LC_TRY(lc__path_dir(path, &parent));
    LC_TRY_GOTO(status, done, lc__make_dirs(io, parent));
    for (int attempt = 0; attempt < 1000; attempt++) { /* another process may clean up all the time */
        free(*temp);
        *temp = NULL;
        LC_TRY_GOTO(status, done, lc__temp_name(parent, "tmp", lc__path_base(path), temp));
        if (io->mkdir(io, *temp, 0777) < 0) {
            int error = errno;
            status = lc__io_fail(error, "make directory", *temp);
            if (error == EEXIST) continue;
            free(*temp);
            *temp = NULL;
            goto done;
        }
        *lock_fd = open(*temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (*lock_fd < 0) {
            int error = errno;
            status = lc__io_fail(error, "open", *temp);
            if (error == ENOENT) continue; /* another process removed it before it was locked */
            goto done;
        }
        struct stat st;
        bool locked = flock(*lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; /* or there are no locks */
        if (locked && stat(*temp, &st) == 0) {
            status = mark(io, *temp);
            if (status < 0) (void)!lc__ckpt_remove_own(io, *temp);
            if (status >= 0) goto done;
        }
        close(*lock_fd);
        *lock_fd = -1;
        if (status < 0) break;
    }
    if (status >= 0) status = lc_fail(LC_ERR_IO, "cannot keep a temporary directory in \"%s\"", parent);
done:
    free(parent);
    return status;
}

/* Locks a checkpoint while it has no name. A process that cleans up takes an unlocked one (without locks, an old one)
 * for that of a dead process (is_dead) and would restore its name. -1: cannot be opened. */
static int hold(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    (void)!flock(fd, LOCK_EX | LOCK_NB);
    (void)!futimens(fd, NULL);
    return fd;
}

/* Used if the file system has no exchange: between the two renames the name is missing, but both checkpoints exist. */
static lc_status rename_twice(const lc__io *io, const char *parent, const char *path, const char *owner, char **temp,
                              char **old)
{
    char *aside = NULL;
    lc_status status = LC_OK;
    LC_TRY(lc__temp_name(parent, "old", lc__path_base(path), &aside));
    int held = hold(path);
    bool moved = io->rename(io, path, aside) == 0;
    if (!moved) status = lc__io_fail(errno, "rename", path);
    if (moved) status = lc__ckpt_may_replace(aside, owner); /* it may have appeared after the first check */
    if (status >= 0 && io->rename(io, *temp, path) < 0) status = lc__io_fail(errno, "rename to", path);
    if (status < 0 && moved && io->rename(io, aside, path) < 0)
        lc_fail_context(status, "the entry \"%s\" was moved to \"%s\"", path, aside);
    if (held >= 0) close(held);
    if (status < 0) {
        free(aside);
        return status;
    }
    free(*temp);
    *temp = NULL;
    *old = aside;
    return LC_OK;
}

/* Exchanges the two names, then checks that the replaced entry may be replaced, since it may have appeared after the
 * first check; if not, exchanges them back. */
static lc_status exchange_checked(const lc__io *io, const char *temp, const char *path, const char *owner)
{
    int held = hold(path), error = 0;
    lc_status status = LC_OK;
    if (io->exchange(io, temp, path) < 0) {
        error = errno;
        status = lc__io_fail(error, "exchange names with", path);
    } else {
        status = lc__ckpt_may_replace(temp, owner);
        if (status < 0 && io->exchange(io, temp, path) < 0)
            lc_fail_context(status, "the entry \"%s\" was moved to \"%s\"", path, temp);
    }
    if (held >= 0) close(held);
    errno = error;
    return status;
}

/* Other processes may create or remove an entry of that name at any time. */
lc_status lc__ckpt_put_in_place(lc_ckpt_writer *w, const char *parent, char **temp, char **old)
{
    const lc__io *io = w->io;
    const char *path = w->job_path, *owner = w->job_taken ? w->origin.training : NULL;
    struct stat st;
    lc_status status = LC_OK;
    for (int attempt = 0; attempt < 100; attempt++) {
        LC_TRY(lc__ckpt_may_replace(path, owner));
        if (lstat(path, &st) < 0) {
            if (io->rename(io, *temp, path) == 0) {
                free(*temp);
                *temp = NULL;
                return LC_OK;
            }
            status = lc__io_fail(errno, "rename to", path);
            if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) return status;
            continue;
        }
        status = exchange_checked(io, *temp, path, owner);
        if (status >= 0) {
            *old = *temp;
            *temp = NULL;
            return LC_OK;
        }
        if (!errno) return status; /* the entry may not be replaced */
        if (errno != ENOENT) return rename_twice(io, parent, path, owner, temp, old);
    }
    return status;
}
