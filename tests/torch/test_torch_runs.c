/* SPDX-License-Identifier: Apache-2.0 */
/* Training compared with the real PyTorch: runs follow its losses, LBFGS its path. The other half of each test is a
 * script in tests/torch/. To add a run: a line in `runs` and, for a new network, a class in tests/torch/train.py. */
#define _GNU_SOURCE
#include "torch_peer.h"

#include "bench/models.h"

#include <sys/stat.h>

/* ---- training runs ---- */

typedef struct run {
    const char *model;
    int steps;
    int64_t batch;
    const char *optimizer; /* by name, as in torch.optim */
    lc_named_number args[4];
    double clip;
    int64_t context, vocabulary; /* of models that read tokens */
} run;

/* Learning rates at which a network does not amplify rounding errors: at 0.05, PyTorch's two memory formats already
 * differ by 2e-3 from each other after 100 steps of the convolutional network. */
static const run runs[] = {
    {"fashion", 100, 100, "SGD", {{"lr", 0.01}}, 0, 0, 0},
    {"fashion", 100, 100, "SGD", {{"lr", 0.001}, {"momentum", 0.9}}, 0, 0, 0},
    {"mlp", 50, 64, "Adam", {{"lr", 1e-3}}, 0, 0, 0},
    {"gpt_small", 50, 8, "AdamW", {{"lr", 3e-3}, {"weight_decay", 0.1}}, 0.5, 16, 11},
    {"lstm", 50, 32, "RMSprop", {{"lr", 1e-3}}, 0, 0, 0},
};

typedef struct trained {
    const run *run;
    double losses[128];
    int n;
} trained;

/* Hooks receive only the module: the run that they belong to is kept here. */
static _Thread_local trained *current;

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)i;
    return model_loss((model *)self, batch->x, batch->y);
}

static lc_status keep_loss(lc_module *self, const lc_outputs *outputs, const lc_batch *batch, int64_t i)
{
    (void)self, (void)batch, (void)i;
    return lc_item(outputs->loss, &current->losses[current->n++]);
}

static lc_status configure(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *opt;
    int n = 0;
    while (n < 4 && current->run->args[n].name) n++;
    LC_TRY(lc_optimizer_by_name(current->run->optimizer, self, current->run->args, n, &opt));
    return lc_optimizers_add(out, opt);
}

static const lc_module_ops run_ops = {
    LC_MODULE_OPS_INIT("run"),
    .training_step = training_step,
    .configure_optimizers = configure,
    .on_train_batch_end = keep_loss,
};

static void no_dropout(lc_module *m)
{
    if (!strcmp(m->type ? m->type : "", "Dropout")) ((lc_dropout *)m)->p = 0;
    for (int i = 0; i < m->n_children; i++) no_dropout(m->children[i]);
}

/* The first images of Fashion-MNIST if it is installed, otherwise noise; for language models, ids. */
static lc_dataset *make_data(const run *r, tensors *list)
{
    int64_t n = r->steps * r->batch, t = r->context;
    lc_dataset *train = NULL, *d;
    int64_t *y = malloc((size_t)(n * (t ? t : 1)) * sizeof *y);
    if (t) {
        int64_t *x = malloc((size_t)(n * t) * sizeof *x);
        for (int64_t i = 0; i < n * t; i++) {
            x[i] = (int64_t)(lc_random_uniform(5, (uint64_t)i) * (double)r->vocabulary);
            y[i] = (x[i] * 3 + i % t) % r->vocabulary;
        }
        list->v[list->n++] = (lc_named_tensor){strdup("x"), NULL, {LC_I64, 2, {n, t}}, x};
        list->v[list->n++] = (lc_named_tensor){strdup("y"), NULL, {LC_I64, 2, {n, t}}, y};
        lc_array arrays[] = {{.field = {"x", LC_I64, LC_ROW_MAJOR, 1, {t}}, .data = x},
                             {.field = {"y", LC_I64, LC_ROW_MAJOR, 1, {t}}, .data = y}};
        CHECK_OK(lc_array_dataset_new(n, 2, arrays, &d));
        return d;
    }
    float *x = malloc((size_t)n * 784 * sizeof *x);
    const char *dir = "/usr/share/datasets/fashion-mnist";
    if (lc_mnist_load(dir, &train, NULL, .mean = 0.2860, .std = 0.3530) == LC_OK) {
        for (int64_t i = 0; i < n; i++) CHECK_OK(lc_dataset_read(train, i, 0, (void *[]){x + 784 * i, y + i}));
        lc_dataset_unref(train);
    } else {
        for (int64_t i = 0; i < n * 784; i++) x[i] = (float)lc_random_normal(6, (uint64_t)i);
        for (int64_t i = 0; i < n; i++) y[i] = (int64_t)(fabs((double)x[784 * i]) * 5) % 10;
    }
    list->v[list->n++] = (lc_named_tensor){strdup("x"), NULL, {LC_F32, 4, {n, 1, 28, 28}}, x};
    list->v[list->n++] = (lc_named_tensor){strdup("y"), NULL, {LC_I64, 1, {n}}, y};
    lc_array arrays[] = {{.field = {"x", LC_F32, LC_ROW_MAJOR, 3, {1, 28, 28}}, .data = x},
                         {.field = {"y", LC_I64, LC_ROW_MAJOR, 0, {0}}, .data = y}};
    CHECK_OK(lc_array_dataset_new(n, 2, arrays, &d));
    return d;
}

