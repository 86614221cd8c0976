/* SPDX-License-Identifier: Apache-2.0 */
/* Vtables of programs that were compiled with other headers: each begins with its size. The slots beyond the end of a
 * shorter one are not called, whatever they contain; a longer one, and one without a size, is an error with a message
 * that explains it. */
#include "begun.h"
#include "device/device.h"
#include "idle_ops.h"
#include "quiet_options.h"
#include "scratch.h"
#include "sources.h"

static lc_status ok(void)
{
    return LC_OK;
}

/* Slots of any type; none of them is called. */
#define ANY(type) ((type)(void (*)(void))ok)

static int64_t two_samples(void *self)
{
    (void)self;
    return 2;
}
static lc_status one_number(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){.n = 1, .fields = {{.name = "x", .dtype = LC_F32}}};
    return LC_OK;
}
static lc_status zero(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)index, (void)key, (void)scratch;
    memset(out[0], 0, sizeof(float));
    return LC_OK;
}
static int64_t epoch_of_two(void *self, int64_t epoch)
{
    (void)self, (void)epoch;
    return 2;
}
static lc_status in_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    (void)self, (void)epoch;
    for (int64_t i = 0; i < n; i++) indices[i] = i;
    return LC_OK;
}
static lc_status same_field(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    return LC_OK;
}
static lc_status copied(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst, uint64_t key,
                        void *scratch)
{
    (void)self, (void)in, (void)out, (void)key, (void)scratch;
    memcpy(dst, src, sizeof(float));
    return LC_OK;
}
static lc_status no_begin(void *self, int64_t epoch, int64_t start)
{
    (void)self, (void)epoch, (void)start;
    return LC_OK;
}
static lc_status no_batch(void *self, lc_batch **out)
{
    (void)self;
    *out = NULL;
    return LC_OK;
}
static void nothing_freed(void *self)
{
    (void)self;
}
static lc_status validated(lc_module *self, const lc_batch *batch, int64_t i, int loader)
{
    (void)self, (void)batch, (void)i, (void)loader;
    return LC_OK;
}

static lc_dataset *two_numbers(void)
{
    static const lc_dataset_ops ops = {LC_DATASET_OPS_INIT, .name = "two", .length = two_samples,
                                       .describe = one_number, .get = zero};
    lc_dataset *d;
    CHECK_OK(lc_dataset_new(&ops, NULL, &d));
    return d;
}

/* An epoch of the loader. */
static lc_status drain(lc_dataloader *l)
{
    lc_batch *batch;
    LC_TRY(lc_dataloader_begin(l, 0, 0));
    do LC_TRY(lc_dataloader_next(l, &batch));
    while (batch);
    lc_dataloader_end(l);
    return LC_OK;
}

