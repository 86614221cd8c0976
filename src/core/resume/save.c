/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a run. The contents of a checkpoint:
 *
 *   model.safetensors      parameters and persistent buffers, by their path
 *   optimizer.safetensors  optimizers.I.PATH.STATE for every parameter and state of optimizer I
 *   tensors.safetensors    optimizers.I.step (updates done), gradients.PATH of an unfinished accumulation window (of
 *                          one process, or of what ranks hold in slices; else rank_gradients.R.PATH, what rank R has;
 *                          of a deterministic run window.LEVEL.PATH: partial sums on the tree of parallel/tree/tree.h),
 *                          callbacks.KEY.NAME of callbacks that have tensors
 *   state.json             loop (counters, and the place in the loop), optimizers (hyperparameters), schedulers,
 *                          metrics, results (sums of the epoch), callbacks, module, options, seed, hyper_parameters,
 *                          tuning (which kernels were chosen by timing, if any)
 *
 * Random numbers need no state except the seed: every key is made from it and from counters in `loop`. */
#include "core/resume/resume.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "core/hooks/profiling.h"
#include "core/hooks/hooks.h"
#include "core/hooks/precision_calls.h"
#include "core/checkpoint/joint.h"
#include "base/handle.h"
#include "core/split/chunks.h"
#include "core/options/hyperparameters.h"
#include "core/options/options.h"
#include "comm/agree.h"
#include "core/logging/results_ranks.h"
#include "core/ranks/ranks.h"
#include "core/resume/run_state.h"
#include "engine/plan/tune.h"
#include "record/graph_impl.h"
#include "parallel/reduce/reducer.h"
#include "tensor/slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct callback_walk {
    const char *key;
    lc__state_fn *fn;
    void *ctx;
} callback_walk;

static lc_status walk_callback_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    callback_walk *w = ctx;
    lc__str full = {0};
    if (!lc_tensor_is_persistent(tensor))
        return lc_fail(LC_ERR_ARGUMENT, "\"%s\" is not a persistent tensor; make it before the first save, in setup",
                       name);
    lc__str_add(&full, "callbacks.%s.%s", w->key, name);
    lc_status s =
        full.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: tensors of a callback") : w->fn(w->ctx, full.s, tensor);
    lc__str_free(&full);
    return s;
}

lc_status lc__walk_callback(lc_trainer *t, const lc__callback *cb, lc__state_fn *fn, void *ctx)
{
    callback_walk w = {lc__state_key(cb), fn, ctx};
    if (!cb->ops.visit_tensors) return LC_OK;
    unsigned before = lc__error_count();
    lc_status s = lc__said(cb->ops.visit_tensors(cb->self, t, walk_callback_tensor, &w), before);
    return s < 0 ? lc_fail_context(s, "visit_tensors of %s", cb->ops.name) : LC_OK;
}

/* ---- saving ---- */

/* `views` keeps tensors that exist only to be saved. */
typedef struct save_walk {
    lc_trainer *t;
    bool ranges; /* every rank writes its part */
    lc__views *views;
} save_walk;

static lc_status save_model_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    const save_walk *w = ctx;
    lc_trainer *t = w->t;
    (void)owner;
    if (!mt->persistent && !mt->is_parameter) return LC_OK;
    lc_tensor *saved = lc__saved_tensor(t, mt->tensor);
    return lc__save_tensor(t->resume->writer, LC_CKPT_MODEL, path, saved ? saved : mt->tensor, w->ranges, w->views);
}

