/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of 16 bits that are the rounded values of f32 copies in their optimizer's state. */
#include "test.h"

#include "base/number.h"

#include <lightc/lightc.h>

enum { ROWS = 7, COLUMNS = 5, N = ROWS * COLUMNS, STEPS = 40 };

__attribute__((constructor)) static void use_one_kernel(void)
{
    setenv("LIGHTC_KERNELS", "reference", 1); /* so that updates of f32 and of halves use the same loops */
}

static const lc_dtype halves[] = {LC_F16, LC_BF16};

/* p of a half type with a copy of f32, and q, which is of f32 itself. Both get the same gradients. */
typedef struct pair {
    lc_module root[2];
    lc_tensor *p, *q, *gradient;
    lc_optimizer *opt[2];
    lc_graph *graph;
    int step;
} pair;

typedef lc_optimizer *make(lc_module *m, bool master);

static void put(lc_tensor *t, const float *values)
{
    char data[4 * N];
    for (int i = 0; i < N; i++) lc__set_number(data, lc_tensor_dtype(t), i, (double)values[i]);
    CHECK_OK(lc_tensor_write(t, data, N * lc_dtype_size(lc_tensor_dtype(t))));
}

static void get(lc_tensor *t, float *values)
{
    char data[4 * N];
    CHECK_OK(lc_tensor_read(t, data, N * lc_dtype_size(lc_tensor_dtype(t))));
    for (int i = 0; i < N; i++) values[i] = (float)lc__number_at(data, lc_tensor_dtype(t), i);
}

static float rounded(lc_dtype dtype, float x)
{
    return dtype == LC_F16 ? lc__f16_to_f32(lc__f32_to_f16(x)) : lc__bf16_to_f32(lc__f32_to_bf16(x));
}

/* Values that both types hold. */
static void start_both(const pair *w, int seed)
{
    float start[N];
    for (int i = 0; i < N; i++) start[i] = rounded(lc_tensor_dtype(w->p), sinf((float)(i + 1 + seed)));
    put(w->p, start), put(w->q, start);
}

static void pair_init(pair *w, lc_dtype dtype, make *optimizer, bool master)
{
    static const int64_t shape[] = {ROWS, COLUMNS};
    memset(w, 0, sizeof *w);
    lc_module_init(&w->root[0], NULL, 1), lc_module_init(&w->root[1], NULL, 1);
    w->p = lc_module_add_parameter(&w->root[0], "p", dtype, LC_ROW_MAJOR, 2, shape, (lc_init){0});
    w->q = lc_module_add_parameter(&w->root[1], "p", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0});
    start_both(w, 0);
    CHECK_OK(lc_tensor_new(LC_F32, 2, shape, &w->gradient));
    for (int k = 0; k < 2; k++) {
        w->opt[k] = optimizer(&w->root[k], master);
        CHECK_OK(lc_module_status(&w->root[k]));
    }
    CHECK_OK(lc_graph_new(&w->graph, .threads = 1));
}

static void pair_free(pair *w)
{
    lc_graph_free(w->graph);
    for (int k = 0; k < 2; k++) lc_optimizer_free(w->opt[k]), lc_module_release(&w->root[k]);
    lc_tensor_unref(w->gradient);
}

/* One update of p (bit 0) and q (bit 1); `assign`: in the same step, p and q are doubled before it. */
enum { P = 1, Q = 2 };
static void train(pair *w, unsigned which, bool assign)
{
    float g[N];
    for (int i = 0; i < N; i++) g[i] = rounded(lc_tensor_dtype(w->p), cosf(0.7f * (float)i + 1.3f * (float)w->step));
    put(w->gradient, g);
    CHECK_OK(lc_step_begin(w->graph, (uint64_t)w->step++, 0));
    lc_zero_grad(w->graph);
    lc_backward(lc_add(lc_sum(lc_mul(lc_cast(w->p, LC_F32), w->gradient)), lc_sum(lc_mul(w->q, w->gradient))));
    if (assign) lc_assign(w->p, lc_cast(lc_mul_scalar(lc_cast(w->p, LC_F32), 2), lc_tensor_dtype(w->p)));
    if (assign) lc_assign(w->q, lc_mul_scalar(w->q, 2));
    for (int k = 0; k < 2; k++)
        if (which >> k & 1) lc_optimizer_step(w->opt[k]);
    CHECK_OK(lc_step_run(w->graph));
    CHECK_OK(lc_step_end(w->graph));
}

static lc_status find_master(void *ctx, const char *state, const char *path, lc_tensor *p, lc_tensor *flat, int64_t at,
                             int64_t count)
{
    (void)path;
    if (strcmp(state, "master_weight") != 0 || lc_tensor_dtype(p) == LC_F32) return LC_OK;
    CHECK_EQ(lc_tensor_dtype(flat), LC_F32);
    CHECK_EQ(count, N);
    size_t bytes = (size_t)lc_tensor_numel(flat) * sizeof(float);
    float *all = malloc(bytes);
    CHECK(all);
    CHECK_OK(lc_tensor_read(flat, all, bytes));
    memcpy(ctx, all + at, N * sizeof *all);
    free(all);
    return LC_OK;
}

