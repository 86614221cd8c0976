/* SPDX-License-Identifier: Apache-2.0 */
/* lc_log: values of a step and their reduction over an epoch (values of metrics are in log_metric.c).
 *
 * A tensor is only marked (lc_keep) while the step is recorded, and read when the step has run, so logging neither
 * splits a plan nor waits; a device copies it to the host meanwhile (arrivals.h). Each (name, hook, loader) has one
 * entry that lives as long as the trainer; in the steady state nothing is allocated and an entry is found by the
 * pointer of its name. */
#include "core/logging/arrivals.h"
#include "core/input/input.h"
#include "core/hooks/hooks.h"
#include "core/logging/results_ranks.h"
#include "base/args.h"
#include "base/grow.h"
#include "base/handle.h"
#include "record/graph_impl.h"
#include "data/batch_slice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lc__log_rule(lc_hook hook)
{
    static const char *const texts[] = {"no", "each step", "over the epoch", "only over the epoch"};
    return texts[lc__hooks[hook].log];
}

/* ---- entries ---- */

static void entry_free(lc__logged *e)
{
    free(e->name);
    if (e->step_name != e->name) free(e->step_name);
    if (e->epoch_name != e->name) free(e->epoch_name);
    free(e->base);
    free(e->state);
    free(e->exact);
}

void lc__results_free(lc__results *r)
{
    for (int i = 0; i < r->n; i++) entry_free(&r->e[i]);
    free(r->e);
    free(r->pending);
    *r = (lc__results){.training = r->training, .exact = r->exact};
}

lc_status lc__results_reset(lc_trainer *t, lc__results *r)
{
    LC_TRY(lc__arrivals_settle(t));
    for (int i = 0; i < r->n; i++) {
        lc__logged *e = &r->e[i];
        e->active = e->reduced = e->has_step = false;
        e->step = e->sum = e->weight = 0;
        if (e->exact) *e->exact = (lc__exact_sums){0};
        lc__logged_forget(e);
    }
    r->n_pending = 0;
    return LC_OK;
}

static bool join(char **out, const char *base, const char *fork, int loader)
{
    char text[512];
    int n = loader >= 0 ? snprintf(text, sizeof text, "%s%s/dataloader_idx_%d", base, fork, loader)
                        : snprintf(text, sizeof text, "%s%s", base, fork);
    if (n < 0 || (size_t)n >= sizeof text) {
        lc_fail(LC_ERR_ARGUMENT, "lc_log: a name of more than %d characters", LC__MOST_NAME);
        return false;
    }
    *out = strdup(text);
    if (!*out) lc_fail(LC_ERR_MEMORY, "out of memory: the name of a logged value");
    return *out != NULL;
}

lc__logged *lc__results_add(lc__results *r, const char *base, lc_hook hook, int loader, const lc_log_args *args,
                            bool on_step, bool on_epoch)
{
    if (lc__grow(&r->e, &r->cap, r->n, 1, "logged values") < 0) return NULL;
    lc__logged *e = &r->e[r->n];
    *e = (lc__logged){.hook = hook,
                      .loader = loader,
                      .args = *args,
                      .on_step = on_step,
                      .on_epoch = on_epoch,
                      .logger = args->logger};
    bool fork = on_step && on_epoch;
    bool ok = join(&e->base, base, "", LC__NO_LOADER) && join(&e->name, base, "", loader);
    e->step_name = e->epoch_name = e->name;
    if (ok && fork) {
        e->step_name = NULL;
        ok = join(&e->step_name, base, "_step", loader);
        e->epoch_name = NULL;
        ok = ok && join(&e->epoch_name, base, "_epoch", loader);
    }
    if (ok && r->exact && (args->reduce_fx == LC_LOG_MEAN || args->reduce_fx == LC_LOG_SUM)) {
        e->exact = calloc(1, sizeof *e->exact);
        if (!e->exact) lc_fail(LC_ERR_MEMORY, "out of memory: logged values");
        ok = e->exact != NULL;
        if (ok) e->pieces.exact = &e->exact->step;
    }
    if (!ok) {
        entry_free(e);
        return NULL;
    }
    for (int i = 0; i < 5; i++) e->slots[i] = -1;
    r->n++;
    return e;
}

