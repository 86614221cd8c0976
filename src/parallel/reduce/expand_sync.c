/* SPDX-License-Identifier: Apache-2.0 */
/* The macro node "sync": when in the backward pass each bucket, or sharded unit, is sent; and how an update reaches the
 * other ranks. */
#include "engine/plan/passes.h"
#include "engine/plan/plan_impl.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "parallel/reduce/reducer_impl.h"
#include "parallel/tree/tree_impl.h"

#include <stdlib.h>
#include <string.h>

/* Moves the newest node of the expanded tape to `at`; the nodes from there on move by one. */
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

static bool writes(const lc_graph *g, const lc_node *n, const lc_flat *flat, int i)
{
    if (n->op == &lc__op_share_sum) return g->values[g->ir.in[n->in_at]] == flat->gradient;
    bool deposits = n->op == &lc__op_accumulate || n->op == &lc__op_combine;
    return deposits && g->values[g->ir.in[n->in_at]] == flat->gradients[i];
}

static bool reads(const lc_graph *g, const lc_node *n, const lc_flat *flat, int i)
{
    for (uint32_t k = 0; k < n->n_in; k++) {
        uint32_t v = g->ir.in[n->in_at + k];
        if (v != LC_ABSENT && (g->values[v] == flat->gradients[i] || g->values[v] == flat->gradient)) return true;
    }
    return false;
}

/* The last node that writes parameter i's gradient, or -1. Nodes that share out earlier sums count too. */
static int64_t last_deposit(const lc_graph *g, const lc_flat *flat, int i)
{
    int64_t k = (int64_t)g->ir.n_nodes - 1;
    while (k >= 0 && !writes(g, &g->ir.nodes[k], flat, i)) k--;
    return k;
}

/* The last node that writes or reads parameter i's gradient: ranks may add it up after that. */
static int64_t last_use(const lc_graph *g, const lc_flat *flat, int i)
{
    int64_t k = (int64_t)g->ir.n_nodes - 1;
    while (k >= 0 && !writes(g, &g->ir.nodes[k], flat, i) && !reads(g, &g->ir.nodes[k], flat, i)) k--;
    return k;
}

static lc_status zero_fill(lc_graph *g, const lc_flat *flat, int i)
{
    int64_t overwrite = 0;
    lc_tensor *place = flat->gradients[i], *none[LC_MAX_OUTPUTS];
    lc_tensor *in[] = {place, lc_full_at(0, place->type.dtype, place->type.ndim, place->type.shape, LC_HERE)};
    lc_op_call_n(&lc__op_accumulate, 2, in, 1, &overwrite, 0, NULL, none, LC_HERE);
    return g->status;
}

/* Records a node to be placed after node *after (NULL: at the end). */
static lc_status add_node(lc_graph *g, const lc_op *op, int n_in, lc_tensor **in, int n_int, const int64_t *ints,
                          int64_t *after)
{
    lc_tensor *none[LC_MAX_OUTPUTS];
    lc_op_call_n(op, n_in, in, n_int, ints, 0, NULL, none, LC_HERE);
    LC_TRY(g->status);
    if (!after) return LC_OK;
    *after += 1;
    move_last_to(&g->ir, (uint32_t)*after);
    return LC_OK;
}

/* ---- buckets ---- */

static lc_status launch(lc_graph *g, lc__reducer *r, lc_flat *flat, int64_t begin, int64_t end, int slot,
                        int64_t *after)
{
    int64_t ints[LC__SYNC_FIRST] = {(int64_t)(uintptr_t)r, slot, begin, end - begin};
    return add_node(g, &lc__op_reduce_bucket, 1, &flat->gradient, LC__SYNC_FIRST, ints, after);
}

