/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalization over channels-last activations, seen as a matrix [M, C] (wide.h): one pass for the statistics,
 * one for the result. Sums are taken of differences from a pivot near the mean, so that they do not cancel. With
 * pooling, and its backward: batch_norm_pool.h. */
#include "backends/cpu/isa/batch_norm.h"

#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <math.h>

/* ---- sums over columns ---- */
/* s1[l] += sum of (x - pivot), s2[l] += sum of (x - pivot)^2 over rows of `lanes` values. */
LC_INLINE void moments_chunk(const lc_dtype t, const void *x, const float *pivot, int64_t rows, int64_t lanes,
                             float *s1, float *s2, const int width)
{
    vf p[4], t1[4], t2[4];
    for (int u = 0; u < width; u++) {
        p[u] = vload(pivot + u * VW);
        t1[u] = t2[u] = vzero();
    }
    for (int64_t r = 0; r < rows; r += SUM_ROWS) {
        vf a1[4], a2[4];
        int64_t end = rows - r < SUM_ROWS ? rows : r + SUM_ROWS;
        for (int u = 0; u < width; u++) a1[u] = a2[u] = vzero();
        for (int64_t i = r; i < end; i++) {
            for (int u = 0; u < width; u++) {
                fetch_ahead(t, x, i * lanes, lanes, u);
                vf d = vget(t, x, i * lanes + u * VW) - p[u];
                a1[u] += d;
                a2[u] += d * d;
            }
        }
        for (int u = 0; u < width; u++) {
            t1[u] += a1[u];
            t2[u] += a2[u];
        }
    }
    for (int u = 0; u < width; u++) {
        vstore(s1 + u * VW, vload(s1 + u * VW) + t1[u]);
        vstore(s2 + u * VW, vload(s2 + u * VW) + t2[u]);
    }
}

LC_INLINE void moments(const lc_dtype t, const void *x, const float *pivot, int64_t rows, int64_t lanes, int64_t count,
                       float *s1, float *s2)
{
    int64_t l = 0;
    for (; l + 4 * VW <= count; l += 4 * VW)
        moments_chunk(t, stored_at(t, x, l), pivot + l, rows, lanes, s1 + l, s2 + l, 4);
    for (; l + VW <= count; l += VW) moments_chunk(t, stored_at(t, x, l), pivot + l, rows, lanes, s1 + l, s2 + l, 1);
    for (; l < count; l++) {
        float t1 = 0, t2 = 0;
        for (int64_t r = 0; r < rows; r += SUM_ROWS) {
            float a1 = 0, a2 = 0;
            int64_t end = rows - r < SUM_ROWS ? rows : r + SUM_ROWS;
            for (int64_t i = r; i < end; i++) {
                float d = get(t, x, i * lanes + l) - pivot[l];
                a1 += d;
                a2 += d * d;
            }
            t1 += a1;
            t2 += a2;
        }
        s1[l] += t1;
        s2[l] += t2;
    }
}

typedef struct moments_job {
    const wide *w;
    lc_dtype dtype;
    const void *x;
    const float *pivot;
    float *partial; /* per block: s1[lanes], s2[lanes] */
} moments_job;

LC_INLINE void moments_blocks(const lc_dtype t, const moments_job *j, int64_t begin, int64_t end)
{
    const wide *w = j->w;
    for (int64_t b = begin; b < end; b++) {
        float *s1 = j->partial + b * 2 * w->lanes, *s2 = s1 + w->lanes;
        memset(s1, 0, (size_t)(2 * w->lanes) * sizeof *s1);
        int64_t first = b * w->rows_per_block;
        int64_t rows = w->rows - first < w->rows_per_block ? w->rows - first : w->rows_per_block;
        moments(t, stored_at(t, j->x, first * w->lanes), j->pivot, rows, w->lanes, w->lanes, s1, s2);
        if (b == w->blocks - 1 && w->tail)
            moments(t, stored_at(t, j->x, w->rows * w->lanes), j->pivot, 1, w->lanes, w->tail, s1, s2);
    }
}

static void moments_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const moments_job *j = context;
    (void)thread;
    STORED(j->dtype, moments_blocks, j, begin, end);
}

size_t LC_ISA_NAME(lc__bn_statistics_scratch)(const wide *w)
{
    return (size_t)(w->blocks * 2 * w->lanes + w->lanes) * sizeof(float) +
           (size_t)(w->lanes + 2 * w->c) * sizeof(double);
}

LC_INLINE void add_row(const lc_dtype t, const void *x, int64_t first, int64_t n, float *sum)
{
    for (int64_t i = 0; i < n; i++) sum[i] += get(t, x, first + i);
}

