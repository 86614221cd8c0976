/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients and parameters of which a rank keeps a slice (tensor/slice.h) become intermediate results of the plan, so
 * that they have memory only while they are used.
 *
 * Gradients: backward deposits into memory of the unit instead of the flat buffer; it lives from the first deposit to
 * the node that takes this rank's slice of the sum.
 *
 * Parameters: the readers of a unit's parameters are put into clusters. A cluster ends where two other units have been
 * used since (usually: once in the forward pass and once in backward). For each cluster the unit is gathered again:
 * started when the previous cluster begins, waited for before the first reader. Readers then read ranges of the
 * gathered unit. Views of parameters (a transposed weight) are made once for each cluster, so that none keeps its
 * memory alive to the end.
 *
 * In mixed precision most parameters are only read after they have been rounded to 16 bits. A unit in which that is
 * true of all except vectors (biases, weights of norms) travels in 16 bits: a rank rounds its slice, and readers of a
 * rounded parameter read a range of the gathered unit. Vectors that are read in f32 are gathered apart from the rest,
 * and put together from the pieces that ranks have.
 *
 * Runs when the order of nodes is final. The order of gathers and reductions is the same on all ranks if they planned
 * the same nodes. */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "ops/ops.h"
#include "parallel/reduce/place_slices.h"
#include "parallel/tree/tree_impl.h"

#include <stdlib.h>
#include <string.h>

enum { OTHER_UNITS = 2 };

/* ---- what values refer to ---- */

static void note(lc__placing *x, const lc_tensor *t, lc__place what)
{
    const lc_graph *g = x->b->g;
    if (t && t->graph == g && t->generation == g->generation && t->value < x->n_values) x->places[t->value] = what;
}

static lc_status find_places(lc__placing *x)
{
    const lc__reducer *r = x->r;
    for (int f = 0; f < r->n_flats; f++)
        if (r->flats[f]->sharding && r->flats[f]->sharding->gradient) x->n_units += r->flats[f]->sharding->n_units;
    if (!x->n_units) return LC_OK;
    x->n_values = x->b->n_values;
    x->places = lc__build_alloc(x->b, x->n_values * sizeof *x->places);
    x->units = lc__build_alloc(x->b, (size_t)x->n_units * sizeof *x->units);
    if (!x->places || !x->units) return LC_ERR_MEMORY;
    int at = 0;
    for (int f = 0; f < r->n_flats; f++) {
        lc_flat *flat = r->flats[f];
        const lc__sharding *s = flat->sharding;
        if (!s || !s->gradient) continue;
        note(x, flat->gradient, (lc__place){.is = LC__ALL_GRADIENTS, .unit = at});
        if (s->parameter) note(x, s->parameter, (lc__place){.is = LC__PARAMETER_SLICES});
        for (int k = 0; k < s->n_units; k++, at++) {
            x->units[at] = (lc__placed_unit){.flat = flat, .u = &s->units[k], .gradient = LC_ABSENT, .last_use = -1};
            for (int i = s->units[k].first; i < s->units[k].first + s->units[k].n; i++) {
                note(x, flat->gradients[i], (lc__place){.is = LC__GRADIENT, .unit = at, .index = i});
                if (s->parameter)
                    note(x, flat->parameters[i], (lc__place){.is = LC__PARAMETER, .unit = at, .index = i});
            }
        }
    }
    return LC_OK;
}

static lc__place *place_of(lc__placing *x, uint32_t value)
{
    return value < x->n_values ? &x->places[value] : NULL;
}

static lc__meaning meaning_of(lc__placing *x, uint32_t value)
{
    return value < x->n_values ? x->places[value].is : LC__NOTHING;
}

/* ---- gradients ---- */

static lc_status need_gradient(lc__placing *x, lc__placed_unit *u)
{
    if (u->gradient != LC_ABSENT) return LC_OK;
    LC_TRY(lc__ranks_value(x, u, u->flat->gradient->type.dtype, u->u->slice, &u->gradient));
    x->b->values[u->gradient].in_parts = true;
    return LC_OK;
}

static lc_status place_gradients(lc__placing *x, int position)
{
    lc_ir_node *n = &x->b->nodes[position];
    for (int k = 0; k < n->n_in; k++) {
        const lc__place *p = n->in[k] == LC_ABSENT ? NULL : place_of(x, n->in[k]);
        if (!p || (p->is != LC__GRADIENT && p->is != LC__ALL_GRADIENTS)) continue;
        bool whole = n->op == &lc__op_reduce_unit || n->op == &lc__op_reduce_slice || n->op == &lc__op_take_slice;
        if (!whole && n->op != &lc__op_accumulate && n->op != &lc__op_combine)
            return lc_fail(LC_ERR_UNSUPPORTED,
                           "%s: with the strategy sharded, no rank has whole gradients; use --strategy ddp",
                           n->op->name);
        lc__placed_unit *u = &x->units[whole ? p->unit + n->ints[LC__SYNC_UNIT] : p->unit];
        LC_TRY(need_gradient(x, u));
        if (whole)
            n->in[k] = u->gradient;
        else
            LC_TRY(lc__unit_range(x, u, p->index, u->gradient, (lc__spot){position, LC__VIEWS, n->site}, &n->in[k]));
    }
    return LC_OK;
}

