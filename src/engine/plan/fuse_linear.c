/* SPDX-License-Identifier: Apache-2.0 */
/* Fusions around the products of linear layers:
 *
 *   linear + gelu                           -> linear_gelu; what gelu read is a second result if anyone else reads it
 *   matmul + gelu_backward                  -> matmul_gelu_backward
 *   gradients of a weight and of its bias   -> linear_weight_grad
 *
 * The first two kernels want dense operands, so a product of other views keeps the kernel that takes these in place. */
#include "engine/plan/finder.h"
#include "ops/ops.h"

/* Not a view, except one that only changes the shape. */
static bool is_whole(const lc__finder *f, uint32_t value)
{
    const lc_ir_node *n = lc__producer(f, value);
    return !n || !(n->op->flags & LC_OP_VIEW) || n->op == &lc__op_reshape;
}

/* The node that computed the memory of a value; -1: it is a tensor, which may be written in the meantime. */
static int computed_at(const lc__finder *f, uint32_t value)
{
    const lc_ir_node *n = lc__producer(f, value);
    while (n && (n->op->flags & LC_OP_VIEW)) n = lc__producer(f, value = n->in[0]);
    return f->producer[value];
}

/* The value of which this one is another shape. */
static uint32_t before_reshape(const lc__finder *f, uint32_t value)
{
    const lc_ir_node *n = lc__producer(f, value);
    while (n && n->op == &lc__op_reshape) n = lc__producer(f, value = n->in[0]);
    return value;
}

/* A value that only one elementwise operator reads is better fused with that one. */
static bool continues_elementwise(const lc__finder *f, uint32_t value)
{
    if (!lc__only_use(f, value)) return false;
    for (int i = 0; i < f->b->n_nodes; i++) {
        const lc_ir_node *n = &f->b->nodes[i];
        for (int k = 0; n->op && k < n->n_in; k++)
            if (n->in[k] == value) return n->op->flags & LC_OP_ELEMENTWISE;
    }
    return false;
}

static lc_status fuse_gelu(lc__finder *f, lc_ir_node *n)
{
    uint32_t sum = n->in[0];
    lc_ir_node *linear = lc__producer(f, sum), made;
    if (n->op != &lc__op_gelu || !linear || linear->op != &lc__op_linear || linear->ints[0]) return LC_OK;
    if (!lc__is_wide(f, sum) || !is_whole(f, linear->in[0]) || !is_whole(f, linear->in[1]) ||
        continues_elementwise(f, n->out[0]))
        return LC_OK;
    bool yes = false;
    LC_TRY(lc__fused_node(f, linear, &lc__op_linear_gelu, linear->n_in, linear->in, lc__only_use(f, sum) ? 1 : 2,
                          (uint32_t[]){n->out[0], sum}, 1, n->ints, &made));
    LC_TRY(lc__can_fuse(f->b, &made, linear, &yes));
    if (!yes) return LC_OK;
    lc__drop_node(f, n);
    lc__put_node(f, linear, &made);
    return LC_OK;
}

/* The product runs at its own place, where the other operand must exist. */
static lc_status fuse_gelu_backward(lc__finder *f, lc_ir_node *n)
{
    if (n->op != &lc__op_gelu_backward || !lc__only_use(f, n->in[0]) || !lc__is_wide(f, n->in[0])) return LC_OK;
    uint32_t dy = n->in[0], x = n->in[1];
    lc_ir_node *product = lc__producer(f, dy), made;
    if (!product || product->op != &lc__op_matmul || !is_whole(f, product->in[0]) || !is_whole(f, product->in[1]))
        return LC_OK;
    if (computed_at(f, x) < 0 || f->producer[x] >= product - f->b->nodes ||
        !lc__type_equal(&f->b->values[dy].type, &f->b->values[x].type))
        return LC_OK;
    bool yes = false;
    LC_TRY(lc__fused_node(f, product, &lc__op_matmul_gelu_backward, 3, (uint32_t[]){product->in[0], product->in[1], x},
                          1, n->out, 1, n->ints, &made));
    LC_TRY(lc__can_fuse(f->b, &made, product, &yes));
    if (!yes) return LC_OK;
    lc__drop_node(f, n);
    lc__put_node(f, product, &made);
    return LC_OK;
}

/* n: a sum over all dimensions except the last, of a value that is `dy` in some shape */
static bool sums_columns(const lc__finder *f, const lc_ir_node *n, uint32_t dy)
{
    if (n->op != &lc__op_sum || n->ints[0]) return false;
    const lc_type *x = &f->b->values[n->in[0]].type, *matrix = &f->b->values[dy].type;
    if (n->ints[1] != x->ndim - 1 || x->shape[x->ndim - 1] != matrix->shape[1]) return false;
    for (int d = 0; d + 1 < x->ndim; d++)
        if (n->ints[2 + d] != d) return false;
    return before_reshape(f, n->in[0]) == before_reshape(f, dy);
}

static bool transposes_matrix(const lc__finder *f, const lc_ir_node *n)
{
    return n && n->op == &lc__op_permute && f->b->values[n->in[0]].type.ndim == 2 && n->ints[0] == 1;
}

/* n: the gradient of a weight, dy^T x */
static lc_status fuse_weight_grad(lc__finder *f, lc_ir_node *n)
{
    if (n->op != &lc__op_matmul || f->b->values[n->in[1]].type.ndim != 2 || !lc__is_wide(f, n->out[0])) return LC_OK;
    lc_ir_node *turned = lc__producer(f, n->in[0]), *end = f->b->nodes + f->b->n_nodes, *sum = n + 1, made;
    if (!transposes_matrix(f, turned) || computed_at(f, turned->in[0]) < 0) return LC_OK;
    while (sum < end && !(sum->op && sums_columns(f, sum, turned->in[0]))) sum++;
    if (sum == end) return LC_OK;
    bool yes = false;
    LC_TRY(lc__fused_node(f, n, &lc__op_linear_weight_grad, 2, (uint32_t[]){turned->in[0], n->in[1]}, 2,
                          (uint32_t[]){n->out[0], sum->out[0]}, 0, NULL, &made));
    LC_TRY(lc__can_fuse(f->b, &made, n, &yes));
    if (!yes) return LC_OK;
    lc__drop_node(f, sum);
    lc__put_node(f, n, &made);
    return LC_OK;
}

lc_status lc__fuse_linear(lc__finder *f)
{
    lc_ir_node *nodes = f->b->nodes;
    for (int i = 0; i < f->b->n_nodes; i++)
        if (nodes[i].op && nodes[i].n_in) LC_TRY(fuse_gelu(f, &nodes[i]));
    for (int i = 0; i < f->b->n_nodes; i++)
        if (nodes[i].op) LC_TRY(fuse_gelu_backward(f, &nodes[i]));
    for (int i = 0; i < f->b->n_nodes; i++)
        if (nodes[i].op) LC_TRY(fuse_weight_grad(f, &nodes[i]));
    return LC_OK;
}
