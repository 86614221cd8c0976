/* SPDX-License-Identifier: Apache-2.0 */
/* Dense copies of any view (`contiguous`): whole runs where both sides are dense, otherwise a transposition in small
 * blocks between the dimension that is dense in the source and the one that is dense in the result. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "tensor/ops/ops.h"

#define BLOCK 32 /* elements each way */

typedef struct dim {
    int64_t size, in, out; /* strides */
} dim;

typedef struct plan {
    size_t size; /* of an element */
    const char *from;
    char *to;
    int n; /* outer dimensions */
    dim outer[LC_MAX_DIMS];
    dim row;    /* dense in the result */
    dim column; /* dense in the source; size 1 if that is the row too */
    int64_t outer_count, row_blocks, column_blocks;
} plan;

static bool make_plan(const lc_call *call, plan *p)
{
    const lc_view *x = &call->in[0], *y = &call->out[0];
    dim dims[LC_MAX_DIMS];
    int n = 0, merged = 0;
    if (x->dtype != y->dtype || x->ndim != y->ndim) return false;
    for (int d = 0; d < y->ndim; d++) {
        dim e = {y->shape[d], x->stride[d], y->stride[d]};
        if (e.size == 1) continue;
        int at = n++;
        while (at > 0 && dims[at - 1].out < e.out) {
            dims[at] = dims[at - 1];
            at--;
        }
        dims[at] = e;
    }
    for (int i = 0; i < n; i++) {
        dim *last = merged ? &dims[merged - 1] : NULL;
        if (last && last->out == dims[i].out * dims[i].size && last->in == dims[i].in * dims[i].size) {
            last->size *= dims[i].size;
            last->in = dims[i].in;
            last->out = dims[i].out;
        } else {
            dims[merged++] = dims[i];
        }
    }
    *p = (plan){.size = lc_dtype_size(y->dtype), .row = {1, 1, 1}, .column = {1, 1, 1}, .outer_count = 1};
    if (merged) p->row = dims[--merged];
    if (p->row.out != 1) return false; /* the result is not dense */
    int dense = -1;
    for (int i = 0; i < merged && p->row.in != 1; i++) {
        if (dims[i].in == 1) dense = i;
    }
    for (int i = 0; i < merged; i++) {
        if (i == dense)
            p->column = dims[i];
        else
            p->outer[p->n++] = dims[i];
        if (i != dense) p->outer_count *= dims[i].size;
    }
    int64_t run = dense >= 0 ? BLOCK : 16384;
    p->row_blocks = (p->row.size + run - 1) / run;
    p->column_blocks = (p->column.size + BLOCK - 1) / BLOCK;
    return true;
}

#define STRIDED_COPY(type)                                                                                             \
    static void copy_##type(const plan *p, const char *from, char *to, int64_t rows, int64_t columns)                  \
    {                                                                                                                  \
        const int64_t in = p->row.in, column_in = p->column.in, column_out = p->column.out;                            \
        for (int64_t c = 0; c < columns; c++) {                                                                        \
            const type *restrict x = (const type *)from + c * column_in;                                               \
            type *restrict y = (type *)to + c * column_out;                                                            \
            for (int64_t r = 0; r < rows; r++) y[r] = x[r * in];                                                       \
        }                                                                                                              \
    }
STRIDED_COPY(uint8_t)
STRIDED_COPY(uint16_t)
STRIDED_COPY(uint32_t)
STRIDED_COPY(uint64_t)

static void copy_block(const plan *p, int64_t in, int64_t out, int64_t rows, int64_t columns)
{
    const char *from = p->from + in * (int64_t)p->size;
    char *to = p->to + out * (int64_t)p->size;
    if (p->row.in == 1 && columns == 1) {
        memcpy(to, from, (size_t)rows * p->size);
        return;
    }
    switch (p->size) {
    case 1:
        copy_uint8_t(p, from, to, rows, columns);
        break;
    case 2:
        copy_uint16_t(p, from, to, rows, columns);
        break;
    case 4:
        copy_uint32_t(p, from, to, rows, columns);
        break;
    default:
        copy_uint64_t(p, from, to, rows, columns);
        break;
    }
}

static void copy_blocks(const void *context, int64_t begin, int64_t end, int thread)
{
    const plan *p = context;
    (void)thread;
    const int64_t run = p->column.size > 1 ? BLOCK : 16384;
    for (int64_t k = begin; k < end; k++) {
        int64_t rest = k, in = 0, out = 0;
        int64_t row = rest % p->row_blocks * run;
        rest /= p->row_blocks;
        int64_t column = rest % p->column_blocks * BLOCK;
        rest /= p->column_blocks;
        for (int d = p->n - 1; d >= 0; d--) {
            in += rest % p->outer[d].size * p->outer[d].in;
            out += rest % p->outer[d].size * p->outer[d].out;
            rest /= p->outer[d].size;
        }
        int64_t rows = p->row.size - row < run ? p->row.size - row : run;
        int64_t columns = p->column.size - column < BLOCK ? p->column.size - column : BLOCK;
        copy_block(p, in + row * p->row.in + column * p->column.in, out + row + column * p->column.out, rows, columns);
    }
}

static bool supports(const lc_call *call)
{
    plan p;
    return make_plan(call, &p);
}

static void run(const lc_call *call)
{
    plan p;
    if (!make_plan(call, &p) || !numel(&call->out[0])) return;
    p.from = call->in[0].data;
    p.to = call->out[0].data;
    int64_t bytes = (int64_t)p.size * (p.column.size > 1 ? BLOCK * BLOCK : p.row.size < 16384 ? p.row.size : 16384);
    lc__parallel_for(call->threads, p.outer_count * p.row_blocks * p.column_blocks, lc__block_size(bytes, 1),
                     copy_blocks, &p);
}

static const lc_kernel kernel = {
    .name = "copy_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = supports,
    .run = run,
};

const lc__kernel_entry LC_ISA_NAME(lc__copy_kernels)[] = {
    {&lc__op_contiguous, &kernel},
    {NULL, NULL},
};
