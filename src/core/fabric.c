/* SPDX-License-Identifier: Apache-2.0 */
/* Fabric: strategy, precision, graph and checkpoints without the trainer (fabric.h). */
#include <lightc/fabric.h>

#include "core/hyperparameters.h"
#include "core/options.h"
#include "core/run_state.h"

#include <stdlib.h>
#include <string.h>

struct lc_fabric {
    const lc_strategy_ops *strategy;
    void *strategy_self;
    const lc_precision_ops *precision;
    void *precision_self;
    lc_graph *graph;
    lc_module *m;
    lc_optimizers optimizers;
    lc_ckpt_writer *writer;
    int64_t steps;
    bool no_sync;
    lc_status status; /* the first error since lc_fabric_begin, */
    char error[1024]; /* and what it said */
};

lc_status lc_fabric_new(const lc_fabric_options *options, lc_fabric **out)
{
    lc_fabric_options o = options ? *options : (lc_fabric_options){0};
    lc_graph_options g = {.threads = o.threads, .deterministic = o.deterministic, .seed = o.seed};
    lc_status status = LC_OK;
    *out = NULL;
    lc_fabric *f = calloc(1, sizeof *f);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: a fabric");
    LC_TRY_GOTO(status, done, lc__accelerator_check(o.accelerator));
    LC_TRY_GOTO(status, done, lc_precision_find(o.precision, &f->precision));
    LC_TRY_GOTO(status, done, lc_strategy_find(o.strategy, &f->strategy));
    status = f->strategy->setup_environment(&f->strategy_self, o.devices, o.num_nodes ? o.num_nodes : 1);
    if (status < 0) {
        f->strategy = NULL; /* nothing to tear down */
        goto done;
    }
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
    lc_ckpt_writer_free(f->writer);
    lc_graph_free(f->graph);
    if (f->strategy && f->strategy->teardown) f->strategy->teardown(f->strategy_self);
    if (f->precision && f->precision->teardown) f->precision->teardown(f->precision_self);
    free(f);
}

lc_status lc_fabric_setup(lc_fabric *f, lc_module *m, lc_optimizer *const *optimizers, int n)
{
    if (f->m) return lc_fail(LC_ERR_STATE, "lc_fabric_setup: this fabric has a module already; make another one");
    if (!m || n < 0 || n > LC_MAX_OPTIMIZERS)
        return lc_fail(LC_ERR_ARGUMENT, "lc_fabric_setup takes a module and up to %d optimizers", LC_MAX_OPTIMIZERS);
    LC_TRY(lc_module_status(m));
    f->optimizers = (lc_optimizers){0};
    for (int i = 0; i < n; i++) LC_TRY(lc_optimizers_add(&f->optimizers, optimizers[i]));
    if (f->precision->convert_module) LC_TRY(f->precision->convert_module(&f->precision_self, m));
    if (f->strategy->setup) LC_TRY(f->strategy->setup(f->strategy_self, m, optimizers, n));
    lc_module_train(m, true);
    lc_zero_grad(f->graph);
    f->m = m;
    return LC_OK;
}

/* ---- one step ---- */

/* Keeps the first error until lc_fabric_end. */
static void note(lc_fabric *f, lc_status s)
{
    if (s >= 0 || f->status < 0) return;
    f->status = s;
    lc__copy_message(f->error, sizeof f->error);
}

/* Whether calls between begin and end make sense. */
static bool recording(lc_fabric *f, const char *what)
{
    if (f->status < 0) return false;
    if (lc_current_graph() == f->graph) return true;
    note(f, lc_fail(LC_ERR_STATE, "%s: call lc_fabric_begin first", what));
    return false;
}

lc_status lc_fabric_begin(lc_fabric *f)
{
    if (!f->m) return lc_fail(LC_ERR_STATE, "lc_fabric_begin: call lc_fabric_setup first");
    f->status = LC_OK;
    LC_TRY(lc_step_begin(f->graph, (uint64_t)f->steps, 0));
    f->steps++;
    return LC_OK;
}

