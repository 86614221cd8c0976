/* SPDX-License-Identifier: Apache-2.0 */
/* lightc's own matrix products against the reference kernel: every layout of the operands, edges of tiles, blocks and
 * pieces, batches, and the same bits for any number of threads (check_case). */
#include "kernel_check.h"

static int64_t shape_of(int64_t *shape, int64_t batch, int64_t rows, int64_t columns)
{
    int n = 0;
    if (batch) shape[n++] = batch;
    shape[n++] = rows;
    shape[n++] = columns;
    return n;
}

/* [batch, rows, columns], or without a batch; `turned`: stored by columns. */
static void add_matrix(kernel_case *c, int64_t batch, int64_t rows, int64_t columns, bool turned, int64_t pad)
{
    const double scale = c->op == &lc__op_linear ? 0.2 : 1; /* sums where tanh and sigmoid are not flat */
    int64_t shape[3], wide = (turned ? rows : columns) + pad, high = turned ? columns : rows;
    int n = (int)shape_of(shape, batch, high, wide);
    lc_view *v = add_input(c, LC_F32, CHECK_ROW_MAJOR, n, shape, fill_normal, scale);
    v->shape[n - 2] = rows;
    v->shape[n - 1] = columns;
    v->stride[n - 2] = turned ? 1 : wide;
    v->stride[n - 1] = turned ? wide : 1;
}

static void check_matmul(int64_t batch, int64_t m, int64_t k, int64_t n, int how)
{
    kernel_case c = case_of(&lc__op_matmul);
    c.of_largest = 3e-6;
    add_matrix(&c, batch, m, k, how & 1, how & 4 ? 3 : 0);
    add_matrix(&c, batch, k, n, how & 2, how & 4 ? 5 : 0);
    check_case(&c);
}

TEST(matrices_in_any_layout)
{
    static const int64_t sizes[][3] = {{4, 1, 4},      {6, 8, 16},     {7, 9, 17},    {12, 16, 32},
                                       {13, 257, 33},  {64, 784, 128}, {96, 64, 784}, {129, 300, 129},
                                       {200, 513, 65}, {301, 70, 15},  {70, 40, 600}, {5, 1025, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 8; how += ROUNDS(1, 3)) check_matmul(0, sizes[i][0], sizes[i][1], sizes[i][2], how);
}

/* Rows that are pages apart; more panels than are packed at once. */
TEST(large_matrices)
{
    check_matmul(0, 40, 1024, 48, 0);
    check_matmul(0, 160, 1024, 70, 2);
    check_matmul(0, 132, 1100, 1100, 0);
    check_matmul(0, 132, 1100, 1100, 3);
    check_matmul(0, 200, 1600, 1540, 1); /* strips, but no panels, are made before the pieces, in two goes */
    check_matmul(0, 520, 1300, 300, 1);  /* both */
}

TEST(batches_of_large_matrices)
{
    for (int how = 0; how < 8; how += 3) check_matmul(2, 200, 210, 220, how);
}

TEST(bias_and_activation)
{
    static const int64_t sizes[][3] = {{64, 784, 128}, {150, 120, 10}, {4, 17, 5}, {140, 600, 70}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int64_t activation = 0; activation < 8; activation += ROUNDS(1, 3)) {
            kernel_case c = case_of(&lc__op_linear);
            c.of_largest = 5e-6;
            add_matrix(&c, 0, sizes[i][0], sizes[i][1], activation & 1, 0);
            add_matrix(&c, 0, sizes[i][2], sizes[i][1], false, 0);
            if (activation & 4)
                add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &sizes[i][2], fill_normal, 1);
            else
                add_missing(&c);
            add_int(&c, activation & 3);
            check_case(&c);
        }
    }
}

