/* SPDX-License-Identifier: Apache-2.0 */
/* A run that was killed and resumed ends like one that was not, bit for bit, with everything in use at once:
 * every callback, several loggers, a profiler, accumulation, clipping, combined training loaders that shuffle and have
 * worker threads, two validation loaders, validation inside of epochs; and every schedule and every optimizer in turn.
 *
 * The test compares the final checkpoints (parameters, optimizer, callbacks; state.json except for times), the rows of
 * metrics.csv (those of the killed part followed by those of the resumed part, except for times), and what the model
 * predicts. On the simulated device it also compares all of this with a run on the CPU.
 *
 * To add a callback: a line in `common` or in one of `mixes`. The test fails if a schedule or an optimizer has no line.
 */
#define ONE_CYCLE_STEPS 12
#include "callback_net.h"
#include "every_schedule.h"
#include "optim/optim_internal.h"
#include "optim/sched/sched_internal.h"

#include <fcntl.h>

enum { AT_ONCE = 24, ROWS_MAX = 4096, EPOCHS = 3, BATCHES = 7 /* BATCHES: in an epoch, of 3 samples each */ };

typedef lc_optimizer *make_optimizer(void *m, lc_tensor **list, int n);
typedef lc_status make_callback(const char *dir, lc_callback *out);

typedef struct setup {
    const char *name;
    make_callback *const *callbacks; /* besides the common ones */
    make_optimizer *optimizer;
    make_scheduler *scheduler; /* NULL: none */
    const char *monitor;       /* monitored by the schedule */
    lc_interval interval;
    int64_t accumulate;
    bool matrices_only; /* the optimizer gets only matrices */
    bool finders;       /* searches for a learning rate and a batch size */
    bool by_exception;  /* resumes from the checkpoint that OnExceptionCheckpoint left */
} setup;

/* The place where a run ends after saving its state: at the nth call of a hook. */
typedef enum hook { NEVER, BATCH, VALIDATION } hook;
typedef struct place {
    hook hook;
    int64_t n;
} place;

typedef struct everything {
    net n; /* must be first */
    const setup *setup;
    place place;
    int64_t seen[VALIDATION + 1];
    lc_trainer *trainer;
    struct {
        double lr;
        int64_t batch_size;
    } tuned;
} everything;

/* ---- the module ---- */

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = NULL;
    (void)i;
    for (int k = 0; k < b->n_parts; k++) {
        lc_tensor *part = lc_mse_loss(net_forward((net *)self, b->parts[k]->x), b->parts[k]->y);
        loss = loss ? lc_add(loss, lc_mul_scalar(part, 0.5)) : part;
    }
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON, .prog_bar = true);
    lc_log_value(self, "largest_batch", (double)b->size, .on_step = LC_OFF, .on_epoch = LC_ON, .reduce_fx = LC_LOG_MAX);
    return loss;
}
static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    lc_tensor *loss = lc_mse_loss(net_forward((net *)self, b->x), b->y);
    (void)i;
    if (d == 0) lc_log(self, "val_loss", loss, .add_dataloader_idx = LC_OFF);
    lc_log(self, "val_mse", loss, .on_step = LC_ON, .on_epoch = LC_ON);
    return LC_OK;
}
static bool is_matrix(void *ctx, const char *path, lc_module *owner, lc_tensor *p)
{
    (void)ctx, (void)path, (void)owner;
    return lc_tensor_ndim(p) == 2;
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const setup *s = ((everything *)self)->setup;
    lc_tensor **list;
    int n;
    LC_TRY(lc_module_parameters(self, s->matrices_only ? is_matrix : net_trains, NULL, &list, &n));
    lc_optimizer *opt = s->optimizer(self, list, n);
    free(list);
    if (!opt) return LC_ERR_CONFIG; /* the module has the message */
    if (s->finders) LC_TRY(lc_optimizer_set(opt, -1, "lr", ((everything *)self)->tuned.lr));
    LC_TRY(lc_optimizers_add(out, opt));
    if (!s->scheduler) return LC_OK;
    lc_scheduler_config c = {.scheduler = s->scheduler(opt), .interval = s->interval, .monitor = s->monitor};
    c.reduce_on_plateau = s->monitor != NULL;
    return lc_optimizers_add_scheduler(out, c);
}
static lc_status add_loader(lc_module *self, lc_dataloader_args o, lc_dataloader **out)
{
    o.dataset = ((net *)self)->data;
    return lc_dataloader_new_with(out, &o);
}
static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    int64_t size = ((everything *)self)->tuned.batch_size;
    lc_dataloader *parts[2], *both;
    LC_TRY(add_loader(
        self,
        LC_ARGS(lc_dataloader, .batch_size = size, .shuffle = true, .drop_last = true, .seed = 7, .num_workers = 2),
        &parts[0]));
    /* This loader ends within an epoch of the first one, and starts over in another order. */
    LC_TRY(add_loader(self, LC_ARGS(lc_dataloader, .batch_size = 5, .shuffle = true, .seed = 8, .num_workers = 1),
                      &parts[1]));
    LC_TRY(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, parts, &both));
    return lc_loaders_add(out, both);
}
static lc_status val_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(add_loader(self, LC_ARGS(lc_dataloader, .batch_size = 4, .num_workers = 1), &l));
    LC_TRY(lc_loaders_add(out, l));
    LC_TRY(add_loader(self, LC_ARGS(lc_dataloader, .batch_size = 11), &l));
    return lc_loaders_add(out, l);
}
static lc_status predict_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(add_loader(self, LC_ARGS(lc_dataloader, .batch_size = 6), &l));
    return lc_loaders_add(out, l);
}

