/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a run: what a checkpoint holds.
 *
 *   model.safetensors      parameters and persistent buffers, by their path
 *   optimizer.safetensors  optimizers.I.PATH.STATE for every parameter and state of optimizer I
 *   tensors.safetensors    optimizers.I.step (updates done), gradients.PATH of an unfinished accumulation window,
 *                          callbacks.KEY.NAME of callbacks that have tensors
 *   state.json             loop (counters, and the place in the loop), optimizers (hyperparameters), schedulers,
 *                          metrics, results (sums of the epoch), callbacks, module, options, seed, hyper_parameters
 *
 * Random numbers need no state but the seed: every key is made of it and of counters in `loop`. */
#include "core/hyperparameters.h"
#include "core/run_state.h"
#include "tensor/tensor_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void lc__views_free(lc__views *l)
{
    for (int i = 0; i < l->n; i++) lc_tensor_unref(l->v[i]);
    free(l->v);
}

/* The part of a flat buffer that belongs to parameter p, with the parameter's shape. */
static lc_status flat_view(lc__views *l, lc_tensor *flat, lc_tensor *p, lc_tensor **out)
{
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 64;
        lc_tensor **v = realloc(l->v, (size_t)cap * sizeof *v);
        if (!v) return lc_fail(LC_ERR_MEMORY, "out of memory: a checkpoint");
        l->v = v;
        l->cap = cap;
    }
    if (!p->flat) return lc_fail(LC_ERR_INTERNAL, "a parameter of an optimizer lies in no flat buffer");
    size_t offset = (size_t)p->flat->offset[p->flat_index] * lc_dtype_size(p->type.dtype);
    LC_TRY(lc__tensor_range(flat, offset, &p->type, p->layout, out));
    l->v[l->n++] = *out;
    return LC_OK;
}

typedef struct state_walk {
    lc_trainer *t;
    int index;
    lc_optimizer *opt;
    lc__views *views;
    lc__state_fn *fn;
    void *ctx;
} state_walk;

static bool owns(const lc_optimizer *opt, const lc_tensor *p)
{
    for (int g = 0; g < opt->n_groups; g++)
        for (int i = 0; i < opt->groups[g].n_parameters; i++)
            if (opt->groups[g].parameters[i] == p) return true;
    return false;
}

static lc_status walk_parameter(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    state_walk *w = ctx;
    (void)owner;
    if (!mt->is_parameter || !owns(w->opt, mt->tensor)) return LC_OK;
    for (int k = 0; w->opt->ops->state_names && w->opt->ops->state_names[k]; k++) {
        char name[1024];
        lc_tensor *view;
        if (!w->opt->state[k]) continue;
        int n = snprintf(name, sizeof name, "optimizers.%d.%s.%s", w->index, path, w->opt->ops->state_names[k]);
        if (n < 0 || (size_t)n >= sizeof name) return lc_fail(LC_ERR_ARGUMENT, "the path %.60s... is too long", path);
        LC_TRY(flat_view(w->views, w->opt->state[k], mt->tensor, &view));
        LC_TRY(w->fn(w->ctx, name, view));
    }
    return LC_OK;
}

lc_status lc__walk_states(lc_trainer *t, int i, lc__views *views, lc__state_fn *fn, void *ctx)
{
    lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
    state_walk w = {t, i, opt, views, fn, ctx};
    return opt->steps ? lc_module_visit(t->m, walk_parameter, &w) : LC_OK;
}

const char *lc__state_key(const lc__callback *cb)
{
    return cb->ops.state_key ? cb->ops.state_key(cb->self) : cb->ops.name;
}

typedef struct callback_walk {
    const char *key;
    lc__state_fn *fn;
    void *ctx;
} callback_walk;

static lc_status walk_callback_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    callback_walk *w = ctx;
    lc__str full = {0};
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
    lc_status s = cb->ops.visit_tensors(cb->self, t, walk_callback_tensor, &w);
    return s < 0 ? lc_fail_context(s, "visit_tensors of %s", cb->ops.name) : LC_OK;
}

/* ---- saving ---- */

