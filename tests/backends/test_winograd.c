/* SPDX-License-Identifier: Apache-2.0 */
/* The Winograd convolutions (isa/winograd.c) on every instruction set of the machine: against the reference kernels in
 * f64 on many shapes, the same bits on any number of threads, no memory allocated, their error, and which calls they
 * take. To add a shape: a line in `geometries`. */
#include "test.h"

#include "base/half.h"
#include "fail_malloc.h"
#include "kernel_check.h"

/* TRANSPOSED: the gradient of the input by the transposed algorithm. */
typedef enum which { FORWARD, INPUT_GRAD, TRANSPOSED, WEIGHT_GRAD, KINDS } which;

static const lc_op *const ops[KINDS] = {&lc__op_conv, &lc__op_conv_input_grad, &lc__op_conv_input_grad,
                                        &lc__op_conv_weight_grad};
static const char *const sets[] = {"base", "avx2", "avx512"};
#define SETS ((int)(sizeof sets / sizeof *sets))

typedef struct geometry {
    int64_t n, c, o, h, w, padding; /* of the image x; kernels are 3 x 3 */
} geometry;

/* Parameters of a convolution besides its shape. */
typedef struct extras {
    bool bias, relu, accumulate;
} extras;

/* One of the three calls. Buffers are allocated to the byte, so that a sanitizer detects any access beyond them. */
typedef struct conv_call {
    which kind;
    lc_view in[3], out[1];
    int64_t ints[10];
    lc_call call;
    void *scratch;
} conv_call;

static int64_t bytes_of(const lc_view *v)
{
    return view_numel(v) * (int64_t)lc_dtype_size(v->dtype);
}

static void *exactly(int64_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, (size_t)bytes)) TEST_FAIL("out of memory: the test");
    return p;
}

static lc_view view4(lc_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return dense_view(dtype, CHECK_CHANNELS_LAST, 4, (int64_t[]){a, b, c, d});
}

static lc_view absent(void)
{
    lc_view v;
    memset(&v, 0, sizeof v);
    v.ndim = -1;
    return v;
}

/* Fills in the call without data. */
static void describe(conv_call *k, which kind, const geometry *g, extras e, lc_dtype dtype)
{
    const int64_t oh = g->h + 2 * g->padding - 2, ow = g->w + 2 * g->padding - 2;
    const lc_view x = view4(dtype, g->n, g->c, g->h, g->w), w = view4(dtype, g->o, g->c, 3, 3),
                  y = view4(dtype, g->n, g->o, oh, ow);
    const int64_t ints[10] = {2, 1, 1, g->padding, g->padding, 1, 1, 1};
    memset(k, 0, sizeof *k);
    k->kind = kind;
    memcpy(k->ints, ints, sizeof ints);
    k->in[0] = kind == FORWARD ? x : y;
    k->in[1] = kind == WEIGHT_GRAD ? x : w;
    k->in[2] = absent();
    k->out[0] = kind == FORWARD ? y : kind == WEIGHT_GRAD ? w : x;
    if (e.bias) k->in[2] = dense_view(dtype, CHECK_ROW_MAJOR, 1, &k->out[0].shape[1]);
    if (kind == FORWARD) {
        k->ints[8] = e.relu;
    } else {
        for (int d = 0; d < 2; d++) k->ints[8 + d] = k->out[0].shape[2 + d];
    }
    k->call = (lc_call){.op = ops[kind],
                        .n_in = kind == WEIGHT_GRAD ? 2 : 3,
                        .n_out = 1,
                        .n_int = kind == FORWARD ? 9 : 10,
                        .in = k->in,
                        .out = k->out,
                        .ints = k->ints,
                        .threads = 1,
                        .deterministic = true,
                        .accumulate = e.accumulate};
}

/* Random operands; an accumulating call also gets a random result to add to. */
static void fill_all(conv_call *k, uint64_t seed, double mean)
{
    lc_view *views[4] = {&k->in[0], &k->in[1], &k->in[2], &k->out[0]};
    for (int i = 0; i < 4; i++) {
        lc_view *v = views[i];
        if (v->ndim < 0) continue;
        v->data = exactly(bytes_of(v));
        bool pixels = i == (k->kind == WEIGHT_GRAD); /* x, or dy for the gradient of the input */
        for (int64_t j = 0; j < view_numel(v); j++)
            ((float *)v->data)[j] = (float)(fill_normal(&seed, 1.) + (pixels ? mean : 0.));
    }
}

