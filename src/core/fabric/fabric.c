/* SPDX-License-Identifier: Apache-2.0 */
/* Fabric: strategy, precision, graph, loggers and checkpoints without the trainer (fabric.h). */
#include "base/args.h"
#include "base/io.h"
#include "base/owned.h"
#include "core/hooks/hooks.h"
#include "core/hooks/precision_calls.h"
#include "core/loop/loop.h"
#include "core/trainer/matmul_precision.h"
#include "core/trainer/memory_limit.h"
#include "core/trainer/precision_time.h"
#include "core/logging/logging.h"
#include "core/fabric/fabric_internal.h"

#include "comm/world/world.h"
#include "core/checkpoint/joint.h"
#include "core/logging/results_ranks.h"
#include "core/ranks/ranks.h"
#include "data/data_internal.h"
#include "core/trainer/start_ranks.h"
#include "optim/state_buffers.h"
#include "module/tensors.h"
#include "record/graph_impl.h"
#include "tensor/initial.h"

#include <stdlib.h>
#include <string.h>

static void free_loggers(const lc_logger *loggers, int n)
{
    for (int i = 0; i < n; i++)
        if (LC__SLOT(loggers[i].ops, free)) loggers[i].ops->free(loggers[i].self);
}

/* Frees the program's loggers and precision if no fabric could be made to take them over. */
static void free_given(const lc_fabric_args *o)
{
    const lc_precision *p = o->precision_plugin;
    LC__FREE_LIST_UNLESS_OWNED(o->loggers, o->n_loggers);
    if (p) lc__free_unless_owned(LC__SLOT(p->ops, teardown), p->self);
}

static lc_status check_options(const lc_fabric_args *o)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"num_nodes", (double)o->num_nodes},
        {"max_restarts", (double)o->max_restarts},
        {"start_timeout", o->start_timeout},
        {"silence_timeout", o->silence_timeout},
        {"progress_timeout", o->progress_timeout == -1 ? 0 : o->progress_timeout},
        {"grace_period", o->grace_period},
        {"threads", o->threads},
        {"bucket_cap_mb", o->bucket_cap_mb},
        {"shard_size", (double)o->shard_size},
    };
    int64_t limit;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        LC_TRY(lc__option_check(numbers[i].name, numbers[i].value));
    lc_matmul_precision products;
    LC_TRY(lc__memory_limit_parse(o->memory_limit, &limit));
    LC_TRY(lc__matmul_precision_parse(o->float32_matmul_precision, &products));
    return lc__accelerator_check(o->accelerator);
}

/* A fabric's requests to launcher and strategy, in the form of a trainer's options. A fabric does not know whether
 * ranks have their own data or how the program cuts batches, so own_data and deterministic are left out. */
static lc_trainer_options as_trainer(const lc_fabric_args *o)
{
    lc_trainer_options t = LC_TRAINER_OPTIONS_INIT;
    t.accelerator = o->accelerator;
    t.strategy = o->strategy;
    t.devices = o->devices;
    t.nodes_file = o->nodes_file;
    t.default_root_dir = o->default_root_dir;
    t.num_nodes = o->num_nodes;
    t.max_restarts = o->max_restarts;
    t.comm = o->comm;
    t.bucket_cap_mb = o->bucket_cap_mb;
    t.gradient_compression = o->gradient_compression;
    t.shard_size = o->shard_size;
    t.comm_security = o->comm_security;
    t.start_timeout = o->start_timeout;
    t.silence_timeout = o->silence_timeout;
    t.progress_timeout = o->progress_timeout;
    t.grace_period = o->grace_period;
    return t;
}

/* Sets up strategy, ranks and precision. */
static lc_status set_up(lc_fabric *f, const lc_fabric_args *o, const lc_strategy_request *ask)
{
    const lc_strategy_ops *strategy;
    LC_TRY(lc_strategy_find(o->strategy, &strategy));
    LC_TRY(strategy->setup_environment(&f->strategy_self, ask));
    f->strategy = strategy; /* from here on it must be torn down */
    LC_TRY(lc__state_dict_type(o->state_dict_type, strategy, &f->sharded));
    if (strategy->devices)
        return lc_fail(
            LC_ERR_UNSUPPORTED,
            "%s splits batches among its devices, which a fabric leaves to the program; use ddp, or a trainer",
            strategy->name);
    f->comm = strategy->comm(f->strategy_self);
    return lc__request_check(ask, strategy, f->comm, o->deterministic);
}

