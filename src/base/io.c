/* SPDX-License-Identifier: Apache-2.0 */
/* The real system calls of lc__io, and complete operations made of them. */
#define _GNU_SOURCE
#include "base/c_locale.h"
#include "base/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static int sys_open(const lc__io *io, const char *path, int flags, mode_t mode)
{
    (void)io;
    return open(path, flags | O_CLOEXEC, mode);
}

static int sys_close(const lc__io *io, int fd)
{
    (void)io;
    return close(fd);
}

static ssize_t sys_pread(const lc__io *io, int fd, void *data, size_t n, off_t offset)
{
    (void)io;
    return pread(fd, data, n, offset);
}

static ssize_t sys_pwrite(const lc__io *io, int fd, const void *data, size_t n, off_t offset)
{
    (void)io;
    return pwrite(fd, data, n, offset);
}

static int sys_allocate(const lc__io *io, int fd, off_t size)
{
    (void)io;
    /* Not posix_fallocate: if a file system cannot reserve space, it writes the whole file. */
    if (size > 0 && fallocate(fd, 0, 0, size) < 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        return -1;
    return 0;
}

static int sys_sync(const lc__io *io, int fd)
{
    (void)io;
    return fsync(fd);
}

static int sys_rename(const lc__io *io, const char *from, const char *to)
{
    (void)io;
    return rename(from, to);
}

static int sys_exchange(const lc__io *io, const char *a, const char *b)
{
    (void)io;
#ifdef SYS_renameat2
    return (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
    (void)a, (void)b;
    errno = ENOSYS;
    return -1;
#endif
}

static int sys_mkdir(const lc__io *io, const char *path, mode_t mode)
{
    (void)io;
    return mkdir(path, mode);
}

static int sys_unlinkat(const lc__io *io, int dir, const char *name, int flags)
{
    (void)io;
    return unlinkat(dir, name, flags);
}

static int sys_symlink(const lc__io *io, const char *target, const char *path)
{
    (void)io;
    return symlink(target, path);
}

const lc__io lc__io_system = {
    .open = sys_open,
    .close = sys_close,
    .pread = sys_pread,
    .pwrite = sys_pwrite,
    .allocate = sys_allocate,
    .sync = sys_sync,
    .rename = sys_rename,
    .exchange = sys_exchange,
    .mkdir = sys_mkdir,
    .unlinkat = sys_unlinkat,
    .symlink = sys_symlink,
};

const char *lc__io_hint(int error)
{
    return error == ENOSPC || error == EDQUOT                    ? "; free some space or choose another directory"
           : error == EACCES || error == EPERM || error == EROFS ? "; check the permissions or choose another directory"
           : error == EFBIG                                      ? "; a limit on file sizes is set (ulimit -f)"
           : error == EMFILE                                     ? "; a limit on open files is set (ulimit -n)"
                                                                 : "";
}

lc_status lc__io_fail(int error, const char *what, const char *path)
{
    char reason[128];
    const char *text = strerror_r(error, reason, sizeof reason), *hint = lc__io_hint(error);
    return lc_fail(error == ENOENT   ? LC_ERR_NOT_FOUND
                   : error == ENOMEM ? LC_ERR_MEMORY
                                     : LC_ERR_IO,
                   "cannot %s \"%s\": %s%s", what, path, text, hint);
}

lc_status lc__write_all(const lc__io *io, int fd, const char *path, const void *data, size_t n, uint64_t offset)
{
    const char *p = data;
    while (n) {
        /* Linux writes at most 0x7ffff000 bytes a call; stay far below, and keep the alignment of O_DIRECT. */
        size_t part = n < ((size_t)1 << 30) ? n : ((size_t)1 << 30);
        ssize_t done = io->pwrite(io, fd, p, part, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return lc__io_fail(errno, "write", path);
        if (done == 0) return lc__io_fail(ENOSPC, "write", path);
        p += done, offset += (uint64_t)done, n -= (size_t)done;
    }
    return LC_OK;
}

lc_status lc__read_all(const lc__io *io, int fd, const char *path, void *data, size_t n, uint64_t offset)
{
    char *p = data;
    while (n) {
        size_t part = n < ((size_t)1 << 30) ? n : ((size_t)1 << 30);
        ssize_t done = io->pread(io, fd, p, part, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return lc__io_fail(errno, "read", path);
        if (done == 0)
            return lc_fail(LC_ERR_FORMAT, "\"%s\" is truncated: it ends at byte %llu, %zu bytes short", path,
                           (unsigned long long)offset, n);
        p += done, offset += (uint64_t)done, n -= (size_t)done;
    }
    return LC_OK;
}

lc_status lc__sync_dir(const lc__io *io, const char *path)
{
    int fd = io->open(io, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return lc__io_fail(errno, "open directory", path);
    lc_status status = LC_OK;
    /* Some network file systems cannot sync directories and say EINVAL: nothing more can be done there. */
    if (io->sync(io, fd) < 0 && errno != EINVAL) status = lc__io_fail(errno, "sync directory", path);
    io->close(io, fd);
    return status;
}

lc_status lc__make_dirs(const lc__io *io, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) return LC_OK;
        return lc_fail(LC_ERR_IO, "cannot make directory \"%s\": a file of that name is in the way", path);
    }
    char *parent = NULL;
    LC_TRY(lc__path_dir(path, &parent));
    lc_status status = LC_OK;
    if (strcmp(parent, path)) status = lc__make_dirs(io, parent);
    if (status >= 0 && io->mkdir(io, path, 0777) < 0 && errno != EEXIST)
        status = lc__io_fail(errno, "make directory", path);
    else if (status >= 0)
        status = lc__sync_dir(io, parent);
    free(parent);
    return status;
}

lc_status lc__make_dirs_of(const lc__io *io, const char *path)
{
    char *dir = NULL;
    LC_TRY(lc__path_dir(path, &dir));
    lc_status status = lc__make_dirs(io, dir);
    free(dir);
    return status;
}

lc_status lc__create_file(const lc__io *io, const char *path, const void *data, size_t n)
{
    int fd = io->open(io, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) return lc__io_fail(errno, "create", path);
    lc_status status = lc__write_all(io, fd, path, data, n, 0);
    if (status >= 0 && io->sync(io, fd) < 0) status = lc__io_fail(errno, "sync", path);
    if (io->close(io, fd) < 0 && status >= 0) status = lc__io_fail(errno, "close", path);
    if (status < 0) lc__remove_made(io, path);
    return status;
}

void lc__temp_host(char name[64])
{
    if (gethostname(name, 64) < 0 || !*name) snprintf(name, 64, "host");
    name[63] = 0;
    for (char *p = name; *p; p++)
        if (*p == '/' || *p == '-') *p = '_';
}

lc_status lc__temp_name(const char *parent, const char *kind, const char *base, char **out)
{
    char host[64];
    struct timespec now;
    lc__temp_host(host);
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t number = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return lc__format(out, "%s/.%s-%.100s-%s-%ld-%" PRIx64, parent, kind, base, host, (long)getpid(), number);
}

lc_status lc__replace_file(const lc__io *io, const char *path, const void *data, size_t n)
{
    char *dir = NULL, *temp = NULL, *name = NULL;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__path_dir(path, &dir));
    /* Two hosts, two containers of one, or two threads may replace the same file, each completely. */
    LC_TRY_GOTO(status, done, lc__temp_name(dir, "tmp", lc__path_base(path), &name));
    LC_TRY_GOTO(status, done, lc__format(&temp, "%s-%ld", name, (long)gettid()));
    LC_TRY_GOTO(status, done, lc__create_file(io, temp, data, n));
    LC_TRY_GOTO(status, done, lc__replace_by(io, temp, path));
    status = lc__sync_dir(io, dir);
done:
    free(name);
    free(temp);
    free(dir);
    return status;
}

bool lc__is_there(const char *path, int fd, uint64_t size)
{
    struct stat named, open;
    if (stat(path, &named) < 0 || (uint64_t)named.st_size < size) return false;
    return fd < 0 || (fstat(fd, &open) == 0 && open.st_dev == named.st_dev && open.st_ino == named.st_ino);
}

/* O_NONBLOCK: opening a FIFO would wait for a writer. */
lc_status lc__open_to_read(const lc__io *io, const char *path, int *fd, struct stat *st)
{
    *fd = io->open(io, path, O_RDONLY | O_NONBLOCK, 0);
    if (*fd < 0 && errno == ENXIO)
        return lc_fail(LC_ERR_FORMAT, "\"%s\" is not a file: it is a socket or a device", path);
    if (*fd < 0) return lc__io_fail(errno, "open", path);
    if (fstat(*fd, st) == 0 && S_ISREG(st->st_mode)) return LC_OK;
    io->close(io, *fd);
    *fd = -1;
    return lc_fail(LC_ERR_FORMAT, "\"%s\" is not a file: it is %s", path,
                   S_ISDIR(st->st_mode)    ? "a folder"
                   : S_ISFIFO(st->st_mode) ? "a FIFO"
                                           : "a device");
}

lc_status lc__open_to_write(const char *path, int flags, int *fd)
{
    struct stat st;
    *fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0 && errno == ENXIO)
        return lc_fail(LC_ERR_IO, "cannot write \"%s\": it is not a file, but a FIFO, a socket or a device", path);
    if (*fd < 0) return lc__io_fail(errno, "open", path);
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) return LC_OK;
    close(*fd);
    *fd = -1;
    return lc_fail(LC_ERR_IO, "cannot write \"%s\": it is not a file, but a FIFO, a folder or a device", path);
}

