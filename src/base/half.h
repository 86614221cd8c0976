/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16 as bit patterns, in plain C. Rounding is to nearest, ties to even, or random. */
#ifndef LC_BASE_HALF_H
#define LC_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float lc__bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t lc__f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* stays NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float lc__f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023, bits;
    if (exponent == 0) { /* zero and subnormals: exact as float */
        float f = (float)fraction * (1.0f / 16777216);
        memcpy(&bits, &f, sizeof bits);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7f800000 | fraction << 13;
    } else {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t lc__f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and more round to infinity */
    if (bits < 0x38800000) {                      /* below 2^-14: subnormal; adding 0.5 rounds at 2^-24 */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

/* Stochastic rounding, by a word of random bits: to one of both neighbors, such that the mean is f. Numbers beyond the
 * largest one become that, and infinite only where the next one would be (2^128, 65536). Without branches, so that
 * compilers vectorize loops. */
static inline uint16_t lc__f32_to_bf16_random(float f, uint32_t word)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, m = bits & 0x7fffffff;
    uint32_t h = (m + (word >> 16)) >> 16;
    h = h >= 0x7f80 && m < 0x7f800000 ? 0x7f7f : h;
    h = m > 0x7f800000 ? bits >> 16 | 0x40 : h; /* stays NaN */
    return (uint16_t)(sign | h);
}

static inline uint16_t lc__f32_to_f16_random(float f, uint32_t word)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, m = bits & 0x7fffffff;
    /* Below 2^-14 there are multiples of 2^-24. The fraction is exact. */
    const uint32_t tiny = m < 0x38800000 ? m : 0;
    float x;
    memcpy(&x, &tiny, sizeof x);
    x *= 0x1p24f;
    const int32_t whole = (int32_t)x;
    const uint32_t small = (uint32_t)(whole + ((float)(int32_t)(word >> 8) * 0x1p-24f < x - (float)whole));
    uint32_t h = (m - 0x38000000 + (word >> 19)) >> 13;
    h = h >= 0x7c00 ? 0x7bff : h;
    h = m >= 0x47800000 ? 0x7c00 : h;
    h = m > 0x7f800000 ? 0x7e00 : h;
    h = m < 0x38800000 ? small : h;
    return (uint16_t)(sign | h);
}

#endif
