/* SPDX-License-Identifier: Apache-2.0 */
/* The macro node "sync": where in the backward pass each bucket is sent off. */
#include "tensor/plan_impl.h"
#include "tensor/ops/ops.h"
#include "tensor/sync_impl.h"
#include "tensor/tree_impl.h"

#include <stdlib.h>
#include <string.h>

/* The newest node of the expanded tape belongs at `at`: the nodes from there on move by one. */
static void move_last_to(lc_tape *ir, uint32_t at)
{
    uint32_t last = ir->n_nodes - 1;
    lc_node node = ir->nodes[last];
    lc_site site = ir->sites[last];
    memmove(ir->nodes + at + 1, ir->nodes + at, (last - at) * sizeof *ir->nodes);
    memmove(ir->sites + at + 1, ir->sites + at, (last - at) * sizeof *ir->sites);
    ir->nodes[at] = node;
    ir->sites[at] = site;
}

/* The last node that writes parameter i's gradient, or -1. */
static int64_t last_deposit(const lc_graph *g, const lc_flat *flat, int i)
{
    for (int64_t k = (int64_t)g->ir.n_nodes - 1; k >= 0; k--) {
        const lc_node *n = &g->ir.nodes[k];
        if ((n->op == &lc__op_accumulate || n->op == &lc__op_combine) &&
            g->values[g->ir.in[n->in_at]] == flat->gradients[i])
            return k;
    }
    return -1;
}

static lc_status zero_fill(lc_graph *g, const lc_flat *flat, int i)
{
    int64_t overwrite = 0;
    lc_tensor *in[] = {flat->gradients[i], lc__zeros_of(flat->parameters[i])}, *none[LC_MAX_OUTPUTS];
    lc_op_call_n(&lc__op_accumulate, 2, in, 1, &overwrite, 0, NULL, none, LC_HERE);
    return g->status;
}

static lc_status launch(lc_graph *g, lc__reducer *r, lc_flat *flat, int64_t begin, int64_t end, int64_t *behind)
{
    int64_t ints[] = {(int64_t)(uintptr_t)r, begin, end - begin};
    lc_tensor *none[LC_MAX_OUTPUTS];
    lc_op_call_n(&lc__op_launch_bucket, 1, &flat->gradient, 3, ints, 0, NULL, none, LC_HERE);
    LC_TRY(g->status);
    move_last_to(&g->ir, (uint32_t)++ * behind);
    return LC_OK;
}

/* Buckets of one flat buffer, in the order of their ranges. *behind: the node of the bucket before. */
static lc_status expand_flat(lc_build *b, lc__reducer *r, lc_flat *flat, int *n, int64_t *behind)
{
    lc_graph *g = b->g;
    lc_flat_state *state;
    size_t width = lc_dtype_size(flat->gradient->type.dtype);
    LC_TRY(lc__expand_flat_state(b, flat, &state));
    for (int i = 0; i < flat->n && !g->tree; i++) /* what is absent on a tree is there already */
        if (flat->parameters[i] && flat->parameters[i]->requires_grad && !state->after[i])
            LC_TRY(zero_fill(g, flat, i));
    int64_t begin = -1, end = 0, ready = -1;
    for (int i = 0; i <= flat->n; i++) {
        bool last = i == flat->n;
        if (!last && (!flat->parameters[i] || !flat->parameters[i]->requires_grad)) continue;
        int64_t from = last ? 0 : flat->offset[i], to = last ? 0 : from + lc__numel(&flat->parameters[i]->type);
        /* A gap of frozen parameters, a full bucket, or the end: what there is goes. */
        bool gap = !last && begin >= 0 && from - end > (int64_t)(256 / width);
        if (begin >= 0 && (last || gap || (size_t)(end - begin) * width >= r->bucket_bytes)) {
            if (ready > *behind) *behind = ready;
            LC_TRY(launch(g, r, flat, begin, end, behind));
            ++*n;
            begin = -1;
        }
        if (last) break;
        if (begin < 0) begin = from, ready = -1;
        end = to;
        int64_t k = last_deposit(g, flat, i);
        if (k > ready) ready = k;
    }
    return LC_OK;
}

lc_status lc__expand_sync(lc_build *b, const lc_node *node)
{
    lc__reducer *r = (lc__reducer *)(uintptr_t)b->g->tape.ints[node->int_at];
    int n = 0;
    int64_t behind = -1;
    for (int f = 0; f < r->n_flats; f++) LC_TRY(expand_flat(b, r, r->flats[f], &n, &behind));
    if (n <= r->cap_requests) return LC_OK;
    lc_request **list = realloc(r->requests, (size_t)n * sizeof(lc_request *));
    if (!list) return lc_fail(LC_ERR_MEMORY, "out of memory while planning: %d buckets", n);
    r->requests = list;
    r->cap_requests = n;
    return LC_OK;
}
