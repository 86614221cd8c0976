/* SPDX-License-Identifier: Apache-2.0 */
/* The epilogue of a product, computed while its operands and results are in the cache: bias, activation, and the
 * operators that were fused with it. */
#ifndef LC_BACKENDS_CPU_ISA_EPILOGUE_H
#define LC_BACKENDS_CPU_ISA_EPILOGUE_H

#include "backends/cpu/isa/vec.h"
#include "backends/cpu/isa/vmath.h"

#include <lightc/tensor.h>
#include <stdbool.h>

typedef enum epilogue_kind {
    EPILOGUE_NONE,
    EPILOGUE_GELU,     /* y = gelu(product); y may be the product */
    EPILOGUE_SLOPE,    /* product *= gelu's slope at x, and y = gelu(x) unless y is NULL */
    EPILOGUE_ROW_SUMS, /* of the first factor, from its strips */
} epilogue_kind;

typedef struct epilogue {
    epilogue_kind kind;
    bool tanh;                          /* gelu's form */
    lc_dtype y_type, x_type, sums_type; /* f32, unless the product is rounded */
    void *y;
    const void *x;
    double *partial; /* row sums, so far */
    void *sums;
    float *finite; /* becomes NaN if a number of the second factor is not finite; NULL: nobody asks */
} epilogue;

/* out[i] = activation(out[i] + bias[i]); bias may be NULL */
static inline void epilogue_linear(const float *restrict bias, int activation, float *restrict out, int64_t columns)
{
    if (bias) {
        for (int64_t n = 0; n < columns; n++) out[n] += bias[n];
    }
    switch (activation) {
    case 1:
        for (int64_t n = 0; n < columns; n++) out[n] = out[n] > 0.f ? out[n] : out[n] != out[n] ? out[n] : 0.f;
        break;
    case 2:
        for (int64_t n = 0; n < columns; n++) out[n] = vm_tanh(out[n]);
        break;
    case 3:
        for (int64_t n = 0; n < columns; n++) out[n] = vm_sigmoid(out[n]);
        break;
    default:
        break;
    }
}

/* out[i] *= gelu's slope at x[i], with x[i + ahead] fetched meanwhile: rows may be pages apart. y: gelu(x[i]), which
 * shares most of its terms; it may be x. NULL: not wanted. */
static inline void epilogue_slope(bool tanh, float *out, const float *x, float *y, int64_t n, int64_t ahead)
{
    enum { RUN = 256 };
    for (int64_t first = 0; first < n; first += RUN) {
        int64_t end = n - first < RUN ? n : first + RUN;
        for (int64_t i = first; i < end; i += 16) __builtin_prefetch(x + ahead + i);
        if (y && tanh) {
            LC_IVDEP
            for (int64_t i = first; i < end; i++) {
                float v = x[i];
                out[i] *= vm_gelu_tanh_slope(v);
                y[i] = vm_gelu_tanh(v);
            }
        } else if (y) {
            LC_IVDEP
            for (int64_t i = first; i < end; i++) {
                float v = x[i];
                out[i] *= vm_gelu_erf_slope(v);
                y[i] = vm_gelu_erf(v);
            }
        } else if (tanh) {
            LC_IVDEP
            for (int64_t i = first; i < end; i++) out[i] *= vm_gelu_tanh_slope(x[i]);
        } else {
            LC_IVDEP
            for (int64_t i = first; i < end; i++) out[i] *= vm_gelu_erf_slope(x[i]);
        }
    }
}

static inline void epilogue_gelu(bool tanh, const float *x, float *y, int64_t n)
{
    if (tanh) {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) y[i] = vm_gelu_tanh(x[i]);
    } else {
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) y[i] = vm_gelu_erf(x[i]);
    }
}

/* Whether there is something to do for results. */
static inline bool epilogue_runs(const epilogue *e)
{
    return e->kind == EPILOGUE_GELU || e->kind == EPILOGUE_SLOPE;
}

/* For n neighbors of the product, from element `at`; `ahead`: how far away others come soon. */
static inline void epilogue_run(const epilogue *e, float *product, int64_t at, int64_t n, int64_t ahead)
{
    if (e->kind == EPILOGUE_GELU) epilogue_gelu(e->tanh, product + at, (float *)e->y + at, n);
    if (e->kind == EPILOGUE_SLOPE)
        epilogue_slope(e->tanh, product + at, (const float *)e->x + at, e->y ? (float *)e->y + at : NULL, n, ahead);
}

/* total[i] (+)= sum over k of strip[k][i], for `height` rows i, a multiple of 6. Eight steps of k fill whole vectors.
 */
LC_INLINE void strip_sums(const int height, const float *strip, int64_t depth, bool add, double *total)
{
    enum { STEPS = 8, MOST = STEPS * 12 };
    float lanes[MOST / 2];
    vf sum[MOST / VW];
    const int vectors = STEPS * height / VW;
    int64_t k = 0;
#pragma GCC unroll 24
    for (int v = 0; v < vectors; v++) sum[v] = vzero();
    for (; k + STEPS <= depth; k += STEPS) {
#pragma GCC unroll 24
        for (int v = 0; v < vectors; v++) sum[v] += vload(strip + k * height + v * VW);
    }
#pragma GCC unroll 24
    for (int v = 0; v < vectors / 2; v++) vstore(lanes + v * VW, sum[v] + sum[v + vectors / 2]);
    for (int i = 0; i < height; i++) {
        double rows = add ? total[i] : 0;
        for (int s = 0; s < STEPS / 2; s++) rows += (double)lanes[s * height + i];
        for (int64_t q = k; q < depth; q++) rows += (double)strip[q * height + i];
        total[i] = rows;
    }
}

#endif
