/* SPDX-License-Identifier: Apache-2.0 */
/* How exact a result in a type of 16 bits is: the table of docs/precision.md. */
#ifndef LC_TESTS_ROUNDING_H
#define LC_TESTS_ROUNDING_H

#include <lightc/tensor.h>

#include <math.h>

/* Roundings that add up in an operator, of its largest result (at least 1) and its largest gradient; cells of recurrent
 * networks have the most. */
enum { RESULTS = 6, GRADIENTS = 16 };

/* The largest relative error of rounding to the type; with f64 inside of a step, its results are f32. */
static inline double roundoff(lc_dtype dtype)
{
    return dtype == LC_BF16 ? 0x1p-8 : dtype == LC_F16 ? 0x1p-11 : 0x1p-24;
}

/* The allowed error of the sum of `length` products ab, which is `want` in f64: they are added up in f32, and the sum
 * is rounded with roundoff u. `absolute`: the sum of |a||b|. */
static inline double sum_error(double want, double length, double absolute, double u)
{
    return u * fabs(want) + length * 0x1p-24 * absolute;
}

#endif
