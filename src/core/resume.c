/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint of a run holds, and how a run continues from one.
 *
 *   model.safetensors      parameters and persistent buffers, by their path
 *   optimizer.safetensors  optimizers.I.PATH.STATE for every parameter and state of optimizer I
 *   tensors.safetensors    optimizers.I.step (updates done), gradients.PATH of an unfinished accumulation window
 *   state.json             loop (counters, and the place in the loop), optimizers (hyperparameters), schedulers,
 *                          metrics, results (sums of the epoch), callbacks, module, options, seed
 *
 * Random numbers need no state but the seed: every key is made of it and of counters in `loop`. */
#include "core/trainer_internal.h"
#include "tensor/graph_impl.h"
#include "tensor/tensor_impl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATE_FORMAT 1

/* Views of flat buffers that live until the checkpoint is committed. */
typedef struct view_list {
    lc_tensor **v;
    int n, cap;
} view_list;

static void views_free(view_list *l)
{
    for (int i = 0; i < l->n; i++) lc_tensor_unref(l->v[i]);
    free(l->v);
}

/* The part of a flat buffer that belongs to parameter p, with the parameter's shape. */
static lc_status flat_view(view_list *l, lc_tensor *flat, lc_tensor *p, lc_tensor **out)
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

/* Calls fn for each state tensor of optimizer i that exists. */
typedef lc_status state_fn(void *ctx, const char *name, lc_tensor *view);

typedef struct state_walk {
    lc_trainer *t;
    int index;
    lc_optimizer *opt;
    view_list *views;
    state_fn *fn;
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

static lc_status walk_states(lc_trainer *t, int i, view_list *views, state_fn *fn, void *ctx)
{
    lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
    state_walk w = {t, i, opt, views, fn, ctx};
    return opt->steps ? lc_module_visit(t->m, walk_parameter, &w) : LC_OK;
}

/* ---- saving ---- */

static lc_status save_model_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    (void)owner;
    return mt->persistent || mt->is_parameter ? lc_ckpt_add_tensor(ctx, LC_CKPT_MODEL, path, mt->tensor) : LC_OK;
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
    LC_TRY(lc_state_set_array(o, "val_batches", &counts));
    for (int i = 0; i < t->eval.n && t->stage == LC_STAGE_FIT; i++)
        LC_TRY(lc_state_set_int(counts, NULL, t->val_batch_count[i]));
    return LC_OK;
}

typedef struct scheduler_io {
    lc_state *out;
    const lc_state *in;
} scheduler_io;

static lc_status scheduler_value(void *ctx, const char *name, double *value)
{
    scheduler_io *io = ctx;
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
        scheduler_io io = {.out = g};
        LC_TRY(lc_scheduler_visit_state(s, scheduler_value, &io));
    }
    return LC_OK;
}

