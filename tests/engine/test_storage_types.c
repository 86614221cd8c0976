/* SPDX-License-Identifier: Apache-2.0 */
/* Values kept in a smaller type than the program sees (engine/plan/storage_types.c): the numbers of a program that
 * converts by itself, and no conversion more than necessary. */
#include "test.h"

#include "ops/ops.h"
#include "record/graph_impl.h"

#include <lightc/lightc.h>

enum { ROWS = 4, IN = 6, OUT = 5 };

static lc_graph *graph(bool low)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .seed = 3, .autocast = low ? LC_BF16 : 0));
    return g;
}

static lc_tensor *tensor(uint64_t key, int64_t rows, int64_t columns, bool grad)
{
    lc_tensor *t;
    float values[64];
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){rows, columns}, &t));
    for (int64_t i = 0; i < rows * columns; i++) values[i] = (float)lc_random_normal(key, (uint64_t)i);
    CHECK_OK(lc_tensor_write(t, values, (size_t)(rows * columns) * sizeof *values));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

static lc_tensor *rounded(lc_tensor *x)
{
    return lc_cast(lc_cast(x, LC_BF16), LC_F32);
}

/* A product as the low type has it; by_hand: with conversions in the program. */
static lc_tensor *product(bool by_hand, lc_tensor *x, lc_tensor *w)
{
    return by_hand ? rounded(lc_linear(rounded(x), rounded(w), NULL)) : lc_linear(x, w, NULL);
}

typedef struct tensors {
    lc_tensor *x, *w, *v;
} tensors;

static tensors make(void)
{
    return (tensors){tensor(1, ROWS, IN, false), tensor(2, OUT, IN, true), tensor(3, IN, OUT, true)};
}

static void drop(tensors t)
{
    lc_tensor_unref(t.x);
    lc_tensor_unref(t.w);
    lc_tensor_unref(t.v);
}

/* Two layers; keep: the program reads what is between them. */
static void forward(bool by_hand, bool keep, float y[ROWS * IN])
{
    tensors t = make();
    lc_graph *g = graph(!by_hand);
    float between[ROWS * OUT];
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *h = product(by_hand, t.x, t.w);
    if (keep) lc_keep(h);
    lc_tensor *out = lc_keep(product(by_hand, lc_gelu(h), t.v));
    CHECK(lc_tensor_dtype(h) == LC_F32 && lc_tensor_dtype(out) == LC_F32);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(out, y, ROWS * IN * sizeof *y));
    if (keep) CHECK_OK(lc_tensor_read(h, between, sizeof between));
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
    drop(t);
}

TEST(the_numbers_are_those_of_conversions_in_the_program)
{
    float want[ROWS * IN], y[ROWS * IN], f32[ROWS * IN];
    forward(true, false, want);
    forward(false, false, y);
    CHECK(!memcmp(want, y, sizeof y));
    forward(false, true, y);
    CHECK(!memcmp(want, y, sizeof y)); /* reading a value changes none */
    tensors t = make();
    lc_graph *g = graph(false);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *plain = lc_keep(lc_linear(lc_gelu(lc_linear(t.x, t.w, NULL)), t.v, NULL));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(plain, f32, sizeof f32));
    CHECK(memcmp(want, f32, sizeof f32) != 0);
    for (int i = 0; i < ROWS * IN; i++) CHECK_NEAR(want[i], f32[i], 0.1);
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
    drop(t);
}

/* Calls of the last plan, and how many convert. */
static int conversions(const lc_graph *g)
{
    int n = 0;
    const lc_plan *p = g->plans[g->n_plans - 1];
    for (int i = 0; i < p->n_calls; i++) n += p->calls[i].call.op == &lc__op_cast;
    return n;
}

/* The last product of the last plan. */
static const lc_call *last_product(const lc_graph *g)
{
    const lc_plan *p = g->plans[g->n_plans - 1];
    for (int i = p->n_calls - 1; i >= 0; i--)
        if (p->calls[i].call.op == &lc__op_linear) return &p->calls[i].call;
    TEST_FAIL("there is no product");
}

/* Whether products have kernels for the low type. */
static bool has_kernels(const lc_graph *g)
{
    return last_product(g)->in[0].dtype == LC_BF16;
}

TEST(a_value_is_converted_once)
{
    setenv("LIGHTC_PLAN", "off", 1);
    tensors t = make();
    lc_graph *g = graph(true);
    unsetenv("LIGHTC_PLAN");
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *a = lc_linear(t.x, t.w, NULL), *b = lc_linear(t.x, t.w, NULL);
    lc_keep(lc_add(a, b));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    /* x and w to bf16, once each, and the results of both products and of the sum to f32. Without kernels for bf16,
     * operands go back to f32, and results come from it. */
    CHECK_EQ(conversions(g), (2 + 3) * (has_kernels(g) ? 1 : 2));
    lc_graph_free(g);
    drop(t);
}

TEST(what_nobody_reads_is_not_converted)
{
    tensors t = make();
    lc_graph *g = graph(true);
    if (g->plan_off) SKIP("LIGHTC_PLAN is set");
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_keep(lc_linear(lc_linear(t.x, t.w, NULL), t.v, NULL));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    /* Three inputs are rounded, unless the products do that, and one result is converted; chains are single nodes.
     * Without kernels for bf16 both results are rounded. */
    CHECK_EQ(g->plans[0]->n_calls, 2 + (last_product(g)->rounded ? 1 : has_kernels(g) ? 4 : 5));
    lc_graph_free(g);
    drop(t);
}

TEST(a_written_tensor_is_converted_again)
{
    float first[ROWS * OUT], second[ROWS * OUT];
    tensors t = make();
    lc_graph *g = graph(true);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *a, *b;
    lc_no_grad_begin();
    a = lc_keep(lc_linear(t.x, t.w, NULL));
    lc_assign(t.w, lc_mul_scalar(t.w, 2));
    b = lc_keep(lc_linear(t.x, t.w, NULL));
    lc_no_grad_end();
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(a, first, sizeof first));
    CHECK_OK(lc_tensor_read(b, second, sizeof second));
    CHECK_OK(lc_step_end(g));
    for (int i = 0; i < ROWS * OUT; i++) CHECK_EQ(second[i], 2 * first[i]); /* a power of two is exact */
    lc_graph_free(g);
    drop(t);
}

/* Gradients flow through the conversions, and arrive in f32. */
TEST(gradients_are_near_those_of_f32)
{
    float grad[2][OUT * IN];
    for (int low = 0; low < 2; low++) {
        tensors t = make();
        lc_graph *g = graph(low);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *y = lc_linear(lc_gelu(lc_linear(t.x, t.w, NULL)), t.v, NULL);
        lc_backward(lc_mean(lc_mul(y, y)));
        lc_tensor *of_w = lc_keep(lc_gradient(t.w));
        CHECK_OK(lc_step_run(g));
        CHECK(lc_tensor_dtype(of_w) == LC_F32);
        CHECK_OK(lc_tensor_read(of_w, grad[low], sizeof grad[low]));
        CHECK_OK(lc_step_end(g));
        lc_graph_free(g);
        drop(t);
    }
    CHECK(memcmp(grad[0], grad[1], sizeof grad[0]) != 0);
    for (int i = 0; i < OUT * IN; i++) CHECK_NEAR(grad[0][i], grad[1][i], 0.05);
}

TEST_MAIN