static lc_status at(lc_module *self, hook now)
{
    everything *m = (everything *)self;
    char path[4200];
    if (self->trainer != m->trainer || lc_trainer_sanity_checking(self->trainer))
        return LC_OK; /* the tuner's trainer */
    if (++m->seen[now] != m->place.n || m->place.hook != now) return LC_OK;
    snprintf(path, sizeof path, "%s/stop.ckpt", lc_trainer_get_options(self->trainer)->default_root_dir);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}
static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    return at(self, BATCH);
}
static lc_status on_validation_end(lc_module *self)
{
    return at(self, VALIDATION);
}

static const lc_module_ops everything_ops = {
    LC_MODULE_OPS_INIT("everything"),
    .training_step = training_step,
    .validation_step = validation_step,
    .predict_step = net_predict_step,
    .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader,
    .val_dataloader = val_dataloader,
    .predict_dataloader = predict_dataloader,
    .on_train_batch_end = on_train_batch_end,
    .on_validation_end = on_validation_end,
};

/* ---- callbacks ---- */

static int nowhere; /* a file descriptor of /dev/null */

static lc_status best_two(const char *dir, lc_callback *out)
{
    return lc_model_checkpoint(out, .dirpath = dir, .filename = ("best-{epoch}-{step}-{val_loss:.4f}"),
                               .monitor = "val_loss", .save_top_k = 2);
}
static lc_status every_two_steps(const char *dir, lc_callback *out)
{
    return lc_model_checkpoint(out, .dirpath = dir, .filename = ("steps-{epoch}-{step}"), .save_top_k = -1,
                               .every_n_train_steps = 2, .save_last = LC_ON);
}
static lc_status every_epoch(const char *dir, lc_callback *out)
{
    return lc_model_checkpoint(out, .dirpath = dir, .filename = ("epochs-{epoch}"), .save_top_k = -1,
                               .save_on_train_epoch_end = LC_ON);
}
static lc_status weights_of_epochs(const char *dir, lc_callback *out)
{
    return lc_model_checkpoint(out, .dirpath = dir, .filename = ("weights-{epoch}"), .monitor = "train_loss_epoch",
                               .mode = "max", .save_on_train_epoch_end = LC_ON, .save_weights_only = true,
                               .wait = true);
}
static lc_status on_exception(const char *dir, lc_callback *out)
{
    return lc_on_exception_checkpoint(out, .dirpath = dir);
}
/* It would stop early, but must wait for min_epochs. */
static lc_status early_stopping(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_early_stopping(out, .monitor = "val_loss", .mode = "max", .min_delta = 1, .patience = 2);
}
static lc_status timer(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_timer_new(1e6, false, out);
}
static lc_status learning_rates(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_learning_rate_monitor(out, .log_momentum = true, .log_weight_decay = true);
}
static lc_status device_stats(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_device_stats_monitor_new(NULL, out);
}
static lc_status throughput(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_throughput_monitor(out, .available_flops = 1e9, .window_size = 4);
}
static lc_status summary(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_model_summary(out, .max_depth = -1, .fd = nowhere);
}
static lc_status progress(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_progress_bar(out, .fd = nowhere, .refresh_rate = 1000);
}
static lc_status norms(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_gradient_norm_monitor_new(NULL, out);
}
static lc_status histograms(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_weight_histogram(out, .gradients = true, .every_n_train_steps = 2);
}
static lc_status notifier(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_notifier(out, .command = "cat >/dev/null", .events = LC_NOTIFY_RUN_END);
}
static lc_status lambda(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_lambda_callback_new(NULL, out);
}
static lc_status predictions(const char *dir, lc_callback *out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/predictions.npy", dir);
    return lc_prediction_writer(out, .path = path);
}
static lc_status spikes(const char *dir, lc_callback *out)
{
    return lc_spike_detection(out, .skip = true, .window = 3, .rtol = 0.2, .exclude_batches_path = dir);
}
static lc_status averaging(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_weight_averaging_new(NULL, out);
}
static lc_status ema(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_ema_weight_averaging(out, .decay = 0.9, .update_every_n_steps = 2);
}
static lc_status swa(const char *dir, lc_callback *out)
{
    static const double lr = 0.05;
    (void)dir;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(1),
                                          .annealing_epochs = 2);
}
static lc_status backbone(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_backbone_finetuning(out, .unfreeze_backbone_at_epoch = 1, .backbone_initial_lr = 1e-3);
}
static lc_status pruning(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_model_pruning(out, .pruning_fn = "l1_unstructured", .amount = 0.2);
}
static lc_status random_pruning(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_model_pruning(out, .pruning_fn = "random_unstructured", .amount_count = 2, .resample_parameters = true,
                            .prune_on_train_epoch_end = LC_OFF);
}
static lc_status windows(const char *dir, lc_callback *out)
{
    static const lc_accumulation list[] = {{1, 2}, {2, 3}};
    (void)dir;
    return lc_gradient_accumulation_scheduler(out, .scheduling = list, .n_scheduling = 2);
}
static lc_status rate_finder(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_learning_rate_finder(out, .min_lr = 1e-4, .max_lr = 0.5, .num_training = 25);
}
static lc_status size_finder(const char *dir, lc_callback *out)
{
    (void)dir;
    return lc_batch_size_finder(out, .init_val = 2, .max_val = 3, .steps_per_trial = 1);
}

