/* SPDX-License-Identifier: Apache-2.0 */
/* Named fusions: a few patterns that matter, matched on neighboring nodes.
 *
 *   linear, conv + relu, tanh, sigmoid      -> the operator's own activation
 *   batch_norm + relu (and its backward)    -> batch_norm with activation; the mask is computed again from x
 *   batch_norm + relu + 2x2 max pooling     -> batch_norm_relu_pool: the full-size result is never written
 *   sums of disjoint zero-padded parts      -> cat: the gradient of a tensor that was cut into slices
 *   linear layers' gelu and gradients       -> fuse_linear.c
 *
 * A fusion for which there is no kernel is not made (lc__can_fuse). To add one: a function like those here, and its
 * loop in lc__fuse_patterns. */
#include "engine/plan/finder.h"
#include "ops/ops.h"

/* ---- finder.h ---- */

lc_status lc__finder_init(lc__finder *f, lc_build *b)
{
    const size_t n = b->n_values + (size_t)b->n_nodes;
    *f = (lc__finder){.b = b, .producer = lc__build_alloc(b, (n + 1) * sizeof(int))};
    if (!f->producer) return LC_ERR_MEMORY;
    memset(f->producer, 0xff, n * sizeof(int));
    for (int i = 0; i < b->n_nodes; i++)
        for (int k = 0; b->nodes[i].op && k < b->nodes[i].n_out; k++) f->producer[b->nodes[i].out[k]] = i;
    return LC_OK;
}

lc_status lc__fused_node(lc__finder *f, const lc_ir_node *like, const lc_op *op, int n_in, const uint32_t *in,
                         int n_out, const uint32_t *out, int n_int, const int64_t *ints, lc_ir_node *made)
{
    uint32_t *ends = lc__build_alloc(f->b, (size_t)(n_in + n_out) * sizeof *ends);
    int64_t *new_ints = lc__build_alloc(f->b, (size_t)(n_int + 1) * sizeof *new_ints);
    if (!ends || !new_ints) return LC_ERR_MEMORY;
    memcpy(ends, in, (size_t)n_in * sizeof *in);
    memcpy(ends + n_in, out, (size_t)n_out * sizeof *out);
    if (n_int) memcpy(new_ints, ints, (size_t)n_int * sizeof *ints);
    *made = *like;
    made->op = op;
    made->n_in = n_in;
    made->n_out = n_out;
    made->in = ends;
    made->out = ends + n_in;
    made->ints = new_ints;
    made->n_int = n_int;
    return LC_OK;
}

static void count_uses(lc__finder *f, const lc_ir_node *n, int change)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != LC_ABSENT) f->b->values[n->in[i]].uses += (uint32_t)change;
}

void lc__put_node(lc__finder *f, lc_ir_node *n, const lc_ir_node *made)
{
    count_uses(f, n, -1);
    *n = *made;
    count_uses(f, n, 1);
    for (int i = 0; i < n->n_out; i++) f->producer[n->out[i]] = (int)(n - f->b->nodes);
}

void lc__drop_node(lc__finder *f, lc_ir_node *n)
{
    count_uses(f, n, -1);
    n->op = NULL;
}

/* ---- activations and normalization ---- */

static int activation_code(const lc_op *op)
{
    return op == &lc__op_relu ? 1 : op == &lc__op_tanh ? 2 : op == &lc__op_sigmoid ? 3 : 0;
}

/* Where an operator has the code of its activation; NULL: it cannot have this one. */
static int64_t *activation_of(const lc_ir_node *n, int code, uint32_t result)
{
    if (n->op == &lc__op_linear || n->op == &lc__op_conv) return &n->ints[n->n_int - 1];
    bool norm = n->op == &lc__op_batch_norm || n->op == &lc__op_batch_norm_inference;
    return norm && code == 1 && n->out[0] == result ? &n->ints[0] : NULL;
}

/* n: the activation */
static lc_status fuse_activation(lc__finder *f, lc_ir_node *n)
{
    int code = activation_code(n->op);
    lc_ir_node *before = code ? lc__producer(f, n->in[0]) : NULL, made;
    if (!before || !before->op || !lc__only_use(f, n->in[0])) return LC_OK;
    if (n->op != &lc__op_relu && !lc__is_wide(f, n->in[0])) return LC_OK; /* a relu may come before the rounding */
    int64_t *activation = activation_of(before, code, n->in[0]);
    bool yes = false;
    if (!activation || *activation) return LC_OK;
    uint32_t out[LC_MAX_OUTPUTS];
    memcpy(out, before->out, (size_t)before->n_out * sizeof *out);
    out[0] = n->out[0];
    LC_TRY(lc__fused_node(f, before, before->op, before->n_in, before->in, before->n_out, out, before->n_int,
                          before->ints, &made));
    *activation_of(&made, code, out[0]) = code;
    LC_TRY(lc__can_fuse(f->b, &made, before, &yes));
    if (!yes) return LC_OK;
    lc__drop_node(f, n);
    lc__put_node(f, before, &made);
    return LC_OK;
}

