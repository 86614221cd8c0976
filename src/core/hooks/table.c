/* SPDX-License-Identifier: Apache-2.0 */
/* The table of hooks: the vtables that have each, the order of their slots, what lc_log does there, and how a slot is
 * called. */
#include "core/hooks/hooks.h"

/* HOOK(id, slot, vtables, order, log, arguments...)
 * vtables: D datamodule, C callbacks, M module; OWN: called by the code that enters the hook. */
#define HOOKS(HOOK)                                                                                                    \
    HOOK(PREPARE_DATA, prepare_data, PREPARE, IN_TURN, NOT)                                                            \
    HOOK(SETUP, setup, DCM, IN_TURN, NOT, a->stage)                                                                    \
    HOOK(CONFIGURE_MODEL, configure_model, M, IN_TURN, NOT)                                                            \
    HOOK(CONFIGURE_CALLBACKS, configure_callbacks, M, IN_TURN, NOT)                                                    \
    HOOK(CONFIGURE_OPTIMIZERS, configure_optimizers, M, IN_TURN, NOT, a->optimizers)                                   \
    HOOK(ON_FIT_START, on_fit_start, CM, IN_TURN, NOT)                                                                 \
    HOOK(ON_SANITY_CHECK_START, on_sanity_check_start, C, IN_TURN, NOT)                                                \
    HOOK(ON_SANITY_CHECK_END, on_sanity_check_end, C, IN_TURN, NOT)                                                    \
    HOOK(ON_TRAIN_START, on_train_start, CM, IN_TURN, EPOCH_ONLY)                                                      \
    HOOK(ON_TRAIN_EPOCH_START, on_train_epoch_start, CM, IN_TURN, EPOCH_ONLY)                                          \
    HOOK(ON_TRAIN_BATCH_START, on_train_batch_start, CM, IN_TURN, STEP, a->batch, a->batch_idx)                        \
    HOOK(OPTIMIZER_STEP, optimizer_step, M, IN_TURN, STEP, t->current_epoch, a->batch_idx, a->optimizer, a->closure)   \
    HOOK(TRAINING_STEP, training_step, OWN_M, IN_TURN, STEP)                                                           \
    HOOK(ON_BEFORE_ZERO_GRAD, on_before_zero_grad, CM, IN_TURN, STEP, a->optimizer)                                    \
    HOOK(OPTIMIZER_ZERO_GRAD, optimizer_zero_grad, M, IN_TURN, STEP, t->current_epoch, a->batch_idx, a->optimizer)     \
    HOOK(ON_BEFORE_BACKWARD, on_before_backward, CM, IN_TURN, STEP, a->loss)                                           \
    HOOK(BACKWARD, backward, M, IN_TURN, STEP, a->loss)                                                                \
    HOOK(ON_AFTER_BACKWARD, on_after_backward, CM, IN_TURN, STEP)                                                      \
    HOOK(ON_BEFORE_OPTIMIZER_STEP, on_before_optimizer_step, CM, IN_TURN, STEP, a->optimizer)                          \
    HOOK(CONFIGURE_GRADIENT_CLIPPING, configure_gradient_clipping, M, IN_TURN, STEP, a->optimizer, a->clip,            \
         a->algorithm)                                                                                                 \
    HOOK(LR_SCHEDULER_STEP, lr_scheduler_step, M, IN_TURN, NOT, a->scheduler, a->metric)                               \
    HOOK(ON_TRAIN_BATCH_END, on_train_batch_end, CM, IN_TURN, STEP, a->outputs, a->batch, a->batch_idx)                \
    HOOK(ON_VALIDATION_MODEL_ZERO_GRAD, on_validation_model_zero_grad, M, IN_TURN, NOT)                                \
    HOOK(ON_VALIDATION_MODEL_EVAL, on_validation_model_eval, M, IN_TURN, NOT)                                          \
    HOOK(ON_VALIDATION_START, on_validation_start, CM, IN_TURN, EPOCH_ONLY)                                            \
    HOOK(ON_VALIDATION_EPOCH_START, on_validation_epoch_start, CM, IN_TURN, EPOCH_ONLY)                                \
    HOOK(ON_VALIDATION_BATCH_START, on_validation_batch_start, CM, IN_TURN, EPOCH, a->batch, a->batch_idx,             \
         a->dataloader_idx)                                                                                            \
    HOOK(VALIDATION_STEP, validation_step, OWN_M, IN_TURN, EPOCH)                                                      \
    HOOK(ON_VALIDATION_BATCH_END, on_validation_batch_end, CM, IN_TURN, EPOCH, a->outputs, a->batch, a->batch_idx,     \
         a->dataloader_idx)                                                                                            \
    HOOK(ON_VALIDATION_EPOCH_END, on_validation_epoch_end, CM, IN_TURN, EPOCH_ONLY)                                    \
    HOOK(ON_VALIDATION_END, on_validation_end, CM, IN_TURN, NOT)                                                       \
    HOOK(ON_VALIDATION_MODEL_TRAIN, on_validation_model_train, M, IN_TURN, NOT)                                        \
    HOOK(ON_TRAIN_EPOCH_END, on_train_epoch_end, CM, IN_TURN, EPOCH_ONLY)                                              \
    HOOK(ON_TRAIN_END, on_train_end, CM, IN_TURN, NOT)                                                                 \
    HOOK(ON_FIT_END, on_fit_end, CM, IN_TURN, NOT)                                                                     \
    HOOK(ON_TEST_MODEL_EVAL, on_test_model_eval, M, IN_TURN, NOT)                                                      \
    HOOK(ON_TEST_START, on_test_start, CM, IN_TURN, EPOCH_ONLY)                                                        \
    HOOK(ON_TEST_EPOCH_START, on_test_epoch_start, CM, IN_TURN, EPOCH_ONLY)                                            \
    HOOK(ON_TEST_BATCH_START, on_test_batch_start, CM, IN_TURN, EPOCH, a->batch, a->batch_idx, a->dataloader_idx)      \
    HOOK(TEST_STEP, test_step, OWN_M, IN_TURN, EPOCH)                                                                  \
    HOOK(ON_TEST_BATCH_END, on_test_batch_end, CM, IN_TURN, EPOCH, a->outputs, a->batch, a->batch_idx,                 \
         a->dataloader_idx)                                                                                            \
    HOOK(ON_TEST_EPOCH_END, on_test_epoch_end, CM, IN_TURN, EPOCH_ONLY)                                                \
    HOOK(ON_TEST_END, on_test_end, CM, IN_TURN, NOT)                                                                   \
    HOOK(ON_TEST_MODEL_TRAIN, on_test_model_train, M, IN_TURN, NOT)                                                    \
    HOOK(ON_PREDICT_MODEL_EVAL, on_predict_model_eval, M, IN_TURN, NOT)                                                \
    HOOK(ON_PREDICT_START, on_predict_start, CM, IN_TURN, NOT)                                                         \
    HOOK(ON_PREDICT_EPOCH_START, on_predict_epoch_start, CM, IN_TURN, NOT)                                             \
    HOOK(ON_PREDICT_BATCH_START, on_predict_batch_start, CM, IN_TURN, NOT, a->batch, a->batch_idx, a->dataloader_idx)  \
    HOOK(PREDICT_STEP, predict_step, OWN_M, IN_TURN, NOT)                                                              \
    HOOK(ON_PREDICT_BATCH_END, on_predict_batch_end, CM, IN_TURN, NOT, a->outputs, a->batch, a->batch_idx,             \
         a->dataloader_idx)                                                                                            \
    HOOK(ON_PREDICT_EPOCH_END, on_predict_epoch_end, CM, IN_TURN, NOT)                                                 \
    HOOK(ON_PREDICT_END, on_predict_end, CM, IN_TURN, NOT)                                                             \
    HOOK(ON_EXCEPTION, on_exception, DC, AFTER_FAILURE, NOT, a->status, a->message)                                    \
    HOOK(TEARDOWN, teardown, DCM, ALL_OF_THEM, NOT, a->stage)                                                          \
    HOOK(ON_SAVE_CHECKPOINT, on_save_checkpoint, CM, IN_TURN, NOT, a->saved)                                           \
    HOOK(ON_LOAD_CHECKPOINT, on_load_checkpoint, CM, IN_TURN, NOT, a->loaded)                                          \
    HOOK(TRAIN_DATALOADER, train_dataloader, OWN_DM, ONE_OF, NOT)                                                      \
    HOOK(VAL_DATALOADER, val_dataloader, OWN_DM, ONE_OF, NOT)                                                          \
    HOOK(TEST_DATALOADER, test_dataloader, OWN_DM, ONE_OF, NOT)                                                        \
    HOOK(PREDICT_DATALOADER, predict_dataloader, OWN_DM, ONE_OF, NOT)                                                  \
    HOOK(ON_BEFORE_BATCH_TRANSFER, on_before_batch_transfer, DM, ONE_OF, NOT, a->arrived, a->dataloader_idx)           \
    HOOK(TRANSFER_BATCH_TO_DEVICE, transfer_batch_to_device, DM, ONE_OF, NOT, a->arrived, a->dataloader_idx)           \
    HOOK(ON_AFTER_BATCH_TRANSFER, on_after_batch_transfer, DM, ONE_OF, NOT, a->arrived, a->dataloader_idx)

