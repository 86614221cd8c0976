/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to persistent tensors within a step (lc_assign, updates): what operators before and after them read, and that
 * no gradient is computed from a value other than the one its operator read. Everything planned and unplanned. */
#include "test.h"

#include <lightc/lightc.h>
#include "record/graph_impl.h"

static lc_tensor *tensor(int ndim, const int64_t *shape, const float *values, bool grad)
{
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, ndim, shape, &t));
    CHECK_OK(lc_tensor_write(t, values, (size_t)lc_tensor_numel(t) * sizeof *values));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

/* A vector of three, and a graph that plans or does not. */
static lc_tensor *V(float a, float b, float c, bool grad)
{
    return tensor(1, (int64_t[]){3}, (float[]){a, b, c}, grad);
}

static lc_graph *graph(bool planned)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .seed = 3));
    g->plan_off = !planned;
    return g;
}

#define BOTH_WAYS for (int planned = 1; planned >= 0; planned--)

static double item(lc_tensor *t)
{
    double v = NAN;
    CHECK_OK(lc_item(t, &v));
    return v;
}

/* Runs the step, which must fail, and ends it. The message is in lc_error_message(). */
static void check_stale(lc_graph *g, const char *op, const char *input, const char *writer)
{
    CHECK_STATUS(lc_step_run(g), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "backward: the gradient of ");
    CHECK_CONTAINS(lc_error_message(), op);
    CHECK_CONTAINS(lc_error_message(), input);
    CHECK_CONTAINS(lc_error_message(), writer);
    CHECK_CONTAINS(lc_error_message(), " at test_writes.c:");
    CHECK(lc_step_end(g) < 0);
}

/* The product's gradient with respect to x is the old value of buf, not the new one. */
TEST(assigned_before_backward)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, true), *buf = V(4, 5, 6, false);
        for (int step = 0; step < 2; step++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            lc_tensor *y = lc_mul(x, buf);
            lc_assign(buf, lc_full(10, LC_F32, 3));
            lc_backward(lc_sum(y));
            check_stale(g, "mul needs", "input y (f32 [3])", "assign at test_writes.c:");
        }
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* Through views of either kind, and when the operator reads a part that was not written. */
TEST(assigned_under_a_view)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, true), *buf = V(4, 5, 6, false);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *y = lc_mul(x, lc_detach(lc_squeeze(lc_unsqueeze(buf, 0), 0)));
        lc_assign(buf, lc_full(10, LC_F32, 3));
        lc_backward(lc_sum(y));
        check_stale(g, "mul needs", "input y (f32 [3])", "assign at test_writes.c:");
        /* The view is older than the write, the operator is not. */
        CHECK_OK(lc_step_begin(g, 1, 0));
        lc_tensor *view = lc_detach(buf);
        lc_assign(buf, lc_full(10, LC_F32, 3));
        lc_zero_grad(g);
        lc_backward(lc_sum(lc_mul(x, view)));
        lc_tensor *dx = lc_sum(lc_gradient(x));
        CHECK_NEAR(item(dx), 30, 1e-6);
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* A host read in between ends a part of the step; later parts know of its writes, even with a cached plan. */
TEST(assigned_in_an_earlier_part)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, true), *buf = V(4, 5, 6, false);
        for (int step = 0; step < 4; step++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            lc_tensor *y = lc_mul(x, buf);
            lc_assign(buf, lc_full(step, LC_F32, 3));
            CHECK(item(lc_sum(y)) >= 0);
            lc_zero_grad(g);
            if (step % 2) {
                lc_backward(lc_sum(y));
                check_stale(g, "mul needs", "input y (f32 [3])", "assign at test_writes.c:");
                continue;
            }
            lc_backward(lc_sum(lc_mul(x, buf)));
            CHECK_NEAR(item(lc_sum(lc_gradient(x))), 3 * step, 1e-6);
            CHECK_OK(lc_step_end(g));
        }
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* The host writes as well. */
TEST(written_by_the_host)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, true), *buf = V(4, 5, 6, false);
        float more[] = {7, 8, 9};
        for (int step = 0; step < 4; step++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            lc_tensor *y = lc_mul(x, buf);
            CHECK(item(lc_sum(y)) >= 0);
            if (step % 2) CHECK_OK(lc_tensor_write(buf, more, sizeof more));
            lc_zero_grad(g);
            lc_backward(lc_sum(y));
            if (step % 2) {
                check_stale(g, "mul needs", "input y (f32 [3])", "lc_tensor_write has written");
                continue;
            }
            CHECK_NEAR(item(lc_sum(lc_gradient(x))), step ? 24 : 15, 1e-6);
            CHECK_OK(lc_step_end(g));
        }
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* Values that no gradient is computed from may be written: a sum's operands, tensors without gradients, copies,
 * averages of parameters, and anything after the backward pass. */