lc__logged *lc__results_find(lc__results *r, const char *name, lc_hook hook, int loader)
{
    int n = r->n;
    for (int k = 0; k < n; k++) {
        int i = r->cursor + k;
        if (i >= n) i -= n;
        lc__logged *e = &r->e[i];
        if (e->given == name && e->hook == hook && e->loader == loader && !strcmp(e->base, name)) {
            r->cursor = i + 1 < n ? i + 1 : 0;
            return e;
        }
    }
    for (int i = 0; i < n; i++) {
        lc__logged *e = &r->e[i];
        if (e->hook == hook && e->loader == loader && !strcmp(e->base, name)) {
            e->given = name;
            return e;
        }
    }
    return NULL;
}

/* Whether `a` equals the arguments of e; a choice that is not set equals its default, and sync_dist is none where there
 * is nothing to sync. */
static bool same_args(const lc_trainer *t, const lc__logged *e, const lc_log_args *a, bool on_step, bool on_epoch)
{
    const lc_log_args *b = &e->args;
    bool one = !t->comm && !t->device_parts;
    return e->on_step == on_step && e->on_epoch == on_epoch && e->logger == a->logger &&
           a->add_dataloader_idx == b->add_dataloader_idx && a->prog_bar == b->prog_bar &&
           a->reduce_fx == b->reduce_fx && (one || a->sync_dist == b->sync_dist) &&
           a->rank_zero_only == b->rank_zero_only;
}

void lc__results_add_value(const lc__note *n, double v)
{
    lc__logged *e = &n->r->e[n->entry];
    v = lc__nan_without_sign(v);
    double weight = n->weight;
    lc_log_reduce how = (lc_log_reduce)e->args.reduce_fx;
    e->step = lc__step_value_note(&e->pieces, how, n->place, v, weight);
    e->step_weight = lc__step_value_weight(&e->pieces);
    e->has_step = true;
    e->step_number = n->step;
    if (weight == 0 || !e->on_epoch) return; /* the other ranks have samples; even a NaN adds nothing */
    switch (how) {
    case LC_LOG_MEAN:
    case LC_LOG_SUM:
        if (e->exact)
            lc__exact_add(&e->exact->epoch, how == LC_LOG_MEAN ? v * weight : v);
        else
            e->sum += how == LC_LOG_MEAN ? v * weight : v;
        break;
    case LC_LOG_MIN:
        e->sum = e->weight == 0 || v < e->sum || isnan(v) ? v : e->sum;
        break;
    case LC_LOG_MAX:
        e->sum = e->weight == 0 || v > e->sum || isnan(v) ? v : e->sum;
        break;
    }
    e->weight += weight;
}

double lc__logged_epoch_value(const lc__logged *e)
{
    double sum = e->exact && !e->of_metric ? lc__exact_value(&e->exact->epoch) : e->sum;
    return lc__nan_without_sign(e->args.reduce_fx == LC_LOG_MEAN ? sum / e->weight : sum);
}

static lc_status add_number(lc_trainer *t, const lc__note *n, double v)
{
    if (t->logging->arrivals) return lc__arrivals_add_number(t, n, v);
    lc__results_add_value(n, v);
    return LC_OK;
}

/* Adds a value of a step that has run. */
static lc_status add_pending(lc_trainer *t, lc__pending *p)
{
    if (!p->tensor) return add_number(t, &p->note, p->value);
    if (t->logging->arrivals) return lc__arrivals_add(t, &p->note, p->tensor);
    LC_TRY(lc_item(p->tensor, &p->value));
    lc__results_add_value(&p->note, p->value);
    return LC_OK;
}

lc_status lc__results_read(lc_trainer *t, lc__results *r)
{
    int n = r->n_pending;
    r->n_pending = r->n_read = 0;
    if (t->logging->arrivals) LC_TRY(lc__arrivals_look(t));
    for (int i = 0; i < n; i++) {
        lc__pending *p = &r->pending[i];
        lc_status s = add_pending(t, p);
        if (s < 0) return lc_fail_context(s, "logged value %s", r->e[p->note.entry].name);
    }
    r->n_read = n;
    return LC_OK;
}

bool lc__results_have(const lc__results *r, const lc_tensor *tensor, double *value)
{
    for (int i = 0; i < r->n_read; i++) {
        if (r->pending[i].tensor != tensor) continue;
        *value = r->pending[i].value;
        return true;
    }
    return false;
}

/* ---- publishing to callbacks and the progress bar ---- */

static void show(lc__metric_map *m, int *slot, const char *name, double v)
{
    if (*slot < 0 || *slot >= m->n || (m->v[*slot].name != name && strcmp(m->v[*slot].name, name) != 0))
        *slot = lc__map_slot(m, name);
    if (*slot >= 0) m->v[*slot].value = v;
}

