/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products inside other kernels, of numbers of bf16 in pairs: c[m][n] (+)= scale * the sum over k of the
 * products of two numbers of a, from m * am + k * ak on, with the pair b[k * ldb + n]. Sums are f32, and stay in
 * registers; n counts whole vectors. When adding, the old value of c is added last, as by gemm.inl. */
#ifndef LC_BACKENDS_CPU_ISA_GEMM_PAIRS_H
#define LC_BACKENDS_CPU_ISA_GEMM_PAIRS_H

#include "backends/cpu/isa/pairs.h"

#define PAIR_ROWS    6
#define PAIR_VECTORS 4 /* 24 sums and their operands in 32 registers */

typedef int32_t pair;

/* The arguments of a product. */
typedef struct pair_factors {
    const uint16_t *a;
    int64_t am, ak;
    const pair *b;
    int64_t ldb;
    float scale;
    bool add;
} pair_factors;

LC_INLINE void pair_block(const int rows, const int vectors, int64_t K, const pair_factors *f, int64_t m0, int64_t n,
                          float *c, int64_t ldc)
{
    __m512 sum[PAIR_ROWS][PAIR_VECTORS];
    const uint16_t *a = f->a + m0 * f->am;
    const pair *b = f->b + n;
    const int64_t am = f->am, ak = f->ak, ldb = f->ldb;
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) sum[m][v] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < K; k++, a += ak, b += ldb) {
        __m512bh y[PAIR_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) y[v] = (__m512bh)_mm512_loadu_si512(b + v * SIDE);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            __m512i x = _mm512_set1_epi32(*(const pair_any *)(a + m * am));
            __asm__("" : "+v"(x)); /* loaded once, not by each multiplication */
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sum[m][v] = _mm512_dpbf16_ps(sum[m][v], (__m512bh)x, y[v]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            float *to = c + (m0 + m) * ldc + n + v * SIDE;
            const vf x = (vf)sum[m][v] * f->scale;
            vstore(to, f->add ? vload(to) + x : x);
        }
    }
}

/* All rows of some columns. */
LC_INLINE void pair_columns(const int vectors, int64_t M, int64_t K, const pair_factors *f, int64_t n, float *c,
                            int64_t ldc)
{
    int64_t m = 0;
    for (; m + PAIR_ROWS <= M; m += PAIR_ROWS) pair_block(PAIR_ROWS, vectors, K, f, m, n, c, ldc);
    for (; m + 4 <= M; m += 4) pair_block(4, vectors, K, f, m, n, c, ldc);
    for (; m + 2 <= M; m += 2) pair_block(2, vectors, K, f, m, n, c, ldc);
    for (; m < M; m++) pair_block(1, vectors, K, f, m, n, c, ldc);
}

/* c[M][N], N a multiple of SIDE; K: pairs. */
static void gemm_pairs(int64_t M, int64_t N, int64_t K, pair_factors f, float *c, int64_t ldc)
{
    int64_t n = 0;
    for (; n + PAIR_VECTORS * SIDE <= N; n += PAIR_VECTORS * SIDE) pair_columns(PAIR_VECTORS, M, K, &f, n, c, ldc);
    for (; n + 3 * SIDE <= N; n += 3 * SIDE) pair_columns(3, M, K, &f, n, c, ldc);
    for (; n + 2 * SIDE <= N; n += 2 * SIDE) pair_columns(2, M, K, &f, n, c, ldc);
    for (; n < N; n += SIDE) pair_columns(1, M, K, &f, n, c, ldc);
}

#endif
