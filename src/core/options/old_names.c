/* SPDX-License-Identifier: Apache-2.0 */
/* Names that options had in older versions of Lightning, or that people type out of habit.
 *
 * An old name works if its meaning is clear; otherwise the error says what to write today. To add one: a row in the
 * table. The first row that fits is taken; a program's own option of that name takes precedence. */
#include "core/options/options.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#define OFF "off"
#define ON  "on"

#define TPU_ANSWER                                                                                                     \
    "lightc has no TPU backend: it would be a folder in src/backends that calls PJRT; use --accelerator cpu"

static const lc__old_name old_names[] = {
    /* how long */
    {"epochs", .set = {{"max_epochs"}}},
    {"max_nb_epochs", .set = {{"max_epochs"}}},
    {"num_epochs", .set = {{"max_epochs"}}},
    {"n_epochs", .set = {{"max_epochs"}}},
    {"num_train_epochs", .set = {{"max_epochs"}}},
    {"min_nb_epochs", .set = {{"min_epochs"}}},
    {"num_steps", .set = {{"max_steps"}}},
    {"max_iters", .set = {{"max_steps"}}},
    /* which part of the data */
    {"train_percent_check", .set = {{"limit_train_batches"}}},
    {"val_percent_check", .set = {{"limit_val_batches"}}},
    {"test_percent_check", .set = {{"limit_test_batches"}}},
    {"overfit_pct", .set = {{"overfit_batches"}}},
    {"nb_sanity_val_steps", .set = {{"num_sanity_val_steps"}}},
    {"reload_dataloaders_every_epoch", OFF, {{"reload_dataloaders_every_n_epochs", "0"}}},
    {"reload_dataloaders_every_epoch", ON, {{"reload_dataloaders_every_n_epochs", "1"}}},
    {"multiple_trainloader_mode", .answer = "the mode is now an argument of the combining loader"},
    {"data_dir", .set = {{"data"}}}, /* for programs that have such an option */
    {"prepare_data_per_node", .answer = "prepare_data runs once on every machine"},
    /* optimization */
    {"gradient_clip", .set = {{"gradient_clip_val"}}},
    {"max_grad_norm", .set = {{"gradient_clip_val"}}},
    {"gradient_accumulation_steps", .set = {{"accumulate_grad_batches"}}},
    {"auto_lr_find", OFF},
    {"auto_lr_find",
     .answer = "use the callback LearningRateFinder (lc_learning_rate_finder_new), or lc_tuner_lr_find"},
    {"auto_scale_batch_size", OFF},
    {"auto_scale_batch_size",
     .answer = "use the callback BatchSizeFinder (lc_batch_size_finder_new), or lc_tuner_scale_batch_size"},
    {"truncated_bptt_steps", OFF},
    {"truncated_bptt_steps",
     .answer = "split the sequence in training_step with manual_optimization, and lc_detach the state between parts"},
    {"stochastic_weight_avg", OFF},
    {"stochastic_weight_avg", .answer = "use the callback StochasticWeightAveraging"},
    {"terminate_on_nan", .set = {{"detect_anomaly"}}},
    {"print_nan_grads", .set = {{"detect_anomaly"}}},
    {"track_grad_norm", OFF},
    {"track_grad_norm", "-1"},
    {"track_grad_norm", .answer = "use the callback GradientNormMonitor"},
    /* what is shown and written */
    {"weights_summary", OFF, {{"enable_model_summary", "false"}}},
    {"weights_summary", "top", {{"enable_model_summary", "true"}}},
    {"weights_summary",
     .answer = "use the callback ModelSummary: lc_model_summary_new with .max_depth = -1 shows every level"},
    {"show_progress_bar", .set = {{"enable_progress_bar"}}},
    {"progress_bar_refresh_rate", OFF, {{"enable_progress_bar", "false"}}},
    {"progress_bar_refresh_rate",
     .answer = "the bar is drawn ten times a second however long a batch takes; refresh_rate in lc_progress_bar_args "
               "changes it, --enable_progress_bar false turns it off"},
    {"process_position", .answer = "bars find their position themselves; drop it"},
    {"checkpoint_callback", .set = {{"enable_checkpointing"}}},
    {"early_stop_callback", OFF},
    {"early_stop_callback", .answer = "use --early_stopping METRIC"},
    {"resume_from_checkpoint", .set = {{"ckpt_path"}}},
    {"default_save_path", .set = {{"default_root_dir"}}},
    {"weights_save_path", .set = {{"dirpath"}}},
    {"row_log_interval", .set = {{"log_every_n_steps"}}},
    {"add_row_log_interval", .set = {{"log_every_n_steps"}}},
    {"flush_logs_every_n_steps", .answer = "loggers write in their own thread as rows arrive; drop it"},
    {"log_save_interval", .answer = "loggers write in their own thread as rows arrive; drop it"},
    {"log_gpu_memory", .answer = "use the callback DeviceStatsMonitor"},
    {"move_metrics_to_cpu", .answer = "metrics are already kept on the host; drop it"},
    {"profiler", "advanced", {{"profiler", "ops"}}},
    {"profiler", "pytorch", {{"profiler", "trace"}}},
    {"profiler", "true", {{"profiler", "simple"}}},
    {"profiler", "True", {{"profiler", "simple"}}},
    {"profiler", "xla", .answer = TPU_ANSWER},
    /* the machine */
    {"nodes", .set = {{"num_nodes"}}},
    {"nnodes", .set = {{"num_nodes"}}},
    {"nb_gpu_nodes", .set = {{"num_nodes"}}},
    {"nr", .set = {{"node_rank"}}},
    {"hostfile", .set = {{"nodes_file"}}},
    {"gpus", OFF, {{"accelerator", "cpu"}}},
    {"gpus", "-1", {{"accelerator", "gpu", .unless_given = true}, {"devices", "auto"}}}, /* as many as there are */
    {"gpus", .set = {{"accelerator", "gpu", .unless_given = true}, {"devices"}}}, /* processes, with accelerator cpu */
    {"num_processes", .set = {{"accelerator", "cpu"}, {"devices"}}},
    {"tpu_cores", OFF},
    {"tpu_cores", .answer = TPU_ANSWER},
    {"num_tpu_cores", OFF},
    {"num_tpu_cores", .answer = TPU_ANSWER},
    {"ipus", OFF},
    {"ipus", .set = {{"accelerator", "ipu"}}},
    {"hpus", OFF},
    {"hpus", .set = {{"accelerator", "hpu"}}},
    {"auto_select_gpus", OFF},
    {"auto_select_gpus", .answer = "use --devices auto"},
    {"distributed_backend", .set = {{"strategy"}}},
    {"accelerator", "ddp", {{"strategy"}}},
    {"accelerator", "ddp_spawn", {{"strategy"}}},
    {"accelerator", "ddp2", .answer = "ddp2 left Lightning in 1.9; use --strategy ddp"},
    {"accelerator", "ddp_cpu", {{"strategy", "ddp"}, {"accelerator", "cpu"}}},
    {"accelerator", "dp", {{"strategy"}}},
    {"accelerator", "horovod", .answer = "horovod left Lightning in 2.0; use --strategy ddp"},
    {"replace_sampler_ddp", .set = {{"use_distributed_sampler"}}},
    {"use_amp", OFF},
    {"use_amp", .set = {{"precision", "16-mixed"}}},
    {"amp_level", .answer = "use --precision 16-mixed"},
    {"amp_backend", "native"},
    {"amp_backend", .answer = "use --precision 16-mixed"},
    {"precision", "16", {{"precision", "16-mixed"}}},
    {"precision", "bf16", {{"precision", "bf16-mixed"}}},
    {"precision", "32", {{"precision", "32-true"}}},
    {"precision", "64", {{"precision", "64-true"}}},
    {"seed_everything", .set = {{"seed"}}},
    {"benchmark", .set = {{"tune"}}},
    /* without a counterpart */
    {"plugins", .answer = "precisions, strategies and files have their own options; drop it"},
    {"model_registry", .answer = "there is no model registry; use --ckpt_path PATH"},
    {"suggest_integrations", .answer = "no tips are shown; drop it"},
};

