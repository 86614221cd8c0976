/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings of modules whose weights are halves, and whose operators compute in f32: they learn, resume to the bit, are
 * the same in slices, and callbacks average and prune them. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"

#include "base/number.h"

enum { SAMPLES = 96, HIDDEN = 8, EPOCHS = 4 };
#include "small_data.h"

enum { N1 = HIDDEN * FEATURES, N2 = CLASSES * HIDDEN };

typedef struct net {
    lc_module base;
    lc_tensor *w1, *w2;
    int64_t stop_after, batches;
    bool master;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *x = lc_relu(lc_linear(b->x, lc_cast(m->w1, LC_F32), NULL));
    lc_tensor *loss = lc_cross_entropy(lc_linear(x, lc_cast(m->w2, LC_F32), NULL), b->y);
    lc_log(self, "loss", loss, .on_epoch = LC_ON, .on_step = LC_OFF);
    lc_log(self, "half_loss", lc_cast(loss, LC_BF16), .on_epoch = LC_ON, .on_step = LC_OFF);
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 0.02, .master_weights = ((net *)self)->master));
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b, (void)i;
    if (++m->batches != m->stop_after) return LC_OK;
    char path[600];
    snprintf(path, sizeof path, "%s/stop.ckpt", lc_trainer_get_options(self->trainer)->default_root_dir);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("halves"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers,
                                  .on_train_batch_end = on_train_batch_end};

typedef struct run {
    lc_dtype dtype, second; /* second: of the second layer; 0: the same */
    const char *root, *strategy, *ckpt_path;
    const char *devices;
    int64_t stop_after, accumulate, epochs;
    lc_callback *callback;
    bool master;
} run;

typedef struct outcome {
    float w1[N1], w2[N2]; /* room for every type */
    double loss, half_loss;
} outcome;

static lc_status train(lc_comm *comm, const run *r, outcome *out)
{
    static const int64_t first[] = {HIDDEN, FEATURES}, second[] = {CLASSES, HIDDEN};
    net m = {.stop_after = r->stop_after, .master = r->master};
    lc_dataloader *loader;
    lc_trainer *t;
    memset(out, 0, sizeof *out);
    LC_TRY(loader_of(0, SAMPLES, comm ? 6 : 12, true, &loader));
    lc_module_init(&m.base, &ops, 3);
    const lc_init init = {.kind = LC_INIT_KAIMING_UNIFORM};
    m.w1 = lc_module_add_parameter(&m.base, "w1.weight", r->dtype, LC_ROW_MAJOR, 2, first, init);
    m.w2 =
        lc_module_add_parameter(&m.base, "w2.weight", r->second ? r->second : r->dtype, LC_ROW_MAJOR, 2, second, init);
    lc_trainer_options opt = quiet_options(comm);
    opt.default_root_dir = r->root;
    opt.strategy = r->strategy;
    if (r->devices) opt.devices = r->devices;
    opt.max_epochs = r->epochs ? r->epochs : EPOCHS;
    opt.gradient_clip_val = 0.5;
    opt.accumulate_grad_batches = r->accumulate ? r->accumulate : 1;
    opt.callbacks = r->callback;
    opt.n_callbacks = r->callback != NULL;
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = loader, .ckpt_path = r->ckpt_path);
    if (s >= 0) s = lc_tensor_gather(m.w1, out->w1, N1 * lc_dtype_size(r->dtype));
    if (s >= 0) s = lc_tensor_gather(m.w2, out->w2, N2 * lc_dtype_size(r->second ? r->second : r->dtype));
    if (s >= 0) s = lc_trainer_metric(t, "loss", &out->loss);
    if (s >= 0) s = lc_trainer_metric(t, "half_loss", &out->half_loss);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return s;
}

static bool same(const outcome *a, const outcome *b)
{
    return !memcmp(a->w1, b->w1, sizeof a->w1) && !memcmp(a->w2, b->w2, sizeof a->w2);
}

TEST(they_learn_and_log)
{
    outcome first, exact;
    CHECK_OK(train(NULL, &(run){.dtype = LC_F32, .epochs = 1}, &first));
    CHECK_OK(train(NULL, &(run){.dtype = LC_F32}, &exact));
    CHECK(exact.loss < 0.8 * first.loss);
    for (lc_dtype dtype = LC_F16; dtype <= LC_BF16; dtype++) {
        outcome o;
        CHECK_OK(train(NULL, &(run){.dtype = dtype}, &o));
        CHECK_NEAR(o.loss, exact.loss, 0.02);
        CHECK_NEAR(o.half_loss, o.loss, 0.01);
    }
}

TEST(they_resume_to_the_bit)
{
    char root[320];
    for (int64_t stop = 1; stop < 20; stop += 6) {
        outcome whole, part;
        snprintf(root, sizeof root, "%s", fresh_dir("resume"));
        run r = {.dtype = LC_BF16, .second = stop % 4 == 1 ? LC_F32 : LC_F16, .root = root, .accumulate = 2};
        CHECK_OK(train(NULL, &r, &whole));
        r.stop_after = stop;
        CHECK_STATUS(train(NULL, &r, &part), LC_ERR_USER);
        char path[400];
        snprintf(path, sizeof path, "%s/stop.ckpt", root);
        r.stop_after = 0, r.ckpt_path = path;
        CHECK_OK(train(NULL, &r, &part));
        CHECK(same(&whole, &part));
    }
}

