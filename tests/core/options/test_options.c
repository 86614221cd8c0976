/* SPDX-License-Identifier: Apache-2.0 */
/* Options: one table, four sources, and errors that help. */
#include "comma_locale.h"
#include "sources.h"
#include "trainer_world.h"

#include "builtin.h"
#include "core/options/options.h"

#include <math.h>

typedef struct mine {
    const char *data;
    int64_t batch_size;
    double lr;
    bool fast;
} mine;

static const lc_option my_options[] = {
    LC_OPTION(mine, data, LC_OPTION_TEXT, 0, 0, "folder with the data"),
    LC_OPTION(mine, batch_size, LC_OPTION_INT, 1, 1e9, "samples in a batch"),
    LC_OPTION(mine, lr, LC_OPTION_FLOAT, 0, 10, "learning rate"),
    LC_OPTION(mine, fast, LC_OPTION_BOOL, 0, 0, "be fast"),
};

static lc_status parse(lc_trainer_options *o, mine *m, const char *line)
{
    static char copy[1024];
    char *argv[64] = {(char *)"prog"};
    int argc = 1;
    *o = (lc_trainer_options)LC_TRAINER_OPTIONS_INIT;
    *m = (mine){.data = "d", .batch_size = 64, .lr = 0.1};
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w && argc < 64; w = strtok(NULL, " ")) argv[argc++] = w;
    /* Parsed strings stay valid until the next call. */
    static void *storage;
    lc_options_free(storage);
    lc_status status = lc_trainer_options_parse_with(o, my_options, 4, m, argc, argv);
    storage = o->storage;
    o->storage = NULL;
    return status;
}

TEST(options_need_a_target)
{
    for (size_t i = 0; i < sizeof my_options / sizeof *my_options; i++) {
        CHECK_STATUS(lc_option_set_text(&my_options[i], NULL, "1"), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), "target must not be NULL");
    }
}

TEST(command_line)
{
    lc_trainer_options o;
    mine m;
    CHECK_OK(parse(&o, &m,
                   "--max_epochs 5 --limit-train-batches=0.2 --data /x --batch_size=100 --fast --lr 1e-3 "
                   "--no_deterministic --max_time 10m --val_check_interval 3 --save_last --monitor val_loss"));
    CHECK_EQ(o.max_epochs, 5);
    CHECK(o.limit_train_batches.unit == LC_UNIT_FRACTION && o.limit_train_batches.value == 0.2);
    CHECK_STR(m.data, "/x");
    CHECK_EQ(m.batch_size, 100);
    CHECK(m.fast && !o.deterministic && m.lr == 1e-3);
    CHECK(o.max_time.unit == LC_UNIT_SECONDS && o.max_time.value == 600);
    CHECK(o.val_check_interval.unit == LC_UNIT_BATCHES && o.val_check_interval.value == 3);
    CHECK_EQ(o.save_last, LC_ON);
    CHECK_STR(o.monitor, "val_loss");
    CHECK_OK(parse(&o, &m, "--fast_dev_run true --enable_progress_bar false --gradient_clip_val none"));
    CHECK_EQ(o.fast_dev_run, 1);
    CHECK_EQ(o.enable_progress_bar, LC_OFF);
    CHECK_OK(parse(&o, &m, "--fast_dev_run --deterministic"));
    CHECK_EQ(o.fast_dev_run, 1);
    CHECK_OK(parse(&o, &m, "--fast_dev_run 3"));
    CHECK_EQ(o.fast_dev_run, 3);
    CHECK(parse(&o, &m, "--enable_progress_bar maybe") == LC_ERR_CONFIG);
    CHECK(strstr(lc_error_message(), "must be true, false or auto"));
    CHECK_OK(parse(&o, &m, "--max_epochs -1"));
    CHECK_EQ(o.max_epochs, -1);
}

