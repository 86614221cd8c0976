/* SPDX-License-Identifier: Apache-2.0 */
/* Operands whose values are stored in another type than the program sees (tensor/store.c): a step converts each once,
 * and what is assigned to one is converted back. The planner reads them as they are stored where it can
 * (engine/plan/storage_types.c). */
#include "engine/run/run.h"
#include "ops/ops.h"

#include <string.h>

static lc_tensor *convert(lc_graph *g, lc_tensor *t, lc_dtype dtype, lc_site site)
{
    g->raw = true;
    t = lc_op_call(&lc__op_cast, 1, &t, 1, &(int64_t){dtype}, 0, NULL, site);
    g->raw = false;
    return t;
}

/* t is this graph's handle of `given`. The value is converted again after a write, and not shared with what is recorded
 * without gradients. */
static lc_tensor *as_seen(lc_graph *g, lc_tensor *given, lc_tensor *t, lc_site site)
{
    uint64_t now = g->writes << 1 | (g->no_grad != 0);
    if (t->as_seen.graph != g || t->as_seen.generation != g->generation || t->as_seen.at != now) {
        t->as_seen.value = convert(g, given, t->seen->dtype, site);
        t->as_seen.graph = g;
        t->as_seen.generation = g->generation;
        t->as_seen.at = now;
    }
    return t->as_seen.value;
}

static lc_status check_write(const lc_op *op, const lc_tensor *t, int i)
{
    if (op == &lc__op_assign) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED,
                   "it writes input %d, whose f32 values are stored as %s by the precision; write it with lc_assign", i,
                   lc_dtype_name(t->type.dtype));
}

lc_status lc__operands_as_seen(lc_graph *g, const lc_op *op, int n_in, lc_tensor *const *in, lc_tensor **out,
                               lc_site site)
{
    lc_dtype assigned = 0;
    bool macro = lc__is_macro(op);               /* these expand into operators on what is stored */
    memcpy(out, in, (size_t)n_in * sizeof *out); /* all of them, also if one is refused */
    for (int i = 0; i < n_in; i++) {
        if (macro || !lc__is_tensor(in[i])) continue;
        lc_tensor *t = lc__own_handle(g, in[i]);
        if (!t->seen) continue;
        if (i >= 32 || !(op->mutated_inputs >> i & 1)) {
            out[i] = as_seen(g, in[i], t, site);
            continue;
        }
        LC_TRY(check_write(op, t, i));
        assigned = t->type.dtype;
    }
    if (assigned && n_in > 1 && lc__is_tensor(out[1]) && out[1]->type.dtype == LC_F32)
        out[1] = convert(g, out[1], assigned, site);
    if (macro || op->mutated_inputs) g->writes++;
    return LC_OK;
}