void lc_fabric_backward(lc_fabric *f, lc_tensor *loss)
{
    if (!recording(f, "lc_fabric_backward")) return;
    if (!loss) {
        note(f, lc_fail(LC_ERR_ARGUMENT, "lc_fabric_backward: there is no loss"));
        return;
    }
    lc_keep(loss);
    if (f->precision->scale_loss) loss = f->precision->scale_loss(f->precision_self, loss);
    lc_backward(loss);
    if (f->strategy->after_backward && !f->no_sync) note(f, f->strategy->after_backward(f->strategy_self));
}

void lc_fabric_zero_grad(lc_fabric *f)
{
    if (recording(f, "lc_fabric_zero_grad")) lc_zero_grad(f->graph);
}

lc_tensor *lc_fabric_clip_gradients_with(lc_fabric *f, lc_optimizer *optimizer, lc_clip_args args)
{
    if (!recording(f, "lc_fabric_clip_gradients")) return NULL;
    if (!optimizer || !((args.clip_val > 0) ^ (args.max_norm > 0))) {
        note(f, lc_fail(LC_ERR_ARGUMENT, "lc_fabric_clip_gradients needs an optimizer, and one of .clip_val and "
                                         ".max_norm"));
        return NULL;
    }
    if (args.max_norm > 0) return lc_clip_grad_norm(optimizer, args.max_norm);
    lc_clip_grad_value(optimizer, args.clip_val);
    return NULL;
}

void lc_fabric_step(lc_fabric *f, lc_optimizer *optimizer)
{
    if (!recording(f, "lc_fabric_step")) return;
    if (!optimizer) {
        note(f, lc_fail(LC_ERR_ARGUMENT, "lc_fabric_step: there is no optimizer"));
        return;
    }
    if (f->precision->before_optimizer_step) note(f, f->precision->before_optimizer_step(f->precision_self, optimizer));
    lc_optimizer_step(optimizer);
}

lc_status lc_fabric_end(lc_fabric *f)
{
    if (lc_current_graph() == f->graph) {
        note(f, lc_step_status(f->graph));
        if (f->status >= 0) note(f, lc_step_run(f->graph));
        note(f, lc_step_end(f->graph));
    } else {
        note(f, lc_fail(LC_ERR_STATE, "lc_fabric_end: call lc_fabric_begin first"));
    }
    lc_status status = f->status;
    f->status = LC_OK;
    return status < 0 ? lc_fail(status, "%s", f->error) : LC_OK;
}

void lc_fabric_no_backward_sync(lc_fabric *f, bool on)
{
    f->no_sync = on;
}

/* ---- ranks ---- */

int lc_fabric_global_rank(const lc_fabric *f)
{
    return f->strategy->rank(f->strategy_self);
}

int lc_fabric_world_size(const lc_fabric *f)
{
    return f->strategy->world_size(f->strategy_self);
}

/* One rank has nothing to exchange; a strategy with more of them must know how. */
static lc_status alone(const lc_fabric *f, const char *what)
{
    if (lc_fabric_world_size(f) == 1) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED, "the strategy %s has no %s", f->strategy->name, what);
}

lc_status lc_fabric_all_reduce(lc_fabric *f, double *values, int n, lc_log_reduce how)
{
    return f->strategy->reduce ? f->strategy->reduce(f->strategy_self, values, n, how) : alone(f, "reduce");
}

lc_status lc_fabric_broadcast(lc_fabric *f, double *values, int n, int source)
{
    int size = lc_fabric_world_size(f);
    if (source < 0 || source >= size)
        return lc_fail(LC_ERR_ARGUMENT, "lc_fabric_broadcast: there is no rank %d among %d", source, size);
    /* The others add nothing to the values of the source. */
    if (lc_fabric_global_rank(f) != source) memset(values, 0, (size_t)n * sizeof *values);
    return lc_fabric_all_reduce(f, values, n, LC_LOG_SUM);
}

lc_status lc_fabric_all_gather(lc_fabric *f, const double *values, int n, double *out)
{
    int size = lc_fabric_world_size(f), rank = lc_fabric_global_rank(f);
    memset(out, 0, (size_t)n * (size_t)size * sizeof *out);
    memcpy(out + (size_t)rank * (size_t)n, values, (size_t)n * sizeof *out);
    return lc_fabric_all_reduce(f, out, n * size, LC_LOG_SUM);
}

lc_status lc_fabric_barrier(lc_fabric *f)
{
    return f->strategy->barrier ? f->strategy->barrier(f->strategy_self) : alone(f, "barrier");
}