TEST(errors_name_the_right_values)
{
    lc_trainer_options o;
    mine m;
    CHECK_STATUS(parse(&o, &m, "--max_epoch 5"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "\"max_epochs\"");
    CHECK_STATUS(parse(&o, &m, "--bacth-size 5"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "\"batch_size\"");
    static const char *const others[][2] = {{"--progress-bar false", "\"enable_progress_bar\""},
                                            {"--learning_rate 1", "\"lr\""},
                                            {"--resume x", "\"ckpt_path\""}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK_STATUS(parse(&o, &m, others[i][0]), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), others[i][1]);
    }
    CHECK_STATUS(parse(&o, &m, "--nothing_like_it 5"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "--help");
    CHECK_STATUS(parse(&o, &m, "--max_epochs five"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "whole number");
    CHECK_STATUS(parse(&o, &m, "--batch_size 0"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "between");
    CHECK_STATUS(parse(&o, &m, "--max_epochs"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "needs a value");
    CHECK_STATUS(parse(&o, &m, "--limit_val_batches 1.5"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "limit_val_batches");
    CHECK_STATUS(parse(&o, &m, "surplus"), LC_ERR_CONFIG);
    CHECK_STATUS(parse(&o, &m, "--deterministic=maybe"), LC_ERR_CONFIG);
}

/* Names from older versions of Lightning work if their meaning is clear. */
TEST(old_names)
{
    lc_trainer_options o;
    mine m;
    CHECK_OK(parse(&o, &m,
                   "--epochs 5 --min-nb-epochs 2 --nodes 1 --gpus 0 --weights_summary None --checkpoint_callback "
                   "False --progress_bar_refresh_rate 0 --resume_from_checkpoint x.ckpt --train_percent_check 0.5 "
                   "--row_log_interval=7 --auto_lr_find False --tpu_cores 0 --reload_dataloaders_every_epoch True "
                   "--precision 32 --gradient_accumulation_steps 4 --amp_backend native --seed_everything 3"));
    CHECK(o.max_epochs == 5 && o.min_epochs == 2 && o.num_nodes == 1 && o.log_every_n_steps == 7 && o.seed == 3);
    CHECK(o.enable_model_summary == LC_OFF && o.enable_checkpointing == LC_OFF && o.enable_progress_bar == LC_OFF);
    CHECK(o.limit_train_batches.unit == LC_UNIT_FRACTION && o.reload_dataloaders_every_n_epochs == 1);
    CHECK(o.accumulate_grad_batches == 4);
    CHECK_STR(o.ckpt_path, "x.ckpt");
    CHECK_STR(o.accelerator, "cpu");
    CHECK_STR(o.precision, "32-true");
    CHECK_OK(parse(&o, &m, "--gpus 1"));
    CHECK_STR(o.accelerator, "gpu");
    CHECK_STR(o.devices, "1");
    CHECK_OK(parse(&o, &m, "--accelerator cpu --gpus 1 --nr 0"));
    CHECK_STR(o.accelerator, "cpu");
    CHECK_EQ(o.node_rank, 0);
    CHECK(parse(&o, &m, "--gpus 2") < 0);
    CHECK_CONTAINS(lc_error_message(), "--accelerator cpu");
    static const char *const all[] = {"--gpus -1", "--gpus=-1"};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(parse(&o, &m, all[i]));
        CHECK_STR(o.accelerator, "gpu");
        CHECK_STR(o.devices, "auto");
    }
    CHECK_OK(parse(&o, &m, "--track_grad_norm -1"));
    CHECK_OK(parse(&o, &m, "--accelerator ddp_cpu --precision bf16"));
    CHECK_STR(o.strategy, "ddp");
    CHECK_STR(o.accelerator, "cpu");
    CHECK_STR(o.precision, "bf16-mixed");
    CHECK_OK(parse(&o, &m, "--distributed_backend dp"));
    CHECK_STR(o.strategy, "dp");
    static const char *const answers[][2] = {
        {"--auto_lr_find", "LearningRateFinder"},
        {"--auto_scale_batch_size power", "BatchSizeFinder"},
        {"--tpu_cores 8", "no TPU backend"},
        {"--tpu_cores -1", "no TPU backend"},
        {"--track_grad_norm 2", "GradientNormMonitor"},
        {"--flush_logs_every_n_steps 3", "drop it"},
        {"--truncated_bptt_steps 3", "lc_detach"},
        {"--weights_summary full", "ModelSummary"},
        {"--early_stop_callback true", "--early_stopping METRIC"},
        {"--accelerator horovod", "ddp"},
        {"--max_nb_epochs many", "max_nb_epochs is now called max_epochs"},
        {"--max_nb_epoch 3", "did you mean"},
        {"--threads-each 2", "did you mean \"threads\""},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        CHECK_STATUS(parse(&o, &m, answers[i][0]), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), answers[i][1]);
    }
}

/* An option of the program takes precedence, whatever the name meant elsewhere. */
TEST(the_programs_own_options_come_first)
{
    typedef struct {
        int64_t epochs, precision;
    } own;
    static const lc_option table[] = {LC_FIELD(own, epochs, "of the moon"), LC_FIELD(own, precision, "digits")};
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    own v = {0};
    char *argv[] = {(char *)"prog", (char *)"--epochs", (char *)"3", (char *)"--precision", (char *)"16"};
    CHECK_OK(lc_trainer_options_parse_with(&o, table, 2, &v, 5, argv));
    CHECK(v.epochs == 3 && v.precision == 16 && o.max_epochs == LC_UNSET && !o.precision);
    lc_trainer_options_release(&o);
}

TEST(errors_of_accelerators_name_what_is_missing)
{
    static const char *const answers[][2] = {
        {"tpu", "no TPU backend"}, {"gpu", "CUDA"}, {"ddp", "--strategy ddp"}, {"cpux", "auto, cpu or"}};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
        lc_trainer *t;
        o.accelerator = answers[i][0];
        CHECK(lc_trainer_new(&o, &t) < 0);
        CHECK_CONTAINS(lc_error_message(), answers[i][1]);
    }
}

TEST(precedence)
{
    char dir[256], path[300], line[400];
    lc_trainer_options o;
    mine m;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/run.json", dir);
    snprintf(line, sizeof line, "--config %s", path);
    FILE *old = fopen(path, "w");
    CHECK(old);
    fputs("{\"max_nb_epochs\": 3, \"gpus\": 0, \"auto_lr_find\": false, \"early_stop_callback\": null}", old);
    fclose(old);
    CHECK_OK(parse(&o, &m, line));
    CHECK_EQ(o.max_epochs, 3);
    CHECK_STR(o.accelerator, "cpu");
    FILE *f = fopen(path, "w");
    CHECK(f);
    fputs("{\"max_epochs\": 3, \"max-steps\": 30, \"data\": \"from file\", \"limit_val_batches\": 1.0, "
          "\"limit_test_batches\": 1}",
          f);
    fclose(f);
    setenv("LIGHTC_MAX_STEPS", "40", 1);
    setenv("LIGHTC_LR", "0.5", 1);
    snprintf(line, sizeof line, "--config %s --lr 0.25", path);
    lc_status s = parse(&o, &m, line);
    unsetenv("LIGHTC_MAX_STEPS");
    unsetenv("LIGHTC_LR");
    CHECK_OK(s);
    CHECK_EQ(o.max_epochs, 3);
    CHECK_EQ(o.max_steps, 40);
    CHECK(m.lr == 0.25);
    CHECK_EQ(m.batch_size, 64);
    CHECK_STR(m.data, "from file");
    CHECK(o.limit_val_batches.unit == LC_UNIT_FRACTION && o.limit_test_batches.unit == LC_UNIT_BATCHES);
    lc_trainer_options_release(&o);

    f = fopen(path, "w");
    fputs("{\"max_epoch\": 3}", f);
    fclose(f);
    CHECK_STATUS(parse(&o, &m, line), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "run.json");
    CHECK_CONTAINS(lc_error_message(), "\"max_epochs\"");
    lc_trainer_options_release(&o);
    f = fopen(path, "w");
    fputs("{\"max_epochs\": 3,}", f);
    fclose(f);
    CHECK(parse(&o, &m, line) < 0);
    lc_trainer_options_release(&o);
    setenv("LIGHTC_MAX_EPOCHS", "many", 1);
    s = parse(&o, &m, "");
    unsetenv("LIGHTC_MAX_EPOCHS");
    CHECK_STATUS(s, LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "LIGHTC_MAX_EPOCHS");
    world_remove(dir);
}

static lc_status read_config(const char *text, int64_t *key)
{
    static const lc_option table[] = {{"key", LC_OPTION_INT, 0, 0, 0, "a 64-bit number", {0}}};
    char dir[256], path[300];
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/run.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    fputs(text, f);
    fclose(f);
    char *argv[] = {(char *)"prog", (char *)"--config", path};
    lc_status s = lc_trainer_options_parse_with(&o, table, 1, key, 3, argv);
    lc_trainer_options_release(&o);
    world_remove(dir);
    return s;
}

/* Numbers that a reader with only doubles would round, and duplicate members of which it would take the last. */
TEST(a_configuration_is_read_exactly)
{
    int64_t key = 0;
    CHECK_OK(read_config("{\"key\": 9007199254740993}", &key));
    CHECK_EQ(key, 9007199254740993);
    CHECK_OK(read_config("{\"key\": -9223372036854775807}", &key));
    CHECK_EQ(key, -9223372036854775807);
    CHECK(read_config("{\"key\": 9223372036854775808}", &key) < 0);
    CHECK(read_config("{\"key\": 1,\n \"key\": 2}", &key) < 0);
    CHECK_CONTAINS(lc_error_message(), "line 2");
    CHECK_CONTAINS(lc_error_message(), "the key \"key\" appears twice");
}

TEST(an_error_of_a_configuration_names_its_line)
{
    static const char *const rows[][2] = {
        {"{\n  \"key\": \"many\"\n}", "run.json: line 2: key must be a whole number, not \"many\""},
        {"{\"max_epochs\": 1,\n\n\"patience\": -1}", "run.json: line 3: patience is -1, but must be"},
        {"{\r\n\"seed\": [1]\r\n}", "run.json: line 2: seed must be a number"},
        {"{\"seed\": 1,\n\"sead\": 2}", "run.json: line 2: unknown option \"sead\"; did you mean \"seed\"?"},
        {"{\"early_stop_callback\":\n true}", "run.json: line 2: "},
        {"{\"mine\": {\n\"a\": \n{\n\"b\": 1}}}", "run.json: line 4: unknown option \"mine.a.b\""},
    };
    int64_t key = 0;
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        CHECK_STATUS(read_config(rows[i][0], &key), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), rows[i][1]);
    }
}

/* As Lightning takes it. */
TEST(a_time_with_colons_has_days_hours_minutes_and_seconds)
{
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"00:02:30:00", 9000}, {"1:00:00:05", 86405}, {"00:00:90:00", 5400}};
    static const char *const bad[] = {
        "1:2",         "01:02",       "01:02:03",  "0:0:0:1",  "00:00:00:01:00",
        "00:00:00:1x", "-1:00:00:00", ":00:00:00", "1:00:00:", "99999999999999999999:00:00:00"};
    lc_duration d;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_OK(lc_duration_parse(good[i].text, &d));
        CHECK(d.unit == LC_UNIT_SECONDS && d.value == good[i].seconds);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(lc_duration_parse(bad[i], &d), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), "is not a time; with colons it is DD:HH:MM:SS");
    }
}