/* Brings a rank's gradient to rank 0, which writes: into a new tensor if the gradient is another rank's. */
static lc_status bring(save_walk *g, int from, lc_tensor *gradient, lc_tensor **out)
{
    const lc_type *type = &gradient->type;
    int64_t n = lc_tensor_numel(gradient);
    lc_comm *comm = g->t->comm;
    *out = from == 0 ? gradient : NULL;
    if (from == 0) return LC_OK;
    if (lc__is_rank_zero(g->t)) {
        LC_TRY(lc_tensor_new(type->dtype, type->ndim, type->shape, out));
        LC_TRY(lc__views_add(g->views, *out));
        lc_view v;
        LC_TRY(lc__tensor_map(*out, LC__WRITE, &v));
        lc_status received = lc_comm_recv(comm, v.data, n, type->dtype, from, NULL);
        lc__tensor_unmap(*out, LC__WRITE);
        return received;
    }
    if (from != g->t->rank) return LC_OK;
    size_t bytes = (size_t)n * lc_dtype_size(type->dtype);
    void *data = malloc(bytes + 1);
    if (!data) return lc_fail(LC_ERR_MEMORY, "out of memory: a gradient of %zu bytes", bytes);
    lc_status s = lc_tensor_read(gradient, data, bytes);
    if (s >= 0) s = lc_comm_send(comm, data, n, type->dtype, 0, NULL);
    free(data);
    return s;
}

/* Saves each rank's own gradient, so that the same number of ranks can continue with the same bits. Each rank writes
 * its own, or rank 0 writes all. */
static lc_status save_of_ranks(save_walk *g, const char *path, lc_tensor *p)
{
    const lc_trainer *t = g->t;
    char name[1024];
    lc_tensor *mine = p->flat->gradients[p->flat_index], *its;
    uint8_t has = p->flat->has_gradient[p->flat_index] != 0;
    lc_status status = LC_OK;
    if (g->ranges) {
        snprintf(name, sizeof name, "rank_gradients.%d.%s", t->rank, path);
        return has ? lc__ckpt_add_own(t->resume->writer, LC_CKPT_TENSORS, name, mine) : LC_OK;
    }
    uint8_t *all = calloc((size_t)t->n_ranks, sizeof *all);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: gradients of %d ranks", t->n_ranks);
    LC_TRY_GOTO(status, done, lc_comm_all_gather(t->comm, &has, all, 1, LC_U8, NULL));
    for (int r = 0; r < t->n_ranks; r++) {
        if (!all[r]) continue;
        LC_TRY_GOTO(status, done, bring(g, r, mine, &its));
        snprintf(name, sizeof name, "rank_gradients.%d.%s", r, path);
        if (lc__is_rank_zero(t))
            LC_TRY_GOTO(status, done, lc_ckpt_add_tensor(t->resume->writer, LC_CKPT_TENSORS, name, its));
    }
done:
    free(all);
    return status;
}

/* Saves partial sums of the tree: the same on all ranks, or in slices. */
static lc_status save_held(const save_walk *w, const char *path, lc_tensor *p)
{
    lc_trainer *t = w->t;
    int64_t batches = lc__chunks_window(t);
    char name[1024];
    if (!p->flat->has_gradient[p->flat_index]) return LC_OK;
    for (int level = 0; batches >> level; level++) {
        lc_tensor *held;
        if (!(batches >> level & 1)) continue;
        LC_TRY(lc__tree_window_held(lc__tree_of(t), p, level, &held));
        if (!held) continue;
        snprintf(name, sizeof name, "window.%d.%s", level, path);
        LC_TRY(lc__save_tensor(t->resume->writer, LC_CKPT_TENSORS, name, held, w->ranges, w->views));
    }
    return LC_OK;
}

static lc_status save_gradient(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    save_walk *g = ctx;
    char name[1024];
    lc_tensor *p = mt->tensor;
    (void)owner;
    if (!mt->is_parameter || !p->flat) return LC_OK;
    if (lc__tree_of(g->t)) return save_held(g, path, p);
    lc_tensor *gradient = p->flat->gradients[p->flat_index];
    if (g->t->comm && !gradient->is_slice) return save_of_ranks(g, path, p);
    if (!p->flat->has_gradient[p->flat_index]) return LC_OK;
    snprintf(name, sizeof name, "gradients.%s", path);
    return lc__save_tensor(g->t->resume->writer, LC_CKPT_TENSORS, name, gradient, g->ranges, g->views);
}