static make_callback *const common[] = {
    best_two,       every_two_steps, every_epoch, weights_of_epochs, on_exception, early_stopping, timer,
    learning_rates, device_stats,    throughput,  summary,           progress,     norms,          histograms,
    notifier,       lambda,          predictions};

static make_callback *const plain[] = {ema, random_pruning, NULL};
static make_callback *const found[] = {rate_finder, size_finder, averaging, spikes, NULL};
static make_callback *const joined[] = {averaging, backbone, spikes, pruning, NULL};
static make_callback *const widened[] = {swa, windows, ema, NULL};
static make_callback *const all[] = {swa, backbone, random_pruning, ema, spikes, NULL};

/* ---- optimizers ---- */

#define OPTIMIZER(name, ...)                                                                                           \
    static lc_optimizer *name(void *m, lc_tensor **list, int n)                                                        \
    {                                                                                                                  \
        return lc_##name(m, .parameters = list, .n_parameters = n, __VA_ARGS__);                                       \
    }
OPTIMIZER(sgd, .lr = 0.01, .momentum = 0.9, .nesterov = true)
OPTIMIZER(adam, .lr = 0.01)
OPTIMIZER(adamw, .lr = 0.01, .amsgrad = true)
OPTIMIZER(rmsprop, .lr = 0.01, .momentum = 0.5, .centered = true)
OPTIMIZER(adagrad, .lr = 0.05, .lr_decay = 0.01)
OPTIMIZER(adadelta, .lr = 1)
OPTIMIZER(adamax, .lr = 0.01)
OPTIMIZER(nadam, .lr = 0.01)
OPTIMIZER(radam, .lr = 0.01)
OPTIMIZER(rprop, .lr = 0.01)
OPTIMIZER(muon, .lr = 0.01)
OPTIMIZER(lbfgs, .lr = 0.1, .max_iter = 3, .history_size = 4)

