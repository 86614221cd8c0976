/* SPDX-License-Identifier: Apache-2.0 */
/* Files, through calls that tests can make fail.
 *
 * Files that must survive a crash go through an lc__io, a table of the system calls that can fail; tests put their own
 * table in front of the real one (tests/core/checkpoint/fake_io.h), which fails the n-th call or loses what was not
 * synced. The helpers below turn calls into complete operations with complete error messages. */
#ifndef LC_BASE_IO_H
#define LC_BASE_IO_H

#include <lightc/status.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Each returns -1 and sets errno, as the system call of the same name does. */
typedef struct lc__io lc__io;
struct lc__io {
    int (*open)(const lc__io *io, const char *path, int flags, mode_t mode);
    int (*close)(const lc__io *io, int fd);
    ssize_t (*pread)(const lc__io *io, int fd, void *data, size_t n, off_t offset);
    ssize_t (*pwrite)(const lc__io *io, int fd, const void *data, size_t n, off_t offset);
    int (*allocate)(const lc__io *io, int fd, off_t size); /* reserves space; the size of the file grows to it */
    int (*sync)(const lc__io *io, int fd);
    int (*rename)(const lc__io *io, const char *from, const char *to);
    int (*exchange)(const lc__io *io, const char *a, const char *b); /* swaps both names atomically */
    int (*mkdir)(const lc__io *io, const char *path, mode_t mode);
    int (*unlinkat)(const lc__io *io, int dir, const char *name, int flags); /* called only in base/remove.c */
    int (*symlink)(const lc__io *io, const char *target, const char *path);
};

extern const lc__io lc__io_system;

/* LC_ERR_IO (LC_ERR_NOT_FOUND for ENOENT) with "cannot WHAT PATH: reason" and a hint for the common reasons. */
lc_status lc__io_fail(int error, const char *what, const char *path);
const char *lc__io_hint(int error); /* "; what to do", or "" */

/* Writes everything or fails; goes on after short writes and interruptions. */
lc_status lc__write_all(const lc__io *io, int fd, const char *path, const void *data, size_t n, uint64_t offset);
/* Reads exactly n bytes; LC_ERR_FORMAT if the file is too short. */
lc_status lc__read_all(const lc__io *io, int fd, const char *path, void *data, size_t n, uint64_t offset);

/* Makes a directory's entries durable. */
lc_status lc__sync_dir(const lc__io *io, const char *path);
/* Makes a directory and its parents; existing ones are fine. */
lc_status lc__make_dirs(const lc__io *io, const char *path);
/* Makes the directory of a file, and its parents. */
lc_status lc__make_dirs_of(const lc__io *io, const char *path);

/* A new file with this content, durable once its directory is synced. Fails if it exists. */
lc_status lc__create_file(const lc__io *io, const char *path, const void *data, size_t n);
/* Replaces a file atomically: written under a temporary name, synced, renamed. */
lc_status lc__replace_file(const lc__io *io, const char *path, const void *data, size_t n);
struct stat;
/* Opens a regular file and reads its status. Anything else (a FIFO, a folder, a socket, a device) is refused at once:
 * LC_ERR_FORMAT. On failure *fd is -1. */
lc_status lc__open_to_read(const lc__io *io, const char *path, int *fd, struct stat *st);
/* The same to write; `flags` as of open. */
lc_status lc__open_to_write(const char *path, int flags, int *fd);
/* Whether `path` is the open file `fd` (any file, if -1), and has at least `size` bytes: nobody has removed, replaced
 * or cut it. */
bool lc__is_there(const char *path, int fd, uint64_t size);
/* And as a stream: `flags` O_TRUNC or O_APPEND. */
lc_status lc__open_stream(const char *path, int flags, FILE **out);
/* The whole file, followed by a zero byte; free *data with free(). Refuses more than `limit` bytes. */
lc_status lc__io_read_file(const lc__io *io, const char *path, size_t limit, char **data, size_t *n);

/* A path's parts, in new memory (free): "." and "/" as dirname has them. */
lc_status lc__path_dir(const char *path, char **dir);
lc_status lc__path_join(const char *dir, const char *name, char **path);
/* "." if a directory is not given, or as "", which before "/NAME" would be the root of the file system. */
const char *lc__dir_or_here(const char *dir);
const char *lc__path_base(const char *path); /* what follows the last slash */
/* Whether a part of the path is "..", so that it may lead out of the folder in which it begins. */
bool lc__path_goes_up(const char *path);

/* A name in `parent` for something unfinished, in new memory, that no other process uses, here or on another host:
 * ".KIND-BASE-HOST-PID-NUMBER". Kinds: "tmp" being written, "old" moved away for a new one of its name, "del" being
 * removed (checkpoint/leftovers.c reads them again). */
lc_status lc__temp_name(const char *parent, const char *kind, const char *base, char **out);
void lc__temp_host(char name[64]); /* as used in such names */
/* A printf into new memory (free). */
lc_status lc__format(char **out, const char *format, ...) LC_PRINTF(2, 3);

#endif
