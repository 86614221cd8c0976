/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings whose f32 values are stored in another type: the program sees f32, and gets the numbers of a program that
 * asks for that type itself; under every strategy, with callbacks that hold weights, and after a resume. */
#include "quiet_options.h"

#include "base/number.h"

#include "two_layers.h"

enum { EPOCHS = 3, LONG = 1000 };

typedef enum holder { NO_HOLDER, EMA, SWA, PRUNING, HISTOGRAM, HOLDERS } holder;

typedef struct run {
    const char *root, *strategy, *devices, *ckpt_path, *precision, *compression;
    int64_t stop_after, save_after, accumulate; /* save_after: batches, to save.ckpt */
    bool deterministic, by_hand;                /* by_hand: the program's parameters are f64 */
    int ranks;                                  /* of a strategy without devices; 0: 2 */
    holder holder;
    bool master, stochastic;
    bool sometimes; /* only every other batch has a gradient of net.cut */
    bool passes;    /* saves stop.ckpt before its first step, and fails */
} run;

typedef struct outcome {
    float w1[N1], w2[N2], cut[LONG];
    double f64[N1];                /* w1, if it is stored so */
    double first[N1], stopped[N1]; /* w1 as it was stored before the first step, and in stop.ckpt */
    double loss[64];
    int n;
    lc_dtype dtype, storage;
} outcome;

#include "runs.h"

typedef struct net {
    lc_module base;
    lc_tensor *w1, *w2, *b;
    lc_tensor *cut; /* so long that each of several ranks has a slice; for stochastic rounding and `sometimes` */
    const run *r;
    outcome *out;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    lc_tensor *x = m->r->by_hand ? lc_cast(b->x, LC_F64) : b->x;
    lc_tensor *y = lc_gelu(lc_linear(x, m->w1, m->b));
    CHECK_EQ(lc_tensor_storage(y), lc_tensor_dtype(y)); /* of a result it is not decided yet */
    y = lc_layer_norm(y, NULL, NULL);
    y = lc_cross_entropy(lc_linear(y, m->w2, NULL), b->y);
    return m->cut && (i % 2 || !m->r->sometimes) ? lc_add(y, lc_mean(lc_mul(m->cut, m->cut))) : y;
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)loader;
    lc_log(self, "val_loss", training_step(self, b, i));
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 0.004, .master_weights = ((net *)self)->r->master,
                                          .stochastic_rounding = ((net *)self)->r->stochastic));
}

/* w1, if it is whole. */
static lc_status read_stored(const net *m, double *to)
{
    char data[N1 * sizeof(double)];
    const lc_dtype dtype = lc_tensor_storage(m->w1);
    if (m->r->strategy || m->r->by_hand) return LC_OK;
    LC_TRY(lc_tensor_read(m->w1, data, N1 * lc_dtype_size(dtype)));
    for (int i = 0; i < N1; i++) to[i] = lc__number_at(data, dtype, i);
    return LC_OK;
}

static lc_status on_train_start(lc_module *self)
{
    const net *m = (net *)self;
    LC_TRY(read_stored(m, m->out->first));
    return m->r->passes ? save_and_die(self->trainer) : LC_OK;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b, (void)i;
    LC_TRY(lc_item(o->loss, &m->out->loss[m->out->n++]));
    LC_TRY(read_stored(m, m->out->stopped));
    if (m->out->n == m->r->save_after) {
        char path[600];
        snprintf(path, sizeof path, "%s/save.ckpt", m->r->root);
        LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    }
    return die_after(self->trainer, m->r->stop_after);
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("stored"),       .training_step = training_step,
                                  .validation_step = validation_step, .configure_optimizers = configure_optimizers,
                                  .on_train_start = on_train_start,   .on_train_batch_end = on_train_batch_end};

