/* SPDX-License-Identifier: Apache-2.0 */
/* Why a plan is made: the first difference between the segment and the nearest plan of the cache. With LIGHTC_PLAN_DUMP
 * it becomes a line of that file, before the plan is made. The cache itself (plan.c) only checks whether everything is
 * equal. */
#include "base/io.h"
#include "base/str.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- the segment and a plan after the same segments: numbers agree up to the first difference ---- */

/* The value of the first external tensor that differs, or LC_ABSENT. */
static uint32_t other_external(const lc_graph *g, const lc_plan *p)
{
    uint32_t n = g->n_externals - g->ext_0;
    for (uint32_t k = 0; k < n && k < p->n_externals; k++)
        if (memcmp(&g->externals[g->ext_0 + k], &p->externals[k], sizeof *p->externals) != 0)
            return p->externals[k].value;
    return LC_ABSENT;
}

static const lc_external *external_of(const lc_external *e, uint32_t n, uint32_t value)
{
    for (uint32_t k = 0; k < n; k++)
        if (e[k].value == value) return &e[k];
    return NULL;
}

/* The number of leading nodes that are the same in both. */
static uint32_t nodes_alike(const lc_graph *g, const lc_plan *p)
{
    uint32_t n = g->tape.n_nodes - g->node_0, other = other_external(g, p);
    for (uint32_t k = 0; k < n && k < p->n_nodes; k++) {
        const lc_node *is = &g->tape.nodes[g->node_0 + k], *was = &p->nodes[k];
        const uint32_t *in = g->tape.in + is->in_at;
        if (memcmp(is, was, sizeof *is) != 0 ||
            !lc__same_bytes(in, p->in + (was->in_at - p->in_0), is->n_in * sizeof *in) ||
            !lc__same_bytes(g->tape.ints + is->int_at, p->ints + (was->int_at - p->int_0), is->n_int * sizeof *p->ints))
            return k;
        for (uint32_t i = 0; i < is->n_in; i++)
            if (in[i] == other && other != LC_ABSENT) return k;
    }
    return n < p->n_nodes ? n : p->n_nodes;
}

/* Among the plans after the same segments, the one with the most equal nodes; of several, the one used last. */
static const lc_plan *nearest(const lc_graph *g, uint32_t *alike)
{
    uint64_t previous = g->last ? g->last->uid : 0;
    const lc_plan *best = NULL;
    *alike = 0;
    for (int i = 0; i < g->n_plans; i++) {
        const lc_plan *p = g->plans[i];
        uint32_t n = p->previous == previous ? nodes_alike(g, p) : 0;
        if (p->previous != previous || (best && (n < *alike || (n == *alike && p->last_used < best->last_used))))
            continue;
        best = p;
        *alike = n;
    }
    return best;
}

/* ---- in words ---- */

static void add_node(lc__str *l, const lc_graph *g, uint32_t node)
{
    const lc_node *n = &g->tape.nodes[node];
    lc__str_add(l, "node %u, %s%s", node, lc__op_title(n->op, (int)n->n_int, g->tape.ints + n->int_at),
                lc__at_site(g->tape.sites[node]).text);
}

static void add_type(lc__str *l, const lc_type *type)
{
    char shape[128];
    lc__str_add(l, "%s%s", type->dtype == LC_F32 ? "" : lc_dtype_name(type->dtype),
                lc__shape_text(type, shape, sizeof shape));
}

/* Adds an operand of a node; everything before the node is the same in the plan. */
static void add_operand(lc__str *l, const lc_graph *g, uint32_t node, uint32_t value)
{
    if (value == LC_ABSENT) {
        lc__str_add(l, "absent");
        return;
    }
    for (uint32_t k = node; k-- > 0;)
        if (value - g->tape.nodes[k].first_out < g->tape.nodes[k].n_out) {
            lc__str_add(l, "the result of ");
            add_node(l, g, k);
            return;
        }
    lc__str_add(l, "a tensor from outside of the step");
}

