/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of convolutions of bf16 with respect to the weights (conv_units.h), in units for matrices: products that
 * sum over places. An image is turned into planes, each of one channel, in which the pixels that a tap sees from
 * neighboring places are neighbors: a row of the first factor's tile begins at them. With few channels, in which a tile
 * would be nearly empty, there is a plane for each number of a patch. The second factor is dy, in pairs of places.
 *
 * Each part of the batch has sums of its own, which are added in order. */
#include "backends/cpu/isa/conv_units.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define MOST_PARTS 16
#define MOST_BYTES ((int64_t)1 << 20) /* sums of a part */

typedef struct grad {
    shape s;
    bool few;                /* channels */
    int64_t patch;           /* its numbers */
    int64_t columns;         /* of planes; even, so that no pair of places is in two rows */
    int64_t places;          /* of a plane, whole steps: those beyond a row or the image have a dy of 0 */
    int64_t planes, plane;   /* whole tiles; numbers of each */
    int64_t blocks;          /* of channels in a plane */
    int64_t rows_of_tile;    /* of the first factor */
    int64_t tiles, dy_tiles; /* of results: numbers of a patch, channels of dy */
    int64_t parts, part;     /* of the batch; images of each */
    const uint16_t *x, *dy;
    char *sums, *copies; /* of each part; of each thread */
    lc_dtype dtype;
    void *dw;
    bool accumulate;
} grad;

static grad grad_of(const lc_call *call)
{
    const lc_view *dy = &call->in[0], *x = &call->in[1], *dw = &call->out[0];
    grad g = {.s = shape_of(call->ints, x, dw, dy),
              .x = x->data,
              .dy = dy->data,
              .dtype = dw->dtype,
              .dw = dw->data,
              .accumulate = call->accumulate};
    const shape *s = &g.s;
    const int64_t taps = s->kernel[H] * s->kernel[W],
                  reach[3] = {0, (s->kernel[H] - 1) * s->dilation[H], (s->kernel[W] - 1) * s->dilation[W]};
    g.few = s->in_channels <= 4;
    g.patch = taps * s->in_channels;
    g.columns = whole_of(s->out[W] + (g.few ? 0 : reach[W]), 2);
    g.places = whole_of(s->out[H] * g.columns, STEP);
    g.planes = whole_of(g.few ? g.patch : s->in_channels, SIDE);
    g.plane = whole_of(g.places + (g.few ? 0 : reach[H] * g.columns + reach[W]) + STEP, STEP) + STEP / 2;
    g.blocks = g.planes / SIDE;
    g.rows_of_tile = g.few && g.patch < SIDE ? g.patch : SIDE;
    g.tiles = g.few ? g.blocks : taps * g.blocks;
    g.dy_tiles = parts_of(s->out_channels, SIDE);
    g.part = parts_of(s->images, MOST_PARTS);
    g.parts = parts_of(s->images, g.part);
    return g;
}

/* ---- memory ---- */

static int64_t sums_bytes(const grad *g)
{
    return g->tiles * g->dy_tiles * TILE;
}

static int64_t planes_bytes(const grad *g)
{
    return whole_of(g->planes * g->plane * 2, 64);
}

static int64_t dy_bytes(const grad *g)
{
    return g->places / 2 * g->dy_tiles * 64;
}

static int64_t copy_bytes(const grad *g)
{
    return planes_bytes(g) + dy_bytes(g);
}

static lc_status prepare(lc_call *call)
{
    const grad g = grad_of(call);
    const int64_t threads = call->threads > 1 ? call->threads : 1;
    call->scratch_bytes = (size_t)(g.parts * sums_bytes(&g) + threads * copy_bytes(&g));
    return LC_OK;
}

/* ---- copies of the factors ---- */

/* Turns `pixels` neighbors into planes, from place `at` on. Zeros follow them. */
static void turn_pixels(const grad *g, const uint16_t *x, int64_t pixels, int64_t at, uint16_t *to)
{
    const int64_t channels = g->s.in_channels, plane = g->plane * 2;
    for (int64_t i = 0; i < pixels; i += STEP) {
        for (int64_t c = 0; c < channels; c += SIDE) {
            char *tile = (char *)(to + c * g->plane + at + i);
            if (channels - c >= SIDE && pixels - i >= STEP)
                tile_of_columns(BF16, 0, x, i * channels + c, channels, SIDE, STEP, true, tile, plane);
            else
                tile_of_columns(BF16, 0, x, i * channels + c, channels, channels - c, pixels - i, true, tile, plane);
        }
    }
}