static const char *state_key(const lc__callback *cb)
{
    return cb->ops.state_key ? cb->ops.state_key(cb->self) : cb->ops.name;
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
        LC_TRY(lc_state_set_object(o, state_key(cb), &c));
        lc_status s = cb->ops.save_state(cb->self, t, c);
        if (s < 0) return lc_fail_context(s, "save_state of %s", cb->ops.name);
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

static lc_status fill_checkpoint(lc_trainer *t, bool weights_only, view_list *views)
{
    lc_ckpt_writer *w = t->writer;
    lc_state *root = lc_ckpt_state(w), *own;
    LC_TRY(lc_state_set_text(root, "lightc_version", lc_version()));
    LC_TRY(lc_state_set_int(root, "format", STATE_FORMAT));
    LC_TRY(lc_state_set_text(root, "model", t->mo.name ? t->mo.name : ""));
    LC_TRY(lc_state_set_int(root, "epoch", t->current_epoch)); /* of the file's name; `loop` says where to go on */
    LC_TRY(lc_state_set_int(root, "global_step", t->global_step));
    LC_TRY(lc_state_set_bool(root, "weights_only", weights_only));
    LC_TRY(lc_module_visit(t->m, save_model_tensor, w));
    if (!weights_only) {
        LC_TRY(save_run_state(t, root));
        for (int i = 0; i < t->optimizers.n; i++) {
            lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
            char name[64];
            LC_TRY(walk_states(t, i, views, save_optimizer_tensor, w));
            snprintf(name, sizeof name, "optimizers.%d.step", i);
            if (opt->steps) LC_TRY(lc_ckpt_add_tensor(w, LC_CKPT_TENSORS, name, opt->steps));
        }
        if (in_window(t)) LC_TRY(lc_module_visit(t->m, save_gradient, w));
    }
    LC_TRY(lc_state_set_object(root, "module", &own));
    LC_TRY(LC__CALLBACK_HOOK(t, ON_SAVE_CHECKPOINT, on_save_checkpoint, root));
    return LC__MODULE_HOOK(t, ON_SAVE_CHECKPOINT, on_save_checkpoint, own);
}

lc_status lc__save_checkpoint(lc_trainer *t, const char *path, bool weights_only, bool wait)
{
    view_list views = {0};
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
    views_free(&views);
    return status < 0 ? lc_fail_context(status, "checkpoint %s", path) : LC_OK;
}

lc_status lc_trainer_save_checkpoint(lc_trainer *t, const char *path, bool weights_only)
{
    return lc__save_checkpoint(t, path, weights_only, true);
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

/* ---- restoring ---- */

typedef struct tensor_list {
    lc_named_tensor *v;
    int64_t n, cap;
} tensor_list;

static lc_status list_add(tensor_list *l, const char *name, lc_tensor *tensor)
{
    if (l->n == l->cap) {
        int64_t cap = l->cap ? 2 * l->cap : 64;
        lc_named_tensor *v = realloc(l->v, (size_t)cap * sizeof *v);
        if (!v) return lc_fail(LC_ERR_MEMORY, "out of memory: loading a checkpoint");
        l->v = v;
        l->cap = cap;
    }
    char *copy;
    LC_TRY(lc__copy_text(name, &copy));
    l->v[l->n++] = (lc_named_tensor){.name = copy, .tensor = tensor};
    return LC_OK;
}

static void list_free(tensor_list *l)
{
    for (int64_t i = 0; i < l->n; i++) free((char *)l->v[i].name);
    free(l->v);
}

static lc_status list_model(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    (void)owner;
    return mt->persistent || mt->is_parameter ? list_add(ctx, path, mt->tensor) : LC_OK;
}

static lc_status list_state(void *ctx, const char *name, lc_tensor *view)
{
    return list_add(ctx, name, view);
}

static lc_status load_model(lc_module *m, lc_checkpoint *c, bool strict)
{
    tensor_list list = {0};
    lc_safetensors *f = lc_checkpoint_part(c, LC_CKPT_MODEL);
    lc_status status = LC_OK;
    if (!f) return lc_fail(LC_ERR_FORMAT, "the checkpoint %s holds no model", lc_checkpoint_path(c));
    LC_TRY_GOTO(status, done, lc_module_visit(m, list_model, &list));
    if (!strict) { /* take what is there */
        int64_t n = 0;
        for (int64_t i = 0; i < list.n; i++) {
            if (lc_safetensors_find(f, list.v[i].name) < 0) {
                free((char *)list.v[i].name);
                continue;
            }
            list.v[n++] = list.v[i];
        }
        list.n = n;
    }
    LC_TRY_GOTO(status, done, lc_safetensors_load_all(f, list.n, list.v, strict));
done:
    list_free(&list);
    return status;
}

lc_status lc_module_load_checkpoint(lc_module *m, const char *path, bool strict)
{
    lc_checkpoint *c;
    LC_TRY(lc_checkpoint_open(path, &c));
    lc_status s = load_model(m, c, strict);
    lc_checkpoint_close(c);
    return s;
}

static const char *best_path(const lc_trainer *t)
{
    lc__callback *cb = lc__callback_named(t, "ModelCheckpoint", 0);
    lc_model_checkpoint_info info;
    if (!cb) return "";
    lc_callback handle = {&cb->ops, cb->self};
    return lc_model_checkpoint_get(&handle, &info) == LC_OK ? info.best_model_path : "";
}

lc_status lc__resolve_ckpt_path(lc_trainer *t, const char *asked, char **out)
{
    *out = NULL;
    if (!asked || !*asked) return LC_OK;
    if (!strcmp(asked, "best")) {
        const char *best = best_path(t);
        if (!*best)
            return lc_fail(LC_ERR_CONFIG, "ckpt_path=best: this trainer has saved no checkpoint yet; give the path of "
                                          "one");
        return lc__copy_text(best, out);
    }
    if (!strcmp(asked, "last")) {
        char path[PATH_MAX];
        lc_status s = lc__find_last(t, path, sizeof path);
        if (s == LC_ERR_NOT_FOUND) {
            lc_trainer_message(t, "warning", "ckpt_path=last: there is no checkpoint below %s yet; starting anew",
                               t->root_dir);
            return LC_OK;
        }
        LC_TRY(s);
        return lc__copy_text(path, out);
    }
    return lc__copy_text(asked, out);
}

lc_status lc__open_checkpoint(lc_trainer *t, const char *path)
{
    const lc_state *root, *loop;
    lc_checkpoint_close(t->restoring_from);
    t->restoring_from = NULL;
    LC_TRY(lc_checkpoint_open(path, &t->restoring_from));
    root = lc_checkpoint_state(t->restoring_from);
    int64_t format;
    LC_TRY(lc_state_get_int(root, "format", &format));
    if (format != STATE_FORMAT)
        return lc_fail(LC_ERR_FORMAT, "the checkpoint %s has format %lld; this version reads format %d", path,
                       (long long)format, STATE_FORMAT);
    t->resumed_step = -1;
    if (lc_state_get_object(root, "loop", &loop) == LC_OK) {
        LC_TRY(lc_state_get_int(loop, "batches_that_stepped", &t->resumed_step));
        t->resumed_step--;
    }
    free(t->ckpt_path);
    t->ckpt_path = NULL;
    return lc__copy_text(lc_checkpoint_path(t->restoring_from), &t->ckpt_path);
}

lc_status lc__restore_module(lc_trainer *t)
{
    const lc_state *root = lc_checkpoint_state(t->restoring_from), *own, *callbacks, *one;
    LC_TRY(load_model(t->m, t->restoring_from, true));
    if (lc_state_get_object(root, "module", &own) == LC_OK)
        LC_TRY(LC__MODULE_HOOK(t, ON_LOAD_CHECKPOINT, on_load_checkpoint, own));
    if (t->stage != LC_STAGE_FIT) return LC_OK;
    LC_TRY(LC__CALLBACK_HOOK(t, ON_LOAD_CHECKPOINT, on_load_checkpoint, root));
    if (lc_state_get_object(root, "callbacks", &callbacks) < 0) return LC_OK;
    for (int i = 0; i < t->n_callbacks; i++) {
        lc__callback *cb = t->callbacks[i];
        if (!cb->ops.load_state || lc_state_get_object(callbacks, state_key(cb), &one) < 0) continue;
        lc_status s = cb->ops.load_state(cb->self, t, one);
        if (s < 0) return lc_fail_context(s, "load_state of %s", cb->ops.name);
    }
    for (int64_t k = 0; k < lc_state_length(callbacks); k++) {
        const char *key = lc_state_key_at(callbacks, k);
        bool found = false;
        for (int i = 0; i < t->n_callbacks && !found; i++)
            found = t->callbacks[i]->ops.save_state && !strcmp(state_key(t->callbacks[i]), key);
        if (!found)
            lc_trainer_message(t, "warning", "the checkpoint holds state of %.200s, which this run does not have", key);
    }
    return LC_OK;
}

static lc_status restore_loop(lc_trainer *t, const lc_state *root)
{
    const lc_state *o, *counts;
    const char *phase;
    int64_t backwards;
    LC_TRY(lc_state_get_object(root, "loop", &o));
    LC_TRY(lc_state_get_int(o, "epoch", &t->current_epoch));
    LC_TRY(lc_state_get_int(o, "global_step", &t->global_step));
    LC_TRY(lc_state_get_int(o, "batches_that_stepped", &t->batches_that_stepped));
    LC_TRY(lc_state_get_int(o, "total_batches", &t->total_batches));
    LC_TRY(lc_state_get_int(o, "optimizer_steps", &t->optimizer_steps));
    LC_TRY(lc_state_get_text(o, "phase", &phase));
    LC_TRY(lc_state_get_bool(o, "epoch_open", &t->epoch_open));
    LC_TRY(lc_state_get_int(o, "batches_done", &t->batches_done));
    LC_TRY(lc_state_get_bool(o, "is_last_batch", &t->is_last_batch));
    LC_TRY(lc_state_get_bool(o, "accumulating", &t->accumulating));
    LC_TRY(lc_state_get_int(o, "window_backwards", &backwards));
    LC_TRY(lc_state_get_int(o, "accumulate_grad_batches", &t->accumulate));
    LC_TRY(lc_state_get_array(o, "val_batches", &counts));
    for (int i = 0; i < lc_state_length(counts) && i < LC_MAX_LOADERS; i++)
        LC_TRY(lc_state_get_int(lc_state_at(counts, i), NULL, &t->val_batch_count[i]));
    if (t->current_epoch < 0 || t->global_step < 0 || t->batches_done < 0 || t->accumulate < 1 || backwards < 0)
        return lc_fail(LC_ERR_FORMAT, "the checkpoint %s holds counters that make no sense", t->ckpt_path);
    t->resume_phase = !strcmp(phase, "batch")        ? LC__PHASE_BATCH
                      : !strcmp(phase, "validation") ? LC__PHASE_VALIDATION
                      : !strcmp(phase, "epoch_end")  ? LC__PHASE_EPOCH_END
                                                     : LC__PHASE_START;
    t->resume_mid_epoch = t->epoch_open && t->batches_done > 0;
    t->epochs_processed = t->cursor_epoch = t->current_epoch;
    t->window_backwards = backwards;
    if (t->max_epochs >= 0 && t->current_epoch > t->max_epochs)
        return lc_fail(LC_ERR_CONFIG,
                       "the checkpoint %s stands at epoch %lld, but max_epochs is %lld; raise max_epochs to go on",
                       t->ckpt_path, (long long)t->current_epoch, (long long)t->max_epochs);
    return LC_OK;
}

static lc_status restore_optimizers(lc_trainer *t, const lc_state *root)
{
    const lc_state *list, *o, *groups, *g;
    const char *name;
    LC_TRY(lc_state_get_array(root, "optimizers", &list));
    if (lc_state_length(list) != t->optimizers.n)
        return lc_fail(LC_ERR_CONFIG, "the checkpoint holds %lld optimizers, but configure_optimizers made %d",
                       (long long)lc_state_length(list), t->optimizers.n);
    for (int i = 0; i < t->optimizers.n; i++) {
        lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
        o = lc_state_at(list, i);
        LC_TRY(lc_state_get_text(o, "name", &name));
        if (strcmp(name, opt->ops->name) != 0)
            return lc_fail(LC_ERR_CONFIG, "optimizer %d of the checkpoint is %.60s, but configure_optimizers made %s",
                           i, name, opt->ops->name);
        LC_TRY(lc_state_get_array(o, "groups", &groups));
        if (lc_state_length(groups) != opt->n_groups)
            return lc_fail(LC_ERR_CONFIG, "optimizer %d of the checkpoint has %lld groups, but %s has %d", i,
                           (long long)lc_state_length(groups), opt->ops->name, opt->n_groups);
        for (int k = 0; k < opt->n_groups; k++) {
            g = lc_state_at(groups, k);
            for (int h = 0; opt->ops->hyper_names[h]; h++)
                LC_TRY(lc_state_get_double(g, opt->ops->hyper_names[h], &opt->groups[k].hyper[h]));
            LC_TRY(lc_state_get_double(g, "initial_lr", &opt->groups[k].initial_lr));
        }
    }
    LC_TRY(lc_state_get_array(root, "schedulers", &list));
    if (lc_state_length(list) != t->optimizers.n_schedulers)
        return lc_fail(LC_ERR_CONFIG, "the checkpoint holds %lld schedulers, but configure_optimizers made %d",
                       (long long)lc_state_length(list), t->optimizers.n_schedulers);
    for (int i = 0; i < t->optimizers.n_schedulers; i++) {
        scheduler_io io = {0};
        LC_TRY(lc_state_get_object(lc_state_at(list, i), "state", &io.in));
        LC_TRY(lc_scheduler_visit_state(t->optimizers.schedulers[i].scheduler, scheduler_value, &io));
    }
    return LC_OK;
}

static lc_status list_gradient(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    lc_safetensors *f = lc_checkpoint_part(t->restoring_from, LC_CKPT_TENSORS);
    lc_tensor *p = mt->tensor;
    char name[1024];
    (void)owner;
    if (!mt->is_parameter || !p->flat || !f) return LC_OK;
    snprintf(name, sizeof name, "gradients.%s", path);
    if (lc_safetensors_find(f, name) < 0) return LC_OK;
    LC_TRY(lc_safetensors_load(f, name, p->flat->gradients[p->flat_index]));
    p->flat->has_gradient[p->flat_index] = 1;
    return LC_OK;
}

static lc_status restore_tensors(lc_trainer *t)
{
    lc_safetensors *states = lc_checkpoint_part(t->restoring_from, LC_CKPT_OPTIMIZER);
    lc_safetensors *others = lc_checkpoint_part(t->restoring_from, LC_CKPT_TENSORS);
    view_list views = {0};
    tensor_list list = {0};
    lc_status status = LC_OK;
    LC_TRY(lc__module_flatten(t->m));
    for (int i = 0; i < t->optimizers.n; i++) {
        lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
        char name[64];
        snprintf(name, sizeof name, "optimizers.%d.step", i);
        if (!others || lc_safetensors_find(others, name) < 0) continue; /* saved before the first step */
        LC_TRY_GOTO(status, done, lc__optimizer_prepare(opt));
        LC_TRY_GOTO(status, done, lc_safetensors_load(others, name, opt->steps));
        LC_TRY_GOTO(status, done, walk_states(t, i, &views, list_state, &list));
    }
    if (list.n && !states) {
        status = lc_fail(LC_ERR_FORMAT, "the checkpoint %s holds no optimizer state", t->ckpt_path);
        goto done;
    }
    if (list.n) LC_TRY_GOTO(status, done, lc_safetensors_load_all(states, list.n, list.v, true));
    lc_zero_grad(t->graph);
    if (t->window_backwards > 0) {
        LC_TRY_GOTO(status, done, lc_module_visit(t->m, list_gradient, t));
        t->graph->backwards = t->window_backwards;
    }
done:
    list_free(&list);
    views_free(&views);
    return status;
}

lc_status lc__restore_progress(lc_trainer *t)
{
    const lc_state *root = lc_checkpoint_state(t->restoring_from), *o;
    bool weights_only = false;
    int64_t seed;
    LC_TRY(lc_state_get_bool(root, "weights_only", &weights_only));
    if (weights_only)
        return lc_fail(LC_ERR_CONFIG,
                       "%s was saved with save_weights_only: a training cannot continue from it; load it with "
                       "lc_module_load_checkpoint",
                       t->ckpt_path);
    LC_TRY(restore_loop(t, root));
    LC_TRY(restore_optimizers(t, root));
    LC_TRY(restore_tensors(t));
    LC_TRY(lc_state_get_object(root, "metrics", &o));
    for (int64_t i = 0; i < lc_state_length(o); i++) {
        lc__metric_map *m = &t->metrics[LC_CALLBACK_METRICS];
        double v;
        LC_TRY(lc_state_get_double(lc_state_at(o, i), NULL, &v));
        int slot = lc__map_slot(m, lc_state_key_at(o, i));
        if (slot < 0) return lc_fail(LC_ERR_MEMORY, "out of memory: metrics");
        m->v[slot].value = v;
    }
    LC_TRY(lc_state_get_array(root, "results", &o));
    LC_TRY(lc__results_load(t, &t->train_results, o));
    if (t->precision->load_state && lc_state_get_object(root, "precision", &o) == LC_OK)
        LC_TRY(t->precision->load_state(t->precision_self, o));
    LC_TRY(lc_state_get_int(root, "seed", &seed));
    if (seed != t->opt.seed)
        lc_trainer_message(t, "warning",
                           "the checkpoint was made with seed %lld, this run has %lld: what is random will "
                           "differ from the run that is continued",
                           (long long)seed, (long long)t->opt.seed);
    return LC_OK;
}
