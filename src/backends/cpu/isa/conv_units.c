/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of bf16 and their gradients with respect to the input (conv_units.h), which are convolutions with the
 * mirrored kernel, in units for matrices.
 *
 * An image is read where it is, or is copied into a frame of zeros. The pixels that a tap sees from neighboring places
 * are neighbors, too, so rows of the first factor's tile begin at them. With few channels, a tile would be nearly
 * empty: there is then a frame for each row of places, in which a pixel has all numbers of its column of the kernel,
 * and a place sees neighboring columns, so that a row of the tile begins within the one before it. */
#include "backends/cpu/isa/conv_units.h"
#include "backends/cpu/isa/epilogue.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define WIDTH (2 * SIDE) /* channels of results that are computed at a time */

typedef struct conv {
    shape s;               /* of a gradient: with dy as images, and the padding of the mirrored kernel */
    bool mirrored;         /* it is a gradient */
    bool few;              /* channels */
    bool in_place;         /* images are frames */
    int64_t pixel;         /* numbers of a pixel of a frame */
    int64_t rows, columns; /* of a frame */
    int64_t depth;         /* of a tile */
    int64_t count[3];      /* of steps of k: rows, columns and channels of a tap */
    int64_t step[3];       /* of each, in bytes of a frame */
    int64_t steps;
    int64_t block, blocks; /* places of a tile, which are neighbors in a row; in a row */
    int activation;
    const uint16_t *images, *weights;
    float *bias;    /* of whole WIDTHs */
    char *tiles;    /* of weights */
    char *frames;   /* of each thread */
    lc_dtype dtype; /* of results */
    void *out;
} conv;

static conv conv_of(const lc_call *call)
{
    const bool mirrored = call->op == &lc__op_conv_input_grad;
    const lc_view *images = &call->in[0], *w = &call->in[1], *out = &call->out[0];
    conv c = {.s = mirrored ? shape_of(call->ints, out, w, images) : shape_of(call->ints, images, w, out),
              .mirrored = mirrored,
              .activation = mirrored ? 0 : (int)call->ints[2 + 3 * call->ints[0]],
              .images = images->data,
              .weights = w->data,
              .dtype = out->dtype,
              .out = out->data};
    shape *s = &c.s;
    if (mirrored) {
        const shape of = *s;
        memcpy(s->in, of.out, sizeof s->in);
        memcpy(s->out, of.in, sizeof s->out);
        s->in_channels = of.out_channels;
        s->out_channels = of.in_channels;
        for (int d = H; d <= W; d++) s->padding[d] = (s->kernel[d] - 1) * s->dilation[d] - s->padding[d];
    }
    const int64_t column = whole_of(s->kernel[H] * s->in_channels, 2);
    c.few = s->in_channels <= 8 && column <= STEP && s->dilation[W] == 1;
    c.pixel = c.few ? column : whole_of(s->in_channels, STEP);
    c.columns = s->out[W] + (s->kernel[W] - 1) * s->dilation[W];
    c.rows = s->out[H] + (c.few ? 0 : (s->kernel[H] - 1) * s->dilation[H]);
    c.in_place = !c.few && !s->padding[H] && !s->padding[W] && s->in_channels == c.pixel;
    c.depth = !c.few ? STEP : s->kernel[W] * column <= STEP ? s->kernel[W] * column : column;
    c.count[0] = c.few ? 1 : s->kernel[H];
    c.count[1] = c.few ? s->kernel[W] * column / c.depth : s->kernel[W];
    c.count[2] = c.few ? 1 : c.pixel / STEP;
    c.step[0] = s->dilation[H] * c.columns * c.pixel * 2;
    c.step[1] = c.few ? c.depth * 2 : s->dilation[W] * c.pixel * 2;
    c.step[2] = c.depth * 2;
    c.steps = product_of_3(c.count);
    c.blocks = parts_of(s->out[W], SIDE);
    c.block = parts_of(s->out[W], c.blocks);
    return c;
}

/* ---- memory ---- */