static const struct {
    const char *name;
    make_optimizer *make;
} optimizers[] = {{"SGD", sgd},         {"Adam", adam},         {"AdamW", adamw},   {"RMSprop", rmsprop},
                  {"Adagrad", adagrad}, {"Adadelta", adadelta}, {"Adamax", adamax}, {"NAdam", nadam},
                  {"RAdam", radam},     {"Rprop", rprop},       {"Muon", muon},     {"LBFGS", lbfgs}};

/* ---- a run ---- */

static const lc_option tuned_fields[] = {
    {"lr", LC_OPTION_FLOAT, 0, 0, 0, "learning rate", {0}},
    {"batch_size", LC_OPTION_INT, sizeof(double), 1, 1000, "samples in a batch", {0}},
};

/* Trains in `dir` from `ckpt` (NULL: from the start); the final checkpoint is DIR/end.ckpt. */
static void train(const setup *c, const char *dir, const char *ckpt, place until)
{
    everything m = {0};
    lc_callback cb[AT_ONCE];
    char path[4200];
    net_init(&m.n);
    m.n.base.ops = &everything_ops;
    m.setup = c;
    m.place = until;
    m.tuned.lr = 0.01;
    m.tuned.batch_size = c->finders ? 2 : 3;
    lc_module_save_hyperparameters(&m.n.base, tuned_fields, 2, &m.tuned);
    lc_trainer_options o = world_options(dir);
    o.enable_progress_bar = o.enable_model_summary = LC_ON;
    o.callbacks = cb;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) CHECK_OK(common[i](dir, &cb[o.n_callbacks++]));
    for (int i = 0; c->callbacks[i]; i++) CHECK_OK(c->callbacks[i](dir, &cb[o.n_callbacks++]));
    o.logger = "csv,sqlite,tensorboard,stream";
    o.profiler = "trace";
    o.min_epochs = o.max_epochs = EPOCHS;
    o.accumulate_grad_batches = c->accumulate;
    o.val_check_interval = LC_FRACTION(0.5);
    o.num_sanity_val_steps = 1;
    o.log_every_n_steps = 2;
    o.gradient_clip_val = 0.5;
    o.threads = 1;
    CHECK_OK(lc_trainer_new(&o, &m.trainer));
    lc_status s = lc_trainer_fit(m.trainer, &m.n.base, .ckpt_path = ckpt);
    if (until.hook != NEVER)
        CHECK_STATUS(s, LC_ERR_USER);
    else {
        CHECK_OK(s);
        snprintf(path, sizeof path, "%s/end.ckpt", dir);
        CHECK_OK(lc_trainer_save_checkpoint(m.trainer, path, false));
        CHECK_OK(lc_trainer_predict(m.trainer, &m.n.base));
    }
    lc_trainer_free(m.trainer);
    net_release(&m.n);
}

/* ---- comparing ---- */

/* Whether a value is the reading of a clock. */
static bool is_time(const char *name)
{
    return strstr(name, "DeviceStatsMonitor") || strstr(name, "/time") || strstr(name, "/device/") ||
           !strcmp(name, "time_elapsed") || !strcmp(name, "flops");
}

