/* SPDX-License-Identifier: Apache-2.0 */
/* 3 x 3 convolutions with stride 1, and their two gradients, with a quarter of the multiplications; the algorithm is in
 * winograd.h.
 *
 * A convolution goes over the tiles of its result in blocks that stay in the second-level cache: pixels to points, one
 * matrix product per point, points to results. If there are few tiles, and the kernel's points are too many for the
 * caches, it goes over the kernel in such blocks instead, which are transformed right before they are multiplied. The
 * gradient with respect to the input is the convolution of dy with the kernel turned around (of images without padding,
 * the transposed algorithm: winograd_input_grad.c). The gradient of the kernel sums over tiles; it is cut into squares
 * of output and input channels, and, if there are few squares, into parts of the tiles. Each is computed by one thread,
 * which transforms its parts of both operands itself: that takes less time than waiting for others and fetching from
 * their caches.
 *
 * Operands in 16 bits are converted where they are transformed, and results rounded once.
 *
 * No sum depends on the number of threads. An infinite or NaN pixel spoils its whole tile, not just its neighbors. */
#include "backends/cpu/isa/gemm.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/winograd_choice.h"
#include "backends/cpu/isa/winograd_tiles.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <string.h>

/* For a convolution that goes over its kernel: rows and columns of a block. */
#define CHUNK 128
#define WIDE  64
/* For a kernel's gradient: the most channels on a square's side, the tiles to transform at a time, and the most parts
 * of the tiles that are summed separately. */
#define SQUARE     128
#define SUM_TILES  48
#define MOST_PARTS 8

/* ---- a convolution: forward, or back to the input ---- */
typedef struct conv {
    images x, y;
    tiling tiles;
    const lc_view *weight; /* [O][3][3][I] */
    const float *bias;     /* OPTIONAL */
    bool relu, turned;     /* turned: y has the weight's input channels */
    bool few;              /* tiles: it goes over the kernel */
    int64_t tiles_per_block;
    int64_t panel; /* columns of a panel */
    int64_t step_x, step_y, step_kernel, per_thread;
    float *kernel;  /* [point][panel of columns][x.c][columns of the panel]; few: pixels' points [point][tile][x.c] */
    float *scratch; /* per thread */
} conv;

/* A bias in 16 bits is converted before anything else, into scratch. */
static void set_bias(conv *v, const lc_view *bias)
{
    v->bias = bias->data;
    if (bias->dtype == LC_F32 || !v->scratch) return;
    get_run(bias->dtype, bias->data, 0, v->y.c, v->scratch);
    v->bias = v->scratch;
    v->scratch += v->y.c;
}

/* Blocks of tiles. */
static void plan_blocks(conv *v, int64_t threads)
{
    v->tiles_per_block = tiles_of_block(GEMM_ROWS, v->tiles.count, v->x.c, v->y.c, threads);
    v->step_x = point_step(v->tiles_per_block, v->x.c);
    v->step_y = point_step(v->tiles_per_block, v->y.c);
    v->step_kernel = point_step(v->x.c, v->y.c);
    v->panel = PANEL;
    v->per_thread = WG_ALL * (v->step_x + v->step_y);
}

/* Blocks of the kernel: CHUNK rows of a panel, and all tiles. */
static void plan_few(conv *v)
{
    v->few = true;
    v->step_x = point_step(v->tiles.count, v->x.c);
    v->step_y = point_step(v->tiles.count, WIDE);
    v->step_kernel = point_step(CHUNK, WIDE);
    v->panel = WIDE;
    v->per_thread = WG_ALL * (v->step_y + v->step_kernel);
}

/* Numbers of the memory that all threads share. */
static int64_t shared_numbers(const conv *v)
{
    return WG_ALL * (v->few ? v->step_x : v->step_kernel);
}

static conv conv_of(const lc_call *call)
{
    bool turned = call->op == &lc__op_conv_input_grad;
    conv v = {.x = images_of(&call->in[0]), .y = images_of(&call->out[0]), .turned = turned};
    v.tiles = tiling_of(&v.y, turned ? 2 - call->ints[3] : call->ints[3]);
    v.weight = &call->in[1];
    v.relu = !turned && call->ints[8] == 1;
    if (has_few_tiles(v.tiles.count, v.x.c, v.y.c))
        plan_few(&v);
    else
        plan_blocks(&v, call->threads > 1 ? call->threads : 1);
    v.kernel = call->scratch; /* NULL while the call is prepared */
    v.scratch = v.kernel ? v.kernel + shared_numbers(&v) : NULL;
    if (given(&call->in[2])) set_bias(&v, &call->in[2]);
    return v;
}

