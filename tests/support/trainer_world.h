/* SPDX-License-Identifier: Apache-2.0 */
/* The module, loader, callback and logger of the trainer's tests: one weight w (starts at 1); sample i of a loader is
 * the number i; the training loss is w * mean(batch). Hooks write a trace "who.hook:epoch,step ". */
#ifndef LC_TESTS_TRAINER_WORLD_H
#define LC_TESTS_TRAINER_WORLD_H

#include <dirent.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lightc/lightc.h>

/* ---- a place for files ---- */
static inline void world_remove(const char *path)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) printf("  cannot remove %s\n", path);
}

static inline const char *world_dir(char *buffer, size_t size)
{
    snprintf(buffer, size, "%s/lightc-test-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(buffer);
}

/* For on_train_batch_end of a module: saves stop.ckpt in the root directory, and fails. */
static inline lc_status world_die(lc_module *self)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/stop.ckpt", lc_trainer_get_options(self->trainer)->default_root_dir);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

/* Names in a directory that end in `suffix`, sorted, with a space after each. */
static inline const char *world_list(const char *dir, const char *suffix, char *out, size_t size)
{
    struct dirent **names;
    size_t n = 0;
    int count = scandir(dir, &names, NULL, alphasort);
    out[0] = 0;
    for (int i = 0; i < count; i++) {
        size_t a = strlen(names[i]->d_name), b = strlen(suffix);
        if (names[i]->d_name[0] != '.' && a >= b && !strcmp(names[i]->d_name + a - b, suffix) && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s ", names[i]->d_name);
        free(names[i]);
    }
    if (count >= 0) free(names);
    return out;
}

/* ---- the loader: batches of the numbers 0, 1, 2, ... ---- */
typedef struct numbers {
    int64_t n, batch_size, next;
    bool unsized;
    float *data;
    lc_batch batch;
    lc_tensor *x;
} numbers;

static inline lc_status numbers_begin(void *self, int64_t epoch, int64_t start)
{
    (void)epoch;
    ((numbers *)self)->next = start;
    return LC_OK;
}
static inline lc_status numbers_next(void *self, lc_batch **out)
{
    numbers *d = self;
    *out = NULL;
    if (d->next >= d->n) return LC_OK;
    for (int64_t i = 0; i < d->batch_size; i++) d->data[i] = (float)(d->next * d->batch_size + i);
    lc_input_set(d->x, d->data, d->batch_size);
    d->batch = (lc_batch){.x = d->x, .n = 1, .tensors = {d->x}, .names = {"x"}, .size = d->batch_size};
    d->next++;
    *out = &d->batch;
    return LC_OK;
}
static inline int64_t numbers_length(void *self, int64_t epoch)
{
    numbers *d = self;
    (void)epoch;
    return d->unsized ? -1 : d->n;
}
static inline void numbers_free(void *self)
{
    numbers *d = self;
    lc_tensor_unref(d->x);
    free(d->data);
    free(d);
}
static const lc_dataloader_ops numbers_ops = {
    LC_DATALOADER_OPS_INIT, .name = "numbers",        .begin = numbers_begin,
    .next = numbers_next,   .length = numbers_length, .free = numbers_free,
};

static inline lc_dataloader *numbers_new(int64_t n, int64_t batch_size, bool unsized)
{
    numbers *d = calloc(1, sizeof *d);
    lc_dataloader *out = NULL;
    int64_t shape[] = {batch_size};
    d->n = n;
    d->batch_size = batch_size;
    d->unsized = unsized;
    d->data = aligned_alloc(64, ((size_t)batch_size * sizeof(float) + 63) / 64 * 64);
    if (lc_input_new(LC_F32, 1, shape, LC_ROW_MAJOR, d->data, &d->x) != LC_OK) return NULL;
    if (lc_dataloader_from_ops(&numbers_ops, d, &out) != LC_OK) return NULL;
    return out;
}

/* ---- the trace ---- */
typedef struct trace {
    char *text;
    size_t n, cap;
} trace;

static inline void trace_add(trace *tr, lc_trainer *t, const char *who)
{
    char item[128];
    int n = snprintf(item, sizeof item, "%s:%lld,%lld ", who, (long long)(t ? lc_trainer_current_epoch(t) : -1),
                     (long long)(t ? lc_trainer_global_step(t) : -1));
    if (tr->n + (size_t)n + 1 > tr->cap) {
        tr->cap = 2 * tr->cap + 4096;
        tr->text = realloc(tr->text, tr->cap);
    }
    memcpy(tr->text + tr->n, item, (size_t)n + 1);
    tr->n += (size_t)n;
}

/* ---- the module ---- */
typedef struct world {
    lc_module base;
    lc_tensor *w;
    trace tr;
    double lr;
    lc_scheduler *(*scheduler)(lc_optimizer *opt);
    lc_scheduler_config scheduler_config;
    int64_t n_train, n_val, n_val2, batch_size;
    bool unsized;
    int64_t stop_at[2], skip_at[2], end_at[2], raise_at[2]; /* epoch, batch; -1: never */
    const double *val_script;
    int n_script;
    int val_runs;
    void (*log_train)(lc_module *self, lc_tensor *loss);
    void (*log_val)(lc_module *self, double value);
    void (*log_epoch_end)(lc_module *self);
} world;

static inline bool world_at(const world *m, const int64_t *at, int64_t batch)
{
    return at[0] == lc_trainer_current_epoch(m->base.trainer) && at[1] == batch;
}

#define WORLD_PLAIN(hook)                                                                                              \
    static inline lc_status world_##hook(lc_module *self)                                                              \
    {                                                                                                                  \
        trace_add(&((world *)self)->tr, self->trainer, "m." #hook);                                                    \
        return LC_OK;                                                                                                  \
    }
WORLD_PLAIN(on_fit_start)
WORLD_PLAIN(on_fit_end)
WORLD_PLAIN(on_train_start)
WORLD_PLAIN(on_train_end)
WORLD_PLAIN(on_train_epoch_start)
WORLD_PLAIN(on_after_backward)
WORLD_PLAIN(on_validation_start)
WORLD_PLAIN(on_validation_end)
WORLD_PLAIN(on_validation_epoch_end)
WORLD_PLAIN(on_test_start)
WORLD_PLAIN(on_test_epoch_start)
WORLD_PLAIN(on_test_epoch_end)
WORLD_PLAIN(on_test_end)
WORLD_PLAIN(on_predict_start)
WORLD_PLAIN(on_predict_epoch_start)
WORLD_PLAIN(on_predict_epoch_end)
WORLD_PLAIN(on_predict_end)

#define WORLD_TRACE(self, name) trace_add(&((world *)(self))->tr, (self)->trainer, "m." name)

static inline lc_status world_on_train_epoch_end(lc_module *self)
{
    world *m = (world *)self;
    WORLD_TRACE(self, "on_train_epoch_end");
    if (m->log_epoch_end) m->log_epoch_end(self);
    return LC_OK;
}
static inline lc_status world_on_validation_epoch_start(lc_module *self)
{
    WORLD_TRACE(self, "on_validation_epoch_start");
    if (!lc_trainer_sanity_checking(self->trainer)) ((world *)self)->val_runs++;
    return LC_OK;
}
static inline lc_status world_setup(lc_module *self, lc_stage stage)
{
    (void)stage;
    WORLD_TRACE(self, "setup");
    return LC_OK;
}
static inline lc_status world_teardown(lc_module *self, lc_stage stage)
{
    (void)stage;
    WORLD_TRACE(self, "teardown");
    return LC_OK;
}
static inline lc_status world_on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    world *m = (world *)self;
    (void)b;
    WORLD_TRACE(self, "on_train_batch_start");
    return world_at(m, m->end_at, i) ? LC_SKIP : LC_OK;
}
static inline lc_status world_on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    WORLD_TRACE(self, "on_train_batch_end");
    return LC_OK;
}
static inline lc_status world_on_validation_batch_start(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)b, (void)i, (void)d;
    WORLD_TRACE(self, "on_validation_batch_start");
    return LC_OK;
}
static inline lc_status world_on_validation_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b,
                                                      int64_t i, int d)
{
    (void)o, (void)b, (void)i, (void)d;
    WORLD_TRACE(self, "on_validation_batch_end");
    return LC_OK;
}
static inline lc_status world_on_test_batch_start(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)b, (void)i, (void)d;
    WORLD_TRACE(self, "on_test_batch_start");
    return LC_OK;
}
static inline lc_status world_on_test_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i,
                                                int d)
{
    (void)o, (void)b, (void)i, (void)d;
    WORLD_TRACE(self, "on_test_batch_end");
    return LC_OK;
}
static inline lc_status world_on_predict_batch_start(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)b, (void)i, (void)d;
    WORLD_TRACE(self, "on_predict_batch_start");
    return LC_OK;
}
static inline lc_status world_on_predict_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i,
                                                   int d)
{
    (void)o, (void)b, (void)i, (void)d;
    WORLD_TRACE(self, "on_predict_batch_end");
    return LC_OK;
}
static inline lc_status world_on_before_zero_grad(lc_module *self, lc_optimizer *opt)
{
    (void)opt;
    WORLD_TRACE(self, "on_before_zero_grad");
    return LC_OK;
}
static inline lc_status world_optimizer_zero_grad(lc_module *self, int64_t epoch, int64_t batch_idx, lc_optimizer *opt)
{
    (void)epoch, (void)batch_idx, (void)opt;
    WORLD_TRACE(self, "optimizer_zero_grad");
    lc_zero_grad(lc_trainer_graph(self->trainer));
    return LC_OK;
}
static inline lc_status world_on_before_backward(lc_module *self, lc_tensor *loss)
{
    (void)loss;
    WORLD_TRACE(self, "on_before_backward");
    return LC_OK;
}
static inline lc_status world_backward(lc_module *self, lc_tensor *loss)
{
    WORLD_TRACE(self, "backward");
    lc_backward(loss);
    return LC_OK;
}
static inline lc_status world_on_before_optimizer_step(lc_module *self, lc_optimizer *opt)
{
    (void)opt;
    WORLD_TRACE(self, "on_before_optimizer_step");
    return LC_OK;
}
static inline lc_status world_configure_gradient_clipping(lc_module *self, lc_optimizer *opt, double v, const char *a)
{
    WORLD_TRACE(self, "configure_gradient_clipping");
    return lc_clip_gradients(self, opt, v, a);
}
static inline lc_status world_optimizer_step(lc_module *self, int64_t epoch, int64_t i, lc_optimizer *opt,
                                             lc_closure *c)
{
    WORLD_TRACE(self, "optimizer_step");
    return lc_default_optimizer_step(self, epoch, i, opt, c);
}
static inline lc_status world_lr_scheduler_step(lc_module *self, lc_scheduler *s, const double *metric)
{
    WORLD_TRACE(self, "lr_scheduler_step");
    return lc_default_lr_scheduler_step(self, s, metric);
}
static inline lc_status world_on_save_checkpoint(lc_module *self, lc_state *s)
{
    (void)s;
    WORLD_TRACE(self, "on_save_checkpoint");
    return LC_OK;
}
static inline lc_status world_on_load_checkpoint(lc_module *self, const lc_state *s)
{
    (void)s;
    WORLD_TRACE(self, "on_load_checkpoint");
    return LC_OK;
}

