/* SPDX-License-Identifier: Apache-2.0 */
/* For programs with their own loop: lc_trainer_begin, lc_trainer_step, lc_trainer_end_epoch, lc_trainer_end. */
#include "core/trainer/run.h"
#include "base/float_traps.h"
#include "base/signal_fd.h"
#include "base/handle.h"
#include "core/hooks/hooks.h"
#include "core/input/input.h"
#include "core/loop/loop.h"
#include "core/ranks/ranks.h"
#include "core/resume/resume.h"

#include <math.h>

lc_status lc_trainer_begin(lc_trainer *t, lc_module *m)
{
    LC__WITHOUT_TRAPS();
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    if (!t || !m) return lc_fail(LC_ERR_ARGUMENT, "lc_trainer_begin needs a trainer and a module");
    if (t->in_run) return lc_fail(LC_ERR_STATE, "the trainer is already running");
    lc_status s = lc__run_begin(t, m, NULL, LC_STAGE_FIT);
    if (s >= 0) s = lc__fit_begin(t);
    t->input->enable_validation = false;
    t->run->own_loop = true;
    t->input->train.length = t->input->train.limit = -1;
    t->resume->resume_phase = LC__PHASE_START;
    if (!t->resume->resume_mid_epoch) t->epoch_open = false;
    if (s >= 0) lc__watch_mode(t);
    if (s >= 0) s = lc__hook(t, LC_HOOK_ON_TRAIN_START, NULL);
    if (s >= 0) return LC_OK;
    t->run->own_loop = false;
    return lc__run_finish(t, s);
}

static lc_status own_loop(lc_trainer *t, const char *what)
{
    return t && t->in_run && t->run->own_loop ? LC_OK : lc_fail(LC_ERR_STATE, "%s: call lc_trainer_begin first", what);
}

lc_status lc_trainer_step(lc_trainer *t, const lc_batch *batch, double *loss)
{
    LC__WITHOUT_TRAPS();
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__NEEDS(batch, LC_ERR_ARGUMENT);
    LC_TRY(own_loop(t, "lc_trainer_step"));
    LC__NEEDS(batch, LC_ERR_ARGUMENT);
    lc_status s = LC_OK;
    t->resume->resume_mid_epoch = false;
    if (!t->epoch_open) {
        t->epoch_open = true;
        t->loop->epoch_ended_early = false;
        t->resume->cursor_epoch = t->current_epoch;
        t->batches_done = t->window_begin = 0;
        t->epoch_begun = false;
        lc__watch_epoch(t);
        s = lc__hook(t, LC_HOOK_ON_TRAIN_EPOCH_START, NULL);
        t->epoch_begun = s >= 0;
    }
    if (s >= 0) s = lc__train_batch(t, batch, false);
    lc__signal_fd_share(t->ranks->signals, false);
    if (s >= 0 && lc__save_requested(t)) s = lc__save_on_request(t);
    if (s >= 0 && loss) {
        *loss = NAN;
        if (t->outputs.loss) s = lc_item(t->outputs.loss, loss);
    }
    if (s < 0) {
        t->run->own_loop = false;
        return lc__run_finish(t, s);
    }
    bool stop = lc__should_stop(t) || lc__signal_of(t) || (t->max_steps >= 0 && t->global_step >= t->max_steps);
    return stop ? LC_STOP : LC_OK;
}

lc_status lc_trainer_end_epoch(lc_trainer *t)
{
    LC__WITHOUT_TRAPS();
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC_TRY(own_loop(t, "lc_trainer_end_epoch"));
    if (!t->epoch_open) return LC_OK;
    t->is_last_batch = true;
    lc_status s = lc__end_of_epoch(t);
    t->is_last_batch = false;
    if (s < 0) {
        t->run->own_loop = false;
        return lc__run_finish(t, s);
    }
    return LC_OK;
}

lc_status lc_trainer_end(lc_trainer *t)
{
    LC__WITHOUT_TRAPS();
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC_TRY(own_loop(t, "lc_trainer_end"));
    LC_TRY(lc_trainer_end_epoch(t));
    t->run->own_loop = false;
    lc_status s = lc__unused_end(t);
    if (s >= 0) s = lc__hook(t, LC_HOOK_ON_TRAIN_END, NULL);
    if (s >= 0) s = lc__hook(t, LC_HOOK_ON_FIT_END, NULL);
    return lc__run_finish(t, s);
}
