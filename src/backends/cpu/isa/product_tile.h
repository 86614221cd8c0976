/* SPDX-License-Identifier: Apache-2.0 */
/* The innermost loop of a product: a tile of ROWS x PANEL results, which stays in registers while k runs. The first
 * factor is read from its rows, or from a strip, in which the ROWS numbers of each k are neighbors. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_TILE_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_TILE_H

#include "backends/cpu/isa/vec.h"

#include <stdbool.h>

#if VW == 16
#define ROWS    12
#define VECTORS 2 /* 24 sums and their operands in 32 registers */
#else
#define ROWS    6
#define VECTORS 2 /* 12 in 16 */
#endif
#define PANEL (VECTORS * VW)

/* c[m][n] (+)= sum over k of a[m * am + k * ak] * b[k * ldb + n], for `vectors` vectors of columns */
LC_INLINE void tile(const int rows, const int vectors, int64_t depth, const float *a, const int64_t am,
                    const int64_t ak, const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    vf sum[ROWS][VECTORS];
    const float *row[ROWS / 3]; /* every third address: offsets reach the others, and registers are few */
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[m][v] = vzero();
        if (m % 3 == 0) row[m / 3] = a + m * am;
#if defined(__x86_64__)
        if (m % 3 == 0) __asm__("" : "+r"(row[m / 3])); /* kept in registers, not recomputed from the first */
#endif
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        vf x[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) x[v] = vload(b + k * ldb + v * VW);
#pragma GCC unroll 16
        for (int m = 0; m < rows; m++) {
            vf e = vsplat(row[m / 3][m % 3 * am + k * ak]);
#if VW == 16
            __asm__("" : "+v"(e)); /* loaded once, not by each multiplication */
#elif defined(__x86_64__)
            __asm__("" : "+x"(e));
#endif
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[m][v] += e * x[v];
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *to = c + m * ldc + v * VW;
            vstore(to, add ? vload(to) + sum[m][v] : sum[m][v]);
        }
    }
}

/* A tile of PANEL columns, of a strip or of rows, or (`narrow`) of VW columns. */
#define TILE(rows)                                                                                                     \
    static __attribute__((noinline)) void tile_##rows(int64_t depth, const float *a, int64_t am, const float *b,       \
                                                      int64_t ldb, float *c, int64_t ldc, bool add)                    \
    {                                                                                                                  \
        tile(rows, VECTORS, depth, a, am, 1, b, ldb, c, ldc, add);                                                     \
    }                                                                                                                  \
    static __attribute__((noinline)) void tile_##rows##_of_strip(int64_t depth, const float *a, const float *b,        \
                                                                 int64_t ldb, float *c, int64_t ldc, bool add)         \
    {                                                                                                                  \
        tile(rows, VECTORS, depth, a, 1, ROWS, b, ldb, c, ldc, add);                                                   \
    }                                                                                                                  \
    static __attribute__((noinline)) void narrow_tile_##rows(int64_t depth, const float *a, int64_t am, int64_t ak,    \
                                                             const float *b, int64_t ldb, float *c, int64_t ldc)       \
    {                                                                                                                  \
        tile(rows, 1, depth, a, am, ak, b, ldb, c, ldc, false);                                                        \
    }                                                                                                                  \
    LC_INLINE void any_tile_##rows(int64_t depth, const float *a, int64_t am, bool strip, const float *b, int64_t ldb, \
                                   float *c, int64_t ldc, bool add, bool narrow)                                       \
    {                                                                                                                  \
        if (narrow)                                                                                                    \
            narrow_tile_##rows(depth, a, strip ? 1 : am, strip ? ROWS : 1, b, ldb, c, ldc);                            \
        else if (strip)                                                                                                \
            tile_##rows##_of_strip(depth, a, b, ldb, c, ldc, add);                                                     \
        else                                                                                                           \
            tile_##rows(depth, a, am, b, ldb, c, ldc, add);                                                            \
    }
#if ROWS > 8
TILE(12)
#define any_full_tile any_tile_12
TILE(8)
#else
TILE(6)
#define any_full_tile any_tile_6
#endif
TILE(4)
TILE(2)
TILE(1)

/* `rows` < ROWS of a tile. */
static void rest_of_tiles(int64_t rows, int64_t depth, const float *a, int64_t am, bool strip, const float *b,
                          int64_t ldb, float *c, int64_t ldc, bool add, bool narrow)
{
    int64_t m = 0, step = strip ? 1 : am;
#if ROWS > 8
    for (; m + 8 <= rows; m += 8) any_tile_8(depth, a + m * step, am, strip, b, ldb, c + m * ldc, ldc, add, narrow);
#endif
    for (; m + 4 <= rows; m += 4) any_tile_4(depth, a + m * step, am, strip, b, ldb, c + m * ldc, ldc, add, narrow);
    for (; m + 2 <= rows; m += 2) any_tile_2(depth, a + m * step, am, strip, b, ldb, c + m * ldc, ldc, add, narrow);
    for (; m < rows; m++) any_tile_1(depth, a + m * step, am, strip, b, ldb, c + m * ldc, ldc, add, narrow);
}

#endif
