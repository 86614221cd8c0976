/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators, single and in fused programs: a program is run tile by tile, so that intermediate results stay
 * in the first-level cache.
 *
 * The iteration space is seen as rows: the last dimension that cannot be merged with its neighbors, and all others. A
 * tile is a number of whole rows or a part of one. Operands with the result's layout are read in place; others
 * (broadcast, other data types) are first written out into a tile of floats. Operands that repeat from row to row are
 * written out once per block of tiles. */
#include "backends/cpu/isa.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/tiles.h"
#include "backends/cpu/parallel.h"
#include "ops/fused.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define TILE            1024
#define TILES_PER_BLOCK 16
#define MAX_REGISTERS   (LC_FUSED_MAX_INPUTS + LC_FUSED_MAX_INSTRUCTIONS)

/* The place of a register's tile. */
typedef enum place {
    PLACE_MEMORY, /* an input with the result's layout: number = index of the input */
    PLACE_SLOT,   /* number = slot of scratch */
    PLACE_OUTPUT, /* number = index of the output, which is written directly */
} place;

typedef struct location {
    place place;
    int number;
} location;

typedef struct instruction {
    lc__tile_fn *run;
    int n_in, in[3], result;
    lc_dtype round; /* of the result, if it is read again; LC_F32: as it is */
    int float_index, n_float;
    int64_t k[2];
} instruction;

/* An input that must be written out. */
typedef struct spread {
    int input, slot;
    lc_dtype dtype;
    bool every_tile;            /* depends on the row, or has the result's layout but is not f32 */
    int64_t inner;              /* stride along a row, in elements */
    int64_t outer[LC_MAX_DIMS]; /* strides of the other dimensions */
} spread;

typedef struct program {
    int n_in, n_instructions, n_out, n_slots, n_spreads;
    location at[MAX_REGISTERS];
    instruction code[LC_FUSED_MAX_INSTRUCTIONS];
    spread spreads[LC_FUSED_MAX_INPUTS];
    int out_register[LC_FUSED_MAX_OUTPUTS];
    lc_dtype out_dtype[LC_FUSED_MAX_OUTPUTS];
    bool out_direct[LC_FUSED_MAX_OUTPUTS];
    /* the iteration space */
    int64_t length, rows; /* elements of a row; number of rows */
    int n_outer;
    int64_t outer_shape[LC_MAX_DIMS];
    int64_t rows_per_tile, tiles_per_row; /* one of them is 1 */
    int64_t tiles;
} program;

/* ---- the program, decoded from the call ---- */
typedef struct source {
    int n_instructions;
    struct {
        int index, n_in, in[3], float_index;
        int64_t k[2];
    } code[LC_FUSED_MAX_INSTRUCTIONS];
    int out[LC_FUSED_MAX_OUTPUTS];
} source;

static bool read_source(const lc_call *call, source *s)
{
    memset(s, 0, sizeof *s);
    if (call->n_in > LC_FUSED_MAX_INPUTS || call->n_out > LC_FUSED_MAX_OUTPUTS) return false;
    if (call->op != &lc__op_fused) {
        int index = lc__elementwise_index(call->op);
        if (index < 0 || call->n_in > 3) return false;
        s->n_instructions = 1;
        s->code[0].index = index;
        s->code[0].n_in = call->n_in;
        for (int i = 0; i < call->n_in; i++) s->code[0].in[i] = i;
        for (int i = 0; i < call->n_int && i < 2; i++) s->code[0].k[i] = call->ints[i];
        s->out[0] = call->n_in;
    } else {
        const int64_t *ints = call->ints;
        if (ints[0] > LC_FUSED_MAX_INSTRUCTIONS) return false;
        s->n_instructions = (int)ints[0];
        ints++;
        for (int i = 0; i < s->n_instructions; i++, ints += LC_FUSED_INSTRUCTION_INTS) {
            s->code[i].index = LC_FUSED_OP_INDEX(ints[0]);
            s->code[i].k[0] = LC_FUSED_OP_INT0(ints[0]);
            s->code[i].k[1] = LC_FUSED_OP_INT1(ints[0]);
            s->code[i].n_in = (int)ints[1];
            for (int j = 0; j < 3; j++) s->code[i].in[j] = (int)ints[2 + j];
            s->code[i].float_index = (int)ints[5];
        }
        for (int i = 0; i < call->n_out; i++) s->out[i] = (int)ints[i];
    }
    for (int i = 0; i < s->n_instructions; i++) {
        if (s->code[i].index < 0 || s->code[i].index >= LC_ISA_NAME(lc__tile_count)) return false;
        if (s->code[i].n_in != LC_ISA_NAME(lc__tiles)[s->code[i].index].n_in) return false;
    }
    return true;
}

