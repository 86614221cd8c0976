/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the largest batch that fits (tuner.h). A trial that needs too much memory fails when its step is planned,
 * before anything is allocated. */
#include "core/ranks/ranks.h"
#include "core/input/input.h"
#include "base/args.h"
#include "base/float_traps.h"
#include "base/status.h"
#include "base/handle.h"
#include "core/tuner/probe.h"

#include <stdio.h>
#include <string.h>

typedef struct trial {
    bool several;    /* a loader gives more than one batch, or an unknown number */
    int64_t samples; /* in the largest batch seen */
    lc_trainer *outer;
} trial;

static void see(trial *w, lc_dataloader *loader, int64_t epoch, const lc_batch *batch)
{
    w->several |= lc_dataloader_length(loader, epoch) != 1;
    if (batch->size > w->samples) w->samples = batch->size;
}

/* Signals reach the outer run, not the trial. */
static int signal_of(const trial *w)
{
    return w->outer->in_run ? atomic_load(&w->outer->ranks->signal) : 0;
}

static lc_status train_batch_end(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch, int64_t i)
{
    (void)outputs, (void)i;
    see(self, t->input->train.loader, t->current_epoch, batch);
    return signal_of(self) ? LC_STOP : LC_OK;
}

static lc_status eval_batch_end(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch, int64_t i,
                                int loader)
{
    (void)outputs, (void)i;
    see(self, t->input->eval.s[loader].loader, t->current_epoch, batch);
    int number = signal_of(self);
    if (number) atomic_store(&t->ranks->signal, number); /* ends the trial with an error */
    return LC_OK;
}

static const lc_callback_ops trial_ops = {
    LC_CALLBACK_OPS_INIT("BatchSizeTrial"),    .on_train_batch_end = train_batch_end,
    .on_validation_batch_end = eval_batch_end, .on_test_batch_end = eval_batch_end,
    .on_predict_batch_end = eval_batch_end,
};

typedef struct search {
    lc_trainer *t;
    lc_module *m;
    const lc_run_args *run;
    lc_scale_batch_size_args a;
    lc_stage stage;
    const lc_option *field;
    void *values;
    lc_scale_batch_size_result *out;
} search;

static lc_status set_size(const search *s, int64_t size)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)size);
    return lc_option_set_text(s->field, s->values, text);
}

/* The result for a size. */
typedef enum verdict { FITS, FITS_ALL /* the whole data set in one batch */, TOO_LARGE } verdict;

/* Combines the results of a trial over all ranks: whether any ran out of memory or failed otherwise, and the largest of
 * each number. Adjusts this rank's `status`. */
static lc_status agree(lc_trainer *t, trial *w, lc__probe *p, lc_status *status)
{
    enum { MEMORY, OTHERWISE, SEVERAL, SAMPLES, BYTES, N };
    int64_t v[N] = {[MEMORY] = *status == LC_ERR_MEMORY,
                    [OTHERWISE] = *status < 0 && *status != LC_ERR_MEMORY && *status != LC_ERR_PEER,
                    [SEVERAL] = w->several,
                    [SAMPLES] = w->samples,
                    [BYTES] = p->stats.planned_bytes};
    char message[1024];
    if (!t->comm) return LC_OK;
    lc__copy_message(message, sizeof message);
    LC_TRY(lc_comm_all_reduce(t->comm, v, v, N, LC_I64, LC_COMM_MAX, NULL));
    w->several = v[SEVERAL];
    w->samples = v[SAMPLES];
    p->stats.planned_bytes = v[BYTES];
    if (v[MEMORY] && !v[OTHERWISE]) *status = LC_ERR_MEMORY;
    if (*status < 0) lc_fail(*status, "%s", message);
    return LC_OK;
}

static lc_status try(search *s, int64_t size, verdict *out)
{
    trial w = {.outer = s->t};
    lc__probe p = {.t = s->t,
                   .m = s->m,
                   .run = s->run,
                   .stage = s->stage,
                   .steps = s->a.steps_per_trial,
                   .max_bytes = s->a.max_bytes,
                   .watch = {&trial_ops, &w}};
    LC_TRY(set_size(s, size));
    s->out->trials++;
    lc_status status = lc__probe_run(&p);
    LC_TRY(agree(s->t, &w, &p, &status));
    if (status == LC_ERR_MEMORY) {
        lc_trainer_message(s->t, LC_INFO, "batch size %lld does not fit: %s", (long long)size, lc_error_message());
        *out = TOO_LARGE;
        s->out->too_large = size;
        return LC_OK;
    }
    if (status < 0) return lc_fail_context(status, "scale_batch_size: batch size %lld", (long long)size);
    lc_trainer_message(s->t, LC_INFO, "batch size %lld fits: %.1f MiB of intermediate results", (long long)size,
                       (double)p.stats.planned_bytes / 1048576);
    if (w.samples == 0) { /* no full batch: there are fewer samples, and the loader drops them */
        *out = TOO_LARGE;
        return LC_OK;
    }
    *out = !w.several || w.samples < size ? FITS_ALL : FITS;
    s->out->batch_size = *out == FITS_ALL ? w.samples : size;
    s->out->planned_bytes = p.stats.planned_bytes;
    return LC_OK;
}

