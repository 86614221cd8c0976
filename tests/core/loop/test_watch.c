/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings about trainings that go wrong without an error, each once per fit and with the step: a loss that is not
 * finite, a scale of it that has become small, training steps without a loss, epochs that train nothing; and after each
 * epoch samples that could not be read. Intended behavior causes no warning. */
#include "test.h"

enum { SAMPLES = 40 };
#include "comm_world.h"
#include "quiet_options.h"
#include "small_data.h"

#include <lightc/callbacks.h>

#include <fcntl.h>
#include <unistd.h>

typedef struct net {
    lc_module base;
    lc_linear l;
    int64_t nan_from, inf_from; /* batches, counted through the fit; -1: none */
    bool no_loss, skips, ends_epoch, steps, logs;
    bool off; /* in evaluation mode */
    int64_t seen;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    int64_t n = m->seen++;
    (void)i;
    lc_tensor *loss = lc_cross_entropy(lc_linear_forward(&m->l, b->x), b->y);
    if (m->nan_from >= 0 && n >= m->nan_from) loss = lc_mul_scalar(loss, NAN);
    if (m->inf_from >= 0 && n >= m->inf_from) loss = lc_mul_scalar(loss, INFINITY);
    if (m->logs) lc_log(self, "loss", loss, .prog_bar = true);
    if (m->steps && lc_manual_backward(self, loss) >= 0) (void)!lc_manual_step(self, lc_manual_optimizer(self, 0));
    return m->no_loss ? NULL : loss;
}
static lc_status on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    return ((net *)self)->ends_epoch ? LC_SKIP : LC_OK;
}
static lc_status on_before_optimizer_step(lc_module *self, lc_optimizer *o)
{
    (void)o;
    return ((net *)self)->skips ? LC_SKIP : LC_OK;
}
static lc_status sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 1e-3));
}

static const lc_module_ops automatic = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_start = on_train_batch_start,
    .on_before_optimizer_step = on_before_optimizer_step,
    .configure_optimizers = sgd,
};
static const lc_module_ops by_hand = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .configure_optimizers = sgd,
    .manual_optimization = true,
};

/* Warnings, one after the other. */
typedef struct warnings {
    int n;
    char text[4096];
} warnings;

static void on_message(void *context, lc_trainer *t, lc_level level, const char *text)
{
    warnings *h = context;
    (void)t;
    if (level != LC_WARNING) return;
    h->n++;
    strncat(h->text, text, sizeof h->text - strlen(h->text) - 2);
    strcat(h->text, "\n");
}

typedef struct training {
    const lc_module_ops *ops;
    net start;
    int64_t epochs, accumulate, log_every;
    const char *strategy, *devices;
    const char *precision;
    bool no_val;     /* validates with a loader without samples */
    bool limited;    /* validates instead, with a limit of 0 batches */
    bool unreadable; /* every fourth sample has the data of another, in training and validation */
} training;

/* ---- a dataset whose samples 3, 7, 11, ... cannot be read ---- */

static int64_t torn_length(void *self)
{
    (void)self;
    return SAMPLES;
}
static lc_status torn_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){
        .n = 2,
        .fields = {{.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, {.name = "y", .dtype = LC_I64}}};
    return LC_OK;
}
static lc_status torn_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)key, (void)scratch;
    if (index % 4 == 3) index--;
    memcpy(out[0], inputs[index], sizeof inputs[index]);
    memcpy(out[1], &labels[index], sizeof labels[index]);
    return LC_OK;
}
static const char *torn_replaced(void *self, int64_t index)
{
    (void)self;
    return index == 3 ? "three is torn" : index % 4 == 3 ? "another is torn" : NULL;
}
static const lc_dataset_ops torn_ops = {LC_DATASET_OPS_INIT,       .name = "torn",  .length = torn_length,
                                        .describe = torn_describe, .get = torn_get, .replaced = torn_replaced};

static lc_status torn_loader(int64_t batch_size, lc_dataloader **out)
{
    lc_dataset *d;
    LC_TRY(lc_dataset_new(&torn_ops, NULL, &d));
    lc_status s = lc_dataloader_new(out, .dataset = d, .batch_size = batch_size);
    lc_dataset_unref(d);
    return s;
}