TEST(assigned_if_no_gradient_reads_it)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, true), *buf = V(4, 5, 6, false), *average = V(0, 0, 0, false);
        double values[] = {15, 30, 30};
        for (int step = 0; step < 3; step++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            lc_tensor *y = lc_mul(x, lc_contiguous(buf));
            lc_tensor *z = lc_add(y, buf);
            lc_tensor *c = lc_mul(buf, buf);
            lc_assign(average, lc_add(lc_mul_scalar(average, 0.9), lc_mul_scalar(x, 0.1)));
            lc_assign(buf, lc_full(10, LC_F32, 3));
            lc_zero_grad(g);
            lc_backward(lc_add(lc_sum(z), lc_sum(c)));
            lc_tensor *dx = lc_sum(lc_gradient(x));
            lc_assign(average, lc_mul(average, buf));
            CHECK_NEAR(item(dx), values[step], 1e-6);
            CHECK_OK(lc_step_end(g));
        }
        lc_tensor_unref(x), lc_tensor_unref(buf), lc_tensor_unref(average);
        lc_graph_free(g);
    }
}

/* ---- updates ---- */

typedef struct net {
    lc_module base;
    lc_tensor *w[2];
} net;

static lc_tensor *add(lc_module *m, const char *name)
{
    lc_tensor *t = lc_module_add_parameter(m, name, LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){3}, (lc_init){0});
    CHECK_OK(lc_tensor_write(t, (float[]){1, 2, 3}, 3 * sizeof(float)));
    return t;
}

static void net_init(net *m)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net")};
    memset(m, 0, sizeof *m);
    lc_module_init(&m->base, &ops, 11);
    m->w[0] = add(&m->base, "w0");
    m->w[1] = add(&m->base, "w1");
}

/* y = x w0 w1: the gradient of w0 reads w1, that of w1 reads x w0 as it was. */
static lc_tensor *forward(net *m, lc_tensor *x)
{
    return lc_mul(lc_mul(x, m->w[0]), m->w[1]);
}

TEST(updated_before_backward)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        net m;
        net_init(&m);
        lc_tensor *x = V(1, 1, 1, false);
        lc_optimizer *opt = lc_sgd(&m.base, .lr = 0.5);
        CHECK(opt != NULL);
        for (int parts = 0; parts < 2; parts++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)parts, 0));
            lc_tensor *y = forward(&m, x);
            lc_zero_grad(g);
            lc_backward(lc_sum(y));
            lc_optimizer_step(opt);
            if (parts) CHECK(isfinite(item(lc_sum(y))));
            lc_backward(lc_sum(y)); /* as PyTorch with retain_graph */
            check_stale(g, "mul needs", "input y (f32 [3])", "optimizer_step has written");
        }
        /* Only the operand without a gradient was updated: PyTorch accepts that too. */
        CHECK_OK(lc_step_begin(g, 2, 0));
        lc_tensor *loss = lc_sum(lc_mul(x, m.w[0]));
        lc_zero_grad(g);
        lc_backward(loss);
        lc_optimizer_step(opt);
        lc_backward(loss);
        CHECK_NEAR(item(lc_sum(lc_gradient(m.w[0]))), 3, 1e-6); /* 2 backward passes: their mean */
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(x);
        lc_optimizer_free(opt);
        lc_module_release(&m.base);
        lc_graph_free(g);
    }
}

