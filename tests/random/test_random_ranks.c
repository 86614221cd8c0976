/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2 over random configurations: a training with random options, optimizers, callbacks and data ends with the
 * numbers of one process under every strategy, on any number of ranks or devices, or is refused with a message.
 *
 * To add an option: a line in `space`. To add a callback: a function that makes it, and its name in `callbacks`.
 * LIGHTC_TEST_SHOW=1 shows each configuration. LIGHTC_TEST_FROM=K begins with the K-th and runs each in all places
 * (otherwise in a third of them), LIGHTC_TEST_COUNT=N limits their number. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"

enum { SAMPLES = 128, VAL = 40, WIDTH = 8, GLOBAL_BATCH = 12, NUMBERS = 1024, NAMES = 64 };

#include "log_scores.h"
#include "small_data.h"

/* ---- random numbers ---- */

typedef struct draw {
    uint64_t key, n;
} draw;

static int64_t below(draw *d, int64_t n)
{
    return (int64_t)lc_random_below(d->key, d->n++, (uint64_t)n);
}

static const struct {
    const char *option;
    const char *values[8];
} space[] = {
    {"max_epochs", {"1", "2", "3", "4"}},
    {"min_epochs", {"2", "3"}},
    {"max_steps", {"1", "3", "7"}},
    {"limit_train_batches", {"1", "3", "0.5", "0.7"}},
    {"limit_val_batches", {"0", "1", "0.5"}},
    {"overfit_batches", {"2"}},
    {"val_check_interval", {"1", "2", "0.5", "2st"}},
    {"check_val_every_n_epoch", {"2"}},
    {"num_sanity_val_steps", {"0", "2", "-1"}},
    {"accumulate_grad_batches", {"2", "3", "4"}},
    {"gradient_clip_val", {"0.5", "0.05"}},
    {"gradient_clip_algorithm", {"norm", "value"}},
    {"log_every_n_steps", {"1", "2"}},
    {"reload_dataloaders_every_n_epochs", {"1", "2"}},
    {"inference_mode", {"false"}},
    {"fast_dev_run", {"2"}},
    {"bucket_cap_mb", {"0.0002", "0.001"}},
    {"logger", {"none", "csv,tensorboard"}},
};
enum { OPTIONS = sizeof space / sizeof *space };

typedef enum mode { ONE, GROUPS, TWO_STEPS, MANUAL, TOGGLED, MODES } mode;
static const char *const modes[] = {"one optimizer", "two groups", "two optimizers with steps", "manual",
                                    "manual and toggled"};

#define OPTIMIZER(id, ...)                                                                                             \
    static lc_optimizer *make_##id(lc_module *m)                                                                       \
    {                                                                                                                  \
        return lc_##id(m, .no_parameters = true, .lr = 0.02, __VA_ARGS__);                                             \
    }
OPTIMIZER(sgd, .momentum = 0.9)
OPTIMIZER(adam, .eps = 1e-2)
OPTIMIZER(adamw, .eps = 1e-2, .amsgrad = true)
OPTIMIZER(rmsprop, .eps = 1e-2, .centered = true)
OPTIMIZER(adagrad, .eps = 1e-2)
OPTIMIZER(nadam, .eps = 1e-2)
OPTIMIZER(radam, .eps = 1e-2)

static const struct {
    const char *name;
    lc_optimizer *(*make)(lc_module *m);
} optimizers[] = {{"SGD", make_sgd},         {"Adam", make_adam},   {"AdamW", make_adamw}, {"RMSprop", make_rmsprop},
                  {"Adagrad", make_adagrad}, {"NAdam", make_nadam}, {"RAdam", make_radam}};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };
static const char *const schedules[] = {"", "step", "plateau", "one cycle"};

typedef lc_status make_callback(draw *d, lc_callback *out);

