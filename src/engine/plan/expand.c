/* SPDX-License-Identifier: Apache-2.0 */
/* From the tape to operators: macro nodes are expanded, each by its own function.
 *
 * Gradient rules and optimizers record through the same functions as users do; while expanding, what they record goes
 * to a second tape. That tape (the user's operators in their order, with backward, clipping and updates where they were
 * requested) is what the planner works on. */
#include "engine/plan/plan_impl.h"
#include "engine/plan/plan.h"
#include "base/grow.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

/* ---- accumulation state ---- */

lc_status lc__graph_add_flat(lc_graph *g, lc_flat *flat)
{
    for (int i = 0; i < g->n_flats; i++)
        if (g->flats[i] == flat) return LC_OK;
    LC_TRY(lc__grow(&g->flats, &g->cap_flats, g->n_flats, 1, "the plan of a step"));
    __atomic_fetch_add(&flat->refs, 1, __ATOMIC_RELAXED);
    g->flats[g->n_flats++] = flat;
    return LC_OK;
}

/* The state of a flat buffer in this segment; starts with the present state, or zeroed by lc_zero_grad. */
lc_status lc__expand_flat_state(lc_build *b, lc_flat *flat, lc_flat_state **out)
{
    lc_plan *plan = b->plan;
    for (int i = 0; i < plan->n_flats; i++)
        if (plan->flats[i].flat == flat) {
            *out = &plan->flats[i];
            return LC_OK;
        }
    LC_TRY(lc__graph_add_flat(b->g, flat));
    LC_TRY(lc__grow_one(&plan->flats, plan->n_flats, "the plan of a step"));
    lc_flat_state *s = &plan->flats[plan->n_flats];
    s->flat = flat;
    s->n_low = -1;
    s->before = calloc(3, (size_t)flat->n);
    if (!s->before) return lc_fail(LC_ERR_MEMORY, "out of memory while planning");
    s->after = s->before + flat->n;
    s->trained = s->after + flat->n;
    memcpy(s->trained, flat->trained, (size_t)flat->n);
    memcpy(s->before, flat->has_gradient, (size_t)flat->n);
    if (plan->zero_grad)
        memset(s->before, LC_FLAT_ANY, (size_t)flat->n);
    else
        memcpy(s->after, s->before, (size_t)flat->n);
    plan->n_flats++;
    *out = s;
    return LC_OK;
}

/* ---- copying nodes ---- */

static lc_status copy_node(lc_graph *g, uint32_t k)
{
    const lc_node *n = &g->tape.nodes[k];
    lc_tape *ir = &g->ir;
    LC_TRY(lc__grow(&ir->in, &ir->cap_in, ir->n_in, n->n_in, "the plan of a step"));
    LC_TRY(lc__grow(&ir->ints, &ir->cap_ints, ir->n_ints, n->n_int, "the plan of a step"));
    uint32_t cap = ir->cap_floats, cap_sources = ir->cap_floats;
    LC_TRY(lc__grow(&ir->floats, &cap, ir->n_floats, n->n_float, "the plan of a step"));
    LC_TRY(lc__grow(&ir->sources, &cap_sources, ir->n_floats, n->n_float, "the plan of a step"));
    ir->cap_floats = cap;
    cap = cap_sources = ir->cap_nodes;
    LC_TRY(lc__grow(&ir->nodes, &cap, ir->n_nodes, 1, "the plan of a step"));
    LC_TRY(lc__grow(&ir->sites, &cap_sources, ir->n_nodes, 1, "the plan of a step"));
    ir->cap_nodes = cap;
    lc_node copy = *n;
    copy.in_at = ir->n_in;
    copy.int_at = ir->n_ints;
    copy.float_at = ir->n_floats;
    if (n->n_in) memcpy(ir->in + ir->n_in, g->tape.in + n->in_at, n->n_in * sizeof *ir->in);
    if (n->n_int) memcpy(ir->ints + ir->n_ints, g->tape.ints + n->int_at, n->n_int * sizeof *ir->ints);
    for (uint32_t i = 0; i < n->n_float; i++) {
        ir->floats[ir->n_floats + i] = g->tape.floats[n->float_at + i];
        ir->sources[ir->n_floats + i] = (lc_float_source){.user = (int64_t)(n->float_at + i)};
    }
    ir->sites[ir->n_nodes] = g->tape.sites[k];
    ir->nodes[ir->n_nodes++] = copy;
    ir->n_in += n->n_in;
    ir->n_ints += n->n_int;
    ir->n_floats += n->n_float;
    return LC_OK;
}

static lc_status note_writes(lc_build *b, const lc_node *n)
{
    const lc_graph *g = b->g;
    for (uint32_t i = 0; i < n->n_in && i < 32 && n->op->mutated_inputs; i++) {
        uint32_t value = g->tape.in[n->in_at + i];
        if ((n->op->mutated_inputs >> i & 1) && value != LC_ABSENT) LC_TRY(lc__expand_wrote(b, g->values[value]));
    }
    return LC_OK;
}

void lc__expand_produce(lc_graph *g, uint32_t first_out)
{
    if (g->status == LC_OK && g->ir.n_nodes) g->ir.nodes[g->ir.n_nodes - 1].first_out = first_out;
}

