/* SPDX-License-Identifier: Apache-2.0 */
/* Leftovers of dead processes in a directory of checkpoints. Only names of exactly the form of lc__temp_name are
 * considered, and only entries made by lightc are removed: plain files with such names, and directories without
 * lightc's mark, are left alone. */
#define _GNU_SOURCE
#include "core/checkpoint/removal.h"
#include "base/handle.h"
#include "core/checkpoint/taken.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

#define DAY_S     86400
#define DIGITS    "0123456789"
#define HEXDIGITS DIGITS "abcdef"

/* Length of the field of characters in `of` that ends [from, to) and follows a '-'; 0: none. */
static size_t last_field(const char *from, const char *to, const char *of)
{
    size_t n = 0;
    while (to - n > from && strchr(of, to[-1 - (ptrdiff_t)n])) n++;
    return n && to - n > from && to[-1 - (ptrdiff_t)n] == '-' ? n : 0;
}

/* The end of a temporary name, "BASE-HOST-PID-NUMBER". */
typedef struct temp_owner {
    const char *host; /* points into the text */
    size_t base_length, host_length;
    long pid;
} temp_owner;

/* False if [text, end) does not have that form. */
static bool parse_owner(const char *text, const char *end, temp_owner *out)
{
    size_t number = last_field(text, end, HEXDIGITS);
    if (!number || number > 16) return false;
    end -= number + 1;
    size_t pid = last_field(text, end, DIGITS);
    if (!pid || pid > 10 || end[-(ptrdiff_t)pid] == '0') return false;
    out->pid = strtol(end - pid, NULL, 10);
    if (out->pid > INT_MAX) return false;
    end -= pid + 1;
    out->host = end;
    while (out->host > text && out->host[-1] != '-') out->host--;
    out->host_length = (size_t)(end - out->host);
    out->base_length = out->host - text > 1 ? (size_t)(out->host - text - 1) : 0;
    return out->host_length && out->host_length < 64 && out->base_length;
}

/* For file systems without locks: the process is gone (on this host), or the leftover (`st`) is older than a day. */
static bool is_old(const temp_owner *owner, const struct stat *st)
{
    char host[64];
    lc__temp_host(host);
    bool here = strlen(host) == owner->host_length && !memcmp(host, owner->host, owner->host_length);
    if (here && kill((pid_t)owner->pid, 0) < 0 && errno == ESRCH) return true;
    return time(NULL) - st->st_mtime > DAY_S;
}

/* Whether the writer of a temporary directory is gone. A writer holds a lock on its directory as long as it lives;
 * without locks (some network file systems), its process number decides on the same host, and the directory's age on
 * others. *held: the lock, to be closed when the directory is gone, so that a writer that has just made the directory
 * cannot lock it and makes another. */
static bool is_dead(int at, const char *name, const temp_owner *owner, int *held)
{
    struct stat st;
    *held = -1;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!dead && errno != EWOULDBLOCK) dead = fstat(fd, &st) == 0 && is_old(owner, &st);
    if (dead)
        *held = fd;
    else
        close(fd);
    return dead;
}

/* Renames without replacing anything, except an empty directory if the file system cannot prevent that. */
static int rename_new(int at, const char *from, const char *to)
{
#ifdef SYS_renameat2
    if (syscall(SYS_renameat2, at, from, at, to, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
#endif
    return renameat(at, from, at, to);
}

/* ".old-BASE-..." is a checkpoint that was moved away for a new one of the same name. If the writer died before the new
 * one was in place, the name is free, and the old checkpoint gets it back. */
static lc_status restore(int at, const char *name, const char *path, const temp_owner *owner, bool *lost)
{
    char *original = NULL;
    struct stat st;
    lc__ckpt_removal p;
    LC_TRY(lc__format(&original, "%.*s", (int)owner->base_length, name + 5));
    *lost = fstatat(at, original, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    lc__ckpt_removal_init(&p, LC__CKPT_WHOLE, NULL);
    lc_status status = *lost ? lc__may_remove(at, name, path, &p.rules) : LC_OK;
    if (status >= 0 && *lost && rename_new(at, name, original) < 0) status = lc__io_fail(errno, "rename back", path);
    lc__ckpt_removal_release(&p);
    free(original);
    return status;
}

static bool is_kind(const char *name, const char *kind)
{
    return !strncmp(name, kind, 5);
}

static lc_status look_at(int at, const char *name, const char *path, bool remove)
{
    bool old = is_kind(name, ".old-"), lost = false;
    int held = -1;
    temp_owner owner;
    lc_status status = LC_OK;
    if (remove && lc__taken_is_name(name)) lc__taken_clean(at, name);
    if (!old && (!remove || (!is_kind(name, ".tmp-") && !is_kind(name, ".del-")))) return LC_OK;
    if (!parse_owner(name + 5, name + strlen(name), &owner)) return LC_OK;
    if (!is_dead(at, name, &owner, &held)) return LC_OK;
    if (old) status = restore(at, name, path, &owner, &lost);
    if (remove && !lost && status >= 0) { /* not if the checkpoint could not be restored */
        lc__ckpt_removal p;
        lc__ckpt_removal_init(&p, LC__CKPT_LEFTOVER, NULL);
        status = lc__remove(&lc__io_system, at, name, path, &p.rules);
        lc__ckpt_removal_release(&p);
    }
    close(held);
    return status == LC_ERR_STATE || status == LC_ERR_ARGUMENT ? LC_OK : status; /* not lightc's */
}

static lc_status look_through(const char *dir, bool remove)
{
    DIR *d = opendir(dir);
    if (!d) return lc__io_fail(errno, "open directory", dir);
    lc_status status = LC_OK;
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        char *path = NULL;
        if (e->d_name[0] != '.') continue;
        status = lc__path_join(dir, e->d_name, &path);
        if (status >= 0) status = look_at(dirfd(d), e->d_name, path, remove);
        free(path);
    }
    closedir(d);
    return status;
}

lc_status lc_checkpoint_clean(const char *dir)
{
    LC__NEEDS(dir, LC_ERR_ARGUMENT);
    return look_through(dir, true);
}

lc_status lc__ckpt_restore_names(const char *dir)
{
    return look_through(dir, false);
}
