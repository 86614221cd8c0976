/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a forward pass, layer by layer, from a step that is recorded and not run. */
#ifndef LC_CALLBACKS_MODEL_COST_H
#define LC_CALLBACKS_MODEL_COST_H

#include "callbacks/callbacks.h"

typedef struct lc__module_cost {
    const lc_module *m;
    bool training; /* its mode, which recording the step changes for a while */
    double flops;
    bool seen; /* an operation uses a parameter of it or of a submodule: `in` and `out` are set */
    lc_type in, out;
} lc__module_cost;

/* One entry per module of the trainer, the root first; free it with free(). Operations without parameters (attention)
 * count only for the root. */
lc_status lc__model_cost(lc_trainer *t, const lc_type *inputs, int n_inputs, lc__module_cost **out, int *n) LC_MUST_USE;

#endif
