/* SPDX-License-Identifier: Apache-2.0 */
/* No allocation in the steady step: malloc is counted on the training thread during a run with loader, optimizer,
 * schedule, logged values, loggers and callbacks. */
#include "test.h"
#include "trainer_world.h"

#if !defined(SANITIZED) && defined(__GLIBC__)
#define COUNTED 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
static _Thread_local int64_t allocations, fail_at; /* fail_at 0: never */

static bool fails(void)
{
    return ++allocations == fail_at;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    return fails() ? NULL : __libc_realloc(p, size);
}
void *aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}
#else
static int64_t allocations, fail_at;
#endif

enum { SAMPLES = 400, BATCH = 4 };

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
    lc_dataset *data;
    int64_t before, after;
    bool logs_media;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *x = lc_dropout(lc_relu(lc_linear_forward(&m->l1, b->x)), 0.1);
    lc_tensor *loss = lc_mse_loss(lc_flatten(lc_linear_forward(&m->l2, x), 0), b->y);
    lc_log(self, "train_loss", loss, .on_step = true, .on_epoch = true, .prog_bar = true);
    lc_log_value(self, "batch", (double)i);
    return loss;
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *opt = lc_adam(self, .lr = 1e-3);
    LC_TRY(lc_optimizers_add(out, opt));
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_step_lr(opt, .step_size = 10), .interval = LC_INTERVAL_STEP});
}
static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = ((net *)self)->data, .batch_size = BATCH, .shuffle = true));
    return lc_loaders_add(out, l);
}
static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b;
    if (m->logs_media && i % 20 == 15) {
        LC_TRY(lc_trainer_log_histogram(self->trainer, "weights", m->l1.weight, -1));
        LC_TRY(lc_trainer_log_image(self->trainer, "weights as an image", m->l1.weight, -1));
        LC_TRY(lc_trainer_log_text(self->trainer, "note", "a text", -1));
    }
    if (i == 30) m->before = allocations;
    if (i == SAMPLES / BATCH - 2) m->after = allocations;
    return LC_OK;
}
static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers, .train_dataloader = train_dataloader,
                                  .on_train_batch_end = on_train_batch_end};

/* Callbacks that are active in every step. */
typedef lc_status make_callback(lc_callback *out);
static lc_status make_timer(lc_callback *out)
{
    return lc_timer_new(1000, false, out);
}
static lc_status make_early_stopping(lc_callback *out)
{
    return lc_early_stopping(out, .monitor = "train_loss");
}
static lc_status make_ema(lc_callback *out)
{
    return lc_ema_weight_averaging_new(NULL, out);
}
static lc_status make_swa(lc_callback *out)
{
    static const double lr = 1e-3;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(1));
}
static lc_status make_norms(lc_callback *out)
{
    return lc_gradient_norm_monitor(out, .every_step = true);
}
static lc_status make_spikes(lc_callback *out)
{
    return lc_spike_detection(out, .skip = true, .atol = 1e9);
}
static lc_status make_throughput(lc_callback *out)
{
    return lc_throughput_monitor(out, .window_size = 8, .available_flops = 1e9);
}
static lc_status make_histograms(lc_callback *out)
{
    return lc_weight_histogram(out, .every_n_train_steps = 7, .gradients = true);
}
static lc_status make_pruning(lc_callback *out)
{
    return lc_model_pruning(out, .pruning_fn = "l1_unstructured");
}
static lc_status make_device_stats(lc_callback *out)
{
    return lc_device_stats_monitor_new(NULL, out);
}
static lc_status make_rates(lc_callback *out)
{
    return lc_learning_rate_monitor_new(NULL, out);
}
/* The last two need a logger. */
static make_callback *const callbacks[] = {make_timer,   make_early_stopping, make_ema,        make_swa,
                                           make_norms,   make_spikes,         make_throughput, make_histograms,
                                           make_pruning, make_device_stats,   make_rates};
enum { CALLBACKS = sizeof callbacks / sizeof *callbacks, NEED_NO_LOGGER = CALLBACKS - 2 };

static lc_status add_callbacks(lc_trainer *t, int first, int end)
{
    for (int i = first; i < end; i++) {
        lc_callback cb;
        LC_TRY(callbacks[i](&cb));
        LC_TRY(lc_trainer_add_callback(t, cb));
    }
    return LC_OK;
}

