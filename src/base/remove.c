/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where lightc deletes (remove.h). */
#define _GNU_SOURCE
#include "base/remove.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LISTINGS = 100 };

static bool is_dots(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

static lc__verdict verdict_of(const lc__removal_rules *rules, int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) return LC__GOES; /* another process has removed it */
    return S_ISDIR(st.st_mode) ? LC__STAYS : rules->entry(rules->ctx, name, &st);
}

static DIR *list(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
    return d;
}

/* Opens a directory that may be removed, with every entry. */
static lc_status open_removable(int at, const char *name, const char *path, const lc__removal_rules *rules, int *dir)
{
    *dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*dir < 0) return lc__io_fail(errno, "open directory", path);
    lc_status status = rules->is_ours(rules->ctx, *dir, path);
    DIR *d = status >= 0 ? list(*dir) : NULL;
    if (status >= 0 && !d) status = lc__io_fail(errno, "open directory", path);
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        if (is_dots(e->d_name) || verdict_of(rules, *dir, e->d_name) != LC__STAYS) continue;
        status = lc_fail(LC_ERR_STATE, "\"%s\" holds \"%s\", which lightc did not put there, so it is not %s; %s", path,
                         e->d_name, rules->done, rules->hint);
    }
    if (d) closedir(d);
    if (status < 0) {
        close(*dir);
        *dir = -1;
    }
    return status;
}

static lc_status remove_entries(const lc__io *io, int dir, const char *path, const lc__removal_rules *rules,
                                lc__verdict which)
{
    DIR *d = list(dir);
    lc_status status = LC_OK;
    if (!d) return lc__io_fail(errno, "open directory", path);
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        if (is_dots(e->d_name) || verdict_of(rules, dir, e->d_name) != which) continue;
        if (io->unlinkat(io, dir, e->d_name, 0) < 0 && errno != ENOENT)
            status = lc__io_fail(errno, "remove from", path);
    }
    closedir(d);
    return status;
}

/* Moves the directory aside. If another entry took its name in the meantime, that one gets the name back. */
static lc_status move_aside(int at, const char *name, const char *path, int dir, const char *aside)
{
    struct stat meant, moved;
    if (renameat(at, name, at, aside) < 0) return lc__io_fail(errno, "rename", path);
    if (fstat(dir, &meant) == 0 && fstatat(at, aside, &moved, AT_SYMLINK_NOFOLLOW) == 0 &&
        meant.st_dev == moved.st_dev && meant.st_ino == moved.st_ino)
        return fsync(at) < 0 && errno != EINVAL ? lc__io_fail(errno, "sync the directory of", path) : LC_OK;
    if (renameat(at, aside, at, name) < 0) return lc__io_fail(errno, "rename back to", path);
    return lc_fail(LC_ERR_STATE, "\"%s\" was replaced by something else in the meantime; it was not removed", path);
}

static lc_status remove_directory(const lc__io *io, int at, const char *name, const char *path,
                                  const lc__removal_rules *rules)
{
    int dir;
    lc_status status = open_removable(at, name, path, rules, &dir);
    if (status == LC_ERR_NOT_FOUND) return LC_OK; /* another process was faster */
    LC_TRY(status);
    if (rules->aside) {
        status = move_aside(at, name, path, dir, rules->aside);
        name = rules->aside;
    }
    /* Other processes may put entries of ours there until the directory is gone. */
    for (int more = MOST_LISTINGS; status >= 0 && more; more--) {
        status = remove_entries(io, dir, path, rules, LC__GOES);
        if (status >= 0) status = remove_entries(io, dir, path, rules, LC__GOES_LAST);
        if (status < 0 || io->unlinkat(io, at, name, AT_REMOVEDIR) == 0 || errno == ENOENT) break;
        if (errno != ENOTEMPTY || more == 1) status = lc__io_fail(errno, "remove", path);
    }
    close(dir);
    return status;
}

lc_status lc__remove(const lc__io *io, int at, const char *name, const char *path, const lc__removal_rules *rules)
{
    struct stat st;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? LC_OK : lc__io_fail(errno, "look at", path);
    if (rules && S_ISDIR(st.st_mode)) return remove_directory(io, at, name, path, rules);
    if (rules && !S_ISLNK(st.st_mode))
        return lc_fail(LC_ERR_STATE, "\"%s\" is a file, so it is not %s; %s", path, rules->done, rules->hint);
    if (io->unlinkat(io, at, name, 0) < 0 && errno != ENOENT) return lc__io_fail(errno, "remove", path);
    return LC_OK;
}

lc_status lc__may_remove(int at, const char *name, const char *path, const lc__removal_rules *rules)
{
    int dir;
    LC_TRY(open_removable(at, name, path, rules, &dir));
    close(dir);
    return LC_OK;
}

void lc__remove_made(const lc__io *io, const char *path)
{
    (void)!io->unlinkat(io, AT_FDCWD, path, 0); /* without a message: an earlier error matters more */
}

void lc__remove_empty(const lc__io *io, int at, const char *name)
{
    (void)!io->unlinkat(io, at, name, AT_REMOVEDIR);
}

lc_status lc__replace_by(const lc__io *io, const char *temp, const char *path)
{
    if (io->rename(io, temp, path) == 0) return LC_OK;
    lc_status status = lc__io_fail(errno, "rename to", path);
    lc__remove_made(io, temp);
    return status;
}

/* Opens the next directory below the trusted one. */
static lc_status step_down(int *dir, const char *part, size_t n, const char *path)
{
    char name[256];
    if (n >= sizeof name) return lc_fail(LC_ERR_ARGUMENT, "\"%s\" has a name that is too long", path);
    memcpy(name, part, n);
    name[n] = 0;
    int next = openat(*dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) return lc__io_fail(errno, "look at", path);
    close(*dir);
    *dir = next;
    return LC_OK;
}

lc_status lc__open_parent(const char *path, size_t trusted, int *dir, const char **name)
{
    char *root = NULL;
    lc_status status = LC_OK;
    *dir = -1;
    *name = path;
    if (trusted)
        LC_TRY(lc__format(&root, "%.*s", (int)trusted, path));
    else
        LC_TRY(lc__path_dir(path, &root));
    const char *at = trusted ? path + trusted : lc__path_base(path);
    while (trusted && *at == '/') at++;
    *dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*dir < 0) status = lc__io_fail(errno, "open directory", root);
    while (status >= 0) {
        size_t n = strcspn(at, "/");
        if (!n || (n == 1 && at[0] == '.') || (n == 2 && !strncmp(at, "..", 2)))
            status = lc_fail(LC_ERR_ARGUMENT, "\"%s\" does not name anything inside \"%s\"", path, root);
        if (status < 0 || !at[n]) break;
        status = step_down(dir, at, n, path);
        at += n + 1;
    }
    *name = at;
    free(root);
    if (status < 0 && *dir >= 0) close(*dir);
    if (status < 0) *dir = -1;
    return status;
}