/* Buckets of one flat buffer, in the order of their ranges. *after: the node of the previous bucket. */
static lc_status expand_flat(lc_build *b, lc__reducer *r, lc_flat *flat, int *n, int64_t *after)
{
    lc_graph *g = b->g;
    lc_flat_state *state;
    size_t width = lc_dtype_size(flat->gradient->type.dtype);
    bool tree = lc__tree_of_graph(g); /* the tree has already added absent gradients */
    LC_TRY(lc__expand_flat_state(b, flat, &state));
    for (int i = 0; i < flat->n && !tree; i++)
        if (flat->parameters[i] && flat->parameters[i]->requires_grad && !state->after[i])
            LC_TRY(zero_fill(g, flat, i));
    int64_t begin = -1, end = 0, ready = -1;
    for (int i = 0; i <= flat->n; i++) {
        bool last = i == flat->n;
        if (!last && (!flat->parameters[i] || !flat->parameters[i]->requires_grad)) continue;
        int64_t from = last ? 0 : flat->offset[i], to = last ? 0 : from + lc__numel(&flat->parameters[i]->type);
        /* A gap of frozen parameters, a full bucket, or the end: send the bucket. */
        bool gap = !last && begin >= 0 && from - end >= (int64_t)(256 / width);
        if (begin >= 0 && (last || gap || (size_t)(end - begin) * width >= r->bucket_bytes)) {
            if (ready > *after) *after = ready;
            LC_TRY(launch(g, r, flat, begin, end, (*n)++, after));
            begin = -1;
        }
        if (last) break;
        if (begin < 0) begin = from, ready = -1;
        end = to;
        int64_t k = last_use(g, flat, i);
        if (k > ready) ready = k;
    }
    return LC_OK;
}

/* ---- units ---- */

enum { UNITS_UNDER_WAY = 2 };

/* The start of unit u's gradients when they are sent: in the flat buffer, or in memory of their own. */
static int64_t begin_of(const lc__sharding *s, const lc__unit *u)
{
    return s->gradient ? 0 : u->offset;
}

static lc_status reduce_unit(lc_build *b, lc__reducer *r, lc_flat *flat, int unit, int slot, int64_t *after)
{
    const lc__sharding *s = flat->sharding;
    const lc__unit *u = &s->units[unit];
    int64_t end = 0;
    int n = LC__SYNC_FIRST;
    int64_t *ints = lc__build_alloc(b, (size_t)(n + 2 * (u->n + 1)) * sizeof *ints);
    if (!ints) return LC_ERR_MEMORY;
    ints[LC__SYNC_REDUCER] = (int64_t)(uintptr_t)r;
    ints[LC__SYNC_SLOT] = slot;
    ints[LC__SYNC_OFFSET] = begin_of(s, u);
    ints[LC__SYNC_COUNT] = u->slice;
    ints[LC__SYNC_UNIT] = unit;
    for (int i = u->first; s->gradient && i <= u->first + u->n; i++) {
        bool last = i == u->first + u->n;
        if (!last && !lc__trained(flat, i)) continue;
        int64_t from = last ? u->slice * s->size : flat->offset[i] - u->offset;
        if (from > end) ints[n++] = end, ints[n++] = from - end;
        if (!last) end = from + lc__numel(&flat->parameters[i]->type);
    }
    return add_node(b->g, &lc__op_reduce_unit, 1, &flat->gradient, n, ints, after);
}

static lc_status reduce_slice(lc_build *b, lc__reducer *r, lc_flat *flat, int unit, int slot, int64_t *after)
{
    const lc__sharding *s = flat->sharding;
    const lc__unit *u = &s->units[unit];
    int64_t ints[LC__SYNC_FIRST] = {(int64_t)(uintptr_t)r, slot, s->rank * u->slice, u->slice, unit};
    return add_node(b->g, &lc__op_reduce_slice, 1, &flat->gradient, LC__SYNC_FIRST, ints, after);
}

static lc_status take_slice(lc_build *b, lc__reducer *r, lc_flat *flat, const uint8_t *state, int unit, int slot,
                            int64_t *after)
{
    const lc__sharding *s = flat->sharding;
    const lc__unit *u = &s->units[unit];
    const lc__tree *tree = lc__tree_of_graph(b->g);
    int n = LC__SYNC_FIRST;
    int64_t *ints = lc__build_alloc(b, (size_t)(n + 4 * u->n) * sizeof *ints);
    if (!ints) return LC_ERR_MEMORY;
    ints[LC__SYNC_REDUCER] = (int64_t)(uintptr_t)r;
    ints[LC__SYNC_SLOT] = slot;
    ints[LC__SYNC_OFFSET] = s->rank * u->slice;
    ints[LC__SYNC_COUNT] = u->slice;
    ints[LC__SYNC_UNIT] = unit;
    for (int i = u->first; i < u->first + u->n; i++) {
        int64_t at, count;
        if (!lc__trained(flat, i)) continue;
        count = lc__slice_of(s, u, flat->offset[i], lc__numel(&flat->parameters[i]->type), &at);
        if (!count) continue;
        ints[n++] = at;
        ints[n++] = u->at + at;
        ints[n++] = count;
        ints[n++] = (state[i] & 1) && !tree; /* a tree adds up windows itself */
    }
    return add_node(b->g, &lc__op_take_slice, 2, (lc_tensor *[]){flat->gradient, s->gradient}, n, ints, after);
}