lc_status lc__results_publish_step(lc_trainer *t, lc__results *r)
{
    if (t->logging->arrivals) return lc__arrivals_publish(t, r);
    lc__results_publish_now(t, r);
    return LC_OK;
}

void lc__results_publish_now(lc_trainer *t, lc__results *r)
{
    lc__metric_map *cb = &t->logging->metrics[LC_CALLBACK_METRICS],
                   *bar = &t->logging->metrics[LC_PROGRESS_BAR_METRICS];
    for (int i = 0; i < r->n; i++) {
        lc__logged *e = &r->e[i];
        if (!e->has_step || !e->on_step) continue;
        if (r->training) {
            show(cb, &e->slots[0], e->name, e->step);
            if (e->step_name != e->name) show(cb, &e->slots[1], e->step_name, e->step);
        }
        if (e->args.prog_bar) show(bar, &e->slots[3], e->step_name, e->step);
    }
}

lc_status lc__results_publish_epoch(lc_trainer *t, lc__results *r)
{
    lc__metric_map *cb = &t->logging->metrics[LC_CALLBACK_METRICS],
                   *bar = &t->logging->metrics[LC_PROGRESS_BAR_METRICS];
    LC_TRY(lc__arrivals_settle(t));
    for (int i = 0; i < r->n; i++) {
        lc__logged *e = &r->e[i];
        if (t->comm && lc__is_of_all_ranks(e)) continue; /* just logged by a hook: ranks must reduce it first */
        LC_TRY(lc__logged_compute(t, e));
        if (!e->active || !e->on_epoch || e->weight == 0) continue;
        double v = lc__logged_epoch_value(e);
        show(cb, &e->slots[0], e->name, v);
        if (e->epoch_name != e->name) show(cb, &e->slots[2], e->epoch_name, v);
        if (e->args.prog_bar) show(bar, &e->slots[4], e->epoch_name, v);
    }
    return LC_OK;
}

/* ---- lc_log ---- */

static lc_status refuse(lc_trainer *t, const char *name, lc_site site, const char *why)
{
    return lc_fail(LC_ERR_CONFIG, "lc_log(\"%.100s\")%s%s: %s (%s:%d)", name, t ? " in " : "",
                   t ? lc_hook_name(t->hook) : "", why, site.file ? site.file : "?", site.line);
}

/* A tensor, a metric or, if both are NULL, a number. */
typedef struct loggable {
    lc_tensor *tensor;
    lc_metric *metric;
    double value;
} loggable;

/* Why a metric cannot be logged like this; NULL: it can. */
static const char *metric_misuse(const lc_metric *metric, const lc_log_args *args)
{
    if (args->on_step == LC_ON)
        return ".on_step cannot be used with a metric, whose value is for the epoch; log the batch's own value with "
               "lc_log or lc_log_value";
    if (args->on_epoch == LC_OFF) return ".on_epoch cannot be off: the value of a metric is for the epoch";
    if (args->reduce_fx != LC_LOG_MEAN || args->batch_size)
        return ".reduce_fx and .batch_size cannot be used with a metric, which combines its batches itself";
    if (lc_metric_outputs(metric) != 1)
        return "the metric has several values; get them from lc_metric_compute_all and log each with lc_log_value";
    return NULL;
}

/* The arguments of a call of lc_log, with the defaults of its hook. */
typedef struct request {
    lc__results *r;
    const char *name;
    const lc_log_args *args;
    loggable what;
    int loader; /* for the name; LC__NO_LOADER: no suffix */
    int source; /* the loader of the batch; LC__ALL_LOADERS: the hook has none */
    bool on_step, on_epoch, batch_hook;
} request;

static request request_of(lc_trainer *t, const char *name, loggable what, const lc_log_args *args)
{
    bool evaluates = t->validating || t->stage != LC_STAGE_FIT;
    lc__hook_log rule = lc__hooks[t->hook].log;
    request q = {.r = evaluates ? &t->logging->eval_results : &t->logging->train_results,
                 .name = name,
                 .args = args,
                 .what = what,
                 .batch_hook = t->batch != NULL};
    bool suffix = evaluates && t->input->eval.n > 1 && q.batch_hook && args->add_dataloader_idx;
    q.loader = suffix ? t->dataloader_idx : LC__NO_LOADER;
    q.source = q.batch_hook ? t->dataloader_idx : LC__ALL_LOADERS;
    q.on_step = args->on_step != LC_AUTO ? args->on_step == LC_ON : rule == LC__LOG_STEP && !what.metric;
    q.on_epoch = args->on_epoch != LC_AUTO ? args->on_epoch == LC_ON : rule != LC__LOG_STEP || what.metric;
    return q;
}

