/* SPDX-License-Identifier: Apache-2.0 */
/* Accessors for a trainer's state. */
#include "core/trainer/run.h"
#include "core/loop/loop.h"
#include "core/ranks/ranks.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "core/hooks/trainer_internal.h"
#include "base/handle.h"
#include "device/device.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

lc_module *lc_trainer_module(const lc_trainer *t)
{
    LC__IS(t, TRAINER, NULL);
    return t->m;
}
lc_graph *lc_trainer_graph(const lc_trainer *t)
{
    LC__IS(t, TRAINER, NULL);
    return t->graph;
}
int64_t lc_trainer_global_step(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->global_step;
}
int64_t lc_trainer_current_epoch(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->current_epoch;
}
int64_t lc_trainer_batch_idx(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->batch_idx;
}
int64_t lc_trainer_logger_step(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->batches_that_stepped;
}
bool lc_trainer_is_last_batch(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->is_last_batch;
}
bool lc_trainer_is_accumulating(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->accumulating;
}
int lc_trainer_num_val_loaders(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->input->eval.n;
}
int lc_trainer_dataloader_idx(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->dataloader_idx;
}
lc_stage lc_trainer_stage(const lc_trainer *t)
{
    LC__IS(t, TRAINER, (lc_stage)0);
    return t->stage;
}
bool lc_trainer_sanity_checking(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->sanity;
}
bool lc_trainer_validating(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->validating && !t->sanity;
}
bool lc_trainer_training(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->in_run && t->stage == LC_STAGE_FIT && !t->validating && !t->sanity;
}
bool lc_trainer_testing(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->in_run && t->stage == LC_STAGE_TEST;
}
bool lc_trainer_predicting(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->in_run && t->stage == LC_STAGE_PREDICT;
}
bool lc_trainer_evaluating(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return lc_trainer_validating(t) || lc_trainer_testing(t);
}
bool lc_trainer_interrupted(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->run_state == LC_RUN_INTERRUPTED;
}
bool lc_trainer_received_sigterm(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return lc_trainer_received_signal(t) == SIGTERM;
}
int64_t lc_trainer_max_epochs(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->max_epochs;
}
int64_t lc_trainer_min_epochs(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->min_epochs;
}
int64_t lc_trainer_max_steps(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->max_steps;
}
int64_t lc_trainer_min_steps(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->min_steps;
}
int64_t lc_trainer_accumulate_grad_batches(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->accumulate_next;
}
int64_t lc_trainer_val_check_batch(const lc_trainer *t)
{
    static const int64_t otherwise[] = {
        [LC__VAL_EPOCH_END] = LC_VAL_EPOCH_END, [LC__VAL_TIME] = LC_VAL_TIME, [LC__VAL_STEPS] = LC_VAL_STEPS};
    LC__IS(t, TRAINER, 0);
    return t->input->val_check == LC__VAL_BATCHES ? t->input->val_check_batch : otherwise[t->input->val_check];
}
bool lc_trainer_enable_validation(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return t->input->enable_validation;
}
lc_run_state lc_trainer_state(const lc_trainer *t)
{
    LC__IS(t, TRAINER, LC_RUN_INITIALIZING);
    return t->run_state;
}
int lc_trainer_received_signal(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return atomic_load(&((lc_trainer *)(uintptr_t)t)->ranks->signal);
}
int lc_trainer_num_nodes(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return (int)t->opt.num_nodes;
}
int lc_trainer_num_devices(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return lc_trainer_world_size(t) / lc_trainer_num_nodes(t);
}
int lc_trainer_local_rank(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return lc_trainer_global_rank(t) % lc_trainer_num_devices(t);
}
int lc_trainer_node_rank(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return lc_trainer_global_rank(t) / lc_trainer_num_devices(t);
}
bool lc_trainer_is_global_zero(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return lc_trainer_global_rank(t) == 0;
}
const char *lc_trainer_accelerator(const lc_trainer *t)
{
    LC__IS(t, TRAINER, "");
    const lc_device *on;
    if (t->opt.accelerator && strcmp(t->opt.accelerator, "auto") != 0) return t->opt.accelerator;
    return lc__device_default(&on) < 0 ? "" : on->ops->name;
}
const lc_strategy_ops *lc_trainer_strategy(const lc_trainer *t)
{
    LC__IS(t, TRAINER, NULL);
    return t->strategy;
}
lc_precision lc_trainer_precision(const lc_trainer *t)
{
    LC__IS(t, TRAINER, (lc_precision){0});
    return (lc_precision){&t->precision, t->precision_self};
}
const char *lc_trainer_default_root_dir(const lc_trainer *t)
{
    LC__IS(t, TRAINER, "");
    return t->root_dir;
}
int lc_trainer_logger_count(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->logging->n_loggers;
}
lc_dataloader *lc_trainer_train_dataloader(const lc_trainer *t)
{
    LC__IS(t, TRAINER, NULL);
    return t->input->train.loader;
}
lc_dataloader *lc_trainer_val_dataloader(const lc_trainer *t, int i)
{
    LC__IS(t, TRAINER, NULL);
    return i >= 0 && i < t->input->eval.n ? t->input->eval.s[i].loader : NULL;
}
const char *lc_trainer_run_dir(const lc_trainer *t)
{
    LC__IS(t, TRAINER, "");
    return t->run_dir ? t->run_dir : "";
}
const char *lc_trainer_ckpt_path(const lc_trainer *t)
{
    LC__IS(t, TRAINER, "");
    return t->ckpt_path ? t->ckpt_path : "";
}
int lc_trainer_optimizer_count(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->optimizers.n;
}
int lc_trainer_scheduler_count(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->optimizers.n_schedulers;
}
double lc_trainer_elapsed(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return (double)(lc__now_ns() - t->run->time_start_ns) * 1e-9;
}

