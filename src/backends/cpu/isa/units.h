/* SPDX-License-Identifier: Apache-2.0 */
/* AMX's units for matrices, with numbers of bf16.
 *
 * A unit multiplies a tile of the first factor by one of the second (pairs.h) into 16 x 16 sums in f32, each
 * of 32 products. */
#ifndef LC_BACKENDS_CPU_ISA_UNITS_H
#define LC_BACKENDS_CPU_ISA_UNITS_H

#include "backends/cpu/isa/pairs.h"
#ifdef LC_EMULATE_AMX
#include "backends/cpu/isa/units_emulated.h"
#endif

/* Sets the shapes of the eight registers for tiles: 0 to 3 are results, 4 and 5 are `rows` rows of `depth` numbers of
 * the first factor, 6 and 7 are of the second. */
static inline void units_take(int64_t rows, int64_t depth)
{
    struct {
        uint8_t palette, start, zeros[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? 2 * depth : 4 * SIDE);
        shapes.rows[i] = (uint8_t)(i < 6 ? rows : depth / 2);
    }
    _tile_loadconfig(&shapes);
}

#endif
