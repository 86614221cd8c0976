/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN's kernels on bf16, against f32 on the same numbers: every kernel that can do a call, whether or not this
 * machine has instructions that make it fast. */
#include "low_check.h"

#include "backends/backends.h"
#include "backends/cpu/onednn/onednn.h"
#include "backends/cpu_units.h"

#include <lightc/random.h>

static int checked; /* kernels, in this test */

/* Releases the case. */
static void check_candidates(kernel_case *c, lc_dtype out, bool accumulate)
{
    float *want[LC_MAX_OUTPUTS];
    const lc_kernel *kernels[LC_ONEDNN_MAX_CANDIDATES];
    int n;
    reference_of(c, out, want);
    lc_call call = call_of(c, NULL, 1);
    CHECK_OK(lc__onednn_candidates(&call, LC_ONEDNN_MAX_CANDIDATES, kernels, &n));
    for (int i = 0; i < n; i++, checked++) check_low_kernel(c, kernels[i], want, accumulate);
    release_low(c, want);
}

static void need_kernels(void)
{
    if (!checked) SKIP("oneDNN has no kernels for bf16 here");
}

/* [batch, rows, columns], or without a batch; `turned`: stored by columns. */
static void add_matrix(kernel_case *c, int64_t batch, int64_t rows, int64_t columns, bool turned)
{
    int64_t shape[3], n = 0, wide = turned ? rows : columns;
    if (batch) shape[n++] = batch;
    shape[n++] = turned ? columns : rows;
    shape[n++] = wide;
    lc_view *v = add_input(c, LC_BF16, CHECK_ROW_MAJOR, (int)n, shape, fill_normal, 0.3);
    v->shape[n - 2] = rows;
    v->shape[n - 1] = columns;
    v->stride[n - 2] = turned ? 1 : wide;
    v->stride[n - 1] = turned ? wide : 1;
}

TEST(matrices)
{
    static const int64_t sizes[][4] = {{0, 64, 784, 128}, {0, 13, 257, 33}, {0, 1, 40, 20},
                                       {6, 17, 33, 35},   {0, 512, 96, 64}, {3, 64, 64, 64}};
    checked = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int how = 0; how < 16; how++) {
            kernel_case c = case_of(&lc__op_matmul);
            c.of_largest = 1e-5;
            add_matrix(&c, sizes[i][0], sizes[i][1], sizes[i][2], how & 1);
            add_matrix(&c, sizes[i][0], sizes[i][2], sizes[i][3], how & 2);
            check_candidates(&c, how & 4 ? LC_F32 : LC_BF16, how & 8);
        }
    }
    need_kernels();
}

TEST(bias_and_activation)
{
    checked = 0;
    for (int64_t how = 0; how < 24; how++) {
        static const int64_t columns = 48;
        kernel_case c = case_of(&lc__op_linear);
        c.of_largest = 1e-5;
        add_matrix(&c, 0, 65, 100, false);
        add_matrix(&c, 0, columns, 100, false);
        if (how & 8)
            add_input(&c, how & 16 ? LC_F32 : LC_BF16, CHECK_ROW_MAJOR, 1, &columns, fill_normal, 1);
        else
            add_missing(&c);
        add_int(&c, how & 3);
        check_candidates(&c, how & 4 ? LC_F32 : LC_BF16, false);
    }
    need_kernels();
}

typedef struct geometry {
    int64_t n, c, o, size, kernel, stride, padding, groups;
} geometry;

static const geometry geometries[] = {
    {2, 16, 32, 9, 3, 1, 1, 1},  {3, 64, 64, 8, 3, 2, 1, 1},  {4, 32, 48, 8, 1, 1, 0, 1}, {2, 3, 16, 12, 3, 1, 1, 1},
    {2, 32, 32, 6, 3, 1, 1, 32}, {33, 32, 32, 8, 3, 1, 1, 1}, {2, 24, 40, 7, 1, 2, 0, 1}, {2, 48, 32, 7, 1, 2, 0, 1},
};