/* Columns of the panel that begins there. */
static int64_t columns_of(const conv *v, int64_t panel)
{
    return v->y.c - panel < v->panel ? v->y.c - panel : v->panel;
}

/* taps[t][k][n]: tap t of rows k0 + k and columns n0 + n, from a weight whose rows are columns here. */
LC_INLINE void turn_taps(const lc_dtype type, const conv *v, int64_t k0, int64_t n0, float (*taps)[VW][VW])
{
    for (int n = 0; n < VW; n++) {
        for (int t = 0; t < 9; t++) {
            const vf x = vget(type, v->weight->data, ((n0 + n) * 9 + t) * v->x.c + k0);
#pragma GCC unroll 16
            for (int k = 0; k < VW; k++) taps[t][k][n] = x[k];
        }
    }
}

/* VW rows of a panel, from row k0 on: to [point][row][column of the panel]. */
LC_INLINE void kernel_to_points(const lc_dtype type, const conv *v, int64_t k0, int64_t panel, float *to)
{
    const int64_t width = columns_of(v, panel);
    float taps[9][VW][VW] __attribute__((aligned(64)));
    vf in[9], points[WG_ALL];
    for (int64_t n = panel; n < panel + width; n += VW) {
        if (!v->turned) turn_taps(type, v, k0, n, taps);
        for (int k = 0; k < VW; k++) {
            for (int t = 0; t < 9; t++)
                in[t] =
                    v->turned ? vget(type, v->weight->data, ((k0 + k) * 9 + 8 - t) * v->y.c + n) : vload(taps[t][k]);
            wg_both_ways(wg_kernel3, 3, WG_POINTS, in, points);
            float *row = to + k * width + n - panel;
            for (int p = 0; p < WG_ALL; p++) vstore(row + p * v->step_kernel, points[p]);
        }
    }
}

/* Blocks [begin, end) of VW rows, one panel after the other: what is written together is together in memory. */
static void transform_kernel(const void *context, int64_t begin, int64_t end, int thread)
{
    const conv *v = context;
    const int64_t blocks = v->x.c / VW;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t k = i % blocks * VW, panel = i / blocks * v->panel;
        STORED(v->weight->dtype, kernel_to_points, v, k, panel, v->kernel + panel * v->x.c + k * columns_of(v, panel));
    }
}

static void conv_block(const void *context, int64_t begin, int64_t end, int thread)
{
    const conv *v = context;
    float *x = v->scratch + thread * v->per_thread, *y = x + WG_ALL * v->step_x;
    for (int64_t t = begin; t < end; t++)
        pixels_to_points(&v->x, all_of(&v->x), &v->tiles, t, x + (t - begin) * v->x.c, v->step_x);
    const int64_t tiles = end - begin;
    for (int p = 0; p < WG_ALL; p++) {
        for (int64_t t = begin + tiles * p / WG_ALL; t < begin + tiles * (p + 1) / WG_ALL; t++)
            fetch_results(&v->y, &v->tiles, t);
        for (int64_t n = 0; n < v->y.c; n += v->panel) {
            int64_t columns = columns_of(v, n);
            gemm(end - begin, columns, v->x.c, x + p * v->step_x, v->x.c, 1,
                 v->kernel + p * v->step_kernel + n * v->x.c, columns, y + p * v->step_y + n, v->y.c, false);
        }
    }
    for (int64_t t = begin; t < end; t++)
        points_to_results(y + (t - begin) * v->y.c, v->step_y, all_of(&v->y), v->bias, v->relu, &v->y, &v->tiles, t);
}

/* ---- few tiles ---- */

static void transform_pixels(const void *context, int64_t begin, int64_t end, int thread)
{
    const conv *v = context;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        pixels_to_points(&v->x, all_of(&v->x), &v->tiles, t, v->kernel + t * v->x.c, v->step_x);
}

/* All results of some panels of channels. */
static void conv_panels(const void *context, int64_t begin, int64_t end, int thread)
{
    const conv *v = context;
    float *kernel = v->scratch + thread * v->per_thread, *y = kernel + WG_ALL * v->step_kernel;
    for (int64_t panel = begin * WIDE; panel < end * WIDE; panel += WIDE) {
        const int64_t columns = columns_of(v, panel);
        for (int64_t k = 0; k < v->x.c; k += CHUNK) {
            const int64_t depth = v->x.c - k < CHUNK ? v->x.c - k : CHUNK;
            for (int64_t i = 0; i < depth; i += VW)
                STORED(v->weight->dtype, kernel_to_points, v, k + i, panel, kernel + i * columns);
            for (int p = 0; p < WG_ALL; p++)
                gemm(v->tiles.count, columns, depth, v->kernel + p * v->step_x + k, v->x.c, 1,
                     kernel + p * v->step_kernel, columns, y + p * v->step_y, columns, k > 0);
        }
        for (int64_t t = 0; t < v->tiles.count; t++)
            points_to_results(y + t * columns, v->step_y, (span){panel, columns}, v->bias, v->relu, &v->y, &v->tiles,
                              t);
    }
}

