/* SPDX-License-Identifier: Apache-2.0 */
/* Dead-node removal: nodes whose results nobody reads are dropped, except those that check indices given by the
 * program, which always run. Also counts the uses of every value. */
#include "engine/plan/plan_impl.h"

lc_status lc__drop_dead(lc_build *b)
{
    for (uint32_t v = 0; v < b->n_values; v++) b->values[v].uses = 0;
    for (int i = b->n_nodes - 1; i >= 0; i--) {
        lc_ir_node *n = &b->nodes[i];
        if (!n->op) continue;
        bool wanted = (n->op->flags & (LC_OP_MUTATES | LC_OP_SIDE_EFFECT)) || n->checks;
        for (int k = 0; k < n->n_out; k++) wanted |= b->values[n->out[k]].uses > 0 || b->values[n->out[k]].keep;
        if (!wanted) {
            n->op = NULL;
            continue;
        }
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] != LC_ABSENT) b->values[n->in[k]].uses++;
    }
    return LC_OK;
}
