/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a scaled loss: the products that compute them check whether they are finite, if nothing else writes them
 * before the update; and the same updates are skipped as without this. */
#include "test.h"

#include "ops/ops.h"
#include "record/graph_impl.h"

#include <lightc/lightc.h>

enum { BATCH = 6, IN = 20, HIDDEN = 9, OUT = 4, LAYERS = 3, STEPS = 5 };
static const int64_t rows_of[LAYERS] = {HIDDEN, HIDDEN, OUT}, columns_of[LAYERS] = {IN, HIDDEN, HIDDEN};

/* Layers in f16. The gradient of y is `dy` whatever y is, so an infinity in x reaches only the weights' gradients. The
 * last layer's bias has a sum of its own, of what is not rounded to f16 yet, so its product checks nothing. */
typedef struct world {
    lc_module root;
    lc_tensor *w[LAYERS], *b[LAYERS], *x, *dy, *scale, *unscale;
    lc_graph *graph;
    lc_optimizer *opt;
} world;

typedef enum form { PLAIN, TIED, TWICE, CLIPPED, UNSCALED, WATCHED, WRITTEN } form;

static lc_tensor *parameter(world *w, int layer, int ndim)
{
    float data[HIDDEN * IN];
    char name[8];
    const int64_t sizes[2] = {rows_of[layer], columns_of[layer]};
    snprintf(name, sizeof name, "%s%d", ndim > 1 ? "w" : "b", layer);
    lc_tensor *t = lc_module_add_parameter(&w->root, name, LC_F32, LC_ROW_MAJOR, ndim, sizes, (lc_init){0});
    for (int64_t i = 0; i < lc_tensor_numel(t); i++) data[i] = (float)sin((double)(i + 3 * layer)) / 4;
    CHECK_OK(lc_tensor_write(t, data, (size_t)lc_tensor_numel(t) * sizeof *data));
    return t;
}

static lc_tensor *tensor(int ndim, int64_t rows, int64_t columns)
{
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, ndim, (int64_t[]){rows, columns}, &t));
    return t;
}

static void world_init(world *w, form s, bool planned)
{
    memset(w, 0, sizeof *w);
    lc_module_init(&w->root, NULL, 1);
    for (int k = 0; k < LAYERS; k++) w->w[k] = parameter(w, k, 2), w->b[k] = parameter(w, k, 1);
    w->x = tensor(2, BATCH, IN), w->dy = tensor(2, BATCH, OUT);
    w->scale = tensor(0, 1, 1), w->unscale = tensor(0, 1, 1);
    CHECK_OK(lc_tensor_write(w->scale, &(float){64}, sizeof(float)));
    CHECK_OK(lc_tensor_write(w->unscale, &(float){1.f / 64}, sizeof(float)));
    w->opt = lc_adam(&w->root, .lr = 0.01);
    CHECK_OK(lc_module_status(&w->root));
    if (!planned) setenv("LIGHTC_PLAN", "off", 1);
    CHECK_OK(lc_graph_new(&w->graph, .threads = 2, .autocast = LC_F16));
    unsetenv("LIGHTC_PLAN");
    if (s != UNSCALED) w->graph->unscale = w->unscale;
    w->graph->nan_check = s == WATCHED;
}

static void world_free(world *w)
{
    lc_graph_free(w->graph);
    lc_optimizer_free(w->opt);
    lc_tensor *all[] = {w->x, w->dy, w->scale, w->unscale};
    for (int i = 0; i < 4; i++) lc_tensor_unref(all[i]);
    lc_module_release(&w->root);
}

static void backward(const world *w, form s)
{
    lc_tensor *h = lc_linear(w->x, w->w[0], w->b[0]);
    if (s == TIED) h = lc_add(h, lc_linear(lc_mul_scalar(w->x, 0.5), w->w[0], w->b[0]));
    lc_tensor *y = lc_linear(lc_linear(h, w->w[1], w->b[1]), w->w[2], w->b[2]);
    lc_backward(lc_mul(lc_sum(lc_mul(y, w->dy)), w->scale));
}

