/* SPDX-License-Identifier: Apache-2.0 */
/* The first NaN of a step (LIGHTC_NAN_CHECK, detect_anomaly): the operator that produced it is named with its line,
 * also inside a fused chain, forward and backward; a NaN from outside the step is reported as one. */
#include "test.h"

#include <lightc/lightc.h>

#define ON_THIS_LINE(call) (line = __LINE__, (call))

static int line;
enum { ROWS = 5, COLUMNS = 40 };

static lc_tensor *filled(float value, float one, bool grad)
{
    static float v[ROWS * COLUMNS];
    lc_tensor *t;
    for (int i = 0; i < ROWS * COLUMNS; i++) v[i] = value;
    v[3 * COLUMNS + 17] = one;
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){ROWS, COLUMNS}, &t));
    CHECK_OK(lc_tensor_write(t, v, sizeof v));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

/* Chains of elementwise operators, one of which makes the first NaN or infinity. */
static lc_tensor *chain(int k, lc_tensor *x, lc_tensor *row)
{
    switch (k) {
    case 0: /* in the middle, for one element */
        return lc_tanh(lc_square(ON_THIS_LINE(lc_ln(lc_sub_scalar(lc_mul(x, row), 1)))));
    case 1: /* the first operator */
        return lc_square(lc_neg(ON_THIS_LINE(lc_sqrt(lc_neg(x)))));
    case 2: /* the last operator */
        return ON_THIS_LINE(lc_div(lc_tanh(x), lc_mul_scalar(lc_square(x), 0)));
    case 3: /* an infinity that becomes a NaN */
        return lc_sub(ON_THIS_LINE(lc_exp(lc_mul_scalar(x, 500))), lc_exp(lc_mul_scalar(x, 400)));
    default:
        return NULL;
    }
}
static const char *const makers[] = {"log", "sqrt", "div", "exp"};

static void check_chains(void)
{
    for (int k = 0; k < 4; k++) {
        char where[64];
        lc_graph *g;
        CHECK_OK(lc_graph_new(&g, .threads = 1, .nan_check = true));
        lc_tensor *x = filled(2, 0.5f, false), *row;
        CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){COLUMNS}, &row));
        float ones[COLUMNS];
        for (int i = 0; i < COLUMNS; i++) ones[i] = 1;
        CHECK_OK(lc_tensor_write(row, ones, sizeof ones));
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_keep(lc_sum(chain(k, x, row)));
        CHECK_STATUS(lc_step_run(g), LC_ERR_NUMERIC);
        snprintf(where, sizeof where, "test_anomaly.c:%d", line);
        CHECK_CONTAINS(lc_error_message(), where);
        snprintf(where, sizeof where, "%s made the first NaN", makers[k]);
        CHECK_CONTAINS(lc_error_message(), where);
        CHECK(!strstr(lc_error_message(), "fused"));
        CHECK(!strstr(lc_error_message(), "already"));
        (void)!lc_step_end(g);
        lc_graph_free(g);
        lc_tensor_unref(x);
        lc_tensor_unref(row);
    }
}

TEST(inside_a_chain)
{
    check_chains();
}

TEST(inside_a_chain_of_reference_kernels)
{
    setenv("LIGHTC_KERNELS", "reference", 1);
    check_chains();
    unsetenv("LIGHTC_KERNELS");
}

TEST(unplanned)
{
    setenv("LIGHTC_PLAN", "off", 1);
    check_chains();
    unsetenv("LIGHTC_PLAN");
}

/* The derivative of a root at 0, in a chain of the backward pass. */
TEST(inside_a_backward_chain)
{
    char where[64];
    lc_graph *g;
    lc_tensor *w = filled(4, 0, true);
    CHECK_OK(lc_graph_new(&g, .threads = 1, .nan_check = true));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *root = ON_THIS_LINE(lc_sqrt(w));
    lc_backward(lc_sum(lc_mul_scalar(lc_tanh(root), 3)));
    CHECK_STATUS(lc_step_run(g), LC_ERR_NUMERIC);
    snprintf(where, sizeof where, "test_anomaly.c:%d", line);
    CHECK_CONTAINS(lc_error_message(), where);
    CHECK(!strstr(lc_error_message(), "fused"));
    (void)!lc_step_end(g);
    lc_graph_free(g);
    lc_tensor_unref(w);
}

