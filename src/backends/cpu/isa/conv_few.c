/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of images with few channels, such as the first of a network, with operands in 16 bits, and their
 * gradients of weights, also in f32. A row of results is computed at a time, from a copy of the rows of pixels that it
 * needs, in f32 and with zeros around: so a number of a patch is at the same offset from every place. Places or numbers
 * of patches are broadcast, channels of results fill vectors.
 *
 * The gradient sums over rows in parts, which depend only on the shape, so results are the same for any number of
 * threads. */
#include "backends/cpu/isa/epilogue.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/patches.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define FEW_CHANNELS 4
#define MOST_NUMBERS 256 /* of a patch */
#define MOST_ROW     (64 << 10)
/* Parts of a gradient, and numbers that they have together unless they would be too few. */
#define LEAST_PARTS 4
#define MOST_PARTS  32
#define MOST_SUMS   ((int64_t)1 << 20)
/* Places, or numbers of patches, and vectors of channels whose sums stay in registers. */
#if VW == 16
#define AT_ONCE 12
#else
#define AT_ONCE 6
#endif

typedef struct few {
    shape s;
    int64_t numbers, row; /* of a patch; floats of a row of the copy */
    int64_t rows;         /* of results */
    int64_t offsets[MOST_NUMBERS];
    lc_view x, y, w;
    const float *bias;  /* OPTIONAL */
    int64_t activation; /* as in the operator's ints */
    bool accumulate;
    float *matrix; /* [number][channel]: the weights; of the gradient, its parts */
    int64_t parts;
    int64_t per_thread;
    float *scratch; /* per thread: the rows that a row of results needs; a row of results */
} few;

static int64_t parts_of(int64_t rows, int64_t numbers)
{
    int64_t parts = MOST_SUMS / numbers;
    parts = parts < LEAST_PARTS ? LEAST_PARTS : parts < MOST_PARTS ? parts : MOST_PARTS;
    return parts < rows ? parts : rows;
}

static few few_of(const lc_call *call)
{
    const bool grad = call->op == &lc__op_conv_weight_grad;
    few f = {.x = call->in[grad], .w = grad ? call->out[0] : call->in[1], .y = grad ? call->in[0] : call->out[0]};
    shape *s = &f.s;
    *s = shape_of(call->ints, &f.x, &f.w, &f.y);
    f.numbers = product_of_3(s->kernel) * s->in_channels;
    f.row = ((s->out[2] - 1) * s->stride[2] + (s->kernel[2] - 1) * s->dilation[2] + 1) * s->in_channels;
    f.rows = s->images * s->out[1];
    f.parts = grad ? parts_of(f.rows, f.numbers * s->out_channels) : 1;
    f.per_thread = s->kernel[1] * f.row + s->out[2] * s->out_channels + VW;
    f.activation = grad ? 0 : call->ints[2 + 3 * call->ints[0]];
    f.accumulate = call->accumulate;
    for (int64_t i = 0; i < f.numbers && i < MOST_NUMBERS; i++) {
        int64_t t = i / s->in_channels;
        f.offsets[i] =
            t / s->kernel[2] * f.row + t % s->kernel[2] * s->dilation[2] * s->in_channels + i % s->in_channels;
    }
    f.matrix = call->scratch; /* NULL while the call is prepared */
    if (f.matrix) f.scratch = f.matrix + (f.parts * f.numbers + 1) * s->out_channels;
    return f;
}

/* ---- rows of pixels ---- */

/* The rows that a row of results needs, one after the other. */
LC_INLINE void copy_rows(const lc_dtype type, const few *f, int64_t result, float *to)
{
    const shape *s = &f->s;
    const int64_t image = result / s->out[1], top = result % s->out[1] * s->stride[1] - s->padding[1];
    const int64_t left = s->padding[2] * s->in_channels, width = s->in[2] * s->in_channels;
    const int64_t count = f->row - left < width ? f->row - left : width;
    for (int64_t r = 0; r < s->kernel[1]; r++, to += f->row) {
        const int64_t i = top + r * s->dilation[1];
        memset(to, 0, (size_t)f->row * sizeof *to);
        if (i >= 0 && i < s->in[1] && count > 0)
            get_run_of(type, f->x.data, (image * s->in[1] + i) * width, count, to + left);
    }
}

/* ---- results ---- */