/* by_hand: parameters of f64, with the initial values that they have in f32. */
static lc_status build(net *m)
{
    static const int64_t bias[] = {HIDDEN};
    const bool f64 = m->r && m->r->by_hand;
    lc_module_init(&m->base, &ops, 3);
    add_layers(&m->base, f64 ? LC_F64 : LC_F32, &m->w1, &m->w2);
    m->b = lc_module_add_parameter(&m->base, "w1.bias", f64 ? LC_F64 : LC_F32, LC_ROW_MAJOR, 1, bias,
                                   (lc_init){LC_INIT_ZEROS});
    if (m->r && (m->r->stochastic || m->r->sometimes))
        m->cut = lc_module_add_parameter(&m->base, "cut", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){LONG},
                                         (lc_init){.kind = LC_INIT_UNIFORM, .a = -1, .b = 1});
    LC_TRY(lc_module_status(&m->base));
    if (!f64) return LC_OK;
    net f32 = {.r = NULL};
    float w1[N1], w2[N2];
    double wide1[N1], wide2[N2];
    LC_TRY(build(&f32));
    LC_TRY(lc_tensor_read(f32.w1, w1, sizeof w1));
    LC_TRY(lc_tensor_read(f32.w2, w2, sizeof w2));
    for (int i = 0; i < N1; i++) wide1[i] = (double)w1[i];
    for (int i = 0; i < N2; i++) wide2[i] = (double)w2[i];
    lc_module_release(&f32.base);
    LC_TRY(lc_tensor_write(m->w1, wide1, sizeof wide1));
    return lc_tensor_write(m->w2, wide2, sizeof wide2);
}

static lc_status add_holder(lc_trainer *t, holder h)
{
    static const double swa_lr = 0.002;
    lc_callback cb;
    switch (h) {
    case EMA:
        LC_TRY(lc_ema_weight_averaging(&cb, .decay = 0.9));
        break;
    case SWA:
        LC_TRY(
            lc_stochastic_weight_averaging(&cb, .swa_lrs = &swa_lr, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(1)));
        break;
    case PRUNING:
        LC_TRY(lc_model_pruning(&cb, .pruning_fn = "l1_unstructured", .amount = 0.25));
        break;
    case HISTOGRAM:
        LC_TRY(lc_weight_histogram(&cb, .every_n_train_steps = 2, .gradients = true));
        break;
    default:
        return LC_OK;
    }
    return lc_trainer_add_callback(t, cb);
}

static lc_status train(lc_comm *comm, const run *r, outcome *out)
{
    net m = {.r = r, .out = out};
    lc_dataloader *loader;
    lc_trainer *t;
    memset(out, 0, sizeof *out);
    LC_TRY(loader_of(0, SAMPLES, comm ? 16 / lc_comm_size(comm) : 16, true, &loader));
    LC_TRY(build(&m));
    lc_trainer_options opt = quiet_options(comm);
    opt.default_root_dir = r->root;
    opt.strategy = r->strategy;
    if (r->devices) opt.devices = r->devices;
    opt.max_epochs = EPOCHS;
    opt.gradient_clip_val = 0.5;
    if (r->accumulate) opt.accumulate_grad_batches = r->accumulate;
    opt.deterministic = r->deterministic;
    opt.precision = r->precision;
    if (r->compression) opt.gradient_compression = r->compression;
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) s = add_holder(t, r->holder);
    if (s >= 0)
        s = lc_trainer_fit(t, &m.base, .train_dataloader = loader, .val_dataloader = loader, .ckpt_path = r->ckpt_path);
    out->dtype = lc_tensor_dtype(m.w1), out->storage = lc_tensor_storage(m.w1);
    const bool f64 = out->storage == LC_F64;
    if (s >= 0 && f64) s = lc_tensor_gather(m.w1, out->f64, sizeof out->f64);
    if (s >= 0 && !r->by_hand) s = lc_tensor_gather(m.w1, out->w1, sizeof out->w1);
    if (s >= 0 && !r->by_hand) s = lc_tensor_gather(m.w2, out->w2, sizeof out->w2);
    if (s >= 0 && m.cut) s = lc_tensor_gather(m.cut, out->cut, sizeof out->cut);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return s;
}

static bool same(const outcome *a, const outcome *b)
{
    return !memcmp(a->w1, b->w1, sizeof a->w1) && !memcmp(a->w2, b->w2, sizeof a->w2) &&
           !memcmp(a->cut, b->cut, sizeof a->cut);
}

static void outcome_of(const run *r, outcome *out)
{
    if (r->strategy && !r->devices)
        train_ranks(r, r->ranks ? r->ranks : 2, out);
    else
        CHECK_OK(train(NULL, r, out));
}

