/* SPDX-License-Identifier: Apache-2.0 */
/* lightc's own matrix products with operands and results in 16 bits, against f32 on the same numbers. */
#include "low_check.h"

#include <lightc/random.h>

static const lc_dtype low[] = {LC_BF16, LC_F16};

/* [batch, rows, columns], or without a batch; `turned`: stored by columns; `pad`: rows are not neighbors. */
static void add_matrix(kernel_case *c, lc_dtype type, int64_t batch, int64_t rows, int64_t columns, bool turned,
                       int64_t pad)
{
    int64_t shape[3], wide = (turned ? rows : columns) + pad, high = turned ? columns : rows;
    int n = 0;
    if (batch) shape[n++] = batch;
    shape[n++] = high;
    shape[n++] = wide;
    lc_view *v = add_input(c, type, CHECK_ROW_MAJOR, n, shape, fill_normal, c->op == &lc__op_matmul ? 1 : 0.2);
    v->shape[n - 2] = rows;
    v->shape[n - 1] = columns;
    v->stride[n - 2] = turned ? 1 : wide;
    v->stride[n - 1] = turned ? wide : 1;
}

/* `rounded`: which factors count as rounded to `to` */
static void check_rounded(uint32_t rounded, lc_dtype to, lc_dtype x, lc_dtype y, lc_dtype out, int64_t batch,
                          const int64_t *z, int how)
{
    kernel_case c = case_of(&lc__op_matmul);
    c.of_largest = 5e-6;
    c.rounded = rounded;
    c.rounded_to = to;
    add_matrix(&c, x, batch, z[0], z[1], how & 1, how & 4 ? 3 : 0);
    add_matrix(&c, y, batch, z[1], z[2], how & 2, how & 4 ? 5 : 0);
    check_low(&c, out, how & 8);
}

static void check_matmul(lc_dtype x, lc_dtype y, lc_dtype out, int64_t batch, const int64_t *z, int how)
{
    check_rounded(0, 0, x, y, out, batch, z, how);
}

static const int64_t sizes[][3] = {{4, 1, 4},     {1, 70, 40},   {3, 300, 2},     {7, 9, 17},    {12, 16, 32},
                                   {13, 257, 33}, {96, 64, 784}, {129, 300, 129}, {301, 70, 15}, {5, 1025, 9},
                                   {9, 64, 40},   {37, 96, 100}, {17, 2048, 50}};

/* Every second case adds to what is there. */
TEST(matrices_in_any_layout)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 16; how += ROUNDS(1, 5))
            for (int t = 0; t < 2; t++) {
                check_matmul(low[t], low[t], low[t], 0, sizes[i], how);
                check_matmul(low[t], low[t], LC_F32, 0, sizes[i], how);
            }
}

TEST(operands_of_different_types)
{
    for (int how = 0; how < 16; how += 5) {
        check_matmul(LC_BF16, LC_F32, LC_BF16, 0, sizes[5], how);
        check_matmul(LC_F32, LC_F16, LC_F16, 0, sizes[7], how);
        check_matmul(LC_F32, LC_F32, LC_BF16, 0, sizes[7], how);
        check_matmul(LC_F32, LC_BF16, LC_F32, 0, sizes[6], how);
    }
}

/* Factors of f32 that count as rounded, in every layout. */
TEST(factors_that_are_rounded)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 16; how += ROUNDS(1, 5))
            for (int t = 0; t < 2; t++) {
                check_rounded(1, low[t], LC_F32, low[t], low[t], 0, sizes[i], how);
                check_rounded(2, low[t], low[t], LC_F32, low[t], 0, sizes[i], how);
                check_rounded(3, low[t], LC_F32, LC_F32, LC_F32, i % 3 ? 0 : 4, sizes[i], how);
            }
}

/* More panels than are packed at once: sums over k are not rounded before the last block. */
TEST(large_matrices)
{
    static const int64_t large[][3] = {{40, 1024, 48}, {200, 2080, 1540}, {132, 1100, 1100}, {520, 1300, 300}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i += ROUNDS(1, 2)) {
        check_matmul(LC_BF16, LC_BF16, LC_BF16, 0, large[i], 0);
        check_matmul(LC_BF16, LC_BF16, LC_BF16, 0, large[i], 11);
        check_matmul(LC_BF16, LC_BF16, LC_F32, 0, large[i], 9);
    }
}

