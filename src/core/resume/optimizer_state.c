/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers and schedulers in checkpoints (save.c describes their contents), for the trainer and for fabric.c. */
#include "core/checkpoint/joint.h"
#include "base/grow.h"
#include "base/number.h"
#include "core/resume/run_state.h"
#include "optim/optim_internal.h"
#include "tensor/slice.h"
#include "base/state_count.h"
#include "module/tensors.h"
#include "optim/state_buffers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- state tensors ---- */

void lc__views_free(lc__views *l)
{
    for (int i = 0; i < l->n; i++) {
        if (l->v[i].mapped) lc__tensor_unmap(l->v[i].tensor, LC__READ);
        lc_tensor_unref(l->v[i].tensor);
    }
    free(l->v);
}

lc_status lc__views_add(lc__views *l, lc_tensor *t)
{
    lc_status s = lc__grow(&l->v, &l->cap, l->n, 1, "a checkpoint");
    if (s < 0) {
        lc_tensor_unref(t);
        return s;
    }
    l->v[l->n++] = (struct lc__kept_tensor){t, false};
    return LC_OK;
}

/* Maps t for reading until the views are freed. */
static lc_status map_until_saved(lc__views *l, lc_tensor *t, lc_view *out)
{
    LC_TRY(lc__views_add(l, lc_tensor_ref(t)));
    LC_TRY(lc__tensor_map(t, LC__READ, out));
    l->v[l->n - 1].mapped = true;
    return LC_OK;
}

/* A tensor for the whole value of t, which the views own, mapped to be written. */
static lc_status make_whole(const lc_tensor *t, lc__views *views, lc_tensor **whole, lc_view *v)
{
    LC_TRY(lc_tensor_new(t->type.dtype, t->type.ndim, t->type.shape, whole));
    LC_TRY(lc__views_add(views, *whole));
    return lc__tensor_map(*whole, LC__WRITE, v);
}

lc_status lc__save_tensor(lc_ckpt_writer *w, lc_ckpt_kind kind, const char *name, lc_tensor *t, bool ranges,
                          lc__views *views)
{
    lc_tensor *whole = NULL;
    lc_view v = {.data = NULL};
    bool is_empty = lc_tensor_numel(t) == 0; /* no rank has a range of it */
    if (!t->is_slice || is_empty) return lc_ckpt_add_tensor(w, kind, name, t);
    if (ranges) {
        int64_t first, count;
        lc__tensor_share(t, &first, &count);
        LC_TRY(map_until_saved(views, t, &v));
        const char *data = (const char *)v.data + (size_t)(first - t->slice_begin) * lc_dtype_size(t->type.dtype);
        return lc__ckpt_add_range(w, kind, name, &t->type, t->layout, first, count, data);
    }
    if (t->slices && t->slices->replica) return LC_OK; /* rank 0 writes the first replica */
    bool writes = t->slices && t->slices->rank == 0;
    lc_status status = writes ? make_whole(t, views, &whole, &v) : LC_OK;
    bool mapped = writes && status >= 0;
    status = lc__tensor_gather(t, status, 0, v.data);
    if (mapped) lc__tensor_unmap(whole, LC__WRITE);
    LC_TRY(status);
    return writes ? lc_ckpt_add_tensor(w, kind, name, whole) : LC_OK;
}

typedef struct state_walk {
    int index;
    lc_optimizer *opt;
    lc__views *views;
    lc__state_fn *fn;
    void *ctx;
} state_walk;

static lc_status walk_parameter(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    state_walk *w = ctx;
    (void)owner;
    int64_t index = mt->is_parameter ? lc__optimizer_index(w->opt, mt->tensor) : -1;
    if (index < 0) return LC_OK;
    if (!mt->tensor->flat) return lc_fail(LC_ERR_INTERNAL, "a parameter of an optimizer is in no flat buffer");
    const char *state;
    for (int k = 0; (state = lc__optimizer_state_name(w->opt, k)); k++) {
        char name[1024];
        lc_tensor *view;
        int n = snprintf(name, sizeof name, "optimizers.%d.%s.%s", w->index, path, state);
        if (n < 0 || (size_t)n >= sizeof name) return lc_fail(LC_ERR_ARGUMENT, "the path %.60s... is too long", path);
        LC_TRY(lc__optimizer_state_tensor(w->opt, k, index, mt->tensor, &view));
        if (!view) continue;
        LC_TRY(lc__views_add(w->views, view));
        LC_TRY(w->fn(w->ctx, name, view));
    }
    return LC_OK;
}