lc_status lc__open_stream(const char *path, int flags, FILE **out)
{
    int fd;
    *out = NULL;
    LC_TRY(lc__open_to_write(path, O_WRONLY | O_CREAT | flags, &fd));
    *out = fdopen(fd, flags & O_APPEND ? "a" : "w");
    if (*out) return LC_OK;
    lc_status status = lc__io_fail(errno, "write", path);
    close(fd);
    return status;
}

lc_status lc__io_read_file(const lc__io *io, const char *path, size_t limit, char **data, size_t *n)
{
    struct stat st;
    char *text = NULL;
    lc_status status = LC_OK;
    int fd;
    LC_TRY(lc__open_to_read(io, path, &fd, &st));
    if ((uint64_t)st.st_size > limit) {
        status = lc_fail(LC_ERR_FORMAT, "\"%s\" has %lld bytes; at most %zu are expected", path, (long long)st.st_size,
                         limit);
        goto done;
    }
    text = malloc((size_t)st.st_size + 1);
    if (!text) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: the %lld bytes of \"%s\"", (long long)st.st_size, path);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__read_all(io, fd, path, text, (size_t)st.st_size, 0));
    text[st.st_size] = 0;
    *data = text, *n = (size_t)st.st_size;
    text = NULL;
done:
    free(text);
    io->close(io, fd);
    return status;
}

bool lc__path_goes_up(const char *path)
{
    for (; *path; path += strspn(path, "/")) {
        size_t n = strcspn(path, "/");
        if (n == 2 && !memcmp(path, "..", 2)) return true;
        path += n;
    }
    return false;
}

const char *lc__path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

lc_status lc__path_dir(const char *path, char **dir)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) return lc__format(dir, ".");
    return lc__format(dir, "%.*s", (int)n, path);
}

const char *lc__dir_or_here(const char *dir)
{
    return dir && *dir ? dir : ".";
}

lc_status lc__path_join(const char *dir, const char *name, char **path)
{
    size_t n = strlen(dir);
    return lc__format(path, "%s%s%s", dir, !n || dir[n - 1] == '/' ? "" : "/", name);
}

lc_status lc__format(char **out, const char *format, ...)
{
    va_list args;
    locale_t before = lc__c_locale_begin();
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
    va_start(args, format);
    if (text) vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    lc__c_locale_end(before);
    *out = text;
    return text ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: a text of %d bytes", n);
}
