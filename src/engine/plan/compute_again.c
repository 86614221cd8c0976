/* SPDX-License-Identifier: Apache-2.0 */
/* Results that the backward pass computes again, so that they need not be kept for it:
 *
 *   gelu, linear_gelu       in the node that computes gelu's gradient (matmul_gelu_backward, gelu_backward_gelu)
 *   batch_norm with relu    in the node that computes its gradient (batch_norm_relu_backward)
 *
 * These nodes read what the result was computed from anyway, and computing it again there costs next to nothing. The
 * node must come before all of the backward pass that reads the result, such as the gradient of the next layer's
 * weight: it moves up to where its operands exist, and what reads the result earlier moves after it. Kernels compute
 * the same bits in both places. */
#include "engine/plan/finder.h"
#include "ops/ops.h"

static bool reads(const lc_ir_node *n, uint32_t value)
{
    for (int k = 0; n->op && k < n->n_in; k++)
        if (n->in[k] == value) return true;
    return false;
}

/* Whether the backward pass reads a view of the value that the forward pass has made. */
static bool has_forward_view(const lc__finder *f, uint32_t value, bool is_view)
{
    for (int i = 0; i < f->b->n_nodes; i++) {
        const lc_ir_node *n = &f->b->nodes[i];
        if (!reads(n, value)) continue;
        if (n->gradient && is_view) return true;
        if (!n->gradient && (n->op->flags & LC_OP_VIEW) && has_forward_view(f, n->out[0], true)) return true;
    }
    return false;
}

/* Whether n computes the gradient of `forward`; sets the operator that also computes its result again. */
static bool is_backward_of(const lc_ir_node *forward, const lc_ir_node *n, const lc_op **with_result)
{
    if (forward->op == &lc__op_batch_norm) {
        *with_result = &lc__op_batch_norm_relu_backward;
        return n->op == &lc__op_batch_norm_backward && n->ints[0] == 1 && n->in[1] == forward->in[0] &&
               n->in[4] == forward->out[1] && n->in[5] == forward->out[2];
    }
    uint32_t x = forward->op == &lc__op_gelu ? forward->in[0] : forward->out[1];
    bool product = n->op == &lc__op_matmul_gelu_backward;
    *with_result = product ? n->op : &lc__op_gelu_backward_gelu;
    return (product || n->op == &lc__op_gelu_backward) && n->in[product ? 2 : 1] == x && n->ints[0] == forward->ints[0];
}

/* Whether a node of this kind has a gradient that can compute its first result again. */
static bool is_candidate(const lc__finder *f, const lc_ir_node *n)
{
    if (!n->op || n->gradient || f->b->values[n->out[0]].keep) return false;
    return n->op == &lc__op_gelu || (n->op == &lc__op_linear_gelu && n->n_out > 1) ||
           (n->op == &lc__op_batch_norm && n->ints[0] == 1);
}

/* The first position that the node at `at` can move up to: all of its operands exist there, and no node between the two
 * writes a tensor that it may read. It reads no gradients, so nodes that accumulate these do not count. */
static int earliest(const lc__finder *f, int at)
{
    const lc_ir_node *nodes = f->b->nodes, *n = &nodes[at];
    int place = 0;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] != LC_ABSENT && f->producer[n->in[k]] >= place) place = f->producer[n->in[k]] + 1;
    for (int i = place; i < at; i++)
        if (nodes[i].op && (nodes[i].op->flags & LC_OP_MUTATES) && nodes[i].op != &lc__op_accumulate) place = i + 1;
    return place;
}

static bool depends_on_late(const lc__finder *f, const bool *late, const lc_ir_node *n)
{
    for (int k = 0; n->op && k < n->n_in; k++)
        if (n->in[k] != LC_ABSENT && f->producer[n->in[k]] >= 0 && late[f->producer[n->in[k]]]) return true;
    return false;
}

/* Whether a gradient is written between two positions where the one at `from` is: sums would be added in another
 * order. */
static bool is_written_again(const lc__finder *f, const bool *late, int from, int to)
{
    const lc_ir_node *nodes = f->b->nodes;
    const lc_tensor *own = lc__memory_of(f->b->g, nodes, f->producer, nodes[from].in[0]);
    for (int i = from + 1; i < to; i++) {
        if (!nodes[i].op || late[i] || !(nodes[i].op->flags & LC_OP_MUTATES)) continue;
        const lc_tensor *other = lc__memory_of(f->b->g, nodes, f->producer, nodes[i].in[0]);
        if (!own || !other || lc__overlap(own, other)) return true;
    }
    return false;
}

/* Marks the nodes of the backward pass before `place` that read the value or depend on one that does: they must come
 * after the node that computes it again. False: they cannot. */
