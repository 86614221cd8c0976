/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner: rates and smoothing as in Lightning, the suggestion, batch sizes against a memory limit, and a module that
 * is the same afterwards as before. */
#include "test.h"
#include "trainer_world.h"
#include "wave.h"

#include <math.h>

/* ---- y = w x learned on sin(x): all of lr_find can be computed here as well ---- */
typedef struct line {
    lc_module base;
    lc_tensor *w;
    lc_dataset *data;
    float xy[2][512];
    double lr;
    int64_t batch_size;
    int setups, teardowns;
    bool scheduled;
} line;

static lc_tensor *line_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mse_loss(lc_mul(((line *)self)->w, b->x), b->y);
}
static lc_status line_optimizers(lc_module *self, lc_optimizers *out)
{
    line *m = (line *)self;
    lc_optimizer *opt = lc_sgd(self, .lr = m->lr);
    LC_TRY(lc_optimizers_add(out, opt));
    if (!m->scheduled) return LC_OK;
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_step_lr(opt, .step_size = 1, .gamma = 0.5)});
}
static lc_status line_loader(lc_module *self, lc_loaders *out)
{
    line *m = (line *)self;
    lc_dataloader *l = NULL;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->data, .batch_size = m->batch_size));
    return lc_loaders_add(out, l);
}
static lc_status line_setup(lc_module *self, lc_stage stage)
{
    (void)stage;
    ((line *)self)->setups++;
    return LC_OK;
}
static lc_status line_teardown(lc_module *self, lc_stage stage)
{
    (void)stage;
    ((line *)self)->teardowns++;
    return LC_OK;
}
static const lc_module_ops line_ops = {
    LC_MODULE_OPS_INIT("line"),      .training_step = line_step, .configure_optimizers = line_optimizers,
    .train_dataloader = line_loader, .setup = line_setup,        .teardown = line_teardown,
};
static const lc_option line_fields[] = {LC_FIELD(line, lr, ""), LC_FIELD(line, batch_size, "")};

static void line_open(line *m)
{
    memset(m, 0, sizeof *m);
    lc_module_init(&m->base, &line_ops, 1);
    lc_module_add_parameter(&m->base, "empty", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){0}, (lc_init){LC_INIT_ZEROS});
    m->w = lc_module_add_parameter(&m->base, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1},
                                   (lc_init){LC_INIT_CONSTANT, .a = 1});
    m->lr = 0.1;
    m->batch_size = 16;
    lc_module_save_hyperparameters(&m->base, line_fields, 2, m);
    for (int i = 0; i < 512; i++) m->xy[0][i] = (float)(6.0 * i / 512 - 3), m->xy[1][i] = sinf(m->xy[0][i]);
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = m->xy[0]},
                         {.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = m->xy[1]}};
    CHECK_OK(lc_array_dataset_new(512, 2, arrays, &m->data));
}
static void line_close(line *m)
{
    lc_dataset_unref(m->data);
    lc_module_release(&m->base);
}

/* The range test written out: rates as Lightning 2.6 takes them (the first is min, then min (max/min)^((i+1)/n)). */
static int64_t range_test(const line *m, int64_t n, double lo, double hi, bool exponential, double threshold,
                          double *lr, double *loss)
{
    double w = 1, average = 0, best = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double part = i ? (double)(i + 1) / (double)n : 0, sum = 0, slope = 0;
        lr[i] = exponential ? lo * pow(hi / lo, part) : lo + part * (hi - lo);
        for (int64_t k = 0; k < 16; k++) {
            double x = m->xy[0][i % 32 * 16 + k], y = m->xy[1][i % 32 * 16 + k];
            sum += (w * x - y) * (w * x - y) / 16;
            slope += 2 * x * (w * x - y) / 16;
        }
        average = 0.98 * average + 0.02 * sum;
        loss[i] = average / (1 - pow(0.98, (double)(i + 1)));
        if (i > 0 && loss[i] > threshold * best) return i + 1;
        if (loss[i] < best) best = loss[i];
        w -= lr[i] * slope;
    }
    return n;
}

