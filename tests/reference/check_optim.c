/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: values of two parameters after each update of optim.json. Schedules: learning rates and momentum of
 * schedulers.json. */
#include "check.h"
#include "rounding.h"

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

/* ---- one run of an optimizer ---- */

typedef struct world {
    pair_module m;
    lc_graph *g;
    lc_optimizer *opt;
    check_precision p;
    lc_dtype rounded; /* start and gradients are rounded to it; 0: not */
    double got[2][8]; /* the parameters after the last update, or their f32 copies */
    double norm;      /* of the gradients, before clipping */
} world;

static double number_of(const world *w, double x)
{
    return w->rounded ? check_rounded(w->rounded, x) : x;
}

static lc_status world_init(world *w, const cJSON *json, const char *precision, lc_dtype dtype, bool master)
{
    const char *class = json_text(json, "class", "?");
    arguments a = {.n = 0};
    read_arguments(cJSON_GetObjectItemCaseSensitive(json, "args"), &a);
    if (master) add(&a, "master_weights", 1);
    LC_TRY(check_precision_begin(precision, &w->p));
    LC_TRY(pair_init(&w->m, dtype, !strcmp(class, "Muon")));
    LC_TRY(check_convert(&w->p, &w->m.base));
    for (int j = w->m.first; j < 2; j++) {
        double start[8];
        for (int n = 0; n < 6; n++) start[n] = number_of(w, sin(n + 1 + 10 * j));
        LC_TRY(write_numbers(w->m.p[j], start));
    }
    LC_TRY(lc_graph_new_with(&w->g, &w->p.graph));
    return lc_optimizer_by_name(class, &w->m.base, a.args, a.n, &w->opt);
}

static void world_release(world *w)
{
    lc_optimizer_free(w->opt);
    lc_graph_free(w->g);
    pair_release(&w->m);
    check_precision_end(&w->p);
}

static lc_status record_step(world *w, const cJSON *json)
{
    lc_tensor *loss = NULL, *clipped = NULL;
    lc_zero_grad(w->g);
    for (int j = w->m.first; j < 2; j++) {
        lc_tensor *part = lc_sum(lc_mul(w->m.p[j], w->m.g[j]));
        loss = loss ? lc_add(loss, part) : part;
    }
    lc_backward(check_scale(&w->p, loss));
    if (json_has(json, "clip_norm")) clipped = lc_keep(lc_clip_grad_norm(w->opt, json_number(json, "clip_norm", 0)));
    if (json_has(json, "clip_value")) lc_clip_grad_value(w->opt, json_number(json, "clip_value", 0));
    lc_optimizer_step(w->opt);
    LC_TRY(lc_step_run(w->g));
    return clipped ? lc_item(clipped, &w->norm) : LC_OK;
}

static lc_status read_master(void *ctx, const char *state, const char *path, lc_tensor *p, lc_tensor *flat, int64_t at,
                             int64_t count)
{
    world *w = ctx;
    float all[256];
    (void)path;
    if (strcmp(state, "master_weight") != 0) return LC_OK;
    if (lc_tensor_dtype(flat) != LC_F32 || lc_tensor_numel(flat) > 256)
        return lc_fail(LC_ERR_UNSUPPORTED, "the copies of weights are not those of two small parameters");
    LC_TRY(lc_tensor_read(flat, all, (size_t)lc_tensor_numel(flat) * sizeof *all));
    for (int64_t n = 0; n < count; n++) w->got[p == w->m.p[1]][n] = (double)all[at + n];
    return LC_OK;
}

/* One update with the gradients of step t. */
static lc_status one_step(world *w, const cJSON *json, int t, bool master)
{
    double values[8];
    for (int j = w->m.first; j < 2; j++) {
        for (int n = 0; n < 6; n++) values[n] = number_of(w, cos(n * 0.7 + t * 1.3 + j));
        LC_TRY(write_numbers(w->m.g[j], values));
    }
    LC_TRY(lc_step_begin(w->g, (uint64_t)t, 0));
    lc_status status = record_step(w, json), ended = lc_step_end(w->g);
    LC_TRY(status);
    LC_TRY(ended);
    for (int j = w->m.first; j < 2; j++) {
        for (int n = 0; n < 8; n++) w->got[j][n] = NAN;
        if (!master) LC_TRY(read_numbers(w->m.p[j], w->got[j]));
    }
    return master ? lc_optimizer_visit_state(w->opt, read_master, w) : LC_OK;
}

/* ---- comparing ---- */

/* In which numbers an optimizer runs, and what is compared. */
typedef struct trial {
    const char *precision;
    lc_dtype dtype;
    double tol;
    bool master; /* compares the f32 copies of weights of 16 bits */
} trial;

