/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a scaled loss are checked by the products that compute them:
 *
 *   linear_weight_grad whose result clip_coefficient checks -> linear_weight_grad_finite
 *
 * Its third result, 0 or NaN, takes the place of the gradient among what clip_coefficient adds up. */
#include "optim/fuse_finite.h"

#include "engine/plan/finder.h"
#include "ops/ops.h"
#include "optim/clip.h"

/* The product whose result is all that is in a gradient when `check` runs, or NULL. */
static lc_ir_node *product_of(const lc__finder *f, const lc_ir_node *check, const lc_tensor *gradient)
{
    const lc_ir_node *nodes = f->b->nodes;
    int64_t i = check - nodes - 1;
    while (i >= 0 && !(nodes[i].op && lc__node_writes(f->b->g, nodes, f->producer, &nodes[i], gradient))) i--;
    const lc_ir_node *n = i < 0 ? NULL : &nodes[i];
    if (!n || n->op != &lc__op_accumulate || n->ints[0]) return NULL;
    if (f->producer[n->in[0]] >= 0 || lc__viewed_tensor(f->b->g, n->in[0]) != gradient) return NULL;
    lc_ir_node *product = lc__producer(f, n->in[1]);
    bool fits = product && product->op == &lc__op_linear_weight_grad && product->out[0] == n->in[1];
    return fits && lc__is_wide(f, n->in[1]) ? product : NULL;
}

/* Gives the product its third result; LC_ABSENT: there is no kernel for it. */
static lc_status add_finite(lc__finder *f, lc_ir_node *product, uint32_t *finite)
{
    const lc_type type = {.dtype = f->b->values[product->out[0]].type.dtype};
    lc_ir_node made;
    bool yes = false;
    *finite = LC_ABSENT;
    uint32_t value = lc__build_value(f->b, &type);
    if (value == LC_ABSENT) return LC_ERR_MEMORY;
    LC_TRY(lc__fused_node(f, product, &lc__op_linear_weight_grad_finite, 2, product->in, 3,
                          (uint32_t[]){product->out[0], product->out[1], value}, 0, NULL, &made));
    LC_TRY(lc__can_fuse(f->b, &made, product, &yes));
    if (!yes) return LC_OK;
    lc__put_node(f, product, &made);
    *finite = value;
    return LC_OK;
}

/* The check adds up `finite`, one more input before unscale, in place of the part of gradients that its ints from k on
 * name. */
static lc_status replace_part(lc__finder *f, lc_ir_node *check, int k, uint32_t finite)
{
    lc_ir_node made;
    const int at = check->n_in - 1;
    uint32_t *in = lc__build_alloc(f->b, ((size_t)check->n_in + 1) * sizeof *in);
    if (!in) return LC_ERR_MEMORY;
    memcpy(in, check->in, (size_t)at * sizeof *in);
    in[at] = finite;
    in[at + 1] = check->in[at];
    LC_TRY(lc__fused_node(f, check, check->op, check->n_in + 1, in, check->n_out, check->out, check->n_int, check->ints,
                          &made));
    made.ints[k] = at;
    made.ints[k + 1] = 0;
    made.ints[k + 2] = 1;
    lc__put_node(f, check, &made);
    return LC_OK;
}

/* The gradient that a part of a flat buffer is, or NULL. */
static const lc_tensor *gradient_at(const lc_graph *g, const lc_tensor *buffer, int64_t offset, int64_t count)
{
    for (int i = 0; i < g->n_flats; i++)
        for (int k = 0; g->flats[i]->gradient == buffer && k < g->flats[i]->n; k++)
            if (g->flats[i]->offset[k] == offset && lc__numel(&g->flats[i]->gradients[k]->type) == count)
                return g->flats[i]->gradients[k];
    return NULL;
}

static lc_status fuse_check(lc__finder *f, lc_ir_node *check)
{
    for (int k = LC__CLIP_FIRST; k + 2 < check->n_int; k += 3) {
        const int64_t *part = check->ints + k;
        const lc_tensor *buffer = lc__viewed_tensor(f->b->g, check->in[part[0]]);
        const lc_tensor *gradient = buffer ? gradient_at(f->b->g, buffer, part[1], part[2]) : NULL;
        lc_ir_node *product = gradient ? product_of(f, check, gradient) : NULL;
        uint32_t finite = LC_ABSENT;
        if (product) LC_TRY(add_finite(f, product, &finite));
        if (finite != LC_ABSENT) LC_TRY(replace_part(f, check, k, finite));
    }
    return LC_OK;
}

lc_status lc__fuse_finite(lc_build *b)
{
    lc__finder f;
    /* Peers write gradients, too; and a check of all results for NaNs would find the third. */
    if (b->g->peers || b->g->nan_check) return LC_OK;
    for (int i = 0; i < b->n_nodes; i++) {
        lc_ir_node *n = &b->nodes[i];
        if (n->op != &lc__op_clip_coefficient || !n->ints[LC__CLIP_ONLY_FINITE] || !n->ints[LC__CLIP_UNSCALE]) continue;
        LC_TRY(lc__finder_init(&f, b));
        LC_TRY(fuse_check(&f, n));
    }
    return LC_OK;
}