/* Options and configurations have a point in every locale. */
TEST(a_decimal_comma_changes_nothing)
{
    static const lc_option table[] = {{.name = "lr", .kind = LC_OPTION_FLOAT}};
    lc_trainer_options o;
    mine m;
    lc__str json = {0};
    double lr = 0;
    if (!use_decimal_comma()) SKIP("there is no locale with a decimal comma");
    CHECK_OK(parse(&o, &m, "--lr 0.25 --val_check_interval 0.5 --max_time 1.5h --memory_limit 1.5GiB"));
    CHECK(m.lr == 0.25);
    CHECK(o.val_check_interval.value == 0.5);
    CHECK(o.max_time.value == 5400);
    CHECK_STATUS(parse(&o, &m, "--lr 0,25"), LC_ERR_CONFIG);
    lc__options_json(&(lc_option_set){"mine", table, 1, &(double){0.125}}, 1, &json);
    CHECK_CONTAINS(json.s, "\"lr\": 0.125");
    lc__str_free(&json);
    const char *config = fresh_dir("comma");
    char path[400], arg[420], *argv[] = {(char *)"prog", arg};
    snprintf(path, sizeof path, "%s/c.json", config);
    snprintf(arg, sizeof arg, "--config=%s", path);
    CHECK_OK(lc__create_file(&lc__io_system, path, "{\"lr\": 0.75}", 12));
    o = (lc_trainer_options)LC_TRAINER_OPTIONS_INIT;
    CHECK_OK(lc_trainer_options_parse_with(&o, table, 1, &lr, 2, argv));
    CHECK(lr == 0.75);
    lc_trainer_options_release(&o);
    setlocale(LC_ALL, "C");
}

