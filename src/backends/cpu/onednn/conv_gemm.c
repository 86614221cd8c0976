/* SPDX-License-Identifier: Apache-2.0 */
/* conv_weight_grad as matrix products: dw[O, k*C] = dy[M, O]^T * columns[M, k*C], where row m of `columns` is the patch
 * of the image under output position m, with zeros for padding.
 *
 * The M = N * out positions are taken in blocks whose columns fit the cache; the first product overwrites (or adds to)
 * dw, the others add. Used if the library has no convolution of its own, or a slow one for deep, small images. */
#include "backends/cpu/onednn/conv_shape.h"
#include "backends/cpu/onednn/kernels.h"
#include "backends/cpu/onednn/prepared.h"
#include "backends/cpu/parallel.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a block's columns: about this, or twice the gradient, which every product goes through. */
#define BLOCK_BYTES ((int64_t)2 << 20)

typedef struct gemm_state {
    lc__dnnl_plan *plan; /* the product of the first block */
    lc__dnnl_plan *more; /* the product of the other blocks; NULL if there are none */
    lc__conv_shape shape;
    int64_t parts;         /* of the product's columns; threads take one part at a time */
    int64_t blocks, lines; /* lines: rows of output (innermost dimension) in a block */
} gemm_state;

static void free_state(gemm_state *s)
{
    if (!s) return;
    lc__dnnl_free(s->plan);
    lc__dnnl_free(s->more);
    free(s);
}

/* Writes the patches of output lines [begin, end). Channels are the fastest, so a patch is copied in runs of C. */
static void gather(const lc__conv_shape *c, const float *x, float *columns, int64_t first, int64_t begin, int64_t end)
{
    int nd = c->nd;
    const lc__dnnl_window *g = &c->window;
    int64_t channels = c->in_channels, taps = lc__conv_image_size(nd, 1, c->kernel), width = c->out_size[nd - 1];
    int64_t image = lc__conv_image_size(nd, channels, c->in_size), patch = taps * channels;
    for (int64_t line = begin; line < end; line++) {
        int64_t at[3] = {0}, rest = first + line;
        for (int d = nd - 2; d >= 0; d--) {
            at[d] = rest % c->out_size[d];
            rest /= c->out_size[d];
        }
        const float *from = x + rest * image;
        float *to = columns + line * width * patch;
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t k[3] = {0}, left = tap, offset = 0;
            bool inside = true;
            for (int d = nd - 1; d >= 0; d--) {
                k[d] = left % c->kernel[d];
                left /= c->kernel[d];
            }
            for (int d = 0; d < nd - 1; d++) {
                int64_t i = at[d] * g->stride[d] - g->padding[d] + k[d] * g->dilation[d];
                inside &= i >= 0 && i < c->in_size[d];
                offset = offset * c->in_size[d] + i;
            }
            int64_t last = c->in_size[nd - 1], start = k[nd - 1] * g->dilation[nd - 1] - g->padding[nd - 1];
            for (int64_t o = 0; o < width; o++) {
                int64_t i = start + o * g->stride[nd - 1];
                float *out = to + o * patch + tap * channels;
                if (inside && i >= 0 && i < last)
                    memcpy(out, from + (offset * last + i) * channels, (size_t)channels * sizeof *out);
                else
                    memset(out, 0, (size_t)channels * sizeof *out);
            }
        }
    }
}

/* The product of block `first_block` and the `n_blocks - 1` after it, with a chunk for each block and part of the
 * columns; `sum`: adds to dw. */
static dnnl_status_t make_product(bool probe, int threads, const gemm_state *s, bool sum, int64_t first_block,
                                  int64_t n_blocks, lc__dnnl_plan **out)
{
    const lc__conv_shape *c = &s->shape;
    int64_t rows = s->lines * c->out_size[c->nd - 1], patch = lc__conv_image_size(c->nd, c->in_channels, c->kernel);
    int64_t outs = c->out_channels, width = patch / s->parts;
    lc__md dy = NULL, columns = NULL, dw = NULL;
    dnnl_primitive_desc_t pd = NULL;
    lc__dnnl_post post = {0, sum};
    lc__dnnl_operand dy_at = {LC_DNNL_IN, 0, 0, 0, 0}, dw_at = {LC_DNNL_OUT, 0, 0, 0, 1};
    lc__dnnl_operand columns_at = {LC_DNNL_SCRATCH, 0, 0, 0, 1};
    dnnl_status_t status = lc__dnnl_new(out, probe, 1, threads, n_blocks * s->parts);
    lc__dnnl_plan *plan = *out;
    if (status == dnnl_success) {
        /* Reserved first, so that both products have it at the same offset. */
        columns_at.offset = lc__dnnl_scratch(plan, (size_t)(rows * patch) * sizeof(float));
        for (int64_t i = 0; plan->n_chunks > 1 && i < plan->n_chunks; i++) {
            plan->chunk_offset[i][0] = i / s->parts * rows * outs;
            plan->chunk_offset[i][1] = i % s->parts * width;
        }
        dy_at.offset = (size_t)(first_block * rows * outs) * sizeof(float);
        status = lc__dnnl_md_strided(&dy, dnnl_f32, 2, (int64_t[]){outs, rows}, (int64_t[]){1, outs});
    }
    if (status == dnnl_success)
        status = lc__dnnl_md_strided(&columns, dnnl_f32, 2, (int64_t[]){rows, width}, (int64_t[]){patch, 1});
    if (status == dnnl_success)
        status = lc__dnnl_md_strided(&dw, dnnl_f32, 2, (int64_t[]){outs, width}, (int64_t[]){patch, 1});
    if (status == dnnl_success) status = lc__dnnl_matmul(&pd, plan->engine, dy, columns, NULL, dw, &post);
    if (status == dnnl_success) status = lc__dnnl_add(plan, pd, true, true);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_SRC, dy, dy_at);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_WEIGHTS, columns, columns_at);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_DST, dw, dw_at);
    lc__dnnl_md_free(dy);
    lc__dnnl_md_free(columns);
    lc__dnnl_md_free(dw);
    return status;
}

