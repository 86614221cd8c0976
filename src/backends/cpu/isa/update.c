/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers' updates: the loops of src/optim/, compiled for this instruction set, over blocks of all segments. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/parallel.h"
#include "optim/loop.h"

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

#define BLOCK 16384 /* elements; parameters, gradients and state of one stay in the second-level cache */

typedef struct piece {
    int64_t segment, begin, n;
} piece;

typedef struct pieces {
    int64_t n;
    piece list[];
} pieces;

static lc_status prepare(lc_call *call)
{
    int64_t n = 0, at = 0, segments = call->ints[LC_U_SEGMENTS];
    for (int64_t i = 0; i < segments; i++) n += (call->ints[LC_U_FIRST + 3 * i + 1] + BLOCK - 1) / BLOCK;
    pieces *p = malloc(sizeof *p + (size_t)n * sizeof p->list[0]);
    if (!p) return lc_fail(LC_ERR_MEMORY, "cannot get memory for an update of %lld blocks", (long long)n);
    p->n = n;
    for (int64_t i = 0; i < segments; i++) {
        int64_t count = call->ints[LC_U_FIRST + 3 * i + 1];
        for (int64_t begin = 0; begin < count; begin += BLOCK)
            p->list[at++] = (piece){i, begin, count - begin < BLOCK ? count - begin : BLOCK};
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
    return call->in[0].dtype == LC_F32;
}

typedef struct job {
    const lc_call *call;
    lc__range_fn *loop;
} job;

static void run_pieces(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const pieces *p = j->call->state;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        lc__range r;
        lc__update_range(j->call, p->list[k].segment, p->list[k].begin, p->list[k].n, &r);
        j->loop(&r);
    }
}

static void run_update(const lc_call *call, lc__range_fn *loop)
{
    job j = {call, loop};
    const pieces *p = call->state;
    lc__parallel_for(call->threads, p->n, 1, run_pieces, &j);
    lc__update_finish(call);
}

#define UPDATE_KERNEL(id, n_state)                                                                                     \
    static void id##_run(const lc_call *call)                                                                          \
    {                                                                                                                  \
        run_update(call, id##_f32);                                                                                    \
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
        {NULL, NULL},
};
