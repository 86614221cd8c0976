/* SPDX-License-Identifier: Apache-2.0 */
/* The line search of LBFGS ("strong_wolfe") on functions whose minimum along a line is known. Its interpolation is by
 * a cubic, so on a quadratic or a cubic function it finds the minimum exactly; a first try that is good enough is
 * kept, and one that is too short is multiplied by 10 at most. PyTorch judges other functions (test_torch_runs.c,
 * test_random_trainings.c). */
#include "chosen_gradients.h"

typedef struct valley {
    world w;
    bool cubic;
    lc_optimizer *opt;
    int evaluations;
} valley;

/* sum(g / 2 * p^2), where the world's g are curvatures; or sum(p^3 - 3 p). */
static lc_status height(void *ctx, double *loss)
{
    valley *v = ctx;
    lc_tensor *p = v->w.p[0], *square = lc_square(p), *each = lc_mul_scalar(lc_mul(v->w.g[0], square), 0.5);
    if (v->cubic) each = lc_sub(lc_mul(square, p), lc_mul_scalar(p, 3));
    lc_tensor *sum = lc_sum(each);
    v->evaluations++;
    lc_optimizer_zero_grad(v->opt);
    lc_backward(sum);
    return lc_item(sum, loss);
}

/* One step of so many iterations, from start to *end; how often the loss was evaluated. */
static int descend_to(double tolerance_change, bool cubic, const double *curvatures, const double *start, double lr,
                      int iterations, double *end)
{
    valley v = {.cubic = cubic};
    world_init(&v.w, LC_F64);
    put(&v.w, v.w.g[0], curvatures);
    put(&v.w, v.w.p[0], start);
    v.opt = lc_lbfgs(&v.w.root, .lr = lr, .max_iter = iterations, .max_eval = 100, .strong_wolfe = true,
                     .tolerance_change = tolerance_change);
    CHECK_OK(lc_step_begin(v.w.graph, 0, 0));
    CHECK_OK(lc_optimizer_step_closure(v.opt, height, &v));
    CHECK_OK(lc_step_end(v.w.graph));
    get(&v.w, v.w.p[0], end);
    world_free(&v.w, v.opt);
    return v.evaluations;
}

static int descend(bool cubic, const double *curvatures, const double *start, double lr, int iterations, double *end)
{
    return descend_to(1e-9, cubic, curvatures, start, lr, iterations, end);
}

static const double curvatures[N0] = {1, 2, 4, 2, 1}, start[N0] = {0.9, -0.4, 0.7, 1.1, -0.3};

/* Steps are in units of the step to the minimum: where they begin, where they end, and after how many more tries. */
TEST(a_quadratic)
{
    static const struct {
        double first, last;
        int more;
    } cases[] = {{0.003, 0.3, 2}, {0.05, 0.5, 1}, {0.3, 0.3, 0}, {1.5, 1.5, 0}, {1.95, 1, 1}, {5, 1, 1}, {50, 1, 1}};
    double g[N0], end[N0], sum = 0, square = 0, along = 0;
    for (int i = 0; i < N0; i++) {
        g[i] = curvatures[i] * start[i];
        sum += fabs(g[i]), square += g[i] * g[i], along += curvatures[i] * g[i] * g[i];
    }
    double best = square / along;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double lr = cases[k].first * best * fmax(1, sum); /* the first try of all is lr / sum */
        CHECK_EQ(descend(false, curvatures, start, lr, 1, end), 2 + cases[k].more);
        for (int i = 0; i < N0; i++) CHECK_NEAR(end[i], start[i] - cases[k].last * best * g[i], 1e-12);
    }
}

/* From 0 each element goes to 3 t; the minimum is at 1. */
TEST(a_cubic)
{
    static const struct {
        double first, last;
        int more;
    } cases[] = {{1, 1. / 3, 1}, {2, 1. / 3, 1}, {0.05, 1. / 3, 1}, {0.02, 0.2, 1}, {0.3, 0.3, 0}};
    const double zero[N0] = {0};
    double end[N0];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        CHECK_EQ(descend(true, curvatures, zero, cases[k].first * 3 * N0, 1, end), 2 + cases[k].more);
        for (int i = 0; i < N0; i++) CHECK_NEAR(end[i], 3 * cases[k].last, 1e-12);
    }
}

/* With exact line searches the directions are conjugate: there are as many steps to the minimum as different
 * curvatures. */
TEST(a_quadratic_to_its_end)
{
    double end[N0], farthest[4] = {0};
    for (int iterations = 1; iterations < 4; iterations++) {
        CHECK_EQ(descend(false, curvatures, start, 50, iterations, end), 1 + 2 * iterations);
        for (int i = 0; i < N0; i++) farthest[iterations] = fmax(farthest[iterations], fabs(end[i]));
    }
    CHECK(farthest[1] > 0.1 && farthest[2] > 1e-3);
    CHECK_NEAR(farthest[3], 0, 1e-10);
}

/* The first try goes beyond the minimum, to which the search returns: tolerance_change only ends the iterations. */
TEST(a_search_is_as_exact_with_a_large_tolerance)
{
    double end[N0];
    CHECK_EQ(descend_to(10, false, curvatures, start, 15, 5, end), 3);
    for (int i = 0; i < N0; i++) CHECK_NEAR(end[i], start[i] * (1 - 14.22 / 43.22 * curvatures[i]), 1e-12);
}

TEST_MAIN
