/* SPDX-License-Identifier: Apache-2.0 */
/* Fabric: strategy, precision, graph, loggers and checkpoints without the trainer (fabric.h). */
#include "core/fabric/fabric_internal.h"

#include "comm/world/world.h"
#include "base/handle.h"
#include "core/checkpoint/share.h"
#include "core/resume/hyperparameters.h"
#include "core/options/options.h"
#include "core/ranks/ranks.h"
#include "launch/launch.h"
#include "record/graph_impl.h"
#include "tensor/initial.h"
#include "parallel/reduce/reducer.h"
#include "base/state_count.h"

#include <stdlib.h>
#include <string.h>

static void free_loggers(const lc_logger *loggers, int n)
{
    for (int i = 0; i < n; i++)
        if (loggers[i].ops->free) loggers[i].ops->free(loggers[i].self);
}

static lc_status check_options(const lc_fabric_options *o)
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
    LC_TRY(lc__memory_limit_parse(o->memory_limit, &limit));
    return lc__accelerator_check(o->accelerator);
}

static lc_status launch(const lc_fabric_options *o)
{
    if (o->comm) return LC_OK; /* the program has brought its ranks */
    return lc__launch_self(&(lc__launch_options){
        .accelerator = o->accelerator,
        .strategy = o->strategy,
        .devices = o->devices,
        .nodes_file = o->nodes_file,
        .root_dir = o->default_root_dir,
        .num_nodes = o->num_nodes,
        .node_rank = LC_UNSET,
        .max_restarts = o->max_restarts,
        .times = {.start = o->start_timeout,
                  .silence = o->silence_timeout,
                  .progress = o->progress_timeout,
                  .grace = o->grace_period},
    });
}

/* Strategy, ranks and precision. */
static lc_status set_up(lc_fabric *f, const lc_fabric_options *o)
{
    const lc_strategy_ops *strategy;
    lc_strategy_request ask = {.devices = o->devices,
                               .num_nodes = o->num_nodes,
                               .comm = o->comm,
                               .bucket_cap_mb = o->bucket_cap_mb,
                               .gradient_compression = o->gradient_compression,
                               .shard_size = o->shard_size,
                               .comm_security = o->comm_security,
                               .start_timeout = o->start_timeout,
                               .silence_timeout = o->silence_timeout,
                               .progress_timeout = o->progress_timeout,
                               .grace_period = o->grace_period,
                               .say = lc__say};
    LC_TRY(lc_precision_find(o->precision, &f->precision));
    LC_TRY(lc_strategy_find(o->strategy, &strategy));
    LC_TRY(strategy->setup_environment(&f->strategy_self, &ask));
    f->strategy = strategy; /* from here on it is to be torn down */
    LC_TRY(lc__state_dict_type(o->state_dict_type, strategy, &f->sharded));
    if (strategy->devices)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "%s cuts batches for its devices, which a fabric leaves to the program; use ddp, or a trainer",
                       strategy->name);
    f->comm = strategy->comm(f->strategy_self);
    return lc__request_check(&ask, strategy, f->comm, o->deterministic);
}