static lc_status stopping(draw *d, lc_callback *out)
{
    return lc_early_stopping(out, .monitor = below(d, 2) ? "val_loss" : "train_loss", .patience = 1, .min_delta = 0.05,
                             .strict = LC_OFF);
}
static lc_status checkpoints(draw *d, lc_callback *out)
{
    return lc_model_checkpoint(out, .every_n_train_steps = 2 * below(d, 2), .save_top_k = -1, .save_last = LC_ON);
}
static lc_status averaging(draw *d, lc_callback *out)
{
    (void)d;
    return lc_weight_averaging_new(NULL, out);
}
static lc_status ema(draw *d, lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.5, .update_every_n_steps = below(d, 3));
}
static lc_status swa(draw *d, lc_callback *out)
{
    static const double lr = 0.01;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1,
                                          .swa_epoch_start = below(d, 2) ? LC_EPOCHS(1) : LC_FRACTION(0.5));
}
static lc_status backbone(draw *d, lc_callback *out)
{
    return lc_backbone_finetuning(out, .unfreeze_backbone_at_epoch = 1, .train_bn = below(d, 2) ? LC_ON : LC_OFF);
}
static lc_status pruning(draw *d, lc_callback *out)
{
    static const char *const what[] = {"l1_unstructured", "random_unstructured", "ln_structured"};
    static const char *const paths[] = {"backbone.in.weight", "mid.weight"};
    return lc_model_pruning(out, .pruning_fn = what[below(d, 3)], .pruning_norm = 2, .amount = 0.25,
                            .parameters_to_prune = paths, .n_parameters_to_prune = 2,
                            .use_lottery_ticket_hypothesis = below(d, 2) ? LC_ON : LC_OFF);
}
static lc_status windows(draw *d, lc_callback *out)
{
    const lc_accumulation list[] = {{below(d, 3), 1 + below(d, 3)}};
    return lc_gradient_accumulation_scheduler(out, .scheduling = list, .n_scheduling = 1);
}
static lc_status norms(draw *d, lc_callback *out)
{
    return lc_gradient_norm_monitor(out, .norm_type = below(d, 2) ? INFINITY : 0, .every_step = true);
}
static lc_status spikes(draw *d, lc_callback *out)
{
    (void)d;
    return lc_spike_detection(out, .skip = true, .window = 3, .rtol = 0.1);
}
static lc_status rates(draw *d, lc_callback *out)
{
    (void)d;
    return lc_learning_rate_monitor_new(NULL, out);
}
static lc_status histograms(draw *d, lc_callback *out)
{
    return lc_weight_histogram(out, .every_n_train_steps = below(d, 3), .gradients = below(d, 2));
}
static lc_status rate_finder(draw *d, lc_callback *out)
{
    (void)d;
    return lc_learning_rate_finder(out, .num_training = 5, .min_lr = 1e-3, .max_lr = 0.1);
}

static const struct {
    const char *name;
    make_callback *make;
} callbacks[] = {{"stopping", stopping},
                 {"checkpoints", checkpoints},
                 {"averaging", averaging},
                 {"ema", ema},
                 {"swa", swa},
                 {"backbone", backbone},
                 {"pruning", pruning},
                 {"windows", windows},
                 {"norms", norms},
                 {"spikes", spikes},
                 {"rates", rates},
                 {"histograms", histograms},
                 {"rate_finder", rate_finder}};
enum { CALLBACKS = sizeof callbacks / sizeof *callbacks, MOST_CALLBACKS = 3 };

typedef struct config {
    char root[320], text[2048];
    const char *values[OPTIONS]; /* NULL: the default */
    int callbacks[MOST_CALLBACKS], n_callbacks;
    uint64_t callback_key;
    int64_t samples, val;
    bool shuffle, drop_last, weighted, combined, streamed, two_vals, branch, own_loaders;
    mode mode;
    int optimizer;
    const char *schedule;
} config;

static void say(config *c, const char *what, const char *value)
{
    size_t n = strlen(c->text);
    snprintf(c->text + n, sizeof c->text - n, "%s%s%s%s", n ? ", " : "", what, *value ? " " : "", value);
}

