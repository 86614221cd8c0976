/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy, tables, dropout and pooling in f64 against the reference kernels, and the same bits for any number of
 * threads (check_case). */
#include "kernel_check.h"

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static kernel_case case_f64(const lc_op *op)
{
    kernel_case c = case_of(op);
    c.f64 = 2e-14;
    return c;
}

/* ---- cross entropy ---- */
static void check_cross_entropy(int ndim, const int64_t *shape, lc_dtype ids, int reduction, double smoothing,
                                bool weighted, bool odd_labels)
{
    int64_t places[LC_MAX_DIMS], classes = shape[1];
    places[0] = shape[0];
    for (int d = 2; d < ndim; d++) places[d - 1] = shape[d];
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_f64(backward ? &lc__op_cross_entropy_backward : &lc__op_cross_entropy);
        if (backward) c.f64 = 1e-12; /* p - 1 is only as exact as p */
        c.may_lack = ndim > 2;
        c.out_layout = CHECK_CHANNELS_LAST;
        if (backward) add_input(&c, LC_F64, CHECK_ROW_MAJOR, reduction == 2 ? ndim - 1 : 0, places, fill_positive, 1);
        add_input(&c, LC_F64, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 4);
        lc_view *x = &c.in[c.n_in - 1];
        lc_view *t = add_input(&c, ids, CHECK_ROW_MAJOR, ndim - 1, places, fill_whole, (double)classes);
        put_value(ids, t->data, 0, -100); /* ignored */
        if (odd_labels) put_value(ids, t->data, 1, (double)classes);
        if (weighted)
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, 1, &classes, fill_positive, 1);
        else
            add_missing(&c);
        if (backward) {
            lc_view *lse = add_input(&c, LC_F64, CHECK_ROW_MAJOR, ndim - 1, places, fill_normal, 1);
            int64_t n = view_numel(lse), inner = n / places[0];
            for (int64_t p = 0; p < n; p++) {
                const double *row = (const double *)x->data + (ndim > 2 ? p * classes : p / inner * classes);
                double sum = 0;
                for (int64_t k = 0; k < classes; k++) sum += exp((double)row[k]);
                ((double *)lse->data)[p] = log(sum);
            }
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, 0, NULL, fill_positive, 100);
        }
        add_int(&c, -100);
        add_int(&c, reduction);
        add_float(&c, smoothing);
        check_case(&c);
    }
}

TEST(cross_entropy)
{
    const int64_t shapes[][4] = {{2, 2, 1, 1}, {3, 10, 1, 1}, {130, 10, 1, 1}, {40, 33, 1, 1}, {5, 5000, 1, 1}};
    for (int s = 0; s < 5; s++) {
        for (int form = 0; form < 12; form++)
            check_cross_entropy(2, shapes[s], form & 1 ? LC_I32 : LC_I64, form % 3, form & 2 ? 0.1 : 0, form >= 6,
                                form == 11);
    }
    check_cross_entropy(SHAPE(3, 7, 5, 4), LC_I64, 0, 0, false, false);
    check_cross_entropy(SHAPE(3, 7, 5, 4), LC_I64, 2, 0.2, true, true);
    check_cross_entropy(SHAPE(3, 20, 9), LC_I64, 1, 0, false, false);
}

/* ---- embedding ---- */
TEST(embedding)
{
    const int64_t sizes[] = {1, 16, 100, 768};
    for (int s = 0; s < 4; s++) {
        for (int form = 0; form < 2; form++) {
            lc_dtype ids = form ? LC_I32 : LC_I64;
            kernel_case c = case_f64(&lc__op_embedding);
            lc_view *v = add_input(&c, ids, CHECK_ROW_MAJOR, SHAPE(4, 60), fill_whole, 31);
            put_value(ids, v->data, 3, 500);
            put_value(ids, v->data, 4, -1);
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, SHAPE(31, sizes[s]), fill_normal, 1);
            add_int(&c, -1);
            check_case(&c);
            kernel_case b = case_f64(&lc__op_embedding_backward);
            add_input(&b, LC_F64, CHECK_ROW_MAJOR, SHAPE(4, 60, sizes[s]), fill_normal, 1);
            v = add_input(&b, ids, CHECK_ROW_MAJOR, SHAPE(4, 60), fill_whole, 31);
            put_value(ids, v->data, 3, 500);
            add_int(&b, 31);
            add_int(&b, form ? 7 : -1);
            check_case(&b);
        }
    }
}

/* ---- dropout ---- */
TEST(dropout)
{
    const int64_t sizes[] = {1, 3, 255, 256, 257, 100003};
    const double p[] = {0.1, 0.5, 0.9999999, 1, 1e-9};
    for (int s = 0; s < 6; s++) {
        for (int k = 0; k < 5; k++) {
            kernel_case c = case_f64(&lc__op_dropout);
            add_input(&c, LC_F64, CHECK_ROW_MAJOR, SHAPE(sizes[s]), fill_positive, 1);
            add_int(&c, 12345);
            add_int(&c, 2);
            add_float(&c, p[k]);
            check_case(&c);
        }
    }
}

