/* SPDX-License-Identifier: Apache-2.0 */
/* Parts shared by the batch normalization kernels with and without pooling. x is a matrix [M, C] (wide.h). */
#ifndef LC_BACKENDS_CPU_ISA_BATCH_NORM_H
#define LC_BACKENDS_CPU_ISA_BATCH_NORM_H

#include "backends/cpu/isa.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/wide.h"

#define SUM_ROWS 32 /* values that are added up in one go; keeps rounding errors small */
/* Rows that are fetched ahead: sums go down a few columns, and processors fetch on their own what follows in a row. */
#define AHEAD 24

/* Fetches a line of a later row, if one begins with vector u of the columns from `at` on. */
LC_INLINE void fetch_ahead(const lc_dtype t, const void *x, int64_t at, int64_t lanes, const int u)
{
    if (u * VW * stored_size(t) % 64 == 0) __builtin_prefetch(stored_at(t, x, at + AHEAD * lanes + u * VW));
}

/* The formulas of y, from d = x - mean, and of dx. Kernels with and without pooling round alike because both take
 * these: the operands are values, so that nothing, such as the check of a load by a sanitizer, comes between a product
 * and its sum, and compilers fuse them in every kernel or in none. */
LC_INLINE vf vscaled(vf d, vf scale, vf bias)
{
    return d * scale + bias;
}
LC_INLINE float scaled(float d, float scale, float bias)
{
    return d * scale + bias;
}
LC_INLINE vf vgradient(vf dy, vf scale, vf d, vf fx, vf f1)
{
    return dy * scale + (d * fx + f1);
}
LC_INLINE float gradient(float dy, float scale, float d, float fx, float f1)
{
    return dy * scale + (d * fx + f1);
}

/* Bytes of scratch for lc__bn_statistics. */
size_t LC_ISA_NAME(lc__bn_statistics_scratch)(const wide *w);
/* Mean and biased variance of every column. scratch: aligned for double. */
void LC_ISA_NAME(lc__bn_statistics)(const wide *w, int threads, const lc_view *x, void *scratch, float *mean,
                                    float *var);
/* to: mean, weight / sqrt(var + eps), bias, each of w->lanes values. weight and bias may be NULL. */
void LC_ISA_NAME(lc__bn_parameters)(const wide *w, const float *mean, const float *var, const float *weight,
                                    const float *bias, double eps, float *to);
/* Computes from sum1 = sum of dy and sum2 = sum of dy (x - mean): dw, db, and after the parameters the factors fx, f1
 * of dx = dy scale + (x - mean) fx + f1, each of w->lanes values. */
void LC_ISA_NAME(lc__bn_factors)(const wide *w, const float *var, double eps, const double *sum1, const double *sum2,
                                 float *parameters, float *dw, float *db);

#endif
