/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: recording, plans and their cache, gradients, accumulation, reading values back, errors. */
#include "test.h"

#include <lightc/lightc.h>
#include "record/graph_impl.h"

static lc_tensor *tensor(int ndim, const int64_t *shape, uint64_t key, bool grad)
{
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, ndim, shape, &t));
    int64_t n = lc_tensor_numel(t);
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)lc_random_normal(key, (uint64_t)i);
    CHECK_OK(lc_tensor_write(t, x, (size_t)n * sizeof *x));
    free(x);
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

#define T(key, grad, ...) tensor(LC_COUNT(__VA_ARGS__), (const int64_t[]){__VA_ARGS__}, key, grad)

static lc_graph *graph(void)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 2, .seed = 3));
    return g;
}

static double item(lc_tensor *t)
{
    double v = NAN;
    CHECK_OK(lc_item(t, &v));
    return v;
}

TEST(values_of_a_step)
{
    lc_graph *g = graph();
    lc_tensor *x = T(1, false, 4, 5);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *y = lc_keep(lc_sum(lc_mul(x, x)));
    CHECK_OK(lc_step_run(g));
    double want = 0;
    for (uint64_t i = 0; i < 20; i++) want += pow((double)(float)lc_random_normal(1, i), 2);
    CHECK_NEAR(item(y), want, 1e-4);
    CHECK_OK(lc_step_end(g));
    CHECK_NEAR(item(y), want, 1e-4); /* kept: readable until the next step */
    lc_tensor_unref(x);
    lc_graph_free(g);
}

/* A graph may have the address of one that was freed; tensors used by that one must not be taken for known. */
TEST(graphs_one_after_another)
{
    lc_tensor *x = T(1, false, 3), *y = T(2, false, 3);
    for (int i = 0; i < 8; i++) {
        lc_graph *g = graph();
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *z = i % 2 ? lc_sum(lc_add(x, y)) : lc_sum(lc_mul(lc_mul(lc_exp(y), y), x));
        CHECK(isfinite(item(z)));
        CHECK_OK(lc_step_end(g));
        lc_graph_free(g);
    }
    lc_tensor_unref(x), lc_tensor_unref(y);
}

TEST(plans_are_reused)
{
    lc_graph *g = graph();
    lc_tensor *x = T(1, false, 8, 3), *w = T(2, true, 2, 3);
    for (uint64_t step = 0; step < 5; step++) {
        CHECK_OK(lc_step_begin(g, step, 0));
        lc_tensor *loss = lc_keep(lc_mean(lc_square(lc_linear(x, w, NULL))));
        lc_zero_grad(g);
        lc_backward(loss);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_stats stats;
    lc_graph_get_stats(g, &stats);
    CHECK_EQ(stats.misses, 1);
    CHECK_EQ(stats.hits, 4);
    lc_tensor_unref(x), lc_tensor_unref(w);
    lc_graph_free(g);
}

TEST(scalars_need_no_new_plan)
{
    lc_graph *g = graph();
    lc_tensor *w = T(2, true, 7);
    float before[7], gradient[7];
    CHECK_OK(lc_tensor_read(w, before, sizeof before));
    for (int step = 0; step < 4; step++) {
        double s = 1.0 + step;
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_zero_grad(g);
        lc_tensor *loss = lc_sum(lc_mul_scalar(lc_square(w), s));
        lc_backward(loss);
        lc_tensor *dw = lc_keep(lc_gradient(w));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(dw, gradient, sizeof gradient));
        for (int i = 0; i < 7; i++) CHECK_NEAR(gradient[i], 2 * s * before[i], 1e-5 * s);
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_stats stats;
    lc_graph_get_stats(g, &stats);
    CHECK_EQ(stats.misses, 1);
    lc_tensor_unref(w);
    lc_graph_free(g);
}

TEST(gradients_accumulate)
{
    lc_graph *g = graph();
    lc_tensor *w = T(2, true, 3), *x = T(4, false, 3);
    float xs[3], gradient[3];
    CHECK_OK(lc_tensor_read(x, xs, sizeof xs));
    for (int window = 0; window < 3; window++) {
        lc_zero_grad(g);
        for (int micro = 0; micro < 4; micro++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)window, (uint64_t)micro));
            lc_backward(lc_sum(lc_mul(w, lc_mul_scalar(x, micro + 1.0))));
            CHECK_OK(lc_step_run(g));
            CHECK_OK(lc_step_end(g));
        }
        CHECK_OK(lc_step_begin(g, (uint64_t)window, 9));
        lc_tensor *dw = lc_keep(lc_gradient(w));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(dw, gradient, sizeof gradient));
        for (int i = 0; i < 3; i++) CHECK_NEAR(gradient[i], 10.0 * xs[i] / 4, 1e-5); /* mean over the window */
        CHECK_OK(lc_step_end(g));
    }
    lc_tensor_unref(w), lc_tensor_unref(x);
    lc_graph_free(g);
}

