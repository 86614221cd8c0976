/* SPDX-License-Identifier: Apache-2.0 */
/* Hook dispatch. Each hook has a list of only those callbacks that implement it, and one place that calls them. The
 * differences between hooks are in the table (table.c). */
#include "core/hooks/hooks.h"
#include "core/hooks/profiling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lc_stage_name(lc_stage stage)
{
    switch (stage) {
    case LC_STAGE_FIT:
        return "fit";
    case LC_STAGE_VALIDATE:
        return "validate";
    case LC_STAGE_TEST:
        return "test";
    case LC_STAGE_PREDICT:
        return "predict";
    }
    return NULL;
}

/* ---- trace_hooks: "epoch 0  batch 3  step 3   optimizer_step  (GradientNormMonitor)" ---- */
void lc__trace_hook(const lc_trainer *t)
{
    lc__str line = {0};
    const lc__hook_list *list = &t->hooks[t->hook];
    lc__str_add(&line, "%-8s epoch %-3lld batch %-5lld step %-6lld %*s%s", lc_stage_name(t->stage),
                (long long)t->current_epoch, (long long)t->batch_idx, (long long)t->global_step, 2 * t->depth, "",
                lc_hook_name(t->hook));
    for (int i = 0; i < list->n; i++)
        lc__str_add(&line, "%s%s%s", i ? ", " : "  (", list->e[i]->ops.name, i + 1 < list->n ? "" : ")");
    if (!line.failed) lc__show_line(2, "%s", line.s);
    lc__str_free(&line);
}

/* ---- lists of callbacks ---- */

/* Whether a vtable has a slot. */
static bool is_set(const void *ops, size_t offset)
{
    void (*f)(void);
    memcpy(&f, (const char *)ops + offset, sizeof f);
    return f != NULL;
}

void lc__hooks_free(lc_trainer *t)
{
    for (int h = 0; h < LC_HOOKS; h++) {
        free(t->hooks[h].e);
        t->hooks[h] = (lc__hook_list){0};
    }
    free(t->monitor_epoch_end.e);
    free(t->message_hooks.e);
    t->monitor_epoch_end = t->message_hooks = (lc__hook_list){0};
}

static lc_status build(lc_trainer *t, lc__hook_list *list, size_t offset, int monitors)
{
    list->e = calloc((size_t)t->n_callbacks + 1, sizeof *list->e);
    if (!list->e) return lc_fail(LC_ERR_MEMORY, "out of memory: hooks of %d callbacks", t->n_callbacks);
    list->n = 0;
    /* Tuners come first; checkpoints come last, so that they hold what the others did. */
    for (int place = 0; place < 3; place++)
        for (int i = 0; i < t->n_callbacks; i++) {
            lc__callback *cb = t->callbacks[i];
            int its_place = cb->ops.saves_checkpoints ? 2 : cb->ops.tunes ? 0 : 1;
            if (its_place != place || !is_set(&cb->ops, offset)) continue;
            if (cb->ops.ranks == LC_RANK_ZERO && t->rank != 0) continue;
            if (monitors >= 0 && cb->ops.monitors != (monitors == 1)) continue;
            list->e[list->n++] = cb;
        }
    return LC_OK;
}

lc_status lc__hooks_rebuild(lc_trainer *t)
{
    if (!t->hooks_dirty) return LC_OK;
    lc__hooks_free(t);
    for (int h = 0; h < LC_HOOKS; h++)
        if (lc__hooks[h].in_callback)
            LC_TRY(build(t, &t->hooks[h], lc__hooks[h].in_callback, h == LC_HOOK_ON_TRAIN_EPOCH_END ? 0 : -1));
    LC_TRY(build(t, &t->monitor_epoch_end, lc__hooks[LC_HOOK_ON_TRAIN_EPOCH_END].in_callback, 1));
    LC_TRY(build(t, &t->message_hooks, offsetof(lc_callback_ops, on_message), -1));
    t->hooks_dirty = false;
    return LC_OK;
}

