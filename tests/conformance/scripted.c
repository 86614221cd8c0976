/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "scripted.h"

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cmodel {
    world w;                /* must be first */
    const lc_state *module; /* the case's "module" */
    int n_val;
    int64_t n_vals[8];
    bool divide_by_k;
} cmodel;

/* ---- reading a case ---- */
int64_t get_int(const lc_state *s, const char *key, int64_t otherwise)
{
    int64_t v;
    return s && lc_state_get_int(s, key, &v) == LC_OK ? v : otherwise;
}
double get_double(const lc_state *s, const char *key, double otherwise)
{
    double v;
    return s && lc_state_get_double(s, key, &v) == LC_OK ? v : otherwise;
}
bool get_bool(const lc_state *s, const char *key, bool otherwise)
{
    bool v;
    return s && lc_state_get_bool(s, key, &v) == LC_OK ? v : otherwise;
}
const char *get_text(const lc_state *s, const char *key, const char *otherwise)
{
    const char *v;
    return s && lc_state_get_text(s, key, &v) == LC_OK ? v : otherwise;
}
const lc_state *get(const lc_state *s, const char *key)
{
    return s ? lc_state_find(s, key) : NULL;
}

/* [[epoch, batch], ...] or [epoch, batch] */
static bool at(const lc_state *list, int64_t epoch, int64_t batch)
{
    int64_t e, b;
    if (!list || lc_state_length(list) == 0) return false;
    if (lc_state_kind_of(lc_state_at(list, 0)) == LC_STATE_INT)
        return lc_state_get_int(lc_state_at(list, 0), NULL, &e) == LC_OK &&
               lc_state_get_int(lc_state_at(list, 1), NULL, &b) == LC_OK && e == epoch && b == batch;
    for (int64_t i = 0; i < lc_state_length(list); i++)
        if (at(lc_state_at(list, i), epoch, batch)) return true;
    return false;
}

static double number(const lc_state *s)
{
    double v;
    if (lc_state_kind_of(s) == LC_STATE_NULL) return NAN;
    if (lc_state_kind_of(s) == LC_STATE_BOOL) return get_bool(s, NULL, false);
    return lc_state_get_double(s, NULL, &v) == LC_OK ? v : NAN;
}

/* A name that there is not is a number that there is not. */
static lc_log_reduce reduction(const char *name)
{
    static const char *const names[] = {"mean", "sum", "min", "max"}; /* as lc_log_reduce */
    int i = 0;
    if (!strcmp(name, "avg")) return LC_LOG_MEAN;
    while (i < (int)(sizeof names / sizeof *names) && strcmp(names[i], name) != 0) i++;
    return (lc_log_reduce)i;
}

static lc_log_args log_args(const lc_state *o)
{
    lc_log_args a = lc_log_defaults();
    a.prog_bar = get_bool(o, "prog_bar", false);
    a.site = LC_HERE;
    if (get(o, "on_step")) a.on_step = get_bool(o, "on_step", false);
    if (get(o, "on_epoch")) a.on_epoch = get_bool(o, "on_epoch", false);
    a.logger = get_bool(o, "logger", true);
    a.add_dataloader_idx = get_bool(o, "add_dataloader_idx", true);
    a.reduce_fx = reduction(get_text(o, "reduce_fx", "mean"));
    a.batch_size = get_int(o, "batch_size", 0);
    a.sync_dist = get_bool(o, "sync_dist", false);
    a.rank_zero_only = get_bool(o, "rank_zero_only", false);
    return a;
}