/* ---- scaled losses ---- */

/* Two steps of a weight [5,40]: scale * sum(f(w)), where products are in f16. *after: an element of the weight. */
static lc_status scaled_steps(float value, lc_tensor *f(lc_tensor *w), double scale, float *after)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("scaled")};
    lc_graph *g;
    lc_module m;
    lc_tensor *unscale;
    const float one_over = (float)(1 / scale);
    float v[ROWS * COLUMNS];
    lc_status s = LC_OK;
    for (int i = 0; i < ROWS * COLUMNS; i++) v[i] = value;
    lc_module_init(&m, &ops, 1);
    lc_tensor *w = lc_module_add_parameter(&m, "w", LC_F32, LC_ROW_MAJOR, 2, (int64_t[]){ROWS, COLUMNS}, (lc_init){0});
    lc_optimizer *opt = lc_sgd(&m, .lr = 0.1);
    CHECK_OK(lc_tensor_write(w, v, sizeof v));
    CHECK_OK(lc_tensor_new(LC_F32, 0, NULL, &unscale));
    CHECK_OK(lc_tensor_write(unscale, &one_over, sizeof one_over));
    CHECK_OK(lc_graph_new(&g, .threads = 1, .nan_check = true, .autocast = LC_F16));
    for (int step = 0; step < 2 && s >= 0; step++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_zero_grad(g);
        lc_tensor *loss = lc_keep(lc_sum(f(w)));
        lc_graph_set_unscale(g, unscale, NULL, NULL);
        lc_backward(lc_mul_scalar(loss, scale));
        lc_optimizer_step(opt);
        s = lc_step_run(g);
        (void)!lc_step_end(g);
    }
    CHECK_OK(lc_tensor_read(w, v, sizeof v));
    *after = v[0];
    lc_optimizer_free(opt);
    lc_graph_free(g);
    lc_tensor_unref(unscale);
    lc_module_release(&m);
    return s;
}

static lc_tensor *product(lc_tensor *w)
{
    return lc_matmul(w, lc_permute(w, 1, 0));
}

static lc_tensor *exploding(lc_tensor *w)
{
    return ON_THIS_LINE(lc_exp(lc_mul_scalar(w, 1000)));
}

TEST(gradients_of_a_scaled_loss_may_overflow)
{
    float w;
    CHECK_OK(scaled_steps(1, product, 1e9, &w));
    CHECK_EQ(w, 1); /* both updates were left out */
    CHECK_OK(scaled_steps(1, product, 4, &w));
    CHECK(w < 1);
}

TEST(a_forward_pass_with_a_scaled_loss)
{
    char text[64];
    float w;
    CHECK_STATUS(scaled_steps(1, exploding, 4, &w), LC_ERR_NUMERIC);
    CHECK_CONTAINS(lc_error_message(), "exp made the first NaN or infinity");
    CHECK_CONTAINS(lc_error_message(), "; the loss is scaled");
    snprintf(text, sizeof text, "test_anomaly.c:%d", line);
    CHECK_CONTAINS(lc_error_message(), text);
    CHECK_EQ(w, 1);
}

TEST(a_value_from_outside)
{
    lc_graph *g;
    lc_tensor *w = filled(4, NAN, true);
    CHECK_OK(lc_graph_new(&g, .threads = 1, .nan_check = true));
    for (int fused = 0; fused < 2; fused++) {
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_keep(fused ? lc_sum(lc_tanh(lc_neg(w))) : lc_sum(lc_softmax(w, 1)));
        CHECK_STATUS(lc_step_run(g), LC_ERR_NUMERIC);
        CHECK_CONTAINS(lc_error_message(), "already contains one");
        (void)!lc_step_end(g);
    }
    lc_graph_free(g);
    lc_tensor_unref(w);
}

TEST_MAIN
