/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types: values that a graph keeps in a smaller type than the program sees (lc_graph.low).
 *
 * An operator of the graph's list takes its f32 operands as the low type, and gives results of it. The program's types
 * stay what they are: a result is converted back, which is another value. So conversions are nodes, at most one for a
 * value and type; chains of elementwise operators take them in (fuse_elementwise.c), and those that nobody reads are
 * dropped. This is meaning, not optimization: LIGHTC_PLAN=off does the same. If the backend has no kernel for the low
 * type, the operator computes in f32 with the same numbers: operands that have been rounded, and results that are. */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct assigner {
    lc_build *b;
    lc_ir_node *nodes; /* the new list */
    int n, cap;
    uint32_t *twin; /* by value: the same in the other type, f32 or low; or LC_ABSENT */
    int *maker;     /* by value: its node in the new list, or -1 */
    uint32_t cap_values, cap_makers, n_values;
} assigner;

/* ---- values and nodes ---- */

static lc_status note_values(assigner *a)
{
    uint32_t n = a->b->n_values;
    LC_TRY(lc__grow(&a->twin, &a->cap_values, a->n_values, n - a->n_values, "the plan of a step"));
    LC_TRY(lc__grow(&a->maker, &a->cap_makers, a->n_values, n - a->n_values, "the plan of a step"));
    for (; a->n_values < n; a->n_values++) {
        a->twin[a->n_values] = LC_ABSENT;
        a->maker[a->n_values] = -1;
    }
    return LC_OK;
}

static lc_status add(assigner *a, const lc_ir_node *node)
{
    LC_TRY(lc__grow(&a->nodes, &a->cap, a->n, 1, "the plan of a step"));
    for (int k = 0; k < node->n_out; k++) a->maker[node->out[k]] = a->n;
    a->nodes[a->n++] = *node;
    return LC_OK;
}

static lc_status new_value(assigner *a, uint32_t like, lc_dtype dtype, uint32_t *out)
{
    lc_type type = a->b->values[like].type;
    type.dtype = dtype;
    *out = lc__build_value(a->b, &type);
    return *out == LC_ABSENT ? LC_ERR_MEMORY : note_values(a);
}

/* A node of one operand and one result, which exists already. */
static lc_status add_unary(assigner *a, const lc_ir_node *like, uint32_t in, uint32_t out)
{
    lc_ir_node node = *like;
    uint32_t *ends = lc__build_alloc(a->b, 2 * sizeof *ends);
    if (!ends) return LC_ERR_MEMORY;
    ends[0] = in;
    ends[1] = out;
    node.n_in = node.n_out = 1;
    node.in = ends;
    node.out = ends + 1;
    return add(a, &node);
}

static lc_status add_cast(assigner *a, lc_site site, uint32_t in, uint32_t out)
{
    int64_t *to = lc__build_alloc(a->b, sizeof *to);
    if (!to) return LC_ERR_MEMORY;
    *to = a->b->values[out].type.dtype;
    return add_unary(a, &(lc_ir_node){.op = &lc__op_cast, .n_int = 1, .ints = to, .site = site}, in, out);
}

/* The value in the low type: of a view, a view of the low value, if there is one. */
static lc_status low_of(assigner *a, uint32_t value, lc_site site, uint32_t *out)
{
    *out = a->twin[value];
    if (*out != LC_ABSENT) return LC_OK;
    LC_TRY(new_value(a, value, a->b->g->low, out));
    const lc_ir_node *maker = a->maker[value] >= 0 ? &a->nodes[a->maker[value]] : NULL;
    uint32_t of = maker && (maker->op->flags & LC_OP_VIEW) ? a->twin[maker->in[0]] : LC_ABSENT;
    if (of != LC_ABSENT)
        LC_TRY(add_unary(a,
                         &(lc_ir_node){.op = maker->op,
                                       .n_int = maker->n_int,
                                       .ints = maker->ints,
                                       .n_float = maker->n_float,
                                       .floats = maker->floats,
                                       .sources = maker->sources,
                                       .site = site},
                         of, *out));
    else
        LC_TRY(add_cast(a, site, value, *out));
    a->twin[value] = *out;
    return LC_OK;
}

/* ---- writes ---- */

