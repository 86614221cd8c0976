/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks of a trainer: adding one, which replaces the trainer's own callback of that kind, and finding one.
 *
 * A kind is a name that callbacks may share (`kind` in lc_callback_ops; else the callback's name). Before a run, an
 * added callback replaces one that the trainer made by itself. In configure_callbacks, the module's callbacks replace
 * all earlier ones of their kind, including those of its last run, as in Lightning. */
#include "base/owned.h"
#include "base/args.h"
#include "core/hooks/hooks.h"
#include "core/hooks/trainer_internal.h"
#include "base/grow.h"
#include "base/handle.h"

#include <stdlib.h>
#include <string.h>

static const char *kind_of(const lc__callback *cb)
{
    return cb->ops.kind ? cb->ops.kind : cb->ops.name;
}

const char *lc__state_key(const lc__callback *cb)
{
    return cb->ops.state_key ? cb->ops.state_key(cb->self) : cb->ops.name;
}

static bool same_kind(const lc__callback *a, const lc__callback *b)
{
    return !strcmp(kind_of(a), kind_of(b));
}

/* Whether adding `cb` removes `old`. */
static bool replaces(const lc_trainer *t, const lc__callback *cb, const lc__callback *old)
{
    if (t->configuring) return old->configured != t->configuring && same_kind(cb, old);
    /* Any two that save checkpoints, as in the list of callbacks in the options. */
    return old->is_default && (same_kind(cb, old) || (cb->ops.saves_checkpoints && old->ops.saves_checkpoints));
}

lc_status lc__check_callback(const lc_trainer *t, const lc__callback *cb)
{
    const char *option = NULL;
    if (!strcmp(kind_of(cb), LC__KIND_PROGRESS_BAR) && t->opt.enable_progress_bar == LC_OFF)
        option = "enable_progress_bar";
    if (cb->ops.saves_checkpoints && t->opt.enable_checkpointing == LC_OFF) option = "enable_checkpointing";
    if (!option) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "%s is false, but the callbacks contain a %s; drop one of the two", option,
                   cb->ops.name);
}

/* Refuses callbacks that exclude each other. */
static lc_status check(const lc_trainer *t, const lc__callback *cb)
{
    if (t->in_run && !t->configuring)
        return lc_fail(LC_ERR_STATE,
                       "lc_trainer_add_callback: %s can be added before a run, or in configure_callbacks, not later",
                       cb->ops.name);
    bool is_bar = !strcmp(kind_of(cb), LC__KIND_PROGRESS_BAR);
    for (int i = 0; i < t->n_callbacks; i++) {
        const lc__callback *old = t->callbacks[i];
        if (replaces(t, cb, old)) continue;
        if (is_bar && same_kind(cb, old))
            return lc_fail(LC_ERR_CONFIG, "a trainer has one progress bar, but the callbacks contain two, %s and %s",
                           old->ops.name, cb->ops.name);
        if (cb->ops.save_state && old->ops.save_state && !strcmp(lc__state_key(cb), lc__state_key(old)))
            return lc_fail(LC_ERR_CONFIG,
                           "two callbacks have the same state key %.200s; they must differ in an argument",
                           lc__state_key(cb));
    }
    return LC_OK;
}

static void free_callback(lc__callback *cb)
{
    if (cb->ops.free) cb->ops.free(cb->self);
    free(cb);
}

void lc__callbacks_free(lc_trainer *t)
{
    for (int i = 0; i < t->n_callbacks; i++) free_callback(t->callbacks[i]);
    free(t->callbacks);
}

static void remove_replaced(lc_trainer *t, const lc__callback *cb)
{
    int kept = 0;
    bool other = false; /* a callback that the program added was replaced */
    for (int i = 0; i < t->n_callbacks; i++) {
        lc__callback *old = t->callbacks[i];
        if (!replaces(t, cb, old)) {
            t->callbacks[kept++] = old;
            continue;
        }
        other |= !old->is_default && !old->configured;
        lc__hooks_drop(t, old);
        free_callback(old);
    }
    t->n_callbacks = kept;
    if (other)
        lc_trainer_message(t, LC_INFO, "the %s of configure_callbacks replaces the one given before", cb->ops.name);
}