/* ---- the module ---- */
static lc_tensor *c_training_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    cmodel *m = (cmodel *)self;
    lc_trainer *t = self->trainer;
    int64_t epoch = lc_trainer_current_epoch(t);
    WORLD_TRACE(self, "training_step");
    if (at(get(m->module, "raise_at"), epoch, i)) {
        lc_fail(LC_ERR_USER, "scripted failure");
        return NULL;
    }
    lc_tensor *loss = lc_mul(m->w.w, lc_mean(batch->x));
    const lc_state *logs = get(m->module, "log_train");
    for (int64_t k = 0; k < lc_state_length(logs); k++) {
        const lc_state *o = lc_state_at(logs, k);
        if (get(o, "value"))
            lc_log_value_at(self, get_text(o, "name", "?"), number(get(o, "value")), (lc_log_args[]){log_args(o)});
        else
            lc_log_at(self, get_text(o, "name", "?"), lc_detach(loss), (lc_log_args[]){log_args(o)});
    }
    if (at(get(m->module, "stop_at"), epoch, i)) lc_trainer_stop(t);
    if (at(get(m->module, "skip_at"), epoch, i)) return NULL;
    if (self->ops->manual_optimization) {
        for (int k = 0; lc_manual_optimizer(self, k); k++) {
            if (lc_manual_zero_grad(self, lc_manual_optimizer(self, k)) < 0) return NULL;
            if (lc_manual_backward(self, lc_mul(m->w.w, lc_mean(batch->x))) < 0) return NULL;
            if (lc_manual_step(self, lc_manual_optimizer(self, k)) < 0) return NULL;
        }
        return NULL;
    }
    return loss;
}

static lc_status c_on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    cmodel *m = (cmodel *)self;
    (void)b;
    WORLD_TRACE(self, "on_train_batch_start");
    return at(get(m->module, "end_epoch_at"), lc_trainer_current_epoch(self->trainer), i) ? LC_SKIP : LC_OK;
}

static lc_status c_validation_step(lc_module *self, const lc_batch *batch, int64_t i, int d)
{
    cmodel *m = (cmodel *)self;
    double value = batch_mean(batch);
    (void)i, (void)d;
    WORLD_TRACE(self, "validation_step");
    const lc_state *script = get(m->module, "val_script"), *logs = get(m->module, "log_val");
    if (script && lc_state_length(script) && !lc_trainer_sanity_checking(self->trainer)) {
        int64_t n = lc_state_length(script), k = m->w.val_runs;
        value = number(lc_state_at(script, k < n ? k : n - 1));
    }
    if (!logs) lc_log_value(self, "val_loss", value);
    for (int64_t k = 0; k < lc_state_length(logs); k++)
        lc_log_value_at(self, get_text(lc_state_at(logs, k), "name", "?"), value,
                        (lc_log_args[]){log_args(lc_state_at(logs, k))});
    return LC_OK;
}

static lc_status c_on_train_epoch_end(lc_module *self)
{
    cmodel *m = (cmodel *)self;
    WORLD_TRACE(self, "on_train_epoch_end");
    const lc_state *logs = get(m->module, "log_epoch_end");
    for (int64_t k = 0; k < lc_state_length(logs); k++) {
        const lc_state *o = lc_state_at(logs, k), *values = get(o, "value");
        int64_t n = lc_state_length(values), e = lc_trainer_current_epoch(self->trainer);
        lc_log_value_at(self, get_text(o, "name", "?"), number(lc_state_at(values, e < n ? e : n - 1)),
                        (lc_log_args[]){log_args(o)});
    }
    return LC_OK;
}

static lc_status c_configure_optimizers(lc_module *self, lc_optimizers *out)
{
    cmodel *m = (cmodel *)self;
    WORLD_TRACE(self, "configure_optimizers");
    double lr = get_double(m->module, "lr", 0);
    const lc_state *s = get(m->module, "scheduler"); /* the module then has a single optimizer */
    for (int64_t i = 0; i < (s ? 1 : get_int(m->module, "optimizers", 1)); i++)
        LC_TRY(lc_optimizers_add(out, lc_sgd(self, .lr = lr)));
    if (!s) return LC_OK;
    lc_optimizer *opt = out->optimizers[0].optimizer;
    const char *interval = get_text(s, "interval", "epoch");
    lc_scheduler_config c = {.name = get_text(s, "name", NULL),
                             .reduce_on_plateau = get_bool(s, "reduce_on_plateau", false),
                             .frequency = get_int(s, "frequency", 1),
                             .monitor = get_text(s, "monitor", NULL)};
    if (strcmp(interval, "step") != 0 && strcmp(interval, "epoch") != 0) /* in C there is no other */
        return lc_fail(LC_ERR_CONFIG, "there is no interval \"%s\"", interval);
    if (!c.frequency) return lc_fail(LC_ERR_CONFIG, "a frequency of 0, which in C is the default");
    if (!strcmp(interval, "step")) c.interval = LC_INTERVAL_STEP;
    if (get(s, "strict")) c.not_strict = !get_bool(s, "strict", true);
    c.scheduler = !strcmp(get_text(s, "kind", "step"), "step")
                      ? lc_step_lr(opt, .step_size = 1, .gamma = 0.5)
                      : lc_reduce_lr_on_plateau(opt, .patience = 0, .factor = 0.5);
    return lc_optimizers_add_scheduler(out, c);
}

