/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a 3 x 3 convolution with respect to its input, if the images have no padding, by the transpose of
 * Winograd's algorithm (winograd.h): y = A^T [(G g G^T) (B^T d B)] A is linear in d, so
 *
 *   dd = B [(G g G^T) (A dy A^T)] B^T
 *
 * with a product per point over the tiles of dy, which are fewer than those of the larger dx, which winograd.c cuts.
 * The 6 x 6 pixels of neighboring tiles overlap by two: a thread adds them up, for whole images, in a band of f32 that
 * is as high as a tile, and stores rows to which no later tile adds. So no sum depends on the number of threads. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/winograd_choice.h"
#include "backends/cpu/isa/winograd_tiles.h"
#include "backends/cpu/parallel.h"

#include <string.h>

/* Fewer images than these do not keep threads busy. */
#define LEAST_IMAGES 16
/* Rows of a band that later tiles add to. */
#define SHARED_ROWS (WG_POINTS - WG_RESULTS)

typedef struct input_grad {
    images dy, dx;
    tiling tiles; /* of dy */
    int64_t padding;
    const lc_view *weight; /* [O][3][3][I] */
    const lc_view *bias;   /* of dx; OPTIONAL */
    int64_t images_per_block, tiles_per_image;
    int64_t band_row; /* numbers in a row of a band */
    int64_t step_dy, step_dx, step_kernel, per_thread;
    float *kernel;  /* [point][panel of columns][dy.c][columns of the panel] */
    float *scratch; /* per thread: points of dy, points of dx, a band */
} input_grad;

static input_grad input_grad_of(const lc_call *call)
{
    input_grad g = {.dy = images_of(&call->in[0]), .dx = images_of(&call->out[0]), .padding = call->ints[3]};
    const int64_t threads = call->threads > 1 ? call->threads : 1;
    g.tiles = tiling_of(&g.dy, 0);
    g.weight = &call->in[1];
    g.bias = given(&call->in[2]) ? &call->in[2] : NULL;
    g.tiles_per_image = g.tiles.rows * g.tiles.columns;
    const int64_t tiles = tiles_of_block(g.tiles_per_image, g.tiles.count, g.dy.c, g.dx.c, threads);
    g.images_per_block = tiles / g.tiles_per_image;
    g.band_row = (g.tiles.columns * WG_RESULTS + SHARED_ROWS) * g.dx.c;
    g.step_dy = point_step(tiles, g.dy.c);
    g.step_dx = point_step(tiles, g.dx.c);
    g.step_kernel = point_step(g.dy.c, g.dx.c);
    g.per_thread = WG_ALL * (g.step_dy + g.step_dx) + WG_POINTS * g.band_row;
    g.kernel = call->scratch; /* NULL while the call is prepared */
    g.scratch = g.kernel ? g.kernel + WG_ALL * g.step_kernel : NULL;
    return g;
}

/* ---- the kernel ---- */

LC_INLINE void kernel_to_points(const lc_dtype type, const input_grad *g, int64_t first, int64_t panel, int64_t width)
{
    vf in[9], points[WG_ALL];
    for (int64_t o = first; o < first + VW; o++) {
        float *row = g->kernel + panel * g->dy.c + o * width;
        for (int64_t n = 0; n < width; n += VW) {
            for (int t = 0; t < 9; t++) in[t] = vget(type, g->weight->data, (o * 9 + t) * g->dx.c + panel + n);
            wg_both_ways(wg_values3, 3, WG_POINTS, in, points);
            for (int p = 0; p < WG_ALL; p++) vstore(row + p * g->step_kernel + n, points[p]);
        }
    }
}

static int64_t columns_of(const input_grad *g, int64_t panel)
{
    return g->dx.c - panel < PANEL ? g->dx.c - panel : PANEL;
}

/* Blocks [begin, end) of VW rows, one panel after the other: what is written together is together in memory. */
static void transform_kernel(const void *context, int64_t begin, int64_t end, int thread)
{
    const input_grad *g = context;
    const int64_t blocks = g->dy.c / VW;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t panel = i / blocks * PANEL;
        STORED(g->weight->dtype, kernel_to_points, g, i % blocks * VW, panel, columns_of(g, panel));
    }
}

/* ---- images ---- */

/* Adds a row of tiles to a band. */
static void add_tiles(const input_grad *g, const float *points, float *band)
{
    for (int64_t j = 0; j < g->tiles.columns; j++, points += g->dx.c, band += WG_RESULTS * g->dx.c)
        for (int64_t c = 0; c < g->dx.c; c += VW)
            add_pixels_of_points(points + c, g->step_dx, band + c, g->band_row, g->dx.c);
}

