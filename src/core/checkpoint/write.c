/* SPDX-License-Identifier: Apache-2.0 */
/* Writing checkpoints, the caller's side: collects tensors and state (write_files.c), takes the snapshot and hands it
 * to the background thread (write_job.c has the protocol). */
#include "core/checkpoint/joint.h"
#include "base/handle.h"
#include "base/status.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

lc_status lc_ckpt_writer_new(lc_ckpt_writer **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc_ckpt_writer *w = calloc(1, sizeof *w);
    if (!w) return lc_fail(LC_ERR_MEMORY, "out of memory: a checkpoint writer");
    w->mark = LC__MARK_OF(WRITER);
    w->io = &lc__io_system;
    w->joint.lock_fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    *out = w;
    return LC_OK;
}

void lc__ckpt_writer_set_io(lc_ckpt_writer *w, const lc__io *io)
{
    w->io = io;
}

void lc__ckpt_set_origin(lc_ckpt_writer *w, const lc__ckpt_origin *origin)
{
    w->origin = *origin;
}

/* Drops the chores of a checkpoint. The caller holds the lock. */
static void drop_chores(lc_ckpt_writer *w, uint64_t job)
{
    for (lc__ckpt_chore **at = &w->chores; *at;) {
        lc__ckpt_chore *c = *at;
        if (c->job != job) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        lc__ckpt_chore_free(c);
    }
}

void lc_ckpt_abort(lc_ckpt_writer *w)
{
    LC__IS(w, WRITER, );
    lc__ckpt_clear_entries(w);
    pthread_mutex_lock(&w->lock);
    drop_chores(w, w->job + 1);
    pthread_mutex_unlock(&w->lock);
    lc_state_free(w->state);
    free(w->path);
    w->state = NULL, w->path = NULL;
}

bool lc_ckpt_busy(lc_ckpt_writer *w)
{
    LC__IS(w, WRITER, false);
    if (!w->in_flight) return false;
    pthread_mutex_lock(&w->lock);
    bool busy = w->job != w->done;
    pthread_mutex_unlock(&w->lock);
    return busy;
}

lc_status lc_ckpt_wait(lc_ckpt_writer *w)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    if (!w->in_flight) return LC_OK;
    pthread_mutex_lock(&w->lock);
    while (w->job != w->done) pthread_cond_wait(&w->changed, &w->lock);
    lc_status status = lc__first_error_status(&w->result);
    pthread_mutex_unlock(&w->lock);
    w->in_flight = false;
    return status;
}

bool lc__ckpt_peek(lc_ckpt_writer *w, lc_status *status)
{
    if (!w->in_flight) return false;
    pthread_mutex_lock(&w->lock);
    bool done = w->job == w->done;
    *status = w->result.status;
    pthread_mutex_unlock(&w->lock);
    return done;
}

bool lc__ckpt_is_joint(const lc_ckpt_writer *w)
{
    return w->together;
}

/* The caller holds the lock. */
static bool is_idle(const lc_ckpt_writer *w)
{
    return !w->has_thread || (w->idle && w->job == w->done && !(w->chores && w->chores->job <= w->done));
}

bool lc__ckpt_is_idle(lc_ckpt_writer *w)
{
    pthread_mutex_lock(&w->lock);
    bool idle = is_idle(w);
    pthread_mutex_unlock(&w->lock);
    return idle;
}

static void give_back(lc_ckpt_writer *w)
{
    lc__taken_release(w->dropped);
    w->dropped = NULL;
}

void lc__ckpt_rest(lc_ckpt_writer *w)
{
    give_back(w);
    pthread_mutex_lock(&w->lock);
    while (!is_idle(w)) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

bool lc__ckpt_complaint(lc_ckpt_writer *w, char *text, size_t size)
{
    pthread_mutex_lock(&w->lock);
    bool any = w->complaint[0] != '\0';
    if (any) snprintf(text, size, "%s", w->complaint);
    w->complaint[0] = '\0';
    pthread_mutex_unlock(&w->lock);
    return any;
}

/* Frees the rest of a checkpoint whose result has been fetched. */
static void clear_job(lc_ckpt_writer *w)
{
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc__st_layout_release(&w->files[k].layout);
        lc__st_layout_release(&w->files[k].all);
        free(w->files[k].sources);
        w->files[k].sources = NULL, w->files[k].n_sources = 0;
    }
    lc__taken_release(w->job_taken); /* left by a job that never ran */
    w->job_taken = NULL;
    free(w->job_path);
    free(w->state_text);
    w->job_path = w->state_text = NULL;
}

void lc_ckpt_writer_free(lc_ckpt_writer *w)
{
    if (!w) return;
    LC__IS(w, WRITER, );
    (void)!lc__ckpt_wait_together(w, NULL); /* the error is lost, as documented */
    lc__ckpt_rest(w);
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->has_thread) pthread_join(w->thread, NULL);
    clear_job(w);
    lc_ckpt_abort(w);
    lc__ckpt_drop_taken(w);
    give_back(w);
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        free(w->files[k].entries);
        if (w->files[k].image) munmap(w->files[k].image, w->files[k].image_capacity);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    lc__mark_clear(&w->mark);
    free(w);
}

