/* SPDX-License-Identifier: Apache-2.0 */
/* One thread or all of them, and which of several kernels, call by call.
 *
 * The number of threads is estimated; the first kernel that can do the call is taken. With lc_graph_args.tune, if the
 * estimate is unclear or there is more than one kernel, all candidates are timed on scratch data when the plan is made,
 * within a limit of time (tune.h: what happens to the choice). */
#include "engine/plan/tune.h"

#include "record/graph_impl.h"
#include "base/clock.h"
#include "ops/kernel.h"

#include <stdlib.h>
#include <string.h>

#define WORTH_US     12                  /* from here on a second thread is expected to pay */
#define UNSURE       4                   /* within this factor of WORTH_US the estimate is unclear */
#define MARGIN       0.95                /* another kernel must be faster by this factor: noise decides nothing */
#define MAX_SECONDS  5.0                 /* spent measuring per graph */
#define MAX_BYTES    ((size_t)256 << 20) /* of operands */
#define MAX_OPERANDS 16
#define MAX_KERNELS  8
#define MAX_RUNS     20

/* ---- the estimate ---- */

/* Microseconds on one thread, roughly. */
static double estimate(const lc_call *c)
{
    double elements = 0, work = 0;
    for (int i = 0; i < c->n_in; i++) elements += lc__view_numel(&c->in[i]);
    for (int i = 0; i < c->n_out; i++) elements += lc__view_numel(&c->out[i]);
    if (c->n_in >= 2 && c->in[1].ndim >= 2 && !(c->op->flags & LC_OP_ELEMENTWISE)) {
        /* An upper bound of multiplications of matrix-like operators: geometric mean of operand sizes, cubed. */
        double cube =
            lc__view_numel(&c->in[0]) * lc__view_numel(&c->in[1]) * (c->n_out ? lc__view_numel(&c->out[0]) : 1);
        work = cube > 0 ? __builtin_sqrt(cube) : 0;
    }
    return elements * 4 / 20e3 + work * 2 / 60e3;
}

/* Waking a thread costs about a microsecond, and more on a busy machine; small calls are faster on one. */
bool lc__worth_threads(const lc_call *c)
{
    return estimate(c) > WORTH_US;
}

/* ---- candidates ---- */

typedef struct candidate {
    const lc_kernel *kernel;
    int threads;
} candidate;

/* Lists the candidates, the present choice first. */
static lc_status list_candidates(const lc_graph *g, const lc_call *call, candidate *list, int *n)
{
    double us = estimate(call);
    bool unsure = g->threads > 1 && us > WORTH_US / (double)UNSURE && us < WORTH_US * (double)UNSURE &&
                  !(call->kernel->flags & LC_KERNEL_SERIAL);
    lc_call c = *call;
    list[0] = (candidate){call->kernel, call->threads};
    *n = 1;
    for (int other = 0; other < (unsure ? 2 : 1); other++) {
        const lc_kernel *kernels[MAX_KERNELS / 2];
        int found;
        c.threads = !other ? call->threads : call->threads > 1 ? 1 : g->threads;
        LC_TRY(lc__find_kernels(g->on, g->kernel_set, &c, MAX_KERNELS / 2, kernels, &found));
        for (int i = 0; i < found; i++) {
            bool same_use = kernels[i]->layout == call->kernel->layout && kernels[i]->flags == call->kernel->flags;
            if (same_use && (other || kernels[i] != call->kernel)) list[(*n)++] = (candidate){kernels[i], c.threads};
        }
    }
    return LC_OK;
}

/* ---- measuring ---- */

static double seconds_since(int64_t start)
{
    return 1e-9 * (double)(lc__now_ns() - start);
}

/* Bytes from the first to the last element; 0: too many. */
static size_t span(const lc_view *v)
{
    double last = 0;
    for (int d = 0; d < v->ndim; d++) {
        if (v->shape[d] < 1) return 0;
        last += (double)(v->shape[d] - 1) * (double)v->stride[d];
    }
    return last > (double)MAX_BYTES ? 0 : ((size_t)last + 1) * lc_dtype_size(v->dtype);
}

/* Fills with numbers around zero; integers are zero, which is always valid as a label or an index. */
static void fill(const lc_view *v, size_t bytes)
{
    uint32_t r = 1;
    for (size_t i = 0; v->dtype == LC_F32 && i < bytes / sizeof(float); i++) {
        r = r * 1664525u + 1013904223u;
        ((float *)v->data)[i] = (float)(r >> 8) * 0x1p-24f - 0.5f;
    }
}

