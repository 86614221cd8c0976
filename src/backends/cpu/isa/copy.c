/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that only move elements: contiguous, cat, pad. Copies between any views whose result has a dense dimension:
 * whole runs if both sides are dense, otherwise a transposition in small blocks between the dimension that is dense in
 * the source and the one that is dense in the result. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"
#include "tensor/tensor_impl.h"

#define BLOCK 32    /* elements in each direction, at most */
#define RUN   16384 /* elements that are copied as they are */

typedef struct dim {
    int64_t size, in, out; /* strides */
} dim;

typedef struct plan {
    size_t size; /* of an element */
    const char *from;
    char *to;
    int n; /* outer dimensions */
    dim outer[LC_MAX_DIMS];
    dim row;                                             /* dense in the result */
    dim column;                                          /* dense in the source; size 1 if that is the row */
    int64_t outer_count, run, row_blocks, column_blocks; /* run: rows of a block */
} plan;

static bool make_plan(const lc_view *x, const lc_view *y, plan *p)
{
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
    const int64_t most = dense >= 0 ? BLOCK : RUN;
    p->row_blocks = (p->row.size + most - 1) / most;
    p->run = p->row_blocks ? (p->row.size + p->row_blocks - 1) / p->row_blocks : 1;
    p->column_blocks = (p->column.size + BLOCK - 1) / BLOCK;
    return true;
}

/* ---- blocks ---- */
#define STRIDED_COPY(type)                                                                                             \
    static void copy_##type(const plan *p, const type *from, type *to, int64_t rows, int64_t columns)                  \
    {                                                                                                                  \
        const int64_t in = p->row.in, out = p->row.out, column_in = p->column.in, column_out = p->column.out;          \
        for (int64_t c = 0; c < columns; c++) {                                                                        \
            const type *restrict x = from + c * column_in;                                                             \
            type *restrict y = to + c * column_out;                                                                    \
            for (int64_t r = 0; r < rows; r++) y[r * out] = x[r * in];                                                 \
        }                                                                                                              \
    }
STRIDED_COPY(uint8_t)
STRIDED_COPY(uint16_t)
STRIDED_COPY(uint32_t)
STRIDED_COPY(uint64_t)

/* Squares of elements, as many as a vector of 16 bytes has, whose rows become columns. */
typedef uint16_t v8h __attribute__((vector_size(16)));
typedef uint32_t v4w __attribute__((vector_size(16)));
typedef uint64_t v2d __attribute__((vector_size(16)));
typedef uint16_t v8h_any __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t v4w_any __attribute__((vector_size(16), aligned(4), may_alias));

#define LOW_PAIR(type, a, b)  __builtin_shufflevector((type)(a), (type)(b), 0, 2)
#define HIGH_PAIR(type, a, b) __builtin_shufflevector((type)(a), (type)(b), 1, 3)

LC_INLINE void turn_uint32_t(const uint32_t *from, int64_t in, uint32_t *to, int64_t out)
{
    v4w a[4], b[4];
    for (int i = 0; i < 4; i++) a[i] = *(const v4w_any *)(from + i * in);
    for (int i = 0; i < 4; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 4, 1, 5);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 6, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        *(v4w_any *)(to + 2 * i * out) = (v4w)LOW_PAIR(v2d, b[i], b[i + 2]);
        *(v4w_any *)(to + (2 * i + 1) * out) = (v4w)HIGH_PAIR(v2d, b[i], b[i + 2]);
    }
}

LC_INLINE void turn_uint16_t(const uint16_t *from, int64_t in, uint16_t *to, int64_t out)
{
    v8h a[8], b[8];
    v4w c[8];
    for (int i = 0; i < 8; i++) a[i] = *(const v8h_any *)(from + i * in);
    for (int i = 0; i < 8; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 2, 10, 3, 11);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int k = 0; k < 2; k++) {
            const v4w x = (v4w)b[i + k], y = (v4w)b[i + 2 + k];
            c[i + 2 * k] = __builtin_shufflevector(x, y, 0, 4, 1, 5);
            c[i + 2 * k + 1] = __builtin_shufflevector(x, y, 2, 6, 3, 7);
        }
    }
    for (int i = 0; i < 4; i++) {
        *(v8h_any *)(to + 2 * i * out) = (v8h)LOW_PAIR(v2d, c[i], c[i + 4]);
        *(v8h_any *)(to + (2 * i + 1) * out) = (v8h)HIGH_PAIR(v2d, c[i], c[i + 4]);
    }
}

