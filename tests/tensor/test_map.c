/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors mapped by the host (tensor/host_access.h): what is computed before, and how a step learns of a write. */
#include "test.h"

#include <lightc/lightc.h>
#include "record/graph_impl.h"
#include "tensor/initial.h"

static lc_tensor *vector(float a, float b, float c)
{
    lc_tensor *t;
    float values[] = {a, b, c};
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){3}, &t));
    CHECK_OK(lc_tensor_write(t, values, sizeof values));
    return t;
}

static lc_graph *graph(bool planned)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .seed = 3));
    g->plan_off = !planned;
    return g;
}

#define BOTH_WAYS for (int planned = 1; planned >= 0; planned--)

/* Element i of t, read through a mapping. */
static double mapped(lc_tensor *t, int i)
{
    lc_view v;
    CHECK_OK(lc__tensor_map(t, LC__READ, &v));
    double value = (double)((const float *)v.data)[i * v.stride[0]];
    lc__tensor_unmap(t, LC__READ);
    return value;
}

TEST(recorded_writes_are_computed_first)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *t = vector(1, 2, 3);
        for (int step = 0; step < 3; step++) {
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            lc_assign(t, lc_add_scalar(t, 10));
            CHECK_NEAR(mapped(t, 2), 13 + 10 * step, 0);
            CHECK_OK(lc_step_end(g));
        }
        lc_tensor_unref(t);
        lc_graph_free(g);
    }
}

/* Operators recorded before the host writes read the old value, later ones the new value. */
TEST(a_write_waits_for_readers_of_the_old_value)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *t = vector(1, 2, 3);
        lc_view v;
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *before = lc_mul_scalar(t, 2);
        CHECK_OK(lc__tensor_map(t, LC__READ_WRITE, &v));
        ((float *)v.data)[1] += 40;
        lc__tensor_unmap(t, LC__READ_WRITE);
        lc_tensor *after = lc_mul_scalar(t, 2);
        CHECK_NEAR(mapped(before, 1), 4, 0);
        CHECK_NEAR(mapped(after, 1), 84, 0);
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(t);
        lc_graph_free(g);
    }
}

/* A tensor that the step does not use ends no part of the step. */
TEST(an_unused_tensor_runs_nothing)
{
    lc_graph *g = graph(true);
    lc_tensor *t = vector(1, 2, 3), *other = vector(4, 5, 6);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_assign(t, lc_add_scalar(t, 10));
    int64_t misses = g->stats.misses;
    CHECK_NEAR(mapped(other, 0), 4, 0);
    CHECK_EQ(g->stats.misses, misses);
    CHECK_NEAR(mapped(t, 0), 11, 0);
    CHECK_EQ(g->stats.misses, misses + 1);
    CHECK_OK(lc_step_end(g));
    lc_tensor_unref(t), lc_tensor_unref(other);
    lc_graph_free(g);
}

/* A gradient would be computed from a value written since: the step is notified of unmapping after a write, not after a
 * read. */
TEST(a_write_is_noted)
{
    BOTH_WAYS
    for (int write = 0; write < 2; write++) {
        lc_graph *g = graph(planned);
        lc_tensor *x = vector(1, 2, 3), *buf = vector(4, 5, 6);
        lc_view v;
        lc_tensor_set_requires_grad(x, true);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *y = lc_mul(x, buf);
        CHECK_OK(lc__tensor_map(buf, write ? LC__READ_WRITE : LC__READ, &v));
        lc__tensor_unmap(buf, write ? LC__READ_WRITE : LC__READ);
        lc_zero_grad(g);
        lc_backward(lc_sum(y));
        CHECK_STATUS(lc_step_run(g), write ? LC_ERR_STATE : LC_OK);
        if (write) CHECK_CONTAINS(lc_error_message(), "backward: the gradient of mul needs");
        (void)!lc_step_end(g);
        lc_tensor_unref(x), lc_tensor_unref(buf);
        lc_graph_free(g);
    }
}

/* Made for a reader, but not for a writer of the whole tensor. */
TEST(initial_values)
{
    lc_tensor *t;
    lc_view v;
    for (int whole = 0; whole < 2; whole++) {
        CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){3}, &t));
        CHECK_OK(lc__tensor_start_as(t, (lc_init){LC_INIT_CONSTANT, 7, 0, 0}, 1));
        CHECK(t->initial);
        CHECK_OK(lc__tensor_map(t, whole ? LC__WRITE : LC__READ_WRITE, &v));
        CHECK(!t->initial);
        if (whole)
            CHECK(((float *)v.data)[2] != 7);
        else
            CHECK_NEAR((double)((float *)v.data)[2], 7, 0);
        ((float *)v.data)[2] = 8;
        lc__tensor_unmap(t, whole ? LC__WRITE : LC__READ_WRITE);
        CHECK_NEAR(mapped(t, 2), 8, 0);
        lc_tensor_unref(t);
    }
}

/* Results of a step are mapped in place, with their strides, until they expire. */
TEST(results)
{
    BOTH_WAYS
    {
        lc_graph *g = graph(planned);
        lc_tensor *t = vector(1, 2, 3), *y;
        lc_view v;
        CHECK_OK(lc_step_begin(g, 0, 0));
        y = lc_expand(lc_slice(lc_mul_scalar(t, 3), 0, 1, 1), 2);
        CHECK_NEAR(mapped(y, 0), 6, 0);
        CHECK_NEAR(mapped(y, 1), 6, 0);
        CHECK_OK(lc_step_end(g));
        CHECK_OK(lc_step_begin(g, 1, 0));
        CHECK_STATUS(lc__tensor_map(y, LC__READ, &v), LC_ERR_STATE);
        CHECK_CONTAINS(lc_error_message(), "has expired");
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(t);
        lc_graph_free(g);
    }
}

TEST_MAIN