/* A gradient that is computed in place is added to the existing value; the other results of the call are not. */
static void check_added(kernel_case *c)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    infer_outputs(c);
    run_kernel(c, c->op->kernel, 1);
    float *got[2], *want[2];
    int64_t n[2];
    for (int k = 0; k < c->n_out; k++) {
        n[k] = view_numel(&c->out[k]);
        got[k] = c->out[k].data;
        want[k] = malloc((size_t)n[k] * sizeof *want[k]);
        CHECK(want[k]);
        memcpy(want[k], got[k], (size_t)n[k] * sizeof *want[k]);
    }
    for (int s = 0; s < 3; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        if (!isa) continue;
        lc_call call = call_of(c, NULL, 2);
        call.kernel = lc__isa_kernel(isa, &call);
        CHECK(call.kernel && call.kernel->flags & LC_KERNEL_ACCUMULATES);
        call.accumulate = true;
        CHECK_OK(call.kernel->prepare(&call));
        call.scratch = aligned_alloc(64, (call.scratch_bytes + 63) / 64 * 64);
        for (int k = 0; k < c->n_out; k++)
            for (int64_t i = 0; i < n[k]; i++) got[k][i] = 10;
        call.kernel->run(&call);
        for (int k = 0; k < c->n_out; k++)
            for (int64_t i = 0; i < n[k]; i++) CHECK(fabsf(got[k][i] - (k ? 0 : 10) - want[k][i]) < 1e-3f);
        free(call.scratch);
        call.kernel->release(&call);
    }
    for (int k = 0; k < c->n_out; k++) free(want[k]), free(got[k]);
    for (int i = 0; i < c->n_in; i++) free(c->storage[i]);
}

TEST(results_are_added)
{
    for (int64_t m = 40; m <= 140; m += 100) {
        kernel_case c = case_of(&lc__op_matmul), both = case_of(&lc__op_linear_weight_grad);
        add_matrix(&c, 0, m, 600, true, 0);
        add_matrix(&c, 0, 600, 37, false, 0);
        check_added(&c);
        add_matrix(&both, 0, 600, m, false, 0);
        add_matrix(&both, 0, 600, 37, false, 0);
        check_added(&both);
    }
}

/* ---- fusions ---- */

static const int64_t fused_sizes[][3] = {{64, 784, 128}, {150, 120, 10}, {4, 17, 5},    {140, 600, 70},
                                         {129, 5, 129},  {13, 257, 33},  {300, 40, 600}};

TEST(gelu_of_linear)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int how = 0; how < 4; how++) {
            kernel_case c = case_of(&lc__op_linear_gelu);
            c.of_largest = 5e-6;
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, 3, (int64_t[]){2, z[0], z[1]}, fill_normal, 1);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, (int64_t[]){z[2], z[1]}, fill_normal, 0.2);
            if (how & 2)
                add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &z[2], fill_normal, 1);
            else
                add_missing(&c);
            add_int(&c, how & 1);
            if (i & 1) { /* only gelu's result */
                c.n_out = 1;
                c.out_type[0] = (lc_type){.dtype = LC_F32, .ndim = 3, .shape = {2, z[0], z[2]}};
            }
            check_case(&c);
        }
    }
}

TEST(slope_of_gelu)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int form = 0; form < 4; form++) {
            kernel_case c = case_of(&lc__op_matmul_gelu_backward);
            c.of_largest = 5e-6;
            if (form & 2) {
                c.n_out = 1;
                c.out_type[0] = (lc_type){.dtype = LC_F32, .ndim = 3, .shape = {2, z[0], z[2]}};
            }
            add_matrix(&c, 2, z[0], z[1], false, 0);
            add_matrix(&c, 0, z[1], z[2], false, 0);
            add_matrix(&c, 2, z[0], z[2], false, 0);
            add_int(&c, form & 1);
            check_case(&c);
        }
    }
}

/* The sums of columns do not depend on how many pieces share them. */
TEST(gradients_of_weight_and_bias)
{
    for (size_t i = 0; i < sizeof fused_sizes / sizeof *fused_sizes; i++) {
        const int64_t *z = fused_sizes[i];
        for (int how = 0; how < 8; how += ROUNDS(1, 3)) {
            kernel_case c = case_of(&lc__op_linear_weight_grad);
            c.of_largest = 5e-6;
            add_matrix(&c, 0, z[1], z[0], how & 1, how & 4 ? 3 : 0);
            add_matrix(&c, 0, z[1], z[2], how & 2, how & 4 ? 5 : 0);
            check_case(&c);
        }
    }
    kernel_case c = case_of(&lc__op_linear_weight_grad);
    c.of_largest = 5e-6;
    add_matrix(&c, 0, 1, 9, false, 0);
    add_matrix(&c, 0, 1, 8, false, 0);
    check_case(&c);
}

TEST(calls_left_to_other_kernels)
{
    kernel_case c = case_of(&lc__op_matmul);
    add_matrix(&c, 8, 16, 16, false, 0);
    add_matrix(&c, 8, 16, 16, false, 0);
    infer_outputs(&c);
    lc_call call = call_of(&c, NULL, 1);
    CHECK(!lc__isa_kernel(&lc__isa_base, &call)); /* small matrices of a batch */
    free(c.out[0].data);
    for (int i = 0; i < c.n_in; i++) free(c.storage[i]);
}

TEST_MAIN
