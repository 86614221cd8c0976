/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in each precision: the types in their checkpoints; validate, test and predict; and in 16-mixed several
 * optimizers, which share the scale of the loss, and schedules. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"

#include "base/number.h"

enum { SAMPLES = 96 };
#include "small_data.h"

enum { HIDDEN = 8, BATCH = 16, BATCHES = SAMPLES / BATCH };

static const struct precision {
    const char *name;
    lc_dtype stored, state; /* of parameters, and of the optimizer's state, in checkpoints */
    lc_dtype result;        /* the type in which products give their results */
    double near;            /* relative distance of losses from those of f32 */
} precisions[] = {
    {"32-true", LC_F32, LC_F32, LC_F32, 0},        {"64-true", LC_F64, LC_F64, LC_F64, 1e-5},
    {"bf16-mixed", LC_F32, LC_F32, LC_BF16, 0.03}, {"16-mixed", LC_F32, LC_F32, LC_F16, 0.01},
    {"bf16-true", LC_BF16, LC_F32, LC_BF16, 0.03}, {"16-true", LC_F16, LC_F32, LC_F16, 0.01},
};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

/* ---- a classifier ---- */

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
    lc_batch_norm1d norm;
} net;

static lc_tensor *logits(net *m, lc_tensor *x)
{
    x = lc_batch_norm1d_forward(&m->norm, lc_linear_forward(&m->l1, x));
    return lc_linear_forward(&m->l2, lc_relu(x));
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_cross_entropy(logits((net *)self, b->x), b->y);
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)loader;
    lc_log(self, "val_loss", training_step(self, b, i));
    return LC_OK;
}

static lc_status test_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)loader;
    lc_log(self, "test_loss", training_step(self, b, i));
    return LC_OK;
}

static lc_tensor *predict_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return logits((net *)self, b->x);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 0.004));
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"),          .training_step = training_step,
                                  .validation_step = validation_step, .test_step = test_step,
                                  .predict_step = predict_step,       .configure_optimizers = configure_optimizers};

static void net_init(net *m)
{
    lc_module_init(&m->base, &ops, 3);
    lc_linear_init(&m->l1, m, "l1", FEATURES, HIDDEN, .no_bias = true); /* a gradient that would only be rounding */
    lc_batch_norm1d_init(&m->norm, m, "norm", HIDDEN);
    lc_linear_init(&m->l2, m, "l2", HIDDEN, CLASSES);
}

/* ---- checkpoints ---- */

typedef struct save {
    const struct precision *p;
    const char *strategy;
    char path[320];
} save;

static lc_status train_and_save(lc_comm *comm, void *ctx)
{
    const save *s = ctx;
    net m;
    lc_dataloader *loader;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.precision = s->p->name;
    opt.strategy = s->strategy;
    opt.max_epochs = 1;
    net_init(&m);
    LC_TRY(loader_of(0, SAMPLES, BATCH / (comm ? 2 : 1), true, &loader));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status status = lc_trainer_fit(t, &m.base, .train_dataloader = loader);
    if (status == LC_OK) status = lc_trainer_save_checkpoint(t, s->path, false);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return status;
}

static bool ends_with(const char *name, const char *end)
{
    return strlen(name) > strlen(end) && !strcmp(name + strlen(name) - strlen(end), end);
}

/* Floats are of type `want`, except buffers, which are f32; returns how many are not buffers. */
static int check_types(lc_safetensors *f, lc_dtype want, const char *who)
{
    int n = 0;
    for (int64_t i = 0; i < lc_safetensors_count(f); i++) {
        const lc_safetensor_info *info = lc_safetensors_info(f, i);
        bool buffer = ends_with(info->name, "running_mean") || ends_with(info->name, "running_var");
        if (!lc_dtype_is_float(info->type.dtype)) continue;
        if (info->type.dtype != (buffer ? LC_F32 : want))
            TEST_FAIL("%s: %s is %s, not %s", who, info->name, info->dtype, lc_dtype_name(want));
        CHECK_EQ(info->bytes % lc_dtype_size(info->type.dtype), 0);
        n += !buffer;
    }
    return n;
}

TEST(checkpoints_have_the_storage_types)
{
    for (int i = 0; i < 2 * PRECISIONS; i++) {
        save s = {.p = &precisions[i / 2], .strategy = i % 2 ? "sharded" : NULL};
        lc_checkpoint *c;
        snprintf(s.path, sizeof s.path, "%s/x.ckpt", fresh_dir("types"));
        if (s.strategy)
            CHECK_RANKS("threads", 2, train_and_save, &s);
        else
            CHECK_OK(train_and_save(NULL, &s));
        CHECK_OK(lc_checkpoint_open(s.path, &c));
        CHECK_EQ(check_types(lc_checkpoint_tensors(c, LC_CKPT_MODEL), s.p->stored, s.p->name), 5);
        CHECK_EQ(check_types(lc_checkpoint_tensors(c, LC_CKPT_OPTIMIZER), s.p->state, s.p->name), 10);
        lc_checkpoint_close(c);
    }
}