static lc_status report_precision(const lc_fabric *f)
{
    char text[LC__SLOWER_SIZE];
    if (lc_fabric_global_rank(f) != 0) return LC_OK;
    LC_TRY(lc__precision_slower(f->graph, f->precision.name, text));
    if (*text) lc__show_line(2, "warning: %s", text);
    const char *higher = lc__matmul_precision_falls_back(f->graph);
    if (higher) lc__show_line(2, "warning: %s", higher);
    return LC_OK;
}

lc_status lc_fabric_new_with(lc_fabric **out, const lc_fabric_args *args)
{
    LC__TAKE_IF_GIVEN(o, lc_fabric, lc_fabric_args, args);
    lc_graph_args g = LC_ARGS(lc_graph, .threads = o.threads, .deterministic = o.deterministic, .seed = o.seed,
                              .tune = o.tune, .nan_check = o.detect_anomaly);
    char device[LC__DEVICE_NAME];
    lc_status status = LC_OK;
    if (out) *out = NULL;
    lc__first_error e = {0}; /* loggers and the precision are taken over in any case */
    lc__first_error_note(&e, lc__list_check("loggers", o.n_loggers, o.loggers));
    if (e.status < 0) o.n_loggers = 0;
    lc_fabric *f = calloc(1, sizeof *f);
    if (f) f->mark = LC__MARK_OF(FABRIC);
    if (f) f->loggers = calloc((size_t)o.n_loggers + 1, sizeof *f->loggers);
    if (!f || !f->loggers) {
        free_given(&o);
        status = lc_fail(LC_ERR_MEMORY, "out of memory: a fabric");
        goto done;
    }
    lc__first_error_note(&e, lc__precision_take(o.precision, o.precision_plugin, &f->precision, &f->precision_self));
    lc__first_error_note(&e, lc__loggers_take(o.loggers, o.n_loggers, f->loggers, &f->n_loggers));
    LC_TRY_GOTO(status, done, lc__first_error_status(&e));
    LC_TRY_GOTO(status, done, out ? LC_OK : lc__is_null(__func__, "out"));
    LC_TRY_GOTO(status, done, lc__copy_text(lc__dir_or_here(o.default_root_dir), &f->root_dir));
    if (o.memory_limit) LC_TRY_GOTO(status, done, lc__copy_text(o.memory_limit, &f->memory_limit));
    LC_TRY_GOTO(status, done, check_options(&o));
    lc_trainer_options as = as_trainer(&o);
    LC_TRY_GOTO(status, done, lc__launch_trainer(&as));
    if (status == LC_STOP) goto done;
    lc_strategy_request ask = lc__strategy_request(&as);
    LC_TRY_GOTO(status, done, set_up(f, &o, &ask));
    LC_TRY_GOTO(status, done, lc__rank_device(o.accelerator, f->strategy, f->strategy_self, device));
    g.device = device;
    LC_TRY_GOTO(status, done, lc__matmul_precision_parse(o.float32_matmul_precision, &g.matmul_precision));
    if (!g.threads) g.threads = lc__world_threads();
    LC_TRY_GOTO(status, done, lc__precision_configure_graph(&f->precision, &f->precision_self, &g));
    LC_TRY_GOTO(status, done, lc_graph_new_with(&f->graph, &g));
    LC_TRY_GOTO(status, done, report_precision(f));
    f->before = lc__device_use(f->graph->on);
    *out = f;
    f = NULL;
done:
    lc_fabric_free(f);
    return status;
}

void lc_fabric_free(lc_fabric *f)
{
    if (!f) return;
    LC__IS_OR_NULL(f, FABRIC, );
    lc_ckpt_writer_free(f->writer);
    for (int i = 0; f->run_dir && i < f->n_loggers; i++)
        if (LC__SLOT(f->loggers[i].ops, finish))
            (void)!f->loggers[i].ops->finish(f->loggers[i].self, "success"); /* errors are ignored, as documented */
    free_loggers(f->loggers, f->n_loggers);
    free(f->loggers);
    free(f->root_dir);
    free(f->run_dir);
    free(f->memory_limit);
    if (f->strategy && f->strategy->teardown) f->strategy->teardown(f->strategy_self);
    if (f->graph) lc__device_use(f->before);
    lc_graph_free(f->graph);
    if (f->precision.teardown) f->precision.teardown(f->precision_self);
    lc__mark_clear(&f->mark);
    free(f);
}

