/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: every one against a plain scalar version of its formulas, through the engine, in f32 and f64; against
 * PyTorch's recordings where they are; groups, hyperparameters, state, errors. */
#include "test.h"

#include <cjson/cJSON.h>
#include <lightc/lightc.h>

/* ---- a module of two parameters whose gradients the test chooses ---- */

enum { N0 = 5, N1 = 6, N = N0 + N1 };

typedef struct world {
    lc_module root;
    lc_tensor *p[2], *g[2]; /* [5], [3,2] */
    lc_graph *graph;
    lc_dtype dtype;
    uint64_t step;
} world;

static void put(const world *w, lc_tensor *t, const double *values)
{
    float f[N];
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) f[i] = (float)values[i];
    CHECK_OK(w->dtype == LC_F64 ? lc_tensor_write(t, values, (size_t)n * 8) : lc_tensor_write(t, f, (size_t)n * 4));
}

static void get(const world *w, lc_tensor *t, double *values)
{
    float f[N];
    int64_t n = lc_tensor_numel(t);
    CHECK_OK(w->dtype == LC_F64 ? lc_tensor_read(t, values, (size_t)n * 8) : lc_tensor_read(t, f, (size_t)n * 4));
    if (w->dtype != LC_F64) {
        for (int64_t i = 0; i < n; i++) values[i] = (double)f[i];
    }
}

static void world_init(world *w, lc_dtype dtype)
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

static void world_free(world *w, lc_optimizer *opt)
{
    lc_graph_free(w->graph);
    lc_optimizer_free(opt);
    lc_tensor_unref(w->g[0]);
    lc_tensor_unref(w->g[1]);
    lc_module_release(&w->root);
}

static double gradient(int j, int n, uint64_t step)
{
    return cos(0.7 * n + 1.3 * (double)step + j);
}

/* One update of both parameters, or of p1 alone. The gradient of sum(p g) is g. */
static double train_step(world *w, lc_optimizer *opt, bool both, double clip_norm, double clip_value)
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

/* ---- every optimizer as a scalar recurrence ---- */

typedef struct scalar {
    double p, s[3];
} scalar;

typedef void scalar_rule(scalar *x, double g, double t); /* t counts from 1 */

static void rule_sgd(scalar *x, double g, double t)
{
    (void)t;
    x->p -= 0.1 * (g + 0.01 * x->p);
}

static void rule_momentum(scalar *x, double g, double t)
{
    x->s[0] = t == 1 ? g : 0.9 * x->s[0] + 0.5 * g;
    x->p -= 0.1 * x->s[0];
}

static void rule_nesterov_maximize(scalar *x, double g, double t)
{
    g = -g;
    x->s[0] = t == 1 ? g : 0.9 * x->s[0] + g;
    x->p -= 0.1 * (g + 0.9 * x->s[0]);
}

static void adam(scalar *x, double g, double t, double b1, double b2, double lr, double eps, bool amsgrad)
{
    x->s[0] = b1 * x->s[0] + (1 - b1) * g;
    x->s[1] = b2 * x->s[1] + (1 - b2) * g * g;
    x->s[2] = fmax(x->s[2], x->s[1]);
    double v = (amsgrad ? x->s[2] : x->s[1]) / (1 - pow(b2, t));
    x->p -= lr * x->s[0] / (1 - pow(b1, t)) / (sqrt(v) + eps);
}

static void rule_adam(scalar *x, double g, double t)
{
    adam(x, g + 0.1 * x->p, t, 0.8, 0.95, 0.01, 1e-6, false);
}

static void rule_amsgrad(scalar *x, double g, double t)
{
    adam(x, g, t, 0.9, 0.999, 1e-3, 1e-8, true);
}

static void rule_adamw(scalar *x, double g, double t)
{
    x->p *= 1 - 0.02 * 0.01;
    adam(x, g, t, 0.9, 0.999, 0.02, 1e-8, false);
}

static void rule_rmsprop(scalar *x, double g, double t)
{
    (void)t;
    x->s[0] = 0.99 * x->s[0] + 0.01 * g * g;
    x->p -= 0.01 * g / (sqrt(x->s[0]) + 1e-8);
}

static void rule_rmsprop_momentum(scalar *x, double g, double t)
{
    (void)t;
    x->s[0] = 0.99 * x->s[0] + 0.01 * g * g;
    x->s[1] = 0.5 * x->s[1] + g / (sqrt(x->s[0]) + 1e-8);
    x->p -= 0.01 * x->s[1];
}