static void check_conv(const lc_op *op, const geometry *g, lc_dtype out, lc_dtype bias, bool accumulate)
{
    bool forward = op == &lc__op_conv, weight_grad = op == &lc__op_conv_weight_grad;
    int64_t size = (g->size + 2 * g->padding - g->kernel) / g->stride + 1;
    int64_t x[4] = {g->n, g->c, g->size, g->size}, w[4] = {g->o, g->c / g->groups, g->kernel, g->kernel};
    int64_t y[4] = {g->n, g->o, size, size};
    kernel_case c = case_of(op);
    c.of_largest = 1e-5;
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 4, forward ? x : y, fill_normal, 1);
    add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 4, weight_grad ? x : w, fill_normal, 0.3);
    if (forward && bias) add_input(&c, bias, CHECK_ROW_MAJOR, 1, &g->o, fill_normal, 1);
    if (!weight_grad && !(forward && bias)) add_missing(&c);
    add_int(&c, 2);
    for (int d = 0; d < 2; d++) add_int(&c, g->stride);
    for (int d = 0; d < 2; d++) add_int(&c, g->padding);
    for (int d = 0; d < 2; d++) add_int(&c, 1);
    add_int(&c, g->groups);
    if (forward) add_int(&c, bias == LC_F32);
    for (int d = 0; d < 2 && !forward; d++) add_int(&c, weight_grad ? g->kernel : g->size);
    check_candidates(&c, out, accumulate);
}

TEST(convolutions)
{
    checked = 0;
    for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++) {
        check_conv(&lc__op_conv, &geometries[i], LC_BF16, 0, false);
        check_conv(&lc__op_conv, &geometries[i], LC_BF16, LC_F32, false);
        check_conv(&lc__op_conv, &geometries[i], LC_BF16, LC_BF16, false);
        check_conv(&lc__op_conv_input_grad, &geometries[i], LC_BF16, 0, false);
        for (int how = 0; how < 4; how++) {
            int before = checked;
            check_conv(&lc__op_conv_weight_grad, &geometries[i], how & 1 ? LC_F32 : LC_BF16, 0, how & 2);
            bool left_out = geometries[i].groups > 1 || (geometries[i].kernel == 1 && geometries[i].c % 16);
            if (lc__onednn_bf16_is_fast(lc__units_bf16_is_fast()) && !left_out) CHECK(checked > before);
        }
    }
    need_kernels();
}

/* A stride and a padding of the depth: oneDNN 2.6 has other numbers there, with AVX512_BF16. */
TEST(gradient_of_the_weights_of_a_padded_depth)
{
    static const int64_t dy[] = {4, 3, 2, 4, 2}, x[] = {4, 4, 3, 4, 2},
                         ints[] = {3, 2, 1, 1, 1, 0, 0, 1, 1, 1, 1, 3, 1, 1};
    kernel_case c = case_of(&lc__op_conv_weight_grad);
    c.of_largest = 1e-5;
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 5, dy, fill_normal, 1);
    add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 5, x, fill_normal, 1);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) add_int(&c, ints[i]);
    check_candidates(&c, LC_F32, false);
}

/* A call is supported only if it can be prepared: oneDNN 2.6 describes kernels for groups of 4 channels that it cannot
 * make with AVX512_BF16. */
TEST(groups_of_four_channels)
{
    static const int64_t x[] = {1, 12, 9}, w[] = {24, 4, 3}, ints[] = {1, 1, 1, 1, 3};
    for (int64_t activation = 0; activation < 4; activation++) {
        kernel_case c = case_of(&lc__op_conv);
        c.of_largest = 1e-5;
        c.out_layout = CHECK_CHANNELS_LAST;
        add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 3, x, fill_normal, 1);
        add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 3, w, fill_normal, 0.3);
        add_missing(&c);
        for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) add_int(&c, ints[i]);
        add_int(&c, activation);
        check_candidates(&c, LC_BF16, false);
    }
}

/* Without units for bf16 oneDNN's kernels are not used, and images of few channels have one of their own. */
TEST(kernels_without_units)
{
    const lc__isa *base = lc__isa_find("base");
    for (int64_t channels = 1; channels < 40; channels += 31) {
        const int64_t x[] = {2, channels, 12, 12}, w[] = {32, channels, 3, 3}, ints[] = {2, 1, 1, 1, 1, 1, 1, 1, 0};
        kernel_case c = case_of(&lc__op_conv);
        c.out_layout = CHECK_CHANNELS_LAST;
        add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 4, x, fill_normal, 1);
        add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 4, w, fill_normal, 1);
        add_missing(&c);
        for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) add_int(&c, ints[i]);
        float *want[LC_MAX_OUTPUTS];
        reference_of(&c, LC_BF16, want);
        const lc_kernel *kernel;
        int n;
        lc_call call = call_of(&c, NULL, 1);
        CHECK_OK(lc__cpu_backend.find_kernels(base, &call, 1, &kernel, &n));
        CHECK_EQ(n, 1);
        CHECK(strncmp(kernel->name, "onednn", 6) != 0);
        CHECK_EQ(strncmp(kernel->name, "conv_few", 8) == 0, channels == 1);
        release_low(&c, want);
    }
}

