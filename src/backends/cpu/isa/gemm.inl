/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products inside other kernels, for one type of numbers: GEMM(name) is NAME of that type, NUMBER the
 * type, VECTOR a vector of LANES of them, LOAD and STORE its functions. c[m][n] (+)= sum over k of a[m * am + k * ak] *
 * b[k * ldb + n]. The block of c that is computed at a time stays in registers. When adding, the old value of c is
 * added last: many short sums lose fewer digits than a long one. */

LC_INLINE void GEMM(block)(const int rows, const int vectors, int64_t K, const NUMBER *a, int64_t am, int64_t ak,
                           const NUMBER *b, int64_t ldb, NUMBER *c, int64_t ldc, bool add)
{
    VECTOR sum[GEMM_ROWS][GEMM_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) sum[m][v] = (VECTOR){0};
    }
    for (int64_t k = 0; k < K; k++) {
        VECTOR x[GEMM_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) x[v] = LOAD(b + k * ldb + v * LANES);
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++) {
            const NUMBER e = a[m * am + k * ak];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sum[m][v] += e * x[v];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            NUMBER *to = c + m * ldc + v * LANES;
            STORE(to, add ? LOAD(to) + sum[m][v] : sum[m][v]);
        }
    }
}

/* All rows of some columns. */
LC_INLINE void GEMM(columns)(const int vectors, int64_t M, int64_t K, const NUMBER *a, int64_t am, int64_t ak,
                             const NUMBER *b, int64_t ldb, NUMBER *c, int64_t ldc, bool add)
{
    int64_t m = 0;
    for (; m + GEMM_ROWS <= M; m += GEMM_ROWS)
        GEMM(block)(GEMM_ROWS, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m + 4 <= M; m += 4) GEMM(block)(4, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m + 2 <= M; m += 2) GEMM(block)(2, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
    for (; m < M; m++) GEMM(block)(1, vectors, K, a + m * am, am, ak, b, ldb, c + m * ldc, ldc, add);
}

static void GEMM(gemm)(int64_t M, int64_t N, int64_t K, const NUMBER *a, int64_t am, int64_t ak, const NUMBER *b,
                       int64_t ldb, NUMBER *c, int64_t ldc, bool add)
{
    int64_t n = 0;
    for (; n + GEMM_VECTORS * LANES <= N; n += GEMM_VECTORS * LANES)
        GEMM(columns)(GEMM_VECTORS, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
#if GEMM_VECTORS > 2
    for (; n + 3 * LANES <= N; n += 3 * LANES) GEMM(columns)(3, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
    for (; n + 2 * LANES <= N; n += 2 * LANES) GEMM(columns)(2, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
#endif
    for (; n + LANES <= N; n += LANES) GEMM(columns)(1, M, K, a, am, ak, b + n, ldb, c + n, ldc, add);
    for (; n < N; n++) {
        for (int64_t m = 0; m < M; m++) {
            NUMBER sum = 0;
            for (int64_t k = 0; k < K; k++) sum += a[m * am + k * ak] * b[k * ldb + n];
            c[m * ldc + n] = add ? c[m * ldc + n] + sum : sum;
        }
    }
}

#undef GEMM
#undef NUMBER
#undef VECTOR
#undef LANES
#undef LOAD
#undef STORE
