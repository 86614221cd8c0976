/* SPDX-License-Identifier: Apache-2.0 */
/* OnExceptionCheckpoint: a run that fails saves its state, and the next fit continues from it. The checkpoint is
 * removed when a fit ends well. */
#include "core/resume/resume.h"
#include "callbacks/callbacks.h"
#include "core/checkpoint/removal.h"
#include "core/resume/after_save.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct on_exception {
    char *path;
} on_exception;

static bool exists(const on_exception *o)
{
    struct stat st;
    return stat(o->path, &st) == 0;
}

static const char *oe_ckpt_path(void *self, lc_trainer *t)
{
    (void)t;
    return exists(self) ? ((on_exception *)self)->path : NULL;
}

static lc_status oe_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    (void)status, (void)message;
    /* Until a fit has its optimizers and has restored its checkpoint, there is no state to save. */
    bool begun = t->stage == LC_STAGE_FIT && t->optimizers.n && !t->resume->restoring_from;
    if (!begun) return LC_OK;
    lc__settle_before_the_end(t);
    return lc__save_checkpoint(t, ((on_exception *)self)->path, false);
}

/* The checkpoint that this run continued from is no longer needed, whichever run saved it. */
static bool is_continued(const on_exception *o, const lc_trainer *t)
{
    char real[PATH_MAX];
    return t->ckpt_path && realpath(o->path, real) && !strcmp(real, t->ckpt_path);
}

/* Rank 0 owns the files. */
static lc_status oe_teardown(void *self, lc_trainer *t, lc_stage stage)
{
    on_exception *o = self;
    if (stage != LC_STAGE_FIT || t->run_state == LC_RUN_INTERRUPTED || !lc__is_rank_zero(t) || !exists(o)) return LC_OK;
    lc_status s = lc__ckpt_remove(o->path, 0, is_continued(o, t) ? NULL : t->resume->training);
    if (s == LC_ERR_STATE) /* saved by another training, or holds foreign entries */
        lc_trainer_message(t, LC_WARNING, "OnExceptionCheckpoint: %s", lc_error_message());
    return s == LC_ERR_NOT_FOUND || s == LC_ERR_STATE ? LC_OK : s; /* another process has already removed it */
}

static void oe_release(void *self)
{
    free(((on_exception *)self)->path);
}

static const lc_callback_ops on_exception_ops = {
    LC_CALLBACK_OPS_INIT("OnExceptionCheckpoint"),
    .saves_checkpoints = true,
    .on_exception = oe_exception,
    .teardown = oe_teardown,
    .free = lc__owned_free,
    .ckpt_path = oe_ckpt_path,
};

lc_status lc_on_exception_checkpoint_new(const lc_on_exception_checkpoint_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_on_exception_checkpoint, given);
    if (!args->dirpath || !*args->dirpath)
        return lc_fail(LC_ERR_CONFIG, "OnExceptionCheckpoint needs dirpath, the directory for the checkpoint");
    if (args->filename && !*args->filename)
        return lc_fail(LC_ERR_CONFIG, "OnExceptionCheckpoint: filename is empty; leave it out for \"on_exception\"");
    on_exception *o = lc__owned_new(sizeof *o, oe_release);
    lc__str path = {0};
    lc__str_add(&path, "%s/%s.ckpt", args->dirpath, args->filename ? args->filename : "on_exception");
    if (!o || path.failed) {
        lc__owned_free(o);
        lc__str_free(&path);
        return lc_fail(LC_ERR_MEMORY, "out of memory: OnExceptionCheckpoint");
    }
    o->path = path.s;
    *out = (lc_callback){&on_exception_ops, o};
    return LC_OK;
}
