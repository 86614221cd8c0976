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
 * Runs when the order of nodes is final. The order of gathers and reductions is the same on all ranks if they planned
 * the same nodes. */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "ops/ops.h"
#include "parallel/reduce/reducer_impl.h"
#include "parallel/tree/tree_impl.h"

#include <stdlib.h>
#include <string.h>

enum { OTHER_UNITS = 2 };

/* A node to insert before the node at `position`; at the same position, lower phases come first. */
typedef struct insertion {
    int position, phase, sequence;
    lc_ir_node *node;
} insertion;
enum { LAUNCHES, WAITS, VIEWS };

/* What a value refers to. */
typedef enum meaning { NOTHING = 0, GRADIENT, ALL_GRADIENTS, PARAMETER, VIEW_OF_PARAMETER, PARAMETER_SLICES } meaning;
typedef struct place {
    meaning is;
    int unit;    /* of `units` below */
    int index;   /* parameter of the flat buffer */
    int made_by; /* node of a view */
    int cluster; /* that `replacement` is for, counted from 1 */
    uint32_t replacement;
} place;

/* A unit of any of the flat buffers. */
typedef struct unit {
    lc_flat *flat;
    const lc__unit *u;
    uint32_t gradient;   /* LC_ABSENT: no memory yet */
    uint32_t parameters; /* in the current cluster */
    int cluster;         /* the current one; 0: none */
    int last_use;        /* -1: none */
} unit;

typedef struct cluster {
    int unit, first_use, barrier; /* barrier: the gather is sent after this node */
    uint32_t parameters;
} cluster;

typedef struct placing {
    lc_build *b;
    lc__reducer *r;
    unit *units;
    int n_units;
    uint32_t n_values; /* number of values that have a place */
    place *places;
    insertion *insertions;
    uint32_t n_insertions, cap_insertions;
    cluster *clusters;
    uint32_t n_clusters, cap_clusters;
} placing;

static lc_ir_node *new_node(placing *x, const lc_op *op, int n_in, int n_out, int n_int, lc_site site)
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

static lc_status insert(placing *x, int position, int phase, lc_ir_node *node)
{
    LC_TRY(lc__grow(&x->insertions, &x->cap_insertions, x->n_insertions, 1, "the plan of a step"));
    x->insertions[x->n_insertions] = (insertion){position, phase, (int)x->n_insertions, node};
    x->n_insertions++;
    return LC_OK;
}

/* Memory for N slices of a unit of `whole`: its gradients, or parameters. */
static lc_status unit_value(placing *x, const unit *u, const lc_tensor *whole, uint32_t *out)
{
    lc_type type = {.dtype = whole->type.dtype, .ndim = 1};
    type.shape[0] = u->u->slice * u->flat->sharding->size;
    *out = lc__build_value(x->b, &type);
    return *out == LC_ABSENT ? LC_ERR_MEMORY : LC_OK;
}

/* A parameter's range of a unit's memory, for a node at `position`. */
static lc_status range_of(placing *x, const unit *u, int index, uint32_t memory, int position, lc_site site,
                          uint32_t *out)
{
    const lc_tensor *p = u->flat->parameters[index];
    lc_type type = p->type;
    type.dtype = x->b->values[memory].type.dtype;
    lc_ir_node *n = new_node(x, &lc__op_range, 1, 1, 2 + p->type.ndim, site);
    if (!n) return LC_ERR_MEMORY;
    n->in[0] = memory;
    n->ints[0] = u->flat->offset[index] - u->u->offset;
    n->ints[1] = p->layout;
    for (int d = 0; d < p->type.ndim; d++) n->ints[2 + d] = p->type.shape[d];
    if ((*out = n->out[0] = lc__build_value(x->b, &type)) == LC_ABSENT) return LC_ERR_MEMORY;
    return insert(x, position, VIEWS, n);
}

/* ---- what values refer to ---- */

static void note(placing *x, const lc_tensor *t, place what)
{
    const lc_graph *g = x->b->g;
    if (t && t->graph == g && t->generation == g->generation && t->value < x->n_values) x->places[t->value] = what;
}

static lc_status find_places(placing *x)
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
        note(x, flat->gradient, (place){.is = ALL_GRADIENTS, .unit = at});
        if (s->parameter) note(x, s->parameter, (place){.is = PARAMETER_SLICES});
        for (int k = 0; k < s->n_units; k++, at++) {
            x->units[at] = (unit){.flat = flat, .u = &s->units[k], .gradient = LC_ABSENT, .last_use = -1};
            for (int i = s->units[k].first; i < s->units[k].first + s->units[k].n; i++) {
                note(x, flat->gradients[i], (place){.is = GRADIENT, .unit = at, .index = i});
                if (s->parameter) note(x, flat->parameters[i], (place){.is = PARAMETER, .unit = at, .index = i});
            }
        }
    }
    return LC_OK;
}

