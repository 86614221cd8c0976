/* SPDX-License-Identifier: Apache-2.0 */
/* Layer and RMS normalization over trailing dimensions in f64, forward and backward. The gradients of weight and bias
 * are summed per block of rows, and the blocks added in order. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath_f64.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define MAX_BLOCKS 64

typedef struct job {
    int64_t rows, n, rows_per_block, blocks;
    const double *x, *dy, *weight, *bias, *in_mean, *in_rstd;
    double *y, *mean, *rstd, *dw, *db; /* y: also dx */
    double *partial;                   /* per block: dw[n], db[n] */
    double eps;
    bool centered; /* layer norm */
} job;

static job job_of(const lc_call *call, int input, bool centered)
{
    const lc_view *x = &call->in[input];
    int first = x->ndim - (int)call->ints[0];
    job j = {.rows = extent(x, 0, first), .n = extent(x, first, x->ndim), .x = x->data, .centered = centered};
    int64_t most = (j.rows + 15) / 16 < MAX_BLOCKS ? (j.rows + 15) / 16 : MAX_BLOCKS;
    j.rows_per_block = most ? (j.rows + most - 1) / most : 1;
    j.blocks = (j.rows + j.rows_per_block - 1) / j.rows_per_block;
    return j;
}

/* ---- forward ---- */
static void forward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t n = j->n;
    const double *w = j->weight, *b = j->bias;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const double *restrict x = j->x + r * n;
        double *restrict y = j->y + r * n;
        const double m = j->centered ? row_sum_f64(x, n) / (double)n : 0;
        const double s = 1 / sqrt(row_squares_f64(x, m, n) / (double)n + j->eps);
        if (w && b) {
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * s * w[i] + b[i];
        } else if (w) {
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * s * w[i];
        } else {
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * s + (b ? b[i] : 0);
        }
        if (j->mean) j->mean[r] = m;
        j->rstd[r] = s;
    }
}

static void run_forward(const lc_call *call, bool centered)
{
    job j = job_of(call, 0, centered);
    j.weight = call->in[1].data;
    j.bias = centered ? call->in[2].data : NULL;
    j.y = call->out[0].data;
    j.mean = centered ? call->out[1].data : NULL;
    j.rstd = call->out[centered ? 2 : 1].data;
    j.eps = call->floats[0];
    lc__parallel_for(call->threads, j.rows, lc__block_size(j.n * 16, 1), forward_rows, &j);
}

static void layer_norm_run(const lc_call *call)
{
    run_forward(call, true);
}

static void rms_norm_run(const lc_call *call)
{
    run_forward(call, false);
}

/* ---- backward ---- */
/* Adds the row to dw and db; returns the sums of v and v xhat, v = dy w, in *sum and *product. */
LC_INLINE void row_sums(int64_t n, const double *x, const double *dy, const double *w, double m, double s, double *dw,
                        double *db, double *sum, double *product, const bool weighted)
{
    int64_t i = 0;
    vd a = {0}, p = {0};
    double ta = 0, tp = 0;
    for (; i + VD <= n; i += VD) {
        vd g = vdload(dy + i), h = (vdload(x + i) - m) * s;
        vdstore(dw + i, vdload(dw + i) + g * h);
        vdstore(db + i, vdload(db + i) + g);
        if (weighted) g *= vdload(w + i);
        a += g;
        p += g * h;
    }
    for (; i < n; i++) {
        double g = dy[i], h = (x[i] - m) * s;
        dw[i] += g * h;
        db[i] += g;
        if (weighted) g *= w[i];
        ta += g;
        tp += g * h;
    }
    *sum = vdsum(a) + ta;
    *product = vdsum(p) + tp;
}

static void backward_row(const job *j, int64_t r, double *dw, double *db)
{
    const int64_t n = j->n;
    const double *x = j->x + r * n, *dy = j->dy + r * n, *w = j->weight;
    double *restrict dx = j->y + r * n;
    const double m = j->centered ? j->in_mean[r] : 0, s = j->in_rstd[r];
    double sum, product;
    if (w)
        row_sums(n, x, dy, w, m, s, dw, db, &sum, &product, true);
    else
        row_sums(n, x, dy, w, m, s, dw, db, &sum, &product, false);
    const double a = j->centered ? sum / (double)n : 0, p = product / (double)n;
    if (w) {
        for (int64_t i = 0; i < n; i++) dx[i] = s * (dy[i] * w[i] - a - (x[i] - m) * s * p);
    } else {
        for (int64_t i = 0; i < n; i++) dx[i] = s * (dy[i] - a - (x[i] - m) * s * p);
    }
}

static void backward_blocks(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        double *dw = j->partial + k * 2 * j->n, *db = dw + j->n;
        memset(dw, 0, (size_t)(2 * j->n) * sizeof *dw);
        int64_t last = (k + 1) * j->rows_per_block < j->rows ? (k + 1) * j->rows_per_block : j->rows;
        for (int64_t r = k * j->rows_per_block; r < last; r++) backward_row(j, r, dw, db);
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
            w += j->partial[k * 2 * j->n + i];
            b += j->partial[(k * 2 + 1) * j->n + i];
        }
        j->dw[i] = w;
        if (j->db) j->db[i] = b;
    }
}

static void run_backward(const lc_call *call, bool centered)
{
    job j = job_of(call, 1, centered);
    j.dy = call->in[0].data;
    j.weight = call->in[2].data;
    j.in_mean = centered ? call->in[3].data : NULL;
    j.in_rstd = call->in[centered ? 4 : 3].data;
    j.y = call->out[0].data;
    j.dw = call->out[1].data;
    j.db = centered ? call->out[2].data : NULL;
    j.partial = call->scratch;
    lc__parallel_for(call->threads, j.blocks, 1, backward_blocks, &j);
    lc__parallel_for(call->threads, j.n, 256, add_columns, &j);
}

static lc_status backward_prepare(lc_call *call)
{
    job j = job_of(call, 1, true);
    call->scratch_bytes = (size_t)j.blocks * 2 * (size_t)j.n * sizeof(double);
    return LC_OK;
}

static void layer_norm_backward_run(const lc_call *call)
{
    run_backward(call, true);
}

static void rms_norm_backward_run(const lc_call *call)
{
    run_backward(call, false);
}

static bool supports(const lc_call *call)
{
    return call->out[0].dtype == LC_F64 && numel(&call->out[0]) > 0;
}

#define KERNEL(id, prepare_call)                                                                                       \
    static const lc_kernel id##_kernel = {                                                                             \
        .name = #id "_f64_" LC_ISA_STRING,                                                                             \
        .layout = LC_WANT_ROW_MAJOR,                                                                                   \
        .supports = supports,                                                                                          \
        .prepare = prepare_call,                                                                                       \
        .run = id##_run,                                                                                               \
    };
KERNEL(layer_norm, NULL)
KERNEL(layer_norm_backward, backward_prepare)
KERNEL(rms_norm, NULL)
KERNEL(rms_norm_backward, backward_prepare)

const lc__kernel_entry LC_ISA_NAME(lc__row_norm_f64_kernels)[] = {
    {&lc__op_layer_norm, &layer_norm_kernel},
    {&lc__op_layer_norm_backward, &layer_norm_backward_kernel},
    {&lc__op_rms_norm, &rms_norm_kernel},
    {&lc__op_rms_norm_backward, &rms_norm_backward_kernel},
    {NULL, NULL},
};
