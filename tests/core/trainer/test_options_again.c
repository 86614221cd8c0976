/* SPDX-License-Identifier: Apache-2.0 */
/* Options that a second trainer is made of, as in a cross-validation: the first one has what they held. */
#include "quiet_options.h"
#include "test.h"

static lc_status start(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}

static lc_status log_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}

static int freed;

static void free_logger(void *self)
{
    (void)self;
    freed++;
}

static void refused(lc_trainer_options *o, const char *why)
{
    lc_trainer *t = NULL;
    CHECK_OK(lc_trainer_new(o, &t));
    lc_trainer_free(t);
    CHECK_STATUS(lc_trainer_new(o, &t), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), why);
}

TEST(plain_options_make_any_number_of_trainers)
{
    lc_trainer_options o = quiet_options(NULL);
    for (int i = 0; i < 3; i++) {
        lc_trainer *t = NULL;
        CHECK_OK(lc_trainer_new(&o, &t));
        lc_trainer_free(t);
    }
}

TEST(what_a_trainer_has_taken_over)
{
    lc_callback callback;
    lc_trainer_options o = quiet_options(NULL);
    CHECK_OK(lc_early_stopping(&callback, .monitor = "loss"));
    o.callbacks = &callback;
    o.n_callbacks = 1;
    refused(&o, "the callbacks of these options belong to the trainer that was made of them before; make new ones, and "
                "set .callbacks again, for each trainer");
    CHECK_OK(lc_early_stopping(&callback, .monitor = "loss"));
    o.callbacks = &callback;
    refused(&o, "the callbacks");

    static const lc_logger_ops ops = {LC_LOGGER_OPS_INIT, .name = "silent", .start = start, .log_row = log_row,
                                      .free = free_logger};
    const lc_logger logger = {&ops, &freed};
    o = quiet_options(NULL);
    o.loggers = &logger;
    o.n_loggers = 1;
    refused(&o, "set .loggers again");
    CHECK_EQ(freed, 1);

    lc_profiler profiler;
    o = quiet_options(NULL);
    CHECK_OK(lc_profiler_new("simple", &profiler));
    o.profilers = &profiler;
    o.n_profilers = 1;
    refused(&o, "set .profilers again");

    lc_precision precision;
    o = quiet_options(NULL);
    CHECK_OK(lc_mixed_precision(&precision, .dtype = LC_BF16));
    o.precision_plugin = &precision;
    refused(&o, "the precision_plugin of these options belongs to");
}

/* Given to a second trainer by other options, or to a fabric, it would be freed twice. */
TEST(a_callback_a_logger_a_profiler_and_a_precision_belong_to_one_trainer)
{
    lc_callback callback;
    lc_logger logger;
    lc_profiler profiler;
    lc_precision precision;
    lc_trainer *first = NULL, *second = NULL;
    CHECK_OK(lc_early_stopping(&callback, .monitor = "loss"));
    CHECK_OK(lc_csv_logger_new(&logger));
    CHECK_OK(lc_profiler_new("simple", &profiler));
    CHECK_OK(lc_mixed_precision(&precision));
    lc_trainer_options o = quiet_options(NULL);
    o.callbacks = &callback, o.n_callbacks = 1;
    o.loggers = &logger, o.n_loggers = 1;
    o.profilers = &profiler, o.n_profilers = 1;
    o.precision_plugin = &precision;
    CHECK_OK(lc_trainer_new(&o, &first));
    for (int i = 0; i < 4; i++) {
        static const char *const why[] = {"callback 'EarlyStopping'", "logger 'csv'", "profiler 'simple'",
                                          "precision '16-mixed'"};
        o = quiet_options(NULL);
        if (i == 0) o.callbacks = &callback, o.n_callbacks = 1;
        if (i == 1) o.loggers = &logger, o.n_loggers = 1;
        if (i == 2) o.profilers = &profiler, o.n_profilers = 1;
        if (i == 3) o.precision_plugin = &precision;
        CHECK_STATUS(lc_trainer_new(&o, &second), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), why[i]);
        CHECK_CONTAINS(lc_error_message(), "was taken over before, and belongs to what has it; make another");
    }
    lc_fabric *fabric = NULL;
    CHECK_STATUS(lc_fabric_new(&fabric, .loggers = &logger, .n_loggers = 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "logger 'csv' was taken over before");
    CHECK_STATUS(lc_fabric_new(&fabric, .precision_plugin = &precision), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "precision '16-mixed' was taken over before");
    CHECK_STATUS(lc_trainer_add_callback(first, callback), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_trainer_add_callback(NULL, callback), LC_ERR_ARGUMENT);
    lc_early_stopping_info info;
    CHECK_OK(lc_early_stopping_get(&callback, &info)); /* still there */
    lc_trainer_free(first);
    CHECK_OK(lc_learning_rate_monitor(&callback));
    CHECK_STATUS(lc_early_stopping_get(&callback, &info), LC_ERR_ARGUMENT);
    callback.ops->free(callback.self);
}

/* Nobody frees it, so any trainer may have it. */
TEST(a_logger_of_the_program_that_nothing_frees)
{
    static const lc_logger_ops ops = {LC_LOGGER_OPS_INIT, .name = "silent", .start = start, .log_row = log_row};
    const lc_logger logger = {&ops, &freed};
    lc_trainer_options o = quiet_options(NULL);
    o.loggers = &logger;
    o.n_loggers = 1;
    for (int i = 0; i < 2; i++) {
        lc_trainer *t = NULL;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_EQ(lc_trainer_logger_count(t), 1);
        lc_trainer_free(t);
    }
}

TEST(a_number_of_callbacks_without_a_list)
{
    lc_trainer *t = NULL;
    lc_trainer_options o = quiet_options(NULL);
    o.n_callbacks = 2;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_callbacks is 2, but callbacks is NULL");
}

typedef struct settings {
    int64_t width;
} settings;

/* The run's config.json holds the program's own options as a text that parsing allocated. */
TEST(parsed_texts)
{
    static const lc_option rows[] = {LC_FIELD(settings, width, "of the hidden layer")};
    settings s = {.width = 4};
    char *argv[] = {(char *)"prog", (char *)"--width", (char *)"8"};
    lc_trainer_options o = quiet_options(NULL);
    CHECK_OK(lc_trainer_options_parse_with(&o, rows, 1, &s, 3, argv));
    refused(&o, "for each trainer begin with LC_TRAINER_OPTIONS_INIT and parse again");
    CHECK_OK(lc_trainer_options_parse_with(&o, rows, 1, &s, 3, argv));
    refused(&o, "the texts of these options");
    lc_trainer_options_release(&o);
}

TEST_MAIN
