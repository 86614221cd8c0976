/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of f16 and bf16 where the library handles values itself: initial values, host access, metrics, gradients,
 * clipping and updates. All of it computes in f32 and rounds once. */
#include "test.h"

#include "base/half.h"

#include <lightc/lightc.h>

enum { ROWS = 5, COLUMNS = 7, N = ROWS * COLUMNS, STEPS = 6 };

__attribute__((constructor)) static void use_one_kernel(void)
{
    setenv("LIGHTC_KERNELS", "reference", 1); /* so that updates of f32 and of halves use the same loops */
}

static const lc_dtype halves[] = {LC_F16, LC_BF16};

static uint16_t round_to(lc_dtype dtype, float x)
{
    return dtype == LC_F16 ? lc__f32_to_f16(x) : lc__f32_to_bf16(x);
}

static float widen(lc_dtype dtype, uint16_t h)
{
    return dtype == LC_F16 ? lc__f16_to_f32(h) : lc__bf16_to_f32(h);
}

static void write(lc_tensor *t, const float *values)
{
    uint16_t h[N];
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) h[i] = round_to(lc_tensor_dtype(t), values[i]);
    CHECK_OK(lc_tensor_write(t, h, (size_t)n * sizeof *h));
}

static void read(lc_tensor *t, float *values)
{
    uint16_t h[N];
    int64_t n = lc_tensor_numel(t);
    CHECK_OK(lc_tensor_read(t, h, (size_t)n * sizeof *h));
    for (int64_t i = 0; i < n; i++) values[i] = widen(lc_tensor_dtype(t), h[i]);
}

/* ---- values ---- */

TEST(initial_values_are_those_of_f32_rounded)
{
    static const int64_t shape[] = {5, 7};
    static const lc_init inits[] = {{.kind = LC_INIT_KAIMING_UNIFORM, .a = 1},
                                    {.kind = LC_INIT_NORMAL, .a = 0.5, .b = 2},
                                    {.kind = LC_INIT_CONSTANT, .a = 0.1}};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
            lc_module a, b;
            float exact[35], got[N];
            lc_module_init(&a, NULL, 1), lc_module_init(&b, NULL, 1);
            lc_tensor *whole = lc_module_add_parameter(&a, "w", LC_F32, LC_ROW_MAJOR, 2, shape, inits[i]);
            lc_tensor *half = lc_module_add_parameter(&b, "w", halves[k], LC_ROW_MAJOR, 2, shape, inits[i]);
            CHECK_OK(lc_module_status(&b));
            CHECK_OK(lc_tensor_read(whole, exact, sizeof exact));
            read(half, got);
            for (int n = 0; n < 35; n++) CHECK_NEAR(got[n], widen(halves[k], round_to(halves[k], exact[n])), 0);
            lc_module_release(&a), lc_module_release(&b);
        }
}

TEST(host_code_reads_them)
{
    for (int k = 0; k < 2; k++) {
        static const int64_t one[] = {1}, three[] = {3};
        lc_tensor *t, *scores;
        lc_metric *mean;
        double value;
        CHECK_OK(lc_tensor_new(halves[k], 1, one, &t));
        write(t, (float[]){-2.5f});
        CHECK_OK(lc_item(t, &value));
        CHECK_NEAR(value, -2.5, 0);
        CHECK_OK(lc_tensor_new(halves[k], 1, three, &scores));
        write(scores, (float[]){1, 2, 4.5f});
        CHECK_OK(lc_metric_new("MeanMetric", &mean));
        CHECK_OK(lc_metric_update_tensor(mean, scores, NULL));
        CHECK_OK(lc_metric_compute(mean, &value));
        CHECK_NEAR(value, 2.5, 1e-6);
        lc_metric_free(mean);
        lc_tensor_unref(t), lc_tensor_unref(scores);
    }
}

/* ---- training ---- */

/* p of a half type, and q of f32, which is rounded after every update. */
typedef struct pair {
    lc_module root[2];
    lc_tensor *p, *q, *gradient; /* gradient: of both, f32 */
    lc_optimizer *opt[2];
    lc_graph *graph;
} pair;

typedef lc_optimizer *make(lc_module *m);

