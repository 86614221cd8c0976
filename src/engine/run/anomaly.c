/* SPDX-License-Identifier: Apache-2.0 */
/* LIGHTC_NAN_CHECK=1 and detect_anomaly: the first operator that made a NaN or an infinity. In a fused chain of
 * elementwise operators it names the one inside: the chain is evaluated again for that element. (With the check on,
 * results never reuse the memory of inputs.) An operand that already contains one, from a batch or a parameter outside
 * of the step, is named, too.
 *
 * Gradients of a scaled loss may overflow: their update is left out, and the scale becomes smaller. */
#include "base/number.h"
#include "ops/fused.h"
#include "engine/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first element in row-major order that is not finite; false: there is none. `index`: [LC_MAX_DIMS], zeros. */
static bool find(const lc_view *v, int dim, int64_t at, int64_t *index)
{
    if (dim == v->ndim) return !isfinite(lc__number_at(v->data, v->dtype, at));
    for (index[dim] = 0; index[dim] < v->shape[dim]; index[dim]++)
        if (find(v, dim + 1, at + index[dim] * v->stride[dim], index)) return true;
    index[dim] = 0;
    return false;
}

static bool is_wrong(const lc_view *v, int64_t index[LC_MAX_DIMS])
{
    memset(index, 0, LC_MAX_DIMS * sizeof *index);
    return v->ndim >= 0 && lc_dtype_is_float(v->dtype) && find(v, 0, 0, index);
}

/* "; its operand x already contains one, ...", or nothing. Operands that the call overwrites are not examined. */
static void name_operand(const lc_call *c, char text[200])
{
    int64_t index[LC_MAX_DIMS];
    *text = '\0';
    for (int i = 0; i < c->n_in; i++) {
        char name[64] = "";
        if (c->op->mutated_inputs >> i & 1 || !is_wrong(&c->in[i], index)) continue;
        if (c->op != &lc__op_fused) lc__operand_name(c->op, i, name, sizeof name);
        snprintf(text, 200, "; %s%s already contains one, from a batch, a parameter or a buffer",
                 *name ? "its operand " : "an operand", name);
        return;
    }
}

static lc_status check(const lc_graph *g, const lc_plan *p, const lc_plan_call *pc, const lc_call *c)
{
    for (int k = 0; k < c->n_in + c->n_out; k++) {
        const lc_view *v = k < c->n_out ? &c->out[k] : &c->in[k - c->n_out];
        int64_t index[LC_MAX_DIMS];
        if (k >= c->n_out && !(c->op->mutated_inputs >> (k - c->n_out) & 1)) continue;
        if (!is_wrong(v, index)) continue;
        const char *name = lc__op_title(c->op, c->n_int, c->ints);
        lc_site site = pc->site;
        int inside = c->op == &lc__op_fused ? lc__fused_culprit(c, index) : -1;
        if (inside >= 0) {
            name = lc__fused_op(c, inside)->name;
            if (pc->sites) site = pc->sites[inside];
        }
        site = lc__site_of_step(g, p, site);
        const char *file = site.file ? strrchr(site.file, '/') : NULL;
        file = file ? file + 1 : site.file ? site.file : "?";
        lc_type type = lc__view_type(v);
        char text[128], operand[200];
        name_operand(c, operand);
        return lc_fail(LC_ERR_NUMERIC, "%s made the first NaN or infinity of this step (result %d, %s) at %s:%d%s%s",
                       name, k < c->n_out ? k : 0, lc__shape_text(&type, text, sizeof text), file, site.line, operand,
                       g->scaled ? "; the loss is scaled: gradients that overflow are not errors" : "");
    }
    return LC_OK;
}

lc_status lc__check_finite(const lc_graph *g, const lc_plan *p, const lc_plan_call *pc)
{
    lc__host_call copy;
    if (g->scaled && pc->of_gradients) return LC_OK;
    if (lc__on_host(g->on)) return check(g, p, pc, &pc->call);
    LC_TRY(lc__host_call_make(g->on, &pc->call, &copy));
    lc_status status = check(g, p, pc, &copy.call);
    lc__host_call_free(&copy);
    return status;
}
