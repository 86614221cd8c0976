/* SPDX-License-Identifier: Apache-2.0 */
/* Products in f64: out[m][n] (+)= activation(sum over k of a[m][k] * b[k][n] + bias[n]), for matrices (matmul_f64.c)
 * and convolutions (conv_f64.c). The caller says how its factors are packed. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_F64_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_F64_H

#include "backends/cpu/isa.h"
#include "backends/cpu/isa/vec_f64.h"

#if VW == 16
#define ROWS_F64 12
#else
#define ROWS_F64 6
#endif
#define PANEL_F64 (2 * VD)
#define DEPTH_F64 256 /* of a block of k, at most */

typedef struct lc__product_f64 lc__product_f64;

/* A range of a factor, packed: groups of `wide` rows of a (ROWS_F64), or columns of b (PANEL_F64), from `first`, of
 * which there are `count`; in each group to[k][wide] for k0 <= k < k0 + depth. Zeros fill the last group. */
typedef void lc__pack_f64(const lc__product_f64 *p, int64_t item, int64_t first, int64_t count, int64_t k0,
                          int64_t depth, double *to);

struct lc__product_f64 {
    int64_t items; /* products of one size, each with its own operands */
    int64_t m, n, k;
    lc__pack_f64 *pack_a, *pack_b;
    /* Results: out[item * item_step + m * row_step + n], or, if `row` is given, it says where row m begins. */
    double *out;
    int64_t item_step, row_step;
    double *(*row)(const lc__product_f64 *p, int64_t item, int64_t m);
    const void *context;
    const double *bias; /* or NULL */
    int64_t bias_step;  /* from item to item */
    int activation;     /* as in lc__activate */
    bool accumulate;
    /* Set by lc__product_f64_plan. */
    int64_t depth, row_block, column_block, row_blocks, column_blocks;
    int64_t splits, blocks_per_split; /* of k: short, deep products are sums of partial ones */
    int64_t per_thread;
    double *scratch, *partial;
};

/* Cuts the product, which depends only on its size. Returns the bytes of scratch memory that it needs. */
size_t LC_ISA_NAME(lc__product_f64_plan)(lc__product_f64 *p, int threads);
void LC_ISA_NAME(lc__product_f64_run)(lc__product_f64 *p, void *scratch, int threads);
#define lc__product_f64_plan LC_ISA_NAME(lc__product_f64_plan)
#define lc__product_f64_run  LC_ISA_NAME(lc__product_f64_run)

typedef double d4 __attribute__((vector_size(32)));
typedef double d4_any __attribute__((vector_size(32), aligned(8), may_alias));

/* to[k][wide] from `count` rows, which begin at row[i]; zeros up to `wide`. */
LC_INLINE void pack_rows_f64(const double *const *row, int64_t count, const int wide, int64_t depth, double *to)
{
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4) {
            d4 r[4], s[4];
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) r[q] = *(const d4_any *)(row[i + q] + k);
#pragma GCC unroll 2
            for (int q = 0; q < 2; q++) {
                s[2 * q] = __builtin_shufflevector(r[2 * q], r[2 * q + 1], 0, 4, 2, 6);
                s[2 * q + 1] = __builtin_shufflevector(r[2 * q], r[2 * q + 1], 1, 5, 3, 7);
            }
#pragma GCC unroll 2
            for (int q = 0; q < 2; q++) {
                *(d4_any *)(to + (k + q) * wide + i) = __builtin_shufflevector(s[q], s[q + 2], 0, 1, 4, 5);
                *(d4_any *)(to + (k + q + 2) * wide + i) = __builtin_shufflevector(s[q], s[q + 2], 2, 3, 6, 7);
            }
        }
        for (; k < depth; k++) {
            for (int q = 0; q < 4; q++) to[k * wide + i + q] = row[i + q][k];
        }
    }
    for (; i < count; i++) {
        for (int64_t k = 0; k < depth; k++) to[k * wide + i] = row[i][k];
    }
    for (; i < wide; i++) {
        for (int64_t k = 0; k < depth; k++) to[k * wide + i] = 0;
    }
}

/* Puts `count` neighbors, numbers first, first + 1, ... of row k, into their groups. */
LC_INLINE void pack_neighbors_f64(const double *from, int64_t first, int64_t count, const int wide, int64_t k,
                                  int64_t depth, double *to)
{
    int64_t i = 0;
    for (; i < count && (first + i) % wide; i++)
        to[((first + i) / wide * depth + k) * wide + (first + i) % wide] = from[i];
    for (; i + wide <= count; i += wide) {
        double *at = to + ((first + i) / wide * depth + k) * wide;
#pragma GCC unroll 16
        for (int q = 0; q < wide; q++) at[q] = from[i + q];
    }
    for (double *at = to + ((first + i) / wide * depth + k) * wide; i < count; i++) *at++ = from[i];
}

/* Zeros in the part of the last group that has no rows or columns. */
LC_INLINE void pack_end_f64(int64_t count, const int wide, int64_t depth, double *to)
{
    for (int64_t k = 0; count % wide && k < depth; k++) {
        for (int64_t i = count % wide; i < wide; i++) to[(count / wide * depth + k) * wide + i] = 0;
    }
}

#endif
