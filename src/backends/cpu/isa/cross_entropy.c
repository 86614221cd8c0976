/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy and its gradient if the classes of one place are contiguous: x[N,C], or channels-last x[N,C,*]. Each
 * place's loss is kept in scratch and added up in order. Places of 16 bits are computed in copies. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

typedef struct job {
    const lc_call *call;
    const lc_view *x, *t, *lse;
    int64_t classes, places, ignore;
    int64_t reduction;
    const float *weight;
    double smoothing, all_weights, scale;
    double *loss, *counted; /* per place */
    float *copies;          /* two places for each thread */
} job;

/* Offset of place p of a view [N,*]; of [N,C,*] with `skip` = 1. */
static int64_t place_at(const lc_view *v, int skip, int64_t p)
{
    int64_t at = 0;
    for (int d = v->ndim - 1; d > skip; d--) {
        at += p % v->shape[d] * v->stride[d];
        p /= v->shape[d];
    }
    return at + p * v->stride[0];
}

static int64_t label_at(const lc_view *t, int64_t p)
{
    int64_t at = place_at(t, 0, p);
    return t->dtype == LC_I64 ? ((const int64_t *)t->data)[at] : ((const int32_t *)t->data)[at];
}

static job job_of(const lc_call *call, int x)
{
    job j = {.call = call,
             .x = &call->in[x],
             .t = &call->in[x + 1],
             .ignore = call->ints[0],
             .reduction = call->ints[1],
             .weight = call->in[x + 2].data,
             .smoothing = call->floats[0]};
    j.classes = j.x->shape[1];
    j.places = numel(j.t);
    return j;
}

/* Whether a label that is not ignore_index is one of the classes; if not, the step fails. */
static bool is_class(const job *j, int input, int64_t place, int64_t label)
{
    if (label >= 0 && label < j->classes) return true;
    lc_call_bad_index(j->call, &(lc_bad_index){.input = input,
                                               .at = place,
                                               .index = label,
                                               .size = j->classes,
                                               .or_name = "ignore_index",
                                               .or_index = j->ignore});
    return false;
}

static size_t bytes_of_copies(const lc_call *call, const lc_view *x)
{
    const size_t threads = call->threads > 1 ? (size_t)call->threads : 1;
    return all_f32(x, 1) && all_f32(call->out, 1) ? 0 : threads * 2 * (size_t)x->shape[1] * sizeof(float);
}

static int64_t places_per_block(const job *j)
{
    return lc__block_size(j->classes * 16, 1); /* exponentials take longer than memory */
}

/* ---- forward ---- */
static void forward_places(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    float *copy = j->copies + thread * 2 * j->classes;
    for (int64_t p = begin; p < end; p++) {
        const float *x = floats_of(j->x->dtype, j->x->data, place_at(j->x, 1, p), j->classes, copy);
        const float max = row_max(x, j->classes);
        const double norm = (double)max + log(row_sum_exp(x, max, j->classes));
        ((float *)j->lse->data)[place_at(j->lse, 0, p)] = (float)norm;
        int64_t label = label_at(j->t, p);
        double each = 0, counted = 0;
        if (label != j->ignore && !is_class(j, 1, p, label)) {
            each = NAN;
            counted = 1;
        } else if (label != j->ignore) {
            counted = j->weight ? (double)j->weight[label] : 1;
            each = (1 - j->smoothing) * counted * (norm - (double)x[label]);
            if (j->smoothing != 0) {
                double sum = j->weight ? row_dot(x, j->weight, j->classes) : row_sum(x, j->classes);
                each += j->smoothing / (double)j->classes * (j->all_weights * norm - sum);
            }
        }
        j->loss[p] = each;
        j->counted[p] = counted;
    }
}

static double weights_of(const job *j)
{
    return j->weight ? row_sum(j->weight, j->classes) : (double)j->classes;
}

static void forward_run(const lc_call *call)
{
    job j = job_of(call, 0);
    j.lse = &call->out[1];
    j.loss = call->scratch;
    j.counted = j.loss + j.places;
    j.copies = (float *)(j.counted + j.places);
    if (j.smoothing != 0) j.all_weights = weights_of(&j);
    lc__parallel_for(call->threads, j.places, places_per_block(&j), forward_places, &j);
    double sum = 0, total = 0;
    float *loss = call->out[0].data;
    for (int64_t p = 0; p < j.places; p++) {
        sum += j.loss[p];
        total += j.counted[p];
        if (j.reduction == LC_REDUCE_NONE) loss[place_at(&call->out[0], 0, p)] = (float)j.loss[p];
    }
    if (j.reduction != LC_REDUCE_NONE) loss[0] = (float)(j.reduction == LC_REDUCE_MEAN ? sum / total : sum);
    *(float *)call->out[2].data = (float)total;
}