/* Trains with that precision (NULL: the default); data, weights before and after go to files in dir. */
static void train(const run *r, uint64_t seed, const char *precision, const char *dir, trained *result)
{
    static tensors list;
    lc_trainer *t;
    lc_dataloader *loader;
    *result = (trained){.run = r};
    current = result;
    model *m = model_new(r->model, &run_ops, seed);
    CHECK(m != NULL);
    no_dropout(&m->base);
    CHECK_OK(lc_module_visit(&m->base, add_state, &list));
    tensors_save(&list, dir, "start.safetensors");
    lc_dataset *data = make_data(r, &list);
    lc_dataloader_args lo = LC_ARGS(lc_dataloader, .dataset = data, .batch_size = r->batch);
    CHECK_OK(lc_dataloader_new_with(&loader, &lo));
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    o.default_root_dir = dir;
    o.enable_progress_bar = o.enable_model_summary = o.enable_checkpointing = LC_OFF;
    o.logger = "none";
    o.max_epochs = 1;
    o.gradient_clip_val = r->clip;
    if (precision) o.precision = precision;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m->base, .train_dataloader = loader));
    CHECK_EQ(result->n, r->steps);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
    tensors_save(&list, dir, "data.safetensors");
    CHECK_OK(lc_module_visit(&m->base, add_state, &list));
    tensors_save(&list, dir, "end.safetensors");
    model_free(m);
}

/* run.json: how the other side trains, and our losses. */
static void describe(const run *r, const char *dir, const char *const names[], const trained *results, int n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/run.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f, "{\"model\": \"%s\", \"batch\": %d, \"optimizer\": \"%s\", \"clip\": %g, \"args\": {", r->model,
            (int)r->batch, r->optimizer, r->clip);
    for (int i = 0; i < 4 && r->args[i].name; i++)
        fprintf(f, "%s\"%s\": %g", i ? ", " : "", r->args[i].name, r->args[i].value);
    fprintf(f, "}");
    for (int k = 0; k < n; k++) {
        fprintf(f, ", \"%s\": [", names[k]);
        for (int i = 0; i < results[k].n; i++) fprintf(f, "%s%.9g", i ? ", " : "", results[k].losses[i]);
        fprintf(f, "]");
    }
    fprintf(f, "}\n");
    fclose(f);
}

static void follow(const run *r)
{
    trained result;
    const char *dir = (python(), fresh_dir("torch"));
    train(r, 42, NULL, dir, &result);
    describe(r, dir, (const char *const[]){"losses"}, &result, 1);
    run_script("train.py", dir, "");
}

TEST(fashion_cnn_follows_torch)
{
    follow(&runs[0]);
}
TEST(fashion_cnn_with_momentum_follows_torch)
{
    follow(&runs[1]);
}
TEST(mlp_with_adam_follows_torch)
{
    follow(&runs[2]);
}
TEST(gpt_with_adamw_and_clipping_follows_torch)
{
    follow(&runs[3]);
}
TEST(lstm_with_rmsprop_follows_torch)
{
    follow(&runs[4]);
}