static lc_status expand_units(lc_build *b, lc__reducer *r, lc_flat *flat, int *n, int64_t *after)
{
    lc_graph *g = b->g;
    const lc__sharding *s = flat->sharding;
    bool sliced = s->gradient != NULL, tree = lc__tree_of_graph(g);
    int first = *n, sent = 0;
    int *units = lc__build_alloc(b, (size_t)s->n_units * sizeof *units);
    lc_flat_state *state;
    if (!units) return LC_ERR_MEMORY;
    LC_TRY(lc__expand_flat_state(b, flat, &state));
    for (int i = 0; i < flat->n && !tree; i++)
        if (lc__trained(flat, i) && !(sliced ? state->after[i] & LC_FLAT_PENDING : state->after[i]))
            LC_TRY(zero_fill(g, flat, i));
    for (int k = 0; k < s->n_units; k++) {
        const lc__unit *u = &s->units[k];
        if (!lc__any_trained(flat, u)) continue;
        for (int i = u->first; i < u->first + u->n; i++) {
            int64_t at = lc__trained(flat, i) ? last_use(g, flat, i) : -1;
            if (at > *after) *after = at;
        }
        /* Units' memory is freed in the order in which they were sent. */
        if (sliced && sent >= UNITS_UNDER_WAY)
            LC_TRY(take_slice(b, r, flat, state->after, units[sent - UNITS_UNDER_WAY], first + sent - UNITS_UNDER_WAY,
                              after));
        if (r->replicas && sent) LC_TRY(reduce_slice(b, r, flat, units[sent - 1], first + sent - 1, after));
        LC_TRY(reduce_unit(b, r, flat, k, (*n)++, after));
        units[sent++] = k;
    }
    if (r->replicas && sent) LC_TRY(reduce_slice(b, r, flat, units[sent - 1], first + sent - 1, NULL));
    for (int k = sent > UNITS_UNDER_WAY ? sent - UNITS_UNDER_WAY : 0; sliced && k < sent; k++)
        LC_TRY(take_slice(b, r, flat, state->after, units[k], first + k, NULL));
    for (int i = 0; i < flat->n && sliced; i++) state->after[i] = state->after[i] != 0;
    return LC_OK;
}

static lc_status wait_for_all(lc_build *b, const lc__reducer *r, lc_flat *flat)
{
    int64_t ints[LC__SYNC_FIRST] = {(int64_t)(uintptr_t)r, -1};
    return add_node(b->g, &lc__op_wait, 1, &flat->parameter, LC__SYNC_FIRST, ints, NULL);
}

/* Gathers whole parameters from the slices that the ranks have updated. */
lc_status lc__reducer_updated(lc_peer *p, lc_build *b, lc_flat *flat, const lc__unit *u)
{
    lc__reducer *r = (lc__reducer *)p;
    if (!u) return wait_for_all(b, r, flat);
    int slot = (int)(u - flat->sharding->units);
    int64_t ints[LC__SYNC_FIRST] = {(int64_t)(uintptr_t)r, slot, u->offset, u->slice, slot};
    LC_TRY(lc__reducer_reserve(r, slot + 1));
    return add_node(b->g, &lc__op_gather_whole, 1, &flat->parameter, LC__SYNC_FIRST, ints, NULL);
}

lc_status lc__reducer_next_bucket(lc_peer *p, lc_build *b, lc_flat *flat, lc__unit *u, bool *any)
{
    const lc__reducer *r = (const lc__reducer *)p;
    size_t width = lc_dtype_size(flat->gradient->type.dtype);
    int end = u->first += u->n;
    u->offset += u->count;
    u->count = 0;
    while (end < flat->n && (size_t)u->count * width < r->bucket_bytes) {
        end++;
        u->count = (end < flat->n ? flat->offset[end] : flat->count) - u->offset;
    }
    u->n = end - u->first;
    *any = u->n > 0;
    if (!*any) return wait_for_all(b, r, flat);
    int64_t ints[LC__SYNC_FIRST] = {(int64_t)(uintptr_t)r, -1, u->offset + u->count};
    return add_node(b->g, &lc__op_wait_until, 1, &flat->gradient, LC__SYNC_FIRST, ints, NULL);
}

