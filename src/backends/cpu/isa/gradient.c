/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's operators on whole gradients: accumulation, and the norm for clipping. Both are cut into blocks of fixed
 * size. */
#include "backends/cpu/isa/finite.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vec.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"
#include "optim/clip.h"

#include <stdlib.h>

#define BLOCK 16384

/* ---- accumulate_grad: in gradient, value; ints 0 overwrite, 1 add ---- */
typedef struct sum_job {
    float *to;
    const float *from;
    bool add;
} sum_job;

static void accumulate_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = context;
    (void)thread;
    if (!j->add) {
        memcpy(j->to + begin, j->from + begin, (size_t)(end - begin) * sizeof(float));
        return;
    }
    float *restrict to = j->to;
    const float *restrict from = j->from;
    for (int64_t i = begin; i < end; i++) to[i] += from[i];
}

/* Both have the same layout, without gaps. */
static bool accumulate_supports(const lc_call *call)
{
    const lc_view *a = &call->in[0], *b = &call->in[1];
    int64_t span = 1;
    if (a->dtype != LC_F32 || b->dtype != LC_F32 || a->ndim != b->ndim) return false;
    for (int d = 0; d < a->ndim; d++) {
        if (a->shape[d] == 1) continue;
        if (a->shape[d] != b->shape[d] || a->stride[d] != b->stride[d] || a->stride[d] < 1) return false;
        span += (a->shape[d] - 1) * a->stride[d];
    }
    return span == numel(a);
}

static void accumulate_run(const lc_call *call)
{
    sum_job j = {call->in[0].data, call->in[1].data, call->ints[0] != 0};
    lc__parallel_for(call->threads, numel(&call->in[0]), BLOCK, accumulate_block, &j);
}

static const lc_kernel accumulate_kernel = {
    .name = "accumulate_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = accumulate_supports,
    .run = accumulate_run,
};

/* ---- clip_coefficient (optim/clip.c) ---- */
typedef struct piece {
    int64_t input, begin, n;
} piece;

typedef struct pieces {
    int64_t n, numbers;
    piece list[];
} pieces;

static bool clip_supports(const lc_call *call)
{
    return f32_call(call);
}

static lc_status clip_prepare(lc_call *call)
{
    int64_t n = 0, at = 0;
    for (int i = LC__CLIP_FIRST; i + 2 < call->n_int; i += 3) n += (call->ints[i + 2] + BLOCK - 1) / BLOCK;
    pieces *p = malloc(sizeof *p + (size_t)n * sizeof p->list[0]);
    if (!p) return lc_fail(LC_ERR_MEMORY, "cannot get memory for a norm over %lld blocks", (long long)n);
    p->n = n;
    p->numbers = 0;
    for (int i = LC__CLIP_FIRST; i + 2 < call->n_int; i += 3) {
        int64_t offset = call->ints[i + 1], count = call->ints[i + 2];
        p->numbers += count;
        for (int64_t begin = 0; begin < count; begin += BLOCK)
            p->list[at++] = (piece){call->ints[i], offset + begin, count - begin < BLOCK ? count - begin : BLOCK};
    }
    call->state = p;
    call->scratch_bytes = (size_t)n * (call->ints[LC__CLIP_ONLY_FINITE] ? sizeof(double) : sizeof(lc__exact_sum));
    return LC_OK;
}

static void clip_release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

/* In double: squares of gradients easily leave the range of f32. The blocks are those of optim/clip.c. */
static void add_squares(const float *x, int64_t n, lc__exact_sum *sum)
{
    typedef double vd __attribute__((vector_size(VW * 4)));
    typedef float half __attribute__((vector_size(VW * 2), aligned(4), may_alias));
    enum { LANES = VW / 2, NORM_BLOCK = LC__NORM_BLOCK_BYTES / sizeof(float) };
    for (int64_t at = 0; at < n; at += NORM_BLOCK) {
        int64_t i = at, end = at + NORM_BLOCK < n ? at + NORM_BLOCK : n;
        vd s0 = {0}, s1 = {0};
        for (; i + 2 * LANES <= end; i += 2 * LANES) {
            vd a = __builtin_convertvector(*(const half *)(x + i), vd);
            vd b = __builtin_convertvector(*(const half *)(x + i + LANES), vd);
            s0 += a * a;
            s1 += b * b;
        }
        s0 += s1;
        double total = 0;
        for (int k = 0; k < LANES; k++) total += s0[k];
        for (; i < end; i++) total += (double)x[i] * (double)x[i];
        lc__exact_add(sum, total);
    }
}

static const float *data_of(const lc_call *call, const piece *p)
{
    return (const float *)call->in[p->input].data + p->begin;
}

static void finite_pieces(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const pieces *p = call->state;
    double *zeros = call->scratch;
    (void)thread;
    for (int64_t k = begin; k < end; k++)
        zeros[k] = (double)zero_if_finite(data_of(call, &p->list[k]), 1, 0, p->list[k].n);
}

static void square_pieces(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const pieces *p = call->state;
    lc__exact_sum *sums = call->scratch;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        memset(&sums[k], 0, sizeof sums[k]);
        add_squares(data_of(call, &p->list[k]), p->list[k].n, &sums[k]);
    }
}

static void clip_run(const lc_call *call)
{
    const pieces *p = call->state;
    const int threads = p->numbers > BLOCK ? call->threads : 1; /* products may have checked most gradients */
    lc__exact_sum total = {0};
    if (call->ints[LC__CLIP_ONLY_FINITE]) {
        const double *zeros = call->scratch;
        double zero = 0;
        lc__parallel_for(threads, p->n, 1, finite_pieces, call);
        for (int64_t k = 0; k < p->n; k++) zero += zeros[k];
        lc__exact_add(&total, zero);
    } else {
        const lc__exact_sum *sums = call->scratch;
        lc__parallel_for(threads, p->n, 1, square_pieces, call);
        for (int64_t k = 0; k < p->n; k++) lc__exact_merge(&total, &sums[k]);
    }
    lc__clip_finish(call, &total);
}

static const lc_kernel clip_kernel = {
    .name = "clip_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = clip_supports,
    .prepare = clip_prepare,
    .run = clip_run,
    .release = clip_release,
};

const lc__kernel_entry LC_ISA_NAME(lc__gradient_kernels)[] = {
    {&lc__op_accumulate, &accumulate_kernel},
    {&lc__op_clip_coefficient, &clip_kernel},
    {&lc__op_clip_over_ranks, &clip_kernel},
    {NULL, NULL},
};