static void drop(lc__hook_list *list, const lc__callback *cb)
{
    int n = 0;
    for (int i = 0; i < list->n; i++)
        if (list->e[i] != cb) list->e[n++] = list->e[i];
    list->n = n;
}

void lc__hooks_drop(lc_trainer *t, const lc__callback *cb)
{
    for (int h = 0; h < LC_HOOKS; h++) drop(&t->hooks[h], cb);
    drop(&t->monitor_epoch_end, cb);
    drop(&t->message_hooks, cb);
}

/* ---- what hooks return ---- */

void lc__defer_error(lc_trainer *t, lc_status s)
{
    if (t->deferred) return; /* the first one is the cause */
    t->deferred = true;
    t->deferred_status = s;
    free(t->deferred_message);
    t->deferred_message = strdup(lc_error_message());
}

/* A wrong shape may be that of a piece, which the program does not know: ", in a chunk of 1 sample (...)". */
static const char *name_piece(const lc_trainer *t, lc_status s, char text[static 96])
{
    int64_t n = t->batch->size;
    text[0] = 0;
    if (s == LC_ERR_SHAPE && t->place.piece)
        snprintf(text, 96, ", in %s of %lld sample%s (%s)", t->chunks ? "a chunk" : "a device's part", (long long)n,
                 n == 1 ? "" : "s", t->chunks ? "deterministic_chunk" : t->strategy->name);
    return text;
}

lc_status lc__hook_result(lc_trainer *t, lc_status s, const char *callback)
{
    if (s >= 0 && t->deferred) s = lc_fail(t->deferred_status, "%s", t->deferred_message ? t->deferred_message : "");
    t->deferred = false;
    if (s == LC_STOP) {
        lc_trainer_stop(t);
        return LC_OK;
    }
    if (s == LC_SKIP) {
        t->skip = true;
        return LC_OK;
    }
    if (s == LC_OK) return LC_OK;
    if (s > 0) s = lc_fail(LC_ERR_USER, "it returned %d, which is not a status; LC_OK, LC_SKIP or LC_STOP would be", s);
    const char *of = callback ? callback : t->mo.name ? t->mo.name : "the module";
    bool said = lc__error_count() != t->errors_before_hook && *lc_error_message();
    if (said && lc__names_hook(t)) return s;
    (void)lc__said(s, t->errors_before_hook);
    char piece[96];
    if (t->batch)
        (void)lc_fail_context(s, "%s of %s, epoch %lld, batch %lld%s", lc_hook_name(t->hook), of,
                              (long long)t->current_epoch, (long long)t->batch_idx, name_piece(t, s, piece));
    else
        (void)lc_fail_context(s, "%s of %s", lc_hook_name(t->hook), of);
    t->error_with_hook = lc__error_count();
    return s;
}

/* ---- defaults for slots that the trainer always calls ---- */

static lc_status eval_mode(lc_module *m)
{
    lc_module_train(m, false);
    return LC_OK;
}
static lc_tensor *predict_forward(lc_module *m, const lc_batch *b, int64_t i, int d)
{
    (void)i, (void)d;
    return m->ops->forward(m, b);
}

void lc__module_ops_fill(lc_trainer *t, const lc_module_ops *ops)
{
    lc_module_ops *mo = &t->mo;
    memset(mo, 0, sizeof *mo);
    memset(t->hook_users, 0, sizeof t->hook_users);
    memcpy(mo, ops, ops->size); /* begin.c has checked the size */
    t->has_late_hooks =
        mo->on_after_backward || mo->on_before_optimizer_step || mo->optimizer_step || mo->configure_gradient_clipping;
    if (!mo->on_validation_model_eval) mo->on_validation_model_eval = eval_mode;
    if (!mo->on_test_model_eval) mo->on_test_model_eval = eval_mode;
    if (!mo->on_predict_model_eval) mo->on_predict_model_eval = eval_mode;
    if (!mo->predict_step && mo->forward) mo->predict_step = predict_forward;
}

/* ---- dispatch ---- */

