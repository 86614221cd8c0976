/* SPDX-License-Identifier: Apache-2.0 */
/* Writing checkpoints, the background thread's side.
 *
 * The caller's thread copies every tensor to its place in an image of its file. A background thread writes the copied
 * bytes as they arrive, so that copying, checksums and the disk overlap. This order makes a crash at any point
 * harmless:
 *
 *   1. a directory with a temporary name next to the final one, locked (flock) as long as its writer lives;
 *   2. every file written and synced, the manifest last, then the directory synced;
 *   3. everything read back and compared with the manifest;
 *   4. one rename to the final name (or an exchange with what has it), then the parent directory synced;
 *   5. what had the name before is removed.
 *
 * After a failed sync the kernel forgets which pages were not written, so a file is never synced twice: the whole
 * temporary directory is abandoned, and the next checkpoint starts with new files. */
#define _GNU_SOURCE
#include "core/checkpoint/write_job.h"
#include "core/checkpoint/removal.h"
#include "core/checkpoint/joint.h"

#include "base/chunks.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct write_job {
    lc_ckpt_writer *w;
    lc__ckpt_file *file;
    const char *path;
    int fd;
    uint32_t *crcs;
} write_job;

/* Bytes [from, to) of a file whose parts are scattered: their address if they are contiguous in memory, otherwise a
 * copy, which the caller frees. */
static lc_status gather(const lc__ckpt_file *p, uint64_t from, uint64_t to, const char **data, char **copy)
{
    int64_t lo = 0, hi = p->n_sources;
    while (lo < hi) { /* the first source that ends after `from` */
        int64_t mid = lo + (hi - lo) / 2;
        if (p->sources[mid].offset + p->sources[mid].bytes > from)
            hi = mid;
        else
            lo = mid + 1;
    }
    const lc__ckpt_source *s = &p->sources[lo];
    if (s->data && s->offset + s->bytes >= to) {
        *data = s->data + (from - s->offset);
        return LC_OK;
    }
    char *out = *copy = malloc((size_t)(to - from));
    if (!out) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of a checkpoint", (size_t)(to - from));
    *data = out;
    for (; from < to; s++) {
        uint64_t skip = from - s->offset, n = s->bytes - skip < to - from ? s->bytes - skip : to - from;
        if (n && s->data) memcpy(out, s->data + skip, (size_t)n);
        if (n && !s->data) LC_TRY(lc_safetensors_read_range(s->from, s->from_index, skip, out, (size_t)n));
        out += n, from += n;
    }
    return LC_OK;
}

static lc_status write_chunk(void *ctx, uint64_t i)
{
    write_job *j = ctx;
    lc_ckpt_writer *w = j->w;
    uint64_t from = i * LC__CHUNK, to = from + LC__CHUNK < j->file->size ? from + LC__CHUNK : j->file->size;
    pthread_mutex_lock(&w->lock);
    while (j->file->ready < to && !w->cancelled) pthread_cond_wait(&w->changed, &w->lock);
    bool cancelled = w->cancelled;
    pthread_mutex_unlock(&w->lock);
    if (cancelled) return lc_fail(LC_ERR_STATE, "the checkpoint was abandoned");
    size_t n = (size_t)(to - from);
    char *copy = NULL;
    const char *data = j->file->sources ? NULL : j->file->image + from;
    lc_status status = j->file->sources ? gather(j->file, from, to, &data, &copy) : LC_OK;
    if (status >= 0) j->crcs[i] = lc__crc32c(0, data, n);
    if (status >= 0) status = lc__write_all(w->io, j->fd, j->path, data, n, from);
    free(copy);
    LC_TRY(status);
#ifdef SYNC_FILE_RANGE_WRITE
    /* Let the device begin; the sync that follows reports errors. */
    (void)!sync_file_range(j->fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
#endif
    return LC_OK;
}

static lc_status write_file(lc_ckpt_writer *w, lc__ckpt_file *p, const char *dir, const char *name, lc__manifest *m)
{
    char *path = NULL;
    write_job j = {.w = w, .file = p, .fd = -1};
    uint64_t n = (p->size + LC__CHUNK - 1) / LC__CHUNK;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__path_join(dir, name, &path));
    j.path = path;
    j.crcs = calloc((size_t)n, sizeof *j.crcs);
    if (!j.crcs) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: the checksums of \"%s\"", path);
        goto done;
    }
    j.fd = w->io->open(w->io, path, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (j.fd < 0) {
        status = lc__io_fail(errno, "create", path);
        goto done;
    }
    if (w->io->allocate(w->io, j.fd, (off_t)p->size) < 0) {
        int error = errno;
        status = lc__io_fail(error, "reserve space for", path);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__for_chunks(n, write_chunk, &j));
    if (w->io->sync(w->io, j.fd) < 0) {
        status = lc__io_fail(errno, "sync", path);
        goto done;
    }
    uint32_t crc = 0;
    for (uint64_t i = 0; i < n; i++)
        crc = lc__crc32c_combine(crc, j.crcs[i], i + 1 < n ? LC__CHUNK : p->size - i * LC__CHUNK);
    status = lc__manifest_add(m, name, p->size, crc);
done:
    if (j.fd >= 0 && w->io->close(w->io, j.fd) < 0 && status >= 0) status = lc__io_fail(errno, "close", path);
    free(j.crcs);
    free(path);
    return status;
}

