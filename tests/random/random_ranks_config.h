/* SPDX-License-Identifier: Apache-2.0 */
/* Draws configurations of a training: options, optimizers, callbacks and data.
 *
 * To add an option: a line in `space`. To add a callback: a function that makes it, and its name in `callbacks`. */
#ifndef TEST_RANDOM_RANKS_CONFIG_H
#define TEST_RANDOM_RANKS_CONFIG_H

#include "scratch.h"

#include <lightc/callbacks.h>
#include <lightc/lightc.h>
#include <lightc/random.h>
#include <math.h>

enum { SAMPLES = 128, VAL = 40, MOST_ODD = 4 };

/* ---- random numbers ---- */

typedef struct draw {
    uint64_t key, n;
} draw;

static inline int64_t below(draw *d, int64_t n)
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
    static lc_optimizer *make_##id(lc_module *m, bool master, bool stochastic)                                         \
    {                                                                                                                  \
        return lc_##id(m, .no_parameters = true, .lr = 0.02, .master_weights = master,                                 \
                       .stochastic_rounding = stochastic, __VA_ARGS__);                                                \
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
    lc_optimizer *(*make)(lc_module *m, bool master, bool stochastic);
} optimizers[] = {{"SGD", make_sgd},         {"Adam", make_adam},   {"AdamW", make_adamw}, {"RMSprop", make_rmsprop},
                  {"Adagrad", make_adagrad}, {"NAdam", make_nadam}, {"RAdam", make_radam}};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };
static const char *const schedules[] = {"", "step", "plateau", "one cycle"};

typedef lc_status make_callback(draw *d, lc_callback *out);

static inline lc_status stopping(draw *d, lc_callback *out)
{
    return lc_early_stopping(out, .monitor = below(d, 2) ? "val_loss" : "train_loss", .patience = 1, .min_delta = 0.05,
                             .strict = LC_OFF);
}
static inline lc_status checkpoints(draw *d, lc_callback *out)
{
    return lc_model_checkpoint(out, .every_n_train_steps = below(d, 2) ? 2 : LC_UNSET, .save_top_k = -1,
                               .save_last = LC_ON);
}
static inline lc_status averaging(draw *d, lc_callback *out)
{
    (void)d;
    return lc_weight_averaging_new(NULL, out);
}
static inline lc_status ema(draw *d, lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.5, .update_every_n_steps = below(d, 3));
}
static inline lc_status swa(draw *d, lc_callback *out)
{
    static const double lr = 0.01;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1,
                                          .swa_epoch_start = below(d, 2) ? LC_EPOCHS(1) : LC_FRACTION(0.5));
}
static inline lc_status backbone(draw *d, lc_callback *out)
{
    return lc_backbone_finetuning(out, .unfreeze_backbone_at_epoch = 1, .train_bn = below(d, 2) ? LC_ON : LC_OFF);
}
static inline lc_status pruning(draw *d, lc_callback *out)
{
    static const char *const what[] = {"l1_unstructured", "random_unstructured", "ln_structured"};
    static const char *const paths[] = {"backbone.in.weight", "mid.weight"};
    return lc_model_pruning(out, .pruning_fn = what[below(d, 3)], .pruning_norm = 2, .amount = 0.25,
                            .parameters_to_prune = paths, .n_parameters_to_prune = 2,
                            .use_lottery_ticket_hypothesis = below(d, 2) ? LC_ON : LC_OFF);
}
static inline lc_status windows(draw *d, lc_callback *out)
{
    const lc_accumulation list[] = {{below(d, 3), 1 + below(d, 3)}};
    return lc_gradient_accumulation_scheduler(out, .scheduling = list, .n_scheduling = 1);
}
static inline lc_status norms(draw *d, lc_callback *out)
{
    return lc_gradient_norm_monitor(out, .norm_type = below(d, 2) ? INFINITY : 0, .every_step = true);
}
static inline lc_status spikes(draw *d, lc_callback *out)
{
    (void)d;
    return lc_spike_detection(out, .skip = true, .window = 3, .rtol = 0.1);
}
static inline lc_status rates(draw *d, lc_callback *out)
{
    (void)d;
    return lc_learning_rate_monitor_new(NULL, out);
}
static inline lc_status histograms(draw *d, lc_callback *out)
{
    return lc_weight_histogram(out, .every_n_train_steps = below(d, 3), .gradients = below(d, 2));
}
static inline lc_status rate_finder(draw *d, lc_callback *out)
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