/* ---- supported calls ---- */
static bool is_truth(lc_dtype dtype)
{
    return dtype == LC_BOOL || dtype == LC_U8;
}

/* The data type of an instruction's result; 0 0 if its operands cannot be represented by tiles of f32. */
static lc_dtype result_dtype(const lc__tile *tile, const lc_dtype *in, const int64_t *k)
{
    switch (tile->kind) {
    case LC__TILE_FLOAT:
    case LC__TILE_ARITH:
        for (int i = 0; i < tile->n_in; i++) {
            if (in[i] != in[0]) return 0;
        }
        return is_stored(in[0]) ? in[0] : 0;
    case LC__TILE_COMPARE:
        for (int i = 0; i < tile->n_in; i++) {
            if (!is_stored(in[i]) && !is_truth(in[i])) return 0;
        }
        return LC_BOOL;
    case LC__TILE_SELECT:
        return is_truth(in[0]) && is_stored(in[1]) && in[2] == in[1] ? in[1] : 0;
    case LC__TILE_FILL:
        return is_stored(in[0]) && is_truth(in[1]) ? in[0] : 0;
    case LC__TILE_CAST:
        /* Integers are only cast to f32 or bool: for other types a tile would round them twice. */
        if (k[0] == LC_F32 || k[0] == LC_BOOL)
            return is_stored(in[0]) || in[0] == LC_I64 || in[0] == LC_I32 || is_truth(in[0]) ? (lc_dtype)k[0] : 0;
        if (is_stored((lc_dtype)k[0])) return is_stored(in[0]) || is_truth(in[0]) ? (lc_dtype)k[0] : 0;
        return 0;
    }
    return 0;
}

/* The data types of inputs and results. */
static bool find_dtypes(const lc_call *call, const source *s, lc_dtype *dtype)
{
    for (int i = 0; i < call->n_in; i++) dtype[i] = call->in[i].dtype;
    for (int i = 0; i < s->n_instructions; i++) {
        lc_dtype in[3] = {0, 0, 0};
        for (int j = 0; j < s->code[i].n_in; j++) in[j] = dtype[s->code[i].in[j]];
        dtype[call->n_in + i] = result_dtype(&LC_ISA_NAME(lc__tiles)[s->code[i].index], in, s->code[i].k);
        if (!dtype[call->n_in + i]) return false;
    }
    return true;
}

static bool supports(const lc_call *call)
{
    source s;
    if (call->n_out < 1 || !read_source(call, &s)) return false;
    lc_dtype dtype[MAX_REGISTERS];
    const lc_view *out = &call->out[0];
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i].ndim < 0 || call->in[i].ndim > out->ndim) return false;
    }
    if (!find_dtypes(call, &s, dtype)) return false;
    for (int i = 0; i < call->n_out; i++) {
        if (call->out[i].dtype != dtype[s.out[i]]) return false;
        /* Tiles of floats are stored as numbers or truth values. */
        if (!is_stored(call->out[i].dtype) && call->out[i].dtype != LC_BOOL) return false;
        for (int d = 0; d < out->ndim; d++) {
            if (call->out[i].ndim != out->ndim || call->out[i].shape[d] != out->shape[d]) return false;
            if (out->shape[d] > 1 && call->out[i].stride[d] != out->stride[d]) return false;
        }
    }
    /* Dense in some order. */
    int64_t expected = 1;
    bool used[LC_MAX_DIMS] = {false};
    for (int k = 0; k < out->ndim; k++) {
        int next = -1;
        for (int d = 0; d < out->ndim; d++) {
            if (!used[d] && out->shape[d] != 1 && out->stride[d] == expected) next = d;
        }
        if (next < 0) continue;
        used[next] = true;
        expected *= out->shape[next];
    }
    int64_t count = 1;
    for (int d = 0; d < out->ndim; d++) count *= out->shape[d];
    return count == expected || count == 0;
}

/* ---- prepare ---- */
static int64_t stride_of(const lc_view *v, const lc_view *out, int d)
{
    int own = d - (out->ndim - v->ndim);
    if (own < 0 || (v->shape[own] == 1 && out->shape[d] != 1)) return 0;
    return v->stride[own];
}

