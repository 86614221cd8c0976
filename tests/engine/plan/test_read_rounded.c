/* SPDX-License-Identifier: Apache-2.0 */
/* Products that read parameters and inputs in f32 and round them (engine/plan/read_rounded.c): no copies of 16 bits,
 * the same bits as with them, and copies where others read them or somebody writes in between. */
#include "test.h"

#include "ops/fused.h"
#include "ops/ops.h"
#include "optim/keep_low.h"
#include "record/graph_impl.h"

#include <lightc/lightc.h>

enum { ROWS = 9, IN = 24, OUT = 16, CALLS = 8 };

/* With kernels that convert numbers of bf16; the plan is off without `fuse`. */
static lc_graph *graph(bool fuse, lc_dtype type)
{
    lc_graph *g;
    setenv("LIGHTC_ISA", "base", 1);
    if (!fuse) setenv("LIGHTC_PLAN", "off", 1);
    CHECK_OK(lc_graph_new(&g, .threads = 2, .seed = 3, .autocast = type));
    unsetenv("LIGHTC_ISA");
    if (!fuse) unsetenv("LIGHTC_PLAN");
    return g;
}

static bool is_apart(void)
{
    const char *device = getenv("LIGHTC_TEST_DEVICE");
    return getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS") || (device && strcmp(device, "cpu") != 0);
}

static lc_tensor *tensor(uint64_t key, int ndim, const int64_t *shape, bool grad)
{
    lc_tensor *t;
    float values[1024];
    size_t n = 1;
    for (int d = 0; d < ndim; d++) n *= (size_t)shape[d];
    CHECK_OK(lc_tensor_new(LC_F32, ndim, shape, &t));
    for (size_t i = 0; i < n; i++) values[i] = (float)lc_random_normal(key, i);
    CHECK_OK(lc_tensor_write(t, values, n * sizeof *values));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

typedef struct tensors {
    lc_tensor *x, *w, *v;
} tensors;

static tensors make(void)
{
    return (tensors){tensor(1, 3, (int64_t[]){3, ROWS / 3, IN}, false), tensor(2, 2, (int64_t[]){OUT, IN}, true),
                     tensor(3, 2, (int64_t[]){IN, OUT}, true)};
}

static void drop(lc_graph *g, tensors t)
{
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
    lc_tensor_unref(t.x);
    lc_tensor_unref(t.w);
    lc_tensor_unref(t.v);
}

/* Products whose operand `of` of f32 counts as rounded, and conversions of it, by themselves or in a chain. */
static void count(const lc_graph *g, const lc_tensor *of, int *rounded, int *casts)
{
    *rounded = *casts = 0;
    for (int p = 0; p < g->n_plans; p++)
        for (int i = 0; i < g->plans[p]->n_calls; i++) {
            const lc_call *c = &g->plans[p]->calls[i].call;
            for (int k = 0; k < c->n_in; k++) {
                if (c->in[k].data != of->device_data) continue;
                *rounded += c->rounded >> k & 1;
                *casts += c->op == &lc__op_cast || c->op == &lc__op_fused || c->op == &lc__op_refresh_low;
                if (c->rounded >> k & 1) CHECK(c->in[k].dtype == LC_F32 && c->rounded_to == g->options.autocast);
            }
        }
}

static void check_count(const lc_graph *g, const lc_tensor *of, int want_rounded, int want_casts)
{
    int rounded, casts;
    count(g, of, &rounded, &casts);
    CHECK_EQ(rounded, want_rounded);
    CHECK_EQ(casts, want_casts);
}

/* A step of two layers; out: the result, and the gradients. */
static void step(lc_graph *g, tensors t, float *out)
{
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *y = lc_linear(lc_tanh(lc_linear(t.x, t.w, NULL)), t.v, NULL);
    lc_backward(lc_mean(lc_mul(y, y)));
    lc_tensor *read[] = {lc_keep(y), lc_keep(lc_gradient(t.w)), lc_keep(lc_gradient(t.v))};
    CHECK_OK(lc_step_run(g));
    for (int i = 0; i < 3; i++) {
        const size_t n = i ? OUT * IN : ROWS * IN;
        CHECK_OK(lc_tensor_read(read[i], out, n * sizeof *out));
        out += n;
    }
}

TEST(parameters_and_inputs_are_not_copied)
{
    static float out[2][ROWS * IN + 2 * OUT * IN];
    if (is_apart()) SKIP("the kernels that plans use are set");
    for (int type = 0; type < 2; type++) {
        for (int fuse = 0; fuse < 2; fuse++) {
            tensors t = make();
            lc_graph *g = graph(fuse, type ? LC_F16 : LC_BF16);
            step(g, t, out[fuse]);
            check_count(g, t.x, fuse ? 2 : 0, fuse ? 0 : 1); /* forward, and for the gradient of w */
            check_count(g, t.w, fuse ? 1 : 0, fuse ? 0 : 1);
            check_count(g, t.v, fuse ? 2 : 0, fuse ? 0 : 1);
            drop(g, t);
        }
        CHECK(!memcmp(out[0], out[1], sizeof out[0]));
    }
}

/* The second product has the first numbers, which are in the copy. */
TEST(a_written_tensor_is_copied_before)
{
    float first[ROWS * OUT], second[ROWS * OUT];
    if (is_apart()) SKIP("the kernels that plans use are set");
    for (int write = 0; write < 2; write++) {
        tensors t = make();
        lc_graph *g = graph(true, LC_BF16);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_no_grad_begin();
        lc_tensor *low = lc_cast(t.w, LC_BF16), *x = lc_cast(t.x, LC_BF16);
        lc_tensor *a = lc_keep(lc_cast(lc_linear(x, low, NULL), LC_F32));
        if (write) lc_assign(t.w, lc_mul_scalar(t.w, 3));
        lc_tensor *b = lc_keep(lc_cast(lc_linear(x, low, NULL), LC_F32));
        lc_no_grad_end();
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(a, first, sizeof first));
        CHECK_OK(lc_tensor_read(b, second, sizeof second));
        CHECK(!memcmp(first, second, sizeof first));
        check_count(g, t.w, write ? 0 : 2, write);
        check_count(g, t.x, 2, 0);
        drop(g, t);
    }
}