static bool find_late(const lc__finder *f, uint32_t value, int place, bool *late)
{
    memset(late, 0, (size_t)f->b->n_nodes * sizeof *late);
    for (int i = 0; i < place; i++) {
        const lc_ir_node *n = &f->b->nodes[i];
        if (!n->op) continue;
        late[i] = (n->gradient && reads(n, value)) || depends_on_late(f, late, n);
        if (late[i] && !n->gradient) return false;
    }
    bool any = false;
    for (int i = 0; i < place; i++) {
        const lc_op *op = f->b->nodes[i].op;
        any |= late[i];
        if (!any || !op || !(op->flags & LC_OP_MUTATES)) continue;
        if (op != &lc__op_accumulate) return false; /* what is late may read what it writes */
        if (late[i] && is_written_again(f, late, i, place)) return false;
    }
    return true;
}

/* The order of nodes up to `at`: those before `place` that are not late, `made` in place of the one at `at`, the late
 * ones, the others. Returns where `made` is. */
static int reorder(lc__finder *f, int at, int place, const bool *late, const lc_ir_node *made, lc_ir_node *order)
{
    lc_ir_node *nodes = f->b->nodes;
    int n = 0;
    for (int i = 0; i < place; i++)
        if (!late[i]) order[n++] = nodes[i];
    const int made_at = n;
    order[n++] = *made;
    for (int i = 0; i < place; i++)
        if (late[i]) order[n++] = nodes[i];
    for (int i = place; i < at; i++) order[n++] = nodes[i];
    memcpy(nodes, order, (size_t)n * sizeof *nodes);
    for (int i = 0; i <= at; i++)
        for (int k = 0; nodes[i].op && k < nodes[i].n_out; k++) f->producer[nodes[i].out[k]] = i;
    return made_at;
}

/* From the node at `from` on the backward pass reads `again` in place of `value`. */
static void replace(lc__finder *f, int from, uint32_t value, uint32_t again)
{
    lc_build *b = f->b;
    for (int i = from; i < b->n_nodes; i++) {
        lc_ir_node *n = &b->nodes[i];
        for (int k = 0; n->op && n->gradient && k < n->n_in; k++) {
            if (n->in[k] != value) continue;
            n->in[k] = again;
            b->values[value].uses--;
            b->values[again].uses++;
        }
    }
}

static bool is_read_backward(const lc__finder *f, uint32_t value)
{
    for (int i = 0; i < f->b->n_nodes; i++)
        if (f->b->nodes[i].gradient && reads(&f->b->nodes[i], value)) return true;
    return false;
}

/* late, order: room for all nodes. */
static lc_status compute_again(lc__finder *f, int forward_at, bool *late, lc_ir_node *order)
{
    lc_build *b = f->b;
    const lc_ir_node *forward = &b->nodes[forward_at];
    const uint32_t value = forward->out[0];
    const lc_op *op = NULL;
    lc_ir_node made;
    int at = forward_at + 1;
    while (at < b->n_nodes && !(b->nodes[at].op && is_backward_of(forward, &b->nodes[at], &op))) at++;
    if (at == b->n_nodes || !is_read_backward(f, value) || has_forward_view(f, value, false)) return LC_OK;
    const lc_ir_node *n = &b->nodes[at];
    const int place = earliest(f, at);
    bool yes = false;
    if (!find_late(f, value, place, late) || depends_on_late(f, late, n)) return LC_OK;
    const lc_type type = b->values[value].type;
    uint32_t out[LC_MAX_OUTPUTS], again = lc__build_value(b, &type);
    if (again == LC_ABSENT) return LC_ERR_MEMORY;
    memcpy(out, n->out, (size_t)n->n_out * sizeof *out);
    out[n->n_out] = again;
    LC_TRY(lc__fused_node(f, n, op, n->n_in, n->in, n->n_out + 1, out, n->n_int, n->ints, &made));
    LC_TRY(lc__can_fuse(b, &made, n, &yes));
    if (yes) replace(f, reorder(f, at, place, late, &made, order), value, again);
    return LC_OK;
}

lc_status lc__compute_again(lc_build *b)
{
    /* Each node may add a value. */
    size_t n_values = b->n_values + (size_t)b->n_nodes + 1;
    lc__finder f = {.b = b, .producer = lc__build_alloc(b, n_values * sizeof(int))};
    bool *late = lc__build_alloc(b, (size_t)b->n_nodes * sizeof *late);
    lc_ir_node *order = lc__build_alloc(b, (size_t)b->n_nodes * sizeof *order);
    if (!f.producer || !late || !order) return LC_ERR_MEMORY;
    memset(f.producer, 0xff, n_values * sizeof(int));
    for (int i = 0; i < b->n_nodes; i++)
        for (int k = 0; b->nodes[i].op && k < b->nodes[i].n_out; k++) f.producer[b->nodes[i].out[k]] = i;
    for (int i = 0; i < b->n_nodes; i++)
        if (is_candidate(&f, &b->nodes[i])) LC_TRY(compute_again(&f, i, late, order));
    return LC_OK;
}
