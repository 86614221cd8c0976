/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types: f32 values that are stored in another type than the program sees (lc_graph.low): in 16 bits, or as
 * f64.
 *
 * In mixed precision (lc_graph_args.autocast) operators of class LOW take and give low values, those of class FOLLOW
 * give low ones if all their data operands are low (ops/storage_rules.h). With lc_graph_args.storage all do. The
 * program's types stay what they are: a result is converted back, which is another value. So conversions are
 * nodes, at most one for a value and type; chains of elementwise operators take them in (fuse_elementwise.c), and those
 * that nobody reads are dropped. This is meaning, not optimization: LIGHTC_PLAN=off does the same.
 *
 * If the backend has no kernel for low operands, the operator computes in f32 with the same numbers: operands that have
 * been rounded, and results that are. If it has one for the operands of an f32 operator as they are stored, the
 * operator reads them without a conversion.
 *
 * Gradients of parameters are f32: a product whose result only goes there does not round it. */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "ops/ops.h"
#include "ops/storage_rules.h"

#include <stdlib.h>
#include <string.h>

typedef struct assigner {
    lc_build *b;
    lc_ir_node *nodes; /* the new list */
    int n, cap;
    /* By value: */
    uint32_t *other; /* the same in the other type, f32 or low; or LC_ABSENT */
    bool *is_low;    /* an f32 value that is stored low: its other is the original */
    int *maker;      /* its node in the new list, or -1 */
    uint32_t cap_others, cap_low, cap_makers, n_values;
    bool *sums; /* of the program: it only becomes part of gradients of parameters */
} assigner;

/* ---- values and nodes ---- */

static lc_status note_values(assigner *a)
{
    uint32_t n = a->b->n_values;
    LC_TRY(lc__grow(&a->other, &a->cap_others, a->n_values, n - a->n_values, "the plan of a step"));
    LC_TRY(lc__grow(&a->is_low, &a->cap_low, a->n_values, n - a->n_values, "the plan of a step"));
    LC_TRY(lc__grow(&a->maker, &a->cap_makers, a->n_values, n - a->n_values, "the plan of a step"));
    for (; a->n_values < n; a->n_values++) {
        a->other[a->n_values] = LC_ABSENT;
        a->is_low[a->n_values] = false;
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

/* The value in the low type: of a view, a view of the low value, if there is one or the view has all of it. */
static lc_status low_of(assigner *a, uint32_t value, lc_site site, uint32_t *out)
{
    *out = a->other[value];
    if (*out != LC_ABSENT) return LC_OK;
    uint32_t of = LC_ABSENT;
    lc_ir_node view = {.op = NULL};
    if (a->maker[value] >= 0) view = a->nodes[a->maker[value]];
    if (view.op && view.op->flags & LC_OP_VIEW) {
        of = a->other[view.in[0]];
        if (of == LC_ABSENT && lc__numel(&a->b->values[view.in[0]].type) == lc__numel(&a->b->values[value].type))
            LC_TRY(low_of(a, view.in[0], site, &of));
    }
    LC_TRY(new_value(a, value, a->b->g->low, out));
    view.site = site;
    if (of != LC_ABSENT)
        LC_TRY(add_unary(a, &view, of, *out));
    else
        LC_TRY(add_cast(a, site, value, *out));
    a->other[value] = *out;
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
            const lc_tensor *t = a->other[v] == LC_ABSENT ? NULL : lc__memory_of(a->b->g, a->nodes, a->maker, v);
            if (t && lc__overlap(t, written)) a->other[v] = LC_ABSENT, a->is_low[v] = false;
        }
    }
}

/* ---- operators ---- */

static bool is_f32(const assigner *a, uint32_t value)
{
    return value != LC_ABSENT && a->b->values[value].type.dtype == LC_F32;
}

static bool has_bit(uint32_t bits, int i)
{
    return i >= 32 ? bits == UINT32_MAX : bits >> i & 1;
}

/* A copy of the node whose operands and results can be replaced. */
static lc_status copy_node(assigner *a, const lc_ir_node *node, lc_ir_node *n)
{
    *n = *node;
    n->in = lc__build_alloc(a->b, (size_t)(n->n_in + n->n_out + 1) * sizeof *n->in);
    if (!n->in) return LC_ERR_MEMORY;
    n->out = n->in + n->n_in;
    if (n->n_in) memcpy(n->in, node->in, (size_t)n->n_in * sizeof *n->in);
    if (n->n_out) memcpy(n->out, node->out, (size_t)n->n_out * sizeof *n->out);
    return LC_OK;
}

/* Replaces operands by their low values. */
static lc_status lower_operands(assigner *a, lc_ir_node *n, uint32_t operands)
{
    for (int i = 0; i < n->n_in; i++)
        if (has_bit(operands, i) && is_f32(a, n->in[i])) LC_TRY(low_of(a, n->in[i], n->site, &n->in[i]));
    return LC_OK;
}

