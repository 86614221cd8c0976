/* SPDX-License-Identifier: Apache-2.0 */
/* Included before the NAME.inl files, which define LOOP(name)(const lc__range *) for the data type REAL. Loops are
 * plain: one pass, no calls except sqrt, so that compilers vectorize them.
 *
 * To instantiate: #define REAL float, LC_LOOP_SUFFIX f32, include the .inl, #undef both, and again for double. */
#ifndef LC_OPTIM_LOOP_H
#define LC_OPTIM_LOOP_H

#include "optim/optim_internal.h"

#include <math.h>

#define LC_LOOP_PASTE_(name, suffix) name##_##suffix
#define LC_LOOP_PASTE(name, suffix)  LC_LOOP_PASTE_(name, suffix)
#define LOOP(name)                   LC_LOOP_PASTE(name, LC_LOOP_SUFFIX)
#define SQRT(x)                      (sizeof(REAL) == 4 ? (REAL)sqrtf((float)(x)) : (REAL)sqrt((double)(x)))

/* Declares what every loop needs; GRADIENT(i) is the gradient as the optimizer sees it. */
#define LOOP_BEGIN(r)                                                                                                  \
    REAL *restrict p = (r)->p;                                                                                         \
    const REAL *restrict g = (r)->g;                                                                                   \
    const int64_t n = (r)->n;                                                                                          \
    const REAL scale = (REAL)(r)->scale, clip = (REAL)(r)->clip, sign = (REAL)(r)->sign
/* Written so that compilers make it a maximum or minimum instruction; NaN stays NaN. */
#define AT_LEAST(low, x)    ((low) > (x) ? (low) : (x))
#define AT_MOST(high, x)    ((high) < (x) ? (high) : (x))
#define CLAMP(x, low, high) AT_MOST(high, AT_LEAST(low, x))
#define GRADIENT(i)         (sign * CLAMP(scale * g[i], -clip, clip))
/* The gradient with weight decay; without it an infinite weight is not multiplied by 0. */
#define DECAYED(i, decay) (GRADIENT(i) + ((decay) != 0 ? (decay)*p[i] : 0))

/* The momentum of NAdam's update t. */
static inline double lc__nadam_mu(const double *h, double t)
{
    return h[2] * (1 - 0.5 * pow(0.96, t * h[5]));
}

#endif