/* One update; `bad` is in x. */
static void train(const world *w, form s, int number, float bad)
{
    float x[BATCH * IN], dy[BATCH * OUT];
    for (int i = 0; i < BATCH * IN; i++) x[i] = (float)((7 * i + 5 * number) % 13 - 6) / 8;
    for (int i = 0; i < BATCH * OUT; i++) dy[i] = (float)((5 * i + 3 * number) % 11 - 5) / 8;
    if (bad != 0) x[number * IN / STEPS] = bad;
    CHECK_OK(lc_tensor_write(w->x, x, sizeof x));
    CHECK_OK(lc_tensor_write(w->dy, dy, sizeof dy));
    CHECK_OK(lc_step_begin(w->graph, (uint64_t)number, 0));
    lc_zero_grad(w->graph);
    for (int pass = 0; pass < (s == TWICE ? 2 : 1); pass++) backward(w, s);
    if (s == WRITTEN) {
        float g[HIDDEN * IN];
        for (int i = 0; i < HIDDEN * IN; i++) g[i] = bad != 0 && i == 30 ? bad : 0.25f;
        CHECK_OK(lc_gradient_write(w->w[0], g, sizeof g));
    }
    if (s == CLIPPED) lc_clip_grad_norm(w->opt, 0.5);
    lc_optimizer_step(w->opt);
    CHECK_OK(lc_step_run(w->graph));
    CHECK_OK(lc_step_end(w->graph));
}

static int checking(const world *w)
{
    int n = 0;
    for (int i = 0; i < w->graph->n_plans; i++)
        for (int k = 0; k < w->graph->plans[i]->n_calls; k++)
            n += w->graph->plans[i]->calls[k].call.op == &lc__op_linear_weight_grad_finite;
    return n;
}

typedef struct weights {
    float w[LAYERS][HIDDEN * IN], b[LAYERS][HIDDEN];
} weights;

static weights weights_of(const world *w)
{
    weights v;
    memset(&v, 0, sizeof v);
    for (int k = 0; k < LAYERS; k++) {
        CHECK_OK(lc_tensor_read(w->w[k], v.w[k], (size_t)lc_tensor_numel(w->w[k]) * sizeof(float)));
        CHECK_OK(lc_tensor_read(w->b[k], v.b[k], (size_t)lc_tensor_numel(w->b[k]) * sizeof(float)));
    }
    return v;
}

/* The same bits as node by node, and how many products check. */
static void check(form s, int checks)
{
    world on, off;
    world_init(&on, s, true), world_init(&off, s, false);
    for (int k = 0; k < 2 * STEPS; k++) {
        const float bad = s == UNSCALED || s == WATCHED || k % 2 == 0 ? 0 : k % 4 == 1 ? INFINITY : NAN;
        const weights before = weights_of(&on);
        train(&on, s, k / 2, bad), train(&off, s, k / 2, bad);
        const weights a = weights_of(&on), b = weights_of(&off);
        if (memcmp(&a, &b, sizeof a)) TEST_FAIL("form %d: step %d differs from its parts", s, k);
        if ((memcmp(&a, &before, sizeof a) == 0) != (bad != 0))
            TEST_FAIL("form %d: step %d with %g in x was %s", s, k, (double)bad, bad != 0 ? "not skipped" : "skipped");
    }
    CHECK_EQ(checking(&off), 0);
    if (checking(&on) != checks) TEST_FAIL("form %d: %d products check, not %d", s, checking(&on), checks);
    world_free(&on), world_free(&off);
}

TEST(products_check_their_gradients)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    check(PLAIN, 2);
}

/* A weight that two layers have, or to which a second pass adds; a norm is computed from all gradients anyway; nobody
 * asks, or a check of all results would find the NaN; the host writes a gradient after the product. */
TEST(gradients_that_something_else_writes_or_reads)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    check(TIED, 1);
    check(TWICE, 0);
    check(CLIPPED, 0);
    check(UNSCALED, 0);
    check(WATCHED, 0);
    check(WRITTEN, 0);
}

TEST_MAIN