lc_status lc_ckpt_begin(lc_ckpt_writer *w, const char *path)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    LC_TRY(lc__ckpt_wait_together(w, NULL)); /* ranks have already waited for a joint checkpoint */
    lc_ckpt_abort(w);
    give_back(w);
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

/* Adds a chore for the checkpoint that was begun, or else for the last one handed over. Owns `c` and its contents. */
static lc_status then(lc_ckpt_writer *w, lc__ckpt_chore *c, const char *link, const char *path)
{
    bool begun = w->state != NULL;
    lc__ckpt_chore **end = &w->chores;
    lc_status status;
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: \"%s\"", link ? link : path);
    if (!begun && !w->job_path)
        LC_TRY_GOTO(status, done,
                    lc_fail(LC_ERR_STATE, "cannot use \"%s\": no checkpoint was begun", link ? link : path));
    if (link) LC_TRY_GOTO(status, done, lc__format(&c->link, "%s", link));
    LC_TRY_GOTO(status, done, lc__format(&c->path, "%s", link ? (begun ? w->path : w->job_path) : path));
    c->job = w->job + begun;
    c->late = !begun;
    memcpy(c->training, w->origin.training, sizeof c->training);
    pthread_mutex_lock(&w->lock);
    while (*end) end = &(*end)->next;
    *end = c;
    c = NULL;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (!begun && !w->has_thread) lc__ckpt_do_chores(w);
    status = LC_OK;
done:
    lc__ckpt_chore_free(c);
    return status;
}

lc_status lc_ckpt_then_link(lc_ckpt_writer *w, const char *link)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    LC__NEEDS(link, LC_ERR_ARGUMENT);
    return lc__ckpt_then_link_taken(w, link, NULL);
}

lc_status lc__ckpt_then_link_taken(lc_ckpt_writer *w, const char *link, lc__taken *taken)
{
    lc__ckpt_chore *c = calloc(1, sizeof *c);
    if (c)
        c->taken = taken;
    else
        lc__taken_release(taken);
    return then(w, c, link, NULL);
}

lc_status lc_ckpt_then_remove(lc_ckpt_writer *w, const char *path)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    return lc__ckpt_then_remove_in(w, path, 0);
}

lc_status lc__ckpt_then_remove_in(lc_ckpt_writer *w, const char *path, size_t trusted)
{
    lc__ckpt_chore *c = calloc(1, sizeof *c);
    if (c) c->trusted = trusted;
    return then(w, c, NULL, path);
}

void lc__ckpt_set_taken(lc_ckpt_writer *w, lc__taken *taken)
{
    lc__ckpt_drop_taken(w);
    w->taken = taken;
}

void lc__ckpt_drop_taken(lc_ckpt_writer *w)
{
    if (!w->taken) return;
    give_back(w);
    w->dropped = w->taken;
    w->taken = NULL;
}

lc_state *lc_ckpt_state(lc_ckpt_writer *w)
{
    LC__IS(w, WRITER, NULL);
    return w->state;
}

/* ---- committing ---- */

lc_status lc_ckpt_commit(lc_ckpt_writer *w, bool wait)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    if (!w->state) return lc_fail(LC_ERR_STATE, "lc_ckpt_commit without lc_ckpt_begin");
    lc_status status = LC_OK;
    clear_job(w);
    uint64_t *load = calloc((size_t)w->joint.size + 1, sizeof *load);
    if (!load) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: the parts of %d ranks", w->joint.size));
    for (int k = 0; k < LC_CKPT_KINDS; k++) LC_TRY_GOTO(status, done, lc__ckpt_prepare(w, k, wait, load));
    LC_TRY_GOTO(status, done, lc_state_print(w->state, &w->state_text, &w->state_length));

    if (w->taken && !lc__taken_is_of(w->taken, w->path)) lc__ckpt_drop_taken(w); /* for one never begun */
    w->job_path = w->path, w->path = NULL;
    w->job_taken = w->taken, w->taken = NULL;
    if (!w->has_thread) w->has_thread = lc__thread_create(&w->thread, lc__ckpt_run, w) == 0;
    pthread_mutex_lock(&w->lock);
    if (w->result.status < 0) drop_chores(w, w->job);
    w->cancelled = w->joint_safe = w->given_up = false;
    w->result.status = LC_OK;
    w->job++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    w->in_flight = true;
    for (int k = 0; k < LC_CKPT_KINDS && status >= 0; k++)
        if (w->files[k].size && !w->files[k].sources) status = lc__ckpt_copy_file(w, &w->files[k]);
    if (status < 0) {
        pthread_mutex_lock(&w->lock);
        w->cancelled = true;
        lc__first_error_note(&w->result, status);
        if (!w->has_thread) w->done = w->job;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        status = lc_ckpt_wait(w);
        goto done;
    }
    if (!w->has_thread) lc__ckpt_run_once(w); /* no thread could be started: write here */
    if (wait) status = lc_ckpt_wait(w);
done:
    free(load);
    lc_ckpt_abort(w);
    return status;
}