TEST(branch_on_a_loss_value)
{
    lc_graph *g = graph();
    lc_tensor *w = T(2, true, 5), *k = T(3, false, 1);
    float ws[5], gradient[5];
    CHECK_OK(lc_tensor_read(w, ws, sizeof ws));
    for (int step = 0; step < 6; step++) {
        float sign = step % 3 == 0 ? -1.f : 1.f;
        CHECK_OK(lc_tensor_write(k, &sign, sizeof sign));
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_zero_grad(g);
        lc_tensor *h = lc_square(w);
        lc_tensor *loss = lc_sum(lc_mul(h, k));
        double value = item(loss); /* splits the plan */
        if (value > 0)
            loss = lc_mul_scalar(loss, 3);
        else
            loss = lc_sum(lc_mul(h, w));
        lc_backward(loss);
        lc_tensor *dw = lc_keep(lc_gradient(w));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(dw, gradient, sizeof gradient));
        for (int i = 0; i < 5; i++) CHECK_NEAR(gradient[i], sign > 0 ? 6.0 * ws[i] : 3.0 * ws[i] * ws[i], 1e-4);
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_stats stats;
    lc_graph_get_stats(g, &stats);
    CHECK_EQ(stats.misses, 3); /* the common beginning and two ends */
    lc_tensor_unref(w), lc_tensor_unref(k);
    lc_graph_free(g);
}

TEST(batch_size_that_changes_every_step)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .max_plans = 4));
    static float data[40 * 3];
    for (int i = 0; i < 40 * 3; i++) data[i] = (float)i;
    lc_tensor *x;
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){1, 3}, LC_ROW_MAJOR, data, &x));
    for (int64_t n = 1; n <= 40; n++) {
        lc_input_set(x, data, n);
        CHECK_OK(lc_step_begin(g, (uint64_t)n, 0));
        lc_tensor *s = lc_keep(lc_sum(x));
        CHECK_OK(lc_step_run(g));
        CHECK_NEAR(item(s), (3 * n - 1) * 3 * n / 2.0, 1e-3);
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_stats stats;
    lc_graph_get_stats(g, &stats);
    CHECK(stats.plans <= 4);
    CHECK_EQ(stats.evictions, 36);
    lc_tensor_unref(x);
    lc_graph_free(g);
}

