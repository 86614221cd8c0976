/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators in f64, single and in fused programs, tile by tile. A tile is a run of the result's memory.
 * Operands with the result's layout are read in place; others (broadcast, other data types) are first written out into
 * a tile of doubles. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/tiles_f64.h"
#include "backends/cpu/parallel.h"
#include "ops/fused.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define TILE            512
#define TILES_PER_BLOCK 16
#define MAX_REGISTERS   (LC_FUSED_MAX_INPUTS + LC_FUSED_MAX_INSTRUCTIONS)

typedef struct instruction {
    int index, n_in, in[3], float_index;
    int64_t k[2];
} instruction;

/* The iteration space in the order of memory, outermost dimension first; strides of inputs in elements. */
typedef struct program {
    int n_code, out[LC_FUSED_MAX_OUTPUTS];
    instruction code[LC_FUSED_MAX_INSTRUCTIONS];
    lc_dtype dtype[MAX_REGISTERS];
    bool in_place[LC_FUSED_MAX_INPUTS];
    int ndim;
    int64_t count, shape[LC_MAX_DIMS], stride[LC_FUSED_MAX_INPUTS][LC_MAX_DIMS];
} program;

/* ---- the program, decoded from the call ---- */
static bool is_truth(lc_dtype dtype)
{
    return dtype == LC_BOOL || dtype == LC_U8;
}

/* The data type of an instruction's result; 0 if its operands cannot be represented by tiles of f64. */
static lc_dtype result_dtype(lc__tile_kind kind, int n_in, const lc_dtype *in, const int64_t *k)
{
    switch (kind) {
    case LC__TILE_FLOAT:
    case LC__TILE_ARITH:
        for (int i = 0; i < n_in; i++) {
            if (in[i] != LC_F64) return 0;
        }
        return LC_F64;
    case LC__TILE_COMPARE:
        for (int i = 0; i < n_in; i++) {
            if (in[i] != LC_F64 && !is_truth(in[i])) return 0;
        }
        return LC_BOOL;
    case LC__TILE_SELECT:
        return is_truth(in[0]) && in[1] == LC_F64 && in[2] == LC_F64 ? LC_F64 : 0;
    case LC__TILE_FILL:
        return in[0] == LC_F64 && is_truth(in[1]) ? LC_F64 : 0;
    case LC__TILE_CAST:
        if (in[0] == LC_F64) return k[0] == LC_F32 || k[0] == LC_BOOL ? (lc_dtype)k[0] : k[0] == LC_F64 ? LC_F64 : 0;
        return k[0] == LC_F64 && (in[0] == LC_F32 || in[0] == LC_I64 || in[0] == LC_I32 || is_truth(in[0])) ? LC_F64
                                                                                                            : 0;
    }
    return 0;
}

static bool read_code(const lc_call *call, program *p)
{
    const int64_t *ints = call->ints;
    if (call->op != &lc__op_fused) {
        instruction *c = &p->code[0];
        c->index = lc__elementwise_index(call->op);
        c->n_in = call->n_in;
        for (int i = 0; i < call->n_in && i < 3; i++) c->in[i] = i;
        for (int i = 0; i < call->n_int && i < 2; i++) c->k[i] = ints[i];
        p->n_code = 1;
        p->out[0] = call->n_in;
        return c->index >= 0 && call->n_in <= 3;
    }
    if (*ints < 1 || *ints > LC_FUSED_MAX_INSTRUCTIONS) return false;
    p->n_code = (int)*ints++;
    for (int i = 0; i < p->n_code; i++, ints += LC_FUSED_INSTRUCTION_INTS) {
        p->code[i] = (instruction){.index = LC_FUSED_OP_INDEX(ints[0]),
                                   .n_in = (int)ints[1],
                                   .in = {(int)ints[2], (int)ints[3], (int)ints[4]},
                                   .float_index = (int)ints[5],
                                   .k = {LC_FUSED_OP_INT0(ints[0]), LC_FUSED_OP_INT1(ints[0])}};
        if (p->code[i].index >= LC_ISA_NAME(lc__tile_count)) return false;
    }
    for (int i = 0; i < call->n_out; i++) p->out[i] = (int)ints[i];
    return true;
}

