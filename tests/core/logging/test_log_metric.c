/* SPDX-License-Identifier: Apache-2.0 */
/* lc_log_metric: metrics are logged like values, over epochs and evaluations, and survive a resume at every batch. */
#include "test.h"
#include "trainer_world.h"

enum { BATCHES = 5, EPOCHS = 3, KINDS = 4 };

/* A mean of squares, a correlation that is merged by a formula, one that keeps every sample, a plain mean. */
static const char *const kinds[KINDS] = {"MeanSquaredError", "PearsonCorrCoef", "SpearmanCorrCoef", "MeanMetric"};

typedef struct scored {
    world w;
    lc_metric *train[KINDS], *val[2], *bad;
    void (*log_badly)(struct scored *m, lc_hook hook);
    const double *script;        /* the error in the n-th validation, in place of the batch's */
    int64_t stop_after, batches; /* saves and ends after this many batches */
    bool at_end;                 /* saves at the end of the epoch rather than after the batch */
    memory_logger rows;
    double at_epoch_end[EPOCHS][KINDS + 1], val_at_epoch_end[EPOCHS];
} scored;

static lc_tensor *scored_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    scored *m = (scored *)self;
    float x[8];
    int64_t n = lc_tensor_numel(b->x);
    lc_tensor *predicted = lc_mul(m->w.w, b->x);
    if (m->log_badly) m->log_badly(m, LC_HOOK_TRAINING_STEP);
    if (lc_tensor_read(predicted, x, (size_t)n * sizeof *x) < 0) return NULL;
    float y[8]; /* no metric is perfect, and every sum is rounded */
    for (int64_t k = 0; k < n; k++) y[k] = sinf((float)(i * n + k)) * 3 + 0.1F;
    for (int k = 0; k < KINDS && m->train[k]; k++) {
        lc_metric_batch batch = {.n = n, .columns = 1, .scores = x, .values = k == 3 ? NULL : y};
        if (lc_metric_update(m->train[k], &batch) < 0) return NULL;
        lc_log_metric(self, kinds[k], m->train[k], .prog_bar = k == 0);
    }
    return lc_mul_scalar(lc_mean(predicted), 0.01);
}

static lc_status save_and_die(lc_module *self)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/stop.ckpt", lc_trainer_get_options(self->trainer)->default_root_dir);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

/* The same metric from a second hook: it must not be counted twice after a resume. */
static lc_status scored_on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    scored *m = (scored *)self;
    (void)o, (void)b, (void)i;
    if (m->train[0]) lc_log_metric(self, "again", m->train[0]);
    return ++m->batches == m->stop_after && !m->at_end ? save_and_die(self) : LC_OK;
}

static lc_status scored_validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    scored *m = (scored *)self;
    float x[8], zeros[8] = {0};
    int64_t n = lc_tensor_numel(b->x);
    (void)i;
    LC_TRY(lc_tensor_read(b->x, x, (size_t)n * sizeof *x));
    for (int64_t k = 0; k < n && m->script; k++) x[k] = (float)m->script[m->w.val_runs];
    LC_TRY(lc_metric_update_values(m->val[d], n, zeros, x));
    lc_log_metric(self, "rmse", m->val[d], .prog_bar = true);
    return LC_OK;
}

static lc_status scored_on_validation_epoch_start(lc_module *self)
{
    ((scored *)self)->w.val_runs += !lc_trainer_sanity_checking(self->trainer);
    return LC_OK;
}

static lc_status scored_on_fit_start(lc_module *self)
{
    scored *m = (scored *)self;
    if (m->log_badly) m->log_badly(m, LC_HOOK_ON_FIT_START);
    return LC_OK;
}

static lc_status scored_on_train_epoch_end(lc_module *self)
{
    scored *m = (scored *)self;
    int64_t e = lc_trainer_current_epoch(self->trainer);
    if (m->log_badly) m->log_badly(m, LC_HOOK_ON_TRAIN_EPOCH_END);
    for (int k = 0; k < KINDS && m->train[k] && e < EPOCHS; k++)
        LC_TRY(lc_trainer_metric(self->trainer, kinds[k], &m->at_epoch_end[e][k]));
    if (m->train[0] && e < EPOCHS) LC_TRY(lc_trainer_metric(self->trainer, "again", &m->at_epoch_end[e][KINDS]));
    if (m->val[0] && !m->val[1] && e < EPOCHS)
        LC_TRY(lc_trainer_metric(self->trainer, "rmse", &m->val_at_epoch_end[e]));
    return m->batches == m->stop_after && m->at_end ? save_and_die(self) : LC_OK;
}

