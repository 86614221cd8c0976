/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of numbers on their way into a batch. To whole numbers only from types whose values all fit; to floats
 * from all, with a scale and a shift. Multiplication and addition stay separate (no fused multiply-add), so that all
 * variants give the same bits. */
#include "base/half.h"
#include "base/pool.h"
#include "data_internal.h"

/* ---- bytes to floats, the inner loop of every image gather ---- */

static void u8_f32_portable(const uint8_t *src, float *dst, int64_t n, float scale, float shift)
{
    for (int64_t i = 0; i < n; i++) dst[i] = (float)src[i] * scale + shift;
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"), always_inline)) static inline void u8_f32_loop(const uint8_t *src, float *dst, int64_t n,
                                                                              float scale, float shift, bool streams)
{
    const __m256 a = _mm256_set1_ps(scale), b = _mm256_set1_ps(shift);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(src + i))));
        const __m256 y = _mm256_add_ps(_mm256_mul_ps(x, a), b);
        if (streams)
            _mm256_stream_ps(dst + i, y);
        else
            _mm256_storeu_ps(dst + i, y);
    }
    u8_f32_portable(src + i, dst + i, n - i, scale, shift);
}

__attribute__((target("avx2"))) static void u8_f32_avx2(const uint8_t *src, float *dst, int64_t n, float scale,
                                                        float shift, bool streams)
{
    if (streams && (uintptr_t)dst % 32 == 0)
        u8_f32_loop(src, dst, n, scale, shift, true);
    else
        u8_f32_loop(src, dst, n, scale, shift, false);
}

static void u8_f32(const uint8_t *src, float *dst, int64_t n, float scale, float shift, bool streams)
{
    if (__builtin_cpu_supports("avx2"))
        u8_f32_avx2(src, dst, n, scale, shift, streams);
    else
        u8_f32_portable(src, dst, n, scale, shift);
}
#else
static void u8_f32(const uint8_t *src, float *dst, int64_t n, float scale, float shift, bool streams)
{
    (void)streams;
    u8_f32_portable(src, dst, n, scale, shift);
}
#endif

static void bytes_to_f32(const void *src, void *dst, int64_t n, double scale, double shift)
{
    u8_f32(src, dst, n, (float)scale, (float)shift, false);
}

static void bytes_past_caches(const void *src, void *dst, int64_t n, double scale, double shift)
{
    u8_f32(src, dst, n, (float)scale, (float)shift, true);
}

/* ---- all others ---- */

/* Files have numbers at any address. */
#define UNALIGNED __attribute__((aligned(1), may_alias))
typedef uint8_t UNALIGNED u8_in;
typedef int8_t UNALIGNED i8_in;
typedef uint16_t UNALIGNED u16_in;
typedef int16_t UNALIGNED i16_in;
typedef uint32_t UNALIGNED u32_in;
typedef int32_t UNALIGNED i32_in;
typedef uint64_t UNALIGNED u64_in;
typedef int64_t UNALIGNED i64_in;
typedef float UNALIGNED f32_in;
typedef double UNALIGNED f64_in;

#define SAME(v)     (v)
#define NOT_ZERO(v) ((v) != 0)

/* X(number, its name, type in memory, what makes a value of it) */
#define NUMBERS(X)                                                                                                     \
    X(F32, "f32", f32_in, SAME)                                                                                        \
    X(F64, "f64", f64_in, SAME)                                                                                        \
    X(F16, "f16", u16_in, lc__f16_to_f32)                                                                              \
    X(BF16, "bf16", u16_in, lc__bf16_to_f32)                                                                           \
    X(I64, "i64", i64_in, SAME)                                                                                        \
    X(I32, "i32", i32_in, SAME)                                                                                        \
    X(U8, "u8", u8_in, SAME)                                                                                           \
    X(BOOL, "bool", u8_in, NOT_ZERO)                                                                                   \
    X(I8, "i8", i8_in, SAME)                                                                                           \
    X(U16, "u16", u16_in, SAME)                                                                                        \
    X(I16, "i16", i16_in, SAME)                                                                                        \
    X(U32, "u32", u32_in, SAME)                                                                                        \
    X(U64, "u64", u64_in, SAME)

/* 0 becomes -0.0, which changes no number that it is added to; +0.0 would make +0.0 of -0.0. */
#define WITH_SIGN(real, shift) ((shift) == 0 ? (real)-0.0 : (real)(shift))

#define CONVERT(name, from, value, to, real, store)                                                                    \
    static void name(const void *src, void *dst, int64_t n, double scale, double shift)                                \
    {                                                                                                                  \
        const from *s = src;                                                                                           \
        to *d = dst;                                                                                                   \
        const real a = (real)scale, b = WITH_SIGN(real, shift);                                                        \
        for (int64_t i = 0; i < n; i++) d[i] = store((real)value(s[i]) * a + b);                                       \
    }