/* ---- evaluation ---- */

typedef struct outcome {
    double val_loss, test_loss;
    float logits[SAMPLES * CLASSES];
} outcome;

/* The losses and predictions of the module, after an epoch of training if `fits`. */
static void evaluate(net *m, const char *precision, bool fits, outcome *o)
{
    lc_dataloader *loader;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(NULL);
    opt.precision = precision;
    opt.max_epochs = 1;
    CHECK_OK(loader_of(0, SAMPLES, BATCH, false, &loader));
    CHECK_OK(lc_trainer_new(&opt, &t));
    if (fits) CHECK_OK(lc_trainer_fit(t, &m->base, .train_dataloader = loader));
    CHECK_OK(lc_trainer_validate(t, &m->base, .dataloaders = &loader, .n_dataloaders = 1));
    CHECK_OK(lc_trainer_metric(t, "val_loss", &o->val_loss));
    CHECK_OK(lc_trainer_test(t, &m->base, .dataloaders = &loader, .n_dataloaders = 1));
    CHECK_OK(lc_trainer_metric(t, "test_loss", &o->test_loss));
    CHECK_OK(lc_trainer_predict(t, &m->base, .dataloaders = &loader, .n_dataloaders = 1));
    CHECK_EQ(lc_trainer_prediction_count(t, 0), BATCHES);
    for (int i = 0; i < BATCHES; i++)
        CHECK_OK(lc_tensor_read(lc_trainer_prediction(t, 0, i), o->logits + i * BATCH * CLASSES,
                                BATCH * CLASSES * sizeof(float)));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
}

/* How many predictions the type cannot hold. */
static int unrounded(const outcome *o, lc_dtype dtype)
{
    int n = 0;
    for (int i = 0; i < SAMPLES * CLASSES; i++) {
        uint64_t bits = 0;
        lc__store_number(&bits, dtype, (double)o->logits[i]);
        n += lc__load_number(&bits, dtype) != (double)o->logits[i];
    }
    return n;
}

TEST(validate_test_and_predict)
{
    for (int fits = 0; fits < 2; fits++) {
        outcome f32, o;
        for (int i = 0; i < PRECISIONS; i++) {
            const struct precision *p = &precisions[i];
            net m;
            net_init(&m);
            evaluate(&m, p->name, fits, i ? &o : &f32);
            lc_module_release(&m.base);
            if (i == 0) {
                CHECK(unrounded(&f32, LC_BF16) > 0 && unrounded(&f32, LC_F16) > 0);
                continue;
            }
            CHECK_NEAR(o.val_loss, f32.val_loss, p->near * f32.val_loss);
            CHECK(o.test_loss == o.val_loss);
            if (p->result != LC_F64 && unrounded(&o, p->result))
                TEST_FAIL("%s: predictions are not %s", p->name, lc_dtype_name(p->result));
            for (int k = 0; k < SAMPLES * CLASSES; k++) CHECK_NEAR(o.logits[k], f32.logits[k], 3 * p->near);
        }
    }
}

/* ---- 16-mixed: several optimizers, and schedules ---- */

enum { INTERVAL = 4, EPOCHS = 3, UPDATES = EPOCHS * BATCHES };

/* Each optimizer has a weight of its own, whose gradient is 1, if it does not overflow. */
typedef struct pair {
    lc_module base;
    lc_tensor *w[2];
    lc_optimizer *opt[2];
    lc_precision precision;
    lc_status first_error;
    bool clips;
    double scale[UPDATES], lr[UPDATES];
    int n;
} pair;

/* Updates are counted over both optimizers: 0 and 1 in the first batch. */
static bool overflows(int update)
{
    return update == 2 || update == 9 || update == 12 || update == 13;
}

static lc_tensor *loss_of(pair *m, int k)
{
    lc_tensor *loss = lc_sum(m->w[k]);
    return overflows(2 * m->n + k) ? lc_mul_scalar(loss, 3e38) : loss;
}
static lc_tensor *first_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    return loss_of((pair *)self, 0);
}
static lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    return loss_of((pair *)self, 1);
}

static lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    pair *m = (pair *)self;
    (void)b, (void)i;
    for (int k = 0; k < 2; k++) {
        lc_zero_grad(lc_current_graph());
        lc_status s = lc_manual_backward(self, loss_of(m, k));
        if (s >= 0) s = lc_manual_step(self, lc_manual_optimizer(self, k));
        if (s < 0) m->first_error = s;
    }
    return NULL;
}