static lc_status call_datamodule(lc_trainer *t, const lc__hook_info *h, const lc__hook_args *a)
{
    const lc_datamodule_ops *d = &t->datamodule.ops;
    if (!h->datamodule || !is_set(d, h->in_datamodule)) return LC_OK;
    lc_status s = h->datamodule(t, a);
    return s != LC_OK || t->deferred ? lc__hook_result(t, s, d->name) : LC_OK;
}

static lc_status call_callbacks(lc_trainer *t, const lc__hook_list *list, const lc__hook_info *h,
                                const lc__hook_args *a)
{
    for (int i = 0; i < list->n; i++) {
        const lc__callback *cb = list->e[i];
        int64_t start = LC__PROFILE_START(t);
        lc_status s = h->callback(t, cb, a);
        LC__PROFILE_HOOK(t, cb->ops.name, start);
        if (__builtin_expect(s != LC_OK || t->deferred, 0)) LC_TRY(lc__hook_result(t, s, cb->ops.name));
    }
    return LC_OK;
}

/* Profiles also show hooks that the module does not have. */
static lc_status call_module(lc_trainer *t, const lc__hook_info *h, const lc__hook_args *a)
{
    if (!h->module) return LC_OK;
    int64_t start = LC__PROFILE_START(t);
    lc_status s = is_set(&t->mo, h->in_module) ? h->module(t, a) : LC_OK;
    LC__PROFILE_HOOK(t, NULL, start);
    return __builtin_expect(s != LC_OK || t->deferred, 0) ? lc__hook_result(t, s, NULL) : LC_OK;
}

static lc_status in_turn(lc_trainer *t, lc_hook hook, const lc__hook_args *a)
{
    const lc__hook_info *h = &lc__hooks[hook];
    LC_TRY(call_datamodule(t, h, a));
    if (t->hooks[hook].n) LC_TRY(call_callbacks(t, &t->hooks[hook], h, a));
    return call_module(t, h, a);
}

static lc_status all_of_them(lc_trainer *t, lc_hook hook, const lc__hook_args *a)
{
    const lc__hook_info *h = &lc__hooks[hook];
    const lc__hook_list *list = &t->hooks[hook];
    lc__first_error e = {0};
    lc__first_error_note(&e, call_datamodule(t, h, a));
    for (int i = 0; i <= list->n; i++) {
        const lc__callback *cb = i < list->n ? list->e[i] : NULL;
        lc_status one = cb ? h->callback(t, cb, a) : is_set(&t->mo, h->in_module) ? h->module(t, a) : LC_OK;
        if (one != LC_OK || t->deferred) one = lc__hook_result(t, one, cb ? cb->ops.name : NULL);
        lc__first_error_note(&e, one);
    }
    return lc__first_error_status(&e);
}

static lc_status after_failure(lc_trainer *t, lc_hook hook, const lc__hook_args *a)
{
    const lc__hook_info *h = &lc__hooks[hook];
    const lc__hook_list *list = &t->hooks[hook];
    for (int i = 0; i < list->n; i++)
        if (h->callback(t, list->e[i], a) < 0)
            lc_trainer_message(t, LC_WARNING, "%s of %s: %s", h->name, list->e[i]->ops.name, lc_error_message());
    const lc_datamodule_ops *d = &t->datamodule.ops;
    if (is_set(d, h->in_datamodule) && h->datamodule(t, a) < 0)
        lc_trainer_message(t, LC_WARNING, "%s of %s: %s", h->name, d->name, lc_error_message());
    return LC_OK;
}

bool lc__hook_is_there(const lc_trainer *t, lc_hook hook)
{
    const lc__hook_info *h = &lc__hooks[hook];
    return (h->in_datamodule && is_set(&t->datamodule.ops, h->in_datamodule)) ||
           (h->in_module && is_set(&t->mo, h->in_module));
}

