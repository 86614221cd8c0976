/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks: code that runs at the hooks of a run without being part of the model.
 *
 * A callback is (ops, self). Every slot is optional. A missing slot costs nothing: the trainer keeps, per hook, a list
 * of the callbacks that have it. Slots return LC_OK, LC_STOP (end the training after this step), LC_SKIP if the slot
 * allows it, or an error, which ends the run. Each slot gets the trainer; lc_trainer_module gives the model.
 *
 * lightc's own callbacks are in callbacks.h. To add one: a file in src/callbacks/ with its ops and its constructor
 * (declared there); if options ask for it, a function in defaults.c, and a line in src/builtin.c. */
#ifndef LIGHTC_CALLBACK_H
#define LIGHTC_CALLBACK_H

#include <lightc/hooks.h>

/* The function that a callback calls for each tensor of its state. */
typedef lc_status lc_callback_tensor_fn(void *ctx, const char *name, lc_tensor *tensor);

typedef struct lc_callback_ops {
    size_t size;      /* LC_CALLBACK_OPS_INIT(name) */
    const char *name; /* "EarlyStopping" */
    lc_ranks ranks;   /* default: every rank */
    /* EarlyStopping and checkpoint callbacks: on_train_epoch_end comes after the module's. */
    bool monitors;
    /* Checkpoint callbacks come last in the list, after all others. */
    bool saves_checkpoints;
    /* Tuners come first. */
    bool tunes;
    /* Several ranks exchange a byte after the hooks between the backward pass and the end of a batch, so that a request
     * of one rank (LC_SKIP, LC_STOP, lc_trainer_stop) holds for all in the same step. no_vote: this callback's hooks
     * need no such vote, because they request nothing, or the same on all ranks, or can wait for the next step. */
    bool no_vote;

    /* ---- OPTIONAL, in call order ---- */
    lc_status (*setup)(void *self, lc_trainer *t, lc_stage stage);
    lc_status (*on_fit_start)(void *self, lc_trainer *t);
    lc_status (*on_sanity_check_start)(void *self, lc_trainer *t);
    lc_status (*on_sanity_check_end)(void *self, lc_trainer *t);
    lc_status (*on_train_start)(void *self, lc_trainer *t);
    lc_status (*on_train_epoch_start)(void *self, lc_trainer *t);
    /* LC_SKIP skips the rest of the epoch. */
    lc_status (*on_train_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx);
    lc_status (*on_before_zero_grad)(void *self, lc_trainer *t, lc_optimizer *optimizer);
    /* loss: the one that is differentiated; a precision may have scaled it. */
    lc_status (*on_before_backward)(void *self, lc_trainer *t, lc_tensor *loss);
    lc_status (*on_after_backward)(void *self, lc_trainer *t);
    /* LC_SKIP leaves the update out; the step still counts. LC_SKIP on one rank is LC_SKIP on all. */
    lc_status (*on_before_optimizer_step)(void *self, lc_trainer *t, lc_optimizer *optimizer);
    lc_status (*on_train_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx);
    lc_status (*on_validation_start)(void *self, lc_trainer *t);
    lc_status (*on_validation_epoch_start)(void *self, lc_trainer *t);
    lc_status (*on_validation_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                           int dataloader_idx);
    lc_status (*on_validation_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                         int64_t batch_idx, int dataloader_idx);
    lc_status (*on_validation_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_validation_end)(void *self, lc_trainer *t);
    lc_status (*on_train_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_train_end)(void *self, lc_trainer *t);
    lc_status (*on_fit_end)(void *self, lc_trainer *t);
    lc_status (*on_test_start)(void *self, lc_trainer *t);
    lc_status (*on_test_epoch_start)(void *self, lc_trainer *t);
    lc_status (*on_test_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                     int dataloader_idx);
    lc_status (*on_test_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                   int64_t batch_idx, int dataloader_idx);
    lc_status (*on_test_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_test_end)(void *self, lc_trainer *t);
    lc_status (*on_predict_start)(void *self, lc_trainer *t);
    lc_status (*on_predict_epoch_start)(void *self, lc_trainer *t);
    lc_status (*on_predict_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                        int dataloader_idx);
    lc_status (*on_predict_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                      int64_t batch_idx, int dataloader_idx);
    lc_status (*on_predict_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_predict_end)(void *self, lc_trainer *t);
    /* The run failed or was interrupted. `status` is the error, `message` its text; the result is ignored. */
    lc_status (*on_exception)(void *self, lc_trainer *t, lc_status status, const char *message);
    lc_status (*teardown)(void *self, lc_trainer *t, lc_stage stage);

    /* A checkpoint is being written (not one of only weights) or was read: `state` is the root of the whole state, to
     * add to or look at. */
    lc_status (*on_save_checkpoint)(void *self, lc_trainer *t, lc_state *state);
    lc_status (*on_load_checkpoint)(void *self, lc_trainer *t, const lc_state *state);
    /* The callback's own state, kept under its state key. */
    lc_status (*save_state)(void *self, lc_trainer *t, lc_state *state);
    lc_status (*load_state)(void *self, lc_trainer *t, const lc_state *state);
    /* The key. Default: ops->name. Two callbacks with state must not have the same key. */
    const char *(*state_key)(void *self);
    /* A message for the user: for callbacks that show messages. */
    void (*on_message)(void *self, lc_trainer *t, lc_level level, const char *text);
    /* The trainer is freed. */
    void (*free)(void *self);

    /* Visits the tensors of the callback's state (averages, masks): calls `fn` for each, with a unique name, and passes
     * errors on. A checkpoint keeps their values (rank 0's, as those of save_state); when one is read, `fn` fills them,
     * after load_state. Needs save_state and load_state. */
    lc_status (*visit_tensors)(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx);
    /* The tensor that a checkpoint's model holds in place of this parameter or buffer (its average); NULL: itself. At
     * most one callback of a run should have this slot; the first answer counts. When such a checkpoint is read the
     * model holds what was saved; load_state and visit_tensors restore the rest. Before an evaluation and a save, the
     * trainer sets the tensor of a buffer to rank 0's on all ranks, as it does with the buffer. */
    lc_tensor *(*saved_tensor)(void *self, lc_trainer *t, lc_tensor *of);
    /* The checkpoint from which a fit without ckpt_path continues; NULL: the fit starts from scratch. */
    const char *(*ckpt_path)(void *self, lc_trainer *t);
    /* The kind of callback: "ProgressBar", "ModelSummary", ... It takes the place of the trainer's own callback of that
     * kind. NULL: its name. */
    const char *kind;
    /* Checkpoint callbacks: the best checkpoint so far, for ckpt_path=best and what a fit reports at its end; NULL:
     * none yet. *score: the value that makes it the best; LC_NOT_GIVEN if nothing is monitored. With several callbacks,
     * the first one that has this slot is asked. Other programs find the path in the state if it is kept there as
     * "best_model_path". */
    const char *(*best_path)(void *self, double *score);
    /* Checkpoint callbacks: the directory they write to, for ckpt_path=last; NULL: not known yet. */
    const char *(*dirpath)(void *self);
} lc_callback_ops;

#define LC_CALLBACK_OPS_INIT(text) .size = sizeof(lc_callback_ops), .name = (text)

typedef struct lc_callback {
    const lc_callback_ops *ops;
    void *self;
} lc_callback;

#endif
