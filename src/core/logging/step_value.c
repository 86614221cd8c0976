/* SPDX-License-Identifier: Apache-2.0 */
#include "core/logging/step_value.h"

#include <math.h>

double lc__step_value_weight(const lc__step_value *s)
{
    return (s->joined ? s->earlier_weight : 0) + s->last_weight;
}

lc__exact_sum lc__step_value_sum(const lc__step_value *s, lc_log_reduce how)
{
    lc__exact_sum sum = s->joined ? *s->exact : (lc__exact_sum){0};
    /* Without samples even a NaN adds nothing. */
    if (s->last_weight != 0) lc__exact_add(&sum, how == LC_LOG_MEAN ? s->last * s->last_weight : s->last);
    return sum;
}

static double value_of(const lc__step_value *s, lc_log_reduce how)
{
    if (!s->joined || s->earlier_weight == 0) return s->last;
    double weight = lc__step_value_weight(s);
    if (s->exact) {
        lc__exact_sum sum = lc__step_value_sum(s, how);
        return lc__exact_value(&sum) / (how == LC_LOG_MEAN ? weight : 1);
    }
    switch (how) {
    case LC_LOG_SUM:
        return s->earlier + s->last;
    case LC_LOG_MIN:
        return s->last < s->earlier || isnan(s->last) ? s->last : s->earlier;
    case LC_LOG_MAX:
        return s->last > s->earlier || isnan(s->last) ? s->last : s->earlier;
    default:
        return (s->earlier * s->earlier_weight + s->last * s->last_weight) / weight;
    }
}

/* The last piece becomes one of the earlier ones. */
static void join_last(lc__step_value *s, lc_log_reduce how)
{
    if (s->exact)
        *s->exact = lc__step_value_sum(s, how);
    else
        s->earlier = value_of(s, how);
    s->earlier_weight = lc__step_value_weight(s);
    s->joined = true;
}

double lc__step_value_note(lc__step_value *s, lc_log_reduce how, lc__place at, double v, double weight)
{
    if (at.piece != s->piece) {
        if (at.piece && s->piece >= at.first)
            join_last(s, how);
        else
            s->joined = false;
    }
    s->piece = at.piece;
    s->last = v;
    s->last_weight = weight;
    return value_of(s, how);
}
