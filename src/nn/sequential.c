/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Sequential: children "0", "1", ..., allocated and freed here. */
#include "nn/nn_internal.h"
#include "base/grow.h"

#include <stdio.h>
#include <stdlib.h>

static lc_tensor *forward(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_sequential_forward_at((lc_sequential *)self, x, site);
}

/* Children have been released already; only their memory remains. */
static void release(lc_module *self)
{
    lc_sequential *seq = (lc_sequential *)self;
    for (int i = 0; i < seq->n_layers; i++) free(seq->layers[i]);
    free(seq->layers);
    seq->layers = NULL;
    seq->n_layers = 0;
}

void lc_sequential_init(lc_sequential *seq, void *parent, const char *name)
{
    LC_LAYER_BEGIN(seq, parent, name, "Sequential", forward);
    seq->base.release = release;
}

void *lc_sequential_slot(lc_sequential *seq, size_t size)
{
    LC__IS(seq, MODULE, NULL);
    bool room = lc__grow_one(&seq->layers, seq->n_layers, "layers") == LC_OK;
    void *layer = room ? calloc(1, size) : NULL;
    if (!layer) {
        lc_module_fail(&seq->base, LC_ERR_MEMORY, "out of memory: %zu bytes for layer %d", size, seq->n_layers);
        return NULL;
    }
    snprintf(seq->next, sizeof seq->next, "%d", seq->n_layers);
    seq->layers[seq->n_layers++] = layer;
    return layer;
}

lc_tensor *lc_sequential_forward_at(lc_sequential *seq, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(seq, "sequential", "lc_sequential_init", site);
    for (int i = 0; i < seq->base.n_children; i++) x = lc_forward_at(seq->base.children[i], x, site);
    return x;
}
