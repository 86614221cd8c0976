/* SPDX-License-Identifier: Apache-2.0 */
/* What a run logs besides rows: hyperparameters, histograms, images and texts, as loggers receive them. */
#include "test.h"
#include "trainer_world.h"

/* ---- a logger that keeps the last value of each kind ---- */

typedef struct keeper {
    lc_log_histogram histogram;
    double edges[4000], counts[4000];
    lc_log_image image;
    uint8_t pixels[64];
    lc_log_text text;
    char said[64], message[256];
    int n_hparams, messages;
    lc_hparam hparam;
} keeper;

static lc_status keep_hparams(void *self, const lc_hparam *params, int n)
{
    keeper *k = self;
    k->n_hparams = n, k->hparam = params[n - 1];
    return LC_OK;
}
static lc_status keep_histogram(void *self, const lc_log_histogram *h)
{
    keeper *k = self;
    k->histogram = *h;
    memcpy(k->edges, h->edges, (size_t)(h->n_bins + 1) * sizeof *h->edges);
    memcpy(k->counts, h->counts, (size_t)h->n_bins * sizeof *h->counts);
    return LC_OK;
}
static lc_status keep_image(void *self, const lc_log_image *m)
{
    keeper *k = self;
    k->image = *m;
    memcpy(k->pixels, m->pixels, (size_t)m->width * (size_t)m->height * (size_t)m->channels);
    return LC_OK;
}
static lc_status keep_text(void *self, const lc_log_text *t)
{
    keeper *k = self;
    k->text = *t;
    snprintf(k->said, sizeof k->said, "%s", t->text);
    return LC_OK;
}
static lc_status keep_message(void *self, lc_level level, const char *text)
{
    keeper *k = self;
    if (level != LC_WARNING || !strstr(text, "none of the loggers")) return LC_OK;
    k->messages++;
    snprintf(k->message, sizeof k->message, "%s", text);
    return LC_OK;
}

static lc_status nothing(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}
static lc_status no_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}
static const lc_logger_ops all_ops = {LC_LOGGER_OPS_INIT,
                                      .name = "keeper",
                                      .start = nothing,
                                      .log_row = no_row,
                                      .log_hyperparameters = keep_hparams,
                                      .log_histogram = keep_histogram,
                                      .log_image = keep_image,
                                      .log_text = keep_text};
static const lc_logger_ops few_ops = {LC_LOGGER_OPS_INIT, .name = "few", .start = nothing, .log_row = no_row,
                                      .log_message = keep_message};

/* ---- a run in which a function logs ---- */

typedef struct net {
    lc_module base;
    lc_linear l;
    lc_dataset *data;
    void (*act)(lc_trainer *t);
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mse_loss(lc_flatten(lc_linear_forward(&((net *)self)->l, b->x), 0), b->y);
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}
static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = ((net *)self)->data, .batch_size = 2));
    return lc_loaders_add(out, l);
}
static lc_status on_train_end(lc_module *self)
{
    ((net *)self)->act(self->trainer);
    return LC_OK;
}
static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers, .train_dataloader = train_dataloader,
                                  .on_train_end = on_train_end};

static void run(keeper *k, const lc_logger_ops *logger_ops, void (*act)(lc_trainer *t))
{
    static float x[6 * 3], y[6];
    char dir[256];
    net m = {.act = act};
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {3}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32}, .data = y}};
    CHECK_OK(lc_array_dataset_new(6, 2, arrays, &m.data));
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.l, &m, "l", 3, 1);
    lc_trainer_options o = world_options(dir);
    lc_logger logger = {logger_ops, k};
    o.loggers = &logger;
    o.n_loggers = logger_ops ? 1 : 0;
    o.max_epochs = 1;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    lc_trainer_free(t);
    lc_module_release(&m.base);
    lc_dataset_unref(m.data);
    world_remove(dir);
}

static lc_tensor *tensor(lc_dtype dtype, int ndim, const int64_t *shape, const void *data)
{
    lc_tensor *x;
    CHECK_OK(lc_tensor_new(dtype, ndim, shape, &x));
    CHECK_OK(lc_tensor_write(x, data, (size_t)lc_tensor_numel(x) * lc_dtype_size(dtype)));
    return x;
}

#define SHAPE(...)                                                                                                     \
    (const int64_t[])                                                                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static keeper kept;

/* ---- histograms ---- */

enum { VALUES = 5000 };
static double values[VALUES];