static void conv_run(const lc_call *call)
{
    conv v = conv_of(call);
    const int64_t panels = (v.y.c + v.panel - 1) / v.panel;
    if (v.few) {
        lc__parallel_for(call->threads, v.tiles.count, 1, transform_pixels, &v);
        lc__parallel_for(call->threads, panels, 1, conv_panels, &v);
    } else {
        lc__parallel_for(call->threads, panels * (v.x.c / VW), 1, transform_kernel, &v);
        lc__parallel_for(call->threads, v.tiles.count, v.tiles_per_block, conv_block, &v);
    }
}

static lc_status conv_prepare(lc_call *call)
{
    conv v = conv_of(call);
    int64_t threads = call->threads > 1 ? call->threads : 1;
    int64_t bias = given(&call->in[2]) && call->in[2].dtype != LC_F32 ? v.y.c : 0;
    call->scratch_bytes = (size_t)(shared_numbers(&v) + bias + threads * v.per_thread) * sizeof(float);
    return LC_OK;
}

/* ---- the gradient of the kernel ---- */
typedef struct weight_grad {
    images x, dy;
    tiling tiles;
    lc_view dw; /* [O][3][3][I] */
    bool accumulate;
    int64_t rows, columns, parts; /* squares: of output, of input channels; parts of the tiles */
    int64_t tiles_per_part;
    int64_t step_x, step_dy, step_sums, per_thread;
    float *sums;    /* [part][point][O][I]; of one part, each thread has those of a square */
    float *scratch; /* per thread: points of x, points of dy, sums */
} weight_grad;

static weight_grad weight_grad_of(const lc_call *call)
{
    weight_grad g = {.dy = images_of(&call->in[0]), .x = images_of(&call->in[1]), .accumulate = call->accumulate};
    g.dw = call->out[0];
    g.tiles = tiling_of(&g.dy, call->ints[3]);
    g.rows = (g.dy.c + SQUARE - 1) / SQUARE;
    g.columns = (g.x.c + SQUARE - 1) / SQUARE;
    int64_t ins = g.x.c < SQUARE ? g.x.c : SQUARE, outs = g.dy.c < SQUARE ? g.dy.c : SQUARE;
    g.parts = clamp(MOST_PARTS / (g.rows * g.columns), 1, (g.tiles.count - 1) / SUM_TILES + 1);
    g.tiles_per_part = (g.tiles.count + g.parts - 1) / g.parts;
    g.parts = (g.tiles.count + g.tiles_per_part - 1) / g.tiles_per_part;
    g.step_x = point_step(SUM_TILES, ins);
    g.step_dy = point_step(SUM_TILES, outs);
    g.step_sums = g.parts > 1 ? point_step(g.dy.c, g.x.c) : point_step(outs, ins);
    g.per_thread = WG_ALL * (g.step_x + g.step_dy + (g.parts > 1 ? 0 : g.step_sums));
    g.sums = call->scratch; /* NULL while the call is prepared */
    g.scratch = g.sums && g.parts > 1 ? g.sums + g.parts * WG_ALL * g.step_sums : g.sums;
    return g;
}

/* The kernel's numbers of a square, from the sums at its points, whose rows are `row` apart. */
LC_INLINE void some_of_kernel(const lc_dtype type, const weight_grad *g, const float *sums, int64_t row, span outs,
                              span ins)
{
    for (int64_t o = 0; o < outs.count; o++) {
        for (int64_t c = 0; c < ins.count; c += VW) {
            const float *from = sums + o * row + c;
            const int64_t to = (outs.first + o) * 9 * g->x.c + ins.first + c;
            vf half[3][WG_POINTS], column[WG_POINTS], results[3];
#pragma GCC unroll 8
            for (int j = 0; j < WG_POINTS; j++) {
                for (int i = 0; i < WG_POINTS; i++) {
                    const float *sum = from + (i * WG_POINTS + j) * g->step_sums;
                    column[i] = vload(sum);
                    for (int64_t k = 1; k < g->parts; k++) column[i] += vload(sum + k * WG_ALL * g->step_sums);
                }
                wg_results3(column, results);
                for (int i = 0; i < 3; i++) half[i][j] = results[i];
            }
            for (int i = 0; i < 3; i++) {
                wg_results3(half[i], results);
                for (int j = 0; j < 3; j++) {
                    const int64_t at = to + (i * 3 + j) * g->x.c;
                    vput(type, g->dw.data, at, g->accumulate ? vget(type, g->dw.data, at) + results[j] : results[j]);
                }
            }
        }
    }
}