static config draw_config(int k)
{
    draw d = {.key = 1000 + (uint64_t)k};
    char number[32];
    config c = {.samples = 13 + below(&d, 40),
                .val = below(&d, 3) ? 1 + below(&d, VAL - 1) : 24,
                .shuffle = below(&d, 2),
                .drop_last = below(&d, 4) == 0,
                .weighted = below(&d, 5) == 0,
                .combined = below(&d, 6) == 0,
                .streamed = below(&d, 6) == 0,
                .two_vals = below(&d, 4) == 0,
                .branch = below(&d, 3) == 0,
                .own_loaders = below(&d, 3) == 0,
                .mode = below(&d, 2) ? ONE : (mode)below(&d, MODES),
                .optimizer = (int)below(&d, OPTIMIZERS),
                .schedule = schedules[below(&d, 4)],
                .n_callbacks = (int)below(&d, MOST_CALLBACKS + 1),
                .callback_key = (uint64_t)below(&d, 1 << 20)};
    if (c.combined)
        c.weighted = false; /* combined loaders end with batches that all can share: docs/trainer.md, Data */
    snprintf(c.root, sizeof c.root, "%s", fresh_dir("random_ranks"));
    for (size_t i = 0; i < OPTIONS; i++) {
        int64_t n = 0;
        while (space[i].values[n]) n++;
        int64_t which = below(&d, 4 * n);
        c.values[i] = which < n ? space[i].values[which] : NULL;
    }
    for (int i = 0; i < c.n_callbacks; i++) {
        c.callbacks[i] = (int)below(&d, CALLBACKS);
        for (int j = 0; j < i; j++)
            if (c.callbacks[j] == c.callbacks[i]) c.n_callbacks = i;
    }
    say(&c, modes[c.mode], "");
    say(&c, optimizers[c.optimizer].name, c.schedule);
    snprintf(number, sizeof number, "%d", (int)c.samples);
    say(&c, "samples", number);
    snprintf(number, sizeof number, "%d", (int)c.val);
    say(&c, "val", number);
    if (c.shuffle) say(&c, "shuffle", "");
    if (c.drop_last) say(&c, "drop_last", "");
    if (c.weighted) say(&c, "weighted", "");
    if (c.combined) say(&c, "combined", "");
    if (c.streamed) say(&c, "streamed", "");
    if (c.two_vals) say(&c, "two_vals", "");
    if (c.branch) say(&c, "branch", "");
    if (c.own_loaders) say(&c, "loaders of the module", "");
    for (size_t i = 0; i < OPTIONS; i++)
        if (c.values[i]) say(&c, space[i].option, c.values[i]);
    for (int i = 0; i < c.n_callbacks; i++) say(&c, "+", callbacks[c.callbacks[i]].name);
    return c;
}

/* ---- the network ---- */

typedef struct net {
    lc_module base, backbone;
    lc_linear in, mid, frozen, unused, side, out;
    lc_metric *accuracy[2];
    const config *c;
    int64_t batch, left; /* number of batches before it saves and fails; negative: never */
} net;

/* mid is used twice; side, if there are branches, in every other batch. */
static lc_tensor *forward(net *m, lc_tensor *x, bool side)
{
    lc_tensor *h = lc_relu(lc_linear_forward(&m->in, x)); /* [B,WIDTH] */
    h = lc_relu(lc_add(lc_linear_forward(&m->mid, h), lc_linear_forward(&m->frozen, h)));
    h = lc_linear_forward(&m->mid, h);
    if (side) h = lc_add(h, lc_linear_forward(&m->side, x));
    return lc_linear_forward(&m->out, lc_tanh(h));
}

static lc_tensor *loss_of(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    const lc_batch *first = b->n_parts ? b->parts[0] : b;
    lc_tensor *loss = lc_cross_entropy(forward(m, first->x, !m->c->branch || i % 2), first->y);
    if (b->n_parts > 1)
        loss = lc_add(loss, lc_mul_scalar(lc_cross_entropy(forward(m, b->parts[1]->x, true), b->parts[1]->y), 0.5));
    return loss;
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = loss_of(self, b, i);
    lc_log(self, "train_loss", loss, .on_step = LC_OFF, .on_epoch = LC_ON);
    lc_log(self, "step_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log_value(self, "samples", (double)b->size, .on_step = LC_OFF, .on_epoch = LC_ON, .reduce_fx = LC_LOG_SUM);
    return loss;
}

static lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    const lc_batch *first = b->n_parts ? b->parts[0] : b;
    (void)i;
    return lc_mean(lc_square(forward(m, first->x, true)));
}

