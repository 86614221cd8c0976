/* SPDX-License-Identifier: Apache-2.0 */
/* The learning-rate range test (tuner.h), after L. Smith, Cyclical Learning Rates for Training Neural Networks, with
 * Lightning's rates, smoothing and suggestion. Two things are different. The smoothed loss begins with the first loss
 * itself; Lightning's correction is one step ahead. And if rates grow exponentially, the slope is taken over log10 of
 * the rate. Lightning 2.6 takes it over the rate itself; the losses of the first rates differ only by chance, but
 * divided by 1e-9 that becomes the steepest descent. */
#include "base/c_locale.h"
#include "core/ranks/ranks.h"
#include "base/args.h"
#include "base/float_traps.h"
#include "base/io.h"
#include "base/handle.h"
#include "core/logging/results_ranks.h"
#include "core/tuner/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMOOTHING 0.98

typedef struct range_test {
    lc_lr_find_args a;
    lc_lr_find_result *out;
    const lc_trainer *outer;
    double average, best;
    int64_t averaged; /* losses in the average */
} range_test;

/* The rate of step i (from 0) of n: the first is min_lr, the last max_lr. */
static double rate(const range_test *r, int64_t i)
{
    double part = i ? (double)(i + 1) / (double)r->a.num_training : 0;
    return r->out->exponential ? r->a.min_lr * pow(r->a.max_lr / r->a.min_lr, part)
                               : r->a.min_lr + part * (r->a.max_lr - r->a.min_lr);
}

static lc_status fit_start(void *self, lc_trainer *t)
{
    (void)self;
    if (t->mo.manual_optimization || t->optimizers.n != 1)
        return lc_fail(LC_ERR_CONFIG, "lr_find needs automatic optimization with one optimizer; %s has %d%s",
                       t->mo.name, t->optimizers.n, t->mo.manual_optimization ? ", and optimizes manually" : "");
    /* Schedulers must not change the rate during the test. */
    for (int i = 0; i < t->optimizers.n_schedulers; i++) lc_scheduler_free(t->optimizers.schedulers[i].scheduler);
    t->optimizers.n_schedulers = 0;
    return LC_OK;
}

static lc_status batch_start(void *self, lc_trainer *t, const lc_batch *batch, int64_t i)
{
    range_test *r = self;
    (void)batch, (void)i;
    return lc_optimizer_set(t->optimizers.optimizers[0].optimizer, -1, "lr", rate(r, t->global_step));
}

/* The mean loss over the samples of all ranks; a rank may have none. */
static lc_status loss_of_ranks(lc_trainer *t, lc_tensor *mine, const lc_batch *batch, double *loss, bool *any)
{
    double sums[2] = {0};
    if (mine) {
        LC_TRY(lc_item(mine, &sums[0]));
        sums[1] = t->comm && batch->size > 0 ? (double)batch->size : 1;
        sums[0] *= sums[1];
    }
    LC_TRY(lc__ranks_reduce(t->comm, sums, 2, LC_LOG_SUM));
    *any = sums[1] > 0;
    *loss = sums[0] / sums[1];
    return LC_OK;
}

static lc_status batch_end(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch, int64_t i)
{
    range_test *r = self;
    lc_lr_find_result *out = r->out;
    double loss;
    (void)i;
    bool stop = r->outer->in_run && atomic_load(&((lc_trainer *)(uintptr_t)r->outer)->ranks->signal), any;
    if (t->accumulating || out->stopped_early) return stop ? LC_STOP : LC_OK;
    LC_TRY(loss_of_ranks(t, outputs->loss, batch, &loss, &any));
    if (stop) return LC_STOP;
    out->lr[out->n] = rate(r, t->global_step - 1);
    out->loss[out->n++] = (double)NAN;
    if (!any) return LC_OK; /* no loss, but the step counts */
    r->average = SMOOTHING * r->average + (1 - SMOOTHING) * loss;
    double smoothed = r->average / (1 - pow(SMOOTHING, (double)++r->averaged));
    out->loss[out->n - 1] = smoothed;
    if (t->global_step > 1 && smoothed > r->a.early_stop_threshold * r->best) {
        out->stopped_early = true;
        return LC_STOP;
    }
    if (smoothed < r->best || r->averaged == 1) r->best = smoothed;
    return LC_OK;
}

static const lc_callback_ops range_test_ops = {
    LC_CALLBACK_OPS_INIT("LearningRateRangeTest"),
    .on_fit_start = fit_start,
    .on_train_batch_start = batch_start,
    .on_train_batch_end = batch_end,
};

static double distance(const lc_lr_find_result *r, int64_t a, int64_t b)
{
    return r->over_log10 ? log10(r->lr[b] / r->lr[a]) : r->lr[b] - r->lr[a];
}

