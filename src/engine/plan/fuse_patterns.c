/* SPDX-License-Identifier: Apache-2.0 */
/* Named fusions: a few patterns that matter, matched on neighboring nodes.
 *
 *   linear, conv + relu, tanh, sigmoid      -> the operator's own activation
 *   batch_norm + relu (and its backward)    -> batch_norm with activation; the mask is computed again from x
 *   batch_norm + relu + 2x2 max pooling     -> batch_norm_relu_pool: the full-size result is never written
 *   sums of disjoint zero-padded parts      -> cat: the gradient of a tensor that was cut into slices
 *
 * To add one: a function like those here, and its loop in lc__fuse_patterns. */
#include "engine/plan/plan_impl.h"
#include "ops/ops.h"

#include <string.h>

typedef struct finder {
    lc_build *b;
    int *producer; /* by value: node, or -1 */
} finder;

static lc_ir_node *producer_of(finder *f, uint32_t value)
{
    return value == LC_ABSENT || f->producer[value] < 0 ? NULL : &f->b->nodes[f->producer[value]];
}

static bool only_use(const finder *f, uint32_t value)
{
    return f->b->values[value].uses == 1 && !f->b->values[value].keep;
}

static void drop(finder *f, lc_ir_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != LC_ABSENT) f->b->values[n->in[i]].uses--;
    n->op = NULL;
}

/* `n` takes over the result of `next`, which read only n's. */
static void take_result(finder *f, lc_ir_node *n, lc_ir_node *next)
{
    uint32_t result = next->out[0];
    drop(f, next);
    n->out[0] = result;
    f->producer[result] = (int)(n - f->b->nodes);
}

static void replace_input(finder *f, lc_ir_node *n, int i, uint32_t value)
{
    f->b->values[n->in[i]].uses--;
    n->in[i] = value;
    f->b->values[value].uses++;
}

static int activation_code(const lc_op *op)
{
    return op == &lc__op_relu ? 1 : op == &lc__op_tanh ? 2 : op == &lc__op_sigmoid ? 3 : 0;
}

/* n: the activation */
static void fuse_activation(finder *f, lc_ir_node *n)
{
    int code = activation_code(n->op);
    lc_ir_node *before = code ? producer_of(f, n->in[0]) : NULL;
    if (!before || !before->op || !only_use(f, n->in[0]) || f->b->values[n->in[0]].type.dtype != LC_F32) return;
    int64_t *activation = NULL;
    if (before->op == &lc__op_linear || before->op == &lc__op_conv) {
        activation = &before->ints[before->n_int - 1];
    } else if (before->op == &lc__op_batch_norm || before->op == &lc__op_batch_norm_inference) {
        activation = code == 1 && before->out[0] == n->in[0] ? &before->ints[0] : NULL;
    }
    if (!activation || *activation) return;
    *activation = code;
    take_result(f, before, n);
}

/* n: batch_norm_backward whose dy comes from a relu_backward on the result of the fused batch_norm */
static void fuse_batch_norm_backward(finder *f, lc_ir_node *n)
{
    if (n->op != &lc__op_batch_norm_backward || n->ints[0]) return;
    lc_ir_node *mask = producer_of(f, n->in[0]);
    lc_ir_node *forward = producer_of(f, n->in[4]);
    if (!mask || mask->op != &lc__op_relu_backward || !only_use(f, n->in[0])) return;
    if (!forward || forward->op != &lc__op_batch_norm || forward->ints[0] != 1 || mask->in[1] != forward->out[0] ||
        forward->in[0] != n->in[1])
        return;
    n->ints[0] = 1;
    replace_input(f, n, 0, mask->in[0]);
    drop(f, mask);
}

static bool pools_by_two(const lc_ir_node *n, const lc_type *x)
{
    static const int64_t want[] = {2, 2, 2, 2, 0, 0, 1, 1, 0};
    return n->n_int >= 9 && memcmp(n->ints, want, sizeof want) == 0 && x->ndim == 4 && x->shape[2] >= 2 &&
           x->shape[3] >= 2;
}

static lc_status widen(finder *f, lc_ir_node *n, const lc_op *op, int n_in, const uint32_t *in, int n_out,
                       const uint32_t *out, const int64_t *ints, int n_int)
{
    uint32_t *ends = lc__build_alloc(f->b, (size_t)(n_in + n_out) * sizeof *ends);
    int64_t *new_ints = lc__build_alloc(f->b, (size_t)n_int * sizeof *new_ints);
    if (!ends || !new_ints) return LC_ERR_MEMORY;
    memcpy(ends, in, (size_t)n_in * sizeof *in);
    memcpy(ends + n_in, out, (size_t)n_out * sizeof *out);
    memcpy(new_ints, ints, (size_t)n_int * sizeof *ints);
    n->op = op;
    n->n_in = n_in;
    n->n_out = n_out;
    n->in = ends;
    n->out = ends + n_in;
    n->ints = new_ints;
    n->n_int = n_int;
    for (int i = 0; i < n_out; i++) f->producer[out[i]] = (int)(n - f->b->nodes);
    return LC_OK;
}