static lc_status update(lc_module *self, int which, lc_tensor *loss)
{
    bool toggles = ((net *)self)->c->mode == TOGGLED;
    lc_optimizer *opt = lc_manual_optimizer(self, which);
    LC_TRY(lc_manual_zero_grad(self, opt));
    LC_TRY(lc_manual_backward(self, loss));
    lc_clip_grad_norm(opt, 0.5);
    LC_TRY(lc_manual_step(self, opt));
    return toggles ? lc_untoggle_optimizer(self) : LC_OK;
}

static lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    bool toggles = ((net *)self)->c->mode == TOGGLED;
    if (toggles && lc_toggle_optimizer(self, lc_manual_optimizer(self, 0)) < 0) return NULL;
    if (update(self, 0, training_step(self, b, i)) < 0) return NULL;
    if (toggles && lc_toggle_optimizer(self, lc_manual_optimizer(self, 1)) < 0) return NULL;
    if (update(self, 1, second_step(self, b, i)) < 0) return NULL;
    return NULL;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    char path[400];
    (void)o, (void)b, (void)i;
    if (m->left < 0 || m->left-- > 0) return LC_OK;
    snprintf(path, sizeof path, "%s/inside.ckpt", m->c->root);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i;
    return log_scores(self, "val", forward(m, b->x, true), b->y, m->accuracy[loader]);
}

static lc_tensor *predict_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return forward((net *)self, b->x, true);
}

static lc_status make_optimizer(net *m, lc_tensor *const *list, int n, lc_optimizer **out)
{
    *out = optimizers[m->c->optimizer].make(&m->base);
    if (!*out) return LC_ERR_INTERNAL;
    int group = lc_optimizer_add_group(*out, "first", list, n);
    return group < 0 ? (lc_status)group : LC_OK;
}

static lc_status add_schedule(const net *m, lc_optimizer *opt, lc_optimizers *out)
{
    if (!strcmp(m->c->schedule, "step"))
        return lc_optimizers_add_scheduler(
            out, (lc_scheduler_config){.scheduler = lc_step_lr(opt, .step_size = 2, .gamma = 0.5),
                                       .interval = LC_INTERVAL_STEP});
    if (!strcmp(m->c->schedule, "plateau"))
        return lc_optimizers_add_scheduler(
            out, (lc_scheduler_config){.scheduler = lc_reduce_lr_on_plateau(opt, .patience = 0, .threshold = 0.1),
                                       .monitor = "val_loss",
                                       .not_strict = true});
    if (!strcmp(m->c->schedule, "one cycle"))
        return lc_optimizers_add_scheduler(
            out, (lc_scheduler_config){.scheduler = lc_one_cycle_lr(opt, .max_lr = 0.05, .total_steps = 1000),
                                       .interval = LC_INTERVAL_STEP});
    return LC_OK;
}

/* With two optimizers both have the tail. */
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    net *m = (net *)self;
    lc_tensor *all[] = {m->in.weight,     m->in.bias,     m->mid.weight, m->mid.bias, m->side.weight,  m->side.bias,
                        m->unused.weight, m->unused.bias, m->out.weight, m->out.bias, m->frozen.weight};
    lc_tensor **tail = all + 2;
    lc_optimizer *first, *second;
    enum { N = 11 };
    mode how = m->c->mode;
    LC_TRY(make_optimizer(m, all, how == ONE ? N : 2, &first));
    if (how == GROUPS) {
        int g = lc_optimizer_add_group(first, "tail", tail, N - 2);
        if (g < 0) return LC_ERR_INTERNAL;
        LC_TRY(lc_optimizer_set(first, g, "lr", 0.006));
    }
    if (how == TWO_STEPS)
        LC_TRY(lc_optimizers_add_step(out, first, training_step));
    else
        LC_TRY(lc_optimizers_add(out, first));
    LC_TRY(add_schedule(m, first, out));
    if (how < TWO_STEPS) return LC_OK;
    LC_TRY(make_optimizer(m, tail, N - 2, &second));
    return how == TWO_STEPS ? lc_optimizers_add_step(out, second, second_step) : lc_optimizers_add(out, second);
}

/* ---- data ---- */

/* Samples with replacement. */
typedef struct weighted {
    int64_t n;
} weighted;

