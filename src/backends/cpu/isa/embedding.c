/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table, and their gradient. In backward, threads take columns: each adds its part of every row in the order
 * of the ids, so nothing is sorted and the sums are the same for any number of threads. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
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
    lc_dtype dtype; /* of `from` */
    const void *from;
    lc_dtype result;
    void *to;
    bool clear;
} job;

static int64_t id_at(const job *j, int64_t i)
{
    return j->wide_ids ? ((const int64_t *)j->ids)[i] : ((const int32_t *)j->ids)[i];
}

static void copy_row(const job *j, int64_t from, int64_t to)
{
    if (j->dtype == j->result)
        memcpy(stored_at(j->result, j->to, to), stored_at(j->dtype, j->from, from),
               (size_t)j->size * stored_size(j->dtype));
    else if (j->dtype == LC_F32)
        put_run(j->result, j->to, to, j->size, (const float *)j->from + from);
    else
        get_run(j->dtype, j->from, from, j->size, (float *)j->to + to);
}

static void forward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t id = id_at(j, i);
        if (id >= 0 && id < j->rows) {
            copy_row(j, id * j->size, i * j->size);
        } else {
            lc_call_bad_index(j->call, &(lc_bad_index){.input = 0, .at = i, .index = id, .size = j->rows});
            for (int64_t d = 0; d < j->size; d++) STORED(j->result, put, j->to, i * j->size + d, NAN);
        }
    }
}

static bool known_ids(const lc_view *ids)
{
    return ids->dtype == LC_I64 || ids->dtype == LC_I32;
}

static bool forward_supports(const lc_call *call)
{
    const lc_dtype table = call->in[1].dtype, result = call->out[0].dtype;
    return known_ids(&call->in[0]) && is_stored(table) && is_stored(result) &&
           (table == result || table == LC_F32 || result == LC_F32);
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
             .dtype = w->dtype,
             .from = w->data,
             .result = call->out[0].dtype,
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
    memset((float *)j->to + begin, 0, (size_t)(end - begin) * sizeof(float));
}

LC_INLINE void add_run(const lc_dtype t, float *restrict dw, const void *from, int64_t at, int64_t begin, int64_t end)
{
    int64_t d = begin;
    for (; d + VW <= end; d += VW) vstore(dw + d, vload(dw + d) + vget(t, from, at + d));
    for (; d < end; d++) dw[d] += get(t, from, at + d);
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
        STORED(j->dtype, add_run, (float *)j->to + id * j->size, j->from, i * j->size, begin, end);
    }
}

static bool backward_supports(const lc_call *call)
{
    return is_stored(call->in[0].dtype) && call->out[0].dtype == LC_F32 && known_ids(&call->in[1]);
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
             .dtype = call->in[0].dtype,
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