TEST(batches)
{
    static const int64_t small[3] = {17, 33, 35}, large[3] = {200, 210, 220}, row[3] = {1, 40, 20};
    for (int how = 0; how < 16; how += 3)
        for (int t = 0; t < 2; t++) {
            check_matmul(low[t], low[t], low[t], 11, small, how);
            check_matmul(low[t], low[t], LC_F32, 5, small, how);
            check_matmul(low[t], low[t], low[t], 3, row, how);
        }
    check_matmul(LC_BF16, LC_BF16, LC_BF16, 2, large, 0);
    check_matmul(LC_BF16, LC_BF16, LC_F32, 2, large, 9);
}

/* One matrix for the whole batch, as either operand. */
TEST(broadcast_batches)
{
    for (int first = 0; first < 2; first++) {
        kernel_case c = case_of(&lc__op_matmul);
        c.of_largest = 5e-6;
        add_matrix(&c, LC_BF16, first ? 0 : 6, 9, 20, false, 0);
        add_matrix(&c, LC_BF16, first ? 6 : 0, 20, 11, false, 0);
        check_low(&c, LC_BF16, false);
    }
}

TEST(bias_and_activation)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int64_t activation = 0; activation < 12; activation += ROUNDS(1, 5)) {
            lc_dtype type = low[i % 2];
            kernel_case c = case_of(&lc__op_linear);
            c.of_largest = 5e-6;
            add_matrix(&c, type, 0, sizes[i][0], sizes[i][1], activation & 1, 0);
            add_matrix(&c, type, 0, sizes[i][2], sizes[i][1], false, 0);
            if (activation & 12)
                add_input(&c, activation & 4 ? type : LC_F32, CHECK_ROW_MAJOR, 1, &sizes[i][2], fill_normal, 1);
            else
                add_missing(&c);
            add_int(&c, activation & 3);
            check_low(&c, activation == 7 ? LC_F32 : type, false);
        }
    }
}

/* ---- fusions ---- */

static const int64_t fused_sizes[][3] = {{64, 784, 128}, {150, 120, 10}, {4, 17, 5},    {140, 600, 70},
                                         {1, 5, 129},    {13, 257, 33},  {300, 40, 600}};

TEST(gelu_of_linear)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int how = 0; how < 8; how += ROUNDS(1, 3)) {
            lc_dtype type = low[how >> 2];
            kernel_case c = case_of(&lc__op_linear_gelu);
            c.of_largest = 5e-6;
            add_input(&c, type, CHECK_ROW_MAJOR, 3, (int64_t[]){2, z[0], z[1]}, fill_normal, 1);
            add_input(&c, type, CHECK_ROW_MAJOR, 2, (int64_t[]){z[2], z[1]}, fill_normal, 0.2);
            if (how & 2)
                add_input(&c, type, CHECK_ROW_MAJOR, 1, &z[2], fill_normal, 1);
            else
                add_missing(&c);
            add_int(&c, how & 1);
            if (i & 1) { /* only gelu's result */
                c.n_out = 1;
                c.out_type[0] = (lc_type){.dtype = LC_F32, .ndim = 3, .shape = {2, z[0], z[2]}};
            }
            check_low(&c, type, false);
        }
    }
}

TEST(slope_of_gelu)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int how = 0; how < 6; how += ROUNDS(1, 5)) {
            lc_dtype type = low[how >> 1 & 1];
            kernel_case c = case_of(&lc__op_matmul_gelu_backward);
            c.of_largest = 5e-6;
            add_matrix(&c, type, 2, z[0], z[1], false, 0);
            add_matrix(&c, type, 0, z[1], z[2], false, 0);
            add_matrix(&c, type, 2, z[0], z[2], false, 0);
            add_int(&c, how & 1);
            check_low(&c, how & 4 ? LC_F32 : type, false);
        }
    }
}