static void compare(const char *mode, double lo, double hi, double threshold)
{
    line m;
    lc_trainer *t;
    lc_lr_find_result r;
    double lr[40], loss[40];
    float w;
    lc_trainer_options o = wave_options(NULL);
    line_open(&m);
    m.scheduled = true;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_lr_find_args a = LC_ARGS(lc_lr_find, .min_lr = lo, .max_lr = hi, .num_training = 40, .mode = mode,
                                .early_stop_threshold = threshold);
    CHECK_OK(lc_tuner_lr_find_with(t, &m.base, NULL, &r, &a));
    int64_t n = range_test(&m, 40, lo, hi, mode[0] == 'e', threshold, lr, loss);
    CHECK_EQ(r.n, n);
    CHECK(r.stopped_early == (n < 40));
    for (int64_t i = 0; i < n; i++) {
        CHECK_NEAR(r.lr[i], lr[i], 1e-12 * lr[i]);
        CHECK_NEAR(r.loss[i], loss[i], 2e-4 * loss[i]);
    }
    if (r.suggested >= 0) CHECK(m.lr == r.suggestion && r.suggestion == r.lr[r.suggested]);
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK(w == 1);
    CHECK(m.setups == 1 && m.teardowns == 1);
    lc_lr_find_release(&r);
    lc_trainer_free(t);
    line_close(&m);
}

TEST(rates_and_losses)
{
    compare("exponential", 1e-4, 1, INFINITY);
    compare("linear", 1e-4, 1, INFINITY);
    compare("linear", 1e-4, 40, 4); /* diverges */
}

/* Against a curve whose steepest point is known: the loss falls at one point. */
TEST(suggestion)
{
    double lr[40], loss[40];
    lc_lr_find_result r = {.n = 40, .lr = lr, .loss = loss};
    for (int i = 0; i < 40; i++) lr[i] = i + 1, loss[i] = i < 25 ? 5 : 1;
    int64_t at = lc_lr_find_suggest(&r, 10, 1);
    CHECK(at == 24 || at == 25);
    loss[5] = -100; /* among the first ten, which are skipped */
    loss[39] = -100;
    loss[30] = NAN; /* skipped */
    CHECK(lc_lr_find_suggest(&r, 10, 1) == at);
    CHECK_EQ(lc_lr_find_suggest(&r, 20, 19), -1);
    double x[] = {1, 2, 4, 5}, y[] = {4, 3.5, 1, 2};
    lc_lr_find_result u = {.n = 4, .lr = x, .loss = y};
    CHECK_EQ(lc_lr_find_suggest(&u, 0, 0), 1); /* -0.75 inside, -0.5 and 1 at the ends, 0.25 at the minimum */
    /* Over the rate itself the loss falls fastest between the lowest rates, whatever it does. */
    double rates[] = {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2}, falls[] = {5, 4.9, 4.8, 3, 1, 0.9};
    lc_lr_find_result v = {.n = 6, .lr = rates, .loss = falls};
    CHECK_EQ(lc_lr_find_suggest(&v, 0, 0), 0);
    v.over_log10 = true;
    CHECK_EQ(lc_lr_find_suggest(&v, 0, 0), 3);
}

TEST(curve_on_paper)
{
    char dir[256], path[300], line_[64];
    double lr[] = {1e-4, 1e-3, 1e-2}, loss[] = {3, 1, 2};
    lc_lr_find_result r = {.n = 3, .lr = lr, .loss = loss, .exponential = true, .suggested = 1, .suggestion = 1e-3};
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/a.csv", dir);
    CHECK_OK(lc_lr_find_write_csv(&r, path));
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(line_, sizeof line_, f) && fgets(line_, sizeof line_, f));
    CHECK_STR(line_, "0.0001,3\n");
    fclose(f);
    snprintf(path, sizeof path, "%s/a.svg", dir);
    CHECK_OK(lc_lr_find_write_svg(&r, path));
    char text[8192] = "";
    f = fopen(path, "r");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 500);
    fclose(f);
    CHECK_CONTAINS(text, "<polyline");
    CHECK_CONTAINS(text, "80.0,20.0 390.0,390.0 700.0,205.0"); /* corners of the frame, and the middle of a decade */
    CHECK_CONTAINS(text, "suggestion: 0.001");
    r.n = 1;
    CHECK_STATUS(lc_lr_find_write_svg(&r, path), LC_ERR_STATE);
    world_remove(dir);
}