/* ---- pooling ---- */
static void check_max_pool(const int64_t *shape, const int64_t *window, bool nan)
{
    kernel_case c = case_f64(&lc__op_max_pool2d);
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, LC_F64, CHECK_CHANNELS_LAST, 4, shape, fill_ties, 5);
    if (nan) {
        for (int i = 0; i < 5; i++) ((double *)c.in[0].data)[i * 3] = NAN;
    }
    for (int i = 0; i < 9; i++) add_int(&c, window[i]);
    c.relative = c.of_largest = 0;
    check_case(&c);

    lc_type pooled[2], x = {.dtype = LC_F64, .ndim = 4};
    memcpy(x.shape, shape, 4 * sizeof *shape);
    const lc_type *in[] = {&x};
    lc_infer infer = {
        .op = &lc__op_max_pool2d, .n_in = 1, .in = in, .n_int = 9, .ints = window, .n_out = 2, .out = pooled};
    CHECK_OK(lc__op_max_pool2d.infer(&infer));
    kernel_case b = case_f64(&lc__op_max_pool2d_backward);
    b.out_layout = CHECK_CHANNELS_LAST;
    add_input(&b, LC_F64, CHECK_CHANNELS_LAST, 4, pooled[0].shape, fill_normal, 1);
    add_input(&b, LC_U8, CHECK_CHANNELS_LAST, 4, pooled[0].shape, fill_whole, (double)(window[0] * window[1]));
    for (int i = 0; i < 9; i++) add_int(&b, window[i]);
    add_int(&b, shape[2]);
    add_int(&b, shape[3]);
    check_case(&b);
}

static void check_average_pool(const int64_t *shape, const int64_t *window)
{
    kernel_case c = case_f64(&lc__op_avg_pool2d);
    c.out_layout = CHECK_CHANNELS_LAST;
    add_input(&c, LC_F64, CHECK_CHANNELS_LAST, 4, shape, fill_normal, 1);
    for (int i = 0; i < 9; i++) add_int(&c, window[i]);
    infer_outputs(&c);
    lc_type pooled = c.out_type[0];
    free(c.out[0].data);
    check_case(&c);
    kernel_case b = case_f64(&lc__op_avg_pool2d_backward);
    b.out_layout = CHECK_CHANNELS_LAST;
    add_input(&b, LC_F64, CHECK_CHANNELS_LAST, 4, pooled.shape, fill_normal, 1);
    for (int i = 0; i < 9; i++) add_int(&b, window[i]);
    add_int(&b, shape[2]);
    add_int(&b, shape[3]);
    check_case(&b);
}

TEST(pooling)
{
    const int64_t shapes[][4] = {{2, 3, 7, 9}, {1, 16, 8, 8}, {3, 33, 12, 5}, {5, 32, 28, 28}};
    const int64_t maxima[][9] = {{2, 2, 2, 2, 0, 0, 1, 1, 0},
                                 {3, 3, 2, 2, 1, 1, 1, 1, 0},
                                 {3, 2, 1, 3, 1, 0, 2, 1, 1},
                                 {2, 2, 2, 2, 0, 0, 1, 1, 1}};
    const int64_t averages[][9] = {{2, 2, 2, 2, 0, 0, 0, 1, 0},
                                   {3, 3, 2, 2, 1, 1, 1, 1, 0},
                                   {3, 2, 2, 3, 1, 1, 1, 0, 0},
                                   {3, 3, 3, 3, 1, 1, 0, 1, 5}};
    for (int s = 0; s < 4; s++) {
        for (int w = 0; w < 4; w++) {
            check_max_pool(shapes[s], maxima[w], s == 1);
            check_average_pool(shapes[s], averages[w]);
        }
        const int64_t grids[][2] = {{1, 1}, {2, 3}, {5, 4}};
        for (int g = 0; g < 3; g++) {
            kernel_case c = case_f64(&lc__op_adaptive_avg_pool2d);
            c.out_layout = CHECK_CHANNELS_LAST;
            add_input(&c, LC_F64, CHECK_CHANNELS_LAST, 4, shapes[s], fill_normal, 1);
            add_int(&c, grids[g][0]);
            add_int(&c, grids[g][1]);
            check_case(&c);
            kernel_case b = case_f64(&lc__op_adaptive_avg_pool2d_backward);
            b.out_layout = CHECK_CHANNELS_LAST;
            const int64_t pooled[] = {shapes[s][0], shapes[s][1], grids[g][0], grids[g][1]};
            add_input(&b, LC_F64, CHECK_CHANNELS_LAST, 4, pooled, fill_normal, 1);
            add_int(&b, shapes[s][2]);
            add_int(&b, shapes[s][3]);
            check_case(&b);
        }
    }
}
TEST_MAIN
