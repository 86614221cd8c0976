/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs with the trainer and everything a run has: loader, log, validation, checkpoints. Times are measured as the
 * peers' callbacks measure them: training epochs without validation, divided by their number of steps. */
#include "bench.h"
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the clock ---- */

typedef struct stopwatch {
    double begin, last, total, first; /* first: end of the first step */
    double *gaps;
    int64_t steps, n_gaps, room;
    int64_t stop_after; /* steps; 0: never */
} stopwatch;

static lc_status on_train_epoch_start(void *self, lc_trainer *t)
{
    (void)t;
    stopwatch *w = self;
    w->last = 0;
    w->begin = bench_now();
    return LC_OK;
}
static lc_status on_train_batch_end(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx)
{
    (void)t, (void)outputs, (void)batch, (void)batch_idx;
    stopwatch *w = self;
    double now = bench_now();
    if (!w->steps) w->first = now;
    if (w->last && w->n_gaps < w->room) w->gaps[w->n_gaps++] = now - w->last;
    w->last = now;
    w->steps++;
    return w->stop_after && w->steps >= w->stop_after ? LC_STOP : LC_OK;
}
static lc_status on_validation_start(void *self, lc_trainer *t)
{
    stopwatch *w = self;
    if (!lc_trainer_sanity_checking(t)) w->total += bench_now() - w->begin;
    return LC_OK;
}
static lc_status on_validation_end(void *self, lc_trainer *t)
{
    (void)t;
    ((stopwatch *)self)->begin = bench_now();
    return LC_OK;
}
static lc_status on_train_epoch_end(void *self, lc_trainer *t)
{
    (void)t;
    stopwatch *w = self;
    w->total += bench_now() - w->begin;
    return LC_OK;
}
static const lc_callback_ops stopwatch_ops = {
    LC_CALLBACK_OPS_INIT("stopwatch"),        .on_train_epoch_start = on_train_epoch_start,
    .on_train_batch_end = on_train_batch_end, .on_validation_start = on_validation_start,
    .on_validation_end = on_validation_end,   .on_train_epoch_end = on_train_epoch_end,
};

/* ---- the module ---- */

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = model_loss((model *)self, batch->x, batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}
static lc_status validation_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    model *m = (model *)self;
    lc_tensor *logits = m->kind->logits(m, batch->x); /* [N,10] */
    lc_tensor *right = lc_eq(lc_argmax(logits, .dim = 1), batch->y);
    lc_log(self, "val_loss", lc_cross_entropy(logits, batch->y));
    lc_log(self, "val_acc", lc_mean(lc_cast(right, LC_F32)), .prog_bar = true);
    return LC_OK;
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    bool gpt = strcmp(((model *)self)->kind->name, "gpt") == 0;
    return lc_optimizers_add(out, gpt ? lc_adamw(self, .lr = 1e-3, .weight_decay = 0.1) : lc_adam(self, .lr = 1e-3));
}
static const lc_module_ops classifier_ops = {
    LC_MODULE_OPS_INIT("classifier"),
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
    .validation_step = validation_step,
};

/* ---- the data ---- */

enum { CONTEXT = 256, VOCABULARY = 65 };

/* Random tokens, as many as the steps need. */
static lc_status tokens(int64_t n, lc_dataset **out)
{
    lc_array arrays[2];
    for (int k = 0; k < 2; k++) {
        int64_t *ids = malloc((size_t)(n * CONTEXT) * sizeof *ids);
        arrays[k] = (lc_array){.field = {.name = k ? "y" : "x", .dtype = LC_I64, .ndim = 1, .shape = {CONTEXT}},
                               .data = ids,
                               .free = free};
        if (!ids) {
            if (k) free((void *)(uintptr_t)arrays[0].data);
            return lc_fail(LC_ERR_MEMORY, "out of memory: tokens");
        }
        for (int64_t i = 0; i < n * CONTEXT; i++)
            ids[i] = (int64_t)lc_random_below((uint64_t)k + 1, (uint64_t)i, VOCABULARY);
    }
    return lc_array_dataset_new(n, 2, arrays, out);
}

static lc_status datasets(const bench *b, const char *name, int64_t batch, lc_dataset *sets[2])
{
    const lc_idx_args normal = LC_ARGS(lc_idx, .mean = 0.2860, .std = 0.3530);
    if (strcmp(name, "gpt") != 0) return lc_mnist_load_with(b->data, &sets[0], &sets[1], &normal);
    LC_TRY(tokens((b->steps ? b->steps : 5) * batch * b->devices, &sets[0]));
    return tokens(batch, &sets[1]);
}