static const char *const names[] = {"64-true", "bf16-true", "16-true"};
static const lc_dtype types[] = {LC_F64, LC_BF16, LC_F16};

/* From the fifth on, on devices of one process. */
static const char *const strategies[] = {"ddp",       "sharded_1",     "sharded_2",
                                         "sharded_3", "data_parallel", "central_storage"};

/* Relative distances of losses from those of f32 that are enough for a few steps. */
static const double near[] = {1e-5, 0.03, 0.01};

static void check_near(const outcome *a, const outcome *b, double bound)
{
    CHECK_EQ(a->n, b->n);
    for (int i = 0; i < a->n; i++) CHECK_NEAR(a->loss[i], b->loss[i], bound * b->loss[i]);
}

TEST(the_program_sees_f32)
{
    outcome f32, o;
    outcome_of(&(run){.precision = "32-true"}, &f32);
    CHECK(f32.dtype == LC_F32 && f32.storage == LC_F32);
    for (int i = 0; i < 3; i++) {
        outcome_of(&(run){.precision = names[i]}, &o);
        CHECK(o.dtype == LC_F32 && o.storage == types[i]);
        check_near(&o, &f32, near[i]);
        CHECK(!same(&o, &f32));
    }
}

/* 64-true has the bits of a program whose parameters are f64. */
TEST(the_numbers_are_those_of_f64)
{
    outcome stored, by_hand;
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        outcome_of(&(run){.precision = "64-true", .accumulate = accumulate}, &stored);
        outcome_of(&(run){.precision = "32-true", .accumulate = accumulate, .by_hand = true}, &by_hand);
        CHECK(by_hand.dtype == LC_F64);
        CHECK(!memcmp(stored.f64, by_hand.f64, sizeof stored.f64));
    }
}

/* The sum of the distances of the weights. */
static double distance(const outcome *a, const outcome *b)
{
    double sum = 0;
    for (int i = 0; i < N1; i++) sum += fabs((double)a->w1[i] - (double)b->w1[i]);
    for (int i = 0; i < N2; i++) sum += fabs((double)a->w2[i] - (double)b->w2[i]);
    return sum;
}

TEST(master_weights_keep_small_updates)
{
    outcome f32, o, plain;
    outcome_of(&(run){.precision = "32-true"}, &f32);
    for (int i = 1; i < 3; i++) {
        outcome_of(&(run){.precision = names[i], .master = true}, &o);
        outcome_of(&(run){.precision = names[i]}, &plain);
        CHECK(2 * distance(&o, &f32) < distance(&plain, &f32));
    }
}

TEST(every_strategy)
{
    outcome f32, o;
    for (int k = 0; k < 12; k++) {
        run r = {.precision = "32-true", .strategy = strategies[k / 2], .accumulate = 1 + k % 2};
        if (k / 2 >= 4) r.devices = "2";
        outcome_of(&r, &f32);
        for (int i = 0; i < 3; i++) {
            r.precision = names[i];
            outcome_of(&r, &o);
            check_near(&o, &f32, near[i]);
        }
    }
}

/* The ranks add up a gradient that no pass has made. */
TEST(absent_gradients)
{
    static outcome f32, o;
    for (int k = 0; k < 4; k++) {
        run r = {.precision = "32-true", .strategy = strategies[k], .sometimes = true};
        outcome_of(&r, &f32);
        for (int i = 0; i < 3; i++) {
            r.precision = names[i];
            outcome_of(&r, &o);
            check_near(&o, &f32, near[i]);
            for (int j = 0; j < LONG; j++) CHECK_NEAR(o.cut[j], f32.cut[j], near[i]);
        }
    }
}

TEST(compressed_gradients)
{
    static outcome f32, o;
    for (int k = 0; k < 6; k++) {
        run r = {.precision = "32-true", .strategy = "ddp", .compression = k % 2 ? "bf16" : "fp16"};
        outcome_of(&r, &f32);
        r.precision = names[k / 2];
        outcome_of(&r, &o);
        check_near(&o, &f32, 2 * near[1]);
    }
}

