/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of the machine, from which the floor of a step is computed: memory bandwidth (triad, a = b + s * c,
 * counted as 12 bytes per element) in a core's cache, in the shared cache and in memory; f32 FLOP/s of bare
 * multiply-adds and of the library's matrix product. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 5

/* ---- triad ---- */

__attribute__((noinline)) static void triad(float *restrict a, const float *restrict b, const float *restrict c,
                                            size_t n, float s)
{
    for (size_t i = 0; i < n; i++) a[i] = b[i] + s * c[i];
}

/* Every thread works on the part of each array that it touched first. */
static double triad_bytes_per_second(float *memory, size_t n, int threads)
{
    float *a = memory, *b = memory + n, *c = memory + 2 * n;
    size_t part = n / (size_t)threads;
    int repeats = n > 4u << 20 ? 2 : (int)((16u << 20) / n) + 1;
    double best = 1e30;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        for (size_t i = part * (size_t)t; i < part * (size_t)(t + 1); i++) a[i] = 0, b[i] = 1, c[i] = 2;
    for (int k = 0; k < ROUNDS; k++) {
        double start = bench_now();
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int t = 0; t < threads; t++)
            for (int r = 0; r < repeats; r++) {
                size_t at = part * (size_t)t;
                triad(a + at, b + at, c + at, part, 0.5f);
                /* Keeps the compiler from merging rounds. */
                __asm__ volatile("" ::: "memory");
            }
        double seconds = (bench_now() - start) / repeats;
        if (seconds < best) best = seconds;
    }
    return 12 * (double)(part * (size_t)threads) / best;
}

/* ---- multiply-adds ---- */

typedef float vector16 __attribute__((vector_size(64)));
typedef void fma_fn(vector16 *v, long n);

/* v[0] is input and output, so that nothing can be optimized away. Chains: latency times units of common cores, if they
 * fit into the registers (a vector takes 1 with AVX-512, 2 with AVX2, 4 without). */
#define FMA(name, chains, ...)                                                                                         \
    __VA_ARGS__ __attribute__((noinline)) static void name(vector16 *v, long n)                                        \
    {                                                                                                                  \
        vector16 x[chains], a = v[0];                                                                                  \
        for (int c = 0; c < (chains); c++) x[c] = a + (float)c;                                                        \
        for (long i = 0; i < n; i++)                                                                                   \
            for (int c = 0; c < (chains); c++) x[c] = x[c] * a + a;                                                    \
        for (int c = 1; c < (chains); c++) x[0] += x[c];                                                               \
        v[0] = x[0];                                                                                                   \
    }

FMA(fma_base, 2)
#if defined(__x86_64__)
FMA(fma_avx2, 6, __attribute__((target("avx2,fma"))))
FMA(fma_avx512, 12, __attribute__((target("avx512f"))))
#endif

static double fma_flops(int threads, const char **isa)
{
    fma_fn *run = fma_base;
    int chains = 2;
    *isa = "base";
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        run = fma_avx512, chains = 12, *isa = "avx512";
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        run = fma_avx2, chains = 6, *isa = "avx2";
#endif
    const long n = 4000000;
    double best = 1e30;
    for (int k = 0; k < ROUNDS; k++) {
        double start = bench_now();
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int t = 0; t < threads; t++) {
            vector16 v;
            for (int i = 0; i < 16; i++) v[i] = 0.4f;
            run(&v, n);
            __asm__ volatile("" ::"m"(v) : "memory");
        }
        double seconds = bench_now() - start;
        if (seconds < best) best = seconds;
    }
    return 2.0 * 16 * chains * (double)n * threads / best;
}

/* ---- matrix products of the library ---- */

static lc_status product_flops(int threads, int64_t m, int64_t k, int64_t n, double *out)
{
    lc_graph_args options = LC_ARGS(lc_graph, .threads = threads);
    lc_graph *g = NULL;
    lc_tensor *a = NULL, *b = NULL;
    int64_t a_shape[] = {m, k}, b_shape[] = {n, k};
    double work = 2.0 * (double)m * (double)k * (double)n, best = 1e30;
    int repeats = (int)(1e9 / work) + 1;
    lc_status s;
    LC_TRY_GOTO(s, done, lc_graph_new_with(&g, &options));
    LC_TRY_GOTO(s, done, lc_tensor_new(LC_F32, 2, a_shape, &a));
    LC_TRY_GOTO(s, done, lc_tensor_new(LC_F32, 2, b_shape, &b));
    for (int i = 0; i < 3 + ROUNDS; i++) {
        /* Several products in one step, so that the step's own cost is negligible. They differ, since equal ones would
         * be merged. */
        double start = bench_now();
        for (int r = 0; r < repeats; r++) {
            LC_TRY_GOTO(s, done, lc_step_begin(g, 0, 0));
            lc_keep(lc_linear(a, b, NULL)); /* [m,k] x [n,k] -> [m,n] */
            LC_TRY_GOTO(s, done, lc_step_run(g));
            LC_TRY_GOTO(s, done, lc_step_end(g));
        }
        double seconds = (bench_now() - start) / repeats;
        if (i >= 3 && seconds < best) best = seconds;
    }
    *out = work / best;
done:
    lc_tensor_unref(a);
    lc_tensor_unref(b);
    lc_graph_free(g);
    return s;
}

lc_status bench_machine(const bench *b)
{
    static const struct {
        const char *name;
        size_t n; /* numbers per array */
    } sizes[] = {{"l2", 60u << 10}, {"l3", 1u << 20}, {"memory", 32u << 20}};
    static const struct {
        const char *name;
        int64_t m, k, n;
    } products[] = {
        {"matmul_64x784x128", 64, 784, 128}, {"matmul_512", 512, 512, 512}, {"matmul_2048", 2048, 2048, 2048}};
    int all = bench_threads(b);
    float *memory = aligned_alloc(64, 3 * sizes[2].n * sizeof *memory);
    if (!memory) return lc_fail(LC_ERR_MEMORY, "cannot allocate 384 MB");
    for (int i = 0; i < 3; i++) {
        /* Each thread works in its own cache. */
        size_t n = sizes[i].n;
        double one = 1e-9 * triad_bytes_per_second(memory, n, 1);
        double many = 1e-9 * triad_bytes_per_second(memory, i < 1 ? n * (size_t)all : n, all);
        char name[64] = "triad_";
        strcat(name, sizes[i].name);
        BENCH_EMIT(b, name, many, "GB/s", {"one_thread", one}, {"bytes", 12.0 * (double)n});
    }
    free(memory);
    const char *isa;
    double one = 1e-9 * fma_flops(1, &isa), many = 1e-9 * fma_flops(all, &isa);
    BENCH_EMIT(b, "fma", many, "GFLOP/s", {"one_thread", one}, {"isa", .text = isa});
    for (int i = 0; i < 3; i++) {
        LC_TRY(product_flops(1, products[i].m, products[i].k, products[i].n, &one));
        LC_TRY(product_flops(all, products[i].m, products[i].k, products[i].n, &many));
        BENCH_EMIT(b, products[i].name, 1e-9 * many, "GFLOP/s", {"one_thread", 1e-9 * one});
    }
    return LC_OK;
}
