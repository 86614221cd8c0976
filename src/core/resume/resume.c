/* SPDX-License-Identifier: Apache-2.0 */
/* How a run continues from a checkpoint (save.c describes its contents). Weights and callbacks are restored before
 * configure_optimizers, the rest after on_fit_start, as in Lightning; with gather_parameters=false weights are restored
 * after configure_optimizers, when the module has been sliced, as with Lightning's FSDP. */
#include "core/resume/resume.h"

#include "base/number.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "core/hooks/hooks.h"
#include "core/hooks/precision_calls.h"
#include "core/checkpoint/joint.h"
#include "base/handle.h"
#include "core/split/chunks.h"
#include "core/split/step.h"
#include "core/resume/run_state.h"
#include "launch/slurm.h"
#include "engine/plan/plan.h"
#include "engine/plan/tune.h"
#include "tensor/initial.h"
#include "tensor/slice.h"
#include "parallel/reduce/reducer.h"
#include "base/state_count.h"
#include "module/tensors.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 1000000 /* for a checkpoint's world_size */

lc_status lc__load_model(lc_module *m, lc_checkpoint *c)
{
    lc_safetensors *f = lc_checkpoint_tensors(c, LC_CKPT_MODEL);
    lc__tensor_list list = {0};
    if (!f) return lc_fail(LC_ERR_FORMAT, "the checkpoint %s contains no model", lc_checkpoint_path(c));
    lc_status status = lc__list_model(&list, m);
    if (status >= 0) status = lc_safetensors_load_all(f, list.n, list.v, true);
    if (status >= 0) status = lc__load_master_weights(&list, c);
    if (status == LC_ERR_NOT_FOUND || status == LC_ERR_SHAPE || status == LC_ERR_DTYPE || status == LC_ERR_FORMAT)
        lc_fail_context(status,
                        "the checkpoint is of a different model (lc_module_load_weights, or the option weights, "
                        "takes over the parts that fit)");
    lc__list_free(&list);
    return status;
}

lc_status lc__resolve_ckpt_path(lc_trainer *t, const char *asked, char **out)
{
    char path[PATH_MAX];
    *out = NULL;
    bool goes_on = t->stage == LC_STAGE_FIT && !t->resume->is_probe;
    if (goes_on && lc__find_restart(t, path, sizeof path)) return lc__copy_text(path, out);
    /* A job that SLURM restarted continues by itself. */
    if ((!asked || !*asked) && goes_on && lc__on_slurm() &&
        lc__find_hpc(t, t->resume->fit_number, path, sizeof path) >= 0)
        return lc__copy_text(path, out);
    if (!asked || !*asked) return LC_OK;
    if (!strcmp(asked, "hpc")) {
        if (lc__find_hpc(t, 0, path, sizeof path) < 0) return lc_fail_context(LC_ERR_CONFIG, "ckpt_path=hpc");
        return lc__copy_text(path, out);
    }
    if (!strcmp(asked, "best")) {
        double score;
        const char *best = lc__best_checkpoint(t, &score);
        if (best) return lc__copy_text(best, out);
        if (t->stage != LC_STAGE_FIT) /* the best checkpoint of another run is not wanted here */
            return lc_fail(LC_ERR_CONFIG,
                           "ckpt_path=best: this trainer has not saved a checkpoint yet; pass the path of one");
        if (lc__find_best(t, path, sizeof path) < 0)
            return lc_fail_context(LC_ERR_CONFIG, "ckpt_path=best: this trainer has not saved a checkpoint yet");
        return lc__copy_text(path, out);
    }
    if (!strcmp(asked, "last")) {
        lc_status s = lc__find_last(t, path, sizeof path);
        if (s == LC_ERR_NOT_FOUND) {
            lc_trainer_message(t, LC_WARNING, "ckpt_path=last: %s yet; starting from scratch", lc_error_message());
            return LC_OK;
        }
        LC_TRY(s);
        return lc__copy_text(path, out);
    }
    return lc__copy_text(asked, out);
}

lc_status lc__check_format(const lc_checkpoint *c)
{
    int64_t format;
    LC_TRY(lc_state_get_int(lc_checkpoint_state(c), "format", &format));
    if (format == LC__STATE_FORMAT) return LC_OK;
    return lc_fail(LC_ERR_FORMAT, "the checkpoint %s has format %lld; this version reads format %d",
                   lc_checkpoint_path(c), (long long)format, LC__STATE_FORMAT);
}

