/* SPDX-License-Identifier: Apache-2.0 */
/* lightc's own convolutions with operands and results in 16 bits, against f32 on the same numbers. To add a shape: a
 * line in `geometries`. */
#include "low_check.h"

#include <lightc/random.h>

typedef struct geometry {
    int64_t n, c, o, h, w, kernel, stride, padding, dilation, groups;
} geometry;

static const geometry geometries[] = {
    {2, 16, 16, 9, 7, 3, 1, 1, 1, 1},
    {1, 32, 48, 4, 4, 3, 1, 1, 1, 1},
    {3, 16, 32, 8, 8, 3, 1, 0, 1, 1},
    {2, 144, 16, 6, 6, 3, 1, 2, 1, 1},
    {6, 64, 64, 16, 16, 3, 1, 1, 1, 1}, /* also where bf16 is multiplied twice as fast */
    /* not Winograd's */
    {2, 3, 20, 9, 7, 3, 1, 1, 1, 1},
    {3, 16, 33, 8, 9, 3, 2, 1, 1, 1},
    {2, 24, 40, 8, 8, 1, 2, 0, 1, 1},
    {2, 20, 10, 7, 6, 1, 1, 0, 1, 1},
    {2, 8, 7, 11, 9, 3, 1, 2, 2, 1},
    {1, 5, 130, 9, 9, 5, 3, 2, 1, 1},
    {2, 70, 6, 5, 5, 3, 2, 0, 1, 1},
    {5, 1, 1, 6, 7, 2, 1, 1, 1, 1},
    {4, 130, 40, 12, 12, 3, 2, 1, 1, 1},
    /* without copies of patches: few channels, images in place, borders, more images than parts of a gradient */
    {2, 1, 32, 28, 28, 3, 1, 1, 1, 1},
    {2, 4, 9, 6, 37, 5, 1, 2, 1, 1},
    {37, 3, 5, 5, 6, 3, 1, 1, 1, 1},
    {3, 32, 64, 14, 14, 3, 1, 0, 1, 1},
    {2, 64, 70, 5, 19, 3, 1, 1, 1, 1},
    {2, 40, 24, 9, 33, 3, 1, 2, 2, 1},
    {1, 96, 33, 3, 50, 1, 1, 0, 1, 1},
};

typedef enum which { FORWARD, INPUT_GRAD, WEIGHT_GRAD } which;

static const lc_op *const ops[] = {&lc__op_conv, &lc__op_conv_input_grad, &lc__op_conv_weight_grad};

static void check(which kind, const geometry *g, lc_dtype type, lc_dtype out, lc_dtype bias, int64_t activation,
                  bool accumulate)
{
    int64_t reach = (g->kernel - 1) * g->dilation + 1;
    int64_t h = (g->h + 2 * g->padding - reach) / g->stride + 1, w = (g->w + 2 * g->padding - reach) / g->stride + 1;
    int64_t x_shape[4] = {g->n, g->c, g->h, g->w}, w_shape[4] = {g->o, g->c / g->groups, g->kernel, g->kernel};
    int64_t y_shape[4] = {g->n, g->o, h, w};
    kernel_case c = case_of(ops[kind]);
    c.of_largest = 1e-5;
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, type, CHECK_CHANNELS_LAST, 4, kind == FORWARD ? x_shape : y_shape, fill_normal, 1);
    add_input(&c, type, CHECK_CHANNELS_LAST, 4, kind == WEIGHT_GRAD ? x_shape : w_shape, fill_normal, 0.3);
    if (kind != WEIGHT_GRAD && bias)
        add_input(&c, bias, CHECK_ROW_MAJOR, 1, kind == FORWARD ? &g->o : &g->c, fill_normal, 1);
    else if (kind != WEIGHT_GRAD)
        add_missing(&c);
    add_int(&c, 2);
    for (int d = 0; d < 2; d++) add_int(&c, g->stride);
    for (int d = 0; d < 2; d++) add_int(&c, g->padding);
    for (int d = 0; d < 2; d++) add_int(&c, g->dilation);
    add_int(&c, g->groups);
    if (kind == FORWARD) add_int(&c, activation);
    for (int d = 0; d < 2 && kind != FORWARD; d++) add_int(&c, kind == INPUT_GRAD ? x_shape[2 + d] : g->kernel);
    check_low(&c, out, accumulate);
}

static const lc_dtype low[] = {LC_BF16, LC_F16};

TEST(convolutions)
{
    for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++)
        for (int how = 0; how < 6; how++) {
            lc_dtype type = low[how & 1];
            check(FORWARD, &geometries[i], type, type, how < 2 ? 0 : how < 4 ? type : LC_F32, how & 1, false);
        }
}

TEST(gradients_of_the_input)
{
    for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++)
        for (int how = 0; how < 4; how++) {
            lc_dtype type = low[how & 1];
            check(INPUT_GRAD, &geometries[i], type, type, how < 2 ? 0 : type, 0, false);
        }
}

