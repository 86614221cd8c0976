/* SPDX-License-Identifier: Apache-2.0 */
/* A run that was killed and resumed ends like one that was not, bit for bit, with each callback: weights,
 * optimizer, the callbacks' tensors and state, at every batch of the training. One on the simulated device ends like
 * one on the CPU.
 *
 * To add a callback: a function that makes it, and a line in `cases`. */
#include "callback_makers.h"

enum { AT_ONCE = 12 };
typedef lc_status make_callback(lc_callback *out);
typedef struct part {
    const char *name;
    make_callback *make[AT_ONCE];
    int64_t accumulate, epochs;
    bool schedule, trainable_only;
} part;

static lc_status make_ema(lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.9, .update_every_n_steps = 2);
}
static lc_status make_ema_of_epochs(lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.5, .use_buffers = LC_OFF, .update_starting_at_step = 4,
                                   .update_starting_at_epoch = 0);
}

static lc_status make_backbone(lc_callback *out)
{
    return lc_backbone_finetuning(out, .unfreeze_backbone_at_epoch = 1, .backbone_initial_lr = 1e-3);
}
static lc_status make_finetuning(lc_callback *out)
{
    static bool train_bn;
    return make_finetuning_with(&train_bn, out);
}
static lc_status make_random_pruning(lc_callback *out)
{
    /* head.bias has only one element. */
    static const char *const paths[] = {"backbone.l1.weight", "backbone.l1.bias", "backbone.norm.weight",
                                        "backbone.norm.bias", "head.weight"};
    return lc_model_pruning(out, .pruning_fn = "random_unstructured", .amount_count = 1,
                            .use_global_unstructured = LC_OFF, .resample_parameters = true,
                            .parameters_to_prune = paths, .n_parameters_to_prune = 5,
                            .prune_on_train_epoch_end = LC_OFF);
}

static lc_status make_spikes(lc_callback *out)
{
    return lc_spike_detection(out, .skip = true, .window = 3, .rtol = 0.2);
}

static lc_status make_norms(lc_callback *out)
{
    return lc_gradient_norm_monitor_new(NULL, out);
}
static lc_status make_nothing(lc_callback *out)
{
    return lc_lambda_callback_new(NULL, out);
}
static lc_status make_histograms(lc_callback *out)
{
    return lc_weight_histogram(out, .gradients = true, .every_n_train_steps = 2);
}
static lc_status make_throughput(lc_callback *out)
{
    return lc_throughput_monitor(out, .available_flops = 1e9);
}

static const part cases[] = {
    {"gradient_accumulation_scheduler", {make_accumulation}, 1, 4, true, false},
    {"weight_averaging", {make_mean}, 2, 3, true, false},
    {"ema", {make_ema}, 1, 3, true, false},
    {"ema_of_epochs", {make_ema_of_epochs}, 1, 3, false, false},
    {"swa", {make_swa}, 1, 4, true, false},
    {"swa_in_windows", {make_swa}, 4, 4, false, false},
    {"spikes", {make_spikes}, 1, 3, true, false},
    {"spikes_in_windows", {make_spikes}, 3, 3, false, false},
    {"backbone_finetuning", {make_backbone}, 1, 4, true, true},
    {"finetuning", {make_finetuning}, 2, 4, true, false},
    {"pruning", {make_pruning}, 1, 4, true, false},
    {"random_pruning", {make_random_pruning}, 2, 3, false, false},
    {"structured_pruning", {make_structured_pruning}, 1, 3, false, false},
};

/* Trains from `ckpt` (NULL: from the start) and saves the end as DIR/NAME.ckpt; or ends after a batch, having saved
 * stop.ckpt. */
static void train(const part *c, const char *dir, const char *ckpt, int64_t die_after, const char *name)
{
    net m;
    lc_trainer *t;
    lc_callback cb[AT_ONCE];
    char path[400];
    net_init(&m);
    m.die_after = die_after;
    m.schedule = c->schedule;
    m.trainable_only = c->trainable_only;
    lc_trainer_options o = world_options(dir);
    o.callbacks = cb;
    for (; o.n_callbacks < AT_ONCE && c->make[o.n_callbacks]; o.n_callbacks++)
        CHECK_OK(c->make[o.n_callbacks](&cb[o.n_callbacks]));
    o.max_epochs = c->epochs;
    o.accumulate_grad_batches = c->accumulate;
    o.val_check_interval = LC_FRACTION(0.5);
    o.gradient_clip_val = 0.5;
    o.threads = 1;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .ckpt_path = ckpt);
    if (die_after >= 0)
        CHECK_STATUS(s, LC_ERR_USER);
    else
        CHECK_OK(s);
    if (name) {
        snprintf(path, sizeof path, "%s/%s.ckpt", dir, name);
        CHECK_OK(lc_trainer_save_checkpoint(t, path, false));
    }
    lc_trainer_free(t);
    net_release(&m);
}

