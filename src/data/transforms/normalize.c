/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes or floats to floats around zero; to_tensor is the case of bytes without means.
 *
 * With bytes, x / 255, its difference from the mean and the division by the deviation become one product and one sum.
 */
#include "data/transforms/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHANNELS 64

typedef struct normalize {
    const char *name;
    int n;
    float mean[MAX_CHANNELS], std[MAX_CHANNELS];
    /* For bytes, x * by + add: the channels of eight pixels one after the other, as in pixels with channels. */
    float by[8 * MAX_CHANNELS], add[8 * MAX_CHANNELS];
} normalize;

static lc_status normalize_describe(void *self, const lc_field *in, lc_field *out)
{
    const normalize *t = self;
    const bool only_bytes = t->name != NULL;
    *out = *in;
    out->dtype = LC_F32;
    if (in->dtype != LC_U8 && (only_bytes || in->dtype != LC_F32))
        return lc_fail(LC_ERR_DTYPE, "%s expects u8%s, but field '%s' is %s", only_bytes ? t->name : "normalize",
                       only_bytes ? "" : " or f32", in->name, lc_dtype_name(in->dtype));
    if (t->n == 1) return LC_OK;
    lc__picture m;
    LC_TRY(lc__picture_of("normalize", in, &m));
    if (m.channels != t->n)
        return lc_fail(LC_ERR_SHAPE, "normalize has means for %d channels, but field '%s' has %lld", t->n, in->name,
                       (long long)m.channels);
    return LC_OK;
}

/* ---- floats ---- */

static void from_floats(const normalize *t, const float *s, float *d, int64_t n, bool last)
{
    if (last) {
        for (int64_t i = 0; i < n; i += t->n)
            for (int c = 0; c < t->n; c++) d[i + c] = (s[i + c] - t->mean[c]) / t->std[c];
        return;
    }
    int64_t plane = n / t->n;
    for (int c = 0; c < t->n; c++)
        for (int64_t i = c * plane; i < (c + 1) * plane; i++) d[i] = (s[i] - t->mean[c]) / t->std[c];
}

/* ---- bytes ---- */

/* The factors of number i are by[i % period]; returns how many of n were done. */
#if defined(__x86_64__)
#include <immintrin.h>

/* Past the caches a line is not read before it is written, which takes half as long if it is not in them. */
__attribute__((target("avx2"), always_inline)) static inline int64_t
loop_avx2(const uint8_t *s, float *d, int64_t n, const float *by, const float *add, int64_t period, bool streams)
{
    int64_t i = 0;
    for (; i + period <= n; i += period)
        for (int64_t k = 0; k < period; k += 8) {
            const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(s + i + k)));
            const __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(bytes), _mm256_loadu_ps(by + k));
            const __m256 y = _mm256_add_ps(x, _mm256_loadu_ps(add + k));
            if (streams)
                _mm256_stream_ps(d + i + k, y);
            else
                _mm256_storeu_ps(d + i + k, y);
        }
    return i;
}

__attribute__((target("avx2"))) static int64_t run_avx2(const uint8_t *s, float *d, int64_t n, const float *by,
                                                        const float *add, int64_t period, bool streams)
{
    const bool past = streams && (uintptr_t)d % 32 == 0;
    return past ? loop_avx2(s, d, n, by, add, period, true) : loop_avx2(s, d, n, by, add, period, false);
}

static int64_t run_vectors(const uint8_t *s, float *d, int64_t n, const float *by, const float *add, int64_t period,
                           bool streams)
{
    return __builtin_cpu_supports("avx2") ? run_avx2(s, d, n, by, add, period, streams) : 0;
}
#else
static int64_t run_vectors(const uint8_t *s, float *d, int64_t n, const float *by, const float *add, int64_t period,
                           bool streams)
{
    (void)s, (void)d, (void)n, (void)by, (void)add, (void)period, (void)streams;
    return 0;
}
#endif