/* The entry of a name that this hook logs for the first time. */
static lc_status add_entry(lc_trainer *t, const request *q, lc__logged **e)
{
    lc__hook_log rule = lc__hooks[t->hook].log;
    lc_site site = q->args->site;
    if (rule == LC__LOG_NOT) return refuse(t, q->name, site, "values cannot be logged here");
    const char *no = q->what.metric ? metric_misuse(q->what.metric, q->args) : NULL;
    if (no) return refuse(t, q->name, site, no);
    if (q->on_step && rule == LC__LOG_EPOCH_ONLY)
        return refuse(t, q->name, site, ".on_step cannot be used in this hook, which has no steps");
    if (!q->on_step && !q->on_epoch) return refuse(t, q->name, site, ".on_step and .on_epoch are both off");
    if (q->args->reduce_fx > LC_LOG_MAX)
        return refuse(t, q->name, site, ".reduce_fx must be LC_LOG_MEAN, _SUM, _MIN or _MAX");
    if (strstr(q->name, "/dataloader_idx_"))
        return refuse(t, q->name, site,
                      "the suffix /dataloader_idx_N is added by the trainer; turn it off with "
                      ".add_dataloader_idx = false");
    *e = lc__results_add(q->r, q->name, t->hook, q->loader, q->args, q->on_step, q->on_epoch);
    if (!*e) return LC_ERR_MEMORY;
    (*e)->given = q->name;
    (*e)->source = q->source;
    (*e)->of_metric = q->what.metric != NULL;
    return LC_OK;
}

/* Whether the call agrees with earlier ones of the same name. */
static lc_status check_entry(lc_trainer *t, const request *q, const lc__logged *e)
{
    if (q->r == &t->logging->eval_results && q->batch_hook && e->active && e->source != q->source && q->loader < 0)
        return refuse(t, q->name, q->args->site,
                      "without the suffix .add_dataloader_idx gives, a name belongs to one loader, but this one was "
                      "logged for another");
    if (!same_args(t, e, q->args, q->on_step, q->on_epoch))
        return refuse(t, q->name, q->args->site, "this name was logged before in this hook with different arguments");
    if (e->of_metric != (q->what.metric != NULL) || (e->metric && e->metric != q->what.metric))
        return refuse(t, q->name, q->args->site,
                      "this name was logged before in this hook for another metric, or for a plain value");
    return LC_OK;
}

/* Means are weighted by samples. */
static lc_status weigh(lc_trainer *t, const request *q, const lc__logged *e, double *weight)
{
    bool weighed = e->on_epoch || e->exact || t->device_parts || e->args.sync_dist;
    *weight = 1;
    if (q->what.metric || !weighed || e->args.reduce_fx != LC_LOG_MEAN) return LC_OK;
    if (lc__is_empty_share(t->batch)) {
        *weight = 0;
    } else if (q->args->batch_size > 0) {
        *weight = (double)q->args->batch_size;
    } else if (q->batch_hook) {
        int64_t size = t->batch->size;
        if (size <= 0 && t->batch->x && lc_tensor_ndim(t->batch->x) > 0) size = lc_tensor_dim(t->batch->x, 0);
        if (size <= 0 && e->on_epoch)
            return refuse(t, q->name, q->args->site,
                          "the batch does not say how many samples it has; give .batch_size");
        *weight = size > 0 ? (double)size : 1;
    }
    return LC_OK;
}

/* *waits: the tensor is read when the step has run. */
static lc_status log_tensor(lc_trainer *t, const request *q, const lc__note *note, bool *waits)
{
    lc__results *r = q->r;
    lc_tensor *tensor = q->what.tensor;
    *waits = true;
    if (lc_tensor_is_error(tensor)) return LC_OK; /* the recorder reports it, with its cause */
    if (lc_tensor_numel(tensor) != 1)
        return refuse(t, q->name, q->args->site, "a logged tensor must have one element; reduce it with lc_mean");
    if (t->device_parts && !lc_tensor_is_persistent(tensor) && tensor->graph != t->graph)
        return refuse(t, q->name, q->args->site,
                      "the value is for one device's part of the batch; log it in training_step, which every "
                      "device runs");
    if (t->recording) {
        LC_TRY(lc__grow(&r->pending, &r->cap_pending, r->n_pending, 1, "logged values"));
        r->pending[r->n_pending++] = (lc__pending){.note = *note, .tensor = lc_keep_at(tensor, q->args->site)};
        return LC_OK;
    }
    *waits = false;
    return add_pending(t, &(lc__pending){.note = *note, .tensor = tensor});
}