/* Removes clock readings, which differ from run to run. */
static void drop_times(char *text, size_t *n)
{
    static const char key[] = "\"time_elapsed\": ";
    for (char *at = text; (at = strstr(at, key));) {
        char *value = at + strlen(key), *line_end = strchr(value, '\n');
        memmove(value, line_end, strlen(line_end) + 1);
        at = value;
    }
    *n = strlen(text);
}

/* The contents of a file of a checkpoint; NULL if there is no such file. */
static char *contents(const char *dir, const char *name, const char *file, size_t *n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s.ckpt/%s", dir, name, file);
    FILE *f = fopen(path, "rb");
    *n = 0;
    if (!f) return NULL;
    char *data = malloc(1 << 20);
    *n = fread(data, 1, (1 << 20) - 1, f);
    data[*n] = 0;
    fclose(f);
    if (!strcmp(file, "state.json")) drop_times(data, n);
    return data;
}

/* Compares the end of another run with that of the whole one. */
static void check_same(const char *dir, const char *who, const char *run, int64_t k)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "tensors.safetensors",
                                        "state.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t a, b;
        char *whole = contents(dir, "whole", files[i], &a), *other = contents(dir, run, files[i], &b);
        size_t same = 0;
        while (same < a && same < b && whole[same] == other[same]) same++;
        if (a != b || same < a)
            TEST_FAIL("%s: %s differs, %s at batch %lld (%zu and %zu bytes, from %zu): %.200s", who, files[i], run,
                      (long long)k, a, b, same, same < b ? other + (same > 80 ? same - 80 : 0) : "");
        free(whole);
        free(other);
    }
}

/* The run with which the others are compared. */
static void train_whole(const part *c, const char *dir)
{
    train(c, dir, NULL, -1, "whole");
    if (!is_simulated()) return;
    simulate(false);
    train(c, dir, NULL, -1, "on the CPU");
    simulate(true);
    check_same(dir, c->name, "on the CPU", 0);
}

static void check_every_batch(const part *c)
{
    char dir[256], path[300];
    CHECK(world_dir(dir, sizeof dir));
    train_whole(c, dir);
    snprintf(path, sizeof path, "%s/stop.ckpt", dir);
    for (int64_t k = 1; k <= NET_BATCHES * c->epochs; k++) {
        train(c, dir, NULL, k, NULL);
        train(c, dir, path, -1, "resumed");
        check_same(dir, c->name, "resumed", k);
    }
    world_remove(dir);
}

TEST(every_callback_at_every_batch)
{
    const char *only = getenv("LIGHTC_TEST_CALLBACK");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!only || strstr(cases[i].name, only)) check_every_batch(&cases[i]);
}