/* The last squares of a block overlap those before. */
#define TURNED_COPY(type)                                                                                              \
    static void copy_turned_##type(const plan *p, const type *from, type *to, int64_t rows, int64_t columns)           \
    {                                                                                                                  \
        const int64_t side = 16 / (int64_t)sizeof(type), in = p->row.in, out = p->column.out;                          \
        if (p->column.in != 1 || p->row.out != 1 || rows < side || columns < side) {                                   \
            copy_##type(p, from, to, rows, columns);                                                                   \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t k = 0; k < rows; k += side) {                                                                     \
            const int64_t r = k + side > rows ? rows - side : k;                                                       \
            for (int64_t q = 0; q < columns; q += side) {                                                              \
                const int64_t c = q + side > columns ? columns - side : q;                                             \
                turn_##type(from + r * in + c, in, to + c * out + r, out);                                             \
            }                                                                                                          \
        }                                                                                                              \
    }
TURNED_COPY(uint16_t)
TURNED_COPY(uint32_t)

static void copy_block(const plan *p, int64_t in, int64_t out, int64_t rows, int64_t columns)
{
    const void *from = p->from + in * (int64_t)p->size;
    void *to = p->to + out * (int64_t)p->size;
    if (p->row.in == 1 && p->row.out == 1 && columns == 1)
        memcpy(to, from, (size_t)rows * p->size);
    else if (p->size == 1)
        copy_uint8_t(p, from, to, rows, columns);
    else if (p->size == 2)
        copy_turned_uint16_t(p, from, to, rows, columns);
    else if (p->size == 4)
        copy_turned_uint32_t(p, from, to, rows, columns);
    else
        copy_uint64_t(p, from, to, rows, columns);
}

static void copy_blocks(const void *context, int64_t begin, int64_t end, int thread)
{
    const plan *p = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t rest = k, in = 0, out = 0;
        int64_t row = rest % p->row_blocks * p->run;
        rest /= p->row_blocks;
        int64_t column = rest % p->column_blocks * BLOCK;
        rest /= p->column_blocks;
        for (int d = p->n - 1; d >= 0; d--) {
            in += rest % p->outer[d].size * p->outer[d].in;
            out += rest % p->outer[d].size * p->outer[d].out;
            rest /= p->outer[d].size;
        }
        int64_t rows = p->row.size - row < p->run ? p->row.size - row : p->run;
        int64_t columns = p->column.size - column < BLOCK ? p->column.size - column : BLOCK;
        copy_block(p, in + row * p->row.in + column * p->column.in, out + row * p->row.out + column * p->column.out,
                   rows, columns);
    }
}

/* Copies x to y, which have the same shape. */
static void copy_view(int threads, const lc_view *x, const lc_view *y)
{
    plan p;
    if (!make_plan(x, y, &p) || !numel(y)) return;
    p.from = x->data;
    p.to = y->data;
    int64_t bytes = (int64_t)p.size * (p.column.size > 1 ? BLOCK * BLOCK : p.row.size < RUN ? p.row.size : RUN);
    lc__parallel_for(threads, p.outer_count * p.row_blocks * p.column_blocks, lc__block_size(bytes, 1), copy_blocks,
                     &p);
}

/* ---- contiguous ---- */
static bool contiguous_supports(const lc_call *call)
{
    plan p;
    return make_plan(&call->in[0], &call->out[0], &p);
}

static void contiguous_run(const lc_call *call)
{
    copy_view(call->threads, &call->in[0], &call->out[0]);
}

static const lc_kernel contiguous_kernel = {
    .name = "copy_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = contiguous_supports,
    .run = contiguous_run,
};

/* ---- cat: ints dim ---- */
/* The part of the result that input i fills; *first: in, its start along the dimension; out, that of the next part. */
static lc_view part_of(const lc_call *call, int i, int64_t *first)
{
    int d = (int)call->ints[0];
    lc_view part = call->out[0];
    part.data = (char *)part.data + *first * part.stride[d] * (int64_t)lc_dtype_size(part.dtype);
    part.shape[d] = call->in[i].shape[d];
    *first += part.shape[d];
    return part;
}

static bool cat_supports(const lc_call *call)
{
    plan p;
    for (int i = 0; i < call->n_in; i++) {
        lc_view part = call->out[0];
        part.shape[call->ints[0]] = call->in[i].shape[call->ints[0]];
        if (numel(&part) && !make_plan(&call->in[i], &part, &p)) return false;
    }
    return true;
}

