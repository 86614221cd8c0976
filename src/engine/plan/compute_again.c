/* SPDX-License-Identifier: Apache-2.0 */
/* Results that the backward pass computes again, so that they need not be kept for it:
 *
 *   gelu, linear_gelu       in the node that computes gelu's gradient (matmul_gelu_backward, gelu_backward_gelu)
 *   batch_norm with relu    in the node that computes its gradient (batch_norm_relu_backward)
 *
 * These nodes read what the result was computed from anyway, and computing it again there costs next to nothing. The
 * node must come before all of the backward pass that reads the result, such as the gradient of the next layer's
 * weight, so it moves up to where its operands exist. Kernels compute the same bits in both places. */
#include "engine/plan/finder.h"
#include "ops/ops.h"

#include <limits.h>

enum { MAX_VIEWS = 4 };

/* The readers of a result in the backward pass. */
typedef struct readers {
    int first; /* the position of the first one, views aside; INT_MAX: none */
    int views[MAX_VIEWS], n_views;
    bool others; /* one of them reads a view of the forward pass, or there are too many views */
} readers;

static bool reads(const lc_ir_node *n, uint32_t value)
{
    for (int k = 0; n->op && k < n->n_in; k++)
        if (n->in[k] == value) return true;
    return false;
}

static void find_readers(const lc__finder *f, uint32_t value, bool is_forward_view, readers *r)
{
    for (int i = 0; i < f->b->n_nodes; i++) {
        const lc_ir_node *n = &f->b->nodes[i];
        if (!reads(n, value)) continue;
        bool view = n->op->flags & LC_OP_VIEW;
        if (n->gradient && (is_forward_view || (view && r->n_views == MAX_VIEWS))) {
            r->others = true;
            return;
        }
        if (view) {
            if (n->gradient) r->views[r->n_views++] = i;
            find_readers(f, n->out[0], !n->gradient, r);
        } else if (n->gradient && i < r->first) {
            r->first = i;
        }
    }
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

/* The first position at which all operands of the node at `at` exist, and from which on nothing is written before it
 * that it may read: of gradients, it reads none. */
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

/* Moves a node to an earlier or later position. */
static void move(lc__finder *f, int from, int to)
{
    lc_ir_node *nodes = f->b->nodes, moved = nodes[from];
    int low = from < to ? from : to, high = from < to ? to : from;
    if (from < to)
        memmove(nodes + from, nodes + from + 1, (size_t)(to - from) * sizeof *nodes);
    else
        memmove(nodes + to + 1, nodes + to, (size_t)(from - to) * sizeof *nodes);
    nodes[to] = moved;
    for (int i = low; i <= high; i++)
        for (int k = 0; nodes[i].op && k < nodes[i].n_out; k++) f->producer[nodes[i].out[k]] = i;
}

/* The node at `at`, which moves to `place`, produces `again`, which the backward pass reads in place of `value`. */
static void apply(lc__finder *f, int at, int place, const lc_ir_node *made, uint32_t value, uint32_t again,
                  const readers *r)
{
    lc_build *b = f->b;
    lc__put_node(f, &b->nodes[at], made);
    move(f, at, place);
    int after = place;
    for (int i = r->n_views - 1; i >= 0; i--) /* from the last one on, since moving one shifts those after it */
        if (r->views[i] < place) move(f, r->views[i], after--);
    for (int i = after; i < b->n_nodes; i++) {
        lc_ir_node *n = &b->nodes[i];
        for (int k = 0; n->op && n->gradient && k < n->n_in; k++) {
            if (n->in[k] != value) continue;
            n->in[k] = again;
            b->values[value].uses--;
            b->values[again].uses++;
        }
    }
}

static lc_status compute_again(lc__finder *f, int forward_at)
{
    lc_build *b = f->b;
    const lc_ir_node *forward = &b->nodes[forward_at];
    const uint32_t value = forward->out[0];
    const lc_op *op = NULL;
    lc_ir_node made;
    readers r = {.first = INT_MAX};
    int at = forward_at + 1;
    while (at < b->n_nodes && !(b->nodes[at].op && is_backward_of(forward, &b->nodes[at], &op))) at++;
    if (at == b->n_nodes) return LC_OK;
    find_readers(f, value, false, &r);
    int place = earliest(f, at);
    if (r.others || r.first == INT_MAX || place > r.first) return LC_OK;
    for (int i = 0; i < r.n_views; i++)
        for (int k = i; k > 0 && r.views[k] < r.views[k - 1]; k--) {
            int swap = r.views[k];
            r.views[k] = r.views[k - 1], r.views[k - 1] = swap;
        }
    const lc_ir_node *n = &b->nodes[at];
    const lc_type type = b->values[value].type;
    uint32_t out[LC_MAX_OUTPUTS], again = lc__build_value(b, &type);
    if (again == LC_ABSENT) return LC_ERR_MEMORY;
    memcpy(out, n->out, (size_t)n->n_out * sizeof *out);
    out[n->n_out] = again;
    bool yes = false;
    LC_TRY(lc__fused_node(f, n, op, n->n_in, n->in, n->n_out + 1, out, n->n_int, n->ints, &made));
    LC_TRY(lc__can_fuse(b, &made, n, &yes));
    if (yes) apply(f, at, place, &made, value, again, &r);
    return LC_OK;
}

lc_status lc__compute_again(lc_build *b)
{
    /* Each node may add a value. */
    size_t n_values = b->n_values + (size_t)b->n_nodes + 1;
    lc__finder f = {.b = b, .producer = lc__build_alloc(b, n_values * sizeof(int))};
    if (!f.producer) return LC_ERR_MEMORY;
    memset(f.producer, 0xff, n_values * sizeof(int));
    for (int i = 0; i < b->n_nodes; i++)
        for (int k = 0; b->nodes[i].op && k < b->nodes[i].n_out; k++) f.producer[b->nodes[i].out[k]] = i;
    for (int i = 0; i < b->n_nodes; i++)
        if (is_candidate(&f, &b->nodes[i])) LC_TRY(compute_again(&f, i));
    return LC_OK;
}