TEST(every_value_reads_back)
{
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    CHECK(n > 40);
    for (int i = 0; i < n; i++) {
        lc_trainer_options a = LC_TRAINER_OPTIONS_INIT, b = LC_TRAINER_OPTIONS_INIT;
        char text[256], again[256];
        CHECK(table[i].help && table[i].help[0]);
        lc_option_get_text(&table[i], &a, text, sizeof text);
        if (table[i].kind == LC_OPTION_TEXT) continue;
        CHECK_OK(lc_option_set_text(&table[i], &b, text));
        lc_option_get_text(&table[i], &b, again, sizeof again);
        CHECK_STR(again, text);
    }
}

TEST(a_negative_zero_reads_back)
{
    typedef struct zeros {
        double d;
        float f;
    } zeros;
    static const lc_option rows[] = {LC_FIELD(zeros, d, "a double"), LC_FIELD(zeros, f, "a float")};
    zeros from = {-0.0, -0.0F}, to = {1, 1};
    const lc_option_set set = {.options = rows, .n = 2, .target = &from},
                        back = {.options = rows, .n = 2, .target = &to};
    lc__str out = {0}, json = {0};
    void *storage = NULL;
    lc_state *root;
    lc__options_json(&set, 1, &json);
    lc__str_add(&out, "{%s}", json.s);
    CHECK_OK(lc_state_parse(out.s, out.n, &root));
    CHECK_OK(lc__options_read(&back, 1, root, "", &storage));
    CHECK(to.d == 0 && signbit(to.d));
    CHECK(to.f == 0 && signbit(to.f));
    lc_state_free(root);
    lc_options_free(storage);
    lc__str_free(&json);
    lc__str_free(&out);
}