/* Calls fn("optimizers.I.PATH.STATE", view) for each state tensor of optimizer i that exists. */
static lc_status walk_states(lc_module *m, lc_optimizer *opt, int i, lc__views *views, lc__state_fn *fn, void *ctx)
{
    state_walk w = {i, opt, views, fn, ctx};
    return opt->steps ? lc_module_visit(m, walk_parameter, &w) : LC_OK;
}

/* An optimizer's own tensors, named "optimizers.I.own.NAME". */
typedef struct own_walk {
    int index;
    lc__state_fn *fn;
    void *ctx;
} own_walk;

static lc_status walk_own_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    const own_walk *w = ctx;
    char full[256];
    snprintf(full, sizeof full, "optimizers.%d.own.%s", w->index, name);
    return w->fn(w->ctx, full, tensor);
}

static lc_status walk_own(lc_optimizer *opt, int i, bool load, lc__state_fn *fn, void *ctx)
{
    own_walk w = {i, fn, ctx};
    unsigned before = lc__error_count();
    return lc__has_own(opt) ? lc__said(opt->ops->visit_own(opt, load, walk_own_tensor, &w), before) : LC_OK;
}

lc_status lc__list_add(lc__tensor_list *l, const char *name, lc_tensor *tensor)
{
    LC_TRY(lc__grow(&l->v, &l->cap, l->n, 1, "loading a checkpoint"));
    char *copy;
    LC_TRY(lc__copy_text(name, &copy));
    l->v[l->n++] = (lc_named_tensor){.name = copy, .tensor = tensor};
    return LC_OK;
}

static lc_status add_of_model(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    (void)owner;
    return mt->persistent || mt->is_parameter ? lc__list_add(ctx, path, mt->tensor) : LC_OK;
}

lc_status lc__list_model(lc__tensor_list *l, lc_module *m)
{
    return lc_module_visit(m, add_of_model, l);
}

void lc__list_free(lc__tensor_list *l)
{
    for (int64_t i = 0; i < l->n; i++) free((char *)l->v[i].name);
    free(l->v);
}

/* ---- saving ---- */

typedef struct state_save {
    lc_ckpt_writer *w;
    bool ranges;
    lc__views *views;
} state_save;

static lc_status save_optimizer_tensor(void *ctx, const char *name, lc_tensor *view)
{
    const state_save *s = ctx;
    return lc__save_tensor(s->w, LC_CKPT_OPTIMIZER, name, view, s->ranges, s->views);
}

static lc_status save_own_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    return lc_ckpt_add_tensor(ctx, LC_CKPT_TENSORS, name, tensor);
}

static lc_status get_finite(const lc_state *s, const char *key, double *out)
{
    double value;
    LC_TRY(lc_state_get_double(s, key, &value));
    if (!isfinite(value)) return lc_fail(LC_ERR_FORMAT, "state \"%s\" is %g", key, value);
    *out = value;
    return LC_OK;
}

/* lc_scheduler_visit_state writes to `out`, or reads from `in`. */
typedef struct scheduler_io {
    lc_state *out;
    const lc_state *in;
} scheduler_io;

static lc_status scheduler_value(void *ctx, const char *name, double *value)
{
    scheduler_io *io = ctx;
    if (io->out) return lc_state_set_double(io->out, name, *value);
    return strstr(name, "base_lrs.") ? get_finite(io->in, name, value) : lc_state_get_double(io->in, name, value);
}