/* Writes this writer's files of tensors into the new directory `dir`. */
static lc_status write_kinds(lc_ckpt_writer *w, const char *dir, lc__manifest *m)
{
    char name[64];
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        if (!w->files[k].size) continue;
        lc__kind_file((lc_ckpt_kind)k, w->joint.rank, w->joint.size, name);
        LC_TRY(write_file(w, &w->files[k], dir, name, m));
    }
    return LC_OK;
}

/* state.json and the manifest. */
static lc_status write_rest(lc_ckpt_writer *w, const char *dir, lc__manifest *m)
{
    char *path = NULL, *text = NULL;
    size_t length;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__path_join(dir, LC__STATE, &path));
    LC_TRY_GOTO(status, done, lc__create_file(w->io, path, w->state_text, w->state_length));
    LC_TRY_GOTO(status, done,
                lc__manifest_add(m, LC__STATE, w->state_length, lc__crc32c(0, w->state_text, w->state_length)));
    free(path);
    path = NULL;
    m->saved_ns = lc__realtime_ns();
    m->origin = w->origin;
    LC_TRY_GOTO(status, done, lc__manifest_print(m, &text, &length));
    LC_TRY_GOTO(status, done, lc__path_join(dir, LC__MANIFEST, &path));
    LC_TRY_GOTO(status, done, lc__create_file(w->io, path, text, length));
    LC_TRY_GOTO(status, done, lc__sync_dir(w->io, dir));
done:
    free(text);
    free(path);
    return status;
}

/* `others`: index of the first file of another rank; these ranks have read back their own. state.json follows. */
static lc_status read_back(lc_ckpt_writer *w, const char *dir, const lc__manifest *written, int others)
{
    lc__manifest m;
    lc_status status = lc__manifest_read(w->io, dir, &m);
    bool same = status >= 0 && m.n == written->n && m.saved_ns == written->saved_ns;
    for (int i = 0; same && i < m.n; i++) {
        const lc__manifest_file *a = &m.files[i], *b = &written->files[i];
        same = !strcmp(a->name, b->name) && a->size == b->size && a->crc == b->crc;
    }
    if (status >= 0 && !same) status = lc_fail(LC_ERR_IO, "the manifest in \"%s\" differs from what was written", dir);
    for (int i = 0; i < m.n && status >= 0; i++)
        if (i < others || i == m.n - 1) status = lc__manifest_check_file(w->io, dir, &m, i);
    lc__manifest_release(&m);
    return status;
}

/* ---- chores ---- */

void lc__ckpt_chore_free(lc__ckpt_chore *c)
{
    if (!c) return;
    lc__taken_release(c->taken);
    free(c->link);
    free(c->path);
    free(c);
}

