/* SPDX-License-Identifier: Apache-2.0 */
/* LearningRateFinder and BatchSizeFinder: run the tuner when a fit begins, BatchSizeFinder also before validate, test
 * and predict. */
#include "core/resume/resume.h"
#include "core/input/input.h"
#include "callbacks/callbacks.h"
#include "base/handle.h"
#include "base/io.h"
#include "core/tuner/probe.h"

#include <stdlib.h>
#include <string.h>

/* Whether to run: a fit that continues has its rate and its batches from the checkpoint. */
static bool begins(lc_trainer *t, const char *finder)
{
    if (t->stage != LC_STAGE_FIT || t->resume->restoring_from) return false;
    if (t->opt.fast_dev_run) lc_trainer_message(t, LC_WARNING, "%s is skipped because fast_dev_run is on", finder);
    return !t->opt.fast_dev_run;
}

/* The value found is a hyperparameter of the program, which a restarted program has lost: keep it in the checkpoint. */
static lc_status save_field(lc_trainer *t, const char *asked, const char *const *names, lc_state *out)
{
    lc_run_args run = LC_ARGS(lc_run, .datamodule = lc_trainer_datamodule(t));
    const lc_option *field;
    void *values;
    char text[64];
    LC_TRY(lc__tuned_field(t->m, &run, asked, names, &field, &values));
    if (!field) return LC_OK;
    lc_option_get_text(field, values, text, sizeof text);
    return lc_state_set_text(out, field->name, text);
}

static lc_status load_field(lc_trainer *t, const char *asked, const char *const *names, const lc_state *in)
{
    lc_run_args run = LC_ARGS(lc_run, .datamodule = lc_trainer_datamodule(t));
    const lc_option *field;
    void *values;
    const char *text;
    LC_TRY(lc__tuned_field(t->m, &run, asked, names, &field, &values));
    if (!field || !lc_state_find(in, field->name)) return LC_OK;
    LC_TRY(lc_state_get_text(in, field->name, &text));
    return lc_option_set_text(field, values, text);
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
    if (!begins(t, "LearningRateFinder")) return LC_OK;
    lc_lr_find_release(&f->result);
    LC_TRY(lc_tuner_lr_find_with(t, t->m, t->args, &f->result, &f->args));
    if (f->result.suggested < 0)
        lc_trainer_message(t, LC_WARNING, "LearningRateFinder: too few points for a suggestion; raise num_training");
    else
        lc_trainer_message(t, LC_INFO, "LearningRateFinder: learning rate %.3g", f->result.suggestion);
    if (!t->run_dir || f->result.n < 2 || lc_trainer_global_rank(t) != 0) return LC_OK;
    LC_TRY(leave(t, &f->result, "lr_find.csv", lc_lr_find_write_csv));
    return leave(t, &f->result, "lr_find.svg", lc_lr_find_write_svg);
}

static lc_status rate_save(void *self, lc_trainer *t, lc_state *out)
{
    const lc_lr_find_args *a = &((rate_finder *)self)->args;
    return !a->update_attr ? LC_OK : save_field(t, a->attr_name, lc__rate_names, out);
}

static lc_status rate_load(void *self, lc_trainer *t, const lc_state *in)
{
    const lc_lr_find_args *a = &((rate_finder *)self)->args;
    return !a->update_attr ? LC_OK : load_field(t, a->attr_name, lc__rate_names, in);
}

static void rate_release(void *self)
{
    rate_finder *f = self;
    lc_lr_find_release(&f->result);
}

static const lc_callback_ops rate_finder_ops = {
    LC_CALLBACK_OPS_INIT("LearningRateFinder"),
    .tunes = true,
    .on_fit_start = rate_fit_start,
    .save_state = rate_save,
    .load_state = rate_load,
    .free = lc__owned_free,
};

lc_status lc_learning_rate_finder_new(const lc_lr_find_args *args, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_lr_find, lc_lr_find_args, args);
    rate_finder *f = lc__owned_new(sizeof *f, rate_release);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: LearningRateFinder");
    f->args = a;
    *out = (lc_callback){&rate_finder_ops, f};
    return LC_OK;
}

const lc_lr_find_result *lc_learning_rate_finder_get(const lc_callback *cb)
{
    LC__NEEDS(cb, NULL);
    bool is_one = cb->ops && cb->ops->on_fit_start == rate_fit_start;
    if (!is_one) (void)lc_fail(LC_ERR_ARGUMENT, "this callback is not a LearningRateFinder");
    return is_one ? &((const rate_finder *)cb->self)->result : NULL;
}

typedef struct size_finder {
    lc_scale_batch_size_args args;
    lc_scale_batch_size_result result;
} size_finder;

static lc_status find_size(size_finder *f, lc_trainer *t)
{
    lc_scale_batch_size_args args = f->args;
    args.method = lc_stage_name(t->stage);
    return lc_tuner_scale_batch_size_with(t, t->m, t->args, &f->result, &args);
}

static lc_status size_fit_start(void *self, lc_trainer *t)
{
    if (!begins(t, "BatchSizeFinder")) return LC_OK;
    LC_TRY(find_size(self, t));
    lc__source_close(&t->input->train); /* opened early, with the old size */
    t->input->train.which = -1;
    return LC_OK;
}

/* Not before the validations of a fit. */
static lc_status size_eval_start(void *self, lc_trainer *t)
{
    if (t->stage == LC_STAGE_FIT || t->opt.fast_dev_run) return LC_OK;
    LC_TRY(find_size(self, t));
    lc__sources_close(&t->input->eval); /* opened with the old size */
    t->input->eval_loaded = false;
    return lc__setup_eval_data(t);
}

static lc_status size_save(void *self, lc_trainer *t, lc_state *out)
{
    return save_field(t, ((size_finder *)self)->args.batch_arg_name, lc__size_names, out);
}

static lc_status size_load(void *self, lc_trainer *t, const lc_state *in)
{
    return load_field(t, ((size_finder *)self)->args.batch_arg_name, lc__size_names, in);
}

static const lc_callback_ops size_finder_ops = {
    LC_CALLBACK_OPS_INIT("BatchSizeFinder"),
    .tunes = true,
    .on_fit_start = size_fit_start,
    .on_validation_start = size_eval_start,
    .on_test_start = size_eval_start,
    .on_predict_start = size_eval_start,
    .save_state = size_save,
    .load_state = size_load,
    .free = lc__owned_free,
};

lc_status lc_batch_size_finder_new(const lc_scale_batch_size_args *args, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_scale_batch_size, lc_scale_batch_size_args, args);
    size_finder *f = lc__owned_new(sizeof *f, NULL);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: BatchSizeFinder");
    f->args = a;
    *out = (lc_callback){&size_finder_ops, f};
    return LC_OK;
}

lc_scale_batch_size_result lc_batch_size_finder_get(const lc_callback *cb)
{
    LC__NEEDS(cb, (lc_scale_batch_size_result){0});
    bool is_one = cb->ops && cb->ops->on_fit_start == size_fit_start;
    if (!is_one) (void)lc_fail(LC_ERR_ARGUMENT, "this callback is not a BatchSizeFinder");
    return is_one ? ((const size_finder *)cb->self)->result : (lc_scale_batch_size_result){0};
}