static inline lc_tensor *world_training_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    world *m = (world *)self;
    WORLD_TRACE(self, "training_step");
    if (world_at(m, m->raise_at, i)) {
        lc_fail(LC_ERR_USER, "scripted failure");
        return NULL;
    }
    lc_tensor *loss = lc_mul(m->w, lc_mean(batch->x));
    if (m->log_train) m->log_train(self, loss);
    if (world_at(m, m->stop_at, i)) lc_trainer_stop(self->trainer);
    return world_at(m, m->skip_at, i) ? NULL : loss;
}

static inline double batch_mean(const lc_batch *b)
{
    float v[1024];
    double sum = 0;
    int64_t n = lc_tensor_numel(b->x);
    if (n > 1024 || lc_tensor_read(b->x, v, (size_t)n * sizeof *v) != LC_OK) return NAN;
    for (int64_t i = 0; i < n; i++) sum += v[i];
    return sum / (double)n;
}

static inline lc_status world_validation_step(lc_module *self, const lc_batch *batch, int64_t i, int d)
{
    world *m = (world *)self;
    double value = batch_mean(batch);
    (void)i, (void)d;
    WORLD_TRACE(self, "validation_step");
    if (m->val_script && !lc_trainer_sanity_checking(self->trainer))
        value = m->val_script[m->val_runs < m->n_script ? m->val_runs : m->n_script - 1];
    if (m->log_val)
        m->log_val(self, value);
    else
        lc_log_value(self, "val_loss", value);
    return LC_OK;
}
static inline lc_status world_test_step(lc_module *self, const lc_batch *batch, int64_t i, int d)
{
    (void)i, (void)d;
    WORLD_TRACE(self, "test_step");
    lc_log_value(self, "test_loss", batch_mean(batch));
    return LC_OK;
}
static inline lc_tensor *world_predict_step(lc_module *self, const lc_batch *batch, int64_t i, int d)
{
    (void)i, (void)d;
    WORLD_TRACE(self, "predict_step");
    return lc_mul_scalar(batch->x, 2.0);
}

