/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks: their table (table.c) and their dispatch (hooks.c).
 *
 * To add one: a line at the end of LC_HOOK_LIST (lightc/hooks.h), a slot in each vtable that has it, and a row in
 * table.c. Dispatch, traces, profiles, lc_log and docs/hooks.md need only that row. */
#ifndef LC_CORE_HOOKS_HOOKS_H
#define LC_CORE_HOOKS_HOOKS_H

#include "core/hooks/trainer_internal.h"

/* The arguments that a hook may receive besides the trainer. Each uses its own part. */
typedef struct lc__hook_args {
    lc_stage stage;
    int dataloader_idx;
    const lc_batch *batch;
    int64_t batch_idx;
    const lc_outputs *outputs;
    lc_tensor *loss;
    lc_optimizer *optimizer;
    union {
        lc_closure *closure;       /* optimizer_step */
        lc_batch *arrived;         /* hooks of the transfer to a device */
        lc_optimizers *optimizers; /* configure_optimizers */
        lc_scheduler *scheduler;   /* lr_scheduler_step */
        lc_state *saved;           /* on_save_checkpoint */
        const lc_state *loaded;    /* on_load_checkpoint */
        const char *algorithm;     /* configure_gradient_clipping */
        const char *message;       /* on_exception */
    };
    union {
        const double *metric; /* lr_scheduler_step */
        double clip;          /* configure_gradient_clipping */
        lc_status status;     /* on_exception */
    };
} lc__hook_args;

/* The order in which the slots of a hook run, and what an error of one means for the next. */
typedef enum lc__hook_order {
    LC__IN_TURN,      /* datamodule, callbacks, module, until one fails */
    LC__ONE_OF,       /* the datamodule, or else the module */
    LC__ALL_OF_THEM,  /* as LC__IN_TURN, but all of them run; returns the first error */
    LC__AFTER_FAILURE /* callbacks, then the datamodule; errors become messages */
} lc__hook_order;

/* The default of lc_log in a hook. */
typedef enum lc__hook_log { LC__LOG_NOT, LC__LOG_STEP, LC__LOG_EPOCH, LC__LOG_EPOCH_ONLY } lc__hook_log;

typedef struct lc__hook_info {
    const char *name;
    lc__hook_order order;
    lc__hook_log log;
    size_t in_datamodule, in_callback, in_module; /* offset of the slot in the vtable; 0: none */
    /* Calls the slot. NULL: there is none, or the code that enters the hook calls it (a step returns a tensor; a loader
     * is looked up first). */
    lc_status (*datamodule)(lc_trainer *t, const lc__hook_args *a);
    lc_status (*callback)(lc_trainer *t, const lc__callback *cb, const lc__hook_args *a);
    lc_status (*module)(lc_trainer *t, const lc__hook_args *a);
} lc__hook_info;

extern const lc__hook_info lc__hooks[LC_HOOKS];

/* Runs a hook. args may be NULL if no slot takes any. */
lc_status lc__hook_run(lc_trainer *t, lc_hook hook, const lc__hook_args *args) LC_MUST_USE;
static inline LC_MUST_USE lc_status lc__hook(lc_trainer *t, lc_hook hook, const lc__hook_args *args)
{
    return t->hook_users[hook] == LC__USED_BY_NONE && !t->deferred ? LC_OK : lc__hook_run(t, hook, args);
}
/* Fills t->hook_users. Call when a run has its module, datamodule and callbacks. */
void lc__hooks_find_users(lc_trainer *t);
/* Runs only the slots of callbacks, or of the module. */
lc_status lc__hook_callbacks(lc_trainer *t, lc_hook hook, const lc__hook_args *args) LC_MUST_USE;
lc_status lc__hook_module(lc_trainer *t, lc_hook hook, const lc__hook_args *args) LC_MUST_USE;
/* Runs on_train_epoch_end of early stopping and checkpoint callbacks. */
lc_status lc__hook_monitors(lc_trainer *t) LC_MUST_USE;
/* Whether the datamodule or the module has the hook. */
bool lc__hook_is_there(const lc_trainer *t, lc_hook hook);
/* The running stage's counterpart of a validation hook. */
lc_hook lc__eval_hook(const lc_trainer *t, lc_hook of_validation);

/* Before and after the slots of a hook, which may run inside another. */
typedef struct lc__outer_hook {
    lc_hook hook;
    unsigned errors_before;
} lc__outer_hook;
void lc__trace_hook(const lc_trainer *t);
static inline lc__outer_hook lc__hook_enter(lc_trainer *t, lc_hook hook)
{
    lc__outer_hook outer = {t->hook, t->errors_before_hook};
    t->hook = hook;
    t->errors_before_hook = lc__error_count();
    if (__builtin_expect(t->opt.trace_hooks, 0)) lc__trace_hook(t);
    t->depth++;
    return outer;
}
static inline void lc__hook_leave(lc_trainer *t, lc__outer_hook outer)
{
    t->hook = outer.hook;
    t->errors_before_hook = outer.errors_before;
    t->depth--;
}
/* Handles what a hook returned: STOP and SKIP become flags, an error gets its context. callback: name of the callback
 * or datamodule; NULL: the module. */
lc_status lc__hook_result(lc_trainer *t, lc_status s, const char *callback);
/* Keeps an error until a caller can return it. */
void lc__defer_error(lc_trainer *t, lc_status s);
/* Whether the newest error message names its hook. */
static inline bool lc__names_hook(const lc_trainer *t)
{
    return t->error_with_hook && t->error_with_hook == lc__error_count();
}

/* Copies the module's vtable and fills in defaults for slots that the trainer always calls. */
void lc__module_ops_fill(lc_trainer *t, const lc_module_ops *ops);

/* The lists of callbacks, one for each hook: rebuilt after callbacks were added; a callback that is freed is dropped
 * from them. */
lc_status lc__hooks_rebuild(lc_trainer *t) LC_MUST_USE;
void lc__hooks_drop(lc_trainer *t, const lc__callback *cb);
void lc__hooks_free(lc_trainer *t);

/* by_name.c: a full copy of the precision of that name, or of the plug-in, which is taken over also on failure. *ops is
 * zeroed before. */
lc_status lc__precision_take(const char *name, const lc_precision *plugin, lc_precision_ops *ops,
                             void **self) LC_MUST_USE;

#endif