/* Whether gradients are part of the state. With manual optimization, they may be used at any time. */
static bool in_window(const lc_trainer *t)
{
    if (t->mo.manual_optimization) return t->window_backwards > 0;
    return t->epoch_open && t->accumulating && t->window_backwards > 0;
}

static lc_status save_counters(const lc_trainer *t, lc_state *o)
{
    lc_state *counts;
    bool at_end = t->resume->phase == LC__PHASE_EPOCH_END;
    int64_t epoch = t->epoch_open ? t->resume->cursor_epoch : t->current_epoch + (at_end ? 1 : 0);
    LC_TRY(lc_state_set_int(o, "epoch", epoch));
    LC_TRY(lc_state_set_int(o, "global_step", t->global_step));
    LC_TRY(lc_state_set_int(o, "batches_that_stepped", t->batches_that_stepped));
    LC_TRY(lc_state_set_int(o, "total_batches", t->total_batches));
    LC_TRY(lc_state_set_int(o, "optimizer_steps", t->optimizer_steps));
    /* In an epoch that max_steps ended early, everything after the batch has been done. */
    LC_TRY(lc_state_set_text(o, "phase",
                             at_end                                     ? (t->epoch_open ? "between" : "epoch_end")
                             : t->resume->phase == LC__PHASE_BATCH      ? "batch"
                             : t->resume->phase == LC__PHASE_VALIDATION ? "validation"
                                                                        : "between"));
    LC_TRY(lc_state_set_bool(o, "epoch_open", t->epoch_open));
    LC_TRY(lc_state_set_bool(o, "epoch_begun", t->epoch_open && t->epoch_begun));
    LC_TRY(lc_state_set_int(o, "batches_done", t->epoch_open ? t->batches_done : 0));
    LC_TRY(lc_state_set_bool(o, "is_last_batch", t->is_last_batch));
    LC_TRY(lc_state_set_bool(o, "accumulating", t->epoch_open && t->accumulating));
    LC_TRY(lc_state_set_int(o, "window_backwards", in_window(t) ? t->window_backwards : 0));
    LC_TRY(lc_state_set_int(o, "accumulate_grad_batches", t->accumulate));
    LC_TRY(lc_state_set_int(o, "next_accumulate_grad_batches", t->accumulate_next));
    LC_TRY(lc_state_set_int(o, "window_begin", t->epoch_open ? t->window_begin : 0));
    if (lc__chunks_window(t)) LC_TRY(lc_state_set_double(o, "window_chunks", t->chunks->window));
    if (in_window(t) && t->graph->unscale) {
        double unscale;
        LC_TRY(lc_item(t->graph->unscale, &unscale));
        LC_TRY(lc_state_set_double(o, "gradient_scale", 1 / unscale));
    }
    LC_TRY(lc_state_set_int(o, "global_batch", lc__global_batch(t)));
    LC_TRY(lc_state_set_array(o, "val_batches", &counts));
    for (int i = 0; i < t->input->eval.n && t->stage == LC_STAGE_FIT; i++)
        LC_TRY(lc_state_set_int(counts, NULL, t->input->val_batch_count[i]));
    return LC_OK;
}

/* Whether to continue after an error: with several ranks, the collective calls that follow must still be made. */
static bool goes_on(const lc_trainer *t, const lc__first_error *e)
{
    return e->status >= 0 || t->comm;
}

static lc_status save_loop(lc_trainer *t, lc_state *root)
{
    lc__first_error e = {0};
    lc_state *o;
    LC_TRY(lc_state_set_object(root, "loop", &o));
    lc__first_error_note(&e, save_counters(t, o));
    if (goes_on(t, &e)) lc__first_error_note(&e, lc__source_save(t->comm, &t->input->train, o));
    return lc__first_error_status(&e);
}

