/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy over the rows of a matrix in f64, and its gradient. Threads take rows; the losses of rows are added in
 * their order. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath_f64.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/nn_util.h"
#include "ops/ops.h"

#define RUN 512 /* exponentials that are computed before they are added */

/* ints: ignore_index, reduction; floats: label smoothing */
typedef struct job {
    const lc_call *call;
    const lc_view *x, *classes, *weight;
    int64_t n, c;
    double *losses, *weights; /* of rows */
    double all;               /* the sum of the weights of all classes */
} job;

static double weight_of(const job *j, int64_t k)
{
    return given(j->weight) ? ((const double *)j->weight->data)[k] : 1;
}

/* Whether the row counts; a class that does not exist is reported, and its result is NaN. */
static bool counts(const job *j, int input, int64_t row, int64_t *label, bool *exists)
{
    *label = lc__index_at(j->classes, row);
    *exists = *label >= 0 && *label < j->c;
    if (*label == j->call->ints[0]) return false;
    if (!*exists)
        lc_call_bad_index(j->call, &(lc_bad_index){.input = input,
                                                   .at = row,
                                                   .index = *label,
                                                   .size = j->c,
                                                   .or_name = "ignore_index",
                                                   .or_index = j->call->ints[0]});
    return true;
}

static double log_sum_exp(const double *x, int64_t n)
{
    const double top = row_max_f64(x, n);
    double sum = 0, run[RUN];
    for (int64_t first = 0; first < n; first += RUN) {
        int64_t count = n - first < RUN ? n - first : RUN;
        LC_IVDEP
        for (int64_t i = 0; i < count; i++) run[i] = vd_exp(x[first + i] - top);
        sum += row_sum_f64(run, count);
    }
    return top + log(sum);
}

/* ---- forward ---- */
static double loss_of(const job *j, const double *x, double norm, int64_t label)
{
    const double smoothing = j->call->floats[0];
    double loss = (1 - smoothing) * weight_of(j, label) * (norm - x[label]), rest = 0;
    if (smoothing == 0) return loss;
    for (int64_t k = 0; k < j->c; k++) rest += weight_of(j, k) * (norm - x[k]);
    return loss + smoothing / (double)j->c * rest;
}

static void forward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const double *x = (const double *)j->x->data + r * j->c, norm = log_sum_exp(x, j->c);
        int64_t label;
        bool exists;
        ((double *)j->call->out[1].data)[r] = norm;
        j->losses[r] = j->weights[r] = 0;
        if (!counts(j, 1, r, &label, &exists)) continue;
        j->losses[r] = exists ? loss_of(j, x, norm, label) : (double)NAN;
        j->weights[r] = exists ? weight_of(j, label) : 1;
    }
}

static void forward_run(const lc_call *call)
{
    job j = {.call = call, .x = &call->in[0], .classes = &call->in[1], .weight = &call->in[2]};
    double sum = 0, total = 0, *loss = call->out[0].data;
    j.n = j.x->shape[0], j.c = j.x->shape[1];
    j.losses = call->scratch;
    j.weights = j.losses + j.n;
    lc__parallel_for(call->threads, j.n, lc__block_size(j.c * 16, 1), forward_rows, &j);
    for (int64_t r = 0; r < j.n; r++) {
        sum += j.losses[r];
        total += j.weights[r];
        if (call->ints[1] == LC_REDUCE_NONE) loss[r] = j.losses[r];
    }
    if (call->ints[1] != LC_REDUCE_NONE) *loss = call->ints[1] == LC_REDUCE_MEAN ? sum / total : sum;
    *(double *)call->out[2].data = total;
}

static lc_status forward_prepare(lc_call *call)
{
    call->scratch_bytes = (size_t)call->in[0].shape[0] * 2 * sizeof(double);
    return LC_OK;
}

/* ---- backward ---- */
static void backward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc_call *call = j->call;
    const double smoothing = call->floats[0], *dloss = call->in[0].data, total = *(const double *)call->in[5].data;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const double *x = (const double *)j->x->data + r * j->c, norm = ((const double *)call->in[4].data)[r];
        double *to = (double *)call->out[0].data + r * j->c;
        int64_t label;
        bool exists;
        if (!counts(j, 2, r, &label, &exists)) {
            memset(to, 0, (size_t)j->c * sizeof *to);
            continue;
        }
        double scale = call->ints[1] == LC_REDUCE_NONE   ? dloss[r]
                       : call->ints[1] == LC_REDUCE_MEAN ? *dloss / total
                                                         : *dloss;
        double own = exists ? (1 - smoothing) * weight_of(j, label) : (double)NAN, spread = smoothing / (double)j->c;
        LC_IVDEP
        for (int64_t k = 0; k < j->c; k++) to[k] = scale * ((own + spread * j->all) * vd_exp(x[k] - norm));
        for (int64_t k = 0; spread != 0 && k < j->c; k++) to[k] -= scale * (spread * weight_of(j, k));
        if (!exists) continue;
        const double p = vd_exp(x[label] - norm); /* may be almost 1 */
        to[label] = scale * (own * (p - 1) + spread * (j->all * p - weight_of(j, label)));
    }
}

static void backward_run(const lc_call *call)
{
    job j = {.call = call, .x = &call->in[1], .classes = &call->in[2], .weight = &call->in[3]};
    j.n = j.x->shape[0], j.c = j.x->shape[1];
    for (int64_t k = 0; k < j.c; k++) j.all += weight_of(&j, k);
    lc__parallel_for(call->threads, j.n, lc__block_size(j.c * 16, 1), backward_rows, &j);
}

static bool supports(const lc_call *call)
{
    const lc_view *x = &call->in[call->op == &lc__op_cross_entropy ? 0 : 1];
    return x->dtype == LC_F64 && x->ndim == 2 && numel(x) > 0;
}

static const lc_kernel forward_kernel = {
    .name = "cross_entropy_f64_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = supports,
    .prepare = forward_prepare,
    .run = forward_run,
};

static const lc_kernel backward_kernel = {
    .name = "cross_entropy_backward_f64_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = supports,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__cross_entropy_f64_kernels)[] = {
    {&lc__op_cross_entropy, &forward_kernel},
    {&lc__op_cross_entropy_backward, &backward_kernel},
    {NULL, NULL},
};