static lc_status fit(lc_comm *comm, const training *what, warnings *h)
{
    net m = what->start;
    lc_dataloader *data, *val = NULL;
    lc_trainer *t;
    lc_callback listens;
    lc_trainer_options o = quiet_options(comm);
    *h = (warnings){.n = 0};
    lc_module_init(&m.base, what->ops ? what->ops : &automatic, 1);
    lc_linear_init(&m.l, &m, "l", FEATURES, CLASSES);
    lc_module_train(&m.base, !m.off);
    LC_TRY(lc_lambda_callback(&listens, .on_message = on_message, .context = h));
    o.callbacks = &listens;
    o.n_callbacks = 1;
    if (what->limited) o.limit_val_batches = LC_BATCHES(0);
    o.max_epochs = what->epochs ? what->epochs : 3;
    o.strategy = what->strategy;
    o.devices = what->devices;
    o.precision = what->precision;
    if (what->accumulate) o.accumulate_grad_batches = what->accumulate;
    if (what->log_every) o.log_every_n_steps = what->log_every == -1 ? 0 : what->log_every;
    int64_t batch_size = 4 / (comm ? lc_comm_size(comm) : 1); /* ten batches */
    LC_TRY(what->unreadable ? torn_loader(batch_size, &data) : loader_of(0, SAMPLES, batch_size, false, &data));
    if (what->unreadable) LC_TRY(torn_loader(batch_size, &val));
    LC_TRY(lc_trainer_new(&o, &t));
    if (what->no_val) LC_TRY(loader_of(0, 0, 4, false, &val));
    lc_status s = what->limited ? lc_trainer_validate(t, &m.base, .val_dataloader = data)
                                : lc_trainer_fit(t, &m.base, .train_dataloader = data, .val_dataloader = val);
    lc_trainer_free(t);
    lc_dataloader_free(data);
    lc_dataloader_free(val);
    lc_module_release(&m.base);
    return s;
}

#define NO_NAN .nan_from = -1, .inf_from = -1
#define CHECK_ONE(h, ...)                                                                                              \
    do {                                                                                                               \
        const char *words_[] = {__VA_ARGS__};                                                                          \
        if ((h).n != 1) TEST_FAIL("%d warnings: %s", (h).n, (h).text);                                                 \
        for (size_t w_ = 0; w_ < sizeof words_ / sizeof *words_; w_++) CHECK_CONTAINS((h).text, words_[w_]);           \
    } while (0)

TEST(a_good_training_causes_no_warning)
{
    warnings h;
    static const training good[] = {{.start = {NO_NAN}},
                                    {.start = {NO_NAN, .logs = true}, .accumulate = 4},
                                    {.start = {NO_NAN, .steps = true}, .ops = &by_hand},
                                    {.start = {NO_NAN, .steps = true, .no_loss = true}, .ops = &by_hand}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_OK(fit(NULL, &good[i], &h));
        if (h.n) TEST_FAIL("training %d: %s", (int)i, h.text);
    }
}

TEST(a_loss_that_is_not_finite)
{
    warnings h;
    /* Logged: reported in the same step. */
    CHECK_OK(fit(NULL, &(training){.start = {.nan_from = 13, .inf_from = -1, .logs = true}}, &h));
    CHECK_ONE(h, "the loss is nan at step 14 (epoch 1, batch 3)", "detect_anomaly");
    CHECK_OK(fit(NULL, &(training){.start = {.nan_from = -1, .inf_from = 2, .logs = true}}, &h));
    CHECK_ONE(h, "the loss is inf at step 3 (epoch 0, batch 2)");
    /* Not logged: reported at the next step of log_every_n_steps, or at the end of the epoch. */
    CHECK_OK(fit(NULL, &(training){.start = {.nan_from = 11, .inf_from = -1}, .log_every = 5}, &h));
    CHECK_ONE(h, "the loss is nan at step 15 (epoch 1, batch 4)");
    CHECK_OK(fit(NULL, &(training){.start = {.nan_from = 11, .inf_from = -1}, .log_every = -1}, &h));
    CHECK_ONE(h, "the loss is nan at step 20 (epoch 1, batch 9)");
    CHECK_OK(fit(
        NULL, &(training){.start = {.nan_from = 3, .inf_from = -1}, .strategy = "data_parallel", .devices = "2"}, &h));
    CHECK_ONE(h, "the loss is nan");
    CHECK_OK(fit(NULL, &(training){.ops = &by_hand, .start = {.nan_from = 3, .inf_from = -1, .steps = true}}, &h));
    CHECK_ONE(h, "the loss is nan");
}

/* With a finite loss, too, whose gradients overflow. The 30th batch has 65536 / 2^29. */
TEST(a_scale_of_the_loss_that_falls)
{
    warnings h;
    training what = {.start = {.nan_from = -1, .inf_from = 0}, .precision = "16-mixed", .log_every = 5, .epochs = 6};
    static const char *const strategies[] = {NULL, "data_parallel"};
    for (int i = 0; i < 2; i++) {
        what.strategy = strategies[i];
        what.devices = strategies[i] ? "2" : NULL;
        CHECK_OK(fit(NULL, &what, &h));
        CHECK_CONTAINS(h.text, "the scale of the loss has fallen to 0.00012207 at step 30 (epoch 2, batch 9)");
        CHECK_CONTAINS(h.text, "bf16-mixed");
    }
    what.epochs = 2;
    CHECK_OK(fit(NULL, &what, &h));
    CHECK(!strstr(h.text, "the scale of the loss"));
}

