/* SPDX-License-Identifier: Apache-2.0 */
/* The message about an index that is out of range. */
#include "base/str.h"
#include "engine/run/run.h"

static void place_of(const lc_view *v, int64_t at, lc__str *to)
{
    int64_t index[LC_MAX_DIMS];
    for (int d = v->ndim - 1; d >= 0; d--) {
        index[d] = at % v->shape[d];
        at /= v->shape[d];
    }
    for (int d = 0; d < v->ndim; d++) lc__str_add(to, "%s%lld", d ? "," : "[", (long long)index[d]);
    if (v->ndim) lc__str_add(to, "]");
}

lc_status lc__fault_take(lc__fault *f, lc_site site)
{
    const lc_call *c = f->call;
    const lc_bad_index *bad = &f->bad;
    lc__str place = {0}, other = {0};
    char name[64];
    lc__operand_name(c->op, bad->input, name, sizeof name);
    place_of(&c->in[bad->input], bad->at, &place);
    if (bad->or_name) lc__str_add(&other, ", or %s, %lld", bad->or_name, (long long)bad->or_index);
    lc_fail(LC_ERR_ARGUMENT, "%s%s is %lld, which is out of range: 0 to %lld is allowed%s", name,
            place.s ? place.s : "", (long long)bad->index, (long long)bad->size - 1, other.s ? other.s : "");
    lc__str_free(&place);
    lc__str_free(&other);
    f->taken++;
    atomic_store_explicit(&f->state, LC__FAULT_EMPTY, memory_order_relaxed);
    return lc__call_error(c, LC_ERR_ARGUMENT, site);
}

lc_site lc__site_of_step(const lc_graph *g, const lc_plan *p, lc_site planned)
{
    for (uint32_t k = 0; k < p->n_nodes; k++)
        if (p->node_sites[k].line == planned.line && p->node_sites[k].file == planned.file)
            return g->tape.sites[g->node_0 + k];
    return planned;
}
