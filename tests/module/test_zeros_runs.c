/* SPDX-License-Identifier: Apache-2.0 */
/* Continues test_zeros.c: zeros in arguments that only a run shows. */
#include "quiet_options.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lightc/lightc.h>

enum { SAMPLES = 8, EPOCHS = 3 };

/* ---- a training: y = w x + b ---- */

typedef struct net {
    lc_module base;
    lc_linear l;
    lc_dataset *data;
    double value; /* what validation logs as "value" */
    struct {
        double lr;
        int64_t batch_size;
    } h;
    void (*log_training)(lc_module *self, lc_tensor *loss);
    void (*log_validation)(lc_module *self, double value);
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *loss = lc_mse_loss(lc_linear_forward(&m->l, b->x), b->y);
    (void)i;
    if (m->log_training) m->log_training(self, loss);
    return loss;
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)b, (void)i;
    if (loader == 0) lc_log_value(self, "value", m->value, .add_dataloader_idx = false);
    if (loader == 0 && m->log_validation) m->log_validation(self, m->value);
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = ((net *)self)->h.lr));
}

static lc_status add_loader(lc_module *self, lc_loaders *out)
{
    net *m = (net *)self;
    lc_dataloader *l = NULL;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->data, .batch_size = m->h.batch_size));
    return lc_loaders_add(out, l);
}

static lc_status add_two_loaders(lc_module *self, lc_loaders *out)
{
    LC_TRY(add_loader(self, out));
    return add_loader(self, out);
}

static void net_init(net *m)
{
    static float x[SAMPLES], y[SAMPLES];
    static lc_module_ops ops;
    lc_array a[2];
    memset(m, 0, sizeof *m);
    memset(a, 0, sizeof a);
    for (int i = 0; i < SAMPLES; i++) x[i] = (float)i / SAMPLES, y[i] = 2 * x[i] - 1;
    for (int i = 0; i < 2; i++) {
        a[i].field.name = i ? "y" : "x";
        a[i].field.ndim = 1;
        a[i].field.shape[0] = 1;
        a[i].data = i ? y : x;
    }
    CHECK_OK(lc_array_dataset_new(SAMPLES, 2, a, &m->data));
    ops = LC_OPS(lc_module_ops, .name = "net", .training_step = training_step, .validation_step = validation_step,
                 .configure_optimizers = configure_optimizers, .train_dataloader = add_loader,
                 .val_dataloader = add_two_loaders);
    lc_module_init(&m->base, &ops, 1);
    lc_linear_init(&m->l, m, "l", 1, 1);
    m->h.lr = 0.1;
    m->h.batch_size = 4;
}

static void net_release(net *m)
{
    lc_module_release(&m->base);
    lc_dataset_unref(m->data);
}

static lc_trainer *trainer_new(const lc_callback *callback)
{
    lc_trainer *t = NULL;
    lc_trainer_options o = quiet_options(NULL);
    o.max_epochs = EPOCHS;
    o.num_sanity_val_steps = 0;
    if (callback) {
        o.callbacks = (lc_callback *)callback;
        o.n_callbacks = 1;
        if (strstr(callback->ops->name, "ProgressBar")) o.enable_progress_bar = LC_ON;
        if (!strcmp(callback->ops->name, "ModelSummary")) o.enable_model_summary = LC_ON;
    }
    CHECK_OK(lc_trainer_new(&o, &t));
    return t;
}

/* After EPOCHS epochs, or fewer. */
typedef struct outcome {
    float weight;
    int64_t epochs;
} outcome;

/* Trains with a callback, whose making is `made`. */
static outcome train_with(lc_status made, const lc_callback *callback, double value)
{
    outcome o = {0, 0};
    net m;
    CHECK_OK(made);
    net_init(&m);
    m.value = value;
    lc_trainer *t = trainer_new(callback);
    CHECK_OK(lc_trainer_fit(t, &m.base));
    o.epochs = lc_trainer_current_epoch(t);
    CHECK_OK(lc_tensor_read(m.l.weight, &o.weight, sizeof o.weight));
    lc_trainer_free(t);
    net_release(&m);
    return o;
}

/* ---- callbacks ---- */

/* X(callback, argument, monitored value, other arguments): a run with the argument 0 differs from one without it. */
#define RUNS(X)                                                                                                        \
    X(lc_early_stopping, stopping_threshold, -1, .monitor = "value", .patience = 9)                                    \
    X(lc_early_stopping, divergence_threshold, 1, .monitor = "value", .patience = 9)                                   \
    X(lc_ema_weight_averaging, update_starting_at_epoch, 1, .update_every_n_steps = 0, .decay = 0.5)