static const lc_module_ops scored_ops = {
    LC_MODULE_OPS_INIT("scored"),
    .training_step = scored_training_step,
    .validation_step = scored_validation_step,
    .test_step = scored_validation_step,
    .on_fit_start = scored_on_fit_start,
    .on_train_batch_end = scored_on_train_batch_end,
    .on_validation_epoch_start = scored_on_validation_epoch_start,
    .on_train_epoch_end = scored_on_train_epoch_end,
    .configure_optimizers = world_configure_optimizers,
    .train_dataloader = world_train_dataloader,
    .val_dataloader = world_val_dataloader,
    .test_dataloader = world_val_dataloader,
};
static const lc_module_ops unscored_ops = {
    LC_MODULE_OPS_INIT("unscored"),
    .training_step = scored_training_step,
    .on_fit_start = scored_on_fit_start,
    .on_train_batch_end = scored_on_train_batch_end,
    .on_train_epoch_end = scored_on_train_epoch_end,
    .configure_optimizers = world_configure_optimizers,
    .train_dataloader = world_train_dataloader,
};

static void scored_init(scored *m, const lc_module_ops *ops, int64_t n_val)
{
    memset(m, 0, sizeof *m);
    world_init(&m->w, ops, BATCHES, n_val);
    m->w.batch_size = 2;
    m->w.lr = 0.3;
}

static lc_metric *rmse(void)
{
    lc_metric *m = NULL;
    CHECK_OK(lc_metric_new("MeanSquaredError", &m, .not_squared = true));
    return m;
}

static void train_metrics(scored *m)
{
    for (int k = 0; k < KINDS; k++) CHECK_OK(lc_metric_new(kinds[k], &m->train[k]));
}

static void scored_release(scored *m)
{
    for (int k = 0; k < KINDS; k++) lc_metric_free(m->train[k]);
    lc_metric_free(m->val[0]);
    lc_metric_free(m->val[1]);
    lc_metric_free(m->bad);
    world_release(&m->w);
}

static double first_of_state(const lc_metric *m)
{
    double state[16];
    int64_t n = 16;
    CHECK_OK(lc_metric_save(m, state, &n));
    return state[0];
}

static double named(lc_trainer *t, lc_metric_set set, const char *name)
{
    for (int i = 0; i < lc_trainer_metric_count(t, set); i++)
        if (!strcmp(lc_trainer_metric_at(t, set, i).name, name)) return lc_trainer_metric_at(t, set, i).value;
    return NAN;
}

/* Samples 0, 1, 2, 3 against zeros: the root is taken of the mean over all of them, it is not a mean of roots; each
 * epoch starts from zero, whatever the sanity check has seen. */
TEST(values)
{
    scored m;
    char dir[256];
    lc_trainer *t;
    memory_logger rows = {.n = 0};
    lc_logger logger = {&memory_ops, &rows};
    CHECK(world_dir(dir, sizeof dir));
    scored_init(&m, &scored_ops, 2);
    m.w.lr = 0;
    m.val[0] = rmse();
    m.train[0] = rmse();
    lc_trainer_options o = world_options(dir);
    o.loggers = &logger;
    o.n_loggers = 1;
    o.max_epochs = 2;
    o.num_sanity_val_steps = 1;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.w.base));
    double trained = 0;
    for (int i = 0; i < 10; i++) {
        double off = i - (double)(sinf((float)i) * 3 + 0.1F);
        trained += off * off / 10;
    }
    trained = sqrt(trained);
    for (int e = 0; e < 2; e++) {
        CHECK_NEAR(m.val_at_epoch_end[e], sqrt(14.0 / 4), 1e-12);
        CHECK_NEAR(m.at_epoch_end[e][0], trained, 1e-6);
        CHECK_NEAR(m.at_epoch_end[e][KINDS], trained, 1e-6);
    }
    CHECK_NEAR(named(t, LC_CALLBACK_METRICS, "rmse"), sqrt(14.0 / 4), 1e-12);
    CHECK_NEAR(named(t, LC_LOGGED_METRICS, "rmse"), sqrt(14.0 / 4), 1e-12);
    CHECK_NEAR(named(t, LC_PROGRESS_BAR_METRICS, "rmse"), sqrt(14.0 / 4), 1e-12);
    CHECK_NEAR(named(t, LC_PROGRESS_BAR_METRICS, kinds[0]), trained, 1e-6);
    char want[300], row[100];
    snprintf(row, sizeof row, "MeanSquaredError=%.6g again=%.6g", trained, trained);
    snprintf(want, sizeof want,
             "step=4 epoch=0 rmse=1.87083|step=4 epoch=0 %s|step=9 epoch=1 rmse=1.87083|step=9 epoch=1 %s|", row, row);
    CHECK_STR(rows.text, want);
    CHECK(first_of_state(m.val[0]) == 0); /* reset after the last epoch */
    CHECK(first_of_state(m.train[0]) == 0);
    CHECK_OK(lc_trainer_test(t, &m.w.base));
    lc_metrics result = lc_trainer_results(t, 0);
    CHECK_EQ(result.n, 1);
    CHECK_STR(result.values[0].name, "rmse");
    CHECK_NEAR(result.values[0].value, sqrt(14.0 / 4), 1e-12);
    CHECK(first_of_state(m.val[0]) == 0);
    /* The trainer has forgotten them: they may be freed before it. */
    scored_release(&m);
    lc_trainer_free(t);
    world_remove(dir);
}