lc_tensor *lc__expand_range(lc_tensor *buffer, int64_t offset, int64_t count)
{
    return lc_op_call(&lc__op_range, 1, &buffer, 3, (int64_t[]){offset, LC_ROW_MAJOR, count}, 0, NULL, LC_HERE);
}

/* ---- the segment ---- */

static lc_status expand_node(lc_build *b, uint32_t k)
{
    lc_graph *g = b->g;
    const lc_node *n = &g->tape.nodes[k];
    if (lc__is_macro(n->op)) return ((const lc_macro *)n->op)->expand(b, n);
    LC_TRY(note_writes(b, n));
    return copy_node(g, k);
}

static bool keeps(lc__keeps which, const lc_tensor *value)
{
    return which == LC__KEEPS_ALL || (which == LC__KEEPS_NUMBERS && lc__numel(&value->type) == 1);
}

/* From the expanded tape to nodes that own their arrays and can be rewritten. */
static lc_status make_nodes(lc_build *b, const bool *keep)
{
    lc_graph *g = b->g;
    const lc_tape *ir = &g->ir;
    b->n_nodes = (int)ir->n_nodes;
    b->nodes = lc__build_alloc(b, (ir->n_nodes + 1) * sizeof *b->nodes);
    b->n_values = b->cap_values = g->n_values;
    b->values = calloc(g->n_values + 1, sizeof *b->values);
    if (!b->nodes || !b->values) return lc_fail(LC_ERR_MEMORY, "out of memory while planning");
    uint32_t recorded = b->plan->value_0 + b->plan->n_values; /* by the program: values before this one */
    for (uint32_t v = 0; v < g->n_values; v++) {
        b->values[v].type = g->values[v]->type;
        b->values[v].storage = -1;
        b->values[v].exact = LC_ABSENT;
        b->values[v].keep = keep[v] || (v < recorded && keeps(b->plan->keeps, g->values[v]));
    }
    for (uint32_t k = 0; k < ir->n_nodes; k++) {
        const lc_node *n = &ir->nodes[k];
        lc_ir_node *to = &b->nodes[k];
        bool checks = (n->op->flags & LC_OP_CHECKS) && n->first_out < recorded;
        *to = (lc_ir_node){.op = n->op,
                           .autocast = n->flags & LC_NODE_AUTOCAST,
                           .gradient = n->flags & LC_NODE_GRADIENT,
                           .checks = checks,
                           .n_in = n->n_in,
                           .n_out = n->n_out,
                           .n_int = n->n_int,
                           .n_float = n->n_float,
                           .site = ir->sites[k]};
        to->in = lc__build_alloc(b, (size_t)(n->n_in + n->n_out + 1) * sizeof *to->in);
        to->ints = lc__build_alloc(b, (size_t)(n->n_int + 1) * sizeof *to->ints);
        to->floats = lc__build_alloc(b, (size_t)(n->n_float + 1) * sizeof *to->floats);
        to->sources = lc__build_alloc(b, (size_t)(n->n_float + 1) * sizeof *to->sources);
        if (!to->in || !to->ints || !to->floats || !to->sources) return LC_ERR_MEMORY;
        to->out = to->in + n->n_in;
        if (n->n_in) memcpy(to->in, ir->in + n->in_at, n->n_in * sizeof *to->in);
        for (uint32_t i = 0; i < n->n_out; i++) to->out[i] = n->first_out + i;
        if (n->n_int) memcpy(to->ints, ir->ints + n->int_at, n->n_int * sizeof *to->ints);
        if (n->n_float) memcpy(to->floats, ir->floats + n->float_at, n->n_float * sizeof *to->floats);
        if (n->n_float) memcpy(to->sources, ir->sources + n->float_at, n->n_float * sizeof *to->sources);
    }
    return LC_OK;
}

static lc_status check_synced(const lc_plan *plan)
{
    for (int i = 0; i < plan->n_flats; i++)
        for (int k = 0; k < plan->flats[i].flat->n; k++)
            if (plan->flats[i].after[k] & LC_FLAT_PENDING)
                return lc_fail(
                    LC_ERR_UNSUPPORTED,
                    "the strategy sharded reduces gradients in the backward pass that computes them, so nothing "
                    "may be read between it and the end of the step; use --strategy sharded_1 or ddp");
    return LC_OK;
}

lc_status lc__expand(lc_build *b)
{
    lc_graph *g = b->g;
    uint32_t n_values = g->n_values;
    lc_status status = LC_OK;
    g->ir.n_nodes = g->ir.n_in = g->ir.n_ints = g->ir.n_floats = 0;
    /* keep grows with the values that expansion adds; those are never kept */
    b->keep = lc__build_alloc(b, n_values + 1);
    if (!b->keep) status = LC_ERR_MEMORY;
    for (uint32_t k = g->node_0; status >= 0 && k < g->tape.n_nodes; k++) {
        b->position = k;
        status = expand_node(b, k);
        if (status < 0 && g->status == LC_OK)
            lc__record_error(g, status, g->tape.nodes[k].op->name, g->tape.sites[k], NULL, NULL, 0);
    }
    if (status >= 0) status = check_synced(b->plan);
    if (status >= 0) {
        bool *keep = lc__build_alloc(b, g->n_values + 1);
        if (keep) memcpy(keep, b->keep, n_values);
        status = keep ? make_nodes(b, keep) : LC_ERR_MEMORY;
    }
    b->n_values = g->n_values;
    return status;
}