static void log_values(lc_trainer *t)
{
    lc_tensor *x = tensor(LC_F64, 2, SHAPE(VALUES / 10, 10), values);
    CHECK_OK(lc_trainer_log_histogram(t, "w", x, -1));
    lc_tensor_unref(x);
}

TEST(histogram_of_a_tensor)
{
    /* All magnitudes, both signs, zeros, the edges and their neighbors, values beyond them, and values that are not
     * finite. */
    uint64_t random = 1;
    for (int i = 0; i < VALUES; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        double unit = (double)(random >> 11) * 0x1p-53;
        values[i] = pow(10, unit * 36 - 14) * (i & 1 ? 1 : -1);
    }
    double edge = 1e-12;
    for (int i = 0; i < 774; i++, edge *= 1.1) {
        values[i * 6] = edge, values[i * 6 + 1] = -edge;
        values[i * 6 + 2] = nextafter(edge, 0), values[i * 6 + 3] = nextafter(-edge, -1e300);
    }
    memcpy(values + 4990, (double[]){0, -0.0, NAN, INFINITY, -INFINITY, 1e300, -1e300, 5e-324, -5e-324, 1}, 80);
    run(&kept, &all_ops, log_values);
    const lc_log_histogram *h = &kept.histogram;
    CHECK_STR(h->name, "w");
    CHECK_EQ(h->step, 3); /* batches whose optimizer step was done */
    CHECK(h->time_ns > 1000000000LL * 1700000000);
    CHECK_EQ(h->count, VALUES - 3);
    CHECK(h->minimum == -1e300 && h->maximum == 1e300);
    double total = 0;
    for (int i = 0; i < h->n_bins; i++) {
        CHECK(kept.edges[i] < kept.edges[i + 1]);
        /* By definition the last bin counts values beyond the last edge as well. */
        double n = 0;
        for (int k = 0; k < VALUES; k++)
            n += isfinite(values[k]) && (values[k] >= kept.edges[i] || i == 0) &&
                 (values[k] < kept.edges[i + 1] || i == h->n_bins - 1);
        if (n != kept.counts[i]) TEST_FAIL("bin %d, from %g: %g, should be %g", i, kept.edges[i], kept.counts[i], n);
        total += n;
    }
    CHECK_EQ(total, VALUES - 3);
    CHECK_NEAR(kept.edges[h->n_bins], 1e20, 1e19); /* and the edge is within a tenth of it */
}