TEST(a_copy_with_other_readers_stays)
{
    if (is_apart()) SKIP("the kernels that plans use are set");
    tensors t = make();
    lc_graph *g = graph(true, LC_BF16);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_no_grad_begin();
    lc_tensor *low = lc_cast(t.w, LC_BF16), *kept = lc_keep(lc_cast(t.v, LC_BF16));
    lc_tensor *y = lc_linear(t.x, low, NULL);
    lc_keep(lc_linear(y, kept, NULL));
    lc_keep(lc_softmax(low, -1));
    lc_no_grad_end();
    CHECK_OK(lc_step_run(g));
    check_count(g, t.w, 0, 1);
    check_count(g, t.v, 0, 1);
    check_count(g, t.x, 1, 0);
    drop(g, t);
}

/* Each reader would convert it again. */
TEST(a_copy_with_many_readers_stays)
{
    if (is_apart()) SKIP("the kernels that plans use are set");
    for (int readers = 3; readers < 5; readers++) {
        tensors t = make();
        lc_graph *g = graph(true, LC_BF16);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_no_grad_begin();
        for (int i = 0; i < readers; i++) lc_keep(lc_linear(lc_mul_scalar(t.x, i + 1), t.w, NULL));
        lc_no_grad_end();
        CHECK_OK(lc_step_run(g));
        check_count(g, t.w, readers == 3 ? 3 : 0, readers == 3 ? 0 : 1);
        drop(g, t);
    }
}

/* As matrices, in another shape, by columns. */
TEST(views_are_read_in_place)
{
    float y[2][IN * IN];
    if (is_apart()) SKIP("the kernels that plans use are set");
    for (int fuse = 0; fuse < 2; fuse++) {
        tensors t = make();
        lc_graph *g = graph(fuse, LC_BF16);
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_no_grad_begin();
        lc_tensor *x = lc_reshape(t.x, ROWS, IN);
        lc_tensor *product = lc_keep(lc_matmul(lc_transpose(x, 0, 1), x));
        lc_no_grad_end();
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(product, y[fuse], sizeof y[fuse]));
        check_count(g, t.x, fuse ? 2 : 0, fuse ? 0 : 1);
        drop(g, t);
    }
    CHECK(!memcmp(y[0], y[1], sizeof y[0]));
}

TEST_MAIN
