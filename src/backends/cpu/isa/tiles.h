/* SPDX-License-Identifier: Apache-2.0 */
/* The elementwise operators as functions on a run of f32 values; fused.c combines them. */
#ifndef LC_BACKENDS_CPU_ISA_TILES_H
#define LC_BACKENDS_CPU_ISA_TILES_H

#include "backends/cpu/isa.h"

/* out[i] = op(in[0][i], in[1][i], ...). Truth values are 0 and 1. `out` may be one of the inputs. p: the operator's
 * floats; k: its ints. */
typedef void lc__tile_fn(int64_t n, float *out, const float *const *in, const float *p, const int64_t *k);

/* Kinds of operands and results, as in elementwise_table.h. */
typedef enum lc__tile_kind {
    LC__TILE_FLOAT,
    LC__TILE_ARITH,
    LC__TILE_COMPARE,
    LC__TILE_SELECT,
    LC__TILE_FILL,
    LC__TILE_CAST,
} lc__tile_kind;

typedef struct lc__tile {
    lc__tile_fn *run;
    lc__tile_kind kind;
    int n_in, n_float;
} lc__tile;

/* In the order of lc__elementwise_table. */
extern const lc__tile LC_ISA_NAME(lc__tiles)[];
extern const int LC_ISA_NAME(lc__tile_count);

#endif