/* ---- mixed precision: near f32, and as far from f64 as PyTorch's ---- */

enum { MOST_SEEDS = 5 };

static const run mixed_runs[] = {
    {"fashion", 12, 10, "SGD", {{"lr", 0.01}}, 0, 0, 0},
    {"gpt_small", 40, 8, "AdamW", {{"lr", 3e-3}, {"weight_decay", 0.1}}, 0.5, 16, 11},
};

/* Each loss is that of f32 within a part of it. */
static void check_near(const char *precision, const trained *mixed, const trained *f32, double bound)
{
    for (int i = 0; i < f32->n; i++)
        if (!(fabs(mixed->losses[i] - f32->losses[i]) <= bound * f32->losses[i]))
            TEST_FAIL("%s, %s: loss %d is %.6g, and %.6g in f32", f32->run->model, precision, i, mixed->losses[i],
                      f32->losses[i]);
}

static void follow_mixed(const run *r)
{
    static const char *const names[] = {"bf16-mixed", "16-mixed"};
    static const double bounds[] = {0x1p-7, 0x1p-10}; /* docs/precision.md */
    trained f32, results[2];
    const char *dir = fresh_dir("torch");
    const int seeds = getenv("LIGHTC_TEST_ALL") ? MOST_SEEDS : 3;
    char at[512];
    for (int seed = 0; seed < seeds; seed++) {
        snprintf(at, sizeof at, "%s/%d", dir, seed);
        CHECK(mkdir(at, 0755) == 0);
        train(r, (uint64_t)(42 + seed), "32-true", at, &f32);
        for (int k = 0; k < 2; k++) {
            train(r, (uint64_t)(42 + seed), names[k], at, &results[k]);
            check_near(names[k], &results[k], &f32, bounds[k]);
        }
        describe(r, at, names, results, 2);
    }
    python();
    snprintf(at, sizeof at, "%d", seeds);
    run_script("mixed.py", dir, at);
}

TEST(fashion_cnn_in_mixed_precision)
{
    follow_mixed(&mixed_runs[0]);
}
TEST(gpt_in_mixed_precision)
{
    follow_mixed(&mixed_runs[1]);
}

/* ---- LBFGS: the same path on three functions ---- */

enum { UNKNOWNS = 6 };

/* The functions, also in torch/lbfgs.py. */
typedef enum valley_kind { ROSENBROCK, QUADRATIC, NET, N_VALLEYS } valley_kind;
static const char *const valley_names[N_VALLEYS] = {"rosenbrock", "quadratic", "net"};

typedef struct descent {
    lc_module root;
    lc_graph *graph;
    lc_tensor *x, *inputs, *targets;
    lc_optimizer *opt;
    valley_kind valley;
} descent;

static lc_tensor *rosenbrock(const descent *r)
{
    lc_tensor *first = lc_slice(r->x, 0, 0, UNKNOWNS - 1), *next = lc_slice(r->x, 0, 1, UNKNOWNS - 1);
    lc_tensor *bend = lc_sub(next, lc_square(first)), *far = lc_add_scalar(lc_neg(first), 1);
    return lc_add(lc_sum(lc_square(far)), lc_mul_scalar(lc_sum(lc_square(bend)), 100));
}

/* Twice as steep in each direction as in the previous one. */
static lc_tensor *quadratic(const descent *r)
{
    lc_tensor *loss = NULL;
    for (int i = 0; i < UNKNOWNS; i++) {
        lc_tensor *far = lc_add_scalar(lc_slice(r->x, 0, i, 1), -1), *part = lc_sum(lc_square(far));
        part = lc_mul_scalar(part, 1 << i);
        loss = loss ? lc_add(loss, part) : part;
    }
    return loss;
}

/* Two hidden units: tanh(w x + b) v, without an output bias. */
static lc_tensor *net(const descent *r)
{
    lc_tensor *w = lc_reshape(lc_slice(r->x, 0, 0, 2), 2, 1), *b = lc_slice(r->x, 0, 2, 2);
    lc_tensor *v = lc_reshape(lc_slice(r->x, 0, 4, 2), 1, 2);
    return lc_mse_loss(lc_linear(lc_tanh(lc_linear(r->inputs, w, b)), v, NULL), r->targets);
}