void LC_ISA_NAME(lc__bn_statistics)(const wide *w, int threads, const lc_view *x, void *scratch, float *mean,
                                    float *var)
{
    double *lane_sums = scratch, *sum1 = lane_sums + w->lanes, *sum2 = sum1 + w->c;
    float *pivot = (float *)(sum2 + w->c), *partial = pivot + w->lanes;
    /* The mean of some rows spread over the batch. */
    int64_t samples = w->m < 32 ? w->m : 32, c = w->c;
    for (int64_t i = 0; i < c; i++) pivot[i] = 0;
    for (int64_t s = 0; s < samples; s++) {
        const int64_t row = w->m * s / samples * c;
        STORED(x->dtype, add_row, x->data, row, c, pivot);
    }
    for (int64_t i = 0; i < c; i++) pivot[i] /= (float)samples;
    for (int64_t f = 1; f < w->fold; f++) memcpy(pivot + f * c, pivot, (size_t)c * sizeof *pivot);
    moments_job j = {w, x->dtype, x->data, pivot, partial};
    lc__parallel_for(threads, w->blocks, 1, moments_block, &j);
    wide_total(w, partial, 2 * w->lanes, lane_sums, sum1);
    wide_total(w, partial + w->lanes, 2 * w->lanes, lane_sums, sum2);
    for (int64_t i = 0; i < c; i++) {
        double d = sum1[i] / (double)w->m, v = sum2[i] / (double)w->m - d * d;
        mean[i] = (float)(pivot[i] + d);
        var[i] = (float)(v < 0 ? 0 : v);
    }
}

/* ---- y = (x - mean) * scale + bias ---- */
void LC_ISA_NAME(lc__bn_parameters)(const wide *w, const float *mean, const float *var, const float *weight,
                                    const float *bias, double eps, float *to)
{
    float *m = to, *s = m + w->lanes, *b = s + w->lanes;
    for (int64_t i = 0; i < w->c; i++) {
        m[i] = mean[i];
        s[i] = (float)((weight ? (double)weight[i] : 1.0) / sqrt((double)var[i] + eps));
        b[i] = bias ? bias[i] : 0.f;
    }
    for (int64_t f = 1; f < w->fold; f++) {
        for (int k = 0; k < 3; k++) memcpy(to + k * w->lanes + f * w->c, to + k * w->lanes, (size_t)w->c * sizeof *to);
    }
}

typedef struct affine_job {
    const wide *w;
    lc_dtype dtype;
    const void *x;
    const float *parameters;
    void *y;
    bool relu;
} affine_job;

LC_INLINE void affine_rows(const lc_dtype t, const affine_job *j, int64_t at, int64_t rows, int64_t count,
                           const bool relu)
{
    const int64_t lanes = j->w->lanes;
    const float *m = j->parameters, *s = m + lanes, *b = s + lanes;
    for (int64_t r = 0; r < rows; r++) {
        const void *from = stored_at(t, j->x, at + r * lanes);
        void *to = stored_at(t, j->y, at + r * lanes);
        int64_t l = 0;
        for (; l + VW <= count; l += VW) {
            vf z = vscaled(vget(t, from, l) - vload(m + l), vload(s + l), vload(b + l));
            vput(t, to, l, relu ? vselect(z <= vzero(), vzero(), z) : z);
        }
        for (; l < count; l++) {
            float z = scaled(get(t, from, l) - m[l], s[l], b[l]);
            put(t, to, l, relu && z <= 0.f ? 0.f : z);
        }
    }
}

LC_INLINE void affine_blocks(const lc_dtype t, const affine_job *j, int64_t begin, int64_t end)
{
    const wide *w = j->w;
    for (int64_t k = begin; k < end; k++) {
        int64_t first = k * w->rows_per_block;
        int64_t rows = w->rows - first < w->rows_per_block ? w->rows - first : w->rows_per_block;
        int64_t at = first * w->lanes, tail_at = w->rows * w->lanes;
        int64_t tail = k == w->blocks - 1 && w->tail ? w->tail : 0;
        if (j->relu) {
            affine_rows(t, j, at, rows, w->lanes, true);
            affine_rows(t, j, tail_at, tail != 0, tail, true);
        } else {
            affine_rows(t, j, at, rows, w->lanes, false);
            affine_rows(t, j, tail_at, tail != 0, tail, false);
        }
    }
}

static void affine_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const affine_job *j = context;
    (void)thread;
    STORED(j->dtype, affine_blocks, j, begin, end);
}