/* Uses each kind of object, from its creation to its end. */
static lc_status use_dataset(const lc_dataset_ops *ops)
{
    lc_dataset *d;
    float value;
    LC_TRY(lc_dataset_new(ops, NULL, &d));
    lc_status s = lc_dataset_get_many(d, 1, (const int64_t[]){1}, (const uint64_t[]){0}, (void *[]){&value}, NULL);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_sampler(const lc_sampler_ops *ops)
{
    lc_sampler sampler = {ops, NULL};
    lc_dataset *d = two_numbers();
    lc_dataloader *l = NULL;
    lc_status s = lc_dataloader_new(&l, .dataset = d, .sampler = &sampler);
    if (s >= 0) s = drain(l);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_transform(const lc_transform_ops *ops)
{
    lc_dataset *d = two_numbers(), *changed = NULL;
    float value;
    lc_status s = lc_dataset_transform(d, 0, (lc_transform){ops, NULL}, &changed);
    if (s >= 0) s = lc_dataset_read(changed, 0, 0, (void *[]){&value});
    lc_dataset_unref(changed);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_dataloader(const lc_dataloader_ops *ops)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_from_ops(ops, NULL, &l));
    lc_status s = drain(l);
    if (lc_dataloader_length(l, 0) != -1) s = lc_fail(LC_ERR_INTERNAL, "a length that was not given");
    lc_dataloader_free(l);
    return s;
}

static lc_status use_metric(const lc_metric_ops *ops)
{
    lc_metric *m;
    LC_TRY(lc_metric_from_ops(ops, NULL, &m));
    lc_status s = lc_metric_is_additive(m) ? lc_fail(LC_ERR_INTERNAL, "additive by itself") : LC_OK;
    lc_metric_free(m);
    return s;
}

/* A trainer that is given such an object, and a run of one batch. */
static lc_status run_with(lc_trainer_options *o, const lc_callback *cb)
{
    lc_trainer *t = NULL;
    lc_status s = lc_trainer_new(o, &t);
    if (s >= 0 && cb) s = lc_trainer_add_callback(t, *cb);
    lc_trainer_free(t);
    return s;
}

static lc_status use_logger(const lc_logger_ops *ops)
{
    lc_fabric *f = NULL;
    lc_logger logger = {ops, NULL};
    LC_TRY(lc_fabric_new(&f, .loggers = &logger, .n_loggers = 1, .default_root_dir = fresh_dir("run")));
    lc_status s = lc_fabric_log(f, "a", 1, 0);
    lc_fabric_free(f);
    return s;
}

static lc_status use_profiler(const lc_profiler_ops *ops)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_profiler profiler = {ops, NULL};
    o.profilers = &profiler;
    o.n_profilers = 1;
    return run_with(&o, NULL);
}

static lc_status use_callback(const lc_callback_ops *ops)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_callback cb = {ops, NULL};
    return run_with(&o, &cb);
}

static lc_status use_module(const lc_module_ops *ops)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_trainer *t;
    lc_module m;
    lc_module_init(&m, ops, 1);
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m);
    lc_trainer_free(t);
    lc_module_release(&m);
    /* There is no step to train with, which is an error. */
    return s < 0 && strstr(lc_error_message(), "training_step") ? LC_OK : s;
}

static lc_status use_datamodule(const lc_datamodule_ops *ops)
{
    static const lc_module_ops net = {LC_MODULE_OPS_INIT("net"), .validation_step = validated};
    lc_trainer_options o = quiet_options(NULL);
    lc_datamodule data = {ops, NULL};
    lc_trainer *t;
    lc_module m;
    lc_module_init(&m, &net, 1);
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_validate(t, &m, .datamodule = &data);
    lc_trainer_free(t);
    lc_module_release(&m);
    lc_datamodule_release(&data);
    return s < 0 && strstr(lc_error_message(), "val_dataloader") ? LC_OK : s;
}

static lc_status use_comm(const lc_comm_ops *ops)
{
    lc_comm *c;
    lc_status s = lc_comm_new(ops, NULL, 0, 1, &c);
    /* Its required slots are missing, which is an error. */
    return s < 0 && strstr(lc_error_message(), "lacks at least one") ? LC_OK : s;
}

static lc_status use_optimizer(const lc_optimizer_ops *ops)
{
    lc_optimizer *made;
    LC_TRY(lc_optimizer_new(ops, NULL, 0, &made));
    lc_optimizer_free(made);
    return LC_OK;
}

/* The sum of the weights of `module` below. */
static lc_tensor *sum_of_weights(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)batch, (void)i;
    return lc_sum(self->tensors[0].tensor);
}