static inline lc_status world_configure_optimizers(lc_module *self, lc_optimizers *out)
{
    world *m = (world *)self;
    WORLD_TRACE(self, "configure_optimizers");
    lc_optimizer *opt = lc_sgd(self, .lr = m->lr);
    LC_TRY(lc_optimizers_add(out, opt));
    if (!m->scheduler) return LC_OK;
    lc_scheduler_config c = m->scheduler_config;
    c.scheduler = m->scheduler(opt);
    return lc_optimizers_add_scheduler(out, c);
}
static inline lc_status world_train_dataloader(lc_module *self, lc_loaders *out)
{
    world *m = (world *)self;
    return lc_loaders_add(out, numbers_new(m->n_train, m->batch_size, m->unsized));
}
static inline lc_status world_val_dataloader(lc_module *self, lc_loaders *out)
{
    world *m = (world *)self;
    LC_TRY(lc_loaders_add(out, numbers_new(m->n_val, m->batch_size, m->unsized)));
    return m->n_val2 ? lc_loaders_add(out, numbers_new(m->n_val2, m->batch_size, false)) : LC_OK;
}

#define WORLD_HOOKS                                                                                                    \
    .setup = world_setup, .teardown = world_teardown, .on_fit_start = world_on_fit_start,                              \
    .on_fit_end = world_on_fit_end, .on_train_start = world_on_train_start, .on_train_end = world_on_train_end,        \
    .on_train_epoch_start = world_on_train_epoch_start, .on_train_epoch_end = world_on_train_epoch_end,                \
    .on_train_batch_start = world_on_train_batch_start, .on_train_batch_end = world_on_train_batch_end,                \
    .on_before_zero_grad = world_on_before_zero_grad, .optimizer_zero_grad = world_optimizer_zero_grad,                \
    .on_before_backward = world_on_before_backward, .backward = world_backward,                                        \
    .on_after_backward = world_on_after_backward, .on_before_optimizer_step = world_on_before_optimizer_step,          \
    .configure_gradient_clipping = world_configure_gradient_clipping, .optimizer_step = world_optimizer_step,          \
    .lr_scheduler_step = world_lr_scheduler_step, .on_validation_start = world_on_validation_start,                    \
    .on_validation_end = world_on_validation_end, .on_validation_epoch_start = world_on_validation_epoch_start,        \
    .on_validation_epoch_end = world_on_validation_epoch_end,                                                          \
    .on_validation_batch_start = world_on_validation_batch_start,                                                      \
    .on_validation_batch_end = world_on_validation_batch_end, .on_test_start = world_on_test_start,                    \
    .on_test_epoch_start = world_on_test_epoch_start, .on_test_batch_start = world_on_test_batch_start,                \
    .on_test_batch_end = world_on_test_batch_end, .on_test_epoch_end = world_on_test_epoch_end,                        \
    .on_test_end = world_on_test_end, .on_predict_start = world_on_predict_start,                                      \
    .on_predict_epoch_start = world_on_predict_epoch_start, .on_predict_batch_start = world_on_predict_batch_start,    \
    .on_predict_batch_end = world_on_predict_batch_end, .on_predict_epoch_end = world_on_predict_epoch_end,            \
    .on_predict_end = world_on_predict_end, .on_save_checkpoint = world_on_save_checkpoint,                            \
    .on_load_checkpoint = world_on_load_checkpoint, .training_step = world_training_step,                              \
    .validation_step = world_validation_step, .test_step = world_test_step, .predict_step = world_predict_step,        \
    .configure_optimizers = world_configure_optimizers, .train_dataloader = world_train_dataloader,                    \
    .val_dataloader = world_val_dataloader, .test_dataloader = world_val_dataloader,                                   \
    .predict_dataloader = world_val_dataloader

