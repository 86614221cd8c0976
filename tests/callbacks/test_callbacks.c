/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks that take part in the training (spikes, averages, pruning, functions for every hook) compared with known
 * numbers. test_callbacks_resume.c resumes runs with them, test_torch_callbacks.c compares final weights with
 * Lightning's, test_callbacks_failure.c makes them fail. */
#include "callback_run.h"

/* ---- spikes: the batches that Lightning's SpikeDetection reports, as recorded ---- */

static const double losses[24] = {1.843, 1.977, 1.822, 1.912, 1.875, 1.489, 1.408, 9.0,   8.0, 1.391, 1.797, 1.432,
                                  1.602, 1.336, 1.383, NAN,   1.281, 1.371, 1.114, 1.195, 6.5, 0.688, 1.055, 0.905};

static lc_tensor *scripted_step(lc_module *self, const lc_batch *b, int64_t i)
{
    world *m = (world *)self;
    (void)b;
    return lc_mul_scalar(lc_sum(m->w), losses[i]);
}
static lc_status sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 1e-7));
}
static lc_status scripted_train(lc_module *self, lc_loaders *out)
{
    return lc_loaders_add(out, numbers_new(((world *)self)->n_train, 1, false));
}
static const lc_module_ops scripted_ops = {LC_MODULE_OPS_INIT("scripted"), .training_step = scripted_step,
                                           .configure_optimizers = sgd, .train_dataloader = scripted_train};

static lc_status fit_scripted(const lc_spike_detection_args *args, const char *dir, double *w, int64_t *steps)
{
    world m;
    lc_trainer *t;
    lc_callback cb;
    float value;
    world_init(&m, &scripted_ops, 24, 0);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 1;
    o.enable_checkpointing = LC_OFF;
    o.callbacks = &cb;
    o.n_callbacks = 1;
    CHECK_OK(lc_spike_detection_new(args, &cb));
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m.base);
    CHECK_OK(lc_tensor_read(m.w, &value, sizeof value));
    *w = value;
    *steps = lc_trainer_global_step(t);
    char *message = strdup(lc_error_message());
    lc_trainer_free(t);
    world_release(&m);
    if (s < 0) lc_fail(s, "%s", message);
    free(message);
    return s;
}

TEST(spikes_are_those_of_lightning_and_are_skipped)
{
    const struct {
        lc_spike_detection_args args;
        const char *want;
    } cases[] = {
        {LC_ARGS(lc_spike_detection, .skip = true), "[6, 7, 7, 8, 14, 15, 19, 20]\n"},
        {LC_ARGS(lc_spike_detection, .skip = true, .window = 4, .rtol = 0.5, .warmup = 3),
         "[6, 7, 7, 8, 14, 15, 19, 20]\n"},
        {LC_ARGS(lc_spike_detection, .skip = true, .atol = 5, .rtol = 0), "[6, 7, 7, 8, 14, 15, 19, 20]\n"},
        {LC_ARGS(lc_spike_detection, .skip = true, .mode = "max", .rtol = 0.3),
         "[7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 18, 19, 19, 20, 20, 21, "
         "21, 22, 22, 23]\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[256], root[270], path[300];
        size_t n;
        double w;
        int64_t steps;
        CHECK(world_dir(dir, sizeof dir));
        snprintf(root, sizeof root, "%s/new", dir);
        CHECK_OK(fit_scripted(&cases[i].args, root, &w, &steps));
        snprintf(path, sizeof path, "%s/skip_batches.json", root);
        char *list = slurp(path, &n);
        CHECK_STR(list, cases[i].want);
        CHECK_EQ(steps, 24);
        CHECK(isfinite(w)); /* the update of the batch with NaN was skipped */
        free(list);
        world_remove(dir);
    }
}

TEST(a_spike_ends_the_run)
{
    char dir[256], path[300];
    double w;
    int64_t steps;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/bad.json", dir);
    CHECK_STATUS(fit_scripted((lc_spike_detection_args[]){LC_ARGS(lc_spike_detection, .exclude_batches_path = path)},
                              dir, &w, &steps),
                 LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "spike detected in batch 7");
    CHECK_CONTAINS(lc_error_message(), path);
    CHECK(access(path, R_OK) == 0);
    world_remove(dir);
}

static lc_tensor *nan_first_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b;
    return lc_mul_scalar(lc_sum(((world *)self)->w), i ? 1 : NAN);
}