lc_status lc_trainer_add_callback(lc_trainer *t, lc_callback callback)
{
    lc_status status = LC_OK;
    LC_TRY(lc__ops_check(sizeof *callback.ops, callback.ops, offsetof(lc_callback_ops, name) + sizeof(char *),
                         "a callback", "LC_CALLBACK_OPS_INIT(\"name\")"));
    if (!callback.ops->name)
        return lc_fail(LC_ERR_ARGUMENT, "a callback needs ops that start with LC_CALLBACK_OPS_INIT(\"name\")");
    if (!lc__has_mark(t, LC__MARK_OF(TRAINER))) {
        lc__free_unless_owned(LC__SLOT(callback.ops, free), callback.self);
        return lc__not_a(t, LC__MARK_OF(TRAINER), __func__);
    }
    for (int i = 0; i < t->n_callbacks && callback.self && LC__SLOT(callback.ops, free); i++)
        if (t->callbacks[i]->self == callback.self && t->callbacks[i]->ops.free == callback.ops->free)
            return lc_fail(LC_ERR_ARGUMENT, "the same callback (%s) is added twice; make another", callback.ops->name);
    LC_TRY(lc__own(LC__SLOT(callback.ops, free), callback.self, "callback", callback.ops->name));
    lc__callback *cb = calloc(1, sizeof *cb);
    if (!cb) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: a callback");
        if (LC__SLOT(callback.ops, free)) callback.ops->free(callback.self);
        return status;
    }
    memcpy(&cb->ops, callback.ops, callback.ops->size);
    cb->self = callback.self;
    cb->is_default = t->making_defaults;
    cb->configured = t->configuring;
    LC_TRY_GOTO(status, done, check(t, cb));
    LC_TRY_GOTO(status, done, lc__grow(&t->callbacks, &t->cap_callbacks, t->n_callbacks, 1, "callbacks"));
    remove_replaced(t, cb);
    t->callbacks[t->n_callbacks++] = cb;
    t->hooks_dirty = true;
done:
    if (status < 0) free_callback(cb);
    return status;
}

lc_status lc__configure_callbacks(lc_trainer *t)
{
    t->configuring = ++t->configurations;
    lc_status s = lc__hook(t, LC_HOOK_CONFIGURE_CALLBACKS, NULL);
    t->configuring = 0;
    return s;
}

lc__callback *lc__callback_of_kind(const lc_trainer *t, const char *kind)
{
    for (int i = 0; i < t->n_callbacks; i++)
        if (!strcmp(kind_of(t->callbacks[i]), kind)) return t->callbacks[i];
    return NULL;
}

const char *lc__best_checkpoint(const lc_trainer *t, double *score)
{
    for (int i = 0; i < t->n_callbacks; i++) {
        const lc__callback *cb = t->callbacks[i];
        if (!cb->ops.best_path) continue;
        const char *path = cb->ops.best_path(cb->self, score);
        return path && *path ? path : NULL;
    }
    return NULL;
}

/* ---- for programs ---- */

int lc_trainer_callback_count(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->n_callbacks;
}

lc_callback lc_trainer_callback(const lc_trainer *t, int i)
{
    LC__IS(t, TRAINER, (lc_callback){0});
    if (i < 0 || i >= t->n_callbacks) return (lc_callback){0};
    return (lc_callback){&t->callbacks[i]->ops, t->callbacks[i]->self};
}

lc_callback lc_trainer_callback_named(const lc_trainer *t, const char *name, int nth)
{
    LC__IS(t, TRAINER, (lc_callback){0});
    LC__NEEDS(name, (lc_callback){0});
    for (int i = 0; i < t->n_callbacks; i++)
        if (!strcmp(t->callbacks[i]->ops.name, name) && nth-- == 0) return lc_trainer_callback(t, i);
    return (lc_callback){0};
}

lc_callback lc_trainer_checkpoint_callback(const lc_trainer *t, int nth)
{
    LC__IS(t, TRAINER, (lc_callback){0});
    for (int i = 0; i < t->n_callbacks; i++)
        if (t->callbacks[i]->ops.saves_checkpoints && nth-- == 0) return lc_trainer_callback(t, i);
    return (lc_callback){0};
}

lc_tensor *lc__saved_tensor(lc_trainer *t, lc_tensor *of)
{
    lc_tensor *saved = NULL;
    for (int i = 0; i < t->n_callbacks && !saved; i++)
        if (t->callbacks[i]->ops.saved_tensor) saved = t->callbacks[i]->ops.saved_tensor(t->callbacks[i]->self, t, of);
    return saved;
}
