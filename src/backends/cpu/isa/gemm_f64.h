/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products in f64 inside other kernels, as in gemm.h: c[m][n] (+)= sum over k of a[m * am + k * ak] *
 * b[k * ldb + n]. */
#ifndef LC_BACKENDS_CPU_ISA_GEMM_F64_H
#define LC_BACKENDS_CPU_ISA_GEMM_F64_H

#include "backends/cpu/isa/vec_f64.h"

#include <stdbool.h>

#define GEMM_F64_ROWS 6
#if VW == 16
#define GEMM_F64_VECTORS 4 /* 24 sums and their operands in 32 registers */
#else
#define GEMM_F64_VECTORS 2 /* 12 in 16 */
#endif

LC_INLINE void gemm_f64_block(const int rows, const int vectors, int64_t K, const double *a, int64_t am, int64_t ak,
                              const double *b, int64_t ldb, double *c, int64_t ldc, bool add)
{
    vd sum[GEMM_F64_ROWS][GEMM_F64_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) sum[m][v] = (vd){0};
    }
    for (int64_t k = 0; k < K; k++) {
        vd x[GEMM_F64_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) x[v] = vdload(b + k * ldb + v * VD);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const double e = a[m * am + k * ak];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sum[m][v] += e * x[v];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            double *to = c + m * ldc + v * VD;
            vdstore(to, add ? vdload(to) + sum[m][v] : sum[m][v]);
        }
    }
}

/* All rows of some columns. */
LC_INLINE void gemm_f64_columns(const int vectors, int64_t M, int64_t K, const double *a, int64_t am, int64_t ak,
                                const double *b, int64_t ldb, double *c, int64_t ldc, bool add)
{
    int64_t m = 0;
    for (; m + GEMM_F64_ROWS <= M; m += GEMM_F64_ROWS)
        gemm_f64_block(GEMM_F64_ROWS, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m + 2 <= M; m += 2) gemm_f64_block(2, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m < M; m++) gemm_f64_block(1, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
}

static void gemm_f64(int64_t M, int64_t N, int64_t K, const double *a, int64_t am, int64_t ak, const double *b,
                     int64_t ldb, double *c, int64_t ldc, bool add)
{
    int64_t n = 0;
    for (; n + GEMM_F64_VECTORS * VD <= N; n += GEMM_F64_VECTORS * VD)
        gemm_f64_columns(GEMM_F64_VECTORS, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
    for (; n + VD <= N; n += VD) gemm_f64_columns(1, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
    for (; n < N; n++) {
        for (int64_t m = 0; m < M; m++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) sum += a[m * am + k * ak] * b[k * ldb + n];
            c[m * ldc + n] = add ? c[m * ldc + n] + sum : sum;
        }
    }
}

#endif