TEST(help_is_grouped_and_fits)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    mine m = {.data = "d"};
    lc__str out = {0};
    int n, groups = 0, options = 0;
    lc_option_set sets[] = {{"options of this program", my_options, 4, &m}, {NULL, NULL, 0, &o}};
    sets[1].options = lc_trainer_option_table(&n);
    sets[1].n = n;
    unsetenv("COLUMNS");
    lc__options_help(sets, 2, "prog", &out);
    CHECK(!out.failed);
    for (char *line = strtok(out.s, "\n"); line; line = strtok(NULL, "\n")) {
        CHECK(strlen(line) <= 100);
        if (line[0] != ' ' && line[strlen(line) - 1] == ':') groups++;
        if (!strncmp(line, "  --", 4)) options++;
    }
    CHECK_EQ(groups, 9);
    CHECK_EQ(options, n + 4 + 3);
    lc__str_free(&out);
}

/* Whether the row of an option in `help` has a name, at its end or with more after it. */
static bool lists(const char *help, const char *option, const char *name)
{
    char row[64];
    snprintf(row, sizeof row, "\n  --%s ", option);
    const char *at = strstr(help, row), *end = at ? strstr(at + 1, "\n  --") : NULL;
    at = at ? strstr(at, "available:") : NULL;
    while (at && (at = strstr(at, name)) && (!end || at < end)) {
        size_t n = strlen(name);
        if (at[-1] == ' ' && strchr(",: \n", at[n])) return true;
        at += n;
    }
    return false;
}

