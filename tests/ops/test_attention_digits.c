/* SPDX-License-Identifier: Apache-2.0 */
/* How many digits of attention's gradients are right in f32 as scores grow: compared with the same in f64, and with
 * PyTorch 2.15's errors for the same numbers (CPU, one thread). */
#include "test.h"

#include <lightc/lightc.h>

enum { B = 2, H = 2 };

typedef struct setting {
    bool same; /* q, k and v are one tensor's values */
    int64_t s, d;
    double scale; /* 0: the default */
    double deviation;
    double torch[3]; /* errors of dq, dk, dv, relative to the largest element of all three */
} setting;

static void draw(uint64_t key, double deviation, int64_t n, double *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = (double)(float)(lc_random_normal(key, (uint64_t)i) * deviation);
}

/* Computes the gradients of q, k and v, in this order, for the gradient dy. */
static void gradients(const setting *c, lc_dtype dtype, double *const x[4], double *out[3])
{
    lc_graph *g;
    lc_tensor *t[4];
    int64_t shape[] = {B, H, c->s, c->d}, n = B * H * c->s * c->d;
    size_t size = lc_dtype_size(dtype);
    char *bytes = malloc((size_t)n * size);
    CHECK(bytes != NULL);
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(lc_tensor_new(dtype, 4, shape, &t[i]));
        for (int64_t k = 0; k < n; k++)
            if (dtype == LC_F32)
                ((float *)bytes)[k] = (float)x[i][k];
            else
                ((double *)bytes)[k] = x[i][k];
        CHECK_OK(lc_tensor_write(t[i], bytes, (size_t)n * size));
        lc_tensor_set_requires_grad(t[i], i < 3);
    }
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *y = lc_sdpa(t[0], t[1], t[2], .causal = true, .scale = c->scale != 0 ? c->scale : LC_NOT_GIVEN);
    lc_backward(lc_sum(lc_mul(y, t[3])));
    lc_tensor *d[3];
    for (int i = 0; i < 3; i++) d[i] = lc_keep(lc_gradient(t[i]));
    CHECK_OK(lc_step_run(g));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lc_tensor_read(d[i], bytes, (size_t)n * size));
        for (int64_t k = 0; k < n; k++)
            out[i][k] = dtype == LC_F32 ? (double)((float *)bytes)[k] : ((double *)bytes)[k];
    }
    CHECK_OK(lc_step_end(g));
    for (int i = 0; i < 4; i++) lc_tensor_unref(t[i]);
    lc_graph_free(g);
    free(bytes);
}

static void errors(const setting *c, uint64_t key, double worst[3])
{
    int64_t n = B * H * c->s * c->d;
    double *x[4], *got[3], *want[3], largest = 0;
    for (int i = 0; i < 4; i++) {
        CHECK((x[i] = malloc((size_t)n * sizeof(double))) != NULL);
        draw(i < 3 && c->same ? key : key + (uint64_t)i, i < 3 ? c->deviation : 1, n, x[i]);
    }
    for (int i = 0; i < 3; i++) {
        CHECK((got[i] = malloc((size_t)n * sizeof(double))) != NULL);
        CHECK((want[i] = malloc((size_t)n * sizeof(double))) != NULL);
    }
    gradients(c, LC_F32, x, got);
    gradients(c, LC_F64, x, want);
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < n; k++) largest = fmax(largest, fabs(want[i][k]));
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < n; k++) worst[i] = fmax(worst[i], fabs(got[i][k] - want[i][k]) / largest);
    for (int i = 0; i < 4; i++) free(x[i]);
    for (int i = 0; i < 3; i++) free(got[i]), free(want[i]);
}