/* There is no batch before the first that could be to blame, and a run with such a list can be continued. */
TEST(the_first_batch_is_a_spike)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("nan_first"), .training_step = nan_first_step,
                                      .configure_optimizers = sgd, .train_dataloader = scripted_train};
    char dir[256], list[300], ckpt[300];
    size_t n;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(list, sizeof list, "%s/bad.json", dir);
    snprintf(ckpt, sizeof ckpt, "%s/a.ckpt", dir);
    for (int again = 0; again < 2; again++) {
        world m;
        lc_trainer *t;
        lc_callback cb;
        world_init(&m, &ops, 3, 0);
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 1 + again;
        o.ckpt_path = again ? ckpt : NULL;
        o.enable_checkpointing = LC_OFF;
        o.callbacks = &cb;
        o.n_callbacks = 1;
        CHECK_OK(lc_spike_detection(&cb, .skip = true, .warmup = 0, .exclude_batches_path = list));
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_OK(lc_trainer_fit(t, &m.base));
        CHECK_OK(lc_trainer_save_checkpoint(t, ckpt, false));
        lc_trainer_free(t);
        world_release(&m);
    }
    char *text = slurp(list, &n);
    CHECK_STR(text, "[0, 0]\n");
    free(text);
    world_remove(dir);
}

/* ---- averages: the world's weight moves by -lr * mean(batch), so its average is known ---- */

typedef struct seen {
    double w[64];
    int n;
} seen;

static lc_status see(void *context, lc_trainer *t, const lc_batch *b, int64_t i, int d)
{
    seen *s = context;
    float w;
    (void)b, (void)i, (void)d;
    LC_TRY(lc_tensor_read(lc_module_find(lc_trainer_module(t), "w"), &w, sizeof w));
    s->w[s->n++] = w;
    return LC_OK;
}
static lc_tensor *mean_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mul(lc_sum(((world *)self)->w), lc_mean(b->x));
}
static lc_status no_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return LC_OK;
}
static lc_status plain_sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}
static lc_status one_batch(lc_module *self, lc_loaders *out)
{
    (void)self;
    return lc_loaders_add(out, numbers_new(1, 1, false));
}
static const lc_module_ops averaged_ops = {LC_MODULE_OPS_INIT("averaged"),     .training_step = mean_step,
                                           .validation_step = no_step,         .configure_optimizers = plain_sgd,
                                           .train_dataloader = scripted_train, .val_dataloader = one_batch};

TEST(validation_and_the_end_see_the_moving_average)
{
    char dir[256], path[300];
    world m;
    seen s = {0};
    lc_trainer *t;
    lc_callback cb[2];
    float w;
    CHECK(world_dir(dir, sizeof dir));
    world_init(&m, &averaged_ops, 4, 1);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 3;
    o.enable_checkpointing = LC_OFF;
    o.callbacks = cb;
    o.n_callbacks = 2;
    CHECK_OK(lc_ema_weight_averaging(&cb[0], .decay = 0.75));
    CHECK_OK(lc_lambda_callback(&cb[1], .context = &s, .on_validation_batch_start = see));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    double weight = 1, average = 1;
    CHECK_EQ(s.n, 3);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int i = 0; i < 4; i++) {
            weight -= 0.1 * i;
            average = epoch == 0 && i == 0 ? weight : 0.75 * average + 0.25 * weight;
        }
        CHECK_NEAR(s.w[epoch], average, 1e-6);
    }
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK_NEAR(w, average, 1e-6);
    /* Loading the checkpoint gives the average; the weights with which training continues are saved as well. */
    lc_checkpoint *c;
    snprintf(path, sizeof path, "%s/end.ckpt", dir);
    CHECK_OK(lc_trainer_save_checkpoint(t, path, false));
    lc_trainer_free(t);
    CHECK_OK(lc_checkpoint_open(path, &c));
    CHECK_OK(lc_safetensors_load(lc_checkpoint_tensors(c, LC_CKPT_MODEL), "w", m.w));
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK_NEAR(w, average, 1e-6);
    CHECK_OK(
        lc_safetensors_load(lc_checkpoint_tensors(c, LC_CKPT_TENSORS), "callbacks.EMAWeightAveraging.current.w", m.w));
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK_NEAR(w, weight, 1e-6);
    lc_checkpoint_close(c);
    world_release(&m);
    world_remove(dir);
}