static lc_status save_hyperparameters(const lc_optimizers *all, lc_state *root)
{
    lc_state *list, *o, *groups, *g;
    LC_TRY(lc_state_set_array(root, "optimizers", &list));
    for (int i = 0; i < all->n; i++) {
        lc_optimizer *opt = all->optimizers[i].optimizer;
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
    for (int i = 0; i < all->n_schedulers; i++) {
        lc_scheduler *s = all->schedulers[i].scheduler;
        LC_TRY(lc_state_set_object(list, NULL, &o));
        LC_TRY(lc_state_set_text(o, "name", lc_scheduler_name(s)));
        LC_TRY(lc_state_set_object(o, "state", &g));
        scheduler_io io = {.out = g};
        LC_TRY(lc_scheduler_visit_state(s, scheduler_value, &io));
    }
    return LC_OK;
}

lc_status lc__save_optimizers(lc_module *m, const lc_optimizers *all, lc_ckpt_writer *w, bool ranges, lc__views *views)
{
    LC_TRY(save_hyperparameters(all, lc_ckpt_state(w)));
    for (int i = 0; i < all->n; i++) {
        lc_optimizer *opt = all->optimizers[i].optimizer;
        char name[64];
        state_save s = {w, ranges, views};
        LC_TRY(walk_states(m, opt, i, views, save_optimizer_tensor, &s));
        snprintf(name, sizeof name, "optimizers.%d.step", i);
        if (opt->steps) LC_TRY(lc_ckpt_add_tensor(w, LC_CKPT_TENSORS, name, opt->steps));
        LC_TRY(walk_own(opt, i, false, save_own_tensor, w));
    }
    return LC_OK;
}

/* ---- restoring ---- */

typedef struct state_list {
    const lc_safetensors *file;
    lc__tensor_list there, masters; /* what the file has; and master weights that it lacks */
} state_list;

static lc_status list_state(void *ctx, const char *name, lc_tensor *view)
{
    state_list *l = ctx;
    bool lacking = lc__is_master_weight(name) && (!l->file || lc_safetensors_find(l->file, name) < 0);
    return lacking ? lc__list_parameter_of(&l->masters, name, view) : lc__list_add(&l->there, name, view);
}

static lc_status load_own_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    return lc_safetensors_load(ctx, name, tensor);
}

static lc_status clear_own_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    lc_view v;
    (void)ctx, (void)name;
    LC_TRY(lc__tensor_map(tensor, LC__WRITE, &v));
    memset(v.data, 0, (size_t)lc_tensor_numel(tensor) * lc_dtype_size(v.dtype));
    lc__tensor_unmap(tensor, LC__WRITE);
    return LC_OK;
}

/* An optimizer makes its own tensors, of zeros, in its first step, so a file that was saved before it has none. */
static lc_status restore_own(lc_optimizer *opt, int i, lc_safetensors *file)
{
    char prefix[64];
    int length = snprintf(prefix, sizeof prefix, "optimizers.%d.own.", i);
    for (int64_t k = 0; k < lc_safetensors_count(file); k++)
        if (!strncmp(lc_safetensors_info(file, k)->name, prefix, (size_t)length))
            return walk_own(opt, i, true, load_own_tensor, file);
    return walk_own(opt, i, false, clear_own_tensor, NULL);
}