static lc_status c_val_dataloader(lc_module *self, lc_loaders *out)
{
    cmodel *m = (cmodel *)self;
    for (int i = 0; i < m->n_val; i++) LC_TRY(lc_loaders_add(out, numbers_new(m->n_vals[i], m->w.batch_size, false)));
    return LC_OK;
}

/* Lightning divides every window by k. */
static lc_status c_on_before_optimizer_step(lc_module *self, lc_optimizer *opt)
{
    cmodel *m = (cmodel *)self;
    (void)opt;
    WORLD_TRACE(self, "on_before_optimizer_step");
    if (m->divide_by_k)
        lc_graph_set_window(lc_trainer_graph(self->trainer), (double)lc_trainer_accumulate_grad_batches(self->trainer));
    return LC_OK;
}

/* ---- callbacks of a case ---- */
static lc_choice choice(const lc_state *a, const char *key)
{
    return get(a, key) && lc_state_kind_of(get(a, key)) == LC_STATE_BOOL ? (get_bool(a, key, false) ? LC_ON : LC_OFF)
                                                                         : LC_AUTO;
}

/* {"minutes": 1, "seconds": 30} */
static double seconds_of(const lc_state *o)
{
    return get_double(o, "seconds", 0) + 60 * get_double(o, "minutes", 0) + 3600 * get_double(o, "hours", 0) +
           86400 * get_double(o, "days", 0) + 7 * 86400 * get_double(o, "weeks", 0);
}

static lc_status make_averaging(const char *type, const lc_state *a, lc_callback *out)
{
    lc_ema_weight_averaging_args args = lc_ema_weight_averaging_defaults();
    lc_weight_averaging_args mean = lc_weight_averaging_defaults();
    mean.use_buffers = args.use_buffers = get_bool(a, "use_buffers", true);
    if (!strcmp(type, "WeightAveraging")) return lc_weight_averaging_new(&mean, out);
    args.decay = get_double(a, "decay", args.decay);
    args.update_every_n_steps = get_int(a, "update_every_n_steps", args.update_every_n_steps);
    args.update_starting_at_step = get_int(a, "update_starting_at_step", args.update_starting_at_step);
    args.update_starting_at_epoch = get_int(a, "update_starting_at_epoch", args.update_starting_at_epoch);
    return lc_ema_weight_averaging_new(&args, out);
}

static lc_status make_swa(const lc_state *a, lc_callback *out)
{
    lc_stochastic_weight_averaging_args args = lc_stochastic_weight_averaging_defaults();
    const lc_state *start = get(a, "swa_epoch_start");
    double rate = get_double(a, "swa_lrs", 0);
    args.swa_lrs = &rate;
    args.n_swa_lrs = 1;
    if (start)
        args.swa_epoch_start = lc_state_kind_of(start) == LC_STATE_INT ? LC_EPOCHS(get_int(start, NULL, 0))
                                                                       : LC_FRACTION(get_double(start, NULL, 0));
    args.annealing_epochs = get_int(a, "annealing_epochs", args.annealing_epochs);
    args.annealing_strategy = get_text(a, "annealing_strategy", args.annealing_strategy);
    return lc_stochastic_weight_averaging_new(&args, out);
}

static lc_status make_timer(const lc_state *a, lc_callback *out)
{
    const char *interval = get_text(a, "interval", "step");
    const lc_state *duration = get(a, "duration");
    if (strcmp(interval, "step") != 0 && strcmp(interval, "epoch") != 0) /* in C there is no other */
        return lc_fail(LC_ERR_CONFIG, "there is no interval \"%s\"", interval);
    return lc_timer_new(duration ? seconds_of(duration) : 1e9, !strcmp(interval, "epoch"), out);
}

