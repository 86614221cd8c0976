/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that are NULL although their number is not 0, or whose number is negative, and lists of pointers of which one
 * is NULL: an error that names the list. */
#include "test.h"

#include <fcntl.h>
#include <lightc/lightc.h>
#include <string.h>

static lc_callback cb;

TEST(lists_of_callbacks)
{
    const char *const names[] = {"weight", NULL};
    CHECK_STATUS(lc_model_summary(&cb, .n_example_inputs = 2), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_example_inputs is 2, but example_inputs is NULL");
    CHECK_STATUS(lc_gradient_accumulation_scheduler(&cb, .n_scheduling = 2), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_scheduling is 2, but scheduling is NULL");
    CHECK_STATUS(lc_device_stats_monitor(&cb, .n_filter_keys = -1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_filter_keys is -1; it must not be negative");
    CHECK_STATUS(lc_device_stats_monitor(&cb, .filter_keys = names + 1, .n_filter_keys = 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "filter_keys[0] is NULL");
    CHECK_STATUS(lc_model_pruning(&cb, .pruning_fn = "l1_unstructured", .n_parameters_to_prune = 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_parameters_to_prune is 1, but parameters_to_prune is NULL");
    CHECK_STATUS(lc_model_pruning(&cb, .pruning_fn = "l1_unstructured", .parameters_to_prune = names,
                                  .n_parameters_to_prune = 2),
                 LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "parameters_to_prune[1] is NULL");
}

/* The callback is freed before it has opened its files. */
TEST(a_list_of_what_is_not_measured)
{
    const char *const keys[] = {"none"};
    CHECK(fcntl(0, F_GETFD) >= 0 || open("/dev/null", O_RDONLY) == 0);
    CHECK_STATUS(lc_device_stats_monitor(&cb, .filter_keys = keys, .n_filter_keys = 1), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "filter_keys names \"none\", which is not measured");
    CHECK(fcntl(0, F_GETFD) >= 0); /* it would be closed as one of them */
}

TEST(lists_about_a_module)
{
    lc_module m;
    lc_linear l;
    lc_load_result r;
    const lc_text_pair rename[] = {{.key = "a"}};
    lc_module_init(&m, NULL, 1);
    lc_linear_init(&l, &m, "l", 1, 1);
    CHECK_STATUS(lc_module_load_weights(&m, "none", &r, .n_rename = 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_rename is 1, but rename is NULL");
    CHECK_STATUS(lc_module_load_weights(&m, "none", &r, .rename = rename, .n_rename = 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "rename[0] has a NULL");
    CHECK(!lc_sgd(&m, .n_parameters = 2)); /* it trained all */
    CHECK_CONTAINS(lc_error_message(), "n_parameters is 2, but parameters is NULL at test_null_lists.c:");
    lc_module_release(&m);
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return LC_OK;
}

TEST(loaders_of_a_run)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .validation_step = validation_step};
    lc_dataloader *const none[] = {NULL};
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    lc_trainer *t;
    lc_module m;
    o.logger = "none";
    o.enable_model_summary = o.enable_progress_bar = LC_OFF;
    lc_module_init(&m, &ops, 1);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_validate(t, &m, .n_dataloaders = 2), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_dataloaders is 2, but dataloaders is NULL");
    CHECK_STATUS(lc_trainer_validate(t, &m, .dataloaders = none, .n_dataloaders = -1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_dataloaders is -1; it must not be negative");
    CHECK_STATUS(lc_trainer_validate(t, &m, .dataloaders = none, .n_dataloaders = 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "val_dataloader: the data loader is NULL");
    lc_trainer_free(t);
    lc_module_release(&m);
}

/* Not a crash, and not as if there were none. */
TEST(negative_numbers)
{
    const lc_metric_value unnamed = {.value = 1};
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    lc_optimizer *opt, *named;
    lc_trainer *t;
    lc_fabric *f;
    lc_module m;
    lc_linear l;
    double values[2] = {0}, out[2] = {0};
    char *argv[] = {"program", NULL};
    lc_module_init(&m, NULL, 1);
    lc_linear_init(&l, &m, "l", 1, 1);
    CHECK(opt = lc_sgd(&m, .no_parameters = true));
    CHECK_EQ(lc_optimizer_add_group(opt, NULL, &l.weight, -2), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_parameters is -2; it must not be negative");
    CHECK_STATUS(lc_optimizer_by_name("SGD", &m, NULL, -1, &named), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_args is -1; it must not be negative");
    CHECK_STATUS(lc_safetensors_save("none", -1, NULL, 0, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_tensors is -1; it must not be negative");
    CHECK_STATUS(lc_safetensors_save("none", 0, NULL, 2, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_metadata is 2, but metadata is NULL");
    CHECK_STATUS(lc_trainer_options_parse_with(&o, NULL, -1, NULL, 1, argv), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_options is -1; it must not be negative");
    CHECK_OK(lc_fabric_new(&f));
    CHECK_STATUS(lc_fabric_all_reduce(f, values, -1, LC_LOG_SUM), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_fabric_broadcast(f, values, -1, 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_fabric_all_gather(f, values, -1, out), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_values is -1; it must not be negative");
    CHECK_STATUS(lc_fabric_log_dict(f, NULL, -1, 0), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_values is -1; it must not be negative");
    o.logger = "none";
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_log_row(t, NULL, -1, 0, 0), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_values is -1; it must not be negative");
    CHECK_STATUS(lc_trainer_log_row(t, &unnamed, 1, 0, 0), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "value 0 of the row has no name");
    CHECK_STATUS(lc_trainer_log_hyperparameters(t, NULL, -1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_params is -1; it must not be negative");
    lc_trainer_free(t);
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* Values that the function would read only after everything else is right. */
TEST(values_that_are_read_late)
{
    const lc_named_number step_size = {"step_size", 3}, no_name = {NULL, 1};
    const lc_text_pair half = {.key = "a"};
    lc_scheduler *schedule;
    lc_metric *accuracy;
    lc_optimizer *opt, *named;
    double state[64];
    int64_t n = 64;
    lc_module m;
    lc_linear l;
    lc_module_init(&m, NULL, 1);
    lc_linear_init(&l, &m, "l", 1, 1);
    CHECK(opt = lc_sgd(&m, .lr = 0.1));
    CHECK_STATUS(lc_scheduler_by_name("StepLR", opt, NULL, 1, NULL, 0, NULL, 0, &schedule), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_args is 1, but args is NULL");
    CHECK_STATUS(lc_scheduler_by_name("MultiStepLR", opt, NULL, 0, NULL, 1, NULL, 0, &schedule), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_milestones is 1, but milestones is NULL");
    CHECK_STATUS(lc_scheduler_by_name("StepLR", opt, &step_size, 1, NULL, 0, NULL, 1, &schedule), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_children is 1, but children is NULL");
    CHECK_STATUS(lc_scheduler_by_name("StepLR", opt, &no_name, 1, NULL, 0, NULL, 0, &schedule), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "StepLR: an argument has no name");
    CHECK_STATUS(lc_optimizer_by_name("SGD", &m, &no_name, 1, &named), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "SGD: an argument has no name");
    CHECK_STATUS(lc_safetensors_save("none", 0, NULL, 1, &half), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "metadata[0] has a NULL");
    CHECK_OK(lc_metric_new("Accuracy", &accuracy, .num_classes = 3));
    CHECK_OK(lc_metric_save(accuracy, state, &n));
    CHECK_STATUS(lc_metric_load(accuracy, NULL, n), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "lc_metric_load: data must not be NULL");
    CHECK_STATUS(lc_metric_merge_state(accuracy, NULL, n), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "lc_metric_merge_state: data must not be NULL");
    lc_metric_free(accuracy);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* Whatever else is wrong: there is no such checkpoint, no curve, no run. */
TEST(a_missing_pointer_is_reported_first)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    const lc_lr_find_result none = {0};
    lc_trainer *t;
    lc_fabric *f;
    o.logger = "none";
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_fabric_new(&f));
    CHECK_STATUS(lc_checkpoint_visit_files("none", NULL, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "fn must not be NULL");
    CHECK_STATUS(lc_lr_find_write_svg(&none, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "path must not be NULL");
    CHECK_STATUS(lc_fabric_load(f, NULL, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "path must not be NULL");
    CHECK_STATUS(lc_trainer_step(t, NULL, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "batch must not be NULL");
    lc_fabric_free(f);
    lc_trainer_free(t);
}

TEST(what_is_missing_is_named)
{
    lc_dataset *d;
    const lc_file_field field = {.name = "x"};
    CHECK_STATUS(lc_file_dataset_new(1, &field, &d), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "field 'x' of a dataset of files has no file of arrays");
    CHECK_STATUS(lc_profiler_new("simple", NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "lc_profiler_new: out must not be NULL");
}

TEST_MAIN
