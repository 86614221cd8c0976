/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's fused elementwise operator (encoding: fused.h) and its reference kernel, which runs the
 * reference kernels of the program's operators one after another on short pieces of rows. */
#include "ops/fused.h"

#include "base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE         256
#define WIDEST        8 /* bytes of an element */
#define MAX_REGISTERS (LC_FUSED_MAX_INPUTS + LC_FUSED_MAX_INSTRUCTIONS)

typedef struct program {
    lc_dtype dtype[MAX_REGISTERS];
} program;

static const int64_t *instruction_at(const lc_call *call, int i)
{
    return call->ints + 1 + (int64_t)i * LC_FUSED_INSTRUCTION_INTS;
}

/* The type of every register. */
static lc_status infer_types(const lc_call *call, program *p)
{
    for (int i = 0; i < call->n_in; i++) p->dtype[i] = call->in[i].dtype;
    for (int i = 0; i < (int)call->ints[0]; i++) {
        const int64_t *code = instruction_at(call, i);
        int index = LC_FUSED_OP_INDEX(code[0]);
        if (index >= lc__elementwise_count)
            return lc_fail(LC_ERR_INTERNAL, "a fused program names elementwise operator %d of %d", index,
                           lc__elementwise_count);
        lc_type types[3], result = {0};
        const lc_type *in[3] = {NULL, NULL, NULL};
        for (int j = 0; j < (int)code[1] && j < 3; j++) {
            types[j] = (lc_type){.dtype = p->dtype[code[2 + j]], .ndim = 1, .shape = {1}};
            in[j] = &types[j];
        }
        const int64_t ints[2] = {LC_FUSED_OP_INT0(code[0]), LC_FUSED_OP_INT1(code[0])};
        const double floats[4] = {0};
        const lc_op *op = lc__elementwise_table[index];
        lc_infer infer = {.op = op,
                          .n_in = (int)code[1],
                          .in = in,
                          .n_int = 2,
                          .ints = ints,
                          .n_float = 2,
                          .floats = floats,
                          .n_out = 1,
                          .out = &result};
        LC_TRY(op->infer(&infer));
        p->dtype[call->n_in + i] = result.dtype;
    }
    return LC_OK;
}

