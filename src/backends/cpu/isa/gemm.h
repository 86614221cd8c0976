/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products inside other kernels: c[m][n] (+)= sum over k of a[m * am + k * ak] * b[k * ldb + n]. The block
 * of c that is computed at a time stays in registers. When adding, the old value of c is added last: many short sums
 * lose fewer digits than a long one. */
#ifndef LC_BACKENDS_CPU_ISA_GEMM_H
#define LC_BACKENDS_CPU_ISA_GEMM_H

#include "backends/cpu/isa/vec.h"

#include <stdbool.h>

#define GEMM_ROWS 6
#if VW == 16
#define GEMM_VECTORS 4 /* 24 sums and their operands in 32 registers */
#else
#define GEMM_VECTORS 2 /* 12 in 16 */
#endif

LC_INLINE void gemm_block(const int rows, const int vectors, int64_t K, const float *a, int64_t am, int64_t ak,
                          const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    vf sum[GEMM_ROWS][GEMM_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) sum[m][v] = vzero();
    }
    for (int64_t k = 0; k < K; k++) {
        vf x[GEMM_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) x[v] = vload(b + k * ldb + v * VW);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const float e = a[m * am + k * ak];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sum[m][v] += e * x[v];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            float *to = c + m * ldc + v * VW;
            vstore(to, add ? vload(to) + sum[m][v] : sum[m][v]);
        }
    }
}

/* All rows of some columns. */
LC_INLINE void gemm_columns(const int vectors, int64_t M, int64_t K, const float *a, int64_t am, int64_t ak,
                            const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    int64_t m = 0;
    for (; m + GEMM_ROWS <= M; m += GEMM_ROWS)
        gemm_block(GEMM_ROWS, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m + 4 <= M; m += 4) gemm_block(4, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m + 2 <= M; m += 2) gemm_block(2, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m < M; m++) gemm_block(1, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
}

static void gemm(int64_t M, int64_t N, int64_t K, const float *a, int64_t am, int64_t ak, const float *b, int64_t ldb,
                 float *c, int64_t ldc, bool add)
{
    int64_t n = 0;
    for (; n + GEMM_VECTORS * VW <= N; n += GEMM_VECTORS * VW)
        gemm_columns(GEMM_VECTORS, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
#if GEMM_VECTORS > 2
    for (; n + 3 * VW <= N; n += 3 * VW) gemm_columns(3, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
    for (; n + 2 * VW <= N; n += 2 * VW) gemm_columns(2, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
#endif
    for (; n + VW <= N; n += VW) gemm_columns(1, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
    for (; n < N; n++) {
        for (int64_t m = 0; m < M; m++) {
            float sum = 0.f;
            for (int64_t k = 0; k < K; k++) sum += a[m * am + k * ak] * b[k * ldb + n];
            c[m * ldc + n] = add ? c[m * ldc + n] + sum : sum;
        }
    }
}

#endif
