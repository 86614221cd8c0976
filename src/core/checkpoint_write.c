/* SPDX-License-Identifier: Apache-2.0 */
/* Writing checkpoints.
 *
 * The caller's thread copies every tensor to its place in an image of its file; from the first copied bytes on a
 * background thread writes what is there, so that copying, checksums and the disk overlap. What follows is the order
 * that keeps a crash at any point harmless:
 *
 *   1. a directory with a temporary name beside the final one, locked (flock) as long as its writer lives;
 *   2. every file written and synced, the manifest last, then the directory synced;
 *   3. everything read back and compared with the manifest;
 *   4. one rename to the final name (or an exchange with what has it), then the parent directory synced;
 *   5. what had the name before is removed.
 *
 * After a failed sync the kernel forgets which pages were not written, so a file is never synced twice: the whole
 * temporary directory is given up, and the next checkpoint starts with new files. */
#define _GNU_SOURCE
#include "core/checkpoint.h"

#include "core/chunks.h"
#include "core/crc32c.h"
#include "core/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct part {
    lc_named_tensor *entries; /* names are ours */
    int64_t n, capacity;
    char *image; /* kept from one checkpoint to the next */
    size_t image_capacity;
    uint64_t size;  /* bytes of the file */
    uint64_t ready; /* bytes of the image that are copied; under the lock */
} part;

struct lc_ckpt_writer {
    const lc__io *io;
    part parts[LC_CKPT_PARTS];
    lc_state *state; /* not NULL: a checkpoint was begun */
    char *path;
    char **afterwards; /* "l" or "r" in front of the path of a link to make or a checkpoint to remove */
    int n_afterwards;
    /* The checkpoint in flight. */
    char *job_path, *state_text, *old;
    char **job_afterwards;
    int job_n_afterwards;
    size_t state_length;
    pthread_t thread;
    bool in_flight; /* there is a result to fetch */
    bool joinable;  /* there is a thread to join */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool cancelled;   /* under the lock: copying failed */
    bool finished;    /* under the lock */
    lc_status result; /* valid once finished */
    char message[1024];
};

/* ---- the background thread's side ---- */

typedef struct write_job {
    lc_ckpt_writer *w;
    part *part;
    const char *path;
    int fd;
    uint32_t *crcs;
} write_job;

