/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of operators that the table of test_ops_math.c cannot express: ties and kinks, NaN and infinity, integers,
 * halves, bad indices, views, tensors without dimensions or elements, and the messages of wrong calls. */
#include "op_values.h"

typedef struct world {
    lc_graph *g;
    lc_tensor *made[16];
    int n;
} world;

static world w;

static void close_world(void)
{
    if (!w.g) return;
    lc_graph_free(w.g);
    for (int i = 0; i < w.n; i++) lc_tensor_unref(w.made[i]);
    memset(&w, 0, sizeof w);
}

/* Also cleans up after a test that failed. */
static void begin(void)
{
    close_world();
    CHECK_OK(lc_graph_new(&w.g, .threads = 1));
    CHECK_OK(lc_step_begin(w.g, 0, 0));
}

static void end(void)
{
    CHECK_OK(lc_step_end(w.g));
    close_world();
}

static lc_tensor *tensor(lc_dtype dtype, bool grad, shape s, const double *values)
{
    lc_tensor *t;
    CHECK(w.n < (int)(sizeof w.made / sizeof *w.made));
    CHECK_OK(lc_tensor_new(dtype, s.n, s.d, &t));
    fill(t, values);
    if (grad) lc_tensor_set_requires_grad(t, true);
    return w.made[w.n++] = t;
}
#define LIST(dtype, grad, ...)                                                                                         \
    tensor(dtype, grad, (shape){1, {(int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))}},                     \
           (double[]){__VA_ARGS__})

static void expect(lc_tensor *t, int n, const double *want)
{
    double got[MAX_N];
    if (lc_tensor_is_error(t)) TEST_FAIL("%s", lc_step_status(w.g) < 0 ? lc_error_message() : "error tensor");
    CHECK_EQ(lc_tensor_numel(t), n);
    fetch(t, got);
    for (int i = 0; i < n; i++)
        if (!(got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]) ||
              fabs(got[i] - want[i]) < 1e-6 * fmax(1, fabs(want[i]))))
            TEST_FAIL("element %d: got %.9g, wanted %.9g", i, got[i], want[i]);
}
#define EXPECT(t, ...)                                                                                                 \
    expect(t, (int)(sizeof((double[]){0, __VA_ARGS__}) / sizeof(double)) - 1, (double[]){__VA_ARGS__})

/* The gradient of sum(y) with respect to x. */
static lc_tensor *gradient(lc_tensor *y, lc_tensor *x)
{
    lc_zero_grad(w.g);
    lc_backward(lc_sum(y));
    CHECK_OK(lc_step_run(w.g));
    CHECK_OK(lc_step_status(w.g));
    lc_tensor *d = lc_gradient(x);
    CHECK(d != NULL);
    return d;
}

/* PyTorch's choices where a derivative does not exist. */
TEST(kinks)
{
    begin();
    lc_tensor *x = LIST(LC_F32, true, -1, 0, 1);
    EXPECT(gradient(lc_relu(x), x), 0, 0, 1);
    EXPECT(gradient(lc_abs(x), x), -1, 0, 1);
    EXPECT(gradient(lc_leaky_relu(x, .slope = 0.5), x), 0.5, 0.5, 1);
    EXPECT(gradient(lc_elu(x, .slope = 0.5), x), 0.5 * exp(-1), 0.5, 1);
    EXPECT(gradient(lc_clamp(x, .min = -1, .max = 1), x), 0, 1, 0);
    EXPECT(gradient(lc_clamp(x, .min = 0, .max = 0.5), x), 0, 0, 0);
    EXPECT(gradient(lc_hardtanh(x, -1, 1), x), 0, 1, 0);
    EXPECT(gradient(lc_relu6(x), x), 0, 0, 1);
    EXPECT(gradient(lc_softsign(x), x), 0.25, 1, 0.25);
    EXPECT(gradient(lc_norm(lc_mul_scalar(x, 0)), x), 0, 0, 0);
    EXPECT(gradient(lc_sqrt(lc_square(x)), x), -1, NAN, 1);
    EXPECT(gradient(lc_pow_scalar(x, 0), x), 0, 0, 0);
    EXPECT(gradient(lc_l1_loss(x, lc_zeros_like(x), .reduction = LC_REDUCE_SUM), x), -1, 0, 1);
    lc_tensor *h = LIST(LC_F32, true, -3, 3);
    EXPECT(gradient(lc_hardswish(h), h), 0, 1);
    EXPECT(gradient(lc_hardsigmoid(h), h), 0, 0);
    lc_tensor *e = LIST(LC_F32, true, 19, 21, 100, -100);
    EXPECT(lc_softplus(e), log1p(exp(19)), 21, 100, 0);
    EXPECT(lc_logsigmoid(e), -log1p(exp(-19)), 0, 0, -100);
    end();
}