/* The planner will need the buffers that contain slices. */
static lc_status find_slices(lc_build *b)
{
    const lc__reducer *r = lc__reducer_of_graph(b->g);
    for (int f = 0; f < r->n_flats; f++) {
        const lc__sharding *s = r->flats[f]->sharding;
        uint32_t value;
        if (s && s->parameter) LC_TRY(lc__value_of(b->g, s->parameter, &value));
    }
    return LC_OK;
}

const lc_pass lc__reducer_passes[] = {
    {LC_PHASE_RECORDED, find_slices}, {LC_PHASE_PLACE, lc__place_slices}, {LC_PHASES, NULL}};

static lc_status expand_share_sum(lc_build *b, const lc_node *n)
{
    (void)n;
    lc_graph *g = b->g;
    const lc__reducer *r = lc__reducer_of_graph(g);
    int64_t ints[] = {(int64_t)(uintptr_t)r, 0};
    for (int f = 0; f < r->n_flats; f++) {
        lc_tensor *none[LC_MAX_OUTPUTS];
        lc_flat_state *state;
        const lc__sharding *sharding = r->flats[f]->sharding;
        if (sharding && sharding->gradient) continue; /* slices are never summed again */
        ints[LC__SYNC_REDUCER + 1] = f;
        LC_TRY(lc__expand_flat_state(b, r->flats[f], &state));
        lc_op_call_n(&lc__op_share_sum, 1, &r->flats[f]->gradient, 2, ints, 0, NULL, none, LC_HERE);
        LC_TRY(g->status);
    }
    return LC_OK;
}

lc_status lc__reducer_whole_gradient(lc_peer *p, const lc_flat *flat, int i, lc_tensor **out)
{
    if (last_deposit(p->graph, flat, i) >= 0) return lc__not_summed(); /* a sync would have run this node */
    const lc__sharding *s = flat->sharding;
    const lc_tensor *t = flat->parameters[i];
    const lc__unit *u = s->units;
    int64_t at, n = lc__numel(&t->type), shape[2 + LC_MAX_DIMS] = {0, t->layout};
    while (i >= u->first + u->n) u++;
    int64_t count = lc__slice_of(s, u, flat->offset[i], n, &at);
    int64_t mine = u->offset + s->rank * u->slice + at; /* in the flat buffer, where the slice's part begins */
    int64_t before = count ? mine - flat->offset[i] : 0;
    lc_tensor *part =
        count ? lc__expand_range(s->gradient ? s->gradient : flat->gradient, s->gradient ? u->at + at : mine, count)
              : NULL;
    lc_tensor *alone = part ? lc_pad(part, before, n - before - count)
                            : lc_full_at(0, lc__gradient_type(t).dtype, 1, (int64_t[]){n}, LC_HERE);
    memcpy(shape + 2, t->type.shape, (size_t)t->type.ndim * sizeof *shape);
    *out = lc_op_call(&lc__op_range, 1, (lc_tensor *[]){lc_all_reduce(alone, s->comm, LC_COMM_SUM)}, 2 + t->type.ndim,
                      shape, 0, NULL, LC_HERE);
    return LC_OK;
}

static lc_status expand_sync(lc_build *b, const lc_node *node)
{
    (void)node;
    lc__reducer *r = lc__reducer_of_graph(b->g);
    int n = 0;
    int64_t after = -1;
    for (int f = 0; f < r->n_flats; f++) {
        lc_flat *flat = r->flats[f];
        LC_TRY(flat->sharding ? expand_units(b, r, flat, &n, &after) : expand_flat(b, r, flat, &n, &after));
    }
    return lc__reducer_reserve(r, n);
}

const lc_macro lc__macro_sync = {{.name = "sync", .flags = LC__OP_MACRO, .infer = lc__infer_nothing}, expand_sync};
const lc_macro lc__macro_share_sum = {{.name = "share_sum", .flags = LC__OP_MACRO, .infer = lc__infer_nothing},
                                      expand_share_sum};