static void rule_rmsprop_centered(scalar *x, double g, double t)
{
    (void)t;
    x->s[0] = 0.9 * x->s[0] + 0.1 * g * g;
    x->s[1] = 0.9 * x->s[1] + 0.1 * g;
    x->p -= 0.01 * g / (sqrt(x->s[0] - x->s[1] * x->s[1]) + 1e-8);
}

static void rule_adagrad(scalar *x, double g, double t)
{
    if (t == 1) x->s[0] = 0.3;
    x->s[0] += g * g;
    x->p -= 0.1 / (1 + (t - 1) * 0.2) * g / (sqrt(x->s[0]) + 1e-10);
}

static void rule_adadelta(scalar *x, double g, double t)
{
    (void)t;
    x->s[0] = 0.9 * x->s[0] + 0.1 * g * g;
    double delta = sqrt(x->s[1] + 1e-6) / sqrt(x->s[0] + 1e-6) * g;
    x->s[1] = 0.9 * x->s[1] + 0.1 * delta * delta;
    x->p -= delta;
}

static void rule_adamax(scalar *x, double g, double t)
{
    x->s[0] = 0.9 * x->s[0] + 0.1 * g;
    x->s[1] = fmax(0.999 * x->s[1], fabs(g) + 1e-8);
    x->p -= 2e-3 / (1 - pow(0.9, t)) * x->s[0] / x->s[1];
}

static void rule_nadam(scalar *x, double g, double t)
{
    double mu = 0.9 * (1 - 0.5 * pow(0.96, t * 4e-3)), next = 0.9 * (1 - 0.5 * pow(0.96, (t + 1) * 4e-3));
    x->s[2] = t == 1 ? mu : x->s[2] * mu;
    x->s[0] = 0.9 * x->s[0] + 0.1 * g;
    x->s[1] = 0.999 * x->s[1] + 0.001 * g * g;
    double d = sqrt(x->s[1] / (1 - pow(0.999, t))) + 1e-8;
    x->p -= 2e-3 * (1 - mu) / (1 - x->s[2]) * g / d + 2e-3 * next / (1 - x->s[2] * next) * x->s[0] / d;
}

static void rule_radam(scalar *x, double g, double t)
{
    x->s[0] = 0.9 * x->s[0] + 0.1 * g;
    x->s[1] = 0.9 * x->s[1] + 0.1 * g * g;
    double m = x->s[0] / (1 - pow(0.9, t)), top = 2 / (1 - 0.9) - 1,
           rho = top - 2 * t * pow(0.9, t) / (1 - pow(0.9, t));
    if (rho > 5) {
        double r = sqrt((rho - 4) * (rho - 2) * top / ((top - 4) * (top - 2) * rho));
        m *= r * sqrt(1 - pow(0.9, t)) / (sqrt(x->s[1]) + 1e-8);
    }
    x->p -= 1e-2 * m;
}

static void rule_rprop(scalar *x, double g, double t)
{
    if (t == 1) x->s[1] = 0.01;
    double agree = g * x->s[0];
    if (agree > 0) x->s[1] = fmin(x->s[1] * 1.2, 0.02);
    if (agree < 0) {
        x->s[1] = fmax(x->s[1] * 0.5, 1e-6);
        g = 0;
    }
    x->p -= g > 0 ? x->s[1] : g < 0 ? -x->s[1] : 0;
    x->s[0] = g;
}

static lc_optimizer *make(int which, void *m)
{
    switch (which) {
    case 0:
        return lc_sgd(m, .lr = 0.1, .weight_decay = 0.01);
    case 1:
        return lc_sgd(m, .lr = 0.1, .momentum = 0.9, .dampening = 0.5);
    case 2:
        return lc_sgd(m, .lr = 0.1, .momentum = 0.9, .nesterov = true, .maximize = true);
    case 3:
        return lc_adam(m, .lr = 0.01, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6);
    case 4:
        return lc_adam(m, .amsgrad = true);
    case 5:
        return lc_adamw(m, .lr = 0.02);
    case 6:
        return lc_rmsprop(m);
    case 7:
        return lc_rmsprop(m, .momentum = 0.5);
    case 8:
        return lc_rmsprop(m, .centered = true, .alpha = 0.9);
    case 9:
        return lc_adagrad(m, .lr = 0.1, .lr_decay = 0.2, .initial_accumulator_value = 0.3);
    case 10:
        return lc_adadelta(m);
    case 11:
        return lc_adamax(m);
    case 12:
        return lc_nadam(m);
    case 13:
        return lc_radam(m, .lr = 1e-2, .beta2 = 0.9);
    case 14:
        return lc_rprop(m, .step_size_max = 0.02);
    }
    return NULL;
}