/* In the recordings a path is below the run's directory. */
static lc_status make_callback(const lc_state *spec, const char *root, const run_settings *how, lc_callback *out)
{
    const char *type = get_text(spec, "type", "?");
    const lc_state *a = get(spec, "args");
    char dirpath[4096];
    snprintf(dirpath, sizeof dirpath, "%s/%s", root, get_text(a, "dirpath", ""));
    if (!strcmp(type, "ModelCheckpoint")) {
        int64_t k = get_int(a, "save_top_k", 1);
        lc_model_checkpoint_args args = lc_model_checkpoint_defaults();
        args.dirpath = get_text(a, "dirpath", NULL) ? dirpath : NULL;
        args.filename = get_text(a, "filename", NULL);
        args.monitor = get_text(a, "monitor", NULL);
        args.mode = get_text(a, "mode", NULL);
        args.save_top_k = k;
        args.save_last = get_bool(a, "save_last", *get_text(a, "save_last", "")); /* or "link" */
        args.save_weights_only = get_bool(a, "save_weights_only", false);
        args.verbose = get_bool(a, "verbose", false);
        args.every_n_train_steps = get_int(a, "every_n_train_steps", LC_UNSET);
        args.every_n_epochs = get_int(a, "every_n_epochs", LC_UNSET);
        args.save_on_train_epoch_end = choice(a, "save_on_train_epoch_end");
        args.save_on_exception = get_bool(a, "save_on_exception", false);
        args.auto_insert_metric_name = get_bool(a, "auto_insert_metric_name", true);
        args.enable_version_counter = get_bool(a, "enable_version_counter", true);
        if (how->callbacks_at_epochs && args.save_on_train_epoch_end == LC_AUTO) args.save_on_train_epoch_end = LC_ON;
        return lc_model_checkpoint_new(&args, out);
    }
    if (!strcmp(type, "EarlyStopping")) {
        int64_t p = get_int(a, "patience", 3);
        lc_early_stopping_args args = lc_early_stopping_defaults();
        args.monitor = get_text(a, "monitor", NULL);
        args.mode = get_text(a, "mode", NULL);
        args.patience = p;
        args.min_delta = get_double(a, "min_delta", 0);
        args.stopping_threshold = get_double(a, "stopping_threshold", LC_NOT_GIVEN);
        args.divergence_threshold = get_double(a, "divergence_threshold", LC_NOT_GIVEN);
        args.strict = get_bool(a, "strict", true);
        args.check_finite = get_bool(a, "check_finite", true);
        args.check_on_train_epoch_end = choice(a, "check_on_train_epoch_end");
        if (how->callbacks_at_epochs && args.check_on_train_epoch_end == LC_AUTO) args.check_on_train_epoch_end = LC_ON;
        return lc_early_stopping_new(&args, out);
    }
    if (!strcmp(type, "LearningRateMonitor")) {
        lc_learning_rate_monitor_args args = lc_learning_rate_monitor_defaults();
        args.logging_interval = get_text(a, "logging_interval", NULL);
        args.log_momentum = get_bool(a, "log_momentum", false);
        args.log_weight_decay = get_bool(a, "log_weight_decay", false);
        return lc_learning_rate_monitor_new(&args, out);
    }
    if (!strcmp(type, "GradientAccumulationScheduler")) {
        const lc_state *scheduling = get(a, "scheduling");
        lc_accumulation list[16];
        lc_gradient_accumulation_scheduler_args args = lc_gradient_accumulation_scheduler_defaults();
        args.scheduling = list;
        for (int64_t i = 0; i < lc_state_length(scheduling) && i < 16; i++)
            list[args.n_scheduling++] =
                (lc_accumulation){atoll(lc_state_key_at(scheduling, i)), get_int(lc_state_at(scheduling, i), NULL, 0)};
        return lc_gradient_accumulation_scheduler_new(&args, out);
    }
    if (!strcmp(type, "StochasticWeightAveraging")) return make_swa(a, out);
    if (!strcmp(type, "WeightAveraging") || !strcmp(type, "EMAWeightAveraging")) return make_averaging(type, a, out);
    if (!strcmp(type, "Timer")) return make_timer(a, out);
    if (!strcmp(type, "OnExceptionCheckpoint")) {
        lc_on_exception_checkpoint_args args = lc_on_exception_checkpoint_defaults();
        args.dirpath = get_text(a, "dirpath", NULL) ? dirpath : NULL;
        args.filename = get_text(a, "filename", args.filename);
        return lc_on_exception_checkpoint_new(&args, out);
    }
    return lc_fail(LC_ERR_UNSUPPORTED, "no callback %s", type);
}