void lc__convert_checkpoint(lc_checkpoint *c, const char *precision)
{
    const lc_state *state = lc_state_find(lc_checkpoint_state(c), "precision");
    const char *name = "32-true"; /* of checkpoints that do not say */
    if (state && lc_state_find(state, "name") && lc_state_get_text(state, "name", &name) < 0) return;
    for (int i = 0; i < LC_CKPT_KINDS; i++) {
        lc_safetensors *f = lc_checkpoint_tensors(c, (lc_ckpt_kind)i);
        if (f) lc__safetensors_convert(f, strcmp(name, precision) != 0);
    }
}

lc_status lc__open_checkpoint(lc_trainer *t, const char *path)
{
    const lc_state *loop;
    const char *phase;
    lc_checkpoint_close(t->resume->restoring_from);
    t->resume->restoring_from = NULL;
    LC_TRY(lc__ranks_open_checkpoint(t->comm, path, &t->resume->restoring_from));
    LC_TRY(lc__name_checkpoint(path, lc__check_format(t->resume->restoring_from)));
    lc__convert_checkpoint(t->resume->restoring_from, t->precision.name);
    t->resumed_step = -1;
    if (lc_state_get_object(lc_checkpoint_state(t->resume->restoring_from), "loop", &loop) == LC_OK) {
        LC_TRY(lc__name_checkpoint(path, lc__state_get_count(loop, "batches_that_stepped", 0, &t->resumed_step)));
        LC_TRY(lc__name_checkpoint(path, lc_state_get_text(loop, "phase", &phase)));
        /* Only an unfinished batch has already sent rows under its step. */
        if (strcmp(phase, "batch") != 0 && strcmp(phase, "validation") != 0) t->resumed_step--;
    }
    free(t->ckpt_path);
    t->ckpt_path = NULL;
    return lc__copy_text(lc_checkpoint_path(t->resume->restoring_from), &t->ckpt_path);
}

static lc_status load_callback_tensor(void *ctx, const char *name, lc_tensor *tensor)
{
    lc_trainer *t = ctx;
    lc_safetensors *f = lc_checkpoint_tensors(t->resume->restoring_from, LC_CKPT_TENSORS);
    return f ? lc_safetensors_load(f, name, tensor)
             : lc_fail(LC_ERR_FORMAT, "the checkpoint %s has no tensor %s", t->ckpt_path, name);
}

/* Loads the state of a callback, if this is its time. */
static lc_status load_callback(lc_trainer *t, lc__callback *cb, const lc_state *callbacks, lc__restoring when)
{
    const lc_state *one;
    bool early = !cb->ops.visit_tensors;
    if (!cb->ops.load_state || !lc_state_find(callbacks, lc__state_key(cb))) return LC_OK;
    if (when != LC__AT_ONCE && early != (when == LC__AHEAD_OF_SLICES)) return LC_OK;
    LC_TRY(lc_state_get_object(callbacks, lc__state_key(cb), &one));
    unsigned before = lc__error_count();
    lc_status s = lc__said(cb->ops.load_state(cb->self, t, one), before);
    if (s < 0) return lc_fail_context(s, "load_state of %s", cb->ops.name);
    return lc__walk_callback(t, cb, load_callback_tensor, t);
}

static void warn_of_others(lc_trainer *t, const lc_state *callbacks)
{
    for (int64_t k = 0; k < lc_state_length(callbacks); k++) {
        const char *key = lc_state_key_at(callbacks, k);
        bool found = false;
        for (int i = 0; i < t->n_callbacks && !found; i++)
            found = t->callbacks[i]->ops.save_state && !strcmp(lc__state_key(t->callbacks[i]), key);
        if (!found)
            lc_trainer_message(t, LC_WARNING, "the checkpoint has state of %.200s, which this run does not have", key);
    }
}