static lc_status scale(search *s)
{
    int64_t size = s->a.init_val < s->a.max_val ? s->a.init_val : s->a.max_val, low = 0, high = 0;
    bool bisect = !strcmp(s->a.mode, "binsearch");
    int64_t counted = 0; /* a bisection ends by itself, so sizes that do not fit are not counted */
    while (counted < s->a.max_trials) {
        verdict v = TOO_LARGE;
        LC_TRY(try(s, size, &v));
        counted += !bisect || v != TOO_LARGE;
        if (v == TOO_LARGE)
            high = size;
        else
            low = size;
        if (v == FITS_ALL || size == s->a.max_val || high - low == 1) break;
        if (v == TOO_LARGE && low && !bisect) break;
        if (!high)
            size = size > s->a.max_val / 2 ? s->a.max_val : 2 * size;
        else
            size = low ? low + (high - low) / 2 : size / 2;
        if (size < 1) break;
    }
    if (!low)
        return lc_fail(LC_ERR_MEMORY, "scale_batch_size: even a batch of %lld does not fit into memory%s%s",
                       (long long)(high ? high : size), high > 1 ? "; begin with a smaller init_val" : ": ",
                       high > 1 ? "" : lc_error_message());
    if (bisect && s->a.margin > 0) {
        int64_t less = (int64_t)((double)s->out->batch_size * (1 - s->a.margin));
        s->out->batch_size = less > 1 ? less : 1;
    }
    return set_size(s, s->out->batch_size);
}

static lc_status resolve(lc_scale_batch_size_args *a, lc_stage *stage)
{
    const char *name;
    if (!a->mode) a->mode = "power";
    if (!a->method) a->method = lc_stage_name(LC_STAGE_FIT);
    for (*stage = LC_STAGE_FIT; (name = lc_stage_name(*stage)) && strcmp(name, a->method) != 0;) ++*stage;
    if (!name)
        return lc_fail(LC_ERR_CONFIG,
                       "scale_batch_size: method is \"%.60s\"; it must be fit, validate, test or predict", a->method);
    if (strcmp(a->mode, "power") != 0 && strcmp(a->mode, "binsearch") != 0)
        return lc_fail(LC_ERR_CONFIG, "scale_batch_size: mode is \"%.60s\"; it must be power or binsearch", a->mode);
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"steps_per_trial", a->steps_per_trial},
                  {"init_val", a->init_val},
                  {"max_trials", a->max_trials},
                  {"max_val", a->max_val}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 1)
            return lc_fail(LC_ERR_CONFIG, "scale_batch_size: %s is %lld; it must be at least 1", counts[i].name,
                           (long long)counts[i].value);
    if (!(a->margin >= 0 && a->margin < 1))
        return lc_fail(LC_ERR_CONFIG, "scale_batch_size: margin is %g; it must be at least 0 and below 1", a->margin);
    return LC_OK;
}

const char *const lc__size_names[] = {"batch_size", NULL};

lc_status lc_tuner_scale_batch_size_with(lc_trainer *t, lc_module *m, const lc_run_args *run,
                                         lc_scale_batch_size_result *out, const lc_scale_batch_size_args *args)
{
    LC__WITHOUT_TRAPS();
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    search s = {.t = t, .m = m, .out = out};
    char before[64], message[1024];
    *out = (lc_scale_batch_size_result){0};
    if (!t || !m) return lc_fail(LC_ERR_ARGUMENT, "scale_batch_size needs a trainer and a module");
    LC__TAKE_IF_GIVEN(a, lc_scale_batch_size, lc_scale_batch_size_args, args);
    LC__TAKE_IF_GIVEN(data, lc_run, lc_run_args, run);
    LC_TRY(resolve(&a, &s.stage));
    s.a = a;
    s.run = &data;
    LC_TRY(lc__tuned_field(m, &data, s.a.batch_arg_name, lc__size_names, &s.field, &s.values));
    if (!s.field || (s.field->kind != LC_OPTION_INT && s.field->kind != LC_OPTION_INT32))
        return lc_fail(LC_ERR_CONFIG,
                       "scale_batch_size: the module has no hyperparameter \"%s\" that is a whole number "
                       "(lc_module_save_hyperparameters)",
                       s.field ? s.field->name : "batch_size");
    if (s.stage == LC_STAGE_FIT ? data.train_dataloader != NULL : data.n_dataloaders || data.val_dataloader)
        return lc_fail(LC_ERR_CONFIG,
                       "scale_batch_size cannot change the batch size of a given loader; let the module make it "
                       "(train_dataloader, val_dataloader, ...)");
    if (s.field->minimum < s.field->maximum && s.field->maximum < (double)s.a.max_val)
        s.a.max_val = (int64_t)s.field->maximum;
    if (t->opt.fast_dev_run) {
        lc_trainer_message(t, LC_WARNING, "scale_batch_size is skipped because fast_dev_run is on");
        return LC_OK;
    }
    lc_option_get_text(s.field, s.values, before, sizeof before);
    lc_status status = scale(&s);
    if (status >= 0) status = lc__probes_end(t);
    if (status < 0) {
        lc__copy_message(message, sizeof message);
        lc_status back = lc_option_set_text(s.field, s.values, before);
        (void)back; /* cannot fail: the text was read from this value */
        return lc_fail(status, "%s", message);
    }
    lc_trainer_message(t, LC_INFO, "batch size: %lld", (long long)out->batch_size);
    return LC_OK;
}
