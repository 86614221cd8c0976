/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a scaled loss: a tensor divides them where they are used, and an update that is not finite is left out.
 */
#include "test.h"

#include "base/number.h"
#include "record/graph_impl.h"

#include <lightc/lightc.h>

enum { ROWS = 5, COLUMNS = 3, N = 16, STEPS = 6, BYTES = 16384 };
#define SCALE 1024.0

/* Two parameters; of the gradient of the loss, SCALE times `gradient` arrives. */
typedef struct world {
    lc_module root;
    lc_tensor *p[2], *g[2], *scale, *unscale;
    lc_graph *graph;
    lc_optimizer *opt;
    bool scaled, reads;
} world;

typedef lc_optimizer *make(lc_module *m, lc_tensor **matrix);

static void put(lc_tensor *t, const double *values)
{
    char data[8 * N];
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) lc__set_number(data, lc_tensor_dtype(t), i, values[i]);
    CHECK_OK(lc_tensor_write(t, data, (size_t)n * lc_dtype_size(lc_tensor_dtype(t))));
}

static void get(lc_tensor *t, double *values)
{
    char data[8 * N];
    int64_t n = lc_tensor_numel(t);
    CHECK_OK(lc_tensor_read(t, data, (size_t)n * lc_dtype_size(lc_tensor_dtype(t))));
    for (int64_t i = 0; i < n; i++) values[i] = lc__number_at(data, lc_tensor_dtype(t), i);
}

static lc_tensor *number(double value)
{
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, 0, NULL, &t));
    put(t, &value);
    return t;
}

static void world_init(world *w, lc_dtype first, lc_dtype second, make *optimizer, bool scaled)
{
    static const int64_t shapes[2][2] = {{ROWS, COLUMNS}, {7, 0}};
    memset(w, 0, sizeof *w);
    w->scaled = scaled;
    lc_module_init(&w->root, NULL, 1);
    for (int k = 0; k < 2; k++) {
        double start[N];
        w->p[k] = lc_module_add_parameter(&w->root, k ? "b" : "a", k ? second : first, LC_ROW_MAJOR, 2 - k, shapes[k],
                                          (lc_init){0});
        CHECK_OK(lc_tensor_new(first == LC_F64 ? LC_F64 : LC_F32, 2 - k, shapes[k], &w->g[k]));
        for (int i = 0; i < N; i++) start[i] = sin(i + 1 + 10 * k);
        put(w->p[k], start);
    }
    w->scale = number(SCALE), w->unscale = number(1 / SCALE);
    w->opt = optimizer(&w->root, w->p);
    CHECK_OK(lc_module_status(&w->root));
    CHECK_OK(lc_graph_new(&w->graph, .threads = 2));
    if (scaled) w->graph->unscale = w->unscale;
}

static void world_free(world *w)
{
    lc_graph_free(w->graph);
    lc_optimizer_free(w->opt);
    for (int k = 0; k < 2; k++) lc_tensor_unref(w->g[k]);
    lc_tensor_unref(w->scale), lc_tensor_unref(w->unscale);
    lc_module_release(&w->root);
}

/* Numbers of few bits, so that halves hold them too; one of them is `bad` if that is not 0. */
static void choose_gradient(const world *w, int step, double bad)
{
    for (int k = 0; k < 2; k++) {
        double g[N];
        for (int i = 0; i < N; i++) g[i] = (double)((7 * i + 5 * step + 3 * k) % 13 - 6) / 8;
        if (!k && bad != 0) g[4] = bad;
        put(w->g[k], g);
    }
}

static lc_tensor *loss_of(const world *w)
{
    lc_tensor *sum = NULL;
    for (int k = 0; k < 2; k++) {
        lc_dtype dtype = lc_tensor_dtype(w->g[k]);
        lc_tensor *part = lc_sum(lc_mul(lc_cast(w->p[k], dtype), w->g[k]));
        sum = sum ? lc_add(sum, part) : part;
    }
    return w->scaled ? lc_mul(sum, lc_cast(w->scale, lc_tensor_dtype(sum))) : sum;
}

