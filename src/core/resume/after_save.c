/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that follow when the result of writing a checkpoint of ModelCheckpoint is known. Loggers are notified of a
 * checkpoint when it is durable, and of a removed one when it is gone; the callback commits its plan, or drops it; a
 * write error is reported, and the run continues or stops (on_save_error).
 *
 * Writing runs in the background, and with several ranks one of them may do it for all. Each rank knows that a save is
 * in progress, but its result takes effect only after all ranks have agreed on it (lc__settle with more than
 * LC__SETTLE_LOOK), so that all ranks decide the same. */
#include "core/resume/after_save.h"

#include "core/resume/resume.h"
#include "core/logging/logging.h"
#include "base/grow.h"
#include "core/checkpoint/removal.h"
#include "core/checkpoint/joint.h"
#include "comm/agree.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- errors after which training continues ---- */

lc_status lc__on_save_error(const char *asked, bool *stops)
{
    *stops = asked && !strcmp(asked, "stop");
    if (!asked || *stops || !strcmp(asked, "continue")) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "on_save_error=\"%.60s\"; it must be continue or stop", asked);
}

/* An error of a file, or of memory for it, may be gone at the next save. Any other is an error of the program or of a
 * rank, and stays. */
static bool is_of_writing(lc_status status)
{
    return status == LC_ERR_IO || status == LC_ERR_NOT_FOUND || status == LC_ERR_FORMAT || status == LC_ERR_MEMORY;
}

static void say_failed(lc_trainer *t, const char *why)
{
    const lc__saves *s = &t->resume->saves;
    if (!lc__is_rank_zero(t)) return;
    lc_trainer_message(t, LC_ERROR, "%s; training continues and saves again at the next opportunity (%s%s)", why,
                       s->good ? "the newest saved one is " : "nothing has been saved yet", s->good ? s->good : "");
}

static void note_failure(lc_trainer *t, const char *why, int of, bool is_retry)
{
    lc__saves *s = &t->resume->saves;
    s->failures++;
    s->last_failed = true;
    s->why_of = of;
    snprintf(s->why, sizeof s->why, "%s", why);
    if (!is_retry) say_failed(t, why);
}

static void note_success(lc_trainer *t, const char *path)
{
    lc__saves *s = &t->resume->saves;
    char *good;
    s->last_failed = false;
    if (lc__copy_text(path, &good) < 0) good = NULL;
    free(s->good);
    s->good = good;
}

void lc__saves_begin(lc_trainer *t)
{
    t->resume->saves.failures = 0;
    t->resume->saves.last_failed = false;
    free(t->resume->saves.good);
    t->resume->saves.good = NULL;
    if (t->ckpt_path && lc__copy_text(t->ckpt_path, &t->resume->saves.good) < 0) t->resume->saves.good = NULL;
}

void lc__saves_count(lc_trainer *t, const char *path, lc_status status)
{
    if (status >= 0)
        note_success(t, path);
    else if (is_of_writing(status)) {
        t->resume->saves.failures++;
        t->resume->saves.last_failed = true;
        t->resume->saves.why_of = lc__error_rank();
        lc__copy_message(t->resume->saves.why, sizeof t->resume->saves.why);
    }
}

lc_status lc__saves_verdict(lc_trainer *t)
{
    const lc__saves *s = &t->resume->saves;
    if (!s->last_failed) return LC_OK;
    lc_fail(LC_ERR_IO, "the training ended at epoch %lld, step %lld, but its last checkpoint was not saved: %s; %s%s",
            (long long)t->current_epoch, (long long)t->global_step, s->why,
            s->good ? "the newest saved one is " : "no other one was saved", s->good ? s->good : "");
    lc__note_rank(s->why_of);
    return LC_ERR_IO;
}

/* ---- one save ---- */

static void forget(lc__saves *s)
{
    free(s->path);
    s->path = NULL;
    s->owner = NULL;
    s->under_way = s->known = s->noted = false;
}

/* Notifies the loggers, once. */
static void note(lc_trainer *t)
{
    lc__saves *s = &t->resume->saves;
    if (s->noted) return;
    s->noted = true;
    lc__note_checkpoint(t, s->path, s->step, s->score, s->has_score);
    if (s->verbose)
        lc_trainer_message(t, LC_INFO, "epoch %lld, step %lld: saved %s", (long long)s->epoch, (long long)s->step,
                           s->path);
}

/* Notifies the owner, if it still exists. */
static void notify_owner(const lc_trainer *t, void *owner, lc__save_settled *settled, bool saved)
{
    for (int i = 0; i < t->n_callbacks; i++)
        if (t->callbacks[i]->self == owner) {
            settled(owner, saved);
            return;
        }
}

/* Whether the error of any rank stops the run: ranks may have different errors. */
static lc_status agree_to_stop(lc_trainer *t, lc_status status, bool *stop)
{
    uint8_t any = status < 0 && (!is_of_writing(status) || t->resume->stops_on_save_error);
    if (t->comm) LC_TRY(lc_comm_all_reduce(t->comm, &any, &any, 1, LC_U8, LC_COMM_MAX, NULL));
    *stop = any;
    return LC_OK;
}

/* `status` is an error on all ranks, or on none. */
static lc_status conclude(lc_trainer *t, lc_status status)
{
    lc__saves *s = &t->resume->saves;
    bool stop = false;
    char why[1024];
    int of = lc__error_rank();
    lc__copy_message(why, sizeof why);
    lc_status agreed = status < 0 ? agree_to_stop(t, status, &stop) : LC_OK;
    if (status >= 0) {
        note(t);
        note_success(t, s->path);
    }
    void *owner = s->owner;
    lc__save_settled *settled = s->settled;
    bool is_retry = s->is_retry;
    forget(s);
    notify_owner(t, owner, settled, status >= 0);
    if (status >= 0 || agreed < 0) return agreed;
    if (stop) return lc_fail(status, "%s", why);
    note_failure(t, why, of, is_retry);
    return LC_OK;
}

