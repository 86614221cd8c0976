/* SPDX-License-Identifier: Apache-2.0 */
/* Hook dispatch. A run tests no pointers: slots that a module lacks are filled with defaults when it is attached, and
 * each hook has a list of just those callbacks that implement it. */
#include "core/hooks/trainer_internal.h"
#include "base/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[LC_HOOKS] = {
#define NAME(id, name) #name,
    LC_HOOK_LIST(NAME)
#undef NAME
};

const char *lc_hook_name(lc_hook hook)
{
    return (unsigned)hook < LC_HOOKS ? names[hook] : NULL;
}

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
                names[t->hook]);
    for (int i = 0; i < list->n; i++)
        lc__str_add(&line, "%s%s%s", i ? ", " : "  (", list->e[i]->ops.name, i + 1 < list->n ? "" : ")");
    if (!line.failed) lc__show_line(2, "%s", line.s);
    lc__str_free(&line);
}

/* Where the function pointer of each hook lies in lc_callback_ops; 0: callbacks do not have this hook. */
#define AT(slot) offsetof(lc_callback_ops, slot)
static const size_t callback_slots[LC_HOOKS] = {
    [LC_HOOK_SETUP] = AT(setup),
    [LC_HOOK_ON_FIT_START] = AT(on_fit_start),
    [LC_HOOK_ON_SANITY_CHECK_START] = AT(on_sanity_check_start),
    [LC_HOOK_ON_SANITY_CHECK_END] = AT(on_sanity_check_end),
    [LC_HOOK_ON_TRAIN_START] = AT(on_train_start),
    [LC_HOOK_ON_TRAIN_EPOCH_START] = AT(on_train_epoch_start),
    [LC_HOOK_ON_TRAIN_BATCH_START] = AT(on_train_batch_start),
    [LC_HOOK_ON_BEFORE_ZERO_GRAD] = AT(on_before_zero_grad),
    [LC_HOOK_ON_BEFORE_BACKWARD] = AT(on_before_backward),
    [LC_HOOK_ON_AFTER_BACKWARD] = AT(on_after_backward),
    [LC_HOOK_ON_BEFORE_OPTIMIZER_STEP] = AT(on_before_optimizer_step),
    [LC_HOOK_ON_TRAIN_BATCH_END] = AT(on_train_batch_end),
    [LC_HOOK_ON_VALIDATION_START] = AT(on_validation_start),
    [LC_HOOK_ON_VALIDATION_EPOCH_START] = AT(on_validation_epoch_start),
    [LC_HOOK_ON_VALIDATION_BATCH_START] = AT(on_validation_batch_start),
    [LC_HOOK_ON_VALIDATION_BATCH_END] = AT(on_validation_batch_end),
    [LC_HOOK_ON_VALIDATION_EPOCH_END] = AT(on_validation_epoch_end),
    [LC_HOOK_ON_VALIDATION_END] = AT(on_validation_end),
    [LC_HOOK_ON_TRAIN_EPOCH_END] = AT(on_train_epoch_end),
    [LC_HOOK_ON_TRAIN_END] = AT(on_train_end),
    [LC_HOOK_ON_FIT_END] = AT(on_fit_end),
    [LC_HOOK_ON_TEST_START] = AT(on_test_start),
    [LC_HOOK_ON_TEST_EPOCH_START] = AT(on_test_epoch_start),
    [LC_HOOK_ON_TEST_BATCH_START] = AT(on_test_batch_start),
    [LC_HOOK_ON_TEST_BATCH_END] = AT(on_test_batch_end),
    [LC_HOOK_ON_TEST_EPOCH_END] = AT(on_test_epoch_end),
    [LC_HOOK_ON_TEST_END] = AT(on_test_end),
    [LC_HOOK_ON_PREDICT_START] = AT(on_predict_start),
    [LC_HOOK_ON_PREDICT_EPOCH_START] = AT(on_predict_epoch_start),
    [LC_HOOK_ON_PREDICT_BATCH_START] = AT(on_predict_batch_start),
    [LC_HOOK_ON_PREDICT_BATCH_END] = AT(on_predict_batch_end),
    [LC_HOOK_ON_PREDICT_EPOCH_END] = AT(on_predict_epoch_end),
    [LC_HOOK_ON_PREDICT_END] = AT(on_predict_end),
    [LC_HOOK_ON_EXCEPTION] = AT(on_exception),
    [LC_HOOK_TEARDOWN] = AT(teardown),
    [LC_HOOK_ON_SAVE_CHECKPOINT] = AT(on_save_checkpoint),
    [LC_HOOK_ON_LOAD_CHECKPOINT] = AT(on_load_checkpoint),
};

