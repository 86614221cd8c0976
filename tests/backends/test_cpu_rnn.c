/* SPDX-License-Identifier: Apache-2.0 */
/* The fast recurrent kernels against the reference: sizes around the widths of panels and rows, with and without
 * initial states, biases and gradients of the last states. */
#include "kernel_check.h"

/* Values of small standard deviation, so that gates are not saturated. */
static void add(kernel_case *c, int ndim, const int64_t *shape, double scale)
{
    add_input(c, LC_F32, CHECK_ROW_MAJOR, ndim, shape, fill_normal, scale);
}

static void add_if(kernel_case *c, bool there, int ndim, const int64_t *shape, double scale)
{
    if (there)
        add(c, ndim, shape, scale);
    else
        add_missing(c);
}

/* A number in (0, 1), as a gate is. */
static double fill_gate(uint64_t *seed, double scale)
{
    return 0.02 + 0.96 * next_uniform(seed) * scale;
}

static const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {5, 2, 16}, {7, 4, 33}, {18, 3, 24}, {64, 2, 64}, {70, 1, 9}};

static void check_forward(const lc_op *op, int64_t gates, bool given)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t B = sizes[i][0], T = sizes[i][1], H = sizes[i][2], G = gates * H;
        kernel_case c = case_of(op);
        add(&c, 3, (int64_t[]){B, T, G}, 1);
        add(&c, 2, (int64_t[]){G, H}, 1 / sqrt((double)H));
        add_if(&c, given, 1, (int64_t[]){G}, 0.3);
        add_if(&c, given, 2, (int64_t[]){B, H}, 0.5);
        if (gates == 4) add_if(&c, given, 2, (int64_t[]){B, H}, 0.5);
        check_case(&c);
    }
}

static void check_backward(const lc_op *op, int64_t gates, bool given)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t B = sizes[i][0], T = sizes[i][1], H = sizes[i][2], G = gates * H;
        kernel_case c = case_of(op);
        c.of_largest = 5e-6;
        add_if(&c, given || T == 2, 3, (int64_t[]){B, T, H}, 1);
        add_if(&c, !given, 2, (int64_t[]){B, H}, 1);
        if (gates == 4) add_if(&c, given, 2, (int64_t[]){B, H}, 1);
        add(&c, 2, (int64_t[]){G, H}, 1 / sqrt((double)H));
        add_if(&c, given, 2, (int64_t[]){B, H}, 0.5);
        if (gates == 4) add_if(&c, given, 2, (int64_t[]){B, H}, 0.5);
        add(&c, 3, (int64_t[]){B, T, H}, 0.5);
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, 3, (int64_t[]){B, T, 4 * H}, fill_gate, 1);
        if (gates == 4) add(&c, 3, (int64_t[]){B, T, H}, 0.5);
        check_case(&c);
    }
}

TEST(lstm)
{
    check_forward(&lc__op_lstm, 4, false);
    check_forward(&lc__op_lstm, 4, true);
}

TEST(lstm_backward)
{
    check_backward(&lc__op_lstm_backward, 4, false);
    check_backward(&lc__op_lstm_backward, 4, true);
}

TEST(gru)
{
    check_forward(&lc__op_gru, 3, false);
    check_forward(&lc__op_gru, 3, true);
}

TEST(gru_backward)
{
    check_backward(&lc__op_gru_backward, 3, false);
    check_backward(&lc__op_gru_backward, 3, true);
}

TEST_MAIN