/* Sums of `places` neighbors and some vectors of channels. */
LC_INLINE void sum_places(const int places, const int vectors, const few *f, const float *pixels, int64_t channel,
                          float *to)
{
    const int64_t step = f->s.stride[2] * f->s.in_channels, channels = f->s.out_channels;
    const float *weights = f->matrix + channel;
    vf sum[AT_ONCE][2];
#pragma GCC unroll 16
    for (int m = 0; m < places; m++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[m][v] = f->bias ? vload(f->bias + channel + v * VW) : vzero();
    }
    for (int64_t i = 0; i < f->numbers; i++, weights += channels) {
        const float *at = pixels + f->offsets[i];
        vf w[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) w[v] = vload(weights + v * VW);
#pragma GCC unroll 16
        for (int m = 0; m < places; m++) {
            const vf e = vsplat(at[m * step]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[m][v] += e * w[v];
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < places; m++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) vstore(to + m * channels + channel + v * VW, sum[m][v]);
    }
}

LC_INLINE void sum_channels(const int places, const few *f, const float *pixels, float *to)
{
    int64_t c = 0;
    for (; c + 2 * VW <= f->s.out_channels; c += 2 * VW) sum_places(places, 2, f, pixels, c, to);
    if (c < f->s.out_channels) sum_places(places, 1, f, pixels, c, to);
}

static void some_results(const void *context, int64_t begin, int64_t end, int thread)
{
    const few *f = context;
    const shape *s = &f->s;
    float *pixels = f->scratch + thread * f->per_thread, *results = pixels + s->kernel[1] * f->row;
    const int64_t step = s->stride[2] * s->in_channels, all = s->out[2] * s->out_channels;
    for (int64_t row = begin; row < end; row++) {
        STORED(f->x.dtype, copy_rows, f, row, pixels);
        int64_t m = 0;
        for (; m + AT_ONCE <= s->out[2]; m += AT_ONCE)
            sum_channels(AT_ONCE, f, pixels + m * step, results + m * s->out_channels);
        for (; m + 2 <= s->out[2]; m += 2) sum_channels(2, f, pixels + m * step, results + m * s->out_channels);
        if (m < s->out[2]) sum_channels(1, f, pixels + m * step, results + m * s->out_channels);
        if (f->activation) epilogue_linear(NULL, (int)f->activation, results, all);
        put_run(f->y.dtype, f->y.data, row * all, all, results);
    }
}

static void conv_run(const lc_call *call)
{
    few f = few_of(call);
    const int64_t channels = f.s.out_channels;
    for (int64_t i = 0; i < f.numbers; i++)
        for (int64_t o = 0; o < channels; o++) f.matrix[i * channels + o] = get(f.w.dtype, f.w.data, o * f.numbers + i);
    if (given(&call->in[2])) {
        float *bias = f.matrix + f.numbers * channels;
        get_run(call->in[2].dtype, call->in[2].data, 0, channels, bias);
        f.bias = bias;
    }
    lc__parallel_for(call->threads, f.rows, 1, some_results, &f);
}

/* ---- the gradient of the weights ---- */

/* Adds what a row of dy gives for `count` numbers of patches from i on, and some vectors of channels. */
LC_INLINE void add_numbers(const lc_dtype type, const int count, const int vectors, const few *f, const float *pixels,
                           int64_t row, int64_t i, int64_t channel, float *to)
{
    const int64_t step = f->s.stride[2] * f->s.in_channels, channels = f->s.out_channels;
    const int64_t dy = row * f->s.out[2] * channels + channel, *offsets = f->offsets + i;
    vf sum[AT_ONCE][2];
#pragma GCC unroll 16
    for (int k = 0; k < count; k++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[k][v] = vzero();
    }
    for (int64_t m = 0; m < f->s.out[2]; m++) {
        vf d[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) d[v] = vget(type, f->y.data, dy + m * channels + v * VW);
#pragma GCC unroll 16
        for (int k = 0; k < count; k++) {
            const vf e = vsplat(pixels[m * step + offsets[k]]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[k][v] += e * d[v];
        }
    }
#pragma GCC unroll 16
    for (int k = 0; k < count; k++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *at = to + (i + k) * channels + channel + v * VW;
            vstore(at, vload(at) + sum[k][v]);
        }
    }
}

LC_INLINE void add_channels(const lc_dtype type, const int count, const few *f, const float *pixels, int64_t row,
                            int64_t i, float *to)
{
    int64_t c = 0;
    for (; c + 2 * VW <= f->s.out_channels; c += 2 * VW) add_numbers(type, count, 2, f, pixels, row, i, c, to);
    if (c < f->s.out_channels) add_numbers(type, count, 1, f, pixels, row, i, c, to);
}

LC_INLINE void add_row(const lc_dtype type, const few *f, const float *pixels, int64_t row, float *to)
{
    int64_t i = 0;
    for (; i + AT_ONCE <= f->numbers; i += AT_ONCE) add_channels(type, AT_ONCE, f, pixels, row, i, to);
    for (; i + AT_ONCE / 2 <= f->numbers; i += AT_ONCE / 2) add_channels(type, AT_ONCE / 2, f, pixels, row, i, to);
    for (; i + 3 <= f->numbers; i += 3) add_channels(type, 3, f, pixels, row, i, to);
    for (; i < f->numbers; i++) add_channels(type, 1, f, pixels, row, i, to);
}

static void some_parts(const void *context, int64_t begin, int64_t end, int thread)
{
    const few *f = context;
    const int64_t size = f->numbers * f->s.out_channels;
    float *pixels = f->scratch + thread * f->per_thread;
    for (int64_t part = begin; part < end; part++) {
        float *to = f->matrix + part * size;
        memset(to, 0, (size_t)size * sizeof *to);
        for (int64_t row = f->rows * part / f->parts; row < f->rows * (part + 1) / f->parts; row++) {
            STORED(f->x.dtype, copy_rows, f, row, pixels);
            STORED(f->y.dtype, add_row, f, pixels, row, to);
        }
    }
}

/* Numbers [begin, end) of all channels' patches. */
static void join_parts(const void *context, int64_t begin, int64_t end, int thread)
{
    const few *f = context;
    const int64_t channels = f->s.out_channels, size = f->numbers * channels;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        for (int64_t o = 0; o < channels; o++) {
            const int64_t at = o * f->numbers + i;
            float sum = f->accumulate ? get(f->w.dtype, f->w.data, at) : 0;
            for (int64_t part = 0; part < f->parts; part++) sum += f->matrix[part * size + i * channels + o];
            put(f->w.dtype, f->w.data, at, sum);
        }
    }
}