/* n: batch_norm_backward whose dy comes from a relu_backward on the result of the fused batch_norm */
static lc_status fuse_batch_norm_backward(lc__finder *f, lc_ir_node *n)
{
    if (n->op != &lc__op_batch_norm_backward || n->ints[0]) return LC_OK;
    lc_ir_node *mask = lc__producer(f, n->in[0]), made;
    const lc_ir_node *forward = lc__producer(f, n->in[4]);
    if (!mask || mask->op != &lc__op_relu_backward || !lc__only_use(f, n->in[0])) return LC_OK;
    if (!forward || forward->op != &lc__op_batch_norm || forward->ints[0] != 1 || mask->in[1] != forward->out[0] ||
        forward->in[0] != n->in[1])
        return LC_OK;
    const int64_t relu = 1;
    bool yes = false;
    LC_TRY(lc__fused_node(f, n, n->op, n->n_in, n->in, n->n_out, n->out, 1, &relu, &made));
    made.in[0] = mask->in[0];
    LC_TRY(lc__can_fuse(f->b, &made, n, &yes));
    if (!yes) return LC_OK;
    lc__put_node(f, n, &made);
    lc__drop_node(f, mask);
    return LC_OK;
}

static bool pools_by_two(const lc_ir_node *n, const lc_type *x)
{
    static const int64_t want[] = {2, 2, 2, 2, 0, 0, 1, 1, 0};
    return n->n_int >= 9 && memcmp(n->ints, want, sizeof want) == 0 && x->ndim == 4 && x->shape[2] >= 2 &&
           x->shape[3] >= 2;
}

/* A max pooling with its backward, and the batch_norm with relu before it with its own. */
typedef struct pooling {
    lc_ir_node *pool, *norm, *back, *norm_back; /* the last two NULL: without backward */
} pooling;

/* False if the backward of one is not the pair that the fused backward replaces. */
static bool find_backward(const lc__finder *f, pooling *p)
{
    for (int i = 0; i < f->b->n_nodes; i++) {
        lc_ir_node *m = &f->b->nodes[i];
        if (!m->op || m == p->pool) continue;
        for (int k = 0; k < m->n_in; k++) {
            if (m->in[k] == p->pool->out[1]) {
                if (m->op != &lc__op_max_pool2d_backward || p->back) return false;
                p->back = m;
            }
        }
        if (m->op == &lc__op_batch_norm_backward && m->in[4] == p->norm->out[1]) {
            if (p->norm_back || m->ints[0] != 1) return false;
            p->norm_back = m;
        }
    }
    if (!p->back || !p->norm_back) return !p->back && !p->norm_back;
    return p->norm_back->in[0] == p->back->out[0] && lc__only_use(f, p->back->out[0]);
}

/* n: a 2x2 max pooling of a batch_norm with relu whose result nobody else reads. */
static lc_status fuse_pool(lc__finder *f, lc_ir_node *n)
{
    lc_build *b = f->b;
    if (n->op != &lc__op_max_pool2d || !lc__only_use(f, n->in[0])) return LC_OK;
    pooling p = {.pool = n, .norm = lc__producer(f, n->in[0])};
    lc_ir_node *norm = p.norm, made, made_back;
    if (!norm || norm->op != &lc__op_batch_norm || norm->ints[0] != 1 || norm->out[0] != n->in[0]) return LC_OK;
    if (!pools_by_two(n, &b->values[norm->in[0]].type) || !find_backward(f, &p)) return LC_OK;
    bool yes = false;
    uint32_t out[] = {n->out[0], n->out[1], norm->out[1], norm->out[2]};
    LC_TRY(lc__fused_node(f, norm, &lc__op_batch_norm_relu_pool, 3, norm->in, 4, out, 9, n->ints, &made));
    LC_TRY(lc__can_fuse(b, &made, norm, &yes));
    if (yes && p.back) {
        const uint32_t *in = p.norm_back->in;
        LC_TRY(lc__fused_node(f, p.norm_back, &lc__op_batch_norm_relu_pool_backward, 7,
                              (uint32_t[]){p.back->in[0], p.back->in[1], in[1], in[2], in[3], in[4], in[5]},
                              p.norm_back->n_out, p.norm_back->out, 9, n->ints, &made_back));
        LC_TRY(lc__can_fuse(b, &made_back, p.norm_back, &yes));
    }
    if (!yes) return LC_OK;
    lc__drop_node(f, n);
    lc__put_node(f, norm, &made);
    if (p.back) {
        lc__put_node(f, p.norm_back, &made_back);
        lc__drop_node(f, p.back);
    }
    return LC_OK;
}

