/* SPDX-License-Identifier: Apache-2.0 */
/* Layer and RMS normalization over trailing dimensions, forward and backward. The gradients of weight and bias are
 * summed per block of rows, and the blocks added in order. Rows of 16 bits are computed in copies. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define MAX_BLOCKS 128
#define COPIES     3 /* rows */

typedef struct job {
    int64_t rows, n, rows_per_block, blocks;
    const lc_view *x, *dy, *y; /* y: also dx */
    const float *weight, *bias, *in_mean, *in_rstd;
    float *mean, *rstd;
    float *copies;  /* COPIES rows for each thread */
    float *partial; /* per block: dw[n], db[n] */
    double eps;
    bool centered; /* layer norm */
} job;

static job job_of(const lc_call *call, const lc_view *x)
{
    int first = x->ndim - (int)call->ints[0];
    job j = {.rows = extent(x, 0, first), .n = extent(x, first, x->ndim), .x = x};
    int64_t most = (j.rows + 15) / 16 < MAX_BLOCKS ? (j.rows + 15) / 16 : MAX_BLOCKS;
    j.rows_per_block = most ? (j.rows + most - 1) / most : 1;
    j.blocks = (j.rows + j.rows_per_block - 1) / j.rows_per_block;
    return j;
}

/* Operands that are not f32 need copies. */
static int64_t copies_of(const job *j, const lc_call *call)
{
    const bool f32 = all_f32(call->in, call->n_in) && all_f32(call->out, call->n_out);
    return f32 ? 0 : (call->threads > 1 ? call->threads : 1) * COPIES * j->n;
}

/* ---- forward ---- */
static void forward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t n = j->n;
    const float *w = j->weight, *b = j->bias;
    float *copy = j->copies + thread * COPIES * n;
    for (int64_t r = begin; r < end; r++) {
        const float *restrict x = floats_of(j->x->dtype, j->x->data, r * n, n, copy);
        float *restrict y = floats_for(j->y->dtype, j->y->data, r * n, copy + n);
        const float m = j->centered ? (float)(row_sum(x, n) / (double)n) : 0.f;
        const float s = (float)(1 / sqrt(row_squares(x, m, n) / (double)n + j->eps));
        if (w && b) {
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * s * w[i] + b[i];
        } else if (w) {
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * s * w[i];
        } else {
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * s + (b ? b[i] : 0.f);
        }
        put_floats(j->y->dtype, j->y->data, r * n, n, y);
        if (j->mean) j->mean[r] = m;
        j->rstd[r] = s;
    }
}

static bool forward_supports(const lc_call *call)
{
    return is_stored(call->in[0].dtype) && is_stored(call->out[0].dtype) && all_f32(call->in + 1, call->n_in - 1) &&
           all_f32(call->out + 1, call->n_out - 1) && numel(&call->in[0]) > 0;
}

static lc_status forward_prepare(lc_call *call)
{
    job j = job_of(call, &call->in[0]);
    call->scratch_bytes = (size_t)copies_of(&j, call) * sizeof(float);
    return LC_OK;
}

static void layer_norm_run(const lc_call *call)
{
    job j = job_of(call, &call->in[0]);
    j.weight = call->in[1].data;
    j.bias = call->in[2].data;
    j.y = &call->out[0];
    j.copies = call->scratch;
    j.mean = call->out[1].data;
    j.rstd = call->out[2].data;
    j.eps = call->floats[0];
    j.centered = true;
    lc__parallel_for(call->threads, j.rows, lc__block_size(j.n * 8, 1), forward_rows, &j);
}

static void rms_norm_run(const lc_call *call)
{
    job j = job_of(call, &call->in[0]);
    j.weight = call->in[1].data;
    j.y = &call->out[0];
    j.copies = call->scratch;
    j.rstd = call->out[1].data;
    j.eps = call->floats[0];
    lc__parallel_for(call->threads, j.rows, lc__block_size(j.n * 8, 1), forward_rows, &j);
}

static const lc_kernel layer_norm_kernel = {
    .name = "layer_norm_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = forward_supports,
    .prepare = forward_prepare,
    .run = layer_norm_run,
};
static const lc_kernel rms_norm_kernel = {
    .name = "rms_norm_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = forward_supports,
    .prepare = forward_prepare,
    .run = rms_norm_run,
};

/* ---- backward ---- */
/* Adds the row to dw and db; returns the sums of v and v xhat, v = dy w, in *sum and *product. */
LC_INLINE void row_sums(int64_t n, const float *x, const float *dy, const float *w, float m, float s, float *dw,
                        float *db, double *sum, double *product, const bool weighted)
{
    *sum = *product = 0;
    for (int64_t first = 0; first < n; first += ROW_CHUNK) {
        int64_t i = first, end = first + row_chunk(n - first);
        vf a = vzero(), p = vzero();
        float ta = 0, tp = 0;
        for (; i + VW <= end; i += VW) {
            vf g = vload(dy + i), h = (vload(x + i) - m) * s;
            vstore(dw + i, vload(dw + i) + g * h);
            vstore(db + i, vload(db + i) + g);
            if (weighted) g *= vload(w + i);
            a += g;
            p += g * h;
        }
        for (; i < end; i++) {
            float g = dy[i], h = (x[i] - m) * s;
            dw[i] += g * h;
            db[i] += g;
            if (weighted) g *= w[i];
            ta += g;
            tp += g * h;
        }
        *sum += (double)(vsum(a) + ta);
        *product += (double)(vsum(p) + tp);
    }
}