/* ---- forward ---- */
static wide wide_of(const lc_view *x)
{
    return wide_make(numel(x) / x->shape[1], x->shape[1]);
}

static bool forward_supports(const lc_call *call)
{
    const lc_view *x = &call->in[0];
    return x->ndim >= 2 && numel(x) > 0 && is_stored(x->dtype) && call->out[0].dtype == x->dtype &&
           all_f32(call->in + 1, call->n_in - 1) && all_f32(call->out + 1, call->n_out - 1);
}

static lc_status forward_prepare(lc_call *call)
{
    wide w = wide_of(&call->in[0]);
    call->scratch_bytes = LC_ISA_NAME(lc__bn_statistics_scratch)(&w) + (size_t)(3 * w.lanes) * sizeof(float);
    return LC_OK;
}

static void forward_run(const lc_call *call)
{
    wide w = wide_of(&call->in[0]);
    float *parameters = call->scratch, *mean = call->out[1].data, *var = call->out[2].data;
    LC_ISA_NAME(lc__bn_statistics)(&w, call->threads, &call->in[0], parameters + 3 * w.lanes, mean, var);
    LC_ISA_NAME(lc__bn_parameters)(&w, mean, var, call->in[1].data, call->in[2].data, call->floats[0], parameters);
    affine_job j = {&w, call->in[0].dtype, call->in[0].data, parameters, call->out[0].data, call->ints[0] == 1};
    lc__parallel_for(call->threads, w.blocks, 1, affine_block, &j);
}

static const lc_kernel forward_kernel = {
    .name = "batch_norm_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = forward_supports,
    .prepare = forward_prepare,
    .run = forward_run,
};

/* ---- inference ---- */
static lc_status inference_prepare(lc_call *call)
{
    wide w = wide_of(&call->in[0]);
    call->scratch_bytes = (size_t)(3 * w.lanes) * sizeof(float);
    return LC_OK;
}

static void inference_run(const lc_call *call)
{
    wide w = wide_of(&call->in[0]);
    float *parameters = call->scratch;
    LC_ISA_NAME(lc__bn_parameters)
    (&w, call->in[3].data, call->in[4].data, call->in[1].data, call->in[2].data, call->floats[0], parameters);
    affine_job j = {&w, call->in[0].dtype, call->in[0].data, parameters, call->out[0].data, call->ints[0] == 1};
    lc__parallel_for(call->threads, w.blocks, 1, affine_block, &j);
}

static const lc_kernel inference_kernel = {
    .name = "batch_norm_inference_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = forward_supports,
    .prepare = inference_prepare,
    .run = inference_run,
};

/* ---- backward ---- */
typedef struct backward_job {
    const wide *w;
    lc_dtype dtype;
    const void *dy, *x;
    const float *parameters; /* mean, scale, bias; then the factors for the second pass */
    float *partial;
    void *dx, *y; /* y: the result, with relu, once more; NULL: not wanted */
    bool relu;
} backward_job;

/* s1 += sum of dy, s2 += sum of dy (x - mean), where dy counts only if the result, as it was stored, is positive. */
LC_INLINE void backward_sums_chunk(const lc_dtype t, const void *dy, const void *x, const float *m, const float *s,
                                   const float *b, int64_t rows, int64_t lanes, float *s1, float *s2, const bool relu,
                                   const int width)
{
    vf vm[2], vs[2], vb[2], t1[2], t2[2];
    for (int u = 0; u < width; u++) {
        vm[u] = vload(m + u * VW);
        vs[u] = vload(s + u * VW);
        vb[u] = vload(b + u * VW);
        t1[u] = t2[u] = vzero();
    }
    for (int64_t r = 0; r < rows; r += SUM_ROWS) {
        vf a1[2], a2[2];
        int64_t end = rows - r < SUM_ROWS ? rows : r + SUM_ROWS;
        for (int u = 0; u < width; u++) a1[u] = a2[u] = vzero();
        for (int64_t i = r; i < end; i++) {
            for (int u = 0; u < width; u++) {
                fetch_ahead(t, x, i * lanes, lanes, u);
                fetch_ahead(t, dy, i * lanes, lanes, u);
                vf d = vget(t, x, i * lanes + u * VW) - vm[u], g = vget(t, dy, i * lanes + u * VW);
                if (relu) g = vselect(vscaled(d, vs[u], vb[u]) <= vanishing(t), vzero(), g);
                a1[u] += g;
                a2[u] += g * d;
            }
        }
        for (int u = 0; u < width; u++) {
            t1[u] += a1[u];
            t2[u] += a2[u];
        }
    }
    for (int u = 0; u < width; u++) {
        vstore(s1 + u * VW, vload(s1 + u * VW) + t1[u]);
        vstore(s2 + u * VW, vload(s2 + u * VW) + t2[u]);
    }
}