static void release(conv_call *k)
{
    for (int i = 0; i < 3; i++) free(k->in[i].data);
    free(k->out[0].data);
    free(k->scratch);
}

static void prepare(conv_call *k, const lc_kernel *kernel, int threads)
{
    k->call.kernel = kernel;
    k->call.threads = threads;
    k->call.scratch_bytes = 0;
    if (kernel->prepare) CHECK_OK(kernel->prepare(&k->call));
    free(k->scratch);
    k->scratch = k->call.scratch_bytes ? exactly((int64_t)k->call.scratch_bytes) : NULL;
    if (k->scratch) memset(k->scratch, 0xff, k->call.scratch_bytes); /* NaNs */
    k->call.scratch = k->scratch;
}

static void finish(conv_call *k)
{
    if (k->call.kernel->release) k->call.kernel->release(&k->call);
}

/* Runs the same call on the reference kernel in f64; the caller frees the result. */
static double *reference(const conv_call *k, const geometry *g, extras e)
{
    conv_call wide;
    describe(&wide, k->kind, g, e, LC_F64);
    for (int i = 0; i < 4; i++) {
        const lc_view *from = i < 3 ? &k->in[i] : &k->out[0];
        lc_view *to = i < 3 ? &wide.in[i] : &wide.out[0];
        if (from->ndim < 0) continue;
        to->data = exactly(bytes_of(to));
        for (int64_t j = 0; j < view_numel(from); j++) ((double *)to->data)[j] = (double)((const float *)from->data)[j];
    }
    prepare(&wide, ops[k->kind]->kernel, 1);
    wide.call.kernel->run(&wide.call);
    finish(&wide);
    double *result = wide.out[0].data;
    wide.out[0].data = NULL;
    release(&wide);
    return result;
}

/* The instruction set's Winograd kernel, found by a call that gains from it. */
static const lc_kernel *winograd_of(const lc__isa *isa, which kind, lc_dtype type)
{
    const geometry large = {16, 64, 64, 32, 32, 1}, unpadded = {16, 64, 64, 14, 14, 0};
    conv_call k;
    describe(&k, kind, kind == TRANSPOSED ? &unpadded : &large, (extras){0}, type);
    const lc_kernel *kernel = lc__isa_kernel(isa, &k.call);
    if (!kernel || strncmp(kernel->name, "winograd", 8)) TEST_FAIL("%s has no Winograd %s", isa->name, ops[kind]->name);
    if (!strstr(kernel->name, "transposed") != (kind != TRANSPOSED)) TEST_FAIL("it is %s", kernel->name);
    return kernel;
}

/* NULL without that set. */
static const lc_kernel *winograd(int set, which kind)
{
    const lc__isa *isa = lc__isa_find(sets[set]);
    return isa ? winograd_of(isa, kind, LC_F32) : NULL;
}

/* ---- results ---- */
/* Channels are multiples of every set's vector. Sizes: less than a tile, every remainder, many tiles; blocks of tiles
 * and stretches (128 tiles and more) that end early; one panel of columns, a part of one, several and a part. */
static const geometry geometries[] = {
    {1, 16, 16, 1, 1, 1},
    {1, 16, 16, 3, 3, 0},
    {1, 16, 16, 1, 1, 2},
    {1, 16, 32, 2, 3, 1},
    {2, 32, 16, 4, 4, 1},
    {1, 16, 48, 5, 6, 0},
    {3, 48, 16, 6, 7, 2},
    {1, 64, 80, 7, 5, 1},
    {2, 80, 64, 8, 9, 0},
    {1, 96, 16, 9, 8, 2},
    {5, 16, 16, 10, 3, 1},
    {1, 32, 64, 14, 14, 0},
    {2, 32, 64, 13, 11, 2},
    {1, 16, 16, 3, 41, 1},
    {1, 16, 16, 40, 4, 2},
    {7, 16, 32, 12, 1, 1},
    {9, 16, 16, 17, 18, 1},
    {11, 32, 16, 14, 14, 0},
    {3, 16, 112, 6, 6, 1},
    {2, 160, 144, 4, 5, 1},
    {5, 64, 48, 23, 22, 1},
    /* kernels whose points are too many for caches, few tiles: in blocks, which are not whole at the ends */
    {2, 416, 304, 4, 5, 1},
    {1, 304, 416, 3, 3, 2},
};
#define GEOMETRIES ((int)(sizeof geometries / sizeof *geometries))