TEST(more_batch_sizes_than_plans)
{
    enum { SIZES = 12, PLANS = 8, ROUNDS = 50 };
    lc_graph *g;
    static float data[SIZES * 3];
    lc_graph_stats stats;
    lc_tensor *x;
    for (int i = 0; i < SIZES * 3; i++) data[i] = (float)i;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .max_plans = PLANS));
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){1, 3}, LC_ROW_MAJOR, data, &x));
    for (int64_t i = 0; i < SIZES * ROUNDS; i++) { /* always in the same order */
        int64_t n = i % SIZES + 1;
        lc_input_set(x, data, n);
        CHECK_OK(lc_step_begin(g, (uint64_t)i, 0));
        lc_tensor *s = lc_keep(lc_sum(x));
        lc_tensor *part = lc_sum(lc_slice(x, 0, 0, 1));
        CHECK_NEAR(item(part), 3, 1e-6); /* a step of two plans: the first must not be evicted for the second */
        CHECK_OK(lc_step_run(g));
        CHECK_NEAR(item(s), (3 * n - 1) * 3 * n / 2.0, 1e-3);
        CHECK_OK(lc_step_end(g));
        lc_graph_get_stats(g, &stats);
        CHECK(stats.plans <= PLANS);
    }
    CHECK(stats.hits > stats.misses / 4);
    lc_tensor_unref(x);
    lc_graph_free(g);
}

TEST(inputs_may_move_between_steps)
{
    lc_graph *g = graph();
    float a[] = {1, 2, 3}, b[] = {10, 20, 30};
    lc_tensor *x;
    CHECK_OK(lc_input_new(LC_F32, 1, (int64_t[]){3}, LC_ROW_MAJOR, a, &x));
    for (int step = 0; step < 4; step++) {
        lc_input_set(x, step % 2 ? b : a, 3);
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_tensor *s = lc_keep(lc_sum(lc_square(x)));
        CHECK_OK(lc_step_run(g));
        CHECK_NEAR(item(s), step % 2 ? 1400 : 14, 1e-3);
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_stats stats;
    lc_graph_get_stats(g, &stats);
    CHECK_EQ(stats.misses, 1);
    lc_tensor_unref(x);
    lc_graph_free(g);
}

TEST(an_input_without_memory_is_an_error)
{
    lc_graph *g = graph();
    float a[] = {1, 2, 3};
    lc_tensor *x;
    double sum;
    CHECK_OK(lc_input_new(LC_F32, 1, (int64_t[]){3}, LC_ROW_MAJOR, NULL, &x));
    for (int step = 0; step < 3; step++) { /* when it is planned, and when it is replayed */
        lc_input_set(x, step == 1 ? a : NULL, 3);
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_tensor *s = lc_sum(lc_square(x));
        if (step == 1) {
            CHECK_OK(lc_item(s, &sum));
            CHECK_NEAR(sum, 14, 1e-6);
        } else {
            CHECK_EQ(lc_item(s, &sum), LC_ERR_ARGUMENT);
            CHECK_CONTAINS(lc_error_message(), "an input tensor of f32 [3] has no data (NULL); give it memory with ");
        }
        (void)!lc_step_end(g);
    }
    CHECK_EQ(lc_tensor_read(x, a, sizeof a), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_item(x, &sum), LC_ERR_ARGUMENT);
    lc_tensor_unref(x);
    lc_graph_free(g);
}

/* Also through a view, in a part of the step after a host read; and read back directly. */
TEST(views_of_inputs_may_move_too)
{
    lc_graph *g = graph();
    float a[] = {1, 2, 3, 4}, b[] = {10, 20, 30, 40}, back[2];
    lc_tensor *x;
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){2, 2}, LC_ROW_MAJOR, a, &x));
    for (int step = 0; step < 6; step++) {
        double scale = step % 2 ? 10 : 1;
        lc_input_set(x, step % 2 ? b : a, 2);
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_tensor *row = lc_slice(x, 0, 1, 1), *flat = lc_flatten(x, 0);
        CHECK_NEAR(item(lc_sum(x)), 10 * scale, 1e-4); /* ends the first part */
        lc_tensor *s = lc_keep(lc_add(lc_sum(row), lc_mul_scalar(lc_sum(flat), 100)));
        lc_keep(row);
        CHECK_OK(lc_step_run(g));
        CHECK_NEAR(item(s), (7 + 1000) * scale, 1e-2);
        CHECK_OK(lc_tensor_read(row, back, sizeof back));
        CHECK_NEAR(back[0], 3 * scale, 1e-5);
        CHECK_NEAR(back[1], 4 * scale, 1e-5);
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_stats stats;
    lc_graph_get_stats(g, &stats);
    CHECK_EQ(stats.misses, 2);
    lc_tensor_unref(x);
    lc_graph_free(g);
}