static lc_status write_chunk(void *ctx, uint64_t i)
{
    write_job *j = ctx;
    lc_ckpt_writer *w = j->w;
    uint64_t from = i * LC__CHUNK, to = from + LC__CHUNK < j->part->size ? from + LC__CHUNK : j->part->size;
    pthread_mutex_lock(&w->lock);
    while (j->part->ready < to && !w->cancelled) pthread_cond_wait(&w->changed, &w->lock);
    bool cancelled = w->cancelled;
    pthread_mutex_unlock(&w->lock);
    if (cancelled) return lc_fail(LC_ERR_STATE, "the checkpoint was given up");
    j->crcs[i] = lc__crc32c(0, j->part->image + from, (size_t)(to - from));
    LC_TRY(lc__write_all(w->io, j->fd, j->path, j->part->image + from, (size_t)(to - from), from));
#ifdef SYNC_FILE_RANGE_WRITE
    /* Let the device begin; errors show up in the sync that follows. */
    (void)!sync_file_range(j->fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
#endif
    return LC_OK;
}

static lc_status write_part(lc_ckpt_writer *w, part *p, const char *dir, lc__manifest_file *f)
{
    char *path = NULL;
    write_job j = {.w = w, .part = p, .fd = -1};
    uint64_t n = (p->size + LC__CHUNK - 1) / LC__CHUNK;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__path_join(dir, f->name, &path));
    j.path = path;
    j.crcs = calloc((size_t)n, sizeof *j.crcs);
    if (!j.crcs) {
        status = lc_fail(LC_ERR_MEMORY, "no memory for the checksums of \"%s\"", path);
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
    f->size = p->size, f->crc = 0;
    for (uint64_t i = 0; i < n; i++)
        f->crc = lc__crc32c_combine(f->crc, j.crcs[i], i + 1 < n ? LC__CHUNK : p->size - i * LC__CHUNK);
done:
    if (j.fd >= 0 && w->io->close(w->io, j.fd) < 0 && status >= 0) status = lc__io_fail(errno, "close", path);
    free(j.crcs);
    free(path);
    return status;
}

/* Writes all files into the new directory `dir`. */
static lc_status write_files(lc_ckpt_writer *w, const char *dir, lc__manifest *m)
{
    char *path = NULL, *text = NULL;
    size_t length;
    lc_status status = LC_OK;
    for (int k = 0; k < LC_CKPT_PARTS; k++) {
        if (!w->parts[k].size) continue;
        snprintf(m->files[m->n].name, sizeof m->files[m->n].name, "%s", lc__part_name((lc_ckpt_part)k));
        LC_TRY_GOTO(status, done, write_part(w, &w->parts[k], dir, &m->files[m->n++]));
    }
    lc__manifest_file *f = &m->files[m->n++];
    snprintf(f->name, sizeof f->name, "%s", LC__STATE);
    f->size = w->state_length, f->crc = lc__crc32c(0, w->state_text, w->state_length);
    LC_TRY_GOTO(status, done, lc__path_join(dir, LC__STATE, &path));
    LC_TRY_GOTO(status, done, lc__create_file(w->io, path, w->state_text, w->state_length));
    free(path);
    path = NULL;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    m->saved_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    LC_TRY_GOTO(status, done, lc__manifest_print(m, &text, &length));
    LC_TRY_GOTO(status, done, lc__path_join(dir, LC__MANIFEST, &path));
    LC_TRY_GOTO(status, done, lc__create_file(w->io, path, text, length));
    LC_TRY_GOTO(status, done, lc__sync_dir(w->io, dir));
done:
    free(text);
    free(path);
    return status;
}

static lc_status read_back(lc_ckpt_writer *w, const char *dir, const lc__manifest *written)
{
    lc__manifest m;
    LC_TRY(lc__manifest_read(w->io, dir, &m));
    if (m.n != written->n || m.saved_ns != written->saved_ns || memcmp(m.files, written->files, sizeof m.files))
        return lc_fail(LC_ERR_IO, "the manifest in \"%s\" is not what was written", dir);
    return lc__manifest_check(w->io, dir, &m);
}

/* Makes a new, locked directory with a temporary name. */
static lc_status make_temp(lc_ckpt_writer *w, const char *parent, char **temp, int *lock_fd)
{
    lc_status status = LC_OK;
    for (int attempt = 0; attempt < 10; attempt++) {
        free(*temp);
        *temp = NULL;
        LC_TRY(lc__ckpt_temp_name(parent, "tmp", lc__path_base(w->job_path), temp));
        if (w->io->mkdir(w->io, *temp, 0777) < 0) {
            int error = errno;
            status = lc__io_fail(error, "make directory", *temp);
            if (error == EEXIST) continue;
            free(*temp);
            *temp = NULL;
            return status;
        }
        *lock_fd = open(*temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (*lock_fd < 0) {
            int error = errno;
            status = lc__io_fail(error, "open", *temp);
            if (error == ENOENT) continue; /* somebody cleaned it away before the lock */
            return status;
        }
        struct stat st;
        bool locked = flock(*lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; /* or there are no locks here */
        if (locked && stat(*temp, &st) == 0) return LC_OK;
        close(*lock_fd);
        *lock_fd = -1;
    }
    return status < 0 ? status : lc_fail(LC_ERR_IO, "cannot keep a temporary directory in \"%s\"", parent);
}

/* Gives the finished directory its name. What had it before is at `*old` afterwards (NULL: nothing was). */
static lc_status rename_into_place(lc_ckpt_writer *w, const char *parent, char **temp, char **old)
{
    const lc__io *io = w->io;
    const char *path = w->job_path;
    struct stat st;
    if (lstat(path, &st) < 0) {
        if (io->rename(io, *temp, path) < 0) return lc__io_fail(errno, "rename to", path);
        free(*temp);
        *temp = NULL;
        return LC_OK;
    }
    if (io->exchange(io, *temp, path) == 0) {
        *old = *temp;
        *temp = NULL;
        return LC_OK;
    }
    /* No exchange on this file system: between two renames the name is missing, but both checkpoints are there. */
    char *aside = NULL;
    LC_TRY(lc__ckpt_temp_name(parent, "old", lc__path_base(path), &aside));
    if (io->rename(io, path, aside) < 0) {
        lc_status status = lc__io_fail(errno, "rename", path);
        free(aside);
        return status;
    }
    if (io->rename(io, *temp, path) < 0) {
        lc_status status = lc__io_fail(errno, "rename to", path);
        if (io->rename(io, aside, path) < 0)
            lc_fail_context(status, "the checkpoint that was at \"%s\" is now at \"%s\"", path, aside);
        free(aside);
        return status;
    }
    free(*temp);
    *temp = NULL;
    *old = aside;
    return LC_OK;
}

/* Links are part of the result, removals are not: what cannot be removed does no harm. */
static lc_status make_links(lc_ckpt_writer *w)
{
    for (int i = 0; i < w->job_n_afterwards; i++)
        if (w->job_afterwards[i][0] == 'l') LC_TRY(lc_checkpoint_link(w->job_afterwards[i] + 1, w->job_path));
    return LC_OK;
}

static void remove_old(lc_ckpt_writer *w)
{
    if (w->old) (void)!lc__remove_tree(w->io, w->old); /* the rest of it goes with the next cleaning */
    for (int i = 0; i < w->job_n_afterwards; i++)
        if (w->job_afterwards[i][0] == 'r') (void)!lc_checkpoint_remove(w->job_afterwards[i] + 1);
}

/* On success what had the name before is at w->old. */
static lc_status write_checkpoint(lc_ckpt_writer *w)
{
    char *parent = NULL, *temp = NULL, *old = NULL;
    int lock_fd = -1;
    lc__manifest m = {0};
    lc_status status;
    LC_TRY_GOTO(status, done, lc__path_dir(w->job_path, &parent));
    LC_TRY_GOTO(status, done, lc__make_dirs(w->io, parent));
    (void)!lc_checkpoint_clean(parent); /* what cannot be removed does not keep us from saving */
    LC_TRY_GOTO(status, done, make_temp(w, parent, &temp, &lock_fd));
    LC_TRY_GOTO(status, done, write_files(w, temp, &m));
    LC_TRY_GOTO(status, done, read_back(w, temp, &m));
    LC_TRY_GOTO(status, done, rename_into_place(w, parent, &temp, &old));
    status = lc__sync_dir(w->io, parent);
    if (status < 0 && old && w->io->exchange(w->io, old, w->job_path) == 0) {
        /* The new name may not last: what was saved before keeps it. */
        temp = old;
        old = NULL;
    }
done:
    if (status < 0) {
        char message[1024];
        snprintf(message, sizeof message, "%s", lc_error_message());
        if (temp) (void)!lc__remove_tree(w->io, temp);
        lc_fail(status, "checkpoint \"%s\" was not saved: %s", w->job_path, message);
    } else {
        w->old = old, old = NULL;
        status = make_links(w);
        if (status < 0) lc_fail_context(status, "checkpoint \"%s\" was saved, but", w->job_path);
    }
    if (lock_fd >= 0) close(lock_fd);
    free(old);
    free(temp);
    free(parent);
    return status;
}

static void *run(void *arg)
{
    lc_ckpt_writer *w = arg;
    lc_status status = write_checkpoint(w);
    pthread_mutex_lock(&w->lock);
    w->result = status;
    if (status < 0) snprintf(w->message, sizeof w->message, "%s", lc_error_message());
    w->finished = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    /* Nobody waits for what takes long and can be done again. */
    if (status >= 0) remove_old(w);
    return NULL;
}

/* ---- the caller's side ---- */

lc_status lc_ckpt_writer_new(lc_ckpt_writer **out)
{
    lc_ckpt_writer *w = calloc(1, sizeof *w);
    if (!w) return lc_fail(LC_ERR_MEMORY, "no memory for a checkpoint writer");
    w->io = &lc__io_system;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    *out = w;
    return LC_OK;
}

void lc__ckpt_writer_set_io(lc_ckpt_writer *w, const lc__io *io)
{
    w->io = io;
}

static void clear_entries(lc_ckpt_writer *w)
{
    for (int k = 0; k < LC_CKPT_PARTS; k++) {
        part *p = &w->parts[k];
        for (int64_t i = 0; i < p->n; i++) free((char *)p->entries[i].name);
        p->n = 0;
    }
}

static void free_texts(char **texts, int n)
{
    for (int i = 0; i < n; i++) free(texts[i]);
    free(texts);
}

void lc_ckpt_abort(lc_ckpt_writer *w)
{
    clear_entries(w);
    free_texts(w->afterwards, w->n_afterwards);
    w->afterwards = NULL, w->n_afterwards = 0;
    lc_state_free(w->state);
    free(w->path);
    w->state = NULL, w->path = NULL;
}

bool lc_ckpt_busy(lc_ckpt_writer *w)
{
    if (!w->in_flight) return false;
    pthread_mutex_lock(&w->lock);
    bool busy = !w->finished;
    pthread_mutex_unlock(&w->lock);
    return busy;
}

lc_status lc_ckpt_wait(lc_ckpt_writer *w)
{
    if (!w->in_flight) return LC_OK;
    pthread_mutex_lock(&w->lock);
    while (!w->finished) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    w->in_flight = false;
    return w->result < 0 ? lc_fail(w->result, "%s", w->message) : LC_OK;
}

/* Ends the thread of a checkpoint whose result was fetched. */
static void reap(lc_ckpt_writer *w)
{
    if (w->joinable) pthread_join(w->thread, NULL);
    w->joinable = false;
    free(w->job_path);
    free(w->state_text);
    free(w->old);
    w->job_path = w->state_text = w->old = NULL;
    free_texts(w->job_afterwards, w->job_n_afterwards);
    w->job_afterwards = NULL, w->job_n_afterwards = 0;
}

void lc_ckpt_writer_free(lc_ckpt_writer *w)
{
    if (!w) return;
    (void)!lc_ckpt_wait(w); /* documented: the error is lost */
    reap(w);
    lc_ckpt_abort(w);
    for (int k = 0; k < LC_CKPT_PARTS; k++) {
        free(w->parts[k].entries);
        if (w->parts[k].image) munmap(w->parts[k].image, w->parts[k].image_capacity);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

lc_status lc_ckpt_begin(lc_ckpt_writer *w, const char *path)
{
    LC_TRY(lc_ckpt_wait(w));
    lc_ckpt_abort(w);
    size_t n = path ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/') n--;
    const char *base = n ? path + n : "";
    while (n && base > path && base[-1] != '/') base--;
    size_t base_length = n ? (size_t)(path + n - base) : 0;
    if (!base_length || !strncmp(base, ".", base_length) || !strncmp(base, "..", base_length))
        return lc_fail(LC_ERR_ARGUMENT, "\"%s\" cannot be the name of a checkpoint", path ? path : "");
    LC_TRY(lc__format(&w->path, "%.*s", (int)n, path));
    lc_status status = lc_state_new(&w->state);
    if (status < 0) lc_ckpt_abort(w);
    return status;
}

static lc_status add(lc_ckpt_writer *w, lc_ckpt_part k, const char *name, lc_named_tensor entry)
{
    if (!w->state) return lc_fail(LC_ERR_STATE, "tensor \"%s\" is added to a checkpoint that was not begun", name);
    if ((unsigned)k >= LC_CKPT_PARTS) return lc_fail(LC_ERR_ARGUMENT, "a checkpoint has no part %d", (int)k);
    part *p = &w->parts[k];
    if (p->n == p->capacity) {
        int64_t more = p->capacity ? 2 * p->capacity : 64;
        lc_named_tensor *grown = realloc(p->entries, (size_t)more * sizeof *grown);
        if (!grown) return lc_fail(LC_ERR_MEMORY, "no memory for %" PRId64 " tensors of a checkpoint", more);
        p->entries = grown, p->capacity = more;
    }
    char *copy;
    LC_TRY(lc__format(&copy, "%s", name));
    entry.name = copy;
    p->entries[p->n++] = entry;
    return LC_OK;
}

lc_status lc_ckpt_add_tensor(lc_ckpt_writer *w, lc_ckpt_part k, const char *name, lc_tensor *t)
{
    if (!t || !lc_tensor_is_persistent(t))
        return lc_fail(LC_ERR_ARGUMENT, "checkpoint: \"%s\" is not a persistent tensor", name);
    return add(w, k, name, (lc_named_tensor){.tensor = t});
}

lc_status lc_ckpt_add_data(lc_ckpt_writer *w, lc_ckpt_part k, const char *name, const lc_type *type, const void *data)
{
    return add(w, k, name, (lc_named_tensor){.type = *type, .data = data});
}

static lc_status then(lc_ckpt_writer *w, char what, const char *path)
{
    if (!w->state) return lc_fail(LC_ERR_STATE, "\"%s\" is named for a checkpoint that was not begun", path);
    char **grown = realloc(w->afterwards, ((size_t)w->n_afterwards + 1) * sizeof *grown);
    if (!grown) return lc_fail(LC_ERR_MEMORY, "no memory for \"%s\"", path);
    w->afterwards = grown;
    LC_TRY(lc__format(&w->afterwards[w->n_afterwards], "%c%s", what, path));
    w->n_afterwards++;
    return LC_OK;
}

lc_status lc_ckpt_then_link(lc_ckpt_writer *w, const char *link)
{
    return then(w, 'l', link);
}

lc_status lc_ckpt_then_remove(lc_ckpt_writer *w, const char *path)
{
    return then(w, 'r', path);
}

lc_state *lc_ckpt_state(lc_ckpt_writer *w)
{
    return w->state;
}

static lc_status reserve_image(part *p, const char *what)
{
    if (p->size <= p->image_capacity) return LC_OK;
    if (p->image) munmap(p->image, p->image_capacity);
    p->image = NULL, p->image_capacity = 0;
    uint64_t capacity = (p->size + 4095) / 4096 * 4096;
    void *image = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (image == MAP_FAILED)
        return lc_fail(LC_ERR_MEMORY, "no memory for the snapshot of \"%s\" (%" PRIu64 " bytes)", what, p->size);
    madvise(image, capacity, MADV_HUGEPAGE);
    p->image = image, p->image_capacity = capacity;
    return LC_OK;
}

static void set_ready(lc_ckpt_writer *w, part *p, uint64_t ready)
{
    pthread_mutex_lock(&w->lock);
    p->ready = ready;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static lc_status copy_part(lc_ckpt_writer *w, part *p, const lc__st_layout *layout)
{
    memcpy(p->image, layout->header, layout->header_bytes);
    uint64_t signalled = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const lc_named_tensor *e = &p->entries[layout->order[i]];
        uint64_t at = layout->offset[layout->order[i]], bytes;
        lc__type_bytes(lc__st_type(e), &bytes);
        const char *data = e->tensor ? lc__st_dense(e->tensor) : e->data;
        if (!data && bytes) {
            LC_TRY(lc_tensor_read(e->tensor, p->image + at, (size_t)bytes));
        } else {
            for (uint64_t done = 0; done < bytes;) {
                uint64_t n = bytes - done < LC__CHUNK ? bytes - done : LC__CHUNK;
                memcpy(p->image + at + done, data + done, (size_t)n);
                done += n;
                if (done < bytes) set_ready(w, p, signalled = at + done);
            }
        }
        if (at + bytes >= signalled + LC__CHUNK) set_ready(w, p, signalled = at + bytes);
    }
    set_ready(w, p, p->size);
    return LC_OK;
}

lc_status lc_ckpt_commit(lc_ckpt_writer *w, bool wait)
{
    if (!w->state) return lc_fail(LC_ERR_STATE, "lc_ckpt_commit without lc_ckpt_begin");
    lc__st_layout layouts[LC_CKPT_PARTS] = {{0}};
    const lc_text_pair metadata[] = {{"format", "pt"}}; /* how other tools know the names and layouts of PyTorch */
    lc_status status = LC_OK;
    reap(w);
    for (int k = 0; k < LC_CKPT_PARTS; k++) {
        part *p = &w->parts[k];
        p->size = p->ready = 0;
        if (!p->n && k != LC_CKPT_MODEL) continue;
        LC_TRY_GOTO(status, done,
                    lc__st_layout_make(lc__part_name((lc_ckpt_part)k), p->n, p->entries, 1, metadata, &layouts[k]));
        p->size = layouts[k].total;
        LC_TRY_GOTO(status, done, reserve_image(p, lc__part_name((lc_ckpt_part)k)));
    }
    LC_TRY_GOTO(status, done, lc_state_print(w->state, &w->state_text, &w->state_length));

    w->job_path = w->path, w->path = NULL;
    w->job_afterwards = w->afterwards, w->job_n_afterwards = w->n_afterwards;
    w->afterwards = NULL, w->n_afterwards = 0;
    w->cancelled = w->finished = false;
    w->result = LC_OK;
    w->in_flight = true;
    w->joinable = lc__thread_create(&w->thread, run, w) == 0;
    for (int k = 0; k < LC_CKPT_PARTS && status >= 0; k++)
        if (w->parts[k].size) status = copy_part(w, &w->parts[k], &layouts[k]);
    if (status < 0) {
        char message[1024];
        snprintf(message, sizeof message, "%s", lc_error_message());
        pthread_mutex_lock(&w->lock);
        w->cancelled = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        if (!w->joinable) w->finished = true;
        (void)!lc_ckpt_wait(w);
        lc_fail(status, "%s", message);
        goto done;
    }
    if (!w->joinable) run(w); /* no thread to be had: it takes longer, but it is saved */
    if (wait) status = lc_ckpt_wait(w);
done:
    for (int k = 0; k < LC_CKPT_PARTS; k++) lc__st_layout_release(&layouts[k]);
    lc_ckpt_abort(w);
    return status;
}