/* The contents of a file; NULL if there is none. */
static char *contents(const char *dir, const char *file, size_t *n)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "rb");
    *n = 0;
    if (!f) return NULL;
    char *data = malloc((1 << 20) + 1);
    *n = fread(data, 1, 1 << 20, f);
    data[*n] = 0;
    fclose(f);
    return data;
}

typedef struct comparison {
    const char *who, *whole, *parts; /* directories */
    bool elsewhere;                  /* checkpoints went to another directory before */
} comparison;

static void check_file(const comparison *c, const char *file)
{
    size_t a, b;
    char *whole = contents(c->whole, file, &a), *parts = contents(c->parts, file, &b);
    if (a != b || (a && memcmp(whole, parts, a) != 0)) TEST_FAIL("%s: %s differs", c->who, file);
    free(whole);
    free(parts);
}

static void check_tree(const comparison *c, const char *where, const lc_state *a, const lc_state *b)
{
    char path[512];
    if (lc_state_kind_of(a) != lc_state_kind_of(b)) TEST_FAIL("%s: %s has another type", c->who, where);
    if (lc_state_kind_of(a) == LC_STATE_OBJECT || lc_state_kind_of(a) == LC_STATE_ARRAY) {
        if (lc_state_length(a) != lc_state_length(b)) TEST_FAIL("%s: %s has another length", c->who, where);
        for (int64_t i = 0; i < lc_state_length(a); i++) {
            const char *key = lc_state_key_at(a, i);
            const lc_state *other = key ? lc_state_find(b, key) : lc_state_at(b, i);
            if (key && is_time(key)) continue;
            if (key && c->elsewhere && !strncmp(key, "ModelCheckpoint", 15)) continue;
            snprintf(path, sizeof path, "%s.%s", where, key ? key : "[]");
            if (!other) TEST_FAIL("%s: %s is missing", c->who, path);
            check_tree(c, path, lc_state_at(a, i), other);
        }
        return;
    }
    char *text[2];
    size_t n[2];
    CHECK_OK(lc_state_print(a, &text[0], &n[0]));
    CHECK_OK(lc_state_print(b, &text[1], &n[1]));
    /* Paths are the same below the directory of each run. */
    const char *x = strstr(text[0], c->whole), *y = strstr(text[1], c->parts);
    bool same = x && y ? !strcmp(x + strlen(c->whole), y + strlen(c->parts)) : !strcmp(text[0], text[1]);
    if (!same) TEST_FAIL("%s: %s is %s, wanted %s", c->who, where, text[1], text[0]);
    free(text[0]);
    free(text[1]);
}

static void check_state(const comparison *c)
{
    lc_state *a, *b;
    size_t n, k;
    char *whole = contents(c->whole, "end.ckpt/state.json", &n), *parts = contents(c->parts, "end.ckpt/state.json", &k);
    CHECK(whole && parts);
    CHECK_OK(lc_state_parse(whole, n, &a));
    CHECK_OK(lc_state_parse(parts, k, &b));
    check_tree(c, "state", a, b);
    lc_state_free(a);
    lc_state_free(b);
    free(whole);
    free(parts);
}

/* The rows of DIR/lightning_logs/version_N/metrics.csv, each as "name=value ..." of what it holds, added to `rows`. */
static int read_rows(const char *dir, int version, char **rows, int n)
{
    char file[64], *names[512];
    size_t size;
    int n_names = 0;
    snprintf(file, sizeof file, "lightning_logs/version_%d/metrics.csv", version);
    char *text = contents(dir, file, &size), *line, *rest = text;
    if (!text) return n;
    line = strsep(&rest, "\n");
    for (char *name; (name = strsep(&line, ","));) names[n_names++] = name;
    while ((line = strsep(&rest, "\n")) && *line) {
        char *row = rows[n++] = calloc(1, strlen(line) + 64 * (size_t)n_names);
        CHECK(n < ROWS_MAX);
        for (int i = 0; i < n_names; i++) {
            const char *value = strsep(&line, ",");
            CHECK(value);
            if (*value && !is_time(names[i])) sprintf(row + strlen(row), "%s=%s ", names[i], value);
        }
    }
    free(text);
    return n;
}

