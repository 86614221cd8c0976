/* SPDX-License-Identifier: Apache-2.0 */
#include "image/resize_rows.h"

#include <stdbool.h>

/* Negative weights may lead beyond the values of a byte. */
static uint8_t byte_of(int32_t sum, int bits)
{
    sum >>= bits;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void rgb_along_x(const lc__resize_weights *a, const uint8_t *row, int64_t i, uint8_t *to)
{
    const uint8_t *p = row + 3 * a->first[i];
    const int16_t *w = a->weights + i * a->taps;
    const int32_t half = 1 << (a->bits - 1);
    int32_t red = half, green = half, blue = half;
    for (int64_t k = 0; k < a->n[i]; k++, p += 3) {
        red += p[0] * w[k];
        green += p[1] * w[k];
        blue += p[2] * w[k];
    }
    to[0] = byte_of(red, a->bits);
    to[1] = byte_of(green, a->bits);
    to[2] = byte_of(blue, a->bits);
}

static void pixel_along_x(const lc__resize_weights *a, const uint8_t *row, int64_t i, uint8_t *to)
{
    const uint8_t *p = row + a->channels * a->first[i];
    const int16_t *w = a->weights + i * a->taps;
    for (int c = 0; c < a->channels; c++, p++) {
        int32_t sum = 1 << (a->bits - 1);
        for (int64_t k = 0; k < a->n[i]; k++) sum += p[a->channels * k] * w[k];
        to[c] = byte_of(sum, a->bits);
    }
}

static void row_along_x(const lc__resize_weights *a, const uint8_t *row, int64_t begin, uint8_t *to)
{
    for (int64_t i = begin; i < a->to; i++)
        if (a->channels == 3)
            rgb_along_x(a, row, i, to + 3 * i);
        else
            pixel_along_x(a, row, i, to + a->channels * i);
}

static void bytes_along_y(const uint8_t *rows, size_t stride, size_t width, int64_t n, const int16_t *w, int bits,
                          size_t begin, uint8_t *to)
{
    for (size_t x = begin; x < width; x++) {
        int32_t sum = 1 << (bits - 1);
        for (int64_t k = 0; k < n; k++) sum += rows[(size_t)k * stride + x] * w[k];
        to[x] = byte_of(sum, bits);
    }
}

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

/* Four pixels at a time, as pairs (red 0, red 1, green 0, green 1, ...), which are multiplied by pairs of weights. The
 * load reads 16 bytes for 12; results at the end of the row, where there are fewer, are the caller's. Returns how many
 * were done. */
__attribute__((target("avx2"))) static int64_t along_x_avx2(const lc__resize_weights *a, const uint8_t *row,
                                                            int64_t from, uint8_t *to)
{
    const __m256i pairs =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, /* pixels 0 and 1 */
                         6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m128i half = _mm_set1_epi32(1 << (a->bits - 1)), shift = _mm_cvtsi32_si128(a->bits);
    int64_t i = 0;
    for (; i < a->to; i++) {
        const int64_t n = (a->n[i] + 3) & ~(int64_t)3;
        const uint8_t *p = row + 3 * a->first[i];
        const int16_t *w = a->weights + i * a->taps;
        if (3 * (a->first[i] + n) + 4 > 3 * from) break;
        __m256i sum = _mm256_setzero_si256();
        for (int64_t k = 0; k < n; k += 4, p += 12) {
            const __m256i pixels = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
            const __m256i weights = _mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)(w + k)));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, pairs),
                                                          _mm256_permutevar8x32_epi32(weights, spread)));
        }
        __m128i all = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        all = _mm_sra_epi32(_mm_add_epi32(all, half), shift);
        all = _mm_packus_epi16(_mm_packus_epi32(all, all), all);
        const uint32_t bytes = (uint32_t)_mm_cvtsi128_si32(all);
        memcpy(to + 3 * i, &bytes, 3);
    }
    return i;
}

