/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of built-in components (builtin.h). To add one: a file in its folder, a declaration in the header that
 * this file includes from there, and a line below. */
#include "builtin.h"

#include "backends/backends.h"
#include "callbacks/callbacks.h"
#include "data/transforms/batch.h"
#include "engine/plan/passes.h"
#include "loggers/loggers.h"
#include "ops/ops.h"
#include "optim/fuse_finite.h"
#include "optim/keep_low.h"
#include "optim/optim_internal.h"
#include "parallel/collectives/collectives.h"
#include "parallel/reduce/reducer.h"
#include "parallel/tree/tree.h"
#include "precision/precisions.h"
#include "precision/update_scale.h"
#include "profilers/profilers.h"
#include "record/fault.h"
#include "strategies/strategies.h"

/* clang-format off */
static const lc_strategy_ops *const strategies[] = {
    &lc__strategy_single,
    &lc__strategy_ddp,
    &lc__strategy_sharded,
    &lc__strategy_sharded_1,
    &lc__strategy_sharded_2,
    &lc__strategy_sharded_3,
    &lc__strategy_sharded_hybrid,
    &lc__strategy_data_parallel,
    &lc__strategy_central_storage,
    NULL,
};
/* clang-format on */

static const lc__named_precision precisions[] = {
    {"32-true", &lc__precision_32_true},
    {"32", &lc__precision_32_true},
    {"64-true", &lc__precision_64_true},
    {"64", &lc__precision_64_true},
    {"bf16-true", &lc__precision_bf16_true},
    {"16-true", &lc__precision_16_true},
    {"bf16-mixed", &lc__precision_bf16_mixed},
    {"bf16", &lc__precision_bf16_mixed},
    {"16-mixed", &lc__precision_16_mixed},
    {"16", &lc__precision_16_mixed},
    {0},
};

static const lc__named_profiler profilers[] = {
    {"simple", lc__simple_profiler_new},
    {"ops", lc__ops_profiler_new},
    {"trace", lc__trace_profiler_new},
    {0},
};

static const lc__named_logger loggers[] = {
    {"csv", .make = lc_csv_logger_new},
    {"sqlite", .make = lc_sqlite_logger_new},
    {"tensorboard", .make = lc_tensorboard_logger_new},
    {"mlflow", "URL", .make_with = lc__mlflow_logger_at},
    {"stream", "FILE", .make_with = lc_stream_logger_new},
    {0},
};

/* In the order in which a trainer adds them. */
static lc__default_callback *const callbacks[] = {
    lc__default_timer,
    lc__default_slurm_timer,
    lc__default_progress_bar,
    lc__default_model_summary,
    lc__default_early_stopping,
    lc__default_model_checkpoint,
    NULL,
};

static const lc_device host = {.ops = &lc__cpu_backend};

static const lc_backend_host plugins = {
    .abi = LC_BACKEND_ABI,
    .fail = lc_fail,
    .find_op = lc__op_find,
    .bad_index = lc_call_bad_index,
    .has_bad_index = lc__call_has_bad_index,
};

static const lc_op *const tree_ops[] = {&lc__op_combine, NULL};
static const lc_op *const batch_ops[] = {&lc__op_transform_batch, &lc__op_mix_batch, NULL};
static const lc_op *const precision_ops[] = {&lc__op_update_scale, NULL};

static const lc_op *const *const operators[] = {
    lc__math_ops, lc__optim_ops, lc__collective_ops, lc__reduce_ops, tree_ops, batch_ops, precision_ops, NULL,
};

static const lc_pass passes[] = {
    {LC_PHASE_FUSE, lc__fuse_finite},
    {LC_PHASE_PLACE, lc__keep_low},
    {LC_PHASE_SPLIT, lc__split_collectives},
    {LC_PHASES, NULL},
};

static const lc__builtins builtins = {
    .host = &host,
    .plugins = &plugins,
    .strategies = strategies,
    .precisions = precisions,
    .profilers = profilers,
    .loggers = loggers,
    .callbacks = callbacks,
    .operators = operators,
    .passes = passes,
};

/* Before the constructors of programs, which may call the library. */
__attribute__((constructor(101))) void lc__provide_builtins(void);
void lc__provide_builtins(void)
{
    lc__builtin = &builtins;
}