/* Low operands in f32 again: values that have been rounded. */
static lc_status raise_operands(assigner *a, lc_ir_node *n, const lc_ir_node *node)
{
    for (int i = 0; i < n->n_in; i++) {
        uint32_t low = n->in[i], back;
        if (low == node->in[i]) continue;
        if (a->other[low] == LC_ABSENT) {
            LC_TRY(new_value(a, low, LC_F32, &back));
            LC_TRY(add_cast(a, n->site, low, back));
            a->other[low] = back;
        }
        n->in[i] = a->other[low];
    }
    return LC_OK;
}

/* Whether there is a kernel for the node's types besides the reference kernel, which takes f32 and f64. A kernel of an
 * operator of the program is only known to take the types that its infer has seen. */
static lc_status has_kernel(const assigner *a, const lc_ir_node *n, bool *yes)
{
    const lc_kernel *kernel;
    *yes = false;
    if (lc__op_find(n->op->name) != n->op) return LC_OK;
    LC_TRY(lc__kernel_of(a->b, n, &kernel));
    *yes = kernel && (kernel != n->op->kernel || a->b->g->low == LC_F64);
    return LC_OK;
}

/* The f64 that a number was rounded from is kept with it: the host reads a double from that. */
static void note_exact(lc_build *b, uint32_t low, uint32_t value)
{
    if (b->g->low != LC_F64 || lc__numel(&b->values[value].type) != 1) return;
    b->values[value].exact = low;
    b->values[low].keep = b->values[value].keep;
}

/* The low result k becomes the original of the program's value. */
static lc_status add_result(assigner *a, const lc_ir_node *n, uint32_t low, uint32_t value)
{
    LC_TRY(add_cast(a, n->site, low, value));
    note_exact(a->b, low, value);
    a->other[value] = low;
    a->other[low] = value;
    a->is_low[value] = true;
    return LC_OK;
}

/* Adds the node with low operands and results, or in f32 with operands that have been rounded; and what converts its
 * results to the program's values. */
static lc_status add_low(assigner *a, const lc_ir_node *node, uint32_t operands, uint32_t results)
{
    lc_ir_node n;
    bool yes;
    uint32_t *low = lc__build_alloc(a->b, ((size_t)node->n_out + 1) * sizeof *low);
    if (!low) return LC_ERR_MEMORY;
    LC_TRY(copy_node(a, node, &n));
    LC_TRY(lower_operands(a, &n, operands));
    for (int k = 0; k < n.n_out; k++) {
        low[k] = LC_ABSENT;
        if (has_bit(results, k) && is_f32(a, node->out[k])) LC_TRY(new_value(a, node->out[k], a->b->g->low, &low[k]));
        if (low[k] != LC_ABSENT) n.out[k] = low[k];
    }
    LC_TRY(has_kernel(a, &n, &yes));
    if (!yes) LC_TRY(raise_operands(a, &n, node));
    for (int k = 0; k < n.n_out && !yes; k++)
        if (low[k] != LC_ABSENT) LC_TRY(new_value(a, low[k], LC_F32, &n.out[k]));
    LC_TRY(add(a, &n));
    for (int k = 0; k < n.n_out; k++) {
        if (low[k] == LC_ABSENT) continue;
        if (!yes) LC_TRY(add_cast(a, n.site, n.out[k], low[k]));
        LC_TRY(add_result(a, &n, low[k], node->out[k]));
    }
    return LC_OK;
}

/* Adds a node of f32 results, with its operands as they are stored if there is a kernel for them. */
static lc_status add_f32(assigner *a, const lc_ir_node *node)
{
    lc_ir_node n;
    bool yes = false, any = false;
    for (int i = 0; i < node->n_in && node->n_out && !node->op->mutated_inputs; i++)
        any |= node->in[i] != LC_ABSENT && a->is_low[node->in[i]];
    if (any && !(node->op->flags & LC_OP_ELEMENTWISE)) {
        LC_TRY(copy_node(a, node, &n));
        for (int i = 0; i < n.n_in; i++)
            if (n.in[i] != LC_ABSENT && a->is_low[n.in[i]]) n.in[i] = a->other[n.in[i]];
        LC_TRY(has_kernel(a, &n, &yes));
    }
    return add(a, yes ? &n : node);
}

static lc_status add_view(assigner *a, const lc_ir_node *n)
{
    uint32_t low;
    if (!a->is_low[n->in[0]] || !is_f32(a, n->out[0])) return add(a, n);
    LC_TRY(new_value(a, n->out[0], a->b->g->low, &low));
    LC_TRY(add_unary(a, n, a->other[n->in[0]], low));
    return add_result(a, n, low, n->out[0]);
}