/* Sixteen bytes at a time, of two rows each, from byte x on. Returns how many were done. */
__attribute__((target("avx2"))) static size_t along_y_avx2(const uint8_t *rows, size_t stride, size_t width, int64_t n,
                                                           const int16_t *w, int bits, size_t x, uint8_t *to)
{
    const __m256i half = _mm256_set1_epi32(1 << (bits - 1));
    const __m128i shift = _mm_cvtsi32_si128(bits);
    for (; x + 16 <= width; x += 16) {
        __m256i low = half, high = half;
        for (int64_t k = 0; k < n; k += 2) {
            const uint8_t *p = rows + (size_t)k * stride + x;
            const bool two = k + 1 < n;
            const __m128i a = _mm_loadu_si128((const __m128i *)p);
            const __m128i b = two ? _mm_loadu_si128((const __m128i *)(p + stride)) : _mm_setzero_si128();
            const __m256i weights =
                _mm256_set1_epi32((int32_t)((uint16_t)w[k] | (uint32_t)(uint16_t)(two ? w[k + 1] : 0) << 16));
            const __m256i first = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
            const __m256i second = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(first, weights));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(second, weights));
        }
        /* Packing works within halves: the quarters come back in order by the permutation. */
        __m256i words = _mm256_packus_epi32(_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
        words = _mm256_permute4x64_epi64(words, 0xD8);
        const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(to + x), bytes);
    }
    return x;
}

/* The same with twice as many bytes. */
__attribute__((target("avx512bw"))) static size_t along_y_avx512(const uint8_t *rows, size_t stride, size_t width,
                                                                 int64_t n, const int16_t *w, int bits, uint8_t *to)
{
    const __m512i half = _mm512_set1_epi32(1 << (bits - 1)), zero = _mm512_setzero_si512();
    const __m128i shift = _mm_cvtsi32_si128(bits);
    size_t x = 0;
    for (; x + 32 <= width; x += 32) {
        __m512i low = half, high = half;
        for (int64_t k = 0; k < n; k += 2) {
            const uint8_t *p = rows + (size_t)k * stride + x;
            const bool two = k + 1 < n;
            const __m256i a = _mm256_loadu_si256((const __m256i *)p);
            const __m256i b = two ? _mm256_loadu_si256((const __m256i *)(p + stride)) : _mm256_setzero_si256();
            const __m512i weights =
                _mm512_set1_epi32((int32_t)((uint16_t)w[k] | (uint32_t)(uint16_t)(two ? w[k + 1] : 0) << 16));
            const __m512i first = _mm512_cvtepu8_epi16(_mm256_unpacklo_epi8(a, b));
            const __m512i second = _mm512_cvtepu8_epi16(_mm256_unpackhi_epi8(a, b));
            low = _mm512_add_epi32(low, _mm512_madd_epi16(first, weights));
            high = _mm512_add_epi32(high, _mm512_madd_epi16(second, weights));
        }
        const __m128i first = _mm512_cvtusepi32_epi8(_mm512_max_epi32(_mm512_sra_epi32(low, shift), zero));
        const __m128i second = _mm512_cvtusepi32_epi8(_mm512_max_epi32(_mm512_sra_epi32(high, shift), zero));
        _mm_storeu_si128((__m128i *)(to + x), _mm_unpacklo_epi64(first, second));
        _mm_storeu_si128((__m128i *)(to + x + 16), _mm_unpackhi_epi64(first, second));
    }
    return x;
}

void lc__resize_along_x(const lc__resize_weights *a, const uint8_t *row, int64_t from, uint8_t *to)
{
    const bool vectors = a->channels == 3 && __builtin_cpu_supports("avx2");
    row_along_x(a, row, vectors ? along_x_avx2(a, row, from, to) : 0, to);
}

void lc__resize_along_y(const uint8_t *rows, size_t stride, size_t width, int64_t n, const int16_t *w, int bits,
                        uint8_t *to)
{
    size_t done = 0;
    if (__builtin_cpu_supports("avx512bw")) done = along_y_avx512(rows, stride, width, n, w, bits, to);
    if (__builtin_cpu_supports("avx2")) done = along_y_avx2(rows, stride, width, n, w, bits, done, to);
    bytes_along_y(rows, stride, width, n, w, bits, done, to);
}

#else

void lc__resize_along_x(const lc__resize_weights *a, const uint8_t *row, int64_t from, uint8_t *to)
{
    (void)from;
    row_along_x(a, row, 0, to);
}

void lc__resize_along_y(const uint8_t *rows, size_t stride, size_t width, int64_t n, const int16_t *w, int bits,
                        uint8_t *to)
{
    bytes_along_y(rows, stride, width, n, w, bits, 0, to);
}

#endif