/* The result on this rank. */
static lc_status own_result(lc_trainer *t)
{
    lc__saves *s = &t->resume->saves;
    if (!s->known) return lc_ckpt_wait(t->resume->writer);
    return s->status < 0 ? lc_fail(s->status, "%s", s->early) : LC_OK;
}

/* Concludes the save if its result is known. Never waits; with several ranks, only notifies the loggers. */
static lc_status look(lc_trainer *t)
{
    lc__saves *s = &t->resume->saves;
    lc_status status = LC_OK;
    if (s->known ? t->comm != NULL : !lc__ckpt_peek(t->resume->writer, &status)) return LC_OK;
    if (!t->comm)
        return conclude(t, lc__ckpt_is_joint(t->resume->writer) ? lc__ckpt_wait_together(t->resume->writer, NULL)
                                                                : own_result(t));
    if (!lc__is_rank_zero(t)) return LC_OK;
    if (status >= 0) note(t);
    return LC_OK;
}

static lc_status wait_for_all(lc_trainer *t)
{
    bool joint = lc__ckpt_is_joint(t->resume->writer);
    lc_status status = joint ? lc__ckpt_wait_together(t->resume->writer, t->comm) : own_result(t);
    if (!joint) status = lc__ranks_agree(t->comm, status);
    return conclude(t, status);
}

lc_status lc__save(lc_trainer *t, const lc__save_plan *plan)
{
    lc__saves *s = &t->resume->saves;
    LC_TRY(lc__settle(t, LC__SETTLE_RESULT));
    LC_TRY(lc__copy_text(plan->path, &s->path));
    s->step = t->global_step, s->epoch = t->current_epoch;
    s->score = plan->score, s->has_score = plan->has_score, s->verbose = plan->verbose;
    s->is_retry = plan->is_retry;
    s->owner = plan->owner, s->settled = plan->settled;
    bool writing = false;
    lc_status status = lc__save_state(t, plan->path, plan->weights_only, plan->wait, &writing);
    if (!writing) {
        forget(s);
        return status;
    }
    s->under_way = true;
    s->known = status < 0 || plan->wait;
    s->status = status;
    if (status < 0) lc__copy_message(s->early, sizeof s->early);
    return plan->wait ? wait_for_all(t) : LC_OK;
}

/* ---- removed checkpoints ---- */

void lc__saves_replaced(lc_trainer *t, const char *path)
{
    lc__saves *s = &t->resume->saves;
    if (!lc__is_rank_zero(t) || !t->logging->loggers_started) return;
    if (lc__grow_one(&s->replaced, s->n_replaced, "replaced checkpoints") < 0) return; /* loggers keep listing it */
    struct lc__replaced *r = &s->replaced[s->n_replaced];
    if (lc__copy_text(path, &r->path) < 0) return;
    if (!lc__ckpt_training_of(path, r->training)) *r->training = 0;
    s->n_replaced++;
}

/* The checkpoint is still there if the save that was to replace it failed, or its removal did. If it was removed,
 * another run may have saved under that name since. */
static bool is_gone(const struct lc__replaced *r)
{
    struct stat st;
    char training[48];
    if (lstat(r->path, &st) < 0) return errno == ENOENT;
    if (S_ISLNK(st.st_mode)) return true;
    return *r->training && lc__ckpt_training_of(r->path, training) && strcmp(training, r->training) != 0;
}

static void note_removed(lc_trainer *t)
{
    lc__saves *s = &t->resume->saves;
    if (!s->n_replaced || s->under_way || !lc__ckpt_is_idle(t->resume->writer)) return;
    for (int i = 0; i < s->n_replaced; i++) {
        if (is_gone(&s->replaced[i])) lc__note_removed_checkpoint(t, s->replaced[i].path);
        free(s->replaced[i].path);
    }
    s->n_replaced = 0;
}

/* ---- settling ---- */

lc_status lc__settle(lc_trainer *t, lc__settling how)
{
    char text[1024], message[1024];
    lc__saves *s = &t->resume->saves;
    lc_status status = LC_OK;
    if (!t->resume->writer) return LC_OK;
    if (s->under_way)
        status = how == LC__SETTLE_LOOK ? look(t) : wait_for_all(t);
    else if (how != LC__SETTLE_LOOK)
        status = lc__ckpt_wait_together(t->resume->writer, t->comm);
    if (status < 0) lc__copy_message(message, sizeof message);
    if (how == LC__SETTLE_ALL) lc__ckpt_rest(t->resume->writer);
    note_removed(t);
    if (lc__ckpt_complaint(t->resume->writer, text, sizeof text)) lc_trainer_message(t, LC_WARNING, "%s", text);
    return status < 0 ? lc_fail(status, "%s", message) : status;
}

void lc__settle_before_the_end(lc_trainer *t)
{
    if (lc__settle(t, LC__SETTLE_RESULT) < 0) lc_trainer_message(t, LC_ERROR, "%s", lc_error_message());
}

void lc__saves_free(lc_trainer *t)
{
    lc__saves *s = &t->resume->saves;
    forget(s);
    for (int i = 0; i < s->n_replaced; i++) free(s->replaced[i].path);
    free(s->replaced);
    free(s->good);
}