/* What was converted before a node writes it is old afterwards. */
static void forget_written(assigner *a, const lc_ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (!(n->op->mutated_inputs >> i & 1) || n->in[i] == LC_ABSENT) continue;
        const lc_tensor *written = lc__memory_of(a->b->g, a->nodes, a->maker, n->in[i]);
        for (uint32_t v = 0; written && v < a->n_values; v++) {
            const lc_tensor *t = a->twin[v] == LC_ABSENT ? NULL : lc__memory_of(a->b->g, a->nodes, a->maker, v);
            if (t && lc__overlap(t, written)) a->twin[v] = LC_ABSENT;
        }
    }
}

/* ---- operators of the list ---- */

static bool is_f32(const assigner *a, uint32_t value)
{
    return value != LC_ABSENT && a->b->values[value].type.dtype == LC_F32;
}

/* Replaces operands by their low values. */
static lc_status lower_operands(assigner *a, lc_ir_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (is_f32(a, n->in[i])) LC_TRY(low_of(a, n->in[i], n->site, &n->in[i]));
    return LC_OK;
}

/* Operands that have been rounded, in f32 again. */
static lc_status raise_operands(assigner *a, lc_ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        uint32_t low = n->in[i], back;
        if (low == LC_ABSENT || a->b->values[low].type.dtype != a->b->g->low) continue;
        if (a->twin[low] == LC_ABSENT) {
            LC_TRY(new_value(a, low, LC_F32, &back));
            LC_TRY(add_cast(a, n->site, low, back));
            a->twin[low] = back;
        }
        n->in[i] = a->twin[low];
    }
    return LC_OK;
}

/* Adds the node with low operands and results, or in f32 with operands that have been rounded; and what converts its
 * results to the program's values. */
static lc_status add_low(assigner *a, const lc_ir_node *node, uint32_t results)
{
    const lc_kernel *kernel;
    lc_ir_node n = *node;
    n.in = lc__build_alloc(a->b, (size_t)n.n_in * sizeof *n.in);
    n.out = lc__build_alloc(a->b, (size_t)n.n_out * sizeof *n.out);
    uint32_t *low = lc__build_alloc(a->b, (size_t)n.n_out * sizeof *low);
    if (!n.in || !n.out || !low) return LC_ERR_MEMORY;
    memcpy(n.in, node->in, (size_t)n.n_in * sizeof *n.in);
    LC_TRY(lower_operands(a, &n));
    for (int k = 0; k < n.n_out; k++) {
        low[k] = LC_ABSENT;
        if (results >> k & 1 && is_f32(a, node->out[k])) LC_TRY(new_value(a, node->out[k], a->b->g->low, &low[k]));
        n.out[k] = low[k] == LC_ABSENT ? node->out[k] : low[k];
    }
    LC_TRY(lc__kernel_of(a->b, &n, &kernel));
    bool in_f32 = !kernel || kernel == n.op->kernel; /* reference kernels take no low types */
    if (in_f32) LC_TRY(raise_operands(a, &n));
    for (int k = 0; k < n.n_out && in_f32; k++)
        if (low[k] != LC_ABSENT) LC_TRY(new_value(a, low[k], LC_F32, &n.out[k]));
    LC_TRY(add(a, &n));
    for (int k = 0; k < n.n_out; k++) {
        if (low[k] == LC_ABSENT) continue;
        if (in_f32) LC_TRY(add_cast(a, n.site, n.out[k], low[k]));
        LC_TRY(add_cast(a, n.site, low[k], node->out[k]));
        a->twin[node->out[k]] = low[k];
        a->twin[low[k]] = node->out[k];
    }
    return LC_OK;
}

static lc_status add_node(assigner *a, const lc_ir_node *n)
{
    uint32_t results = a->b->g->low_results(n->op);
    if (results) return add_low(a, n, results);
    if (n->op->mutated_inputs) forget_written(a, n);
    return add(a, n);
}

lc_status lc__assign_storage_types(lc_build *b)
{
    assigner a = {.b = b};
    lc_status status = LC_OK;
    if (!b->g->low) return LC_OK;
    LC_TRY_GOTO(status, done, note_values(&a));
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) LC_TRY_GOTO(status, done, add_node(&a, &b->nodes[i]));
    b->nodes = lc__build_alloc(b, ((size_t)a.n + 1) * sizeof *b->nodes);
    if (!b->nodes) LC_TRY_GOTO(status, done, LC_ERR_MEMORY);
    memcpy(b->nodes, a.nodes, (size_t)a.n * sizeof *a.nodes);
    b->n_nodes = a.n;
done:
    free(a.nodes);
    free(a.twin);
    free(a.maker);
    return status;
}
