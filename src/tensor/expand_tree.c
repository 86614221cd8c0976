/* SPDX-License-Identifier: Apache-2.0 */
/* Places on the tree of gradients, as operators. Before part `index` is added, the levels of the set bits of `index`
 * are held; the part goes up through the lowest ones of them that are without a gap, and is held where the first gap
 * is, or through all of them if it is the last.
 *
 * Every part is added by the same operator, also one that meets nothing: a gradient that were computed right in its
 * place might come from another kernel than one that is not. */
#include "tensor/shard.h"
#include "tensor/tree_impl.h"

static lc_status combine(lc_build *b, lc__tree_flat *f, int which, lc__tree_place at, int i, lc_tensor *value)
{
    lc_tensor *in[2 + LC__TREE_LEVELS], *none[LC_MAX_OUTPUTS];
    int levels[LC__TREE_LEVELS], to, n = lc__tree_path(at.index, at.last, levels, &to);
    lc__held *h;
    for (int k = 0; k < n; k++) {
        LC_TRY(lc__tree_held(f, which, levels[k], &h));
        in[2 + k] = h->range[i];
    }
    in[0] = f->flat->gradients[i];
    in[1] = value;
    if (to >= 0) {
        LC_TRY(lc__tree_held(f, which, to, &h));
        in[0] = h->range[i];
    }
    lc_op_call_n(&lc__op_combine, 2 + n, in, 0, NULL, 0, NULL, none, LC_HERE);
    return b->g->status;
}

static bool wanted(const lc_flat *flat, int i)
{
    return flat->parameters[i] && flat->parameters[i]->requires_grad;
}

lc_status lc__expand_tree_deposit(lc_build *b, lc__tree_place at, lc_tensor *p, lc_tensor *value, bool *taken)
{
    *taken = true;
    for (int f = 0; f < at.tree->n_flats; f++)
        if (at.tree->flats[f].flat == p->flat)
            return combine(b, &at.tree->flats[f], LC__TREE_CHUNKS, at, p->flat_index, value);
    *taken = false;
    return LC_OK;
}

lc_status lc__expand_tree_absent(lc_build *b, lc__tree_place at, bool *const *done)
{
    for (int f = 0; f < at.tree->n_flats; f++) {
        lc__tree_flat *tf = &at.tree->flats[f];
        for (int i = 0; i < tf->flat->n; i++)
            if (wanted(tf->flat, i) && !(done && done[f][i])) LC_TRY(combine(b, tf, LC__TREE_CHUNKS, at, i, NULL));
    }
    return LC_OK;
}

lc_status lc__expand_tree_window(lc_build *b, lc__tree_place at)
{
    for (int f = 0; f < at.tree->n_flats; f++) {
        lc__tree_flat *tf = &at.tree->flats[f];
        if (tf->flat->sharding && tf->flat->sharding->gradient) { /* what the sync left in the slices is all there is */
            if (at.index == 0 && at.last) continue;
            return lc_fail(LC_ERR_UNSUPPORTED, "accumulate_grad_batches is not there with deterministic and sharded "
                                               "gradients; use --strategy sharded_1 or ddp");
        }
        for (int i = 0; i < tf->flat->n; i++)
            if (wanted(tf->flat, i)) LC_TRY(combine(b, tf, LC__TREE_WINDOW, at, i, tf->flat->gradients[i]));
    }
    return LC_OK;
}