TEST(shared_and_unused_parameters)
{
    lc_graph *g = graph();
    lc_tensor *w = T(2, true, 4), *unused = T(5, true, 4);
    float ws[4], gradient[4];
    CHECK_OK(lc_tensor_read(w, ws, sizeof ws));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_backward(lc_sum(lc_add(lc_mul(w, w), lc_mul_scalar(w, 5))));
    lc_tensor *dw = lc_keep(lc_gradient(w)), *du = lc_keep(lc_gradient(unused));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(dw, gradient, sizeof gradient));
    for (int i = 0; i < 4; i++) CHECK_NEAR(gradient[i], 2 * ws[i] + 5, 1e-5);
    CHECK_OK(lc_tensor_read(du, gradient, sizeof gradient));
    for (int i = 0; i < 4; i++) CHECK_NEAR(gradient[i], 0, 0);
    CHECK_OK(lc_step_end(g));
    lc_tensor_unref(w), lc_tensor_unref(unused);
    lc_graph_free(g);
}

TEST(detach_and_no_grad)
{
    lc_graph *g = graph();
    lc_tensor *w = T(2, true, 4);
    float ws[4], gradient[4];
    CHECK_OK(lc_tensor_read(w, ws, sizeof ws));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_no_grad_begin();
    lc_tensor *c = lc_square(w);
    lc_no_grad_end();
    lc_backward(lc_sum(lc_add(lc_mul(w, lc_detach(w)), lc_mul(w, c))));
    lc_tensor *dw = lc_keep(lc_gradient(w));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(dw, gradient, sizeof gradient));
    for (int i = 0; i < 4; i++) CHECK_NEAR(gradient[i], ws[i] + ws[i] * ws[i], 1e-5);
    CHECK_OK(lc_step_end(g));
    CHECK_OK(lc_step_begin(g, 1, 0));
    lc_backward(lc_sum(lc_detach(w)));
    CHECK_STATUS(lc_step_run(g), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "requires a gradient");
    (void)!lc_step_end(g);
    lc_tensor_unref(w);
    lc_graph_free(g);
}

TEST(assign_carries_values_over)
{
    lc_graph *g = graph();
    lc_tensor *mean;
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &mean));
    lc_tensor *x = T(7, false, 2);
    float xs[2], m[2];
    CHECK_OK(lc_tensor_read(x, xs, sizeof xs));
    for (int step = 0; step < 3; step++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_assign(mean, lc_add(lc_mul_scalar(mean, 0.5), x));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
    }
    CHECK_OK(lc_tensor_read(mean, m, sizeof m));
    for (int i = 0; i < 2; i++) CHECK_NEAR(m[i], 1.75 * xs[i], 1e-5);
    lc_tensor_unref(mean), lc_tensor_unref(x);
    lc_graph_free(g);
}

/* The same loss with and without a checkpointed region, dropout included. */
TEST(checkpointed_regions)
{
    float gradient[2][6 * 6];
    int64_t planned[2];
    for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
        lc_graph *g = graph();
        lc_tensor *w = T(2, true, 6, 6), *x = T(3, false, 512, 6);
        CHECK_OK(lc_step_begin(g, 5, 1));
        lc_tensor *h = x;
        for (int layer = 0; layer < 6; layer++) {
            if (checkpointed) lc_checkpoint_begin();
            for (int i = 0; i < 3; i++) h = lc_dropout(lc_tanh(lc_linear(h, w, NULL)), 0.3);
            if (checkpointed) lc_checkpoint_end();
        }
        lc_backward(lc_sum(lc_square(h)));
        lc_tensor *dw = lc_keep(lc_gradient(w));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(dw, gradient[checkpointed], sizeof gradient[0]));
        CHECK_OK(lc_step_end(g));
        lc_graph_stats stats;
        lc_graph_get_stats(g, &stats);
        planned[checkpointed] = stats.planned_bytes;
        lc_tensor_unref(w), lc_tensor_unref(x);
        lc_graph_free(g);
    }
    for (int i = 0; i < 36; i++) CHECK_NEAR(gradient[0][i], gradient[1][i], 1e-4 * (1 + fabs(gradient[0][i])));
    if (!getenv("LIGHTC_PLAN")) CHECK(planned[1] < planned[0]);
}