/* A conversion between f32 and the low type makes the other value of its operand, or is that. */
static lc_status add_conversion(assigner *a, const lc_ir_node *n)
{
    lc_dtype low = a->b->g->low, from = a->b->values[n->in[0]].type.dtype, to = a->b->values[n->out[0]].type.dtype;
    uint32_t in = n->in[0], out = n->out[0];
    if (from == LC_F32 && to == low && a->is_low[in]) return add_cast(a, n->site, a->other[in], out);
    LC_TRY(add(a, n));
    if (from == low && to == LC_F32) {
        a->other[out] = in;
        a->is_low[out] = a->b->g->options.storage != 0;
        if (a->other[in] == LC_ABSENT) a->other[in] = out;
    }
    return LC_OK;
}

/* Whether the data operands are low, and there is one. An operand of no dimensions only counts if all have none. */
static bool follows(const assigner *a, const lc_ir_node *n, uint32_t operands)
{
    bool any_dims = false, any = false;
    for (int i = 0; i < n->n_in; i++)
        any_dims |= has_bit(operands, i) && is_f32(a, n->in[i]) && a->b->values[n->in[i]].type.ndim;
    for (int i = 0; i < n->n_in; i++) {
        if (!has_bit(operands, i) || !is_f32(a, n->in[i])) continue;
        if (any_dims && !a->b->values[n->in[i]].type.ndim) continue;
        if (!a->is_low[n->in[i]]) return false;
        any = true;
    }
    return any;
}

/* Results that may be low: not those that are only added to gradients. */
static uint32_t low_results(const assigner *a, const lc_ir_node *n, uint32_t results)
{
    for (int k = 0; k < n->n_out && k < 32; k++)
        if (n->gradient && a->sums[n->out[k]]) results &= ~((uint32_t)1 << k);
    return results;
}

static lc_status add_node(assigner *a, const lc_ir_node *n)
{
    lc_dtype all = a->b->g->options.storage;
    if (n->op->mutated_inputs) forget_written(a, n);
    if (n->op == &lc__op_cast) return add_conversion(a, n);
    if (n->op->flags & LC_OP_VIEW) return add_view(a, n);
    if (!n->autocast || n->op->mutated_inputs || n->op->flags & LC_OP_SIDE_EFFECT) return add_f32(a, n);
    lc__storage_rule rule = lc__storage_rule_of(n->op);
    if (all == LC_F64) return add_low(a, n, UINT32_MAX, UINT32_MAX); /* kernels take either f32 or f64 */
    if (all || rule.class == LC_AUTOCAST_LOW || (rule.class == LC_AUTOCAST_FOLLOW && follows(a, n, rule.operands)))
        return add_low(a, n, rule.operands, low_results(a, n, rule.results));
    return add_f32(a, n);
}

/* ---- gradients of parameters ---- */

/* Operators through which a gradient of a parameter goes unchanged, or is added up. */
static bool adds_up(const lc_op *op)
{
    return op->flags & LC_OP_VIEW || op == &lc__op_sum || op == &lc__op_add || op == &lc__op_cast;
}

/* Finds the values that no operator reads except those which add up gradients and put them in their places. */
static lc_status find_sums(assigner *a)
{
    const lc_build *b = a->b;
    a->sums = lc__build_alloc(a->b, (size_t)b->n_values + 1);
    bool *read = lc__build_alloc(a->b, (size_t)b->n_values + 1);
    if (!a->sums || !read) return LC_ERR_MEMORY;
    for (uint32_t v = 0; v < b->n_values; v++) a->sums[v] = !b->values[v].keep;
    for (int i = b->n_nodes - 1; i >= 0; i--) {
        const lc_ir_node *n = &b->nodes[i];
        if (!n->op) continue;
        bool ends = n->op->flags & (LC_OP_MUTATES | LC_OP_SIDE_EFFECT);
        bool passes = ends || (adds_up(n->op) && n->n_out == 1 && read[n->out[0]] && a->sums[n->out[0]]);
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] == LC_ABSENT) continue;
            read[n->in[k]] = true;
            a->sums[n->in[k]] &= passes;
        }
    }
    for (uint32_t v = 0; v < b->n_values; v++) a->sums[v] &= read[v];
    return LC_OK;
}

static bool any_autocast(const lc_build *b)
{
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].autocast) return true;
    return false;
}

lc_status lc__assign_storage_types(lc_build *b)
{
    assigner a = {.b = b};
    lc_status status = LC_OK;
    if (!any_autocast(b)) return LC_OK;
    LC_TRY(find_sums(&a));
    LC_TRY_GOTO(status, done, note_values(&a));
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) LC_TRY_GOTO(status, done, add_node(&a, &b->nodes[i]));
    b->nodes = lc__build_alloc(b, ((size_t)a.n + 1) * sizeof *b->nodes);
    if (!b->nodes) LC_TRY_GOTO(status, done, LC_ERR_MEMORY);
    memcpy(b->nodes, a.nodes, (size_t)a.n * sizeof *a.nodes);
    b->n_nodes = a.n;
done:
    free(a.nodes);
    free(a.other);
    free(a.is_low);
    free(a.maker);
    return status;
}
