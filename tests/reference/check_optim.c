/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: values of two parameters after each update of optim.json. Schedules: learning rates and momentum of
 * schedulers.json. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

#define MAX_ARGS 24

typedef struct arguments {
    lc_named_number args[MAX_ARGS];
    int n;
} arguments;

static void add(arguments *a, const char *name, double value)
{
    if (a->n < MAX_ARGS) a->args[a->n++] = (lc_named_number){name, value};
}

/* PyTorch's arguments in the form of the by-name constructors: pairs become two numbers. */
static void read_arguments(const cJSON *json, arguments *a)
{
    static const struct {
        const char *pair, *first, *second;
    } pairs[] = {{"betas", "beta1", "beta2"},
                 {"etas", "eta_minus", "eta_plus"},
                 {"step_sizes", "step_size_min", "step_size_max"}};
    const cJSON *e;
    cJSON_ArrayForEach(e, json)
    {
        bool done = cJSON_IsNull(e) || !strcmp(e->string, "steps_per_epoch");
        if (!strcmp(e->string, "epochs")) { /* OneCycleLR: another way to give the number of steps */
            add(a, "total_steps", json_value(e) * json_number(json, "steps_per_epoch", 0));
            done = true;
        }
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
            if (!strcmp(e->string, pairs[i].pair)) {
                add(a, pairs[i].first, json_value(cJSON_GetArrayItem(e, 0)));
                add(a, pairs[i].second, json_value(cJSON_GetArrayItem(e, 1)));
                done = true;
            }
        if (done || cJSON_IsArray(e)) continue;
        if (cJSON_IsString(e)) { /* words are flags: mode="max" is max = 1 */
            const char *v = e->valuestring;
            bool standard = !strcmp(v, "min") || !strcmp(v, "cos") || !strcmp(v, "rel") || !strcmp(v, "triangular") ||
                            !strcmp(v, "original");
            if (!strcmp(v, "abs"))
                add(a, "absolute", 1);
            else if (!strcmp(v, "triangular2"))
                add(a, "mode", LC_TRIANGULAR2);
            else if (!strcmp(v, "exp_range"))
                add(a, "mode", LC_EXP_RANGE);
            else if (!standard)
                add(a, v, 1);
            continue;
        }
        add(a, e->string, json_value(e));
    }
}

/* ---- a module with two parameters, as the recording describes them ---- */

typedef struct pair_module {
    lc_module base;
    lc_tensor *p[2], *g[2]; /* parameters, and the gradients they will get */
    int first;              /* Muon: only the matrix */
} pair_module;

static const int64_t shapes[2][2] = {{5, 0}, {3, 2}};

static lc_status pair_init(pair_module *m, lc_dtype dtype, int first)
{
    static const char *const names[] = {"p0", "p1"};
    memset(m, 0, sizeof *m);
    m->first = first;
    lc_module_init(&m->base, NULL, 0);
    for (int j = first; j < 2; j++) {
        m->p[j] = lc_module_add_parameter(&m->base, names[j], dtype, LC_ROW_MAJOR, j + 1, shapes[j],
                                          (lc_init){.kind = LC_INIT_ZEROS});
        LC_TRY(lc_module_status(&m->base));
        LC_TRY(lc_tensor_new(dtype, j + 1, shapes[j], &m->g[j]));
    }
    return LC_OK;
}

static void pair_release(pair_module *m)
{
    for (int j = 0; j < 2; j++) lc_tensor_unref(m->g[j]);
    lc_module_release(&m->base);
}

static lc_status write_numbers(lc_tensor *t, const double *values)
{
    float few[8];
    int64_t n = lc_tensor_numel(t);
    if (lc_tensor_dtype(t) == LC_F64) return lc_tensor_write(t, values, (size_t)n * sizeof(double));
    for (int64_t i = 0; i < n; i++) few[i] = (float)values[i];
    return lc_tensor_write(t, few, (size_t)n * sizeof(float));
}