static lc_status save_model_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    lc_tensor *saved = NULL;
    (void)owner;
    if (!mt->persistent && !mt->is_parameter) return LC_OK;
    for (int i = 0; i < t->n_callbacks && !saved; i++)
        if (t->callbacks[i]->ops.saved_tensor)
            saved = t->callbacks[i]->ops.saved_tensor(t->callbacks[i]->self, t, mt->tensor);
    return lc_ckpt_add_tensor(t->writer, LC_CKPT_MODEL, path, saved ? saved : mt->tensor);
}

static lc_status save_optimizer_tensor(void *ctx, const char *name, lc_tensor *view)
{
    return lc_ckpt_add_tensor(ctx, LC_CKPT_OPTIMIZER, name, view);
}

static lc_status save_gradient(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    char name[1024];
    lc_tensor *p = mt->tensor;
    (void)owner;
    if (!mt->is_parameter || !p->flat || !p->flat->has_gradient[p->flat_index]) return LC_OK;
    snprintf(name, sizeof name, "gradients.%s", path);
    return lc_ckpt_add_tensor(ctx, LC_CKPT_TENSORS, name, p->flat->gradients[p->flat_index]);
}

static bool in_window(const lc_trainer *t)
{
    return !t->mo.manual_optimization && t->epoch_open && t->accumulating && t->window_backwards > 0;
}

static lc_status save_loop(lc_trainer *t, lc_state *root)
{
    lc_state *o, *counts;
    bool at_end = t->phase == LC__PHASE_EPOCH_END;
    int64_t epoch = t->epoch_open ? t->cursor_epoch : t->current_epoch + (at_end ? 1 : 0);
    LC_TRY(lc_state_set_object(root, "loop", &o));
    LC_TRY(lc_state_set_int(o, "epoch", epoch));
    LC_TRY(lc_state_set_int(o, "global_step", t->global_step));
    LC_TRY(lc_state_set_int(o, "batches_that_stepped", t->batches_that_stepped));
    LC_TRY(lc_state_set_int(o, "total_batches", t->total_batches));
    LC_TRY(lc_state_set_int(o, "optimizer_steps", t->optimizer_steps));
    /* In an epoch that was broken off (max_steps), what follows the batch has been done. */
    LC_TRY(lc_state_set_text(o, "phase",
                             at_end                             ? (t->epoch_open ? "between" : "epoch_end")
                             : t->phase == LC__PHASE_BATCH      ? "batch"
                             : t->phase == LC__PHASE_VALIDATION ? "validation"
                                                                : "between"));
    LC_TRY(lc_state_set_bool(o, "epoch_open", t->epoch_open));
    LC_TRY(lc_state_set_int(o, "batches_done", t->epoch_open ? t->batches_done : 0));
    LC_TRY(lc_state_set_bool(o, "is_last_batch", t->is_last_batch));
    LC_TRY(lc_state_set_bool(o, "accumulating", t->epoch_open && t->accumulating));
    LC_TRY(lc_state_set_int(o, "window_backwards", in_window(t) ? t->window_backwards : 0));
    LC_TRY(lc_state_set_int(o, "accumulate_grad_batches", t->accumulate));
    LC_TRY(lc__source_save(&t->train, o));
    LC_TRY(lc_state_set_array(o, "val_batches", &counts));
    for (int i = 0; i < t->eval.n && t->stage == LC_STAGE_FIT; i++)
        LC_TRY(lc_state_set_int(counts, NULL, t->val_batch_count[i]));
    return LC_OK;
}

lc_status lc__scheduler_value(void *ctx, const char *name, double *value)
{
    lc__scheduler_io *io = ctx;
    return io->out ? lc_state_set_double(io->out, name, *value) : lc_state_get_double(io->in, name, value);
}

