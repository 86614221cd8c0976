/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over threads: OpenMP where the compiler has it, a plain loop otherwise. The only file of the CPU backend's own
 * kernels that knows OpenMP. */
#include "backends/cpu/parallel.h"

#include <lightc/graph.h>
#include <stdlib.h>

static void run_blocks(int64_t first, int64_t last, int64_t n, int64_t block, lc__block_fn *fn, const void *context,
                       int thread)
{
    for (int64_t b = first; b < last; b++) {
        int64_t begin = b * block;
        fn(context, begin, n - begin < block ? n : begin + block, thread);
    }
}

#ifdef _OPENMP
#include <omp.h>

static void run_threads(int threads, int64_t blocks, int64_t n, int64_t block, lc__block_fn *fn, const void *context)
{
#pragma omp parallel num_threads(threads)
    {
        /* The runtime may give fewer threads than asked for. */
        int64_t t = omp_get_thread_num(), team = omp_get_num_threads();
        run_blocks(blocks * t / team, blocks * (t + 1) / team, n, block, fn, context, (int)t);
    }
}

static int thread_limit(void)
{
    return 1 << 16;
}
#else
static void run_threads(int threads, int64_t blocks, int64_t n, int64_t block, lc__block_fn *fn, const void *context)
{
    (void)threads;
    run_blocks(0, blocks, n, block, fn, context, 0);
}

static int thread_limit(void)
{
    return 1;
}
#endif

void lc__parallel_for(int threads, int64_t n, int64_t block, lc__block_fn *fn, const void *context)
{
    if (n <= 0) return;
    int64_t blocks = (n - 1) / block + 1;
    if (threads > blocks) threads = (int)blocks;
    if (threads <= 1)
        run_blocks(0, blocks, n, block, fn, context, 0);
    else
        run_threads(threads, blocks, n, block, fn, context);
}

int lc__parallel_max(void)
{
    int n = 0;
    const char *text = getenv("OMP_NUM_THREADS");
    if (text) n = atoi(text); /* of a list of nesting levels, the first */
    if (n <= 0) n = lc_processors();
    return n > thread_limit() ? thread_limit() : n;
}
