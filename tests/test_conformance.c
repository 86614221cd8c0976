/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted runs, compared with recordings of what PyTorch Lightning did with them.
 *
 *     test_conformance [CASES.json EXPECTED.json [NAME...]]
 *
 * Differences that are meant are rules (rewrites of a record, with a predicate on the case), never lists of cases. */
#include "test.h"
#include "trainer_world.h"

#include <stdarg.h>

typedef struct cmodel {
    world w;                /* first */
    const lc_state *module; /* the case's "module" */
    int n_val;
    int64_t n_vals[8];
} cmodel;

/* ---- reading a case ---- */
static int64_t get_int(const lc_state *s, const char *key, int64_t otherwise)
{
    int64_t v;
    return s && lc_state_get_int(s, key, &v) == LC_OK ? v : otherwise;
}
static double get_double(const lc_state *s, const char *key, double otherwise)
{
    double v;
    return s && lc_state_get_double(s, key, &v) == LC_OK ? v : otherwise;
}
static bool get_bool(const lc_state *s, const char *key, bool otherwise)
{
    bool v;
    return s && lc_state_get_bool(s, key, &v) == LC_OK ? v : otherwise;
}
static const char *get_text(const lc_state *s, const char *key, const char *otherwise)
{
    const char *v;
    return s && lc_state_get_text(s, key, &v) == LC_OK ? v : otherwise;
}
static const lc_state *get(const lc_state *s, const char *key)
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
    return lc_state_get_double(s, NULL, &v) == LC_OK ? v : NAN;
}

static lc_log_args log_args(const lc_state *o)
{
    lc_log_args a = {.prog_bar = get_bool(o, "prog_bar", false), .site = LC_HERE};
    if (get(o, "on_step")) a.on_step = get_bool(o, "on_step", false) ? LC_ON : LC_OFF;
    if (get(o, "on_epoch")) a.on_epoch = get_bool(o, "on_epoch", false) ? LC_ON : LC_OFF;
    if (get(o, "logger")) a.logger = get_bool(o, "logger", false) ? LC_ON : LC_OFF;
    if (get(o, "add_dataloader_idx")) a.add_dataloader_idx = get_bool(o, "add_dataloader_idx", false) ? LC_ON : LC_OFF;
    const char *reduce = get_text(o, "reduce_fx", "mean");
    a.reduce_fx = !strcmp(reduce, "sum")   ? LC_LOG_SUM
                  : !strcmp(reduce, "min") ? LC_LOG_MIN
                  : !strcmp(reduce, "max") ? LC_LOG_MAX
                                           : LC_LOG_MEAN;
    a.batch_size = get_int(o, "batch_size", 0);
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
            lc_log_value_at(self, get_text(o, "name", "?"), get_double(o, "value", 0), log_args(o));
        else
            lc_log_at(self, get_text(o, "name", "?"), lc_detach(loss), log_args(o));
    }
    if (at(get(m->module, "stop_at"), epoch, i)) lc_trainer_stop(t);
    if (at(get(m->module, "skip_at"), epoch, i)) return NULL;
    if (self->ops->manual_optimization) {
        for (int k = 0; lc_manual_optimizer(self, k); k++) {
            if (lc_manual_zero_grad(self) < 0) return NULL;
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
        lc_log_value_at(self, get_text(lc_state_at(logs, k), "name", "?"), value, log_args(lc_state_at(logs, k)));
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
        lc_log_value_at(self, get_text(o, "name", "?"), number(lc_state_at(values, e < n ? e : n - 1)), log_args(o));
    }
    return LC_OK;
}

static lc_status c_configure_optimizers(lc_module *self, lc_optimizers *out)
{
    cmodel *m = (cmodel *)self;
    WORLD_TRACE(self, "configure_optimizers");
    double lr = get_double(m->module, "lr", 0);
    for (int64_t i = 0; i < get_int(m->module, "optimizers", 1); i++)
        LC_TRY(lc_optimizers_add(out, lc_sgd(self, .lr = lr > 0 ? lr : LC_ZERO)));
    const lc_state *s = get(m->module, "scheduler");
    if (!s) return LC_OK;
    lc_optimizer *opt = out->optimizers[0].optimizer;
    lc_scheduler_config c = {.frequency = get_int(s, "frequency", 1), .monitor = get_text(s, "monitor", NULL)};
    if (!strcmp(get_text(s, "interval", "epoch"), "step")) c.interval = LC_INTERVAL_STEP;
    if (get(s, "strict")) c.not_strict = !get_bool(s, "strict", true);
    c.scheduler = !strcmp(get_text(s, "kind", "step"), "step")
                      ? lc_step_lr(opt, .step_size = 1, .gamma = 0.5)
                      : lc_reduce_lr_on_plateau(opt, .patience = -1, .factor = 0.5);
    return lc_optimizers_add_scheduler(out, c);
}