/* On two and four ranks or devices, under the first `n` strategies, the run has the bits of `one`. */
static void check_same_bits(run r, int n, const outcome *one)
{
    static outcome several;
    for (int i = 0; i < 2 * n; i++) {
        r.strategy = strategies[i / 2];
        r.ranks = 2 + i % 2 * 2;
        r.devices = i / 2 < 4 ? NULL : r.ranks == 2 ? "2" : "4";
        outcome_of(&r, &several);
        if (!same(one, &several)) TEST_FAIL("%s, %d of %s", r.precision, r.ranks, r.strategy);
    }
}

/* Also with a window of two batches, whose sums are held between them. */
TEST(deterministic_ranks_are_one_device)
{
    static outcome one;
    for (int k = 0; k < 6; k++) {
        run r = {.precision = names[k / 2], .deterministic = true, .accumulate = 1 + k % 2};
        outcome_of(&r, &one);
        check_same_bits(r, 6, &one);
    }
}

/* The bytes of the gradients after another epoch of the module. */
static int64_t gradient_bytes(net *m, bool deterministic)
{
    lc_dataloader *loader;
    lc_trainer *t;
    lc_device_memory memory;
    lc_trainer_options opt = quiet_options(NULL);
    opt.max_epochs = 1;
    opt.precision = m->r->precision;
    opt.deterministic = deterministic;
    m->out->n = 0;
    CHECK_OK(loader_of(0, SAMPLES, 16, true, &loader));
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m->base, .train_dataloader = loader, .val_dataloader = loader));
    CHECK_OK(lc_trainer_memory(t, &memory));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    return memory.gradients;
}

/* The sums are f32, and only for such a run. */
TEST(deterministic_sums_are_f32)
{
    static outcome f32, o, plain;
    for (int i = 1; i < 3; i++) {
        outcome_of(&(run){.precision = "32-true", .deterministic = true}, &f32);
        outcome_of(&(run){.precision = names[i], .deterministic = true}, &o);
        outcome_of(&(run){.precision = names[i]}, &plain);
        check_near(&o, &f32, near[i]);
        CHECK(!same(&o, &plain));
        net m = {.r = &(run){.precision = names[i]}, .out = &o};
        CHECK_OK(build(&m));
        int64_t before = gradient_bytes(&m, false), sums = gradient_bytes(&m, true);
        CHECK(sums >= 2 * before);
        CHECK_EQ(gradient_bytes(&m, false), before);
        lc_module_release(&m.base);
    }
}

TEST(deterministic_callbacks_of_weights)
{
    static outcome one, slices;
    for (int k = 0; k < 2 * HOLDERS; k++) {
        run r = {.precision = names[1 + k % 2], .deterministic = true, .holder = (holder)(k / 2)};
        outcome_of(&r, &one);
        r.strategy = "sharded_2";
        outcome_of(&r, &slices);
        if (!same(&one, &slices)) TEST_FAIL("%s, holder %d", r.precision, k / 2);
    }
}

/* Sums that are held inside a window are saved, and any number of ranks continues from them. */
TEST(a_deterministic_window_is_resumed)
{
    static const char *const from[] = {NULL, "sharded_2", "ddp"}, *const to[] = {"sharded_3", NULL, "sharded_1"};
    static outcome whole, rest;
    char path[700];
    for (int k = 0; k < 9; k++) {
        run r = {.precision = names[k / 3], .deterministic = true, .accumulate = 3, .master = true};
        r.root = fresh_dir("stored");
        r.save_after = 8;
        r.strategy = from[k % 3];
        outcome_of(&r, &whole);
        snprintf(path, sizeof path, "%s/save.ckpt", r.root);
        r.ckpt_path = path;
        r.save_after = 0;
        r.strategy = to[k % 3];
        outcome_of(&r, &rest);
        CHECK(rest.n == whole.n - 8);
        if (!same(&whole, &rest)) TEST_FAIL("%s, %d: the resumed run differs", r.precision, k % 3);
    }
}

