/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a step without inputs, checked in their order. */
#include "check/check.h"
#include "engine/run/run.h"

lc_status check_step(check *c, lc_graph *g)
{
    lc_plan *p;
    lc_status status = lc__graph_plan(g, LC__KEEPS_NAMED, &p);
    if (status < 0 && status != LC_ERR_MEMORY) return LC_OK; /* a gradient refuses this size */
    if (status < 0 || !p) return status;
    for (int i = 0; i < p->n_linked; i++) *p->linked[i].to = g->tape.floats[p->linked[i].from];
    for (int i = 0; i < p->n_live; i++) *p->live[i].to = *p->live[i].from;
    for (int i = 0; i < p->n_calls; i++) LC_TRY(check_call(c, g, &p->calls[i].call));
    lc__graph_ran(g);
    return LC_OK;
}