static int64_t weighted_length(void *self, int64_t epoch)
{
    return ((weighted *)self)->n + epoch;
}
static lc_status weighted_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    for (int64_t i = 0; i < n; i++)
        indices[i] = (int64_t)lc_random_below(77 + (uint64_t)epoch, (uint64_t)i, (uint64_t)((weighted *)self)->n);
    return LC_OK;
}
static const lc_sampler_ops weighted_ops = {LC_SAMPLER_OPS_INIT, .name = "weighted", .length = weighted_length,
                                            .order = weighted_order, .free = free};

static lc_status one_loader(const net *m, int64_t first, int64_t n, bool train, lc_dataloader **out)
{
    const config *c = m->c;
    lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs[first]},
        {.field = {.name = "y", .dtype = LC_I64}, .data = labels + first}};
    lc_dataset *d;
    lc_sampler s = {&weighted_ops, NULL};
    lc_dataloader_args o = LC_ARGS(lc_dataloader, .batch_size = m->batch, .seed = 4);
    LC_TRY(lc_array_dataset_new(n, 2, arrays, &d));
    o.dataset = d;
    o.drop_last = train && c->drop_last;
    if (train && c->weighted) {
        s.self = malloc(sizeof(weighted));
        ((weighted *)s.self)->n = n;
        o.sampler = &s;
    } else {
        o.shuffle = train && c->shuffle;
    }
    lc_status status = lc_dataloader_new_with(out, &o);
    lc_dataset_unref(d);
    return status;
}

/* A loader of the program's own that does not know its number of batches. */
static lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    return lc_dataloader_begin(self, epoch, start);
}
static lc_status stream_next(void *self, lc_batch **out)
{
    return lc_dataloader_next(self, out);
}
static void stream_end(void *self)
{
    lc_dataloader_end(self);
}
static lc_status stream_shard(void *self, const lc_shard *shard)
{
    return lc_dataloader_shard(self, shard);
}
static void stream_free(void *self)
{
    lc_dataloader_free(self);
}
static const lc_dataloader_ops stream_ops = {LC_DATALOADER_OPS_INIT, .name = "stream",  .begin = stream_begin,
                                             .next = stream_next,    .end = stream_end, .shard = stream_shard,
                                             .free = stream_free};

static lc_status train_loader(const net *m, lc_dataloader **out)
{
    lc_dataloader *list[2];
    if (!m->c->combined) {
        LC_TRY(one_loader(m, 0, m->c->samples, true, out));
        return m->c->streamed ? lc_dataloader_from_ops(&stream_ops, *out, out) : LC_OK;
    }
    LC_TRY(one_loader(m, 0, 36, true, &list[0]));
    LC_TRY(one_loader(m, 36, 20, true, &list[1]));
    return lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, list, out);
}

static lc_status val_loader(const net *m, int i, lc_dataloader **out)
{
    return one_loader(m, SAMPLES - VAL, i ? 12 : m->c->val, false, out);
}

static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(train_loader((net *)self, &l));
    return lc_loaders_add(out, l);
}

static lc_status val_dataloader(lc_module *self, lc_loaders *out)
{
    const net *m = (net *)self;
    for (int i = 0; i <= m->c->two_vals; i++) {
        lc_dataloader *l;
        LC_TRY(val_loader(m, i, &l));
        LC_TRY(lc_loaders_add(out, l));
    }
    return LC_OK;
}

#define NET_OPS(step, ...)                                                                                             \
    {                                                                                                                  \
        LC_MODULE_OPS_INIT("net"), .training_step = step, .on_train_batch_end = on_train_batch_end,                    \
                                   .validation_step = validation_step, .predict_step = predict_step,                   \
                                   .configure_optimizers = configure_optimizers, .train_dataloader = train_dataloader, \
                                   .val_dataloader = val_dataloader, __VA_ARGS__                                       \
    }
static const lc_module_ops automatic_ops = NET_OPS(training_step, .manual_optimization = false);
static const lc_module_ops manual_ops = NET_OPS(manual_step, .manual_optimization = true);