/* The run goes on with the old rate, and a warning says so. */
static void keep_message(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)t;
    if (level == LC_WARNING && !strncmp(text, "lr_find", 7)) snprintf(self, 300, "%s", text);
}

static const lc_callback_ops keep_ops = {LC_CALLBACK_OPS_INIT("KeepMessage"), .on_message = keep_message};

TEST(too_few_points_for_a_suggestion)
{
    char warning[300] = "";
    line m;
    lc_trainer *t;
    lc_callback finder;
    lc_trainer_options o = wave_options(NULL);
    line_open(&m);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_learning_rate_finder(&finder, .num_training = 5));
    CHECK_OK(lc_trainer_add_callback(t, finder));
    CHECK_OK(lc_trainer_add_callback(t, (lc_callback){&keep_ops, warning}));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK_CONTAINS(warning,
                   "lr_find suggests no learning rate: of its 5 points the first 10 and the last do not count");
    CHECK_EQ(m.lr, 0.1);
    lc_trainer_free(t);
    line_close(&m);
}

TEST(errors_of_lr_find)
{
    line m;
    lc_trainer *t;
    lc_lr_find_result r;
    lc_trainer_options o = wave_options(NULL);
    line_open(&m);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_tuner_lr_find(t, &m.base, NULL, &r, .mode = "cubic"), LC_ERR_CONFIG);
    CHECK_STATUS(lc_tuner_lr_find(t, &m.base, NULL, &r, .min_lr = 2), LC_ERR_CONFIG);
    CHECK_STATUS(lc_tuner_lr_find(t, &m.base, NULL, &r, .attr_name = "rate"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "\"rate\"");
    lc_module_save_hyperparameters(&m.base, line_fields + 1, 1, &m);
    CHECK_STATUS(lc_tuner_lr_find(t, &m.base, NULL, &r), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "update_attr");
    CHECK_OK(lc_tuner_lr_find(t, &m.base, NULL, &r, .update_attr = false, .num_training = 5));
    CHECK(r.n == 5 && r.suggested == -1 && isnan(r.suggestion) && m.lr == 0.1);
    lc_lr_find_release(&r);
    lc_trainer_free(t);
    line_close(&m);
}

/* ---- batch sizes ---- */

static int64_t scaled(lc_trainer *t, lc_module *m, lc_scale_batch_size_args a, lc_scale_batch_size_result *r)
{
    CHECK_OK(lc_tuner_scale_batch_size_with(t, m, NULL, r, &a));
    CHECK_EQ(((const wave *)m)->h->batch_size, r->batch_size);
    return r->batch_size;
}