TEST(ties)
{
    begin();
    lc_tensor *x = LIST(LC_F32, true, 2, 1, 2, 0), *y = LIST(LC_F32, true, 2, 2, 1, 0);
    lc_tensor *max = lc_maximum(x, y), *min = lc_minimum(x, y);
    EXPECT(max, 2, 2, 2, 0);
    EXPECT(gradient(max, x), 0.5, 0, 1, 0.5);
    EXPECT(gradient(max, y), 0.5, 1, 0, 0.5);
    EXPECT(gradient(min, x), 0.5, 1, 0, 0.5);
    EXPECT(gradient(lc_amax(x), x), 0.5, 0, 0.5, 0);
    EXPECT(gradient(lc_amin(lc_reshape(x, 2, 2), .dims = LC_DIMS(0)), x), 0.5, 0, 0.5, 1);
    EXPECT(lc_argmax(x), 0);
    EXPECT(lc_argmin(x), 3);
    lc_tensor *at;
    lc_tensor *values = lc_topk(x, &at, 3, 0);
    EXPECT(values, 2, 2, 1);
    EXPECT(at, 0, 2, 1);
    lc_tensor *order;
    EXPECT(lc_sort(x, &order, 0, false), 0, 1, 2, 2);
    EXPECT(order, 3, 1, 0, 2);
    end();
}

TEST(nan)
{
    begin();
    lc_tensor *x = LIST(LC_F32, false, 1, NAN, INFINITY, -INFINITY), *one = LIST(LC_F32, false, 1, 1, 1, 1);
    EXPECT(lc_maximum(x, one), 1, NAN, INFINITY, 1);
    EXPECT(lc_minimum(one, x), 1, NAN, 1, -INFINITY);
    EXPECT(lc_relu(x), 1, NAN, INFINITY, 0);
    EXPECT(lc_clamp(x, .min = 0, .max = 2), 1, NAN, 2, 0);
    EXPECT(lc_isfinite(x), 1, 0, 0, 0);
    EXPECT(lc_isnan(x), 0, 1, 0, 0);
    EXPECT(lc_eq(x, x), 1, 0, 1, 1);
    EXPECT(lc_amax(x), NAN);
    EXPECT(lc_amin(x), NAN);
    EXPECT(lc_argmax(x), 1);
    lc_tensor *at;
    EXPECT(lc_sort(x, &at, 0, true), NAN, INFINITY, 1, -INFINITY);
    EXPECT(at, 1, 2, 0, 3);
    lc_tensor *low = LIST(LC_F32, false, -INFINITY, 0), *none = LIST(LC_F32, false, -INFINITY, -INFINITY);
    EXPECT(lc_softmax(low, 0), 0, 1);
    EXPECT(lc_log_softmax(low, 0), -INFINITY, 0);
    EXPECT(lc_logsumexp(none), -INFINITY);
    EXPECT(lc_softmax(none, 0), NAN, NAN);
    lc_tensor *large = LIST(LC_F32, false, 1000, 1000);
    EXPECT(lc_logsumexp(large), 1000 + log(2));
    EXPECT(lc_softmax(large, 0), 0.5, 0.5);
    EXPECT(lc_cast(x, LC_I32), 1, 0, 2147483647, -2147483648.0);
    end();
}