lc_status bench_epochs(const bench *b, const char *name, int64_t batch)
{
    double start = bench_now(), before = bench_since_exec();
    char folder[256] = "", devices[32];
    stopwatch w = {.room = 1 << 20};
    snprintf(devices, sizeof devices, "%lld", (long long)b->devices);
    lc_dataset *sets[2] = {0};
    lc_dataloader *loaders[2] = {0};
    lc_trainer *t = NULL;
    model *m = NULL;
    lc_status s;
    if (b->batch) batch = b->batch;
    w.gaps = malloc((size_t)w.room * sizeof *w.gaps);
    if (!w.gaps) return lc_fail(LC_ERR_MEMORY, "out of memory: the times of steps");
    LC_TRY_GOTO(s, done, bench_folder(folder, sizeof folder));
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    lc_callback clock = {&stopwatch_ops, &w};
    opt.max_epochs = b->epochs;
    opt.threads = b->threads;
    opt.precision = b->precision;
    opt.float32_matmul_precision = b->matmul_precision;
    if (b->devices > 1) opt.devices = devices;
    if (b->strategy) opt.strategy = b->strategy;
    opt.num_sanity_val_steps = 0;
    opt.logger = "csv";
    opt.default_root_dir = folder;
    opt.enable_model_summary = LC_OFF;
    opt.callbacks = &clock;
    opt.n_callbacks = 1;
    if (b->steps) opt.limit_train_batches = LC_BATCHES(b->steps), opt.limit_val_batches = LC_BATCHES(0);
    LC_TRY_GOTO(s, done, lc_trainer_new(&opt, &t));
    if (!t) goto done; /* this process only started the ranks, which have ended */
    LC_TRY_GOTO(s, done, datasets(b, name, batch, sets));
    for (int i = 0; i < 2; i++) {
        lc_dataloader_args o = LC_ARGS(lc_dataloader, .dataset = sets[i], .batch_size = batch, .shuffle = i == 0,
                                       .drop_last = i == 0, .num_workers = (int)b->workers);
        LC_TRY_GOTO(s, done, lc_dataloader_new_with(&loaders[i], &o));
    }
    m = model_new(name, &classifier_ops, 0);
    double fit = bench_now();
    lc_run_args args = LC_ARGS(lc_run, .train_dataloader = loaders[0], .val_dataloader = loaders[1]);
    LC_TRY_GOTO(s, done, lc_trainer_fit_with(t, &m->base, &args));
    double end = bench_now(), accuracy = 0;
    if (!lc_trainer_is_global_zero(t)) goto done;
    if (!b->steps) LC_TRY_GOTO(s, done, lc_trainer_metric(t, "val_acc", &accuracy));
    if (w.n_gaps) BENCH_EMIT(b, "step_median", 1e6 * bench_median(w.gaps, (int)w.n_gaps), "us", {"loader", 1});
    BENCH_EMIT(b, "step", 1e6 * w.total / (double)w.steps, "us", {"steps", (double)w.steps}, {"fit_s", end - fit},
               {"first_step_s", b->since > 0 ? w.first - b->since : before + w.first - start},
               {"total_s", before + end - start}, {"val_acc", accuracy}, {"devices", (double)b->devices});
done:
    lc_trainer_free(t);
    model_free(m);
    for (int i = 0; i < 2; i++) {
        lc_dataloader_free(loaders[i]);
        lc_dataset_unref(sets[i]);
    }
    if (folder[0]) bench_folder_remove(folder);
    free(w.gaps);
    return s < 0 ? s : LC_OK;
}

lc_status bench_mlp(const bench *b)
{
    if (!b->stepped) LC_TRY(bench_epochs(b, "mlp", 64));
    return b->loaded ? LC_OK : bench_steps(b, "mlp");
}

lc_status bench_fashion(const bench *b)
{
    if (!b->stepped) LC_TRY(bench_epochs(b, "fashion", 100));
    return b->loaded ? LC_OK : bench_steps(b, "fashion");
}

/* Child of `startup`: what the example mnist_mlp does up to the end of its first step, with the trainer's defaults. */
lc_status bench_first_step_idx(const bench *b)
{
    char folder[256] = "";
    stopwatch w = {.stop_after = 1};
    lc_dataset *whole = NULL, *test = NULL, *parts[2] = {0};
    lc_dataloader *loaders[2] = {0};
    lc_trainer *t = NULL;
    model *m = NULL;
    lc_status s;
    const lc_idx_args normal = LC_ARGS(lc_idx, .mean = 0.1307, .std = 0.3081);
    LC_TRY_GOTO(s, done, bench_folder(folder, sizeof folder));
    LC_TRY_GOTO(s, done, lc_mnist_load_with(b->data, &whole, &test, &normal));
    double loaded = bench_now();
    int64_t n = lc_dataset_length(whole), held_out = n / 12, counts[] = {n - held_out, held_out};
    LC_TRY_GOTO(s, done, lc_dataset_split(whole, 0, 2, counts, parts));
    for (int i = 0; i < 2; i++) {
        lc_dataloader_args o = LC_ARGS(lc_dataloader, .dataset = parts[i], .batch_size = 64, .shuffle = i == 0);
        LC_TRY_GOTO(s, done, lc_dataloader_new_with(&loaders[i], &o));
    }
    m = model_new("mlp", &classifier_ops, 0);
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    lc_callback clock = {&stopwatch_ops, &w};
    opt.max_epochs = 3;
    opt.threads = b->threads;
    opt.default_root_dir = folder;
    opt.limit_val_batches = LC_BATCHES(2); /* nothing after the first step matters */
    opt.callbacks = &clock;
    opt.n_callbacks = 1;
    LC_TRY_GOTO(s, done, lc_trainer_new(&opt, &t));
    lc_run_args args = LC_ARGS(lc_run, .train_dataloader = loaders[0], .val_dataloader = loaders[1]);
    LC_TRY_GOTO(s, done, lc_trainer_fit_with(t, &m->base, &args));
    BENCH_EMIT(b, "first_step", 1e3 * (w.first - b->since), "ms", {"loaded_ms", 1e3 * (loaded - b->since)});
    s = LC_OK;
done:
    lc_trainer_free(t);
    model_free(m);
    for (int i = 0; i < 2; i++) {
        lc_dataloader_free(loaders[i]);
        lc_dataset_unref(parts[i]);
    }
    lc_dataset_unref(whole);
    lc_dataset_unref(test);
    if (folder[0]) bench_folder_remove(folder);
    return s;
}