LC_INLINE void backward_sums(const lc_dtype t, const backward_job *j, int64_t at, int64_t rows, int64_t count,
                             float *s1, float *s2, const bool relu)
{
    const int64_t lanes = j->w->lanes;
    const float *m = j->parameters, *s = m + lanes, *b = s + lanes;
    const void *dy = stored_at(t, j->dy, at), *x = stored_at(t, j->x, at);
    int64_t l = 0;
    for (; l + 2 * VW <= count; l += 2 * VW)
        backward_sums_chunk(t, stored_at(t, dy, l), stored_at(t, x, l), m + l, s + l, b + l, rows, lanes, s1 + l,
                            s2 + l, relu, 2);
    for (; l < count; l++) {
        float t1 = 0, t2 = 0;
        for (int64_t r = 0; r < rows; r += SUM_ROWS) {
            float a1 = 0, a2 = 0;
            int64_t end = rows - r < SUM_ROWS ? rows : r + SUM_ROWS;
            for (int64_t i = r; i < end; i++) {
                float d = get(t, x, i * lanes + l) - m[l], g = get(t, dy, i * lanes + l);
                if (relu && scaled(d, s[l], b[l]) <= vanishing_number(t)) g = 0.f;
                a1 += g;
                a2 += g * d;
            }
            t1 += a1;
            t2 += a2;
        }
        s1[l] += t1;
        s2[l] += t2;
    }
}

LC_INLINE void backward_sums_blocks(const lc_dtype t, const backward_job *j, int64_t begin, int64_t end)
{
    const wide *w = j->w;
    for (int64_t k = begin; k < end; k++) {
        float *s1 = j->partial + k * 2 * w->lanes, *s2 = s1 + w->lanes;
        memset(s1, 0, (size_t)(2 * w->lanes) * sizeof *s1);
        int64_t first = k * w->rows_per_block;
        int64_t rows = w->rows - first < w->rows_per_block ? w->rows - first : w->rows_per_block;
        int64_t at = first * w->lanes, tail_at = w->rows * w->lanes;
        int64_t tail = k == w->blocks - 1 ? w->tail : 0;
        if (j->relu) {
            backward_sums(t, j, at, rows, w->lanes, s1, s2, true);
            backward_sums(t, j, tail_at, tail != 0, tail, s1, s2, true);
        } else {
            backward_sums(t, j, at, rows, w->lanes, s1, s2, false);
            backward_sums(t, j, tail_at, tail != 0, tail, s1, s2, false);
        }
    }
}

static void backward_sums_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const backward_job *j = context;
    (void)thread;
    STORED(j->dtype, backward_sums_blocks, j, begin, end);
}

LC_INLINE void backward_rows(const lc_dtype t, const backward_job *j, int64_t at, int64_t rows, int64_t count,
                             const bool relu, const bool again)
{
    const int64_t lanes = j->w->lanes;
    const float *m = j->parameters, *s = m + lanes, *b = s + lanes, *fx = b + lanes, *f1 = fx + lanes;
    for (int64_t r = 0; r < rows; r++, at += lanes) {
        const void *x = stored_at(t, j->x, at), *dy = stored_at(t, j->dy, at);
        void *dx = stored_at(t, j->dx, at), *y = again ? stored_at(t, j->y, at) : NULL;
        int64_t l = 0;
        for (; l + VW <= count; l += VW) {
            vf d = vget(t, x, l) - vload(m + l), g = vget(t, dy, l), vs = vload(s + l);
            const vf z = vscaled(d, vs, vload(b + l));
            if (relu) g = vselect(z <= vanishing(t), vzero(), g);
            if (again) vput(t, y, l, vselect(z <= vzero(), vzero(), z));
            vput(t, dx, l, vgradient(g, vs, d, vload(fx + l), vload(f1 + l)));
        }
        for (; l < count; l++) {
            float d = get(t, x, l) - m[l], g = get(t, dy, l), z = scaled(d, s[l], b[l]);
            if (relu) g = z <= vanishing_number(t) ? 0.f : g;
            if (again) put(t, y, l, z <= 0.f ? 0.f : z);
            put(t, dx, l, gradient(g, s[l], d, fx[l], f1[l]));
        }
    }
}

