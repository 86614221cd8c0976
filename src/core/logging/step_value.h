/* SPDX-License-Identifier: Apache-2.0 */
/* The value of one step of a name that is logged for each piece of a batch (core/split/split.h): how the values of the
 * pieces become one.
 *
 *     a piece that logs a name several times    its last value counts, as in a batch that is not cut, and in Lightning
 *     pieces of a batch                         LC_LOG_MEAN: the mean, weighted by samples; the sum; the smallest; the
 *                                               largest
 *     a batch that is computed again            replaces what was logged before (LBFGS, several optimizers)
 *
 * An epoch counts every value, also those that do not count for their step. Ranks are joined later (results_ranks.c).
 */
#ifndef LC_CORE_LOGGING_STEP_VALUE_H
#define LC_CORE_LOGGING_STEP_VALUE_H

#include "base/exact_sum.h"
#include "core/hooks/trainer_internal.h"

#include <math.h>

typedef struct lc__step_value {
    int64_t piece;            /* the piece that logged last */
    double last, last_weight; /* its last value */
    bool joined;              /* other pieces of the batch have logged before: */
    double earlier, earlier_weight;
    lc__exact_sum *exact; /* the sum of these, in place of `earlier`; NULL: rounded, or no sum. Borrowed */
} lc__step_value;

/* Notes a value that was logged at `at`. Returns the value of the step so far. */
double lc__step_value_note(lc__step_value *s, lc_log_reduce how, lc__place at, double v, double weight);
/* Samples of the step so far. */
double lc__step_value_weight(const lc__step_value *s);
/* If s->exact: the sum of the step so far; for a mean, of values times weights. */
lc__exact_sum lc__step_value_sum(const lc__step_value *s, lc_log_reduce how);

/* Processors differ in the sign of a NaN that they make, and printf shows it: "-nan" for 0/0 on x86. */
static inline double lc__nan_without_sign(double v)
{
    return isnan(v) ? NAN : v;
}

#endif