static lc_status sgd_of_weights(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static const lc_module_ops weights_ops = {LC_MODULE_OPS_INIT("weights"), .training_step = sum_of_weights,
                                          .configure_optimizers = sgd_of_weights};

static void weights_init(lc_module *m)
{
    lc_module_init(m, &weights_ops, 1);
    lc_module_add_parameter(m, "weight", LC_F32, LC_ROW_MAJOR, 1, (const int64_t[]){3}, (lc_init){0});
}

/* An epoch of a trainer, a checkpoint, and a second trainer that continues from it. */
static lc_status train_twice(const lc_precision *precision)
{
    char path[4200];
    lc_status s = LC_OK;
    snprintf(path, sizeof path, "%s/weights.ckpt", fresh_dir("run"));
    for (int i = 0; i < 2 && s >= 0; i++) {
        lc_dataset *d = two_numbers();
        lc_dataloader *l;
        lc_trainer *t = NULL;
        lc_module m;
        lc_trainer_options o = quiet_options(NULL);
        o.precision_plugin = precision;
        o.max_epochs = i + 1;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d));
        weights_init(&m);
        s = lc_trainer_new(&o, &t);
        if (s >= 0) s = lc_trainer_fit(t, &m, .train_dataloader = l, .ckpt_path = i ? path : NULL);
        if (s >= 0 && !i) s = lc_trainer_save_checkpoint(t, path, false);
        lc_trainer_free(t);
        lc_module_release(&m);
        lc_dataloader_free(l);
        lc_dataset_unref(d);
    }
    return s;
}

/* The same in a loop of the program's own. */
static lc_status loop_twice(const lc_precision *precision)
{
    char path[4200];
    lc_status s = LC_OK;
    snprintf(path, sizeof path, "%s/weights.ckpt", fresh_dir("run"));
    for (int i = 0; i < 2 && s >= 0; i++) {
        lc_fabric *f = NULL;
        lc_module m;
        weights_init(&m);
        lc_optimizer *sgd = lc_sgd(&m, .lr = 0.1);
        s = lc_fabric_new(&f, .precision_plugin = precision);
        if (s >= 0) s = lc_fabric_setup(f, &m, &sgd, 1);
        if (s >= 0 && i) s = lc_fabric_load(f, path, NULL);
        if (s >= 0) s = lc_fabric_begin(f);
        if (s >= 0) {
            lc_fabric_zero_grad(f);
            lc_fabric_backward(f, lc_sum(m.tensors[0].tensor));
            lc_fabric_step(f, sgd);
            s = lc_fabric_end(f);
        }
        if (s >= 0 && !i) s = lc_fabric_save(f, path, NULL);
        lc_fabric_free(f);
        lc_optimizer_free(sgd);
        lc_module_release(&m);
    }
    return s;
}

static lc_status use_precision(const lc_precision_ops *ops)
{
    const lc_precision precision = {ops, NULL};
    LC_TRY(train_twice(&precision));
    return loop_twice(&precision);
}

typedef lc_module_class lc_module_class_ops;

static lc_status make_weights(lc_module *self, const void *values, uint64_t seed)
{
    (void)values, (void)seed;
    weights_init(self);
    return LC_OK;
}

static lc_status use_module_class(const lc_module_class *c)
{
    lc_module *m;
    LC_TRY(lc_module_new(c, NULL, 1, &m));
    lc_module_free(m);
    return LC_OK;
}

/* As for one that a shared object has brought. */
static lc_status use_backend(const lc_backend_ops *ops)
{
    const lc_backend_ops *taken;
    LC_TRY(lc__backend_take("b", ops, &taken));
    lc_status s = ops->size < sizeof *ops && (taken->program_begin || taken->program_free)
                      ? lc_fail(LC_ERR_INTERNAL, "programs that it does not have")
                      : LC_OK;
    free((void *)(uintptr_t)taken);
    return s;
}

static const char *const hyper_names[] = {"lr", NULL}, *const no_names[] = {NULL};
static const double hyper_defaults[] = {0.1};

