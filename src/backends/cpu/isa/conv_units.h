/* SPDX-License-Identifier: Apache-2.0 */
/* Which convolutions of bf16 are computed in units for matrices without copies of patches: those of one group, in two
 * dimensions, whose taps and places are one pixel apart or, with a dilation, whose taps are a few. */
#ifndef LC_BACKENDS_CPU_ISA_CONV_UNITS_H
#define LC_BACKENDS_CPU_ISA_CONV_UNITS_H

#include "backends/cpu/isa/patches.h"
#include "backends/cpu/isa/units.h"
#include "backends/cpu/isa/util.h"

/* Rows and columns of what has three dimensions in patches.h. */
enum { H = 1, W = 2 };

static inline int64_t parts_of(int64_t n, int64_t part)
{
    return (n + part - 1) / part;
}

static inline int64_t whole_of(int64_t n, int64_t unit)
{
    return parts_of(n, unit) * unit;
}

#define LEAST_ROW 8 /* places: shorter rows fill too little of a tile */

/* x, w, y: operands or results of the call. */
static inline bool units_compute(const lc_call *call, const lc_view *x, const lc_view *w, const lc_view *y)
{
    const int64_t nd = call->ints[0];
    if (nd != 2 || call->ints[1 + 3 * nd] != 1 || numel(x) < 1 || numel(y) < 1) return false;
    for (int i = 0; i < call->n_in; i++)
        if (given(&call->in[i]) && (i < 2 ? call->in[i].dtype != LC_BF16 : !is_stored(call->in[i].dtype))) return false;
    const shape s = shape_of(call->ints, x, w, y);
    for (int d = H; d <= W; d++)
        if (s.stride[d] != 1 || s.padding[d] > (s.kernel[d] - 1) * s.dilation[d]) return false;
    return s.in[W] >= LEAST_ROW && s.out[W] >= LEAST_ROW && is_stored(call->out[0].dtype);
}

#endif