TEST(integers)
{
    begin();
    lc_tensor *i = LIST(LC_I64, false, -3, 0, 7), *j = LIST(LC_I64, false, 2, 2, 2);
    EXPECT(lc_add(i, j), -1, 2, 9);
    EXPECT(lc_mul(i, j), -6, 0, 14);
    EXPECT(lc_maximum(i, j), 2, 2, 7);
    EXPECT(lc_abs(i), 3, 0, 7);
    EXPECT(lc_sign(i), -1, 0, 1);
    EXPECT(lc_mul_scalar(i, 3), -9, 0, 21);
    EXPECT(lc_clamp(i, .min = 0), 0, 0, 7);
    EXPECT(lc_lt(i, j), 1, 1, 0);
    EXPECT(lc_sum(i), 4);
    EXPECT(lc_sum(lc_lt(i, j)), 2);
    CHECK_EQ(lc_tensor_dtype(lc_sum(lc_lt(i, j))), LC_I64);
    EXPECT(lc_amax(i), 7);
    EXPECT(lc_cumsum(i, 0), -3, -3, 4);
    EXPECT(lc_cast(i, LC_BOOL), 1, 0, 1);
    EXPECT(lc_cast(i, LC_F32), -3, 0, 7);
    EXPECT(lc_one_hot(lc_cast(lc_relu(i), LC_I32), 8), 1, 0, 0, 0, 0, 0, 0, 0, /**/ 1, 0, 0, 0, 0, 0, 0, 0, /**/ 0, 0,
           0, 0, 0, 0, 0, 1);
    EXPECT(lc_arange(2, 3, 4, LC_I64), 2, 5, 8, 11);
    EXPECT(lc_arange(0, 0.5, 3, LC_F32), 0, 0.5, 1);
    EXPECT(lc_full(2.5, LC_F32, 2, 2), 2.5, 2.5, 2.5, 2.5);
    EXPECT(lc_scalar(-1.5, LC_F64), -1.5);
    EXPECT(lc_where(lc_lt(i, j), i, j), -3, 0, 2);
    end();
}

TEST(half_precision_round_trip)
{
    begin();
    const double values[] = {0, 1, -1.5, 65504, 65520, 1e-7, 6.1e-5, 3.14159, -2.98e-8, 2.99e-8};
    lc_tensor *x = tensor(LC_F32, false, (shape){1, {10}}, values);
    EXPECT(lc_cast(lc_cast(x, LC_F16), LC_F32), 0, 1, -1.5, 65504, INFINITY, 1.1920929e-07, 6.0975552e-05, 3.140625, 0,
           5.9604645e-08);
    double got[10];
    fetch(lc_cast(lc_cast(x, LC_F16), LC_F32), got);
    CHECK(got[5] == 0x1p-23 && got[9] == 0x1p-24 && got[8] == 0);
    EXPECT(lc_cast(lc_cast(x, LC_BF16), LC_F32), 0, 1, -1.5, 65536, 65536, 1.0011718e-07, 6.103515625e-05, 3.140625,
           -2.98e-8, 2.99e-8);
    end();
}

TEST(split_and_chunk)
{
    begin();
    lc_tensor *x = LIST(LC_F32, true, 0, 1, 2, 3, 4), *part[8];
    CHECK_EQ(lc_split(x, 2, 0, 8, part), 3);
    EXPECT(part[0], 0, 1);
    EXPECT(part[2], 4);
    CHECK_EQ(lc_chunk(x, 3, -1, part), 3);
    EXPECT(part[1], 2, 3);
    EXPECT(gradient(lc_mul(part[1], part[1]), x), 0, 0, 4, 6, 0);
    end();
}

TEST(assign)
{
    begin();
    lc_tensor *x = LIST(LC_F32, false, 1, 2, 3), *y = LIST(LC_F32, false, 5, 6, 7);
    lc_assign(x, lc_add(x, y));
    lc_tensor *after = lc_mul_scalar(x, 1);
    EXPECT(after, 6, 8, 10);
    EXPECT(x, 6, 8, 10);
    end();
}