static lc_status ten_more(lc_module *self, lc_batch *batch, int d)
{
    (void)self, (void)d;
    batch->x = batch->tensors[0] = lc_add_scalar(batch->x, 10); /* recorded as part of the step */
    return LC_OK;
}

/* The weights after StochasticWeightAveraging, which ends with a pass over the data for the batch norms. */
static void averaged(bool by_hook, float w[NET_WEIGHTS])
{
    double lr = 0.01;
    lc_callback swa;
    run r;
    lc_module_ops ops = net_ops;
    run_init(&r);
    r.o.max_epochs = 3;
    if (by_hook) ops.on_after_batch_transfer = ten_more;
    for (int i = 0; i < NET_SAMPLES * NET_FEATURES && !by_hook; i++) net_x[i] += 10;
    r.m.base.ops = &ops;
    CHECK_OK(lc_stochastic_weight_averaging(&swa, .swa_lrs = &lr, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(1),
                                            .annealing_epochs = 1));
    CHECK_OK(run_fit(&r, &swa, 1));
    net_weights(&r.m, w);
    run_release(&r);
}

TEST(batch_norms_are_averaged_over_batches_made_by_transfer_hooks)
{
    static float a[NET_WEIGHTS], b[NET_WEIGHTS];
    averaged(false, a);
    averaged(true, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
}

/* ---- finetuning ---- */

/* A module of the program may have the name of one of lightc's layers. */
TEST(modules_only_named_like_a_batch_norm_are_left_alone)
{
    struct {
        lc_module base;
        unsigned char own[sizeof(lc_batch_norm_layer)];
    } part;
    net m;
    net_init(&m);
    memset(&part, 0x5a, sizeof part);
    lc_module_init_child(&part.base, &m, "part", "BatchNormBlock");
    lc_finetuning_freeze(&m.base, true);
    for (size_t i = 0; i < sizeof part.own; i++) CHECK(part.own[i] == 0x5a);
    CHECK(!m.norm.no_tracking && lc_tensor_requires_grad(m.norm.weight)); /* train_bn */
    CHECK(!lc_tensor_requires_grad(m.l1.weight));
    lc_finetuning_freeze(&m.base, false);
    CHECK(m.norm.no_tracking && !lc_tensor_requires_grad(m.norm.weight));
    net_release(&m);
}

/* ---- averages ---- */

/* An average that is not updated holds the first weights, and the statistics that belong to them. */
TEST(buffers_that_are_not_averaged_are_those_of_the_average)
{
    run r;
    lc_callback cb;
    float before[NET_WEIGHTS], after[NET_WEIGHTS];
    run_init(&r);
    net_weights(&r.m, before);
    CHECK_OK(lc_ema_weight_averaging(&cb, .use_buffers = false, .update_starting_at_step = 1000));
    CHECK_OK(run_fit(&r, &cb, 1));
    net_weights(&r.m, after);
    for (int i = 0; i < NET_WEIGHTS; i++) CHECK(before[i] == after[i]);
    run_release(&r);
}

/* ---- pruning ---- */

TEST(pruned_weights_are_zero_and_counted)
{
    run r;
    lc_callback cb, handle;
    lc_sparsity all, one;
    float w[NET_WEIGHTS];
    int zeros = 0;
    run_init(&r);
    r.o.max_epochs = 3;
    CHECK_OK(lc_model_pruning(&cb, .pruning_fn = "l1_unstructured", .amount = 0.25,
                              .use_lottery_ticket_hypothesis = LC_OFF));
    CHECK_OK(run_fit(&r, &cb, 1));
    handle = cb;
    CHECK_OK(lc_model_pruning_sparsity(&handle, -1, &all));
    /* 73 weights; each time a quarter of the remaining ones, rounded: 18, 14 (of 55), 10 (of 41). */
    CHECK_EQ(all.total, 73);
    CHECK_EQ(all.pruned, 42);
    CHECK_OK(lc_model_pruning_sparsity(&handle, 0, &one));
    CHECK_STR(one.path, "backbone.l1.weight");
    CHECK_STATUS(lc_model_pruning_sparsity(&handle, 6, &one), LC_ERR_NOT_FOUND);
    net_weights(&r.m, w);
    for (int i = 0; i < NET_WEIGHTS; i++) zeros += w[i] == 0;
    CHECK_EQ(zeros, 42);
    run_release(&r);
}

TEST(more_channels_to_prune_than_are_left)
{
    static const char *const paths[] = {"backbone.l1.weight"}; /* of five columns */
    run r;
    lc_callback cb;
    run_init(&r);
    r.o.max_epochs = 3;
    CHECK_OK(lc_model_pruning(&cb, .pruning_fn = "ln_structured", .pruning_norm = 1, .pruning_dim = 1,
                              .amount_count = 2, .parameters_to_prune = paths, .n_parameters_to_prune = 1));
    CHECK_STATUS(run_fit(&r, &cb, 1), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(),
                   "ModelPruning: backbone.l1.weight: amount_count is 2, but only 1 are left to prune");
    run_release(&r);
}

static lc_tensor *clipped_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_optimizer *opt = lc_manual_optimizer(self, 0);
    (void)i;
    if (lc_manual_zero_grad(self, opt) < 0 ||
        lc_manual_backward(self, lc_mse_loss(net_forward((net *)self, b->x), b->y)) < 0 ||
        lc_clip_gradients(self, opt, 0.1, "norm") < 0 || lc_manual_step(self, opt) < 0)
        TEST_FAIL("a call of the manual step failed");
    return NULL;
}

