/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings whose loss is scaled, with an overflow in every epoch, and master weights of halves: under every strategy,
 * with accumulation, clipping, several types, and after a resume they are what a training without a scale is that
 * leaves the same updates out. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"

#include "record/graph_impl.h"

enum { SAMPLES = 96, HIDDEN = 8, EPOCHS = 3, BAD_BATCH = 3 };
#include "small_data.h"

enum { N1 = HIDDEN * FEATURES, N2 = CLASSES * HIDDEN };

typedef struct run {
    lc_dtype dtype, second; /* of the two layers */
    const char *root, *strategy, *devices, *ckpt_path;
    int64_t stop_after, accumulate;
    bool scaled, master, deterministic, by_value, muon;
} run;

typedef struct net {
    lc_module base;
    lc_tensor *w1, *w2, *unscale;
    const run *r;
    int64_t batches;
    bool overflow; /* in the window of accumulation */
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *x = lc_relu(lc_linear(b->x, lc_cast(m->w1, LC_F32), NULL));
    lc_tensor *loss = lc_cross_entropy(lc_linear(x, lc_cast(m->w2, LC_F32), NULL), b->y);
    if (i % m->r->accumulate == 0) m->overflow = false;
    m->overflow |= i == BAD_BATCH;
    return m->r->scaled ? lc_mul_scalar(loss, i == BAD_BATCH ? (double)INFINITY : 1024) : loss;
}

static lc_status on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    (void)b, (void)i;
    if (m->r->scaled) lc_current_graph()->unscale = m->unscale;
    return LC_OK;
}

static lc_status on_before_optimizer_step(lc_module *self, lc_optimizer *opt)
{
    const net *m = (net *)self;
    (void)opt;
    return m->overflow && !m->r->scaled ? LC_SKIP : LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const net *m = (net *)self;
    if (m->r->muon) return lc_optimizers_add(out, lc_muon(self, .lr = 0.02, .master_weights = m->r->master));
    return lc_optimizers_add(out, lc_adam(self, .lr = 0.004, .master_weights = m->r->master));
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b, (void)i;
    if (++m->batches != m->r->stop_after) return LC_OK;
    char path[600];
    snprintf(path, sizeof path, "%s/stop.ckpt", lc_trainer_get_options(self->trainer)->default_root_dir);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("scaled"),
                                  .training_step = training_step,
                                  .configure_optimizers = configure_optimizers,
                                  .on_train_batch_start = on_train_batch_start,
                                  .on_before_optimizer_step = on_before_optimizer_step,
                                  .on_train_batch_end = on_train_batch_end};

typedef struct outcome {
    float w1[N1], w2[N2]; /* room for every type */
} outcome;

static lc_status train(lc_comm *comm, const run *r, outcome *out)
{
    static const int64_t first[] = {HIDDEN, FEATURES}, second[] = {CLASSES, HIDDEN};
    const float unscale = 1 / 1024.0f;
    net m = {.r = r};
    lc_dataloader *loader;
    lc_trainer *t;
    memset(out, 0, sizeof *out);
    LC_TRY(lc_tensor_new(LC_F32, 0, NULL, &m.unscale));
    LC_TRY(lc_tensor_write(m.unscale, &unscale, sizeof unscale));
    LC_TRY(loader_of(0, SAMPLES, comm ? 8 : 16, true, &loader));
    lc_module_init(&m.base, &ops, 3);
    const lc_init init = {.kind = LC_INIT_KAIMING_UNIFORM};
    m.w1 = lc_module_add_parameter(&m.base, "w1.weight", r->dtype, LC_ROW_MAJOR, 2, first, init);
    m.w2 = lc_module_add_parameter(&m.base, "w2.weight", r->second, LC_ROW_MAJOR, 2, second, init);
    lc_trainer_options opt = quiet_options(comm);
    opt.default_root_dir = r->root;
    opt.strategy = r->strategy;
    if (r->devices) opt.devices = r->devices;
    opt.max_epochs = EPOCHS;
    opt.gradient_clip_val = r->by_value ? 0.01 : 0.5;
    if (r->by_value) opt.gradient_clip_algorithm = "value";
    opt.accumulate_grad_batches = r->accumulate;
    opt.deterministic = r->deterministic;
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = loader, .ckpt_path = r->ckpt_path);
    if (s >= 0) s = lc_tensor_gather(m.w1, out->w1, N1 * lc_dtype_size(r->dtype));
    if (s >= 0) s = lc_tensor_gather(m.w2, out->w2, N2 * lc_dtype_size(r->second));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    lc_tensor_unref(m.unscale);
    return s;
}

static bool same(const outcome *a, const outcome *b)
{
    return !memcmp(a, b, sizeof *a);
}

