/* SPDX-License-Identifier: Apache-2.0 */
/* Products that round operands where they read them (LC_KERNEL_ROUNDS): parameters and inputs of a step, which are f32
 * in memory whether anyone has a copy of 16 bits or not. Such a copy takes memory and time, more so where a thread
 * reads what another one has just written. It is dropped if only a few products read it, as a whole or in another
 * shape, whose kernels stay the same, and if nobody writes the tensor before they do. What is in slices travels as the
 * copy (parallel/reduce/place_slices.c). */
#include "engine/plan/plan_impl.h"
#include "ops/ops.h"

#define MOST_READERS 3 /* each converts the tensor again */

typedef struct reader {
    lc_ir_node *node, changed; /* as it is, and with the tensor in place of the copy */
    const lc_kernel *kernel;   /* as it is */
    uint32_t operands;         /* that are the copy */
} reader;

typedef struct reading {
    lc_build *b;
    int *producer;         /* by value: node, or -1 */
    bool *is_copy;         /* by value: it is a view of the copy, or that itself */
    const lc_tensor *from; /* whose memory the copy is of */
    reader readers[MOST_READERS];
    int n;
} reading;

static bool is_copy(const reading *r, const lc_ir_node *n)
{
    const lc_ir_value *values = r->b->values;
    return n->op == &lc__op_cast && values[n->in[0]].type.dtype == LC_F32 && !values[n->out[0]].keep &&
           values[n->out[0]].type.dtype == r->b->g->low && lc_dtype_size(r->b->g->low) == 2;
}

static lc_status add_reader(reading *r, lc_ir_node *n, uint32_t operands, bool *yes)
{
    *yes = r->n < MOST_READERS && operands <= 3;
    if (!*yes) return LC_OK;
    reader *to = &r->readers[r->n++];
    *to = (reader){.node = n, .operands = operands};
    LC_TRY(lc__kernel_of(r->b, n, &to->kernel));
    *yes = to->kernel && to->kernel->flags & LC_KERNEL_ROUNDS;
    return LC_OK;
}

/* Lists who reads the copy that node `at` makes; *yes false: not all of them can read the tensor instead. */
static lc_status find_readers(reading *r, int at, bool *yes)
{
    bool written = false;
    r->n = 0;
    *yes = true;
    memset(r->is_copy, 0, r->b->n_values * sizeof *r->is_copy);
    r->is_copy[r->b->nodes[at].out[0]] = true;
    for (int i = at + 1; i < r->b->n_nodes && *yes; i++) {
        lc_ir_node *n = &r->b->nodes[i];
        uint32_t operands = 0;
        if (!n->op) continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] != LC_ABSENT && r->is_copy[n->in[k]]) operands |= k < 2 ? 1u << k : 4u;
        if (operands && (n->op->flags & LC_OP_VIEW)) {
            r->is_copy[n->out[0]] = true;
            *yes = !r->b->values[n->out[0]].keep;
        } else if (operands) {
            LC_TRY(add_reader(r, n, operands, yes));
            *yes &= !written;
        }
        written |= lc__node_writes(r->b->g, r->b->nodes, r->producer, n, r->from);
    }
    *yes &= r->n > 0;
    return LC_OK;
}

/* The type of views of the copy. */
static void set_type(const reading *r, uint32_t copy, lc_dtype dtype)
{
    for (uint32_t v = 0; v < r->b->n_values; v++)
        if (r->is_copy[v] && v != copy) r->b->values[v].type.dtype = dtype;
}

static void replace(lc_ir_node *n, uint32_t from, uint32_t to)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] == from) n->in[k] = to;
}

/* Describes the reader of the tensor; *same false: it has another kernel. */
static lc_status describe(const reading *r, reader *of, uint32_t copy, uint32_t tensor, bool *same)
{
    const lc_kernel *kernel;
    lc_ir_node *n = &of->changed;
    *n = *of->node;
    n->in = lc__build_alloc(r->b, (size_t)n->n_in * sizeof *n->in);
    if (!n->in) return LC_ERR_MEMORY;
    memcpy(n->in, of->node->in, (size_t)n->n_in * sizeof *n->in);
    n->rounded |= of->operands;
    replace(n, copy, tensor);
    LC_TRY(lc__kernel_of(r->b, n, &kernel));
    *same &= kernel == of->kernel;
    return LC_OK;
}

static lc_status drop_copy(reading *r, int at)
{
    lc_ir_node *cast = &r->b->nodes[at];
    const uint32_t copy = cast->out[0], tensor = cast->in[0];
    bool same;
    LC_TRY(find_readers(r, at, &same));
    if (!same) return LC_OK;
    set_type(r, copy, LC_F32);
    for (int i = 0; i < r->n; i++) LC_TRY(describe(r, &r->readers[i], copy, tensor, &same));
    if (!same) {
        set_type(r, copy, r->b->g->low);
        return LC_OK;
    }
    for (int i = 0; i < r->n; i++) *r->readers[i].node = r->readers[i].changed;
    for (int i = at + 1; i < r->b->n_nodes; i++)
        if (r->b->nodes[i].op) replace(&r->b->nodes[i], copy, tensor); /* views */
    cast->op = NULL;
    return LC_OK;
}

lc_status lc__read_rounded(lc_build *b)
{
    reading r = {.b = b, .producer = lc__build_alloc(b, (b->n_values + 1) * sizeof(int))};
    r.is_copy = lc__build_alloc(b, b->n_values + 1);
    if (!r.producer || !r.is_copy) return LC_ERR_MEMORY;
    memset(r.producer, 0xff, b->n_values * sizeof(int));
    for (int i = 0; i < b->n_nodes; i++)
        for (int k = 0; b->nodes[i].op && k < b->nodes[i].n_out; k++) r.producer[b->nodes[i].out[k]] = i;
    for (int i = 0; i < b->n_nodes; i++) {
        const lc_ir_node *n = &b->nodes[i];
        if (!n->op || !is_copy(&r, n)) continue;
        r.from = lc__outside_of(b->g, b->nodes, r.producer, n->in[0]);
        if (r.from && !r.from->is_slice) LC_TRY(drop_copy(&r, i));
    }
    return LC_OK;
}
