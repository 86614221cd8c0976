/* SPDX-License-Identifier: Apache-2.0 */
/* Products that round operands where they read them (LC_KERNEL_ROUNDS): parameters and inputs of a step, which are f32
 * in memory whether anyone has a copy of 16 bits or not. Such a copy takes memory and time, more so where a thread
 * reads what another one has just written. It is dropped if only a few products read it, as a whole or in another
 * shape, whose kernels stay the same, and if nobody writes the tensor before they do. */
#include "engine/plan/plan_impl.h"
#include "ops/ops.h"

#define MOST_READERS 3 /* each converts the tensor again */

typedef struct reader {
    lc_ir_node *node;
    const lc_kernel *kernel;
    uint32_t operands;
} reader;

typedef struct reading {
    lc_build *b;
    int *producer;         /* by value: node, or -1 */
    bool *is_copy;         /* by value: it is a view of the copy, or that itself */
    const lc_tensor *from; /* whose memory the copy is of */
    reader readers[MOST_READERS];
    int n;
} reading;

/* The parameter or input whose memory a value is, in a shape of its own; or NULL. */
static const lc_tensor *memory_of(const reading *r, uint32_t value)
{
    const lc_graph *g = r->b->g;
    while (r->producer[value] >= 0) {
        const lc_ir_node *n = &r->b->nodes[r->producer[value]];
        if (!(n->op->flags & LC_OP_VIEW)) return NULL;
        value = n->in[0];
    }
    const lc_tensor *t = value < g->n_values ? g->values[value] : NULL;
    return t && t->kind >= LC_TENSOR_PERSISTENT && !t->is_slice ? t : NULL;
}

static bool is_copy(const reading *r, const lc_ir_node *n)
{
    const lc_ir_value *values = r->b->values;
    return n->op == &lc__op_cast && values[n->in[0]].type.dtype == LC_F32 && !values[n->out[0]].keep &&
           values[n->out[0]].type.dtype == r->b->g->low && lc_dtype_size(r->b->g->low) == 2;
}

static bool writes(const reading *r, const lc_ir_node *n)
{
    for (int k = 0; k < n->n_in; k++) {
        if (!(n->op->mutated_inputs >> k & 1) || n->in[k] == LC_ABSENT) continue;
        const lc_tensor *written = memory_of(r, n->in[k]);
        if (written && lc__overlap(written, r->from)) return true;
    }
    return false;
}

static lc_status add_reader(reading *r, lc_ir_node *n, uint32_t operands, bool *yes)
{
    reader *to = &r->readers[r->n];
    *yes = r->n < MOST_READERS && operands <= 3;
    if (!*yes) return LC_OK;
    *to = (reader){.node = n, .operands = operands};
    LC_TRY(lc__kernel_of(r->b, n, &to->kernel));
    *yes = to->kernel && to->kernel->flags & LC_KERNEL_ROUNDS;
    r->n++;
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
        written |= writes(r, n);
    }
    *yes &= r->n > 0;
    return LC_OK;
}

/* The type of views of what they read now. */
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

static lc_status drop_copy(reading *r, int at)
{
    lc_ir_node *cast = &r->b->nodes[at];
    const uint32_t copy = cast->out[0], tensor = cast->in[0];
    bool same = true;
    LC_TRY(find_readers(r, at, &same));
    if (!same) return LC_OK;
    set_type(r, copy, LC_F32);
    for (int i = 0; i < r->n; i++) {
        lc_ir_node *n = r->readers[i].node;
        const lc_kernel *kernel;
        n->rounded |= r->readers[i].operands;
        replace(n, copy, tensor);
        LC_TRY(lc__kernel_of(r->b, n, &kernel));
        same &= kernel == r->readers[i].kernel;
    }
    if (same) {
        for (int i = at + 1; i < r->b->n_nodes; i++)
            if (r->b->nodes[i].op) replace(&r->b->nodes[i], copy, tensor);
        cast->op = NULL;
        return LC_OK;
    }
    set_type(r, copy, r->b->g->low);
    for (int i = 0; i < r->n; i++) {
        lc_ir_node *n = r->readers[i].node;
        n->rounded &= ~r->readers[i].operands;
        for (int k = 0; k < 2; k++)
            if (r->readers[i].operands >> k & 1 && n->in[k] == tensor) n->in[k] = copy;
    }
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
        r.from = memory_of(&r, n->in[0]);
        if (r.from) LC_TRY(drop_copy(&r, i));
    }
    return LC_OK;
}
