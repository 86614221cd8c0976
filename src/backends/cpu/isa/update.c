/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of optimizers: the loops of src/optim/, compiled for this instruction set, over all segments. Parameters of
 * 16 bits, or their master weights (optim/master.h), are computed as f32 in pieces that stay in the first-level cache.
 */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/philox.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "optim/keep_low.h"
#include "optim/loop.h"
#include "optim/stochastic.h"

#include <stdlib.h>

#define REAL           float
#define LC_LOOP_SUFFIX f32
#include "optim/adadelta.inl"
#include "optim/adagrad.inl"
#include "optim/adam.inl"
#include "optim/adamax.inl"
#include "optim/nadam.inl"
#include "optim/radam.inl"
#include "optim/rmsprop.inl"
#include "optim/rprop.inl"
#include "optim/sgd.inl"
#undef REAL
#undef LC_LOOP_SUFFIX

#define REAL           double
#define LC_LOOP_SUFFIX f64
#include "optim/adadelta.inl"
#include "optim/adagrad.inl"
#include "optim/adam.inl"
#include "optim/adamax.inl"
#include "optim/nadam.inl"
#include "optim/radam.inl"
#include "optim/rmsprop.inl"
#include "optim/rprop.inl"
#include "optim/sgd.inl"

/* A part of a segment, and the share of the work it belongs to. There is one share for each thread, of equal size, so
 * that a large segment does not keep one thread busy longer than the others. */
typedef struct piece {
    int64_t segment, begin, n, share;
} piece;

typedef struct pieces {
    int64_t n, shares;
    piece list[];
} pieces;

#define CUT 64 /* elements; shares are cut at multiples of it */

static lc_status prepare(lc_call *call)
{
    int64_t segments = call->ints[LC_U_SEGMENTS], shares = call->threads, total = 0, done = 0, share = 0;
    for (int64_t i = 0; i < segments; i++) total += lc__update_segment(call, i)[LC_S_COUNT];
    pieces *p = malloc(sizeof *p + (size_t)(segments + shares) * sizeof p->list[0]);
    if (!p) return lc_fail(LC_ERR_MEMORY, "cannot get memory for an update of %lld parameters", (long long)segments);
    p->n = 0;
    p->shares = shares;
    for (int64_t i = 0; i < segments; i++) {
        int64_t count = lc__update_segment(call, i)[LC_S_COUNT];
        for (int64_t begin = 0; begin < count;) {
            int64_t left = total * (share + 1) / shares - done, n = count - begin;
            if (share + 1 < shares && n > left) n = (left + CUT - 1) / CUT * CUT;
            if (n > count - begin) n = count - begin;
            p->list[p->n++] = (piece){i, begin, n, share};
            begin += n;
            done += n;
            while (share + 1 < shares && done >= total * (share + 1) / shares) share++;
        }
    }
    call->state = p;
    return LC_OK;
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

static bool supports(const lc_call *call)
{
    const lc_dtype dtype = call->in[0].dtype, of_gradient = call->in[1].dtype;
    return (is_stored(dtype) || dtype == LC_F64) &&
           (of_gradient == dtype || (dtype != LC_F64 && of_gradient == LC_F32));
}

typedef struct job {
    const lc_call *call;
    lc__range_fn *loop;
} job;

#define HALVES 1024 /* that are computed at a time */

/* Puts into `master` the numbers that an update begins with: see lc__master_of. */
LC_INLINE void take_master(const lc_dtype t, const void *parameters, int64_t n, float *restrict master)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        const vf m = vload(master + i), p = vget(t, parameters, i);
        vstore(master + i, vselect((vi)vrounded(t, m) == (vi)p, m, p));
    }
    for (; i < n; i++) {
        const float p = get(t, parameters, i), r = rounded(t, master[i]);
        if (vm_bits(p) != vm_bits(r)) master[i] = p;
    }
}

LC_INLINE void round_by(const lc_dtype t, uint16_t *restrict to, const float *restrict value,
                        const uint32_t *restrict words, int64_t n)
{
    LC_IVDEP
    for (int64_t i = 0; i < n; i++)
        to[i] = t == LC_F16 ? lc__f32_to_f16_random(value[i], words[i]) : lc__f32_to_bf16_random(value[i], words[i]);
}

/* Elements from `begin` on of a segment (optim/stochastic.h). */
static void put_at_random(const lc_call *call, int64_t segment, int64_t begin, double updates, void *parameters,
                          int64_t n, const float *value)
{
    const int64_t *entry = lc__update_segment(call, segment), first = entry[LC_S_FIRST] + begin, skip = first & 3;
    const lc__rng_stream stream = lc__rounding_stream(call, entry[LC_S_INDEX], updates);
    uint32_t words[HALVES + 4 * COUNTERS];
    for (int64_t at = 0; at < skip + n; at += 4 * COUNTERS)
        philox_words(&stream, (uint64_t)(first + at) >> 2, words + at);
    if (call->in[0].dtype == LC_F16)
        round_by(LC_F16, parameters, value, words + skip, n);
    else
        round_by(LC_BF16, parameters, value, words + skip, n);
}