static void master_of(lc_optimizer *opt, float *out)
{
    memset(out, 0xff, N * sizeof *out);
    CHECK_OK(lc_optimizer_visit_state(opt, find_master, out));
}

/* The copy is q, and p is q rounded. */
static void check_equal(const pair *w, const char *what)
{
    float p[N], q[N], m[N];
    get(w->p, p), get(w->q, q), master_of(w->opt[0], m);
    for (int i = 0; i < N; i++) {
        if (m[i] != q[i]) TEST_FAIL("%s, step %d: the copy of p[%d] is %g, not %g", what, w->step, i, m[i], q[i]);
        if (p[i] != rounded(lc_tensor_dtype(w->p), q[i]))
            TEST_FAIL("%s, step %d: p[%d] is %g, not %g rounded", what, w->step, i, p[i], q[i]);
    }
}

#define MAKE(name, ...)                                                                                                \
    static lc_optimizer *name(lc_module *m, bool master)                                                               \
    {                                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
#define LR .lr = 1e-3, .master_weights = master
MAKE(sgd, lc_sgd(m, LR, .weight_decay = 0.01))
MAKE(momentum, lc_sgd(m, LR, .momentum = 0.9, .nesterov = true))
MAKE(adam, lc_adam(m, LR))
MAKE(adamw, lc_adamw(m, LR, .amsgrad = true))
MAKE(rmsprop, lc_rmsprop(m, LR, .momentum = 0.5, .centered = true))
MAKE(adagrad, lc_adagrad(m, LR, .initial_accumulator_value = 0.1))
MAKE(adadelta, lc_adadelta(m, LR))
MAKE(adamax, lc_adamax(m, LR))
MAKE(nadam, lc_nadam(m, LR))
MAKE(radam, lc_radam(m, LR))
MAKE(rprop, lc_rprop(m, LR))
MAKE(muon, lc_muon(m, LR))
MAKE(lbfgs, lc_lbfgs(m, LR, .max_iter = 2))

static const struct {
    const char *name;
    make *make;
} optimizers[] = {{"SGD", sgd},         {"momentum", momentum}, {"Adam", adam},         {"AdamW", adamw},
                  {"RMSprop", rmsprop}, {"Adagrad", adagrad},   {"Adadelta", adadelta}, {"Adamax", adamax},
                  {"NAdam", nadam},     {"RAdam", radam},       {"Rprop", rprop},       {"Muon", muon}};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

TEST(updates_are_those_of_f32)
{
    for (int o = 0; o < 2 * OPTIMIZERS; o++) {
        pair w;
        pair_init(&w, halves[o % 2], optimizers[o / 2].make, true);
        while (w.step < STEPS) {
            train(&w, P | Q, false);
            check_equal(&w, optimizers[o / 2].name);
        }
        pair_free(&w);
    }
}

/* Values that anything else has written are where the copies start again. */
TEST(written_parameters_are_taken_over)
{
    for (int o = 0; o < 2 * OPTIMIZERS; o++) {
        pair w;
        float p[N], q[N];
        pair_init(&w, halves[o % 2], optimizers[o / 2].make, true);
        for (int k = 0; k < 3; k++) train(&w, P | Q, false);
        start_both(&w, 100);
        for (int k = 0; k < 3; k++) train(&w, P | Q, false);
        check_equal(&w, optimizers[o / 2].name);
        get(w.p, p), get(w.q, q);
        p[3] = q[3] = 0.25f; /* one element: the other copies go on */
        put(w.p, p), put(w.q, q);
        train(&w, P | Q, false);
        check_equal(&w, optimizers[o / 2].name);
        get(w.p, p);
        for (int i = 0; i < N; i++) p[i] = -p[i]; /* all, by an operator */
        put(w.p, p), put(w.q, p);
        train(&w, P | Q, true);
        check_equal(&w, optimizers[o / 2].name);
        pair_free(&w);
    }
}

/* A value that is read and written back is none that is new, so nothing of the copy is lost. */
TEST(a_value_written_back_changes_nothing)
{
    pair w;
    float p[N];
    pair_init(&w, LC_BF16, adam, true);
    while (w.step < STEPS) {
        train(&w, P | Q, false);
        get(w.p, p), put(w.p, p);
        check_equal(&w, "Adam");
    }
    pair_free(&w);
}

static double distance(const pair *w)
{
    float p[N], start[N];
    double most = 0;
    get(w->p, p);
    for (int i = 0; i < N; i++) start[i] = rounded(lc_tensor_dtype(w->p), sinf((float)(i + 1)));
    for (int i = 0; i < N; i++) most = fmax(most, fabs((double)(p[i] - start[i])));
    return most;
}

static lc_optimizer *small_steps(lc_module *m, bool master)
{
    return lc_sgd(m, .lr = 1e-4, .master_weights = master);
}

/* Steps of 1e-4 in one direction are lost in the 8 bits of bf16. */
TEST(small_updates_add_up)
{
    for (int master = 0; master < 2; master++) {
        pair w;
        float ones[N];
        pair_init(&w, LC_BF16, small_steps, master);
        for (int i = 0; i < N; i++) ones[i] = 1;
        for (int k = 0; k < 400; k++) {
            put(w.gradient, ones);
            CHECK_OK(lc_step_begin(w.graph, (uint64_t)k, 0));
            lc_zero_grad(w.graph);
            lc_backward(lc_sum(lc_mul(lc_cast(w.p, LC_F32), w.gradient)));
            lc_optimizer_step(w.opt[0]);
            CHECK_OK(lc_step_run(w.graph));
            CHECK_OK(lc_step_end(w.graph));
        }
        float p[N];
        get(w.p, p);
        CHECK(fabsf(p[0] - sinf(1) + (master ? 0.04f : 0)) < 0.003f);
        pair_free(&w);
    }
}

static lc_status count_master(void *ctx, const char *state, const char *path, lc_tensor *p, lc_tensor *flat, int64_t at,
                              int64_t count)
{
    (void)path, (void)flat, (void)at, (void)count;
    if (!strcmp(state, "master_weight")) ++*(int *)ctx;
    if (!strcmp(state, "master_weight")) CHECK(lc_tensor_dtype(p) == LC_BF16);
    return LC_OK;
}

/* Only halves have a copy, and only if it was asked for. */
TEST(who_has_a_copy)
{
    for (int master = 0; master < 2; master++) {
        pair w;
        pair_init(&w, LC_BF16, adam, master);
        train(&w, P | Q, false);
        for (int k = 0; k < 2; k++) {
            int n = 0;
            CHECK_OK(lc_optimizer_visit_state(w.opt[k], count_master, &n));
            CHECK_EQ(n, master && !k);
        }
        pair_free(&w);
    }
}

TEST(by_name)
{
    pair w;
    lc_optimizer *opt;
    const lc_named_number on = {"master_weights", 1}, off = {"master_weights", 0};
    static const char *const names[] = {"SGD", "AdamW", "Muon", "LBFGS"};
    pair_init(&w, LC_BF16, adam, true);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(lc_optimizer_by_name(names[i], &w.root[0], &on, 1, &opt));
        CHECK(opt->flags & LC_OPT_MASTER_WEIGHTS);
        lc_optimizer_free(opt);
        CHECK_OK(lc_optimizer_by_name(names[i], &w.root[0], &off, 1, &opt));
        CHECK(!(opt->flags & LC_OPT_MASTER_WEIGHTS));
        lc_optimizer_free(opt);
    }
    pair_free(&w);
}