/* Any of them together, in any order. */
TEST(several_callbacks_at_some_batches)
{
    static make_callback *const all[] = {make_accumulation, make_mean,       make_ema,    make_swa,
                                         make_backbone,     make_pruning,    make_spikes, make_norms,
                                         make_histograms,   make_throughput, make_nothing};
    enum { N = sizeof all / sizeof *all };
    for (uint64_t round = 0; round < 25; round++) {
        part c = {.name = "many at once", .epochs = 2 + (int64_t)lc_random_below(1, round, 3)};
        char dir[256], path[300];
        int order[N], n = 0;
        bool windows = false, averages = false;
        for (int i = 0; i < N; i++) {
            int at = (int)lc_random_below(2 + round, (uint64_t)i, (uint64_t)i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        for (int i = 0; i < N; i++) {
            if (lc_random_below(100 + round, (uint64_t)i, 2)) continue;
            bool average = all[order[i]] == make_mean || all[order[i]] == make_ema;
            if (average && averages) continue; /* a model has one average */
            averages |= average;
            c.make[n++] = all[order[i]];
            windows |= all[order[i]] == make_accumulation;
        }
        c.accumulate = windows ? 1 : 1 + (int64_t)lc_random_below(3, round, 3);
        c.schedule = lc_random_below(4, round, 2) == 0;
        c.trainable_only = lc_random_below(5, round, 2) == 0;
        CHECK(world_dir(dir, sizeof dir));
        train_whole(&c, dir);
        snprintf(path, sizeof path, "%s/stop.ckpt", dir);
        for (uint64_t i = 0; i < 3; i++) {
            int64_t k = 1 + (int64_t)lc_random_below(6 + round, i, (uint64_t)(NET_BATCHES * c.epochs));
            train(&c, dir, NULL, k, NULL);
            train(&c, dir, path, -1, "resumed");
            check_same(dir, c.name, "resumed", k);
        }
        world_remove(dir);
    }
}

/* ---- a run that fails in the first batch of an epoch ---- */

static int64_t first_batch_fails; /* of this epoch; -1: of none */

static lc_status fail_at_first(void *ctx, lc_trainer *t, const lc_batch *b, int64_t i)
{
    (void)ctx, (void)b;
    if (i != 0 || lc_trainer_current_epoch(t) != first_batch_fails) return LC_OK;
    first_batch_fails = -1;
    return lc_fail(LC_ERR_USER, "on purpose");
}

static lc_status fit_until_failure(const char *dir, float weights[NET_WEIGHTS])
{
    net m;
    lc_trainer *t;
    lc_callback cb[3];
    net_init(&m);
    m.trainable_only = true;
    CHECK_OK(lc_backbone_finetuning(&cb[0], .unfreeze_backbone_at_epoch = 0, .backbone_initial_lr = 1e-3));
    CHECK_OK(lc_lambda_callback(&cb[1], .on_train_batch_start = fail_at_first));
    CHECK_OK(lc_on_exception_checkpoint(&cb[2], .dirpath = dir));
    lc_trainer_options o = world_options(dir);
    o.callbacks = cb;
    o.n_callbacks = 3;
    o.max_epochs = 3;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m.base);
    net_weights(&m, weights);
    lc_trainer_free(t);
    net_release(&m);
    return s;
}

/* on_train_epoch_start, in which the finetuning doubles its rate, has run by then, and does not run again. */
TEST(an_epoch_that_had_begun_does_not_begin_again)
{
    char dir[256];
    float whole[NET_WEIGHTS], resumed[NET_WEIGHTS];
    CHECK(world_dir(dir, sizeof dir));
    first_batch_fails = -1;
    CHECK_OK(fit_until_failure(dir, whole));
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        first_batch_fails = epoch;
        CHECK_STATUS(fit_until_failure(dir, resumed), LC_ERR_USER);
        CHECK_OK(fit_until_failure(dir, resumed));
        CHECK(!memcmp(whole, resumed, sizeof whole));
    }
    world_remove(dir);
}

/* ---- a timer in one process ---- */

static double elapsed_at_start;

static lc_status look_at_timer(void *timer, lc_trainer *t)
{
    (void)t;
    elapsed_at_start = lc_timer_elapsed(timer);
    return LC_OK;
}

/* A program that catches an error, waits, and continues with the same trainer still has the rest of its time. */
TEST(a_timer_counts_only_training_and_only_once)
{
    char dir[256], path[300];
    net m;
    lc_trainer *t;
    lc_callback cb[2], timer;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/stop.ckpt", dir);
    net_init(&m);
    m.die_after = NET_BATCHES;
    CHECK_OK(lc_timer_new(1e6, false, &timer));
    CHECK_OK(lc_lambda_callback(&cb[1], .context = &timer, .on_fit_start = look_at_timer));
    cb[0] = timer;
    lc_trainer_options o = world_options(dir);
    o.callbacks = cb;
    o.n_callbacks = 2;
    o.max_epochs = 2;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &m.base), LC_ERR_USER);
    double first = lc_timer_elapsed(&timer);
    usleep(20000);
    CHECK(first > 0 && lc_timer_elapsed(&timer) == first);
    m.die_after = -1;
    CHECK_OK(lc_trainer_fit(t, &m.base, .ckpt_path = path));
    CHECK(elapsed_at_start > 0 && elapsed_at_start <= first);
    CHECK(lc_timer_elapsed(&timer) > elapsed_at_start);
    lc_trainer_free(t);
    net_release(&m);
    world_remove(dir);
}

TEST_MAIN
