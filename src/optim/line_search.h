/* SPDX-License-Identifier: Apache-2.0 */
/* A line search: how far to go in one direction (J. Nocedal and S. Wright, "Numerical Optimization", 3.5). It makes
 * PyTorch's tests in PyTorch's order, so that both take the same path. */
#ifndef LC_OPTIM_LINE_SEARCH_H
#define LC_OPTIM_LINE_SEARCH_H

#include <lightc/status.h>
#include <stdint.h>

typedef struct lc__line {
    int64_t n;              /* of the parameters, and of all vectors */
    const double *d;        /* the direction */
    double slope;           /* of the loss at the start */
    double *gradient;       /* at the point that was evaluated last; at first, at the start */
    double *ends[2], *last; /* room for gradients */
    /* Moves the parameters to start + t d, and computes loss and gradient there. */
    lc_status (*evaluate)(void *ctx, double t, double *loss);
    void *ctx;
} lc__line;

/* Searches for a step with the strong conditions of Wolfe. *t: in, the first trial; out, the step; *loss: in, at the
 * start; out, at the step, as the gradient. `most`: evaluations allowed after the first trial. */
lc_status lc__strong_wolfe(const lc__line *l, int most, double *t, double *loss, int *evaluations) LC_MUST_USE;

#endif
