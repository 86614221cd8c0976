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
    g->no_grad = g->evaluates || g->open[LC__NO_GRAD].n;
    g->node_flags = (uint16_t)((g->no_grad ? LC_NODE_NO_GRAD : 0) | (g->autocast & 1 ? LC_NODE_AUTOCAST : 0));
}

/* ---- regions ---- */

static const struct {
    const char *begin, *end;
} names[LC__REGIONS] = {
    [LC__NO_GRAD] = {"lc_no_grad_begin", "lc_no_grad_end"},
    [LC__AUTOCAST] = {"lc_autocast_begin", "lc_autocast_end"},
    [LC__CHECKPOINT] = {"lc_checkpoint_begin", "lc_checkpoint_end"},
};

static void begin(lc_graph *g, lc__region kind, lc_site site)
{
    g->any_open++;
    if (!g->open[kind].n++) g->open[kind].site = site;
}

static bool end(lc_graph *g, lc__region kind, lc_site site)
{
    if (g->open[kind].n) {
        g->open[kind].n--;
        g->any_open--;
        return true;
    }
    lc_fail(LC_ERR_STATE, "there is no region to end; call %s first", names[kind].begin);
    lc__refuse_call(LC_ERR_STATE, names[kind].end, site);
    return false;
}

lc_status lc__graph_regions_closed(lc_graph *g)
{
    for (int kind = 0; g->any_open && kind < LC__REGIONS && g->status == LC_OK; kind++)
        if (g->open[kind].n) {
            lc_fail(LC_ERR_STATE, "its region is open at the end of the step; call %s", names[kind].end);
            lc__record_error(g, LC_ERR_STATE, names[kind].begin, g->open[kind].site, NULL, NULL, 0);
        }
    return lc_step_status(g);
}

void lc_no_grad_begin_at(lc_site site)
{
    lc_graph *g = lc_current_graph();
    if (!g) return;
    begin(g, LC__NO_GRAD, site);
    lc__graph_modes(g);
}

void lc_no_grad_end_at(lc_site site)
{
    lc_graph *g = lc_current_graph();
    if (g && end(g, LC__NO_GRAD, site)) lc__graph_modes(g);
}

static void autocast_begin(lc_graph *g, bool enabled)
{
    g->autocast = g->autocast << 1 | enabled;
    lc__graph_modes(g);
}

static void autocast_end(lc_graph *g)
{
    g->autocast >>= 1;
    lc__graph_modes(g);
}

void lc_autocast_begin_at(bool enabled, lc_site site)
{
    lc_graph *g = lc_current_graph();
    if (!g) return;
    begin(g, LC__AUTOCAST, site);
    autocast_begin(g, enabled || g->options.storage);
}

void lc_autocast_end_at(lc_site site)
{
    lc_graph *g = lc_current_graph();
    if (g && end(g, LC__AUTOCAST, site)) autocast_end(g);
}

void lc__exact_begin(void)
{
    lc_graph *g = lc_current_graph();
    if (g) autocast_begin(g, false);
}

void lc__exact_end(void)
{
    lc_graph *g = lc_current_graph();
    if (g) autocast_end(g);
}

void lc_checkpoint_begin_at(lc_site site)
{
    lc_graph *g = lc_current_graph();
    if (!g) return;
    if (g->open[LC__CHECKPOINT].n) {
        lc_fail(LC_ERR_STATE, "regions do not nest, and one is open%s; call lc_checkpoint_end first",
                lc__at_site(g->open[LC__CHECKPOINT].site).text);
        lc__refuse_call(LC_ERR_STATE, names[LC__CHECKPOINT].begin, site);
        return;
    }
    begin(g, LC__CHECKPOINT, site);
    g->region = ++g->n_regions;
}

void lc_checkpoint_end_at(lc_site site)
{
    lc_graph *g = lc_current_graph();
    if (g && end(g, LC__CHECKPOINT, site)) g->region = 0;
}

/* ---- gradients ---- */

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