LC_INLINE void backward_blocks(const lc_dtype t, const backward_job *j, int64_t begin, int64_t end)
{
    const wide *w = j->w;
    for (int64_t k = begin; k < end; k++) {
        int64_t first = k * w->rows_per_block;
        int64_t rows = w->rows - first < w->rows_per_block ? w->rows - first : w->rows_per_block;
        int64_t at = first * w->lanes, tail_at = w->rows * w->lanes;
        int64_t tail = k == w->blocks - 1 ? w->tail : 0;
        if (j->y) {
            backward_rows(t, j, at, rows, w->lanes, true, true);
            backward_rows(t, j, tail_at, tail != 0, tail, true, true);
        } else if (j->relu) {
            backward_rows(t, j, at, rows, w->lanes, true, false);
            backward_rows(t, j, tail_at, tail != 0, tail, true, false);
        } else {
            backward_rows(t, j, at, rows, w->lanes, false, false);
            backward_rows(t, j, tail_at, tail != 0, tail, false, false);
        }
    }
}

static void backward_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const backward_job *j = context;
    (void)thread;
    STORED(j->dtype, backward_blocks, j, begin, end);
}

void LC_ISA_NAME(lc__bn_factors)(const wide *w, const float *var, double eps, const double *sum1, const double *sum2,
                                 float *parameters, float *dw, float *db)
{
    const float *s = parameters + w->lanes;
    float *fx = parameters + 3 * w->lanes, *f1 = fx + w->lanes;
    for (int64_t i = 0; i < w->c; i++) {
        double square = 1 / ((double)var[i] + eps), rstd = sqrt(square);
        dw[i] = (float)(sum2[i] * rstd);
        db[i] = (float)sum1[i];
        fx[i] = (float)(-(double)s[i] * sum2[i] * square / (double)w->m);
        f1[i] = (float)(-(double)s[i] * sum1[i] / (double)w->m);
    }
    for (int64_t f = 1; f < w->fold; f++) {
        memcpy(fx + f * w->c, fx, (size_t)w->c * sizeof *fx);
        memcpy(f1 + f * w->c, f1, (size_t)w->c * sizeof *f1);
    }
}

static bool backward_supports(const lc_call *call)
{
    const lc_view *x = &call->in[1];
    return x->ndim >= 2 && numel(x) > 0 && is_stored(x->dtype) && call->in[0].dtype == x->dtype &&
           call->out[0].dtype == x->dtype && all_f32(call->in + 2, call->n_in - 2) && all_f32(call->out + 1, 2) &&
           (call->n_out < 4 || call->out[3].dtype == x->dtype);
}

static lc_status backward_prepare(lc_call *call)
{
    wide w = wide_of(&call->in[1]);
    call->scratch_bytes = LC_ISA_NAME(lc__bn_statistics_scratch)(&w) + (size_t)(5 * w.lanes) * sizeof(float);
    return LC_OK;
}

static void backward_run(const lc_call *call)
{
    wide w = wide_of(&call->in[1]);
    double *lane_sums = call->scratch, *sum1 = lane_sums + w.lanes, *sum2 = sum1 + w.c;
    float *parameters = (float *)(sum2 + w.c), *partial = parameters + 5 * w.lanes;
    const float *var = call->in[5].data;
    LC_ISA_NAME(lc__bn_parameters)
    (&w, call->in[4].data, var, call->in[2].data, call->in[3].data, call->floats[0], parameters);
    backward_job j = {.w = &w,
                      .dtype = call->in[1].dtype,
                      .dy = call->in[0].data,
                      .x = call->in[1].data,
                      .parameters = parameters,
                      .partial = partial,
                      .dx = call->out[0].data,
                      .y = call->n_out > 3 ? call->out[3].data : NULL,
                      .relu = call->ints[0] == 1};
    lc__parallel_for(call->threads, w.blocks, 1, backward_sums_block, &j);
    wide_total(&w, partial, 2 * w.lanes, lane_sums, sum1);
    wide_total(&w, partial + w.lanes, 2 * w.lanes, lane_sums, sum2);
    LC_ISA_NAME(lc__bn_factors)
    (&w, var, call->floats[0], sum1, sum2, parameters, call->out[1].data, call->out[2].data);
    lc__parallel_for(call->threads, w.blocks, 1, backward_block, &j);
}

static const lc_kernel backward_kernel = {
    .name = "batch_norm_backward_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = backward_supports,
    .prepare = backward_prepare,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__batch_norm_kernels)[] = {
    {&lc__op_batch_norm, &forward_kernel},
    {&lc__op_batch_norm_inference, &inference_kernel},
    {&lc__op_batch_norm_backward, &backward_kernel},
    {&lc__op_batch_norm_relu_backward, &backward_kernel},
    {NULL, NULL},
};
