/* SPDX-License-Identifier: Apache-2.0 */
/* Normalization, softmax and sums in f64 against the reference kernels: sizes, layouts, absent operands, and the same
 * bits for any number of threads (check_case). */
#include "kernel_check.h"

static void add_vector(kernel_case *c, int64_t n, bool there, fill_fn *fill)
{
    if (there)
        add_input(c, LC_F64, CHECK_ROW_MAJOR, 1, &n, fill, 1);
    else
        add_missing(c);
}

/* ---- batch norm ---- */
static const struct {
    int ndim;
    int64_t shape[4];
} images[] = {{2, {7, 5}},      {2, {300, 64}},     {4, {2, 3, 5, 7}},   {4, {4, 40, 14, 14}},
              {3, {3, 17, 29}}, {4, {9, 1, 33, 3}}, {4, {1, 200, 9, 9}}, {4, {16, 16, 40, 40}}};

TEST(batch_norm)
{
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        for (int way = 0; way < 8; way++) {
            const int64_t *s = images[i].shape;
            kernel_case c = case_f64(way & 4 ? &lc__op_batch_norm_inference : &lc__op_batch_norm, 2e-13);
            c.out_layout = CHECK_CHANNELS_LAST;
            lc_view *x = add_input(&c, LC_F64, CHECK_CHANNELS_LAST, images[i].ndim, s, fill_normal, 2);
            for (int64_t k = 0; k < view_numel(x); k++) ((double *)x->data)[k] += 100; /* far from 0 */
            add_vector(&c, s[1], way & 1, fill_normal);
            add_vector(&c, s[1], way & 1, fill_normal);
            if (way & 4) add_vector(&c, s[1], true, fill_normal);
            if (way & 4) add_vector(&c, s[1], true, fill_positive);
            add_int(&c, way >> 1 & 1);
            add_float(&c, 1e-5);
            check_case(&c);
        }
    }
}

TEST(gradient_of_batch_norm)
{
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        for (int way = 0; way < 6; way++) {
            const int64_t *s = images[i].shape;
            bool again = way > 3;
            kernel_case c = case_f64(again ? &lc__op_batch_norm_relu_backward : &lc__op_batch_norm_backward, 2e-13);
            c.out_layout = CHECK_CHANNELS_LAST;
            add_input(&c, LC_F64, CHECK_CHANNELS_LAST, images[i].ndim, s, fill_normal, 1);
            add_input(&c, LC_F64, CHECK_CHANNELS_LAST, images[i].ndim, s, fill_normal, 2);
            add_vector(&c, s[1], way & 1, fill_normal);
            add_vector(&c, s[1], way & 1, fill_normal);
            add_vector(&c, s[1], true, fill_normal);
            add_vector(&c, s[1], true, fill_positive);
            add_int(&c, again ? 1 : way >> 1);
            add_float(&c, 1e-5);
            check_case(&c);
        }
    }
}

/* ---- layer norm ---- */
static const int64_t rows[][3] = {{1, 1, 1}, {3, 5, 7}, {40, 6, 16}, {1, 333, 65}, {7, 9, 384}, {2, 3, 2000}};

TEST(layer_and_rms_norm)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int way = 0; way < 12; way++) {
            bool rms = way >= 8;
            int dims = way & 4 && !rms ? 2 : 1; /* normalized dimensions */
            kernel_case c = case_f64(rms ? &lc__op_rms_norm : &lc__op_layer_norm, 2e-13);
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, 3, rows[i], fill_normal, 2);
            for (int k = 0; k < (rms ? 1 : 2); k++) {
                if (way >> k & 1)
                    add_input(&c, LC_F64, CHECK_ROW_MAJOR, dims, rows[i] + 3 - dims, fill_normal, 1);
                else
                    add_missing(&c);
            }
            add_int(&c, dims);
            add_float(&c, 1e-5);
            check_case(&c);
        }
    }
}