TEST(batch_sizes)
{
    lc_trainer *t;
    lc_module *m;
    lc_scale_batch_size_result r, small;
    float before[16], after[16];
    wave_values v = WAVE_DEFAULTS;
    v.samples = 1000;
    lc_trainer_options o = wave_options(NULL);
    o.logger = "none";
    CHECK_OK(lc_module_new(&wave_class, &v, 1, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_tensor_read(lc_module_find(m, "l1.weight"), before, sizeof before));
    /* The whole data set fits: 2, 4, ..., 512, 1024 -> limited to the 1000 samples. */
    CHECK_EQ(scaled(t, m, lc_scale_batch_size_defaults(), &r), 1000);
    CHECK(r.trials == 10 && !r.too_large && r.planned_bytes > 0);
    CHECK_EQ(scaled(t, m, LC_ARGS(lc_scale_batch_size, .max_val = 100), &r), 100);
    CHECK_EQ(scaled(t, m, LC_ARGS(lc_scale_batch_size, .max_trials = 3), &r), 8);
    CHECK_EQ(scaled(t, m, LC_ARGS(lc_scale_batch_size, .mode = "binsearch"), &r), 950);

    /* Against a limit: the memory for a batch of 100 suffices for 100 and no more. */
    lc_scale_batch_size_args a = LC_ARGS(lc_scale_batch_size, .max_val = 100, .init_val = 100);
    scaled(t, m, a, &small);
    a = LC_ARGS(lc_scale_batch_size, .max_bytes = small.planned_bytes);
    CHECK_EQ(scaled(t, m, a, &r), 64);
    CHECK_EQ(r.too_large, 128);
    a.init_val = 300; /* starts too large: 300, 150, 75 */
    CHECK_EQ(scaled(t, m, a, &r), 75);
    a = LC_ARGS(lc_scale_batch_size, .max_bytes = small.planned_bytes, .mode = "binsearch", .margin = 0);
    CHECK(scaled(t, m, a, &r) >= 100);
    CHECK_EQ(r.too_large, r.batch_size + 1);
    CHECK(r.planned_bytes <= small.planned_bytes);
    a.margin = 0.1;
    CHECK_EQ(scaled(t, m, a, &small), (int64_t)((double)r.batch_size * 0.9));

    a = LC_ARGS(lc_scale_batch_size, .max_bytes = 64);
    CHECK_STATUS(lc_tuner_scale_batch_size_with(t, m, NULL, &r, &a), LC_ERR_MEMORY);
    CHECK_CONTAINS(lc_error_message(), "even a batch of 1");
    CHECK_EQ(((wave *)m)->h->batch_size, small.batch_size); /* unchanged */
    CHECK_OK(lc_tensor_read(lc_module_find(m, "l1.weight"), after, sizeof after));
    CHECK(memcmp(before, after, sizeof before) == 0);

    lc_dataloader *given = numbers_new(4, 2, false);
    lc_run_args of_given = LC_ARGS(lc_run, .train_dataloader = given);
    CHECK_STATUS(lc_tuner_scale_batch_size(t, m, &of_given, &r), LC_ERR_CONFIG);
    lc_dataloader_free(given);
    a = LC_ARGS(lc_scale_batch_size, .batch_arg_name = "activation");
    CHECK_STATUS(lc_tuner_scale_batch_size_with(t, m, NULL, &r, &a), LC_ERR_CONFIG);
    a = LC_ARGS(lc_scale_batch_size, .mode = "cubic");
    CHECK_STATUS(lc_tuner_scale_batch_size_with(t, m, NULL, &r, &a), LC_ERR_CONFIG);
    lc_trainer_free(t);
    lc_module_free(m);
}

/* ---- as callbacks ---- */

/* A fit whose finders ran equals a fit that has their values from the start. */
TEST(finders_leave_the_run_as_it_would_be)
{
    char dir[256];
    float found[16], given[16];
    lc_module *m;
    lc_trainer *t;
    lc_callback finders[2];
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = wave_options(dir);
    CHECK_OK(lc_batch_size_finder(&finders[0], .max_val = 32));
    CHECK_OK(lc_learning_rate_finder(&finders[1], .min_lr = 1e-4, .max_lr = 0.5, .num_training = 50));
    o.callbacks = finders;
    o.n_callbacks = 2;
    wave_values v = WAVE_DEFAULTS;
    v.shuffle = true;
    CHECK_OK(lc_module_new(&wave_class, &v, 1, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    CHECK_EQ(lc_trainer_global_step(t), 8);
    lc_callback cb = lc_trainer_callback_named(t, "LearningRateFinder", 0);
    const lc_lr_find_result *r = lc_learning_rate_finder_get(&cb);
    CHECK(r->suggested >= 10);
    double lr;
    CHECK_OK(lc_optimizer_get(lc_trainer_optimizer(t, 0), 0, "lr", &lr));
    CHECK(lr == r->suggestion && ((wave *)m)->h->optimizer.lr == lr);
    CHECK_EQ(lc_batch_size_finder_get(&cb).batch_size, 0); /* another callback */
    cb = lc_trainer_callback_named(t, "BatchSizeFinder", 0);
    CHECK_EQ(lc_batch_size_finder_get(&cb).batch_size, 32);
    CHECK(!lc_learning_rate_finder_get(&cb));
    cb = lc_trainer_callback_named(t, "BatchSizeFinder", 1); /* there is no second one */
    CHECK(!lc_learning_rate_finder_get(&cb) && !lc_batch_size_finder_get(&cb).batch_size);
    CHECK_EQ(((wave *)m)->h->batch_size, 32);
    char path[400];
    snprintf(path, sizeof path, "%s/lr_find.svg", lc_trainer_run_dir(t));
    CHECK(access(path, R_OK) == 0);
    snprintf(path, sizeof path, "%s/lr_find.csv", lc_trainer_run_dir(t));
    CHECK(access(path, R_OK) == 0);
    CHECK_OK(lc_tensor_read(lc_module_find(m, "l1.weight"), found, sizeof found));
    lc_trainer_free(t);
    lc_module_free(m);

    v.optimizer.lr = lr;
    v.batch_size = 32;
    o = wave_options(NULL);
    CHECK_OK(lc_module_new(&wave_class, &v, 1, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    CHECK_OK(lc_tensor_read(lc_module_find(m, "l1.weight"), given, sizeof given));
    CHECK(memcmp(found, given, sizeof found) == 0);
    lc_trainer_free(t);
    lc_module_free(m);
    world_remove(dir);
}

/* ---- before validate, test and predict ---- */

typedef struct judged {
    line line;
    lc_dataset *few; /* of a second loader; NULL: only one loader */
    int64_t full, others, asked;
} judged;

/* The parameter counts batches, so that any effect a trial leaves behind is visible. */
static lc_tensor *judged_forward(lc_module *self, const lc_batch *b)
{
    judged *m = (judged *)self;
    *(b->size == 64 ? &m->full : &m->others) += 1;
    lc_tensor *y = lc_tanh(lc_mul(m->line.w, b->x));
    lc_assign(m->line.w, lc_add_scalar(m->line.w, 1));
    return y;
}
static lc_status judged_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log(self, "loss", lc_mse_loss(judged_forward(self, b), b->y));
    return LC_OK;
}
static lc_tensor *judged_predict(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return judged_forward(self, b);
}
static lc_status judged_loader(lc_module *self, lc_loaders *out)
{
    judged *m = (judged *)self;
    lc_dataloader *l = NULL;
    m->asked++;
    LC_TRY(line_loader(self, out));
    if (!m->few) return LC_OK;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->few, .batch_size = m->line.batch_size));
    return lc_loaders_add(out, l);
}
static void judged_open(judged *m, lc_module_ops *ops)
{
    *m = (judged){.full = 0};
    line_open(&m->line);
    *ops = line_ops;
    ops->validation_step = ops->test_step = judged_step;
    ops->predict_step = judged_predict;
    ops->val_dataloader = ops->test_dataloader = ops->predict_dataloader = judged_loader;
    m->line.base.ops = ops;
}

static lc_status (*const evaluations[])(lc_trainer *t, lc_module *m, const lc_run_args *args) = {
    lc_trainer_validate_with, lc_trainer_test_with, lc_trainer_predict_with};

TEST(a_size_is_found_before_evaluations)
{
    judged m;
    lc_module_ops ops;
    lc_trainer *t;
    lc_callback finder, cb;
    float w;
    lc_trainer_options o = wave_options(NULL);
    CHECK_OK(lc_batch_size_finder(&finder, .max_val = 64));
    o.callbacks = &finder;
    o.n_callbacks = 1;
    judged_open(&m, &ops);
    CHECK_OK(lc_trainer_new(&o, &t));
    cb = lc_trainer_callback_named(t, "BatchSizeFinder", 0);
    for (int i = 0; i < 3; i++) {
        m.full = m.others = m.asked = 0;
        m.line.batch_size = 16;
        CHECK_OK(evaluations[i](t, &m.line.base, NULL));
        lc_scale_batch_size_result r = lc_batch_size_finder_get(&cb);
        CHECK(r.batch_size == 64 && r.trials == 6 && r.too_large == 0);
        CHECK_EQ(m.line.batch_size, 64);
        CHECK_EQ(m.others, 5 * 3);    /* three batches of 2, 4, 8, 16 and 32 */
        CHECK_EQ(m.full, 3 + 8);      /* three of 64, and the run: 512 samples */
        CHECK_EQ(m.asked, 1 + 6 + 1); /* with the old size; in the trials; with the size that was found */
        CHECK_OK(lc_tensor_read(m.line.w, &w, sizeof w));
        CHECK(w == (float)(1 + 8 * (i + 1)));
        CHECK(m.line.setups == i + 1 && m.line.teardowns == i + 1);
    }
    CHECK_EQ(lc_trainer_prediction_count(t, 0), 8);
    lc_trainer_free(t);
    line_close(&m.line);
}

TEST(a_size_for_two_loaders)
{
    judged m;
    lc_module_ops ops;
    lc_trainer *t;
    lc_scale_batch_size_result r;
    lc_trainer_options o = wave_options(NULL);
    judged_open(&m, &ops);
    lc_array few[2] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = m.line.xy[0]}};
    few[1] = few[0];
    few[1].field.name = "y";
    CHECK_OK(lc_array_dataset_new(5, 2, few, &m.few));
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_scale_batch_size_args a = LC_ARGS(lc_scale_batch_size, .method = "test", .max_val = 64, .steps_per_trial = 1);
    CHECK_OK(lc_tuner_scale_batch_size_with(t, &m.line.base, NULL, &r, &a));
    CHECK_EQ(r.batch_size, 64); /* although one loader has only 5 samples, and each trial one batch */
    a.max_val = 4096;
    CHECK_OK(lc_tuner_scale_batch_size_with(t, &m.line.base, NULL, &r, &a));
    CHECK_EQ(r.batch_size, 512); /* the whole data set */
    lc_trainer_free(t);
    lc_dataset_unref(m.few);
    line_close(&m.line);
}