static lc_status net_init(net *m, uint64_t seed)
{
    lc_module_init(&m->base, m->c->mode >= MANUAL ? &manual_ops : &automatic_ops, seed);
    lc_module_init_child(&m->backbone, m, "backbone", "Backbone");
    lc_linear_init(&m->in, &m->backbone, "in", FEATURES, WIDTH);
    lc_linear_init(&m->mid, m, "mid", WIDTH, WIDTH);
    lc_linear_init(&m->frozen, m, "frozen", WIDTH, WIDTH);
    lc_linear_init(&m->unused, m, "unused", 3, 2);
    lc_linear_init(&m->side, m, "side", FEATURES, WIDTH);
    lc_linear_init(&m->out, m, "out", WIDTH, CLASSES);
    lc_module_requires_grad(&m->frozen.base, false);
    for (int i = 0; i < 2; i++) LC_TRY(lc_metric_new("Accuracy", &m->accuracy[i], .num_classes = CLASSES));
    return lc_module_status(&m->base);
}

/* ---- a run ---- */

typedef struct outcome {
    lc_status status;
    char message[600];
    int64_t steps, epochs;
    int n_metrics, n;
    char names[NAMES][64];
    double metrics[NAMES], numbers[NUMBERS];
} outcome;

static void report_metrics(outcome *o, lc_trainer *t)
{
    for (int i = 0; i < lc_trainer_metric_count(t, LC_CALLBACK_METRICS) && o->n_metrics < NAMES; i++) {
        lc_metric_value v = lc_trainer_metric_at(t, LC_CALLBACK_METRICS, i);
        snprintf(o->names[o->n_metrics], sizeof *o->names, "%s", v.name);
        o->metrics[o->n_metrics++] = v.value;
    }
}

static lc_status report_values(outcome *o, lc_tensor *t)
{
    float v[NUMBERS];
    int64_t n = lc_tensor_numel(t);
    if (o->n + n > NUMBERS) return lc_fail(LC_ERR_INTERNAL, "more than %d numbers", NUMBERS);
    LC_TRY(lc_tensor_read(t, v, (size_t)n * sizeof *v));
    for (int64_t i = 0; i < n; i++) o->numbers[o->n++] = (double)v[i];
    return LC_OK;
}

static lc_status report_tensor(void *o, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    return report_values(o, t->tensor);
}

static lc_status fit(const config *c, net *m, lc_trainer *t, outcome *o)
{
    lc_run_args args = lc_run_defaults();
    lc_dataloader *val = NULL;
    lc_status status = LC_OK;
    LC_TRY(val_loader(m, 0, &val));
    if (!c->own_loaders) {
        LC_TRY_GOTO(status, done, train_loader(m, &args.train_dataloader));
        args.val_dataloader = val;
    }
    LC_TRY_GOTO(status, done, lc_trainer_fit_with(t, &m->base, &args));
    o->steps = lc_trainer_global_step(t);
    o->epochs = lc_trainer_current_epoch(t);
    report_metrics(o, t);
    LC_TRY_GOTO(status, done, lc_module_visit(&m->base, report_tensor, o));
    LC_TRY_GOTO(status, done, lc_trainer_predict(t, &m->base, .dataloaders = &val, .n_dataloaders = 1));
    for (int64_t i = 0; i < lc_trainer_prediction_count(t, 0); i++)
        LC_TRY_GOTO(status, done, report_values(o, lc_trainer_prediction(t, 0, i)));
done:
    lc_dataloader_free(args.train_dataloader);
    lc_dataloader_free(val);
    return status;
}

typedef struct place {
    const char *strategy; /* NULL: one process */
    int ranks, devices;
    int64_t shard_size;
} place;

