/* SPDX-License-Identifier: Apache-2.0 */
/* Macros about the graph itself: keep a value, zero gradients, note that the host has written a tensor. */
#include "engine/plan/plan_impl.h"
#include "engine/plan/plan.h"
#include "base/handle.h"
#include "ops/infer.h"

#include <lightc/optim.h>
#include <string.h>

/* ---- keep ---- */

static lc_status expand_keep(lc_build *b, const lc_node *n)
{
    b->keep[b->g->tape.in[n->in_at]] = true;
    return LC_OK;
}

static const lc_macro macro_keep = {{.name = "keep", .flags = LC__OP_MACRO, .infer = lc__infer_nothing}, expand_keep};

lc_tensor *lc_keep_at(lc_tensor *t, lc_site site)
{
    if (!lc__check_tensor(t, "the value", "keep", site)) return lc__error_tensor();
    if (t->kind == LC_TENSOR_STEP) lc_op_call(&macro_keep.op, 1, &t, 0, NULL, 0, NULL, site);
    return t;
}

/* ---- a write by the host; in: a tensor that the step has read ---- */

static lc_status expand_write(lc_build *b, const lc_node *n)
{
    return lc__expand_wrote(b, b->g->values[b->g->tape.in[n->in_at]]);
}

static const lc_macro macro_write = {{.name = "lc_tensor_write", .flags = LC__OP_MACRO, .infer = lc__infer_nothing},
                                     expand_write};

void lc__record_host_write(lc_tensor *t)
{
    lc_graph *g = lc_current_graph();
    if (g && t->graph == g && t->generation == g->generation && g->status == LC_OK)
        lc_op_call(&macro_write.op, 1, &t, 0, NULL, 0, NULL, LC_HERE);
}

/* ---- zero_grad ---- */

static lc_status expand_zero_grad(lc_build *b, const lc_node *n)
{
    (void)n;
    b->plan->zero_grad = true;
    for (int i = 0; i < b->plan->n_flats; i++) memset(b->plan->flats[i].after, 0, (size_t)b->plan->flats[i].flat->n);
    return LC_OK;
}

static const lc_macro macro_zero_grad = {{.name = "zero_grad", .flags = LC__OP_MACRO, .infer = lc__infer_nothing},
                                         expand_zero_grad};

void lc_zero_grad(lc_graph *g)
{
    LC__IS(g, GRAPH, );
    if (g != lc_current_graph()) {
        /* Between steps there is nothing to order it with. */
        for (int i = 0; i < g->n_flats; i++) memset(g->flats[i]->has_gradient, 0, (size_t)g->flats[i]->n);
    } else {
        lc_op_call(&macro_zero_grad.op, 0, NULL, 0, NULL, 0, NULL, LC__NO_SITE);
    }
    g->backwards = 0;
    for (lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->zeroed) p->ops->zeroed(p);
}