TEST(errors_are_sticky_and_name_the_line)
{
    lc_graph *g = graph();
    lc_tensor *a = T(1, false, 2, 3), *b = T(2, false, 4, 5);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *c = lc_add(a, b);
    int line = __LINE__ - 1;
    CHECK(lc_tensor_is_error(c));
    lc_tensor *d = lc_relu(lc_mul(c, c)); /* the first error stays */
    CHECK(lc_tensor_is_error(d));
    CHECK_STATUS(lc_step_run(g), LC_ERR_SHAPE);
    char where[64];
    snprintf(where, sizeof where, "(x [2,3], y [4,5]) at test_engine.c:%d", line);
    CHECK_CONTAINS(lc_error_message(), "add: ");
    CHECK_CONTAINS(lc_error_message(), where);
    CHECK_STATUS(lc_step_end(g), LC_ERR_SHAPE);
    /* The next step is clean. */
    CHECK_OK(lc_step_begin(g, 1, 0));
    lc_tensor *ok = lc_keep(lc_sum(a));
    CHECK_OK(lc_step_run(g));
    CHECK(isfinite(item(ok)));
    CHECK_OK(lc_step_end(g));
    /* Outside a step there is a message as well. */
    CHECK(lc_tensor_is_error(lc_relu(a)));
    CHECK_CONTAINS(lc_error_message(), "no step is being recorded");
    lc_tensor_unref(a), lc_tensor_unref(b);
    lc_graph_free(g);
}

/* As with a constant that a step makes for itself. */
TEST(a_tensor_that_is_freed_before_its_step_runs)
{
    lc_graph *g = NULL;
    lc_tensor *x = NULL;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &x));
    CHECK_OK(lc_tensor_write(x, (float[]){2, 3}, 8));
    for (uint64_t i = 1; i <= 3; i++) {
        lc_tensor *w, *other;
        double value = 0;
        float slice = 0;
        CHECK_OK(lc_step_begin(g, i, 0));
        CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &w));
        CHECK_OK(lc_tensor_write(w, (float[]){(float)i, 10}, 8));
        lc_tensor *y = lc_keep(lc_sum(lc_mul(x, w)));
        lc_tensor *part = lc_keep(lc_slice(w, 0, 1, 1));
        lc_tensor_unref(w);
        CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &other)); /* must not get its memory */
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_item(y, &value));
        CHECK_NEAR(value, 2. * (double)i + 30, 1e-6);
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_tensor_read(part, &slice, 4));
        CHECK_NEAR(slice, 10, 0);
        lc_tensor_unref(other);
    }
    CHECK_OK(lc_step_begin(g, 4, 0));
    lc_tensor *w;
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &w));
    lc_add(x, w);
    lc_tensor_unref(w);
    lc_tensor_unref(w);
    CHECK_CONTAINS(lc_error_message(), "lc_tensor_unref: this is not a tensor; it was never made, has been freed");
    CHECK(lc_tensor_ref(w) == w); /* as a view of it does */
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
    float still[2];
    CHECK_OK(lc_tensor_read(w, still, sizeof still));
    lc_tensor_unref(w);
    lc_tensor_unref(x);
}

