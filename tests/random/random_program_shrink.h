/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a failing program of random_program.h smaller while it still fails: fewer steps, fewer instructions, leaves in
 * place of computed values, simpler numbers. */
#ifndef LC_TESTS_RANDOM_PROGRAM_SHRINK_H
#define LC_TESTS_RANDOM_PROGRAM_SHRINK_H

#include "random_program.h"

typedef bool fails_fn(void *ctx, const program *p);

/* p without instruction `at` and everything computed from it. */
static inline void without(const program *p, int at, program *out)
{
    int place[MAX_CODE];
    *out = *p;
    out->n = 0;
    for (int k = 0; k < p->n; k++) {
        instr c = p->code[k];
        bool gone = k == at;
        for (int j = 0; j < c.n_in; j++) {
            if (c.in[j] < 0) continue;
            if (place[c.in[j]] < 0) gone = true;
            c.in[j] = place[c.in[j]];
        }
        place[k] = gone ? -1 : out->n;
        if (!gone) out->code[out->n++] = c;
    }
}

/* p with input `with` of instruction `at` wherever the value of `at` is used. */
static inline void around(const program *p, int at, int with, program *out)
{
    program *q = &(program){0};
    *q = *p;
    for (int k = at + 1; k < q->n; k++)
        for (int j = 0; j < q->code[k].n_in; j++)
            if (q->code[k].in[j] == at) q->code[k].in[j] = p->code[at].in[with];
    without(q, at, out);
}

static inline void shrink(program *p, fails_fn *fails, void *ctx)
{
    static program less;
    bool again = true;
    while (again) {
        again = false;
        for (int steps = 1; steps < p->steps; steps++) {
            less = *p, less.steps = steps;
            if (fails(ctx, &less)) {
                *p = less, again = true;
                break;
            }
        }
        for (int at = p->n - 1; at >= 0; at--) {
            if (at >= p->n) continue;
            without(p, at, &less);
            bool better = less.n > 0 && fails(ctx, &less);
            for (int j = 0; !better && !is_effect(p->code[at].op) && j < p->code[at].n_in; j++) {
                if (p->code[at].in[j] < 0) continue;
                around(p, at, j, &less);
                better = fails(ctx, &less);
            }
            if (better) *p = less, again = true;
        }
        for (int at = 0; at < p->n; at++) {
            if (!p->code[at].no_grad || p->code[at].op == OP_assign) continue;
            less = *p, less.code[at].no_grad = false;
            if (fails(ctx, &less)) *p = less, again = true;
        }
    }
    for (int k = 0; k < p->n_leaves; k++) {
        less = *p;
        if (p->leaves[k].kind > INPUT) continue;
        for (int64_t i = 0; i < leaf_numel(&less.leaves[k]); i++) less.leaves[k].values[i] = 1 + 0.25 * (double)(i % 8);
        if (fails(ctx, &less)) *p = less;
    }
}

#endif
