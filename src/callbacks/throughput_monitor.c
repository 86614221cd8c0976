/* SPDX-License-Identifier: Apache-2.0 */
/* ThroughputMonitor: batches, samples, items and floating-point operations a second, over a window of batches.
 *
 * The planner counts the operations (lc_graph_stats), so that no model has to state its cost; the utilization of the
 * machine (mfu) compares them with the rate of a large matrix product on this machine, or with a given number. */
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "callbacks/callbacks.h"
#include "base/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lightc/ops.h>

/* Totals after a batch. */
typedef struct sample {
    double time, batches, samples, lengths, flops;
} sample;

typedef struct window {
    sample *ring;
    int64_t n;
    sample now;
    int64_t start_ns;
    double start_flops;
} window;

enum { TRAIN, VALIDATE, TEST, PREDICT, STAGES };
static const char *const prefixes[STAGES] = {"train", "validate", "test", "predict"};
enum { KEYS = 9 };
static const char *const keys[KEYS] = {"time",
                                       "batches",
                                       "samples",
                                       "lengths",
                                       "device/batches_per_sec",
                                       "device/samples_per_sec",
                                       "device/items_per_sec",
                                       "device/flops_per_sec",
                                       "device/mfu"};

typedef struct throughput {
    lc_throughput_monitor_args a;
    window w[STAGES];
    char names[STAGES][KEYS][40];
    double peak;       /* operations a second; 0: not known yet */
    int64_t validated; /* batches of all validations of the epoch: the step of their rows, as in Lightning */
} throughput;

static double flops_of(const lc_trainer *t)
{
    lc_graph_stats stats;
    lc_graph_get_stats(t->graph, &stats);
    return stats.flops;
}

static double seconds_since(int64_t ns)
{
    return (double)(lc__now_ns() - ns) * 1e-9;
}

/* ---- the peak ---- */

static lc_status run_product(lc_graph *g, lc_tensor *x, lc_tensor *y, int64_t *ns)
{
    int64_t start = lc__now_ns();
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_keep(lc_matmul(x, y));
    lc_status s = lc_step_run(g);
    *ns = lc__now_ns() - start;
    lc_status ended = lc_step_end(g);
    return s < 0 ? s : ended;
}

/* The best of some large products, on a separate graph, before the run opens a step. */
static lc_status measure_peak(throughput *p, lc_trainer *t)
{
    enum { SIZE = 768, TRIES = 6 };
    lc_graph_args o = LC_ARGS(lc_graph, .threads = lc_graph_threads(t->graph));
    lc_graph *g = NULL;
    lc_tensor *x = NULL, *y = NULL;
    int64_t shape[] = {SIZE, SIZE}, ns, best = INT64_MAX;
    lc_status s;
    LC_TRY_GOTO(s, done, lc_graph_new_with(&g, &o));
    LC_TRY_GOTO(s, done, lc_tensor_new(LC_F32, 2, shape, &x));
    LC_TRY_GOTO(s, done, lc_tensor_new(LC_F32, 2, shape, &y));
    for (int i = 0; i < TRIES; i++) {
        LC_TRY_GOTO(s, done, run_product(g, x, y, &ns));
        if (i && ns < best) best = ns; /* the first run includes planning */
    }
    p->peak = 2.0 * SIZE * SIZE * SIZE / ((double)best * 1e-9);
done:
    lc_tensor_unref(x);
    lc_tensor_unref(y);
    lc_graph_free(g);
    return s;
}

static lc_status tp_setup(void *self, lc_trainer *t, lc_stage stage)
{
    throughput *p = self;
    if (stage == LC_STAGE_FIT) p->w[TRAIN].now = (sample){0};
    return p->peak > 0 ? LC_OK : measure_peak(p, t);
}

/* ---- measuring ---- */