TEST(evaluation_batches_that_exceed_memory)
{
    judged m;
    lc_module_ops ops;
    lc_trainer *t;
    lc_scale_batch_size_result r, fits;
    lc_trainer_options o = wave_options(NULL);
    judged_open(&m, &ops);
    CHECK_OK(lc_trainer_new(&o, &t));
    for (int i = 0; i < 3; i++) {
        lc_scale_batch_size_args a =
            LC_ARGS(lc_scale_batch_size, .method = lc_stage_name((lc_stage)(LC_STAGE_VALIDATE + i)), .init_val = 192,
                    .max_val = 192);
        CHECK_OK(lc_tuner_scale_batch_size_with(t, &m.line.base, NULL, &fits, &a));
        CHECK(fits.batch_size == 192 && fits.planned_bytes > 0);
        a = LC_ARGS(lc_scale_batch_size, .method = a.method, .max_bytes = fits.planned_bytes);
        CHECK_OK(lc_tuner_scale_batch_size_with(t, &m.line.base, NULL, &r, &a));
        CHECK(r.batch_size == 128 && r.too_large == 256);
    }
    lc_scale_batch_size_args a = LC_ARGS(lc_scale_batch_size, .method = "tests");
    CHECK_STATUS(lc_tuner_scale_batch_size_with(t, &m.line.base, NULL, &r, &a), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "\"tests\"");
    lc_trainer_free(t);
    line_close(&m.line);
}