void lc__hooks_find_users(lc_trainer *t)
{
    for (int i = 0; i < LC_HOOKS; i++) {
        const lc__hook_info *h = &lc__hooks[i];
        bool module_runs = h->order == LC__IN_TURN && h->module && is_set(&t->mo, h->in_module);
        bool datamodule = h->in_datamodule && is_set(&t->datamodule.ops, h->in_datamodule);
        if (t->hooks[i].n || datamodule || t->opt.trace_hooks || t->profiling)
            t->hook_users[i] = LC__USED_BY_ANY;
        else if (!lc__hook_is_there(t, (lc_hook)i))
            t->hook_users[i] = LC__USED_BY_NONE;
        else
            t->hook_users[i] = module_runs ? LC__USED_BY_MODULE : LC__USED_BY_ANY;
    }
}

static lc_status run_users(lc_trainer *t, lc_hook hook, const lc__hook_args *args)
{
    const lc__hook_info *h = &lc__hooks[hook];
    switch (h->order) {
    case LC__IN_TURN:
        return in_turn(t, hook, args);
    case LC__ONE_OF:
        return is_set(&t->datamodule.ops, h->in_datamodule) ? call_datamodule(t, h, args) : call_module(t, h, args);
    case LC__ALL_OF_THEM:
        return all_of_them(t, hook, args);
    case LC__AFTER_FAILURE:
        return after_failure(t, hook, args);
    }
    return LC_OK;
}

lc_status lc__hook_run(lc_trainer *t, lc_hook hook, const lc__hook_args *args)
{
    lc__outer_hook outer = lc__hook_enter(t, hook);
    lc_status s;
    if (t->hook_users[hook] == LC__USED_BY_MODULE) {
        s = lc__hooks[hook].module(t, args);
        if (__builtin_expect(s != LC_OK || t->deferred, 0)) s = lc__hook_result(t, s, NULL);
    } else {
        s = run_users(t, hook, args);
    }
    lc__hook_leave(t, outer);
    return s;
}

lc_status lc__hook_callbacks(lc_trainer *t, lc_hook hook, const lc__hook_args *args)
{
    lc__outer_hook outer = lc__hook_enter(t, hook);
    lc_status s = call_callbacks(t, &t->hooks[hook], &lc__hooks[hook], args);
    lc__hook_leave(t, outer);
    return s;
}

lc_status lc__hook_module(lc_trainer *t, lc_hook hook, const lc__hook_args *args)
{
    lc__outer_hook outer = lc__hook_enter(t, hook);
    lc_status s = call_module(t, &lc__hooks[hook], args);
    lc__hook_leave(t, outer);
    return s;
}

lc_status lc__hook_monitors(lc_trainer *t)
{
    lc__outer_hook outer = lc__hook_enter(t, LC_HOOK_ON_TRAIN_EPOCH_END);
    lc_status s = call_callbacks(t, &t->monitor_epoch_end, &lc__hooks[LC_HOOK_ON_TRAIN_EPOCH_END], NULL);
    lc__hook_leave(t, outer);
    return s;
}

/* The three evaluations have their hooks in the same order. */
_Static_assert(LC_HOOK_ON_TEST_END - LC_HOOK_ON_TEST_MODEL_EVAL ==
                       LC_HOOK_ON_VALIDATION_END - LC_HOOK_ON_VALIDATION_MODEL_EVAL &&
                   LC_HOOK_ON_PREDICT_END - LC_HOOK_ON_PREDICT_MODEL_EVAL ==
                       LC_HOOK_ON_VALIDATION_END - LC_HOOK_ON_VALIDATION_MODEL_EVAL,
               "lc__eval_hook");

lc_hook lc__eval_hook(const lc_trainer *t, lc_hook of_validation)
{
    int first = t->stage == LC_STAGE_TEST      ? LC_HOOK_ON_TEST_MODEL_EVAL
                : t->stage == LC_STAGE_PREDICT ? LC_HOOK_ON_PREDICT_MODEL_EVAL
                                               : LC_HOOK_ON_VALIDATION_MODEL_EVAL;
    return (lc_hook)(first + (int)of_validation - LC_HOOK_ON_VALIDATION_MODEL_EVAL);
}