static scalar_rule *const rules[] = {rule_sgd,
                                     rule_momentum,
                                     rule_nesterov_maximize,
                                     rule_adam,
                                     rule_amsgrad,
                                     rule_adamw,
                                     rule_rmsprop,
                                     rule_rmsprop_momentum,
                                     rule_rmsprop_centered,
                                     rule_adagrad,
                                     rule_adadelta,
                                     rule_adamax,
                                     rule_nadam,
                                     rule_radam,
                                     rule_rprop};

static void follow_rule(int which, lc_dtype dtype, double tolerance)
{
    world w;
    scalar x[N];
    double start[2][N], got[2][N];
    world_init(&w, dtype);
    lc_optimizer *opt = make(which, &w.root);
    CHECK_OK(lc_module_status(&w.root));
    memset(x, 0, sizeof x);
    for (int j = 0; j < 2; j++) get(&w, w.p[j], start[j]);
    for (int i = 0; i < N; i++) x[i].p = i < N0 ? start[0][i] : start[1][i - N0];
    for (int t = 1; t <= 20; t++) {
        train_step(&w, opt, true, 0, 0);
        for (int i = 0; i < N; i++) {
            int j = i >= N0, n = j ? i - N0 : i;
            rules[which](
                &x[i],
                dtype == LC_F64 ? gradient(j, n, (uint64_t)t - 1) : (double)(float)gradient(j, n, (uint64_t)t - 1), t);
        }
        for (int j = 0; j < 2; j++) get(&w, w.p[j], got[j]);
        for (int i = 0; i < N; i++) {
            double value = i < N0 ? got[0][i] : got[1][i - N0];
            if (!(fabs(value - x[i].p) <= tolerance * fmax(1, fabs(x[i].p)))) {
                TEST_FAIL("optimizer %d (%s), step %d, element %d: %.17g instead of %.17g", which, opt->ops->name, t, i,
                          value, x[i].p);
            }
        }
    }
    lc_graph_stats stats;
    lc_graph_get_stats(w.graph, &stats);
    CHECK_EQ(stats.misses, 1);
    world_free(&w, opt);
}

TEST(formulas_in_f64)
{
    for (int i = 0; i < (int)(sizeof rules / sizeof *rules); i++) follow_rule(i, LC_F64, 1e-12);
}

TEST(formulas_in_f32)
{
    for (int i = 0; i < (int)(sizeof rules / sizeof *rules); i++) follow_rule(i, LC_F32, 3e-6);
}

/* ---- groups and hyperparameters ---- */

TEST(groups_have_their_own_numbers)
{
    world w;
    double before[2][N], after[2][N], value;
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_sgd(&w.root, .no_parameters = true, .lr = 0.5);
    CHECK_EQ(lc_optimizer_add_group(opt, "first", &w.p[0], 1), 0);
    CHECK_EQ(lc_optimizer_add_group(opt, "second", &w.p[1], 1), 1);
    CHECK(lc_optimizer_add_group(opt, NULL, &w.p[1], 1) < 0);
    CHECK_CONTAINS(lc_error_message(), "already");
    CHECK_OK(lc_optimizer_set(opt, 1, "lr", 0.25));
    for (int t = 0; t < 3; t++) {
        if (t == 2) CHECK_OK(lc_optimizer_set(opt, 0, "lr", 0)); /* takes effect without a new plan */
        for (int j = 0; j < 2; j++) get(&w, w.p[j], before[j]);
        train_step(&w, opt, true, 0, 0);
        for (int j = 0; j < 2; j++) get(&w, w.p[j], after[j]);
        CHECK_NEAR(after[0][1], before[0][1] - (t == 2 ? 0 : 0.5) * gradient(0, 1, (uint64_t)t), 1e-14);
        CHECK_NEAR(after[1][4], before[1][4] - 0.25 * gradient(1, 4, (uint64_t)t), 1e-14);
    }
    lc_graph_stats stats;
    lc_graph_get_stats(w.graph, &stats);
    CHECK_EQ(stats.misses, 1);
    CHECK_OK(lc_optimizer_get(opt, 1, "lr", &value));
    CHECK_NEAR(value, 0.25, 0);
    CHECK_STATUS(lc_optimizer_get(opt, 2, "lr", &value), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_optimizer_set(opt, 0, "beta1", 1), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "momentum");
    CHECK(lc_optimizer_has(opt, "momentum") && !lc_optimizer_has(opt, "beta1"));
    CHECK_STATUS(lc_optimizer_set(opt, 0, "momentum", 0.9), LC_ERR_STATE);
    world_free(&w, opt);
}

