/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping house among checkpoints: links, removal, and what dead processes left behind. */
#define _GNU_SOURCE
#include "core/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY_S 86400

lc_status lc_checkpoint_link(const char *link, const char *path)
{
    const lc__io *io = &lc__io_system;
    char *dir = NULL, *temp = NULL, *clean = NULL, *target_dir = NULL;
    struct stat st;
    lc_status status;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    LC_TRY_GOTO(status, done, lc__format(&clean, "%.*s", (int)n, path));
    LC_TRY_GOTO(status, done, lc__path_dir(link, &dir));
    LC_TRY_GOTO(status, done, lc__path_dir(clean, &target_dir));
    const char *target = lc__path_base(clean);
    if (strcmp(dir, target_dir)) {
        status =
            lc_fail(LC_ERR_ARGUMENT, "link \"%s\" and checkpoint \"%s\" are not in the same directory", link, path);
        goto done;
    }
    if (lstat(link, &st) == 0 && !S_ISLNK(st.st_mode)) {
        status = lc_fail(LC_ERR_IO, "\"%s\" cannot become a link to \"%s\": something else has that name; move it away",
                         link, target);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__temp_name(dir, "tmp", lc__path_base(link), &temp));
    if (io->symlink(io, target, temp) < 0) {
        status = lc__io_fail(errno, "make link", temp);
        goto done;
    }
    if (io->rename(io, temp, link) < 0) {
        status = lc__io_fail(errno, "rename to", link);
        io->unlink(io, temp);
        goto done;
    }
    status = lc__sync_dir(io, dir);
done:
    free(target_dir);
    free(clean);
    free(temp);
    free(dir);
    return status;
}

lc_status lc_checkpoint_remove(const char *path)
{
    const lc__io *io = &lc__io_system;
    char *clean = NULL, *dir = NULL, *aside = NULL, *manifest = NULL;
    struct stat st;
    lc_status status;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    LC_TRY_GOTO(status, done, lc__format(&clean, "%.*s", (int)n, path));
    if (lstat(clean, &st) < 0) {
        status = lc__io_fail(errno, "remove checkpoint", clean);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__path_join(clean, LC__MANIFEST, &manifest));
    if (!S_ISDIR(st.st_mode) || access(manifest, F_OK) < 0) {
        status = lc_fail(LC_ERR_ARGUMENT, "\"%s\" is not a checkpoint of lightc; it was not removed", clean);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__path_dir(clean, &dir));
    LC_TRY_GOTO(status, done, lc__temp_name(dir, "del", lc__path_base(clean), &aside));
    if (io->rename(io, clean, aside) < 0) {
        status = lc__io_fail(errno, "rename", clean);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__sync_dir(io, dir));
    status = lc__remove_tree(io, aside);
done:
    free(manifest);
    free(aside);
    free(dir);
    free(clean);
    return status;
}

/* True if whoever made the temporary directory is gone. Its writer holds a lock on it as long as it lives; where there
 * are no such locks (some network file systems) its process number tells on its own host, and its age elsewhere. *held:
 * the lock, to be closed when the directory is gone: a writer that has made it just now and could not lock it yet then
 * takes another one. */
static bool is_dead(const char *path, const char *name, const struct stat *st, int *held)
{
    *held = -1;
    if (S_ISDIR(st->st_mode)) {
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) return false;
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0, refused = !locked && errno == EWOULDBLOCK;
        if (locked) {
            *held = fd;
            return true;
        }
        close(fd);
        if (refused) return false;
    }
    char host[64], want[80];
    lc__temp_host(host);
    snprintf(want, sizeof want, "-%s-", host);
    const char *at = NULL;
    for (const char *p = name; (p = strstr(p, want)); p++) at = p;
    if (at) {
        long pid = strtol(at + strlen(want), NULL, 10);
        if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH) return true;
    }
    return time(NULL) - st->st_mtime > DAY_S;
}

/* ".old-BASE-HOST-PID-NUMBER" is a checkpoint that was moved away for a new one of its name. If its writer died before
 * that one was in place, the name is free and it gets it back. */
static lc_status restore(const char *dir, const char *path, const char *name, bool *restored)
{
    *restored = false;
    const char *base = name + 5, *end = name + strlen(name);
    for (int dashes = 0; end > base && dashes < 3; end--) dashes += end[-1] == '-';
    char *original = NULL;
    LC_TRY(lc__format(&original, "%s/%.*s", dir, (int)(end - base), base));
    struct stat st;
    lc_status status = LC_OK;
    if (lstat(original, &st) < 0 && errno == ENOENT) {
        *restored = true; /* also where it fails: it is not to be removed */
        if (rename(path, original) < 0) status = lc__io_fail(errno, "rename to", original);
    }
    free(original);
    return status;
}

lc_status lc_checkpoint_clean(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) return lc__io_fail(errno, "open directory", dir);
    lc_status status = LC_OK;
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        bool old = !strncmp(e->d_name, ".old-", 5);
        if (strncmp(e->d_name, ".tmp-", 5) && strncmp(e->d_name, ".del-", 5) && !old) continue;
        char *path = NULL;
        struct stat st;
        bool restored = false;
        int held = -1;
        LC_TRY_GOTO(status, done, lc__path_join(dir, e->d_name, &path));
        if (lstat(path, &st) == 0 && is_dead(path, e->d_name, &st, &held)) {
            if (old) status = restore(dir, path, e->d_name, &restored);
            if (status >= 0 && !restored) status = lc__remove_tree(&lc__io_system, path);
        }
        if (held >= 0) close(held);
        free(path);
    }
done:
    closedir(d);
    return status;
}
