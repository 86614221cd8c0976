/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over threads.
 *
 * Work is cut into blocks of a size that the caller chooses only from the problem, never from the number of threads. A
 * block's result depends only on its range; a reduction keeps one partial per block and adds the partials in their
 * order afterwards. Results are therefore the same, bit for bit, for any number of threads. */
#ifndef LC_BACKENDS_CPU_PARALLEL_H
#define LC_BACKENDS_CPU_PARALLEL_H

#include <stdint.h>

/* Computes elements [begin, end) of the loop. `thread` is in [0, threads), for per-thread scratch. */
typedef void lc__block_fn(const void *context, int64_t begin, int64_t end, int thread);

/* Calls fn for [0, block), [block, 2 block), ... up to n, on at most `threads` threads of the process (base/pool.h). A
 * thread begins with a contiguous run of blocks, so that it works on the same part of a tensor in one kernel after
 * another, and later takes over blocks of other threads. */
void lc__parallel_for(int threads, int64_t n, int64_t block, lc__block_fn *fn, const void *context);

/* The most threads that a kernel may get. */
int lc__parallel_max(void);

/* A block size for n elements that cost `bytes` each: whole multiples of `unit`, around 64 KiB of memory traffic. */
static inline int64_t lc__block_size(int64_t bytes, int64_t unit)
{
    int64_t block = bytes > 0 ? 65536 / bytes : 65536;
    block -= block % unit;
    return block < unit ? unit : block;
}

#endif