static void update_halves(const job *j, const piece *of)
{
    const lc_call *call = j->call;
    const lc_dtype dtype = call->in[0].dtype;
    float *master = call->in[call->n_in - 2].data;
    if (master) master += lc__update_segment(call, of->segment)[LC_S_OFFSET];
    for (int64_t begin = of->begin; begin < of->begin + of->n; begin += HALVES) {
        const int64_t left = of->begin + of->n - begin, n = left < HALVES ? left : HALVES;
        float p[HALVES], g[HALVES], *value = master ? master + begin : p;
        lc__range r;
        lc__update_range(call, of->segment, begin, n, &r);
        void *parameters = r.p;
        if (master)
            STORED(dtype, take_master, parameters, n, value);
        else
            get_run(dtype, parameters, 0, n, value);
        if (call->in[1].dtype != LC_F32) {
            get_run(call->in[1].dtype, r.g, 0, n, g);
            r.g = g;
        }
        r.p = value;
        j->loop(&r);
        if (r.flags & LC_OPT_STOCHASTIC_ROUNDING)
            put_at_random(call, of->segment, begin, r.step, parameters, n, value);
        else
            put_run(dtype, parameters, 0, n, value);
    }
}

/* f32 that have low copies. */
static void update_both(const job *j, const piece *of)
{
    const lc_call *call = j->call;
    const lc_dtype dtype = call->in[call->n_in - 1].dtype;
    for (int64_t begin = of->begin; begin < of->begin + of->n; begin += HALVES) {
        const int64_t left = of->begin + of->n - begin, n = left < HALVES ? left : HALVES;
        lc__range r;
        lc__update_range(call, of->segment, begin, n, &r);
        j->loop(&r);
        put_run(dtype, lc__update_low(call, of->segment, begin), 0, n, r.p);
    }
}

static void run_shares(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const pieces *p = j->call->state;
    const bool halves = lc_dtype_size(j->call->in[0].dtype) == 2;
    (void)thread;
    for (int64_t k = 0; k < p->n; k++) {
        if (p->list[k].share < begin || p->list[k].share >= end) continue;
        if (halves) {
            update_halves(j, &p->list[k]);
            continue;
        }
        if (lc__update_low(j->call, p->list[k].segment, 0)) {
            update_both(j, &p->list[k]);
            continue;
        }
        lc__range r;
        lc__update_range(j->call, p->list[k].segment, p->list[k].begin, p->list[k].n, &r);
        j->loop(&r);
    }
}

static void run_update(const lc_call *call, lc__range_fn *loop)
{
    job j = {call, loop};
    const pieces *p = call->state;
    if (lc__update_skipped(call)) return;
    lc__parallel_for(call->threads, p->shares, 1, run_shares, &j);
    lc__update_finish(call);
}

/* ---- low copies of parameters that something else has written ---- */

static bool refresh_supports(const lc_call *call)
{
    return call->in[0].dtype == LC_F32 && is_stored(call->in[1].dtype);
}

/* Both are dense and in the same order. */
static void refresh_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    (void)thread;
    put_run(call->in[1].dtype, call->in[1].data, begin, end - begin, (const float *)call->in[0].data + begin);
}

static void refresh_run(const lc_call *call)
{
    if (!lc__refresh_needed(call)) return;
    lc__parallel_for(call->threads, numel(&call->in[0]), 16 * HALVES, refresh_block, call);
    lc__refreshed(call);
}

static const lc_kernel refresh_kernel = {
    .name = "refresh_low_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = refresh_supports,
    .run = refresh_run,
};

/* ---- the list ---- */

#define UPDATE_KERNEL(id, n_state)                                                                                     \
    static void id##_run(const lc_call *call)                                                                          \
    {                                                                                                                  \
        run_update(call, call->in[0].dtype == LC_F64 ? id##_f64 : id##_f32);                                           \
    }                                                                                                                  \
    static const lc_kernel id##_kernel = {                                                                             \
        .name = "update_" #id "_" LC_ISA_STRING,                                                                       \
        .layout = LC_WANT_ROW_MAJOR,                                                                                   \
        .supports = supports,                                                                                          \
        .prepare = prepare,                                                                                            \
        .run = id##_run,                                                                                               \
        .release = release,                                                                                            \
    };
LC_UPDATE_LIST(UPDATE_KERNEL)

const lc__kernel_entry LC_ISA_NAME(lc__update_kernels)[] = {
#define ENTRY(id, n_state) {&lc__op_update_##id, &id##_kernel},
    LC_UPDATE_LIST(ENTRY)
#undef ENTRY
        {&lc__op_refresh_low, &refresh_kernel},
    {NULL, NULL},
};