lc_status lc__restore_module(lc_trainer *t, lc__restoring when)
{
    const lc_state *root = lc_checkpoint_state(t->resume->restoring_from), *own, *callbacks;
    if (when != LC__AHEAD_OF_SLICES) {
        if (lc_state_find(root, "module")) {
            LC_TRY(lc__name_checkpoint(t->ckpt_path, lc_state_get_object(root, "module", &own)));
            LC_TRY(lc__hook_module(t, LC_HOOK_ON_LOAD_CHECKPOINT, &(lc__hook_args){.loaded = own}));
        }
        LC_TRY(lc__load_model(t->m, t->resume->restoring_from));
    } else {
        LC_TRY(lc__module_revive(t->m));
    }
    if (when != LC__IN_SLICES) LC_TRY(lc__datamodule_load(t, root));
    if (when != LC__AHEAD_OF_SLICES)
        LC_TRY(lc__hook_callbacks(t, LC_HOOK_ON_LOAD_CHECKPOINT, &(lc__hook_args){.loaded = root}));
    /* An evaluation does not set callbacks back to the time of the checkpoint. */
    if (t->stage != LC_STAGE_FIT || !lc_state_find(root, "callbacks")) return LC_OK;
    LC_TRY(lc__name_checkpoint(t->ckpt_path, lc_state_get_object(root, "callbacks", &callbacks)));
    for (int i = 0; i < t->n_callbacks; i++)
        LC_TRY(lc__name_checkpoint(t->ckpt_path, load_callback(t, t->callbacks[i], callbacks, when)));
    if (when != LC__AHEAD_OF_SLICES) warn_of_others(t, callbacks);
    return LC_OK;
}

int64_t lc__global_batch(const lc_trainer *t)
{
    const lc_share *share = t->input->train.loader ? lc_dataloader_get_share(t->input->train.loader) : NULL;
    return share ? lc_dataloader_batch_size(t->input->train.loader) * share->batches : 0;
}

void lc__check_global_batch(lc_trainer *t)
{
    int64_t now = lc__global_batch(t);
    if (t->resume->resume_mid_epoch && t->batches_done > 0 && t->resume->resumed_batch > 0 && now > 0 &&
        now != t->resume->resumed_batch)
        lc_trainer_message(t, LC_WARNING,
                           "the checkpoint is at batch %lld of an epoch with batches of %lld samples (over all ranks); "
                           "with batches of %lld the rest of this epoch has different samples",
                           (long long)t->batches_done, (long long)t->resume->resumed_batch, (long long)now);
    t->resume->resumed_batch = 0;
}

static lc_status read_phase(const char *text, lc__phase *out)
{
    static const struct {
        const char *text;
        lc__phase phase;
    } phases[] = {{"batch", LC__PHASE_BATCH},
                  {"validation", LC__PHASE_VALIDATION},
                  {"epoch_end", LC__PHASE_EPOCH_END},
                  {"between", LC__PHASE_START}};
    for (int i = 0; i < (int)(sizeof phases / sizeof *phases); i++) {
        if (strcmp(text, phases[i].text) != 0) continue;
        *out = phases[i].phase;
        return LC_OK;
    }
    return lc_fail(LC_ERR_FORMAT, "state \"phase\" is \"%.60s\"; available: batch, validation, epoch_end, between",
                   text);
}

