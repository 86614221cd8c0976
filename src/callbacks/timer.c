/* SPDX-License-Identifier: Apache-2.0 */
/* Timer: stops after an amount of training time, which is counted across resumes. */
#include "callbacks/callbacks.h"
#include "base/handle.h"

typedef struct timer {
    double limit, before; /* seconds: allowed; trained in earlier runs */
    bool epochs, running;
    int64_t start_ns, end_ns;
} timer;

static double elapsed(const timer *c)
{
    if (!c->start_ns) return c->before;
    return c->before + (double)((c->running ? lc__now_ns() : c->end_ns) - c->start_ns) * 1e-9;
}

static void check(timer *c, lc_trainer *t)
{
    if (elapsed(c) < c->limit || lc__should_stop(t)) return;
    lc_trainer_message(t, LC_INFO, "time limit reached: %.1f s of training; stopping", elapsed(c));
    lc_trainer_stop(t);
}

static lc_status tm_fit_start(void *self, lc_trainer *t)
{
    check(self, t);
    return LC_OK;
}

static lc_status tm_train_start(void *self, lc_trainer *t)
{
    timer *c = self;
    (void)t;
    c->start_ns = lc__now_ns();
    c->running = true;
    return LC_OK;
}

static lc_status tm_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    timer *c = self;
    (void)o, (void)b, (void)i;
    if (!c->epochs) check(c, t);
    return LC_OK;
}

static lc_status tm_epoch_end(void *self, lc_trainer *t)
{
    timer *c = self;
    if (c->epochs) check(c, t);
    return LC_OK;
}

static lc_status tm_train_end(void *self, lc_trainer *t)
{
    timer *c = self;
    (void)t;
    c->end_ns = lc__now_ns();
    c->running = false;
    return LC_OK;
}

static lc_status tm_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    (void)status, (void)message;
    return ((timer *)self)->running ? tm_train_end(self, t) : LC_OK;
}

static lc_status tm_save(void *self, lc_trainer *t, lc_state *out)
{
    (void)t;
    return lc_state_set_double(out, "time_elapsed", elapsed(self));
}

static lc_status tm_load(void *self, lc_trainer *t, const lc_state *in)
{
    timer *c = self;
    (void)t;
    c->start_ns = 0; /* an earlier run of this process is in the state, as far as it counts */
    return lc_state_get_double(in, "time_elapsed", &c->before);
}

const lc_callback_ops lc__timer_ops = {
    LC_CALLBACK_OPS_INIT("Timer"),
    .no_vote = true,
    .on_fit_start = tm_fit_start,
    .on_train_start = tm_train_start,
    .on_train_batch_end = tm_batch_end,
    .on_train_epoch_end = tm_epoch_end,
    .on_train_end = tm_train_end,
    .on_exception = tm_exception,
    .save_state = tm_save,
    .load_state = tm_load,
    .free = lc__owned_free,
};

lc_status lc_timer_new(double seconds, bool epoch_interval, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!(seconds >= 0)) return lc_fail(LC_ERR_CONFIG, "Timer: %g s is not a valid duration", seconds);
    timer *c = lc__owned_new(sizeof *c, NULL);
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: Timer");
    c->limit = seconds;
    c->epochs = epoch_interval;
    *out = (lc_callback){&lc__timer_ops, c};
    return LC_OK;
}

double lc_timer_elapsed(const lc_callback *cb)
{
    LC__NEEDS(cb, 0);
    if (cb->ops && cb->ops->save_state == tm_save) return elapsed(cb->self);
    (void)lc_fail(LC_ERR_ARGUMENT, "this callback is not a Timer");
    return 0;
}