static lc_status compare_norm(const trial *e, const cJSON *step, const world *w, const world *exact, int t)
{
    double want = json_number(step, "norm", NAN), most = e->tol * fmax(1, fabs(want));
    if (exact->rounded) most += fabs(exact->norm - want);
    if (want != want || fabs(w->norm - want) <= most) return LC_OK;
    return lc_fail(LC_ERR_NUMERIC, "step %d: norm %.9g, wanted %.9g, off by more than %.2g", t, w->norm, want, most);
}

/* Weights of 16 bits differ by what rounding the start and the gradients changes in f64, and by one rounding of the
 * largest weight for each update (t + 1 so far). Copies in f32 differ by the former. */
static lc_status compare_weights(const trial *e, const cJSON *step, const world *w, const world *exact, int t)
{
    double u = exact->rounded && !e->master ? roundoff(exact->rounded) : 0;
    for (int j = w->m.first; j < 2; j++) {
        /* Muon records both */
        const cJSON *values = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(step, "params"), j);
        double largest = 0;
        for (int n = 0; n < cJSON_GetArraySize(values); n++)
            largest = fmax(largest, fabs(json_value(cJSON_GetArrayItem(values, n))));
        for (int n = 0; n < cJSON_GetArraySize(values); n++) {
            double want = json_value(cJSON_GetArrayItem(values, n)), most = e->tol * fmax(0.1, fabs(want));
            if (exact->rounded) most += fabs(exact->got[j][n] - want) + (t + 1) * u * largest;
            if (fabs(w->got[j][n] - want) <= most) continue;
            return lc_fail(LC_ERR_NUMERIC, "step %d, p%d[%d]: got %.12g, wanted %.12g, off by more than %.2g", t, j, n,
                           w->got[j][n], want, most);
        }
    }
    return LC_OK;
}

static lc_status run_optimizer(const cJSON *json, const trial *e)
{
    world w = {.norm = NAN}, exact = {.norm = NAN};
    lc_status status;
    int t = 0;
    const cJSON *step;
    LC_TRY_GOTO(status, done, world_init(&w, json, e->precision, e->dtype, e->master));
    exact.rounded = w.p.graph.storage ? check_low_type(&w.p) : 0;
    LC_TRY_GOTO(status, done, world_init(&exact, json, NULL, LC_F64, false));
    cJSON_ArrayForEach(step, cJSON_GetObjectItemCaseSensitive(json, "steps"))
    {
        LC_TRY_GOTO(status, done, one_step(&w, json, t, e->master));
        LC_TRY_GOTO(status, done, one_step(&exact, json, t, false));
        LC_TRY_GOTO(status, done, compare_norm(e, step, &w, &exact, t));
        LC_TRY_GOTO(status, done, compare_weights(e, step, &w, &exact, t++));
    }
done:
    world_release(&exact);
    world_release(&w);
    return status < 0 ? lc_fail_context(status, "%s%s", e->precision ? e->precision : lc_dtype_name(e->dtype),
                                        e->master ? ", copies of weights" : "")
                      : LC_OK;
}

/* The gradient of a weight is a sum of f32 also in mixed precision, and here of one number: nothing is rounded. */
void check_optim(const char *dir, const cJSON *cases, check_result *r)
{
    const trial plain[] = {{NULL, LC_F64, 1e-6, false}, {NULL, LC_F32, 1e-5, false}};
    const trial low[] = {{r->precision, LC_F32, 1e-5, false}, {r->precision, LC_F32, 1e-5, true}};
    const trial *trials = r->precision ? low : plain;
    bool halves = r->precision && strcmp(r->precision, "64-true") != 0 && strstr(r->precision, "-true");
    int n = !r->precision || halves ? 2 : 1;
    (void)dir;
    const cJSON *c;
    cJSON_ArrayForEach(c, cases)
    {
        lc_status status = LC_OK;
        for (int i = 0; status == LC_OK && i < n; i++) status = run_optimizer(c, &trials[i]);
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

static lc_status run_schedule(const cJSON *json, check_precision *p)
{
    pair_module m;
    lc_optimizer *opt = NULL;
    lc_scheduler *s = NULL;
    const lc_named_number args[] = {{"lr", json_number(json, "lr", 0.1)}, {"momentum", 0.9}};
    const cJSON *metric = cJSON_GetObjectItemCaseSensitive(json, "metric");
    int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "lrs"));
    lc_status status;
    LC_TRY_GOTO(status, done, pair_init(&m, LC_F32, 0));
    LC_TRY_GOTO(status, done, check_convert(p, &m.base));
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
        check_precision p;
        lc_status status = check_precision_begin(r->precision, &p);
        if (status == LC_OK) status = run_schedule(c, &p);
        if (status == LC_OK)
            check_pass(r);
        else
            check_fail(r, "schedulers", json_text(c, "name", "?"), "%s", lc_error_message());
        check_precision_end(&p);
    }
}
