/* SPDX-License-Identifier: Apache-2.0 */
/* The longer formulas of elementwise_table.h, in double. */
#ifndef LC_OPS_ELEMENTWISE_MATH_H
#define LC_OPS_ELEMENTWISE_MATH_H

#include <math.h>

#define LC__SELU_ALPHA 1.6732632423543772848170429916717
#define LC__SELU_SCALE 1.0507009873554804934193349852946

static inline double lc__sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Without PyTorch's threshold: exact everywhere. */
static inline double lc__softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static inline double lc__clamp(double x, double min, double max)
{
    return x < min ? min : x > max ? max : x;
}

static inline double lc__sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

static inline double lc__gelu_erf(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}

static inline double lc__gelu_erf_slope(double x)
{
    return 0.5 * (1 + erf(x * 0.70710678118654752440)) + x * 0.39894228040143267794 * exp(-0.5 * x * x);
}

static inline double lc__gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static inline double lc__gelu_tanh_slope(double x)
{
    double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    double inner = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

static inline double lc__mish_slope(double x)
{
    double t = tanh(lc__softplus(x));
    return t + x * lc__sigmoid(x) * (1 - t * t);
}

/* d norm / d x for the p-norm y of a vector with element x; 0 where the norm is 0, as in PyTorch. */
static inline double lc__norm_slope(double x, double y, double p)
{
    if (y == 0) return 0;
    if (p == 2) return x / y;
    if (p == 1) return lc__sign(x);
    if (x == 0) return y == y ? 0 : y; /* also for p < 1, where the slope is unbounded */
    return lc__sign(x) * pow(fabs(x) / y, p - 1);
}

static inline double lc__smooth_l1(double d, double beta)
{
    double z = fabs(d);
    return z < beta ? 0.5 * z * z / beta : z - 0.5 * beta;
}

static inline double lc__smooth_l1_slope(double d, double beta)
{
    if (d != d) return d; /* NaN has no sign */
    return fabs(d) < beta ? d / beta : lc__sign(d);
}

static inline double lc__huber(double d, double delta)
{
    double z = fabs(d);
    return z <= delta ? 0.5 * z * z : delta * (z - 0.5 * delta);
}

#endif
