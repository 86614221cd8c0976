/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C. The processor's instruction handles eight bytes with a latency of three cycles, so three independent streams
 * keep it busy; their results are joined by multiplying with powers of x. Elsewhere: eight bytes a step from tables
 * that are built on the stack, so that nothing is global. */
#include "base/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

/* a * b mod P, both reflected: bit 31 is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = (b >> 1) ^ ((b & 1) ? POLYNOMIAL : 0);
    }
    return product;
}

/* x^bits mod P, reflected. */
static uint32_t power_of_x(uint64_t bits)
{
    uint32_t result = 0x80000000u, square = 0x40000000u;
    for (; bits; bits >>= 1) {
        if (bits & 1) result = multiply(result, square);
        square = multiply(square, square);
    }
    return result;
}

uint32_t lc__crc32c_combine(uint32_t a, uint32_t b, uint64_t b_bytes)
{
    /* The length in bits may need more than 64 bits; x^8 to the power of the bytes does not. */
    uint32_t result = 0x80000000u, square = power_of_x(8);
    for (uint64_t n = b_bytes; n; n >>= 1) {
        if (n & 1) result = multiply(result, square);
        square = multiply(square, square);
    }
    return multiply(a, result) ^ b;
}

uint32_t lc__crc32c_plain(uint32_t crc, const void *data, size_t n)
{
    const uint8_t *p = data;
    crc = ~crc;
    if (n >= 4096) {
        uint32_t table[8][256];
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = (c >> 1) ^ ((c & 1) ? POLYNOMIAL : 0);
            table[0][i] = c;
        }
        for (uint32_t i = 0; i < 256; i++)
            for (int k = 1; k < 8; k++) table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255];
        for (; n >= 8; n -= 8, p += 8) {
            uint32_t lo = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
            crc = table[7][lo & 255] ^ table[6][lo >> 8 & 255] ^ table[5][lo >> 16 & 255] ^ table[4][lo >> 24] ^
                  table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
        }
    }
    for (; n; n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) crc = (crc >> 1) ^ ((crc & 1) ? POLYNOMIAL : 0);
    }
    return ~crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define STREAM 2048 /* bytes a stream; three of them a round */

/* x^(8*bytes - 33) mod P: a carry-less product of two reflected 32-bit words is off by one bit, and the crc32
 * instruction that reduces it multiplies by x^32. Constants of STREAM and 2*STREAM; the tests compare with the plain
 * form. */
#define FOLD_1 0xa51b6135u
#define FOLD_2 0x82f89c77u

__attribute__((target("sse4.2,pclmul"))) static uint64_t fold(uint64_t crc, uint32_t factor)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)factor), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t c = ~crc;
    for (; n >= 3 * STREAM; n -= 3 * STREAM, p += 3 * STREAM) {
        uint64_t c1 = 0, c2 = 0;
        for (size_t i = 0; i < STREAM; i += 8) {
            c = _mm_crc32_u64(c, load64(p + i));
            c1 = _mm_crc32_u64(c1, load64(p + STREAM + i));
            c2 = _mm_crc32_u64(c2, load64(p + 2 * STREAM + i));
        }
        c = fold(c, FOLD_2) ^ fold(c1, FOLD_1) ^ c2;
    }
    for (; n >= 8; n -= 8, p += 8) c = _mm_crc32_u64(c, load64(p));
    for (; n; n--) c = _mm_crc32_u8((uint32_t)c, *p++);
    return ~(uint32_t)c;
}

uint32_t lc__crc32c(uint32_t crc, const void *data, size_t n)
{
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return crc32c_sse42(crc, data, n);
    return lc__crc32c_plain(crc, data, n);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

uint32_t lc__crc32c(uint32_t crc, const void *data, size_t n)
{
    const uint8_t *p = data;
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        crc = __crc32cd(crc, v);
    }
    for (; n; n--) crc = __crc32cb(crc, *p++);
    return ~crc;
}

#else

uint32_t lc__crc32c(uint32_t crc, const void *data, size_t n)
{
    return lc__crc32c_plain(crc, data, n);
}

#endif
