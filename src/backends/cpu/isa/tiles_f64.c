/* SPDX-License-Identifier: Apache-2.0 */
/* One loop per elementwise operator, made from the operator's own line in elementwise_table.h, as in tiles.c, with the
 * functions of vmath_f64.h instead of the C library's. sin, cos and pow are the library's. */
#include "backends/cpu/isa/tiles_f64.h"

#include "backends/cpu/isa/vmath_f64.h"
#include "ops/elementwise_math.h"
#include "ops/elementwise_table.h"

static inline double tile_mish_slope(double x)
{
    double t = vd_tanh(vd_softplus(x));
    return t + x * vd_sigmoid(x) * (1 - t * t);
}

#define lc__sigmoid         vd_sigmoid
#define lc__softplus        vd_softplus
#define lc__gelu_tanh       vd_gelu_tanh
#define lc__gelu_tanh_slope vd_gelu_tanh_slope
#define lc__gelu_erf        vd_gelu_erf
#define lc__gelu_erf_slope  vd_gelu_erf_slope
#define lc__mish_slope      tile_mish_slope
#undef isinf
#define isinf(x) __builtin_isinf(x)
#define exp(x)   vd_exp(x)
#define log(x)   vd_log(x)
#define tanh(x)  vd_tanh(x)
#define erf(x)   vd_erf(x)
#define expm1(x) vd_expm1(x)
#define log1p(x) vd_log1p(x)
#define sqrt(x)  __builtin_sqrt(x)
#define fabs(x)  __builtin_fabs(x)
#define S(i)     p[i]

#define TILE_FUNCTION(name, inputs, floats, kind, gradient, expression)                                                \
    static void plain_##name(int64_t n, double *out, const double *const *in, const double *numbers,                   \
                             const int64_t *ints)                                                                      \
    {                                                                                                                  \
        const double *x = in[0], *y = in[(inputs) > 1 ? 1 : 0], *z = in[(inputs) > 2 ? 2 : 0];                         \
        const double p[2] = {(floats) > 0 ? numbers[0] : 0, (floats) > 1 ? numbers[1] : 0};                            \
        const bool k[2] = {ints[0] != 0, ints[1] != 0};                                                                \
        (void)p;                                                                                                       \
        (void)k;                                                                                                       \
        LC_IVDEP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double a = x[i], b = y[i], c = z[i];                                                                 \
            (void)b;                                                                                                   \
            (void)c;                                                                                                   \
            out[i] = (double)(expression);                                                                             \
        }                                                                                                              \
    }
LC_ELEMENTWISE_LIST(TILE_FUNCTION)

/* ---- operators that need more than the plain loop ---- */
static void own_pow_scalar(int64_t n, double *out, const double *const *in, const double *p, const int64_t *k)
{
    const double *x = in[0];
    if (p[0] == 2) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = x[i] * x[i];
    } else {
        plain_pow_scalar(n, out, in, p, k);
    }
}

/* Only the requested form: the plain loop would compute both. */
static void own_gelu(int64_t n, double *out, const double *const *in, const double *p, const int64_t *k)
{
    const double *x = in[0];
    (void)p;
    if (k[0]) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = vd_gelu_tanh(x[i]);
    } else {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = vd_gelu_erf(x[i]);
    }
}

static void own_gelu_backward(int64_t n, double *out, const double *const *in, const double *p, const int64_t *k)
{
    const double *dy = in[0], *x = in[1];
    (void)p;
    if (k[0]) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = dy[i] * vd_gelu_tanh_slope(x[i]);
    } else {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = dy[i] * vd_gelu_erf_slope(x[i]);
    }
}

/* To f32 the value is rounded, and stays in a double. */
static void own_cast(int64_t n, double *out, const double *const *in, const double *p, const int64_t *k)
{
    const double *x = in[0];
    (void)p;
    if (k[0] == LC_F32) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = (double)(float)x[i];
    } else if (k[0] == LC_BOOL) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = x[i] != 0 ? 1 : 0;
    } else {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) out[i] = x[i];
    }
}

/* ---- the table ---- */
enum {
#define TILE_INDEX(name, ...) INDEX_##name,
    LC_ELEMENTWISE_LIST(TILE_INDEX)
};

#define OWN(name)                                                                                                      \
    (INDEX_##name == INDEX_pow_scalar      ? own_pow_scalar                                                            \
     : INDEX_##name == INDEX_gelu          ? own_gelu                                                                  \
     : INDEX_##name == INDEX_gelu_backward ? own_gelu_backward                                                         \
     : INDEX_##name == INDEX_cast          ? own_cast                                                                  \
                                           : plain_##name)

lc__tile_f64_fn *const LC_ISA_NAME(lc__tiles_f64)[] = {
#define TILE_ENTRY(name, ...) OWN(name),
    LC_ELEMENTWISE_LIST(TILE_ENTRY)};