/* p joins q's optimizer at the second step: another flat buffer, whose copy begins then. */
TEST(a_group_of_halves_joins_later)
{
    for (int o = 0; o < 2 * OPTIMIZERS; o++) {
        pair apart, together;
        float p[2][N], q[2][N], m[N];
        pair_init(&apart, halves[o % 2], optimizers[o / 2].make, true);
        pair_init(&together, halves[o % 2], optimizers[o / 2].make, true);
        for (int k = 0; k < 6; k++) {
            if (k == 1) CHECK_EQ(lc_optimizer_add_group(together.opt[1], "late", &together.p, 1), 1);
            train(&apart, k ? P | Q : Q, false), train(&together, Q, false);
        }
        get(apart.p, p[0]), get(together.p, p[1]), get(apart.q, q[0]), get(together.q, q[1]);
        CHECK(!memcmp(p[0], p[1], sizeof p[0]) && !memcmp(q[0], q[1], sizeof q[0]));
        master_of(apart.opt[0], m);
        for (int i = 0; i < N; i++) CHECK(p[0][i] == rounded(halves[o % 2], m[i]));
        pair_free(&apart), pair_free(&together);
    }
}

/* ---- LBFGS ---- */

static lc_status evaluate(void *ctx, double *loss)
{
    pair *w = ctx;
    lc_zero_grad(w->graph);
    lc_tensor *sum = lc_sum(lc_cast(w->p, LC_F32));
    lc_backward(sum);
    return lc_item(sum, loss);
}

/* Along a slope: each step of LBFGS is lr, and lost in bf16 without a copy. */
TEST(steps_of_lbfgs_add_up)
{
    for (int master = 0; master < 2; master++) {
        pair w;
        pair_init(&w, LC_BF16, lbfgs, master);
        for (int k = 0; k < 30; k++) {
            CHECK_OK(lc_step_begin(w.graph, (uint64_t)k, 0));
            CHECK_OK(lc_optimizer_step_closure(w.opt[0], evaluate, &w));
            CHECK_OK(lc_step_end(w.graph));
        }
        if (!master) {
            float p[N];
            get(w.p, p);
            CHECK_NEAR(p[0], rounded(LC_BF16, sinf(1)), 0);
        } else {
            float p[N], m[N];
            get(w.p, p), master_of(w.opt[0], m);
            CHECK(distance(&w) > 0.02);
            for (int i = 0; i < N; i++) CHECK_NEAR(p[i], rounded(LC_BF16, m[i]), 0);
        }
        pair_free(&w);
    }
}

TEST_MAIN