/* A new optimizer may come to lie where one lay that has been freed. */
TEST(a_norm_is_of_the_optimizer_not_of_its_address)
{
    world w;
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_sgd(&w.root, .no_parameters = true), *other = lc_sgd(&w.root, .no_parameters = true);
    CHECK_EQ(lc_optimizer_add_group(opt, "first", &w.p[0], 1), 0);
    CHECK_EQ(lc_optimizer_add_group(other, "second", &w.p[1], 1), 0);
    for (int j = 0; j < 2; j++) {
        double norm, sum = 0, g[N];
        for (int n = 0; n < N1; n++) g[n] = gradient(j, n, 0);
        for (int n = 0; n < (j ? N1 : N0); n++) sum += g[n] * g[n];
        for (int k = 0; k < 2; k++) put(&w, w.g[k], (double[N]){0});
        put(&w, w.g[j], g);
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        lc_zero_grad(w.graph);
        lc_backward(lc_add(lc_sum(lc_mul(w.p[0], w.g[0])), lc_sum(lc_mul(w.p[1], w.g[1]))));
        CHECK_OK(lc_item(lc_clip_grad_norm(opt, 1), &norm)); /* read at once, before an update is recorded */
        CHECK_OK(lc_step_end(w.graph));
        CHECK_NEAR(norm, sqrt(sum), 1e-12);
        lc_optimizer moved = *opt;
        *opt = *other;
        *other = moved;
    }
    lc_optimizer_free(other);
    world_free(&w, opt);
}

TEST(zero_and_default)
{
    lc_module m;
    double value;
    lc_module_init(&m, NULL, 1);
    lc_optimizer *a = lc_adamw(&m), *b = lc_adamw(&m, .lr = 0, .weight_decay = 0);
    CHECK_OK(lc_optimizer_get(a, 0, "weight_decay", &value));
    CHECK_NEAR(value, 0.01, 0);
    CHECK_OK(lc_optimizer_get(b, 0, "weight_decay", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_OK(lc_optimizer_get(b, 0, "lr", &value));
    CHECK_NEAR(value, 0, 0);
    lc_optimizer_free(a);
    lc_optimizer_free(b);
    lc_module_release(&m);
}

/* A parameter without a gradient keeps its value, its state and its count of steps. */
TEST(parameters_without_gradient_are_left_alone)
{
    world w;
    double before[N], after[N], steps[2];
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_adamw(&w.root, .lr = 0.1, .weight_decay = 0.5);
    get(&w, w.p[0], before);
    for (int t = 0; t < 3; t++) train_step(&w, opt, false, 0, 0);
    get(&w, w.p[0], after);
    CHECK(!memcmp(before, after, N0 * sizeof(double)));
    CHECK_OK(lc_tensor_read(opt->steps, steps, sizeof steps));
    CHECK_NEAR(steps[0], 0, 0);
    CHECK_NEAR(steps[1], 3, 0);
    world_free(&w, opt);
}

typedef struct state_log {
    char text[512];
} state_log;

static lc_status log_state(void *ctx, const char *state, const char *path, lc_tensor *parameter, lc_tensor *flat,
                           int64_t offset, int64_t count)
{
    state_log *log = ctx;
    double values[256];
    (void)parameter;
    CHECK(lc_tensor_numel(flat) <= 256 && offset + count <= lc_tensor_numel(flat));
    CHECK_OK(lc_tensor_read(flat, values, (size_t)lc_tensor_numel(flat) * sizeof(double)));
    size_t at = strlen(log->text);
    snprintf(log->text + at, sizeof log->text - at, "%s.%s[%d]=%.4f ", path, state, (int)count, values[offset]);
    return LC_OK;
}

TEST(state_for_checkpoints)
{
    world w;
    state_log log = {""};
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_nadam(&w.root);
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log)); /* makes it */
    CHECK_CONTAINS(log.text, "p0.step[1]=0.0000 p0.exp_avg[5]=0.0000 p0.exp_avg_sq[5]=0.0000 p0.mu_product[1]=1.0000 ");
    train_step(&w, opt, true, 0, 0);
    log.text[0] = '\0';
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log));
    CHECK_CONTAINS(log.text, "p0.step[1]=1.0000 p0.exp_avg[5]=0.1000 p0.exp_avg_sq[5]=0.0010 p0.mu_product[1]=0.4501 ");
    CHECK_CONTAINS(log.text, "p1.step[1]=1.0000 p1.exp_avg[6]=0.0540");
    world_free(&w, opt);
}

