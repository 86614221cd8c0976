/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices of one process (data_parallel, central_storage): they train, evaluate and predict as one device does,
 * except for the statistics of batch norm, which are device 0's and are compared with a hand-written loop. */
#include "device_run.h"

/* `change` is applied to every job. */
static void check(const char *name, void (*change)(job *j))
{
    outcome one, several;
    job single = job_of(name);
    change(&single);
    CHECK_OK(run(&single, &one));
    for (int s = 0; s < 2; s++)
        for (int n = 0; n < 5; n++) {
            char dir[64];
            snprintf(dir, sizeof dir, "%s-%d-%d", name, s, n);
            job j = job_of(dir);
            change(&j);
            j.strategy = strategies[s];
            j.devices = numbers[n];
            CHECK_OK(run(&j, &several));
            compare(&one, &several);
            /* 8 batches of 12 and one of 4 samples per epoch; at most one part per device. */
            int devices = atoi(numbers[n]),
                parts = (12 + (12 + devices - 1) / devices - 1) / ((12 + devices - 1) / devices);
            if (!j.early)
                CHECK_EQ(several.calls, j.max_epochs * (8 * parts + (devices < 4 ? devices == 3 ? 2 : devices : 4)));
            CHECK_EQ(several.befores, one.befores);
        }
}

static void plain(job *j)
{
    (void)j;
}
static void accumulating(job *j)
{
    j->accumulate = 4;
    j->clip = 0.5;
}
static void with_other_windows(job *j)
{
    j->other_windows = true;
    j->max_epochs = 1;
}
static void stopping_early(job *j)
{
    j->early = true;
    j->max_epochs = 20;
}
static void transferring(job *j)
{
    j->transfers = true;
}
static void freezing(job *j)
{
    j->freezes = true;
}
static void looking_at_the_loss(job *j)
{
    j->spikes = true;
}

TEST(devices_train_as_one)
{
    check("plain", plain);
}
TEST(devices_train_as_one_over_accumulation_and_clipping)
{
    check("accumulate", accumulating);
}
TEST(devices_train_as_one_over_other_windows)
{
    check("windows", with_other_windows);
}
TEST(devices_stop_early_as_one)
{
    check("early", stopping_early);
}
TEST(a_batch_computed_by_a_hook_is_split_too)
{
    check("transfers", transferring);
}
TEST(the_loss_before_backward_is_that_of_the_whole_batch)
{
    check("before", looking_at_the_loss);
}

TEST(frozen_parameters_stay_and_are_trained_later)
{
    check("freeze", freezing);
}

/* Several parts per evaluation, several evaluations per step; chaotic trainings are compared early. */
TEST(an_optimizer_that_evaluates_the_loss_again)
{
    outcome one, two;
    job j = job_of("lbfgs");
    j.lbfgs = true;
    j.max_epochs = 1;
    CHECK_OK(run(&j, &one));
    j = job_of("lbfgs-2");
    j.lbfgs = true;
    j.max_epochs = 1;
    j.strategy = "data_parallel";
    j.devices = "2";
    CHECK_OK(run(&j, &two));
    CHECK_EQ(one.end.steps, two.end.steps);
    CHECK(two.calls > one.calls && two.calls <= 2 * one.calls);
    CHECK_NEAR(one.end.val_loss, two.end.val_loss, 0.05);
}

TEST(a_part_that_fails_ends_the_run_with_its_reason)
{
    for (int n = 1; n <= 2; n++) { /* the first or the second part of batch 3 */
        outcome o;
        job j = job_of("fail");
        j.strategy = "data_parallel";
        j.devices = "2";
        j.fail_call = 6 + n;
        CHECK_STATUS(run(&j, &o), LC_ERR_USER);
        CHECK_CONTAINS(lc_error_message(), "the sensor of this device is unplugged");
        CHECK_EQ(o.end.steps, 3);
        j.fail_call = 0;
        CHECK_OK(run(&j, &o));
    }
}

/* ---- random numbers ---- */

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    outcome *all = ctx;
    job j = {.max_epochs = 3, .accumulate = 1, .dropout = 0.4, .comm = comm};
    snprintf(j.root, sizeof j.root, "%s/ranks", scratch_root);
    return run(&j, &all[lc_comm_rank(comm)]);
}