typedef struct step {
    int number;
    double bad, clip, clip_value;
} step;

/* One update; gives the norm of gradients if they are clipped. */
static double train(world *w, step s)
{
    double norm = 0;
    choose_gradient(w, s.number, s.bad);
    CHECK_OK(lc_step_begin(w->graph, (uint64_t)s.number, 0));
    lc_zero_grad(w->graph);
    lc_backward(loss_of(w));
    lc_tensor *total = s.clip > 0 ? lc_keep(lc_clip_grad_norm(w->opt, s.clip)) : NULL;
    if (s.clip_value > 0) lc_clip_grad_value(w->opt, s.clip_value);
    lc_optimizer_step(w->opt);
    CHECK_OK(lc_step_run(w->graph));
    if (total) CHECK_OK(lc_item(total, &norm));
    CHECK_OK(lc_step_end(w->graph));
    return norm;
}

/* Everything that an update writes, as bytes. */
typedef struct content {
    size_t n;
    char bytes[BYTES];
} content;

static void add_content(content *c, lc_tensor *t)
{
    size_t bytes = (size_t)lc_tensor_numel(t) * lc_dtype_size(lc_tensor_dtype(t));
    CHECK(c->n + bytes <= sizeof c->bytes);
    CHECK_OK(lc_tensor_read(t, c->bytes + c->n, bytes));
    c->n += bytes;
}

static lc_status add_state(void *ctx, const char *state, const char *path, lc_tensor *p, lc_tensor *flat, int64_t at,
                           int64_t count)
{
    (void)state, (void)path, (void)p, (void)at, (void)count;
    add_content(ctx, flat);
    return LC_OK;
}

static content content_of(const world *w)
{
    content c = {0};
    for (int k = 0; k < 2; k++) add_content(&c, w->p[k]);
    CHECK_OK(lc_optimizer_visit_state(w->opt, add_state, &c));
    return c;
}

static bool same(const content *a, const content *b)
{
    return a->n == b->n && !memcmp(a->bytes, b->bytes, a->n);
}