TEST(expired_tensors_are_detected)
{
    lc_graph *g = graph();
    lc_tensor *a = T(1, false, 3);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *old = lc_square(a);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    CHECK_OK(lc_step_begin(g, 1, 0));
    lc_tensor *bad = lc_add(a, old);
    CHECK(lc_tensor_is_error(bad));
    CHECK_STATUS(lc_step_run(g), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "expired");
    (void)!lc_step_end(g);
    double v;
    CHECK_STATUS(lc_item(old, &v), LC_ERR_ARGUMENT);
    lc_tensor_unref(a);
    lc_graph_free(g);
}

/* Also if the handle has since been used for a value that only the planner knew. */
TEST(expired_tensors_are_detected_if_their_handles_were_reused)
{
    lc_graph *g = graph();
    lc_tensor *w = T(1, true, 3), *old = NULL;
    float got[3];
    CHECK_OK(lc_step_begin(g, 0, 0));
    for (int i = 0; i < 3; i++) old = lc_sum(w);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    for (uint64_t s = 1; s <= LC_ARENAS; s++) {
        CHECK_OK(lc_step_begin(g, s, 0));
        if (s == LC_ARENAS) lc_backward(lc_sum(lc_mul(w, w)));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
    }
    CHECK(!old->graph);
    CHECK_STATUS(lc_tensor_read(old, got, (size_t)lc_tensor_numel(old) * sizeof *got), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "expired; read it in its step, or lc_assign it to a persistent tensor");
    CHECK_OK(lc_step_begin(g, 9, 0));
    CHECK(lc_tensor_is_error(lc_mul(w, old)));
    CHECK_STATUS(lc_step_run(g), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "of an earlier step, which has expired; lc_assign it to a persistent tensor");
    (void)!lc_step_end(g);
    lc_tensor_unref(w);
    lc_graph_free(g);
}

TEST(values_that_were_not_kept)
{
    lc_graph *g = graph();
    if (g->plan_off) SKIP("with LIGHTC_PLAN=off everything is kept");
    lc_tensor *a = T(1, false, 3);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *x = lc_square(a), *y = lc_keep(lc_sum(x));
    CHECK_OK(lc_step_run(g));
    CHECK(item(y) > 0);
    float out[3];
    CHECK_STATUS(lc_tensor_read(x, out, sizeof out), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "lc_keep");
    CHECK_OK(lc_step_end(g));
    lc_tensor_unref(a);
    lc_graph_free(g);
}

TEST(nan_in_backward_names_the_forward_call)
{
    setenv("LIGHTC_NAN_CHECK", "1", 1);
    lc_graph *g = graph();
    unsetenv("LIGHTC_NAN_CHECK");
    lc_tensor *w;
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){3}, &w)); /* zeros */
    lc_tensor_set_requires_grad(w, true);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *root = lc_sqrt(w); /* finite, but its derivative is not */
    int line = __LINE__ - 1;
    lc_backward(lc_sum(root));
    CHECK_STATUS(lc_step_run(g), LC_ERR_NUMERIC);
    char where[64];
    snprintf(where, sizeof where, "test_engine.c:%d", line);
    CHECK_CONTAINS(lc_error_message(), where);
    (void)!lc_step_end(g);
    lc_tensor_unref(w);
    lc_graph_free(g);
}

/* ---- operators from outside ---- */