static lc_status read_numbers(lc_tensor *t, double *values)
{
    float few[8];
    int64_t n = lc_tensor_numel(t);
    if (lc_tensor_dtype(t) == LC_F64) return lc_tensor_read(t, values, (size_t)n * sizeof(double));
    LC_TRY(lc_tensor_read(t, few, (size_t)n * sizeof(float)));
    for (int64_t i = 0; i < n; i++) values[i] = (double)few[i];
    return LC_OK;
}

/* One update with the gradients of step t; returns the total norm before clipping, if requested. */
static lc_status one_step(lc_graph *g, pair_module *m, lc_optimizer *opt, const cJSON *json, int t, double *norm)
{
    double values[8];
    for (int j = m->first; j < 2; j++) {
        for (int n = 0; n < 6; n++) values[n] = cos(n * 0.7 + t * 1.3 + j);
        LC_TRY(write_numbers(m->g[j], values));
    }
    LC_TRY(lc_step_begin(g, (uint64_t)t, 0));
    lc_zero_grad(g);
    lc_tensor *loss = NULL, *clipped = NULL;
    for (int j = m->first; j < 2; j++) {
        lc_tensor *part = lc_sum(lc_mul(m->p[j], m->g[j]));
        loss = loss ? lc_add(loss, part) : part;
    }
    lc_backward(loss);
    if (json_has(json, "clip_norm")) clipped = lc_keep(lc_clip_grad_norm(opt, json_number(json, "clip_norm", 0)));
    if (json_has(json, "clip_value")) lc_clip_grad_value(opt, json_number(json, "clip_value", 0));
    lc_optimizer_step(opt);
    lc_status status = lc_step_run(g);
    if (status == LC_OK && clipped) status = lc_item(clipped, norm);
    if (status < 0) {
        (void)!lc_step_end(g);
        return status;
    }
    return lc_step_end(g);
}

/* All steps in one data type; LC_ERR_NUMERIC with a message if a value differs. */
static lc_status run_optimizer(const cJSON *json, lc_dtype dtype, double tol)
{
    const char *class = json_text(json, "class", "?");
    const char *type = lc_dtype_name(dtype);
    pair_module m;
    lc_graph *g = NULL;
    lc_optimizer *opt = NULL;
    arguments a = {.n = 0};
    read_arguments(cJSON_GetObjectItemCaseSensitive(json, "args"), &a);
    int first = !strcmp(class, "Muon");
    lc_status status;
    LC_TRY_GOTO(status, done, pair_init(&m, dtype, first));
    for (int j = first; j < 2; j++) {
        double start[8];
        for (int n = 0; n < 6; n++) start[n] = sin(n + 1 + 10 * j);
        LC_TRY_GOTO(status, done, write_numbers(m.p[j], start));
    }
    LC_TRY_GOTO(status, done, lc_graph_new(&g));
    LC_TRY_GOTO(status, done, lc_optimizer_by_name(class, &m.base, a.args, a.n, &opt));
    int t = 0;
    const cJSON *step;
    cJSON_ArrayForEach(step, cJSON_GetObjectItemCaseSensitive(json, "steps"))
    {
        double norm = NAN, got[8];
        LC_TRY_GOTO(status, done, one_step(g, &m, opt, json, t, &norm));
        double want = json_number(step, "norm", NAN);
        if (want == want && !(fabs(norm - want) <= tol * fmax(1, fabs(want)))) {
            status = lc_fail(LC_ERR_NUMERIC, "%s, step %d: norm %.9g, wanted %.9g", type, t, norm, want);
            goto done;
        }
        for (int j = first; j < 2; j++) {
            const cJSON *values =
                cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(step, "params"), j); /* Muon records both */
            LC_TRY_GOTO(status, done, read_numbers(m.p[j], got));
            for (int n = 0; n < cJSON_GetArraySize(values); n++) {
                want = json_value(cJSON_GetArrayItem(values, n));
                if (fabs(got[n] - want) <= tol * fmax(0.1, fabs(want))) continue;
                status = lc_fail(LC_ERR_NUMERIC, "%s, step %d, p%d[%d]: got %.12g, wanted %.12g", type, t, j, n, got[n],
                                 want);
                goto done;
            }
        }
        t++;
    }