/* Merges dimensions that all operands walk in the same way; sets rows, tiles and the operands' strides. */
static void plan_space(program *p, const lc_call *call, int64_t (*strides)[LC_MAX_DIMS])
{
    const lc_view *out = &call->out[0];
    /* The dimensions in the order of the result's layout, outermost first. */
    int order[LC_MAX_DIMS], n = 0;
    for (int d = 0; d < out->ndim; d++) {
        if (out->shape[d] == 1) continue;
        int at = n++;
        while (at > 0 && out->stride[order[at - 1]] < out->stride[d]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = d;
    }
    int64_t shape[LC_MAX_DIMS];
    int merged = 0;
    for (int k = 0; k < n; k++) {
        int d = order[k];
        bool joins = merged > 0;
        for (int i = 0; i < call->n_in && joins; i++)
            joins = strides[i][merged - 1] == stride_of(&call->in[i], out, d) * out->shape[d];
        if (!joins) shape[merged++] = 1;
        shape[merged - 1] *= out->shape[d];
        for (int i = 0; i < call->n_in; i++) strides[i][merged - 1] = stride_of(&call->in[i], out, d);
    }
    if (!merged) {
        shape[merged++] = 1;
        for (int i = 0; i < call->n_in; i++) strides[i][0] = 0;
        for (int d = 0; d < out->ndim; d++) shape[0] *= out->shape[d];
    }
    p->length = shape[merged - 1];
    p->n_outer = merged - 1;
    p->rows = 1;
    for (int d = 0; d < p->n_outer; d++) {
        p->outer_shape[d] = shape[d];
        p->rows *= shape[d];
    }
    if (p->length == 0) p->rows = 0;
    p->rows_per_tile = p->length && p->length < TILE ? TILE / p->length : 1;
    p->tiles_per_row = p->length > TILE ? (p->length + TILE - 1) / TILE : 1;
    p->tiles = p->tiles_per_row == 1 ? (p->rows + p->rows_per_tile - 1) / p->rows_per_tile : p->rows * p->tiles_per_row;
}

/* An input stays where it is if it is dense and of floats. Otherwise it is spread into a slot. */
static void place_inputs(program *p, const lc_call *call, int64_t (*strides)[LC_MAX_DIMS])
{
    p->n_in = call->n_in;
    for (int i = 0; i < call->n_in; i++) {
        bool full = p->length <= 1 || strides[i][p->n_outer] == 1;
        int64_t expected = p->length;
        for (int d = p->n_outer - 1; d >= 0; d--) {
            full = full && strides[i][d] == expected;
            expected *= p->outer_shape[d];
        }
        if (full && call->in[i].dtype == LC_F32) {
            p->at[i] = (location){PLACE_MEMORY, i};
            continue;
        }
        spread *x = &p->spreads[p->n_spreads++];
        x->input = i;
        x->slot = p->n_slots++;
        x->dtype = call->in[i].dtype;
        x->inner = strides[i][p->n_outer];
        x->every_tile = p->tiles_per_row > 1 && x->inner != 0;
        for (int d = 0; d < p->n_outer; d++) {
            x->outer[d] = strides[i][d];
            if (x->outer[d]) x->every_tile = true;
        }
        p->at[i] = (location){PLACE_SLOT, x->slot};
    }
}

/* Sets the program's outputs, and which instruction reads each register last. Returns which reads an input last. */
static int find_last_reads(program *p, const source *s, const lc_call *call, int last_read[MAX_REGISTERS])
{
    int last_memory_read = -1;
    for (int r = 0; r < MAX_REGISTERS; r++) last_read[r] = -1;
    for (int i = 0; i < s->n_instructions; i++) {
        for (int j = 0; j < s->code[i].n_in; j++) {
            int r = s->code[i].in[j];
            last_read[r] = i;
            if (r < call->n_in) last_memory_read = i;
        }
    }
    p->n_out = call->n_out;
    for (int o = 0; o < call->n_out; o++) {
        int r = s->out[o];
        p->out_register[o] = r;
        p->out_dtype[o] = call->out[o].dtype;
        last_read[r] = s->n_instructions; /* until it is stored */
        if (r < call->n_in) last_memory_read = s->n_instructions;
    }
    return last_memory_read;
}

static bool is_read(const source *s, int reg)
{
    for (int i = 0; i < s->n_instructions; i++)
        for (int j = 0; j < s->code[i].n_in; j++)
            if (s->code[i].in[j] == reg) return true;
    return false;
}

/* Numbers of 16 bits are rounded when they are stored, and before other instructions read them. */
static lc_dtype rounding_of(const source *s, int reg, const lc__tile *tile, lc_dtype result)
{
    const bool as_it_is =
        tile->kind == LC__TILE_CAST || tile->kind == LC__TILE_SELECT || tile->kind == LC__TILE_COMPARE;
    return as_it_is || !is_read(s, reg) ? LC_F32 : result;
}

/* An output may share memory with an input, so it is written directly only if no input in memory is read after it. */
static void place_results(program *p, const source *s, const lc_call *call)
{
    int last_read[MAX_REGISTERS], last_memory_read = find_last_reads(p, s, call, last_read);
    lc_dtype dtype[MAX_REGISTERS];
    (void)find_dtypes(call, s, dtype);
    int free_slots[LC_FUSED_MAX_INSTRUCTIONS], n_free = 0;
    p->n_instructions = s->n_instructions;
    for (int i = 0; i < s->n_instructions; i++) {
        instruction *c = &p->code[i];
        const lc__tile *tile = &LC_ISA_NAME(lc__tiles)[s->code[i].index];
        c->run = tile->run;
        c->n_in = s->code[i].n_in;
        c->n_float = tile->n_float;
        c->float_index = s->code[i].float_index;
        memcpy(c->k, s->code[i].k, sizeof c->k);
        for (int j = 0; j < c->n_in; j++) c->in[j] = s->code[i].in[j];
        c->result = call->n_in + i;
        c->round = rounding_of(s, c->result, tile, dtype[c->result]);
        location at = {PLACE_SLOT, -1};
        if (i >= last_memory_read) {
            for (int o = 0; o < call->n_out && at.place == PLACE_SLOT; o++) {
                if (s->out[o] == c->result && call->out[o].dtype == LC_F32) {
                    at = (location){PLACE_OUTPUT, o};
                    p->out_direct[o] = true;
                }
            }
        }
        if (at.place == PLACE_SLOT) at.number = n_free ? free_slots[--n_free] : p->n_slots++;
        p->at[c->result] = at;
        /* A slot is free after its last reader, or at once if nobody reads the result. */
        for (int r = call->n_in; r <= c->result; r++) {
            bool dies = last_read[r] == i || (r == c->result && last_read[r] < 0);
            if (dies && p->at[r].place == PLACE_SLOT) free_slots[n_free++] = p->at[r].number;
        }
    }
}

static lc_status prepare(lc_call *call)
{
    source s;
    if (!read_source(call, &s)) return lc_fail(LC_ERR_INTERNAL, "a fused program is malformed");
    program *p = calloc(1, sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "cannot get %zu bytes for a fused program", sizeof *p);
    int64_t strides[LC_FUSED_MAX_INPUTS][LC_MAX_DIMS];
    memset(strides, 0, sizeof strides);
    plan_space(p, call, strides);
    place_inputs(p, call, strides);
    place_results(p, &s, call);
    int threads = call->threads > 1 ? call->threads : 1;
    call->scratch_bytes = (size_t)threads * (size_t)p->n_slots * TILE * sizeof(float);
    call->state = p;
    return LC_OK;
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

/* ---- run ---- */
#define LOAD_LOOP(type, value)                                                                                         \
    {                                                                                                                  \
        const type *x = (const type *)data + offset;                                                                   \
        if (step == 0) {                                                                                               \
            const type e = x[0];                                                                                       \
            float f = value;                                                                                           \
            for (int64_t i = 0; i < n; i++) to[i] = f;                                                                 \
        } else if (step == 1) {                                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const type e = x[i];                                                                                   \
                to[i] = value;                                                                                         \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const type e = x[i * step];                                                                            \
                to[i] = value;                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        break;                                                                                                         \
    }

static void load(lc_dtype dtype, const void *data, int64_t offset, int64_t step, int64_t n, float *restrict to)
{
    switch (dtype) {
    case LC_F32:
        LOAD_LOOP(float, e)
    case LC_I64:
        LOAD_LOOP(int64_t, (float)e)
    case LC_I32:
        LOAD_LOOP(int32_t, (float)e)
    case LC_BF16:
        if (step == 1) {
            get_run_of(LC_BF16, data, offset, n, to);
            break;
        }
        LOAD_LOOP(uint16_t, lc__bf16_to_f32(e))
    case LC_F16:
        if (step == 1) {
            get_run_of(LC_F16, data, offset, n, to);
            break;
        }
        LOAD_LOOP(uint16_t, lc__f16_to_f32(e))
    default:
        LOAD_LOOP(uint8_t, (float)e)
    }
}

static void store(lc_dtype dtype, void *data, int64_t offset, int64_t n, const float *from)
{
    if (dtype == LC_F32) {
        memmove((float *)data + offset, from, (size_t)n * sizeof(float));
    } else if (dtype == LC_BOOL) {
        uint8_t *restrict to = (uint8_t *)data + offset;
        for (int64_t i = 0; i < n; i++) to[i] = from[i] != 0.f;
    } else {
        put_run(dtype, data, offset, n, from);
    }
}

static int64_t row_offset(const program *p, const spread *x, int64_t row)
{
    int64_t offset = 0;
    for (int d = p->n_outer - 1; d >= 0; d--) {
        offset += row % p->outer_shape[d] * x->outer[d];
        row /= p->outer_shape[d];
    }
    return offset;
}

/* Writes out `rows` rows from `row` on, `n` elements each from element `first`. */
static void spread_rows(const program *p, const spread *x, const void *data, int64_t row, int64_t rows, int64_t first,
                        int64_t n, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        load(x->dtype, data, row_offset(p, x, row + r) + first * x->inner, x->inner, n, to + r * n);
}

typedef struct job {
    const lc_call *call;
    float numbers[LC_FUSED_MAX_INSTRUCTIONS][2];
} job;

static void run_tiles(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc_call *call = j->call;
    const program *p = call->state;
    /* Without slots there may be no scratch memory. */
    float *slots = p->n_slots ? (float *)call->scratch + (size_t)thread * (size_t)p->n_slots * TILE : NULL;
    for (int i = 0; i < p->n_spreads; i++) {
        const spread *x = &p->spreads[i];
        if (x->every_tile) continue;
        int64_t rows = p->tiles_per_row == 1 ? p->rows_per_tile : 1, n = p->length < TILE ? p->length : TILE;
        spread_rows(p, x, call->in[x->input].data, 0, rows < p->rows ? rows : p->rows, 0, n,
                    slots + (size_t)x->slot * TILE);
    }
    for (int64_t t = begin; t < end; t++) {
        int64_t row, rows = 1, first = 0, n;
        if (p->tiles_per_row == 1) {
            row = t * p->rows_per_tile;
            rows = p->rows - row < p->rows_per_tile ? p->rows - row : p->rows_per_tile;
            n = p->length;
        } else {
            row = t / p->tiles_per_row;
            first = t % p->tiles_per_row * TILE;
            n = p->length - first < TILE ? p->length - first : TILE;
        }
        int64_t start = row * p->length + first, count = rows * n;
        float *at[MAX_REGISTERS];
        for (int r = 0; r < p->n_in + p->n_instructions; r++) {
            const location *l = &p->at[r];
            if (l->place == PLACE_MEMORY)
                at[r] = (float *)call->in[l->number].data + start;
            else if (l->place == PLACE_OUTPUT)
                at[r] = (float *)call->out[l->number].data + start;
            else
                at[r] = slots + (size_t)l->number * TILE;
        }
        for (int i = 0; i < p->n_spreads; i++) {
            const spread *x = &p->spreads[i];
            if (x->every_tile)
                spread_rows(p, x, call->in[x->input].data, row, rows, first, n, slots + (size_t)x->slot * TILE);
        }
        for (int i = 0; i < p->n_instructions; i++) {
            const instruction *c = &p->code[i];
            const float *in[3];
            for (int k = 0; k < c->n_in; k++) in[k] = at[c->in[k]];
            c->run(count, at[c->result], in, j->numbers[i], c->k);
            if (c->round != LC_F32) round_run(c->round, count, at[c->result], at[c->result]);
        }
        for (int o = 0; o < p->n_out; o++) {
            if (!p->out_direct[o]) store(p->out_dtype[o], call->out[o].data, start, count, at[p->out_register[o]]);
        }
    }
}

static void run(const lc_call *call)
{
    const program *p = call->state;
    job j;
    j.call = call;
    for (int i = 0; i < p->n_instructions; i++) {
        const instruction *c = &p->code[i];
        for (int k = 0; k < c->n_float && k < 2; k++) j.numbers[i][k] = (float)call->floats[c->float_index + k];
    }
    lc__parallel_for(call->threads, p->tiles, TILES_PER_BLOCK, run_tiles, &j);
}

static const lc_kernel kernel = {
    .name = "tiles_" LC_ISA_STRING,
    .layout = LC_WANT_ELEMENTWISE,
    .flags = LC_KERNEL_INPLACE_ANY,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__fused_kernels)[] = {
    {&lc__op_fused, &kernel},
#define ENTRY(name, ...) {&lc__op_##name, &kernel},
    LC_ELEMENTWISE_LIST(ENTRY)
#undef ENTRY
        {NULL, NULL},
};