/* Equal parts of `patch` columns, none too narrow for the library. */
static int64_t parts_of(int64_t patch)
{
    for (int64_t parts = 16; parts > 1; parts--)
        if (patch % parts == 0 && patch / parts >= 64) return parts;
    return 1;
}

static dnnl_status_t build(const lc_call *call, bool probe, gemm_state **out)
{
    gemm_state *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return dnnl_out_of_memory;
    lc__conv_shape *c = &s->shape;
    if (!lc__dnnl_takes_types(call) || call->in[0].dtype != LC_F32 ||
        !lc__conv_describe(call, c, &call->in[1], &call->out[0], &call->in[0]) || c->groups > 1)
        return dnnl_unimplemented;
    int64_t width = c->out_size[c->nd - 1], patch = lc__conv_image_size(c->nd, c->in_channels, c->kernel);
    int64_t lines = c->n * (lc__conv_image_size(c->nd, 1, c->out_size) / width), line_bytes, all;
    if (__builtin_mul_overflow(width * (int64_t)sizeof(float), patch, &line_bytes) ||
        __builtin_mul_overflow(line_bytes, lines, &all))
        return dnnl_unimplemented;
    int64_t bytes = 2 * c->out_channels * patch * (int64_t)sizeof(float);
    if (bytes < BLOCK_BYTES) bytes = BLOCK_BYTES;
    s->blocks = all / bytes < lines ? all / bytes + 1 : lines; /* a line is not cut */
    while (lines % s->blocks) s->blocks++;
    s->lines = lines / s->blocks;
    s->parts = parts_of(patch);
    int threads = call->threads < 1 ? 1 : call->threads;
    int before = lc__dnnl_set_threads(1);
    /* A probe does not know whether the call will add, so the product must be able to. */
    dnnl_status_t status = make_product(probe, threads, s, probe || call->accumulate, 0, 1, &s->plan);
    if (status == dnnl_success && s->blocks > 1)
        status = make_product(probe, threads, s, true, 1, s->blocks - 1, &s->more);
    lc__dnnl_set_threads(before);
    return status;
}

static dnnl_status_t run_build(const lc_call *call, bool probe, gemm_state **s)
{
    *s = NULL;
    dnnl_status_t status = lc__dnnl_enter();
    if (status == dnnl_success) status = lc__dnnl_leave(build(call, probe, s));
    if (status == dnnl_success && !probe) return status;
    free_state(*s);
    *s = NULL;
    return status;
}

static bool supports(const lc_call *call)
{
    gemm_state *s;
    return lc__dnnl_supported(run_build(call, true, &s));
}

static lc_status prepare(lc_call *call)
{
    gemm_state *s;
    dnnl_status_t status = run_build(call, false, &s);
    if (status != dnnl_success) return lc__dnnl_failed(call, status);
    call->state = s;
    call->scratch_bytes = s->plan->scratch_bytes;
    if (s->more && s->more->scratch_bytes > call->scratch_bytes) call->scratch_bytes = s->more->scratch_bytes;
    return LC_OK;
}

typedef struct block_job {
    const lc_call *call;
    const gemm_state *state;
    int64_t block;
} block_job;

static void gather_lines(const void *context, int64_t begin, int64_t end, int thread)
{
    const block_job *j = context;
    (void)thread;
    gather(&j->state->shape, j->call->in[1].data, j->call->scratch, j->block * j->state->lines, begin, end);
}

static void multiply(const void *context, int64_t begin, int64_t end, int lane)
{
    const block_job *j = context;
    const lc__dnnl_plan *plan = j->block ? j->state->more : j->state->plan;
    int64_t first = j->block ? (j->block - 1) * j->state->parts : 0;
    int before = lc__dnnl_set_threads(1); /* for this thread, which may be one of the pool */
    for (int64_t part = begin; part < end; part++) lc__dnnl_execute(plan, &plan->step[0], j->call, lane, first + part);
    lc__dnnl_set_threads(before);
}

static void run(const lc_call *call)
{
    const gemm_state *s = call->state;
    for (int64_t b = 0; b < s->blocks; b++) {
        block_job j = {call, s, b};
        lc__parallel_for(call->threads, s->lines, 1, gather_lines, &j);
        lc__parallel_for(s->plan->lanes, s->parts, 1, multiply, &j);
    }
}

static void release(lc_call *call)
{
    free_state(call->state);
    call->state = NULL;
}

const char *lc__onednn_gemm_impl(const lc_call *call)
{
    return ((const gemm_state *)call->state)->plan->impl;
}

const lc_kernel lc__onednn_conv_weight_grad_gemm = {
    "onednn_conv_weight_grad_gemm", LC_WANT_CHANNELS_LAST, LC_KERNEL_ACCUMULATES, supports, prepare, run, release};
