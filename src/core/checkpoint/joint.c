/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint written by several ranks, each in its background thread. The threads synchronize through the temporary
 * directory, since the communicator belongs to training:
 *
 *   Rank R writes and syncs its files, reads them back, and leaves a note, renamed into place: ".part-R", a manifest of
 *   its files, or ".failed-R" with the reason. Rank 0 waits for all notes, adds the files to the manifest, removes the
 *   notes and gives the directory its name.
 *
 * Until the rename there is no checkpoint, and after it a complete one, no matter when a rank is killed. Rank 0 lists
 * the directory instead of looking up names, since NFS caches for a while that a name does not exist. */
#define _GNU_SOURCE
#include "core/checkpoint/joint.h"

#include "base/remove.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_REASON ((size_t)4096)
#define MAX_PAUSE  50 /* ms between two listings */

static void note_name(char name[32], const char *kind, int rank)
{
    snprintf(name, 32, ".%s-%05d", kind, rank);
}

void lc__joint_begin(const lc_ckpt_writer *w, const char *dir, lc__manifest *m)
{
    const char *number = strrchr(dir, '-'); /* of the temporary name, so unique to this save */
    *m = (lc__manifest){.ranks = w->joint.size};
    snprintf(m->id, sizeof m->id, "%s", number ? number + 1 : "0");
}

/* ---- the other ranks ---- */

/* When the note has its name, rank 0 may remove it and the directory at any time. */
static lc_status leave_note(lc_ckpt_writer *w, const char *dir, const char *kind, const char *text, size_t n)
{
    char name[32], *path = NULL, *temp = NULL;
    lc_status status;
    note_name(name, kind, w->joint.rank);
    LC_TRY_GOTO(status, done, lc__path_join(dir, name, &path));
    LC_TRY_GOTO(status, done, lc__format(&temp, "%s.new", path));
    LC_TRY_GOTO(status, done, lc__create_file(w->io, temp, text, n));
    if (w->io->rename(w->io, temp, path) < 0) status = lc__io_fail(errno, "rename to", path);
done:
    free(temp);
    free(path);
    return status;
}

/* Whether files of this rank are gone: rank 0 removes everything if it fails itself. */
static bool is_taken_away(const char *dir, const lc__manifest *m)
{
    bool gone = access(dir, F_OK) < 0 && errno == ENOENT;
    for (int i = 0; i < m->n && !gone; i++) {
        char *path;
        if (lc__path_join(dir, m->files[i].name, &path) < 0) return false;
        gone = access(path, F_OK) < 0 && errno == ENOENT;
        free(path);
    }
    return gone;
}

lc_status lc__joint_report(lc_ckpt_writer *w, const char *dir, const lc__manifest *m, lc_status status)
{
    char message[1024], coded[1100], *text = NULL;
    size_t n;
    if (status >= 0) status = lc__manifest_print(m, &text, &n);
    if (status >= 0) status = leave_note(w, dir, "part", text, n);
    free(text);
    if (status >= 0) return LC_OK;
    lc__copy_message(message, sizeof message);
    int of = status == LC_ERR_NOT_FOUND || is_taken_away(dir, m) ? 0 : lc__error_rank();
    /* If the note fails too, rank 0 gets the error when the ranks agree on the result. */
    snprintf(coded, sizeof coded, "%d %s", (int)status, message);
    (void)!leave_note(w, dir, "failed", coded, strlen(coded));
    lc_fail(status, "checkpoint \"%s\" was not saved: %s", w->job_path, message);
    lc__note_rank(of);
    return status;
}

/* ---- rank 0 ---- */

typedef struct collection {
    lc_ckpt_writer *w;
    const char *dir;
    lc__manifest *of; /* of rank i; its `ranks` is 0 until read */
    int left;
} collection;

static lc_status take_part(collection *c, int rank, const char *path, const char *id)
{
    lc__manifest *m = &c->of[rank];
    if (m->ranks) return LC_OK;
    LC_TRY(lc__manifest_read_file(c->w->io, path, m));
    if (m->ranks != c->w->joint.size || strcmp(m->id, id) != 0)
        return lc_fail(LC_ERR_FORMAT, "\"%s\" belongs to another save", path);
    c->left--;
    return lc__remove(c->w->io, AT_FDCWD, path, path, NULL);
}

/* "CODE why" */
static lc_status take_failure(const collection *c, int rank, const char *path)
{
    char *text = NULL, *why;
    size_t n;
    LC_TRY(lc__io_read_file(c->w->io, path, MAX_REASON, &text, &n));
    long code = strtol(text, &why, 10);
    bool has_code = why > text && *why == ' ' && code < 0 && code > INT_MIN;
    lc_status status = lc_fail(has_code ? (lc_status)code : LC_ERR_PEER, "rank %d could not write its part: %s", rank,
                               has_code ? why + 1 : text);
    lc__note_rank(rank);
    free(text);
    return status;
}

