/* SPDX-License-Identifier: Apache-2.0 */
/* An lc__io that breaks on purpose: the n-th call fails, once or (as in a crash) with all later calls; writes are
 * short; and a crash loses everything that was not synced, both contents of files and names in directories. */
#ifndef LC_FAKE_IO_H
#define LC_FAKE_IO_H

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAKE_MAX  256
#define FAKE_PATH 512

typedef struct fake_change { /* a change of a name that is not yet durable */
    enum { FAKE_CREATE, FAKE_RENAME, FAKE_EXCHANGE } kind;
    char a[FAKE_PATH], b[FAKE_PATH];
} fake_change;

typedef struct fake_io {
    lc__io io; /* first member */
    pthread_mutex_t lock;
    long calls, fail_at; /* from 1; 0: never */
    int error;
    bool crash; /* all later calls fail as well */
    bool short_writes;
    bool dead;
    bool no_exchange;
    char fd_path[64][FAKE_PATH];
    char unsynced[FAKE_MAX][FAKE_PATH];
    int n_unsynced;
    fake_change changes[FAKE_MAX];
    int n_changes;
    char failed_sync[FAKE_PATH];
    const char *violation; /* a rule that was broken */
} fake_io;

static fake_io *fake_of(const lc__io *io)
{
    return (fake_io *)(uintptr_t)io;
}

/* Counts a call; true if it is to fail. */
static bool fake_fails(fake_io *f)
{
    f->calls++;
    if (f->dead || (f->fail_at && f->calls == f->fail_at)) {
        f->dead |= f->crash;
        errno = f->error;
        return true;
    }
    return false;
}

static void fake_note_change(fake_io *f, int kind, const char *a, const char *b)
{
    if (f->n_changes == FAKE_MAX) abort();
    fake_change *c = &f->changes[f->n_changes++];
    c->kind = kind;
    snprintf(c->a, sizeof c->a, "%s", a);
    snprintf(c->b, sizeof c->b, "%s", b);
}

static void fake_dirty(fake_io *f, const char *path)
{
    for (int i = 0; i < f->n_unsynced; i++)
        if (!strcmp(f->unsynced[i], path)) return;
    if (f->n_unsynced == FAKE_MAX) abort();
    size_t n = strnlen(path, FAKE_PATH - 1);
    memmove(f->unsynced[f->n_unsynced], path, n); /* `path` may be part of *f */
    f->unsynced[f->n_unsynced++][n] = 0;
}

static bool fake_in_dir(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && path[n] == '/' && !strchr(path + n + 1, '/');
}