TEST(help_lists_what_is_built_in)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    lc__str out = {0};
    const char *logger = "none";
    const lc_option own = {"logger", LC_OPTION_TEXT, 0, 0, 0, "who fells trees", {0}};
    lc_option_set set = {.target = &o}, own_set = {"own", &own, 1, &logger};
    const lc__builtins *b = lc__builtin;
    set.options = lc_trainer_option_table(&set.n);
    lc__options_help(&set, 1, "prog", &out);
    for (int i = 0; b->strategies[i]; i++) CHECK(lists(out.s, "strategy", b->strategies[i]->name));
    for (int i = 0; b->precisions[i].name; i++) CHECK(lists(out.s, "precision", b->precisions[i].name));
    for (int i = 0; b->profilers[i].name; i++) CHECK(lists(out.s, "profiler", b->profilers[i].name));
    for (int i = 0; b->loggers[i].name; i++) CHECK(lists(out.s, "logger", b->loggers[i].name));
    CHECK(!lists(out.s, "accelerator", "cpu"));
    lc__str_clear(&out);
    lc__options_help(&own_set, 1, "prog", &out);
    CHECK(strstr(out.s, "who fells trees") && !strstr(out.s, "available:"));
    lc__str_free(&out);
}

static lc_status parse_used(lc_trainer_options *o, const char *used, const char *line)
{
    static char copy[256];
    char *argv[16] = {(char *)"prog"};
    int argc = 1;
    mine m = {.data = "d"};
    *o = (lc_trainer_options)LC_TRAINER_OPTIONS_INIT;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w && argc < 16; w = strtok(NULL, " ")) argv[argc++] = w;
    return lc_trainer_options_parse_used(o, used, my_options, 4, &m, argc, argv);
}

