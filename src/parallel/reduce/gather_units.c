/* SPDX-License-Identifier: Apache-2.0 */
/* How units of parameters arrive: as they are, or rounded, and their vectors apart from the rest. */
#include "parallel/reduce/place_slices.h"

#include "ops/ops.h"

lc_status lc__put_together(lc__placing *x, const lc__placed_unit *u, int index, lc__spot at, uint32_t *out)
{
    const lc_tensor *p = u->flat->parameters[index];
    const int64_t most = lc__vectors_most(u->flat, u->u);
    const uint32_t memory = x->clusters[u->cluster - 1].vectors;
    lc_ir_node *cat = lc__new_node(x, &lc__op_cat, u->flat->sharding->size, 1, 1, at.site);
    if (!cat) return LC_ERR_MEMORY;
    cat->n_in = 0;
    for (int rank = 0; rank < u->flat->sharding->size; rank++) {
        int64_t from, first, n = lc__vector_piece(u->flat, u->u, rank, index, &from, &first);
        if (!n) continue;
        const bool whole = n == lc__numel(&p->type);
        const lc_type piece = {.ndim = 1, .shape = {n}};
        LC_TRY(lc__add_range(x, memory, rank * most + first, whole ? p->type : piece, LC_ROW_MAJOR, at, out));
        if (whole) return LC_OK;
        cat->in[cat->n_in++] = *out;
    }
    if ((*out = cat->out[0] = lc__build_value(x->b, &p->type)) == LC_ABSENT) return LC_ERR_MEMORY;
    return lc__insert_node(x, at.position, at.phase, cat);
}

/* The place at which a cluster's gather starts: the first use of the previous cluster that began earlier. */
static int launch_position(const lc__placing *x, uint32_t k)
{
    const lc__cluster *c = &x->clusters[k];
    int at = 0;
    for (uint32_t i = k; i-- > 0;)
        if (x->clusters[i].first_use < c->first_use) {
            at = x->clusters[i].first_use;
            break;
        }
    return at > c->barrier ? at : c->barrier + 1;
}

/* The beginning and the end of a gather. */
typedef struct transfer {
    lc_ir_node *begin, *wait;
} transfer;

/* Gathers `count` elements of the slice buffer from each rank into a cluster's memory. */
static lc_status new_transfer(lc__placing *x, const lc__cluster *c, lc__gathered what, uint32_t memory, int64_t count,
                              int n_int, transfer *t)
{
    const lc_site site = x->b->nodes[c->first_use].site;
    const lc_op *op = what == LC__GATHERED_VECTORS ? &lc__op_gather_vectors : &lc__op_gather_unit;
    t->begin = lc__new_node(x, op, 1, 1, LC__SYNC_FIRST + n_int, site);
    t->wait = lc__new_node(x, &lc__op_wait, 2, 0, LC__SYNC_FIRST, site);
    if (!t->begin || !t->wait) return LC_ERR_MEMORY;
    t->begin->in[0] = x->units[c->unit].flat->sharding->parameter->value;
    t->begin->out[0] = t->wait->in[0] = memory;
    t->wait->in[1] = LC_ABSENT;
    t->begin->ints[LC__SYNC_REDUCER] = t->wait->ints[LC__SYNC_REDUCER] = (int64_t)(uintptr_t)x->r;
    t->begin->ints[LC__SYNC_SLOT] = t->wait->ints[LC__SYNC_SLOT] = x->slots++;
    t->begin->ints[LC__SYNC_COUNT] = count;
    t->begin->ints[LC__SYNC_UNIT] = lc__gather_of(c->unit, what);
    return LC_OK;
}

static lc_status insert_transfer(lc__placing *x, const lc__cluster *c, const transfer *t, int position)
{
    LC_TRY(lc__insert_node(x, position, LC__LAUNCHES, t->begin));
    return lc__insert_node(x, c->first_use, LC__WAITS, t->wait);
}

/* This rank's slice of the unit, rounded. */
static lc_status round_slice(lc__placing *x, const lc__placed_unit *u, lc__spot at, uint32_t *out)
{
    const lc_tensor *slices = u->flat->sharding->parameter;
    const lc_type type = {.dtype = x->b->g->low, .ndim = 1, .shape = {u->u->slice}};
    uint32_t slice;
    LC_TRY(lc__add_range(x, slices->value, u->u->at, type, LC_ROW_MAJOR, at, &slice));
    lc_ir_node *cast = lc__new_node(x, &lc__op_cast, 1, 1, 1, at.site);
    if (!cast || (*out = lc__build_value(x->b, &type)) == LC_ABSENT) return LC_ERR_MEMORY;
    cast->in[0] = slice;
    cast->out[0] = *out;
    cast->ints[0] = type.dtype;
    return lc__insert_node(x, at.position, at.phase, cast);
}

static lc_status gather_unit(lc__placing *x, const lc__cluster *c, const lc__placed_unit *u, lc__spot at)
{
    transfer t;
    LC_TRY(new_transfer(x, c, u->low ? LC__GATHERED_LOW : LC__GATHERED_F32, c->parameters, u->u->slice, 0, &t));
    t.begin->ints[LC__SYNC_OFFSET] = u->low ? 0 : u->u->at;
    if (u->low) LC_TRY(round_slice(x, u, at, &t.begin->in[0]));
    if (u->low) t.wait->in[1] = t.begin->in[0]; /* which is sent until then */
    return insert_transfer(x, c, &t, at.position);
}

static lc_status gather_vectors(lc__placing *x, const lc__cluster *c, const lc__placed_unit *u, lc__spot at)
{
    transfer t;
    const lc_flat *flat = u->flat;
    LC_TRY(new_transfer(x, c, LC__GATHERED_VECTORS, c->vectors, lc__vectors_most(flat, u->u), 3 * u->u->n, &t));
    t.begin->n_int = LC__SYNC_FIRST;
    for (int k = u->u->first; k < u->u->first + u->u->n; k++) {
        int64_t from, first, n = lc__vector_piece(flat, u->u, flat->sharding->rank, k, &from, &first);
        if (!n) continue;
        int64_t *piece = t.begin->ints + t.begin->n_int;
        piece[0] = u->u->at + from;
        piece[1] = first;
        piece[2] = n;
        t.begin->n_int += 3;
    }
    return insert_transfer(x, c, &t, at.position);
}

lc_status lc__gather_cluster(lc__placing *x, uint32_t k)
{
    const lc__cluster *c = &x->clusters[k];
    const lc__placed_unit *u = &x->units[c->unit];
    const lc__spot at = {launch_position(x, k), LC__LAUNCHES, x->b->nodes[c->first_use].site};
    if (c->parameters != LC_ABSENT) LC_TRY(gather_unit(x, c, u, at));
    return c->vectors == LC_ABSENT ? LC_OK : gather_vectors(x, c, u, at);
}
