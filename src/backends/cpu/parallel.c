/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over the process's pool of threads. */
#include "backends/cpu/parallel.h"

#include "base/pool.h"
#include "base/processors.h"

#include <lightc/graph.h>

enum { PIECES_PER_THREAD = 32 }; /* taking one costs tens of nanoseconds */

typedef struct loop {
    lc__block_fn *fn;
    const void *context;
    int64_t n, block, blocks, pieces;
} loop;

static void run_blocks(const loop *l, int64_t first, int64_t last, int thread)
{
    for (int64_t b = first; b < last; b++) {
        int64_t begin = b * l->block;
        l->fn(l->context, begin, l->n - begin < l->block ? l->n : begin + l->block, thread);
    }
}

static int64_t first_block(const loop *l, int64_t piece)
{
    return l->blocks / l->pieces * piece + (piece < l->blocks % l->pieces ? piece : l->blocks % l->pieces);
}

static void run_piece(void *context, int64_t piece, int seat)
{
    const loop *l = context;
    run_blocks(l, first_block(l, piece), first_block(l, piece + 1), seat);
}

void lc__parallel_for(int threads, int64_t n, int64_t block, lc__block_fn *fn, const void *context)
{
    if (n <= 0) return;
    loop l = {fn, context, n, block, (n - 1) / block + 1, 0};
    if (threads > LC__POOL_SEATS) threads = LC__POOL_SEATS;
    if (threads <= 1 || l.blocks == 1) {
        run_blocks(&l, 0, l.blocks, 0);
        return;
    }
    l.pieces = (int64_t)threads * PIECES_PER_THREAD;
    if (l.pieces > l.blocks) l.pieces = l.blocks;
    lc__pool_run(threads, l.pieces, run_piece, &l);
}

int lc__parallel_max(void)
{
    int n = lc__threads_given();
    if (!n) n = lc_processors();
    return n > LC__POOL_SEATS ? LC__POOL_SEATS : n;
}