const lc__old_name *lc__option_old_names(int *n)
{
    *n = (int)(sizeof old_names / sizeof *old_names);
    return old_names;
}

static bool is_off(const char *text)
{
    static const char *const words[] = {"false", "False", "FALSE", "no", "off", "0", "none", "None", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i])) return true;
    return false;
}

static bool fits(const lc__old_name *row, const char *value)
{
    if (!row->when) return true;
    if (!strcmp(row->when, OFF)) return is_off(value);
    if (!strcmp(row->when, ON)) return !is_off(value);
    return !strcmp(row->when, value);
}

/* is_option: the name is also an option of today, so only rows for particular values apply. */
static const lc__old_name *find(const char *name, size_t length, const char *value, bool is_option)
{
    for (size_t i = 0; i < sizeof old_names / sizeof *old_names; i++) {
        const lc__old_name *row = &old_names[i];
        if (is_option && !row->when) continue;
        if (lc__option_same_name(row->name, name, length) && (!value || fits(row, value))) return row;
    }
    return NULL;
}

bool lc__option_is_old(const char *name, size_t length)
{
    return find(name, length, NULL, false) != NULL;
}

lc_status lc__option_set_old(const lc_option_set *sets, int n_sets, const char *name, size_t length, const char *value,
                             bool *done)
{
    void *target;
    const lc_option *o = lc__option_find(sets, n_sets, name, length, &target);
    const lc__old_name *row = NULL;
    *done = false;
    if (!o || lc__option_is_trainers(o)) row = find(name, length, value, o != NULL);
    if (!row) return LC_OK;
    if (row->answer) return lc_fail(LC_ERR_CONFIG, "%s=%.60s: %s", row->name, value, row->answer);
    for (int i = 0; i < 2 && row->set[i].option; i++) {
        const char *today = row->set[i].option, *with = row->set[i].value ? row->set[i].value : value;
        o = lc__option_find(sets, n_sets, today, strlen(today), &target);
        if (!o) return LC_OK; /* not an option of this program: the name is unknown */
        const char *given;
        if (row->set[i].unless_given) {
            memcpy(&given, (const char *)target + o->offset, sizeof given);
            if (given && strcmp(given, "auto") != 0) continue;
        }
        lc_status s = lc_option_set_text(o, target, with);
        if (s < 0) return lc_fail_context(s, "%s is now called %s", row->name, today);
    }
    *done = true;
    return LC_OK;
}

