/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules must see the values that the operators they differentiate have seen. Results never change, but a
 * persistent tensor does if it is assigned, or updated by an optimizer, between an operator and the backward pass. A
 * rule that reads it after that would silently give a wrong gradient, so that is an error (as in PyTorch: "modified by
 * an inplace operation").
 *
 * All of this happens when a segment is planned. The writes of a segment are kept with its plan, for later segments of
 * the step. */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"

#include <stdio.h>
#include <string.h>

lc_status lc__expand_wrote(lc_build *b, const lc_tensor *t)
{
    lc_plan *p = b->plan;
    LC_TRY(lc__grow(&p->writes, &p->cap_writes, p->n_writes, 1, "the plan of a step"));
    p->writes[p->n_writes++] = (lc_write){t, b->position};
    return LC_OK;
}

bool lc__expand_any_write(const lc_build *b)
{
    bool any = b->plan->n_writes > 0;
    for (int i = 0; i < b->g->n_chain && !any; i++) any = b->g->chain[i]->n_writes > 0;
    return any;
}

/* The first write to t after node k of the user's tape, or NULL. */
static const lc_write *written_since(const lc_plan *p, const lc_tensor *t, uint32_t k)
{
    for (uint32_t i = 0; i < p->n_writes; i++)
        if (p->writes[i].node > k && lc__overlap(p->writes[i].tensor, t)) return &p->writes[i];
    return NULL;
}

static const lc_write *find_write(const lc_build *b, const lc_tensor *t, uint32_t k)
{
    const lc_write *w = NULL;
    for (int i = 0; i < b->g->n_chain && !w; i++) w = written_since(b->g->chain[i], t, k);
    return w ? w : written_since(b->plan, t, k);
}

/* For every value that is a view: its base. LC_ABSENT: not a view. */
static uint32_t *views_of(lc_build *b)
{
    const lc_graph *g = b->g;
    uint32_t *of = lc__build_alloc(b, (size_t)g->n_values * sizeof *of);
    if (!of) return NULL;
    memset(of, 0xff, (size_t)g->n_values * sizeof *of);
    const lc_tape *tapes[] = {&g->tape, &g->ir};
    for (int t = 0; t < 2; t++)
        for (uint32_t k = 0; k < (t ? g->ir.n_nodes : b->position); k++) {
            const lc_node *n = &tapes[t]->nodes[k];
            if ((n->op->flags & LC_OP_VIEW) && n->n_in && n->n_out) of[n->first_out] = tapes[t]->in[n->in_at];
        }
    return of;
}

/* The persistent tensor whose memory contains a value, or NULL. */
static const lc_tensor *memory_of(const lc_graph *g, const uint32_t *view_of, uint32_t value)
{
    while (value != LC_ABSENT && view_of[value] != LC_ABSENT) value = view_of[value];
    const lc_tensor *t = value == LC_ABSENT ? NULL : g->values[value];
    return t && t->kind >= LC_TENSOR_PERSISTENT ? t : NULL;
}

static lc_status refuse(const lc_build *b, const uint32_t *view_of, uint32_t k, const lc_tensor *t, const lc_write *w)
{
    const lc_graph *g = b->g;
    const lc_tape *tape = &g->tape;
    const lc_node *n = &tape->nodes[k], *writer = &tape->nodes[w->node];
    const char *title = lc__op_title(n->op, (int)n->n_int, tape->ints + n->int_at);
    const lc_site at = tape->sites[w->node];
    const char *file = at.file ? strrchr(at.file, '/') : NULL;
    char name[64] = "", shape[128], place[256] = "";
    for (int i = 0; i < (int)n->n_in && !*name; i++)
        if (memory_of(g, view_of, tape->in[n->in_at + (uint32_t)i]) == t) lc__operand_name(n->op, i, name, sizeof name);
    if (at.file && !lc__is_macro(writer->op)) /* other nodes are recorded by the library */
        snprintf(place, sizeof place, " at %s:%d", file ? file + 1 : at.file, at.line);
    return lc_fail(
        LC_ERR_STATE,
        "the gradient of %s needs the value that its input %s%s(%s %s) had, but %s%s has written that tensor "
        "since; write it after the backward pass, or give %s a copy of it (lc_contiguous)",
        title, name, *name ? " " : "", lc_dtype_name(t->type.dtype), lc__shape_text(&t->type, shape, sizeof shape),
        lc__op_title(writer->op, (int)writer->n_int, tape->ints + writer->int_at), place, title);
}

lc_status lc__expand_check_reads(lc_build *b, uint32_t first, const lc__origin *origins, uint32_t n_origins,
                                 uint32_t *node)
{
    const lc_graph *g = b->g;
    const lc_tape *ir = &g->ir;
    if (!n_origins) return LC_OK;
    uint32_t *view_of = views_of(b), last = n_origins;
    bool *wanted = lc__build_alloc(b, g->n_values);
    if (!view_of || !wanted) return LC_ERR_MEMORY;
    /* Results that nobody reads are not computed (drop_dead.c), so rules and recomputed regions may record more than is
     * used. */
    for (uint32_t i = ir->n_nodes; i-- > first;) {
        const lc_node *n = &ir->nodes[i];
        bool live = (n->op->flags & (LC_OP_MUTATES | LC_OP_SIDE_EFFECT)) != 0;
        for (uint32_t v = 0; v < n->n_out; v++) live |= wanted[n->first_out + v];
        if (!live) continue;
        while (last && origins[last - 1].first > i) last--;
        bool of_rule = last && i < origins[last - 1].end && !(n->op->flags & LC_OP_VIEW);
        for (uint32_t v = 0; v < n->n_in; v++) {
            uint32_t value = ir->in[n->in_at + v];
            if (value == LC_ABSENT) continue;
            wanted[value] = true;
            const lc_tensor *t = of_rule ? memory_of(g, view_of, value) : NULL;
            const lc_write *w = t ? find_write(b, t, origins[last - 1].node) : NULL;
            if (!w) continue;
            *node = origins[last - 1].node;
            return refuse(b, view_of, *node, t, w);
        }
    }
    return LC_OK;
}