static lc_status restore_loop(lc_trainer *t, const lc_state *root)
{
    const lc_state *o, *counts;
    const char *phase;
    int64_t backwards, accumulate, next, begin;
    LC_TRY(lc_state_get_object(root, "loop", &o));
    LC_TRY(lc__state_get_count(o, "epoch", 0, &t->current_epoch));
    LC_TRY(lc__state_get_count(o, "global_step", 0, &t->global_step));
    LC_TRY(lc__state_get_count(o, "batches_that_stepped", 0, &t->batches_that_stepped));
    LC_TRY(lc__state_get_count(o, "total_batches", 0, &t->total_batches));
    LC_TRY(lc__state_get_count(o, "optimizer_steps", 0, &t->optimizer_steps));
    LC_TRY(lc_state_get_text(o, "phase", &phase));
    LC_TRY(lc_state_get_bool(o, "epoch_open", &t->epoch_open));
    LC_TRY(lc__state_get_count(o, "batches_done", 0, &t->batches_done));
    LC_TRY(lc_state_get_bool(o, "is_last_batch", &t->is_last_batch));
    LC_TRY(lc_state_get_bool(o, "accumulating", &t->accumulating));
    LC_TRY(lc__state_get_count(o, "window_backwards", 0, &backwards));
    LC_TRY(lc__state_get_count(o, "accumulate_grad_batches", 1, &accumulate));
    next = accumulate, begin = t->resume->resumed_batch = 0; /* an older checkpoint lacks them */
    if (lc_state_find(o, "next_accumulate_grad_batches"))
        LC_TRY(lc__state_get_count(o, "next_accumulate_grad_batches", 1, &next));
    if (lc_state_find(o, "window_begin")) LC_TRY(lc__state_get_count(o, "window_begin", 0, &begin));
    if (lc_state_find(o, "global_batch")) LC_TRY(lc__state_get_count(o, "global_batch", 0, &t->resume->resumed_batch));
    LC_TRY(lc__source_saved(t, o, &t->resume->loader_state));
    LC_TRY(lc_state_get_array(o, "val_batches", &counts));
    for (int i = 0; i < lc_state_length(counts) && i < LC_MAX_LOADERS; i++)
        LC_TRY(lc__state_get_count(lc_state_at(counts, i), NULL, 0, &t->input->val_batch_count[i]));
    if (begin > t->batches_done)
        return lc_fail(LC_ERR_FORMAT, "state \"window_begin\" is %lld, but \"batches_done\" is only %lld",
                       (long long)begin, (long long)t->batches_done);
    LC_TRY(read_phase(phase, &t->resume->resume_phase));
    t->epoch_begun = t->batches_done > 0; /* an older checkpoint does not say it */
    if (lc_state_find(o, "epoch_begun")) LC_TRY(lc_state_get_bool(o, "epoch_begun", &t->epoch_begun));
    t->resume->resume_mid_epoch = t->epoch_open && t->epoch_begun;
    if (t->resume->resume_mid_epoch) { /* a window must end as it began */
        if (next != t->accumulate_next)
            lc_trainer_message(t, LC_WARNING,
                               "accumulate_grad_batches stays %lld, as in the checkpoint, until it is set again",
                               (long long)next);
        t->accumulate = accumulate;
        t->accumulate_next = next;
        t->window_begin = begin;
    }
    t->epochs_processed = t->resume->cursor_epoch = t->current_epoch;
    t->window_backwards = backwards;
    /* As Lightning: an epoch whose end was being saved is not over yet. */
    bool at_end = t->resume->resume_phase == LC__PHASE_EPOCH_END;
    if (t->max_epochs >= 0 && t->current_epoch - at_end > t->max_epochs) {
        int64_t epoch = t->current_epoch;
        t->current_epoch -= !t->epoch_open; /* the end of an open epoch has not been counted yet */
        return lc_fail(LC_ERR_CONFIG,
                       "the checkpoint %s is at epoch %lld, but max_epochs is %lld; raise max_epochs to continue",
                       t->ckpt_path, (long long)epoch, (long long)t->max_epochs);
    }
    return LC_OK;
}

/* Turns a sum over `from` ranks into one over `to` ranks, or into the mean (to = 1); a scale likewise. */
static lc_status rescale(lc_tensor *sum, double from, double to)
{
    int64_t begin, n;
    lc_view v;
    if (from == to) return LC_OK;
    lc__tensor_slice(sum, &begin, &n);
    LC_TRY(lc__tensor_map(sum, LC__READ_WRITE, &v));
    for (int64_t i = 0; i < n; i++) lc__set_number(v.data, v.dtype, i, lc__number_at(v.data, v.dtype, i) / from * to);
    lc__tensor_unmap(sum, LC__READ_WRITE);
    return LC_OK;
}

/* Adds up the gradients of `ranks` ranks, in the type that they were saved in; *any: some rank had one. */
static lc_status add_up_gradients(lc_safetensors *f, const char *path, int64_t ranks, lc_tensor *out, bool *any)
{
    lc_type type = out->type;
    char name[1024], *all = NULL, *one = NULL;
    size_t bytes = 0;
    lc_status status = LC_OK;
    *any = false;
    for (int64_t r = 0; r < ranks; r++) {
        snprintf(name, sizeof name, "rank_gradients.%lld.%s", (long long)r, path);
        int64_t at = lc_safetensors_find(f, name);
        if (at < 0) continue;
        const lc_type *saved = &lc_safetensors_info(f, at)->type;
        if (!*any && lc_dtype_is_float(saved->dtype)) type.dtype = saved->dtype;
        if (!lc__type_equal(saved, &type))
            LC_TRY_GOTO(status, done, lc_fail(LC_ERR_SHAPE, "%s does not match its parameter", name));
        bytes = lc_safetensors_info(f, at)->bytes;
        if (!all) all = calloc(2, bytes + 1);
        if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: a gradient of %zu bytes", bytes);
        one = all + bytes;
        LC_TRY_GOTO(status, done, lc_safetensors_read(f, at, one, bytes));
        lc_comm_combine(type.dtype, LC_COMM_SUM, 2, (const void *[]){all, one}, all, lc__numel(&type));
        *any = true;
    }
    if (*any) status = lc__tensor_write_as(out, &type, all);
done:
    free(all);
    return status;
}