/* One optimizer for several types, and so for several flat buffers. */
TEST(types_may_be_mixed)
{
    static const lc_dtype pairs[][2] = {{LC_BF16, LC_F32}, {LC_F32, LC_F16}, {LC_F16, LC_BF16}};
    outcome exact, mixed;
    CHECK_OK(train(NULL, &(run){.dtype = LC_F32}, &exact));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(train(NULL, &(run){.dtype = pairs[i][0], .second = pairs[i][1]}, &mixed));
        CHECK_NEAR(mixed.loss, exact.loss, 0.02);
    }
    CHECK_STATUS(train(NULL, &(run){.dtype = LC_F64, .second = LC_F32}, &mixed), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "its parameters are f");
}

TEST(devices_share_them)
{
    for (int mixed = 0; mixed < 2; mixed++) {
        run r = {.dtype = LC_BF16, .second = mixed ? LC_F32 : 0};
        outcome one, two;
        CHECK_OK(train(NULL, &r, &one));
        r.strategy = "data_parallel", r.devices = "2";
        CHECK_OK(train(NULL, &r, &two));
        CHECK_NEAR(two.loss, one.loss, 0.02);
        CHECK_NEAR(two.half_loss, one.half_loss, 0.02);
    }
}

typedef struct ranks {
    const char *strategy;
    lc_dtype second;
    outcome out[2];
} ranks;

static lc_status rank_trains(lc_comm *comm, void *ctx)
{
    ranks *r = ctx;
    return train(comm, &(run){.dtype = LC_BF16, .second = r->second, .strategy = r->strategy},
                 &r->out[lc_comm_rank(comm)]);
}

TEST(ranks_share_them)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    outcome one;
    for (int mixed = 0; mixed < 2; mixed++) {
        ranks r[4];
        lc_dtype second = mixed ? LC_F32 : LC_BF16;
        CHECK_OK(train(NULL, &(run){.dtype = LC_BF16, .second = second}, &one));
        for (int i = 0; i < 4; i++) {
            r[i].strategy = strategies[i];
            r[i].second = second;
            CHECK_RANKS("threads", 2, rank_trains, &r[i]);
            CHECK(same(&r[i].out[0], &r[i].out[1]));
            CHECK(same(&r[i].out[0], &r[0].out[0]));
            CHECK_NEAR(r[i].out[0].loss, one.loss, 0.02);
        }
    }
}

TEST(they_are_averaged)
{
    lc_callback ema;
    outcome plain, averaged;
    double distance = 0;
    CHECK_OK(train(NULL, &(run){.dtype = LC_BF16}, &plain));
    CHECK_OK(lc_ema_weight_averaging(&ema, .decay = 0.5));
    CHECK_OK(train(NULL, &(run){.dtype = LC_BF16, .callback = &ema}, &averaged));
    CHECK(!same(&plain, &averaged));
    for (int i = 0; i < N1; i++)
        distance = fmax(distance, fabs(lc__number_at(plain.w1, LC_BF16, i) - lc__number_at(averaged.w1, LC_BF16, i)));
    CHECK(distance > 0 && distance < 0.1);
}

TEST(they_are_pruned)
{
    static const char *const functions[] = {"l1_unstructured", "ln_structured"};
    for (int k = 0; k < 2; k++) {
        lc_callback pruning;
        outcome o;
        int zeros = 0;
        CHECK_OK(lc_model_pruning(&pruning, .pruning_fn = functions[k], .amount = 0.25, .pruning_norm = 2));
        CHECK_OK(train(NULL, &(run){.dtype = LC_F16, .callback = &pruning}, &o));
        for (int i = 0; i < N1; i++) zeros += lc__number_at(o.w1, LC_F16, i) == 0;
        CHECK(zeros >= N1 / 4 && zeros < N1);
    }
}

TEST(the_summary_counts_their_bytes)
{
    for (int master = 0; master < 2; master++) {
        lc_callback summary;
        outcome o;
        char text[4096] = "";
        FILE *f = tmpfile();
        CHECK(f);
        CHECK_OK(lc_model_summary(&summary, .fd = fileno(f)));
        CHECK_OK(train(NULL, &(run){.dtype = LC_BF16, .callback = &summary, .master = master, .epochs = 1}, &o));
        rewind(f);
        CHECK(fread(text, 1, sizeof text - 1, f) > 0);
        fclose(f);
        CHECK_CONTAINS(text, master ? "144 bytes of model, 144 bytes of gradients, 864 bytes of optimizer state"
                                    : "144 bytes of model, 144 bytes of gradients, 576 bytes of optimizer state");
    }
}

TEST_MAIN
