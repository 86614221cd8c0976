/* SPDX-License-Identifier: Apache-2.0 */
/* Trainable parameters that never get a gradient: they do not change, which is rarely intended. Reported once, after
 * the first steps of a fit in which other parameters of the optimizer had one (a step may leave out a part of the
 * model). With several ranks, has_gradient covers all ranks. */
#include "core/loop/loop.h"
#include "core/hooks/trainer_internal.h"
#include "base/str.h"
#include "optim/optim_internal.h"
#include "record/graph_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, NAMED = 8 };

struct lc__unused {
    int64_t steps[LC_MAX_OPTIMIZERS]; /* steps examined; -1: already reported */
    bool *used;                       /* for each parameter, by optimizer, then by group */
    int n;                            /* parameters; unfreezing may add some */
};

static int parameters_of(const lc_optimizer *o)
{
    int n = 0;
    for (int i = 0; i < o->n_groups; i++) n += o->groups[i].n_parameters;
    return n;
}

static int all_parameters(const lc_trainer *t)
{
    int n = 0;
    for (int i = 0; i < t->optimizers.n; i++) n += parameters_of(t->optimizers.optimizers[i].optimizer);
    return n;
}

/* Parameter k of an optimizer, counted over all its groups. */
static lc_tensor *parameter(const lc_optimizer *o, int k)
{
    int i = 0;
    while (k >= o->groups[i].n_parameters) k -= o->groups[i++].n_parameters;
    return o->groups[i].parameters[k];
}

typedef struct name_of {
    const lc_tensor *t;
    lc__str *out;
} name_of;

static lc_status add_name(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    name_of *n = ctx;
    (void)owner;
    if (mt->tensor != n->t) return LC_OK;
    lc__str_add(n->out, "%s%s", n->out->n ? ", " : "", path);
    return LC_OK;
}

static lc_status report(lc_trainer *t, const lc_optimizer *o, const bool *used, int64_t steps)
{
    lc__str names = {0};
    int n = 0;
    lc_status s = LC_OK;
    for (int k = 0; k < parameters_of(o) && s >= 0; k++) {
        lc_tensor *p = parameter(o, k);
        if (used[k] || !p->requires_grad || n++ >= NAMED) continue;
        s = lc_module_visit(t->m, add_name, &(name_of){.t = p, .out = &names});
    }
    if (n > NAMED) lc__str_add(&names, " and %d more", n - NAMED);
    if (names.failed) s = lc_fail(LC_ERR_MEMORY, "out of memory: names of parameters");
    char first[32] = "step";
    if (steps > 1) snprintf(first, sizeof first, "%lld steps", (long long)steps);
    if (s >= 0 && n)
        lc_trainer_message(t, LC_WARNING,
                           "no gradient%s in the first %s, so nothing trains %s: %s; use %s in the loss, or freeze %s "
                           "(lc_tensor_set_requires_grad)",
                           t->comm ? " on any rank" : "", first, n == 1 ? "this parameter" : "these parameters",
                           names.s ? names.s : "", n == 1 ? "it" : "them", n == 1 ? "it" : "them");
    lc__str_free(&names);
    return s;
}

void lc__unused_free(lc_trainer *t)
{
    if (t->loop->unused) free(t->loop->unused->used);
    free(t->loop->unused);
    t->loop->unused = NULL;
}

lc_status lc__unused_begin(lc_trainer *t)
{
    int n = all_parameters(t);
    lc__unused_free(t);
    lc__unused *u = t->loop->unused = calloc(1, sizeof *u);
    if (u) u->used = calloc((size_t)n + 1, sizeof *u->used);
    if (u) u->n = n;
    return u && u->used ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: %d parameters", n);
}

static lc_status look(lc_trainer *t, bool last)
{
    lc__unused *u = t->loop->unused;
    bool *used = u->used, all_reported = true;
    for (int i = 0; i < t->optimizers.n; i++) {
        const lc_optimizer *o = t->optimizers.optimizers[i].optimizer;
        int n = parameters_of(o);
        bool any = false;
        for (int k = 0; k < n && u->steps[i] >= 0 && !last; k++) {
            const lc_tensor *p = parameter(o, k);
            bool has = p->flat && p->flat->has_gradient[p->flat_index];
            used[k] |= has;
            any |= has;
        }
        u->steps[i] += any; /* none: another optimizer's turn, or gradients are already zeroed */
        if (u->steps[i] >= STEPS || (last && u->steps[i] > 0)) {
            LC_TRY(report(t, o, used, u->steps[i]));
            u->steps[i] = -1;
        }
        all_reported &= u->steps[i] < 0;
        used += n;
    }
    if (all_reported || last) lc__unused_free(t);
    return LC_OK;
}

lc_status lc__unused_look(lc_trainer *t)
{
    if (!t->loop->unused) return LC_OK;
    if (t->loop->unused->n != all_parameters(t)) LC_TRY(lc__unused_begin(t));
    return look(t, false);
}

lc_status lc__unused_end(lc_trainer *t)
{
    return t->loop->unused && t->loop->unused->n == all_parameters(t) ? look(t, true) : LC_OK;
}