/* The fastest of some runs; HUGE_VAL if the kernel cannot be prepared. */
static lc_status measure(const lc_graph *g, lc_call *c, const candidate *what, double *seconds)
{
    lc_status status;
    void *scratch = NULL;
    *seconds = __builtin_huge_val();
    c->kernel = what->kernel;
    c->threads = what->threads;
    c->state = NULL;
    c->scratch_bytes = 0;
    if (c->kernel->prepare && (status = c->kernel->prepare(c)) < 0) return status == LC_ERR_MEMORY ? status : LC_OK;
    size_t bytes = c->scratch_bytes;
    LC_TRY_GOTO(status, done, bytes ? g->on->ops->alloc(g->on->context, bytes, &scratch) : LC_OK);
    c->scratch = scratch;
    double total = 0;
    for (int run = 0; run < MAX_RUNS && (run < 4 || total < 1e-3); run++) {
        int64_t start = lc__now_ns();
        c->kernel->run(c);
        double t = seconds_since(start);
        total += t;
        if (run && t < *seconds) *seconds = t;
    }
done:
    if (c->kernel->release) c->kernel->release(c);
    if (scratch) g->on->ops->free(g->on->context, scratch, bytes);
    return status;
}

/* The fastest candidate. *best stays 0 if the call is too large to be tried. */
static lc_status race(const lc_graph *g, const lc_call *call, const candidate *list, int n, int *best)
{
    lc_status status = LC_OK;
    lc_view views[MAX_OPERANDS];
    size_t bytes[MAX_OPERANDS], all = 0;
    int n_views = call->n_in + call->n_out;
    double least = 0, seconds;
    lc_call c = *call;
    memset(views, 0, sizeof views);
    *best = 0;
    for (int i = 0; i < n_views; i++) {
        const lc_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        bytes[i] = v->ndim < 0 ? 0 : span(v);
        all += bytes[i];
        if ((v->ndim >= 0 && !bytes[i]) || all > MAX_BYTES) n_views = i; /* too large: nothing has been allocated yet */
    }
    if (n_views < call->n_in + call->n_out) return LC_OK;
    for (int i = 0; i < n_views; i++) {
        views[i] = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        views[i].data = NULL;
        if (views[i].ndim >= 0) LC_TRY_GOTO(status, done, g->on->ops->alloc(g->on->context, bytes[i], &views[i].data));
        if (views[i].ndim >= 0) fill(&views[i], bytes[i]);
    }
    c.in = views;
    c.out = views + call->n_in;
    for (int i = 0; i < n; i++) {
        LC_TRY_GOTO(status, done, measure(g, &c, &list[i], &seconds));
        if (i == 0 || seconds < least * (*best ? 1 : MARGIN)) {
            least = seconds;
            *best = i;
        }
    }
done:
    for (int i = 0; i < n_views; i++)
        if (views[i].data) g->on->ops->free(g->on->context, views[i].data, bytes[i]);
    return status;
}

/* ---- choosing ---- */

lc_status lc__tune(lc_graph *g, lc_call *call)
{
    lc_status status = LC_OK;
    lc__tuning *t = g->tuning;
    candidate list[MAX_KERNELS + 1];
    char *key = NULL;
    int n, best = 0;
    if ((!t->on && !t->n) || g->options.deterministic || call->kernel == call->op->kernel || !lc__on_host(g->on) ||
        call->n_in + call->n_out > MAX_OPERANDS)
        return LC_OK;
    int64_t start = lc__now_ns();
    LC_TRY(list_candidates(g, call, list, &n));
    if (n < 2) return LC_OK;
    LC_TRY(lc__tuning_key(call, &key));
    const lc__choice *known = lc__tuning_find(t, key);
    if (known) {
        for (int i = 1; i < n; i++)
            if (list[i].threads == known->threads && !strcmp(list[i].kernel->name, known->kernel)) best = i;
    } else if (t->on) {
        bool time_left = t->seconds < MAX_SECONDS;
        if (time_left) LC_TRY_GOTO(status, done, race(g, call, list, n, &best));
        LC_TRY_GOTO(status, done, lc__tuning_add(t, key, list[best].kernel->name, list[best].threads, time_left));
        t->seconds += seconds_since(start);
    }
    call->kernel = list[best].kernel;
    call->threads = list[best].threads;
done:
    free(key);
    return status;
}
