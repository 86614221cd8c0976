/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to other ranks, which the host makes when the device has got to what they send. The plan's calls after them are
 * enqueued meanwhile. */
#include "engine/run/run.h"

/* The list has room for the calls of a plan (plan/program.c). */
lc_status lc__when_done(lc_graph *g, const lc_call *call, lc__begin_fn *begin, const void *key)
{
    if (lc__on_host(g->on)) {
        begin(call);
        return LC_OK;
    }
    lc_start *s = &g->starts[g->n_starts++];
    *s = (lc_start){.call = call, .begin = begin, .key = key};
    return g->on->ops->mark(g->on->context, &s->mark);
}

/* The device has got to its mark. Not if an index was bad: the other ranks would get what followed from it. */
static lc_status begin_next(lc_graph *g)
{
    const lc_start s = g->starts[g->first_start++];
    LC_TRY(lc__device_fault(g));
    s.begin(s.call);
    return LC_OK;
}

lc_status lc__begin_ready(lc_graph *g)
{
    bool reached = true;
    while (g->first_start < g->n_starts) {
        LC_TRY(g->on->ops->reached(g->on->context, g->starts[g->first_start].mark, &reached));
        if (!reached) break;
        LC_TRY(begin_next(g));
    }
    return LC_OK;
}

lc_status lc__begin_through(lc_graph *g, const void *key)
{
    int end = g->n_starts;
    while (key && end > g->first_start && g->starts[end - 1].key != key) end--;
    while (g->first_start < end) {
        LC_TRY(lc__device_reach(g->on, g->starts[g->first_start].mark));
        LC_TRY(begin_next(g));
    }
    return LC_OK;
}

lc_status lc__begin_all(lc_graph *g)
{
    return lc__begin_through(g, NULL);
}

void lc__forget_starts(lc_graph *g)
{
    g->first_start = g->n_starts = 0;
}