TEST(training_steps_without_a_loss)
{
    warnings h;
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN, .no_loss = true}}, &h));
    if (!strstr(h.text, "epoch 0 trained nothing (step 10): training_step returned no loss")) TEST_FAIL("%s", h.text);
    const char *first = strstr(h.text, "trained nothing");
    CHECK(!strstr(first + 1, "trained nothing")); /* only the first of three epochs */
}

TEST(epochs_that_train_nothing)
{
    warnings h;
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN, .skips = true}}, &h));
    CHECK_CONTAINS(h.text, "epoch 0 trained nothing (step 10): every update was skipped");
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN, .ends_epoch = true}}, &h));
    CHECK_CONTAINS(h.text, "epoch 0 trained nothing (step 0): on_train_batch_start ended it");
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN}, .ops = &by_hand}, &h));
    CHECK_CONTAINS(h.text, "epoch 0 trained nothing (step 0): training_step did not call lc_manual_step");
}

TEST(a_model_in_evaluation_mode)
{
    warnings h;
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN, .off = true}}, &h));
    CHECK_ONE(h, "the model is in evaluation mode when its training starts", "lc_module_train(&model, true)");
}

/* ---- modes: a part in evaluation mode stays in it, through the summary, validations, and one that fails ---- */

static lc_tensor *step_of_modes(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    net *m = (net *)self;
    CHECK(self->training && !m->l.base.training);
    return lc_cross_entropy(lc_linear_forward(&m->l, b->x), b->y);
}
static lc_status validation_of_modes(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)b, (void)d;
    CHECK(!self->training && !((net *)self)->l.base.training);
    return i == ((net *)self)->nan_from ? lc_fail(LC_ERR_USER, "this validation fails") : LC_OK;
}
static lc_tensor *forward_of_modes(lc_module *self, const lc_batch *b)
{
    CHECK(!self->training);
    return lc_linear_forward(&((net *)self)->l, b->x);
}
static const lc_module_ops modes = {
    LC_MODULE_OPS_INIT("modes"), .training_step = step_of_modes, .validation_step = validation_of_modes,
    .forward = forward_of_modes, .configure_optimizers = sgd,
};

static lc_status fit_modes(net *m)
{
    lc_dataloader *data, *val;
    lc_trainer *t;
    lc_callback summary;
    lc_trainer_options o = quiet_options(NULL);
    int nowhere = open("/dev/null", O_WRONLY);
    static const lc_type types[] = {{LC_F32, 2, {4, FEATURES}}};
    CHECK_OK(lc_model_summary(&summary, .example_inputs = types, .n_example_inputs = 1, .fd = nowhere));
    CHECK_OK(loader_of(0, SAMPLES, 4, false, &data));
    CHECK_OK(loader_of(0, SAMPLES, 4, false, &val));
    o.callbacks = &summary;
    o.n_callbacks = 1;
    o.max_epochs = 2;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m->base, .train_dataloader = data, .val_dataloader = val);
    lc_trainer_free(t);
    lc_dataloader_free(data);
    lc_dataloader_free(val);
    close(nowhere);
    return s;
}

TEST(a_fit_keeps_modes)
{
    net m = {.nan_from = -1};
    lc_module_init(&m.base, &modes, 1);
    lc_linear_init(&m.l, &m, "l", FEATURES, CLASSES);
    lc_module_train(&m.l.base, false);
    CHECK_OK(fit_modes(&m));
    m.nan_from = 3; /* not reached by the sanity check */
    CHECK_STATUS(fit_modes(&m), LC_ERR_USER);
    CHECK(m.base.training && !m.l.base.training);
    m.nan_from = -1;
    CHECK_OK(fit_modes(&m));
    lc_module_release(&m.base);
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return LC_OK;
}

/* As Lightning warns about each loader. */
TEST(empty_evaluation_loaders)
{
    warnings h;
    lc_module_ops ops = automatic;
    ops.validation_step = validation_step;
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN}, .ops = &ops, .no_val = true}, &h));
    CHECK_ONE(h, "the val loader gives no batch");
}

/* The second of the batches has no prediction, and later ones neither. */
static lc_tensor *predicts_once(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)d;
    return i < 1 ? lc_linear_forward(&((net *)self)->l, b->x) : NULL;
}

