/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the newest usable checkpoint in some directories. */
#define _GNU_SOURCE
#include "core/checkpoint/find_newest.h"
#include "base/grow.h"
#include "core/checkpoint/removal.h"
#include "base/handle.h"

#include "base/clock.h"
#include "base/status.h"
#include "core/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lc_status add(lc__ckpt_list *l, char *path, int64_t saved_ns)
{
    lc_status status = lc__grow(&l->found, &l->capacity, l->n, 1, "names of checkpoints");
    if (status < 0) {
        free(path);
        return status;
    }
    l->found[l->n++] = (lc__ckpt_found){path, saved_ns};
    return LC_OK;
}

static bool is_from(const lc__manifest *m, const lc__ckpt_origin *origin)
{
    return !origin || (m->origin.fit == origin->fit && (!*origin->run || !strcmp(m->origin.run, origin->run)));
}

/* The time of saving. If it is in the future, the clock was ahead and the checkpoint would be the newest for too long,
 * so take the file's time, which a copy does not make earlier. */
static int64_t time_of(const char *path, int64_t saved_ns)
{
    char *manifest = NULL;
    struct stat st;
    if (saved_ns > lc__realtime_ns() && lc__path_join(path, LC__MANIFEST, &manifest) >= 0 && stat(manifest, &st) == 0) {
        int64_t written = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        if (written < saved_ns) saved_ns = written;
    }
    free(manifest);
    return saved_ns;
}

/* *path: the checkpoint in a folder below `dir` that a link names (`last.ckpt`, if the names of checkpoints contain
 * folders), in new memory; NULL: it is a link to something else. */
static lc_status follow(const char *dir, int at, const char *link, char **path)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(at, link, target, sizeof target - 1);
    *path = NULL;
    if (n <= 0) return LC_OK;
    target[n] = 0;
    if (*target == '/' || !strchr(target, '/') || lc__path_goes_up(target)) return LC_OK;
    return lc__path_join(dir, target, path);
}

lc_status lc__ckpt_list_add(lc__ckpt_list *l, const char *dir, const lc__ckpt_origin *origin)
{
    lc_status status = LC_OK;
    DIR *d = opendir(dir);
    if (!d) return lc__io_fail(errno, "open directory", dir);
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        char *path = NULL;
        lc__manifest m;
        if (e->d_name[0] == '.' || e->d_type == DT_REG) continue;
        if (e->d_type == DT_LNK)
            LC_TRY_GOTO(status, done, follow(dir, dirfd(d), e->d_name, &path));
        else
            LC_TRY_GOTO(status, done, lc__path_join(dir, e->d_name, &path));
        if (!path) continue;
        if (lc__manifest_read(&lc__io_system, path, &m) >= 0 && is_from(&m, origin))
            status = add(l, path, time_of(path, m.saved_ns));
        else
            free(path);
        lc__manifest_release(&m);
    }
done:
    closedir(d);
    return status;
}

static int newest_first(const void *pa, const void *pb)
{
    const lc__ckpt_found *a = pa, *b = pb;
    if (a->saved_ns != b->saved_ns) return a->saved_ns > b->saved_ns ? -1 : 1;
    return strcmp(b->path, a->path);
}

const char *lc__ckpt_list_newest(lc__ckpt_list *l, bool to_continue)
{
    if (l->n) qsort(l->found, (size_t)l->n, sizeof *l->found, newest_first);
    for (int i = 0; i < l->n; i++)
        if (lc__checkpoint_opens(l->found[i].path, to_continue)) return l->found[i].path;
    return NULL;
}

void lc__ckpt_list_free(lc__ckpt_list *l)
{
    for (int i = 0; i < l->n; i++) free(l->found[i].path);
    free(l->found);
    *l = (lc__ckpt_list){0};
}

lc_status lc__ckpt_find_good(const char *dir, char *path, size_t size)
{
    lc__ckpt_list list = {0};
    lc_status status = lc__ckpt_list_add(&list, dir, NULL);
    const char *found = status >= 0 ? lc__ckpt_list_newest(&list, false) : NULL;
    if (status >= 0 && !found)
        status = lc_fail(LC_ERR_NOT_FOUND, "there is no valid checkpoint in \"%s\"", dir);
    else if (found && strlen(found) >= size)
        status = lc_fail(LC_ERR_ARGUMENT, "the path \"%s\" has more than %zu bytes", found, size);
    else if (found)
        memcpy(path, found, strlen(found) + 1);
    lc__ckpt_list_free(&list);
    return status;
}

lc_status lc_checkpoint_find_last_good(const char *dir, char *path, size_t size)
{
    LC__NEEDS(dir, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC_TRY(lc__ckpt_restore_names(dir));
    return lc__ckpt_find_good(dir, path, size);
}