static void make_planes(const grad *g, const uint16_t *x, uint16_t *to)
{
    const shape *s = &g->s;
    if (s->in[W] == g->columns) { /* rows follow one another without a border */
        turn_pixels(g, x, s->in[H] * s->in[W], s->padding[H] * g->columns, to);
        return;
    }
    for (int64_t h = 0; h < s->in[H]; h++, x += s->in[W] * s->in_channels)
        turn_pixels(g, x, s->in[W], (h + s->padding[H]) * g->columns + s->padding[W], to);
}

/* A plane of the values that one number of a patch has at all places. */
static void make_patch_plane(const grad *g, const uint16_t *x, const int64_t *shift, int64_t channel, uint16_t *to)
{
    const shape *s = &g->s;
    const int64_t channels = s->in_channels;
    const int64_t begin = shift[W] < 0 ? -shift[W] : 0, rest = s->in[W] - shift[W];
    const int64_t end = rest < s->out[W] ? rest : s->out[W];
    for (int64_t h = 0; h < s->out[H]; h++, to += g->columns) {
        if (h + shift[H] < 0 || h + shift[H] >= s->in[H]) continue;
        const uint16_t *row = x + ((h + shift[H]) * s->in[W] + shift[W]) * channels + channel;
        if (channels == 1 && end > begin)
            memcpy(to + begin, row + begin, (size_t)(end - begin) * sizeof *to);
        else
            for (int64_t w = begin; w < end; w++) to[w] = row[w * channels];
    }
}

static void make_patch_planes(const grad *g, const uint16_t *x, uint16_t *to)
{
    const shape *s = &g->s;
    for (int64_t i = 0; i < g->patch; i++, to += g->plane) {
        const int64_t of_tap = i / s->in_channels;
        const int64_t shift[3] = {0, of_tap / s->kernel[W] * s->dilation[H] - s->padding[H],
                                  of_tap % s->kernel[W] * s->dilation[W] - s->padding[W]};
        make_patch_plane(g, x, shift, i % s->in_channels, to);
    }
}

/* A place and the next one; only its channels of `which`, and of the next one those of `next`. */
LC_INLINE void make_pair(const uint16_t *dy, int64_t channels, __mmask16 which, __mmask16 next, char *to)
{
    const __m512i even = numbers(BF16, 0, dy, 0, which), odd = numbers(BF16, 0, dy, next ? channels : 0, next);
    _mm512_store_si512(to, pairs(even, odd));
}

/* Rows of tiles, each of a pair of places and all channels. */
static void make_pairs(const grad *g, const uint16_t *dy, char *to)
{
    const shape *s = &g->s;
    const int64_t channels = s->out_channels, row = g->dy_tiles * 64, width = s->out[W];
    for (int64_t h = 0; h < s->out[H]; h++, to += g->columns / 2 * row, dy += width * channels) {
        for (int64_t w = 0; w < width; w += 2) {
            const uint16_t *from = dy + w * channels;
            char *pair = to + w / 2 * row;
            int64_t c = 0;
            for (; w + 1 < width && c + SIDE <= channels; c += SIDE, pair += 64)
                make_pair(from + c, channels, 0xffff, 0xffff, pair);
            for (; c < channels; c += SIDE, pair += 64) {
                const __mmask16 which = (__mmask16)first_32(channels - c);
                make_pair(from + c, channels, which, w + 1 < width ? which : 0, pair);
            }
        }
    }
}

/* ---- sums ---- */

/* Where the rows of a tile of the first factor begin in the planes. */
static int64_t tile_at(const grad *g, int64_t i)
{
    const shape *s = &g->s;
    const int64_t of_tap = i / g->blocks;
    if (g->few) return i * SIDE * g->plane;
    return i % g->blocks * SIDE * g->plane + of_tap / s->kernel[W] * s->dilation[H] * g->columns +
           of_tap % s->kernel[W] * s->dilation[W];
}

/* Adds the products of the tile at `a` of the planes and of `width` tiles from b on of the pairs to as many tiles of
 * sums. Rows of the former are across lines of the cache, which takes longer, so it is used for as many as there are
 * registers. */
LC_INLINE void add_products(const grad *g, const uint16_t *a, const char *b, char *sums, const int width)
{
    const int64_t row = g->plane * 2, dy_row = g->dy_tiles * 64, places = g->places;
    _tile_loadd(0, sums, 64);
    if (width > 1) _tile_loadd(1, sums + TILE, 64);
    if (width > 2) _tile_loadd(2, sums + 2 * TILE, 64);
    if (width > 3) _tile_loadd(3, sums + 3 * TILE, 64);
    for (int64_t k = 0; k < places; k += STEP, b += STEP / 2 * dy_row) {
        _tile_loadd(4, a + k, row);
        _tile_loadd(6, b, dy_row);
        _tile_dpbf16ps(0, 4, 6);
        if (width > 1) _tile_loadd(7, b + 64, dy_row);
        if (width > 1) _tile_dpbf16ps(1, 4, 7);
        if (width > 2) _tile_loadd(6, b + 128, dy_row);
        if (width > 2) _tile_dpbf16ps(2, 4, 6);
        if (width > 3) _tile_loadd(7, b + 192, dy_row);
        if (width > 3) _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, sums, 64);
    if (width > 1) _tile_stored(1, sums + TILE, 64);
    if (width > 2) _tile_stored(2, sums + 2 * TILE, 64);
    if (width > 3) _tile_stored(3, sums + 3 * TILE, 64);
}

