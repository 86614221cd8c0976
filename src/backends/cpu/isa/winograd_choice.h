/* SPDX-License-Identifier: Apache-2.0 */
/* Which convolutions Winograd's algorithm (winograd.h) computes, and in which blocks. */
#ifndef LC_BACKENDS_CPU_ISA_WINOGRAD_CHOICE_H
#define LC_BACKENDS_CPU_ISA_WINOGRAD_CHOICE_H

#include "backends/cpu/isa/gemm.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/winograd.h"
#include "ops/ops.h"

/* How much of the time of the plain algorithm this one may take to be chosen. */
#if defined(LC_ISA_PAIRS) /* others multiply bf16 as it is, twice as fast (measured on Zen 5, with oneDNN 2.6.3) */
#define SHARE         .37
#define WEIGHTS_SHARE .45
#else
#define SHARE         .75
#define WEIGHTS_SHARE .75
#endif
/* The cost of a vector of the kernel, in vector multiply-adds: if all of it stays in caches, and if it does not, also
 * if it is transformed in blocks. */
#define KERNEL_COST  140
#define FEW_COST     1000
#define LARGE_COST   2000
#define LARGE_KERNEL ((double)(16 << 20)) /* bytes, transformed */
/* The most tiles, and bytes of their points, for which a convolution goes over its kernel. */
#define FEW_TILES   192
#define TILES_BYTES ((int64_t)16 << 20)

static inline bool has_few_tiles(int64_t tiles, int64_t ins, int64_t outs)
{
    return tiles <= FEW_TILES && WG_ALL * 4 * tiles * ins <= TILES_BYTES &&
           (double)(WG_ALL * 4 * ins) * (double)outs > LARGE_KERNEL;
}

/* For a block of tiles: its memory, and its least and most tiles. Small kernels stay in the second-level cache, others
 * are fetched for each block. */
#define BLOCK_BYTES  ((int64_t)512 << 10)
#define SMALL_KERNEL ((int64_t)384 << 10) /* bytes, transformed */
#define SMALL_TILES  24
#define LEAST_TILES  48
#define MOST_TILES   96

/* Columns of the kernel that are stored together. */
#define PANEL (GEMM_VECTORS * VW)

/* The tiles of a block, a multiple of `unit`: so many that no thread has more to do than with others. */
static inline int64_t tiles_of_block(int64_t unit, int64_t count, int64_t ins, int64_t outs, int64_t threads)
{
    const int64_t least = WG_ALL * 4 * ins * outs <= SMALL_KERNEL ? SMALL_TILES : LEAST_TILES;
    int64_t most = BLOCK_BYTES / (WG_ALL * 4 * (ins + outs)), best = 0, shortest = INT64_MAX;
    most = most < least ? least : most > MOST_TILES ? MOST_TILES : most;
    most = most < unit ? unit : most / unit * unit;
    for (int64_t tiles = most; tiles > 0 && (!best || tiles >= least); tiles -= unit) {
        const int64_t blocks = (count + tiles - 1) / tiles, rows = (tiles + GEMM_ROWS - 1) / GEMM_ROWS * GEMM_ROWS;
        const int64_t longest = (blocks + threads - 1) / threads * rows;
        if (longest < shortest) {
            shortest = longest;
            best = tiles;
        }
    }
    return best;
}

static inline bool all_stored(const lc_call *call)
{
    bool yes = true;
    for (int i = 0; i < call->n_in; i++) yes &= !given(&call->in[i]) || is_stored(call->in[i].dtype);
    for (int k = 0; k < call->n_out; k++) yes &= !given(&call->out[k]) || is_stored(call->out[k].dtype);
    return yes;
}

/* Whether the algorithm applies to a convolution from images x to y, of which `tiled` are cut into tiles, and takes
 * less than `share` of the time of the plain one: an estimate in vector multiply-adds, with the cost of transforms as
 * measured on AVX-512 (per vector of channels: 340 for a tile's pixels, 180 for its results, 140 for the kernel, which
 * takes longer if it does not stay in caches). */
static inline bool pays(const lc_call *call, const lc_view *x, const lc_view *w, const lc_view *y, const lc_view *tiled,
                        double share)
{
    const int64_t *ints = call->ints;
#if defined(LC_ISA_PAIRS)
    if (call->in[0].dtype != LC_BF16 || call->in[1].dtype != LC_BF16) return false;
#endif
    if (ints[0] != 2 || x->ndim != 4 || w->ndim != 4 || y->ndim != 4 || !all_stored(call)) return false;
    for (int d = 0; d < 2; d++)
        if (w->shape[2 + d] != 3 || ints[1 + d] != 1 || ints[3 + d] > 2 || ints[5 + d] != 1) return false;
    int64_t c = x->shape[1], o = y->shape[1];
    if (ints[3] != ints[4] || ints[7] != 1 || !c || !o || c % VW || o % VW || !numel(x) || !numel(y)) return false;
    double n = (double)y->shape[0], pairs = (double)c * (double)o / VW;
    double tiles = n * (double)((tiled->shape[2] + WG_RESULTS - 1) / WG_RESULTS) *
                   (double)((tiled->shape[3] + WG_RESULTS - 1) / WG_RESULTS);
    double in = (double)(x->shape[2] * x->shape[3]), out = (double)(y->shape[2] * y->shape[3]);
    double plain = n * (in < out ? in : out) * 9 * pairs;
    bool large = call->op != &lc__op_conv_weight_grad && WG_ALL * (double)numel(w) / 9 * sizeof(float) > LARGE_KERNEL;
    double kernel_cost = !large ? KERNEL_COST : has_few_tiles((int64_t)tiles, c, o) ? FEW_COST : LARGE_COST;
    double here = tiles * (WG_ALL * pairs + 340. * (double)c / VW + 180. * (double)o / VW) + kernel_cost * pairs;
    return here < share * plain;
}

#endif