/* If the number of ranks is unchanged, each continues with its own gradient. A sum over ranks is divided among them,
 * unless the ranks hold slices of the sum. */
static lc_status restore_gradient(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    lc_safetensors *f = lc_checkpoint_tensors(t->resume->restoring_from, LC_CKPT_TENSORS);
    lc_tensor *p = mt->tensor;
    int64_t ranks = 1;
    char name[1024];
    bool sum = true, any = true;
    (void)owner;
    if (!mt->is_parameter || !p->flat || !f) return LC_OK;
    if (lc_state_find(lc_checkpoint_state(t->resume->restoring_from), "world_size")) /* older checkpoints lack it */
        LC_TRY(lc__state_get_count(lc_checkpoint_state(t->resume->restoring_from), "world_size", 1, &ranks));
    if (ranks > MOST_RANKS) return lc_fail(LC_ERR_FORMAT, "state \"world_size\" is %lld", (long long)ranks);
    lc_tensor *gradient = p->flat->gradients[p->flat_index];
    snprintf(name, sizeof name, "gradients.%s", path);
    if (lc_safetensors_find(f, name) >= 0) {
        LC_TRY(lc_safetensors_load(f, name, gradient));
    } else if (ranks == t->n_ranks && !gradient->is_slice) {
        snprintf(name, sizeof name, "rank_gradients.%d.%s", t->rank, path);
        if (lc_safetensors_find(f, name) < 0) return LC_OK;
        LC_TRY(lc_safetensors_load(f, name, gradient));
        sum = false;
    } else {
        LC_TRY(add_up_gradients(f, path, ranks, gradient, &any));
        if (!any) return LC_OK;
    }
    double from = t->resume->scales[0] * (double)(sum ? ranks : 1), to = sum && gradient->is_slice ? t->n_ranks : 1;
    LC_TRY(rescale(gradient, from, to * t->resume->scales[1]));
    p->flat->has_gradient[p->flat_index] = 1;
    return lc__graph_add_flat(t->graph, p->flat);
}

static lc_status restore_held(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    lc_safetensors *f = lc_checkpoint_tensors(t->resume->restoring_from, LC_CKPT_TENSORS);
    lc_tensor *p = mt->tensor, *held;
    int64_t batches = lc__chunks_window(t);
    char name[1024];
    (void)owner;
    if (!mt->is_parameter || !p->flat || !f) return LC_OK;
    for (int level = 0; batches >> level; level++) {
        snprintf(name, sizeof name, "window.%d.%s", level, path);
        if (!(batches >> level & 1) || lc_safetensors_find(f, name) < 0) continue;
        LC_TRY(lc__tree_window_held(lc__tree_of(t), p, level, &held));
        if (!held) continue;
        LC_TRY(lc_safetensors_load(f, name, held));
        LC_TRY(rescale(held, t->resume->scales[0], t->resume->scales[1]));
        p->flat->has_gradient[p->flat_index] = 1;
        LC_TRY(lc__graph_add_flat(t->graph, p->flat));
    }
    return LC_OK;
}

/* The contents of an unfinished window depend on how gradients are summed. */
static lc_status restore_window(lc_trainer *t, const lc_state *root)
{
    const lc_state *loop;
    bool held = false;
    LC_TRY(lc_state_get_object(root, "loop", &loop));
    if (lc_state_find(loop, "window_chunks")) {
        held = true;
        if (t->chunks) LC_TRY(lc_state_get_double(loop, "window_chunks", &t->chunks->window));
    }
    if (t->epoch_open && t->accumulating && held != (lc__tree_of(t) != NULL))
        return lc_fail(LC_ERR_CONFIG,
                       "the checkpoint %s is inside an accumulation window of a run that was %sdeterministic; the "
                       "window must be continued the same way",
                       t->ckpt_path, held ? "" : "not ");
    if (!held) return LC_OK;
    LC_TRY(lc__tree_window_clear(lc__tree_of(t), lc__chunks_window(t)));
    return lc_module_visit(t->m, restore_held, t);
}

/* The scale by which the precision of this run multiplies losses. */
static lc_status scale_of_losses(lc_trainer *t, double *scale)
{
    double unscale;
    if (!t->precision.scale_loss) return LC_OK;
    LC_TRY(lc_step_begin(t->graph, 0, 0));
    lc__scale_no_loss(t);
    LC_TRY(lc_step_end(t->graph));
    if (!t->graph->unscale) return LC_OK;
    LC_TRY(lc_item(t->graph->unscale, &unscale));
    *scale = 1 / unscale;
    return LC_OK;
}