/* A parameter of odd_forward (random_ranks_odd.h). */
typedef enum use { ALWAYS, SOME_BATCHES, SOME_SAMPLES, USES } use;
static const char *const uses[] = {"", " in some batches", " in some samples"};
typedef struct odd_parameter {
    int64_t size; /* -1: a scalar */
    use use;
    bool tied; /* registered twice, used twice */
} odd_parameter;

/* What follows the first fit. */
typedef enum sequel { NONE, SAME_TRAINER, OTHER_MODULE, OTHER_TRAINER, SEQUELS } sequel;
static const char *const sequels[] = {"", "fit again", "fit another module", "fit with another trainer"};

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
    odd_parameter odd[MOST_ODD];
    int n_odd;
    bool bare, f64; /* no other parameters; in f64 */
    bool decays, thaws, backward_before;
    const char *precision; /* NULL: f32 */
    bool master, stochastic;
    const char *chunk; /* deterministic, with chunks of at most this many samples; NULL: not */
    sequel sequel;
} config;

static inline void say(config *c, const char *what, const char *value)
{
    size_t n = strlen(c->text);
    snprintf(c->text + n, sizeof c->text - n, "%s%s%s%s", n ? ", " : "", what, *value ? " " : "", value);
}

static inline bool calls(const config *c, make_callback *callback)
{
    for (int i = 0; i < c->n_callbacks; i++)
        if (callbacks[c->callbacks[i]].make == callback) return true;
    return false;
}

static inline void say_odd(config *c)
{
    for (int i = 0; i < c->n_odd; i++) {
        const odd_parameter *p = &c->odd[i];
        char text[64];
        snprintf(text, sizeof text, "%d numbers%s%s", (int)p->size, uses[p->use], p->tied ? ", tied" : "");
        say(c, text, "");
    }
    if (c->bare) say(c, "bare", c->f64 ? "f64" : "");
    if (c->decays) say(c, "decay", "");
    if (c->thaws) say(c, "thaws", "");
    if (c->backward_before) say(c, "a backward pass before", "");
    if (c->chunk) say(c, "chunks of", c->chunk);
    if (c->sequel) say(c, sequels[c->sequel], "");
}

/* Gradients in flat buffers of many shapes. */
static inline void draw_odd(config *c, int k)
{
    static const int64_t sizes[] = {-1, 0, 1, 2, 63, 64, 65, 127, 128, 129, 200};
    static const char *const chunks[] = {"1", "3", "4", "6"};
    draw d = {.key = 7000000 + (uint64_t)k};
    c->n_odd = (int)below(&d, MOST_ODD + 1);
    c->bare = below(&d, 4) == 0 && !calls(c, backbone) && !calls(c, pruning);
    c->f64 = c->bare && below(&d, 2);
    if (c->bare) c->mode = ONE, c->n_odd = 1 + (int)below(&d, 2);
    c->thaws = below(&d, 3) == 0 && c->mode != TOGGLED && !calls(c, backbone);
    for (int i = 0; i < c->n_odd; i++)
        c->odd[i] = (odd_parameter){
            .size = sizes[below(&d, 11)], .use = (use)below(&d, USES), .tied = i < 2 && below(&d, 4) == 0};
    for (int i = 0; i < c->n_odd && c->bare; i++) /* no part of a batch lacks a gradient */
        if (i == 0 || c->thaws) c->odd[i].use = ALWAYS;
    c->decays = below(&d, 2);
    c->backward_before = below(&d, 4) == 0;
    c->chunk = below(&d, 3) ? NULL : chunks[below(&d, 4)];
    c->sequel = below(&d, 2) ? NONE : (sequel)below(&d, SEQUELS);
    say_odd(c);
}

/* In 16 bits or f64, with the same bits in all places. */
static inline void draw_precision(config *c, int k)
{
    static const char *const names[] = {"bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"};
    draw d = {.key = 9000000 + (uint64_t)k};
    c->precision = names[k % 5];
    if (!c->chunk) c->chunk = below(&d, 2) ? "3" : "4";
    if (k % 5 == 2 || k % 5 == 3) c->master = below(&d, 3) == 0, c->stochastic = !c->master && below(&d, 2);
    say(c, c->precision, c->master ? "master weights" : c->stochastic ? "stochastic" : "");
}

static inline config draw_config(int k)
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
    draw_odd(&c, k);
    return c;
}

#endif