#define TO_FLOATS(number, name, from, value)                                                                           \
    CONVERT(number##_to_f32, from, value, float, float, SAME)                                                          \
    CONVERT(number##_to_f64, from, value, double, double, SAME)                                                        \
    CONVERT(number##_to_f16, from, value, uint16_t, float, lc__f32_to_f16)                                             \
    CONVERT(number##_to_bf16, from, value, uint16_t, float, lc__f32_to_bf16)
NUMBERS(TO_FLOATS)

#define WHOLE(name, from, value, to)                                                                                   \
    static void name(const void *src, void *dst, int64_t n, double scale, double shift)                                \
    {                                                                                                                  \
        (void)scale, (void)shift;                                                                                      \
        const from *s = src;                                                                                           \
        to *d = dst;                                                                                                   \
        for (int64_t i = 0; i < n; i++) d[i] = (to)value(s[i]);                                                        \
    }
/* X(from, type in memory, value, to, type) */
#define WHOLE_NUMBERS(X)                                                                                               \
    X(I32, i32_in, SAME, I64, int64_t)                                                                                 \
    X(U8, u8_in, SAME, I64, int64_t)                                                                                   \
    X(BOOL, u8_in, NOT_ZERO, I64, int64_t)                                                                             \
    X(I8, i8_in, SAME, I64, int64_t)                                                                                   \
    X(U16, u16_in, SAME, I64, int64_t)                                                                                 \
    X(I16, i16_in, SAME, I64, int64_t)                                                                                 \
    X(U32, u32_in, SAME, I64, int64_t)                                                                                 \
    X(U8, u8_in, SAME, I32, int32_t)                                                                                   \
    X(BOOL, u8_in, NOT_ZERO, I32, int32_t)                                                                             \
    X(I8, i8_in, SAME, I32, int32_t)                                                                                   \
    X(U16, u16_in, SAME, I32, int32_t)                                                                                 \
    X(I16, i16_in, SAME, I32, int32_t)                                                                                 \
    X(BOOL, u8_in, NOT_ZERO, U8, uint8_t)
#define WHOLE_OF(from, in, value, to, type) WHOLE(from##_to_##to, in, value, type)
WHOLE_NUMBERS(WHOLE_OF)

/* ---- tokens, the inner loop of every window ---- */

#if defined(__x86_64__)
/* Batches are larger than the first cache, and a loop that stores whole lines of it is as fast as memcpy; one that
 * stores halves of them reaches three quarters. */
__attribute__((target("avx512f"))) static void tokens_avx512(const void *src, int64_t *dst, int64_t n)
{
    const u16_in *s = src;
    int64_t i = 0;
    for (; i < n && ((uintptr_t)(dst + i) & 63); i++) dst[i] = s[i];
    for (; i + 32 <= n; i += 32)
        for (int64_t k = i; k < i + 32; k += 8)
            _mm512_storeu_si512(dst + k, _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)(s + k))));
    for (; i < n; i++) dst[i] = s[i];
}

__attribute__((target("avx2"))) static void tokens_avx2(const void *src, int64_t *dst, int64_t n)
{
    const u16_in *s = src;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int64_t k = i; k < i + 16; k += 4)
            _mm256_storeu_si256((__m256i *)(dst + k), _mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i *)(s + k))));
    for (; i < n; i++) dst[i] = s[i];
}

static void tokens_to_i64(const void *src, void *dst, int64_t n, double scale, double shift)
{
    if (__builtin_cpu_supports("avx512f"))
        tokens_avx512(src, dst, n);
    else if (__builtin_cpu_supports("avx2"))
        tokens_avx2(src, dst, n);
    else
        U16_to_I64(src, dst, n, scale, shift);
}
#else
#define tokens_to_i64 U16_to_I64
#endif

static const struct {
    lc__number from;
    lc_dtype to;
    lc__convert_fn *fn;
    bool scales;
} conversions[] = {{LC__U8, LC_F32, bytes_to_f32, true}, /* these two before the others of their kinds */
                   {LC__U16, LC_I64, tokens_to_i64, false},
#define FLOAT_ROWS(number, name, in, value)                                                                            \
    {LC__##number, LC_F32, number##_to_f32, true}, {LC__##number, LC_F64, number##_to_f64, true},                      \
        {LC__##number, LC_F16, number##_to_f16, true}, {LC__##number, LC_BF16, number##_to_bf16, true},
#define WHOLE_ROW(from, in, value, to, type) {LC__##from, LC_##to, from##_to_##to, false},
                   NUMBERS(FLOAT_ROWS) WHOLE_NUMBERS(WHOLE_ROW)};

bool lc__conversion(lc__number from, lc_dtype to, bool scaled, lc__convert_fn **fn)
{
    *fn = NULL;
    if ((int)from == (int)to && !scaled) return true;
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        if (conversions[i].from == from && conversions[i].to == to && (conversions[i].scales || !scaled)) {
            *fn = conversions[i].fn;
            return true;
        }
    return false;
}

lc__convert_fn *lc__conversion_into_batch(lc__convert_fn *fn)
{
    return fn == bytes_to_f32 && lc__pool_helps() ? bytes_past_caches : fn;
}

size_t lc__number_size(lc__number number)
{
    switch (number) {
#define SIZE_CASE(id, name, type, value)                                                                               \
    case LC__##id:                                                                                                     \
        return sizeof(type);
        NUMBERS(SIZE_CASE)
    default:
        return 0;
    }
}

const char *lc__number_name(lc__number number)
{
    switch (number) {
#define NAME_CASE(id, name, type, value)                                                                               \
    case LC__##id:                                                                                                     \
        return name;
        NUMBERS(NAME_CASE)
    default:
        return "?";
    }
}