#define MAKE(name, ...)                                                                                                \
    static lc_optimizer *name(lc_module *m, lc_tensor **matrix)                                                        \
    {                                                                                                                  \
        (void)matrix;                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
MAKE(sgd, lc_sgd(m, .lr = 0.1, .weight_decay = 0.01))
MAKE(momentum, lc_sgd(m, .lr = 0.1, .momentum = 0.9, .nesterov = true))
MAKE(adam, lc_adam(m, .lr = 0.02))
MAKE(adamw, lc_adamw(m, .lr = 0.02, .amsgrad = true))
MAKE(rmsprop, lc_rmsprop(m, .lr = 0.02))
MAKE(rmsprop_momentum, lc_rmsprop(m, .lr = 0.02, .momentum = 0.5))
MAKE(rmsprop_centered, lc_rmsprop(m, .lr = 0.02, .centered = true))
MAKE(rmsprop_both, lc_rmsprop(m, .lr = 0.02, .momentum = 0.5, .centered = true))
MAKE(adagrad, lc_adagrad(m, .lr = 0.1, .initial_accumulator_value = 0.1))
MAKE(adadelta, lc_adadelta(m, .lr = 1))
MAKE(adamax, lc_adamax(m, .lr = 0.02))
MAKE(nadam, lc_nadam(m, .lr = 0.02))
MAKE(radam, lc_radam(m, .lr = 0.02))
MAKE(rprop, lc_rprop(m, .lr = 0.02))
MAKE(muon, lc_muon(m, .lr = 0.02, .parameters = matrix, .n_parameters = 1))
MAKE(adam_master, lc_adam(m, .lr = 0.02, .master_weights = true))
MAKE(muon_master, lc_muon(m, .lr = 0.02, .parameters = matrix, .n_parameters = 1, .master_weights = true))

static const struct {
    const char *name;
    make *make;
} optimizers[] = {{"SGD", sgd},
                  {"momentum", momentum},
                  {"Adam", adam},
                  {"AdamW", adamw},
                  {"RMSprop", rmsprop},
                  {"RMSprop, momentum", rmsprop_momentum},
                  {"RMSprop, centered", rmsprop_centered},
                  {"RMSprop, both", rmsprop_both},
                  {"Adagrad", adagrad},
                  {"Adadelta", adadelta},
                  {"Adamax", adamax},
                  {"NAdam", nadam},
                  {"RAdam", radam},
                  {"Rprop", rprop},
                  {"Muon", muon},
                  {"Adam, master", adam_master},
                  {"Muon, master", muon_master}};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

/* f32, f64, halves, and two types at once, which are two flat buffers. */
static const lc_dtype types[][2] = {{LC_F32, LC_F32}, {LC_F64, LC_F64}, {LC_BF16, LC_BF16}, {LC_F16, LC_F32}};
enum { TYPES = sizeof types / sizeof *types };

typedef void each_fn(int o, const lc_dtype *dtypes, const step *how);

/* Calls fn for every optimizer and type, with own kernels and with the reference, clipped in every way. */
static void each(each_fn *fn)
{
    static const step how[] = {{0}, {.clip = 0.5}, {.clip_value = 0.25}};
    for (int k = 0; k < 2 * TYPES * OPTIMIZERS; k++) {
        if (k % 2) setenv("LIGHTC_KERNELS", "reference", 1);
        fn(k / 2 % OPTIMIZERS, types[k / 2 / OPTIMIZERS], &how[k / 2 % 3]);
        unsetenv("LIGHTC_KERNELS");
    }
}

static void scaled_and_plain(int o, const lc_dtype *dtypes, const step *how)
{
    world plain, scaled;
    world_init(&plain, dtypes[0], dtypes[1], optimizers[o].make, false);
    world_init(&scaled, dtypes[0], dtypes[1], optimizers[o].make, true);
    for (step s = *how; s.number < STEPS; s.number++) {
        double norm = train(&plain, s);
        CHECK_NEAR(train(&scaled, s), norm, 0);
        content a = content_of(&plain), b = content_of(&scaled);
        if (!same(&a, &b)) TEST_FAIL("%s, %s: step %d differs", optimizers[o].name, lc_dtype_name(dtypes[0]), s.number);
    }
    world_free(&plain), world_free(&scaled);
}

TEST(a_scaled_loss_gives_the_same_updates)
{
    each(scaled_and_plain);
}

static void with_a_bad_step(int o, const lc_dtype *dtypes, const step *how)
{
    world good, bad;
    world_init(&good, dtypes[0], dtypes[1], optimizers[o].make, true);
    world_init(&bad, dtypes[0], dtypes[1], optimizers[o].make, true);
    for (step s = *how; s.number < STEPS; s.number++) {
        step overflow = s;
        overflow.bad = s.number % 2 ? (double)NAN : (double)INFINITY;
        double norm = train(&bad, overflow);
        if (s.clip > 0) CHECK(!isfinite(norm));
        train(&good, s), train(&bad, s);
        content a = content_of(&good), b = content_of(&bad);
        if (!same(&a, &b))
            TEST_FAIL("%s, %s: a step that is not finite has written something before step %d", optimizers[o].name,
                      lc_dtype_name(dtypes[0]), s.number + 1);
    }
    world_free(&good), world_free(&bad);
}

TEST(an_update_that_is_not_finite_writes_nothing)
{
    each(with_a_bad_step);
}

/* Not only the first: it must also leave initial values alone. */
TEST(an_overflow_in_one_buffer_skips_them_all)
{
    world w;
    double before[2][N], after[2][N];
    world_init(&w, LC_F16, LC_F32, adam, true);
    for (int k = 0; k < 2; k++) get(w.p[k], before[k]);
    train(&w, (step){.bad = INFINITY});
    for (int k = 0; k < 2; k++) {
        get(w.p[k], after[k]);
        for (int i = 0; i < lc_tensor_numel(w.p[k]); i++) CHECK_NEAR(after[k][i], before[k][i], 0);
    }
    world_free(&w);
}

/* Without a scaled loss a NaN or an infinity is seen: clipping multiplies by max_norm / norm, as in PyTorch. */
TEST(nothing_is_hidden_without_a_scale)
{
    for (int k = 0; k < 2; k++)
        for (double clip = 0; clip < 1; clip += 0.5) {
            world w;
            double p[N], steps[2] = {0};
            world_init(&w, LC_F32, LC_F32, sgd, false);
            double norm = train(&w, (step){.bad = k ? (double)NAN : (double)INFINITY, .clip = clip});
            if (clip > 0) CHECK(!isfinite(norm));
            get(w.p[0], p);
            CHECK(!isfinite(p[4]));
            CHECK(isnan(p[3]) == (k && clip > 0));
            CHECK_OK(lc_tensor_read(w.opt->steps, steps, sizeof steps));
            CHECK_NEAR(steps[0], 1, 0);
            world_free(&w);
        }
}

/* ---- the scale changes ---- */

/* What a scaler does: after a good step the scale doubles, after a bad one it is halved. All of it is recorded. */
static void rescale(const world *w, lc_tensor *norm)
{
    lc_tensor *good = lc_isfinite(norm);
    lc_tensor *times = lc_where(good, lc_scalar(2, LC_F32), lc_scalar(0.5, LC_F32));
    lc_assign(w->scale, lc_mul(w->scale, times));
    lc_assign(w->unscale, lc_div(w->unscale, times));
}

TEST(operators_of_the_step_change_the_scale)
{
    world plain, scaled;
    double scale;
    world_init(&plain, LC_F32, LC_F32, adam, false);
    world_init(&scaled, LC_F32, LC_F32, adam, true);
    for (int k = 0; k < 3 * STEPS; k++) {
        bool bad = k % 3 == 1;
        choose_gradient(&plain, k, 0), choose_gradient(&scaled, k, bad ? (double)INFINITY : 0);
        for (int side = bad; side < 2; side++) {
            world *w = side ? &scaled : &plain;
            CHECK_OK(lc_step_begin(w->graph, (uint64_t)k, 0));
            lc_zero_grad(w->graph);
            lc_backward(loss_of(w));
            lc_tensor *norm = lc_clip_grad_norm(w->opt, 0.5);
            lc_optimizer_step(w->opt);
            if (side) rescale(w, norm);
            CHECK_OK(lc_step_run(w->graph));
            CHECK_OK(lc_step_end(w->graph));
        }
        content a = content_of(&plain), b = content_of(&scaled);
        CHECK(same(&a, &b));
    }
    CHECK_OK(lc_item(scaled.scale, &scale));
    CHECK_NEAR(scale, SCALE * 64, 0);
    lc_graph_stats stats;
    lc_graph_get_stats(scaled.graph, &stats);
    CHECK_EQ(stats.misses, 1);
    world_free(&plain), world_free(&scaled);
}

/* Losing the tensor is another plan. */
TEST(a_step_without_a_scale_is_another_plan)
{
    world w;
    double first[N], second[N];
    world_init(&w, LC_F32, LC_F32, sgd, true);
    get(w.p[1], first);
    train(&w, (step){0});
    get(w.p[1], second);
    w.graph->unscale = NULL, w.scaled = false;
    train(&w, (step){0});
    lc_graph_stats stats;
    lc_graph_get_stats(w.graph, &stats);
    CHECK_EQ(stats.misses, 2);
    train(&w, (step){.bad = NAN});
    get(w.p[0], first);
    CHECK(isnan(first[4]));
    world_free(&w);
}

/* ---- gradients ---- */

TEST(gradients_are_unscaled_where_they_are_read)
{
    for (int t = 0; t < TYPES; t++) {
        world w;
        double got[N], want[N];
        world_init(&w, types[t][0], types[t][1], sgd, true);
        choose_gradient(&w, 1, 0);
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        lc_zero_grad(w.graph);
        lc_backward(loss_of(&w));
        lc_tensor *gradient = lc_keep(lc_gradient(w.p[0]));
        CHECK_OK(lc_step_run(w.graph));
        get(gradient, got), get(w.g[0], want);
        for (int i = 0; i < ROWS * COLUMNS; i++) CHECK_NEAR(got[i], want[i], 0);
        CHECK_OK(lc_step_end(w.graph));
        world_free(&w);
    }
}

TEST(gradients_are_scaled_where_they_are_written)
{
    world w;
    float g[ROWS * COLUMNS], got[ROWS * COLUMNS];
    world_init(&w, LC_F32, LC_F32, sgd, true);
    train(&w, (step){0});
    for (int i = 0; i < ROWS * COLUMNS; i++) g[i] = (float)(i - 7) / 4;
    CHECK_OK(lc_step_begin(w.graph, 1, 0));
    CHECK_OK(lc_gradient_write(w.p[0], g, sizeof g));
    lc_tensor *gradient = lc_keep(lc_gradient(w.p[0]));
    CHECK_OK(lc_step_run(w.graph));
    CHECK_OK(lc_tensor_read(gradient, got, sizeof got));
    CHECK(!memcmp(g, got, sizeof g));
    CHECK_OK(lc_step_end(w.graph));
    world_free(&w);
}

/* Two backward passes: the mean of both, or nothing if one of them overflows. */
TEST(several_backward_passes)
{
    for (int bad = 0; bad < 2; bad++) {
        world plain, scaled;
        world_init(&plain, LC_F32, LC_BF16, adam, false);
        world_init(&scaled, LC_F32, LC_BF16, adam, true);
        train(&plain, (step){.number = 7}), train(&scaled, (step){.number = 7});
        content before = content_of(&scaled);
        for (int side = 0; side < 2; side++) {
            world *w = side ? &scaled : &plain;
            for (int pass = 0; pass < 2; pass++) {
                choose_gradient(w, 3 * pass, bad && !pass ? (double)INFINITY : 0);
                CHECK_OK(lc_step_begin(w->graph, 8, (uint64_t)pass));
                if (!pass) lc_zero_grad(w->graph);
                lc_backward(loss_of(w));
                if (pass) lc_optimizer_step(w->opt);
                CHECK_OK(lc_step_run(w->graph));
                CHECK_OK(lc_step_end(w->graph));
            }
        }
        content a = content_of(&plain), b = content_of(&scaled);
        CHECK(same(bad ? &before : &a, &b));
        world_free(&plain), world_free(&scaled);
    }
}

/* ---- LBFGS ---- */

static lc_optimizer *lbfgs(lc_module *m, lc_tensor **matrix)
{
    (void)matrix;
    return lc_lbfgs(m, .lr = 0.5, .max_iter = 3, .strong_wolfe = true);
}

typedef struct evaluation {
    world *w;
    int n, bad_at;  /* the evaluation whose gradients are not finite; 0: none */
    int without_at; /* the one that has no loss */
    double clip_value;
} evaluation;

/* (p - g)^4 */
static lc_status evaluate(void *ctx, double *loss)
{
    evaluation *e = ctx;
    world *w = e->w;
    if (++e->n == e->without_at) return LC_SKIP;
    double last = e->n == e->bad_at ? (double)INFINITY : 1;
    lc_zero_grad(w->graph);
    lc_tensor *d = lc_sub(w->p[0], w->g[0]), *sum = lc_sum(lc_mul(lc_mul(d, d), lc_mul(d, d)));
    lc_tensor *scaled = lc_mul_scalar(sum, last * (w->scaled ? SCALE : 1));
    lc_backward(scaled);
    if (e->clip_value > 0) lc_clip_grad_value(w->opt, e->clip_value);
    return lc_item(sum, loss);
}

static int lbfgs_step(world *w, int number, int bad_at)
{
    evaluation e = {.w = w, .bad_at = bad_at, .clip_value = number % 2 ? 0.75 : 0};
    CHECK_OK(lc_step_begin(w->graph, (uint64_t)number, 0));
    CHECK_OK(lc_optimizer_step_closure(w->opt, evaluate, &e));
    CHECK_OK(lc_step_end(w->graph));
    return e.n;
}

static lc_status add_own(void *ctx, const char *name, lc_tensor *t)
{
    if (strcmp(name, "numbers")) add_content(ctx, t);
    return LC_OK;
}

static content lbfgs_content(const world *w)
{
    content c = content_of(w);
    CHECK_OK(w->opt->ops->visit_own(w->opt, false, add_own, &c));
    return c;
}

TEST(lbfgs_takes_the_same_path)
{
    world plain, scaled;
    world_init(&plain, LC_F32, LC_F32, lbfgs, false);
    world_init(&scaled, LC_F32, LC_F32, lbfgs, true);
    choose_gradient(&plain, 0, 0), choose_gradient(&scaled, 0, 0);
    for (int k = 0; k < STEPS; k++) {
        int n = lbfgs_step(&plain, k, 0);
        CHECK_EQ(lbfgs_step(&scaled, k, 0), n);
        content a = lbfgs_content(&plain), b = lbfgs_content(&scaled);
        CHECK(same(&a, &b));
    }
    world_free(&plain), world_free(&scaled);
}

/* A loss that is missing later is an error, not the last loss once more. */
TEST(lbfgs_needs_a_loss_at_every_point)
{
    for (int without_at = 1; without_at < 4; without_at++) {
        world w;
        world_init(&w, LC_F32, LC_F32, lbfgs, false);
        choose_gradient(&w, 0, 0);
        evaluation e = {.w = &w, .without_at = without_at};
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        lc_status status = lc_optimizer_step_closure(w.opt, evaluate, &e);
        CHECK_EQ(status, without_at == 1 ? LC_OK : LC_ERR_USER);
        if (without_at > 1) CHECK_CONTAINS(lc_error_message(), "returned a loss at first");
        CHECK_OK(lc_step_end(w.graph));
        world_free(&w);
    }
}

/* The parameters stay at the last point whose gradients are finite. */
TEST(lbfgs_stops_at_gradients_that_are_not_finite)
{
    for (int bad_at = 1; bad_at < 4; bad_at++) {
        world w;
        double first = 0, last = 1e30, loss;
        world_init(&w, LC_F32, LC_F32, lbfgs, true);
        choose_gradient(&w, 0, 0);
        for (int k = 0; k < 2 * STEPS; k++) {
            content before = lbfgs_content(&w);
            int n = lbfgs_step(&w, k, k % 2 ? bad_at : 0);
            content after = lbfgs_content(&w);
            if (k % 2 && n >= bad_at) CHECK_EQ(n, bad_at);
            if (k % 2 && bad_at == 1) CHECK(same(&before, &after));
            double p[N], g[N];
            get(w.p[0], p), get(w.g[0], g);
            loss = 0;
            for (int i = 0; i < ROWS * COLUMNS; i++) loss += pow(p[i] - g[i], 4);
            CHECK(loss <= last * 1.0001);
            last = loss;
            if (!k) first = loss;
        }
        CHECK(last < first / 4);
        world_free(&w);
    }
}

TEST_MAIN
