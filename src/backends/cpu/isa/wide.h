/* SPDX-License-Identifier: Apache-2.0 */
/* A dense matrix [M, C] whose columns are channels, walked in rows wide enough for vectors: `fold` rows count as one of
 * fold * C lanes. Sums over M are kept per block of such rows and added in the order of the blocks, so that they do not
 * depend on the number of threads. */
#ifndef LC_BACKENDS_CPU_ISA_WIDE_H
#define LC_BACKENDS_CPU_ISA_WIDE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WIDE_MAX_BLOCKS 64

typedef struct wide {
    int64_t m, c;
    int64_t fold, lanes; /* lanes = fold * c */
    int64_t rows, tail;  /* full wide rows; lanes of the last, partial one */
    int64_t rows_per_block, blocks;
} wide;

static inline wide wide_make(int64_t m, int64_t c)
{
    wide w = {.m = m, .c = c, .fold = 1};
    if (c < 256) {
        w.fold = (256 + c - 1) / c;
        while (w.fold * c % 16) w.fold++;
    }
    w.lanes = w.fold * c;
    w.rows = m / w.fold;
    w.tail = (m - w.rows * w.fold) * c;
    int64_t rows = 65536 / (w.lanes * 4);
    int64_t least = (w.rows + WIDE_MAX_BLOCKS - 1) / WIDE_MAX_BLOCKS;
    w.rows_per_block = rows > least ? rows : least;
    if (w.rows_per_block < 1) w.rows_per_block = 1;
    w.blocks = (w.rows + w.rows_per_block - 1) / w.rows_per_block;
    if (w.blocks < 1) w.blocks = 1;
    return w;
}

/* Repeats a vector of C values over all lanes. */
static inline void wide_repeat(const wide *w, float *to, const float *from)
{
    for (int64_t f = 0; f < w->fold; f++) memcpy(to + f * w->c, from, (size_t)w->c * sizeof *to);
}

/* total[c] = sum of channel c over blocks and folds; partial of block b begins at partial + b * step. */
static inline void wide_total(const wide *w, const float *partial, int64_t step, double *lane_sums, double *total)
{
    for (int64_t l = 0; l < w->lanes; l++) lane_sums[l] = 0;
    for (int64_t b = 0; b < w->blocks; b++) {
        const float *p = partial + b * step;
        for (int64_t l = 0; l < w->lanes; l++) lane_sums[l] += p[l];
    }
    for (int64_t c = 0; c < w->c; c++) total[c] = 0;
    for (int64_t f = 0; f < w->fold; f++) {
        for (int64_t c = 0; c < w->c; c++) total[c] += lane_sums[f * w->c + c];
    }
}

#endif