/* An optimizer's state is not converted with its parameters. */
static lc_status check_converted(lc_optimizer *const *optimizers, int n, const char *precision)
{
    for (int i = 0; i < n; i++) {
        const lc_optimizer *opt = optimizers[i];
        for (int g = 0; opt->steps && g < opt->n_groups; g++)
            for (int k = 0; k < opt->groups[g].n_parameters; k++) {
                const lc_flat *flat = opt->groups[g].parameters[k]->flat;
                if (!flat || !lc__optimizer_range(opt, flat))
                    return lc_fail(LC_ERR_STATE,
                                   "lc_fabric_setup: precision %s stores the parameters in another type, but %s has "
                                   "already been used with them; make a new optimizer",
                                   precision, opt->ops->name);
            }
    }
    return LC_OK;
}

lc_status lc_fabric_setup(lc_fabric *f, lc_module *m, lc_optimizer *const *optimizers, int n)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(optimizers, LC_ERR_ARGUMENT);
    if (f->m) return lc_fail(LC_ERR_STATE, "lc_fabric_setup: this fabric already has a module; make another fabric");
    if (!m || n < 0 || n > LC_MAX_OPTIMIZERS)
        return lc_fail(LC_ERR_ARGUMENT, "lc_fabric_setup takes a module and up to %d optimizers", LC_MAX_OPTIMIZERS);
    LC_TRY(lc_module_status(m));
    if (!n) LC_TRY(lc__module_move(m, f->graph->on)); /* what an optimizer has made stays in its place */
    f->optimizers = (lc_optimizers){0};
    for (int i = 0; i < n; i++) LC_TRY(lc_optimizers_add(&f->optimizers, optimizers[i]));
    LC_TRY(lc__precision_check(&f->precision, &f->optimizers));
    LC_TRY(lc__precision_convert_module(&f->precision, &f->precision_self, m));
    LC_TRY(check_converted(optimizers, n, f->precision.name));
    if (n) LC_TRY(lc__module_flatten(lc_module_root(m))); /* what was converted has left its flat buffer */
    for (int i = 0; i < n; i++) LC_TRY(lc__optimizer_sums_in_f32(optimizers[i], false));
    if (f->strategy->setup) LC_TRY(f->strategy->setup(f->strategy_self, f->graph, m, optimizers, n));
    LC_TRY(lc__ranks_optimizers(f->comm, m, &f->optimizers));
    LC_TRY(lc__module_fill(m));
    LC_TRY(lc__memory_limit_apply(f->memory_limit, f->graph, m, &f->optimizers, NULL, false));
    lc_module_train(m, true);
    lc_zero_grad(f->graph);
    f->m = m;
    return LC_OK;
}

/* ---- ranks ---- */

int lc_fabric_global_rank(const lc_fabric *f)
{
    LC__IS(f, FABRIC, 0);
    return f->comm ? lc_comm_rank(f->comm) : 0;
}

int lc_fabric_world_size(const lc_fabric *f)
{
    LC__IS(f, FABRIC, 0);
    return f->comm ? lc_comm_size(f->comm) : 1;
}

lc_status lc_fabric_setup_dataloader(lc_fabric *f, lc_dataloader *l)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC__IS(l, LOADER, LC_ERR_ARGUMENT);
    lc_share mine = {.rank = lc_fabric_global_rank(f), .size = lc_fabric_world_size(f)};
    LC_TRY(lc__dataloader_pin(l, f->graph->on));
    return lc__world_batches(mine.size) > 1 ? lc_dataloader_share(l, &mine) : LC_OK;
}

lc_status lc_fabric_all_reduce(lc_fabric *f, double *values, int n, lc_log_reduce how)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("values", n, values));
    return lc__ranks_reduce(f->comm, values, n, how);
}

lc_status lc_fabric_broadcast(lc_fabric *f, double *values, int n, int source)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("values", n, values));
    int size = lc_fabric_world_size(f);
    if (source < 0 || source >= size)
        return lc_fail(LC_ERR_ARGUMENT, "lc_fabric_broadcast: rank %d does not exist among %d", source, size);
    return f->comm ? lc_comm_broadcast(f->comm, values, n, LC_F64, source, NULL) : LC_OK;
}

lc_status lc_fabric_all_gather(lc_fabric *f, const double *values, int n, double *out)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("values", n, values));
    if (n > 0) LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (f->comm) return lc_comm_all_gather(f->comm, values, out, n, LC_F64, NULL);
    memcpy(out, values, (size_t)n * sizeof *out);
    return LC_OK;
}

lc_status lc_fabric_barrier(lc_fabric *f)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    return f->comm ? lc_comm_barrier(f->comm, NULL) : LC_OK;
}

lc_graph *lc_fabric_graph(const lc_fabric *f)
{
    LC__IS(f, FABRIC, NULL);
    return f->graph;
}

int64_t lc_fabric_steps(const lc_fabric *f)
{
    LC__IS(f, FABRIC, 0);
    return f->steps;
}