static int64_t bias_bytes(const conv *c)
{
    return whole_of(c->s.out_channels, WIDTH) * (int64_t)sizeof(float);
}

static int64_t tiles_bytes(const conv *c)
{
    return parts_of(c->s.out_channels, WIDTH) * c->steps * 2 * TILE;
}

static int64_t frame_bytes(const conv *c)
{
    return c->in_place ? 0 : whole_of(c->rows * c->columns * c->pixel * 2, 64);
}

static lc_status prepare(lc_call *call)
{
    const conv c = conv_of(call);
    call->scratch_bytes =
        (size_t)(bias_bytes(&c) + tiles_bytes(&c) + frame_bytes(&c) * (call->threads > 1 ? call->threads : 1));
    return LC_OK;
}

/* ---- weights ---- */

/* The element of the weights for a tap and a channel of the images, for results in channel n. */
static int64_t weight_at(const conv *c, int64_t h, int64_t w, int64_t channel, int64_t n)
{
    const int64_t *kernel = c->s.kernel;
    if (c->mirrored)
        return ((channel * kernel[H] + kernel[H] - 1 - h) * kernel[W] + kernel[W] - 1 - w) * c->s.out_channels + n;
    return ((n * kernel[H] + h) * kernel[W] + w) * c->s.in_channels + channel;
}

/* A tile for few channels, number by number. */
static void make_small_tile(const conv *c, int64_t step, int64_t n, int64_t width, char *to)
{
    const shape *s = &c->s;
    memset(to, 0, TILE);
    for (int64_t k = 0; k < c->depth; k++) {
        const int64_t w = (step * c->depth + k) / c->pixel, at = (step * c->depth + k) % c->pixel;
        if (at >= s->kernel[H] * s->in_channels) continue;
        for (int64_t i = 0; i < width; i++)
            memcpy(to + (k / 2 * SIDE + i) * 4 + k % 2 * 2,
                   c->weights + weight_at(c, at / s->in_channels, w, at % s->in_channels, n + i), 2);
    }
}

static void make_tile(const conv *c, int64_t step, int64_t n, char *to)
{
    const int64_t left = c->s.out_channels - n, width = left < SIDE ? left : SIDE;
    if (width <= 0) {
        memset(to, 0, TILE);
        return;
    }
    if (c->few) {
        make_small_tile(c, step, n, width, to);
        return;
    }
    const int64_t of_tap = step / c->count[2], channel = step % c->count[2] * STEP, depth = c->s.in_channels - channel;
    const int64_t at = weight_at(c, of_tap / c->s.kernel[W], of_tap % c->s.kernel[W], channel, n);
    const int64_t row = c->s.kernel[H] * c->s.kernel[W] * (c->mirrored ? c->s.out_channels : c->s.in_channels);
    if (c->mirrored)
        tile_of_columns(BF16, 0, c->weights, at, row, width, depth, false, to, 64);
    else
        tile_of_rows(BF16, 0, c->weights, at, row, width, depth, true, to, 64);
}

static void make_tiles(const void *context, int64_t begin, int64_t end, int thread)
{
    const conv *c = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int half = 0; half < 2; half++)
            make_tile(c, i % c->steps, i / c->steps * WIDTH + half * SIDE, c->tiles + (2 * i + half) * TILE);
}

/* ---- frames ---- */

/* Copies an image into the middle of a frame. */
static void make_frame(const conv *c, const uint16_t *image, uint16_t *to)
{
    const shape *s = &c->s;
    const int64_t width = c->columns * c->pixel, channels = s->in_channels;
    memset(to, 0, (size_t)(c->rows * width) * sizeof *to);
    for (int64_t h = 0; h < s->in[H]; h++, image += s->in[W] * channels) {
        uint16_t *row = to + (h + s->padding[H]) * width + s->padding[W] * c->pixel;
        if (channels == c->pixel)
            memcpy(row, image, (size_t)(s->in[W] * channels) * sizeof *row);
        else
            for (int64_t w = 0; w < s->in[W]; w++)
                memcpy(row + w * c->pixel, image + w * channels, (size_t)channels * sizeof *row);
    }
}