static lc_status save_optimizers(lc_trainer *t, lc_state *root)
{
    lc_state *list, *o, *groups, *g;
    LC_TRY(lc_state_set_array(root, "optimizers", &list));
    for (int i = 0; i < t->optimizers.n; i++) {
        lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
        LC_TRY(lc_state_set_object(list, NULL, &o));
        LC_TRY(lc_state_set_text(o, "name", opt->ops->name));
        LC_TRY(lc_state_set_array(o, "groups", &groups));
        for (int k = 0; k < opt->n_groups; k++) {
            LC_TRY(lc_state_set_object(groups, NULL, &g));
            for (int h = 0; opt->ops->hyper_names[h]; h++)
                LC_TRY(lc_state_set_double(g, opt->ops->hyper_names[h], opt->groups[k].hyper[h]));
            LC_TRY(lc_state_set_double(g, "initial_lr", opt->groups[k].initial_lr));
        }
    }
    LC_TRY(lc_state_set_array(root, "schedulers", &list));
    for (int i = 0; i < t->optimizers.n_schedulers; i++) {
        lc_scheduler *s = t->optimizers.schedulers[i].scheduler;
        LC_TRY(lc_state_set_object(list, NULL, &o));
        LC_TRY(lc_state_set_text(o, "name", lc_scheduler_name(s)));
        LC_TRY(lc_state_set_object(o, "state", &g));
        lc__scheduler_io io = {.out = g};
        LC_TRY(lc_scheduler_visit_state(s, lc__scheduler_value, &io));
    }
    return LC_OK;
}

static lc_status save_callback_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    return lc_ckpt_add_tensor(ctx, LC_CKPT_TENSORS, name, tensor);
}

static lc_status save_run_state(lc_trainer *t, lc_state *root)
{
    lc_state *o, *c;
    LC_TRY(save_loop(t, root));
    LC_TRY(save_optimizers(t, root));
    LC_TRY(lc_state_set_object(root, "metrics", &o));
    for (int i = 0; i < t->metrics[LC_CALLBACK_METRICS].n; i++)
        LC_TRY(lc_state_set_double(o, t->metrics[LC_CALLBACK_METRICS].v[i].name,
                                   t->metrics[LC_CALLBACK_METRICS].v[i].value));
    LC_TRY(lc_state_set_array(root, "results", &o));
    if (t->epoch_open) LC_TRY(lc__results_save(&t->train_results, o));
    LC_TRY(lc_state_set_object(root, "callbacks", &o));
    for (int i = 0; i < t->n_callbacks; i++) {
        const lc__callback *cb = t->callbacks[i];
        if (!cb->ops.save_state) continue;
        LC_TRY(lc_state_set_object(o, lc__state_key(cb), &c));
        lc_status s = cb->ops.save_state(cb->self, t, c);
        if (s < 0) return lc_fail_context(s, "save_state of %s", cb->ops.name);
        LC_TRY(lc__walk_callback(t, cb, save_callback_tensor, t->writer));
    }
    LC_TRY(lc_state_set_object(root, "precision", &o));
    if (t->precision->save_state) LC_TRY(t->precision->save_state(t->precision_self, o));
    LC_TRY(lc_state_set_int(root, "seed", t->opt.seed));
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    LC_TRY(lc_state_set_object(root, "options", &o));
    for (int i = 0; i < n; i++) {
        char value[1024];
        lc_option_get_text(&table[i], &t->opt, value, sizeof value);
        LC_TRY(lc_state_set_text(o, table[i].name, value));
    }
    return LC_OK;
}

static lc_status fill_checkpoint(lc_trainer *t, bool weights_only, lc__views *views)
{
    lc_ckpt_writer *w = t->writer;
    lc_state *root = lc_ckpt_state(w), *own;
    LC_TRY(lc_state_set_text(root, "lightc_version", lc_version()));
    LC_TRY(lc_state_set_int(root, "format", LC__STATE_FORMAT));
    LC_TRY(lc_state_set_text(root, "model", t->mo.name ? t->mo.name : ""));
    LC_TRY(lc_state_set_int(root, "epoch", t->current_epoch)); /* of the file's name; `loop` says where to go on */
    LC_TRY(lc_state_set_int(root, "global_step", t->global_step));
    LC_TRY(lc_state_set_bool(root, "weights_only", weights_only));
    LC_TRY(lc__hyperparameters_write(t->m, root));
    LC_TRY(lc_module_visit(t->m, save_model_tensor, t));
    if (!weights_only) {
        LC_TRY(save_run_state(t, root));
        for (int i = 0; i < t->optimizers.n; i++) {
            lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
            char name[64];
            LC_TRY(lc__walk_states(t, i, views, save_optimizer_tensor, w));
            snprintf(name, sizeof name, "optimizers.%d.step", i);
            if (opt->steps) LC_TRY(lc_ckpt_add_tensor(w, LC_CKPT_TENSORS, name, opt->steps));
        }
        if (in_window(t)) LC_TRY(lc_module_visit(t->m, save_gradient, w));
    }
    LC_TRY(lc__datamodule_save(t, root));
    LC_TRY(lc_state_set_object(root, "module", &own));
    LC_TRY(LC__CALLBACK_HOOK(t, ON_SAVE_CHECKPOINT, on_save_checkpoint, root));
    return LC__MODULE_HOOK(t, ON_SAVE_CHECKPOINT, on_save_checkpoint, own);
}

