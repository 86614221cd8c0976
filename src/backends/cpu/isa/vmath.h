/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions on f32 that the compiler can turn into vector code: no branches, no calls, no tables.
 *
 * Polynomials were fitted by interpolation at Chebyshev nodes of the ranges given with them. Errors stay within a few
 * units in the last place (tests/backends/test_cpu_kernels.c measures them); NaN, infinities, zeros and denormals
 * behave as in the C library. To add a function: write it without loops and branches, and add a line to that test. */
#ifndef LC_BACKENDS_CPU_ISA_VMATH_H
#define LC_BACKENDS_CPU_ISA_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Iterations of the next loop are independent (the result may have exactly the address of an input). */
#if defined(__clang__)
#define LC_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LC_IVDEP _Pragma("GCC ivdep")
#endif

static inline uint32_t vm_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float vm_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Adding it to a small number leaves the nearest integer in the low bits of the mantissa. */
#define VM_ROUND      12582912.f
#define VM_ROUND_BITS 0x4B400000u
#define VM_LN2_HI     0.693359375f
#define VM_LN2_LO     -2.12194440e-4f

/* x = n ln 2 + r; expm1(r) = vm_expm1_reduced(r) for |r| <= ln 2 / 2. */
static inline float vm_reduce(float x, int32_t *n)
{
    float t = x * 1.44269504f + VM_ROUND;
    float k = t - VM_ROUND;
    *n = (int32_t)(vm_bits(t) - VM_ROUND_BITS);
    return (x - k * VM_LN2_HI) - k * VM_LN2_LO;
}

static inline float vm_expm1_reduced(float r)
{
    float p = 0.001392625083f;
    p = p * r + 0.008363232884f;
    p = p * r + 0.04166655421f;
    p = p * r + 0.1666657667f;
    p = p * r + 0.5f;
    return r + r * r * p;
}

static inline float vm_exp(float x)
{
    x = x > 89.f ? 89.f : x;
    x = x < -104.f ? -104.f : x;
    int32_t n;
    float y = 1.f + vm_expm1_reduced(vm_reduce(x, &n));
    /* In two steps, so that results below the smallest normal number are right. */
    int32_t half = n >> 1;
    return y * vm_float((uint32_t)(half + 127) << 23) * vm_float((uint32_t)(n - half + 127) << 23);
}

static inline float vm_expm1(float x0)
{
    float x = x0 > 89.f ? 89.f : x0;
    x = x < -18.f ? -18.f : x;
    int32_t n;
    float p = vm_expm1_reduced(vm_reduce(x, &n));
    /* Half of the result, so that 2^n does not overflow before the result does. */
    float s = vm_float((uint32_t)(n + 126) << 23);
    float y = (p * s + (s - 0.5f)) * 2.f;
    return fabsf(x0) < 1e-7f ? x0 : y;
}

/* log(x) + bias ln 2 for normal, finite x > 0. */
static inline float vm_log_normal(float x, float bias)
{
    uint32_t u = vm_bits(x);
    int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
    float f = vm_float(u - ((uint32_t)e << 23)) - 1.f; /* [sqrt(1/2) - 1, sqrt(2) - 1] */
    float k = (float)e + bias;
    float p = 0.06971611471f;
    p = p * f + -0.1147973385f;
    p = p * f + 0.1168541992f;
    p = p * f + -0.1242568733f;
    p = p * f + 0.1424905765f;
    p = p * f + -0.1666780232f;
    p = p * f + 0.2000071575f;
    p = p * f + -0.2499999696f;
    p = p * f + 0.3333333118f;
    float s = f * f;
    return k * VM_LN2_HI + (f + (s * (f * p - 0.5f) + k * VM_LN2_LO));
}

static inline float vm_log(float x)
{
    float scaled = x < 1.17549435e-38f ? x * 8388608.f : x;
    float bias = x < 1.17549435e-38f ? -23.f : 0.f;
    float y = vm_log_normal(scaled, bias);
    y = x < INFINITY ? y : x;
    return x > 0.f ? y : x == 0.f ? -INFINITY : NAN;
}

static inline float vm_log1p(float x)
{
    float u = 1.f + x;
    float lost = (x - (u - 1.f)) / u; /* the error of rounding u, to first order */
    lost = u > 0.f ? lost : 0.f;
    lost = u < INFINITY ? lost : 0.f;
    return vm_log(u) + lost;
}

