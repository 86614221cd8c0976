/* SPDX-License-Identifier: Apache-2.0 */
/* A training that waits for its data says so at its end, with what would help; one that does not says nothing. */
#include "test.h"

enum { SAMPLES = 40 };
#include "base/clock.h"
#include "comm_world.h"
#include "quiet_options.h"
#include "small_data.h"

#include <lightc/callbacks.h>
#include <time.h>

/* How long each sample takes, and which shares of its time the dataset says went into what. */
typedef struct slow {
    long ns;
    double read, decoded, transformed;
    int64_t spent_ns; /* only without workers */
} slow;

static int64_t slow_length(void *self)
{
    (void)self;
    return SAMPLES;
}
static lc_status slow_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){
        .n = 2,
        .fields = {{.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, {.name = "y", .dtype = LC_I64}}};
    return LC_OK;
}
static lc_status slow_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)key, (void)scratch;
    slow *d = self;
    const struct timespec time = {.tv_nsec = d->ns};
    const int64_t start = lc__now_ns();
    if (time.tv_nsec) nanosleep(&time, NULL);
    if (d->decoded > 0) d->spent_ns += lc__now_ns() - start;
    memcpy(out[0], inputs[index], sizeof inputs[index]);
    memcpy(out[1], &labels[index], sizeof labels[index]);
    return LC_OK;
}
static void slow_times(void *self, lc_loader_times *add)
{
    const slow *d = self;
    const double spent = 1e-9 * (double)d->spent_ns;
    add->read += spent * d->read;
    add->decoded += spent * d->decoded;
    add->transformed += spent * d->transformed;
}
static const lc_dataset_ops slow_ops = {LC_DATASET_OPS_INIT,       .name = "slow",  .length = slow_length,
                                        .describe = slow_describe, .get = slow_get, .times = slow_times};

typedef struct net {
    lc_module base;
    lc_linear l;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_cross_entropy(lc_linear_forward(&((net *)self)->l, b->x), b->y);
}
static lc_status sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 1e-3));
}
static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .configure_optimizers = sgd};

static char said[4096];
static double waited, took; /* in seconds, by the last training and for it */

static void on_message(void *context, lc_trainer *t, lc_level level, const char *text)
{
    (void)context, (void)t, (void)level;
    if (strstr(text, "waited")) snprintf(said, sizeof said, "%s", text);
}

/* Returns what was said. */
static const char *fit(slow what, int workers)
{
    net m;
    lc_dataset *d;
    lc_dataloader *data;
    lc_trainer *t;
    lc_callback listens;
    lc_trainer_options o = quiet_options(NULL);
    *said = 0;
    lc_module_init(&m.base, &net_ops, 1);
    lc_linear_init(&m.l, &m, "l", FEATURES, CLASSES);
    CHECK_OK(lc_lambda_callback(&listens, .on_message = on_message));
    o.callbacks = &listens;
    o.n_callbacks = 1;
    o.max_epochs = 1;
    CHECK_OK(lc_dataset_new(&slow_ops, &what, &d));
    CHECK_OK(lc_dataloader_new(&data, .dataset = d, .batch_size = 4, .num_workers = workers));
    CHECK_OK(lc_trainer_new(&o, &t));
    const int64_t start = lc__now_ns();
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = data));
    took = 1e-9 * (double)(lc__now_ns() - start);
    lc_loader_times times;
    lc_dataloader_times(data, &times);
    waited = times.waited;
    lc_trainer_free(t);
    lc_dataloader_free(data);
    lc_dataset_unref(d);
    lc_module_release(&m.base);
    return said;
}

TEST(what_takes_most_is_named)
{
    static const struct {
        double read, decoded, transformed;
        const char *part, *help;
    } rows[] = {{0, 0, 0, "making samples takes most", "get does less"},
                {0.1, 0.8, 0.1, "decoding takes most", ".fast_scale"},
                {0.8, 0.1, 0.1, "reading files takes most", ".cache_bytes"},
                {0.1, 0.1, 0.8, "transforming takes most", "fewer transforms"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const slow d = {32000000, rows[i].read, rows[i].decoded, rows[i].transformed, 0};
        const char *text = fit(d, 0);
        CHECK_CONTAINS(text, "the training waited");
        CHECK_CONTAINS(text, rows[i].part);
        CHECK_CONTAINS(text, rows[i].help);
    }
}

/* It waits for less than a second, on a machine that is not so busy that it does wait: then it says so. */
TEST(no_news_of_a_training_that_does_not_wait)
{
    static const long ns[] = {0, 1000000};
    for (int workers = 0; workers < 2; workers++) {
        int tries = 0;
        while (fit((slow){ns[workers]}, workers), waited >= 1) {
            if (waited >= 0.1 * took) CHECK_CONTAINS(said, "the training waited");
            CHECK(++tries < 100);
        }
        CHECK_STR(said, "");
    }
}

TEST_MAIN