static lc_status prepare(lc_call *call)
{
    int count = (int)call->ints[0];
    if (count < 0 || count > LC_FUSED_MAX_INSTRUCTIONS || call->n_in > LC_FUSED_MAX_INPUTS)
        return lc_fail(LC_ERR_INTERNAL, "a fused program of %d instructions and %d inputs is too long", count,
                       call->n_in);
    program *p = calloc(1, sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "cannot get %zu bytes for a fused program", sizeof *p);
    lc_status status = infer_types(call, p);
    if (status < 0) {
        free(p);
        return status;
    }
    call->state = p;
    call->scratch_bytes = (size_t)count * PIECE * WIDEST;
    return LC_OK;
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

static char *element(const lc_view *v, int64_t offset)
{
    return (char *)v->data + offset * (int64_t)lc_dtype_size(v->dtype);
}

/* Elements from `first` on of the row at `index` (the outer dimensions), as a 1-D view. */
static lc_view piece_of(const lc_view *v, const lc_view *out, const int64_t *index, int64_t first, int64_t n)
{
    int64_t offset = 0, step = 0;
    for (int d = 0; d < out->ndim; d++) {
        int own = d - (out->ndim - v->ndim);
        if (own < 0 || (v->shape[own] == 1 && out->shape[d] != 1)) continue;
        if (d == out->ndim - 1) step = v->stride[own];
        offset += v->stride[own] * (d == out->ndim - 1 ? first : index[d]);
    }
    return (lc_view){.data = element(v, offset), .dtype = v->dtype, .ndim = 1, .shape = {n}, .stride = {step}};
}

/* Evaluates the program into registers (inputs, then results of instructions) for n elements from `first` on of that
 * row. */
static void evaluate(const lc_call *call, const int64_t *index, int64_t first, int64_t n,
                     lc_view registers[MAX_REGISTERS])
{
    const program *p = call->state;
    int count = (int)call->ints[0];
    for (int i = 0; i < call->n_in; i++) registers[i] = piece_of(&call->in[i], &call->out[0], index, first, n);
    for (int i = 0; i < count; i++) {
        const int64_t *code = instruction_at(call, i);
        const lc_op *op = lc__elementwise_table[LC_FUSED_OP_INDEX(code[0])];
        lc_view *result = &registers[call->n_in + i];
        *result = (lc_view){.data = (char *)call->scratch + (size_t)i * PIECE * WIDEST,
                            .dtype = p->dtype[call->n_in + i],
                            .ndim = 1,
                            .shape = {n},
                            .stride = {1}};
        lc_view in[3];
        for (int j = 0; j < (int)code[1] && j < 3; j++) in[j] = registers[code[2 + j]];
        const int64_t ints[2] = {LC_FUSED_OP_INT0(code[0]), LC_FUSED_OP_INT1(code[0])};
        lc_call step = {.op = op,
                        .kernel = op->kernel,
                        .n_in = (int)code[1],
                        .n_out = 1,
                        .n_int = 2,
                        .n_float = 2,
                        .in = in,
                        .out = result,
                        .ints = ints,
                        .floats = code[5] >= 0 ? call->floats + code[5] : call->floats,
                        .rng = call->rng,
                        .threads = 1,
                        .deterministic = true};
        op->kernel->run(&step);
    }
}

static void run_piece(const lc_call *call, const int64_t *index, int64_t first, int64_t n)
{
    const int64_t *out_registers = instruction_at(call, (int)call->ints[0]);
    lc_view registers[MAX_REGISTERS];
    evaluate(call, index, first, n, registers);
    /* Results are stored last: they may share memory with inputs. */
    for (int o = 0; o < call->n_out; o++) {
        lc_view to = piece_of(&call->out[o], &call->out[0], index, first, n);
        const lc_view *from = &registers[out_registers[o]];
        size_t size = lc_dtype_size(to.dtype);
        for (int64_t i = 0; i < n; i++)
            memmove(element(&to, i * to.stride[0]), element(from, i * from->stride[0]), size);
    }
}

static void run(const lc_call *call)
{
    const lc_view *out = &call->out[0];
    int outer = out->ndim > 0 ? out->ndim - 1 : 0;
    int64_t length = out->ndim > 0 ? out->shape[outer] : 1, rows = length > 0;
    for (int d = 0; d < outer; d++) rows *= out->shape[d];
    int64_t index[LC_MAX_DIMS] = {0};
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t first = 0; first < length; first += PIECE)
            run_piece(call, index, first, length - first < PIECE ? length - first : PIECE);
        for (int d = outer - 1; d >= 0 && ++index[d] == out->shape[d]; d--) index[d] = 0;
    }
}

const lc_op *lc__fused_op(const lc_call *call, int i)
{
    return lc__elementwise_table[LC_FUSED_OP_INDEX(instruction_at(call, i)[0])];
}

static bool is_finite(const lc_view *v)
{
    return isfinite(lc__load_number(v->data, v->dtype));
}

int lc__fused_culprit(const lc_call *call, const int64_t *index)
{
    lc_call one = *call;
    lc_view registers[MAX_REGISTERS];
    int found = -1, count = (int)call->ints[0], last = call->out[0].ndim - 1;
    one.state = NULL;
    if (prepare(&one) >= 0 && (one.scratch = malloc(one.scratch_bytes + 1)) != NULL) {
        evaluate(&one, index, last < 0 ? 0 : index[last], 1, registers);
        for (int i = 0; i < count && found < 0; i++)
            if (!is_finite(&registers[call->n_in + i])) found = i;
        free(one.scratch);
    }
    release(&one);
    return found;
}

static const lc_kernel reference = {
    .name = "reference",
    .layout = LC_WANT_STRIDED,
    .flags = LC_KERNEL_SERIAL,
    .prepare = prepare,
    .run = run,
    .release = release,
};

const lc_op lc__op_fused = {
    .name = "fused",
    .flags = LC_OP_ELEMENTWISE,
    .n_out = 1,
    .kernel = &reference,
};
