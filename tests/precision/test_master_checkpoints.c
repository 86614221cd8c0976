/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints between runs of which one has master weights and the other has none, or parameters of another type. */
#include "quiet_options.h"

#include "base/number.h"

#include "two_layers.h"

#include <stdio.h>
#include <string.h>

enum { EPOCHS = 2, SAVED = 7 };

typedef struct run {
    const char *precision, *strategy, *devices;
    int ranks;      /* 0: one process */
    bool stays_cut; /* parameters are not put together */
    bool sharded;   /* every rank saves a part */
    bool master, sgd;
    const char *from, *to; /* continues from a checkpoint; saves one */
    int64_t save_after;    /* batches; 0: before the first */
    bool writes;           /* the program writes one weight before it saves */
} run;

typedef struct outcome {
    float first[N1 + N2]; /* before the first step */
    float saved[N1 + N2]; /* with the checkpoint */
    float last[N1 + N2];
    int dropped; /* messages about master weights that the run does not keep */
} outcome;

#include "rank_runs.h"

typedef struct net {
    lc_module base;
    lc_tensor *w1, *w2;
    const run *r;
    outcome *out;
    int64_t batches;
} net;

static lc_status read_weights(const net *m, float *to)
{
    LC_TRY(lc_tensor_gather(m->w1, to, N1 * sizeof *to));
    return lc_tensor_gather(m->w2, to + N1, N2 * sizeof *to);
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    (void)i;
    return lc_cross_entropy(lc_linear(lc_gelu(lc_linear(b->x, m->w1, NULL)), m->w2, NULL), b->y);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const run *r = ((net *)self)->r;
    return lc_optimizers_add(out, r->sgd ? lc_sgd(self, .lr = 0.1, .master_weights = r->master)
                                         : lc_adam(self, .lr = 0.004, .master_weights = r->master));
}

static lc_status save_if_time(net *m)
{
    float w[N1];
    if (!m->r->to || m->batches != m->r->save_after) return LC_OK;
    if (m->r->writes) {
        LC_TRY(lc_tensor_read(m->w1, w, sizeof w));
        w[0] = 0.25f;
        LC_TRY(lc_tensor_write(m->w1, w, sizeof w));
    }
    LC_TRY(read_weights(m, m->out->saved));
    return lc_trainer_save_checkpoint(m->base.trainer, m->r->to, false);
}

static lc_status on_train_start(lc_module *self)
{
    net *m = (net *)self;
    LC_TRY(read_weights(m, m->out->first));
    return save_if_time(m);
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b, (void)i;
    m->batches++;
    return save_if_time(m);
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers, .on_train_start = on_train_start,
                                  .on_train_batch_end = on_train_batch_end};

static void listen(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)t;
    if (!strstr(text, "master weights")) return;
    CHECK(level == LC_WARNING && strstr(text, ".master_weights"));
    ((outcome *)self)->dropped++;
}

static const lc_callback_ops listener = {LC_CALLBACK_OPS_INIT("listener"), .on_message = listen};

static lc_status train(lc_comm *comm, const run *r, outcome *out)
{
    net m = {.r = r, .out = out};
    lc_dataloader *loader;
    lc_trainer *t;
    memset(out, 0, sizeof *out);
    lc_module_init(&m.base, &ops, 3);
    add_layers(&m.base, LC_F32, &m.w1, &m.w2);
    LC_TRY(loader_of(0, SAMPLES, comm ? 16 / lc_comm_size(comm) : 16, true, &loader));
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = EPOCHS;
    opt.precision = r->precision;
    opt.strategy = r->strategy;
    opt.gather_parameters = !r->stays_cut;
    if (r->sharded) opt.state_dict_type = "sharded";
    if (r->devices) opt.devices = r->devices;
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) s = lc_trainer_add_callback(t, (lc_callback){&listener, out});
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = loader, .ckpt_path = r->from);
    if (s >= 0) s = read_weights(&m, out->last);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return s;
}

static void train_all(const run *r, outcome *out)
{
    if (r->ranks) {
        ranks all;
        train_each_rank(r, r->ranks, &all);
        *out = all.out[0];
    } else if (train(NULL, r, out) < 0) {
        TEST_FAIL("%s, master weights %d, from %s: %s", r->precision, r->master, r->from ? r->from : "the start",
                  lc_error_message());
    }
}