/* clang-format off */
static const setting settings[] = {
    {true, 33, 31, 1, 0.1, {7.7e-09, 1.2e-08, 3.1e-07}},
    {true, 33, 31, 1, 0.5, {6.4e-07, 6.5e-07, 3.2e-07}},
    {true, 33, 31, 1, 1, {1.1e-06, 1.1e-06, 1.4e-07}},
    {true, 33, 31, 1, 2, {9.6e-07, 9.6e-07, 3.4e-08}},
    {true, 33, 31, 1, 5, {9.0e-14, 9.0e-14, 0.0e+00}},
    {true, 33, 31, 1, 10, {3.6e-13, 3.6e-13, 0.0e+00}},
    {true, 33, 31, 1, 20, {1.4e-12, 1.4e-12, 0.0e+00}},
    {true, 130, 31, 1, 0.1, {8.3e-09, 1.3e-08, 3.7e-07}},
    {true, 130, 31, 1, 0.5, {6.0e-07, 6.2e-07, 6.2e-07}},
    {true, 130, 31, 1, 1, {1.2e-06, 1.2e-06, 4.0e-07}},
    {true, 130, 31, 1, 2, {5.4e-06, 3.0e-06, 2.4e-07}},
    {true, 130, 31, 1, 5, {2.1e-08, 2.1e-08, 3.1e-08}},
    {true, 130, 31, 1, 10, {4.7e-13, 4.7e-13, 3.1e-08}},
    {true, 130, 31, 1, 20, {1.9e-12, 1.9e-12, 3.1e-08}},
    {true, 128, 64, 0, 0.1, {2.0e-09, 3.8e-09, 2.9e-07}},
    {true, 128, 64, 0, 0.5, {7.1e-08, 8.8e-08, 3.6e-07}},
    {true, 128, 64, 0, 1, {4.7e-07, 4.6e-07, 5.5e-07}},
    {true, 128, 64, 0, 2, {5.6e-07, 5.6e-07, 1.4e-07}},
    {true, 128, 64, 0, 5, {4.5e-14, 4.5e-14, 0.0e+00}},
    {true, 128, 64, 0, 10, {1.8e-13, 1.8e-13, 0.0e+00}},
    {true, 128, 64, 0, 20, {7.3e-13, 7.3e-13, 0.0e+00}},
    {false, 33, 31, 1, 0.1, {5.4e-09, 1.1e-08, 3.1e-07}},
    {false, 33, 31, 1, 0.5, {2.0e-07, 2.7e-07, 3.4e-07}},
    {false, 33, 31, 1, 1, {8.5e-07, 6.8e-07, 1.5e-07}},
    {false, 33, 31, 1, 2, {3.3e-06, 2.9e-06, 1.5e-07}},
    {false, 33, 31, 1, 5, {1.3e-05, 1.0e-05, 2.1e-07}},
    {false, 33, 31, 1, 10, {9.4e-05, 7.6e-05, 2.3e-07}},
    {false, 33, 31, 1, 20, {6.0e-04, 4.4e-04, 1.6e-07}},
    {false, 130, 31, 1, 0.1, {5.9e-09, 2.1e-08, 2.9e-07}},
    {false, 130, 31, 1, 0.5, {3.8e-07, 5.2e-07, 3.2e-07}},
    {false, 130, 31, 1, 1, {1.7e-06, 1.3e-06, 3.1e-07}},
    {false, 130, 31, 1, 2, {4.9e-06, 4.1e-06, 2.2e-07}},
    {false, 130, 31, 1, 5, {2.8e-05, 2.1e-05, 2.2e-07}},
    {false, 130, 31, 1, 10, {3.0e-04, 1.9e-04, 2.7e-07}},
    {false, 130, 31, 1, 20, {4.2e-04, 4.3e-04, 6.5e-07}},
    {false, 128, 64, 0, 0.1, {1.9e-09, 4.1e-09, 2.7e-07}},
    {false, 128, 64, 0, 0.5, {4.3e-08, 6.7e-08, 3.3e-07}},
    {false, 128, 64, 0, 1, {2.1e-07, 3.1e-07, 3.1e-07}},
    {false, 128, 64, 0, 2, {1.1e-06, 8.3e-07, 3.9e-07}},
    {false, 128, 64, 0, 5, {8.9e-06, 5.7e-06, 3.0e-07}},
    {false, 128, 64, 0, 10, {5.1e-05, 4.3e-05, 3.3e-07}},
    {false, 128, 64, 0, 20, {1.2e-04, 7.7e-05, 5.0e-07}},
};
/* clang-format on */

enum { N = sizeof settings / sizeof settings[0] };

/* Compared with the better of PyTorch's kernels (math, flash) for each; errors below the last digit count as the last
 * digit. Shapes that differ in nothing else are compared by their worst: a single element depends on how it happened to
 * be rounded. */
TEST(attention_gradients_keep_their_digits)
{
    static double worst[N][3];
    for (int i = 0; i < N; i++)
        for (uint64_t key = 0; key < 8; key++) errors(&settings[i], 100 * key + 7, worst[i]);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++) {
            double bound = 2 * (double)1.2e-7f;
            for (int j = 0; j < N; j++)
                if (settings[j].same == settings[i].same && settings[j].deviation == settings[i].deviation)
                    bound = fmax(bound, 2 * settings[j].torch[k]);
            if (worst[i][k] > bound)
                TEST_FAIL("%s, S %d, D %d, deviation %g: d%c is off by %.1e, allowed are %.1e",
                          settings[i].same ? "q = k = v" : "apart", (int)settings[i].s, (int)settings[i].d,
                          settings[i].deviation, "qkv"[k], worst[i][k], bound);
        }
}

TEST_MAIN
