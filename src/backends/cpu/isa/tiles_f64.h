/* SPDX-License-Identifier: Apache-2.0 */
/* The elementwise operators as functions on a run of f64 values; fused_f64.c combines them. */
#ifndef LC_BACKENDS_CPU_ISA_TILES_F64_H
#define LC_BACKENDS_CPU_ISA_TILES_F64_H

#include "backends/cpu/isa/tiles.h"

/* As lc__tile_fn. */
typedef void lc__tile_f64_fn(int64_t n, double *out, const double *const *in, const double *p, const int64_t *k);

/* In the order of lc__elementwise_table, as lc__tiles, which has their kinds. */
extern lc__tile_f64_fn *const LC_ISA_NAME(lc__tiles_f64)[];

#endif