/* Reshapes of views that cannot be views themselves. */
TEST(reshape_of_views)
{
    begin();
    lc_tensor *x = tensor(LC_F32, false, (shape){3, {2, 2, 3}}, (double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    EXPECT(lc_reshape(lc_transpose(x, 1, 2), 2, 6), 0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11);
    EXPECT(lc_reshape(lc_slice(x, 2, 1, 2), -1), 1, 2, 4, 5, 7, 8, 10, 11);
    EXPECT(lc_reshape(lc_slice(x, 1, 1, 1), 2, 3), 3, 4, 5, 9, 10, 11);
    EXPECT(lc_reshape(lc_expand(lc_select(x, 0, 1), 2, 2, 3), 4, 3), 6, 7, 8, 9, 10, 11, 6, 7, 8, 9, 10, 11);
    lc_tensor *image;
    CHECK_OK(lc_tensor_new_layout(LC_F32, 4, (int64_t[]){1, 2, 2, 2}, LC_CHANNELS_LAST, &image));
    w.made[w.n++] = image;
    fill(image, (double[]){0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT(lc_flatten(image, 1), 0, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(lc_flatten(lc_relu(image), 1), 0, 1, 2, 3, 4, 5, 6, 7);
    end();
}

/* Tensors without dimensions, and without elements. */
TEST(scalars_and_empty_tensors)
{
    begin();
    lc_tensor *x = tensor(LC_F32, true, (shape){0, {0}}, (double[]){-3});
    EXPECT(lc_abs(x), 3);
    EXPECT(lc_sum(x), -3);
    EXPECT(lc_mean(x), -3);
    EXPECT(lc_amax(x), -3);
    EXPECT(lc_argmax(x), 0);
    EXPECT(lc_flatten(x, 0), -3);
    EXPECT(lc_expand(x, 2, 1), -3, -3);
    EXPECT(lc_logsumexp(x), -3);
    EXPECT(lc_mul(x, LIST(LC_F32, false, 1, 2)), -3, -6);
    EXPECT(gradient(lc_mul(lc_square(x), LIST(LC_F32, false, 1, 2)), x), -18);
    lc_tensor *none = lc_zeros(LC_F32, 0, 3), *line = tensor(LC_F32, true, (shape){2, {1, 3}}, (double[]){1, 2, 3});
    CHECK_EQ(lc_tensor_numel(lc_exp(none)), 0);
    EXPECT(lc_sum(none), 0);
    EXPECT(lc_sum(none, .dims = LC_DIMS(0)), 0, 0, 0);
    EXPECT(lc_mean(none), NAN);
    EXPECT(lc_norm(none), 0);
    EXPECT(lc_logsumexp(none, .dims = LC_DIMS(0)), -INFINITY, -INFINITY, -INFINITY);
    EXPECT(lc_cat(0, none, line), 1, 2, 3);
    EXPECT(lc_pad(none, 0, 0, 1, 0), 0, 0, 0);
    EXPECT(lc_softmax(none, 0));
    EXPECT(lc_cumsum(none, 1));
    EXPECT(gradient(lc_cat(0, none, lc_slice(line, 0, 0, 1)), line), 1, 1, 1);
    end();
}

/* A wrong call gives an error tensor, and the step a message that names the error and its place. */
static void expect_error(lc_tensor *t, lc_status status, const char *part, const char *op)
{
    CHECK(lc_tensor_is_error(t));
    CHECK_STATUS(lc_step_status(w.g), status);
    CHECK_CONTAINS(lc_error_message(), part);
    CHECK_CONTAINS(lc_error_message(), op);
    CHECK_CONTAINS(lc_error_message(), "test_ops_cases.c:");
    CHECK_STATUS(lc_step_end(w.g), status);
    CHECK_OK(lc_step_begin(w.g, 0, 0));
}

TEST(messages)
{
    begin();
    lc_tensor *a = tensor(LC_F32, false, (shape){2, {2, 3}}, (double[]){0, 1, 2, 3, 4, 5});
    lc_tensor *b = tensor(LC_F32, false, (shape){1, {4}}, (double[]){0, 1, 2, 3});
    lc_tensor *i = tensor(LC_I64, false, (shape){1, {4}}, (double[]){0, 1, 2, 3});
    expect_error(lc_add(a, b), LC_ERR_SHAPE, "do not broadcast", "add: ");
    expect_error(lc_add(b, i), LC_ERR_DTYPE, "lc_cast", "add: ");
    expect_error(lc_exp(i), LC_ERR_DTYPE, "f32 or f64", "exp: ");
    expect_error(lc_add_scalar(i, 0.5), LC_ERR_DTYPE, "0.5 is not an integer", "add_scalar: ");
    expect_error(lc_where(a, a, a), LC_ERR_DTYPE, "condition", "where: ");
    expect_error(lc_relu(NULL), LC_ERR_ARGUMENT, "missing", "relu: ");
    expect_error(lc_sum(a, .dims = LC_DIMS(2)), LC_ERR_SHAPE, "dimension 2 is out of range", "sum: ");
    expect_error(lc_sum(a, .dims = LC_DIMS(1, -1)), LC_ERR_ARGUMENT, "twice", "sum: ");
    expect_error(lc_mean(i), LC_ERR_DTYPE, "lc_cast", "mean: ");
    expect_error(lc_softmax(a, 5), LC_ERR_SHAPE, "dimension 5 is out of range", "softmax: ");
    expect_error(lc_argmax(a, .dim = -3), LC_ERR_SHAPE, "dimension -3 is out of range", "argmax: ");
    expect_error(lc_reshape(a, 4, -1), LC_ERR_SHAPE, "from [2,3]", "reshape: ");
    expect_error(lc_reshape(a, 7), LC_ERR_SHAPE, "[7] has 7 elements", "reshape: ");
    expect_error(lc_permute(a, 0, 0), LC_ERR_SHAPE, "twice", "permute: ");
    expect_error(lc_transpose(a, 0, 2), LC_ERR_SHAPE, "dimension 2 is out of range", "transpose: ");
    expect_error(lc_slice(a, 1, 2, 2), LC_ERR_SHAPE, "there are 3 in dimension 1", "slice: ");
    expect_error(lc_select(a, 1, 3), LC_ERR_SHAPE, "index 3 is out of range", "select: ");
    expect_error(lc_expand(a, 3, 3), LC_ERR_SHAPE, "dimension 0 cannot become 3", "expand: ");
    expect_error(lc_cat(0, a, b), LC_ERR_SHAPE, "operand 1 is [4]", "cat: ");
    expect_error(lc_pad(a, 1), LC_ERR_SHAPE, "pair", "pad: ");
    expect_error(lc_topk(a, NULL, 4, 1), LC_ERR_SHAPE, "k is 4", "topk: ");
    expect_error(lc_gather(a, 1, i), LC_ERR_SHAPE, "ids", "gather: ");
    expect_error(lc_gather(a, 1, a), LC_ERR_DTYPE, "i64 or i32", "gather: ");
    expect_error(lc_glu(a, 1), LC_ERR_SHAPE, "not an even number", "glu: ");
    expect_error(lc_cast(a, (lc_dtype)99), LC_ERR_DTYPE, "unknown data type 99", "cast: ");
    expect_error(lc_full(0, LC_F32, -2), LC_ERR_SHAPE, "-2", "full: ");
    expect_error(lc_tril(b, 0), LC_ERR_SHAPE, "2 dimensions", "tril: ");
    expect_error(lc_add(lc_cast(a, LC_BF16), lc_cast(a, LC_F64)), LC_ERR_DTYPE, "lc_cast", "add: ");
    lc_assign(a, b);
    expect_error(lc_relu(b), LC_ERR_SHAPE, "the target is [2,3] but the value [4]", "assign: ");
    end();
}

TEST_MAIN
