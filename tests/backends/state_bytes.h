/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a steady step copies to its device besides the batch. */
#ifndef LC_TESTS_STATE_BYTES_H
#define LC_TESTS_STATE_BYTES_H

#include "record/graph_impl.h"

/* In the memory of a plan, each piece begins at a multiple of 256 bytes. */
static inline int64_t in_pieces(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The key of random numbers, and the floats of all calls, of the plan that has run most often. */
static inline int64_t state_bytes(const lc_graph *g)
{
    const lc_plan *p = g->plans[0];
    int64_t floats = 0;
    for (int i = 1; i < g->n_plans; i++)
        if (g->plans[i]->block.runs > p->block.runs) p = g->plans[i];
    for (int i = 0; i < p->n_calls; i++) floats += p->calls[i].call.n_float;
    return in_pieces(sizeof g->rng) + in_pieces(floats * (int64_t)sizeof(double));
}

#endif
