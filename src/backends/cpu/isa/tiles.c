/* SPDX-License-Identifier: Apache-2.0 */
/* One loop per elementwise operator, made from the operator's own line in elementwise_table.h: its expression, which
 * the reference kernels evaluate in double, is evaluated here in float, with the functions of vmath.h instead of the C
 * library's. Helper functions of the table need a float version in this file. */
#include "backends/cpu/isa/tiles.h"

#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/vmath.h"
#include "ops/elementwise_table.h"

#include <stdbool.h>

/* ---- the table's helpers, in float ---- */
static inline float tile_clamp(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

static inline float tile_sign(float x)
{
    return x > 0.f ? 1.f : x < 0.f ? -1.f : 0.f;
}

static inline float tile_mish_slope(float x)
{
    float t = vm_tanh(vm_softplus(x));
    return t + x * (1.f - t * t) * vm_sigmoid(x);
}

static inline float tile_smooth_l1(float d, float beta)
{
    float a = fabsf(d);
    return a < beta ? 0.5f * d * d / beta : a - 0.5f * beta;
}

static inline float tile_smooth_l1_slope(float d, float beta)
{
    float a = fabsf(d);
    return a < beta ? d / beta : d != d ? d : tile_sign(d);
}

static inline float tile_huber(float d, float delta)
{
    float a = fabsf(d);
    return a <= delta ? 0.5f * d * d : delta * (a - 0.5f * delta);
}

static inline float tile_pow(float x, float y)
{
    return powf(x, y);
}

static inline float tile_norm_slope(float x, float norm, float p)
{
    if (norm == 0.f) return 0.f;
    if (p == 2.f) return x / norm;
    if (p == 1.f) return tile_sign(x);
    if (x == 0.f) return norm == norm ? 0.f : norm;
    return tile_sign(x) * powf(fabsf(x) / norm, p - 1.f);
}

#define lc__clamp           tile_clamp
#define lc__sign            tile_sign
#define lc__sigmoid         vm_sigmoid
#define lc__softplus        vm_softplus
#define lc__gelu_tanh       vm_gelu_tanh
#define lc__gelu_tanh_slope vm_gelu_tanh_slope
#define lc__gelu_erf        vm_gelu_erf
#define lc__gelu_erf_slope  vm_gelu_erf_slope
#define lc__mish_slope      tile_mish_slope
#define lc__smooth_l1       tile_smooth_l1
#define lc__smooth_l1_slope tile_smooth_l1_slope
#define lc__huber           tile_huber
#define lc__norm_slope      tile_norm_slope
#undef LC__SELU_SCALE
#undef LC__SELU_ALPHA
#define LC__SELU_SCALE 1.0507009874f
#define LC__SELU_ALPHA 1.6732632423f
#undef isinf
#define isinf(x)  __builtin_isinf(x)
#define exp(x)    vm_exp(x)
#define log(x)    vm_log(x)
#define tanh(x)   vm_tanh(x)
#define erf(x)    vm_erf(x)
#define expm1(x)  vm_expm1(x)
#define log1p(x)  vm_log1p(x)
#define sin(x)    vm_sin(x)
#define cos(x)    vm_cos(x)
#define pow(x, y) tile_pow(x, y)
#define sqrt(x)   __builtin_sqrtf(x)
#define fabs(x)   __builtin_fabsf(x)
#define floor(x)  __builtin_floorf(x)
#define ceil(x)   __builtin_ceilf(x)
#define rint(x)   __builtin_rintf(x)
#define S(i)      p[i]

#define TILE_FUNCTION(name, inputs, floats, kind, gradient, expression)                                                \
    static void plain_##name(int64_t n, float *out, const float *const *in, const float *numbers, const int64_t *ints) \
    {                                                                                                                  \
        const float *x = in[0], *y = in[(inputs) > 1 ? 1 : 0], *z = in[(inputs) > 2 ? 2 : 0];                          \
        const float p[2] = {(floats) > 0 ? numbers[0] : 0.f, (floats) > 1 ? numbers[1] : 0.f};                         \
        const bool k[2] = {ints[0] != 0, ints[1] != 0};                                                                \
        (void)p;                                                                                                       \
        (void)k;                                                                                                       \
        LC_IVDEP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = x[i], b = y[i], c = z[i];                                                                  \
            (void)b;                                                                                                   \
            (void)c;                                                                                                   \
            out[i] = (float)(expression);                                                                              \
        }                                                                                                              \
    }
LC_ELEMENTWISE_LIST(TILE_FUNCTION)

/* ---- operators that need more than the plain loop ---- */
static bool within(int64_t n, const float *x, float limit)
{
    int outside = 0;
    for (int64_t i = 0; i < n; i++) outside |= !(fabsf(x[i]) <= limit);
    return !outside;
}