lc_status lc_fabric_new(const lc_fabric_options *options, lc_fabric **out)
{
    lc_fabric_options o = options ? *options : (lc_fabric_options){0};
    lc_graph_options g = {.threads = o.threads,
                          .deterministic = o.deterministic,
                          .seed = o.seed,
                          .tune = o.tune,
                          .nan_check = o.detect_anomaly};
    lc_status status = LC_OK;
    if (out) *out = NULL;
    if (!o.num_nodes) o.num_nodes = 1;
    lc_fabric *f = calloc(1, sizeof *f);
    if (f) f->mark = LC__MARK_OF(FABRIC);
    if (f) f->loggers = calloc((size_t)o.n_loggers + 1, sizeof *f->loggers);
    if (!f || !f->loggers) {
        free_loggers(o.loggers, o.n_loggers);
        status = lc_fail(LC_ERR_MEMORY, "out of memory: a fabric");
        goto done;
    }
    LC_TRY_GOTO(status, done, out ? LC_OK : lc__is_null(__func__, "out"));
    LC_TRY_GOTO(status, done, lc__loggers_take(o.loggers, o.n_loggers, f->loggers, &f->n_loggers));
    LC_TRY_GOTO(status, done, lc__copy_text(o.default_root_dir ? o.default_root_dir : ".", &f->root_dir));
    if (o.memory_limit) LC_TRY_GOTO(status, done, lc__copy_text(o.memory_limit, &f->memory_limit));
    LC_TRY_GOTO(status, done, check_options(&o));
    LC_TRY_GOTO(status, done, launch(&o));
    if (status == LC_STOP) goto done;
    LC_TRY_GOTO(status, done, set_up(f, &o));
    if (!g.threads) g.threads = lc__world_threads();
    LC_TRY_GOTO(status, done, lc_graph_new(&g, &f->graph));
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
        if (f->loggers[i].ops->finish) (void)!f->loggers[i].ops->finish(f->loggers[i].self, "success"); /* documented */
    free_loggers(f->loggers, f->n_loggers);
    free(f->loggers);
    free(f->root_dir);
    free(f->run_dir);
    free(f->memory_limit);
    if (f->strategy && f->strategy->teardown) f->strategy->teardown(f->strategy_self);
    lc_graph_free(f->graph);
    if (f->precision && f->precision->teardown) f->precision->teardown(f->precision_self);
    lc__mark_clear(&f->mark);
    free(f);
}

lc_status lc_fabric_setup(lc_fabric *f, lc_module *m, lc_optimizer *const *optimizers, int n)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(optimizers, LC_ERR_ARGUMENT);
    if (f->m) return lc_fail(LC_ERR_STATE, "lc_fabric_setup: this fabric has a module already; make another one");
    if (!m || n < 0 || n > LC_MAX_OPTIMIZERS)
        return lc_fail(LC_ERR_ARGUMENT, "lc_fabric_setup takes a module and up to %d optimizers", LC_MAX_OPTIMIZERS);
    LC_TRY(lc_module_status(m));
    f->optimizers = (lc_optimizers){0};
    for (int i = 0; i < n; i++) LC_TRY(lc_optimizers_add(&f->optimizers, optimizers[i]));
    if (f->precision->convert_module) LC_TRY(f->precision->convert_module(&f->precision_self, m));
    if (f->strategy->setup) LC_TRY(f->strategy->setup(f->strategy_self, f->graph, m, optimizers, n));
    LC_TRY(lc__ranks_optimizers(f->comm, m, &f->optimizers));
    LC_TRY(lc__module_fill(m));
    LC_TRY(lc__memory_limit_apply(f->memory_limit, f->graph, m, &f->optimizers, NULL, false));
    lc_module_train(m, true);
    lc_zero_grad(f->graph);
    f->m = m;
    return LC_OK;
}

/* ---- one step ---- */

/* Kept until lc_fabric_end. */
static void note(lc_fabric *f, lc_status s)
{
    lc__first_error_note(&f->error, s);
}

/* Whether calls between begin and end make sense. */
static bool recording(lc_fabric *f, const char *what, lc_site site)
{
    if (f->error.status < 0) return false;
    if (lc_current_graph() == f->graph) return true;
    note(f, lc_fail(LC_ERR_STATE, "%s: call lc_fabric_begin first%s", what, lc__at_site(site).text));
    return false;
}

lc_status lc_fabric_begin(lc_fabric *f)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (!f->m) return lc_fail(LC_ERR_STATE, "lc_fabric_begin: call lc_fabric_setup first");
    f->error.status = LC_OK;
    if (f->strategy->progress) f->strategy->progress(f->strategy_self, f->steps, LC__OWN_LOOP);
    LC_TRY(lc_step_begin(f->graph, (uint64_t)f->steps, 0));
    /* Between the backward pass and lc_fabric_end a program may read, and train others. */
    f->graph->sync_keeps = f->optimizers.n > 1 ? LC__KEEPS_ALL : LC__KEEPS_NUMBERS;
    f->steps++;
    return LC_OK;
}