static const lc_module_ops world_ops = {LC_MODULE_OPS_INIT("world"), WORLD_HOOKS};
static const lc_module_ops world_ops_without_val = {LC_MODULE_OPS_INIT("world"), .training_step = world_training_step,
                                                    .configure_optimizers = world_configure_optimizers,
                                                    .train_dataloader = world_train_dataloader};

static inline void world_init(world *m, const lc_module_ops *ops, int64_t n_train, int64_t n_val)
{
    int64_t shape[] = {1};
    memset(m, 0, sizeof *m);
    lc_module_init(&m->base, ops, 1);
    m->w = lc_module_add_parameter(&m->base, "w", LC_F32, LC_ROW_MAJOR, 1, shape, (lc_init){.kind = LC_INIT_ONES});
    m->n_train = n_train;
    m->n_val = n_val;
    m->batch_size = 1;
    m->val_runs = -1;
    for (int i = 0; i < 2; i++) m->stop_at[i] = m->skip_at[i] = m->end_at[i] = m->raise_at[i] = -1;
}

static inline double world_weight(world *m)
{
    float w = NAN;
    return lc_tensor_read(m->w, &w, sizeof w) == LC_OK ? (double)w : NAN;
}

static inline void world_release(world *m)
{
    lc_module_release(&m->base);
    free(m->tr.text);
}

