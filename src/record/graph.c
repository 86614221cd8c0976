/* SPDX-License-Identifier: Apache-2.0 */
/* The graph that a thread records into, and the modes that apply to the calls that follow. */
#include "base/handle.h"
#include "record/graph_impl.h"

#include <lightc/optim.h>
#include <stdio.h>

lc_graph *lc_current_graph(void)
{
    return lc__current && lc__current->recording ? lc__current : NULL;
}

lc_status lc_step_status(lc_graph *g)
{
    LC__IS(g, GRAPH, LC_ERR_ARGUMENT);
    return g->status == LC_OK ? LC_OK : lc_fail(g->status, "%s", g->error);
}

lc_status lc__step_failed(lc_graph *g, lc_status status)
{
    if (status >= 0 || g->status != LC_OK) return status;
    g->status = status;
    snprintf(g->error, sizeof g->error, "%s", lc_error_message());
    return status;
}

void lc__graph_chunk(lc_graph *g, int64_t number)
{
    g->chunk.number = number;
    g->chunk.first_site = g->n_random_sites;
    g->chunk.sums = g->chunk.backward = false;
    g->writes++; /* chunks share no conversions of operands */
}

void lc__graph_enter(lc_graph *g)
{
    if (lc__current == g) return;
    lc__current = g;
    for (uint32_t i = 0; g->recording && i < g->n_externals; i++) {
        lc_tensor *t = g->values[g->externals[i].value];
        t->graph = g;
        t->generation = g->generation;
        t->value = g->externals[i].value;
    }
}

void lc__graph_modes(lc_graph *g)
{
    g->node_flags = (uint16_t)((g->no_grad ? LC_NODE_NO_GRAD : 0) | (g->autocast & 1 ? LC_NODE_AUTOCAST : 0));
}

void lc_no_grad_begin(void)
{
    if (!lc__current) return;
    lc__current->no_grad++;
    lc__graph_modes(lc__current);
}

void lc_no_grad_end(void)
{
    if (!lc__current || !lc__current->no_grad) return;
    lc__current->no_grad--;
    lc__graph_modes(lc__current);
}

static void enter(bool autocast)
{
    lc_graph *g = lc__current;
    if (!g) return;
    g->autocast = g->autocast << 1 | autocast;
    g->autocast_depth++;
    lc__graph_modes(g);
}

void lc_autocast_begin(bool enabled)
{
    enter(enabled || (lc__current && lc__current->options.storage));
}

void lc_autocast_end(void)
{
    lc_graph *g = lc__current;
    if (!g || !g->autocast_depth) return;
    g->autocast >>= 1;
    g->autocast_depth--;
    lc__graph_modes(g);
}

void lc__exact_begin(void)
{
    enter(false);
}

void lc__exact_end(void)
{
    lc_autocast_end();
}

void lc_checkpoint_begin(void)
{
    if (lc__current && lc__current->recording) lc__current->region = ++lc__current->n_regions;
}

void lc_checkpoint_end(void)
{
    if (lc__current) lc__current->region = 0;
}

void lc_graph_set_window(lc_graph *g, double window)
{
    LC__IS(g, GRAPH, );
    g->window = window;
}

void lc_graph_set_unscale(lc_graph *g, lc_tensor *unscale, lc_after_update_fn *after_update, void *ctx)
{
    LC__IS(g, GRAPH, );
    LC__IS_TENSOR_OR_NULL(unscale, );
    g->unscale = unscale;
    g->scaled = unscale != NULL;
    g->after_update = after_update;
    g->after_update_ctx = ctx;
}