TEST(a_metric_per_loader)
{
    scored m;
    char dir[256];
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    scored_init(&m, &scored_ops, 2);
    m.w.n_val2 = 3;
    m.val[0] = rmse();
    m.val[1] = rmse();
    lc_trainer_options o = world_options(dir);
    CHECK_OK(lc_trainer_new(&o, &t));
    for (int again = 0; again < 2; again++) {
        CHECK_OK(lc_trainer_validate(t, &m.w.base));
        CHECK_NEAR(named(t, LC_CALLBACK_METRICS, "rmse/dataloader_idx_0"), sqrt(14.0 / 4), 1e-12);
        CHECK_NEAR(named(t, LC_CALLBACK_METRICS, "rmse/dataloader_idx_1"), sqrt(55.0 / 6), 1e-12);
        for (int i = 0; i < 2; i++) {
            lc_metrics result = lc_trainer_results(t, i);
            CHECK_EQ(result.n, 1);
            CHECK_NEAR(result.values[0].value, i ? sqrt(55.0 / 6) : sqrt(14.0 / 4), 1e-12);
        }
    }
    lc_trainer_free(t);
    scored_release(&m);
    world_remove(dir);
}

#define BADLY(id, in, ...)                                                                                             \
    static void id(scored *m, lc_hook hook)                                                                            \
    {                                                                                                                  \
        lc_module *self = &m->w.base;                                                                                  \
        if (hook == LC_HOOK_##in) __VA_ARGS__;                                                                         \
    }

static void count_warnings(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)t;
    if (level == LC_WARNING && strstr(text, "metric bad was logged, but has counted nothing")) ++*(int *)self;
}

BADLY(never_updated, TRAINING_STEP, lc_log_metric(self, "bad", m->bad))
BADLY(updated, TRAINING_STEP, {
    CHECK_OK(lc_metric_update_value(m->bad, 0, 1));
    lc_log_metric(self, "bad", m->bad);
})

/* As in TorchMetrics: a warning, once. */
TEST(a_metric_that_is_never_updated)
{
    for (int updates = 0; updates < 2; updates++) {
        scored m;
        char dir[256];
        int warnings = 0;
        lc_trainer *t;
        lc_callback listener;
        CHECK(world_dir(dir, sizeof dir));
        scored_init(&m, &unscored_ops, 0);
        CHECK_OK(lc_metric_new("SumMetric", &m.bad));
        m.log_badly = updates ? updated : never_updated;
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 2;
        CHECK_OK(lc_lambda_callback(&listener, .context = &warnings, .on_message = count_warnings));
        o.callbacks = &listener, o.n_callbacks = 1;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_OK(lc_trainer_fit(t, &m.w.base));
        CHECK_EQ(warnings, updates ? 0 : 1);
        lc_trainer_free(t);
        scored_release(&m);
        world_remove(dir);
    }
}

/* A metric that two loaders, or training and validation, share would count both: an error, not a wrong value. */
TEST(a_shared_metric_is_refused)
{
    for (int with_training = 0; with_training < 2; with_training++) {
        scored m;
        char dir[256];
        lc_trainer *t;
        CHECK(world_dir(dir, sizeof dir));
        scored_init(&m, &scored_ops, 2);
        m.val[0] = rmse();
        if (with_training) {
            m.train[0] = m.val[0];
        } else {
            m.w.n_val2 = 3;
            m.val[1] = m.val[0];
        }
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 1;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_STATUS(lc_trainer_fit(t, &m.w.base), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), with_training ? "metric rmse: training logs it too"
                                                         : "metric rmse/dataloader_idx_1: another loader logs it too");
        lc_trainer_free(t);
        m.train[0] = m.val[1] = NULL;
        scored_release(&m);
        world_remove(dir);
    }
}