/* ---- random shapes ---- An error of a kernel may show with one image size in thirty. */

typedef struct dice {
    uint64_t key, n;
} dice;

static int64_t from_to(dice *d, int64_t low, int64_t high)
{
    return low + (int64_t)lc_random_below(d->key, d->n++, (uint64_t)(high - low + 1));
}

static int64_t channels(dice *d)
{
    return from_to(d, 1, from_to(d, 0, 1) ? 40 : 4);
}

/* One or two dimensions and 1x1 windows, or up to three and other windows. */
static void random_convolution(uint64_t key)
{
    static const lc_op *const ops[] = {&lc__op_conv, &lc__op_conv_input_grad, &lc__op_conv_weight_grad};
    static const lc_dtype bias_types[] = {0, LC_BF16, LC_F32};
    dice d = {key, 0};
    bool point = from_to(&d, 0, 1);
    int nd = (int)from_to(&d, 1, point ? 2 : 3);
    int64_t groups = from_to(&d, 0, 5) ? 1 : from_to(&d, 2, 3), n = from_to(&d, 1, 6);
    int64_t in = channels(&d) * groups, out = channels(&d) * groups;
    int64_t x[5] = {n, in}, w[5] = {out, in / groups}, y[5] = {n, out}, stride[3], padding[3], dilation[3];
    for (int i = 0; i < nd; i++) {
        stride[i] = from_to(&d, 0, 2) ? 1 : 2;
        padding[i] = point || from_to(&d, 0, 2) ? 0 : from_to(&d, 1, 2);
        dilation[i] = from_to(&d, 0, 3) ? 1 : 2;
        w[2 + i] = point ? 1 : from_to(&d, 1, 3);
        const int64_t reach = (w[2 + i] - 1) * dilation[i] + 1;
        x[2 + i] = from_to(&d, reach, reach + (point ? 19 : 8));
        y[2 + i] = (x[2 + i] + 2 * padding[i] - reach) / stride[i] + 1;
    }
    const int which = (int)from_to(&d, 0, 2);
    const lc_dtype bias = bias_types[from_to(&d, 0, 2)];
    kernel_case c = case_of(ops[which]);
    c.of_largest = 1e-5;
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 2 + nd, which ? y : x, fill_normal, 1);
    add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 2 + nd, which == 2 ? x : w, fill_normal, 0.3);
    if (which == 0 && bias)
        add_input(&c, bias, CHECK_ROW_MAJOR, 1, &out, fill_normal, 1);
    else if (which < 2)
        add_missing(&c);
    add_int(&c, nd);
    for (int i = 0; i < nd; i++) add_int(&c, stride[i]);
    for (int i = 0; i < nd; i++) add_int(&c, padding[i]);
    for (int i = 0; i < nd; i++) add_int(&c, dilation[i]);
    add_int(&c, groups);
    if (which == 0) add_int(&c, from_to(&d, 0, 3));
    for (int i = 0; i < nd && which; i++) add_int(&c, which == 1 ? x[2 + i] : w[2 + i]);
    check_candidates(&c, which == 2 && bias ? LC_F32 : LC_BF16, false);
}

static void random_product(uint64_t key)
{
    dice d = {key, 0};
    int64_t size[3], batch = from_to(&d, 0, 2) ? 0 : from_to(&d, 1, 5), how = from_to(&d, 0, 15);
    for (int i = 0; i < 3; i++) size[i] = from_to(&d, 1, from_to(&d, 0, 1) ? 70 : 8);
    kernel_case c = case_of(&lc__op_matmul);
    c.of_largest = 1e-5;
    add_matrix(&c, batch, size[0], size[1], how & 1);
    add_matrix(&c, batch, size[1], size[2], how & 2);
    check_candidates(&c, how & 4 ? LC_F32 : LC_BF16, how & 8);
}

TEST(random_convolutions)
{
    checked = 0;
    for (uint64_t i = 0; i < ROUNDS(1500, 150); i++) random_convolution(1ull << 32 | i);
    need_kernels();
}

TEST(random_products)
{
    checked = 0;
    for (uint64_t i = 0; i < ROUNDS(1500, 150); i++) random_product(2ull << 32 | i);
    need_kernels();
}

TEST_MAIN
