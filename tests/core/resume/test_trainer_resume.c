/* SPDX-License-Identifier: Apache-2.0 */
/* k steps, stop, resume, n - k steps = n steps, bit for bit: at every batch, inside epochs and accumulation windows. */
#include "test.h"
#include "trainer_world.h"

enum { SAMPLES = 42, FEATURES = 5, BATCH = 4, EPOCHS = 3 };

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
    lc_batch_norm1d norm;
    lc_dataset *data;
    int64_t stop_after; /* training batches, or -1 */
    int64_t batches;
    int step_schedule;
} net;

static float features[SAMPLES * FEATURES], targets[SAMPLES];

static lc_tensor *net_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *x = lc_batch_norm1d_forward(&m->norm, lc_linear_forward(&m->l1, b->x));
    x = lc_dropout(lc_relu(x), 0.3);
    lc_tensor *loss = lc_mse_loss(lc_flatten(lc_linear_forward(&m->l2, x), 0), b->y);
    lc_log(self, "train_loss", loss, .on_step = true, .on_epoch = true);
    return loss;
}
static lc_status net_validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    net *m = (net *)self;
    (void)i, (void)d;
    lc_tensor *x = lc_relu(lc_batch_norm1d_forward(&m->norm, lc_linear_forward(&m->l1, b->x)));
    lc_log(self, "val_loss", lc_mse_loss(lc_flatten(lc_linear_forward(&m->l2, x), 0), b->y));
    return LC_OK;
}
static lc_status net_configure_optimizers(lc_module *self, lc_optimizers *out)
{
    net *m = (net *)self;
    lc_optimizer *opt = lc_adam(self, .lr = 1e-2);
    LC_TRY(lc_optimizers_add(out, opt));
    if (m->step_schedule)
        return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_exponential_lr(opt, .gamma = 0.9),
                                                                      .interval = LC_INTERVAL_STEP,
                                                                      .frequency = 2});
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_reduce_lr_on_plateau(opt, .patience = 0, .factor = 0.5),
                                   .monitor = "val_loss"});
}
static lc_status net_loader(lc_module *self, lc_loaders *out, bool shuffle)
{
    net *m = (net *)self;
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->data, .batch_size = BATCH, .shuffle = shuffle, .seed = 7));
    return lc_loaders_add(out, l);
}
static lc_status net_train_dataloader(lc_module *self, lc_loaders *out)
{
    return net_loader(self, out, true);
}
static lc_status net_val_dataloader(lc_module *self, lc_loaders *out)
{
    return net_loader(self, out, false);
}
static lc_status net_on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b, (void)i;
    return ++m->batches == m->stop_after ? world_die(self) : LC_OK;
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"),
                                      .training_step = net_training_step,
                                      .validation_step = net_validation_step,
                                      .configure_optimizers = net_configure_optimizers,
                                      .train_dataloader = net_train_dataloader,
                                      .val_dataloader = net_val_dataloader,
                                      .on_train_batch_end = net_on_train_batch_end};

typedef struct result {
    float weights[512];
    size_t n;
    double train_loss, val_loss;
    int64_t global_step, epoch;
    lc_early_stopping_info stopping;
    memory_logger rows;
} result;

static lc_status copy_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    result *r = ctx;
    size_t n = (size_t)lc_tensor_numel(t->tensor);
    (void)path, (void)owner;
    if (lc_tensor_dtype(t->tensor) != LC_F32) return LC_OK;
    LC_TRY(lc_tensor_read(t->tensor, r->weights + r->n, n * sizeof(float)));
    r->n += n;
    return LC_OK;
}