/* Gradients of pruned weights do not count in the norm by which the others are clipped, also in manual optimization. */
TEST(pruned_weights_do_not_count_in_a_norm)
{
    float w[2][NET_WEIGHTS];
    for (int manual = 0; manual < 2; manual++) {
        static lc_module_ops ops;
        run r;
        lc_callback cb;
        run_init(&r);
        ops = net_ops;
        if (manual) ops.manual_optimization = true, ops.training_step = clipped_step;
        r.m.base.ops = &ops;
        r.m.optimizer = "SGD";
        r.m.dropout = 0;
        if (!manual) r.o.gradient_clip_val = 0.1;
        CHECK_OK(lc_model_pruning(&cb, .pruning_fn = "l1_unstructured", .amount = 0.5));
        CHECK_OK(run_fit(&r, &cb, 1));
        net_weights(&r.m, w[manual]);
        run_release(&r);
    }
    for (int i = 0; i < NET_WEIGHTS; i++) CHECK_NEAR(w[0][i], w[1][i], 1e-6);
}

static int64_t fewest_zeros[2]; /* in l1.weight, of the looks at it in each epoch */

static void look_at_weight(lc_module *self)
{
    float w[8 * NET_FEATURES];
    int64_t zeros = 0, *fewest = &fewest_zeros[lc_trainer_current_epoch(self->trainer)];
    CHECK_OK(lc_tensor_read(((net *)self)->l1.weight, w, sizeof w));
    for (int k = 0; k < 8 * NET_FEATURES; k++) zeros += w[k] == 0;
    *fewest = zeros < *fewest ? zeros : *fewest;
}