void lc_fabric_backward_at(lc_fabric *f, lc_tensor *loss, lc_site site)
{
    LC__IS(f, FABRIC, );
    LC__IS_TENSOR_OR_NULL(loss, );
    if (!recording(f, "lc_fabric_backward", site)) return;
    if (!loss) {
        note(f, lc_fail(LC_ERR_ARGUMENT, "lc_fabric_backward: there is no loss%s", lc__at_site(site).text));
        return;
    }
    lc_keep_at(loss, site);
    if (f->precision->scale_loss) loss = f->precision->scale_loss(f->precision_self, loss);
    lc_backward_at(loss, site);
    uint8_t flags[LC_SYNC_FLAGS] = {0};
    bool sync = !f->no_sync || f->strategy->syncs_every_backward;
    if (f->strategy->after_backward && sync) note(f, f->strategy->after_backward(f->strategy_self, flags));
}

void lc_fabric_zero_grad_at(lc_fabric *f, lc_site site)
{
    LC__IS(f, FABRIC, );
    if (recording(f, "lc_fabric_zero_grad", site)) lc_zero_grad(f->graph);
}

lc_tensor *lc_fabric_clip_gradients_at(lc_fabric *f, lc_optimizer *optimizer, lc_clip_args args)
{
    LC__IS(f, FABRIC, lc__error_tensor());
    LC__IS_OR_NULL(optimizer, OPTIMIZER, lc__error_tensor());
    if (!recording(f, "lc_fabric_clip_gradients", args.site)) return NULL;
    if (!optimizer || !((args.clip_val > 0) ^ (args.max_norm > 0))) {
        note(f, lc_fail(LC_ERR_ARGUMENT,
                        "lc_fabric_clip_gradients needs an optimizer, and one of .clip_val and "
                        ".max_norm%s",
                        lc__at_site(args.site).text));
        return NULL;
    }
    if (args.max_norm > 0) return lc_clip_grad_norm_at(optimizer, args.max_norm, args.site);
    lc_clip_grad_value_at(optimizer, args.clip_val, args.site);
    return NULL;
}

void lc_fabric_step_at(lc_fabric *f, lc_optimizer *optimizer, lc_site site)
{
    LC__IS(f, FABRIC, );
    LC__IS_OR_NULL(optimizer, OPTIMIZER, );
    if (!recording(f, "lc_fabric_step", site)) return;
    if (!optimizer) {
        note(f, lc_fail(LC_ERR_ARGUMENT, "lc_fabric_step: there is no optimizer%s", lc__at_site(site).text));
        return;
    }
    bool skip;
    lc_status s = lc__precision_before_step(f->precision, f->precision_self, optimizer, &skip);
    if (s >= 0 && f->precision->before_optimizer_step) s = lc__ranks_any(f->comm, &skip);
    note(f, s);
    if (skip)
        lc__leave_update_out(optimizer);
    else
        lc_optimizer_step_at(optimizer, site);
}

lc_status lc_fabric_end(lc_fabric *f)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (lc_current_graph() == f->graph) {
        note(f, lc_step_status(f->graph));
        if (f->error.status >= 0) note(f, lc_step_run(f->graph));
        /* What no update has waited for. */
        if (f->error.status >= 0 && f->graph->reducer) note(f, lc__reducer_settle(f->graph->reducer));
        note(f, lc_step_end(f->graph));
    } else {
        note(f, lc_fail(LC_ERR_STATE, "lc_fabric_end: call lc_fabric_begin first"));
    }
    lc_status status = lc__first_error_status(&f->error);
    f->error.status = LC_OK;
    return status;
}

void lc_fabric_no_backward_sync(lc_fabric *f, bool on)
{
    LC__IS(f, FABRIC, );
    f->no_sync = on;
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
    lc_shard mine = {.rank = lc_fabric_global_rank(f), .size = lc_fabric_world_size(f)};
    return lc__world_batches(mine.size) > 1 ? lc_dataloader_shard(l, &mine) : LC_OK;
}

lc_status lc_fabric_all_reduce(lc_fabric *f, double *values, int n, lc_log_reduce how)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(values, LC_ERR_ARGUMENT);
    return lc__ranks_reduce(f->comm, values, n, how);
}