lc_status lc__save_checkpoint(lc_trainer *t, const char *path, bool weights_only, bool wait)
{
    lc__views views = {0};
    bool begun = false;
    lc_status status;
    if (!t->m) return lc_fail(LC_ERR_STATE, "there is no module to save yet");
    if (t->recording)
        return lc_fail(LC_ERR_STATE,
                       "a checkpoint can only be saved between steps (in on_train_batch_end or later), not "
                       "while one is recorded");
    if (!t->writer) LC_TRY(lc_ckpt_writer_new(&t->writer));
    LC_TRY(lc__settle(t, true));
    LC_TRY_GOTO(status, done, lc_ckpt_begin(t->writer, path));
    begun = true;
    LC_TRY_GOTO(status, done, fill_checkpoint(t, weights_only, &views));
    begun = false;
    LC_TRY_GOTO(status, done, lc_ckpt_commit(t->writer, wait));
done:
    if (begun) lc_ckpt_abort(t->writer);
    lc__views_free(&views);
    return status < 0 ? lc_fail_context(status, "checkpoint %s", path) : LC_OK;
}

lc_status lc_trainer_save_checkpoint(lc_trainer *t, const char *path, bool weights_only)
{
    bool attach = t->m && !t->m->trainer; /* between runs: its hooks may ask for the trainer */
    if (attach) t->m->trainer = t;
    lc_status s = lc__save_checkpoint(t, path, weights_only, true);
    if (attach) t->m->trainer = NULL;
    return s;
}

/* ---- what waits for a checkpoint to be safe ---- */

struct lc__after_commit {
    struct lc__after_commit *next;
    char *path, *target;
};

lc_status lc__after_commit(lc_trainer *t, const char *path, const char *target)
{
    struct lc__after_commit *a = calloc(1, sizeof *a), **end = &t->after_commit;
    lc_status status = a ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: a checkpoint");
    LC_TRY(status);
    LC_TRY_GOTO(status, done, lc__copy_text(path, &a->path));
    if (target) LC_TRY_GOTO(status, done, lc__copy_text(target, &a->target));
    while (*end) end = &(*end)->next;
    *end = a;
    return LC_OK;
done:
    free(a->path);
    free(a);
    return status;
}

static lc_status do_after_commit(const struct lc__after_commit *a)
{
    struct stat st;
    bool there = lstat(a->path, &st) == 0;
    if (!a->target) return there ? lc_checkpoint_remove(a->path) : LC_OK;
    /* A `last.ckpt` that is a checkpoint of its own makes room for the link to a newer one. */
    if (there && S_ISDIR(st.st_mode)) LC_TRY(lc_checkpoint_remove(a->path));
    return lc_checkpoint_link(a->path, a->target);
}

lc_status lc__settle(lc_trainer *t, bool wait)
{
    if (!t->writer || (!wait && lc_ckpt_busy(t->writer))) return LC_OK;
    lc_status status = lc_ckpt_wait(t->writer);
    while (t->after_commit) {
        struct lc__after_commit *a = t->after_commit;
        t->after_commit = a->next;
        if (status >= 0 && do_after_commit(a) < 0)
            lc_trainer_message(t, "warning", "%s", lc_error_message()); /* one checkpoint too many does no harm */
        free(a->path);
        free(a->target);
        free(a);
    }
    return status;
}