/* ---- units in 16 bits ---- */

/* Whether the node only rounds a parameter, for other nodes of this plan. */
static bool rounds(const lc__placing *x, const lc_ir_node *n)
{
    const lc_build *b = x->b;
    const lc_ir_value *values = b->values;
    if (n->op != &lc__op_cast || lc_dtype_size(b->g->low) != 2) return false;
    const uint32_t out = n->out[0], programs = b->plan->value_0 + b->plan->n_values;
    return values[n->in[0]].type.dtype == LC_F32 && values[out].type.dtype == b->g->low && !values[out].keep &&
           out >= programs && out < x->n_values;
}

static void find_low_units(lc__placing *x)
{
    for (int i = 0; i < x->b->n_nodes; i++) {
        const lc_ir_node *n = &x->b->nodes[i];
        for (int k = 0; n->op && k < n->n_in; k++) {
            const lc__place *p = n->in[k] == LC_ABSENT ? NULL : place_of(x, n->in[k]);
            if (!p || p->is != LC__PARAMETER) continue;
            lc__placed_unit *u = &x->units[p->unit];
            if (rounds(x, n))
                u->low = true;
            else
                u->whole |= !lc__is_vector(u->flat, p->index);
        }
    }
    for (int i = 0; i < x->n_units; i++) x->units[i].low &= !x->units[i].whole;
}

/* ---- parameters ---- */

/* How many other units were used since the last use of u. */
static int others_since(const lc__placing *x, const lc__placed_unit *u)
{
    int n = 0;
    for (int i = 0; i < x->n_units; i++) n += &x->units[i] != u && x->units[i].last_use > u->last_use;
    return n;
}

/* Makes the unit's parameters available to a node at `position`. */
static lc_status use(lc__placing *x, int unit_index, int position, int barrier)
{
    lc__placed_unit *u = &x->units[unit_index];
    bool same = u->cluster && u->last_use > barrier && others_since(x, u) < OTHER_UNITS;
    u->last_use = position;
    if (same) return LC_OK;
    LC_TRY(lc__grow(&x->clusters, &x->cap_clusters, x->n_clusters, 1, "the plan of a step"));
    x->clusters[x->n_clusters++] = (lc__cluster){unit_index, position, barrier, LC_ABSENT, LC_ABSENT};
    u->cluster = (int)x->n_clusters;
    return LC_OK;
}

/* A parameter in the memory of the unit's current cluster. */
static lc_status in_cluster(lc__placing *x, const lc__place *p, lc__spot at, uint32_t *out)
{
    const lc__placed_unit *u = &x->units[p->unit];
    lc__cluster *c = &x->clusters[u->cluster - 1];
    const lc_dtype dtype = u->flat->parameter->type.dtype;
    if (u->low && p->is == LC__PARAMETER) {
        if (c->vectors == LC_ABSENT) LC_TRY(lc__ranks_value(x, u, dtype, lc__vectors_most(u->flat, u->u), &c->vectors));
        return lc__put_together(x, u, p->index, at, out);
    }
    if (c->parameters == LC_ABSENT)
        LC_TRY(lc__ranks_value(x, u, u->low ? x->b->g->low : dtype, u->u->slice, &c->parameters));
    return lc__unit_range(x, u, p->index, c->parameters, at, out);
}

/* The replacement of a value in the current cluster of its unit. */
static lc_status replace(lc__placing *x, uint32_t value, int position, uint32_t *out)
{
    lc__place *p = place_of(x, value);
    const lc__placed_unit *u = &x->units[p->unit];
    lc_site site = x->b->nodes[position].site;
    if (p->cluster == u->cluster) {
        *out = p->replacement;
        return LC_OK;
    }
    if (p->is != LC__VIEW_OF_PARAMETER) {
        LC_TRY(in_cluster(x, p, (lc__spot){position, LC__VIEWS, site}, out));
    } else {
        const lc_ir_node *view = &x->b->nodes[p->made_by];
        lc_ir_node *again = lc__new_node(x, view->op, view->n_in, 1, 0, view->site);
        if (!again) return LC_ERR_MEMORY;
        uint32_t *in = again->in, *result = again->out;
        *again = *view;
        again->in = in;
        again->out = result;
        memcpy(in, view->in, (size_t)view->n_in * sizeof *in);
        LC_TRY(replace(x, view->in[0], position, &in[0]));
        if ((*out = result[0] = lc__build_value(x->b, &x->b->values[value].type)) == LC_ABSENT) return LC_ERR_MEMORY;
        LC_TRY(lc__insert_node(x, position, LC__VIEWS, again));
    }
    p->cluster = u->cluster;
    p->replacement = *out;
    return LC_OK;
}