static lc_status restore_hyperparameters(const lc_optimizers *all, const lc_state *root)
{
    const lc_state *list, *o, *groups, *g;
    const char *name;
    LC_TRY(lc_state_get_array(root, "optimizers", &list));
    if (lc_state_length(list) != all->n)
        return lc_fail(LC_ERR_CONFIG, "the checkpoint has %lld optimizers, but there are %d",
                       (long long)lc_state_length(list), all->n);
    for (int i = 0; i < all->n; i++) {
        lc_optimizer *opt = all->optimizers[i].optimizer;
        o = lc_state_at(list, i);
        LC_TRY(lc_state_get_text(o, "name", &name));
        if (strcmp(name, opt->ops->name) != 0)
            return lc_fail(LC_ERR_CONFIG, "optimizer %d of the checkpoint is %.60s, but this one is %s", i, name,
                           opt->ops->name);
        LC_TRY(lc_state_get_array(o, "groups", &groups));
        if (lc_state_length(groups) != opt->n_groups)
            return lc_fail(LC_ERR_CONFIG, "optimizer %d of the checkpoint has %lld groups, but %s has %d", i,
                           (long long)lc_state_length(groups), opt->ops->name, opt->n_groups);
        for (int k = 0; k < opt->n_groups; k++) {
            g = lc_state_at(groups, k);
            for (int h = 0; opt->ops->hyper_names[h]; h++)
                LC_TRY(get_finite(g, opt->ops->hyper_names[h], &opt->groups[k].hyper[h]));
            LC_TRY(get_finite(g, "initial_lr", &opt->groups[k].initial_lr));
            if (lc__optimizer_check(opt, k) < 0) return lc_fail_context(LC_ERR_FORMAT, "optimizer %d", i);
        }
    }
    LC_TRY(lc_state_get_array(root, "schedulers", &list));
    if (lc_state_length(list) != all->n_schedulers)
        return lc_fail(LC_ERR_CONFIG, "the checkpoint has %lld schedulers, but there are %d",
                       (long long)lc_state_length(list), all->n_schedulers);
    for (int i = 0; i < all->n_schedulers; i++) {
        scheduler_io io = {0};
        LC_TRY(lc_state_get_object(lc_state_at(list, i), "state", &io.in));
        LC_TRY(lc_scheduler_visit_state(all->schedulers[i].scheduler, scheduler_value, &io));
    }
    return LC_OK;
}

/* Checks the number of updates done, from which kernels continue to count. */
static lc_status check_steps(lc_tensor *steps, const char *name, const char *path)
{
    lc_status status = LC_OK;
    lc_view v;
    LC_TRY(lc__tensor_map(steps, LC__READ, &v));
    for (int64_t i = 0; i < lc_tensor_numel(steps) && status >= 0; i++) {
        double n = lc__number_at(v.data, v.dtype, i);
        if (!(n >= 0 && n <= (double)LC__MOST_COUNT && n == floor(n)))
            status = lc_fail(LC_ERR_FORMAT, "the checkpoint %s: %s is %g, but must be a number from 0 to %lld", path,
                             name, n, (long long)LC__MOST_COUNT);
    }
    lc__tensor_unmap(steps, LC__READ);
    return status;
}

lc_status lc__restore_optimizers(lc_module *m, const lc_optimizers *all, lc_checkpoint *c)
{
    lc_safetensors *states = lc_checkpoint_tensors(c, LC_CKPT_OPTIMIZER);
    lc_safetensors *others = lc_checkpoint_tensors(c, LC_CKPT_TENSORS);
    lc__views views = {0};
    state_list list = {.file = states};
    lc_status status = LC_OK;
    LC_TRY(restore_hyperparameters(all, lc_checkpoint_state(c)));
    LC_TRY(lc__module_flatten(m));
    for (int i = 0; i < all->n; i++) {
        lc_optimizer *opt = all->optimizers[i].optimizer;
        char name[64];
        snprintf(name, sizeof name, "optimizers.%d.step", i);
        if (!others || lc_safetensors_find(others, name) < 0) { /* saved before the first step */
            LC_TRY_GOTO(status, done, walk_own(opt, i, false, clear_own_tensor, NULL));
            lc__optimizer_forget_state(opt);
            continue;
        }
        LC_TRY_GOTO(status, done, lc__optimizer_prepare(opt));
        LC_TRY_GOTO(status, done, lc_safetensors_load(others, name, opt->steps));
        LC_TRY_GOTO(status, done, check_steps(opt->steps, name, lc_checkpoint_path(c)));
        LC_TRY_GOTO(status, done, walk_states(m, opt, i, &views, list_state, &list));
        LC_TRY_GOTO(status, done, restore_own(opt, i, others));
    }
    if (list.there.n && !states) {
        status = lc_fail(LC_ERR_FORMAT, "the checkpoint %s has no optimizer state", lc_checkpoint_path(c));
        goto done;
    }
    if (list.there.n)
        LC_TRY_GOTO(status, done, lc__safetensors_load_all(states, list.there.n, list.there.v, lc__is_master_weight));
    status = lc__start_master_weights(&list.masters, c);
done:
    lc__list_free(&list.there);
    lc__list_free(&list.masters);
    lc__views_free(&views);
    return status;
}