/* Two nets that are trained in turns, as in a GAN: the second pass through `b` comes after its update. */
TEST(updated_in_turns)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        net a, b;
        net_init(&a), net_init(&b);
        lc_tensor *x = V(1, 1, 1, false);
        lc_optimizer *opt_a = lc_sgd(&a.base, .lr = 0.01), *opt_b = lc_sgd(&b.base, .lr = 0.01);
        lc_graph_stats stats;
        for (int step = 0; step < 3; step++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            lc_tensor *fake = forward(&a, x);
            lc_zero_grad(g);
            lc_backward(lc_sum(forward(&b, lc_detach(fake))));
            lc_optimizer_step(opt_b);
            lc_zero_grad(g);
            lc_backward(lc_sum(forward(&b, fake)));
            lc_optimizer_step(opt_a);
            CHECK_OK(lc_step_run(g));
            CHECK_OK(lc_step_end(g));
        }
        lc_graph_get_stats(g, &stats);
        CHECK(stats.hits >= 1);
        lc_tensor_unref(x);
        lc_optimizer_free(opt_a), lc_optimizer_free(opt_b);
        lc_module_release(&a.base), lc_module_release(&b.base);
        lc_graph_free(g);
    }
}

/* ---- batch norm, and recomputed regions ---- */

static lc_tensor *normalize(lc_tensor *x, lc_tensor *mean, lc_tensor *var, bool training)
{
    return lc_batch_norm(x, NULL, NULL, .running_mean = mean, .running_var = var, .training = training);
}

TEST(running_statistics)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = tensor(2, (int64_t[]){2, 3}, (float[]){1, 2, 3, 5, 4, 9}, true);
        lc_tensor *mean = V(0, 0, 0, false), *var = V(1, 1, 1, false);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *y = normalize(x, mean, var, true);
        lc_checkpoint_begin();
        y = normalize(lc_square(y), mean, var, true);
        lc_checkpoint_end();
        y = normalize(y, mean, var, false);
        lc_backward(lc_sum(lc_square(y)));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        /* With the old statistics, which are updated afterwards. */
        CHECK_OK(lc_step_begin(g, 1, 0));
        y = normalize(x, mean, var, false);
        y = lc_add(y, normalize(x, mean, var, true));
        lc_backward(lc_sum(lc_square(y)));
        check_stale(g, "batch_norm_inference needs", "input running_var (f32 [3])", "assign at ");
        lc_tensor_unref(x), lc_tensor_unref(mean), lc_tensor_unref(var);
        lc_graph_free(g);
    }
}

TEST(recomputed_regions)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, true), *buf = V(4, 5, 6, false);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_checkpoint_begin();
        lc_tensor *y = lc_square(lc_add(x, buf));
        lc_checkpoint_end();
        lc_assign(buf, lc_full(10, LC_F32, 3));
        lc_backward(lc_sum(y));
        check_stale(g, "add needs", "input y (f32 [3])", "assign at ");
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* ---- views ---- */