static bool is_parameter(lc__meaning m)
{
    return m == LC__PARAMETER || m == LC__LOW_PARAMETER || m == LC__VIEW_OF_PARAMETER;
}

/* Whether the node's result is replaced where it is read: a view of a parameter, or the same rounded. */
static bool note_result(lc__placing *x, const lc_ir_node *n, int position)
{
    const bool is_view = n->op->flags & LC_OP_VIEW;
    const lc__place *p = n->n_in && n->n_out && n->in[0] != LC_ABSENT ? place_of(x, n->in[0]) : NULL;
    if (!p) return false;
    if (is_view && p->is == LC__PARAMETER_SLICES) {
        *place_of(x, n->out[0]) = (lc__place){.is = LC__PARAMETER_SLICES};
        return true;
    }
    if (is_view && is_parameter(p->is) && !x->b->values[n->out[0]].keep && n->out[0] < x->n_values) {
        *place_of(x, n->out[0]) = (lc__place){.is = LC__VIEW_OF_PARAMETER, .unit = p->unit, .made_by = position};
        return true;
    }
    if (p->is != LC__PARAMETER || !x->units[p->unit].low || !rounds(x, n)) return false;
    *place_of(x, n->out[0]) =
        (lc__place){.is = LC__LOW_PARAMETER, .unit = p->unit, .index = p->index, .made_by = position};
    return true;
}

static lc_status place_parameters(lc__placing *x, int position, int *barrier)
{
    lc_ir_node *n = &x->b->nodes[position];
    if (note_result(x, n, position)) return LC_OK;
    for (int k = 0; k < n->n_in; k++) {
        lc__meaning m = n->in[k] == LC_ABSENT ? LC__NOTHING : meaning_of(x, n->in[k]);
        bool written = n->op->mutated_inputs >> k & 1;
        if (m == LC__PARAMETER_SLICES && written) *barrier = position;
        if (!is_parameter(m)) continue;
        if (written)
            return lc_fail(
                LC_ERR_UNSUPPORTED,
                "%s to a parameter of which this rank has only a slice (strategy sharded); use --strategy sharded_2",
                n->op->name);
        LC_TRY(use(x, place_of(x, n->in[k])->unit, position, *barrier));
    }
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] != LC_ABSENT && is_parameter(meaning_of(x, n->in[k])))
            LC_TRY(replace(x, n->in[k], position, &n->in[k]));
    return LC_OK;
}

/* Drops the original views of parameters, and what rounds them: each cluster has its own. */
static void drop_views(lc__placing *x)
{
    for (uint32_t v = 0; v < x->n_values; v++)
        if (x->places[v].is == LC__VIEW_OF_PARAMETER || x->places[v].is == LC__LOW_PARAMETER)
            x->b->nodes[x->places[v].made_by].op = NULL;
}

/* ---- the pass ---- */

static lc_status place_all(lc__placing *x)
{
    lc_build *b = x->b;
    int barrier = -1;
    LC_TRY(find_places(x));
    if (!x->n_units) return LC_OK;
    find_low_units(x);
    for (int i = 0; i < b->n_nodes; i++) {
        const lc_ir_node *n = &b->nodes[i];
        if (!n->op) continue;
        if (n->op == &lc__op_reduce_unit && x->slots <= n->ints[LC__SYNC_SLOT])
            x->slots = (int)n->ints[LC__SYNC_SLOT] + 1;
        LC_TRY(place_gradients(x, i));
        LC_TRY(place_parameters(x, i, &barrier));
    }
    drop_views(x);
    for (uint32_t k = 0; k < x->n_clusters; k++) LC_TRY(lc__gather_cluster(x, k));
    LC_TRY(lc__reducer_reserve(x->r, x->slots));
    return lc__merge_inserted(x);
}

lc_status lc__place_slices(lc_build *b)
{
    lc__placing x = {.b = b, .r = lc__reducer_of_graph(b->g)};
    if (x.r->stage < 2) return LC_OK;
    lc_status status = place_all(&x);
    free(x.insertions);
    free(x.clusters);
    return status;
}