TEST(random_numbers_are_those_of_ranks_and_repeatable)
{
    static outcome ranks[2];
    outcome a, b, one;
    job j = job_of("dropout");
    j.dropout = 0.4;
    CHECK_OK(run(&j, &one));
    j.strategy = "data_parallel";
    j.devices = "2";
    CHECK_OK(run(&j, &a));
    CHECK_OK(run(&j, &b));
    CHECK(!memcmp(a.end.weight, b.end.weight, sizeof a.end.weight));
    CHECK(memcmp(a.end.weight, one.end.weight, sizeof a.end.weight) != 0); /* other dropout masks */
    CHECK_RANKS("threads", 2, run_rank, ranks);
    for (size_t i = 0; i < sizeof a.end.weight / 4; i++) CHECK_NEAR(a.end.weight[i], ranks[0].end.weight[i], 3e-6);
}

/* ---- evaluation ---- */

typedef struct predictions {
    float v[VAL][CLASSES];
    double loss;
} predictions;

static lc_status evaluate(const char *strategy, const char *devices, predictions *out)
{
    job j = {.strategy = strategy, .devices = devices, .max_epochs = 1, .accumulate = 1};
    outcome o;
    net m;
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = options_of(&j);
    opt.default_root_dir = NULL;
    opt.logger = "none";
    opt.enable_checkpointing = LC_OFF;
    LC_TRY(net_init(&m, &j, &o, &net_ops));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, BATCH, false, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_validate(t, &m.base.base, .val_dataloader = l));
    LC_TRY(lc_trainer_metric(t, "val_loss", &out->loss));
    LC_TRY(lc_trainer_predict(t, &m.base.base, .dataloaders = &l, .n_dataloaders = 1));
    LC_TRY(read_predictions(t, VAL, out->v));
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m.base);
    return LC_OK;
}

TEST(devices_evaluate_and_predict_as_one_and_in_order)
{
    static predictions one, several;
    CHECK_OK(evaluate(NULL, NULL, &one));
    for (int s = 0; s < 2; s++)
        for (int n = 0; n < 5; n++) {
            CHECK_OK(evaluate(strategies[s], numbers[n], &several));
            CHECK_NEAR(one.loss, several.loss, 1e-6);
            for (int i = 0; i < VAL; i++)
                for (int k = 0; k < CLASSES; k++) CHECK_NEAR(one.v[i][k], several.v[i][k], 1e-5);
        }
}

/* ---- batch norm: each device normalizes its part, the buffers are device 0's ---- */

enum { CHANNELS = 4, SIDE = 6, IMAGES = 20, IMAGE_BATCH = 7, PIXELS = SIDE * SIDE };

static float images[IMAGES][PIXELS];
static int64_t kinds[IMAGES];

typedef struct cnn {
    lc_module base;
    lc_conv2d conv;
    lc_batch_norm2d bn;
    lc_linear head;
} cnn;

typedef struct cnn_state {
    float conv[CHANNELS * 9], head[2 * CHANNELS * PIXELS], mean[CHANNELS], var[CHANNELS];
    int64_t tracked;
} cnn_state;

static lc_tensor *cnn_loss(cnn *m, lc_tensor *x, lc_tensor *y)
{
    x = lc_relu(lc_batch_norm2d_forward(&m->bn, lc_conv2d_forward(&m->conv, x)));
    return lc_cross_entropy(lc_linear_forward(&m->head, lc_flatten(x, 1)), y);
}

static lc_tensor *cnn_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return cnn_loss((cnn *)self, b->x, b->y);
}

static const lc_module_ops cnn_ops = {LC_MODULE_OPS_INIT("cnn"), .training_step = cnn_step,
                                      .configure_optimizers = configure_optimizers};

static void cnn_init(cnn *m)
{
    lc_module_init(&m->base, &cnn_ops, 3);
    lc_conv2d_init(&m->conv, m, "conv", 1, CHANNELS, 3, .padding = 1);
    lc_batch_norm2d_init(&m->bn, m, "bn", CHANNELS);
    lc_linear_init(&m->head, m, "head", CHANNELS * PIXELS, 2);
}