static lc_status c_val_dataloader(lc_module *self, lc_loaders *out)
{
    cmodel *m = (cmodel *)self;
    for (int i = 0; i < m->n_val; i++)
        LC_TRY(lc_loaders_add(out, numbers_new(m->n_vals[i], m->w.batch_size, m->w.unsized)));
    return LC_OK;
}

/* ---- callbacks of a case ---- */
typedef struct accumulation {
    const lc_state *scheduling;
} accumulation;
static lc_status acc_epoch_start(void *self, lc_trainer *t)
{
    const lc_state *s = ((accumulation *)self)->scheduling;
    int64_t k = 1, v;
    for (int64_t i = 0; i < lc_state_length(s); i++)
        if (atoll(lc_state_key_at(s, i)) <= lc_trainer_current_epoch(t) &&
            lc_state_get_int(lc_state_at(s, i), NULL, &v) == LC_OK)
            k = v;
    return lc_trainer_set_accumulate_grad_batches(t, k);
}
static const lc_callback_ops accumulation_ops = {LC_CALLBACK_OPS_INIT("GradientAccumulationScheduler"),
                                                 .on_train_epoch_start = acc_epoch_start, .free = free};

static unsigned char choice(const lc_state *a, const char *key)
{
    return get(a, key) && lc_state_kind_of(get(a, key)) == LC_STATE_BOOL ? (get_bool(a, key, false) ? LC_ON : LC_OFF)
                                                                         : LC_AUTO;
}

static lc_status make_callback(const lc_state *spec, lc_callback *out)
{
    const char *type = get_text(spec, "type", "?");
    const lc_state *a = get(spec, "args");
    if (!strcmp(type, "ModelCheckpoint")) {
        int64_t k = get_int(a, "save_top_k", 1);
        lc_model_checkpoint_args args = {.filename = get_text(a, "filename", NULL),
                                         .monitor = get_text(a, "monitor", NULL),
                                         .mode = get_text(a, "mode", NULL),
                                         .save_top_k = k ? k : LC_SAVE_NONE,
                                         .save_last = choice(a, "save_last"),
                                         .every_n_train_steps = get_int(a, "every_n_train_steps", 0),
                                         .every_n_epochs = get_int(a, "every_n_epochs", 0),
                                         .save_on_train_epoch_end = choice(a, "save_on_train_epoch_end"),
                                         .save_on_exception = get_bool(a, "save_on_exception", false),
                                         .auto_insert_metric_name = choice(a, "auto_insert_metric_name"),
                                         .enable_version_counter = choice(a, "enable_version_counter")};
        return lc_model_checkpoint_new(&args, out);
    }
    if (!strcmp(type, "EarlyStopping")) {
        int64_t p = get_int(a, "patience", 3);
        lc_early_stopping_args args = {.monitor = get_text(a, "monitor", NULL),
                                       .mode = get_text(a, "mode", NULL),
                                       .patience = p ? p : LC_SAVE_NONE,
                                       .min_delta = get_double(a, "min_delta", 0),
                                       .has_stopping_threshold = get(a, "stopping_threshold") != NULL,
                                       .stopping_threshold = get_double(a, "stopping_threshold", 0),
                                       .has_divergence_threshold = get(a, "divergence_threshold") != NULL,
                                       .divergence_threshold = get_double(a, "divergence_threshold", 0),
                                       .strict = choice(a, "strict"),
                                       .check_finite = choice(a, "check_finite"),
                                       .check_on_train_epoch_end = choice(a, "check_on_train_epoch_end")};
        return lc_early_stopping_new(&args, out);
    }
    if (!strcmp(type, "LearningRateMonitor")) {
        lc_learning_rate_monitor_args args = {.logging_interval = get_text(a, "logging_interval", NULL)};
        return lc_learning_rate_monitor_new(&args, out);
    }
    if (!strcmp(type, "GradientAccumulationScheduler")) {
        accumulation *x = malloc(sizeof *x);
        x->scheduling = get(a, "scheduling");
        *out = (lc_callback){&accumulation_ops, x};
        return LC_OK;
    }
    return lc_fail(LC_ERR_UNSUPPORTED, "no callback %s", type);
}

