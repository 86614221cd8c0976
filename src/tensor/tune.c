/* SPDX-License-Identifier: Apache-2.0 */
/* One thread or all of them, call by call. */
#include "tensor/plan_impl.h"

static double elements_of(const lc_view *v)
{
    double n = v->ndim < 0 ? 0 : 1;
    for (int d = 0; d < v->ndim; d++) n *= (double)v->shape[d];
    return n;
}

/* A thread costs about a microsecond to wake; below some work one is faster. */
bool lc__worth_threads(const lc_call *c)
{
    double elements = 0, work = 0;
    for (int i = 0; i < c->n_in; i++) elements += elements_of(&c->in[i]);
    for (int i = 0; i < c->n_out; i++) elements += elements_of(&c->out[i]);
    if (c->n_in >= 2 && c->in[1].ndim >= 2 && !(c->op->flags & LC_OP_ELEMENTWISE)) {
        /* An upper bound of multiplications of matrix-like operators: geometric mean of operand sizes, cubed. */
        double cube = elements_of(&c->in[0]) * elements_of(&c->in[1]) * (c->n_out ? elements_of(&c->out[0]) : 1);
        work = cube > 0 ? __builtin_sqrt(cube) : 0;
    }
    return elements * 4 / 20e3 + work * 2 / 60e3 > 12; /* microseconds */
}