/* Also for a group that is added later. */
TEST(a_number_for_each_parameter)
{
    world w;
    state_log log = {""};
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_nadam(&w.root, .no_parameters = true);
    CHECK_EQ(lc_optimizer_add_group(opt, "a", &w.p[1], 1), 0);
    train_step(&w, opt, true, 0, 0);
    CHECK_EQ(lc_optimizer_add_group(opt, "b", &w.p[0], 1), 1);
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log));
    CHECK_CONTAINS(log.text, "p0.mu_product[1]=1.0000 ");
    CHECK_CONTAINS(log.text, "p1.mu_product[1]=0.4501 ");
    train_step(&w, opt, true, 0, 0);
    log.text[0] = '\0';
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log));
    CHECK_CONTAINS(log.text, "p0.mu_product[1]=0.4501 ");
    CHECK_CONTAINS(log.text, "p1.step[1]=2.0000 ");
    CHECK_EQ(lc_tensor_numel(opt->state[2]), 2);
    world_free(&w, opt);
}

/* As a program gives it that was built when the table had fewer entries: what comes after them in its memory is not
 * the library's. */
TEST(a_shorter_table_is_read_to_its_end)
{
    world w, same;
    lc_optimizer *opt, *sgd;
    world_init(&w, LC_F64), world_init(&same, LC_F64);
    sgd = lc_sgd(&same.root, .lr = 1e-3);
    CHECK(sgd);
    size_t size = offsetof(lc_optimizer_ops, initial_state);
    lc_optimizer_ops *ops = malloc(sizeof *ops);
    CHECK(ops);
    memset(ops, 0xff, sizeof *ops);
    memcpy(ops, sgd->ops, size);
    ops->size = size;
    CHECK_OK(lc_optimizer_new(ops, &w.root, 0, &opt));
    CHECK_EQ(lc_optimizer_add_group(opt, "all", w.p, 2), 0);
    CHECK_OK(lc_optimizer_set(opt, 0, "lr", 1e-3));
    train_step(&w, opt, true, 0, 0);
    train_step(&same, sgd, true, 0, 0);
    for (int j = 0; j < 2; j++) {
        double a[N], b[N];
        get(&w, w.p[j], a), get(&same, same.p[j], b);
        CHECK(!memcmp(a, b, (size_t)lc_tensor_numel(w.p[j]) * sizeof *a));
    }
    world_free(&w, opt), world_free(&same, sgd);
    free(ops);
}

TEST(errors_say_what_is_wrong)
{
    lc_module m;
    lc_optimizer *opt;
    lc_module_init(&m, NULL, 1);
    CHECK_STATUS(lc_optimizer_by_name("Adamm", &m, NULL, 0, &opt), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "AdamW");
    lc_named_number wrong = {"momentum", 1};
    CHECK_STATUS(lc_optimizer_by_name("Adam", &m, &wrong, 1, &opt), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "beta1");
    lc_named_number flag = {"nesterov", 1};
    CHECK_STATUS(lc_optimizer_by_name("SGD", &m, &flag, 1, &opt), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "momentum");
    CHECK(lc_adam(&m, .beta1 = 1) == NULL);
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "beta1");
    lc_module_release(&m);
}

static lc_status sum_of_squares(void *ctx, double *loss)
{
    const world *w = ctx;
    lc_tensor *sum = lc_sum(lc_square(w->p[0]));
    lc_zero_grad(w->graph);
    lc_backward(sum);
    return lc_item(sum, loss);
}

typedef struct counted {
    world *w;
    lc_optimizer *opt;
    int evaluations;
} counted;