lc_status lc_fabric_broadcast(lc_fabric *f, double *values, int n, int source)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(values, LC_ERR_ARGUMENT);
    int size = lc_fabric_world_size(f);
    if (source < 0 || source >= size)
        return lc_fail(LC_ERR_ARGUMENT, "lc_fabric_broadcast: there is no rank %d among %d", source, size);
    return f->comm ? lc_comm_broadcast(f->comm, values, n, LC_F64, source, NULL) : LC_OK;
}

lc_status lc_fabric_all_gather(lc_fabric *f, const double *values, int n, double *out)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(values, LC_ERR_ARGUMENT);
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

/* ---- loggers ---- */

static lc_status start_loggers(lc_fabric *f)
{
    lc_run_info run = {.root_dir = f->root_dir, .name = LC__RUN_NAME};
    lc__first_error e = {0};
    char *id;
    LC_TRY(lc__new_run_id(&id));
    lc__first_error_note(&e, lc__take_version(f->root_dir, run.name, &run.version, &f->run_dir));
    run.run_dir = f->run_dir;
    run.run_id = id;
    for (int i = 0; f->run_dir && i < f->n_loggers; i++)
        lc__first_error_note(&e, f->loggers[i].ops->start(f->loggers[i].self, &run));
    free(id);
    return lc__first_error_status(&e);
}

lc_status lc_fabric_log_dict(lc_fabric *f, const lc_metric_value *values, int n, int64_t step)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(values, LC_ERR_ARGUMENT);
    lc_log_row row = {.step = step < 0 ? f->steps : step, .epoch = -1, .time_ns = lc__realtime_ns()};
    lc__first_error e = {0};
    for (int i = 0; i < n; i++)
        if (!values[i].name) return lc_fail(LC_ERR_ARGUMENT, "lc_fabric_log: value %d has no name", i);
    if (!f->n_loggers || n <= 0 || lc_fabric_global_rank(f) != 0) return LC_OK;
    lc_metric_value *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return lc_fail(LC_ERR_MEMORY, "out of memory: a row of %d values", n);
    for (int i = 0; i < n; i++) row.n = lc__row_insert(sorted, row.n, values[i].name, values[i].value);
    row.values = sorted;
    if (!f->run_dir) lc__first_error_note(&e, start_loggers(f));
    for (int i = 0; f->run_dir && i < f->n_loggers; i++)
        lc__first_error_note(&e, f->loggers[i].ops->log_row(f->loggers[i].self, &row));
    free(sorted);
    return lc__first_error_status(&e);
}

lc_status lc_fabric_log(lc_fabric *f, const char *name, double value, int64_t step)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    return lc_fabric_log_dict(f, &(lc_metric_value){name, value}, 1, step);
}

const char *lc_fabric_run_dir(const lc_fabric *f)
{
    LC__IS(f, FABRIC, "");
    return f->run_dir ? f->run_dir : "";
}

/* ---- checkpoints ---- */

static lc_status between_steps(const lc_fabric *f, const char *what)
{
    if (!f->m) return lc_fail(LC_ERR_STATE, "%s: call lc_fabric_setup first", what);
    if (lc_current_graph() == f->graph) return lc_fail(LC_ERR_STATE, "%s: call lc_fabric_end first", what);
    return LC_OK;
}

typedef struct save_walk {
    lc_fabric *f;
    lc__views *views;
} save_walk;

/* Buffers are rank 0's. */
static lc_status save_model_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    const save_walk *w = ctx;
    lc_fabric *f = w->f;
    (void)owner;
    if (mt->is_parameter) return lc__save_tensor(f->writer, LC_CKPT_MODEL, path, mt->tensor, f->sharded, w->views);
    if (!mt->persistent || lc_fabric_global_rank(f) != 0) return LC_OK;
    return lc__ckpt_add_own(f->writer, LC_CKPT_MODEL, path, mt->tensor);
}