/* The rows of the killed part, then those of the resumed part; or only the latter, which must equal the last rows of
 * the whole run. */
static void check_rows(const comparison *c)
{
    static char *whole[ROWS_MAX], *parts[ROWS_MAX];
    int n = read_rows(c->whole, 0, whole, 0), k = read_rows(c->parts, 1, parts, read_rows(c->parts, 0, parts, 0));
    CHECK(n > EPOCHS * BATCHES);
    if (c->elsewhere ? k > n : k != n) TEST_FAIL("%s: %d rows, wanted %d", c->who, k, n);
    for (int i = 0; i < k; i++)
        if (strcmp(whole[n - k + i], parts[i]))
            TEST_FAIL("%s: row %d is\n%s\nwanted\n%s", c->who, i, parts[i], whole[n - k + i]);
    for (int i = 0; i < n; i++) free(whole[i]);
    for (int i = 0; i < k; i++) free(parts[i]);
}

static void check_ends(const comparison *c)
{
    check_file(c, "end.ckpt/model.safetensors");
    check_file(c, "end.ckpt/optimizer.safetensors");
    check_file(c, "end.ckpt/tensors.safetensors");
    check_rows(c);
    check_state(c);
    check_file(c, "predictions.npy");
}

typedef struct folders {
    char root[256], whole[300], parts[300];
} folders;

/* The whole run, with which the others are compared. */
static void begin(const setup *c, folders *f)
{
    nowhere = open("/dev/null", O_WRONLY);
    CHECK(world_dir(f->root, sizeof f->root));
    snprintf(f->whole, sizeof f->whole, "%s/whole", f->root);
    snprintf(f->parts, sizeof f->parts, "%s/parts", f->root);
    CHECK_EQ(mkdir(f->whole, 0777), 0);
    train(c, f->whole, NULL, (place){0});
    if (!is_simulated()) return;
    simulate(false);
    CHECK_EQ(mkdir(f->parts, 0777), 0);
    train(c, f->parts, NULL, (place){0});
    check_ends(&(comparison){"on the CPU", f->whole, f->parts});
    world_remove(f->parts);
    simulate(true);
}

static void end(const folders *f)
{
    world_remove(f->root);
    close(nowhere);
}

static void check_places(const setup *c, const place *places, int n)
{
    static const char *const hooks[] = {"", "on_train_batch_end", "on_validation_end"};
    folders f;
    char ckpt[320], who[200];
    begin(c, &f);
    for (int i = 0; i < n; i += takes_all() ? 1 : 2) {
        snprintf(who, sizeof who, "%s, died in %s number %lld", c->name, hooks[places[i].hook], (long long)places[i].n);
        CHECK_EQ(mkdir(f.parts, 0777), 0);
        train(c, f.parts, NULL, places[i]);
        snprintf(ckpt, sizeof ckpt, "%s/stop.ckpt", f.parts);
        train(c, f.parts, c->by_exception ? NULL : ckpt, (place){0});
        check_ends(&(comparison){who, f.whole, f.parts});
        world_remove(f.parts);
    }
    end(&f);
}

/* Inside a window, at its end, before and after a validation, at the ends of epochs and of the run. */
static const place every_place[] = {{BATCH, 1},      {BATCH, 3},      {VALIDATION, 1}, {BATCH, 4},
                                    {BATCH, 6},      {VALIDATION, 2}, {BATCH, 7},      {BATCH, 8},
                                    {BATCH, 10},     {VALIDATION, 3}, {BATCH, 13},     {BATCH, 14},
                                    {VALIDATION, 5}, {BATCH, 20},     {BATCH, 21},     {VALIDATION, 6}};
enum { PLACES = sizeof every_place / sizeof *every_place };

static void check_some(const setup *c, size_t turn)
{
    place some[3];
    for (size_t i = 0; i < 3; i++) some[i] = every_place[(turn + i * 5) % PLACES];
    check_places(c, some, 3);
}