static void weight_grad_run(const lc_call *call)
{
    few f = few_of(call);
    lc__parallel_for(call->threads, f.parts, 1, some_parts, &f);
    lc__parallel_for(call->threads, f.numbers, MOST_NUMBERS / 16, join_parts, &f);
}

/* ---- kernels ---- */

static lc_status prepare(lc_call *call)
{
    const few f = few_of(call);
    const int64_t threads = call->threads > 1 ? call->threads : 1;
    call->scratch_bytes =
        (size_t)((f.parts * f.numbers + 1) * f.s.out_channels + threads * f.per_thread) * sizeof(float);
    return LC_OK;
}

static bool supports(const lc_call *call)
{
    bool low = false;
    const int nd = (int)call->ints[0];
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const lc_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        if (!given(v)) continue;
        if (!is_stored(v->dtype) || !numel(v)) return false;
        low |= v->dtype != LC_F32;
    }
    const lc_view *w = call->op == &lc__op_conv ? &call->in[1] : &call->out[0];
    /* oneDNN's gradients of f32 take 1.1 to 1.5 times as long (measured on Zen 5, AVX2 and AVX-512, oneDNN 2.6.3). */
    low |= call->op == &lc__op_conv_weight_grad && w->shape[0] >= 2 * VW;
    if (!low || nd > 2 || call->ints[1 + 3 * nd] != 1) return false;
    if (w->shape[0] % VW || w->shape[1] > FEW_CHANNELS || numel(w) / w->shape[0] > MOST_NUMBERS) return false;
    return few_of(call).per_thread <= MOST_ROW;
}

static const lc_kernel conv_kernel = {
    .name = "conv_few_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = supports,
    .prepare = prepare,
    .run = conv_run,
};

static const lc_kernel weight_grad_kernel = {
    .name = "conv_weight_grad_few_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .prepare = prepare,
    .run = weight_grad_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__conv_few_kernels)[] = {
    {&lc__op_conv, &conv_kernel},
    {&lc__op_conv_weight_grad, &weight_grad_kernel},
    {NULL, NULL},
};
