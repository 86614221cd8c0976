/* SPDX-License-Identifier: Apache-2.0 */
/* Places on the tree of gradients, as operators. Before part `index` is added, sums are held at the levels of the set
 * bits of `index`. The part is added to the sums at the trailing set bits, and the result is held at the level of the
 * lowest clear bit; the last part is added to all held sums.
 *
 * Every part is added by the same operator, even if nothing is held for it: a gradient computed in place might use a
 * different kernel. */
#include "tensor/slice.h"
#include "ops/infer.h"
#include "parallel/tree/tree_impl.h"

/* Something that one node adds: a parameter's gradient, or this rank's slice of a unit. */
typedef struct piece {
    lc__tree_flat *f;
    int which, parameter;
    const lc__unit *unit; /* NULL: a parameter's gradient */
    lc_tensor *gradient;  /* place of the sum */
} piece;

static lc_status held_of(const piece *p, int level, lc_tensor **out)
{
    lc__held *h;
    LC_TRY(lc__tree_held(p->f, p->which, level, &h));
    *out = p->unit ? lc__expand_range(h->whole, p->unit->at, p->unit->slice) : h->range[p->parameter];
    return LC_OK;
}

static lc_status combine(lc_build *b, const piece *p, lc__tree_place at, lc_tensor *value)
{
    lc_tensor *in[2 + LC__TREE_LEVELS], *none[LC_MAX_OUTPUTS];
    int levels[LC__TREE_LEVELS], to, n = lc__tree_path(at.index, at.last, levels, &to);
    for (int k = 0; k < n; k++) LC_TRY(held_of(p, levels[k], &in[2 + k]));
    in[0] = p->gradient;
    in[1] = value;
    if (to >= 0) LC_TRY(held_of(p, to, &in[0]));
    lc_op_call_n(&lc__op_combine, 2 + n, in, 0, NULL, 0, NULL, none, LC_HERE);
    return b->g->status;
}

static lc_status combine_parameter(lc_build *b, lc__tree_flat *f, int which, lc__tree_place at, int i, lc_tensor *value)
{
    return combine(b, &(piece){f, which, i, NULL, f->flat->gradients[i]}, at, value);
}

static bool wanted(const lc_flat *flat, int i)
{
    return flat->parameters[i] && flat->parameters[i]->requires_grad;
}

/* The plan is one for the parameters of a flat buffer that are trained now. */
static lc_status note_trained(lc_build *b, lc_flat *flat)
{
    lc_flat_state *state;
    return lc__expand_flat_state(b, flat, &state);
}

/* Adds an absent gradient for each parameter that is not in done[flat][parameter]; done NULL: for all. */
static lc_status add_absent(lc_build *b, lc__tree_place at, bool *const *done)
{
    for (int f = 0; f < at.tree->n_flats; f++) {
        lc__tree_flat *tf = &at.tree->flats[f];
        LC_TRY(note_trained(b, tf->flat));
        for (int i = 0; i < tf->flat->n; i++)
            if (wanted(tf->flat, i) && !(done && done[f][i]))
                LC_TRY(combine_parameter(b, tf, LC__TREE_CHUNKS, at, i, NULL));
    }
    return LC_OK;
}

static lc_status expand_absent(lc_build *b, const lc_node *n)
{
    return add_absent(b, lc__tree_place_of(b->g->tape.ints + n->int_at), NULL);
}

/* ---- a chunk ---- */

typedef struct chunk {
    lc__tree_place at;
    bool **done; /* by flat buffer and parameter of the tree */
} chunk;

static lc_status deposit(void *ctx, lc_build *b, lc_tensor *p, lc_tensor *value, bool *taken)
{
    const chunk *c = ctx;
    lc__tree *t = c->at.tree;
    int f = 0;
    while (f < t->n_flats && t->flats[f].flat != p->flat) f++;
    *taken = f < t->n_flats;
    if (!*taken) return LC_OK;
    c->done[f][p->flat_index] = true;
    return combine_parameter(b, &t->flats[f], LC__TREE_CHUNKS, c->at, p->flat_index, value);
}

static lc_status expand_chunk(lc_build *b, const lc_node *n)
{
    chunk c = {.at = lc__tree_place_of(b->g->tape.ints + n->int_at)};
    int n_flats = c.at.tree->n_flats;
    if (!(c.done = lc__build_alloc(b, (size_t)n_flats * sizeof *c.done))) return LC_ERR_MEMORY;
    for (int f = 0; f < n_flats; f++)
        if (!(c.done[f] = lc__build_alloc(b, (size_t)c.at.tree->flats[f].flat->n))) return LC_ERR_MEMORY;
    /* Chunks run one after the other, after the nodes that all of them may use. */
    lc__summed_by tree = {.deposit = deposit,
                          .ctx = &c,
                          .last = c.at.last,
                          .others = c.at.first_node,
                          .end = c.at.node,
                          .apart = "deterministic training calls training_step for one chunk of a batch at a "
                                   "time, but this loss depends on results of another chunk"};
    LC_TRY(lc__expand_backward(b, &tree));
    return add_absent(b, c.at, c.done);
}

/* ---- a window ---- */

/* This rank adds only its slice of a unit, which the sync has summed. */
static lc_status window_of_unit(lc_build *b, lc__tree_flat *f, lc__tree_place at, const lc__unit *u)
{
    const lc__sharding *s = f->flat->sharding;
    bool any = false;
    for (int i = u->first; i < u->first + u->n; i++) any |= wanted(f->flat, i);
    if (!any) return LC_OK;
    lc_tensor *slice = s->gradient ? lc__expand_range(s->gradient, u->at, u->slice)
                                   : lc__expand_range(f->flat->gradient, u->offset + s->rank * u->slice, u->slice);
    return combine(b, &(piece){f, LC__TREE_WINDOW, -1, u, slice}, at, slice);
}

static lc_status expand_window(lc_build *b, const lc_node *n)
{
    lc__tree_place at = lc__tree_place_of(b->g->tape.ints + n->int_at);
    for (int f = 0; f < at.tree->n_flats; f++) {
        lc__tree_flat *tf = &at.tree->flats[f];
        const lc__sharding *s = tf->flat->sharding;
        LC_TRY(note_trained(b, tf->flat));
        for (int k = 0; s && k < s->n_units; k++) LC_TRY(window_of_unit(b, tf, at, &s->units[k]));
        for (int i = 0; i < tf->flat->n && !s; i++)
            if (wanted(tf->flat, i)) LC_TRY(combine_parameter(b, tf, LC__TREE_WINDOW, at, i, tf->flat->gradients[i]));
    }
    return LC_OK;
}

const lc_macro lc__macro_chunk = {{.name = "backward", .flags = LC__OP_MACRO, .infer = lc__infer_backward},
                                  expand_chunk};
const lc_macro lc__macro_absent = {{.name = "no_backward", .flags = LC__OP_MACRO, .infer = lc__infer_nothing},
                                   expand_absent};
const lc_macro lc__macro_window = {{.name = "window", .flags = LC__OP_MACRO, .infer = lc__infer_nothing},
                                   expand_window};