/* As a closure of PyTorch is written. Steep at first and flat far away, so that line searches are long. */
static lc_status steep(void *ctx, double *loss)
{
    counted *c = ctx;
    lc_tensor *sum = lc_sum(lc_exp(lc_mul_scalar(c->w->p[0], 8)));
    c->evaluations++;
    lc_optimizer_zero_grad(c->opt);
    lc_backward(sum);
    return lc_item(sum, loss);
}

/* One evaluation before the line search, its first try, and max_eval - 1 more, as in PyTorch. */
TEST(lbfgs_searches_no_longer_than_max_eval)
{
    for (int most = 2; most < 5; most++) {
        world w;
        world_init(&w, LC_F64);
        counted c = {.w = &w, .opt = lc_lbfgs(&w.root, .lr = 1e-5, .max_eval = most, .strong_wolfe = true)};
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        CHECK_OK(lc_optimizer_step_closure(c.opt, steep, &c));
        CHECK_OK(lc_step_end(w.graph));
        CHECK_EQ(c.evaluations, most + 1);
        world_free(&w, c.opt);
    }
}

typedef struct broken {
    world *w;
    lc_optimizer *opt;
    bool clipped;
} broken;

/* Its gradient is NaN for the first element, and 0 for all others. */
static lc_status undefined(void *ctx, double *loss)
{
    broken *b = ctx;
    lc_tensor *sum = lc_sum(lc_mul(b->w->p[0], b->w->g[0]));
    lc_optimizer_zero_grad(b->opt);
    lc_backward(sum);
    if (b->clipped) lc_clip_grad_value(b->opt, 1);
    return lc_item(sum, loss);
}

/* A gradient that is no number is none that has converged: parameters become NaN, as in PyTorch. */
TEST(lbfgs_hides_no_nan)
{
    for (int how = 0; how < 4; how++) {
        world w;
        double g[N] = {NAN}, after[N];
        world_init(&w, how / 2 ? LC_F32 : LC_F64);
        put(&w, w.g[0], g);
        broken b = {.w = &w, .opt = lc_lbfgs(&w.root, .max_iter = 3), .clipped = how % 2};
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        CHECK_OK(lc_optimizer_step_closure(b.opt, undefined, &b));
        CHECK_OK(lc_step_end(w.graph));
        get(&w, w.p[0], after);
        CHECK(isnan(after[0]));
        world_free(&w, b.opt);
    }
}

/* An optimizer of everything zeroes everything: what is divided by are the backward passes since then. */
TEST(zero_grad_of_the_only_optimizer)
{
    world w;
    double before[N], after[N];
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_sgd(&w.root, .lr = 1);
    for (uint64_t step = 0; step < 3; step++) {
        get(&w, w.p[0], before);
        CHECK_OK(lc_step_begin(w.graph, step, 0));
        lc_optimizer_zero_grad(opt);
        lc_backward(lc_sum(lc_add(lc_sum(w.p[0]), lc_sum(w.p[1]))));
        lc_optimizer_step(opt);
        CHECK_OK(lc_step_run(w.graph));
        CHECK_OK(lc_step_end(w.graph));
        get(&w, w.p[0], after);
        CHECK_NEAR(after[0], before[0] - 1, 1e-12);
    }
    world_free(&w, opt);
}

/* Also when the second group comes late. */
TEST(lbfgs_takes_one_group)
{
    world w;
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_lbfgs(&w.root, .no_parameters = true);
    CHECK_EQ(lc_optimizer_add_group(opt, "a", &w.p[0], 1), 0);
    CHECK_OK(lc_step_begin(w.graph, 0, 0));
    CHECK_OK(lc_optimizer_step_closure(opt, sum_of_squares, &w));
    CHECK_OK(lc_step_end(w.graph));
    CHECK_EQ(lc_optimizer_add_group(opt, "b", &w.p[1], 1), 1);
    CHECK_OK(lc_step_begin(w.graph, 1, 0));
    CHECK_STATUS(lc_optimizer_step_closure(opt, sum_of_squares, &w), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "one group");
    CHECK_OK(lc_step_end(w.graph));
    CHECK(!lc_lbfgs(&w.root, .maximize = true));
    CHECK_CONTAINS(lc_error_message(), "negate the loss");
    world_free(&w, opt);
    static const lc_named_number bad[] = {
        {"max_iter", 1e300}, {"max_iter", 2.5}, {"max_eval", 1e10}, {"max_eval", 2.5}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(lc_optimizer_by_name("LBFGS", NULL, &bad[i], 1, &opt), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), bad[i].name);
    }
}