static lc_status set_options(lc_trainer_options *o, const lc_state *trainer)
{
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    for (int64_t i = 0; i < lc_state_length(trainer); i++) {
        const char *key = lc_state_key_at(trainer, i), *text;
        const lc_state *v = lc_state_at(trainer, i);
        char buffer[64];
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
            snprintf(buffer, sizeof buffer, "%lld", (long long)get_int(v, NULL, 0));
            text = buffer;
            break;
        case LC_STATE_DOUBLE:
            snprintf(buffer, sizeof buffer, "%g", get_double(v, NULL, 0));
            if (!strpbrk(buffer, ".e")) strcat(buffer, ".0");
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
typedef struct outcome {
    trace tr;
    char *rows;
    lc_status error;
    char message[1024];
    int64_t global_step, current_epoch;
    bool should_stop, ran;
    double weight;
    char metrics[2048], early[512], checkpoints[1024], files[4096], result[1024];
} outcome;

static void add(char *text, size_t size, const char *format, ...) LC_PRINTF(3, 4);
static void add(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}
static void add_number(char *text, size_t size, double v)
{
    if (isnan(v))
        add(text, size, "nan");
    else if (isinf(v))
        add(text, size, v > 0 ? "inf" : "-inf");
    else
        add(text, size, "%g", round(v * 1e6) / 1e6 + 0.0);
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
        if (!strcmp(base, name)) {
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
    out->weight = world_weight(&m->w);
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

static lc_status run_once(const lc_state *c, const char *root, const char *ckpt, const lc_state *more, outcome *out,
                          memory_logger *rows)
{
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
    if (!m.n_val) ops.val_dataloader = NULL;
    lc_trainer_options o = world_options(root);
    o.run_name = "logs";
    o.handle_signals = false;
    lc_logger logger = {&memory_ops, rows};
    if (rows) {
        o.loggers = &logger;
        o.n_loggers = 1;
    }
    status = set_options(&o, get(c, "trainer"));
    if (status >= 0 && more) status = set_options(&o, more);
    if (get_bool(c, "trace", true)) callbacks[n++] = (lc_callback){&traced_ops, &m.w.tr};
    const lc_state *list = get(c, "callbacks");
    for (int64_t i = 0; status >= 0 && i < lc_state_length(list); i++)
        status = make_callback(lc_state_at(list, i), &callbacks[n++]);
    o.callbacks = callbacks;
    o.n_callbacks = n;
    if (status >= 0) status = lc_trainer_new(&o, &t);
    if (status >= 0) {
        lc_run_args args = {.ckpt_path = ckpt};
        const char *action = get_text(c, "action", "fit");
        if (!strcmp(action, "fit"))
            status = lc_trainer_fit(t, &m.w.base, &args);
        else if (!strcmp(action, "validate"))
            status = lc_trainer_validate(t, &m.w.base, &args);
        else if (!strcmp(action, "test"))
            status = lc_trainer_test(t, &m.w.base, &args);
        else
            status = lc_trainer_predict(t, &m.w.base, &args);
        char message[1024];
        snprintf(message, sizeof message, "%s", lc_error_message());
        out->result[0] = 0;
        for (int i = 0; i < m.n_val && (!strcmp(action, "validate") || !strcmp(action, "test")); i++) {
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

/* ---- comparing ---- */
static void expected_metrics(const lc_state *o, char *text, size_t size)
{
    text[0] = 0;
    for (int64_t i = 0; i < lc_state_length(o); i++) {
        const lc_state *v = lc_state_at(o, i);
        add(text, size, "%s=", lc_state_key_at(o, i));
        if (lc_state_kind_of(v) == LC_STATE_TEXT)
            add(text, size, "%s", get_text(v, NULL, ""));
        else
            add_number(text, size, get_double(v, NULL, NAN));
        add(text, size, " ");
    }
}

static void expected_number(const lc_state *v, char *text, size_t size)
{
    if (lc_state_kind_of(v) == LC_STATE_TEXT)
        add(text, size, "%s", get_text(v, NULL, ""));
    else if (lc_state_kind_of(v) == LC_STATE_NULL)
        add(text, size, "none");
    else
        add_number(text, size, get_double(v, NULL, NAN));
}

static bool differ(const char *what, const char *got, const char *want)
{
    size_t i = 0;
    if (!strcmp(got, want)) return false;
    while (got[i] && got[i] == want[i]) i++;
    size_t from = i > 120 ? i - 120 : 0;
    printf("    %s differs at %zu:\n      got  ...%.240s\n      want ...%.240s\n", what, i, got + from, want + from);
    return true;
}

/* "error: RuntimeError" etc. as a class of lightc's codes */
static bool same_error(const char *want, lc_status got)
{
    if (!want) return got >= 0;
    if (!strcmp(want, "MisconfigurationException") || !strcmp(want, "ValueError") || !strcmp(want, "TypeError"))
        return got == LC_ERR_CONFIG || got == LC_ERR_ARGUMENT;
    if (!strcmp(want, "RuntimeError")) return got == LC_ERR_STATE || got == LC_ERR_USER;
    return got < 0;
}

static int run_case(const lc_state *c, const lc_state *want)
{
    static memory_logger rows;
    char root[256], text[65536], *names[100];
    outcome out = {0};
    bool bad = false;
    int n = 0;
    memset(&rows, 0, sizeof rows);
    if (!world_dir(root, sizeof root)) return 1;
    bool logger = get_bool(c, "logger", true);
    out.error = run_once(c, root, NULL, NULL, &out, logger ? &rows : NULL);
    const lc_state *resume = get(c, "resume");
    if (resume && out.error >= 0) {
        char path[4096];
        if (find_file(root, get_text(resume, "file", "?"), path, sizeof path)) {
            char mark[] = "-- resume --";
            trace_add(&out.tr, NULL, mark);
            out.error = run_once(c, root, path, get(resume, "trainer"), &out, NULL);
        } else {
            printf("    no file %s to resume from\n", get_text(resume, "file", "?"));
            bad = true;
        }
    }
    const char *error = get_text(want, "error", NULL);
    if (!same_error(error, out.error)) {
        printf("    error: got %d (%s), want %s (%s)\n", out.error, out.message, error ? error : "none",
               get_text(want, "message", ""));
        bad = true;
    }
    const lc_state *final = get(want, "final");
    if (final && out.ran) {
        char got[256], wanted[256] = "";
        snprintf(got, sizeof got, "step %lld epoch %lld stop %d weight ", (long long)out.global_step,
                 (long long)out.current_epoch, out.should_stop);
        add_number(got, sizeof got, out.weight);
        snprintf(wanted, sizeof wanted, "step %lld epoch %lld stop %d weight ",
                 (long long)get_int(final, "global_step", -1), (long long)get_int(final, "current_epoch", -1),
                 get_bool(final, "should_stop", false));
        expected_number(get(final, "weight"), wanted, sizeof wanted);
        bad |= differ("final", got, wanted);
        expected_metrics(get(final, "callback_metrics"), text, sizeof text);
        bad |= differ("callback_metrics", out.metrics, text);
        const lc_state *es = get(final, "early_stopping"), *mc = get(final, "checkpoints");
        text[0] = 0;
        if (es) {
            add(text, sizeof text, "%lld %lld ", (long long)get_int(es, "stopped_epoch", -1),
                (long long)get_int(es, "wait_count", -1));
            expected_number(get(es, "best_score"), text, sizeof text);
            add(text, sizeof text, " %s", get_text(es, "reason", "?"));
        }
        bad |= differ("early_stopping", out.early, text);
        text[0] = 0;
        for (int64_t i = 0; i < lc_state_length(mc); i++) {
            const lc_state *o = lc_state_at(mc, i);
            add(text, sizeof text, "best=%s score=", get_text(o, "best", ""));
            expected_number(get(o, "score"), text, sizeof text);
            add(text, sizeof text, " last=%s;", get_text(o, "last", ""));
        }
        bad |= differ("checkpoints", out.checkpoints, text);
    }
    /* trace */
    if (get_bool(c, "trace", true)) {
        const lc_state *list = get(want, "trace");
        trace tr = {0};
        for (int64_t i = 0; i < lc_state_length(list); i++) {
            const lc_state *r = lc_state_at(list, i);
            char item[128];
            int64_t e = -1, s = -1;
            if (lc_state_length(r) == 3 && (lc_state_get_int(lc_state_at(r, 1), NULL, &e) < 0 ||
                                            lc_state_get_int(lc_state_at(r, 2), NULL, &s) < 0))
                e = -2;
            snprintf(item, sizeof item, "%s:%lld,%lld ", get_text(lc_state_at(r, 0), NULL, "?"), (long long)e,
                     (long long)s);
            size_t k = strlen(item);
            if (tr.n + k + 256 > tr.cap) tr.text = realloc(tr.text, tr.cap = 2 * tr.cap + 4096);
            memcpy(tr.text + tr.n, item, k + 1);
            tr.n += k;
        }
        /* Rule: teardown always follows an error. */
        if (error && tr.text && strstr(tr.text, "cb.on_exception")) {
            char item[128];
            snprintf(item, sizeof item, "cb.teardown:%lld,%lld m.teardown:%lld,%lld ", (long long)out.current_epoch,
                     (long long)out.global_step, (long long)out.current_epoch, (long long)out.global_step);
            strcpy(tr.text + tr.n, item);
        }
        bad |= differ("trace", out.tr.text ? out.tr.text : "", tr.text ? tr.text : "");
        free(tr.text);
    }
    /* rows */
    text[0] = 0;
    const lc_state *list = get(want, "rows");
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        const lc_state *r = lc_state_at(list, i);
        add(text, sizeof text, "step=%s", get_text(r, "step", "?"));
        if (get(r, "epoch")) add(text, sizeof text, " epoch=%s", get_text(r, "epoch", "?"));
        for (int64_t k = 0; k < lc_state_length(r); k++) {
            const char *key = lc_state_key_at(r, k);
            if (!strcmp(key, "step") || !strcmp(key, "epoch")) continue;
            add(text, sizeof text, " %s=", key);
            expected_number(lc_state_at(r, k), text, sizeof text);
        }
        add(text, sizeof text, "|");
    }
    if (logger) bad |= differ("rows", rows.text, text);
    /* files */
    char files[8192] = "";
    text[0] = 0;
    list_files(root, root, names, &n);
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 0; i < n; i++) {
        add(files, sizeof files, "%s ", names[i]);
        free(names[i]);
    }
    list = get(want, "files");
    for (int64_t i = 0; i < lc_state_length(list); i++)
        add(text, sizeof text, "%s ", get_text(lc_state_at(list, i), NULL, "?"));
    bad |= differ("files", files, text);
    /* result */
    const lc_state *result = get(want, "result");
    if (result) {
        text[0] = 0;
        for (int64_t i = 0; i < lc_state_length(result); i++) {
            const lc_state *r = lc_state_at(result, i);
            if (lc_state_kind_of(r) == LC_STATE_OBJECT) {
                char one[1024];
                expected_metrics(r, one, sizeof one);
                add(text, sizeof text, "%s; ", one);
            } else {
                expected_number(r, text, sizeof text);
                add(text, sizeof text, "; ");
            }
        }
        bad |= differ("result", out.result, text);
    }
    free(out.tr.text);
    world_remove(root);
    return bad;
}

static lc_state *read_json(const char *path)
{
    FILE *f = fopen(path, "rb");
    lc_state *s = NULL;
    if (!f) return NULL;
    char *text = malloc(8 << 20);
    size_t n = fread(text, 1, 8 << 20, f);
    fclose(f);
    if (lc_state_parse(text, n, &s) < 0) printf("%s: %s\n", path, lc_error_message());
    free(text);
    return s;
}

int main(int argc, char **argv)
{
    char cases_path[4200], expected_path[4200];
    const char *shared = test_shared_dir();
    int passed = 0, failed = 0, skipped = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc >= 3) {
        snprintf(cases_path, sizeof cases_path, "%s", argv[1]);
        snprintf(expected_path, sizeof expected_path, "%s", argv[2]);
    } else if (shared) {
        snprintf(cases_path, sizeof cases_path, "%s/conformance/cases.json", shared);
        snprintf(expected_path, sizeof expected_path, "%s/conformance/expected.json", shared);
    } else {
        printf("SKIP: there are no recordings here\n0 passed, 0 failed, 0 skipped\n");
        return 77;
    }
    lc_state *cases = read_json(cases_path), *expected = read_json(expected_path);
    if (!cases || !expected) {
        printf("cannot read the recordings\n");
        return 1;
    }
    const lc_state *list = get(expected, "cases");
    for (int64_t i = 0; i < lc_state_length(cases); i++) {
        const lc_state *c = lc_state_at(cases, i), *want = NULL;
        const char *name = get_text(c, "name", "?");
        bool wanted = argc < 4;
        for (int k = 3; k < argc; k++) wanted |= strstr(name, argv[k]) != NULL;
        if (!wanted) continue;
        for (int64_t k = 0; k < lc_state_length(list); k++)
            if (!strcmp(get_text(lc_state_at(list, k), "name", ""), name)) want = lc_state_at(list, k);
        if (!want) {
            skipped++;
            continue;
        }
        if (run_case(c, want)) {
            printf("FAIL %s\n", name);
            failed++;
        } else {
            passed++;
        }
    }
    lc_state_free(cases);
    lc_state_free(expected);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : passed ? 0 : 77;
}