TEST(batches_without_a_prediction)
{
    lc_module_ops ops = automatic;
    ops.predict_step = predicts_once;
    net m = {NO_NAN};
    lc_dataloader *data, *empty;
    lc_trainer *t;
    lc_callback listens;
    warnings h = {0};
    lc_trainer_options o = quiet_options(NULL);
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.l, &m, "l", FEATURES, CLASSES);
    CHECK_OK(lc_lambda_callback(&listens, .on_message = on_message, .context = &h));
    o.callbacks = &listens;
    o.n_callbacks = 1;
    CHECK_OK(loader_of(0, SAMPLES, 4, false, &data));
    CHECK_OK(loader_of(0, 0, 4, false, &empty));
    CHECK_OK(lc_trainer_new(&o, &t));
    for (int run = 0; run < 2; run++) {
        h = (warnings){.n = 0};
        CHECK_OK(lc_trainer_predict(t, &m.base, .dataloaders = &data, .n_dataloaders = 1));
        CHECK_EQ(lc_trainer_prediction_count(t, 0), 1);
        CHECK_ONE(h, "predict_step of net returned no prediction for batch 1, so none is kept for it");
    }
    h = (warnings){.n = 0};
    CHECK_OK(lc_trainer_predict(t, &m.base, .dataloaders = &data, .n_dataloaders = 1, .discard_predictions = true));
    CHECK_EQ(h.n, 0);
    CHECK_OK(lc_trainer_predict(t, &m.base, .dataloaders = &empty, .n_dataloaders = 1));
    CHECK_CONTAINS(h.text, "predict: there is no batch to run; its limit is 0, or its loader is empty");
    lc_trainer_free(t);
    lc_dataloader_free(data);
    lc_dataloader_free(empty);
    lc_module_release(&m.base);
}

TEST(an_evaluation_of_no_batches)
{
    warnings h;
    lc_module_ops ops = automatic;
    ops.validation_step = validation_step;
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN}, .ops = &ops, .limited = true}, &h));
    CHECK_ONE(h, "validate: there is no batch to run; its limit is 0, or its loader is empty");
}

TEST(samples_that_cannot_be_read)
{
    warnings h;
    lc_module_ops ops = automatic;
    ops.validation_step = validation_step;
    CHECK_OK(fit(NULL, &(training){.start = {NO_NAN}, .ops = &ops, .unreadable = true, .epochs = 2}, &h));
    CHECK_STR(h.text,
              "validate, epoch 0: 10 samples could not be read and had the data of others; the first: three is "
              "torn\n"
              "fit, epoch 0: 10 samples could not be read and had the data of others; the first: three is torn\n"
              "validate, epoch 1: 10 samples could not be read and had the data of others; the first: three is "
              "torn\n"
              "fit, epoch 1: 10 samples could not be read and had the data of others; the first: three is "
              "torn\n");
}

static lc_status rank(lc_comm *comm, void *ctx)
{
    static warnings all[WORLD_RANKS]; /* one per rank; ranks are threads */
    warnings *h = &all[lc_comm_rank(comm)];
    LC_TRY(fit(comm, ctx, h));
    int64_t times = 0;
    for (const char *at = h->text; (at = strstr(at, "the loss is nan")); at++) times++;
    RANK_CHECK(times == (lc_comm_rank(comm) == 0));
    return LC_OK;
}

TEST(rank_0_warns_for_all_ranks)
{
    static const char *const strategies[] = {"ddp", "sharded_3"};
    for (int i = 0; i < 2; i++) {
        training what = {.strategy = strategies[i], .start = {.nan_from = 3, .inf_from = -1, .logs = true}};
        CHECK_RANKS("threads", 2, rank, &what);
    }
}

static lc_status rank_that_cannot_read(lc_comm *comm, void *ctx)
{
    static warnings all[WORLD_RANKS];
    warnings *h = &all[lc_comm_rank(comm)];
    LC_TRY(fit(comm, ctx, h));
    RANK_CHECK(h->n == 2 * (lc_comm_rank(comm) == 0)); /* of validation, and of training */
    if (!h->n) return LC_OK;
    /* The second rank has the third and the fourth sample of each batch, and the fourth cannot be read. */
    RANK_CHECK(strstr(h->text, "validate, epoch 0: 10 samples could not be read"));
    RANK_CHECK(strstr(h->text, "\nfit, epoch 0: 10 samples could not be read and had the data of others; the first: "
                               "three is torn\n"));
    return LC_OK;
}

TEST(samples_that_other_ranks_cannot_read)
{
    lc_module_ops ops = automatic;
    ops.validation_step = validation_step;
    training what = {.strategy = "ddp", .start = {NO_NAN}, .ops = &ops, .unreadable = true, .epochs = 1};
    CHECK_RANKS("threads", 2, rank_that_cannot_read, &what);
}

TEST_MAIN