TEST(programs_without_a_trainer_take_the_options_they_list)
{
    lc_trainer_options o;
    CHECK_OK(parse_used(&o, "max_epochs seed precision", "--max_epochs 5 --batch_size 3 --devices 1 --precision 16"));
    CHECK_EQ(o.max_epochs, 5);
    CHECK_STR(o.precision, "16-mixed"); /* old values work as everywhere */
    lc_trainer_options_release(&o);
    CHECK_OK(parse_used(&o, "max_epochs", "--epochs 2"));
    CHECK_EQ(o.max_epochs, 2);
    lc_trainer_options_release(&o);
    CHECK_STATUS(parse_used(&o, "max_epochs", "--seed 1"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "option \"seed\" of the trainer is not available in this program");
    CHECK_STATUS(parse_used(&o, NULL, "--gpus 2"),
                 LC_ERR_CONFIG); /* an old name for an option that this program does not have */
    CHECK_STATUS(parse_used(&o, "max_epochs", "--max_epoch 1"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "did you mean \"max_epochs\"");
    CHECK_STATUS(parse_used(&o, "max_epoch", "--devices 1"), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "\"max_epoch\"");
}

TEST(durations)
{
    lc_duration d;
    CHECK_OK(lc_duration_parse("3ep", &d));
    CHECK(d.unit == LC_UNIT_EPOCHS && d.value == 3);
    CHECK_OK(lc_duration_parse("500st", &d));
    CHECK(d.unit == LC_UNIT_STEPS && d.value == 500);
    CHECK_OK(lc_duration_parse("100ba", &d));
    CHECK(d.unit == LC_UNIT_BATCHES && d.value == 100);
    CHECK_OK(lc_duration_parse("1.5h", &d));
    CHECK(d.unit == LC_UNIT_SECONDS && d.value == 5400);
    CHECK_OK(lc_duration_parse("01:02:03:04", &d));
    CHECK(d.value == 86400 + 2 * 3600 + 3 * 60 + 4);
    CHECK_OK(lc_duration_parse("1", &d));
    CHECK(d.unit == LC_UNIT_BATCHES);
    CHECK_OK(lc_duration_parse("1.0", &d));
    CHECK(d.unit == LC_UNIT_FRACTION);
    const char *bad[] = {"", "3 ep", "ep", "-1", "1.5", "2.5ep", "nan", "inf", "1e400", "3x", "1:", ":1", "1:2:3:4:5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lc_duration_parse(bad[i], &d) == LC_OK) TEST_FAIL("\"%s\" was accepted as an amount", bad[i]);
}

TEST(sizes)
{
    static const struct {
        const char *text;
        int64_t bytes;
        const char *written;
    } good[] = {{"0", 0, "0"},
                {"none", 0, "0"},
                {"1000", 1000, "1000"},
                {"17B", 17, "17"},
                {"1K", 1024, "1KiB"},
                {"2048", 2048, "2KiB"},
                {"2GiB", 2LL << 30, "2GiB"},
                {"2G", 2LL << 30, "2GiB"},
                {"1.5GiB", 3LL << 29, "1536MiB"},
                {"0.5KiB", 512, "512"},
                {"3TiB", 3LL << 40, "3TiB"},
                {"4096T", 4096LL << 40, "4096TiB"},
                {"1e6", 1000000, "1000000"}};
    static const char *const bad[] = {"",     "much", "-1",  "-1GiB", "2 GiB", "GiB", "2GB", "2gib",
                                      "2Gib", "2PiB", "nan", "inf",   "1e30",  "+1",  " 1",  "4194304TiB"};
    const lc_option o = {"cache", LC_OPTION_SIZE, 0, 0, 0, "memory for files", {NULL, NULL}};
    lc_option least = o;
    char text[40];
    int64_t v, again;
    least.minimum = 1 << 20, least.maximum = 1LL << 40;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_OK(lc_option_set_text(&o, &v, good[i].text));
        CHECK_EQ(v, good[i].bytes);
        lc_option_get_text(&o, &v, text, sizeof text);
        CHECK_STR(text, good[i].written);
        CHECK_OK(lc_option_set_text(&o, &again, text));
        CHECK_EQ(again, v);
    }
    v = 5;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(lc_option_set_text(&o, &v, bad[i]), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(),
                       "cache must be a size, such as 512MiB or 1.5GiB, or a number of bytes, not \"");
        CHECK_EQ(v, 5);
    }
    CHECK_OK(lc_option_set_text(&least, &v, "1MiB"));
    CHECK_STATUS(lc_option_set_text(&least, &v, "1023KiB"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "cache is 1023KiB, but must be between");
    CHECK_STATUS(lc_option_set_text(&least, &v, "none"), LC_ERR_CONFIG);
    CHECK_EQ(v, 1 << 20);
}

/* A program's own, from a command line and into a configuration. */
TEST(a_size_on_the_command_line)
{
    typedef struct sizes {
        int64_t cache_bytes;
    } sizes;
    const lc_option rows[] = {LC_OPTION(sizes, cache_bytes, LC_OPTION_SIZE, 0, 0, "memory for files")};
    sizes s = {0};
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    char *argv[] = {(char *)"prog", (char *)"--cache_bytes", (char *)"2GiB"};
    CHECK_OK(lc_trainer_options_parse_with(&o, rows, 1, &s, 3, argv));
    CHECK_EQ(s.cache_bytes, 2LL << 30);
    lc_trainer_options_release(&o);
    lc__str json = {0};
    const lc_option_set set = {.options = rows, .n = 1, .target = &s};
    lc__options_json(&set, 1, &json);
    CHECK_CONTAINS(json.s, "\"cache_bytes\": \"2GiB\"");
    lc__str_free(&json);
}

TEST(numbers_of_workers)
{
    typedef struct loading {
        int num_workers;
    } loading;
    static const char *const bad[] = {"", "many", "-1", "2.5", "257", "auto ", "none"};
    const lc_option row = LC_OPTION(loading, num_workers, LC_OPTION_WORKERS, 0, 256, "threads that decode");
    loading l = {0};
    char text[8];
    for (int n = -1; n <= 256; n += 257) {
        CHECK_OK(lc_option_set_text(&row, &l, n < 0 ? "auto" : "256"));
        CHECK_EQ(l.num_workers, n < 0 ? LC_WORKERS_AUTO : 256);
        lc_option_get_text(&row, &l, text, sizeof text);
        CHECK_STR(text, n < 0 ? "auto" : "256");
        lc__str json = {0};
        const lc_option_set set = {.options = &row, .n = 1, .target = &l};
        lc__options_json(&set, 1, &json);
        CHECK_CONTAINS(json.s, n < 0 ? "\"num_workers\": \"auto\"" : "\"num_workers\": 256");
        lc__str_free(&json);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(lc_option_set_text(&row, &l, bad[i]), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), i == 4 ? "num_workers is 257, but must be between" : "0 or more, or auto");
        CHECK_EQ(l.num_workers, 256);
    }
}