/* The largest difference from `want`, relative to its largest value. */
static double worst(const lc_view *got, const double *want)
{
    double largest = 0, off = 0;
    for (int64_t i = 0; i < view_numel(got); i++) {
        double d = fabs((double)((const float *)got->data)[i] - want[i]);
        if (!(d <= off)) off = d; /* NaN too */
        if (fabs(want[i]) > largest) largest = fabs(want[i]);
    }
    return off / (largest > 0 ? largest : 1);
}

static void check_results(which kind, const geometry *g, extras e)
{
    conv_call k;
    describe(&k, kind, g, e, LC_F32);
    fill_all(&k, 1234567 + (uint64_t)(g->h * 131 + g->w), .3);
    const lc_view *y = &k.out[0];
    const int64_t bytes = bytes_of(y);
    float *before = exactly(bytes), *first = exactly(bytes);
    memcpy(before, y->data, (size_t)bytes);
    double *want = reference(&k, g, e);
    for (int set = 0; set < SETS; set++) {
        const lc_kernel *kernel = winograd(set, kind);
        if (!kernel) continue;
        for (int run = 0; run < 5; run += ROUNDS(1, 2)) {
            const int threads[] = {1, 2, 7, 3, 2};
            k.call.deterministic = run < 4;
            prepare(&k, kernel, threads[run]);
            if (e.accumulate)
                memcpy(y->data, before, (size_t)bytes);
            else
                memset(y->data, 0xff, (size_t)bytes);
            kernel->run(&k.call);
            finish(&k);
            double off = worst(y, want);
            if (!(off < 4e-6))
                TEST_FAIL("%s: n %d, %d to %d channels, %d x %d, padding %d: off by %g of the largest", kernel->name,
                          (int)g->n, (int)g->c, (int)g->o, (int)g->h, (int)g->w, (int)g->padding, off);
            if (run == 0)
                memcpy(first, y->data, (size_t)bytes);
            else if (memcmp(first, y->data, (size_t)bytes))
                TEST_FAIL("%s: n %d, %d to %d channels, %d x %d, padding %d: %d threads give other bits than one",
                          kernel->name, (int)g->n, (int)g->c, (int)g->o, (int)g->h, (int)g->w, (int)g->padding,
                          threads[run]);
        }
    }
    free(before);
    free(first);
    free(want);
    release(&k);
}

TEST(forward)
{
    for (int i = 0; i < GEOMETRIES; i++)
        for (int form = 0; form < 4; form += ROUNDS(1, 3)) /* neither, and both, under a sanitizer */
            check_results(FORWARD, &geometries[i], (extras){.bias = form & 1, .relu = form & 2});
}

TEST(input_gradient)
{
    for (int i = 0; i < GEOMETRIES; i++)
        for (int form = 0; form < 2; form++) check_results(INPUT_GRAD, &geometries[i], (extras){.bias = form & 1});
}

TEST(transposed_input_gradient)
{
    for (int i = 0; i < GEOMETRIES; i++)
        for (int form = 0; form < 2; form++) check_results(TRANSPOSED, &geometries[i], (extras){.bias = form & 1});
}

TEST(weight_gradient)
{
    for (int i = 0; i < GEOMETRIES; i++)
        for (int form = 0; form < 2; form++)
            check_results(WEIGHT_GRAD, &geometries[i], (extras){.accumulate = form & 1});
}

static uint16_t narrow(lc_dtype type, float x)
{
    return type == LC_BF16 ? lc__f32_to_bf16(x) : lc__f32_to_f16(x);
}

