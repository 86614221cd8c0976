/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters: from every source, with the checkpoint and the loggers, and back into a model; config.json. */
#include "test.h"
#include "trainer_world.h"
#include "wave.h"

#include <unistd.h>

static char *read_text(const char *dir, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    char *text = calloc(1, 1 << 16);
    size_t n = fread(text, 1, (1 << 16) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static lc_status parse(lc_trainer_options *o, wave_values *v, const char *line)
{
    static char copy[1024];
    char *argv[32] = {(char *)"prog"};
    int argc = 1;
    *v = wave_defaults;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w && argc < 32; w = strtok(NULL, " ")) argv[argc++] = w;
    return lc_trainer_options_parse_with(o, wave_fields, WAVE_FIELDS, v, argc, argv);
}

TEST(every_kind_from_every_source)
{
    char dir[256], path[300], line[512];
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    wave_values v;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/c.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    fputs("{\"width\": 7, \"optimizer\": {\"lr\": 0.25, \"momentum\": 0.5}, \"optimizer.lr\": 0.125, \"warmup\": "
          "\"3ep\", "
          "\"max_steps\": 5}",
          f);
    fclose(f);
    setenv("LIGHTC_OPTIMIZER_MOMENTUM", "0.75", 1);
    snprintf(line, sizeof line, "--config %s --batch-size 32 --activation relu --shuffle", path);
    lc_status s = parse(&o, &v, line);
    unsetenv("LIGHTC_OPTIMIZER_MOMENTUM");
    CHECK_OK(s);
    CHECK_EQ(v.width, 7);
    CHECK_EQ(v.batch_size, 32);
    CHECK_EQ(o.max_steps, 5);
    CHECK_STR(v.activation, "relu");
    CHECK(v.optimizer.lr == 0.125 && v.optimizer.momentum == 0.75f && v.shuffle);
    CHECK(v.warmup.unit == LC_UNIT_EPOCHS && v.warmup.value == 3);
    lc_trainer_options_release(&o);

    o = (lc_trainer_options)LC_TRAINER_OPTIONS_INIT;
    CHECK_OK(parse(&o, &v, "--optimizer.lr 2 --optimizer.momentum=0.1"));
    CHECK(v.optimizer.lr == 2 && v.optimizer.momentum == 0.1f);
    lc_trainer_options_release(&o);
    CHECK_STATUS(parse(&o, &v, "--optimizer.lr 2"), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "LC_TRAINER_OPTIONS_INIT");
    o = (lc_trainer_options)LC_TRAINER_OPTIONS_INIT;
    CHECK_STATUS(parse(&o, &v, "--optimizer.lrr 2"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "\"optimizer.lr\"");
    CHECK_STATUS(parse(&o, &v, "--width 3000000000"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "whole number");
    CHECK_STATUS(parse(&o, &v, "--optimizer.momentum much"), LC_ERR_CONFIG);
    f = fopen(path, "w");
    fputs("{\"optimizer\": {\"learning\": 0.25}}", f);
    fclose(f);
    CHECK_STATUS(parse(&o, &v, line), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "optimizer.learning");
    lc_trainer_options_release(&o);
    world_remove(dir);
}

/* The hyperparameters that the logger received. */
static char logged[1024];
static lc_status log_start(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    logged[0] = 0;
    return LC_OK;
}
static lc_status log_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}
static lc_status log_hyperparameters(void *self, const lc_hparam *p, int n)
{
    (void)self;
    for (int i = 0; i < n; i++) {
        size_t at = strlen(logged);
        switch (p[i].kind) {
        case LC_HPARAM_FLOAT:
            snprintf(logged + at, sizeof logged - at, "%s=%g ", p[i].name, p[i].number);
            break;
        case LC_HPARAM_TEXT:
            snprintf(logged + at, sizeof logged - at, "%s=%s ", p[i].name, p[i].text);
            break;
        case LC_HPARAM_NONE:
            snprintf(logged + at, sizeof logged - at, "%s=none ", p[i].name);
            break;
        default:
            snprintf(logged + at, sizeof logged - at, "%s=%lld ", p[i].name, (long long)p[i].integer);
        }
    }
    return LC_OK;
}
static const lc_logger_ops spy = {LC_LOGGER_OPS_INIT, .name = "spy", .start = log_start, .log_row = log_row,
                                  .log_hyperparameters = log_hyperparameters};

static bool same_weights(lc_module *a, lc_module *b)
{
    float x[256], y[256];
    const char *const paths[] = {"l1.weight", "l1.bias", "l2.weight", "l2.bias"};
    for (int i = 0; i < 4; i++) {
        lc_tensor *p = lc_module_find(a, paths[i]), *q = lc_module_find(b, paths[i]);
        size_t n = (size_t)lc_tensor_numel(p) * sizeof *x;
        if (!q || lc_tensor_numel(p) != lc_tensor_numel(q) || n > sizeof x) return false;
        if (lc_tensor_read(p, x, n) < 0 || lc_tensor_read(q, y, n) < 0 || memcmp(x, y, n) != 0) return false;
    }
    return true;
}

TEST(with_checkpoints_and_loggers)
{
    char dir[256], ckpt[300];
    lc_trainer_options o;
    lc_trainer *t;
    lc_module *m, *again;
    wave_values v, read;
    void *storage = NULL;
    CHECK(world_dir(dir, sizeof dir));
    o = wave_options(dir);
    CHECK_OK(parse(&o, &v, "--width 5 --activation relu --optimizer.lr 0.01"));
    lc_logger logger = {&spy, NULL};
    o.loggers = &logger;
    o.n_loggers = 1;
    CHECK_OK(lc_module_new(&wave_class, &v, 3, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    CHECK_STR(logged, "width=5 samples=512 batch_size=16 activation=relu optimizer/lr=0.01 optimizer/momentum=0 "
                      "shuffle=0 warmup=none ");
    snprintf(ckpt, sizeof ckpt, "%s/a.ckpt", dir);
    CHECK_OK(lc_trainer_save_checkpoint(t, ckpt, true));

    /* Into a struct, without a trainer. */
    read = (wave_values){.width = 1, .samples = 9};
    CHECK_OK(lc_hyperparameters_load(ckpt, wave_fields, WAVE_FIELDS, &read, &storage));
    CHECK(read.width == 5 && read.samples == 512 && read.optimizer.lr == 0.01 && read.batch_size == 16);
    CHECK_STR(read.activation, "relu");
    lc_options_free(storage);
    storage = NULL;
    /* A field that the struct does not have. */
    CHECK_STATUS(lc_hyperparameters_load(ckpt, wave_fields + 1, WAVE_FIELDS - 1, &read, &storage), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "width");
    lc_options_free(storage);

    /* Into a model. */
    CHECK_OK(lc_module_load_from_checkpoint(&wave_class, ckpt, true, &again));
    CHECK(((wave *)again)->h->width == 5 && same_weights(m, again));
    lc_module_free(again);
    lc_module_free(m);
    lc_trainer_free(t);
    world_remove(dir);
}

typedef struct crop {
    int64_t size, width;
} crop;
static const lc_option crop_fields[] = {LC_FIELD(crop, size, ""), LC_FIELD(crop, width, "")};
static lc_option_set crop_hyperparameters(void *self)
{
    return (lc_option_set){"crop", crop_fields, 2, self};
}
static lc_status crop_train(void *self, lc_trainer *t, lc_loaders *out)
{
    (void)self;
    return wave_train_dataloader(lc_trainer_module(t), out);
}
static const lc_datamodule_ops crop_ops = {LC_DATAMODULE_OPS_INIT("crop"), .hyperparameters = crop_hyperparameters,
                                           .train_dataloader = crop_train};

static lc_option_set named;
static lc_option_set named_hyperparameters(void *self)
{
    (void)self;
    return named;
}
static const lc_datamodule_ops named_ops = {LC_DATAMODULE_OPS_INIT("named"), .hyperparameters = named_hyperparameters,
                                            .train_dataloader = crop_train};

TEST(hyperparameters_of_module_and_datamodule)
{
    char dir[256], ckpt[300];
    lc_trainer *t;
    lc_module *m;
    lc_checkpoint *c;
    const lc_state *o;
    int64_t size = 0;
    crop values = {.size = 24, .width = 16};
    lc_datamodule data = {&crop_ops, &values};
    lc_logger logger = {&spy, NULL};
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options options = wave_options(dir);
    options.loggers = &logger;
    options.n_loggers = 1;
    CHECK_OK(lc_module_new(&wave_class, NULL, 3, &m));
    CHECK_OK(lc_trainer_new(&options, &t));
    CHECK_OK(lc_trainer_fit(t, m, .datamodule = &data));
    CHECK_CONTAINS(logged, "warmup=none size=24 ");
    CHECK_CONTAINS(logged, "width=16 ");
    snprintf(ckpt, sizeof ckpt, "%s/a.ckpt", dir);
    CHECK_OK(lc_trainer_save_checkpoint(t, ckpt, true));
    CHECK_OK(lc_checkpoint_open(ckpt, &c));
    CHECK_OK(lc_state_get_object(lc_checkpoint_state(c), "datamodule_hyper_parameters", &o));
    CHECK_OK(lc_state_get_int(o, "size", &size));
    CHECK_EQ(size, 24);
    lc_checkpoint_close(c);
    values.width = 17; /* the module says 16 */
    CHECK_STATUS(lc_trainer_fit(t, m, .datamodule = &data), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "width is 16 in the module and 17 in the datamodule");
    lc_trainer_free(t);
    lc_module_free(m);
    world_remove(dir);
}

/* Texts may differ only at their end, and half a character cannot be stored. */
TEST(long_texts_are_whole)
{
    char dir[256], ckpt[300], skip[1201] = "", names[2][300] = {"tanh", "tanh"};
    const char *text;
    lc_trainer *t;
    lc_module *m;
    lc_checkpoint *c;
    const lc_state *o;
    wave_values values = wave_defaults;
    static const lc_option field[] = {{.name = "activation", .kind = LC_OPTION_TEXT}};
    for (int i = 0; i < 1200; i += 2) memcpy(skip + i, "\xc3\xa9", 3);
    for (int i = 0; i < 2; i++) memset(names[i] + 4, 'x', 290), names[i][294] = (char)('0' + i);
    values.activation = names[0];
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options options = wave_options(dir);
    options.weights_skip = skip;
    CHECK_OK(lc_module_new(&wave_class, &values, 3, &m));
    CHECK_OK(lc_trainer_new(&options, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    snprintf(ckpt, sizeof ckpt, "%s/a.ckpt", dir);
    CHECK_OK(lc_trainer_save_checkpoint(t, ckpt, false));
    CHECK_OK(lc_checkpoint_open(ckpt, &c));
    CHECK_OK(lc_state_get_object(lc_checkpoint_state(c), "options", &o));
    CHECK_OK(lc_state_get_text(o, "weights_skip", &text));
    CHECK_STR(text, skip);
    lc_checkpoint_close(c);
    named = (lc_option_set){"named", field, 1, &(const char *){names[1]}};
    lc_datamodule data = {&named_ops, NULL};
    CHECK_STATUS(lc_trainer_fit(t, m, .datamodule = &data), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "the hyperparameter activation is tanhxxx");
    lc_trainer_free(t);
    lc_module_free(m);
    world_remove(dir);
}

TEST(errors_of_classes)
{
    char dir[256], ckpt[300];
    lc_module *m = NULL;
    lc_trainer *t;
    wave_values v = wave_defaults;
    lc_module_class bad = wave_class;
    v.width = 0;
    CHECK_STATUS(lc_module_new(&wave_class, &v, 0, &m), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "width is 0");
    CHECK(!m);
    bad.module_size = 4;
    CHECK_STATUS(lc_module_new(&bad, NULL, 0, &m), LC_ERR_ARGUMENT);
    lc_module_free(NULL);

    /* A checkpoint of a module that keeps no hyperparameters. */
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = wave_options(NULL);
    CHECK_OK(lc_module_new(&wave_class, NULL, 0, &m));
    lc_module_save_hyperparameters(m, NULL, 0, NULL);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    snprintf(ckpt, sizeof ckpt, "%s/a.ckpt", dir);
    CHECK_OK(lc_trainer_save_checkpoint(t, ckpt, true));
    lc_trainer_free(t);
    lc_module_free(m);
    CHECK_STATUS(lc_module_load_from_checkpoint(&wave_class, ckpt, true, &m), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "lc_module_save_hyperparameters");
    world_remove(dir);
}

/* The config.json of a run makes the same run again. */
TEST(config_of_a_run)
{
    char dir[256], line[512];
    lc_trainer_options o, second = LC_TRAINER_OPTIONS_INIT;
    lc_trainer *t;
    lc_module *m;
    wave_values v, w;
    CHECK(world_dir(dir, sizeof dir));
    o = wave_options(dir);
    o.logger = "csv";
    CHECK_OK(parse(&o, &v, "--optimizer.lr 0.3 --max_steps 3 --limit_train_batches 0.5 --activation relu"));
    CHECK_OK(lc_module_new(&wave_class, &v, 3, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    char *text = read_text(lc_trainer_run_dir(t), "config.json");
    CHECK(text);
    CHECK_CONTAINS(text, "\"optimizer.lr\": 0.3");
    free(text);
    text = read_text(lc_trainer_run_dir(t), "hparams.yaml");
    CHECK(text);
    CHECK_CONTAINS(text, "0.3");
    free(text);
    snprintf(line, sizeof line, "--config %s/config.json", lc_trainer_run_dir(t));
    CHECK_OK(parse(&second, &w, line));
    CHECK(w.optimizer.lr == 0.3 && second.max_steps == 3 && second.limit_train_batches.unit == LC_UNIT_FRACTION);
    CHECK_STR(w.activation, "relu");
    CHECK_STR(second.default_root_dir, dir);
    CHECK_EQ(second.enable_checkpointing, o.enable_checkpointing);
    CHECK_STR(second.logger, "csv");
    CHECK(!second.monitor);
    lc_trainer_options_release(&second);
    lc_trainer_free(t);
    lc_module_free(m);
    world_remove(dir);
}

TEST_MAIN
