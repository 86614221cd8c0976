/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to floats, the inner loop of every image gather. Multiplication and addition stay separate (no fused
 * multiply-add), so that all variants give the same bits. */
#include "data_internal.h"

static void u8_f32_portable(const uint8_t *src, float *dst, int64_t n, float scale, float shift)
{
    for (int64_t i = 0; i < n; i++) dst[i] = (float)src[i] * scale + shift;
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static void u8_f32_avx2(const uint8_t *src, float *dst, int64_t n, float scale,
                                                        float shift)
{
    const __m256 a = _mm256_set1_ps(scale), b = _mm256_set1_ps(shift);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(src + i));
        __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
        _mm256_storeu_ps(dst + i, _mm256_add_ps(_mm256_mul_ps(lo, a), b));
        _mm256_storeu_ps(dst + i + 8, _mm256_add_ps(_mm256_mul_ps(hi, a), b));
    }
    u8_f32_portable(src + i, dst + i, n - i, scale, shift);
}

void lc__convert_u8_f32(const uint8_t *src, float *dst, int64_t n, float scale, float shift)
{
    if (__builtin_cpu_supports("avx2"))
        u8_f32_avx2(src, dst, n, scale, shift);
    else
        u8_f32_portable(src, dst, n, scale, shift);
}

#else

void lc__convert_u8_f32(const uint8_t *src, float *dst, int64_t n, float scale, float shift)
{
    u8_f32_portable(src, dst, n, scale, shift);
}

#endif