/* One backward pass for both, whose gradients have the scale that the loss had. */
static lc_tensor *joint_step(lc_module *self, const lc_batch *b, int64_t i)
{
    pair *m = (pair *)self;
    (void)b, (void)i;
    lc_zero_grad(lc_current_graph());
    lc_status s = lc_manual_backward(self, lc_add(loss_of(m, 0), loss_of(m, 1)));
    for (int k = 0; k < 2; k++) {
        if (m->clips) lc_clip_grad_norm(lc_manual_optimizer(self, k), 10);
        if (s >= 0) s = lc_manual_step(self, lc_manual_optimizer(self, k));
    }
    if (s < 0) m->first_error = s;
    return NULL;
}

static lc_status two_optimizers(lc_module *self, lc_optimizers *out)
{
    pair *m = (pair *)self;
    for (int k = 0; k < 2; k++) {
        m->opt[k] = lc_sgd(self, .lr = 0.5, .parameters = &m->w[k], .n_parameters = 1);
        LC_TRY(lc_optimizers_add_step(out, m->opt[k], k ? second_step : first_step));
    }
    if (self->ops->manual_optimization) return LC_OK;
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_step_lr(m->opt[0], .step_size = 1, .gamma = 0.5),
                                   .interval = LC_INTERVAL_STEP});
}

static lc_status note_batch(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    pair *m = (pair *)self;
    (void)o, (void)b, (void)i;
    LC_TRY(lc_optimizer_get(m->opt[0], 0, "lr", &m->lr[m->n]));
    return lc_precision_scale(m->precision, &m->scale[m->n++]);
}

static const lc_module_ops pair_ops = {LC_MODULE_OPS_INIT("pair"), .training_step = first_step,
                                       .configure_optimizers = two_optimizers, .on_train_batch_end = note_batch};
static const lc_module_ops manual_ops = {LC_MODULE_OPS_INIT("pair"), .training_step = manual_step,
                                         .configure_optimizers = two_optimizers, .on_train_batch_end = note_batch,
                                         .manual_optimization = true};
static const lc_module_ops joint_ops = {LC_MODULE_OPS_INIT("pair"), .training_step = joint_step,
                                        .configure_optimizers = two_optimizers, .on_train_batch_end = note_batch,
                                        .manual_optimization = true};

/* One scale, which each update of either changes as torch.amp.GradScaler does, and schedules that step after updates
 * that were skipped, too, as in Lightning. */
static void check_pair(const lc_module_ops *of, bool clips, const char *strategy)
{
    static const int64_t shape[] = {1};
    const bool manual = of->manual_optimization;
    pair m = {.first_error = LC_OK, .clips = clips};
    lc_dataloader *loader;
    lc_trainer *t;
    CHECK_OK(loader_of(0, SAMPLES, BATCH, true, &loader));
    lc_module_init(&m.base, of, 3);
    for (int k = 0; k < 2; k++)
        m.w[k] = lc_module_add_parameter(&m.base, k ? "second" : "first", LC_F32, LC_ROW_MAJOR, 1, shape,
                                         (lc_init){.kind = LC_INIT_ZEROS});
    CHECK_OK(lc_mixed_precision(&m.precision, .growth_interval = INTERVAL, .init_scale = 1024));
    lc_trainer_options opt = quiet_options(NULL);
    opt.max_epochs = EPOCHS;
    opt.precision_plugin = &m.precision;
    opt.strategy = strategy;
    if (strategy) opt.devices = "2";
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    CHECK_OK(m.first_error);
    CHECK_EQ(m.n, UPDATES);
    CHECK_EQ(lc_trainer_global_step(t), manual ? 2 * UPDATES : UPDATES);
    double scale = 1024, lr[2] = {0.5, 0.5}, w[2] = {0, 0};
    for (int i = 0, tracker = 0; i < 2 * UPDATES; i++) {
        const int k = i % 2;
        if (overflows(i)) {
            scale *= 0.5;
            tracker = 0;
        } else {
            w[k] -= lr[k];
            if (++tracker == INTERVAL) scale *= 2, tracker = 0;
        }
        if (k == 0 && !manual) lr[0] *= 0.5;
        if (k == 1) CHECK_NEAR(m.scale[i / 2], scale, 0);
        if (k == 1) CHECK_NEAR(m.lr[i / 2], lr[0], 0);
    }
    for (int k = 0; k < 2; k++) {
        float got;
        CHECK_OK(lc_tensor_read(m.w[k], &got, sizeof got));
        CHECK_NEAR((double)got, w[k], 1e-6);
    }
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
}

TEST(two_optimizers_and_a_schedule)
{
    check_pair(&pair_ops, false, NULL);
    check_pair(&pair_ops, false, "data_parallel");
}

TEST(two_manual_optimizers)
{
    check_pair(&manual_ops, false, NULL);
}

TEST(two_optimizers_of_one_backward_pass)
{
    check_pair(&joint_ops, false, NULL);
    check_pair(&joint_ops, true, NULL);
}

TEST_MAIN
