/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of doubles that are rounded once, when they are read: the same bits in whatever order, and on however many
 * ranks, the numbers were added. */
#ifndef LC_BASE_EXACT_SUM_H
#define LC_BASE_EXACT_SUM_H

#include <stdint.h>

/* A number in base 2^32 as wide as all doubles, and 2^63 of them added up. Zeros: 0. */
enum { LC__EXACT_DIGITS = 68 };
typedef struct lc__exact_sum {
    int64_t digit[LC__EXACT_DIGITS]; /* the last has the sign; sums of ranks are those of their tidy digits */
    double special;                  /* sum of what is infinite or not a number; 0: nothing was */
    int64_t untidy;                  /* numbers added since carries were passed on */
} lc__exact_sum;

void lc__exact_add(lc__exact_sum *s, double x);
void lc__exact_merge(lc__exact_sum *s, const lc__exact_sum *other);
void lc__exact_tidy(lc__exact_sum *s);
double lc__exact_value(const lc__exact_sum *s);

#endif