/* ---- calls ---- */

#define CALL_D(slot, ...)                                                                                              \
    static lc_status datamodule_##slot(lc_trainer *t, const lc__hook_args *a)                                          \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return t->datamodule.ops.slot(t->datamodule.given.self, t, ##__VA_ARGS__);                                     \
    }
#define CALL_C(slot, ...)                                                                                              \
    static lc_status callback_##slot(lc_trainer *t, const lc__callback *cb, const lc__hook_args *a)                    \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return cb->ops.slot(cb->self, t, ##__VA_ARGS__);                                                               \
    }
#define CALL_M(slot, ...)                                                                                              \
    static lc_status module_##slot(lc_trainer *t, const lc__hook_args *a)                                              \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return t->mo.slot(t->m, ##__VA_ARGS__);                                                                        \
    }
#define CALL_CM(slot, ...)  CALL_C(slot, ##__VA_ARGS__) CALL_M(slot, ##__VA_ARGS__)
#define CALL_DC(slot, ...)  CALL_D(slot, ##__VA_ARGS__) CALL_C(slot, ##__VA_ARGS__)
#define CALL_DM(slot, ...)  CALL_D(slot, ##__VA_ARGS__) CALL_M(slot, ##__VA_ARGS__)
#define CALL_DCM(slot, ...) CALL_D(slot, ##__VA_ARGS__) CALL_CM(slot, ##__VA_ARGS__)
#define CALL_OWN_M(slot)
#define CALL_OWN_DM(slot)
/* The datamodule's slot takes no trainer. */
#define CALL_PREPARE(slot)                                                                                             \
    static lc_status datamodule_##slot(lc_trainer *t, const lc__hook_args *a)                                          \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return t->datamodule.ops.slot(t->datamodule.given.self);                                                       \
    }                                                                                                                  \
    CALL_M(slot)