static lc_status save_callback_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    const save_walk *w = ctx;
    return lc__save_tensor(w->t->resume->writer, LC_CKPT_TENSORS, name, tensor, w->ranges, w->views);
}

/* A whole tensor may differ between ranks: rank 0 writes its own, which belongs to what it writes of save_state. */
static lc_status save_own_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    const save_walk *w = ctx;
    if (tensor->is_slice) return save_callback_tensor(ctx, name, tensor);
    return lc__is_rank_zero(w->t) ? lc__ckpt_add_own(w->t->resume->writer, LC_CKPT_TENSORS, name, tensor) : LC_OK;
}

static lc_status save_metrics(lc_trainer *t, lc_state *root)
{
    lc_state *o;
    const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
    LC_TRY(lc_state_set_object(root, "metrics", &o));
    for (int i = 0; i < m->n; i++) LC_TRY(lc_state_set_double(o, m->v[i].name, m->v[i].value));
    return LC_OK;
}

static lc_status save_results(lc_trainer *t, lc_state *root)
{
    lc_state *o;
    LC_TRY(lc_state_set_array(root, "results", &o));
    bool open = t->epoch_open || t->resume->phase == LC__PHASE_EPOCH_END;
    return open ? lc__results_save_all(t, &t->logging->train_results, o) : LC_OK;
}

static lc_status save_callback(save_walk *walk, const lc__callback *cb, lc_state *list)
{
    lc_trainer *t = walk->t;
    lc__first_error e = {0};
    lc_state *o;
    bool alone = cb->ops.ranks == LC_RANK_ZERO;  /* on other ranks it has seen nothing */
    bool equal = !alone && cb->ops.saved_tensor; /* what stands for the model is the same on all ranks */
    LC_TRY(lc_state_set_object(list, lc__state_key(cb), &o));
    unsigned before = lc__error_count();
    lc_status s = lc__said(cb->ops.save_state(cb->self, t, o), before);
    if (s < 0) lc__first_error_note(&e, lc_fail_context(s, "save_state of %s", cb->ops.name));
    if (goes_on(t, &e) && (!alone || lc__is_rank_zero(t)))
        lc__first_error_note(&e, lc__walk_callback(t, cb, equal ? save_callback_tensor : save_own_tensor, walk));
    return lc__first_error_status(&e);
}

static lc_status save_callbacks(save_walk *walk, lc_state *root)
{
    const lc_trainer *t = walk->t;
    lc__first_error e = {0};
    lc_state *o;
    LC_TRY(lc_state_set_object(root, "callbacks", &o));
    for (int i = 0; i < t->n_callbacks && goes_on(t, &e); i++)
        if (t->callbacks[i]->ops.save_state) lc__first_error_note(&e, save_callback(walk, t->callbacks[i], o));
    return lc__first_error_status(&e);
}

static lc_status save_settings(lc_trainer *t, lc_state *root)
{
    lc_state *o;
    LC_TRY(lc_state_set_object(root, "precision", &o));
    LC_TRY(lc_state_set_text(o, "name", t->precision.name));
    LC_TRY(lc__precision_save(&t->precision, t->precision_self, o));
    LC_TRY(lc_state_set_int(root, "seed", t->opt.seed));
    if (t->graph) LC_TRY(lc__tuning_save(t->graph->tuning, root));
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    LC_TRY(lc_state_set_object(root, "options", &o));
    for (int i = 0; i < n; i++) {
        char space[LC__OPTION_SPACE];
        LC_TRY(lc_state_set_text(o, table[i].name, lc__option_text(&table[i], &t->opt, space)));
    }
    return LC_OK;
}

/* Whether each rank writes a part; not if the others are lost. */
static bool saves_sharded(const lc_trainer *t)
{
    return t->resume->sharded_checkpoints && (t->comm || t->n_ranks == 1);
}

