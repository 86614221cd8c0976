/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions in f64 and their gradients against the reference kernels: sizes, strides, padding, dilation, groups, and
 * the same bits for any number of threads (check_case). */
#include "kernel_check.h"

typedef struct conv_case {
    int nd;
    int64_t images, in, out, groups, size[3], kernel[3], stride[3], padding[3], dilation[3];
} conv_case;

static const conv_case convolutions[] = {
    {2, 3, 5, 7, 1, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 16, 24, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 3, 40, 1, {17, 19}, {7, 5}, {2, 3}, {3, 1}, {1, 1}},
    {2, 3, 8, 8, 1, {11, 12}, {1, 1}, {2, 2}, {0, 0}, {1, 1}}, /* most places of dx have no tap */
    {2, 2, 6, 10, 1, {13, 13}, {3, 2}, {1, 2}, {2, 2}, {2, 3}},
    {2, 2, 12, 16, 4, {7, 9}, {3, 3}, {1, 2}, {1, 1}, {1, 1}}, /* 3 channels of a group: the reference */
    {2, 2, 16, 32, 4, {7, 9}, {3, 3}, {1, 2}, {1, 1}, {1, 1}},
    {2, 2, 300, 20, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, /* more channels than a block of k */
    {2, 1, 4, 4, 1, {2, 2}, {1, 1}, {3, 3}, {0, 0}, {1, 1}},    /* a stride larger than the image */
    {2, 8, 1, 6, 1, {28, 28}, {5, 5}, {1, 1}, {0, 0}, {1, 1}},  /* sums of dw that are split */
    {1, 3, 6, 9, 1, {40}, {5}, {2}, {2}, {1}},
    {3, 2, 5, 6, 1, {5, 6, 7}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 2}},
};

static void add_attributes(kernel_case *c, const conv_case *k)
{
    add_int(c, k->nd);
    for (int i = 0; i < k->nd; i++) add_int(c, k->stride[i]);
    for (int i = 0; i < k->nd; i++) add_int(c, k->padding[i]);
    for (int i = 0; i < k->nd; i++) add_int(c, k->dilation[i]);
    add_int(c, k->groups);
}

static int64_t size_after(const conv_case *k, int i)
{
    return (k->size[i] + 2 * k->padding[i] - k->dilation[i] * (k->kernel[i] - 1) - 1) / k->stride[i] + 1;
}

/* what: 'x' images, 'y' results, 'w' weights */
static void add_operand(kernel_case *c, const conv_case *k, char what)
{
    int64_t shape[5] = {k->images, what == 'y' ? k->out : k->in};
    for (int i = 0; i < k->nd; i++)
        shape[2 + i] = what == 'w' ? k->kernel[i] : what == 'x' ? k->size[i] : size_after(k, i);
    if (what == 'w') shape[0] = k->out, shape[1] = k->in / k->groups;
    add_input(c, LC_F64, CHECK_CHANNELS_LAST, k->nd + 2, shape, fill_normal, 0.4);
}

static kernel_case case_of_conv(const lc_op *op, const conv_case *k)
{
    kernel_case c = case_f64(op, 2e-14);
    c.out_layout = CHECK_CHANNELS_LAST;
    c.may_lack = k->groups > 1 && k->in / k->groups < 4;
    return c;
}

static void add_bias(kernel_case *c, int64_t n, bool there)
{
    if (there)
        add_input(c, LC_F64, CHECK_ROW_MAJOR, 1, &n, fill_normal, 1);
    else
        add_missing(c);
}

#define EACH_CONVOLUTION(k)                                                                                            \
    for (const conv_case *k = convolutions; k < convolutions + sizeof convolutions / sizeof *convolutions; k++)

TEST(convolutions_with_bias_and_activation)
{
    EACH_CONVOLUTION(k)
    {
        for (int activation = 0; activation < 4; activation++) {
            kernel_case c = case_of_conv(&lc__op_conv, k);
            add_operand(&c, k, 'x');
            add_operand(&c, k, 'w');
            add_bias(&c, k->out, activation != 1);
            add_attributes(&c, k);
            add_int(&c, activation);
            check_case(&c);
        }
    }
}

static kernel_case input_grad(const conv_case *k, bool bias)
{
    kernel_case c = case_of_conv(&lc__op_conv_input_grad, k);
    add_operand(&c, k, 'y');
    add_operand(&c, k, 'w');
    add_bias(&c, k->in, bias);
    add_attributes(&c, k);
    for (int i = 0; i < k->nd; i++) add_int(&c, k->size[i]);
    return c;
}

static kernel_case weight_grad(const conv_case *k)
{
    kernel_case c = case_of_conv(&lc__op_conv_weight_grad, k);
    add_operand(&c, k, 'y');
    add_operand(&c, k, 'x');
    add_attributes(&c, k);
    for (int i = 0; i < k->nd; i++) add_int(&c, k->kernel[i]);
    return c;
}

TEST(gradients_of_images)
{
    EACH_CONVOLUTION(k)
    {
        for (int bias = 0; bias < 2; bias++) {
            kernel_case c = input_grad(k, bias);
            check_case(&c);
        }
    }
}

TEST(gradients_of_weights)
{
    EACH_CONVOLUTION(k)
    {
        kernel_case c = weight_grad(k);
        check_case(&c);
    }
}

TEST(added_to_a_gradient)
{
    EACH_CONVOLUTION(k)
    {
        kernel_case x = input_grad(k, false), w = weight_grad(k);
        x.accumulate = w.accumulate = true;
        check_case(&x);
        check_case(&w);
    }
}

TEST_MAIN