static void add_image(const grad *g, const uint16_t *planes, const char *pairs_of_dy, char *sums)
{
    for (int64_t i = 0; i < g->tiles; i++) {
        const uint16_t *a = planes + tile_at(g, i);
        for (int64_t n = 0, width; n < g->dy_tiles; n += width, sums += width * TILE) {
            width = g->dy_tiles - n < 4 ? g->dy_tiles - n : 4;
            const char *b = pairs_of_dy + n * 64;
            if (width == 4)
                add_products(g, a, b, sums, 4);
            else if (width == 3)
                add_products(g, a, b, sums, 3);
            else if (width == 2)
                add_products(g, a, b, sums, 2);
            else
                add_products(g, a, b, sums, 1);
        }
    }
}

static void add_parts(const void *context, int64_t begin, int64_t end, int thread)
{
    const grad *g = context;
    const shape *s = &g->s;
    const int64_t x = s->in[H] * s->in[W] * s->in_channels, dy = s->out[H] * s->out[W] * s->out_channels;
    char *planes = g->copies + thread * copy_bytes(g), *pairs_of_dy = planes + planes_bytes(g);
    memset(planes, 0, (size_t)copy_bytes(g));
    units_take(g->rows_of_tile, STEP);
    for (int64_t p = begin; p < end; p++) {
        char *sums = g->sums + p * sums_bytes(g);
        const int64_t last = (p + 1) * g->part < s->images ? (p + 1) * g->part : s->images;
        memset(sums, 0, (size_t)sums_bytes(g));
        for (int64_t n = p * g->part; n < last; n++) {
            if (g->few)
                make_patch_planes(g, g->x + n * x, (uint16_t *)planes);
            else
                make_planes(g, g->x + n * x, (uint16_t *)planes);
            make_pairs(g, g->dy + n * dy, pairs_of_dy);
            add_image(g, (const uint16_t *)planes, pairs_of_dy, sums);
        }
    }
    _tile_release();
}

/* ---- the gradient ---- */

/* Adds the parts of a row of a tile, and writes the numbers to their places: number k of the patch, of channels from n
 * on. */
static void put_row(const grad *g, int64_t at, int64_t k, int64_t n)
{
    const int64_t left = g->s.out_channels - n, width = left < SIDE ? left : SIDE;
    float sum[SIDE];
    vf total = vzero();
    for (int64_t p = 0; p < g->parts; p++) total += vload((const float *)(g->sums + p * sums_bytes(g) + at));
    vstore(sum, total);
    for (int64_t i = 0; i < width; i++) {
        const int64_t to = (n + i) * g->patch + k;
        put(g->dtype, g->dw, to, g->accumulate ? sum[i] + get(g->dtype, g->dw, to) : sum[i]);
    }
}

static void put_tiles(const void *context, int64_t begin, int64_t end, int thread)
{
    const grad *g = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t block = g->few ? i : i % g->blocks, in_tap = g->few ? g->patch : g->s.in_channels;
        const int64_t first = (g->few ? 0 : i / g->blocks * in_tap) + block * SIDE, left = in_tap - block * SIDE;
        for (int64_t n = 0; n < g->dy_tiles; n++)
            for (int64_t r = 0; r < left && r < SIDE; r++)
                put_row(g, (i * g->dy_tiles + n) * TILE + r * 64, first + r, n * SIDE);
    }
}

static void run(const lc_call *call)
{
    grad g = grad_of(call);
    g.sums = call->scratch;
    g.copies = g.sums + g.parts * sums_bytes(&g);
    lc__parallel_for(call->threads, g.parts, 1, add_parts, &g);
    lc__parallel_for(call->threads, g.tiles, 4, put_tiles, &g);
}

static bool supports(const lc_call *call)
{
    if (!units_compute(call, &call->in[1], &call->out[0], &call->in[0])) return false;
    const grad g = grad_of(call);
    return sums_bytes(&g) <= MOST_BYTES;
}

static const lc_kernel kernel = {
    .name = "conv_weight_grad_units",
    .layout = LC_WANT_CHANNELS_LAST,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .prepare = prepare,
    .run = run,
};

const lc__kernel_entry LC_ISA_NAME(lc__conv_units_grad_kernels)[] = {
    {&lc__op_conv_weight_grad, &kernel},
    {NULL, NULL},
};