/* ---- parts ---- */

#define MAX_PARTS 16

/* The leaves of a tree of additions in which every inner value has one use. */
static bool collect_parts(lc__finder *f, lc_ir_node *n, lc_ir_node **leaves, int *n_leaves, lc_ir_node **inner,
                          int *n_inner)
{
    for (int i = 0; i < 2; i++) {
        lc_ir_node *from = lc__producer(f, n->in[i]);
        if (!from || !from->op || !lc__only_use(f, n->in[i])) return false;
        if (from->op == &lc__op_pad && *n_leaves < MAX_PARTS) {
            leaves[(*n_leaves)++] = from;
        } else if (from->op == &lc__op_add && *n_inner < MAX_PARTS &&
                   lc__type_equal(&f->b->values[from->out[0]].type, &f->b->values[n->out[0]].type)) {
            inner[(*n_inner)++] = from;
            if (!collect_parts(f, from, leaves, n_leaves, inner, n_inner)) return false;
        } else {
            return false;
        }
    }
    return true;
}

/* The dimension in which a zero padding extends its input; -1: none, or several. */
static int padded_dim(const lc_ir_node *n)
{
    int dim = -1;
    if (n->floats[0] != 0 || n->sources[0].live || n->sources[0].user >= 0) return -1;
    for (int d = 0; 2 * d + 1 < n->n_int; d++) {
        if (n->ints[2 * d] < 0 || n->ints[2 * d + 1] < 0) return -1;
        if (n->ints[2 * d] == 0 && n->ints[2 * d + 1] == 0) continue;
        if (dim >= 0) return -1;
        dim = d;
    }
    return dim;
}

/* n: the last addition */
static lc_status fuse_parts(lc__finder *f, lc_ir_node *n)
{
    lc_ir_node *leaves[MAX_PARTS], *inner[MAX_PARTS];
    int n_leaves = 0, n_inner = 0;
    if (n->op != &lc__op_add || !collect_parts(f, n, leaves, &n_leaves, inner, &n_inner)) return LC_OK;
    int dim = padded_dim(leaves[0]);
    if (dim < 0) return LC_OK;
    /* Sort by place; the places must follow one another without a gap. */
    for (int i = 1; i < n_leaves; i++)
        for (int k = i; k > 0 && leaves[k]->ints[2 * dim] < leaves[k - 1]->ints[2 * dim]; k--) {
            lc_ir_node *swap = leaves[k];
            leaves[k] = leaves[k - 1];
            leaves[k - 1] = swap;
        }
    int64_t at = 0;
    uint32_t in[MAX_PARTS];
    for (int i = 0; i < n_leaves; i++) {
        const lc_type *part = &f->b->values[leaves[i]->in[0]].type;
        if (padded_dim(leaves[i]) != dim || leaves[i]->ints[2 * dim] != at) return LC_OK;
        at += part->shape[dim];
        in[i] = leaves[i]->in[0];
    }
    if (at != f->b->values[n->out[0]].type.shape[dim]) return LC_OK;
    int64_t cat_dim = dim;
    bool yes = false;
    lc_ir_node made;
    LC_TRY(lc__fused_node(f, n, &lc__op_cat, n_leaves, in, 1, n->out, 1, &cat_dim, &made));
    LC_TRY(lc__can_fuse(f->b, &made, leaves[0], &yes));
    if (!yes) return LC_OK;
    lc__put_node(f, n, &made);
    for (int i = 0; i < n_leaves; i++) lc__drop_node(f, leaves[i]);
    for (int i = 0; i < n_inner; i++) lc__drop_node(f, inner[i]);
    return LC_OK;
}

lc_status lc__fuse_patterns(lc_build *b)
{
    lc__finder f;
    LC_TRY(lc__finder_init(&f, b));
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) LC_TRY(fuse_activation(&f, &b->nodes[i]));
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) LC_TRY(fuse_batch_norm_backward(&f, &b->nodes[i]));
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) LC_TRY(fuse_pool(&f, &b->nodes[i]));
    for (int i = b->n_nodes - 1; i >= 0; i--)
        if (b->nodes[i].op) LC_TRY(fuse_parts(&f, &b->nodes[i]));
    return lc__fuse_linear(&f);
}