static lc_status cnn_read(cnn *m, cnn_state *s)
{
    LC_TRY(lc_tensor_read(m->conv.weight, s->conv, sizeof s->conv));
    LC_TRY(lc_tensor_read(m->head.weight, s->head, sizeof s->head));
    LC_TRY(lc_tensor_read(m->bn.running_mean, s->mean, sizeof s->mean));
    LC_TRY(lc_tensor_read(m->bn.running_var, s->var, sizeof s->var));
    return lc_tensor_read(m->bn.num_batches_tracked, &s->tracked, sizeof s->tracked);
}

/* The same on a single graph, part by part. */
static lc_status by_hand(int devices, cnn_state *out)
{
    cnn m;
    lc_graph *g;
    cnn_state kept;
    lc_optimizer *opt;
    cnn_init(&m);
    LC_TRY(lc_graph_new(&g));
    opt = lc_sgd(&m.base, .lr = 0.1, .momentum = 0.9);
    lc_module_train(&m.base, true);
    lc_graph_set_window(g, 1);
    for (int step = 0, begin = 0; begin < IMAGES; begin += IMAGE_BATCH, step++) {
        int size = IMAGES - begin < IMAGE_BATCH ? IMAGES - begin : IMAGE_BATCH, each = (size + devices - 1) / devices;
        lc_zero_grad(g);
        for (int at = 0, n; at < size; at += n) {
            lc_tensor *x, *y;
            n = size - at < each ? size - at : each;
            LC_TRY(lc_input_new(LC_F32, 4, (int64_t[]){n, 1, SIDE, SIDE}, LC_ROW_MAJOR, images[begin + at], &x));
            LC_TRY(lc_input_new(LC_I64, 1, (int64_t[]){n}, LC_ROW_MAJOR, kinds + begin + at, &y));
            LC_TRY(lc_step_begin(g, (uint64_t)step, 0));
            lc_backward(lc_mul_scalar(cnn_loss(&m, x, y), (double)n / size));
            if (at + n >= size) lc_optimizer_step(opt);
            LC_TRY(lc_step_run(g));
            LC_TRY(lc_step_end(g));
            if (at == 0) {
                LC_TRY(cnn_read(&m, &kept));
            } else {
                LC_TRY(lc_tensor_write(m.bn.running_mean, kept.mean, sizeof kept.mean));
                LC_TRY(lc_tensor_write(m.bn.running_var, kept.var, sizeof kept.var));
                LC_TRY(lc_tensor_write(m.bn.num_batches_tracked, &kept.tracked, sizeof kept.tracked));
            }
            lc_tensor_unref(x), lc_tensor_unref(y);
        }
    }
    lc_status s = cnn_read(&m, out);
    lc_optimizer_free(opt);
    lc_graph_free(g);
    lc_module_release(&m.base);
    return s;
}

static lc_status by_trainer(const char *strategy, const char *devices, cnn_state *out)
{
    cnn m;
    lc_trainer *t;
    lc_dataset *d;
    lc_dataloader *l;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 3, .shape = {1, SIDE, SIDE}}, .data = images},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = kinds}};
    opt.strategy = strategy;
    opt.devices = devices;
    opt.barebones = true;
    opt.max_epochs = 1;
    opt.handle_signals = false;
    cnn_init(&m);
    LC_TRY(lc_array_dataset_new(IMAGES, 2, arrays, &d));
    LC_TRY(lc_dataloader_new(&l, .dataset = d, .batch_size = IMAGE_BATCH));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = l);
    if (s >= 0) s = cnn_read(&m, out);
    lc_trainer_free(t);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    lc_module_release(&m.base);
    return s;
}