static inline float vm_tanh(float x)
{
    float a = fabsf(x);
    a = a > 10.f ? 10.f : a;
    float t = vm_expm1(2.f * a);
    return copysignf(t / (t + 2.f), x);
}

static inline float vm_sigmoid(float x)
{
    float e = vm_exp(-fabsf(x));
    float r = 1.f / (1.f + e);
    return x >= 0.f ? r : e * r;
}

/* log(1 + exp(x)) */
static inline float vm_softplus(float x)
{
    float e = vm_exp(-fabsf(x)); /* [0, 1] */
    float u = 1.f + e;
    float lost = (e - (u - 1.f)) / u;
    return (x > 0.f ? x : 0.f) + (vm_log_normal(u, 0.f) + lost);
}

static inline float vm_erf(float x)
{
    float a = fabsf(x);
    a = a > 4.f ? 4.f : a;
    float t = a * a;
    float p = 7.875875063e-5f; /* a in [0, 1] */
    p = p * t + -0.0008016864287f;
    p = p * t + 0.005189087423f;
    p = p * t + -0.02685421201f;
    p = p * t + 0.1128359472f;
    p = p * t + -0.3761262667f;
    p = p * t + 1.128379166f;
    float q = 1.639938016e-6f; /* log erfc(a), a in [1, 4] */
    q = q * a + -4.611291391e-5f;
    q = q * a + 0.0005972644331f;
    q = q * a + -0.004761717236f;
    q = q * a + 0.02642704377f;
    q = q * a + -0.1100901975f;
    q = q * a + -0.6318156996f;
    q = q * a + -1.130239201f;
    q = q * a + 0.0003214710264f;
    return copysignf(a < 1.f ? a * p : 1.f - vm_exp(q), x);
}

/* sqrt(2/pi) (x + 0.044715 x^3), times two: gelu(x) is about x sigmoid of it. */
static inline float vm_gelu_argument(float x)
{
    return 1.5957691216f * (x + 0.044715f * x * x * x);
}

static inline float vm_gelu_tanh(float x)
{
    return x * vm_sigmoid(vm_gelu_argument(x));
}

static inline float vm_gelu_tanh_slope(float x)
{
    float u = vm_gelu_argument(x);
    float e = vm_exp(-fabsf(u)), r = 1.f / (1.f + e);
    float s = u >= 0.f ? r : e * r, t = u >= 0.f ? e * r : r; /* sigmoid(u), sigmoid(-u) */
    return s + x * (s * t) * (1.5957691216f * (1.f + 0.134145f * x * x));
}

static inline float vm_gelu_erf(float x)
{
    return 0.5f * x * (1.f + vm_erf(x * 0.70710678119f));
}

static inline float vm_gelu_erf_slope(float x)
{
    return 0.5f * (1.f + vm_erf(x * 0.70710678119f)) + x * (0.39894228040f * vm_exp(-0.5f * x * x));
}

/* sin(x + quarter * pi/2) for |x| <= VM_SIN_LIMIT; the reduction is done in double. */
#define VM_SIN_LIMIT 1e5f
static inline float vm_sin_shifted(float x, int32_t quarter)
{
    double d = (double)x;
    double t = d * 0.63661977236758134308 + 6755399441055744.0;
    double k = t - 6755399441055744.0;
    /* pi/2 as a part of 33 bits, which k multiplies exactly, and the rest. */
    float r = (float)((d - k * 1.57079632673412561417e+00) - k * 6.07710050650619224932e-11);
    int32_t n = (int32_t)k + quarter;
    float s = r * r;
    float a = 2.724686872e-6f;
    a = a * s + -0.0001984006304f;
    a = a * s + 0.008333331831f;
    a = a * s + -0.1666666666f;
    a = r + r * s * a;
    float b = -2.729840765e-7f;
    b = b * s + 2.480058060e-5f;
    b = b * s + -0.001388888764f;
    b = b * s + 0.04166666666f;
    b = 1.f - 0.5f * s + s * s * b;
    float y = n & 1 ? b : a;
    return n & 2 ? -y : y;
}

static inline float vm_sin(float x)
{
    float y = vm_sin_shifted(x, 0);
    return x == 0.f ? x : y;
}

static inline float vm_cos(float x)
{
    return vm_sin_shifted(x, 1);
}

#endif