/* ---- a callback that traces ---- */
#define TRACED_PLAIN(hook)                                                                                             \
    static inline lc_status traced_##hook(void *self, lc_trainer *t)                                                   \
    {                                                                                                                  \
        trace_add(self, t, "cb." #hook);                                                                               \
        return LC_OK;                                                                                                  \
    }
TRACED_PLAIN(on_fit_start)
TRACED_PLAIN(on_fit_end)
TRACED_PLAIN(on_sanity_check_start)
TRACED_PLAIN(on_sanity_check_end)
TRACED_PLAIN(on_train_start)
TRACED_PLAIN(on_train_end)
TRACED_PLAIN(on_train_epoch_start)
TRACED_PLAIN(on_train_epoch_end)
TRACED_PLAIN(on_after_backward)
TRACED_PLAIN(on_validation_start)
TRACED_PLAIN(on_validation_end)
TRACED_PLAIN(on_validation_epoch_start)
TRACED_PLAIN(on_validation_epoch_end)
TRACED_PLAIN(on_test_start)
TRACED_PLAIN(on_test_end)
TRACED_PLAIN(on_test_epoch_start)
TRACED_PLAIN(on_test_epoch_end)
TRACED_PLAIN(on_predict_start)
TRACED_PLAIN(on_predict_end)
TRACED_PLAIN(on_predict_epoch_start)
TRACED_PLAIN(on_predict_epoch_end)
static inline lc_status traced_setup(void *self, lc_trainer *t, lc_stage s)
{
    (void)s;
    trace_add(self, t, "cb.setup");
    return LC_OK;
}
static inline lc_status traced_teardown(void *self, lc_trainer *t, lc_stage s)
{
    (void)s;
    trace_add(self, t, "cb.teardown");
    return LC_OK;
}
static inline lc_status traced_batch_start(void *self, lc_trainer *t, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    trace_add(self, t, "cb.on_train_batch_start");
    return LC_OK;
}
static inline lc_status traced_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    trace_add(self, t, "cb.on_train_batch_end");
    return LC_OK;
}
#define TRACED_EVAL(stage)                                                                                             \
    static inline lc_status traced_##stage##_batch_start(void *self, lc_trainer *t, const lc_batch *b, int64_t i,      \
                                                         int d)                                                        \
    {                                                                                                                  \
        (void)b, (void)i, (void)d;                                                                                     \
        trace_add(self, t, "cb.on_" #stage "_batch_start");                                                            \
        return LC_OK;                                                                                                  \
    }                                                                                                                  \
    static inline lc_status traced_##stage##_batch_end(void *self, lc_trainer *t, const lc_outputs *o,                 \
                                                       const lc_batch *b, int64_t i, int d)                            \
    {                                                                                                                  \
        (void)o, (void)b, (void)i, (void)d;                                                                            \
        trace_add(self, t, "cb.on_" #stage "_batch_end");                                                              \
        return LC_OK;                                                                                                  \
    }
TRACED_EVAL(validation)
TRACED_EVAL(test)
TRACED_EVAL(predict)
static inline lc_status traced_zero_grad(void *self, lc_trainer *t, lc_optimizer *o)
{
    (void)o;
    trace_add(self, t, "cb.on_before_zero_grad");
    return LC_OK;
}
static inline lc_status traced_before_backward(void *self, lc_trainer *t, lc_tensor *l)
{
    (void)l;
    trace_add(self, t, "cb.on_before_backward");
    return LC_OK;
}
static inline lc_status traced_before_step(void *self, lc_trainer *t, lc_optimizer *o)
{
    (void)o;
    trace_add(self, t, "cb.on_before_optimizer_step");
    return LC_OK;
}
static inline lc_status traced_exception(void *self, lc_trainer *t, lc_status s, const char *message)
{
    (void)s, (void)message;
    trace_add(self, t, "cb.on_exception");
    return LC_OK;
}
static inline lc_status traced_save(void *self, lc_trainer *t, lc_state *s)
{
    (void)s;
    trace_add(self, t, "cb.on_save_checkpoint");
    return LC_OK;
}
static inline lc_status traced_load(void *self, lc_trainer *t, const lc_state *s)
{
    (void)s;
    trace_add(self, t, "cb.on_load_checkpoint");
    return LC_OK;
}
static const lc_callback_ops traced_ops = {
    LC_CALLBACK_OPS_INIT("Trace"),
    .setup = traced_setup,
    .on_fit_start = traced_on_fit_start,
    .on_sanity_check_start = traced_on_sanity_check_start,
    .on_sanity_check_end = traced_on_sanity_check_end,
    .on_train_start = traced_on_train_start,
    .on_train_epoch_start = traced_on_train_epoch_start,
    .on_train_batch_start = traced_batch_start,
    .on_before_zero_grad = traced_zero_grad,
    .on_before_backward = traced_before_backward,
    .on_after_backward = traced_on_after_backward,
    .on_before_optimizer_step = traced_before_step,
    .on_train_batch_end = traced_batch_end,
    .on_validation_start = traced_on_validation_start,
    .on_validation_epoch_start = traced_on_validation_epoch_start,
    .on_validation_batch_start = traced_validation_batch_start,
    .on_validation_batch_end = traced_validation_batch_end,
    .on_validation_epoch_end = traced_on_validation_epoch_end,
    .on_validation_end = traced_on_validation_end,
    .on_train_epoch_end = traced_on_train_epoch_end,
    .on_train_end = traced_on_train_end,
    .on_fit_end = traced_on_fit_end,
    .on_test_start = traced_on_test_start,
    .on_test_epoch_start = traced_on_test_epoch_start,
    .on_test_batch_start = traced_test_batch_start,
    .on_test_batch_end = traced_test_batch_end,
    .on_test_epoch_end = traced_on_test_epoch_end,
    .on_test_end = traced_on_test_end,
    .on_predict_start = traced_on_predict_start,
    .on_predict_epoch_start = traced_on_predict_epoch_start,
    .on_predict_batch_start = traced_predict_batch_start,
    .on_predict_batch_end = traced_predict_batch_end,
    .on_predict_epoch_end = traced_on_predict_epoch_end,
    .on_predict_end = traced_on_predict_end,
    .on_exception = traced_exception,
    .teardown = traced_teardown,
    .on_save_checkpoint = traced_save,
    .on_load_checkpoint = traced_load,
};

/* ---- a logger that remembers: "step=1 epoch=0 a=1 b=2|" ---- */
typedef struct memory_logger {
    char text[16384];
    size_t n;
} memory_logger;
static inline lc_status memory_start(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}
/* Text that does not fit is left out. */
static inline void memory_add(memory_logger *l, const char *format, ...)
{
    size_t room = sizeof l->text - l->n;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->n, room, format, args);
    va_end(args);
    l->n += n > 0 && (size_t)n < room ? (size_t)n : room - 1;
}
static inline lc_status memory_row(void *self, const lc_log_row *row)
{
    memory_logger *l = self;
    memory_add(l, "step=%lld", (long long)row->step);
    if (row->epoch >= 0) memory_add(l, " epoch=%lld", (long long)row->epoch);
    for (int i = 0; i < row->n; i++) memory_add(l, " %s=%.6g", row->values[i].name, row->values[i].value);
    memory_add(l, "|");
    return LC_OK;
}
static const lc_logger_ops memory_ops = {LC_LOGGER_OPS_INIT, .name = "memory", .start = memory_start,
                                         .log_row = memory_row};

/* Options for tests: quiet, no sanity check, in `dir`. */
static inline lc_trainer_options world_options(const char *dir)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    o.default_root_dir = dir;
    o.enable_progress_bar = o.enable_model_summary = LC_OFF;
    o.num_sanity_val_steps = 0;
    o.logger = "none";
    return o;
}

#endif
