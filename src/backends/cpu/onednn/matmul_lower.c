/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 computed from numbers of bf16 (lc_call.matmul_precision), for units for matrices.
 *
 * A number of f32 is nearly the sum of two of bf16, a = h + l. The product of two is then hh' + hl' + lh'; ll' is about
 * 2^-16 of it and left out. Side by side the three are one product, of a factor with rows (h h l) and one with columns
 * (h' l' h'), whose sums are f32. With medium only h is left, and one product. The factors are converted in scratch. */
#include "backends/cpu/onednn/kernels.h"
#include "backends/cpu/onednn/prepared.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/product.h"
#include "base/half.h"

static int64_t parts_of(const lc_call *call)
{
    return call->matmul_precision == LC_MATMUL_HIGH ? 3 : 1;
}

/* The equal pieces of rows that threads share, which depend only on the shape. */
static int64_t chunks_of(const lc__product *g)
{
    for (int64_t n = 16; n > 1; n--)
        if (g->m % n == 0 && g->m / n >= 32) return n;
    return 1;
}

static dnnl_status_t build(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    lc__product g;
    if (call->matmul_precision == LC_MATMUL_HIGHEST || !lc__product_of_type(call, LC_F32, &g) || g.nb)
        return dnnl_unimplemented;
    const int64_t k = parts_of(call) * g.k, chunks = chunks_of(&g), m = g.m / chunks;
    lc__md x = NULL, y = NULL, bias = NULL, to = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = lc__dnnl_new(out, probe, 1, call->threads, chunks);
    lc__dnnl_plan *plan = *out;
    lc__dnnl_post post = {g.activation, call->accumulate};
    lc__dnnl_operand xs = {LC_DNNL_SCRATCH, 0, 0, 0, 0}, ys = {LC_DNNL_SCRATCH, 0, 0, 0, LC_DNNL_NO_CHUNKS};
    lc__dnnl_operand bs = {LC_DNNL_IN, 2, 0, 0, LC_DNNL_NO_CHUNKS}, os = {LC_DNNL_OUT, 0, 0, 0, 1};
    if (s != dnnl_success) return s;
    for (int64_t c = 0; c < chunks && chunks > 1; c++) {
        plan->chunk_offset[c][0] = c * m * k;
        plan->chunk_offset[c][1] = c * m * g.n;
    }
    xs.offset = lc__dnnl_scratch(plan, (size_t)(g.m * k) * sizeof(uint16_t));
    ys.offset = lc__dnnl_scratch(plan, (size_t)(k * g.n) * sizeof(uint16_t));
    s = lc__dnnl_md_strided(&x, dnnl_bf16, 2, (const int64_t[]){m, k}, (const int64_t[]){k, 1});
    if (s == dnnl_success)
        s = lc__dnnl_md_strided(&y, dnnl_bf16, 2, (const int64_t[]){k, g.n}, (const int64_t[]){g.n, 1});
    if (s == dnnl_success)
        s = lc__dnnl_md_strided(&to, dnnl_f32, 2, (const int64_t[]){m, g.n}, (const int64_t[]){g.n, 1});
    if (s == dnnl_success && g.bias)
        s = lc__dnnl_md_strided(&bias, dnnl_f32, 2, (const int64_t[]){1, g.n}, (const int64_t[]){g.n, 1});
    if (s == dnnl_success) s = lc__dnnl_matmul(&pd, plan->engine, x, y, bias, to, &post);
    if (s == dnnl_success) s = lc__dnnl_add(plan, pd, chunks > 1, true);
    if (s == dnnl_success) s = lc__dnnl_bind(plan, DNNL_ARG_SRC, x, xs);
    if (s == dnnl_success) s = lc__dnnl_bind(plan, DNNL_ARG_WEIGHTS, y, ys);
    if (s == dnnl_success && g.bias) s = lc__dnnl_bind(plan, DNNL_ARG_BIAS, bias, bs);
    if (s == dnnl_success) s = lc__dnnl_bind(plan, DNNL_ARG_DST, to, os);
    lc__dnnl_md_free(x);
    lc__dnnl_md_free(y);
    lc__dnnl_md_free(bias);
    lc__dnnl_md_free(to);
    return s;
}

/* ---- the factors ---- */

/* Element (i, j) of a factor is from[i * row + j * column]; part p of it goes to to[i * to_row + j * to_column + p *
 * to_part]. */
typedef struct factor {
    const float *from;
    uint16_t *to;
    int64_t row, column, columns, to_row, to_part, to_column, parts;
    bool low[3]; /* what a part is of each number: its high half or its low one */
} factor;

static void convert(const void *context, int64_t begin, int64_t end, int thread)
{
    const factor *f = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < f->columns; j++) {
            const float v = f->from[i * f->row + j * f->column];
            const uint16_t high = lc__f32_to_bf16(v), low = lc__f32_to_bf16(v - lc__bf16_to_f32(high));
            for (int64_t p = 0; p < f->parts; p++)
                f->to[i * f->to_row + j * f->to_column + p * f->to_part] = f->low[p] ? low : high;
        }
}

static void run(const lc_call *call)
{
    lc__product g;
    lc__product_of_type(call, LC_F32, &g); /* as in build */
    const int64_t parts = parts_of(call), k = parts * g.k;
    uint16_t *x = call->scratch, *y = x + (((size_t)(g.m * k) * sizeof *x + 63) & ~(size_t)63) / sizeof *x;
    factor fx = {call->in[0].data, x, g.xm, g.xk, g.k, k, g.k, 1, parts, {false, false, true}};
    factor fy = {call->in[1].data, y, g.yk, g.yn, g.n, g.n, g.k * g.n, 1, parts, {false, true, false}};
    lc__parallel_for(call->threads, g.m, lc__block_size(4 * g.k, 1), convert, &fx);
    lc__parallel_for(call->threads, g.k, lc__block_size(4 * g.n, 1), convert, &fy);
    lc__dnnl_run(call);
}

static bool supports(const lc_call *call)
{
    return lc__dnnl_supports(call, build);
}

static lc_status prepare(lc_call *call)
{
    return lc__dnnl_prepare(call, build);
}

const lc_kernel lc__onednn_matmul_lower = {
    "onednn_matmul_lower", LC_WANT_MATRIX, LC_KERNEL_ACCUMULATES, supports, prepare, run, lc__dnnl_release};