TEST(gradients_of_layer_and_rms_norm)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int way = 0; way < 4; way++) {
            kernel_case c = case_f64(way & 1 ? &lc__op_rms_norm_backward : &lc__op_layer_norm_backward, 2e-13);
            for (int k = 0; k < 2; k++) add_input(&c, LC_F64, CHECK_ROW_MAJOR, 3, rows[i], fill_normal, 2);
            add_vector(&c, rows[i][2], way & 2, fill_normal);
            if (!(way & 1)) add_input(&c, LC_F64, CHECK_ROW_MAJOR, 2, rows[i], fill_normal, 1);
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, 2, rows[i], fill_positive, 1);
            add_int(&c, 1);
            check_case(&c);
        }
    }
}

/* ---- softmax ---- */
TEST(softmax_and_its_gradient)
{
    const lc_op *ops[] = {&lc__op_softmax, &lc__op_log_softmax, &lc__op_softmax_backward, &lc__op_log_softmax_backward};
    const int64_t sizes[] = {1, 2, 7, 16, 65, 511, 512, 1500};
    for (int o = 0; o < 4; o++) {
        for (int s = 0; s < 8; s++) {
            kernel_case c = case_f64(ops[o], 2e-13);
            for (int k = 0; k <= o / 2; k++)
                add_input(&c, LC_F64, CHECK_ROW_MAJOR, 2, (int64_t[]){37, sizes[s]}, fill_normal, 3);
            add_int(&c, 1);
            check_case(&c);
        }
    }
    for (int o = 0; o < 2; o++) { /* rows with infinities and NaN */
        kernel_case c = case_f64(ops[o], 2e-13);
        double *x = add_input(&c, LC_F64, CHECK_ROW_MAJOR, 2, (int64_t[]){5, 19}, fill_normal, 300)->data;
        for (int i = 0; i < 19; i++) x[i] = -INFINITY;
        x[19] = -INFINITY, x[2 * 19 + 3] = NAN, x[3 * 19 + 18] = INFINITY;
        add_int(&c, 1);
        check_case(&c);
    }
}

/* ---- sums ---- */
static void check_sum(const lc_op *op, check_layout layout, int ndim, const int64_t *shape, unsigned reduced, bool keep)
{
    kernel_case c = case_f64(op, 2e-13);
    add_input(&c, LC_F64, layout, ndim, shape, fill_positive, 1);
    add_int(&c, keep);
    add_int(&c, __builtin_popcount(reduced));
    for (int d = 0; d < ndim; d++)
        if (reduced >> d & 1) add_int(&c, d);
    /* Results that are not dense along the columns of a channels-last operand are left to the reference kernel. */
    c.may_lack = layout == CHECK_CHANNELS_LAST && !(reduced >> 1 & 1) && reduced != (1u << ndim) - 3;
    check_case(&c);
}

TEST(sums_and_means)
{
    const int64_t shapes[][4] = {{2, 3, 4, 5}, {1, 7, 1, 9}, {30, 20, 10, 17}, {3, 300, 2, 40}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (unsigned reduced = 1; reduced < 16; reduced++)
            for (int way = 0; way < 4; way++)
                check_sum(way & 1 ? &lc__op_mean : &lc__op_sum, way & 2 ? CHECK_CHANNELS_LAST : CHECK_ROW_MAJOR, 4,
                          shapes[s], reduced, way & 1);
    check_sum(&lc__op_sum, CHECK_ROW_MAJOR, 2, (int64_t[]){4096, 300}, 1, false);
    check_sum(&lc__op_sum, CHECK_ROW_MAJOR, 2, (int64_t[]){5, 40000}, 2, false);
    check_sum(&lc__op_mean, CHECK_ROW_MAJOR, 1, (int64_t[]){500001}, 1, false);
    check_sum(&lc__op_sum, CHECK_ROW_MAJOR, 1, (int64_t[]){1}, 1, false);
}

TEST_MAIN
