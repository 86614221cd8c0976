/* SPDX-License-Identifier: Apache-2.0 */
/* LearningRateFinder and BatchSizeFinder: the tuner, when a fit begins. */
#include "callbacks/callbacks.h"
#include "core/io.h"
#include "core/tuner.h"

#include <stdlib.h>
#include <string.h>

/* A run that continues has its rate and its batches from the checkpoint. */
static bool begins(const lc_trainer *t)
{
    return t->stage == LC_STAGE_FIT && !t->restoring_from && !t->opt.fast_dev_run;
}

typedef struct rate_finder {
    lc_lr_find_args args;
    lc_lr_find_result result;
} rate_finder;

static lc_status leave(const lc_trainer *t, const lc_lr_find_result *r, const char *name,
                       lc_status (*write)(const lc_lr_find_result *r, const char *path))
{
    char *path;
    LC_TRY(lc__path_join(t->run_dir, name, &path));
    lc_status s = write(r, path);
    free(path);
    return s;
}

static lc_status rate_fit_start(void *self, lc_trainer *t)
{
    rate_finder *f = self;
    if (!begins(t)) return LC_OK;
    lc_lr_find_release(&f->result);
    LC_TRY(lc_tuner_lr_find(t, t->m, t->args, &f->args, &f->result));
    if (f->result.suggested < 0)
        lc_trainer_message(t, "warning", "LearningRateFinder: too few points for a suggestion; raise num_training");
    else
        lc_trainer_message(t, "info", "LearningRateFinder: learning rate %.3g", f->result.suggestion);
    if (!t->run_dir || f->result.n < 2) return LC_OK;
    LC_TRY(leave(t, &f->result, "lr_find.csv", lc_lr_find_write_csv));
    return leave(t, &f->result, "lr_find.svg", lc_lr_find_write_svg);
}

static void rate_free(void *self)
{
    rate_finder *f = self;
    lc_lr_find_release(&f->result);
    free(f);
}

static const lc_callback_ops rate_finder_ops = {
    LC_CALLBACK_OPS_INIT("LearningRateFinder"),
    .tunes = true,
    .on_fit_start = rate_fit_start,
    .free = rate_free,
};

lc_status lc_learning_rate_finder_new(const lc_lr_find_args *args, lc_callback *out)
{
    rate_finder *f = calloc(1, sizeof *f);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: LearningRateFinder");
    if (args) f->args = *args;
    *out = (lc_callback){&rate_finder_ops, f};
    return LC_OK;
}

const lc_lr_find_result *lc_learning_rate_finder_get(const lc_callback *cb)
{
    return &((const rate_finder *)cb->self)->result;
}

typedef struct size_finder {
    lc_scale_batch_size_args args;
    lc_scale_batch_size_result result;
} size_finder;

static lc_status size_fit_start(void *self, lc_trainer *t)
{
    size_finder *f = self;
    if (!begins(t)) return LC_OK;
    LC_TRY(lc_tuner_scale_batch_size(t, t->m, t->args, &f->args, &f->result));
    lc__source_close(&t->train); /* asked for early: with the size from before */
    t->train.which = -1;
    return LC_OK;
}

static const lc_callback_ops size_finder_ops = {
    LC_CALLBACK_OPS_INIT("BatchSizeFinder"),
    .tunes = true,
    .on_fit_start = size_fit_start,
    .free = free,
};

lc_status lc_batch_size_finder_new(const lc_scale_batch_size_args *args, lc_callback *out)
{
    size_finder *f = calloc(1, sizeof *f);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: BatchSizeFinder");
    if (args) f->args = *args;
    *out = (lc_callback){&size_finder_ops, f};
    return LC_OK;
}

lc_scale_batch_size_result lc_batch_size_finder_get(const lc_callback *cb)
{
    return ((const size_finder *)cb->self)->result;
}