TEST(muon_refuses_vectors)
{
    world w;
    world_init(&w, LC_F32);
    lc_optimizer *opt = lc_muon(&w.root);
    CHECK(opt == NULL);
    CHECK_STATUS(lc_module_status(&w.root), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "matrices");
    world_free(&w, opt);
}

/* The update of a matrix is about orthogonal: singular values near 1 (between 0.68 and 1.13 for these coefficients). */
TEST(muon_orthogonalises)
{
    world w;
    double before[N], after[N];
    world_init(&w, LC_F32);
    lc_optimizer *opt = lc_muon(&w.root, .lr = 1, .weight_decay = 0, .parameters = &w.p[1], .n_parameters = 1);
    CHECK_OK(lc_module_status(&w.root));
    get(&w, w.p[1], before);
    train_step(&w, opt, true, 0, 0);
    get(&w, w.p[1], after);
    double a = 0, b = 0, c = 0, scale = sqrt(1.5);
    for (int i = 0; i < 3; i++) {
        double x = (before[2 * i] - after[2 * i]) / scale, y = (before[2 * i + 1] - after[2 * i + 1]) / scale;
        a += x * x, b += x * y, c += y * y;
    }
    double middle = (a + c) / 2, radius = sqrt((a - c) * (a - c) / 4 + b * b);
    CHECK(sqrt(middle - radius) > 0.5 && sqrt(middle + radius) < 1.3);
    world_free(&w, opt);
}

/* ---- PyTorch's recordings ---- */

static cJSON *read_json(const char *name)
{
    char path[4096];
    if (!test_shared_dir()) SKIP("no shared recordings here");
    snprintf(path, sizeof path, "%s/conformance/reference/%s", test_shared_dir(), name);
    FILE *f = fopen(path, "rb");
    if (!f) SKIP("no such recording");
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = calloc(1, (size_t)n + 1);
    CHECK(fread(text, 1, (size_t)n, f) == (size_t)n);
    fclose(f);
    cJSON *json = cJSON_Parse(text);
    free(text);
    CHECK(json != NULL);
    return json;
}

static int arguments(const cJSON *args, lc_named_number *out)
{
    static const char *const pairs[][3] = {{"betas", "beta1", "beta2"},
                                           {"etas", "eta_minus", "eta_plus"},
                                           {"step_sizes", "step_size_min", "step_size_max"}};
    int n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, args)
    {
        if (!cJSON_IsArray(item)) {
            out[n++] = (lc_named_number){item->string, cJSON_IsBool(item) ? cJSON_IsTrue(item) : item->valuedouble};
            continue;
        }
        for (int k = 0; k < 3; k++) {
            if (strcmp(pairs[k][0], item->string)) continue;
            for (int i = 0; i < 2; i++) {
                out[n++] = (lc_named_number){pairs[k][1 + i], cJSON_GetArrayItem(item, i)->valuedouble};
            }
        }
    }
    return n;
}

static void run_recording(const cJSON *c, lc_dtype dtype, double tolerance)
{
    world w;
    lc_named_number args[16];
    lc_optimizer *opt = NULL;
    const char *name = cJSON_GetObjectItem(c, "name")->valuestring,
               *class = cJSON_GetObjectItem(c, "class")->valuestring;
    const cJSON *norm = cJSON_GetObjectItem(c, "clip_norm"), *value = cJSON_GetObjectItem(c, "clip_value"), *step;
    bool muon = !strcmp(class, "Muon");
    world_init(&w, dtype);
    if (muon) { /* as recorded: p1 alone; by-name optimizers take all parameters of a module */
        double lr = cJSON_GetObjectItem(cJSON_GetObjectItem(c, "args"), "lr")->valuedouble;
        opt = lc_muon(&w.root, .lr = lr, .parameters = &w.p[1], .n_parameters = 1);
    } else {
        CHECK_OK(lc_optimizer_by_name(class, &w.root, args, arguments(cJSON_GetObjectItem(c, "args"), args), &opt));
    }
    CHECK(opt != NULL);
    cJSON_ArrayForEach(step, cJSON_GetObjectItem(c, "steps"))
    {
        double total = train_step(&w, opt, true, norm ? norm->valuedouble : 0, value ? value->valuedouble : 0);
        if (norm) CHECK_NEAR(total, cJSON_GetObjectItem(step, "norm")->valuedouble, tolerance * 10);
        const cJSON *params = cJSON_GetObjectItem(step, "params");
        for (int j = muon; j < 2; j++) {
            double got[N];
            get(&w, w.p[j], got);
            for (int i = 0; i < (j ? N1 : N0); i++) {
                double want = cJSON_GetArrayItem(cJSON_GetArrayItem(params, j), i)->valuedouble;
                if (!(fabs(got[i] - want) <= tolerance * fmax(1, fabs(want)))) {
                    TEST_FAIL("%s: p%d[%d] after %d steps is %.17g, PyTorch has %.17g", name, j, i, (int)w.step, got[i],
                              want);
                }
            }
        }
    }
    world_free(&w, opt);
}