static float widen(lc_dtype type, uint16_t h)
{
    return type == LC_BF16 ? lc__bf16_to_f32(h) : lc__f16_to_f32(h);
}

/* Operands of 16 bits are converted, computed as f32, and rounded once. */
static void check_stored(const char *set, which kind, lc_dtype type)
{
    const lc__isa *isa = lc__isa_find(set);
    if (!isa) return;
    const lc_kernel *kernel = winograd_of(isa, kind, type);
    const geometry g = {17, 32, 48, 9, 11, 0};
    conv_call wide, low;
    describe(&wide, kind, &g, (extras){.bias = kind != WEIGHT_GRAD}, LC_F32);
    describe(&low, kind, &g, (extras){.bias = kind != WEIGHT_GRAD}, type);
    fill_all(&wide, 42, .3);
    for (int i = 0; i < 4; i++) {
        lc_view *from = i < 3 ? &wide.in[i] : &wide.out[0], *to = i < 3 ? &low.in[i] : &low.out[0];
        if (from->ndim < 0) continue;
        to->data = exactly(bytes_of(to));
        for (int64_t j = 0; j < view_numel(from); j++) {
            float *x = (float *)from->data + j;
            ((uint16_t *)to->data)[j] = narrow(type, *x);
            *x = widen(type, narrow(type, *x));
        }
    }
    prepare(&wide, kernel, 2);
    kernel->run(&wide.call);
    finish(&wide);
    prepare(&low, kernel, 2);
    kernel->run(&low.call);
    finish(&low);
    for (int64_t j = 0; j < view_numel(&low.out[0]); j++)
        CHECK_EQ(((uint16_t *)low.out[0].data)[j], narrow(type, ((float *)wide.out[0].data)[j]));
    release(&wide);
    release(&low);
}

TEST(sixteen_bits)
{
    for (which kind = FORWARD; kind < KINDS; kind++) {
        for (int set = 0; set < SETS; set++) {
            check_stored(sets[set], kind, LC_BF16);
            check_stored(sets[set], kind, LC_F16);
        }
        check_stored("avx512_bf16", kind, LC_BF16);
    }
}

/* NaN and infinity must not vanish, and must not spread beyond their tiles. */
TEST(nan_and_infinity)
{
    const geometry g = {2, 16, 16, 16, 16, 1};
    for (int set = 0; set < SETS; set++) {
        for (which kind = FORWARD; kind <= INPUT_GRAD; kind++) {
            const lc_kernel *kernel = winograd(set, kind);
            if (!kernel) continue;
            for (int what = 0; what < 2; what++) {
                conv_call k;
                describe(&k, kind, &g, (extras){.relu = true}, LC_F32);
                fill_all(&k, 99, 0);
                /* Pixel (5, 6) of the first image is part of results (4..6, 5..7): tiles that begin at 4, 4. */
                ((float *)k.in[0].data)[(5 * 16 + 6) * 16 + 3] = what ? INFINITY : NAN;
                prepare(&k, kernel, 1);
                kernel->run(&k.call);
                finish(&k);
                const float *y = k.out[0].data;
                for (int64_t i = 0; i < view_numel(&k.out[0]); i++) {
                    int64_t column = i / 16 % 16, row = i / 256 % 16, image = i / 4096;
                    bool seen = image == 0 && row >= 4 && row <= 6 && column >= 5 && column <= 7;
                    bool tile = image == 0 && row >= 4 && row < 8 && column >= 4 && column < 8;
                    if (!tile) CHECK(isfinite(y[i]));
                    if (seen && !what) CHECK(isnan(y[i]));
                    if (seen && what && kind == INPUT_GRAD) CHECK(!isfinite(y[i]));
                }
                release(&k);
            }
        }
    }
}