int64_t lc_lr_find_suggest(const lc_lr_find_result *r, int64_t skip_begin, int64_t skip_end)
{
    LC__NEEDS(r, -1);
    int64_t *at = malloc(((size_t)r->n + 1) * sizeof *at), n = 0, found = -1;
    double steepest = INFINITY;
    if (!at) return -1;
    for (int64_t i = skip_begin; i < r->n - skip_end; i++)
        if (isfinite(r->loss[i])) at[n++] = i;
    /* Second-order differences on an uneven grid inside, first-order ones at both ends, as torch.gradient. */
    for (int64_t k = 0; k < n && n > 1; k++) {
        double slope;
        if (k == 0 || k == n - 1) {
            int64_t a = at[k ? k - 1 : 0], b = at[k ? k : 1];
            slope = (r->loss[b] - r->loss[a]) / distance(r, a, b);
        } else {
            int64_t a = at[k - 1], m = at[k], b = at[k + 1];
            double left = distance(r, a, m), right = distance(r, m, b);
            slope =
                (left * left * r->loss[b] + (right * right - left * left) * r->loss[m] - right * right * r->loss[a]) /
                (left * right * (left + right));
        }
        if (slope < steepest) steepest = slope, found = at[k];
    }
    free(at);
    return found;
}

static lc_status resolve(lc_lr_find_args *a)
{
    if (!a->mode) a->mode = "exponential";
    if (strcmp(a->mode, "exponential") != 0 && strcmp(a->mode, "linear") != 0)
        return lc_fail(LC_ERR_CONFIG, "lr_find: mode is \"%.60s\"; it must be exponential or linear", a->mode);
    if (!a->spacing) a->spacing = strcmp(a->mode, "exponential") != 0 ? "lr" : "log10";
    if (strcmp(a->spacing, "log10") != 0 && strcmp(a->spacing, "lr") != 0)
        return lc_fail(LC_ERR_CONFIG, "lr_find: spacing is \"%.60s\"; it must be log10 or lr", a->spacing);
    if (!(a->min_lr > 0) || !(a->max_lr > a->min_lr) || a->num_training < 1 || a->num_training > 1000000)
        return lc_fail(LC_ERR_CONFIG,
                       "lr_find: min_lr=%g, max_lr=%g, num_training=%lld: the rates must be positive and ascend in at "
                       "least one step",
                       a->min_lr, a->max_lr, (long long)a->num_training);
    if (!(a->early_stop_threshold > 0))
        return lc_fail(LC_ERR_CONFIG, "lr_find: early_stop_threshold is %g; it must be positive (INFINITY: never stop)",
                       a->early_stop_threshold);
    return LC_OK;
}

/* Sets the hyperparameter and, in a running fit, the optimizers. */
static lc_status apply(lc_trainer *t, const lc_option *field, void *values, double lr)
{
    char text[32];
    lc__snprintf(text, sizeof text, "%.17g", lr);
    if (field) LC_TRY(lc_option_set_text(field, values, text));
    for (int i = 0; t->in_run && i < t->optimizers.n; i++)
        LC_TRY(lc_optimizer_set(t->optimizers.optimizers[i].optimizer, -1, "lr", lr));
    return LC_OK;
}

const char *const lc__rate_names[] = {"lr", "learning_rate", NULL};

lc_status lc_tuner_lr_find_with(lc_trainer *t, lc_module *m, const lc_run_args *run, lc_lr_find_result *out,
                                const lc_lr_find_args *args)
{
    LC__WITHOUT_TRAPS();
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    range_test r = {.out = out, .outer = t, .best = INFINITY};
    const lc_option *field = NULL;
    void *values = NULL;
    lc_status status = LC_OK;
    *out = (lc_lr_find_result){.suggested = -1, .suggestion = (double)NAN};
    if (!t || !m) return lc_fail(LC_ERR_ARGUMENT, "lr_find needs a trainer and a module");
    LC__TAKE_IF_GIVEN(a, lc_lr_find, lc_lr_find_args, args);
    LC__TAKE_IF_GIVEN(data, lc_run, lc_run_args, run);
    LC_TRY(resolve(&a));
    r.a = a;
    out->exponential = !strcmp(r.a.mode, "exponential");
    out->over_log10 = !strcmp(r.a.spacing, "log10");
    bool update = r.a.update_attr;
    if (update) LC_TRY(lc__tuned_field(m, &data, r.a.attr_name, lc__rate_names, &field, &values));
    if (update && !field && !t->in_run)
        return lc_fail(LC_ERR_CONFIG,
                       "lr_find: the module has no hyperparameter \"lr\" or \"learning_rate\" to set; name "
                       "it with .attr_name, or set .update_attr = false");
    if (t->opt.fast_dev_run) {
        lc_trainer_message(t, LC_WARNING, "lr_find is skipped because fast_dev_run is on");
        return LC_OK;
    }
    out->lr = malloc((size_t)r.a.num_training * sizeof *out->lr);
    out->loss = malloc((size_t)r.a.num_training * sizeof *out->loss);
    if (!out->lr || !out->loss) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: the curve of lr_find");
        goto done;
    }
    lc__probe p = {.t = t, .m = m, .run = &data, .steps = r.a.num_training, .watch = {&range_test_ops, &r}};
    status = lc__probe_run(&p);
    if (status >= 0) status = lc__probes_end(t);
    if (status < 0) {
        lc_fail_context(status, "lr_find");
        goto done;
    }
    out->suggested = lc_lr_find_suggest(out, 10, 1);
    if (out->suggested < 0) {
        lc_trainer_message(t, LC_WARNING,
                           "lr_find suggests no learning rate: of its %lld points the first 10 and the last do not "
                           "count, which leaves too few; raise num_training (%lld)%s",
                           (long long)out->n, (long long)r.a.num_training,
                           out->stopped_early ? ", or lower max_lr: it stopped early" : "");
        return LC_OK;
    }
    out->suggestion = out->lr[out->suggested];
    if (update) status = apply(t, field, values, out->suggestion);
