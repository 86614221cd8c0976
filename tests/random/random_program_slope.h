/* SPDX-License-Identifier: Apache-2.0 */
/* Judges backward without PyTorch: compares in f64 how a program's losses change along random directions of its
 * parameters (central differences) with its gradients. */
#ifndef LC_TESTS_RANDOM_PROGRAM_SLOPE_H
#define LC_TESTS_RANDOM_PROGRAM_SLOPE_H

#include "random_program_run.h"

/* Whether gradients explain all of a change of the parameters. Changes also pass through detach, values made where no
 * gradient is recorded, written tensors and draws, through which no gradient flows. */
static inline bool has_slopes(const program *p)
{
    bool backward = false;
    for (int k = 0; k < p->n; k++) {
        const instr *c = &p->code[k];
        bool moves = c->op == OP_batch_norm && c->in[3] >= 0;
        bool padded = c->op == OP_embedding && c->i[0];
        if (c->no_grad || c->op == OP_detach || c->op == OP_bernoulli || c->op == OP_assign || moves || padded)
            return false;
        backward |= c->op == OP_backward;
    }
    return backward;
}

static inline double sum_of_losses(const record *r)
{
    double sum = 0;
    for (int k = 0; k < r->n; k++)
        if (strstr(r->notes[k].name, ".loss")) sum += r->numbers[r->notes[k].at];
    return sum;
}

/* The losses of p with its parameters moved by `size` along `direction`; NAN if it fails. */
static inline double losses_at(const program *p, const double *direction, double size)
{
    static double shift[MAX_LEAVES * MAX_LEAF];
    static record moved;
    for (int i = 0; i < MAX_LEAVES * MAX_LEAF; i++) shift[i] = direction[i] * size;
    run_program(p, &(run_mode){.unplanned = true, .reference = true, .shift = shift}, &moved);
    return moved.error[0] ? NAN : sum_of_losses(&moved);
}

/* False, with a verdict, if a gradient is wrong. *judged: along how many directions the losses were smooth. */
static inline bool slopes_agree(const program *p, int64_t *judged, char *verdict, size_t verdict_size)
{
    static program q;
    static record base;
    static double direction[MAX_LEAVES * MAX_LEAF];
    if (!has_slopes(p)) return true;
    q = *p, q.steps = 1, q.dtype = LC_F64;
    for (int k = 0, n = 0; k < q.n_leaves; k++) /* losses have kinks at zeros and equal values */
        for (int64_t i = 0; q.leaves[k].kind <= INPUT && i < leaf_numel(&q.leaves[k]); i++)
            q.leaves[k].values[i] += 0.01 * lc_random_normal(17, (uint64_t)n++);
    run_program(&q, &(run_mode){0}, &base);
    double f = sum_of_losses(&base), passes = 0;
    if (base.error[0] || !isfinite(f)) return true;
    for (int k = 0; k < base.n; k++) passes += strstr(base.notes[k].name, ".loss") != NULL;
    for (int round = 0; round < 2; round++) {
        double slope = 0, size = fabs(f);
        int at = 0, n = 0;
        for (int i = 0; i < MAX_LEAVES * MAX_LEAF; i++)
            direction[i] = lc_random_normal(18 + (uint64_t)round, (uint64_t)i);
        for (int k = 0; k < base.n; k++) { /* gradients are means over the passes */
            const note *o = &base.notes[k];
            if (!strstr(o->name, ".grad")) continue;
            for (int64_t i = 0; i < o->n; i++, at++) {
                double part = passes * base.numbers[o->at + i] * direction[at];
                slope += part, size += fabs(part);
            }
            n++;
        }
        const double h = 2e-5;
        double up = losses_at(&q, direction, h), down = losses_at(&q, direction, -h);
        double half_up = losses_at(&q, direction, h / 2), half_down = losses_at(&q, direction, -h / 2);
        double wide = (up - down) / (2 * h), narrow = (half_up - half_down) / h;
        double bend = fabs(half_up - 2 * f + half_down) / (h / 2); /* does not shrink with h at a kink */
        double bound = 8 * fabs(wide - narrow) + 2 * bend + 1e-7 * size;
        if (n == 0 || !isfinite(slope) || !(bound < 1e-3 * (size + 1e-3))) continue;
        ++*judged;
        if (fabs(slope - narrow) <= bound) continue;
        snprintf(verdict, verdict_size, "differs: slope by the gradients %.10g, by differences %.10g (+- %.2g)", slope,
                 narrow, bound);
        return false;
    }
    return true;
}

#endif