TEST(buffers_are_those_of_device_0)
{
    static cnn_state want, got;
    for (int i = 0; i < IMAGES; i++) {
        for (int k = 0; k < PIXELS; k++)
            images[i][k] = (float)lc_random_normal(11, (uint64_t)(i * PIXELS + k)) + (float)i / IMAGES;
        kinds[i] = i % 3 == 0;
    }
    for (int n = 0; n < 5; n++) {
        CHECK_OK(by_hand(atoi(numbers[n]), &want));
        for (int s = 0; s < 2; s++) {
            CHECK_OK(by_trainer(strategies[s], numbers[n], &got));
            for (int i = 0; i < CHANNELS * 9; i++) CHECK_NEAR(want.conv[i], got.conv[i], 2e-5);
            for (int i = 0; i < 2 * CHANNELS * PIXELS; i++) CHECK_NEAR(want.head[i], got.head[i], 2e-5);
            for (int i = 0; i < CHANNELS; i++) CHECK_NEAR(want.mean[i], got.mean[i], 1e-5);
            for (int i = 0; i < CHANNELS; i++) CHECK_NEAR(want.var[i], got.var[i], 1e-5);
            CHECK_EQ(want.tracked, 3);
            CHECK_EQ(got.tracked, 3);
        }
    }
}

/* ---- a number of gradients that is divided by no number of devices ---- */

enum { ODD = 129 };

typedef struct odd_net {
    lc_module base;
    lc_tensor *w;
} odd_net;

static lc_tensor *odd_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mul(lc_sum(((odd_net *)self)->w), lc_mean(b->x));
}

static const lc_module_ops odd_ops = {
    LC_MODULE_OPS_INIT("odd"),
    .training_step = odd_step,
    .configure_optimizers = small_net_sgd,
};

/* A backward pass without an optimizer: the parameter's gradient gets memory of exactly its size. */
static void backward_alone(lc_tensor *w)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_backward(lc_sum(w));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
}

TEST(every_gradient_is_added_up)
{
    for (int n = 0; n < 5; n++) {
        odd_net m;
        float w[ODD];
        lc_dataloader *l;
        lc_trainer *t;
        lc_trainer_options opt = quiet_options(NULL);
        opt.strategy = "data_parallel";
        opt.devices = numbers[n];
        lc_module_init(&m.base, &odd_ops, 1);
        m.w = lc_module_add_parameter(&m.base, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){ODD}, (lc_init){0});
        backward_alone(m.w);
        CHECK_OK(loader_of(0, SAMPLES, BATCH, false, &l));
        CHECK_OK(lc_trainer_new(&opt, &t));
        CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = l));
        CHECK_OK(lc_tensor_read(m.w, w, sizeof w));
        CHECK(w[0] != 0);
        for (int i = 0; i < ODD; i++)
            if (w[i] != w[0]) TEST_FAIL("%s devices: w[%d] is %g, not %g", numbers[n], i, w[i], w[0]);
        lc_trainer_free(t);
        lc_dataloader_free(l);
        lc_module_release(&m.base);
    }
}

/* ---- values of the module's tensors that the host reads and writes within a step ---- */

typedef struct masked_net {
    lc_module base;
    lc_tensor *w, *mask;
    double read; /* after the step has assigned the mask */
    bool in_hook, assigns;
} masked_net;

static lc_status write_mask(masked_net *m, float value)
{
    float values[] = {value, value, value};
    return lc_tensor_write(m->mask, values, sizeof values);
}

static lc_tensor *masked_step(lc_module *self, const lc_batch *b, int64_t i)
{
    masked_net *m = (masked_net *)self;
    double sum;
    (void)i;
    if (m->assigns) {
        lc_assign(m->mask, lc_mul_scalar(m->mask, 2));
        if (lc_item(lc_sum(m->mask), &sum) < 0) return NULL;
        float now[3];
        if (lc_tensor_read(m->mask, now, sizeof now) < 0) return NULL;
        m->read = now[0] == now[2] && 3 * now[0] == sum ? now[0] : NAN;
    }
    lc_tensor *before = lc_mul(m->w, m->mask), *x = lc_mean(b->x);
    if (m->in_hook) return lc_mul(lc_sum(before), x);
    lc_log(self, "before", lc_sum(lc_detach(m->mask)), .on_step = LC_ON);
    if (write_mask(m, 5) < 0) return NULL;
    return lc_mul(lc_sum(lc_mul(m->w, m->mask)), x);
}