static bool supports(const lc_call *call, int x, const lc_view *like)
{
    const lc_view *v = &call->in[x], *t = &call->in[x + 1];
    if (!is_stored(v->dtype) || (v->shape[1] != 1 && v->stride[1] != 1)) return false;
    if (like && (!is_stored(like->dtype) || (like->shape[1] != 1 && like->stride[1] != 1))) return false;
    const lc_view *w = &call->in[x + 2];
    if (given(w) && (w->dtype != LC_F32 || !is_row_major(w))) return false;
    return t->dtype == LC_I64 || t->dtype == LC_I32;
}

static bool forward_supports(const lc_call *call)
{
    return supports(call, 0, NULL) && all_f32(call->out, call->n_out);
}

static lc_status forward_prepare(lc_call *call)
{
    call->scratch_bytes = (size_t)numel(&call->in[1]) * 2 * sizeof(double) + bytes_of_copies(call, &call->in[0]);
    return LC_OK;
}

static const lc_kernel forward_kernel = {
    .name = "cross_entropy_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = forward_supports,
    .prepare = forward_prepare,
    .run = forward_run,
};

/* ---- backward ---- */
static void backward_places(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc_view *dx = &j->call->out[0], *dloss = &j->call->in[0];
    const int64_t n = j->classes;
    float *copy = j->copies + thread * 2 * n;
    for (int64_t p = begin; p < end; p++) {
        const float *x = floats_of(j->x->dtype, j->x->data, place_at(j->x, 1, p), n, copy);
        const int64_t at = place_at(dx, 1, p);
        float *restrict to = floats_for(dx->dtype, dx->data, at, copy + n);
        int64_t label = label_at(j->t, p);
        if (label == j->ignore) {
            memset(to, 0, (size_t)n * sizeof *to);
            put_floats(dx->dtype, dx->data, at, n, to);
            continue;
        }
        const float norm = ((const float *)j->lse->data)[place_at(j->lse, 0, p)];
        double scale = j->scale;
        if (j->reduction == LC_REDUCE_NONE) scale = (double)((const float *)dloss->data)[place_at(dloss, 0, p)];
        bool inside = is_class(j, 2, p, label);
        double own = inside ? (1 - j->smoothing) * (j->weight ? (double)j->weight[label] : 1) : NAN;
        double smooth = j->smoothing / (double)n;
        const float factor = (float)(scale * (own + smooth * j->all_weights)), flat = (float)(scale * smooth);
        if (j->smoothing == 0) {
            LC_IVDEP
            for (int64_t i = 0; i < n; i++) to[i] = factor * vm_exp(x[i] - norm);
        } else if (!j->weight) {
            LC_IVDEP
            for (int64_t i = 0; i < n; i++) to[i] = factor * vm_exp(x[i] - norm) - flat;
        } else {
            LC_IVDEP
            for (int64_t i = 0; i < n; i++) to[i] = factor * vm_exp(x[i] - norm) - flat * j->weight[i];
        }
        if (inside) {
            /* Avoids a difference of rounded numbers when the probability is near 1. */
            double rest = scale * (own * expm1((double)x[label] - (double)norm) +
                                   smooth * (j->all_weights * exp((double)x[label] - (double)norm) -
                                             (j->weight ? (double)j->weight[label] : 1)));
            to[label] = (float)rest;
        }
        put_floats(dx->dtype, dx->data, at, n, to);
    }
}

static bool backward_supports(const lc_call *call)
{
    return supports(call, 1, &call->out[0]) && call->in[0].dtype == LC_F32 && call->in[4].dtype == LC_F32 &&
           call->in[5].dtype == LC_F32;
}

static lc_status backward_prepare(lc_call *call)
{
    call->scratch_bytes = bytes_of_copies(call, &call->in[1]);
    return LC_OK;
}

static void backward_run(const lc_call *call)
{
    job j = job_of(call, 1);
    j.lse = &call->in[4];
    j.copies = call->scratch;
    if (j.smoothing != 0) j.all_weights = weights_of(&j);
    if (j.reduction != LC_REDUCE_NONE) {
        j.scale = (double)*(const float *)call->in[0].data;
        if (j.reduction == LC_REDUCE_MEAN) j.scale /= (double)*(const float *)call->in[5].data;
    }
    lc__parallel_for(call->threads, j.places, places_per_block(&j), backward_places, &j);
}

static const lc_kernel backward_kernel = {
    .name = "cross_entropy_backward_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = backward_supports,
    .prepare = backward_prepare,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__cross_entropy_kernels)[] = {
    {&lc__op_cross_entropy, &forward_kernel},
    {&lc__op_cross_entropy_backward, &backward_kernel},
    {NULL, NULL},
};