static void start(throughput *p, const lc_trainer *t, int stage, sample from)
{
    window *w = &p->w[stage];
    w->n = 0;
    w->now = from;
    w->start_ns = lc__now_ns() - (int64_t)(from.time * 1e9);
    w->start_flops = flops_of(t) - from.flops;
}

static void update(throughput *p, const lc_trainer *t, int stage, const lc_batch *batch)
{
    window *w = &p->w[stage];
    int64_t samples = p->a.batch_size_fn ? p->a.batch_size_fn(p->a.context, batch) : batch->size;
    if (samples <= 0 && batch->x && lc_tensor_ndim(batch->x)) samples = lc_tensor_dim(batch->x, 0);
    w->now.time = seconds_since(w->start_ns);
    w->now.batches++;
    w->now.samples += (double)samples;
    if (p->a.length_fn) w->now.lengths += (double)p->a.length_fn(p->a.context, batch);
    w->now.flops = flops_of(t) - w->start_flops;
    w->ring[w->n++ % p->a.window_size] = w->now;
}

static lc_status send(throughput *p, lc_trainer *t, int stage, int64_t step, int64_t epoch)
{
    window *w = &p->w[stage];
    const sample *now = &w->now, *first = &w->ring[w->n % p->a.window_size];
    lc_metric_value row[KEYS];
    double values[KEYS] = {now->time, now->batches, now->samples, now->lengths};
    int n = 0;
    if (t->opt.fast_dev_run || !lc__should_log(t)) return LC_OK;
    double seconds = now->time - first->time;
    bool full = w->n >= p->a.window_size && seconds > 0;
    if (full) {
        values[4] = (now->batches - first->batches) / seconds;
        values[5] = (now->samples - first->samples) / seconds;
        values[6] = (now->lengths - first->lengths) / seconds;
        values[7] = (now->flops - first->flops) / seconds;
        values[8] = values[7] / p->peak;
    }
    for (int k = 0; k < (full ? KEYS : 4); k++)
        if (p->a.length_fn || (k != 3 && k != 6)) row[n++] = (lc_metric_value){p->names[stage][k], values[k]};
    for (int i = 0; i < n; i++) {
        int slot = lc__map_slot(lc__metrics(t, LC_CALLBACK_METRICS), row[i].name);
        if (slot < 0) return lc_fail(LC_ERR_MEMORY, "out of memory: metrics");
        lc__metrics(t, LC_CALLBACK_METRICS)->v[slot].value = row[i].value;
    }
    return lc_trainer_log_row(t, row, n, step, epoch);
}

/* ---- hooks ---- */

static lc_status tp_train_start(void *self, lc_trainer *t)
{
    throughput *p = self;
    start(p, t, TRAIN, p->w[TRAIN].now); /* totals of the run that is continued */
    return LC_OK;
}

static lc_status tp_epoch_start(void *self, lc_trainer *t)
{
    (void)t;
    ((throughput *)self)->validated = 0;
    return LC_OK;
}

static lc_status tp_train_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)i;
    update(self, t, TRAIN, b);
    return t->accumulating ? LC_OK : send(self, t, TRAIN, t->batches_that_stepped, t->current_epoch);
}

static int eval_stage(const lc_trainer *t)
{
    return t->stage == LC_STAGE_TEST ? TEST : t->stage == LC_STAGE_PREDICT ? PREDICT : VALIDATE;
}

static lc_status tp_eval_start(void *self, lc_trainer *t)
{
    if (!t->sanity) start(self, t, eval_stage(t), (sample){0});
    return LC_OK;
}

static lc_status tp_eval_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i,
                                   int loader)
{
    throughput *p = self;
    int stage = eval_stage(t);
    (void)o, (void)i, (void)loader;
    if (t->sanity) return LC_OK;
    update(p, t, stage, b);
    return send(p, t, stage, t->stage == LC_STAGE_FIT ? ++p->validated : t->input->eval_batches, -1);
}

