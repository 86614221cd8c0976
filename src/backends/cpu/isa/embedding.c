/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table, and their gradient. In backward, threads take columns: each adds its part of every row in the order
 * of the ids, so nothing is sorted and the sums are the same for any number of threads. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define COLUMNS 64

typedef struct job {
    const lc_call *call;
    const void *ids;
    bool wide_ids;
    int64_t count, rows, size, padding;
    const float *from;
    float *to;
    bool clear;
} job;

static int64_t id_at(const job *j, int64_t i)
{
    return j->wide_ids ? ((const int64_t *)j->ids)[i] : ((const int32_t *)j->ids)[i];
}

static void forward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t id = id_at(j, i);
        float *y = j->to + i * j->size;
        if (id >= 0 && id < j->rows) {
            memcpy(y, j->from + id * j->size, (size_t)j->size * sizeof *y);
        } else {
            lc_call_bad_index(j->call, &(lc_bad_index){.input = 0, .at = i, .index = id, .size = j->rows});
            for (int64_t d = 0; d < j->size; d++) y[d] = NAN;
        }
    }
}

static bool known_ids(const lc_view *ids)
{
    return ids->dtype == LC_I64 || ids->dtype == LC_I32;
}

static bool forward_supports(const lc_call *call)
{
    return known_ids(&call->in[0]) && call->in[1].dtype == LC_F32;
}

static void forward_run(const lc_call *call)
{
    const lc_view *ids = &call->in[0], *w = &call->in[1];
    job j = {.call = call,
             .ids = ids->data,
             .wide_ids = ids->dtype == LC_I64,
             .count = numel(ids),
             .rows = w->shape[0],
             .size = w->shape[1],
             .from = w->data,
             .to = call->out[0].data};
    lc__parallel_for(call->threads, j.count, lc__block_size(j.size * 8 + 1, 1), forward_rows, &j);
}

static const lc_kernel forward_kernel = {
    .name = "embedding_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = forward_supports,
    .run = forward_run,
};

static void clear_elements(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    memset(j->to + begin, 0, (size_t)(end - begin) * sizeof *j->to);
}

static void add_columns(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t i = 0; i < j->count; i++) {
        int64_t id = id_at(j, i);
        if (id < 0 || id >= j->rows) {
            lc_call_bad_index(j->call, &(lc_bad_index){.input = 1, .at = i, .index = id, .size = j->rows});
            continue;
        }
        if (id == j->padding) continue;
        const float *restrict dy = j->from + i * j->size;
        float *restrict dw = j->to + id * j->size;
        for (int64_t d = begin; d < end; d++) dw[d] += dy[d];
    }
}

static bool backward_supports(const lc_call *call)
{
    return call->in[0].dtype == LC_F32 && known_ids(&call->in[1]);
}

static void backward_run(const lc_call *call)
{
    const lc_view *ids = &call->in[1], *dw = &call->out[0];
    job j = {.call = call,
             .ids = ids->data,
             .wide_ids = ids->dtype == LC_I64,
             .count = numel(ids),
             .rows = dw->shape[0],
             .size = dw->shape[1],
             .padding = call->ints[1],
             .from = call->in[0].data,
             .to = dw->data};
    if (!call->accumulate) lc__parallel_for(call->threads, j.rows * j.size, 1 << 16, clear_elements, &j);
    lc__parallel_for(call->threads, j.size, COLUMNS, add_columns, &j);
}

static const lc_kernel backward_kernel = {
    .name = "embedding_backward_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = backward_supports,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__embedding_kernels)[] = {
    {&lc__op_embedding, &forward_kernel},
    {&lc__op_embedding_backward, &backward_kernel},
    {NULL, NULL},
};
