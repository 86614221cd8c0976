/* SPDX-License-Identifier: Apache-2.0 */
/* Products and convolutions in f64 against the reference kernels: every layout of the operands, edges of tiles, blocks
 * and pieces, batches, sums that are split, and the same bits for any number of threads (check_case). */
#include "kernel_check.h"

/* In f64 two orders of a sum of k products differ by k * 1e-16 * sum |a||b| at most; these sums are short and random,
 * so much less is asked for. */
#define NEAR 2e-14

/* [batch, rows, columns], or without a batch; `turned`: stored by columns. */
static void add_matrix(kernel_case *c, int64_t batch, int64_t rows, int64_t columns, bool turned, int64_t pad)
{
    int64_t wide = (turned ? rows : columns) + pad, high = turned ? columns : rows;
    int64_t shape[3] = {batch, high, wide};
    int n = batch ? 3 : 2;
    lc_view *v = add_input(c, LC_F64, CHECK_ROW_MAJOR, n, batch ? shape : shape + 1, fill_normal,
                           c->op == &lc__op_linear ? 0.2 : 0.5);
    v->shape[n - 2] = rows;
    v->shape[n - 1] = columns;
    v->stride[n - 2] = turned ? 1 : wide;
    v->stride[n - 1] = turned ? wide : 1;
}

static void check_matmul(int64_t batch, int64_t m, int64_t k, int64_t n, int how)
{
    kernel_case c = case_f64(&lc__op_matmul, NEAR);
    add_matrix(&c, batch, m, k, how & 1, how & 4 ? 3 : 0);
    add_matrix(&c, batch, k, n, how & 2, how & 4 ? 5 : 0);
    check_case(&c);
}

TEST(matrices_in_any_layout)
{
    static const int64_t sizes[][3] = {{1, 1, 1},      {1, 300, 20},   {3, 7, 2},     {6, 8, 16},   {7, 9, 17},
                                       {12, 16, 32},   {13, 257, 33},  {64, 784, 12}, {96, 64, 84}, {129, 300, 29},
                                       {200, 513, 65}, {401, 70, 270}, {70, 40, 600}, {5, 1025, 9}, {130, 600, 140}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 8; how += ROUNDS(1, 3)) check_matmul(0, sizes[i][0], sizes[i][1], sizes[i][2], how);
}

TEST(batches_of_matrices)
{
    for (int how = 0; how < 8; how += ROUNDS(1, 3)) {
        check_matmul(2, 20, 21, 22, how);
        check_matmul(19, 33, 16, 40, how);
    }
    kernel_case c = case_f64(&lc__op_matmul, NEAR); /* [3,1,m,k] x [4,k,n] */
    add_input(&c, LC_F64, CHECK_ROW_MAJOR, 4, (int64_t[]){3, 1, 5, 7}, fill_normal, 1);
    add_input(&c, LC_F64, CHECK_ROW_MAJOR, 3, (int64_t[]){4, 7, 9}, fill_normal, 1);
    check_case(&c);
}

/* k is split, as there are few results. */
TEST(short_deep_products)
{
    for (int how = 0; how < 4; how++) check_matmul(0, 16, 9000, 10, how);
    check_matmul(3, 9, 5000, 20, 1);
}

TEST(bias_and_activation)
{
    static const int64_t sizes[][3] = {{64, 784, 128}, {150, 120, 10}, {4, 17, 5}, {140, 600, 70}, {3, 4000, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int64_t activation = 0; activation < 8; activation += ROUNDS(1, 3)) {
            kernel_case c = case_f64(&lc__op_linear, NEAR);
            add_matrix(&c, 0, sizes[i][0], sizes[i][1], activation & 1, 0);
            add_matrix(&c, 0, sizes[i][2], sizes[i][1], false, 0);
            if (activation & 4)
                add_input(&c, LC_F64, CHECK_ROW_MAJOR, 1, &sizes[i][2], fill_normal, 1);
            else
                add_missing(&c);
            add_int(&c, activation & 3);
            check_case(&c);
        }
    }
}

/* A gradient that is computed in place is added to the existing value. */
TEST(added_to_a_gradient)
{
    static const int64_t sizes[][3] = {{40, 600, 37}, {9, 5000, 11}, {4, 3, 5}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kernel_case c = case_f64(&lc__op_matmul, NEAR);
        add_matrix(&c, 0, sizes[i][0], sizes[i][1], true, 0);
        add_matrix(&c, 0, sizes[i][1], sizes[i][2], false, 0);
        c.accumulate = true;
        check_case(&c);
    }
}

/* ---- fusions ---- */

static const int64_t fused_sizes[][3] = {{64, 784, 128}, {150, 120, 10}, {4, 17, 5}, {129, 5, 129}, {300, 40, 600}};

TEST(gelu_of_linear)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int how = 0; how < 4; how++) {
            kernel_case c = case_f64(&lc__op_linear_gelu, NEAR);
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, 3, (int64_t[]){2, z[0], z[1]}, fill_normal, 1);
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, 2, (int64_t[]){z[2], z[1]}, fill_normal, 0.2);
            if (how & 2)
                add_input(&c, LC_F64, CHECK_ROW_MAJOR, 1, &z[2], fill_normal, 1);
            else
                add_missing(&c);
            add_int(&c, how & 1);
            if (i & 1) { /* only gelu's result */
                c.n_out = 1;
                c.out_type[0] = (lc_type){.dtype = LC_F64, .ndim = 3, .shape = {2, z[0], z[2]}};
            }
            check_case(&c);
        }
    }
}

TEST(slope_of_gelu)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int form = 0; form < 2; form++) {
            kernel_case c = case_f64(&lc__op_matmul_gelu_backward, NEAR);
            add_matrix(&c, 2, z[0], z[1], false, 0);
            add_matrix(&c, 0, z[1], z[2], false, 0);
            add_matrix(&c, 2, z[0], z[2], false, 0);
            add_int(&c, form);
            check_case(&c);
        }
    }
}

TEST(gradients_of_weight_and_bias)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int how = 0; how < 8; how += ROUNDS(1, 3)) {
            kernel_case c = case_f64(&lc__op_linear_weight_grad, NEAR);
            add_matrix(&c, 0, z[1], z[0], how & 1, how & 4 ? 3 : 0);
            add_matrix(&c, 0, z[1], z[2], how & 2, how & 4 ? 5 : 0);
            c.accumulate = i == 1;
            check_case(&c);
        }
    }
}

TEST_MAIN
