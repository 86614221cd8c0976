/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all schedules. */
#ifndef LC_OPTIM_SCHED_SCHED_INTERNAL_H
#define LC_OPTIM_SCHED_SCHED_INTERNAL_H

#include "base/args.h"

#include <lightc/sched.h>

#include <math.h>

#define LC_PI 3.14159265358979323846

extern const lc_scheduler_ops lc__sched_step, lc__sched_multi_step, lc__sched_exponential, lc__sched_constant,
    lc__sched_linear, lc__sched_polynomial, lc__sched_lambda, lc__sched_cosine, lc__sched_warm_restarts,
    lc__sched_one_cycle, lc__sched_cyclic, lc__sched_plateau, lc__sched_sequential, lc__sched_chained, lc__sched_swa;

/* Ends with NULL. */
extern const lc_scheduler_ops *const lc__scheduler_table[];

/* Everything that a schedule can be made of. */
typedef struct lc__scheduler_parts {
    const int64_t *milestones;
    int n_milestones;
    lc_scheduler *const *children;
    int n_children;
    lc_lambda_fn *lambda;
    void *lambda_ctx;
} lc__scheduler_parts;

/* The body of constructors: args as in ops->args, all given (NaN: missing). NULL after an error, which the optimizer's
 * module keeps. Children are owned by the result, and freed on an error. */
lc_scheduler *lc__scheduler_construct(const lc_scheduler_ops *ops, lc_optimizer *opt, const double *args,
                                      lc__scheduler_parts parts);

/* The current rate of a group. */
static inline double *lc__sched_lr(const lc_scheduler *s, int g)
{
    return &s->optimizer->groups[g].hyper[0];
}

/* Sets the momentum, which is beta1 if the optimizer has that. */
lc_status lc__sched_set_momentum(lc_scheduler *s, double value);

/* Restarts s at epoch 0, from its base rates: PyTorch's step(0). */
lc_status lc__scheduler_restart(lc_scheduler *s);
/* The error that a schedule, which has a parent, is used by something else. */
lc_status lc__scheduler_is_child(const lc_scheduler *s) __attribute__((cold));

/* Helpers for checks. */
lc_status lc__sched_at_least(const lc_scheduler *s, int arg, double low);
lc_status lc__sched_whole(const lc_scheduler *s, int arg, double low); /* a whole number, at least low */

#endif