/* The clock of training is stopped during validation. */
static lc_status tp_validation_end(void *self, lc_trainer *t)
{
    throughput *p = self;
    if (t->sanity || t->stage != LC_STAGE_FIT) return LC_OK;
    window *train = &p->w[TRAIN], *val = &p->w[VALIDATE];
    train->start_ns = lc__now_ns() - (int64_t)(train->now.time * 1e9);
    train->start_flops += flops_of(t) - val->start_flops;
    return LC_OK;
}

/* ---- state: totals continue, the window starts empty ---- */

static lc_status tp_save(void *self, lc_trainer *t, lc_state *out)
{
    const throughput *p = self;
    const sample *now = &p->w[TRAIN].now;
    (void)t;
    LC_TRY(lc_state_set_int(out, "validated", p->validated));
    LC_TRY(lc_state_set_double(out, "time_elapsed", now->time));
    LC_TRY(lc_state_set_double(out, "batches", now->batches));
    LC_TRY(lc_state_set_double(out, "samples", now->samples));
    LC_TRY(lc_state_set_double(out, "lengths", now->lengths));
    return lc_state_set_double(out, "flops", now->flops);
}

static lc_status tp_load(void *self, lc_trainer *t, const lc_state *in)
{
    throughput *p = self;
    sample *now = &p->w[TRAIN].now;
    (void)t;
    if (lc_state_find(in, "validated")) LC_TRY(lc_state_get_int(in, "validated", &p->validated));
    LC_TRY(lc_state_get_double(in, "time_elapsed", &now->time));
    LC_TRY(lc_state_get_double(in, "batches", &now->batches));
    LC_TRY(lc_state_get_double(in, "samples", &now->samples));
    LC_TRY(lc_state_get_double(in, "lengths", &now->lengths));
    return lc_state_get_double(in, "flops", &now->flops);
}

static void tp_release(void *self)
{
    throughput *p = self;
    for (int i = 0; i < STAGES; i++) free(p->w[i].ring);
}

static const lc_callback_ops throughput_ops = {
    LC_CALLBACK_OPS_INIT("ThroughputMonitor"),
    .no_vote = true,
    .ranks = LC_RANK_ZERO,
    .setup = tp_setup,
    .on_train_start = tp_train_start,
    .on_train_epoch_start = tp_epoch_start,
    .on_train_batch_end = tp_train_batch_end,
    .on_validation_start = tp_eval_start,
    .on_validation_batch_end = tp_eval_batch_end,
    .on_validation_end = tp_validation_end,
    .on_test_start = tp_eval_start,
    .on_test_batch_end = tp_eval_batch_end,
    .on_predict_start = tp_eval_start,
    .on_predict_batch_end = tp_eval_batch_end,
    .save_state = tp_save,
    .load_state = tp_load,
    .free = lc__owned_free,
};

lc_status lc_throughput_monitor_new(const lc_throughput_monitor_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_throughput_monitor, given);
    throughput *p = lc__owned_new(sizeof *p, tp_release);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory: ThroughputMonitor");
    p->a = *args;
    p->peak = p->a.available_flops;
    if (p->a.window_size < 2 || p->a.available_flops < 0) {
        int64_t size = p->a.window_size;
        lc__owned_free(p);
        return lc_fail(
            LC_ERR_CONFIG,
            "ThroughputMonitor: window_size is %lld; it must be at least 2, and available_flops not negative",
            (long long)size);
    }
    for (int i = 0; i < STAGES; i++) {
        p->w[i].ring = calloc((size_t)p->a.window_size, sizeof(sample));
        if (!p->w[i].ring) {
            lc__owned_free(p);
            return lc_fail(LC_ERR_MEMORY, "out of memory: ThroughputMonitor");
        }
        for (int k = 0; k < KEYS; k++) snprintf(p->names[i][k], sizeof p->names[i][k], "%s/%s", prefixes[i], keys[k]);
    }
    *out = (lc_callback){&throughput_ops, p};
    return LC_OK;
}