/* Neither before the validations of a fit, nor in fast_dev_run, nor for loaders that were passed. */
TEST(no_size_is_searched_for)
{
    judged m;
    lc_module_ops ops;
    lc_trainer *t;
    lc_callback finder;
    lc_trainer_options o = wave_options(NULL);
    CHECK_OK(lc_batch_size_finder(&finder, .max_val = 64));
    o.callbacks = &finder;
    o.n_callbacks = 1;
    judged_open(&m, &ops);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.line.base));
    CHECK(m.line.batch_size == 64 && m.asked == 1); /* the fit's finder found this: its trials validate nothing */
    lc_dataloader *given = numbers_new(4, 2, false);
    lc_run_args args = LC_ARGS(lc_run, .dataloaders = &given, .n_dataloaders = 1);
    CHECK_STATUS(lc_trainer_validate_with(t, &m.line.base, &args), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "of a given loader");
    lc_dataloader_free(given);
    lc_trainer_free(t);

    CHECK_OK(lc_batch_size_finder(&finder, .max_val = 32));
    o = wave_options(NULL);
    o.callbacks = &finder;
    o.n_callbacks = 1;
    o.fast_dev_run = 1;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_test(t, &m.line.base));
    CHECK_EQ(m.line.batch_size, 64);
    lc_trainer_free(t);
    line_close(&m.line);
}