/* Scores 3, 2, 2.5: early stopping waits for one epoch and stops; the best checkpoint is that of 2. */
TEST(metrics_can_be_monitored)
{
    static const double script[] = {3, 2, 2.5, 1};
    scored m;
    char dir[256];
    lc_trainer *t;
    lc_callback cb[2];
    lc_early_stopping_info stopped;
    lc_model_checkpoint_info saved;
    CHECK(world_dir(dir, sizeof dir));
    scored_init(&m, &scored_ops, 2);
    m.val[0] = rmse();
    m.script = script;
    CHECK_OK(lc_early_stopping(&cb[0], .monitor = "rmse", .patience = 1));
    CHECK_OK(lc_model_checkpoint(&cb[1], .monitor = "rmse", .dirpath = dir, .filename = ("{epoch}-{rmse:.2f}")));
    lc_trainer_options o = world_options(dir);
    o.callbacks = cb;
    o.n_callbacks = 2;
    o.max_epochs = 4;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.w.base));
    CHECK_OK(lc_early_stopping_get(&cb[0], &stopped));
    CHECK_OK(lc_model_checkpoint_get(&cb[1], &saved));
    CHECK_EQ(stopped.stopped_epoch, 2);
    CHECK(stopped.best_score == 2);
    CHECK(saved.best_model_score == 2);
    CHECK_CONTAINS(saved.best_model_path, "epoch=1-rmse=2.00.ckpt");
    lc_trainer_free(t);
    scored_release(&m);
    world_remove(dir);
}

/* ---- resuming ---- */

/* Trains from `ckpt` (NULL: from scratch) to max_epochs, or until the stop_after-th batch is saved. */
static lc_status train(const char *dir, const char *ckpt, int64_t stop_after, bool at_end, int64_t max_steps, scored *m)
{
    lc_trainer *t = NULL;
    char path[300];
    scored_init(m, &unscored_ops, 0);
    train_metrics(m);
    m->stop_after = stop_after;
    m->at_end = at_end;
    lc_logger logger = {&memory_ops, &m->rows};
    lc_trainer_options o = world_options(dir);
    o.loggers = &logger;
    o.n_loggers = 1;
    o.max_epochs = EPOCHS;
    o.max_steps = max_steps;
    o.threads = 1;
    o.enable_checkpointing = LC_OFF;
    LC_TRY(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m->w.base, .ckpt_path = ckpt);
    if (s == LC_ERR_USER && stop_after > 0) s = LC_OK;
    snprintf(path, sizeof path, "%s/steps.ckpt", dir);
    if (s >= 0 && max_steps > 0) s = lc_trainer_save_checkpoint(t, path, false);
    if (s >= 0 && max_steps <= 0) CHECK(first_of_state(m->train[0]) == 0);
    lc_trainer_free(t);
    return s;
}

/* Compares the epochs from `from` on, and the rows after the resume with the last rows of the whole run. */
static void check_same(const scored *whole, const scored *second, int64_t from, int64_t k)
{
    size_t all = strlen(whole->rows.text), n = strlen(second->rows.text);
    if (n > all || strcmp(whole->rows.text + all - n, second->rows.text) != 0)
        TEST_FAIL("rows after a resume at batch %d: %s, of %s", (int)k, second->rows.text, whole->rows.text);
    for (int64_t e = from; e < EPOCHS; e++)
        for (int i = 0; i <= KINDS; i++)
            if (memcmp(&whole->at_epoch_end[e][i], &second->at_epoch_end[e][i], sizeof(double)) != 0)
                TEST_FAIL("%s of epoch %d after a resume at batch %d: %.17g, wanted %.17g",
                          i < KINDS ? kinds[i] : "again", (int)e, (int)k, second->at_epoch_end[e][i],
                          whole->at_epoch_end[e][i]);
}