static lc_status set_options(lc_trainer_options *o, const lc_state *trainer)
{
    static int next;
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    for (int64_t i = 0; i < lc_state_length(trainer); i++) {
        const char *key = lc_state_key_at(trainer, i), *text;
        const lc_state *v = lc_state_at(trainer, i);
        static char buffers[64][64]; /* the options keep texts until the trainer is made */
        char *buffer = buffers[next++ % 64];
        int k = 0;
        while (k < n && strcmp(table[k].name, key) != 0) k++;
        if (k == n) return lc_fail(LC_ERR_UNSUPPORTED, "no option %s", key);
        switch (lc_state_kind_of(v)) {
        case LC_STATE_NULL:
            text = "none";
            break;
        case LC_STATE_BOOL:
            text = get_bool(v, NULL, false) ? "true" : "false";
            break;
        case LC_STATE_INT:
            snprintf(buffer, sizeof buffers[0], "%lld", (long long)get_int(v, NULL, 0));
            text = buffer;
            break;
        case LC_STATE_DOUBLE:
            snprintf(buffer, sizeof buffers[0], "%g", get_double(v, NULL, 0));
            if (!strpbrk(buffer, ".e")) strcat(buffer, ".0");
            text = buffer;
            break;
        case LC_STATE_OBJECT:
            snprintf(buffer, sizeof buffers[0], "%.17gs", seconds_of(v));
            text = buffer;
            break;
        default:
            text = get_text(v, NULL, "?");
        }
        LC_TRY(lc_option_set_text(&table[k], o, text));
    }
    return LC_OK;
}