static bool has_slot(const lc__callback *cb, size_t offset)
{
    void (*f)(void);
    memcpy(&f, (const char *)&cb->ops + offset, sizeof f);
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
    /* Tuners come first; checkpoints last, so that they hold what the others did. */
    for (int place = 0; place < 3; place++)
        for (int i = 0; i < t->n_callbacks; i++) {
            lc__callback *cb = t->callbacks[i];
            int its_place = cb->ops.saves_checkpoints ? 2 : cb->ops.tunes ? 0 : 1;
            if (its_place != place || !has_slot(cb, offset)) continue;
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
        if (callback_slots[h])
            LC_TRY(build(t, &t->hooks[h], callback_slots[h], h == LC_HOOK_ON_TRAIN_EPOCH_END ? 0 : -1));
    LC_TRY(build(t, &t->monitor_epoch_end, AT(on_train_epoch_end), 1));
    LC_TRY(build(t, &t->message_hooks, AT(on_message), -1));
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
    if (s >= 0) return LC_OK;
    const char *of = callback ? callback : t->mo.name ? t->mo.name : "the module";
    if (lc__error_count(NULL) == t->errors_before_hook || !*lc_error_message())
        (void)lc_fail(s, "it returned an error (%s) without a message; lc_fail(status, \"what is wrong\") gives one",
                      lc_status_text(s));
    else if (lc__names_hook(t))
        return s;
    if (t->batch)
        (void)lc_fail_context(s, "%s of %s, epoch %lld, batch %lld", names[t->hook], of, (long long)t->current_epoch,
                              (long long)t->batch_idx);
    else
        (void)lc_fail_context(s, "%s of %s", names[t->hook], of);
    t->error_with_hook = lc__error_count(NULL);
    return s;
}

/* ---- defaults of the module's slots ---- */

static lc_status nothing(lc_module *m)
{
    (void)m;
    return LC_OK;
}
static lc_status nothing_stage(lc_module *m, lc_stage stage)
{
    (void)m, (void)stage;
    return LC_OK;
}
static lc_status nothing_train_start(lc_module *m, const lc_batch *b, int64_t i)
{
    (void)m, (void)b, (void)i;
    return LC_OK;
}
static lc_status nothing_train_end(lc_module *m, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)m, (void)o, (void)b, (void)i;
    return LC_OK;
}
static lc_status nothing_eval_start(lc_module *m, const lc_batch *b, int64_t i, int d)
{
    (void)m, (void)b, (void)i, (void)d;
    return LC_OK;
}
static lc_status nothing_eval_end(lc_module *m, const lc_outputs *o, const lc_batch *b, int64_t i, int d)
{
    (void)m, (void)o, (void)b, (void)i, (void)d;
    return LC_OK;
}
static lc_status nothing_optimizer(lc_module *m, lc_optimizer *o)
{
    (void)m, (void)o;
    return LC_OK;
}
static lc_status nothing_loss(lc_module *m, lc_tensor *l)
{
    (void)m, (void)l;
    return LC_OK;
}
static lc_status nothing_save(lc_module *m, lc_state *s)
{
    (void)m, (void)s;
    return LC_OK;
}
static lc_status nothing_load(lc_module *m, const lc_state *s)
{
    (void)m, (void)s;
    return LC_OK;
}
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
    memcpy(mo, ops, ops->size < sizeof *mo ? ops->size : sizeof *mo);
    t->has_validation_step = mo->validation_step != NULL;
    t->has_test_step = mo->test_step != NULL;
    t->has_before_backward = mo->on_before_backward != NULL;
    t->has_before_optimizer_step = mo->on_before_optimizer_step != NULL;
    t->has_train_batch_end = mo->on_train_batch_end != NULL;
    t->has_late_hooks =
        mo->on_after_backward || mo->on_before_optimizer_step || mo->optimizer_step || mo->configure_gradient_clipping;
    t->has_validation_model_train = mo->on_validation_model_train != NULL;
    t->has_test_model_train = mo->on_test_model_train != NULL;
    t->has_predict_step = mo->predict_step || mo->forward;