static lc_status save_head(lc_trainer *t, bool weights_only, lc_state *root)
{
    LC_TRY(lc_state_set_text(root, "lightc_version", lc_version()));
    LC_TRY(lc_state_set_int(root, "format", LC__STATE_FORMAT));
    LC_TRY(lc_state_set_text(root, "model", t->mo.name ? t->mo.name : ""));
    LC_TRY(lc_state_set_int(root, "epoch", t->current_epoch)); /* as in the file's name; `loop` has the position */
    LC_TRY(lc_state_set_int(root, "global_step", t->global_step));
    LC_TRY(lc_state_set_bool(root, "weights_only", weights_only));
    LC_TRY(lc_state_set_text(root, "strategy", t->strategy->name));
    LC_TRY(lc_state_set_int(root, "world_size", t->n_ranks));
    LC_TRY(lc_state_set_text(root, "state_dict_type", saves_sharded(t) ? "sharded" : "full"));
    return lc__hyperparameters_write(t->m, lc_trainer_datamodule(t), root);
}

static lc_status save_gradients(save_walk *walk)
{
    lc_trainer *t = walk->t;
    if (!in_window(t)) return LC_OK;
    lc__reducer *reducer = lc__reducer_of_graph(t->graph);
    if (reducer) LC_TRY(lc__reducer_share(reducer));
    return lc_module_visit(t->m, save_gradient, walk);
}

static lc_status save_by_hooks(lc_trainer *t, bool weights_only, lc_state *root)
{
    lc_state *own;
    LC_TRY(lc__datamodule_save(t, root));
    LC_TRY(lc_state_set_object(root, "module", &own));
    if (!weights_only) LC_TRY(lc__hook_callbacks(t, LC_HOOK_ON_SAVE_CHECKPOINT, &(lc__hook_args){.saved = root}));
    return lc__hook_module(t, LC_HOOK_ON_SAVE_CHECKPOINT, &(lc__hook_args){.saved = own});
}

/* Much of the state is collected together, so a rank whose callback, hook or metric has failed continues with the
 * others; at the end all ranks agree on the errors noted here. */
static lc_status fill_checkpoint(lc_trainer *t, bool weights_only, lc__views *views)
{
    lc_ckpt_writer *w = t->resume->writer;
    lc_state *root = lc_ckpt_state(w);
    save_walk walk = {t, saves_sharded(t), views};
    lc__first_error e = {0};
#define STEP(call)                                                                                                     \
    if (goes_on(t, &e)) lc__first_error_note(&e, call)
    STEP(save_head(t, weights_only, root));
    STEP(lc_module_visit(t->m, save_model_tensor, &walk));
    if (!weights_only) {
        STEP(save_loop(t, root));
        STEP(save_metrics(t, root));
        STEP(save_results(t, root));
        STEP(save_callbacks(&walk, root));
        STEP(save_settings(t, root));
        STEP(lc__save_optimizers(t->m, &t->optimizers, w, walk.ranges, views));
        STEP(save_gradients(&walk));
    }
    STEP(save_by_hooks(t, weights_only, root));
#undef STEP
    return lc__ranks_agree(t->comm, lc__first_error_status(&e));
}

/* Names state of which this rank, which continues by itself after losing the others, has only a part; NULL: none.
 * Weights and optimizer state are the same on all ranks, or in slices whose loss is noticed when they are gathered. */
static const char *shared_state(const lc_trainer *t)
{
    if (t->n_ranks == 1 || t->comm) return NULL;
    if (in_window(t) && !lc__tree_of(t)) return "gradients of the accumulation window";
    if (lc__results_are_shared(&t->logging->train_results)) return "logged values of the epoch";
    return lc__source_has_state(&t->input->train) ? "state of the train loader" : NULL;
}