/* `rounded`: x of the layer is f32 that counts as rounded */
static void check_weight_grad(const lc_op *op, bool rounded, lc_dtype type, lc_dtype out, const int64_t *z, int how)
{
    kernel_case c = case_of(op);
    c.of_largest = 5e-6;
    c.rounded = rounded ? 2 : 0;
    c.rounded_to = type;
    add_matrix(&c, type, 0, z[1], z[0], how & 1, how & 4 ? 3 : 0);
    add_matrix(&c, rounded ? LC_F32 : type, 0, z[1], z[2], how & 2, how & 4 ? 5 : 0);
    check_low(&c, out, how & 8);
}

TEST(gradients_of_weight_and_bias)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int how = 0; how < 32; how += ROUNDS(1, 7)) {
            lc_dtype type = low[i % 2];
            const lc_op *op = &lc__op_linear_weight_grad;
            check_weight_grad(op, false, type, how & 16 ? LC_F32 : type, z, how);
            check_weight_grad(op, true, type, how & 16 ? LC_F32 : type, z, how);
            if (how & 16) check_weight_grad(&lc__op_linear_weight_grad_finite, how & 1, LC_F16, LC_F32, z, how & 7);
        }
    }
}

/* A call of linear_weight_grad_finite of f16; gives its third result, with some number of threads. */
static float finite_of(kernel_case *c, const lc__isa *isa, int threads)
{
    lc_call call = call_of(c, NULL, threads);
    const lc_kernel *kernel = lc__isa_kernel(isa, &call);
    CHECK(kernel);
    run_low(c, kernel, threads, false);
    return *(float *)c->out[2].data;
}

/* A number that is not finite, anywhere in dy or x, makes a row or a column of the gradient so. */
TEST(gradients_that_are_not_finite_are_seen)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16", "amx"};
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e00}; /* the infinities, a NaN */
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        kernel_case c = case_of(&lc__op_linear_weight_grad_finite);
        float *want[LC_MAX_OUTPUTS];
        add_matrix(&c, LC_F16, 0, z[1], z[0], false, 0);
        add_matrix(&c, LC_F16, 0, z[1], z[2], false, 0);
        reference_of(&c, LC_F32, want);
        CHECK(*want[2] == 0);
        for (int k = 0; k < 60; k++) {
            const lc__isa *isa = lc__isa_find(sets[k % 5]);
            uint16_t *data = c.in[k & 1].data;
            const int64_t at = (int64_t)lc_random_below(i, (uint64_t)k, (uint64_t)view_numel(&c.in[k & 1]));
            const uint16_t good = data[at];
            if (!isa) continue;
            CHECK(finite_of(&c, isa, 1 + k % 3) == 0);
            data[at] = bad[k % 3];
            if (!isnan(finite_of(&c, isa, 1 + k % 3)))
                TEST_FAIL("%s did not see %#x at %lld of input %d", isa->name, bad[k % 3], (long long)at, k & 1);
            data[at] = good;
        }
        release_low(&c, want);
    }
}

/* An error at an edge may show with one shape in hundreds. */
TEST(random_matrices)
{
    for (uint64_t i = 0; i < ROUNDS(300, 20); i++) {
        uint64_t n = 0;
        int64_t z[3];
        for (int k = 0; k < 3; k++) {
            const uint64_t most = lc_random_below(i, n++, 2) ? 300 : 40;
            z[k] = 1 + (int64_t)lc_random_below(i, n++, most);
        }
        const lc_dtype type = low[lc_random_below(i, n++, 4) == 0], out = lc_random_below(i, n++, 2) ? LC_F32 : type;
        const int64_t batch = lc_random_below(i, n++, 3) ? 0 : 1 + (int64_t)lc_random_below(i, n++, 4);
        const int how = (int)lc_random_below(i, n++, 16);
        check_matmul(type, type, out, batch, z, how);
        check_rounded(1 + i % 3, type, i % 3 == 1 ? type : LC_F32, i % 3 ? LC_F32 : type, out, batch, z, how);
    }
}

TEST_MAIN