static lc_status infer_same(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

static void twice(const lc_call *call)
{
    for (int64_t i = 0; i < call->in[0].shape[0]; i++)
        ((float *)call->out[0].data)[i] = 2 * ((const float *)call->in[0].data)[i];
}

/* Operators are identified by address, not by name: a program may give its own any name. */
TEST(an_operator_with_the_name_of_another)
{
    static const lc_kernel kernel = {.name = "twice", .layout = LC_WANT_ROW_MAJOR, .run = twice};
#define TWICE(called)                                                                                                  \
    {                                                                                                                  \
        .name = called, .n_out = 1, .infer = infer_same, .kernel = &kernel                                             \
    }
    static const lc_op ops[] = {TWICE("linear"), TWICE("matmul"), TWICE("conv"), TWICE("sdpa_backward"), TWICE("lstm")};
    lc_graph *g = graph();
    lc_tensor *x = T(1, false, 4);
    lc_graph_stats before, after;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        lc_graph_get_stats(g, &before);
        CHECK_OK(lc_step_begin(g, i, 0));
        lc_tensor *y = lc_op_call(&ops[i], 1, &x, 0, NULL, 0, NULL, LC_HERE);
        CHECK_NEAR(item(lc_sum(y)), 2 * item(lc_sum(x)), 1e-6);
        CHECK_OK(lc_step_end(g));
        lc_graph_get_stats(g, &after);
        CHECK_NEAR(after.flops, before.flops, 0); /* counted as no product */
    }
    lc_graph_free(g);
    lc_tensor_unref(x);
}

/* Records y = h + twice(h), or only the latter, with a gradient rule neither in `op` nor in its flags. */
static lc_tensor *loss_with(const lc_op *op, lc_tensor *x, bool other_path)
{
    lc_tensor *h = lc_mul_scalar(x, 3), *own = lc_op_call(op, 1, &h, 0, NULL, 0, NULL, (lc_site){"own.c", 77});
    return lc_sum(other_path ? lc_add(h, own) : own);
}

/* A path to a parameter is never left out silently. */
TEST(a_gradient_that_reaches_an_operator_without_a_rule)
{
    static const lc_kernel kernel = {.name = "twice", .layout = LC_WANT_ROW_MAJOR, .run = twice};
    static const lc_op no_rule = TWICE("no_rule");
    lc_graph *g = graph();
    lc_tensor *w = T(1, true, 4), *x = T(1, false, 4);
    for (int other_path = 0; other_path < 2; other_path++) {
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_backward(loss_with(&no_rule, w, other_path));
        CHECK_STATUS(lc_step_run(g), LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(lc_error_message(), "no_rule has no gradient rule");
        CHECK_CONTAINS(lc_error_message(), "own.c:77");
        (void)!lc_step_end(g);
    }
    /* No gradient is wanted, or none gets there. */
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *unused = lc_keep(loss_with(&no_rule, w, true));
    lc_backward(lc_add(lc_sum(w), lc_add(loss_with(&no_rule, x, true), lc_detach(unused))));
    CHECK_NEAR(item(unused), 9 * item(lc_sum(w)), 1e-5);
    lc_no_grad_begin();
    CHECK(!lc_tensor_requires_grad(loss_with(&no_rule, w, true)));
    lc_no_grad_end();
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
    lc_tensor_unref(w);
    lc_tensor_unref(x);
}

static lc_status infer_nothing(lc_infer *call)
{
    (void)call;
    return LC_OK;
}

TEST(an_operator_whose_infer_sets_no_type)
{
    static const lc_kernel kernel = {.name = "twice", .layout = LC_WANT_ROW_MAJOR, .run = twice};
    static const lc_op op = {.name = "untyped", .n_out = 1, .infer = infer_nothing, .kernel = &kernel};
    lc_graph *g = graph();
    lc_tensor *x = T(1, false, 4);
    CHECK_OK(lc_step_begin(g, 0, 0));
    (void)lc_add(lc_op_call(&op, 1, &x, 0, NULL, 0, NULL, LC_HERE), x);
    CHECK_STATUS(lc_step_run(g), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "untyped: its infer sets no type for result 0");
    (void)!lc_step_end(g);
    lc_graph_free(g);
    lc_tensor_unref(x);
}

TEST(too_little_memory_is_an_error)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .max_bytes = 100000));
    lc_tensor *a = T(1, false, 150, 150);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_keep(lc_matmul(a, lc_matmul(a, a)));
    CHECK_STATUS(lc_step_run(g), LC_ERR_MEMORY);
    CHECK_CONTAINS(lc_error_message(), "MiB");
    (void)!lc_step_end(g);
    lc_tensor_unref(a);
    lc_graph_free(g);
}

