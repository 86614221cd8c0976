/* SPDX-License-Identifier: Apache-2.0 */
/* A module of two parameters whose gradients are chosen by the test. */
#ifndef LC_TESTS_CHOSEN_GRADIENTS_H
#define LC_TESTS_CHOSEN_GRADIENTS_H

#include "test.h"

#include <lightc/lightc.h>

enum { N0 = 5, N1 = 6, N = N0 + N1 };

typedef struct world {
    lc_module root;
    lc_tensor *p[2], *g[2]; /* [5], [3,2] */
    lc_graph *graph;
    lc_dtype dtype;
    uint64_t step;
} world;

static inline void put(const world *w, lc_tensor *t, const double *values)
{
    float f[N];
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) f[i] = (float)values[i];
    CHECK_OK(w->dtype == LC_F64 ? lc_tensor_write(t, values, (size_t)n * 8) : lc_tensor_write(t, f, (size_t)n * 4));
}

static inline void get(const world *w, lc_tensor *t, double *values)
{
    float f[N];
    int64_t n = lc_tensor_numel(t);
    CHECK_OK(w->dtype == LC_F64 ? lc_tensor_read(t, values, (size_t)n * 8) : lc_tensor_read(t, f, (size_t)n * 4));
    if (w->dtype != LC_F64) {
        for (int64_t i = 0; i < n; i++) values[i] = (double)f[i];
    }
}

static inline void world_init(world *w, lc_dtype dtype)
{
    memset(w, 0, sizeof *w);
    w->dtype = dtype;
    lc_module_init(&w->root, NULL, 1);
    static const int64_t shapes[2][2] = {{N0, 0}, {3, 2}};
    for (int j = 0; j < 2; j++) {
        double start[N];
        w->p[j] =
            lc_module_add_parameter(&w->root, j ? "p1" : "p0", dtype, LC_ROW_MAJOR, j + 1, shapes[j], (lc_init){0});
        CHECK_OK(lc_tensor_new(dtype, j + 1, shapes[j], &w->g[j]));
        for (int n = 0; n < N1; n++) start[n] = sin(n + 1 + 10 * j);
        put(w, w->p[j], start);
    }
    CHECK_OK(lc_module_status(&w->root));
    CHECK_OK(lc_graph_new(&w->graph, .threads = 2));
}

static inline void world_free(world *w, lc_optimizer *opt)
{
    lc_graph_free(w->graph);
    lc_optimizer_free(opt);
    lc_tensor_unref(w->g[0]);
    lc_tensor_unref(w->g[1]);
    lc_module_release(&w->root);
}

static inline double gradient(int j, int n, uint64_t step)
{
    return cos(0.7 * n + 1.3 * (double)step + j);
}

/* One update of both parameters, or of p1 only. The gradient of sum(p g) is g. */
static inline double train_step(world *w, lc_optimizer *opt, bool both, double clip_norm, double clip_value)
{
    double g[N], norm = 0;
    for (int j = 0; j < 2; j++) {
        for (int n = 0; n < N1; n++) g[n] = gradient(j, n, w->step);
        put(w, w->g[j], g);
    }
    CHECK_OK(lc_step_begin(w->graph, w->step, 0));
    lc_zero_grad(w->graph);
    lc_tensor *loss = lc_sum(lc_mul(w->p[1], w->g[1])), *total = NULL;
    if (both) loss = lc_add(loss, lc_sum(lc_mul(w->p[0], w->g[0])));
    lc_backward(loss);
    if (clip_norm > 0) total = lc_keep(lc_clip_grad_norm(opt, clip_norm));
    if (clip_value > 0) lc_clip_grad_value(opt, clip_value);
    lc_optimizer_step(opt);
    CHECK_OK(lc_step_run(w->graph));
    if (total) CHECK_OK(lc_item(total, &norm));
    CHECK_OK(lc_step_end(w->graph));
    w->step++;
    return norm;
}

#endif