/* Far from 0 the argument reduction of vm_sin is not exact; the C library's is. */
#define TILE_TRIGONOMETRIC(name, argument, expression)                                                                 \
    static void own_##name(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)            \
    {                                                                                                                  \
        if (within(n, in[argument], VM_SIN_LIMIT)) {                                                                   \
            plain_##name(n, out, in, p, k);                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = in[0][i], b = in[argument][i];                                                             \
            (void)b;                                                                                                   \
            out[i] = expression;                                                                                       \
        }                                                                                                              \
    }
TILE_TRIGONOMETRIC(sin, 0, sinf(a))
TILE_TRIGONOMETRIC(cos, 0, cosf(a))
TILE_TRIGONOMETRIC(sin_backward, 1, a *cosf(b))
TILE_TRIGONOMETRIC(cos_backward, 1, -a *sinf(b))

static void own_pow_scalar(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)
{
    const float *x = in[0];
    if (p[0] == 2.f) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = x[i] * x[i];
    } else if (p[0] == 3.f) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = x[i] * x[i] * x[i];
    } else if (p[0] == -1.f) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = 1.f / x[i];
    } else {
        plain_pow_scalar(n, out, in, p, k);
    }
}

static void own_pow_scalar_backward(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)
{
    const float *dy = in[0], *x = in[1];
    if (p[0] == 2.f) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = dy[i] * (2.f * x[i]);
    } else if (p[0] == 3.f) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = dy[i] * (3.f * (x[i] * x[i]));
    } else {
        plain_pow_scalar_backward(n, out, in, p, k);
    }
}

static void own_softplus(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)
{
    const float *x = in[0];
    (void)p, (void)k;
    LC_IVDEP
    for (int64_t i = 0; i < n; i++) out[i] = vm_softplus(x[i]);
}

static void own_logsigmoid(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)
{
    const float *x = in[0];
    (void)p, (void)k;
    LC_IVDEP
    for (int64_t i = 0; i < n; i++) out[i] = -vm_softplus(-x[i]);
}

/* Only the requested form: the plain loop would compute both. */
static void own_gelu(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)
{
    const float *x = in[0];
    (void)p;
    if (k[0]) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = vm_gelu_tanh(x[i]);
    } else {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = vm_gelu_erf(x[i]);
    }
}

static void own_gelu_backward(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)
{
    const float *dy = in[0], *x = in[1];
    (void)p;
    if (k[0]) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = dy[i] * vm_gelu_tanh_slope(x[i]);
    } else {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = dy[i] * vm_gelu_erf_slope(x[i]);
    }
}

/* A cast to 16 bits rounds; the value stays in a float. Other casts happen when values are loaded and stored. */
static void own_cast(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k)
{
    const float *x = in[0];
    (void)p;
    if (k[0] == LC_BF16 || k[0] == LC_F16) {
        round_run((lc_dtype)k[0], n, out, x);
    } else if (k[0] == LC_BOOL) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = x[i] != 0.f ? 1.f : 0.f;
    } else {
        memmove(out, x, (size_t)n * sizeof *out);
    }
}

/* ---- the table ---- */
enum {
#define TILE_INDEX(name, ...) INDEX_##name,
    LC_ELEMENTWISE_LIST(TILE_INDEX) INDEX_COUNT
};

#define TILE_KIND_FLOAT   LC__TILE_FLOAT
#define TILE_KIND_ARITH   LC__TILE_ARITH
#define TILE_KIND_COMPARE LC__TILE_COMPARE
#define TILE_KIND_SELECT  LC__TILE_SELECT
#define TILE_KIND_FILL    LC__TILE_FILL
#define TILE_KIND_CAST    LC__TILE_CAST

#define OWN(name)                                                                                                      \
    (INDEX_##name == INDEX_sin                   ? own_sin                                                             \
     : INDEX_##name == INDEX_cos                 ? own_cos                                                             \
     : INDEX_##name == INDEX_sin_backward        ? own_sin_backward                                                    \
     : INDEX_##name == INDEX_cos_backward        ? own_cos_backward                                                    \
     : INDEX_##name == INDEX_pow_scalar          ? own_pow_scalar                                                      \
     : INDEX_##name == INDEX_pow_scalar_backward ? own_pow_scalar_backward                                             \
     : INDEX_##name == INDEX_softplus            ? own_softplus                                                        \
     : INDEX_##name == INDEX_logsigmoid          ? own_logsigmoid                                                      \
     : INDEX_##name == INDEX_gelu                ? own_gelu                                                            \
     : INDEX_##name == INDEX_gelu_backward       ? own_gelu_backward                                                   \
     : INDEX_##name == INDEX_cast                ? own_cast                                                            \
                                                 : plain_##name)

const lc__tile LC_ISA_NAME(lc__tiles)[] = {
#define TILE_ENTRY(name, inputs, floats, kind, gradient, expression) {OWN(name), TILE_KIND_##kind, inputs, floats},
    LC_ELEMENTWISE_LIST(TILE_ENTRY)};
const int LC_ISA_NAME(lc__tile_count) = INDEX_COUNT;
