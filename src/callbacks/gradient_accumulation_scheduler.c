/* SPDX-License-Identifier: Apache-2.0 */
/* GradientAccumulationScheduler: how many batches make a step, by epoch. */
#include "core/loop/loop.h"
#include "callbacks/callbacks.h"
#include "base/state_count.h"

#include <string.h>

typedef struct accumulation {
    int n;
    lc_accumulation at[];
} accumulation;

static lc_status ac_train_start(void *self, lc_trainer *t)
{
    const accumulation *a = self;
    if (t->mo.manual_optimization)
        return lc_fail(LC_ERR_STATE,
                       "GradientAccumulationScheduler needs automatic optimization; %s optimizes manually", t->mo.name);
    if (t->opt.accumulate_grad_batches != 1)
        return lc_fail(LC_ERR_CONFIG,
                       "accumulate_grad_batches is %lld, but the callbacks hold a GradientAccumulationScheduler; drop "
                       "one of the two",
                       (long long)t->opt.accumulate_grad_batches);
    for (int i = 0; i < a->n; i++) LC_TRY(lc__check_accumulation(t, a->at[i].factor));
    return LC_OK;
}

static lc_status ac_epoch_start(void *self, lc_trainer *t)
{
    const accumulation *a = self;
    int64_t factor = 1, since = -1;
    for (int i = 0; i < a->n; i++)
        if (a->at[i].epoch <= t->current_epoch && a->at[i].epoch > since) {
            since = a->at[i].epoch;
            factor = a->at[i].factor;
        }
    return lc_trainer_set_accumulate_grad_batches(t, factor);
}

static lc_status ac_save(void *self, lc_trainer *t, lc_state *out)
{
    (void)self;
    return lc_state_set_int(out, "factor", t->accumulate_next);
}

/* An epoch ends with the factor it began with. */
static lc_status ac_load(void *self, lc_trainer *t, const lc_state *in)
{
    int64_t factor;
    (void)self;
    LC_TRY(lc__state_get_count(in, "factor", 1, &factor));
    return lc_trainer_set_accumulate_grad_batches(t, factor);
}

static const lc_callback_ops accumulation_ops = {
    LC_CALLBACK_OPS_INIT("GradientAccumulationScheduler"),
    .on_train_start = ac_train_start,
    .on_train_epoch_start = ac_epoch_start,
    .save_state = ac_save,
    .load_state = ac_load,
    .free = lc__owned_free,
};

lc_status lc_gradient_accumulation_scheduler_new(const lc_gradient_accumulation_scheduler_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_gradient_accumulation_scheduler, given);
    int n = args->n_scheduling;
    if (n < 1)
        return lc_fail(LC_ERR_CONFIG,
                       "GradientAccumulationScheduler needs scheduling: factors, and the epochs at which they start");
    LC_TRY(lc__list_check("scheduling", n, args->scheduling));
    for (int i = 0; i < n; i++)
        if (args->scheduling[i].factor < 1 || args->scheduling[i].epoch < 0)
            return lc_fail(LC_ERR_CONFIG,
                           "GradientAccumulationScheduler: %lld batches from epoch %lld on; factors must be at least "
                           "1, epochs at least 0",
                           (long long)args->scheduling[i].factor, (long long)args->scheduling[i].epoch);
    accumulation *a = lc__owned_new(sizeof *a + (size_t)n * sizeof *a->at, NULL);
    if (!a) return lc_fail(LC_ERR_MEMORY, "out of memory: GradientAccumulationScheduler");
    a->n = n;
    memcpy(a->at, args->scheduling, (size_t)n * sizeof *a->at);
    *out = (lc_callback){&accumulation_ops, a};
    return LC_OK;
}
