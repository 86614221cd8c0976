/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels a graph uses: the environment selects them and is read once, and fast and reference kernels agree on
 * unusual calls (no elements, double precision, results in channels-last order). */
#include "test.h"
#include "ops/ops.h"
#include <lightc/lightc.h>

static lc_graph *graph_with(const char *name, const char *value)
{
    lc_graph *g = NULL;
    if (value) setenv(name, value, 1);
    lc_status status = lc_graph_new(&g, .threads = 2, .seed = 1);
    unsetenv(name);
    CHECK_OK(status);
    return g;
}

static void refused(const char *name, const char *value, const char *said)
{
    lc_graph *g;
    setenv(name, value, 1);
    lc_status status = lc_graph_new(&g);
    unsetenv(name);
    CHECK(status == LC_ERR_CONFIG && !g);
    if (!strstr(lc_error_message(), name) || !strstr(lc_error_message(), value) || !strstr(lc_error_message(), said))
        TEST_FAIL("%s=%s: %s", name, value, lc_error_message());
}

TEST(unknown_values_are_refused_and_known_ones_listed)
{
    refused("LIGHTC_PLAN", "of", "\"on\" or \"off\"");
    refused("LIGHTC_KERNELS", "refernce", "\"fast\" or \"reference\"");
    refused("LIGHTC_NAN_CHECK", "yes", "\"0\" or \"1\"");
    refused("LIGHTC_HOST_FALLBACK", "on", "\"0\" or \"1\"");
    refused("LIGHTC_ISA", "avx3", "this machine has base");
    static const char *const known[][2] = {{"LIGHTC_PLAN", "on"},      {"LIGHTC_PLAN", ""},
                                           {"LIGHTC_KERNELS", "fast"}, {"LIGHTC_KERNELS", "reference"},
                                           {"LIGHTC_NAN_CHECK", "0"},  {"LIGHTC_ISA", "base"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) lc_graph_free(graph_with(known[i][0], known[i][1]));
}

/* ---- one network, computed in several ways ---- */

typedef struct net {
    lc_module base;
    lc_conv2d conv;
    lc_group_norm norm;
    lc_layer_norm rows;
    lc_linear l1, l2;
} net;

/* The loss of one step of a small network on a batch of `n`. */
static double one_step(lc_graph *g, int64_t n)
{
    static float pixels[8 * 2 * 8 * 8];
    static int64_t labels[8];
    net m = {0};
    lc_tensor *x, *y;
    double loss_value;
    for (int i = 0; i < 8 * 2 * 64; i++) pixels[i] = (float)(i * 37 % 101) / 101;
    for (int i = 0; i < 8; i++) labels[i] = i % 3;
    lc_module_init(&m.base, NULL, 7);
    lc_conv2d_init(&m.conv, &m, "conv", 2, 16, 3, .padding = 1);
    lc_group_norm_init(&m.norm, &m, "norm", 4, 16);
    lc_linear_init(&m.l1, &m, "l1", 16 * 4 * 4, 32);
    lc_layer_norm_init(&m.rows, &m, "rows", 32);
    lc_linear_init(&m.l2, &m, "l2", 32, 3);
    CHECK_OK(lc_module_status(&m.base));
    CHECK_OK(lc_input_new(LC_F32, 4, (int64_t[]){n, 2, 8, 8}, LC_ROW_MAJOR, pixels, &x));
    CHECK_OK(lc_input_new(LC_I64, 1, (int64_t[]){n}, LC_ROW_MAJOR, labels, &y));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *h = lc_relu(lc_group_norm_forward(&m.norm, lc_conv2d_forward(&m.conv, x)));
    h = lc_max_pool2d(h, 2);
    h = lc_layer_norm_forward(&m.rows, lc_gelu(lc_linear_forward(&m.l1, lc_flatten(h, 1))));
    lc_tensor *loss = lc_keep(lc_cross_entropy(lc_linear_forward(&m.l2, lc_dropout(h, 0.1)), y));
    lc_zero_grad(g);
    lc_backward(loss);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_item(loss, &loss_value));
    CHECK_OK(lc_step_end(g));
    lc_tensor_unref(x);
    lc_tensor_unref(y);
    lc_module_release(&m.base);
    return loss_value;
}

static bool alike(double a, double b)
{
    return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-5 * (1 + fabs(b));
}

TEST(a_batch_without_samples)
{
    static const char *const ways[][2] = {
        {"LIGHTC_KERNELS", "reference"}, {"LIGHTC_PLAN", "off"}, {"LIGHTC_ISA", NULL}};
    for (int64_t n = 0; n <= 8; n += n ? 7 : 1) {
        double r[3];
        for (int i = 0; i < 3; i++) {
            lc_graph *g = graph_with(ways[i][0], ways[i][1]);
            r[i] = one_step(g, n);
            lc_graph_free(g);
        }
        for (int i = 1; i < 3; i++)
            if (!alike(r[i], r[0])) TEST_FAIL("batch %d way %d: %g, not %g", (int)n, i, r[i], r[0]);
        if (n == 0) CHECK(isnan(r[0])); /* the mean of no elements, as in PyTorch */
    }
}

TEST(the_environment_is_read_once)
{
    lc_graph *fast = graph_with("LIGHTC_KERNELS", "fast"), *plain = graph_with("LIGHTC_KERNELS", "reference");
    double before = one_step(fast, 8), other = one_step(plain, 8);
    setenv("LIGHTC_KERNELS", "reference", 1);
    setenv("LIGHTC_ISA", "base", 1);
    double after = one_step(fast, 7);
    unsetenv("LIGHTC_KERNELS");
    unsetenv("LIGHTC_ISA");
    lc_graph *again = graph_with("LIGHTC_KERNELS", "fast");
    double want = one_step(again, 7);
    CHECK(after == want);
    CHECK(alike(before, other));
    lc_graph_free(fast);
    lc_graph_free(plain);
    lc_graph_free(again);
}

TEST_MAIN