TEST(allocates_nothing)
{
#ifdef SANITIZED
    SKIP("the sanitizer has an allocator of its own");
#else
    const geometry g = {3, 32, 48, 15, 13, 1};
    for (int set = 0; set < SETS; set++) {
        for (which kind = FORWARD; kind < KINDS; kind++) {
            const lc_kernel *kernel = winograd(set, kind);
            if (!kernel) continue;
            for (int threads = 1; threads <= 2; threads++) {
                conv_call k;
                describe(&k, kind, &g, (extras){0}, LC_F32);
                fill_all(&k, 5, 0);
                prepare(&k, kernel, threads);
                kernel->run(&k.call); /* the first run starts the threads */
                long before = atomic_load(&mallocs);
                kernel->run(&k.call);
                long taken = atomic_load(&mallocs) - before;
                finish(&k);
                CHECK_EQ(taken, 0);
                release(&k);
            }
        }
    }
#endif
}

/* ---- error ---- */
/* A result as exact sums in f64, and as a plain convolution gives it: in order, in f32 with fused additions. */
typedef struct plain {
    double exact;
    float single;
} plain;

static void plain_add(plain *s, float a, float b)
{
    s->exact += (double)a * (double)b;
    s->single = fmaf(a, b, s->single);
}

/* The channel's value at a pixel, 0 outside. */
static float pixel(const lc_view *v, int64_t n, int64_t c, int64_t h, int64_t w)
{
    if (h < 0 || h >= v->shape[2] || w < 0 || w >= v->shape[3]) return 0;
    return ((const float *)v->data)[((n * v->shape[2] + h) * v->shape[3] + w) * v->shape[1] + c];
}

static float weight_at(const lc_view *w, int64_t o, int64_t c, int64_t i, int64_t j)
{
    return ((const float *)w->data)[((o * 3 + i) * 3 + j) * w->shape[1] + c];
}

/* Result `at` (an offset in out[0]) by definition. */
static plain by_definition(const conv_call *k, int64_t padding, int64_t at)
{
    const lc_view *out = &k->out[0];
    int64_t c = at % out->shape[1], w = at / out->shape[1] % out->shape[3],
            h = at / out->shape[1] / out->shape[3] % out->shape[2],
            n = at / out->shape[1] / out->shape[3] / out->shape[2];
    plain s = {0, 0};
    if (k->kind == WEIGHT_GRAD) {
        const lc_view *dy = &k->in[0], *x = &k->in[1];
        for (int64_t b = 0; b < x->shape[0]; b++)
            for (int64_t i = 0; i < dy->shape[2]; i++)
                for (int64_t j = 0; j < dy->shape[3]; j++)
                    plain_add(&s, pixel(dy, b, n, i, j), pixel(x, b, c, i + h - padding, j + w - padding));
        return s;
    }
    const lc_view *x = &k->in[0], *weight = &k->in[1];
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            for (int64_t m = 0; m < x->shape[1]; m++) {
                if (k->kind == FORWARD)
                    plain_add(&s, pixel(x, n, m, h + i - padding, w + j - padding), weight_at(weight, c, m, i, j));
                else
                    plain_add(&s, pixel(x, n, m, h - i + padding, w - j + padding), weight_at(weight, m, c, i, j));
            }
        }
    }
    return s;
}

#define SAMPLES 600

/* Errors against exact sums: the root mean square of the kernel and of plain sums, relative to that of the results; and
 * the kernel's largest, relative to the largest result. */
typedef struct error {
    double rms, plain_rms, largest;
} error;

static error error_of(const lc_kernel *kernel, which kind, const geometry *g, double mean)
{
    conv_call k;
    describe(&k, kind, g, (extras){0}, LC_F32);
    fill_all(&k, 31, mean);
    prepare(&k, kernel, 2);
    kernel->run(&k.call);
    finish(&k);
    double square = 0, largest = 0, off = 0, off_plain = 0, worst_off = 0;
    const int64_t n = view_numel(&k.out[0]);
    uint64_t seed = 77;
    for (int i = 0; i < SAMPLES; i++) {
        int64_t at = (int64_t)(next_uniform(&seed) * (double)n);
        plain want = by_definition(&k, g->padding, at);
        double d = (double)((const float *)k.out[0].data)[at] - want.exact, p = (double)want.single - want.exact;
        square += want.exact * want.exact;
        off += d * d;
        off_plain += p * p;
        if (fabs(d) > worst_off) worst_off = fabs(d);
        if (fabs(want.exact) > largest) largest = fabs(want.exact);
    }
    release(&k);
    return (error){sqrt(off / square), sqrt(off_plain / square), worst_off / largest};
}