static lc_status fill_state(lc_fabric *f, lc_state **state)
{
    lc_state *root = lc_ckpt_state(f->writer), *tree = *state, *o;
    *state = NULL; /* taken over by the call that follows, also when it fails */
    if (tree) LC_TRY(lc_state_set_tree(root, "state", tree));
    LC_TRY(lc_state_set_text(root, "lightc_version", lc_version()));
    LC_TRY(lc_state_set_int(root, "format", LC__STATE_FORMAT));
    LC_TRY(lc_state_set_bool(root, "weights_only", true)); /* for the trainer: there is no loop of its in it */
    LC_TRY(lc_state_set_int(root, "fabric_steps", f->steps));
    LC_TRY(lc_state_set_text(root, "strategy", f->strategy->name));
    LC_TRY(lc_state_set_int(root, "world_size", lc_fabric_world_size(f)));
    LC_TRY(lc_state_set_text(root, "state_dict_type", f->sharded ? "sharded" : "full"));
    LC_TRY(lc__hyperparameters_write(f->m, NULL, root));
    LC_TRY(lc_state_set_object(root, "precision", &o));
    return f->precision->save_state ? f->precision->save_state(f->precision_self, o) : LC_OK;
}

static lc_status fill_tensors(lc_fabric *f, lc__views *views)
{
    save_walk walk = {f, views};
    LC_TRY(lc_module_visit(f->m, save_model_tensor, &walk));
    return lc__save_optimizers(f->m, &f->optimizers, f->writer, f->sharded, views);
}

lc_status lc_fabric_save(lc_fabric *f, const char *path, lc_state *state)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(state, STATE, LC_ERR_ARGUMENT);
    lc__views views = {0};
    bool begun = false;
    lc_status status = between_steps(f, "lc_fabric_save");
    if (status < 0) goto done;
    status = f->writer ? LC_OK : lc_ckpt_writer_new(&f->writer);
    if (status >= 0) status = lc_ckpt_begin(f->writer, path);
    begun = status >= 0;
    if (begun) status = fill_state(f, &state);
    LC_TRY_GOTO(status, done, lc__ranks_agree(f->comm, status)); /* tensors are put together by all ranks */
    LC_TRY_GOTO(status, done, lc__ranks_agree(f->comm, fill_tensors(f, &views)));
    begun = false;
    if (f->sharded) {
        status = lc__ckpt_commit_together(f->writer, f->comm, true);
        goto done;
    }
    if (lc_fabric_global_rank(f) == 0)
        status = lc_ckpt_commit(f->writer, true);
    else
        lc_ckpt_abort(f->writer);
    status = lc__ranks_agree(f->comm, status);
done:
    if (begun) lc_ckpt_abort(f->writer);
    lc_state_free(state);
    lc__views_free(&views);
    return status;
}

lc_status lc_fabric_load(lc_fabric *f, const char *path, lc_state **state)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    lc_checkpoint *c = NULL;
    const lc_state *root, *o;
    lc_status status = LC_OK;
    int64_t steps;
    LC_TRY(between_steps(f, "lc_fabric_load"));
    LC_TRY(lc__ranks_open_checkpoint(f->comm, path, &c));
    root = lc_checkpoint_state(c);
    if (lc_state_get_int(root, "fabric_steps", &steps) < 0) {
        status = lc_fail(LC_ERR_FORMAT,
                         "%s was not written by lc_fabric_save; lc_module_load_checkpoint takes the weights of any "
                         "checkpoint",
                         path);
        goto done;
    }
    if (steps < 0 || steps > LC__MOST_COUNT) {
        status = lc_fail(LC_ERR_FORMAT, "%s: state \"fabric_steps\" is %lld", path, (long long)steps);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__name_checkpoint(path, lc__check_format(c)));
    LC_TRY_GOTO(status, done, lc__load_model(f->m, c));
    LC_TRY_GOTO(status, done, lc__name_checkpoint(path, lc__restore_optimizers(f->m, &f->optimizers, c)));
    if (f->precision->load_state && lc_state_find(root, "precision")) {
        LC_TRY_GOTO(status, done, lc__name_checkpoint(path, lc_state_get_object(root, "precision", &o)));
        LC_TRY_GOTO(status, done, f->precision->load_state(f->precision_self, o));
    }
    lc_zero_grad(f->graph);
    const lc_state *own = lc_state_find(root, "state");
    if (state) LC_TRY_GOTO(status, done, own ? lc_state_copy(own, state) : lc_state_new(state));
    f->steps = steps;
done:
    lc_checkpoint_close(c);
    return status;
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