/* Stores the first `rows` rows of a band, of which the first is row `h` of the image; some may be outside of it. */
LC_INLINE void store_rows(const lc_dtype type, const input_grad *g, const float *band, int64_t image, int64_t h,
                          int64_t rows)
{
    const int64_t first = h < 0 ? -h : 0, end = g->dx.h - h < rows ? g->dx.h - h : rows;
    for (int64_t r = first; r < end; r++) {
        const float *from = band + r * g->band_row + g->padding * g->dx.c;
        const int64_t to = (image * g->dx.h + h + r) * g->dx.w * g->dx.c;
        for (int64_t w = 0; w < g->dx.w; w++) {
            for (int64_t c = 0; c < g->dx.c; c += VW) {
                vf value = vload(from + w * g->dx.c + c);
                if (g->bias) value += vget(type, g->bias->data, c);
                vput(type, g->dx.data, to + w * g->dx.c + c, value);
            }
        }
    }
}

static void points_to_image(const input_grad *g, const float *points, float *band, int64_t image)
{
    const int64_t shared = SHARED_ROWS * g->band_row, others = WG_RESULTS * g->band_row;
    memset(band, 0, (size_t)(shared + others) * sizeof *band);
    for (int64_t i = 0; i < g->tiles.rows; i++, points += g->tiles.columns * g->dx.c) {
        const bool last = i == g->tiles.rows - 1;
        add_tiles(g, points, band);
        STORED(g->dx.type, store_rows, g, band, image, i * WG_RESULTS - g->padding, last ? WG_POINTS : WG_RESULTS);
        if (last) break;
        memcpy(band, band + others, (size_t)shared * sizeof *band);
        memset(band + shared, 0, (size_t)others * sizeof *band);
    }
}

/* Images [begin, end). */
static void compute_images(const void *context, int64_t begin, int64_t end, int thread)
{
    const input_grad *g = context;
    float *dy = g->scratch + thread * g->per_thread, *dx = dy + WG_ALL * g->step_dy, *band = dx + WG_ALL * g->step_dx;
    const int64_t first = begin * g->tiles_per_image, tiles = (end - begin) * g->tiles_per_image;
    const int64_t image_bytes = g->dx.h * g->dx.w * g->dx.c * (int64_t)stored_size(g->dx.type);
    const char *to = (const char *)g->dx.data + begin * image_bytes;
    const int64_t bytes = (end - begin) * image_bytes;
    for (int64_t t = 0; t < tiles; t++)
        gradient_to_points(&g->dy, all_of(&g->dy), &g->tiles, first + t, dy + t * g->dy.c, g->step_dy);
    for (int p = 0; p < WG_ALL; p++) {
        fetch_to_write(to + bytes * p / WG_ALL, bytes * (p + 1) / WG_ALL - bytes * p / WG_ALL);
        for (int64_t n = 0; n < g->dx.c; n += PANEL)
            gemm(tiles, columns_of(g, n), g->dy.c, dy + p * g->step_dy, g->dy.c, 1,
                 g->kernel + p * g->step_kernel + n * g->dy.c, columns_of(g, n), dx + p * g->step_dx + n, g->dx.c,
                 false);
    }
    for (int64_t i = begin; i < end; i++) points_to_image(g, dx + (i - begin) * g->tiles_per_image * g->dx.c, band, i);
}

static void input_grad_run(const lc_call *call)
{
    const input_grad g = input_grad_of(call);
    const int64_t panels = (g.dx.c + PANEL - 1) / PANEL;
    lc__parallel_for(call->threads, panels * (g.dy.c / VW), 1, transform_kernel, &g);
    lc__parallel_for(call->threads, g.dy.n, g.images_per_block, compute_images, &g);
}

static lc_status input_grad_prepare(lc_call *call)
{
    const input_grad g = input_grad_of(call);
    const int64_t threads = call->threads > 1 ? call->threads : 1;
    call->scratch_bytes = (size_t)(WG_ALL * g.step_kernel + threads * g.per_thread) * sizeof(float);
    return LC_OK;
}

/* Images by which a block would be larger than the caches, and kernels that do not stay in them, are left to
 * winograd.c. */
static bool input_grad_supports(const lc_call *call)
{
    const lc_view *dy = &call->in[0], *w = &call->in[1], *dx = &call->out[0];
    if (!pays(call, dy, w, dx, dy, SHARE) || dy->shape[0] < LEAST_IMAGES) return false;
    if (given(&call->in[2]) && call->in[2].dtype != dx->dtype) return false;
    const images by = images_of(dy), to = images_of(dx);
    const tiling of_dy = tiling_of(&by, 0), of_dx = tiling_of(&to, 0);
    return 5 * of_dy.count <= 4 * of_dx.count && of_dy.count / by.n <= MOST_TILES &&
           (double)(WG_ALL * 4 * by.c) * (double)to.c <= LARGE_KERNEL;
}

static const lc_kernel input_grad_kernel = {
    .name = "winograd_conv_input_grad_transposed_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = input_grad_supports,
    .prepare = input_grad_prepare,
    .run = input_grad_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__winograd_input_grad_kernels)[] = {
    {&lc__op_conv_input_grad, &input_grad_kernel},
    {NULL, NULL},
};