lc_status lc__accelerator_check(const char *name)
{
    static const struct {
        const char *name, *answer;
    } others[] = {
        {"gpu", "this version supports only CPUs: there is no CUDA backend yet; use --accelerator cpu, with which "
                "--gpus 2 means 2 processes"},
        {"cuda", "this version supports only CPUs: there is no CUDA backend yet; use --accelerator cpu"},
        {"mps", "lightc has no Metal backend: it would be a folder in src/backends; use --accelerator cpu"},
        {"tpu", TPU_ANSWER},
        {"ipu", "lightc has no backend for IPUs, and none is planned; use --accelerator cpu"},
        {"hpu", "lightc has no backend for Gaudi, and none is planned; use --accelerator cpu"},
    };
    if (!name || !strcmp(name, "auto") || !strcmp(name, "cpu")) return LC_OK;
    const lc__old_name *row = find("accelerator", strlen("accelerator"), name, true);
    if (row && row->set[0].option)
        return lc_fail(LC_ERR_CONFIG, "accelerator=%s: that is now a strategy; use --strategy %s", name,
                       row->set[0].value ? row->set[0].value : name);
    int count;
    lc_status status = lc__device_count(name, &count);
    if (status >= 0 || lc__device_has_plugin(name)) return status;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i].name, name))
            return lc_fail(LC_ERR_UNSUPPORTED, "accelerator=%s: %s", name, others[i].answer);
    return status;
}
