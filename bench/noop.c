/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's own cost per step: a module that does nothing, with everything off (noop) and with everything on
 * (everything: as bench/peer_everything.py in Lightning). */
#include "bench.h"

#include <fcntl.h>
#include <unistd.h>

typedef enum kind { BAREBONES, QUIET, LOG, DEFAULT, EVERYTHING } kind;

typedef struct noop {
    lc_module base;
    lc_tensor *w;
    kind kind;
} noop;

static lc_tensor *noop_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch;
    noop *m = (noop *)self;
    lc_tensor *loss = lc_sum(m->w);
    if (m->kind == LOG || m->kind == DEFAULT) lc_log(self, "loss", loss, .prog_bar = m->kind == DEFAULT);
    if (m->kind == EVERYTHING) {
        lc_log(self, "loss", loss, .on_step = true, .on_epoch = true, .prog_bar = true);
        lc_log(self, "twice", lc_add(loss, loss), .prog_bar = true);
        lc_log_value(self, "batch", (double)batch_idx);
        lc_log_value(self, "half", 0.5, .on_step = true, .on_epoch = true);
    }
    return loss;
}
static lc_status noop_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0));
}
static const lc_module_ops noop_ops = {LC_MODULE_OPS_INIT("noop"), .training_step = noop_step,
                                       .configure_optimizers = noop_optimizers};

static void noop_init(noop *m, kind what)
{
    int64_t one[] = {1};
    lc_module_init(&m->base, &noop_ops, 0);
    m->w = lc_module_add_parameter(&m->base, "w", LC_F32, LC_ROW_MAJOR, 1, one, (lc_init){LC_INIT_ZEROS});
    m->kind = what;
}

/* The bare loop: the same step without a trainer. */
static lc_status bare_step(const bench *b, int64_t n, double *seconds)
{
    noop m;
    lc_graph *g = NULL;
    lc_optimizer *opt = NULL;
    lc_status s;
    lc_graph_args options = LC_ARGS(lc_graph, .threads = (int)b->threads);
    noop_init(&m, BAREBONES);
    LC_TRY_GOTO(s, done, lc_graph_new_with(&g, &options));
    opt = lc_sgd(&m, .lr = 0);
    LC_TRY_GOTO(s, done, lc_module_status(&m.base));
    double start = 0;
    for (int64_t i = -100; i < n; i++) {
        if (i == 0) start = bench_now();
        LC_TRY_GOTO(s, done, lc_step_begin(g, (uint64_t)(i + 100), 0));
        lc_tensor *loss = lc_keep(lc_sum(m.w));
        lc_zero_grad(g);
        lc_backward(loss);
        lc_optimizer_step(opt);
        LC_TRY_GOTO(s, done, lc_step_run(g));
        LC_TRY_GOTO(s, done, lc_step_end(g));
    }
    *seconds = (bench_now() - start) / (double)n;
done:
    lc_optimizer_free(opt);
    lc_module_release(&m.base);
    lc_graph_free(g);
    return s;
}

/* A loader that returns the same tensor again and again. */
typedef struct same {
    int64_t n, at;
    float value[16];
    lc_batch batch;
} same;

static lc_status same_begin(void *self, int64_t epoch, int64_t start)
{
    (void)epoch;
    ((same *)self)->at = start;
    return LC_OK;
}
static lc_status same_next(void *self, lc_batch **out)
{
    same *d = self;
    *out = d->at++ < d->n ? &d->batch : NULL;
    return LC_OK;
}
static int64_t same_length(void *self, int64_t epoch)
{
    (void)epoch;
    return ((same *)self)->n;
}
static const lc_dataloader_ops same_ops = {LC_DATALOADER_OPS_INIT, .name = "same", .begin = same_begin,
                                           .next = same_next, .length = same_length};

/* ---- everything ---- */

#define TRY_ADD(t, make, ...)                                                                                          \
    do {                                                                                                               \
        lc_callback cb_;                                                                                               \
        LC_TRY(make(&cb_, __VA_ARGS__));                                                                               \
        LC_TRY(lc_trainer_add_callback(t, cb_));                                                                       \
    } while (0)

