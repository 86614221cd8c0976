/* SPDX-License-Identifier: Apache-2.0 */
/* The updates of every optimizer, through the engine, in f32 and f64: compared with a scalar version of its formulas,
 * and with PyTorch's recordings if they are available. */
#include "chosen_gradients.h"
#include "recording.h"

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

/* ---- PyTorch's recordings ---- */

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
    if (muon) { /* as recorded: only p1; by-name optimizers take all parameters of a module */
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
    cJSON *json = read_recording("optim.json");
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(json, "cases"))
    {
        run_recording(c, LC_F64, 1e-9);
        run_recording(c, LC_F32, 1e-5);
    }
    cJSON_Delete(json);
}

TEST_MAIN
