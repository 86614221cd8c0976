/* SPDX-License-Identifier: Apache-2.0 */
/* NaN and infinities pass through operators as in PyTorch 2.15, whichever kernels compute them. */
#include "test.h"

#include <lightc/lightc.h>

enum { MANY = 40000 }; /* elements of a tensor, at most */

static void read_all(lc_tensor *t, float *values)
{
    CHECK(lc_tensor_numel(t) <= MANY);
    CHECK_OK(lc_tensor_read(t, values, (size_t)lc_tensor_numel(t) * sizeof *values));
}

/* ---- activations that are fused with a convolution ---- */

static lc_tensor *activated(int activation, lc_tensor *x)
{
    return activation == 0 ? lc_relu(x) : activation == 1 ? lc_tanh(x) : lc_sigmoid(x);
}

typedef struct conv_case {
    int64_t n, channels, size, out, kernel, stride;
} conv_case;

/* Normal random numbers, with the `odd` ones at the start of every `every` elements. */
static lc_tensor *normal(uint64_t seed, int ndim, const int64_t *shape, int n_odd, const float *odd, int64_t every)
{
    static float values[MANY];
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, ndim, shape, &t));
    const int64_t n = lc_tensor_numel(t);
    CHECK(n <= MANY);
    for (int64_t i = 0; i < n; i++) values[i] = (float)lc_random_normal(seed, (uint64_t)i);
    for (int64_t i = 0; i < n; i += every)
        for (int k = 0; k < n_odd; k++) values[i + k] = odd[k];
    CHECK_OK(lc_tensor_write(t, values, (size_t)n * sizeof *values));
    return t;
}

/* The activation of a convolution that is only used by it is computed with it; of one that is kept, by itself. */
static void check_activation(const conv_case *k, int activation, lc_dtype autocast, int threads)
{
    static float got[MANY], want[MANY], before[MANY];
    const int64_t image = k->channels * k->size * k->size;
    lc_tensor *x = normal(1, 4, (int64_t[]){k->n, k->channels, k->size, k->size}, 1, (float[]){NAN}, 3 * image);
    lc_tensor *w = normal(2, 4, (int64_t[]){k->out, k->channels, k->kernel, k->kernel}, 0, NULL, 1);
    lc_tensor *b = normal(3, 1, (int64_t[]){k->out}, 3, (float[]){NAN, -INFINITY, INFINITY}, k->out);
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = threads, .autocast = autocast));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *fused = lc_keep(activated(activation, lc_conv2d(x, w, b, .stride = LC_DIMS((int)k->stride))));
    lc_tensor *alone = lc_keep(lc_conv2d(x, w, b, .stride = LC_DIMS((int)k->stride)));
    lc_tensor *parts = lc_keep(activated(activation, alone));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    read_all(fused, got), read_all(parts, want), read_all(alone, before);
    int64_t n = lc_tensor_numel(fused), nans = 0;
    for (int64_t i = 0; i < n; i++) {
        nans += isnan(before[i]);
        /* Sums of up to 432 products, which nearly cancel in places, by two algorithms. */
        if (isnan(got[i]) != isnan(before[i]) || fabsf(got[i] - want[i]) > 1e-2f * fabsf(want[i]) + 1e-4f)
            TEST_FAIL("kernel %d, %d channels, batch %d, activation %d, type %d: result %d of %d is %g, not %g",
                      (int)k->kernel, (int)k->channels, (int)k->n, activation, (int)autocast, (int)i, (int)n,
                      (double)got[i], (double)want[i]);
    }
    CHECK(nans > 0 && nans < n);
    lc_tensor_unref(x), lc_tensor_unref(w), lc_tensor_unref(b);
    lc_graph_free(g);
}

TEST(fused_activations_keep_nan)
{
    const conv_case cases[] = {{1, 3, 13, 8, 5, 2},   {5, 3, 13, 8, 5, 2},   {2, 16, 8, 24, 1, 1},
                               {11, 16, 8, 24, 1, 1}, {4, 16, 12, 32, 3, 1}, {7, 48, 9, 32, 3, 2}};
    const lc_dtype types[] = {LC_DTYPE_DEFAULT, LC_BF16, LC_F16};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int activation = 0; activation < 3; activation++)
            for (int type = 0; type < 3; type++)
                for (int threads = 1; threads < 4; threads += 2)
                    check_activation(&cases[i], activation, types[type], threads);
}

/* ---- gradients ---- */

typedef lc_tensor *function(lc_tensor *x);

static lc_tensor *norm_of_three(lc_tensor *x)
{
    return lc_norm(x, .p = 3);
}
static lc_tensor *norm_of_half(lc_tensor *x)
{
    return lc_norm(x, .p = 0.5);
}
/* 0 to the power of x, whose gradient is multiplied by NaN. */
static lc_tensor *power_of_zero(lc_tensor *x)
{
    lc_tensor *zero = lc_full_like(x, 0);
    return lc_mul_scalar(lc_pow(zero, x), NAN);
}

/* In every type, by the fast and the reference kernels. */
static void check_gradient_is_nan(const char *name, function *f, int n, const float *x)
{
    const lc_dtype types[] = {LC_F32, LC_F64, LC_BF16, LC_F16};
    for (int way = 0; way < 8; way++) {
        float got[8];
        lc_graph *g;
        setenv("LIGHTC_KERNELS", way % 2 ? "reference" : "fast", 1);
        CHECK_OK(lc_graph_new(&g, .threads = 1));
        lc_tensor *t;
        CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){n}, &t));
        CHECK_OK(lc_tensor_write(t, x, (size_t)n * sizeof *x));
        lc_tensor_set_requires_grad(t, true);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_backward(lc_cast(lc_sum(f(lc_cast(t, types[way / 2]))), LC_F32));
        lc_tensor *d = lc_keep(lc_gradient(t));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_tensor_read(d, got, (size_t)n * sizeof *got));
        for (int i = 0; i < n; i++)
            if (!isnan(got[i])) TEST_FAIL("%s, way %d: gradient %d is %g, not NaN", name, way, i, (double)got[i]);
        lc_tensor_unref(t);
        lc_graph_free(g);
    }
    unsetenv("LIGHTC_KERNELS");
}

TEST(gradients_keep_nan)
{
    check_gradient_is_nan("norm 3", norm_of_three, 4, (float[]){0, NAN, 2, -0.f});
    check_gradient_is_nan("norm 0.5", norm_of_half, 4, (float[]){0, NAN, 2, -0.f});
    check_gradient_is_nan("power of 0", power_of_zero, 3, (float[]){0, 1, 2});
}

TEST_MAIN