static const char *const halves[] = {"bf16-true", "16-true"};
static const lc_dtype types[] = {LC_BF16, LC_F16};

static float rounded(lc_dtype dtype, float x)
{
    return dtype == LC_F16 ? lc__f16_to_f32(lc__f32_to_f16(x)) : lc__bf16_to_f32(lc__f32_to_bf16(x));
}

static void check_rounded(const float *given, lc_dtype dtype, const float *from)
{
    for (int i = 0; i < N1 + N2; i++) CHECK_NEAR(given[i], rounded(dtype, from[i]), 0);
}

static const char *path_of(const char *root, const char *name, char path[600])
{
    snprintf(path, 600, "%s/%s.ckpt", root, name);
    return path;
}

/* A run of f32 that has passed through master weights, under any strategy, is the same: they begin with its parameters,
 * and become its parameters again. */
TEST(master_weights_lose_nothing_of_f32)
{
    static const run ways[] = {{.strategy = NULL},
                               {.strategy = "data_parallel", .devices = "2"},
                               {.strategy = "ddp", .ranks = 2},
                               {.strategy = "sharded_1", .ranks = 2},
                               {.strategy = "sharded_2", .ranks = 4, .sharded = true},
                               {.strategy = "sharded_3", .ranks = 2, .sharded = true},
                               {.strategy = "sharded_3", .ranks = 4, .stays_cut = true}};
    enum { WAYS = sizeof ways / sizeof *ways };
    static const char *const wide[] = {"32-true", "bf16-mixed"};
    static outcome whole, o;
    char a[600], b[600], c[600];
    const char *root = fresh_dir("passed");
    train_all(&(run){.precision = "32-true", .to = path_of(root, "f32", a), .save_after = SAVED}, &whole);
    for (int k = 0; k < 2 * WAYS; k++) {
        const int way = k / 2, next = (way + 1) % WAYS;
        run half = ways[way], other = ways[next], last = ways[next];
        half.precision = halves[k % 2], half.master = true, half.from = a, half.to = path_of(root, "half", b);
        train_all(&half, &o);
        check_rounded(o.first, types[k % 2], whole.saved);
        other.precision = halves[!(k % 2)], other.master = true, other.from = b, other.to = path_of(root, "other", c);
        train_all(&other, &o);
        check_rounded(o.first, types[!(k % 2)], whole.saved);
        for (int i = 0; i < 2; i++) {
            last.precision = wide[way % 2], last.master = i, last.from = i ? b : c;
            train_all(&last, &o);
            CHECK(!memcmp(o.first, whole.saved, sizeof o.first));
            CHECK_EQ(o.dropped, 0);
        }
        train_all(&(run){.precision = "32-true", .from = c}, &o);
        CHECK(!memcmp(o.last, whole.last, sizeof o.last));
    }
}

/* SGD has no other state. */
TEST(master_weights_are_the_only_state)
{
    static outcome whole, o;
    char a[600], b[600];
    const char *root = fresh_dir("sgd");
    run first = {.precision = "32-true", .sgd = true, .to = path_of(root, "f32", a), .save_after = SAVED};
    train_all(&first, &whole);
    run half = {.precision = "bf16-true", .sgd = true, .master = true, .from = a, .to = path_of(root, "half", b)};
    train_all(&half, &o);
    train_all(&(run){.precision = "32-true", .sgd = true, .from = b}, &o);
    CHECK(!memcmp(o.last, whole.last, sizeof o.last));
}

/* In f64, parameters have the digits of f32 that master weights keep. */
TEST(master_weights_between_runs_of_f64)
{
    static outcome f64, o;
    char a[600], b[600];
    const char *root = fresh_dir("f64");
    train_all(&(run){.precision = "64-true", .to = path_of(root, "f64", a), .save_after = SAVED}, &f64);
    for (int k = 0; k < 2; k++) {
        train_all(&(run){.precision = halves[k], .master = true, .from = a, .to = path_of(root, "half", b)}, &o);
        check_rounded(o.first, types[k], f64.saved);
        train_all(&(run){.precision = "64-true", .from = b}, &o);
        CHECK(!memcmp(o.first, f64.saved, sizeof o.first));
    }
}