TEST(runs_with_callbacks)
{
    lc_callback cb;
#define CHECK_RUN(make, argument, value, ...)                                                                          \
    {                                                                                                                  \
        outcome with = train_with(make(&cb, __VA_ARGS__, .argument = 0), &cb, value);                                  \
        outcome without = train_with(make(&cb, __VA_ARGS__), &cb, value);                                              \
        CHECK_EQ(without.epochs, EPOCHS);                                                                              \
        if (with.epochs == without.epochs && with.weight == without.weight)                                            \
            TEST_FAIL("%s: %s: as without it", #make, #argument);                                                      \
    }
    RUNS(CHECK_RUN)
}

/* X(lc_stochastic_weight_averaging, swa_epoch_start, ...): from the first epoch on. */
TEST(averaging_from_the_first_epoch)
{
    const double rates[] = {0.01};
    lc_callback cb;
    outcome with = train_with(
        lc_stochastic_weight_averaging(&cb, .swa_lrs = rates, .n_swa_lrs = 1, .swa_epoch_start = LC_FRACTION(0)), &cb,
        1);
    outcome without = train_with(lc_stochastic_weight_averaging(&cb, .swa_lrs = rates, .n_swa_lrs = 1), &cb, 1);
    CHECK(with.weight != without.weight);
    CHECK(lc_stochastic_weight_averaging(&cb, .swa_lrs = rates, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(0)) < 0);
    CHECK_CONTAINS(lc_error_message(), "swa_epoch_start");
}

/* The bytes that a run with the callback writes to file descriptor 0. */
static int64_t written_to_0(lc_status made, const lc_callback *callback)
{
    char path[] = "/tmp/lightc-zeros-XXXXXX";
    struct stat st;
    int file = mkstemp(path), kept = dup(0);
    CHECK(file >= 0 && dup2(file, 0) == 0);
    train_with(made, callback, 1);
    CHECK_EQ(fstat(file, &st), 0);
    close(file);
    unlink(path);
    if (kept < 0)
        close(0);
    else
        dup2(kept, 0), close(kept);
    return st.st_size;
}

#define FILES(X)                                                                                                       \
    X(lc_progress_bar, fd)                                                                                             \
    X(lc_rich_progress_bar, fd)                                                                                        \
    X(lc_model_summary, fd)

TEST(file_descriptor_0)
{
    lc_callback cb;
#define CHECK_FILE(make, argument)                                                                                     \
    if (written_to_0(make(&cb, .argument = 0), &cb) < 10) TEST_FAIL("%s: nothing went to " #argument " 0", #make);
    FILES(CHECK_FILE)
}

/* X(lc_notifier, events, ...): none of them runs the command. */
TEST(no_events)
{
    char dir[] = "/tmp/lightc-zeros-XXXXXX", file[80], command[100];
    struct stat st;
    lc_callback cb;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(file, sizeof file, "%s/told", dir);
    snprintf(command, sizeof command, "touch %s", file);
    train_with(lc_notifier(&cb, .command = command, .events = 0), &cb, 1);
    CHECK(stat(file, &st) != 0);
    train_with(lc_notifier(&cb, .command = command), &cb, 1);
    CHECK(stat(file, &st) == 0);
    unlink(file);
    rmdir(dir);
}

/* X(lc_unfreeze, train_bn, ...) and X(lc_unfreeze, lr, ...): the group is without the batch norm, and it learns
 * at 0, not at a part of the first group's rate. */
TEST(a_group_that_learns_at_zero)
{
    lc_module m;
    lc_linear l;
    lc_batch_norm1d norm;
    double lr = -1;
    lc_module_init(&m, NULL, 1);
    lc_linear_init(&l, &m, "l", 2, 3);
    lc_batch_norm1d_init(&norm, &m, "norm", 3);
    lc_optimizer *opt = lc_sgd(&m, .no_parameters = true, .lr = 0.5);
    lc_finetuning_freeze(&m, false);
    CHECK_OK(lc_finetuning_unfreeze(&m, opt, .lr = 0, .train_bn = false));
    CHECK_EQ(opt->groups[0].n_parameters, 2);
    CHECK_OK(lc_optimizer_get(opt, 0, "lr", &lr));
    CHECK_NEAR(lr, 0, 0);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* ---- logged values ---- */

static void log_unlogged(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "logged", loss);
    lc_log(self, "kept", loss, .logger = false);
}
static void log_epochs(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "epochs", loss, .on_step = false, .on_epoch = true);
}
static void log_steps(lc_module *self, double value)
{
    lc_log_value(self, "steps", value, .on_step = true, .on_epoch = false);
}
static void log_one_loader(lc_module *self, double value)
{
    lc_log_value(self, "plain", value, .add_dataloader_idx = false);
}

/* X(lc_log, argument, in training, in validation, a name that there is, one that only the default has) */
#define LOGS(X)                                                                                                        \
    X(lc_log, logger, log_unlogged, NULL, "logged", "kept")                                                            \
    X(lc_log, on_step, log_epochs, NULL, "epochs", "epochs_step")                                                      \
    X(lc_log, on_epoch, NULL, log_steps, "value", "steps_epoch")                                                       \
    X(lc_log, add_dataloader_idx, NULL, log_one_loader, "plain", "plain/dataloader_idx_0")

static bool was_logged(lc_trainer *t, const char *name)
{
    for (int i = 0; i < lc_trainer_metric_count(t, LC_LOGGED_METRICS); i++)
        if (!strcmp(lc_trainer_metric_at(t, LC_LOGGED_METRICS, i).name, name)) return true;
    return false;
}

static void check_log(const char *argument, void (*training)(lc_module *self, lc_tensor *loss),
                      void (*validation)(lc_module *self, double value), const char *there, const char *absent)
{
    net m;
    double value;
    net_init(&m);
    m.log_training = training;
    m.log_validation = validation;
    lc_trainer *t = trainer_new(NULL);
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK_OK(lc_trainer_metric(t, there, &value));
    if (was_logged(t, absent)) TEST_FAIL("lc_log: %s: %s was logged", argument, absent);
    if (strcmp(argument, "logger") != 0) CHECK(lc_trainer_metric(t, absent, &value) < 0);
    lc_trainer_free(t);
    net_release(&m);
}

TEST(logged_values)
{
#define CHECK_LOG(kind, argument, training, validation, there, absent)                                                 \
    check_log(#argument, training, validation, there, absent);
    LOGS(CHECK_LOG)
}

/* ---- clipping: to 0, after which an update changes nothing ---- */

#define CLIPS(X)                                                                                                       \
    X(lc_clip, clip_val)                                                                                               \
    X(lc_clip, max_norm)

TEST(gradients_clipped_to_zero)
{
#define CHECK_CLIP(kind, argument)                                                                                     \
    for (int clipped = 0; clipped < 2; clipped++) {                                                                    \
        net m;                                                                                                         \
        lc_fabric *f = NULL;                                                                                           \
        float before, after;                                                                                           \
        net_init(&m);                                                                                                  \
        CHECK_OK(lc_fabric_new(&f));                                                                                   \
        lc_optimizer *opt = lc_sgd(&m.base, .lr = 0.5);                                                                \
        CHECK_OK(lc_fabric_setup(f, &m.base, &opt, 1));                                                                \
        CHECK_OK(lc_tensor_read(m.l.weight, &before, sizeof before));                                                  \
        CHECK_OK(lc_fabric_begin(f));                                                                                  \
        lc_fabric_backward(f, lc_sum(lc_mul(m.l.weight, m.l.weight)));                                                 \
        if (clipped) lc_fabric_clip_gradients(f, opt, .argument = 0);                                                  \
        lc_fabric_step(f, opt);                                                                                        \
        CHECK_OK(lc_fabric_end(f));                                                                                    \
        CHECK_OK(lc_tensor_read(m.l.weight, &after, sizeof after));                                                    \
        if ((before == after) != (clipped == 1)) TEST_FAIL("lc_clip: %s", #argument);                                  \
        lc_fabric_free(f);                                                                                             \
        lc_optimizer_free(opt);                                                                                        \
        net_release(&m);                                                                                               \
    }
    CLIPS(CHECK_CLIP)
}

/* ---- the tuner ---- */

/* X(lc_lr_find, update_attr, ...): needs no hyperparameter, and changes none. */
TEST(a_rate_that_is_only_found)
{
    net m;
    lc_lr_find_result r;
    net_init(&m);
    lc_trainer *t = trainer_new(NULL);
    CHECK(lc_tuner_lr_find(t, &m.base, NULL, &r, .num_training = 5) < 0);
    CHECK_CONTAINS(lc_error_message(), "update_attr");
    CHECK_OK(lc_tuner_lr_find(t, &m.base, NULL, &r, .num_training = 5, .update_attr = false));
    CHECK(r.n == 5 && m.h.lr == 0.1);
    lc_lr_find_release(&r);
    lc_trainer_free(t);
    net_release(&m);
}

/* X(lc_scale_batch_size, margin, ...): the largest batch itself, which has all samples. */
TEST(a_batch_size_without_a_margin)
{
    lc_option fields[1];
    net m;
    lc_scale_batch_size_result r;
    net_init(&m);
    memset(fields, 0, sizeof fields);
    fields[0].name = "batch_size";
    fields[0].kind = LC_OPTION_INT;
    fields[0].offset = offsetof(net, h.batch_size) - offsetof(net, h);
    fields[0].minimum = 1, fields[0].maximum = 1000;
    fields[0].help = "samples in a batch";
    lc_module_save_hyperparameters(&m.base, fields, 1, &m.h);
    lc_trainer *t = trainer_new(NULL);
    CHECK_OK(lc_tuner_scale_batch_size(t, &m.base, NULL, &r, .mode = "binsearch"));
    CHECK_EQ(m.h.batch_size, SAMPLES - 1);
    CHECK_OK(lc_tuner_scale_batch_size(t, &m.base, NULL, &r, .mode = "binsearch", .margin = 0));
    CHECK_EQ(m.h.batch_size, SAMPLES);
    lc_trainer_free(t);
    net_release(&m);
}

TEST_MAIN