/* Sets the types of registers; false if a tile cannot hold one of them. */
static bool find_types(const lc_call *call, program *p)
{
    for (int i = 0; i < call->n_in; i++) p->dtype[i] = call->in[i].dtype;
    for (int i = 0; i < p->n_code; i++) {
        const instruction *c = &p->code[i];
        const lc__tile *tile = &LC_ISA_NAME(lc__tiles)[c->index];
        lc_dtype in[3] = {0, 0, 0};
        if (c->n_in != tile->n_in) return false;
        for (int j = 0; j < c->n_in; j++) in[j] = p->dtype[c->in[j]];
        p->dtype[call->n_in + i] = result_dtype(tile->kind, c->n_in, in, c->k);
        if (!p->dtype[call->n_in + i]) return false;
    }
    for (int i = 0; i < call->n_out; i++) {
        lc_dtype is = call->out[i].dtype;
        if (is != p->dtype[p->out[i]] || (is != LC_F64 && is != LC_F32 && is != LC_BOOL)) return false;
    }
    return true;
}

static int64_t stride_of(const lc_view *v, const lc_view *out, int d)
{
    int own = d - (out->ndim - v->ndim);
    if (own < 0 || (v->shape[own] == 1 && out->shape[d] != 1)) return 0;
    return v->stride[own];
}

/* Puts the dimensions into the order of the result's memory, and merges those that all operands walk in the same way.
 * False if the result is not dense in some order, or the results differ in layout. */
static bool find_space(const lc_call *call, program *p)
{
    const lc_view *out = &call->out[0];
    int order[LC_MAX_DIMS], n = 0;
    p->count = 1;
    for (int d = 0; d < out->ndim; d++) {
        p->count *= out->shape[d];
        for (int i = 1; i < call->n_out; i++)
            if (out->shape[d] > 1 && call->out[i].stride[d] != out->stride[d]) return false;
        if (out->shape[d] == 1) continue;
        int at = n++;
        for (; at > 0 && out->stride[order[at - 1]] < out->stride[d]; at--) order[at] = order[at - 1];
        order[at] = d;
    }
    int64_t expected = p->count;
    for (int i = 0; i < n && p->count; i++) {
        int d = order[i];
        expected /= out->shape[d];
        if (out->stride[d] != expected) return false;
        bool joins = p->ndim > 0;
        for (int k = 0; k < call->n_in && joins; k++)
            joins = p->stride[k][p->ndim - 1] == stride_of(&call->in[k], out, d) * out->shape[d];
        if (!joins) p->shape[p->ndim++] = 1;
        p->shape[p->ndim - 1] *= out->shape[d];
        for (int k = 0; k < call->n_in; k++) p->stride[k][p->ndim - 1] = stride_of(&call->in[k], out, d);
    }
    if (!p->ndim) p->shape[p->ndim++] = 1;
    for (int k = 0; k < call->n_in; k++) {
        int64_t step = 1;
        p->in_place[k] = call->in[k].dtype == LC_F64;
        for (int d = p->ndim - 1; d >= 0; step *= p->shape[d--])
            p->in_place[k] &= p->shape[d] == 1 || p->stride[k][d] == step;
    }
    return true;
}

static bool make_program(const lc_call *call, program *p)
{
    memset(p, 0, sizeof *p);
    if (call->n_in > LC_FUSED_MAX_INPUTS || call->n_out < 1 || call->n_out > LC_FUSED_MAX_OUTPUTS) return false;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].ndim < 0 || call->in[i].ndim > call->out[0].ndim) return false;
    return read_code(call, p) && find_types(call, p) && find_space(call, p);
}

static bool supports(const lc_call *call)
{
    program p;
    return make_program(call, &p);
}

static lc_status prepare(lc_call *call)
{
    program *p = malloc(sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "cannot get %zu bytes for a fused program", sizeof *p);
    if (!make_program(call, p)) {
        free(p);
        return lc_fail(LC_ERR_INTERNAL, "a fused program is malformed");
    }
    call->state = p;
    call->scratch_bytes =
        (size_t)(call->threads > 1 ? call->threads : 1) * (size_t)(call->n_in + p->n_code) * TILE * sizeof(double);
    return LC_OK;
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

/* ---- run ---- */
#define LOAD(type)                                                                                                     \
    {                                                                                                                  \
        const type *x = (const type *)data + offset;                                                                   \
        if (step == 1) {                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i] = (double)x[i];                                                      \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) to[i] = (double)x[i * step];                                               \
        }                                                                                                              \
        break;                                                                                                         \
    }