static lc_tensor *looks_after_update(lc_module *self, const lc_batch *b, int64_t i)
{
    clipped_step(self, b, i);
    look_at_weight(self);
    return NULL;
}

static lc_tensor *looks_at_evaluation(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    look_at_weight(self);
    return lc_mse_loss(net_forward((net *)self, b->x), b->y);
}

static lc_status use_lbfgs(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_lbfgs(self, .lr = 0.1, .max_iter = 3));
}

/* Momentum and other state from before the pruning would move pruned weights. Neither the next optimizer of a batch
 * must see that, nor the next evaluation of LBFGS. */
TEST(pruned_weights_stay_zero_within_a_batch)
{
    static const char *const paths[] = {"backbone.l1.weight"};
    for (int lbfgs = 0; lbfgs < 2; lbfgs++) {
        static lc_module_ops ops;
        run r;
        lc_callback cb;
        run_init(&r);
        fewest_zeros[0] = fewest_zeros[1] = INT64_MAX;
        ops = net_ops;
        ops.manual_optimization = !lbfgs, ops.training_step = lbfgs ? looks_at_evaluation : looks_after_update;
        if (lbfgs) ops.configure_optimizers = use_lbfgs;
        r.m.base.ops = &ops;
        CHECK_OK(lc_model_pruning(&cb, .pruning_fn = "l1_unstructured", .amount = 0.5, .parameters_to_prune = paths,
                                  .n_parameters_to_prune = 1));
        CHECK_OK(run_fit(&r, &cb, 1));
        CHECK_EQ(fewest_zeros[0], 0);
        CHECK_EQ(fewest_zeros[1], 20);
        run_release(&r);
    }
}

/* ---- all hooks of a LambdaCallback ---- */

static lc_status count_setup(void *c, lc_trainer *t, lc_stage stage)
{
    (void)t, (void)stage;
    ((int *)c)[0]++;
    return LC_OK;
}
static lc_status count_start(void *c, lc_trainer *t, const lc_batch *b, int64_t i)
{
    (void)t, (void)b, (void)i;
    ((int *)c)[1]++;
    return LC_OK;
}
static lc_status count_save(void *c, lc_trainer *t, lc_state *state)
{
    (void)t, (void)state;
    ((int *)c)[2]++;
    return LC_OK;
}
static lc_status count_zero_grad(void *c, lc_trainer *t, lc_optimizer *opt)
{
    (void)t, (void)opt;
    ((int *)c)[3]++;
    return LC_OK;
}
static void count_message(void *c, lc_trainer *t, lc_level level, const char *text)
{
    (void)t, (void)level, (void)text;
    ((int *)c)[4]++;
}

TEST(a_lambda_has_every_hook)
{
    run r;
    lc_callback cb;
    int counts[5] = {0};
    char path[300];
    run_init(&r);
    CHECK_OK(lc_lambda_callback(&cb, .context = counts, .setup = count_setup, .teardown = count_setup,
                                .on_train_batch_start = count_start, .on_save_checkpoint = count_save,
                                .on_before_zero_grad = count_zero_grad, .on_message = count_message));
    CHECK_OK(run_fit(&r, &cb, 1));
    snprintf(path, sizeof path, "%s/x.ckpt", r.dir);
    CHECK_OK(lc_trainer_save_checkpoint(r.t, path, false));
    CHECK_EQ(counts[0], 2);
    CHECK_EQ(counts[1], 2 * NET_BATCHES);
    CHECK_EQ(counts[2], 1);
    CHECK_EQ(counts[3], 2 * NET_BATCHES);
    CHECK(counts[4] > 0);
    run_release(&r);
}

TEST_MAIN
