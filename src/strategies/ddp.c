/* SPDX-License-Identifier: Apache-2.0 */
/* "ddp": every rank has the whole model and its share of each batch; gradients are averaged while the backward pass
 * runs (parallel/reduce/reducer.h), so that all ranks make the same update.
 *
 * At the start rank 0 sends its parameters and buffers to all, after a check that all ranks have the same set. */
#include "strategies/processes.h"

static lc_status setup(void *self, lc_graph *graph, lc_module *m, lc_optimizer *const *optimizers, int n)
{
    return lc__processes_share(self, graph, m, optimizers, n, 0);
}

const lc_strategy_ops lc__strategy_ddp = {LC_STRATEGY_OPS_INIT("ddp"), LC__PROCESSES_OPS(lc__processes_join),
                                          .setup = setup, .compresses = true};