/* A number that this step logs after a tensor of the same name waits with it, so that the last of them is the step's.
 */
static lc_status log_number(lc_trainer *t, lc__results *r, const lc__note *note, double value)
{
    int i = 0;
    while (i < r->n_pending && r->pending[i].note.entry != note->entry) i++;
    if (i == r->n_pending) return add_number(t, note, value);
    LC_TRY(lc__grow(&r->pending, &r->cap_pending, r->n_pending, 1, "logged values"));
    r->pending[r->n_pending++] = (lc__pending){.note = *note, .value = value};
    return LC_OK;
}

static lc_status log_value(lc_trainer *t, const char *name, loggable what, const lc_log_args *args)
{
    if (!name || !*name) return refuse(t, "", args->site, "a value needs a name");
    request q = request_of(t, name, what, args);
    lc__results *r = q.r;
    lc__logged *e = lc__results_find(r, name, t->hook, q.loader);
    LC_TRY(e ? check_entry(t, &q, e) : add_entry(t, &q, &e));
    lc__note note = {.r = r, .entry = (int)(e - r->e), .place = t->place, .step = r->step};
    bool waits = false;
    LC_TRY(weigh(t, &q, e, &note.weight));
    e->active = true;
    e->source = q.source;
    if (what.metric)
        LC_TRY(lc__logged_metric(t, r, e, what.metric));
    else if (what.tensor)
        LC_TRY(log_tensor(t, &q, &note, &waits));
    else
        LC_TRY(log_number(t, r, &note, what.value));
    if (waits || t->recording) return LC_OK;
    /* Outside a step there is nothing to wait for. */
    return t->logging->epoch_end_reached ? lc__results_publish_epoch(t, r) : lc__results_publish_step(t, r);
}

static void log_to(lc_trainer *t, const char *name, loggable what, const lc_log_args *args)
{
    if (!t || !t->in_run || t->opt.barebones) return;
    if (t->logging->silent) { /* a metric does not count a pass without training either */
        if (what.metric) lc_metric_reset(what.metric);
        return;
    }
    lc_status s = log_value(t, name, what, args);
    if (s < 0) lc__defer_error(t, s);
}

/* The trainer to log with, or NULL. A wrong call is an error of the run or, without a trainer, of this thread. */
static lc_trainer *logs(lc_module *self, const char *name, const lc_log_args *args, const char *wrong)
{
    if (!lc__has_mark(self, LC__MARK_OF(MODULE))) {
        (void)lc__not_a(self, LC__MARK_OF(MODULE), "lc_log");
        return NULL;
    }
    lc_trainer *t = lc_module_root(self)->trainer;
    if (!name) wrong = "the name is NULL";
    if (!wrong) return t;
    lc_status s = refuse(t, name ? name : "", args->site, wrong);
    if (t && t->in_run) lc__defer_error(t, s);
    return NULL;
}

void lc_log_at(lc_module *self, const char *name, lc_tensor *value, const lc_log_args *given)
{
    LC__TAKE(args, lc_log, lc_log_args, given, );
    const char *wrong = !value ? "the value is NULL" : !lc__is_tensor(value) ? "the value is not a tensor" : NULL;
    log_to(logs(self, name, &args, wrong), name, (loggable){.tensor = value}, &args);
}

void lc_log_metric_at(lc_module *self, const char *name, lc_metric *metric, const lc_log_args *given)
{
    LC__TAKE(args, lc_log, lc_log_args, given, );
    const char *wrong = !metric                                      ? "the value is NULL"
                        : !lc__has_mark(metric, LC__MARK_OF(METRIC)) ? "this is not a metric"
                                                                     : NULL;
    log_to(logs(self, name, &args, wrong), name, (loggable){.metric = metric}, &args);
}

void lc_log_value_at(lc_module *self, const char *name, double value, const lc_log_args *given)
{
    LC__TAKE(args, lc_log, lc_log_args, given, );
    log_to(logs(self, name, &args, NULL), name, (loggable){.value = value}, &args);
}

void lc_trainer_log_at(lc_trainer *t, const char *name, double value, const lc_log_args *given)
{
    LC__TAKE(args, lc_log, lc_log_args, given, );
    LC__IS(t, TRAINER, );
    LC__NEEDS(name, );
    log_to(t, name, (loggable){.value = value}, &args);
}