/* ---- checkpoints ---- */

static lc_status between_steps(const lc_fabric *f, const char *what)
{
    if (!f->m) return lc_fail(LC_ERR_STATE, "%s: call lc_fabric_setup first", what);
    if (lc_current_graph() == f->graph) return lc_fail(LC_ERR_STATE, "%s: call lc_fabric_end first", what);
    return LC_OK;
}

static lc_status save_model_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    (void)owner;
    return mt->persistent || mt->is_parameter ? lc_ckpt_add_tensor(ctx, LC_CKPT_MODEL, path, mt->tensor) : LC_OK;
}

static lc_status fill(lc_fabric *f, lc_state **state, lc__views *views)
{
    lc_state *root = lc_ckpt_state(f->writer), *tree = *state, *o;
    *state = NULL; /* taken over by the call that follows, also when it fails */
    if (tree) LC_TRY(lc_state_set_tree(root, "state", tree));
    LC_TRY(lc_state_set_text(root, "lightc_version", lc_version()));
    LC_TRY(lc_state_set_int(root, "format", LC__STATE_FORMAT));
    LC_TRY(lc_state_set_bool(root, "weights_only", true)); /* for the trainer: there is no loop of its in it */
    LC_TRY(lc_state_set_int(root, "fabric_steps", f->steps));
    LC_TRY(lc__hyperparameters_write(f->m, NULL, root));
    LC_TRY(lc_module_visit(f->m, save_model_tensor, f->writer));
    LC_TRY(lc__save_optimizers(f->m, &f->optimizers, f->writer, views));
    LC_TRY(lc_state_set_object(root, "precision", &o));
    return f->precision->save_state ? f->precision->save_state(f->precision_self, o) : LC_OK;
}

lc_status lc_fabric_save(lc_fabric *f, const char *path, lc_state *state)
{
    lc__views views = {0};
    bool begun = false;
    lc_status status = between_steps(f, "lc_fabric_save");
    if (status < 0) goto done;
    if (!f->writer) LC_TRY_GOTO(status, done, lc_ckpt_writer_new(&f->writer));
    LC_TRY_GOTO(status, done, lc_ckpt_begin(f->writer, path));
    begun = true;
    LC_TRY_GOTO(status, done, fill(f, &state, &views));
    begun = false;
    LC_TRY_GOTO(status, done, lc_ckpt_commit(f->writer, true));
done:
    if (begun) lc_ckpt_abort(f->writer);
    lc_state_free(state);
    lc__views_free(&views);
    return status;
}

/* A tree of the caller's own. */
static lc_status copy(const lc_state *tree, lc_state **out)
{
    char *text = NULL;
    size_t n;
    if (!tree) return lc_state_new(out);
    LC_TRY(lc_state_print(tree, &text, &n));
    lc_status s = lc_state_parse(text, n, out);
    free(text);
    return s;
}

lc_status lc_fabric_load(lc_fabric *f, const char *path, lc_state **state)
{
    lc_checkpoint *c = NULL;
    const lc_state *root, *o;
    lc_status status = LC_OK;
    int64_t steps;
    LC_TRY(between_steps(f, "lc_fabric_load"));
    LC_TRY(lc_checkpoint_open(path, &c));
    root = lc_checkpoint_state(c);
    if (lc_state_get_int(root, "fabric_steps", &steps) < 0) {
        status = lc_fail(LC_ERR_FORMAT,
                         "%s was not written by lc_fabric_save; lc_module_load_checkpoint takes the weights of any "
                         "checkpoint",
                         path);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc_module_load_checkpoint(f->m, path, true));
    LC_TRY_GOTO(status, done, lc__restore_optimizers(f->m, &f->optimizers, c));
    if (f->precision->load_state && lc_state_get_object(root, "precision", &o) == LC_OK)
        LC_TRY_GOTO(status, done, f->precision->load_state(f->precision_self, o));
    lc_zero_grad(f->graph);
    if (state) LC_TRY_GOTO(status, done, copy(lc_state_find(root, "state"), state));
    f->steps = steps;
done:
    lc_checkpoint_close(c);
    return status;
}

lc_graph *lc_fabric_graph(const lc_fabric *f)
{
    return f->graph;
}

int64_t lc_fabric_steps(const lc_fabric *f)
{
    return f->steps;
}
