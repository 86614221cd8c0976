/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of a fabric: for fabric.c (life cycle and ranks), step.c, logging.c and checkpoint.c, and for tests that
 * look inside. */
#ifndef LC_CORE_FABRIC_FABRIC_INTERNAL_H
#define LC_CORE_FABRIC_FABRIC_INTERNAL_H

#include <lightc/fabric.h>

#include "base/handle.h"
#include "core/resume/run_state.h"

struct lc_fabric {
    lc__mark mark;
    const lc_strategy_ops *strategy;
    void *strategy_self;
    lc_comm *comm;              /* the strategy's; NULL: one rank */
    lc_precision_ops precision; /* a full copy */
    void *precision_self;
    lc_graph *graph;
    const struct lc_device *before; /* where this thread made tensors before (lc__device_use) */
    lc_module *m;
    lc_optimizers optimizers;
    lc_ckpt_writer *writer;
    bool sharded; /* every rank writes a part of a checkpoint */
    int64_t steps;
    bool no_sync;
    bool unsummed;         /* the last backward pass has left gradients that each rank has for itself */
    lc__first_error error; /* since lc_fabric_begin */
    lc_logger *loggers;
    int n_loggers;
    char *root_dir, *run_dir; /* run_dir NULL: nothing has been logged yet */
    char *memory_limit;
};

#endif