/* ---- a run ---- */
void add(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}
void add_number(char *text, size_t size, double v)
{
    if (isnan(v))
        add(text, size, "nan");
    else if (isinf(v))
        add(text, size, v > 0 ? "inf" : "-inf");
    else
        add(text, size, "%.5g", round(v * 1e6) / 1e6 + 0.0);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_files(const char *root, const char *at_dir, char **names, int *n)
{
    struct dirent **entries;
    int count = scandir(at_dir, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[4096];
        size_t k = strlen(entries[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", at_dir, entries[i]->d_name);
        struct stat st;
        if (entries[i]->d_name[0] != '.' && k > 5 && !strcmp(entries[i]->d_name + k - 5, ".ckpt")) {
            if (*n < 100) names[(*n)++] = strdup(path + strlen(root) + 1);
        } else if (entries[i]->d_name[0] != '.' && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            list_files(root, path, names, n);
        }
        free(entries[i]);
    }
    if (count >= 0) free(entries);
}

static bool find_file(const char *root, const char *name, char *out, size_t size)
{
    char *names[100];
    int n = 0;
    bool found = false;
    list_files(root, root, names, &n);
    for (int i = 0; i < n; i++) {
        const char *base = strrchr(names[i], '/') ? strrchr(names[i], '/') + 1 : names[i];
        if (fnmatch(name, base, 0) == 0) {
            snprintf(out, size, "%s/%s", root, names[i]);
            found = true;
        }
        free(names[i]);
    }
    return found;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void finals(lc_trainer *t, cmodel *m, outcome *out)
{
    static const char *const reasons[] = {"NOT_STOPPED", "STOPPING_THRESHOLD", "DIVERGENCE_THRESHOLD",
                                          "PATIENCE_EXHAUSTED", "NON_FINITE_METRIC"};
    const char *names[64];
    int n = lc_trainer_metric_count(t, LC_CALLBACK_METRICS);
    out->ran = true;
    out->global_step = lc_trainer_global_step(t);
    out->current_epoch = lc_trainer_current_epoch(t);
    out->should_stop = lc_trainer_should_stop(t);
    out->weight[0] = 0;
    add_number(out->weight, sizeof out->weight, world_weight(&m->w));
    out->metrics[0] = out->early[0] = out->checkpoints[0] = 0;
    for (int i = 0; i < n && i < 64; i++) names[i] = lc_trainer_metric_at(t, LC_CALLBACK_METRICS, i).name;
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 0; i < n; i++) {
        double v = NAN;
        if (lc_trainer_metric(t, names[i], &v) != LC_OK) continue;
        add(out->metrics, sizeof out->metrics, "%s=", names[i]);
        add_number(out->metrics, sizeof out->metrics, v);
        add(out->metrics, sizeof out->metrics, " ");
    }
    for (int i = 0; i < lc_trainer_callback_count(t); i++) {
        lc_callback cb = lc_trainer_callback(t, i);
        lc_early_stopping_info es;
        lc_model_checkpoint_info mc;
        if (lc_early_stopping_get(&cb, &es) == LC_OK) {
            out->early[0] = 0; /* the recordings have the last one */
            add(out->early, sizeof out->early, "%lld %lld ", (long long)es.stopped_epoch, (long long)es.wait_count);
            add_number(out->early, sizeof out->early, es.best_score);
            add(out->early, sizeof out->early, " %s", reasons[es.reason]);
        }
        if (lc_model_checkpoint_get(&cb, &mc) == LC_OK) {
            add(out->checkpoints, sizeof out->checkpoints, "best=%s score=", base_name(mc.best_model_path));
            if (mc.has_best_score)
                add_number(out->checkpoints, sizeof out->checkpoints, mc.best_model_score);
            else
                add(out->checkpoints, sizeof out->checkpoints, "none");
            add(out->checkpoints, sizeof out->checkpoints, " last=%s;", base_name(mc.last_model_path));
        }
    }
}

static lc_status log_row(void *self, const lc_log_row *row)
{
    outcome *out = self;
    size_t size = sizeof out->rows;
    add(out->rows, size, "step=%lld", (long long)row->step);
    /* A logged value named "epoch" replaces the row's epoch, in lightc's loggers and in Lightning's. */
    const double *own = NULL;
    for (int i = 0; i < row->n; i++)
        if (!strcmp(row->values[i].name, "epoch")) own = &row->values[i].value;
    if (own || row->epoch >= 0) add(out->rows, size, " epoch=");
    if (own || row->epoch >= 0) add_number(out->rows, size, own ? *own : (double)row->epoch);
    for (int i = 0; i < row->n; i++) {
        if (&row->values[i].value == own) continue;
        add(out->rows, size, " %s=", row->values[i].name);
        add_number(out->rows, size, row->values[i].value);
    }
    add(out->rows, size, "|");
    return LC_OK;
}
static const lc_logger_ops rows_ops = {LC_LOGGER_OPS_INIT, .name = "rows", .start = memory_start, .log_row = log_row};

static lc_status run_once(const lc_state *c, const char *root, const char *ckpt, const lc_state *more,
                          const run_settings *how, outcome *out)
{
    /* A resumed run has no logger, as in the recordings. */
    bool rows = !ckpt && get_bool(c, "logger", true);
    const lc_state *trainer = get(c, "trainer");
    lc_module_ops ops = world_ops;
    cmodel m = {0};
    lc_trainer *t = NULL;
    lc_status status;
    lc_callback callbacks[16];
    int n = 0;
    ops.training_step = c_training_step;
    ops.on_train_batch_start = c_on_train_batch_start;
    ops.validation_step = c_validation_step;
    ops.on_train_epoch_end = c_on_train_epoch_end;
    ops.configure_optimizers = c_configure_optimizers;
    ops.on_before_optimizer_step = c_on_before_optimizer_step;
    ops.val_dataloader = ops.test_dataloader = ops.predict_dataloader = c_val_dataloader;
    const lc_state *nv = get(c, "n_val");
    int64_t one = nv && lc_state_kind_of(nv) == LC_STATE_INT ? get_int(c, "n_val", 2) : 2;
    world_init(&m.w, &ops, get_int(c, "n_train", 4), 0);
    m.module = get(c, "module");
    ops.manual_optimization = !get_bool(m.module, "automatic", true);
    m.w.batch_size = get_int(c, "batch_size", 1);
    m.w.unsized = !get_bool(c, "sized", true);
    m.w.tr = out->tr;
    if (nv && lc_state_kind_of(nv) == LC_STATE_ARRAY)
        for (m.n_val = 0; m.n_val < lc_state_length(nv); m.n_val++)
            m.n_vals[m.n_val] = get_int(lc_state_at(nv, m.n_val), NULL, 0);
    else if (one)
        m.n_vals[m.n_val++] = one;
    if (!m.n_val) ops.val_dataloader = ops.test_dataloader = ops.predict_dataloader = NULL;
    lc_trainer_options o = world_options(root);
    o.run_name = "logs";
    o.handle_signals = false;
    lc_logger logger = {&rows_ops, out};
    if (rows) {
        o.loggers = &logger;
        o.n_loggers = 1;
    }
    m.divide_by_k = how->divide_by_k;
    if (how->callbacks_at_epochs) o.save_on_train_epoch_end = LC_ON;
    status = set_options(&o, trainer);
    if (status >= 0 && more) status = set_options(&o, more);
    if (get_bool(c, "trace", true)) callbacks[n++] = (lc_callback){&traced_ops, &m.w.tr};
    const lc_state *list = get(c, "callbacks");
    for (int64_t i = 0; status >= 0 && i < lc_state_length(list); i++)
        status = make_callback(lc_state_at(list, i), root, how, &callbacks[n++]);
    o.callbacks = callbacks;
    o.n_callbacks = n;
    if (status < 0) /* the last trainer was not made */
        for (int i = 0; i < n - 1; i++)
            if (callbacks[i].ops->free) callbacks[i].ops->free(callbacks[i].self);
    if (status >= 0) status = lc_trainer_new(&o, &t);
    if (status >= 0) {
        lc_run_args args = LC_ARGS(lc_run, .ckpt_path = ckpt);
        const char *action = get_text(c, "action", "fit");
        if (!strcmp(action, "fit"))
            status = lc_trainer_fit_with(t, &m.w.base, &args);
        else if (!strcmp(action, "validate"))
            status = lc_trainer_validate_with(t, &m.w.base, &args);
        else if (!strcmp(action, "test"))
            status = lc_trainer_test_with(t, &m.w.base, &args);
        else
            status = lc_trainer_predict_with(t, &m.w.base, &args);
        char message[1024];
        snprintf(message, sizeof message, "%s", lc_error_message());
        out->result[0] = 0;
        bool evaluates = !strcmp(action, "validate") || !strcmp(action, "test");
        bool ran = status >= 0 && m.w.tr.text && strstr(m.w.tr.text, "_step:");
        for (int i = 0; evaluates && ran && i < m.n_val; i++) {
            lc_metrics r = lc_trainer_results(t, i);
            for (int k = 0; k < r.n; k++) {
                add(out->result, sizeof out->result, "%s=", r.values[k].name);
                add_number(out->result, sizeof out->result, r.values[k].value);
                add(out->result, sizeof out->result, " ");
            }
            add(out->result, sizeof out->result, "; ");
        }
        for (int64_t i = 0; !strcmp(action, "predict") && i < lc_trainer_prediction_count(t, 0); i++) {
            lc_tensor *p = lc_trainer_prediction(t, 0, i);
            float v[64];
            double sum = 0;
            if (lc_tensor_read(p, v, (size_t)lc_tensor_numel(p) * sizeof *v) == LC_OK)
                for (int64_t k = 0; k < lc_tensor_numel(p); k++) sum += v[k];
            add_number(out->result, sizeof out->result, sum);
            add(out->result, sizeof out->result, "; ");
        }
        finals(t, &m, out);
        lc_fail(status, "%s", message);
    }
    snprintf(out->message, sizeof out->message, "%s", status < 0 ? lc_error_message() : "");
    lc_trainer_free(t);
    out->tr = m.w.tr;
    m.w.tr = (trace){0};
    world_release(&m.w);
    return status;
}

bool scripted_run(const lc_state *c, const run_settings *how, outcome *out)
{
    char root[256], *names[100];
    int n = 0;
    memset(out, 0, sizeof *out);
    if (!world_dir(root, sizeof root)) return false;
    out->status = run_once(c, root, NULL, NULL, how, out);
    const lc_state *resume = get(c, "resume");
    if (resume && out->status >= 0) {
        char path[4096];
        bool ok = find_file(root, get_text(resume, "file", "?"), path, sizeof path);
        if (ok) {
            trace_add(&out->tr, NULL, "-- resume --");
            out->status = run_once(c, root, path, get(resume, "trainer"), how, out);
        } else {
            out->status = LC_ERR_NOT_FOUND;
            snprintf(out->message, sizeof out->message, "there is no file %s", get_text(resume, "file", "?"));
        }
    }
    out->failed = out->status < 0;
    list_files(root, root, names, &n);
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 0; i < n; i++) {
        add(out->files, sizeof out->files, "%s ", names[i]);
        free(names[i]);
    }
    world_remove(root);
    return true;
}