/* If another precision scaled the losses of the checkpoint's window, or none did, its gradients are rescaled. */
static lc_status find_scales(lc_trainer *t, const lc_state *root)
{
    const lc_state *loop, *precision = lc_state_find(root, "precision");
    const char *name = NULL;
    double *scales = t->resume->scales;
    scales[0] = scales[1] = 1;
    if (precision && lc_state_find(precision, "name")) LC_TRY(lc_state_get_text(precision, "name", &name));
    if (t->window_backwards == 0 || (name && !strcmp(name, t->precision.name))) return LC_OK;
    LC_TRY(lc_state_get_object(root, "loop", &loop));
    if (lc_state_find(loop, "gradient_scale")) LC_TRY(lc_state_get_double(loop, "gradient_scale", &scales[0]));
    if (!(scales[0] > 0 && isfinite(scales[0])))
        return lc_fail(LC_ERR_FORMAT, "state \"gradient_scale\" is %g", scales[0]);
    return scale_of_losses(t, &scales[1]);
}

static lc_status restore_gradients(lc_trainer *t, const lc_state *root)
{
    lc_zero_grad(t->graph);
    LC_TRY(find_scales(t, root));
    LC_TRY(restore_window(t, root));
    if (t->window_backwards == 0) return LC_OK;
    LC_TRY(lc_module_visit(t->m, restore_gradient, t));
    t->graph->backwards = t->window_backwards;
    lc__reducer *reducer = t->mo.manual_optimization ? lc__reducer_of_graph(t->graph) : NULL;
    if (reducer) lc__reducer_restored(reducer);
    return LC_OK;
}

static lc_status restore_progress(lc_trainer *t)
{
    const lc_state *root = lc_checkpoint_state(t->resume->restoring_from), *o;
    bool weights_only = false, loses;
    int64_t seed;
    LC_TRY(lc_state_get_bool(root, "weights_only", &weights_only));
    if (weights_only)
        return lc_fail(LC_ERR_CONFIG,
                       "%s was saved with save_weights_only: a training cannot continue from it; load it with "
                       "lc_module_load_checkpoint",
                       t->ckpt_path);
    LC_TRY(lc__graph_load_tuning(t->graph, root));
    LC_TRY(restore_loop(t, root));
    LC_TRY(lc__restore_optimizers(t->m, &t->optimizers, t->resume->restoring_from));
    LC_TRY(lc__loses_master_weights(t->m, &t->optimizers, t->resume->restoring_from, &loses));
    if (loses)
        lc_trainer_message(t, LC_WARNING,
                           "the checkpoint has master weights and this run has none: it continues with what they round "
                           "to; with .master_weights in its optimizers it would keep them");
    if (t->precision.load_state && lc_state_find(root, "precision")) {
        LC_TRY(lc_state_get_object(root, "precision", &o));
        LC_TRY(lc__precision_load(&t->precision, t->precision_self, o));
    }
    LC_TRY(restore_gradients(t, root));
    LC_TRY(lc_state_get_object(root, "metrics", &o));
    for (int64_t i = 0; i < lc_state_length(o); i++) {
        lc__metric_map *m = &t->logging->metrics[LC_CALLBACK_METRICS];
        double v;
        LC_TRY(lc_state_get_double(lc_state_at(o, i), NULL, &v));
        int slot = lc__map_slot(m, lc_state_key_at(o, i));
        if (slot < 0) return lc_fail(LC_ERR_MEMORY, "out of memory: metrics");
        m->v[slot].value = v;
    }
    LC_TRY(lc_state_get_array(root, "results", &o));
    LC_TRY(lc__results_load(t, &t->logging->train_results, o));
    LC_TRY(lc_state_get_int(root, "seed", &seed));
    if (seed != t->opt.seed)
        lc_trainer_message(t, LC_WARNING,
                           "the checkpoint was made with seed %lld, this run has %lld: random numbers will differ from "
                           "those of the continued run",
                           (long long)seed, (long long)t->opt.seed);
    return LC_OK;
}

lc_status lc__restore_progress(lc_trainer *t)
{
    return lc__name_checkpoint(t->ckpt_path, restore_progress(t));
}

void lc__resume_free(lc_trainer *t)
{
    lc__saves_free(t);
    free(t->resume->training);
    free(t->resume->loader_state);
}