static void add_external(lc__str *l, const lc_graph *g, const lc_external *is, const lc_external *was)
{
    if (!is->id != !was->id) {
        lc__str_add(l, is->id ? "is a tensor, was an input" : "is an input, was a tensor");
    } else if (!lc__type_equal(&is->type, &was->type)) {
        lc__str_add(l, "is ");
        add_type(l, &is->type);
        lc__str_add(l, ", was ");
        add_type(l, &was->type);
    } else if (is->layout != was->layout && is->id == was->id) {
        lc__str_add(l, "has another layout");
    } else if (g->values[is->value]->other_id == was->id) {
        lc__str_add(l, "is the same tensor, but its requires_grad has changed");
    } else {
        lc__str_add(l, "is another tensor, or has moved to other memory");
    }
}

static bool add_different_input(lc__str *l, const lc_graph *g, const lc_plan *p, uint32_t k)
{
    const lc_node *is = &g->tape.nodes[g->node_0 + k];
    const uint32_t *in = g->tape.in + is->in_at, *was = p->in + (p->nodes[k].in_at - p->in_0);
    uint32_t other = other_external(g, p);
    for (uint32_t i = 0; i < is->n_in; i++) {
        char name[80];
        if (in[i] == was[i] && (in[i] != other || other == LC_ABSENT)) continue;
        lc__input_title(is->op->inputs, (int)i, name, sizeof name);
        lc__str_add(l, "%s ", name);
        const lc_external *now = external_of(g->externals + g->ext_0, g->n_externals - g->ext_0, in[i]),
                          *then = external_of(p->externals, p->n_externals, was[i]);
        if (in[i] == was[i] && now && then) {
            add_external(l, g, now, then);
        } else {
            lc__str_add(l, "is ");
            add_operand(l, g, g->node_0 + k, in[i]);
            lc__str_add(l, ", was ");
            add_operand(l, g, g->node_0 + k, was[i]);
        }
        return true;
    }
    return false;
}

static void add_different_int(lc__str *l, const lc_graph *g, const lc_plan *p, uint32_t k)
{
    const lc_node *is = &g->tape.nodes[g->node_0 + k];
    const int64_t *ints = g->tape.ints + is->int_at, *was = p->ints + (p->nodes[k].int_at - p->int_0);
    for (uint32_t i = 0; i < is->n_int; i++) {
        if (ints[i] == was[i]) continue;
        if ((is->op->flags & LC_OP_RANDOM) && i < 2)
            lc__str_add(l, "it draws its random numbers for another call of the program");
        else
            lc__str_add(l, "its integer %u is %lld, was %lld", i, (long long)ints[i], (long long)was[i]);
        return;
    }
    lc__str_add(l, "it has other results");
}

/* Adds the difference between nodes k of both. */
static void add_different_node(lc__str *l, const lc_graph *g, const lc_plan *p, uint32_t k)
{
    const lc_node *is = &g->tape.nodes[g->node_0 + k], *was = &p->nodes[k];
    add_node(l, g, g->node_0 + k);
    lc__str_add(l, ": ");
    if (is->op != was->op)
        lc__str_add(l, "was %s", lc__op_title(was->op, (int)was->n_int, p->ints + (was->int_at - p->int_0)));
    else if (is->n_in != was->n_in)
        lc__str_add(l, "has %u inputs, had %u", is->n_in, was->n_in);
    else if (is->n_int != was->n_int || is->n_float != was->n_float)
        lc__str_add(l, "has %u integers and %u floats, had %u and %u", is->n_int, is->n_float, was->n_int,
                    was->n_float);
    else if ((is->flags ^ was->flags) & LC_NODE_AUTOCAST)
        lc__str_add(l, "is in a region where autocast is %s", is->flags & LC_NODE_AUTOCAST ? "enabled" : "disabled");
    else if (is->flags != was->flags)
        lc__str_add(l, "is %s lc_no_grad_begin and lc_no_grad_end",
                    is->flags & LC_NODE_NO_GRAD ? "now between" : "not between");
    else if (is->region != was->region)
        lc__str_add(l, "is in another region of lc_checkpoint_begin");
    else if (!add_different_input(l, g, p, k))
        add_different_int(l, g, p, k);
}