TEST(resume_at_every_batch)
{
    scored whole, part, second;
    char dir[256], path[300];
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(train(dir, NULL, 0, false, -1, &whole));
    for (int i = 0; i < KINDS; i++) { /* so that the epochs differ, and so do the metrics */
        CHECK(whole.at_epoch_end[0][i] != whole.at_epoch_end[1][i] || i == 2);
        CHECK(i == 0 || whole.at_epoch_end[2][i] != whole.at_epoch_end[2][i - 1]);
    }
    for (int64_t k = 1; k <= BATCHES * EPOCHS; k++) {
        CHECK_OK(train(dir, NULL, k, false, -1, &part));
        snprintf(path, sizeof path, "%s/stop.ckpt", dir);
        CHECK_OK(train(dir, path, 0, false, -1, &second));
        check_same(&whole, &second, (k - 1) / BATCHES, k);
        scored_release(&part);
        scored_release(&second);
        /* An epoch cut short by max_steps; saved when its end was reached and the run was over. */
        CHECK_OK(train(dir, NULL, 0, false, k, &part));
        snprintf(path, sizeof path, "%s/steps.ckpt", dir);
        CHECK_OK(train(dir, path, 0, false, -1, &second));
        check_same(&whole, &second, k / BATCHES, k);
        scored_release(&part);
        scored_release(&second);
        if (k % BATCHES) continue;
        CHECK_OK(train(dir, NULL, k, true, -1, &part));
        snprintf(path, sizeof path, "%s/stop.ckpt", dir);
        CHECK_OK(train(dir, path, 0, false, -1, &second));
        check_same(&whole, &second, k / BATCHES, k);
        CHECK_CONTAINS(second.rows.text,
                       "MeanSquaredError"); /* the row that was due at that moment is written as well */
        scored_release(&part);
        scored_release(&second);
    }
    scored_release(&whole);
    world_remove(dir);
}

/* ---- misuse ---- */

static void fit_badly(void (*log_badly)(scored *m, lc_hook hook), const char *bad, const char *why)
{
    scored m;
    char dir[256];
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    scored_init(&m, &unscored_ops, 0);
    CHECK_OK(lc_metric_new(bad, &m.bad, .num_classes = !strcmp(bad, "ConfusionMatrix") ? 3 : 0));
    CHECK_OK(lc_metric_new("MeanMetric", &m.val[1]));
    m.log_badly = log_badly;
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 1;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m.w.base);
    CHECK_STATUS(s, strcmp(bad, "R2Score") ? LC_ERR_CONFIG : LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), why);
    CHECK_CONTAINS(lc_error_message(), "bad");
    lc_trainer_free(t);
    scored_release(&m);
    world_remove(dir);
}

BADLY(on_step, TRAINING_STEP, lc_log_metric(self, "bad", m->bad, .on_step = true))
BADLY(epoch_off, TRAINING_STEP, lc_log_metric(self, "bad", m->bad, .on_epoch = LC_OFF))
BADLY(reduced, TRAINING_STEP, lc_log_metric(self, "bad", m->bad, .reduce_fx = LC_LOG_SUM))
BADLY(weighted, TRAINING_STEP, lc_log_metric(self, "bad", m->bad, .batch_size = 4))
BADLY(plain, TRAINING_STEP, lc_log_metric(self, "bad", m->bad))
BADLY(nothing, TRAINING_STEP, lc_log_metric(self, "bad", NULL))
BADLY(too_early, ON_FIT_START, lc_log_metric(self, "bad", m->bad))
BADLY(at_end, ON_TRAIN_EPOCH_END, lc_log_metric(self, "bad", m->bad))
BADLY(two, TRAINING_STEP, {
    lc_log_metric(self, "bad", m->bad);
    lc_log_metric(self, "bad", m->val[1]);
})
BADLY(mixed, ON_TRAIN_EPOCH_END, {
    lc_log_value(self, "bad", 1);
    lc_log_metric(self, "bad", m->bad);
})

TEST(misuse_is_refused)
{
    fit_badly(on_step, "MeanMetric", ".on_step cannot be used with a metric");
    fit_badly(epoch_off, "MeanMetric", ".on_epoch cannot be off");
    fit_badly(reduced, "MeanMetric", ".reduce_fx and .batch_size");
    fit_badly(weighted, "MeanMetric", ".reduce_fx and .batch_size");
    fit_badly(plain, "ConfusionMatrix", "several values");
    fit_badly(nothing, "MeanMetric", "the value is NULL");
    fit_badly(too_early, "MeanMetric", "cannot be logged here");
    fit_badly(two, "MeanMetric", "for another metric");
    fit_badly(mixed, "MeanMetric", "for a plain value");
    fit_badly(plain, "R2Score", "at least two samples");
    fit_badly(at_end, "R2Score", "at least two samples");
}

TEST_MAIN