static lc_status descent_loss(void *ctx, double *value)
{
    descent *r = ctx;
    lc_tensor *loss = r->valley == ROSENBROCK ? rosenbrock(r) : r->valley == QUADRATIC ? quadratic(r) : net(r);
    lc_optimizer_zero_grad(r->opt);
    lc_backward(loss);
    return lc_item(loss, value);
}

static void descent_new(descent *r, valley_kind valley)
{
    int64_t shape[] = {UNKNOWNS}, samples[] = {8, 1};
    double x[UNKNOWNS], inputs[8], targets[8];
    *r = (descent){.valley = valley};
    lc_module_init(&r->root, NULL, 1);
    r->x = lc_module_add_parameter(&r->root, "x", LC_F64, LC_ROW_MAJOR, 1, shape, (lc_init){0});
    for (int i = 0; i < UNKNOWNS; i++) x[i] = sin(i + 1);
    CHECK_OK(lc_tensor_write(r->x, x, sizeof x));
    for (int i = 0; i < 8; i++) inputs[i] = 0.25 * (i - 4), targets[i] = sin(3 * inputs[i]);
    CHECK_OK(lc_tensor_new(LC_F64, 2, samples, &r->inputs));
    CHECK_OK(lc_tensor_new(LC_F64, 2, samples, &r->targets));
    CHECK_OK(lc_tensor_write(r->inputs, inputs, sizeof inputs));
    CHECK_OK(lc_tensor_write(r->targets, targets, sizeof targets));
    CHECK_OK(lc_graph_new(&r->graph));
}

static void descent_release(descent *r)
{
    lc_graph_free(r->graph);
    lc_optimizer_free(r->opt);
    lc_tensor_unref(r->inputs);
    lc_tensor_unref(r->targets);
    lc_module_release(&r->root);
}

TEST(lbfgs_follows_torch)
{
    static const struct {
        bool strong_wolfe;
        double lr;
        int max_iter, max_eval, history, steps;
    } cases[] = {{true, 1, 20, 0, 100, 4},   {true, 0.5, 4, 0, 3, 12}, {true, 1, 1, 0, 3, 12},
                 {true, 0.2, 3, 4, 10, 12},  {true, 1, 5, 2, 4, 12},   {true, 0.05, 4, 0, 2, 12},
                 {false, 0.01, 5, 0, 10, 10}};
    const char *dir = (python(), fresh_dir("torch"));
    char path[512];
    snprintf(path, sizeof path, "%s/lbfgs.txt", dir);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    for (size_t k = 0; k < sizeof cases / sizeof *cases * N_VALLEYS; k++) {
        size_t c = k / N_VALLEYS, v = k % N_VALLEYS;
        descent r;
        double x[UNKNOWNS];
        descent_new(&r, (valley_kind)v);
        r.opt = lc_lbfgs(&r.root, .lr = cases[c].lr, .max_iter = cases[c].max_iter, .max_eval = cases[c].max_eval,
                         .history_size = cases[c].history, .strong_wolfe = cases[c].strong_wolfe);
        CHECK_OK(lc_module_status(&r.root));
        /* The net is in a flat valley after 20 iterations, where two units in the last place grow to 1e-3. */
        int steps = v == NET && cases[c].max_iter == 20 ? 1 : cases[c].steps;
        for (int step = 0; step < steps; step++) {
            CHECK_OK(lc_step_begin(r.graph, (uint64_t)step, 0));
            CHECK_OK(lc_optimizer_step_closure(r.opt, descent_loss, &r));
            CHECK_OK(lc_step_end(r.graph));
            CHECK_OK(lc_tensor_read(r.x, x, sizeof x));
            fprintf(f, "%s %s %g %d %d %d", valley_names[v], cases[c].strong_wolfe ? "strong_wolfe" : "none",
                    cases[c].lr, cases[c].max_iter, cases[c].max_eval, cases[c].history);
            for (int i = 0; i < UNKNOWNS; i++) fprintf(f, " %.17g", x[i]);
            fprintf(f, "\n");
        }
        descent_release(&r);
    }
    fclose(f);
    run_script("lbfgs.py", dir, "");
}

TEST_MAIN