int64_t lc_trainer_num_training_batches(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    const lc__source *s = &t->input->train;
    if (!s->loader) return -1;
    return s->length >= 0 ? s->length : s->limit;
}

int64_t lc_trainer_num_val_batches(const lc_trainer *t, int loader)
{
    LC__IS(t, TRAINER, 0);
    if (loader < 0 || loader >= t->input->eval.n) return 0;
    const lc__source *s = &t->input->eval.s[loader];
    return s->length >= 0 ? s->length : s->limit;
}

int64_t lc_trainer_num_sanity_val_batches(const lc_trainer *t, int loader)
{
    LC__IS(t, TRAINER, 0);
    if (loader < 0 || loader >= t->input->eval.n) return 0;
    const lc__source *s = &t->input->eval.s[loader];
    int64_t n = s->length >= 0 ? s->length : s->limit;
    int64_t most = t->opt.num_sanity_val_steps;
    return most >= 0 && (n < 0 || n > most) ? most : n;
}

lc_optimizer *lc_trainer_optimizer(const lc_trainer *t, int i)
{
    LC__IS(t, TRAINER, NULL);
    return i >= 0 && i < t->optimizers.n ? t->optimizers.optimizers[i].optimizer : NULL;
}

const lc_scheduler_config *lc_trainer_scheduler(const lc_trainer *t, int i)
{
    LC__IS(t, TRAINER, NULL);
    return i >= 0 && i < t->optimizers.n_schedulers ? &t->optimizers.schedulers[i] : NULL;
}

lc_logger lc_trainer_logger(const lc_trainer *t, int i)
{
    LC__IS(t, TRAINER, (lc_logger){0});
    return i >= 0 && i < t->logging->n_loggers ? t->logging->loggers[i] : (lc_logger){0};
}

lc_status lc_trainer_estimated_stepping_batches(lc_trainer *t, double *out)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!t->in_run || t->stage != LC_STAGE_FIT)
        return lc_fail(LC_ERR_STATE,
                       "estimated_stepping_batches is available only while fit runs (in configure_optimizers)");
    *out = t->max_steps >= 0 ? (double)t->max_steps : INFINITY;
    if (t->max_epochs < 0) return LC_OK;
    LC_TRY(lc__setup_train_data(t));
    int64_t n = lc_trainer_num_training_batches(t);
    if (n < 0) return LC_OK;
    double windows = (double)((n + t->accumulate_next - 1) / t->accumulate_next);
    double steps = windows * (double)(t->max_epochs > 0 ? t->max_epochs : 1);
    if (steps < *out) *out = steps;
    return LC_OK;
}

lc_metrics lc_trainer_results(const lc_trainer *t, int loader)
{
    LC__IS(t, TRAINER, (lc_metrics){0});
    if (loader < 0 || loader >= t->logging->n_results) return (lc_metrics){0};
    return (lc_metrics){t->logging->result_values[loader], t->logging->n_result_values[loader]};
}

int64_t lc_trainer_prediction_count(const lc_trainer *t, int loader)
{
    LC__IS(t, TRAINER, 0);
    return loader >= 0 && loader < LC_MAX_LOADERS ? t->loop->predictions[loader].n : 0;
}

lc_tensor *lc_trainer_prediction(const lc_trainer *t, int loader, int64_t i)
{
    LC__IS(t, TRAINER, NULL);
    return i >= 0 && i < lc_trainer_prediction_count(t, loader) ? t->loop->predictions[loader].t[i] : NULL;
}