/* ---- data of a datamodule: in a running fit it is set up once, and stays ---- */
typedef struct line_data {
    line *m;
    int setups, teardowns, loaders;
} line_data;

static lc_status data_setup(void *self, lc_trainer *t, lc_stage stage)
{
    (void)t, (void)stage;
    ((line_data *)self)->setups++;
    return LC_OK;
}
static lc_status data_teardown(void *self, lc_trainer *t, lc_stage stage)
{
    (void)t, (void)stage;
    ((line_data *)self)->teardowns++;
    return LC_OK;
}
static lc_status data_train(void *self, lc_trainer *t, lc_loaders *out)
{
    line_data *d = self;
    (void)t;
    d->loaders++;
    return line_loader(&d->m->base, out);
}
static lc_option_set data_hyperparameters(void *self)
{
    return (lc_option_set){"data", line_fields + 1, 1, ((line_data *)self)->m};
}
static const lc_datamodule_ops data_ops = {
    LC_DATAMODULE_OPS_INIT("data"),          .setup = data_setup,
    .train_dataloader = data_train,          .teardown = data_teardown,
    .hyperparameters = data_hyperparameters,
};

TEST(with_a_datamodule)
{
    line m;
    lc_trainer *t;
    lc_callback finders[2];
    lc_module_ops ops = line_ops;
    ops.train_dataloader = NULL;
    line_open(&m);
    m.base.ops = &ops;
    lc_module_save_hyperparameters(&m.base, line_fields, 1, &m); /* lr; batch_size is the datamodule's */
    line_data d = {.m = &m};
    lc_datamodule data = {&data_ops, &d};
    lc_trainer_options o = wave_options(NULL);
    CHECK_OK(lc_learning_rate_finder(&finders[0], .min_lr = 1e-4, .num_training = 20));
    CHECK_OK(lc_batch_size_finder(&finders[1], .max_val = 8));
    o.callbacks = finders;
    o.n_callbacks = 2;
    o.max_steps = 3;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .datamodule = &data));
    CHECK(d.setups == 1 && d.teardowns == 1 && m.setups == 1 && m.teardowns == 1);
    CHECK_EQ(d.loaders, 1 + 3 + 1); /* the rate; sizes 2, 4, 8; the run */
    CHECK_EQ(m.batch_size, 8);
    CHECK_EQ(lc_trainer_global_step(t), 3);
    lc_scale_batch_size_result r;
    lc_run_args of_data = LC_ARGS(lc_run, .datamodule = &data);
    CHECK_OK(lc_tuner_scale_batch_size(t, &m.base, &of_data, &r, .max_val = 4));
    CHECK(r.batch_size == 4 && d.setups == 3 && d.teardowns == 3);
    lc_trainer_free(t);
    line_close(&m);
}

TEST_MAIN
