/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks: the table of all of them (table.c), and their dispatch (hooks.c).
 *
 * To add one: a line at the end of LC_HOOK_LIST (lightc/hooks.h), a slot in each vtable that has it, and a row in
 * table.c. The row is all that the dispatch, traces, profiles, lc_log and docs/hooks.md know of it. */
#ifndef LC_CORE_HOOKS_HOOKS_H
#define LC_CORE_HOOKS_HOOKS_H

#include "core/hooks/trainer_internal.h"

/* What a hook may be given besides the trainer. Each takes its own part of it. */
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
        lc_batch *arrived;         /* hooks of transfer */
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

/* In which order the slots of a hook run, and what an error of one means for the next. */
typedef enum lc__hook_order {
    LC__IN_TURN,      /* datamodule, callbacks, module, until one fails */
    LC__ONE_OF,       /* the datamodule, or else the module */
    LC__ALL_OF_THEM,  /* as LC__IN_TURN, but all of them; the first error is the hook's */
    LC__AFTER_FAILURE /* callbacks, then the datamodule; their errors are messages */
} lc__hook_order;

/* What lc_log does in a hook by default. */
typedef enum lc__hook_log { LC__LOG_NOT, LC__LOG_STEP, LC__LOG_EPOCH, LC__LOG_EPOCH_ONLY } lc__hook_log;

typedef struct lc__hook_info {
    const char *name;
    lc__hook_order order;
    lc__hook_log log;
    size_t in_datamodule, in_callback, in_module; /* offset of the slot in the vtable; 0: it has no such slot */
    /* Calls the slot. NULL: there is none, or the code that enters the hook calls it (steps return a tensor, loaders
     * are looked for first). */
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
/* Fills t->hook_users, once a run has its module, datamodule and callbacks. */
void lc__hooks_find_users(lc_trainer *t);
/* Only the slots of callbacks, or of the module. */
lc_status lc__hook_callbacks(lc_trainer *t, lc_hook hook, const lc__hook_args *args) LC_MUST_USE;
lc_status lc__hook_module(lc_trainer *t, lc_hook hook, const lc__hook_args *args) LC_MUST_USE;
/* on_train_epoch_end of the callbacks that monitor. */
lc_status lc__hook_monitors(lc_trainer *t) LC_MUST_USE;
/* Whether the datamodule or the module has it. */
bool lc__hook_is_there(const lc_trainer *t, lc_hook hook);
/* The hook of the evaluation that runs in place of this one of a validation. */
lc_hook lc__eval_hook(const lc_trainer *t, lc_hook of_validation);

/* Around the slots of a hook, which may run inside of another. */
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
/* What a hook returned: STOP and SKIP become flags, an error gets its context. callback: its name, or that of the
 * datamodule; NULL: the module. */
lc_status lc__hook_result(lc_trainer *t, lc_status s, const char *callback);
/* Keeps an error that could not be returned where it happened. */
void lc__defer_error(lc_trainer *t, lc_status s);
/* Whether the newest message names the hook that it comes from. */
static inline bool lc__names_hook(const lc_trainer *t)
{
    return t->error_with_hook && t->error_with_hook == lc__error_count();
}

/* Takes a copy of the module's vtable, and fills slots that the trainer calls in any case. */
void lc__module_ops_fill(lc_trainer *t, const lc_module_ops *ops);

/* The lists of callbacks, one for each hook: made again after callbacks were added; one that is freed leaves them. */
lc_status lc__hooks_rebuild(lc_trainer *t) LC_MUST_USE;
void lc__hooks_drop(lc_trainer *t, const lc__callback *cb);
void lc__hooks_free(lc_trainer *t);

#endif