static void cat_run(const lc_call *call)
{
    int64_t first = 0;
    for (int i = 0; i < call->n_in; i++) {
        lc_view part = part_of(call, i, &first);
        copy_view(call->threads, &call->in[i], &part);
    }
}

static const lc_kernel cat_kernel = {
    .name = "cat_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = cat_supports,
    .run = cat_run,
};

/* ---- pad: ints before, after of every dimension; floats value ---- */
/* The elements that the source and the result have in common. Negative padding cuts elements off. */
static void common_part(const lc_call *call, lc_view *from, lc_view *to)
{
    *from = call->in[0];
    *to = call->out[0];
    for (int d = 0; d < to->ndim; d++) {
        int64_t before = call->ints[2 * d], after = call->ints[2 * d + 1];
        int64_t skip_to = before > 0 ? before : 0, skip_from = before < 0 ? -before : 0;
        int64_t length = from->shape[d] - skip_from - (after < 0 ? -after : 0);
        to->data = (char *)to->data + skip_to * to->stride[d] * (int64_t)lc_dtype_size(to->dtype);
        from->data = (char *)from->data + skip_from * from->stride[d] * (int64_t)lc_dtype_size(to->dtype);
        to->shape[d] = from->shape[d] = length > 0 ? length : 0;
    }
}

static bool pad_supports(const lc_call *call)
{
    plan p;
    lc_call shifted = *call;
    lc_view in = call->in[0], out = call->out[0], from, to;
    bool gaps = !is_row_major(&out) && !lc__is_dense(out.ndim, out.shape, out.stride, LC_CHANNELS_LAST);
    if (!is_stored(in.dtype) || gaps) return false;
    in.data = out.data = &in; /* only moved, never read */
    shifted.in = &in;
    shifted.out = &out;
    common_part(&shifted, &from, &to);
    return numel(&to) == 0 || make_plan(&from, &to, &p);
}

typedef struct fill {
    lc_dtype dtype;
    void *to;
    float value;
    const void *from; /* rows of `length` elements, `before` and `after` of the value around each */
    int64_t before, length, after;
} fill;

LC_INLINE void fill_run(const lc_dtype t, void *to, int64_t first, int64_t n, float value)
{
    char bits[sizeof value];
    put(t, bits, 0, value);
    for (int64_t i = first; i < first + n; i++) memcpy(stored_at(t, to, i), bits, stored_size(t));
}

static void fill_elements(const void *context, int64_t begin, int64_t end, int thread)
{
    const fill *f = context;
    (void)thread;
    STORED(f->dtype, fill_run, f->to, begin, end - begin, f->value);
}

LC_INLINE void pad_rows_of(const lc_dtype t, const fill *f, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        int64_t at = r * (f->before + f->length + f->after);
        fill_run(t, f->to, at, f->before, f->value);
        at += f->before;
        memcpy(stored_at(t, f->to, at), stored_at(t, f->from, r * f->length), (size_t)f->length * stored_size(t));
        fill_run(t, f->to, at + f->length, f->after, f->value);
    }
}

static void pad_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    STORED(((const fill *)context)->dtype, pad_rows_of, context, begin, end);
}

static void pad_run(const lc_call *call)
{
    const lc_view *x = &call->in[0], *y = &call->out[0];
    fill f = {.dtype = y->dtype, .to = y->data, .value = (float)call->floats[0], .from = x->data};
    int last = y->ndim - 1;
    bool rows = last >= 0 && is_row_major(x) && is_row_major(y);
    for (int d = 0; d <= last; d++) {
        const int64_t *pad = call->ints + 2 * d;
        rows = rows && (d < last ? !pad[0] && !pad[1] : pad[0] >= 0 && pad[1] >= 0);
    }
    if (rows) { /* only the last dimension grows: one pass */
        f.before = call->ints[2 * last];
        f.length = x->shape[last];
        f.after = call->ints[2 * last + 1];
        lc__parallel_for(call->threads, extent(y, 0, last), lc__block_size(y->shape[last] * 8 + 1, 1), pad_rows, &f);
        return;
    }
    lc_view from, to;
    common_part(call, &from, &to);
    lc__parallel_for(call->threads, numel(y), 16384, fill_elements, &f);
    copy_view(call->threads, &from, &to);
}

static const lc_kernel pad_kernel = {
    .name = "pad_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = pad_supports,
    .run = pad_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__copy_kernels)[] = {
    {&lc__op_contiguous, &contiguous_kernel},
    {&lc__op_cat, &cat_kernel},
    {&lc__op_pad, &pad_kernel},
    {NULL, NULL},
};
