/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout of row-major tensors. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/philox.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

typedef struct job {
    lc__rng_stream stream;
    int64_t n;
    const lc_view *x, *y;
    uint32_t least; /* keeps an element whose 24 bits are at least this */
    float scale;
    double scale_f64;
} job;

static void drop(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const float scale = j->scale;
    const uint32_t least = j->least;
    (void)thread;
    for (int64_t first = begin; first < end; first += 4 * COUNTERS) { /* begin is a multiple of the step */
        uint32_t words[4 * COUNTERS];
        philox_words(&j->stream, (uint64_t)first >> 2, words);
        int64_t n = end - first < 4 * COUNTERS ? end - first : 4 * COUNTERS;
        float copy[4 * COUNTERS];
        const float *x = floats_of(j->x->dtype, j->x->data, first, n, copy);
        float *y = floats_for(j->y->dtype, j->y->data, first, copy);
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) {
            float v = x[i] * scale;
            y[i] = (words[i] >> 8) >= least ? v : 0.f;
        }
        put_floats(j->y->dtype, j->y->data, first, n, y);
    }
}

static void drop_f64(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const double scale = j->scale_f64;
    (void)thread;
    for (int64_t first = begin; first < end; first += 4 * COUNTERS) {
        uint32_t words[4 * COUNTERS];
        philox_words(&j->stream, (uint64_t)first >> 2, words);
        int64_t n = end - first < 4 * COUNTERS ? end - first : 4 * COUNTERS;
        const double *x = (const double *)j->x->data + first;
        double *y = (double *)j->y->data + first;
        LC_IVDEP
        for (int64_t i = 0; i < n; i++) {
            double v = x[i] * scale;
            y[i] = (words[i] >> 8) >= j->least ? v : 0;
        }
    }
}

static bool supports(const lc_call *call)
{
    if (call->in[0].dtype == LC_F64) return call->out[0].dtype == LC_F64;
    return is_stored(call->in[0].dtype) && is_stored(call->out[0].dtype);
}

static void run(const lc_call *call)
{
    double p = call->floats[0];
    job j = {.stream = lc__rng_stream_of(call),
             .n = numel(&call->in[0]),
             .x = &call->in[0],
             .y = &call->out[0],
             .least = (uint32_t)ceil(p * 0x1p24),
             .scale_f64 = p < 1 ? 1 / (1 - p) : 0};
    j.scale = (float)j.scale_f64;
    lc__parallel_for(call->threads, j.n, 64 * COUNTERS, j.y->dtype == LC_F64 ? drop_f64 : drop, &j);
}

static const lc_kernel kernel = {
    .name = "dropout_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .flags = LC_KERNEL_INPLACE_0,
    .supports = supports,
    .run = run,
};

const lc__kernel_entry LC_ISA_NAME(lc__dropout_kernels)[] = {
    {&lc__op_dropout, &kernel},
    {NULL, NULL},
};
