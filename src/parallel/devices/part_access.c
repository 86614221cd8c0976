/* SPDX-License-Identifier: Apache-2.0 */
/* Host access to the module's tensors between the parts of a step and their run, as by a hook: devices then see a write
 * where one device would, and the host sees what device 0 has made of a buffer. */
#include "parallel/devices/devices_impl.h"
#include "engine/run/run.h"

static const lc__device_entry *entry_of(const lc__devices *d, const lc_tensor *t)
{
    for (int k = 0; d->parts && k < d->n_entries; k++)
        if (d->entries[k].original == t) return &d->entries[k];
    return NULL;
}

static lc_status run_part(lc__devices *d, int i, lc_tensor *t)
{
    lc_graph *g = lc__devices_enter(d, i, d->weights[i]);
    lc_status status = lc__graph_host.run(lc__own_handle(g, t));
    if (status >= 0) status = lc__graph_host.wait(g);
    lc__devices_leave(d);
    return status;
}

/* The parts that use the tensor. */
static lc_status run(lc__devices *d, lc_tensor *t)
{
    const lc__device_entry *e = entry_of(d, t);
    if (!e) return LC_OK;
    for (int i = 0; i < d->parts; i++) LC_TRY(run_part(d, i, t));
    if (e->is_buffer && e->replicas[0]) lc__copy_value(t, e->replicas[0]);
    return LC_OK;
}

static void wrote(lc__devices *d, lc_tensor *t)
{
    const lc__device_entry *e = entry_of(d, t);
    for (int i = 0; e && i < d->parts; i++) {
        const lc_graph *g = lc__devices_enter(d, i, d->weights[i]);
        if (e->replicas[i] && lc__is_copy(d, e, i)) lc__copy_value(e->replicas[i], t);
        lc__graph_host.wrote(lc__own_handle(g, t));
        lc__devices_leave(d);
    }
}

const lc__parts_ops lc__devices_parts = {run, wrote};
