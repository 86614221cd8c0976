/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins find every operator that a plan can contain (lc_backend_host.find_op). */
#include "sources.h"

#include "bench/models.h"
#include "builtin.h"
#include "ops/ops.h"
#include "record/graph_impl.h"

enum { MANY = 512 };

static void check_found(const lc_op *op)
{
    if (lc__builtin->plugins->find_op(op->name) != op) TEST_FAIL("%s is not found by its name", op->name);
}

/* ---- all that are defined ---- */

typedef struct symbol {
    uintptr_t at;
    char name[256];
} symbol;

/* The constants of this program whose names begin as operators' do. */
static int read_symbols(symbol *to)
{
    char line[4096], type, path[PATH_MAX] = "", command[PATH_MAX + 64];
    int n = 0;
    CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    snprintf(command, sizeof command, "nm --defined-only '%s' 2>/dev/null", path);
    FILE *f = popen(command, "r");
    CHECK(f);
    while (n < MANY && fgets(line, sizeof line, f)) {
        unsigned long long at;
        if (sscanf(line, "%llx %c %255s", &at, &type, to[n].name) != 3) continue;
        if (!strchr("RrDd", type) || strncmp(to[n].name, "lc__op_", 7) != 0) continue;
        to[n++].at = (uintptr_t)at;
    }
    pclose(f);
    CHECK(n < MANY);
    return n;
}

TEST(every_operator_of_the_library)
{
    static symbol symbols[MANY];
    uintptr_t first = 0;
    if (system("command -v nm >/dev/null") != 0) SKIP("no nm");
    int n = read_symbols(symbols);
    for (int i = 0; i < n; i++)
        if (!strcmp(symbols[i].name, "lc__op_sum")) first = symbols[i].at;
    if (!first) SKIP("nm reads no symbols of this program");
    CHECK(n > 200);
    for (int i = 0; i < n; i++) check_found((const lc_op *)((uintptr_t)&lc__op_sum + (symbols[i].at - first)));
}

/* What is static has no such name. */
static void look_for_static(const char *file, char *text)
{
    for (const char *at = text; (at = strstr(at, "static const lc_op ")); at++)
        if (at[strlen("static const lc_op ")] != '*')
            TEST_FAIL("%s has an operator that is static: plug-ins cannot find it", file);
}

TEST(no_operator_is_static)
{
    each_source("src", c_files, look_for_static);
}

/* ---- those of plans ---- */

static void check_plans(const lc_graph *g)
{
    CHECK(g->n_plans > 0);
    for (int i = 0; i < g->n_plans; i++)
        for (int c = 0; c < g->plans[i]->n_calls; c++) check_found(g->plans[i]->calls[c].call.op);
}

typedef struct sample {
    const char *model;
    bool tokens;
    int ndim;
    int64_t x[4];
} sample;

static lc_optimizer *make_optimizer(model *m, int which)
{
    return which == 0 ? lc_adamw(m, .lr = 1e-3) : which == 1 ? lc_sgd(m, .lr = 0.01, .momentum = 0.9) : NULL;
}

static lc_status train(lc_graph *g, model *m, lc_optimizer *opt, lc_tensor *x, lc_tensor *y)
{
    for (uint64_t micro = 0; micro < 2; micro++) {
        LC_TRY(lc_step_begin(g, 0, micro));
        if (!micro) lc_zero_grad(g);
        lc_backward(model_loss(m, x, y));
        if (micro) lc_clip_grad_norm(opt, 1);
        if (micro) lc_clip_grad_value(opt, 1);
        if (micro) lc_optimizer_step(opt);
        LC_TRY(lc_step_run(g));
        LC_TRY(lc_step_end(g));
    }
    return LC_OK;
}

static void check_model(const sample *s, int which)
{
    enum { BYTES = 1 << 20 };
    static double xs[BYTES / sizeof(double)];
    static int64_t ys[64];
    lc_graph *g;
    lc_tensor *x, *y;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    model *m = model_new(s->model, NULL, 7);
    CHECK(m != NULL);
    lc_module_train(&m->base, true);
    lc_optimizer *opt = make_optimizer(m, which);
    CHECK(opt != NULL);
    CHECK_OK(lc_input_new(s->tokens ? LC_I64 : LC_F32, s->ndim, s->x, LC_ROW_MAJOR, xs, &x));
    CHECK_OK(lc_input_new(LC_I64, s->tokens ? 2 : 1, s->x, LC_ROW_MAJOR, ys, &y));
    CHECK_OK(train(g, m, opt, x, y));
    check_plans(g);
    lc_optimizer_free(opt);
    model_free(m);
    lc_tensor_unref(x), lc_tensor_unref(y);
    lc_graph_free(g);
}

TEST(those_in_plans_of_the_models)
{
    static const sample samples[] = {
        {"mlp", false, 2, {2, 784}},    {"fashion", false, 4, {2, 1, 28, 28}}, {"resnet18", false, 4, {2, 3, 32, 32}},
        {"gpt_small", true, 2, {2, 8}}, {"lstm", false, 4, {2, 1, 28, 28}},
    };
    for (int i = 0; i < 5; i++)
        for (int which = 0; which < 2; which++) check_model(&samples[i], which);
}

TEST_MAIN