/* after: saves inside.ckpt after this many batches and fails (negative: never); continues: resumes from there. */
static lc_status run(const config *c, const place *at, lc_comm *comm, int64_t after, bool continues, outcome *o)
{
    char path[400];
    int n_options, n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    const lc_option *table = lc_trainer_option_table(&n_options);
    char devices[16];
    draw d = {.key = c->callback_key};
    net m = {.c = c, .batch = GLOBAL_BATCH / n, .left = after};
    lc_trainer *t = NULL;
    lc_trainer_options opt = quiet_options(comm);
    lc_status status = LC_OK;
    opt.max_epochs = 3;
    opt.default_root_dir = c->root;
    opt.strategy = at->strategy;
    opt.shard_size = at->shard_size;
    opt.logger = "csv";
    if (at->devices > 1) {
        snprintf(devices, sizeof devices, "%d", at->devices);
        opt.devices = devices;
    }
    for (size_t i = 0; i < OPTIONS; i++)
        for (int k = 0; k < n_options; k++)
            if (c->values[i] && !strcmp(table[k].name, space[i].option))
                LC_TRY(lc_option_set_text(&table[k], &opt, c->values[i]));
    snprintf(path, sizeof path, "%s/inside.ckpt", c->root);
    if (continues) opt.ckpt_path = path;
    LC_TRY_GOTO(status, done, net_init(&m, (uint64_t)(1 + rank)));
    LC_TRY_GOTO(status, done, lc_trainer_new(&opt, &t));
    for (int i = 0; i < c->n_callbacks; i++) {
        lc_callback cb;
        LC_TRY_GOTO(status, done, callbacks[c->callbacks[i]].make(&d, &cb));
        LC_TRY_GOTO(status, done, lc_trainer_add_callback(t, cb));
    }
    LC_TRY_GOTO(status, done, fit(c, &m, t, o));
done:
    o->status = status;
    snprintf(o->message, sizeof o->message, "%s", status < 0 ? lc_error_message() : "");
    lc_trainer_free(t);
    lc_module_release(&m.base);
    for (int i = 0; i < 2; i++) lc_metric_free(m.accuracy[i]);
    return LC_OK;
}

/* ---- comparing ---- */

typedef struct job {
    const config *c;
    place at;
    int64_t after;
    bool continues;
    outcome o[WORLD_RANKS];
} job;

static lc_status be_rank(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    return run(j->c, &j->at, comm, j->after, j->continues, &j->o[lc_comm_rank(comm)]);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 2e-4 * (1 + fabs(a)) || (isnan(a) && isnan(b));
}

static void compare(int k, const config *c, const place *at, int rank, const outcome *want, const outcome *got)
{
    char what[200];
    snprintf(what, sizeof what, "configuration %d, %s, %d ranks, %d devices, rank %d", k, at->strategy, at->ranks,
             at->devices, rank);
    if ((want->status < 0) != (got->status < 0))
        TEST_FAIL("%s: \"%s\" in place of \"%s\" (%s)", what, got->message, want->message, c->text);
    if (want->status < 0) return;
    if (want->steps != got->steps || want->epochs != got->epochs)
        TEST_FAIL("%s: %lld steps, %lld epochs in place of %lld, %lld (%s)", what, (long long)got->steps,
                  (long long)got->epochs, (long long)want->steps, (long long)want->epochs, c->text);
    for (int i = 0; i < want->n_metrics; i++) {
        int g = 0;
        while (g < got->n_metrics && strcmp(want->names[i], got->names[g]) != 0) g++;
        if (g == got->n_metrics || !near(want->metrics[i], got->metrics[g]))
            TEST_FAIL("%s: metric %s is %g in place of %g (%s)", what, want->names[i],
                      g == got->n_metrics ? NAN : got->metrics[g], want->metrics[i], c->text);
    }
    if (want->n != got->n) TEST_FAIL("%s: %d numbers in place of %d (%s)", what, got->n, want->n, c->text);
    for (int i = 0; i < want->n; i++)
        if (!near(want->numbers[i], got->numbers[i]))
            TEST_FAIL("%s: number %d is %g in place of %g (%s)", what, i, got->numbers[i], want->numbers[i], c->text);
}

static const place places[] = {{"ddp", 2, 1, 0},
                               {"ddp", 3, 1, 0},
                               {"sharded_1", 2, 1, 0},
                               {"sharded_2", 3, 1, 0},
                               {"sharded_3", 2, 1, 0},
                               {"sharded_3", 3, 1, 0},
                               {"sharded_hybrid", 4, 1, 2},
                               {"data_parallel", 1, 2, 0},
                               {"data_parallel", 1, 3, 0},
                               {"central_storage", 1, 2, 0}};
enum { PLACES = sizeof places / sizeof *places };