TEST(error)
{
    static const geometry real[] = {
        {8, 32, 64, 14, 14, 0},  {8, 64, 64, 32, 32, 1},   {8, 128, 128, 16, 16, 1},
        {16, 256, 256, 8, 8, 1}, {8, 512, 512, 12, 12, 1}, {32, 512, 512, 4, 4, 1},
    };
    for (int set = 0; set < SETS; set++) {
        for (which kind = FORWARD; kind < KINDS; kind++) {
            const lc_kernel *kernel = winograd(set, kind);
            if (!kernel) continue;
            error most = {0, 0, 0};
            double times = 0;
            /* Only the small ones under a sanitizer: the large ones run the same code. */
            for (int i = 0; i < ROUNDS(2 * (int)(sizeof real / sizeof *real), 4); i++) {
                error e = error_of(kernel, kind, &real[i / 2], i % 2);
                if (!(e.rms <= most.rms)) most.rms = e.rms;
                if (!(e.largest <= most.largest)) most.largest = e.largest;
                if (!(e.rms / e.plain_rms <= times)) times = e.rms / e.plain_rms;
            }
            printf("  %-32s error up to %.1e of the results (rms), %.1f times that of plain sums; largest %.1e of the "
                   "largest\n",
                   kernel->name, most.rms, times, most.largest);
            CHECK(most.rms < 4e-6);
            CHECK(most.largest < 8e-6);
            CHECK(times < 4);
        }
    }
}

/* ---- which calls ---- */
static bool taken(int set, const conv_call *k)
{
    const lc__isa *isa = lc__isa_find(sets[set]);
    const lc_kernel *kernel = lc__isa_kernel(isa, &k->call);
    return kernel && !strncmp(kernel->name, "winograd", 8);
}

TEST(takes_calls_that_gain)
{
    static const geometry worth[] = {{100, 32, 64, 14, 14, 0},
                                     {128, 64, 64, 32, 32, 1},
                                     {128, 128, 128, 16, 16, 1},
                                     {128, 256, 256, 8, 8, 1},
                                     {128, 512, 512, 4, 4, 1}};
    static const geometry not_worth[] = {
        {128, 16, 1, 28, 28, 1},  {128, 1, 32, 28, 28, 1},  {128, 3, 64, 32, 32, 1}, /* few channels */
        {128, 64, 64, 1, 1, 1},   {128, 64, 64, 2, 2, 1},                            /* tiles mostly empty */
        {128, 36, 64, 32, 32, 1}, {128, 64, 67, 32, 32, 1}, {0, 64, 64, 32, 32, 1},  /* not whole vectors; no samples */
        {128, 64, 64, 32, 32, 3}, {128, 64, 64, 0, 32, 1},
    };
    conv_call k;
    for (int set = 0; set < SETS; set++) {
        if (!lc__isa_find(sets[set])) continue;
        for (which kind = FORWARD; kind < KINDS; kind++) {
            for (size_t i = 0; i < sizeof worth / sizeof *worth; i++) {
                describe(&k, kind, &worth[i], (extras){.bias = kind != WEIGHT_GRAD}, LC_F32);
                if (!taken(set, &k)) TEST_FAIL("%s: %s leaves shape %d", sets[set], ops[kind]->name, (int)i);
            }
            for (size_t i = 0; i < sizeof not_worth / sizeof *not_worth; i++) {
                /* 36 channels are nine of base's vectors. */
                if (set == 0 && not_worth[i].c == 36) continue;
                describe(&k, kind, &not_worth[i], (extras){0}, LC_F32);
                if (taken(set, &k)) TEST_FAIL("%s: %s takes shape %d", sets[set], ops[kind]->name, (int)i);
            }
            /* Another stride, dilation or number of groups; unequal paddings; another dtype. */
            for (int which_int = 1; which_int <= 7; which_int++) {
                describe(&k, kind, &worth[1], (extras){0}, LC_F32);
                k.ints[which_int]++;
                CHECK(!taken(set, &k));
            }
            describe(&k, kind, &worth[1], (extras){0}, LC_F64);
            CHECK(!taken(set, &k));
            describe(&k, kind, &worth[1], (extras){0}, LC_F32);
            lc_view *w = kind == WEIGHT_GRAD ? &k.out[0] : &k.in[1];
            *w = view4(LC_F32, 64, 64, 5, 3);
            CHECK(!taken(set, &k));
        }
        /* Only a kernel that is transformed first costs more if it is large. */
        describe(&k, WEIGHT_GRAD, &(geometry){4, 512, 512, 4, 4, 1}, (extras){0}, LC_F32);
        CHECK(taken(set, &k));
        describe(&k, FORWARD, &(geometry){4, 512, 512, 4, 4, 1}, (extras){0}, LC_F32);
        CHECK(!taken(set, &k));
        describe(&k, FORWARD, &worth[1], (extras){0}, LC_F32);
        for (int activation = 0; activation < 4; activation++) {
            k.ints[8] = activation;
            CHECK_EQ(taken(set, &k), activation < 2); /* tanh and sigmoid are left to oneDNN */
        }
    }
}