static bool add_different_flat(lc__str *l, const lc_plan *p)
{
    for (int f = 0; f < p->n_flats; f++) {
        const lc_flat_state *s = &p->flats[f];
        char shape[128];
        for (int i = 0; i < s->flat->n; i++) {
            bool trained = s->trained[i] != s->flat->trained[i];
            if (!trained && (s->before[0] == LC_FLAT_ANY || s->before[i] == s->flat->has_gradient[i])) continue;
            const lc_tensor *t = s->flat->parameters[i];
            lc__str_add(l, "parameter %d of %d%s%s ", i, s->flat->n, t ? ", " : "",
                        t ? lc__shape_text(&t->type, shape, sizeof shape) : "");
            if (trained)
                lc__str_add(l, s->flat->trained[i] ? "is trained, was not" : "is no longer trained");
            else
                lc__str_add(l, s->flat->has_gradient[i] ? "has a gradient already, had none"
                                                        : "has no gradient yet, had one");
            return true;
        }
    }
    return false;
}

/* Adds the difference if all common nodes are the same. */
static void add_different_state(lc__str *l, const lc_graph *g, lc__keeps keeps, const lc_plan *p)
{
    static const char *const kept[] = {"all values", "all values of one element", "what lc_keep names"};
    uint32_t n = g->tape.n_nodes - g->node_0;
    if (n > p->n_nodes) {
        add_node(l, g, g->node_0 + p->n_nodes);
        lc__str_add(l, ": the plan ends before it");
    } else if (n < p->n_nodes) {
        const lc_node *next = &p->nodes[n];
        lc__str_add(l, "the end before node %u: the plan goes on with %s", g->node_0 + n,
                    lc__op_title(next->op, (int)next->n_int, p->ints + (next->int_at - p->int_0)));
    } else if (keeps != p->keeps) {
        lc__str_add(l, "what is kept: %s, was %s", kept[keeps], kept[p->keeps]);
    } else if (p->peers != lc__peers_key(g)) {
        lc__str_add(l, "the ranks and devices that compute it");
    } else if (!add_different_flat(l, p)) {
        lc__str_add(l, "the tensors that it uses");
    }
}

static void explain(lc__str *l, const lc_graph *g, lc__keeps keeps)
{
    uint32_t alike;
    const lc_plan *p = nearest(g, &alike);
    if (g->devices) lc__str_add(l, "device %d, ", g->device);
    lc__str_add(l, "step %llu: plan %llu is made", (unsigned long long)g->rng.step, (unsigned long long)g->next_uid);
    if (!p) {
        lc__str_add(l, ": no other comes %s", g->last ? "after " : "first in a step");
        if (g->last) lc__str_add(l, "plan %llu", (unsigned long long)g->last->uid);
    } else {
        lc__str_add(l, "; plan %llu differs in ", (unsigned long long)p->uid);
        if (alike < g->tape.n_nodes - g->node_0 && alike < p->n_nodes)
            add_different_node(l, g, p, alike);
        else
            add_different_state(l, g, keeps, p);
    }
    if (g->stats.evictions)
        lc__str_add(l, "; evicted so far: %lld (max_plans is %d)", (long long)g->stats.evictions, g->options.max_plans);
}

void lc__dump_missed(const lc_graph *g, lc__keeps keeps)
{
    lc__str why = {0}, shown = {0};
    FILE *f = NULL;
    explain(&why, g, keeps);
    if (!why.failed) lc__str_add_printable(&shown, why.s, false);
    /* The file could be opened when the graph was made. */
    if (!why.failed && !shown.failed && lc__open_stream(g->dump_path, O_APPEND, &f) >= 0) fprintf(f, "%s\n", shown.s);
    if (f) fclose(f);
    lc__str_free(&why);
    lc__str_free(&shown);
}