static lc_status masked_hook(lc_module *self, lc_tensor *loss)
{
    masked_net *m = (masked_net *)self;
    (void)loss;
    return m->in_hook ? write_mask(m, 7) : LC_OK;
}

static const lc_module_ops masked_ops = {
    LC_MODULE_OPS_INIT("masked"),
    .training_step = masked_step,
    .on_before_backward = masked_hook,
    .configure_optimizers = small_net_sgd,
};

static lc_status train_masked(const char *strategy, const char *devices, bool in_hook, bool assigns, float out[6])
{
    masked_net m = {.in_hook = in_hook, .assigns = assigns};
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(NULL);
    opt.strategy = strategy;
    opt.devices = devices;
    opt.max_steps = 1;
    lc_module_init(&m.base, &masked_ops, 1);
    m.w = lc_module_add_parameter(&m.base, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){3}, (lc_init){0});
    m.mask = lc_module_add_buffer(&m.base, "mask", LC_F32, 1, (int64_t[]){3}, (lc_init){0}, true);
    LC_TRY(write_mask(&m, 1));
    LC_TRY(loader_of(0, SAMPLES, BATCH, false, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = l);
    if (s >= 0) s = lc_tensor_read(m.w, out, 3 * sizeof *out);
    if (s >= 0) s = lc_tensor_read(m.mask, out + 3, 3 * sizeof *out);
    if (s >= 0 && assigns && m.read != 2) s = lc_fail(LC_ERR_INTERNAL, "read %g", m.read);
    lc_trainer_free(t);
    lc_dataloader_free(l);
    lc_module_release(&m.base);
    return s;
}

TEST(the_host_sees_what_a_part_has_computed)
{
    float want[6], got[6];
    for (int assigns = 0; assigns < 2; assigns++) {
        CHECK_OK(train_masked(NULL, NULL, false, assigns, want));
        for (int s = 0; s < 2; s++)
            for (int n = 0; n < 5; n++) {
                CHECK_OK(train_masked(strategies[s], numbers[n], false, assigns, got));
                for (int i = 0; i < 6; i++) CHECK_NEAR(got[i], want[i], 1e-6);
            }
    }
}

TEST(a_write_between_the_passes_is_an_error)
{
    float got[6];
    CHECK_STATUS(train_masked(NULL, NULL, true, false, got), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "lc_tensor_write has written that tensor since");
    for (int s = 0; s < 2; s++) {
        CHECK_STATUS(train_masked(strategies[s], "2", true, false, got), LC_ERR_STATE);
        CHECK_CONTAINS(lc_error_message(), "lc_tensor_write has written that tensor since");
    }
}

/* ---- a trainer that trains several modules one after another ---- */

static const lc_module_ops bare_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = small_net_training_step,
    .configure_optimizers = small_net_sgd,
};

static lc_status train_new(lc_trainer *t, lc_dataloader *l, float head[8 * CLASSES])
{
    small_net m = {0};
    lc_batch *b;
    LC_TRY(small_net_init(&m, &bare_ops, 7));
    LC_TRY(lc_trainer_begin(t, &m.base));
    LC_TRY(lc_dataloader_begin(l, 0, 0));
    for (int i = 0; i < 3; i++) {
        LC_TRY(lc_dataloader_next(l, &b));
        LC_TRY(lc_trainer_step(t, b, NULL));
    }
    lc_dataloader_end(l);
    LC_TRY(lc_trainer_end(t));
    LC_TRY(lc_tensor_read(m.l2.weight, head, 8 * CLASSES * sizeof *head));
    small_net_release(&m);
    return LC_OK;
}

TEST(modules_one_after_another_on_a_tree)
{
    float head[2][8 * CLASSES];
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(NULL);
    opt.strategy = "data_parallel";
    opt.devices = "2";
    opt.deterministic = true;
    CHECK_OK(loader_of(0, SAMPLES, BATCH, false, &l));
    CHECK_OK(lc_trainer_new(&opt, &t));
    for (int k = 0; k < 2; k++) CHECK_OK(train_new(t, l, head[k]));
    CHECK(!memcmp(head[0], head[1], sizeof head[0]));
    lc_trainer_free(t);
    lc_dataloader_free(l);
}

TEST_MAIN