static void run(const uint8_t *s, float *d, int64_t n, const float *by, const float *add, int64_t channels,
                bool streams)
{
    int64_t i = run_vectors(s, d, n, by, add, 8 * channels, streams);
    for (; i < n; i += channels)
        for (int64_t c = 0; c < channels; c++) d[i + c] = (float)s[i + c] * by[c] + add[c];
}

static void from_bytes(const normalize *t, const uint8_t *s, float *d, int64_t n, bool last, bool streams)
{
    if (last) {
        run(s, d, n, t->by, t->add, t->n, streams);
        return;
    }
    const int64_t plane = n / t->n;
    for (int c = 0; c < t->n; c++) {
        float by[8], add[8];
        for (int k = 0; k < 8; k++) {
            by[k] = t->by[c];
            add[k] = t->add[c];
        }
        run(s + c * plane, d + c * plane, plane, by, add, 1, streams);
    }
}

/* Without means, as PyTorch divides. */
static void divided(const uint8_t *s, float *d, int64_t n)
{
    float table[256];
    for (int v = 0; v < 256; v++) table[v] = (float)v / 255.0f;
    for (int64_t i = 0; i < n; i++) d[i] = table[s[i]];
}

static void apply(const normalize *t, const lc_field *in, const void *src, void *dst, bool streams)
{
    const bool last = t->n > 1 && in->layout == LC_CHANNELS_LAST;
    const int64_t n = lc_field_numel(in);
    if (t->name)
        divided(src, dst, n);
    else if (in->dtype == LC_U8)
        from_bytes(t, src, dst, n, last, streams);
    else
        from_floats(t, src, dst, n, last);
}

static lc_status normalize_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                 uint64_t key, void *scratch)
{
    (void)out, (void)key, (void)scratch;
    apply(self, in, src, dst, false);
    return LC_OK;
}

static lc_status normalize_apply_streaming(void *self, const lc_field *in, const void *src, const lc_field *out,
                                           void *dst, uint64_t key, void *scratch)
{
    (void)out, (void)key, (void)scratch;
    apply(self, in, src, dst, true);
    return LC_OK;
}

static const lc_transform_ops normalize_ops = {
    LC_TRANSFORM_OPS_INIT,          .name = "normalize",    .describe = normalize_describe,
    .apply = normalize_apply,       .free = lc__owned_free, .apply_streaming = normalize_apply_streaming,
    .self_size = sizeof(normalize), .by_rows = true,
};

static const lc_transform_ops to_tensor_ops = {
    LC_TRANSFORM_OPS_INIT,    .name = "to_tensor",    .describe = normalize_describe,
    .apply = normalize_apply, .free = lc__owned_free, .self_size = sizeof(normalize),
    .by_rows = true,
};

lc_status lc_transform_to_tensor(lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const normalize t = {.name = "to_tensor", .n = 1};
    return lc__transform_make(&to_tensor_ops, &t, sizeof t, out);
}

lc_status lc_transform_normalize(int n, const double *mean, const double *std, lc_transform *out)
{
    if (n > 0) LC__NEEDS(mean, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(std, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    normalize t = {.n = n};
    *out = (lc_transform){0};
    if (n < 1 || n > MAX_CHANNELS)
        return lc_fail(LC_ERR_ARGUMENT, "normalize takes 1 to %d channels, not %d", MAX_CHANNELS, n);
    for (int c = 0; c < n; c++) {
        if (!(std[c] > 0.0) || !isfinite(mean[c]))
            return lc_fail(LC_ERR_ARGUMENT,
                           "normalize: channel %d has the mean %g and the deviation %g; it must be positive", c,
                           mean[c], std[c]);
        t.mean[c] = (float)mean[c];
        t.std[c] = (float)std[c];
    }
    for (int k = 0; k < 8 * n; k++) {
        t.by[k] = (float)(1 / (255 * std[k % n]));
        t.add[k] = (float)(-mean[k % n] / std[k % n]);
    }
    return lc__transform_make(&normalize_ops, &t, sizeof t, out);
}
