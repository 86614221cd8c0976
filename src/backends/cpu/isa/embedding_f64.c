/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table in f64, and their gradient, as in embedding.c: in backward, threads take columns. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

#define COLUMNS 32

static int64_t id_at(const lc_view *ids, int64_t i)
{
    return ids->dtype == LC_I64 ? ((const int64_t *)ids->data)[i] : ((const int32_t *)ids->data)[i];
}

static void take_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const lc_view *table = &call->in[1];
    const int64_t rows = table->shape[0], size = table->shape[1];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t id = id_at(&call->in[0], i);
        double *y = (double *)call->out[0].data + i * size;
        if (id >= 0 && id < rows) {
            memcpy(y, (const double *)table->data + id * size, (size_t)size * sizeof *y);
        } else {
            lc_call_bad_index(call, &(lc_bad_index){.input = 0, .at = i, .index = id, .size = rows});
            for (int64_t d = 0; d < size; d++) y[d] = (double)NAN;
        }
    }
}

static void forward_run(const lc_call *call)
{
    lc__parallel_for(call->threads, numel(&call->in[0]), lc__block_size(call->in[1].shape[1] * 16 + 1, 1), take_rows,
                     call);
}

static void add_columns(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const lc_view *ids = &call->in[1], *table = &call->out[0];
    const int64_t rows = table->shape[0], size = table->shape[1], n = numel(ids);
    (void)thread;
    for (int64_t r = 0; !call->accumulate && r < rows; r++)
        memset((double *)table->data + r * size + begin, 0, (size_t)(end - begin) * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        int64_t id = id_at(ids, i);
        if (id < 0 || id >= rows) {
            lc_call_bad_index(call, &(lc_bad_index){.input = 1, .at = i, .index = id, .size = rows});
            continue;
        }
        if (id == call->ints[1]) continue; /* padding */
        const double *restrict dy = (const double *)call->in[0].data + i * size;
        double *restrict dw = (double *)table->data + id * size;
        for (int64_t d = begin; d < end; d++) dw[d] += dy[d];
    }
}

static void backward_run(const lc_call *call)
{
    lc__parallel_for(call->threads, call->out[0].shape[1], COLUMNS, add_columns, call);
}

static bool supports(const lc_call *call)
{
    const lc_view *ids = &call->in[call->op == &lc__op_embedding ? 0 : 1];
    return (ids->dtype == LC_I64 || ids->dtype == LC_I32) && call->out[0].dtype == LC_F64;
}

static const lc_kernel forward_kernel = {
    .name = "embedding_f64_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = supports,
    .run = forward_run,
};

static const lc_kernel backward_kernel = {
    .name = "embedding_backward_f64_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__embedding_f64_kernels)[] = {
    {&lc__op_embedding, &forward_kernel},
    {&lc__op_embedding_backward, &backward_kernel},
    {NULL, NULL},
};