#define DEFAULT(slot, f)                                                                                               \
    if (!mo->slot) mo->slot = f
    DEFAULT(configure_callbacks, nothing);
    DEFAULT(prepare_data, nothing);
    DEFAULT(setup, nothing_stage);
    DEFAULT(configure_model, nothing);
    DEFAULT(on_fit_start, nothing);
    DEFAULT(on_train_start, nothing);
    DEFAULT(on_train_epoch_start, nothing);
    DEFAULT(on_train_batch_start, nothing_train_start);
    DEFAULT(on_before_zero_grad, nothing_optimizer);
    DEFAULT(on_before_backward, nothing_loss);
    DEFAULT(on_after_backward, nothing);
    DEFAULT(on_before_optimizer_step, nothing_optimizer);
    DEFAULT(on_train_batch_end, nothing_train_end);
    DEFAULT(on_validation_model_zero_grad, nothing);
    DEFAULT(on_validation_model_eval, eval_mode);
    DEFAULT(on_validation_start, nothing);
    DEFAULT(on_validation_epoch_start, nothing);
    DEFAULT(on_validation_batch_start, nothing_eval_start);
    DEFAULT(on_validation_batch_end, nothing_eval_end);
    DEFAULT(on_validation_epoch_end, nothing);
    DEFAULT(on_validation_end, nothing);
    DEFAULT(on_validation_model_train, nothing);
    DEFAULT(on_train_epoch_end, nothing);
    DEFAULT(on_train_end, nothing);
    DEFAULT(on_fit_end, nothing);
    DEFAULT(on_test_model_eval, eval_mode);
    DEFAULT(on_test_start, nothing);
    DEFAULT(on_test_epoch_start, nothing);
    DEFAULT(on_test_batch_start, nothing_eval_start);
    DEFAULT(on_test_batch_end, nothing_eval_end);
    DEFAULT(on_test_epoch_end, nothing);
    DEFAULT(on_test_end, nothing);
    DEFAULT(on_test_model_train, nothing);
    DEFAULT(predict_step, predict_forward);
    DEFAULT(on_predict_model_eval, eval_mode);
    DEFAULT(on_predict_start, nothing);
    DEFAULT(on_predict_epoch_start, nothing);
    DEFAULT(on_predict_batch_start, nothing_eval_start);
    DEFAULT(on_predict_batch_end, nothing_eval_end);
    DEFAULT(on_predict_epoch_end, nothing);
    DEFAULT(on_predict_end, nothing);
    DEFAULT(teardown, nothing_stage);
    DEFAULT(on_save_checkpoint, nothing_save);
    DEFAULT(on_load_checkpoint, nothing_load);
#undef DEFAULT
}

/* ---- lists that hooks fill ---- */

/* Constructors return NULL on an error and have said why. */
static lc_status absent(const char *what)
{
    lc_status last;
    const char *why = lc_error_message();
    if (!lc__error_count(&last) || last >= 0) last = LC_ERR_CONFIG;
    return lc_fail(last, "there is no %s%s%s", what, *why ? ": " : "", why);
}

lc_status lc_optimizers_add_step(lc_optimizers *out, lc_optimizer *optimizer, lc_training_step_fn *step)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    if (!optimizer) return absent("optimizer");
    if (out->n == LC_MAX_OPTIMIZERS) {
        lc_optimizer_free(optimizer);
        return lc_fail(LC_ERR_CONFIG, "more than %d optimizers", LC_MAX_OPTIMIZERS);
    }
    out->optimizers[out->n++] = (lc_optimizer_config){optimizer, step};
    return LC_OK;
}

lc_status lc_optimizers_add(lc_optimizers *out, lc_optimizer *optimizer)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    return lc_optimizers_add_step(out, optimizer, NULL);
}

lc_status lc_optimizers_add_scheduler(lc_optimizers *out, lc_scheduler_config config)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc_status status;
    if (!config.scheduler) return absent("scheduler");
    LC__IS(config.scheduler, SCHEDULER, LC_ERR_ARGUMENT);
    if (lc_scheduler_needs_metric(config.scheduler)) config.reduce_on_plateau = true;
    if (out->n_schedulers == LC_MAX_OPTIMIZERS)
        status = lc_fail(LC_ERR_CONFIG, "more than %d schedulers", LC_MAX_OPTIMIZERS);
    else if (config.frequency < 0)
        status = lc_fail(LC_ERR_CONFIG, "frequency of a scheduler is %lld; it must be at least 1",
                         (long long)config.frequency);
    else if (config.reduce_on_plateau && !config.monitor)
        status = lc_fail(LC_ERR_CONFIG, "a ReduceLROnPlateau scheduler needs .monitor: the metric it looks at");
    else {
        out->schedulers[out->n_schedulers] = config;
        if (!config.frequency) out->schedulers[out->n_schedulers].frequency = 1;
        out->n_schedulers++;
        return LC_OK;
    }
    lc_scheduler_free(config.scheduler);
    return status;
}

lc_status lc_loaders_add(lc_loaders *out, lc_dataloader *loader)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(loader, LOADER, LC_ERR_ARGUMENT);
    if (!loader) return lc_fail(LC_ERR_ARGUMENT, "there is no loader to add");
    if (out->n == LC_MAX_LOADERS) {
        lc_dataloader_free(loader);
        return lc_fail(LC_ERR_CONFIG, "more than %d loaders", LC_MAX_LOADERS);
    }
    out->loaders[out->n++] = loader;
    return LC_OK;
}