done:
    lc_optimizer_free(opt);
    lc_graph_free(g);
    pair_release(&m);
    return status;
}

void check_optim(const char *dir, const cJSON *cases, check_result *r)
{
    (void)dir;
    const cJSON *c;
    cJSON_ArrayForEach(c, cases)
    {
        lc_status status = run_optimizer(c, LC_F64, 1e-6);
        if (status == LC_OK) status = run_optimizer(c, LC_F32, 1e-5);
        if (status == LC_OK)
            check_pass(r);
        else
            check_fail(r, "optim", json_text(c, "name", "?"), "%s", lc_error_message());
    }
}

/* ---- schedules ---- */

static lc_status make_schedule(const cJSON *json, lc_optimizer *opt, lc_scheduler **out)
{
    lc_scheduler *children[8];
    int64_t milestones[64];
    const cJSON *args = cJSON_GetObjectItemCaseSensitive(json, "args"), *e;
    int n = 0, m = json_ints(args, "milestones", 64, milestones);
    if (!m) m = json_ints(json, "milestones", 64, milestones);
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(json, "of"))
    {
        if (n == 8) return lc_fail(LC_ERR_UNSUPPORTED, "too many schedules");
        LC_TRY(make_schedule(e, opt, &children[n++]));
    }
    arguments a = {.n = 0};
    read_arguments(args, &a);
    return lc_scheduler_by_name(json_text(json, "class", "?"), opt, a.args, a.n, milestones, m, children, n, out);
}

static lc_status check_rate(const cJSON *json, const char *list, lc_optimizer *opt, const char *hyper, int t)
{
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(json, list);
    if (!values) return LC_OK;
    double want = json_value(cJSON_GetArrayItem(values, t)), got = NAN;
    LC_TRY(lc_optimizer_get(opt, 0, hyper, &got));
    if (fabs(got - want) <= 1e-9 * fabs(want) || got == want) return LC_OK;
    return lc_fail(LC_ERR_NUMERIC, "after %d steps: %s is %.15g, wanted %.15g", t, hyper, got, want);
}

static lc_status run_schedule(const cJSON *json)
{
    pair_module m;
    lc_optimizer *opt = NULL;
    lc_scheduler *s = NULL;
    const lc_named_number args[] = {{"lr", json_number(json, "lr", 0.1)}, {"momentum", 0.9}};
    const cJSON *metric = cJSON_GetObjectItemCaseSensitive(json, "metric");
    int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "lrs"));
    lc_status status;
    LC_TRY_GOTO(status, done, pair_init(&m, LC_F32, 0));
    LC_TRY_GOTO(status, done, lc_optimizer_by_name("SGD", &m.base, args, 2, &opt));
    LC_TRY_GOTO(status, done, make_schedule(json, opt, &s));
    for (int t = 0; t < n; t++) {
        if (t && metric)
            LC_TRY_GOTO(status, done, lc_scheduler_step_metric(s, json_value(cJSON_GetArrayItem(metric, t - 1))));
        else if (t)
            LC_TRY_GOTO(status, done, lc_scheduler_step(s));
        LC_TRY_GOTO(status, done, check_rate(json, "lrs", opt, "lr", t));
        LC_TRY_GOTO(status, done, check_rate(json, "momentum", opt, "momentum", t));
    }
done:
    lc_scheduler_free(s);
    lc_optimizer_free(opt);
    pair_release(&m);
    return status;
}

void check_schedulers(const char *dir, const cJSON *cases, check_result *r)
{
    (void)dir;
    const cJSON *c;
    cJSON_ArrayForEach(c, cases)
    {
        if (run_schedule(c) == LC_OK)
            check_pass(r);
        else
            check_fail(r, "schedulers", json_text(c, "name", "?"), "%s", lc_error_message());
    }
}