/* Takes the first chore that may be done off the list (only links, or no late ones, if asked); drops chores of a failed
 * checkpoint. */
static lc__ckpt_chore *next_chore(lc_ckpt_writer *w, bool only_links, bool not_late, uint64_t safe)
{
    for (lc__ckpt_chore **at = &w->chores; *at;) {
        lc__ckpt_chore *c = *at;
        if (c->job > safe || (only_links && !c->link) || (not_late && c->late)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        if (c->job != w->done || w->result.status >= 0) return c;
        lc__ckpt_chore_free(c);
    }
    return NULL;
}

static lc_status make_link(const lc__ckpt_chore *c)
{
    struct stat st;
    /* A `last.ckpt` that is a checkpoint itself is removed for the link to a newer one. */
    if (lstat(c->link, &st) == 0 && S_ISDIR(st.st_mode))
        LC_TRY(lc__ckpt_remove(c->link, 0, *c->training ? c->training : NULL));
    return lc_checkpoint_link(c->link, c->path);
}

/* Links requested before the commit are part of the result. */
static lc_status make_links(lc_ckpt_writer *w)
{
    lc_status status = LC_OK;
    while (status >= 0) {
        pthread_mutex_lock(&w->lock);
        lc__ckpt_chore *c = next_chore(w, true, true, w->job);
        pthread_mutex_unlock(&w->lock);
        if (!c) break;
        status = make_link(c);
        lc__ckpt_chore_free(c);
    }
    return status;
}

static lc_status remove_replaced(const lc__io *io, const char *path)
{
    lc__ckpt_removal p;
    lc__ckpt_removal_init(&p, LC__CKPT_REPLACED, NULL);
    lc_status status = lc__remove(io, AT_FDCWD, path, path, &p.rules);
    lc__ckpt_removal_release(&p);
    return status;
}

/* Removals may be slow and no caller waits for them. Their errors are ignored: what is left does no harm. */
static void do_chores(lc_ckpt_writer *w, bool only_links)
{
    for (;;) {
        pthread_mutex_lock(&w->lock);
        lc__ckpt_chore *c = next_chore(w, only_links, false, w->done);
        pthread_mutex_unlock(&w->lock);
        if (!c) return;
        lc_status status = c->link  ? make_link(c)
                           : c->raw ? remove_replaced(w->io, c->path) /* the next cleanup removes the rest */
                                    : lc__ckpt_remove(c->path, c->trusted, *c->training ? c->training : NULL);
        if (c->link && status < 0) {
            pthread_mutex_lock(&w->lock);
            lc__copy_message(w->complaint, sizeof w->complaint);
            pthread_mutex_unlock(&w->lock);
        }
        lc__ckpt_chore_free(c);
    }
}

void lc__ckpt_do_chores(lc_ckpt_writer *w)
{
    do_chores(w, false);
}

/* Writes the part of a rank other than 0, which waits for it. */
static lc_status write_own(lc_ckpt_writer *w)
{
    lc__manifest m = {0};
    lc__joint_begin(w, w->joint.dir, &m);
    lc_status status = write_kinds(w, w->joint.dir, &m);
    if (status >= 0) status = lc__sync_dir(w->io, w->joint.dir);
    if (status >= 0) status = lc__manifest_check(w->io, w->joint.dir, &m);
    status = lc__joint_report(w, w->joint.dir, &m, status);
    lc__manifest_release(&m);
    return status;
}

/* Writes everything in the temporary directory. */
static lc_status write_files(lc_ckpt_writer *w, const char *dir)
{
    lc__manifest m = {0};
    lc_status status = LC_OK;
    if (w->joint.size) lc__joint_begin(w, dir, &m);
    LC_TRY_GOTO(status, done, write_kinds(w, dir, &m));
    int own = m.n;
    if (w->joint.size) LC_TRY_GOTO(status, done, lc__joint_collect(w, dir, &m));
    LC_TRY_GOTO(status, done, write_rest(w, dir, &m));
    LC_TRY_GOTO(status, done, read_back(w, dir, &m, own));
    if (w->joint.size) status = lc__joint_check(w, dir, &m);
done:
    lc__manifest_release(&m);
    return status;
}

/* On success, removing the replaced entry becomes a chore. */
static lc_status write_checkpoint(lc_ckpt_writer *w)
{
    char *parent = NULL, *temp = NULL, *old = NULL;
    int lock_fd = -1;
    lc_status status;
    if (w->joint.rank > 0) return write_own(w);
    if (w->joint.size) { /* already made, since the other ranks need its name */
        temp = w->joint.dir, lock_fd = w->joint.lock_fd;
        w->joint.dir = NULL, w->joint.lock_fd = -1;
    }
    LC_TRY_GOTO(status, done, lc__ckpt_may_replace(w->job_path, w->job_taken ? w->origin.training : NULL));
    LC_TRY_GOTO(status, done, lc__path_dir(w->job_path, &parent));
    (void)!lc_checkpoint_clean(parent); /* leftovers do not prevent saving */
    if (!temp) LC_TRY_GOTO(status, done, lc__ckpt_make_temp(w->io, w->job_path, &temp, &lock_fd));
    LC_TRY_GOTO(status, done, write_files(w, temp));
    lc__ckpt_unmark(w->io, temp);
    LC_TRY_GOTO(status, done, lc__ckpt_put_in_place(w, parent, &temp, &old));
    status = lc__sync_dir(w->io, parent);
    if (status < 0 && old && w->io->exchange(w->io, old, w->job_path) == 0) {
        /* The new name may not be durable: restore the previous checkpoint. */
        temp = old;
        old = NULL;
    }
done:
    if (status < 0) {
        char message[1024];
        int of = lc__error_rank();
        snprintf(message, sizeof message, "%s", lc_error_message());
        if (temp) (void)!lc__ckpt_remove_own(w->io, temp);
        lc_fail(status, "checkpoint \"%s\" was not saved: %s", w->job_path, message);
        lc__note_rank(of);
    } else {
        lc__ckpt_chore *c = old ? calloc(1, sizeof *c) : NULL; /* without memory, the next cleanup removes it */
        if (c) {
            *c = (lc__ckpt_chore){.job = w->job, .path = old, .raw = true};
            old = NULL;
            pthread_mutex_lock(&w->lock);
            c->next = w->chores;
            w->chores = c;
            pthread_mutex_unlock(&w->lock);
        }
        status = make_links(w);
        if (status < 0) lc_fail_context(status, "checkpoint \"%s\" was saved, but", w->job_path);
    }
    lc__taken_release(w->job_taken); /* now the checkpoint itself has the name */
    w->job_taken = NULL;
    if (lock_fd >= 0) close(lock_fd);
    free(old);
    free(temp);
    free(parent);
    return status;
}

static void write_and_notify(lc_ckpt_writer *w)
{
    lc_status status = write_checkpoint(w);
    pthread_mutex_lock(&w->lock);
    lc__first_error_note(&w->result, status);
    w->joint_safe = status >= 0;
    w->done = w->job;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void lc__ckpt_run_once(lc_ckpt_writer *w)
{
    write_and_notify(w);
    lc__ckpt_do_chores(w);
}

void *lc__ckpt_run(void *arg)
{
    lc_ckpt_writer *w = arg;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->quit && w->job == w->done && (!w->chores || w->chores->job > w->done)) {
            w->idle = true;
            pthread_cond_broadcast(&w->changed);
            pthread_cond_wait(&w->changed, &w->lock);
        }
        w->idle = false;
        bool write = w->job != w->done, quit = w->quit;
        pthread_mutex_unlock(&w->lock);
        if (quit) return NULL;
        /* A link to the previous checkpoint must not be made after this one, which may replace the link. */
        if (write) do_chores(w, true);
        if (write) write_and_notify(w);
        do_chores(w, false);
    }
}