/* Fails one allocation after another: the run ends with an error, or succeeds all the same. */
static lc_status short_run(const char *dir, int64_t fail, const char *strategy)
{
    static float x[8 * 3], y[8];
    net m = {.before = -1};
    lc_trainer *t = NULL;
    lc_status status;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {3}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32}, .data = y}};
    fail_at = fail ? allocations + fail : 0;
    LC_TRY_GOTO(status, done, lc_array_dataset_new(8, 2, arrays, &m.data));
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.l1, &m, "l1", 3, 8);
    lc_linear_init(&m.l2, &m, "l2", 8, 1);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 2;
    o.threads = 1;
    o.log_every_n_steps = 1;
    o.logger = "csv";
    o.strategy = strategy;
    if (strategy) o.devices = "2";
    LC_TRY_GOTO(status, done, lc_trainer_new(&o, &t));
    LC_TRY_GOTO(status, done, add_callbacks(t, 0, CALLBACKS));
    status = lc_trainer_fit(t, &m.base);
done:
    lc_trainer_free(t);
    if (m.base.ops) lc_module_release(&m.base);
    lc_dataset_unref(m.data);
    fail_at = 0;
    return status;
}

/* strategy NULL: one device; otherwise three. */
static void run_with(const char *logger, int64_t accumulate, const char *strategy, const char *precision)
{
    static float x[SAMPLES * 3], y[SAMPLES];
    char dir[256];
    net m = {.before = -1};
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {3}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32}, .data = y}};
    CHECK_OK(lc_array_dataset_new(SAMPLES, 2, arrays, &m.data));
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.l1, &m, "l1", 3, 8);
    lc_linear_init(&m.l2, &m, "l2", 8, 1);
    lc_trainer_options o = world_options(dir);
    o.logger = logger;
    o.max_epochs = 1;
    o.log_every_n_steps = 5;
    o.accumulate_grad_batches = accumulate;
    o.gradient_clip_val = 1;
    o.strategy = strategy;
    o.precision = precision;
    if (strategy) o.devices = "3";
    m.logs_media = strstr(logger, "tensorboard") != NULL;
    CHECK_OK(lc_trainer_new(&o, &t));
    /* With loggers only a little more is logged: the queue of a writer that falls behind would grow. */
    CHECK_OK(add_callbacks(t, 0, strcmp(logger, "none") ? 4 : NEED_NO_LOGGER));
    CHECK_OK(add_callbacks(t, strcmp(logger, "none") ? CALLBACKS - 1 : CALLBACKS, CALLBACKS));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK(m.before > 0); /* building the run allocated, so allocations are counted */
    CHECK_EQ(m.after - m.before, 0);
    lc_trainer_free(t);
    lc_module_release(&m.base);
    lc_dataset_unref(m.data);
    world_remove(dir);
}

static void run(const char *logger, int64_t accumulate)
{
    run_with(logger, accumulate, NULL, NULL);
}

TEST(steady_step_of_several_devices)
{
#ifndef COUNTED
    SKIP("allocations are not counted in this build");
#endif
    run_with("none", 1, "data_parallel", NULL);
    run_with("none", 2, "data_parallel", "16-mixed");
    run_with("none", 1, "central_storage", NULL);
}

TEST(steady_step_without_loggers)
{
#ifndef COUNTED
    SKIP("allocations are not counted in this build");
#endif
    run("none", 1);
    run("none", 2);
}

TEST(steady_step_in_every_precision)
{
#ifndef COUNTED
    SKIP("allocations are not counted in this build");
#endif
    static const char *const precisions[] = {"bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"};
    for (int i = 0; i < 5; i++) run_with("none", 1, NULL, precisions[i]);
}

TEST(steady_step_with_loggers)
{
#ifndef COUNTED
    SKIP("allocations are not counted in this build");
#endif
    run("csv,sqlite", 1);
    run("csv,sqlite,tensorboard", 1);
}

static void fail_each(const char *strategy)
{
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(short_run(dir, 0, strategy)); /* objects made once per process exist from now on */
    int64_t before = allocations;
    CHECK_OK(short_run(dir, 0, strategy));
    int64_t n = allocations - before;
    CHECK(n > 100);
    for (int64_t k = 1; k <= n; k++) {
        lc_status s = short_run(dir, k, strategy);
        if (s < 0 && !lc_error_message()[0]) TEST_FAIL("no message when allocation %lld fails", (long long)k);
    }
    world_remove(dir);
}

TEST(every_allocation_may_fail)
{
#ifndef COUNTED
    SKIP("allocations are not counted in this build");
#endif
    fail_each(NULL);
}

TEST(every_allocation_may_fail_with_several_devices)
{
#ifndef COUNTED
    SKIP("allocations are not counted in this build");
#endif
    fail_each("data_parallel");
}

TEST_MAIN