TEST(nan_check_names_the_operator)
{
    setenv("LIGHTC_NAN_CHECK", "1", 1);
    lc_graph *g = graph();
    unsetenv("LIGHTC_NAN_CHECK");
    lc_tensor *a = T(1, false, 8);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *l = lc_ln(lc_neg(lc_square(a)));
    int line = __LINE__ - 1;
    lc_keep(lc_softmax(l, 0));
    CHECK_STATUS(lc_step_run(g), LC_ERR_NUMERIC);
    char where[64];
    snprintf(where, sizeof where, "test_engine.c:%d", line);
    CHECK_CONTAINS(lc_error_message(), where);
    (void)!lc_step_end(g);
    lc_tensor_unref(a);
    lc_graph_free(g);
}

TEST(gradients_can_be_replaced)
{
    lc_graph *g = graph();
    lc_tensor *w = T(2, true, 3);
    float before[3], gradient[3], after[3];
    const float mine[3] = {1, -2, 4};
    for (int passes = 1; passes <= 2; passes++) {
        CHECK_OK(lc_tensor_read(w, before, sizeof before));
        lc_zero_grad(g);
        for (int i = 0; i < passes; i++) {
            CHECK_OK(lc_step_begin(g, 0, (uint64_t)i));
            lc_backward(lc_sum(lc_square(w)));
            if (i + 1 < passes) CHECK_OK(lc_step_run(g));
            if (i + 1 < passes) CHECK_OK(lc_step_end(g));
        }
        lc_tensor *dw = lc_gradient(w);
        CHECK_OK(lc_tensor_read(dw, gradient, sizeof gradient));
        for (int i = 0; i < 3; i++) CHECK_NEAR(gradient[i], 2 * before[i], 1e-6);
        CHECK_OK(lc_gradient_write(w, mine, sizeof mine));
        CHECK_OK(lc_tensor_read(lc_gradient(w), gradient, sizeof gradient));
        for (int i = 0; i < 3; i++) CHECK_EQ(gradient[i], mine[i]);
        lc_assign(w, lc_sub(w, lc_gradient(w)));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_tensor_read(w, after, sizeof after));
        for (int i = 0; i < 3; i++) CHECK_NEAR(after[i], before[i] - mine[i], 1e-6);
    }
    CHECK_EQ(lc_gradient_write(w, mine, sizeof mine - 1), LC_ERR_ARGUMENT);
    lc_tensor_unref(w);
    lc_graph_free(g);
}

/* The first step makes the optimizer's flat buffers: a gradient that was computed and read before that is not lost. */
TEST(a_gradient_that_is_read_before_the_first_step_is_used)
{
    for (int read = 0; read < 2; read++) {
        lc_graph *g = graph();
        lc_module m;
        lc_linear l;
        float weight[6], before[6];
        const float ones[6] = {1, 1, 1, 1, 1, 1};
        lc_module_init(&m, NULL, 1);
        lc_linear_init(&l, &m, "l", 3, 2);
        CHECK_OK(lc_tensor_read(l.weight, before, sizeof before));
        lc_optimizer *opt = lc_sgd(&m, .lr = 0.5);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_backward(lc_add(lc_sum(l.weight), lc_sum(l.bias)));
        if (read)
            CHECK_OK(lc_tensor_read(lc_gradient(l.weight), weight, sizeof weight));
        else
            CHECK_OK(lc_gradient_write(l.weight, ones, sizeof ones));
        lc_optimizer_step(opt);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_tensor_read(l.weight, weight, sizeof weight));
        for (int i = 0; i < 6; i++) CHECK_NEAR(weight[i], before[i] - 0.5f, 1e-6);
        CHECK_OK(lc_tensor_read(l.bias, weight, 2 * sizeof *weight));
        lc_optimizer_free(opt);
        lc_module_release(&m);
        lc_graph_free(g);
    }
}

TEST_MAIN