/* A run that has no master weights says so if its parameters would need them; with .master_weights they begin with the
 * parameters. */
TEST(master_weights_come_and_go)
{
    static outcome with, without, again, f32, o;
    char a[600], b[600], c[600];
    for (int k = 0; k < 4; k++) {
        const char *root = fresh_dir("half"), *before = halves[k / 2], *after = halves[k % 2];
        run first = {.precision = before, .master = true, .to = path_of(root, "with", a), .save_after = SAVED};
        train_all(&first, &with);
        train_all(&(run){.precision = "32-true", .from = a}, &f32);
        run bare = {.precision = after, .from = a, .to = path_of(root, "bare", b)};
        train_all(&bare, &without);
        CHECK_EQ(without.dropped, 1);
        check_rounded(without.first, types[k % 2], f32.first);
        if (k / 2 == k % 2) CHECK(!memcmp(without.first, with.saved, sizeof with.saved));
        run back = {.precision = after, .master = true, .from = b, .to = path_of(root, "back", c)};
        train_all(&back, &again);
        CHECK_EQ(again.dropped, 0);
        CHECK(!memcmp(again.first, without.first, sizeof again.first));
        train_all(&(run){.precision = "32-true", .from = c}, &o);
        CHECK(!memcmp(o.first, without.first, sizeof o.first));
    }
}

/* A master weight that is out of date is not taken for the parameter. */
TEST(a_parameter_that_the_program_has_written)
{
    static outcome with, o;
    char a[600];
    run first = {.precision = "bf16-true", .master = true, .save_after = SAVED, .writes = true};
    first.to = path_of(fresh_dir("written"), "with", a);
    train_all(&first, &with);
    train_all(&(run){.precision = "32-true", .from = a}, &o);
    CHECK_NEAR(o.first[0], 0.25f, 0);
    check_rounded(with.saved, LC_BF16, o.first);
    CHECK(memcmp(o.first + 1, with.saved + 1, sizeof o.first - sizeof *o.first)); /* the others have more digits */
}

/* A step of the program's own loop, if `steps`, between a checkpoint that is loaded and one that is saved. */
static void loop(const char *precision, bool master, const char *from, bool steps, const char *to, float *weights)
{
    net m = {.r = NULL};
    lc_fabric *f;
    lc_dataloader *loader;
    lc_batch *batch;
    lc_module_init(&m.base, &ops, 3);
    add_layers(&m.base, LC_F32, &m.w1, &m.w2);
    lc_optimizer *opt = lc_adam(&m.base, .lr = 0.004, .master_weights = master);
    CHECK_OK(loader_of(0, SAMPLES, 16, true, &loader));
    CHECK_OK(lc_fabric_new(&f, .threads = 1, .precision = precision));
    CHECK_OK(lc_fabric_setup(f, &m.base, &opt, 1));
    if (from) CHECK_OK(lc_fabric_load(f, from, NULL));
    CHECK_OK(lc_dataloader_begin(loader, 0, 0));
    CHECK_OK(lc_dataloader_next(loader, &batch));
    if (steps) {
        CHECK_OK(lc_fabric_begin(f));
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, training_step(&m.base, batch, 0));
        lc_fabric_step(f, opt);
        CHECK_OK(lc_fabric_end(f));
    }
    CHECK_OK(read_weights(&m, weights));
    CHECK_OK(lc_fabric_save(f, to, NULL));
    lc_dataloader_free(loader);
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m.base);
}

TEST(loops_of_the_program)
{
    static float f32[N1 + N2], half[N1 + N2], again[N1 + N2];
    char a[600], b[600], c[600];
    for (int k = 0; k < 2; k++) {
        const char *root = fresh_dir("fabric");
        loop("32-true", false, NULL, true, path_of(root, "f32", a), f32);
        loop(halves[k], true, a, false, path_of(root, "half", b), half);
        check_rounded(half, types[k], f32);
        loop("32-true", true, b, false, path_of(root, "again", c), again);
        CHECK(!memcmp(again, f32, sizeof f32));
        loop(halves[k], false, b, true, path_of(root, "bare", c), half);
    }
}

TEST_MAIN