/* A view shows its tensor's value at the time of reading, a copy the value at the time of copying. */
TEST(views_before_and_after)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, false), *buf = tensor(2, (int64_t[]){2, 3}, (float[]){1, 2, 3, 4, 5, 6}, false);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *views[] = {
            lc_select(buf, 0, 1),
            lc_slice(lc_reshape(buf, 6), 0, 3, 3),
            lc_squeeze(lc_slice(lc_unsqueeze(buf, 0), 1, 1, 1), 1),
            lc_select(lc_transpose(buf, 0, 1), 1, 1),
            lc_select(lc_expand(buf, 2, 2, 3), 1, 1),
            lc_detach(lc_select(buf, 0, 1)),
        };
        enum { N = sizeof views / sizeof views[0] };
        lc_tensor *before[N], *after[N], *copy = lc_contiguous(lc_select(buf, 0, 1));
        for (int i = 0; i < N; i++) {
            lc_tensor *v = lc_reshape(i == 4 ? lc_select(views[i], 0, 1) : views[i], 3);
            views[i] = v;
            before[i] = lc_keep(lc_sum(lc_mul(lc_add(v, x), v)));
        }
        lc_assign(buf, lc_mul_scalar(buf, 10));
        for (int i = 0; i < N; i++) after[i] = lc_keep(lc_sum(lc_mul(lc_add(views[i], x), views[i])));
        lc_tensor *copied = lc_keep(lc_sum(lc_mul(lc_add(copy, x), copy)));
        CHECK_OK(lc_step_run(g));
        for (int i = 0; i < N; i++) {
            CHECK_NEAR(item(before[i]), 5 * 4 + 7 * 5 + 9 * 6, 1e-4);
            CHECK_NEAR(item(after[i]), 41 * 40 + 52 * 50 + 63 * 60, 1e-2);
        }
        CHECK_NEAR(item(copied), 5 * 4 + 7 * 5 + 9 * 6, 1e-4);
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* An elementwise chain must not be moved past a write to the tensor of a view from an earlier part of the step. */
TEST(views_of_an_earlier_part)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *x = V(1, 2, 3, false), *buf = V(4, 5, 6, false);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *view = lc_slice(buf, 0, 1, 2), *two = lc_slice(x, 0, 1, 2);
        CHECK_NEAR(item(lc_sum(view)), 11, 1e-6);
        lc_tensor *old = lc_mul(view, two);
        lc_assign(buf, lc_full(10, LC_F32, 3));
        lc_tensor *later = lc_keep(lc_sum(lc_mul(view, two)));
        lc_tensor *both = lc_keep(lc_sum(lc_add(lc_square(old), lc_expand(lc_reshape(later, 1), 2))));
        CHECK_OK(lc_step_run(g));
        CHECK_NEAR(item(later), 50, 1e-4);
        CHECK_NEAR(item(both), 100 + 18 * 18 + 100, 1e-3);
        CHECK_NEAR(item(lc_sum(view)), 20, 1e-6);
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* The assigned value may be a view of the destination. */
TEST(assigned_to_itself)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        float got[9], want[] = {0, 3, 6, 1, 4, 7, 2, 5, 8};
        lc_tensor *buf = tensor(2, (int64_t[]){3, 3}, (float[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, false);
        lc_tensor *row = V(0, 0, 0, false);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_assign(buf, lc_transpose(buf, 0, 1));
        lc_assign(row, lc_select(buf, 0, 1));
        lc_assign(row, lc_cat(0, lc_slice(row, 0, 1, 2), lc_slice(row, 0, 0, 1)));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_tensor_read(buf, got, sizeof got));
        for (int i = 0; i < 9; i++) CHECK_EQ(got[i], want[i]);
        CHECK_OK(lc_tensor_read(row, got, 3 * sizeof *got));
        CHECK(got[0] == 4 && got[1] == 7 && got[2] == 1);
        lc_tensor_unref(buf), lc_tensor_unref(row);
        lc_graph_free(g);
    }
}

/* A gradient requested between two backward passes is that of the first one. */
TEST(gradients_between)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *w = V(1, 2, 3, true), *x = V(1, 1, 1, false);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_graph_set_window(g, 1);
        lc_backward(lc_sum(lc_square(w)));
        lc_tensor *first = lc_gradient(w);
        lc_backward(lc_sum(lc_square(w)));
        lc_tensor *second = lc_gradient(w);
        lc_tensor *both = lc_keep(lc_sum(lc_add(second, lc_square(lc_mul(first, x)))));
        CHECK_OK(lc_step_run(g));
        CHECK_NEAR(item(both), 24 + 4 + 16 + 36, 1e-4);
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(w), lc_tensor_unref(x);
        lc_graph_free(g);
    }
}

TEST_MAIN