/* Combinations that several ranks or devices do not support (docs/trainer.md). */
static bool is_refused(const outcome *o)
{
    static const char *const texts[] = {"samples, which leaves some of", "every rank needs",
                                        "cannot step the optimizers itself"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (o->status < 0 && strstr(o->message, texts[i])) return true;
    return false;
}

static void run_job(job *j, const config *c, const place *at, int64_t after, bool continues)
{
    memset(j, 0, sizeof *j);
    j->c = c;
    j->at = *at;
    j->after = after;
    j->continues = continues;
    if (at->ranks > 1)
        CHECK_RANKS("threads", at->ranks, be_rank, j);
    else
        CHECK_OK(run(c, at, NULL, after, continues, &j->o[0]));
}

/* Configurations that found errors which the first ones do not find. */
static const int known[] = {1354};
enum { KNOWN = sizeof known / sizeof *known };

TEST(configurations)
{
    static outcome want;
    static job j;
    const char *from = getenv("LIGHTC_TEST_FROM"), *count = getenv("LIGHTC_TEST_COUNT");
    bool shows = getenv("LIGHTC_TEST_SHOW");
    int first = from ? atoi(from) : 0, ran = 0, refused = 0, n = count ? atoi(count) : 70;
    for (int i = 0; i < n + (from ? 0 : KNOWN); i++) {
        int k = i < n ? first + i : known[i - n];
        config c = draw_config(k);
        memset(&want, 0, sizeof want);
        CHECK_OK(run(&c, &(place){NULL, 1, 1, 0}, NULL, -1, false, &want));
        if (shows) printf("%d: %s: %s\n", k, c.text, want.status < 0 ? want.message : "ran");
        for (int p = 0; p < PLACES; p++) {
            if (!from && i < n && p % 3 != k % 3) continue;
            run_job(&j, &c, &places[p], -1, false);
            for (int r = 0; r < j.at.ranks; r++) {
                if (want.status >= 0 && is_refused(&j.o[r])) {
                    refused++;
                    if (shows && !r) printf("    %s: %s\n", j.at.strategy, j.o[r].message);
                    continue;
                }
                compare(k, &c, &j.at, r, &want, &j.o[r]);
            }
            ran += want.status >= 0;
        }
    }
    if (shows) printf("%d ran, %d were refused\n", ran, refused);
}

static bool draws(const config *c, const char *option)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (!strcmp(space[i].option, option)) return c->values[i] != NULL;
    return false;
}

static bool calls(const config *c, make_callback *callback)
{
    for (int i = 0; i < c->n_callbacks; i++)
        if (callbacks[c->callbacks[i]].make == callback) return true;
    return false;
}

/* Law 3: saved after any batch in one place, and resumed in another. */
TEST(configurations_that_resume_elsewhere)
{
    static outcome want;
    static job before, j;
    const char *from = getenv("LIGHTC_TEST_FROM"), *count = getenv("LIGHTC_TEST_COUNT");
    bool shows = getenv("LIGHTC_TEST_SHOW");
    int first = from ? atoi(from) : 0, n = count ? atoi(count) : 70;
    for (int k = first; k < first + n; k++) {
        config c = draw_config(k);
        draw d = {.key = 5000 + (uint64_t)k};
        memset(&want, 0, sizeof want);
        if (draws(&c, "fast_dev_run") || calls(&c, rate_finder)) continue; /* it would save in its trial */
        CHECK_OK(run(&c, &(place){NULL, 1, 1, 0}, NULL, -1, false, &want));
        if (want.status < 0) continue;
        for (int p = 0; p < (from ? 4 : 2); p++) {
            const place *a = &places[below(&d, PLACES)], *b = &places[below(&d, PLACES)];
            int64_t after = below(&d, 7);
            run_job(&before, &c, a, after, false);
            if (before.o[0].status >= 0 || is_refused(&before.o[0])) continue;
            run_job(&j, &c, b, -1, true);
            if (shows)
                printf("%d: saved after %d by %s on %d, continued by %s on %d: %s\n", k, (int)after, a->strategy,
                       a->ranks * a->devices, b->strategy, b->ranks * b->devices, c.text);
            for (int r = 0; r < b->ranks; r++)
                if (!is_refused(&j.o[r])) compare(k, &c, b, r, &want, &j.o[r]);
        }
    }
}

TEST_MAIN
