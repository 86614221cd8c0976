/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a closure's run, for a whole batch (loop/optimize.c) or a piece of one. */
#ifndef LC_CORE_SPLIT_STEP_H
#define LC_CORE_SPLIT_STEP_H

#include "core/hooks/trainer_internal.h"

struct lc_closure {
    lc__mark mark;
    lc_trainer *t;
    int optimizer;
    const lc_batch *batch;
    int64_t batch_idx;
    lc_tensor *loss;
    int outputs; /* their number before the closure ran: another run overwrites them */
    bool ran;
};

lc_optimizer *lc__closure_optimizer(const lc_closure *c); /* NULL: there is none */
/* The step function of that optimizer (-1: of none) or of the module; NULL: there is none. */
lc_training_step_fn *lc__training_step_of(const lc_trainer *t, int optimizer);
lc_status lc__run_training_step(lc_closure *c) LC_MUST_USE; /* of c->batch; sets c->loss */
lc_status lc__closure_zero_grad(lc_closure *c) LC_MUST_USE;
lc_tensor *lc__scaled_loss(lc_trainer *t, lc_tensor *loss); /* as the precision wants it */
/* Before a sync in which other ranks may have a loss and this one has none: its updates take the scale out of what they
 * get, as those of the others do. */
void lc__scale_no_loss(lc_trainer *t);
lc_status lc__backward_hooks(lc_trainer *t, lc_tensor *loss) LC_MUST_USE;

#endif