/* The text printed to standard error while a command line is parsed. */
static const char *said(const char *line, char *text, size_t size)
{
    lc_trainer_options o;
    mine m;
    FILE *f = tmpfile();
    int keep = dup(2);
    CHECK(f && keep >= 0 && dup2(fileno(f), 2) >= 0);
    lc_status status = parse(&o, &m, line);
    dup2(keep, 2);
    close(keep);
    CHECK_OK(status);
    rewind(f);
    size_t n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
    lc_trainer_options_release(&o);
    return text;
}

TEST(misspelled_variables_are_reported)
{
    static const char *const cases[][2] = {
        {"LIGHTC_MAX_EPOCH", "LIGHTC_MAX_EPOCHS"}, {"LIGHTC_PLANS", "LIGHTC_PLAN"},
        {"LIGHTC_KERNEL", "LIGHTC_KERNELS"},       {"LIGHTC_BATCHSIZE", "LIGHTC_BATCH_SIZE"},
        {"LIGHTC_PLAN_DUMPS", "LIGHTC_PLAN_DUMP"}, {"LIGHTC_GPUS", "LIGHTC_DEVICES"},
        {"LIGHTC_NANCHECK", "LIGHTC_NAN_CHECK"},
    };
    char text[1024];
    CHECK_STR(said("", text, sizeof text), "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[256];
        snprintf(want, sizeof want, "warning: the environment variable %s has no effect; did you mean %s?\n",
                 cases[i][0], cases[i][1]);
        setenv(cases[i][0], "1", 1);
        said("", text, sizeof text);
        unsetenv(cases[i][0]);
        CHECK_STR(text, want);
    }
    setenv("LIGHTC_OF_ANOTHER_PROGRAM", "1", 1);
    setenv("LIGHTC_KERNELS", "fast", 1);
    setenv("LIGHTC_SEED", "3", 1);
    said("", text, sizeof text);
    unsetenv("LIGHTC_OF_ANOTHER_PROGRAM");
    unsetenv("LIGHTC_KERNELS");
    unsetenv("LIGHTC_SEED");
    CHECK_STR(text, "");
}

/* The warning knows every variable that the library reads. */
TEST(all_variables_are_checked)
{
    const char *source = source_root();
    char command[4200], name[256], text[1024], want[300];
    int n = 0;
    snprintf(command, sizeof command, "grep -rhoE '\"LIGHTC_[A-Z_]+\"' '%s/src' --include=*.c | tr -d '\"' | sort -u",
             source);
    FILE *f = popen(command, "r");
    CHECK(f);
    while (fgets(name, sizeof name, f)) {
        name[strcspn(name, "\n")] = 0;
        if (!strcmp(name, "LIGHTC_") || !strncmp(name, "LIGHTC_WITH_", 12)) continue; /* those are CMake's */
        n++;
        setenv(strcat(name, "S"), "x", 1);
        said("", text, sizeof text);
        unsetenv(name);
        snprintf(want, sizeof want, "%s has no effect; did you mean %.*s?", name, (int)strlen(name) - 1, name);
        if (!strstr(text, want)) TEST_FAIL("%.*s is not in environment.c", (int)strlen(name) - 1, name);
    }
    pclose(f);
    CHECK(n >= 5);
}

TEST_MAIN