static place *place_of(placing *x, uint32_t value)
{
    return value < x->n_values ? &x->places[value] : NULL;
}

static meaning meaning_of(placing *x, uint32_t value)
{
    return value < x->n_values ? x->places[value].is : NOTHING;
}

/* ---- gradients ---- */

static lc_status need_gradient(placing *x, unit *u)
{
    if (u->gradient != LC_ABSENT) return LC_OK;
    LC_TRY(unit_value(x, u, u->flat->gradient, &u->gradient));
    x->b->values[u->gradient].in_parts = true;
    return LC_OK;
}

static lc_status place_gradients(placing *x, int position)
{
    lc_ir_node *n = &x->b->nodes[position];
    for (int k = 0; k < n->n_in; k++) {
        const place *p = n->in[k] == LC_ABSENT ? NULL : place_of(x, n->in[k]);
        if (!p || (p->is != GRADIENT && p->is != ALL_GRADIENTS)) continue;
        bool whole = n->op == &lc__op_reduce_unit || n->op == &lc__op_reduce_slice || n->op == &lc__op_take_slice;
        if (!whole && n->op != &lc__op_accumulate && n->op != &lc__op_combine)
            return lc_fail(LC_ERR_UNSUPPORTED,
                           "%s: with the strategy sharded, no rank has whole gradients; use --strategy ddp",
                           n->op->name);
        unit *u = &x->units[whole ? p->unit + n->ints[LC__SYNC_UNIT] : p->unit];
        LC_TRY(need_gradient(x, u));
        if (whole)
            n->in[k] = u->gradient;
        else
            LC_TRY(range_of(x, u, p->index, u->gradient, position, n->site, &n->in[k]));
    }
    return LC_OK;
}

/* ---- parameters ---- */

/* How many other units were used since the last use of u. */
static int others_since(const placing *x, const unit *u)
{
    int n = 0;
    for (int i = 0; i < x->n_units; i++) n += &x->units[i] != u && x->units[i].last_use > u->last_use;
    return n;
}

/* Makes the unit's parameters available to a node at `position`. */
static lc_status use(placing *x, int unit_index, int position, int barrier)
{
    unit *u = &x->units[unit_index];
    bool same = u->cluster && u->last_use > barrier && others_since(x, u) < OTHER_UNITS;
    u->last_use = position;
    if (same) return LC_OK;
    LC_TRY(lc__grow(&x->clusters, &x->cap_clusters, x->n_clusters, 1, "the plan of a step"));
    LC_TRY(unit_value(x, u, u->flat->parameter, &u->parameters));
    x->clusters[x->n_clusters++] = (cluster){unit_index, position, barrier, u->parameters};
    u->cluster = (int)x->n_clusters;
    return LC_OK;
}

/* The replacement of a value in the current cluster of its unit. */
static lc_status replace(placing *x, uint32_t value, int position, uint32_t *out)
{
    place *p = place_of(x, value);
    const unit *u = &x->units[p->unit];
    lc_site site = x->b->nodes[position].site;
    if (p->cluster == u->cluster) {
        *out = p->replacement;
        return LC_OK;
    }
    if (p->is == PARAMETER) {
        LC_TRY(range_of(x, u, p->index, u->parameters, position, site, out));
    } else {
        const lc_ir_node *view = &x->b->nodes[p->made_by];
        lc_ir_node *again = new_node(x, view->op, view->n_in, 1, 0, view->site);
        if (!again) return LC_ERR_MEMORY;
        uint32_t *in = again->in, *result = again->out;
        *again = *view;
        again->in = in;
        again->out = result;
        memcpy(in, view->in, (size_t)view->n_in * sizeof *in);
        LC_TRY(replace(x, view->in[0], position, &in[0]));
        if ((*out = result[0] = lc__build_value(x->b, &x->b->values[value].type)) == LC_ABSENT) return LC_ERR_MEMORY;
        LC_TRY(insert(x, position, VIEWS, again));
    }
    p->cluster = u->cluster;
    p->replacement = *out;
    return LC_OK;
}