/* The first tap reads only padding. */
TEST(gradient_of_a_flat_input)
{
    static const int64_t dy[] = {1, 1, 1, 4, 4}, w[] = {1, 1, 3, 3, 3},
                         ints[] = {3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4};
    for (int how = 0; how < 2; how++) {
        kernel_case c = case_of(&lc__op_conv_input_grad);
        c.of_largest = 1e-5;
        c.out_layout = CHECK_CHANNELS_LAST;
        add_input(&c, low[how], CHECK_CHANNELS_LAST, 5, dy, fill_normal, 1);
        add_input(&c, low[how], CHECK_CHANNELS_LAST, 5, w, fill_normal, 1);
        add_missing(&c);
        for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) add_int(&c, ints[i]);
        check_low(&c, low[how], false);
    }
}

/* Also added to what is there. */
TEST(gradients_of_the_weights)
{
    for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++)
        for (int how = 0; how < 8; how++) {
            lc_dtype type = low[how & 1];
            check(WEIGHT_GRAD, &geometries[i], type, how & 2 ? LC_F32 : type, 0, 0, how & 4);
        }
}

/* Where oneDNN takes longer. */
TEST(gradients_of_the_weights_in_f32)
{
    static const geometry g = {4, 260, 21, 9, 9, 3, 2, 1, 1, 1};
    for (int accumulate = 0; accumulate < 2; accumulate++) check(WEIGHT_GRAD, &g, LC_F32, LC_F32, 0, 0, accumulate);
}

static void draw(uint64_t key, uint64_t *n, const int64_t *least, const int64_t *most, int64_t v[9])
{
    for (int k = 0; k < 9; k++)
        v[k] = least[k] + (int64_t)lc_random_below(key, (*n)++, (uint64_t)(most[k] - least[k] + 1));
}

/* Images that are too small for the kernel become larger. */
static void make_room(geometry *g)
{
    const int64_t reach = (g->kernel - 1) * g->dilation + 1 - 2 * g->padding;
    if (g->h < reach) g->h += reach;
    if (g->w < reach) g->w += reach;
}

/* Images of few channels: borders, strides, widths below what is computed together. */
TEST(few_channels)
{
    for (uint64_t i = 0; i < ROUNDS(150, 10); i++) {
        uint64_t n = 0;
        int64_t v[9];
        static const int64_t least[9] = {1, 1, 1, 1, 1, 1, 1, 0, 1}, most[9] = {40, 4, 6, 30, 40, 7, 3, 3, 2};
        draw(i, &n, least, most, v);
        geometry g = {v[0], v[1], 16 * v[2] - (i % 3 ? 0 : 8), v[3], v[4], v[5], v[6], v[7], v[8], 1};
        make_room(&g);
        const lc_dtype type = low[lc_random_below(i, n++, 3) == 0], biases[] = {type, 0, LC_F32, 0};
        if (i & 1)
            check(WEIGHT_GRAD, &g, g.o >= 32 && g.o % 16 == 0 && i & 8 ? LC_F32 : type, i & 10 ? LC_F32 : type, 0, 0,
                  i & 4);
        else
            check(FORWARD, &g, type, i & 8 ? LC_F32 : type, biases[i / 2 % 4], (int64_t)(i / 16 % 4), false);
    }
}

TEST(few_channels_of_a_signal)
{
    static const int64_t x[] = {3, 2, 50}, w[] = {24, 2, 5}, y[] = {3, 24, 25}, ints[] = {1, 2, 2, 1, 1};
    for (int grad = 0; grad < 2; grad++) {
        kernel_case c = case_of(ops[grad ? WEIGHT_GRAD : FORWARD]);
        c.of_largest = 1e-5;
        c.out_layout = CHECK_CHANNELS_LAST;
        add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 3, grad ? y : x, fill_normal, 1);
        add_input(&c, LC_BF16, CHECK_CHANNELS_LAST, 3, grad ? x : w, fill_normal, 1);
        if (!grad) add_missing(&c);
        for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) add_int(&c, ints[i]);
        add_int(&c, grad ? 5 : 0);
        check_low(&c, LC_BF16, grad);
    }
}

/* An error at an edge may show with one shape in hundreds. */
TEST(random_geometries)
{
    for (uint64_t i = 0; i < ROUNDS(150, 10); i++) {
        uint64_t n = 0;
        int64_t v[9];
        static const int64_t least[9] = {1, 1, 1, 1, 1, 1, 1, 0, 1}, most[9] = {5, 150, 150, 19, 19, 4, 3, 2, 2};
        draw(i, &n, least, most, v);
        if (lc_random_below(i, n++, 2)) v[6] = 1;
        geometry g = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], 1};
        make_room(&g);
        const which kind = (which)lc_random_below(i, n++, 3);
        const lc_dtype type = low[lc_random_below(i, n++, 4) == 0], out = lc_random_below(i, n++, 2) ? LC_F32 : type;
        const bool accumulate = kind == WEIGHT_GRAD && lc_random_below(i, n++, 2);
        const lc_dtype bias = lc_random_below(i, n++, 2) ? type : 0;
        check(kind, &g, type, kind == WEIGHT_GRAD ? out : type, bias, (int64_t)lc_random_below(i, n++, 2), accumulate);
    }
}

TEST_MAIN