TEST(recordings_of_pytorch)
{
    cJSON *json = read_json("optim.json");
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(json, "cases"))
    {
        run_recording(c, LC_F64, 1e-9);
        run_recording(c, LC_F32, 1e-5);
    }
    cJSON_Delete(json);
}

/* ---- an update that is a plan of its own ---- */

/* Nothing but the update tells that a parameter is frozen: plans for both answers are kept apart. */
TEST(an_update_sees_what_is_frozen)
{
    static const lc_module_ops no_ops = {LC_MODULE_OPS_INIT("one")};
    lc_module m;
    lc_linear l;
    lc_graph *g;
    lc_tensor *x;
    float data[4] = {1, 2, 3, 4}, before[8], after[8];
    double loss;
    lc_module_init(&m, &no_ops, 3);
    lc_linear_init(&l, &m, "l", 4, 2);
    CHECK_OK(lc_module_status(&m));
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_sgd(&m, .lr = 0.1);
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){1, 4}, LC_ROW_MAJOR, data, &x));
    for (int s = 0; s < 4; s++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)s, 0));
        lc_zero_grad(g);
        lc_tensor *y = lc_keep(lc_mean(lc_square(lc_linear_forward(&l, x))));
        lc_backward(y);
        CHECK_OK(lc_item(y, &loss)); /* what follows is planned for itself */
        CHECK_OK(lc_tensor_read(l.weight, before, sizeof before));
        lc_tensor_set_requires_grad(l.weight, s % 2);
        lc_optimizer_step(opt);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        lc_tensor_set_requires_grad(l.weight, true);
        CHECK_OK(lc_tensor_read(l.weight, after, sizeof after));
        CHECK_EQ(memcmp(before, after, sizeof after) != 0, s % 2);
    }
    lc_optimizer_free(opt);
    lc_tensor_unref(x);
    lc_graph_free(g);
    lc_module_release(&m);
}

/* ---- more parameters than most models have ---- */

TEST(an_update_of_very_many_parameters)
{
    enum { SUM = 100 };
    const int many = takes_all() ? 35000 : 22000; /* an update has three numbers for each, a norm two: over 65536 */
    static const lc_module_ops no_ops = {LC_MODULE_OPS_INIT("many")};
    lc_module m;
    lc_graph *g;
    lc_tensor **p = malloc((size_t)many * sizeof(lc_tensor *)), *all = NULL;
    double norm;
    int wrong = 0;
    CHECK(p != NULL);
    lc_module_init(&m, &no_ops, 3);
    for (int i = 0; i < many; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        p[i] = lc_module_add_parameter(&m, name, LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    }
    CHECK_OK(lc_module_status(&m));
    for (int i = 0; i < many; i++) CHECK_OK(lc_tensor_write(p[i], &(float){1}, sizeof(float)));
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_sgd(&m, .lr = 0.5);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_zero_grad(g);
    for (int i = 0; i < many; i += SUM) {
        lc_tensor *some = p[i];
        for (int k = i + 1; k < i + SUM; k++) some = lc_add(some, p[k]);
        all = all ? lc_add(all, some) : some;
    }
    lc_backward(lc_sum(all));
    lc_tensor *length = lc_keep(lc_clip_grad_norm(opt, 1e9));
    lc_optimizer_step(opt);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_item(length, &norm));
    CHECK_OK(lc_step_end(g));
    CHECK_NEAR(norm, sqrt(many), 1e-3);
    for (int i = 0; i < many; i++) {
        float now;
        CHECK_OK(lc_tensor_read(p[i], &now, sizeof now));
        wrong += now != 0.5f;
    }
    CHECK_EQ(wrong, 0);
    lc_optimizer_free(opt);
    lc_graph_free(g);
    lc_module_release(&m);
    free(p);
}

TEST_MAIN