static void backward_blocks(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t n = j->n;
    const float *w = j->weight;
    float *copy = j->copies + thread * COPIES * n;
    for (int64_t k = begin; k < end; k++) {
        float *dw = j->partial + k * 2 * n, *db = dw + n;
        memset(dw, 0, (size_t)(2 * n) * sizeof *dw);
        int64_t last = (k + 1) * j->rows_per_block < j->rows ? (k + 1) * j->rows_per_block : j->rows;
        for (int64_t r = k * j->rows_per_block; r < last; r++) {
            const float *x = floats_of(j->x->dtype, j->x->data, r * n, n, copy);
            const float *dy = floats_of(j->dy->dtype, j->dy->data, r * n, n, copy + n);
            float *restrict dx = floats_for(j->y->dtype, j->y->data, r * n, copy + 2 * n);
            const float m = j->centered ? j->in_mean[r] : 0.f, s = j->in_rstd[r];
            double sum, product;
            if (w)
                row_sums(n, x, dy, w, m, s, dw, db, &sum, &product, true);
            else
                row_sums(n, x, dy, w, m, s, dw, db, &sum, &product, false);
            const float a = j->centered ? (float)(sum / (double)n) : 0.f, p = (float)(product / (double)n);
            if (w) {
                for (int64_t i = 0; i < n; i++) dx[i] = s * (dy[i] * w[i] - a - (x[i] - m) * s * p);
            } else {
                for (int64_t i = 0; i < n; i++) dx[i] = s * (dy[i] - a - (x[i] - m) * s * p);
            }
            put_floats(j->y->dtype, j->y->data, r * n, n, dx);
        }
    }
}

/* dw and db from the blocks' sums. */
static void add_columns(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double w = 0, b = 0;
        for (int64_t k = 0; k < j->blocks; k++) {
            w += (double)j->partial[k * 2 * j->n + i];
            b += (double)j->partial[(k * 2 + 1) * j->n + i];
        }
        j->mean[i] = (float)w;
        if (j->rstd) j->rstd[i] = (float)b;
    }
}

static void run_backward(const lc_call *call, bool centered)
{
    job j = job_of(call, &call->in[1]);
    j.centered = centered;
    j.dy = &call->in[0];
    j.weight = call->in[2].data;
    j.in_mean = centered ? call->in[3].data : NULL;
    j.in_rstd = call->in[centered ? 4 : 3].data;
    j.y = &call->out[0];
    j.mean = call->out[1].data;                   /* dw */
    j.rstd = centered ? call->out[2].data : NULL; /* db */
    j.partial = call->scratch;
    j.copies = j.partial + j.blocks * 2 * j.n;
    lc__parallel_for(call->threads, j.blocks, 1, backward_blocks, &j);
    lc__parallel_for(call->threads, j.n, 256, add_columns, &j);
}

static lc_status backward_prepare(lc_call *call)
{
    job j = job_of(call, &call->in[1]);
    call->scratch_bytes = (size_t)(j.blocks * 2 * j.n + copies_of(&j, call)) * sizeof(float);
    return LC_OK;
}

static bool backward_supports(const lc_call *call)
{
    return is_stored(call->in[0].dtype) && is_stored(call->in[1].dtype) && is_stored(call->out[0].dtype) &&
           all_f32(call->in + 2, call->n_in - 2) && all_f32(call->out + 1, call->n_out - 1) && numel(&call->in[1]) > 0;
}

static void layer_norm_backward_run(const lc_call *call)
{
    run_backward(call, true);
}

static void rms_norm_backward_run(const lc_call *call)
{
    run_backward(call, false);
}

static const lc_kernel layer_norm_backward_kernel = {
    .name = "layer_norm_backward_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = backward_supports,
    .prepare = backward_prepare,
    .run = layer_norm_backward_run,
};
static const lc_kernel rms_norm_backward_kernel = {
    .name = "rms_norm_backward_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = backward_supports,
    .prepare = backward_prepare,
    .run = rms_norm_backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__row_norm_kernels)[] = {
    {&lc__op_layer_norm, &layer_norm_kernel},
    {&lc__op_layer_norm_backward, &layer_norm_backward_kernel},
    {&lc__op_rms_norm, &rms_norm_kernel},
    {&lc__op_rms_norm_backward, &rms_norm_backward_kernel},
    {NULL, NULL},
};