#define CALLS(id, slot, vtables, order, log, ...) CALL_##vtables(slot, ##__VA_ARGS__)
HOOKS(CALLS)

/* ---- the table ---- */

#define AT_D(slot)        .in_datamodule = offsetof(lc_datamodule_ops, slot),
#define AT_C(slot)        .in_callback = offsetof(lc_callback_ops, slot),
#define AT_M(slot)        .in_module = offsetof(lc_module_ops, slot),
#define ROW_D(slot)       AT_D(slot).datamodule = datamodule_##slot,
#define ROW_C(slot)       AT_C(slot).callback = callback_##slot,
#define ROW_M(slot)       AT_M(slot).module = module_##slot,
#define ROW_CM(slot)      ROW_C(slot) ROW_M(slot)
#define ROW_DC(slot)      ROW_D(slot) ROW_C(slot)
#define ROW_DM(slot)      ROW_D(slot) ROW_M(slot)
#define ROW_DCM(slot)     ROW_D(slot) ROW_CM(slot)
#define ROW_PREPARE(slot) ROW_DM(slot)
#define ROW_OWN_M(slot)   AT_M(slot)
#define ROW_OWN_DM(slot)  AT_D(slot) AT_M(slot)

#define ROW(id, slot, vtables, order_, log_, ...)                                                                      \
    [LC_HOOK_##id] = {.name = #slot, .order = LC__##order_, .log = LC__LOG_##log_, ROW_##vtables(slot)},
const lc__hook_info lc__hooks[LC_HOOKS] = {HOOKS(ROW)};

#define ONE(id, slot, vtables, order, log, ...) +1
_Static_assert(0 HOOKS(ONE) == LC_HOOKS, "every hook of LC_HOOK_LIST has a row");

const char *lc_hook_name(lc_hook hook)
{
    return (unsigned)hook < LC_HOOKS ? lc__hooks[hook].name : NULL;
}