static void load(lc_dtype dtype, const void *data, int64_t offset, int64_t step, int64_t n, double *restrict to)
{
    switch (dtype) {
    case LC_F64:
        LOAD(double)
    case LC_F32:
        LOAD(float)
    case LC_I64:
        LOAD(int64_t)
    case LC_I32:
        LOAD(int32_t)
    default:
        LOAD(uint8_t)
    }
}

/* Writes out elements [start, start + n) of an input, a part of a row after the other. */
static void spread(const program *p, const lc_view *v, const int64_t *stride, int64_t start, int64_t n, double *to)
{
    int64_t row = p->shape[p->ndim - 1];
    for (int64_t i = start, run; i < start + n; i += run, to += run) {
        int64_t rest = i / row, first = i % row, offset = first * stride[p->ndim - 1];
        run = row - first < start + n - i ? row - first : start + n - i;
        for (int d = p->ndim - 2; d >= 0; d--) {
            offset += rest % p->shape[d] * stride[d];
            rest /= p->shape[d];
        }
        load(v->dtype, v->data, offset, stride[p->ndim - 1], run, to);
    }
}

static void store(const lc_view *v, int64_t start, int64_t n, const double *from)
{
    if (v->dtype == LC_F64) {
        memmove((double *)v->data + start, from, (size_t)n * sizeof *from);
    } else if (v->dtype == LC_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)v->data)[start + i] = (float)from[i];
    } else {
        for (int64_t i = 0; i < n; i++) ((uint8_t *)v->data)[start + i] = from[i] != 0;
    }
}

static void run_tiles(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const program *p = call->state;
    double *own = (double *)call->scratch + (int64_t)thread * (call->n_in + p->n_code) * TILE;
    /* A result may share memory with an input, so only one that is computed last goes directly to its place. */
    bool direct = call->n_out == 1 && call->out[0].dtype == LC_F64 && p->out[0] == call->n_in + p->n_code - 1;
    for (int64_t start = begin; start < end; start += TILE) {
        int64_t n = end - start < TILE ? end - start : TILE;
        double *at[MAX_REGISTERS];
        for (int i = 0; i < call->n_in; i++) {
            at[i] = p->in_place[i] ? (double *)call->in[i].data + start : own + (int64_t)i * TILE;
            if (!p->in_place[i]) spread(p, &call->in[i], p->stride[i], start, n, at[i]);
        }
        for (int i = 0; i < p->n_code; i++) {
            const instruction *c = &p->code[i];
            const double *in[3] = {at[c->in[0]], at[c->n_in > 1 ? c->in[1] : 0], at[c->n_in > 2 ? c->in[2] : 0]};
            double *to = own + (int64_t)(call->n_in + i) * TILE;
            if (direct && i == p->n_code - 1) to = (double *)call->out[0].data + start;
            at[call->n_in + i] = to;
            LC_ISA_NAME(lc__tiles_f64)
            [c->index](n, to, in, c->float_index >= 0 ? call->floats + c->float_index : NULL, c->k);
        }
        for (int i = 0; i < call->n_out && !direct; i++) store(&call->out[i], start, n, at[p->out[i]]);
    }
}

static void run(const lc_call *call)
{
    const program *p = call->state;
    lc__parallel_for(call->threads, p->count, (int64_t)TILES_PER_BLOCK * TILE, run_tiles, call);
}

static const lc_kernel kernel = {
    .name = "tiles_f64_" LC_ISA_STRING,
    .layout = LC_WANT_ELEMENTWISE,
    .flags = LC_KERNEL_INPLACE_ANY,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__fused_f64_kernels)[] = {
    {&lc__op_fused, &kernel},
#define ENTRY(name, ...) {&lc__op_##name, &kernel},
    LC_ELEMENTWISE_LIST(ENTRY)
#undef ENTRY
        {NULL, NULL},
};