/* Trains from `ckpt` (NULL: from the start); with stop_after >= 0 it ends there, as in a crash. */
static lc_status train(const char *dir, const char *ckpt, int64_t stop_after, int64_t accumulate, int step_schedule,
                       double val_interval, result *out)
{
    net m = {.stop_after = stop_after, .step_schedule = step_schedule};
    lc_trainer *t = NULL;
    lc_status status;
    int64_t n = 0;
    memset(out, 0, sizeof *out);
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = features},
                         {.field = {.name = "y", .dtype = LC_F32}, .data = targets}};
    for (int i = 0; i < SAMPLES * FEATURES; i++) features[i] = (float)lc_random_normal(11, (uint64_t)i);
    for (int i = 0; i < SAMPLES; i++) targets[i] = features[i * FEATURES] - 2 * features[i * FEATURES + 1];
    LC_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &m.data));
    lc_module_init(&m.base, &net_ops, 3);
    lc_linear_init(&m.l1, &m, "l1", FEATURES, 8);
    lc_batch_norm1d_init(&m.norm, &m, "norm", 8);
    lc_linear_init(&m.l2, &m, "l2", 8, 1);
    lc_logger logger = {&memory_ops, &out->rows};
    lc_callback callbacks[2];
    LC_TRY_GOTO(status, done, lc_learning_rate_monitor_new(NULL, &callbacks[0]));
    LC_TRY_GOTO(status, done, lc_early_stopping(&callbacks[1], .monitor = "val_loss", .patience = 100));
    lc_trainer_options o = world_options(dir);
    o.loggers = &logger;
    o.n_loggers = 1;
    o.callbacks = callbacks;
    o.n_callbacks = 2;
    o.max_epochs = EPOCHS;
    o.accumulate_grad_batches = accumulate;
    o.gradient_clip_val = 0.5;
    o.val_check_interval = LC_FRACTION(val_interval);
    o.log_every_n_steps = 1;
    o.threads = 1;
    o.enable_checkpointing = LC_OFF;
    LC_TRY_GOTO(status, done, lc_trainer_new(&o, &t));
    status = lc_trainer_fit(t, &m.base, .ckpt_path = ckpt);
    if (status == LC_ERR_USER && stop_after >= 0) status = LC_OK;
    if (status < 0) goto done;
    status = lc_module_visit(&m.base, copy_tensor, out);
    out->global_step = lc_trainer_global_step(t);
    out->epoch = lc_trainer_current_epoch(t);
    if (status >= 0) status = lc_early_stopping_get(&callbacks[1], &out->stopping);
    if (stop_after < 0 && (lc_trainer_metric(t, "train_loss_epoch", &out->train_loss) < 0 ||
                           lc_trainer_metric(t, "val_loss", &out->val_loss) < 0))
        status = LC_ERR_INTERNAL;
done:
    (void)n;
    lc_trainer_free(t);
    lc_module_release(&m.base);
    lc_dataset_unref(m.data);
    return status;
}

/* The rows of the two parts, one after the other, must be those of the whole run. Rows of the batch at which the run
 * ended were never written: the second part must have them, from its first row on. */
static bool rows_continue(const char *whole, const char *second)
{
    size_t a = strlen(whole), b = strlen(second);
    return b <= a && !strcmp(whole + a - b, second);
}

static void check_every_k(int64_t accumulate, int step_schedule, double val_interval)
{
    static result whole, first, second;
    char dir[256], path[300];
    int64_t per_epoch = (SAMPLES + BATCH - 1) / BATCH;
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(train(dir, NULL, -1, accumulate, step_schedule, val_interval, &whole));
    CHECK(whole.n > 50);
    for (int64_t k = 1; k <= per_epoch * EPOCHS; k++) {
        CHECK_OK(train(dir, NULL, k, accumulate, step_schedule, val_interval, &first));
        snprintf(path, sizeof path, "%s/stop.ckpt", dir);
        CHECK_OK(train(dir, path, -1, accumulate, step_schedule, val_interval, &second));
        if (second.n != whole.n || memcmp(second.weights, whole.weights, whole.n * sizeof(float)) != 0)
            TEST_FAIL("weights differ after a resume at batch %lld (accumulate %lld)", (long long)k,
                      (long long)accumulate);
        CHECK_EQ(second.global_step, whole.global_step);
        CHECK_EQ(second.epoch, whole.epoch);
        CHECK_EQ(second.stopping.wait_count, whole.stopping.wait_count);
        CHECK(second.stopping.best_score == whole.stopping.best_score);
        if (second.train_loss != whole.train_loss || second.val_loss != whole.val_loss)
            TEST_FAIL("metrics differ after a resume at batch %lld: %.17g %.17g, wanted %.17g %.17g", (long long)k,
                      second.train_loss, second.val_loss, whole.train_loss, whole.val_loss);
        if (!rows_continue(whole.rows.text, second.rows.text))
            TEST_FAIL("rows after a resume at batch %lld:\n%s\nare not the end of\n%s", (long long)k, second.rows.text,
                      whole.rows.text);
    }
    world_remove(dir);
}

TEST(resume_at_every_batch)
{
    check_every_k(1, 1, 1.0);
}
TEST(resume_at_every_batch_of_windows)
{
    check_every_k(3, 1, 1.0);
}
TEST(plateau_and_validation_inside_epochs)
{
    check_every_k(2, 0, 0.25);
}

TEST_MAIN