/* Squares [begin, end), of one part after the other. */
static void sum_squares(const void *context, int64_t begin, int64_t end, int thread)
{
    const weight_grad *g = context;
    float *x = g->scratch + thread * g->per_thread, *dy = x + WG_ALL * g->step_x, *own = dy + WG_ALL * g->step_dy;
    for (int64_t i = begin; i < end; i++) {
        int64_t part = i / (g->rows * g->columns), c = i % g->columns * SQUARE, o = i / g->columns % g->rows * SQUARE;
        span ins = {c, g->x.c - c < SQUARE ? g->x.c - c : SQUARE};
        span outs = {o, g->dy.c - o < SQUARE ? g->dy.c - o : SQUARE};
        float *sums = g->parts > 1 ? g->sums + part * WG_ALL * g->step_sums + o * g->x.c + c : own;
        int64_t row = g->parts > 1 ? g->x.c : ins.count;
        int64_t first = part * g->tiles_per_part, last = first + g->tiles_per_part;
        if (last > g->tiles.count) last = g->tiles.count;
        for (int64_t t = first; t < last; t += SUM_TILES) {
            int64_t n = last - t < SUM_TILES ? last - t : SUM_TILES;
            for (int64_t k = 0; k < n; k++) {
                pixels_to_points(&g->x, ins, &g->tiles, t + k, x + k * ins.count, g->step_x);
                gradient_to_points(&g->dy, outs, &g->tiles, t + k, dy + k * outs.count, g->step_dy);
            }
            for (int p = 0; p < WG_ALL; p++)
                gemm(outs.count, ins.count, n, dy + p * g->step_dy, 1, outs.count, x + p * g->step_x, ins.count,
                     sums + p * g->step_sums, row, t > first);
        }
        if (g->parts == 1) STORED(g->dw.dtype, some_of_kernel, g, own, row, outs, ins);
    }
}

/* Channels [begin, end) of the result. */
static void sums_to_kernel(const void *context, int64_t begin, int64_t end, int thread)
{
    const weight_grad *g = context;
    (void)thread;
    STORED(g->dw.dtype, some_of_kernel, g, g->sums + begin * g->x.c, g->x.c, ((span){begin, end - begin}),
           all_of(&g->x));
}

static void weight_grad_run(const lc_call *call)
{
    weight_grad g = weight_grad_of(call);
    lc__parallel_for(call->threads, g.parts * g.rows * g.columns, 1, sum_squares, &g);
    if (g.parts > 1) lc__parallel_for(call->threads, g.dy.c, 1, sums_to_kernel, &g);
}

static lc_status weight_grad_prepare(lc_call *call)
{
    weight_grad g = weight_grad_of(call);
    int64_t threads = call->threads > 1 ? call->threads : 1;
    int64_t shared = g.parts > 1 ? g.parts * WG_ALL * g.step_sums : 0;
    call->scratch_bytes = (size_t)(shared + threads * g.per_thread) * sizeof(float);
    return LC_OK;
}

/* ---- supported convolutions ---- */
static bool conv_supports(const lc_call *call)
{
    return pays(call, &call->in[0], &call->in[1], &call->out[0], &call->out[0], SHARE) &&
           (call->ints[8] == 0 || call->ints[8] == 1);
}

static bool input_grad_supports(const lc_call *call)
{
    return pays(call, &call->in[0], &call->in[1], &call->out[0], &call->out[0], SHARE);
}

static bool weight_grad_supports(const lc_call *call)
{
    return pays(call, &call->in[1], &call->out[0], &call->in[0], &call->in[0], WEIGHTS_SHARE);
}

static const lc_kernel conv_kernel = {
    .name = "winograd_conv_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = conv_supports,
    .prepare = conv_prepare,
    .run = conv_run,
};

static const lc_kernel input_grad_kernel = {
    .name = "winograd_conv_input_grad_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = input_grad_supports,
    .prepare = conv_prepare,
    .run = conv_run,
};

static const lc_kernel weight_grad_kernel = {
    .name = "winograd_conv_weight_grad_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = weight_grad_supports,
    .prepare = weight_grad_prepare,
    .run = weight_grad_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__winograd_kernels)[] = {
    {&lc__op_conv, &conv_kernel},
    {&lc__op_conv_input_grad, &input_grad_kernel},
    {&lc__op_conv_weight_grad, &weight_grad_kernel},
    {NULL, NULL},
};