static lc_status add_everything(lc_trainer *t, int fd)
{
    static const lc_accumulation one_batch = {0, 1};
    TRY_ADD(t, lc_progress_bar, .fd = fd, .style = LC_PROGRESS_BAR);
    TRY_ADD(t, lc_model_summary, .fd = fd);
    lc_callback timer;
    LC_TRY(lc_timer_new(1e6, false, &timer));
    LC_TRY(lc_trainer_add_callback(t, timer));
    TRY_ADD(t, lc_learning_rate_monitor, .logging_interval = "step", .log_momentum = true, .log_weight_decay = true);
    TRY_ADD(t, lc_device_stats_monitor, );
    TRY_ADD(t, lc_throughput_monitor, .available_flops = 1e12);
    TRY_ADD(t, lc_gradient_accumulation_scheduler, .scheduling = &one_batch, .n_scheduling = 1);
    TRY_ADD(t, lc_ema_weight_averaging, );
    TRY_ADD(t, lc_early_stopping, .monitor = "loss_epoch");
    TRY_ADD(t, lc_model_checkpoint, .every_n_train_steps = 1000);
    return LC_OK;
}

/* ---- under the trainer ---- */

/* Includes the wait until the loggers' threads have written everything. */
static lc_status trainer_step(const bench *b, kind what, int64_t n, const char *folder, double *seconds)
{
    noop m;
    same d = {.n = n};
    int64_t one[] = {1};
    lc_dataloader *loader = NULL;
    lc_trainer *t = NULL;
    lc_status s;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    noop_init(&m, what);
    LC_TRY_GOTO(s, done, lc_input_new(LC_F32, 1, one, LC_ROW_MAJOR, d.value, &d.batch.x));
    d.batch.tensors[0] = d.batch.x;
    d.batch.names[0] = "x";
    d.batch.n = 1;
    d.batch.size = 1;
    LC_TRY_GOTO(s, done, lc_dataloader_from_ops(&same_ops, &d, &loader));
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 1;
    opt.threads = b->threads;
    opt.default_root_dir = folder;
    opt.barebones = what == BAREBONES;
    opt.logger = what == LOG ? "csv" : what == EVERYTHING ? "csv,tensorboard" : what == DEFAULT ? NULL : "none";
    if (what == EVERYTHING) {
        opt.profiler = "simple";
        opt.gradient_clip_val = 1;
        opt.log_every_n_steps = 1;
    } else if (what != DEFAULT) {
        opt.enable_checkpointing = opt.enable_progress_bar = opt.enable_model_summary = LC_OFF;
    }
    LC_TRY_GOTO(s, done, lc_trainer_new(&opt, &t));
    if (what == EVERYTHING) LC_TRY_GOTO(s, done, add_everything(t, fd));
    lc_run_args args = LC_ARGS(lc_run, .train_dataloader = loader);
    double start = bench_now();
    LC_TRY_GOTO(s, done, lc_trainer_fit_with(t, &m.base, &args));
    double trained = bench_now();
    lc_trainer_free(t);
    t = NULL;
    *seconds = ((what >= DEFAULT ? bench_now() : trained) - start) / (double)n;
done:
    lc_trainer_free(t);
    close(fd);
    lc_dataloader_free(loader);
    lc_tensor_unref(d.batch.x);
    lc_module_release(&m.base);
    return s;
}

/* The best of three, and its excess over the bare loop. */
static lc_status measure(const bench *b, int64_t n, int n_kinds, const kind *kinds)
{
    static const char *const metrics[] = {"trainer_step_barebones", "trainer_step_quiet", "trainer_step_log",
                                          "trainer_step_default", "trainer_step_everything"};
    char folder[256] = "";
    double base = 1e30, seconds = 0;
    lc_status s;
    LC_TRY(bench_folder(folder, sizeof folder));
    for (int r = 0; r < 3; r++) {
        LC_TRY_GOTO(s, done, bare_step(b, n, &seconds));
        if (seconds < base) base = seconds;
    }
    BENCH_EMIT(b, "bare_step", 1e6 * base, "us", {"steps", (double)n});
    for (int k = 0; k < n_kinds; k++) {
        double best = 1e30;
        for (int r = 0; r < 3; r++) {
            LC_TRY_GOTO(s, done, trainer_step(b, kinds[k], n, folder, &seconds));
            if (seconds < best) best = seconds;
        }
        BENCH_EMIT(b, metrics[kinds[k]], 1e6 * best, "us", {"over_bare_us", 1e6 * (best - base)}, {"steps", (double)n});
    }
done:
    bench_folder_remove(folder);
    return s;
}

/* Enough steps to make the start and end of a run negligible. */
lc_status bench_noop(const bench *b)
{
    return measure(b, b->steps ? b->steps : 200000, 4, (const kind[]){BAREBONES, QUIET, LOG, DEFAULT});
}

lc_status bench_everything(const bench *b)
{
    return measure(b, b->steps ? b->steps : 20000, 1, (const kind[]){EVERYTHING});
}