static lc_status place_parameters(placing *x, int position, int *barrier)
{
    lc_ir_node *n = &x->b->nodes[position];
    bool is_view = n->op->flags & LC_OP_VIEW;
    meaning first = n->n_in && n->in[0] != LC_ABSENT ? meaning_of(x, n->in[0]) : NOTHING;
    if (is_view && first == PARAMETER_SLICES) {
        *place_of(x, n->out[0]) = (place){.is = PARAMETER_SLICES};
        return LC_OK;
    }
    if (is_view && (first == PARAMETER || first == VIEW_OF_PARAMETER) && !x->b->values[n->out[0]].keep &&
        n->out[0] < x->n_values) {
        *place_of(x, n->out[0]) =
            (place){.is = VIEW_OF_PARAMETER, .unit = place_of(x, n->in[0])->unit, .made_by = position};
        return LC_OK;
    }
    for (int k = 0; k < n->n_in; k++) {
        meaning m = n->in[k] == LC_ABSENT ? NOTHING : meaning_of(x, n->in[k]);
        bool written = n->op->mutated_inputs >> k & 1;
        if (m == PARAMETER_SLICES && written) *barrier = position;
        if (m != PARAMETER && m != VIEW_OF_PARAMETER) continue;
        if (written)
            return lc_fail(
                LC_ERR_UNSUPPORTED,
                "%s to a parameter of which this rank has only a slice (strategy sharded); use --strategy sharded_2",
                n->op->name);
        LC_TRY(use(x, place_of(x, n->in[k])->unit, position, *barrier));
    }
    for (int k = 0; k < n->n_in; k++) {
        meaning m = n->in[k] == LC_ABSENT ? NOTHING : meaning_of(x, n->in[k]);
        if (m == PARAMETER || m == VIEW_OF_PARAMETER) LC_TRY(replace(x, n->in[k], position, &n->in[k]));
    }
    return LC_OK;
}

/* Drops the original views of parameters: each cluster has its own. */
static void drop_views(placing *x)
{
    for (uint32_t v = 0; v < x->n_values; v++)
        if (x->places[v].is == VIEW_OF_PARAMETER) x->b->nodes[x->places[v].made_by].op = NULL;
}

/* The place at which a cluster's gather starts: the first use of the previous cluster that began earlier. */
static int launch_position(const placing *x, uint32_t k)
{
    const cluster *c = &x->clusters[k];
    int at = 0;
    for (uint32_t i = k; i-- > 0;)
        if (x->clusters[i].first_use < c->first_use) {
            at = x->clusters[i].first_use;
            break;
        }
    return at > c->barrier ? at : c->barrier + 1;
}

static lc_status gather(placing *x, uint32_t k, int slot)
{
    const cluster *c = &x->clusters[k];
    const unit *u = &x->units[c->unit];
    lc_site site = x->b->nodes[c->first_use].site;
    lc_ir_node *launch = new_node(x, &lc__op_gather_unit, 1, 1, LC__SYNC_FIRST, site);
    lc_ir_node *wait = new_node(x, &lc__op_wait, 1, 0, LC__SYNC_FIRST, site);
    if (!launch || !wait) return LC_ERR_MEMORY;
    launch->in[0] = u->flat->sharding->parameter->value;
    launch->out[0] = wait->in[0] = c->parameters;
    launch->ints[LC__SYNC_REDUCER] = wait->ints[LC__SYNC_REDUCER] = (int64_t)(uintptr_t)x->r;
    launch->ints[LC__SYNC_SLOT] = wait->ints[LC__SYNC_SLOT] = slot;
    launch->ints[LC__SYNC_OFFSET] = u->u->at;
    launch->ints[LC__SYNC_COUNT] = u->u->slice;
    launch->ints[LC__SYNC_UNIT] = c->unit;
    LC_TRY(insert(x, launch_position(x, k), LAUNCHES, launch));
    return insert(x, c->first_use, WAITS, wait);
}

/* ---- the pass ---- */

static int in_order(const void *a, const void *b)
{
    const insertion *x = a, *y = b;
    if (x->position != y->position) return x->position < y->position ? -1 : 1;
    return x->phase != y->phase ? x->phase - y->phase : x->sequence - y->sequence;
}

static lc_status merge(placing *x)
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

static lc_status place_all(placing *x)
{
    lc_build *b = x->b;
    int barrier = -1, slot = 0;
    LC_TRY(find_places(x));
    if (!x->n_units) return LC_OK;
    for (int i = 0; i < b->n_nodes; i++) {
        const lc_ir_node *n = &b->nodes[i];
        if (!n->op) continue;
        if (n->op == &lc__op_reduce_unit && slot <= n->ints[LC__SYNC_SLOT]) slot = (int)n->ints[LC__SYNC_SLOT] + 1;
        LC_TRY(place_gradients(x, i));
        LC_TRY(place_parameters(x, i, &barrier));
    }
    drop_views(x);
    for (uint32_t k = 0; k < x->n_clusters; k++) LC_TRY(gather(x, k, slot + (int)k));
    LC_TRY(lc__reducer_reserve(x->r, slot + (int)x->n_clusters));
    return merge(x);
}

lc_status lc__place_slices(lc_build *b)
{
    placing x = {.b = b, .r = lc__reducer_of_graph(b->g)};
    if (x.r->stage < 2) return LC_OK;
    lc_status status = place_all(&x);
    free(x.insertions);
    free(x.clusters);
    return status;
}