static int fake_open(const lc__io *io, const char *path, int flags, mode_t mode)
{
    fake_io *f = fake_of(io);
    pthread_mutex_lock(&f->lock);
    int fd = -1;
    if (!fake_fails(f)) {
        fd = lc__io_system.open(io, path, flags, mode);
        if (fd >= 64) abort();
        if (fd >= 0) {
            snprintf(f->fd_path[fd], FAKE_PATH, "%s", path);
            if (flags & O_CREAT) fake_note_change(f, FAKE_CREATE, path, "");
            if (flags & O_CREAT) fake_dirty(f, path);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return fd;
}

static int fake_close(const lc__io *io, int fd)
{
    return lc__io_system.close(io, fd);
}

static ssize_t fake_pread(const lc__io *io, int fd, void *data, size_t n, off_t offset)
{
    fake_io *f = fake_of(io);
    pthread_mutex_lock(&f->lock);
    bool fails = fake_fails(f);
    int error = errno;
    pthread_mutex_unlock(&f->lock);
    errno = error;
    if (f->short_writes && n > 1) n = n / 2;
    return fails ? -1 : lc__io_system.pread(io, fd, data, n, offset);
}

static ssize_t fake_pwrite(const lc__io *io, int fd, const void *data, size_t n, off_t offset)
{
    fake_io *f = fake_of(io);
    pthread_mutex_lock(&f->lock);
    ssize_t done = -1;
    fake_dirty(f, f->fd_path[fd]);
    if (!fake_fails(f)) {
        if (f->short_writes && f->calls % 3 == 0) {
            errno = EINTR;
        } else {
            if (f->short_writes && n > 1) n = n / 2;
            done = lc__io_system.pwrite(io, fd, data, n, offset);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return done;
}

static int fake_allocate(const lc__io *io, int fd, off_t size)
{
    fake_io *f = fake_of(io);
    pthread_mutex_lock(&f->lock);
    int rc = fake_fails(f) ? -1 : lc__io_system.allocate(io, fd, size);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int fake_sync(const lc__io *io, int fd)
{
    fake_io *f = fake_of(io);
    pthread_mutex_lock(&f->lock);
    int rc = -1;
    char *path = f->fd_path[fd];
    struct stat st;
    bool is_dir = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    if (!is_dir && !strcmp(path, f->failed_sync)) f->violation = "a file was synced again after its sync had failed";
    if (fake_fails(f)) {
        if (!is_dir) snprintf(f->failed_sync, FAKE_PATH, "%s", path);
    } else {
        rc = 0; /* a real sync would only cost time */
        if (is_dir) {
            int kept = 0;
            for (int i = 0; i < f->n_changes; i++) {
                const fake_change *c = &f->changes[i];
                const char *name = c->kind == FAKE_CREATE ? c->a : c->b;
                if (!fake_in_dir(name, path)) f->changes[kept++] = *c;
            }
            f->n_changes = kept;
        }
        for (int i = 0; i < f->n_unsynced; i++)
            if (!strcmp(f->unsynced[i], path))
                memmove(f->unsynced[i], f->unsynced[--f->n_unsynced], FAKE_PATH), i = f->n_unsynced;
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static void fake_move_path(char *path, const char *from, const char *to, bool both)
{
    char moved[2 * FAKE_PATH];
    size_t n = strlen(from), m = strlen(to);
    if (!strncmp(path, from, n) && (path[n] == '/' || !path[n]))
        snprintf(moved, sizeof moved, "%s%s", to, path + n);
    else if (both && !strncmp(path, to, m) && (path[m] == '/' || !path[m]))
        snprintf(moved, sizeof moved, "%s%s", from, path + m);
    else
        return;
    moved[FAKE_PATH - 1] = 0;
    memcpy(path, moved, FAKE_PATH);
}

/* What was below `from` is now below `to`. */
static void fake_move(fake_io *f, const char *from, const char *to, bool both)
{
    for (int i = 0; i < f->n_unsynced; i++) fake_move_path(f->unsynced[i], from, to, both);
    for (int i = 0; i < f->n_changes; i++)
        if (f->changes[i].kind == FAKE_CREATE) fake_move_path(f->changes[i].a, from, to, both);
}

static int fake_rename(const lc__io *io, const char *from, const char *to)
{
    fake_io *f = fake_of(io);
    pthread_mutex_lock(&f->lock);
    int rc = fake_fails(f) ? -1 : lc__io_system.rename(io, from, to);
    if (rc == 0) {
        fake_note_change(f, FAKE_RENAME, from, to);
        fake_move(f, from, to, false);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int fake_exchange(const lc__io *io, const char *a, const char *b)
{
    fake_io *f = fake_of(io);
    if (f->no_exchange) {
        errno = ENOSYS;
        return -1;
    }
    pthread_mutex_lock(&f->lock);
    int rc = fake_fails(f) ? -1 : lc__io_system.exchange(io, a, b);
    if (rc == 0) {
        fake_note_change(f, FAKE_EXCHANGE, a, b);
        fake_move(f, a, b, true);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int fake_mkdir(const lc__io *io, const char *path, mode_t mode)
{
    fake_io *f = fake_of(io);
    return fake_fails(f) ? -1 : lc__io_system.mkdir(io, path, mode);
}

static void fake_check_removal(fake_io *f)
{
    for (int i = 0; i < f->n_changes && !f->dead && !f->fail_at; i++)
        if (f->changes[i].kind != FAKE_CREATE) f->violation = "something was removed before a new name was durable";
}

static int fake_unlinkat(const lc__io *io, int dir, const char *name, int flags)
{
    fake_io *f = fake_of(io);
    const char *base = strrchr(name, '/');
    if (strcmp(base ? base + 1 : name, ".lightc-unfinished"))
        fake_check_removal(f); /* the mark itself is not saved data */
    return fake_fails(f) ? -1 : lc__io_system.unlinkat(io, dir, name, flags);
}

static int fake_symlink(const lc__io *io, const char *target, const char *path)
{
    fake_io *f = fake_of(io);
    return fake_fails(f) ? -1 : lc__io_system.symlink(io, target, path);
}

static void fake_init(fake_io *f, long fail_at, int error, bool crash)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    f->io = (lc__io){.open = fake_open,
                     .close = fake_close,
                     .pread = fake_pread,
                     .pwrite = fake_pwrite,
                     .allocate = fake_allocate,
                     .sync = fake_sync,
                     .rename = fake_rename,
                     .exchange = fake_exchange,
                     .mkdir = fake_mkdir,
                     .unlinkat = fake_unlinkat,
                     .symlink = fake_symlink};
    f->fail_at = fail_at, f->error = error, f->crash = crash;
}

/* Drops what a machine that goes down now would lose. */
static inline void fake_lose(fake_io *f)
{
    for (int i = 0; i < f->n_unsynced; i++) {
        struct stat st;
        if (stat(f->unsynced[i], &st) == 0 && truncate(f->unsynced[i], st.st_size / 2) < 0) perror("truncate");
    }
    for (int i = f->n_changes - 1; i >= 0; i--) {
        const fake_change *c = &f->changes[i];
        if (c->kind == FAKE_CREATE) {
            unlink(c->a);
        } else if (c->kind == FAKE_RENAME) {
            rename(c->b, c->a);
            fake_move(f, c->b, c->a, false);
        } else {
            lc__io_system.exchange(&lc__io_system, c->a, c->b);
            fake_move(f, c->a, c->b, true);
        }
    }
}

#endif
