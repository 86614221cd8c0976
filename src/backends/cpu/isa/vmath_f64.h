/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions on f64, as vmath.h has them on f32: no branches, no calls, no tables, so that the compiler can
 * turn them into vector code. Errors stay within a few units in the last place (tests/backends/test_elementwise_f64.c);
 * NaN, infinities, zeros and denormals behave as in the C library.
 *
 * Polynomials were fitted by interpolation at Chebyshev nodes of the ranges given with them; that of exp is its Taylor
 * polynomial. */
#ifndef LC_BACKENDS_CPU_ISA_VMATH_F64_H
#define LC_BACKENDS_CPU_ISA_VMATH_F64_H

#include "backends/cpu/isa/vmath.h"

static inline uint64_t vd_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double vd_double(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Adding it to a small number leaves the nearest integer in the low bits of the mantissa. */
#define VD_ROUND      6755399441055744.0
#define VD_ROUND_BITS UINT64_C(0x4338000000000000)
#define VD_LN2_HI     6.93147180369123816490e-01 /* the low bits are 0 */
#define VD_LN2_LO     1.90821492927058770002e-10

/* x = k ln 2 + r; expm1(r) = vd_expm1_reduced(r) for |r| <= ln 2 / 2. */
static inline double vd_reduce(double x, double *k)
{
    *k = (x * 1.44269504088896340736 + VD_ROUND) - VD_ROUND;
    return (x - *k * VD_LN2_HI) - *k * VD_LN2_LO;
}

static inline double vd_expm1_reduced(double r)
{
    double p = 1.6059043836821613e-10;
    p = p * r + 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 0.0001984126984126984;
    p = p * r + 0.001388888888888889;
    p = p * r + 0.008333333333333333;
    p = p * r + 0.041666666666666664;
    p = p * r + 0.16666666666666666;
    p = p * r + 0.5;
    return r + r * r * p;
}

/* 2^k for a whole number k of a normal result. */
static inline double vd_power_of_2(double k)
{
    return vd_double((vd_bits(k + VD_ROUND) - VD_ROUND_BITS + 1023) << 52);
}

static inline double vd_exp(double x)
{
    x = x > 710. ? 710. : x;
    x = x < -746. ? -746. : x;
    double k, y = 1 + vd_expm1_reduced(vd_reduce(x, &k));
    /* In two steps, so that results below the smallest normal number are right. */
    double half = (k * 0.5 + VD_ROUND) - VD_ROUND;
    return y * vd_power_of_2(half) * vd_power_of_2(k - half);
}

static inline double vd_expm1(double x0)
{
    double x = x0 > 710. ? 710. : x0;
    x = x < -40. ? -40. : x;
    double k, p = vd_expm1_reduced(vd_reduce(x, &k));
    /* Half of the result, so that 2^k does not overflow before the result does. */
    double s = vd_power_of_2(k - 1);
    double y = (p * s + (s - 0.5)) * 2;
    return fabs(x0) < 1e-16 ? x0 : y;
}

/* log(x) + bias ln 2 for normal, finite x > 0. */
static inline double vd_log_normal(double x, double bias)
{
    const uint64_t root = UINT64_C(0x3fe6a09e667f3bcd);                    /* sqrt(1/2) */
    uint64_t shifted = (vd_bits(x) - root + (UINT64_C(1024) << 52)) >> 52; /* the exponent, plus 1024 */
    double k = vd_double(shifted | UINT64_C(0x4330000000000000)) - 4503599627370496. - 1024 + bias;
    double f = vd_double(vd_bits(x) - ((shifted - 1024) << 52)) - 1; /* [sqrt(1/2) - 1, sqrt(2) - 1] */
    double s = f / (2 + f), z = s * s, h = 0.5 * f * f;
    double p = 0.1308723619665962;
    p = p * z + 0.13268714792348096;
    p = p * z + 0.15386241881938595;
    p = p * z + 0.18181795600060793;
    p = p * z + 0.22222222392089008;
    p = p * z + 0.28571428570801954;
    p = p * z + 0.4000000000000088;
    p = p * z + 0.6666666666666666;
    return k * VD_LN2_HI - ((h - (s * (h + z * p) + k * VD_LN2_LO)) - f);
}

static inline double vd_log(double x)
{
    double scaled = x < 2.2250738585072014e-308 ? x * 18014398509481984. : x;
    double bias = x < 2.2250738585072014e-308 ? -54. : 0.;
    double y = vd_log_normal(scaled, bias);
    y = x < (double)INFINITY ? y : x;
    return x > 0 ? y : x == 0 ? -(double)INFINITY : (double)NAN;
}

static inline double vd_log1p(double x)
{
    double u = 1 + x;
    double lost = (x - (u - 1)) / u; /* the error of rounding u, to first order */
    lost = u > 0 ? lost : 0;
    lost = u < (double)INFINITY ? lost : 0;
    return vd_log(u) + lost;
}

static inline double vd_tanh(double x)
{
    double a = fabs(x);
    a = a > 22. ? 22. : a;
    double t = vd_expm1(2 * a);
    return copysign(t / (t + 2), x);
}

static inline double vd_sigmoid(double x)
{
    double e = vd_exp(-fabs(x));
    double r = 1 / (1 + e);
    return x >= 0 ? r : e * r;
}

/* log(1 + exp(x)) */
static inline double vd_softplus(double x)
{
    double e = vd_exp(-fabs(x)); /* [0, 1] */
    double u = 1 + e;
    double lost = (e - (u - 1)) / u;
    return (x > 0 ? x : 0) + (vd_log_normal(u, 0) + lost);
}

/* erf(x), given exp(-x^2). */
static inline double vd_erf_with(double x, double e)
{
    double a = fabs(x);
    a = a > 6. ? 6. : a;
    double t = a * a; /* a in [0, 1] */
    double p = 5.957176147748911e-11;
    p = p * t + -1.1372848856791674e-09;
    p = p * t + 1.4659775274047436e-08;
    p = p * t + -1.6350312701054695e-07;
    p = p * t + 1.6461000484121368e-06;
    p = p * t + -1.4925595266831182e-05;
    p = p * t + 0.0001205533111164271;
    p = p * t + -0.000854832698083379;
    p = p * t + 0.0052239776248180145;
    p = p * t + -0.026866170645076792;
    p = p * t + 0.11283791670954879;
    p = p * t + -0.3761263890318375;
    p = p * t + 1.1283791670955126;
    double s = (a - 2) / (a + 2); /* (1 + 2 a) erfc(a) exp(a^2), a in [1, 6] */
    double q = 1.0923519568424602e-05;
    q = q * s + -1.4074763120545216e-05;
    q = q * s + -3.896023943591018e-05;
    q = q * s + -7.732504942759847e-07;
    q = q * s + 0.00015138939943308723;
    q = q * s + 0.00020622298352353452;
    q = q * s + -0.00045436367347200164;
    q = q * s + -0.0014568013120680693;
    q = q * s + 0.0012713396464095273;
    q = q * s + 0.008722653320714637;
    q = q * s + -0.008034015088992756;
    q = q * s + -0.054220000980438124;
    q = q * s + 0.1640512800334108;
    q = q * s + -0.16603039761538094;
    q = q * s + -0.09276382658574567;
    q = q * s + 1.2769783815525289;
    return copysign(a < 1 ? a * p : 1 - e * q / (1 + 2 * a), x);
}

static inline double vd_erf(double x)
{
    double y = vd_erf_with(x, vd_exp(-x * x));
    return x == x ? y : x;
}

/* sqrt(2/pi) (x + 0.044715 x^3), times two: gelu(x) is about x sigmoid of it. */
static inline double vd_gelu_argument(double x)
{
    return 1.59576912160573071176 * (x + 0.044715 * x * x * x);
}

static inline double vd_gelu_tanh(double x)
{
    return x * vd_sigmoid(vd_gelu_argument(x));
}

static inline double vd_gelu_tanh_slope(double x)
{
    double u = vd_gelu_argument(x);
    double e = vd_exp(-fabs(u)), r = 1 / (1 + e);
    double s = u >= 0 ? r : e * r, t = u >= 0 ? e * r : r; /* sigmoid(u), sigmoid(-u) */
    return s + x * (s * t) * (1.59576912160573071176 * (1 + 0.134145 * x * x));
}

static inline double vd_gelu_erf(double x)
{
    return 0.5 * x * (1 + vd_erf(x * 0.70710678118654752440));
}

static inline double vd_gelu_erf_slope(double x)
{
    double e = vd_exp(-0.5 * x * x);
    double y = 0.5 * (1 + vd_erf_with(x * 0.70710678118654752440, e)) + x * 0.39894228040143267794 * e;
    return x == x ? y : x;
}

#endif
