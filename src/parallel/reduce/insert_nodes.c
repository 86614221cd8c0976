/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/reduce/place_slices.h"

#include "base/grow.h"
#include "ops/ops.h"

#include <stdlib.h>

lc_ir_node *lc__new_node(lc__placing *x, const lc_op *op, int n_in, int n_out, int n_int, lc_site site)
{
    lc_ir_node *n = lc__build_alloc(x->b, sizeof *n);
    uint32_t *ends = lc__build_alloc(x->b, (size_t)(n_in + n_out + 1) * sizeof *ends);
    int64_t *ints = lc__build_alloc(x->b, (size_t)(n_int + 1) * sizeof *ints);
    if (!n || !ends || !ints) return NULL;
    *n = (lc_ir_node){.op = op,
                      .n_in = n_in,
                      .n_out = n_out,
                      .n_int = n_int,
                      .in = ends,
                      .out = ends + n_in,
                      .ints = ints,
                      .site = site};
    return n;
}

lc_status lc__insert_node(lc__placing *x, int position, int phase, lc_ir_node *node)
{
    LC_TRY(lc__grow(&x->insertions, &x->cap_insertions, x->n_insertions, 1, "the plan of a step"));
    x->insertions[x->n_insertions] = (lc__insertion){position, phase, (int)x->n_insertions, node};
    x->n_insertions++;
    return LC_OK;
}

lc_status lc__ranks_value(lc__placing *x, const lc__placed_unit *u, lc_dtype dtype, int64_t count, uint32_t *out)
{
    lc_type type = {.dtype = dtype, .ndim = 1, .shape = {count * u->flat->sharding->size}};
    *out = lc__build_value(x->b, &type);
    return *out == LC_ABSENT ? LC_ERR_MEMORY : LC_OK;
}

lc_status lc__add_range(lc__placing *x, uint32_t of, int64_t offset, lc_type type, lc_layout layout, lc__spot at,
                        uint32_t *out)
{
    lc_ir_node *n = lc__new_node(x, &lc__op_range, 1, 1, 2 + type.ndim, at.site);
    if (!n) return LC_ERR_MEMORY;
    type.dtype = x->b->values[of].type.dtype;
    n->in[0] = of;
    n->ints[0] = offset;
    n->ints[1] = layout;
    for (int d = 0; d < type.ndim; d++) n->ints[2 + d] = type.shape[d];
    if ((*out = n->out[0] = lc__build_value(x->b, &type)) == LC_ABSENT) return LC_ERR_MEMORY;
    return lc__insert_node(x, at.position, at.phase, n);
}

lc_status lc__unit_range(lc__placing *x, const lc__placed_unit *u, int index, uint32_t memory, lc__spot at,
                         uint32_t *out)
{
    const lc_tensor *p = u->flat->parameters[index];
    return lc__add_range(x, memory, u->flat->offset[index] - u->u->offset, p->type, p->layout, at, out);
}

static int in_order(const void *a, const void *b)
{
    const lc__insertion *x = a, *y = b;
    if (x->position != y->position) return x->position < y->position ? -1 : 1;
    return x->phase != y->phase ? x->phase - y->phase : x->sequence - y->sequence;
}

lc_status lc__merge_inserted(lc__placing *x)
{
    lc_build *b = x->b;
    uint32_t at = 0;
    int n = 0;
    lc_ir_node *nodes = lc__build_alloc(b, ((size_t)b->n_nodes + x->n_insertions + 1) * sizeof *nodes);
    if (!nodes) return LC_ERR_MEMORY;
    if (x->n_insertions) qsort(x->insertions, x->n_insertions, sizeof *x->insertions, in_order);
    for (int i = 0; i < b->n_nodes; i++) {
        while (at < x->n_insertions && x->insertions[at].position == i) nodes[n++] = *x->insertions[at++].node;
        if (b->nodes[i].op) nodes[n++] = b->nodes[i];
    }
    b->nodes = nodes;
    b->n_nodes = n;
    return LC_OK;
}
