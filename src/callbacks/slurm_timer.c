/* SPDX-License-Identifier: Apache-2.0 */
/* SlurmTimer, made by the option slurm_margin: stops some time before the Slurm job's time limit, so that the run can
 * still end in order. Rank 0 checks the clock; the others stop with it. */
#include "callbacks/callbacks.h"
#include "launch/slurm.h"

typedef struct slurm_timer {
    double margin; /* seconds */
    int64_t until_ns;
} slurm_timer;

static void check(const slurm_timer *c, lc_trainer *t)
{
    if (!c->until_ns || lc__now_ns() < c->until_ns || lc__should_stop(t)) return;
    lc_trainer_message(t, LC_INFO, "time limit reached: the Slurm job ends in %.0f s; stopping",
                       (double)(c->until_ns - lc__now_ns()) * 1e-9 + c->margin);
    lc_trainer_stop(t);
}

static lc_status st_fit_start(void *self, lc_trainer *t)
{
    slurm_timer *c = self;
    double left;
    c->until_ns = 0;
    if (!lc__on_slurm()) return LC_OK;
    LC_TRY(lc__slurm_time_left(&left));
    if (isinf(left)) {
        lc_trainer_message(t, LC_INFO, "slurm_margin: this Slurm job has no time limit");
        return LC_OK;
    }
    lc_trainer_message(t, LC_INFO, "slurm_margin: training stops in %.0f s, %.0f s before the end of the Slurm job",
                       left > c->margin ? left - c->margin : 0, c->margin < left ? c->margin : left);
    c->until_ns = lc__now_ns() + (int64_t)((left - c->margin) * 1e9);
    check(c, t);
    return LC_OK;
}

static lc_status st_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    check(self, t);
    return LC_OK;
}

static const lc_callback_ops slurm_timer_ops = {
    LC_CALLBACK_OPS_INIT("SlurmTimer"), .no_vote = true,        .ranks = LC_RANK_ZERO, .on_fit_start = st_fit_start,
    .on_train_batch_end = st_batch_end, .free = lc__owned_free,
};

lc_status lc__slurm_timer_new(double margin, lc_callback *out)
{
    slurm_timer *c = lc__owned_new(sizeof *c, NULL);
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: SlurmTimer");
    c->margin = margin;
    *out = (lc_callback){&slurm_timer_ops, c};
    return LC_OK;
}