static const lc_dtype types[][2] = {{LC_F32, LC_F32}, {LC_BF16, LC_BF16}, {LC_BF16, LC_F32}};
enum { TYPES = 3, KINDS = 2 * TYPES };

/* f32, halves, and both; accumulating in the second half. */
static run kind_of(int k)
{
    return (run){.dtype = types[k % TYPES][0],
                 .second = types[k % TYPES][1],
                 .accumulate = 1 + k / TYPES,
                 .by_value = k == 4,
                 .master = true};
}

typedef struct ranks {
    run r;
    outcome out[2];
} ranks;

static lc_status rank_trains(lc_comm *comm, void *ctx)
{
    ranks *r = ctx;
    return train(comm, &r->r, &r->out[lc_comm_rank(comm)]);
}

/* One process if the strategy is none of several ranks. */
static void outcome_of(const run *r, outcome *out)
{
    bool several = r->strategy && strcmp(r->strategy, "data_parallel") != 0;
    ranks all = {.r = *r};
    if (several)
        CHECK_RANKS("threads", 2, rank_trains, &all);
    else
        CHECK_OK(train(NULL, r, &all.out[0]));
    if (several) CHECK(same(&all.out[0], &all.out[1]));
    *out = all.out[0];
}

static void check_scaled(run r)
{
    outcome plain, scaled;
    outcome_of(&r, &plain);
    r.scaled = true;
    outcome_of(&r, &scaled);
    if (!same(&plain, &scaled))
        TEST_FAIL("%s, %s and %s, %d batches in a window: a scaled loss gives another result",
                  r.strategy ? r.strategy : "single", lc_dtype_name(r.dtype), lc_dtype_name(r.second),
                  (int)r.accumulate);
}

TEST(one_device)
{
    for (int k = 0; k < KINDS; k++) check_scaled(kind_of(k));
}

TEST(devices_of_a_process)
{
    for (int k = 0; k < KINDS; k++) {
        run r = kind_of(k);
        r.strategy = "data_parallel", r.devices = "2";
        check_scaled(r);
    }
}

TEST(ranks_have_the_same)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    for (int k = 0; k < KINDS; k++) {
        outcome first, other;
        for (int i = 0; i < 4; i++) {
            run r = kind_of(k);
            r.strategy = strategies[i];
            check_scaled(r);
            r.scaled = true;
            outcome_of(&r, i ? &other : &first);
            CHECK(!i || same(&first, &other) || r.accumulate > 1); /* sharded_2 adds up batches in another order */
        }
    }
}

TEST(deterministic_ranks_are_one_device)
{
    for (int k = 0; k < KINDS; k += TYPES) { /* the sums of deterministic are of f32 */
        run r = kind_of(k);
        outcome one, two;
        r.deterministic = true;
        check_scaled(r);
        r.scaled = true;
        outcome_of(&r, &one);
        r.strategy = k % 2 ? "ddp" : "sharded_2";
        check_scaled(r);
        r.scaled = true;
        outcome_of(&r, &two);
        CHECK(same(&one, &two));
    }
}

TEST(matrices_of_muon)
{
    for (int k = 0; k < TYPES; k++) {
        run r = kind_of(k);
        r.muon = true;
        check_scaled(r);
        r.strategy = "ddp";
        check_scaled(r);
    }
}

static void check_resume(run r, bool several)
{
    outcome whole, part;
    char root[320], path[400];
    snprintf(root, sizeof root, "%s", fresh_dir("resume"));
    snprintf(path, sizeof path, "%s/stop.ckpt", root);
    ranks all = {.r = r};
    outcome_of(&r, &whole);
    r.root = root;
    for (r.stop_after = 1; r.stop_after < 18; r.stop_after += 5) {
        run again = r;
        all.r = r;
        if (several)
            world_free(world_run("threads", 2, rank_trains, &all));
        else
            CHECK_STATUS(train(NULL, &r, &part), LC_ERR_USER);
        again.stop_after = 0, again.ckpt_path = path;
        outcome_of(&again, &part);
        CHECK(same(&whole, &part));
    }
}

TEST(they_resume_to_the_bit)
{
    for (int k = 0; k < KINDS; k++) {
        run r = kind_of(k);
        r.scaled = true;
        check_resume(r, false);
        r.strategy = k % 2 ? "sharded_2" : "ddp";
        check_resume(r, true);
    }
}

/* Without the copy most updates of this training are too small for bf16. */
TEST(the_copies_matter)
{
    run r = kind_of(1);
    outcome with, without;
    outcome_of(&r, &with);
    r.master = false;
    outcome_of(&r, &without);
    CHECK(!same(&with, &without));
}

TEST_MAIN