/* Neither ranks, slices nor buckets change the random numbers of updates, and a resumed run continues with them. */
TEST(stochastic_rounding)
{
    static outcome one, rest, plain;
    for (int k = 1; k < 3; k++) {
        run r = {.precision = names[k], .deterministic = true, .stochastic = true};
        outcome_of(&r, &one);
        outcome_of(&(run){.precision = names[k], .deterministic = true}, &plain);
        CHECK(memcmp(one.w1, plain.w1, sizeof one.w1));
        check_same_bits(r, 5, &one);
        r.deterministic = false;
        outcome_of(&r, &one);
        train_in_two(&r, 11, &rest);
        CHECK(same(&one, &rest));
    }
}

TEST(a_resumed_run_is_the_same)
{
    outcome whole, rest;
    for (int i = 0; i < 3; i++)
        for (holder h = NO_HOLDER; h < HOLDERS; h++) {
            run r = {.precision = names[i], .holder = h, .master = h == NO_HOLDER};
            outcome_of(&r, &whole);
            train_in_two(&r, 11, &rest);
            if (!same(&whole, &rest)) TEST_FAIL("%s, holder %d: the resumed run differs", names[i], (int)h);
        }
}

/* Slices of parameters are averaged and pruned as whole ones are. */
TEST(callbacks_of_sliced_weights)
{
    outcome whole, slices;
    for (int i = 0; i < 3; i++)
        for (holder h = EMA; h < HOLDERS; h++) {
            run r = {.precision = names[i], .holder = h, .strategy = "ddp"};
            outcome_of(&r, &whole);
            for (int k = 1; k < 4; k++) {
                r.strategy = strategies[k];
                outcome_of(&r, &slices);
                if (!same(&whole, &slices)) TEST_FAIL("%s, holder %d, %s", names[i], (int)h, strategies[k]);
            }
        }
}

static const char *const every[] = {"32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true"};

/* A run in any precision begins with the weights of the one before, rounded to the type in which it stores them. */
TEST(checkpoints_go_from_one_precision_to_another)
{
    outcome before, o;
    for (int i = 0; i < 36; i++) {
        run first = {.precision = every[i / 6], .root = fresh_dir("stored"), .stop_after = 7};
        run then = {.precision = every[i % 6], .root = first.root};
        CHECK_STATUS(train(NULL, &first, &before), LC_ERR_USER);
        lc_status s = resume(&first, &then, &o);
        if (s < 0) TEST_FAIL("from %s to %s: %s", every[i / 6], every[i % 6], lc_error_message());
        for (int k = 0; k < N1; k++) {
            uint64_t bits;
            lc__store_number(&bits, o.storage, before.stopped[k]);
            double want = lc__load_number(&bits, o.storage);
            if (o.first[k] != want)
                TEST_FAIL("from %s to %s: weight %d is %.9g, not %.9g", every[i / 6], every[i % 6], k, o.first[k],
                          want);
        }
        CHECK_EQ(before.n + o.n, EPOCHS * SAMPLES / 16);
    }
}

/* Another precision that holds f32 loses nothing of a run: weights, the optimizer's state, the place in the data. */
TEST(a_run_that_passed_through_another_precision_is_the_same)
{
    outcome whole, o;
    outcome_of(&(run){.precision = "32-true"}, &whole);
    for (int i = 0; i < 4; i++) {
        run first = {.precision = "32-true", .root = fresh_dir("stored"), .stop_after = 7};
        CHECK_STATUS(train(NULL, &first, &o), LC_ERR_USER);
        run other = {.precision = every[i], .root = first.root, .passes = true};
        CHECK_STATUS(resume(&first, &other, &o), LC_ERR_USER);
        CHECK_EQ(o.n, 0);
        run last = {.precision = "32-true", .root = first.root};
        CHECK_OK(resume(&other, &last, &o));
        if (!same(&whole, &o)) TEST_FAIL("the run that passed through %s differs", every[i]);
    }
}

/* Steps in another precision are near those of f32. */
TEST(a_run_that_was_mixed_in_between_is_near)
{
    outcome whole, o;
    outcome_of(&(run){.precision = "32-true"}, &whole);
    for (int i = 1; i < 3; i++) {
        run first = {.precision = "32-true", .root = fresh_dir("stored"), .stop_after = 5};
        CHECK_STATUS(train(NULL, &first, &o), LC_ERR_USER);
        run mixed = {.precision = every[i], .root = first.root, .stop_after = 10};
        CHECK_STATUS(resume(&first, &mixed, &o), LC_ERR_USER);
        CHECK_EQ(o.n, 5);
        CHECK(o.loss[0] != whole.loss[5]);
        run last = {.precision = "32-true", .root = first.root};
        CHECK_OK(resume(&mixed, &last, &o));
        for (int k = 0; k < o.n; k++) CHECK_NEAR(o.loss[k], whole.loss[10 + k], near[i] * whole.loss[10 + k]);
        CHECK(!same(&whole, &o));
    }
}