static void pair_init(pair *w, lc_dtype dtype, make *optimizer)
{
    static const int64_t shape[] = {ROWS, COLUMNS};
    float start[N];
    memset(w, 0, sizeof *w);
    for (int i = 0; i < N; i++) start[i] = widen(dtype, round_to(dtype, sinf((float)i + 1)));
    lc_module_init(&w->root[0], NULL, 1), lc_module_init(&w->root[1], NULL, 1);
    w->p = lc_module_add_parameter(&w->root[0], "p", dtype, LC_ROW_MAJOR, 2, shape, (lc_init){0});
    w->q = lc_module_add_parameter(&w->root[1], "p", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0});
    write(w->p, start);
    CHECK_OK(lc_tensor_write(w->q, start, sizeof start));
    CHECK_OK(lc_tensor_new(LC_F32, 2, shape, &w->gradient));
    for (int k = 0; k < 2; k++) {
        w->opt[k] = optimizer(&w->root[k]);
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

/* Gradients that both types hold. */
static void choose_gradient(const pair *w, int step)
{
    float g[N];
    for (int i = 0; i < N; i++)
        g[i] =
            widen(lc_tensor_dtype(w->p), round_to(lc_tensor_dtype(w->p), cosf(0.7f * (float)i + 1.3f * (float)step)));
    CHECK_OK(lc_tensor_write(w->gradient, g, sizeof g));
}

static void backward(const pair *w)
{
    lc_zero_grad(w->graph);
    lc_backward(lc_add(lc_sum(lc_mul(lc_cast(w->p, LC_F32), w->gradient)), lc_sum(lc_mul(w->q, w->gradient))));
}

static void round_q(const pair *w)
{
    float q[N];
    CHECK_OK(lc_tensor_read(w->q, q, sizeof q));
    for (int i = 0; i < N; i++) q[i] = widen(lc_tensor_dtype(w->p), round_to(lc_tensor_dtype(w->p), q[i]));
    CHECK_OK(lc_tensor_write(w->q, q, sizeof q));
}

static void check_equal(const pair *w, const char *what)
{
    float p[N], q[N];
    read(w->p, p);
    CHECK_OK(lc_tensor_read(w->q, q, sizeof q));
    for (int i = 0; i < N; i++)
        if (p[i] != q[i])
            TEST_FAIL("%s, %s: p[%d] is %g, but %g", what, lc_dtype_name(lc_tensor_dtype(w->p)), i, p[i], q[i]);
}

#define MAKE(name, ...)                                                                                                \
    static lc_optimizer *name(lc_module *m)                                                                            \
    {                                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
MAKE(sgd, lc_sgd(m, .lr = 0.1, .weight_decay = 0.01))
MAKE(momentum, lc_sgd(m, .lr = 0.1, .momentum = 0.9, .nesterov = true))
MAKE(adam, lc_adam(m, .lr = 0.02))
MAKE(adamw, lc_adamw(m, .lr = 0.02, .amsgrad = true))
MAKE(rmsprop, lc_rmsprop(m, .lr = 0.02, .momentum = 0.5, .centered = true))
MAKE(adagrad, lc_adagrad(m, .lr = 0.1, .initial_accumulator_value = 0.1))
MAKE(adadelta, lc_adadelta(m, .lr = 1))
MAKE(adamax, lc_adamax(m, .lr = 0.02))
MAKE(nadam, lc_nadam(m, .lr = 0.02))
MAKE(radam, lc_radam(m, .lr = 0.02))
MAKE(rprop, lc_rprop(m, .lr = 0.02))
MAKE(muon, lc_muon(m, .lr = 0.02))
MAKE(lbfgs, lc_lbfgs(m, .lr = 0.25, .max_iter = 4, .strong_wolfe = true))

static const struct {
    const char *name;
    make *make;
} optimizers[] = {{"SGD", sgd},         {"momentum", momentum}, {"Adam", adam},         {"AdamW", adamw},
                  {"RMSprop", rmsprop}, {"Adagrad", adagrad},   {"Adadelta", adadelta}, {"Adamax", adamax},
                  {"NAdam", nadam},     {"RAdam", radam},       {"Rprop", rprop},       {"Muon", muon}};

TEST(updates_are_those_of_f32_rounded)
{
    for (size_t o = 0; o < 2 * sizeof optimizers / sizeof *optimizers; o++) {
        pair w;
        pair_init(&w, halves[o % 2], optimizers[o / 2].make);
        for (int step = 0; step < STEPS; step++) {
            choose_gradient(&w, step);
            CHECK_OK(lc_step_begin(w.graph, (uint64_t)step, 0));
            backward(&w);
            for (int k = 0; k < 2; k++) lc_optimizer_step(w.opt[k]);
            CHECK_OK(lc_step_run(w.graph));
            CHECK_OK(lc_step_end(w.graph));
            round_q(&w);
            check_equal(&w, optimizers[o / 2].name);
        }
        pair_free(&w);
    }
}

typedef struct evaluation {
    const pair *w;
    int of; /* 0: p, 1: q */
    double loss;
} evaluation;

/* (x - gradient)^4 */
static lc_status evaluate(void *ctx, double *loss)
{
    evaluation *e = ctx;
    const pair *w = e->w;
    if (e->of) round_q(w);
    lc_zero_grad(w->graph);
    lc_tensor *d = lc_sub(e->of ? w->q : lc_cast(w->p, LC_F32), w->gradient);
    lc_tensor *sum = lc_sum(lc_mul(lc_mul(d, d), lc_mul(d, d)));
    lc_backward(sum);
    LC_TRY(lc_item(sum, loss));
    e->loss = *loss;
    return LC_OK;
}

/* LBFGS computes in double, and rounds wherever it puts the parameters. Gradients of q are f32, those of p halves. */
TEST(lbfgs_rounds_at_every_point)
{
    for (int k = 0; k < 2; k++) {
        pair w;
        double first = 0;
        pair_init(&w, halves[k], lbfgs);
        choose_gradient(&w, 0);
        for (int step = 0; step < STEPS; step++) {
            evaluation e[2] = {{&w, 0, 0}, {&w, 1, 0}};
            for (int of = 0; of < 2; of++) {
                CHECK_OK(lc_step_begin(w.graph, (uint64_t)step, 0));
                CHECK_OK(lc_optimizer_step_closure(w.opt[of], evaluate, &e[of]));
                CHECK_OK(lc_step_end(w.graph));
                if (!step && !of) first = e[0].loss;
            }
            CHECK_NEAR(e[0].loss, e[1].loss, 0.05 * first);
        }
        float p[N], g[N];
        read(w.p, p);
        CHECK_OK(lc_tensor_read(w.gradient, g, sizeof g));
        double loss = 0;
        for (int i = 0; i < N; i++) loss += pow((double)(p[i] - g[i]), 4);
        CHECK(loss < first / 20);
        pair_free(&w);
    }
}

static lc_status check_type(void *ctx, const char *name, const char *path, lc_tensor *parameter, lc_tensor *state,
                            int64_t offset, int64_t count)
{
    int *n = ctx;
    (void)path, (void)parameter, (void)offset, (void)count;
    *n += strcmp(name, "step") != 0;
    return lc_tensor_dtype(state) == (strcmp(name, "step") ? LC_F32 : LC_F64) ? LC_OK : LC_ERR_DTYPE;
}

/* Updates of a thousandth of a value are lost in bf16, and those of a running mean even sooner. */
TEST(their_state_is_f32)
{
    pair w;
    int n = 0;
    pair_init(&w, LC_BF16, adam);
    choose_gradient(&w, 0);
    CHECK_OK(lc_step_begin(w.graph, 0, 0));
    backward(&w);
    lc_optimizer_step(w.opt[0]);
    CHECK_OK(lc_step_run(w.graph));
    CHECK_OK(lc_step_end(w.graph));
    CHECK_OK(lc_optimizer_visit_state(w.opt[0], check_type, &n));
    CHECK_EQ(n, 2);
    pair_free(&w);
}

/* p is trained from the first step on, and q from the second one: each by its own optimizer, or both by p's, which has
 * not seen q's type and module before. */
static void train_late(pair *w, bool one, double norm)
{
    for (int step = 0; step < STEPS; step++) {
        choose_gradient(w, step);
        if (one && step == 1) CHECK_EQ(lc_optimizer_add_group(w->opt[0], "late", &w->q, 1), 1);
        CHECK_OK(lc_step_begin(w->graph, (uint64_t)step, 0));
        backward(w);
        for (int k = 0; k < (one || !step ? 1 : 2); k++) {
            if (norm > 0) lc_clip_grad_norm(w->opt[k], norm);
            lc_optimizer_step(w->opt[k]);
        }
        CHECK_OK(lc_step_run(w->graph));
        CHECK_OK(lc_step_end(w->graph));
    }
}

TEST(a_group_of_another_type_joins_later)
{
    for (size_t o = 0; o < 2 * sizeof optimizers / sizeof *optimizers; o++) {
        pair apart, together;
        float p[2][N], q[2][N];
        pair_init(&apart, halves[o % 2], optimizers[o / 2].make);
        pair_init(&together, halves[o % 2], optimizers[o / 2].make);
        train_late(&apart, false, 0);
        train_late(&together, true, 0);
        read(apart.p, p[0]), read(together.p, p[1]);
        CHECK_OK(lc_tensor_read(apart.q, q[0], sizeof q[0]));
        CHECK_OK(lc_tensor_read(together.q, q[1], sizeof q[1]));
        CHECK(!memcmp(p[0], p[1], sizeof p[0]) && !memcmp(q[0], q[1], sizeof q[0]));
        pair_free(&apart), pair_free(&together);
    }
}

/* One norm over all types: that of p and q is sqrt(2) times each one's. */
TEST(one_norm_over_all_types)
{
    pair w;
    double each[2], both;
    pair_init(&w, LC_BF16, sgd);
    for (int step = 0; step < 2; step++) {
        choose_gradient(&w, 1);
        if (step) CHECK_EQ(lc_optimizer_add_group(w.opt[0], "late", &w.q, 1), 1);
        CHECK_OK(lc_step_begin(w.graph, (uint64_t)step, 0));
        backward(&w);
        for (int k = 0; k < 2 && !step; k++) CHECK_OK(lc_item(lc_clip_grad_norm(w.opt[k], 0.5), &each[k]));
        if (step) CHECK_OK(lc_item(lc_clip_grad_norm(w.opt[0], 0.5), &both));
        CHECK_OK(lc_step_run(w.graph));
        CHECK_OK(lc_step_end(w.graph));
    }
    CHECK_NEAR(each[0], each[1], 1e-6);
    CHECK_NEAR(both, sqrt(2) * each[0], 1e-6);
    pair_free(&w);
}

TEST(gradients_add_up_and_are_clipped)
{
    for (int k = 0; k < 2; k++) {
        pair w;
        double norm[2];
        float got[N], g[N];
        uint16_t h[N];
        pair_init(&w, halves[k], sgd);
        choose_gradient(&w, 1);
        CHECK_OK(lc_tensor_read(w.gradient, g, sizeof g));
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        backward(&w);
        lc_tensor *gradient = lc_keep(lc_gradient(w.p));
        CHECK_OK(lc_step_run(w.graph));
        read(gradient, got);
        for (int i = 0; i < N; i++) CHECK_NEAR(got[i], g[i], 0);
        for (int o = 0; o < 2; o++) CHECK_OK(lc_item(lc_clip_grad_norm(w.opt[o], 0.5), &norm[o]));
        CHECK_NEAR(norm[0], norm[1], 1e-6);
        for (int o = 0; o < 2; o++) lc_optimizer_step(w.opt[o]);
        CHECK_OK(lc_step_run(w.graph));
        CHECK_OK(lc_step_end(w.graph));
        round_q(&w);
        check_equal(&w, "clipped");

        /* Twice in a step: dp = g + g. Written: what was written. */
        CHECK_OK(lc_step_begin(w.graph, 1, 0));
        lc_zero_grad(w.graph);
        lc_tensor *twice = lc_add(lc_cast(w.p, LC_F32), lc_mul(lc_cast(w.p, LC_F32), w.gradient));
        lc_backward(lc_sum(twice));
        gradient = lc_keep(lc_gradient(w.p));
        CHECK_OK(lc_step_run(w.graph));
        read(gradient, got);
        for (int i = 0; i < N; i++) CHECK_NEAR(got[i], widen(halves[k], round_to(halves[k], 1 + g[i])), 0);
        CHECK_OK(lc_step_end(w.graph));
        for (int i = 0; i < N; i++) h[i] = round_to(halves[k], (float)i);
        CHECK_OK(lc_gradient_write(w.p, h, sizeof h));
        pair_free(&w);
    }
}

/* Two backward passes: their mean. */
TEST(gradients_of_several_backward_passes)
{
    pair w;
    pair_init(&w, LC_BF16, adam);
    for (int step = 0; step < 2; step++) {
        choose_gradient(&w, 0);
        CHECK_OK(lc_step_begin(w.graph, (uint64_t)step, 0));
        if (!step) lc_zero_grad(w.graph);
        lc_backward(lc_add(lc_sum(lc_mul(lc_cast(w.p, LC_F32), w.gradient)), lc_sum(lc_mul(w.q, w.gradient))));
        for (int k = 0; k < 2 && step; k++) lc_optimizer_step(w.opt[k]);
        CHECK_OK(lc_step_run(w.graph));
        CHECK_OK(lc_step_end(w.graph));
    }
    round_q(&w);
    check_equal(&w, "two passes");
    pair_free(&w);
}

TEST_MAIN