static void log_small(lc_trainer *t)
{
    static const float f[] = {0.5f, 0.52f, -3, 0.5f};
    static const uint16_t half[] = {0x3c00, 0xbc00}; /* 1, -1 */
    static const double none[] = {NAN, INFINITY};
    lc_tensor *x = tensor(LC_F32, 1, SHAPE(4), f);
    CHECK_OK(lc_trainer_log_histogram(t, "small", x, 70));
    lc_tensor_unref(x);
    CHECK_EQ(kept.histogram.step, 70);
    CHECK_EQ(kept.histogram.count, 4);
    CHECK_NEAR(kept.histogram.sum, -1.48, 1e-6);
    CHECK_NEAR(kept.histogram.sum_squares, 9 + 0.5 + 0.2704, 1e-6);
    CHECK(kept.counts[0] == 1 && kept.edges[0] <= -3 && kept.edges[1] > -3);
    x = tensor(LC_F16, 1, SHAPE(2), half);
    CHECK_OK(lc_trainer_log_histogram(t, "half", x, 0));
    lc_tensor_unref(x);
    CHECK(kept.histogram.count == 2 && kept.histogram.minimum == -1 && kept.histogram.maximum == 1);
    x = tensor(LC_F64, 1, SHAPE(2), none);
    CHECK_OK(lc_trainer_log_histogram(t, "none", x, 0));
    lc_tensor_unref(x);
    CHECK(kept.histogram.count == 0 && kept.histogram.n_bins == 1 && kept.counts[0] == 0);
    CHECK(kept.histogram.minimum == 0 && kept.histogram.maximum == 0);
    const double edges[] = {0, 1, 3}, counts[] = {2, 5};
    CHECK_OK(lc_trainer_log_counts(t, "counts", edges, counts, 2, -1));
    CHECK(kept.histogram.count == 7 && kept.histogram.sum == 11 && kept.histogram.sum_squares == 20.5);
    CHECK(kept.histogram.minimum == 0 && kept.histogram.maximum == 3 && kept.histogram.n_bins == 2);
    CHECK_STATUS(lc_trainer_log_counts(t, "counts", (const double[]){0, 2, 1}, counts, 2, -1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "edge 2 is 1");
    CHECK_STATUS(lc_trainer_log_counts(t, "counts", edges, counts, 0, -1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_trainer_log_histogram(t, "x", NULL, -1), LC_ERR_ARGUMENT);
}

TEST(histograms_of_other_types_and_counts)
{
    run(&kept, &all_ops, log_small);
}

/* ---- images ---- */

static void log_images(lc_trainer *t)
{
    static const uint8_t planes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const float grey[] = {0, 0.5f, 1, 2, -1, NAN};
    lc_tensor *x = tensor(LC_U8, 3, SHAPE(3, 2, 2), planes);
    CHECK_OK(lc_trainer_log_image(t, "rgb", x, 5));
    lc_tensor_unref(x);
    CHECK(kept.image.width == 2 && kept.image.height == 2 && kept.image.channels == 3 && kept.image.step == 5);
    CHECK(!memcmp(kept.pixels, (const uint8_t[]){1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12}, 12));
    x = tensor(LC_F32, 2, SHAPE(2, 3), grey);
    CHECK_OK(lc_trainer_log_image(t, "grey", x, -1));
    CHECK(kept.image.width == 3 && kept.image.height == 2 && kept.image.channels == 1 && kept.image.step == 3);
    CHECK(!memcmp(kept.pixels, (const uint8_t[]){0, 127, 255, 255, 0, 0}, 6));
    lc_tensor_unref(x);
    x = tensor(LC_U8, 3, SHAPE(2, 2, 2), planes);
    CHECK_STATUS(lc_trainer_log_image(t, "two", x, 5), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "\"two\" must be [H,W] or [C,H,W]");
    lc_tensor_unref(x);
    x = tensor(LC_I32, 2, SHAPE(1, 2), planes);
    CHECK_STATUS(lc_trainer_log_image(t, "whole", x, 5), LC_ERR_DTYPE);
    CHECK_CONTAINS(lc_error_message(), "i32");
    lc_tensor_unref(x);
    CHECK_STATUS(lc_trainer_log_image(t, "none", NULL, 5), LC_ERR_ARGUMENT);
}

TEST(images)
{
    run(&kept, &all_ops, log_images);
}

/* An operator outside of a step: the message says so. */
static void log_failed(lc_trainer *t)
{
    CHECK_STATUS(lc_trainer_log_image(t, "sample", lc_zeros(LC_F32, 4, 4), -1), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "\"sample\" is the result of a failed operation: full was called");
    CHECK_CONTAINS(lc_error_message(), "no step is being recorded");
    CHECK_STATUS(lc_trainer_log_histogram(t, "weights", lc_zeros(LC_F32, 4), -1), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "\"weights\" is the result of a failed operation: full was called");
}

TEST(tensors_of_failed_operations)
{
    run(&kept, &all_ops, log_failed);
}

/* ---- texts, hyperparameters, and no logger that keeps them ---- */

static void log_texts(lc_trainer *t)
{
    const lc_hparam params[] = {{"lr", LC_HPARAM_FLOAT, .number = 0.5}, {"n", LC_HPARAM_INT, .integer = 3}};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(lc_trainer_log_text(t, "note", "hello", 2));
        CHECK_OK(lc_trainer_log_hyperparameters(t, params, 2));
    }
    CHECK_STATUS(lc_trainer_log_hyperparameters(t, &(lc_hparam){"x", LC_HPARAM_TEXT}, 1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_trainer_log_text(t, "note", NULL, 2), LC_ERR_ARGUMENT);
}

TEST(texts_and_hyperparameters)
{
    run(&kept, &all_ops, log_texts);
    CHECK_STR(kept.said, "hello");
    CHECK_EQ(kept.text.step, 2);
    CHECK_EQ(kept.n_hparams, 2);
    CHECK_EQ(kept.hparam.integer, 3);
}

TEST(values_that_no_logger_keeps_are_reported_once)
{
    keeper k = {0};
    run(&k, &few_ops, log_texts);
    CHECK_EQ(k.messages, 2); /* one for texts and one for hyperparameters */
    CHECK_CONTAINS(k.message, "hyperparameters");
    run(&k, NULL, log_texts); /* no logger at all: no message */
    CHECK_EQ(k.messages, 2);
}

TEST_MAIN