/* Makes a row of pixels for each row of places. */
static void make_columns(const conv *c, const uint16_t *image, uint16_t *to)
{
    const shape *s = &c->s;
    const int64_t width = c->columns * c->pixel, channels = s->in_channels;
    memset(to, 0, (size_t)(c->rows * width) * sizeof *to);
    for (int64_t h = 0; h < c->rows; h++, to += width) {
        for (int64_t k = 0; k < s->kernel[H]; k++) {
            const int64_t from = h + k * s->dilation[H] - s->padding[H];
            if (from < 0 || from >= s->in[H]) continue;
            const uint16_t *row = image + from * s->in[W] * channels;
            uint16_t *first = to + s->padding[W] * c->pixel + k * channels;
            for (int64_t i = 0; i < channels; i++)
                for (int64_t w = 0; w < s->in[W]; w++) first[w * c->pixel + i] = row[w * channels + i];
        }
    }
}

/* ---- results ---- */

/* Sums of two blocks of places, whose frames begin at a and a_2. `narrow`: only of the first SIDE channels. */
LC_INLINE void add_products(const conv *c, const char *a, const char *a_2, const char *b, float *sums,
                            const bool narrow)
{
    const int64_t row = c->pixel * 2, to_row = WIDTH * (int64_t)sizeof *sums;
    _tile_zero(0);
    _tile_zero(1);
    if (!narrow) _tile_zero(2);
    if (!narrow) _tile_zero(3);
    for (int64_t h = 0; h < c->count[0]; h++) {
        for (int64_t w = 0; w < c->count[1]; w++) {
            int64_t at = h * c->step[0] + w * c->step[1];
            for (int64_t i = 0; i < c->count[2]; i++, at += c->step[2], b += 2 * TILE) {
                _tile_loadd(6, b, 64);
                _tile_loadd(4, a + at, row);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(5, a_2 + at, row);
                _tile_dpbf16ps(1, 5, 6);
                if (narrow) continue;
                _tile_loadd(7, b + TILE, 64);
                _tile_dpbf16ps(2, 4, 7);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
    }
    _tile_stored(0, sums, to_row);
    _tile_stored(1, sums + SIDE * WIDTH, to_row);
    if (!narrow) _tile_stored(2, sums + SIDE, to_row);
    if (!narrow) _tile_stored(3, sums + SIDE * WIDTH + SIDE, to_row);
}

/* A whole row of results. */
LC_INLINE void put_width(const lc_dtype t, void *to, int64_t at, vf first, vf second)
{
    if (t == LC_BF16) {
        _mm512_storeu_si512((uint16_t *)to + at, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
    } else {
        vput(t, to, at, first);
        vput(t, to, at + VW, second);
    }
}

/* Results of a block of places, from element `at` on, in channels from n on. */
LC_INLINE void finish_whole(const lc_dtype t, const conv *c, const float *sums, int64_t at, int64_t n, const bool relu)
{
    const int64_t channels = c->s.out_channels, block = c->block;
    const vf b = vload(c->bias + n), b_2 = vload(c->bias + n + VW);
    void *to = c->out;
    for (int64_t i = 0; i < block; i++, sums += WIDTH, at += channels) {
        const vf z = vload(sums) + b, z_2 = vload(sums + VW) + b_2;
        put_width(t, to, at + n, relu ? vselect(z <= vzero(), vzero(), z) : z,
                  relu ? vselect(z_2 <= vzero(), vzero(), z_2) : z_2);
    }
}

LC_INLINE void finish_of(const lc_dtype t, const conv *c, float *sums, int64_t at, int64_t n)
{
    const int64_t channels = c->s.out_channels, width = channels - n < WIDTH ? channels - n : WIDTH;
    if (width == WIDTH && c->activation == 0) {
        finish_whole(t, c, sums, at, n, false);
    } else if (width == WIDTH && c->activation == 1) {
        finish_whole(t, c, sums, at, n, true);
    } else {
        for (int64_t i = 0; i < c->block; i++, sums += WIDTH, at += channels) {
            epilogue_linear(c->bias + n, c->activation, sums, width);
            put_run_of(t, c->out, at + n, width, sums);
        }
    }
}

/* A block of places: the element of the frame where it begins, and that of the results. */
typedef struct spot {
    int64_t from, to;
} spot;

/* The last block of a row begins where it ends with the row, so that two may share places. */
static inline spot spot_of(const conv *c, int64_t image, int64_t i)
{
    const int64_t h = i / c->blocks, first = i % c->blocks * c->block, last = c->s.out[W] - c->block;
    const int64_t w = first < last ? first : last;
    return (spot){(h * c->columns + w) * c->pixel, ((image * c->s.out[H] + h) * c->s.out[W] + w) * c->s.out_channels};
}

static void convolve(const conv *c, int64_t image, const uint16_t *frame)
{
    float sums[2 * SIDE * WIDTH] __attribute__((aligned(64)));
    const int64_t blocks = c->s.out[H] * c->blocks;
    const char *b = c->tiles;
    for (int64_t n = 0; n < c->s.out_channels; n += WIDTH, b += c->steps * 2 * TILE) {
        for (int64_t i = 0; i < blocks; i += 2) {
            const spot first = spot_of(c, image, i), second = spot_of(c, image, i + 1 < blocks ? i + 1 : i);
            const char *a = (const char *)(frame + first.from), *a_2 = (const char *)(frame + second.from);
            if (c->s.out_channels - n <= SIDE)
                add_products(c, a, a_2, b, sums, true);
            else
                add_products(c, a, a_2, b, sums, false);
            STORED(c->dtype, finish_of, c, sums, first.to, n);
            STORED(c->dtype, finish_of, c, sums + SIDE * WIDTH, second.to, n);
        }
    }
}

static void images_of(const void *context, int64_t begin, int64_t end, int thread)
{
    const conv *c = context;
    const int64_t image = c->s.in[H] * c->s.in[W] * c->s.in_channels;
    uint16_t *frame = (uint16_t *)(c->frames + thread * frame_bytes(c));
    units_take(c->block, c->depth);
    for (int64_t n = begin; n < end; n++) {
        const uint16_t *from = c->images + n * image;
        if (c->few)
            make_columns(c, from, frame);
        else if (!c->in_place)
            make_frame(c, from, frame);
        convolve(c, n, c->in_place ? from : frame);
    }
    _tile_release();
}

static void run(const lc_call *call)
{
    conv c = conv_of(call);
    const lc_view *bias = &call->in[2];
    const int64_t n = c.s.out_channels;
    c.bias = call->scratch;
    c.tiles = (char *)call->scratch + bias_bytes(&c);
    c.frames = c.tiles + tiles_bytes(&c);
    memset(c.bias, 0, (size_t)bias_bytes(&c));
    if (given(bias)) get_run(bias->dtype, bias->data, 0, n, c.bias);
    lc__parallel_for(call->threads, parts_of(n, WIDTH) * c.steps, 8, make_tiles, &c);
    lc__parallel_for(call->threads, c.s.images, 1, images_of, &c);
}

static bool conv_supports(const lc_call *call)
{
    return units_compute(call, &call->in[0], &call->in[1], &call->out[0]);
}

static bool input_grad_supports(const lc_call *call)
{
    return units_compute(call, &call->out[0], &call->in[1], &call->in[0]);
}

static const lc_kernel conv_kernel = {
    .name = "conv_units",
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = conv_supports,
    .prepare = prepare,
    .run = run,
};

static const lc_kernel input_grad_kernel = {
    .name = "conv_input_grad_units",
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = input_grad_supports,
    .prepare = prepare,
    .run = run,
};

const lc__kernel_entry LC_ISA_NAME(lc__conv_units_kernels)[] = {
    {&lc__op_conv, &conv_kernel},
    {&lc__op_conv_input_grad, &input_grad_kernel},
    {NULL, NULL},
};