/* Images without padding, if there are enough of them, and if one of them does not fill a block. */
TEST(transposes_what_lacks_padding)
{
    static const struct {
        geometry g;
        bool transposed;
    } cases[] = {
        {{100, 32, 64, 14, 14, 0}, true},  {{16, 32, 64, 14, 14, 0}, true},   {{15, 32, 64, 14, 14, 0}, false},
        {{100, 64, 64, 16, 16, 1}, false}, {{100, 64, 64, 13, 13, 1}, false}, {{100, 64, 64, 60, 60, 0}, false},
    };
    conv_call k;
    for (int set = 0; set < SETS; set++) {
        const lc__isa *isa = lc__isa_find(sets[set]);
        if (!isa) continue;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            describe(&k, INPUT_GRAD, &cases[i].g, (extras){0}, LC_F32);
            const lc_kernel *kernel = lc__isa_kernel(isa, &k.call);
            CHECK(kernel && !strncmp(kernel->name, "winograd", 8));
            if (!strstr(kernel->name, "transposed") == cases[i].transposed)
                TEST_FAIL("%s: case %d is computed by %s", sets[set], (int)i, kernel->name);
        }
    }
}

/* Others multiply bf16 as it is, where that is faster (16 channels: 154 us against 195, on Zen 5). */
TEST(leaves_few_channels_of_bf16)
{
    const lc__isa *isa = lc__isa_find("avx512_bf16");
    if (!isa) SKIP("this machine does not multiply bf16");
    const geometry few = {100, 16, 32, 14, 14, 0}, enough = {100, 32, 64, 14, 14, 0};
    conv_call k;
    describe(&k, INPUT_GRAD, &few, (extras){0}, LC_BF16);
    const lc_kernel *kernel = lc__isa_kernel(isa, &k.call);
    CHECK(!kernel || strncmp(kernel->name, "winograd", 8));
    describe(&k, INPUT_GRAD, &enough, (extras){0}, LC_BF16);
    kernel = lc__isa_kernel(isa, &k.call);
    CHECK(kernel && strstr(kernel->name, "transposed"));
}

/* The rule considers only the call, never threads or determinism: these must not change bits. */
TEST(choice_depends_only_on_the_call)
{
    conv_call k;
    for (int set = 0; set < SETS; set++) {
        if (!lc__isa_find(sets[set])) continue;
        for (which kind = FORWARD; kind < KINDS; kind++) {
            for (int i = 0; i < GEOMETRIES; i++) {
                describe(&k, kind, &geometries[i], (extras){0}, LC_F32);
                bool first = taken(set, &k);
                for (int threads = 1; threads < 64; threads *= 3) {
                    k.call.threads = threads;
                    k.call.deterministic = threads % 2 == 0;
                    k.call.accumulate = kind == WEIGHT_GRAD;
                    CHECK_EQ(taken(set, &k), first);
                }
            }
        }
    }
}

TEST_MAIN