done:
    if (status < 0) lc_lr_find_release(out);
    return status;
}

void lc_lr_find_release(lc_lr_find_result *r)
{
    if (!r) return;
    free(r->lr);
    free(r->loss);
    *r = (lc_lr_find_result){.suggested = -1, .suggestion = (double)NAN};
}

/* ---- the curve ---- */

static lc_status write_text(const char *path, lc__str *text)
{
    lc_status s = text->failed ? lc_fail(LC_ERR_MEMORY, "out of memory: %s", path)
                               : lc__replace_file(&lc__io_system, path, text->s ? text->s : "", text->n);
    lc__str_free(text);
    return s;
}

lc_status lc_lr_find_write_csv(const lc_lr_find_result *r, const char *path)
{
    LC__NEEDS(r, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    lc__str out = {0};
    lc__str_add(&out, "lr,loss\n");
    for (int64_t i = 0; i < r->n; i++) lc__str_add(&out, "%.9g,%.9g\n", r->lr[i], r->loss[i]);
    return write_text(path, &out);
}

/* The plot: a frame, powers of ten (or tenths) on the x axis, losses on the y axis. */
enum { WIDTH = 720, HEIGHT = 440, LEFT = 80, RIGHT = 20, TOP = 20, BOTTOM = 50 };

typedef struct axes {
    double x0, x1, y0, y1;
    bool logarithmic;
} axes;

static double across(const axes *a, double lr)
{
    double at = a->logarithmic ? log10(lr) : lr;
    return LEFT + (at - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT);
}

static double down(const axes *a, double loss)
{
    return HEIGHT - BOTTOM - (loss - a->y0) / (a->y1 - a->y0) * (HEIGHT - TOP - BOTTOM);
}

static void add_tick(lc__str *out, const axes *a, double lr)
{
    double x = across(a, lr);
    lc__str_add(out,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                x, TOP, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18, lr);
}

lc_status lc_lr_find_write_svg(const lc_lr_find_result *r, const char *path)
{
    LC__NEEDS(r, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    lc__str out = {0};
    axes a = {.y0 = INFINITY, .y1 = -INFINITY, .logarithmic = r->exponential};
    for (int64_t i = 0; i < r->n; i++)
        if (isfinite(r->loss[i])) a.y0 = fmin(a.y0, r->loss[i]), a.y1 = fmax(a.y1, r->loss[i]);
    if (r->n < 2 || !(a.y0 <= a.y1)) return lc_fail(LC_ERR_STATE, "the curve of lr_find has too few points to draw");
    if (a.y0 == a.y1) a.y0 -= 1, a.y1 += 1;
    a.x0 = a.logarithmic ? log10(r->lr[0]) : r->lr[0];
    a.x1 = a.logarithmic ? log10(r->lr[r->n - 1]) : r->lr[r->n - 1];
    lc__str_add(&out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                WIDTH, HEIGHT);
    if (a.logarithmic)
        for (int e = (int)ceil(a.x0); e <= (int)floor(a.x1); e++) add_tick(&out, &a, pow(10, e));
    else
        for (int i = 0; i <= 5; i++) add_tick(&out, &a, a.x0 + (a.x1 - a.x0) * i / 5);
    for (int i = 0; i <= 4; i++) {
        double loss = a.y0 + (a.y1 - a.y0) * i / 4, y = down(&a, loss);
        lc__str_add(&out,
                    "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                    "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                    LEFT, y, WIDTH - RIGHT, y, LEFT - 6, y + 4, loss);
    }
    lc__str_add(&out, "<polyline fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"2\" points=\"");
    for (int64_t i = 0; i < r->n; i++)
        if (isfinite(r->loss[i])) lc__str_add(&out, "%.1f,%.1f ", across(&a, r->lr[i]), down(&a, r->loss[i]));
    lc__str_add(&out, "\"/>\n");
    if (r->suggested >= 0)
        lc__str_add(&out,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"#d62728\"><title>%g</title></circle>"
                    "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#d62728\">suggestion: %.3g</text>\n",
                    across(&a, r->suggestion), down(&a, r->loss[r->suggested]), r->suggestion, WIDTH - RIGHT - 6,
                    TOP + 16, r->suggestion);
    lc__str_add(
        &out,
        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">learning rate</text>"
        "<text transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\">loss, smoothed</text>\n</svg>\n",
        (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 12, (HEIGHT + TOP - BOTTOM) / 2);
    return write_text(path, &out);
}