TEST(averaging_and_finetuning)
{
    check_places(&(setup){.name = "joined",
                          .callbacks = joined,
                          .optimizer = adam,
                          .scheduler = exponential_lr,
                          .interval = LC_INTERVAL_STEP,
                          .accumulate = 3},
                 every_place, PLACES);
}
TEST(stochastic_averaging_and_growing_windows)
{
    check_places(&(setup){.name = "widened",
                          .callbacks = widened,
                          .optimizer = sgd,
                          .scheduler = cosine_annealing_lr,
                          .accumulate = 1},
                 every_place, PLACES);
}
TEST(all_callbacks_that_can_be_combined)
{
    check_places(&(setup){.name = "all", .callbacks = all, .optimizer = adamw, .scheduler = step_lr, .accumulate = 2},
                 every_place, PLACES);
}
TEST(learning_rates_and_batch_sizes_that_were_found)
{
    check_places(&(setup){.name = "found",
                          .callbacks = found,
                          .optimizer = adam,
                          .scheduler = linear_lr,
                          .interval = LC_INTERVAL_STEP,
                          .accumulate = 2,
                          .finders = true},
                 every_place, PLACES);
}
TEST(from_the_checkpoint_of_an_exception)
{
    check_places(&(setup){.name = "exception",
                          .callbacks = joined,
                          .optimizer = adam,
                          .scheduler = reduce_lr_on_plateau,
                          .monitor = "val_loss",
                          .accumulate = 3,
                          .by_exception = true},
                 every_place, PLACES);
}

/* From each file that a run left and continued from; and from its end. */
TEST(from_each_checkpoint_of_model_checkpoint)
{
    setup c = {.name = "checkpoints",
               .callbacks = plain,
               .optimizer = adam,
               .scheduler = reduce_lr_on_plateau,
               .monitor = "val_loss",
               .accumulate = 2};
    folders f;
    char names[4096], ckpt[600], *name, *rest = names;
    int n = 0;
    begin(&c, &f);
    world_list(f.whole, ".ckpt", names, sizeof names);
    while ((name = strsep(&rest, " ")) && *name) {
        if (strstr(name, "weights-")) continue;
        snprintf(ckpt, sizeof ckpt, "%s/%s", f.whole, name);
        CHECK_EQ(mkdir(f.parts, 0777), 0);
        train(&c, f.parts, ckpt, (place){0});
        check_ends(&(comparison){name, f.whole, f.parts, .elsewhere = true});
        world_remove(f.parts);
        n++;
    }
    CHECK(n > EPOCHS);
    end(&f);
}

TEST(every_schedule)
{
    size_t n = sizeof schedulers / sizeof *schedulers;
    for (const lc_scheduler_ops *const *ops = lc__scheduler_table; *ops; ops++) {
        size_t i = 0;
        while (i < n && strcmp(schedulers[i].name, (*ops)->name) != 0) i++;
        if (i == n) TEST_FAIL("there is no line for %s", (*ops)->name);
        check_some(&(setup){.name = schedulers[i].name,
                            .callbacks = plain,
                            .optimizer = i % 2 ? sgd : adam,
                            .scheduler = schedulers[i].make,
                            .monitor = (*ops)->needs_metric ? "val_loss" : NULL,
                            .interval = i % 2 || (*ops)->needs_metric ? LC_INTERVAL_EPOCH : LC_INTERVAL_STEP,
                            .accumulate = 3},
                   i);
    }
}

TEST(every_optimizer)
{
    size_t n = sizeof optimizers / sizeof *optimizers;
    for (const lc__optimizer_class *const *class = lc__optimizer_classes; *class; class ++) {
        size_t i = 0;
        while (i < n && strcmp(optimizers[i].name, (*class)->name) != 0) i++;
        if (i == n) TEST_FAIL("there is no line for %s", (*class)->name);
        bool closures = optimizers[i].make == lbfgs;
        check_some(&(setup){.name = optimizers[i].name,
                            .callbacks = plain,
                            .optimizer = optimizers[i].make,
                            .scheduler = exponential_lr,
                            .matrices_only = optimizers[i].make == muon,
                            .accumulate = closures ? 1 : 3},
                   i);
    }
}

TEST_MAIN
