/* SPDX-License-Identifier: Apache-2.0 */
/* All schedules by name. */
#include "optim/sched/sched_internal.h"

const lc_scheduler_ops *const lc__scheduler_table[] = {
    &lc__sched_step,      &lc__sched_multi_step, &lc__sched_exponential,   &lc__sched_constant,
    &lc__sched_linear,    &lc__sched_cosine,     &lc__sched_warm_restarts, &lc__sched_polynomial,
    &lc__sched_one_cycle, &lc__sched_cyclic,     &lc__sched_plateau,       &lc__sched_sequential,
    &lc__sched_chained,   &lc__sched_lambda,     &lc__sched_swa,           NULL,
};