/* X(kind, the first slot that may be missing, the required ones) */
#define VTABLES(X)                                                                                                     \
    X(dataset, get_many, .name = "d", .length = two_samples, .describe = one_number, .get = zero)                      \
    X(sampler, free, .name = "s", .length = epoch_of_two, .order = in_order)                                           \
    X(transform, scratch_size, .name = "t", .describe = same_field, .apply = copied)                                   \
    X(dataloader, length, .name = "l", .begin = no_begin, .next = no_batch)                                            \
    X(metric, additive, .name = "m", .update = ANY(__typeof__(o.update)), .outputs = ANY(__typeof__(o.outputs)),       \
      .compute = ANY(__typeof__(o.compute)), .reset = nothing_freed, .save = ANY(__typeof__(o.save)),                  \
      .merge = ANY(__typeof__(o.merge)), .free = nothing_freed)                                                        \
    X(logger, log_hyperparameters, .name = "l", .start = no_run, .log_row = no_row)                                    \
    X(profiler, free, .name = "p", .span = no_span, .report = no_report)                                               \
    X(precision, scale_changes, .name = "p")                                                                           \
    X(backend, program_begin, .name = "b")                                                                             \
    X(callback, ranks, .name = "c")                                                                                    \
    X(module, training_step, .name = "m")                                                                              \
    X(module_class, release, .name = "m", .module_size = sizeof(lc_module), .init = make_weights)                      \
    X(datamodule, prepare_data, .name = "d")                                                                           \
    X(comm, state_bytes, .name = "c")                                                                                  \
    X(optimizer, initial_state, .name = "o", .hyper_names = hyper_names, .hyper_defaults = hyper_defaults,             \
      .state_names = no_names, .update = ANY(__typeof__(o.update)))

#define USE_ONE(kind, first, ...)                                                                                      \
    static lc_status use_one_##kind(const void *ops)                                                                   \
    {                                                                                                                  \
        return use_##kind(ops);                                                                                        \
    }
VTABLES(USE_ONE)

static void check_vtable(const char *name, void *ops, size_t size, size_t least, lc_status (*use)(const void *ops))
{
    void *shorter = begun(ops, least);
    if (use(shorter) < 0) TEST_FAIL("%s: %s", name, lc_error_message());
    free(shorter);
    *(size_t *)ops = size + 8;
    if (use(ops) >= 0 || !strstr(lc_error_message(), "newer")) TEST_FAIL("%s, larger: %s", name, lc_error_message());
    *(size_t *)ops = size;
}

#define CHECK_VTABLE(kind, first, ...)                                                                                 \
    {                                                                                                                  \
        lc_##kind##_ops o = {.size = sizeof o, __VA_ARGS__}, none = {0};                                               \
        check_vtable(#kind, &o, sizeof o, offsetof(lc_##kind##_ops, first), use_one_##kind);                           \
        CHECK(use_##kind(&none) < 0);                                                                                  \
        CHECK_CONTAINS(lc_error_message(), "_INIT");                                                                   \
    }

TEST(vtables)
{
    VTABLES(CHECK_VTABLE)
}

/* ---- each vtable in the headers is in the table above, or a function only returns it ---- */

/* Those that no program fills: schedules are added in this tree. */
static const char *const filled_here[] = {"scheduler", NULL};

static int n_vtables;

static void check_taken(const char *name, char *text)
{
    static const char *const taken[] = {
#define NAME_OF(kind, first, ...) #kind,
        VTABLES(NAME_OF) NULL};
    (void)name;
    blank_out(text);
    for (char *at = text; (at = strstr(at, "const lc_")); at++) {
        char kind[80];
        int n = 0;
        if (sscanf(at, "const lc_%79[a-z0-9_] *%n", kind, &n) != 1 || !n) continue;
        size_t length = strlen(kind);
        if (length < 7 || (strcmp(kind + length - 4, "_ops") != 0 && strcmp(kind + length - 6, "_class") != 0))
            continue;
        if (kind[length - 1] == 's' && kind[length - 2] == 'p') kind[length - 4] = 0;
        /* The type of a function that a plug-in exports is not a function that returns one to the program. */
        bool out = at[n] == '*',
             returned = !strncmp(at + n, "lc_", 3) && (at - text < 8 || strncmp(at - 8, "typedef ", 8));
        n_vtables++;
        if (!out && !returned && !is_one_of(kind, taken) && !is_one_of(kind, filled_here))
            TEST_FAIL("lc_%s%s is taken, and no row tries it", kind, strstr(kind, "_class") ? "" : "_ops");
    }
}

TEST(each_vtable_that_is_taken_has_a_row)
{
    n_vtables = 0;
    each_source("include/lightc", c_files, check_taken);
    CHECK(n_vtables > 15);
}

TEST_MAIN