/* n: a 2x2 max pooling of a batch_norm with relu whose result nobody else reads */
static lc_status fuse_pool(finder *f, lc_ir_node *n)
{
    lc_build *b = f->b;
    if (n->op != &lc__op_max_pool2d || !only_use(f, n->in[0])) return LC_OK;
    lc_ir_node *norm = producer_of(f, n->in[0]), *back = NULL, *norm_back = NULL;
    if (!norm || norm->op != &lc__op_batch_norm || norm->ints[0] != 1 || norm->out[0] != n->in[0]) return LC_OK;
    const lc_type *x = &b->values[norm->in[0]].type;
    if (x->dtype != LC_F32 || !pools_by_two(n, x) || b->values[n->out[1]].type.dtype != LC_U8) return LC_OK;
    /* Its backward, if there is one, must be the pair that the fused backward replaces. */
    for (int i = 0; i < b->n_nodes; i++) {
        lc_ir_node *m = &b->nodes[i];
        if (!m->op || m == n) continue;
        for (int k = 0; k < m->n_in; k++) {
            if (m->in[k] == n->out[1]) {
                if (m->op != &lc__op_max_pool2d_backward || back) return LC_OK;
                back = m;
            }
        }
        if (m->op == &lc__op_batch_norm_backward && m->in[4] == norm->out[1]) {
            if (norm_back || m->ints[0] != 1) return LC_OK;
            norm_back = m;
        }
    }
    if ((back != NULL) != (norm_back != NULL)) return LC_OK;
    if (back && (norm_back->in[0] != back->out[0] || !only_use(f, back->out[0]))) return LC_OK;

    int64_t ints[9];
    memcpy(ints, n->ints, sizeof ints);
    uint32_t out[] = {n->out[0], n->out[1], norm->out[1], norm->out[2]};
    uint32_t pooled_in = n->in[0];
    LC_TRY(widen(f, norm, &lc__op_batch_norm_relu_pool, 3, (uint32_t[]){norm->in[0], norm->in[1], norm->in[2]}, 4, out,
                 ints, 9));
    b->values[pooled_in].uses--;
    n->op = NULL;
    if (back) {
        uint32_t in[] = {back->in[0],      back->in[1],      norm_back->in[1], norm_back->in[2],
                         norm_back->in[3], norm_back->in[4], norm_back->in[5]};
        uint32_t grads[] = {norm_back->out[0], norm_back->out[1], norm_back->out[2]};
        LC_TRY(widen(f, norm_back, &lc__op_batch_norm_relu_pool_backward, 7, in, norm_back->n_out, grads, ints, 9));
        b->values[back->out[0]].uses--;
        back->op = NULL;
    }
    return LC_OK;
}

#define MAX_PARTS 16

/* The leaves of a tree of additions in which every inner value has one use. */
static bool collect_parts(finder *f, lc_ir_node *n, lc_ir_node **leaves, int *n_leaves, lc_ir_node **inner,
                          int *n_inner)
{
    for (int i = 0; i < 2; i++) {
        lc_ir_node *from = producer_of(f, n->in[i]);
        if (!from || !from->op || !only_use(f, n->in[i])) return false;
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
static lc_status fuse_parts(finder *f, lc_ir_node *n)
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
    LC_TRY(widen(f, n, &lc__op_cat, n_leaves, in, 1, (uint32_t[]){n->out[0]}, &cat_dim, 1));
    for (int i = 0; i < n_leaves; i++) leaves[i]->op = NULL; /* the cat now reads their inputs */
    for (int i = 0; i < n_inner; i++) inner[i]->op = NULL;
    return LC_OK;
}

lc_status lc__fuse_patterns(lc_build *b)
{
    finder f = {.b = b, .producer = lc__build_alloc(b, (b->n_values + 1) * sizeof(int))};
    if (!f.producer) return LC_ERR_MEMORY;
    memset(f.producer, 0xff, b->n_values * sizeof(int));
    for (int i = 0; i < b->n_nodes; i++)
        for (int k = 0; b->nodes[i].op && k < b->nodes[i].n_out; k++) f.producer[b->nodes[i].out[k]] = i;
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) fuse_activation(&f, &b->nodes[i]);
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) fuse_batch_norm_backward(&f, &b->nodes[i]);
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op) LC_TRY(fuse_pool(&f, &b->nodes[i]));
    for (int i = b->n_nodes - 1; i >= 0; i--)
        if (b->nodes[i].op) LC_TRY(fuse_parts(&f, &b->nodes[i]));
    return LC_OK;
}