static lc_status look(collection *c, const char *id)
{
    DIR *d = opendir(c->dir);
    lc_status status = LC_OK;
    if (!d) return lc__io_fail(errno, "open directory", c->dir);
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        const char *number = strrchr(e->d_name, '-');
        int rank = number ? atoi(number + 1) : 0;
        char part[32], failed[32], *path = NULL;
        if (rank < 1 || rank >= c->w->joint.size) continue;
        note_name(part, "part", rank);
        note_name(failed, "failed", rank);
        bool is_part = !strcmp(e->d_name, part), is_failed = !strcmp(e->d_name, failed);
        if (!is_part && !is_failed) continue;
        status = lc__path_join(c->dir, e->d_name, &path);
        if (status >= 0) status = is_part ? take_part(c, rank, path, id) : take_failure(c, rank, path);
        free(path);
    }
    closedir(d);
    return status;
}

/* Sleeps, unless unfinished ranks are given up. Returns whether they are. */
static bool rest_is_given_up(lc_ckpt_writer *w, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    if (ms && !w->given_up) pthread_cond_timedwait(&w->changed, &w->lock, &until);
    bool given_up = w->given_up;
    pthread_mutex_unlock(&w->lock);
    return given_up;
}

static lc_status wait_for_all(collection *c, const char *id)
{
    for (int ms = 0; c->left; ms = ms ? (2 * ms < MAX_PAUSE ? 2 * ms : MAX_PAUSE) : 1) {
        bool last = rest_is_given_up(c->w, ms);
        LC_TRY(look(c, id));
        for (int rank = 1; last && rank < c->w->joint.size; rank++)
            if (!c->of[rank].ranks)
                return lc_fail(LC_ERR_PEER, "rank %d was lost, or gave up, before writing its part", rank);
    }
    return LC_OK;
}

lc_status lc__joint_collect(lc_ckpt_writer *w, const char *dir, lc__manifest *m)
{
    int size = w->joint.size;
    collection c = {w, dir, calloc((size_t)size, sizeof *c.of), size - 1};
    if (!c.of) return lc_fail(LC_ERR_MEMORY, "out of memory: the records of %d ranks", size);
    pthread_mutex_lock(&w->lock);
    w->joint_safe = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    lc_status status = wait_for_all(&c, m->id);
    for (int rank = 1; rank < size; rank++) {
        for (int i = 0; i < c.of[rank].n && status >= 0; i++) {
            const lc__manifest_file *f = &c.of[rank].files[i];
            status = lc__manifest_add(m, f->name, f->size, f->crc);
        }
        lc__manifest_release(&c.of[rank]);
    }
    free(c.of);
    return status;
}

/* An error for a tensor that rank 0 has added but no file contains: the ranks had different tensors. */
static lc_status check_kind(lc_ckpt_writer *w, const char *dir, const lc__manifest *m, lc_ckpt_kind kind)
{
    const lc__st_layout *all = &w->files[kind].all;
    lc_safetensors *wanted = NULL, *there = NULL;
    lc_status status = LC_OK;
    LC_TRY(lc__manifest_open_kind(w->io, dir, m, kind, &there));
    if (!all->header) goto done;
    LC_TRY_GOTO(status, done,
                lc__st_parse(lc__kind_name(kind), all->header + 8, all->header_bytes - 8, all->total, &wanted));
    for (int64_t i = 0; i < wanted->n; i++) {
        const lc_safetensor_info *a = &wanted->infos[i], *b = NULL;
        int64_t at = there ? lc_safetensors_find(there, a->name) : -1;
        if (at >= 0) b = &there->infos[at];
        if (b && !strcmp(a->dtype, b->dtype) && a->bytes == b->bytes && a->type.ndim == b->type.ndim) continue;
        status = lc_fail(LC_ERR_STATE,
                         "the ranks save different tensors: rank 0 has \"%.200s\" in %s, which the others lack, or "
                         "have with a different type",
                         a->name, lc__kind_name(kind));
        break;
    }
done:
    lc_safetensors_close(wanted);
    lc_safetensors_close(there);
    return status;
}

lc_status lc__joint_check(lc_ckpt_writer *w, const char *dir, const lc__manifest *m)
{
    for (int k = 0; k < LC_CKPT_KINDS; k++) LC_TRY(check_kind(w, dir, m, (lc_ckpt_kind)k));
    return LC_OK;
}