/* Refuses a state that cannot be continued exactly. */
static lc_status check_whole(const lc_trainer *t, bool weights_only)
{
    if (t->resume->torn)
        return lc_fail(LC_ERR_STATE, "the failed batch had partly run: its state could not be continued exactly and is "
                                     "not saved; continue from an earlier checkpoint");
    const char *lacks = weights_only ? NULL : shared_state(t);
    if (!lacks) return LC_OK;
    return lc_fail(LC_ERR_STATE,
                   "lost ranks had a slice of the %s: the state could not be continued exactly and is not saved; "
                   "continue from an earlier checkpoint",
                   lacks);
}

static lc_status save_state(lc_trainer *t, const char *path, bool weights_only, bool wait, bool *writing)
{
    lc__views views = {0};
    bool begun = false;
    lc_status status;
    if (!t->m) return lc_fail(LC_ERR_STATE, "there is no module to save yet");
    LC_TRY(check_whole(t, weights_only));
    if (t->recording)
        return lc_fail(LC_ERR_STATE,
                       "a checkpoint can only be saved between steps (in on_train_batch_end or later), not "
                       "while one is recorded");
    LC_TRY(lc__buffers_from_rank_zero(t));
    status = t->resume->writer ? LC_OK : lc_ckpt_writer_new(&t->resume->writer);
    LC_TRY(lc__ranks_agree(t->comm, status));
    int64_t start = LC__PROFILE_START(t);
    status = lc_ckpt_begin(t->resume->writer, path);
    begun = status >= 0;
    LC_TRY_GOTO(status, done, lc__ranks_agree(t->comm, status));
    const lc__ckpt_origin origin = lc__origin(t);
    lc__ckpt_set_origin(t->resume->writer, &origin);
    LC_TRY_GOTO(status, done, fill_checkpoint(t, weights_only, &views));
    *writing = true;
    if (!saves_sharded(t) && !lc__is_rank_zero(t)) goto done; /* every rank runs the hooks, only rank 0 writes */
    begun = false;
    if (saves_sharded(t))
        status = lc__ckpt_commit_together(t->resume->writer, t->comm, wait);
    else
        status = lc_ckpt_commit(t->resume->writer, wait);
done:
    if (begun) lc_ckpt_abort(t->resume->writer);
    lc__reducer *reducer = t->graph ? lc__reducer_of_graph(t->graph) : NULL;
    if (reducer) lc__reducer_unshare(reducer);
    lc__views_free(&views);
    LC__PROFILE_ACTION(t, "save_checkpoint", start);
    return lc__name_checkpoint(path, status);
}

lc_status lc__save_state(lc_trainer *t, const char *path, bool weights_only, bool wait, bool *writing)
{
    lc_status status = save_state(t, path, weights_only, wait, writing);
    if (status < 0 && t->resume->writer) lc__ckpt_drop_taken(t->resume->writer);
    return status;
}

lc_status lc__take_checkpoint_name(lc_trainer *t, const char *path, bool *taken)
{
    lc__taken *name;
    *taken = false;
    if (!t->resume->writer) LC_TRY(lc_ckpt_writer_new(&t->resume->writer));
    LC_TRY(lc__take_name(path, taken, &name));
    if (!*taken) lc__ckpt_set_taken(t->resume->writer, name);
    return LC_OK;
}

lc_status lc__save_checkpoint(lc_trainer *t, const char *path, bool weights_only)
{
    bool writing = false;
    LC_TRY(lc__settle(t, LC__SETTLE_RESULT));
    lc_status status = lc__save_state(t, path, weights_only, true, &writing);
    /* The ranks have agreed on the result of a sharded checkpoint, and of everything before writing; otherwise only
     * rank 0 knows it. */
    return writing && !saves_sharded(t) ? lc__ranks_agree(t->comm, status) : status;
}

lc_status lc_trainer_save_checkpoint(lc_trainer *t, const char *path, bool weights_only)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    bool attach = t->m && !t->m->trainer; /* between runs: the module's hooks may ask for the trainer */
    if (attach) t->m->trainer = t;
    lc_status s = lc__save_checkpoint(t, path, weights_only);
    if (attach) t->m->trainer = NULL;
    return s;
}
