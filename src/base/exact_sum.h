/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of doubles that are rounded once, when they are read: the same bits in whatever order, and on however many
 * ranks, numbers were added. */
#ifndef LC_BASE_EXACT_SUM_H
#define LC_BASE_EXACT_SUM_H

#include <stdint.h>

/* A number in base 2^32, wide enough for the sum of 2^63 doubles. All zeros: 0. */
enum { LC__EXACT_DIGITS = 68 };
typedef struct lc__exact_sum {
    int64_t digit[LC__EXACT_DIGITS]; /* the last has the sign; tidy sums of ranks may be added digit by digit */
    double special;                  /* sum of the infinities and NaNs; 0: none so far */
    int64_t untidy;                  /* numbers added since carries were propagated */
} lc__exact_sum;

void lc__exact_add(lc__exact_sum *s, double x);
void lc__exact_merge(lc__exact_sum *s, const lc__exact_sum *other);
void lc__exact_tidy(lc__exact_sum *s);
double lc__exact_value(const lc__exact_sum *s);

#endif