/* ---- one module in several runs ---- */

TEST(a_module_goes_from_one_precision_to_another)
{
    static const char *const order[] = {"32-true",  "bf16-true", "32-true",   "64-true",
                                        "16-mixed", "16-true",   "bf16-mixed"};
    static const lc_dtype stored[] = {LC_F32, LC_BF16, LC_F32, LC_F64, LC_F32, LC_F16, LC_F32};
    static outcome out;
    run r = {.precision = "32-true"};
    net m = {.r = &r, .out = &out};
    lc_dataloader *loader;
    CHECK_OK(loader_of(0, SAMPLES, 16, true, &loader));
    CHECK_OK(build(&m));
    for (int i = 0; i < 7; i++) {
        lc_trainer *t;
        float before[N1], after[N1];
        lc_trainer_options opt = quiet_options(NULL);
        opt.max_epochs = 1;
        opt.precision = order[i];
        m.out->n = 0;
        CHECK_OK(lc_tensor_read(m.w1, before, sizeof before));
        CHECK_OK(lc_trainer_new(&opt, &t));
        CHECK_OK(lc_trainer_validate(t, &m.base, .val_dataloader = loader));
        CHECK(lc_tensor_storage(m.w1) == stored[i]);
        CHECK_OK(lc_tensor_read(m.w1, after, sizeof after));
        for (int k = 0; k < N1; k++) CHECK_NEAR(after[k], before[k], 0.01);
        CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
        CHECK(lc_tensor_storage(m.w1) == stored[i] && lc_tensor_dtype(m.w1) == LC_F32);
        lc_trainer_free(t);
    }
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
}

/* Three steps of a program's own loop. */
static void fabric_loop(net *m, const char *precision, lc_optimizer *opt)
{
    lc_fabric *f;
    lc_dataloader *loader;
    lc_batch *batch;
    CHECK_OK(loader_of(0, SAMPLES, 16, true, &loader));
    CHECK_OK(lc_fabric_new(&f, .threads = 1, .precision = precision));
    CHECK_OK(lc_fabric_setup(f, &m->base, &opt, 1));
    CHECK_OK(lc_dataloader_begin(loader, 0, 0));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lc_dataloader_next(loader, &batch));
        CHECK_OK(lc_fabric_begin(f));
        lc_tensor *loss = training_step(&m->base, batch, i);
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, loss);
        lc_fabric_clip_gradients(f, opt, .max_norm = 1);
        lc_fabric_step(f, opt);
        CHECK_OK(lc_fabric_end(f));
        CHECK_OK(lc_item(loss, &m->out->loss[m->out->n++]));
    }
    lc_dataloader_free(loader);
    lc_fabric_free(f);
}

TEST(loops_of_the_program)
{
    static const char *const all[] = {"32-true", "64-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed"};
    static outcome out, f32;
    for (int i = 0; i < 6; i++) {
        run r = {.precision = all[i]};
        net m = {.r = &r, .out = &out};
        out.n = 0;
        CHECK_OK(build(&m));
        lc_optimizer *opt = lc_adam(&m.base, .lr = 0.004);
        fabric_loop(&m, all[i], opt);
        if (i == 0) f32 = out;
        check_near(&out, &f32, 0.03);
        if (i == 2) { /* the optimizer has state of the other type */
            lc_fabric *f;
            CHECK_OK(lc_fabric_new(&f, .threads = 1, .precision = "64-true"));
            CHECK_STATUS(lc_fabric_setup(f, &m.base, &opt, 1), LC_ERR_STATE);
            CHECK(strstr(lc_error_message(), "make a new optimizer"));
            lc_fabric_free(f);
        }
        lc_optimizer_free(opt);
        lc_module_release(&m.base);
    }
}

TEST_MAIN
