/* SPDX-License-Identifier: Apache-2.0 */
/* fit, validate, test and predict, in Lightning's order: begin.c, the loops, finish.c. */
#include "core/trainer/run.h"
#include "base/args.h"
#include "base/float_traps.h"
#include "base/handle.h"
#include "core/hooks/hooks.h"
#include "core/input/input.h"
#include "core/logging/logging.h"
#include "core/loop/loop.h"
#include "core/ranks/ranks.h"
#include "core/resume/resume.h"
#include "module/tensors.h"
#include "tensor/initial.h"

static void stop_message(lc_trainer *t, int64_t first_step)
{
    bool nothing = t->ckpt_path && t->global_step == first_step;
    if (nothing)
        lc_trainer_message(t, LC_INFO, "nothing left to train: %s is already at epoch %lld, step %lld", t->ckpt_path,
                           (long long)t->current_epoch, (long long)t->global_step);
    if (nothing && t->soft_stops)
        lc_trainer_message(t, LC_INFO,
                           "early stopping had ended this training; give it more patience or another threshold to "
                           "continue, or leave it out");
    if (t->max_steps >= 0 && t->global_step >= t->max_steps)
        lc_trainer_message(t, LC_INFO, "fit stopped: max_steps=%lld reached", (long long)t->max_steps);
    else if (t->max_epochs >= 0 && t->epochs_processed >= t->max_epochs)
        lc_trainer_message(t, LC_INFO, "fit stopped: max_epochs=%lld reached", (long long)t->max_epochs);
    else if (t->input->train.length == 0)
        lc_trainer_message(t, LC_WARNING,
                           "fit stopped: no training batches; the loader has none (with drop_last: fewer samples than "
                           "one batch of all ranks), or limit_train_batches allows none");
}

static lc_status fit_body(lc_trainer *t)
{
    if (t->opt.max_epochs == LC_UNSET && t->max_epochs == 1000)
        lc_trainer_message(t, LC_INFO, "max_epochs was not set: training for 1000 epochs; -1 trains without a limit");
    LC_TRY(lc__fit_begin(t));
    int64_t first_step = t->global_step;
    LC_TRY(lc__sanity_check(t));
    LC_TRY(lc__fit_loop(t));
    LC_TRY(lc__unused_end(t));
    stop_message(t, first_step);
    return lc__hook(t, LC_HOOK_ON_FIT_END, NULL);
}

static lc_status run(lc_trainer *t, lc_module *m, const lc_run_args *args, lc_stage stage,
                     lc_status (*body)(lc_trainer *))
{
    LC__WITHOUT_TRAPS();
    if (!t) return lc_fail(LC_ERR_ARGUMENT, "the trainer is NULL");
    if (t->in_run) return lc_fail(LC_ERR_STATE, "the trainer is already running");
    LC_TRY(lc__list_check("dataloaders", args->n_dataloaders, args->dataloaders));
    lc_status s = lc__run_begin(t, m, args, stage);
    if (s >= 0) s = body(t);
    return lc__run_finish(t, s);
}

lc_status lc_trainer_fit_with(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_run, lc_run_args, args);
    if (!m) return lc_fail(LC_ERR_ARGUMENT, "fit needs a module");
    return run(t, m, &a, LC_STAGE_FIT, fit_body);
}

static lc_status set_up_model(lc_trainer *t)
{
    if (lc__stays_in_slices(t)) {
        LC_TRY(t->strategy->shard_parameters(t->strategy_self, t->graph, t->m));
        if (t->resume->restoring_from) LC_TRY(lc__restore_module(t, LC__IN_SLICES));
    } else {
        LC_TRY(lc__ranks_model(t->comm, t->m, false));
    }
    lc_checkpoint_close(t->resume->restoring_from);
    t->resume->restoring_from = NULL;
    return lc__module_fill(t->m);
}

static lc_status eval_body(lc_trainer *t)
{
    LC_TRY(set_up_model(t));
    LC_TRY(lc__setup_eval_data(t));
    LC_TRY(lc__check_same_data(t));
    bool none = true; /* with limits of 0 nothing runs, not even hooks */
    for (int i = 0; i < t->input->eval.n; i++)
        none = none && (t->input->eval.s[i].length == 0 || t->input->eval.s[i].limit == 0);
    if (none) {
        t->logging->n_results = 0;
        lc_trainer_message(t, LC_WARNING, "%s: there is no batch to run; its limit is 0, or its loader is empty",
                           lc_stage_name(t->stage));
        return LC_OK;
    }
    return lc__eval_loop(t);
}

lc_status lc_trainer_validate_with(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_run, lc_run_args, args);
    return run(t, m, &a, LC_STAGE_VALIDATE, eval_body);
}

lc_status lc_trainer_test_with(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_run, lc_run_args, args);
    return run(t, m, &a, LC_STAGE_TEST, eval_body);
}

lc_status lc_trainer_predict_with(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_run, lc_run_args, args);
    return run(t, m, &a, LC_STAGE_PREDICT, eval_body);
}
