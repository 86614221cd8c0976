/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with batches ready in memory, without the trainer: the speed of the engine and the kernels. */
#include "bench.h"
#include "models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 5

typedef struct task {
    const char *model, *rate; /* rate: name of the "samples per second" member; NULL: left out */
    int64_t batch, steps;
    int ndim; /* of x */
    lc_dtype dtype;
    int64_t shape[4]; /* of a sample of x */
    int64_t classes;
    double flop;  /* of a step: 2 * multiplications of matrices and convolutions (forward, and both gradients) */
    double bytes; /* memory traffic of a step if caches do not hold the data; see below */
    bool in_ms;
} task;

/* Bytes: the update (Adam reads 4 numbers per parameter and writes 3, SGD with momentum 3 and 2) and an estimate of
 * passes over activations that even perfect fusion leaves (docs/benchmarks.md, "The floor"). */
static const task tasks[] = {
    {"mlp", NULL, 64, 500, 4, LC_F32, {1, 28, 28}, 10, 26.2e6, 2.8e6, false},
    {"fashion", "images_s", 100, 40, 4, LC_F32, {1, 28, 28}, 10, 2.56e9, 190e6, true},
    {"resnet18", "images_s", 128, 4, 4, LC_F32, {3, 32, 32}, 10, 426e9, 3.8e9, true},
    {"gpt", "tokens_s", 16, 5, 2, LC_I64, {256}, 65, 276e9, 3.0e9, true},
};

typedef struct runner {
    lc_graph *g;
    model *m;
    lc_optimizer *opt;
    const lc_precision_ops *precision;
    void *precision_self;
    bool scaled; /* the loss, by the precision */
    bench_batch batch;
    uint64_t step;
    double loss;
} runner;

static const task *find_task(const char *name)
{
    const task *t = tasks;
    while (strcmp(t->model, name) != 0) t++;
    return t;
}

lc_status bench_batch_new(const char *name, int64_t samples, bench_batch *b)
{
    const task *t = find_task(name);
    int64_t shape[4] = {samples}, n = samples, n_y = t->ndim == 2 ? samples * t->shape[0] : samples;
    for (int i = 1; i < t->ndim; i++) n *= shape[i] = t->shape[i - 1];
    size_t bytes = ((size_t)n * lc_dtype_size(t->dtype) + 63) & ~(size_t)63;
    b->xs = aligned_alloc(64, bytes);
    b->ys = aligned_alloc(64, ((size_t)n_y * sizeof *b->ys + 63) & ~(size_t)63);
    if (!b->xs || !b->ys) return lc_fail(LC_ERR_MEMORY, "out of memory: a batch");
    for (int64_t i = 0; i < n; i++) {
        if (t->dtype == LC_I64)
            ((int64_t *)b->xs)[i] = (int64_t)lc_random_below(1, (uint64_t)i, (uint64_t)t->classes);
        else
            ((float *)b->xs)[i] = (float)(3.46 * lc_random_uniform(1, (uint64_t)i) - 1.73); /* variance 1 */
    }
    for (int64_t i = 0; i < n_y; i++) b->ys[i] = (int64_t)lc_random_below(2, (uint64_t)i, (uint64_t)t->classes);
    /* The layout in which the loader returns images. */
    lc_layout layout = t->ndim == 4 ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
    LC_TRY(lc_input_new(t->dtype, t->ndim, shape, layout, b->xs, &b->x));
    return lc_input_new(LC_I64, t->ndim == 2 ? 2 : 1, shape, LC_ROW_MAJOR, b->ys, &b->y);
}

void bench_batch_free(bench_batch *b)
{
    lc_tensor_unref(b->x);
    lc_tensor_unref(b->y);
    free(b->xs);
    free(b->ys);
}

static lc_status step(runner *r)
{
    LC_TRY(lc_step_begin(r->g, r->step++, 0));
    lc_tensor *loss = lc_keep(model_loss(r->m, r->batch.x, r->batch.y));
    lc_zero_grad(r->g);
    lc_backward(r->scaled ? r->precision->scale_loss(r->precision_self, loss) : loss);
    lc_optimizer_step(r->opt);
    LC_TRY(lc_step_run(r->g));
    LC_TRY(lc_item(loss, &r->loss));
    return lc_step_end(r->g);
}

static void runner_free(runner *r)
{
    lc_optimizer_free(r->opt);
    model_free(r->m);
    bench_batch_free(&r->batch);
    if (r->precision && r->precision->teardown) r->precision->teardown(r->precision_self);
    lc_graph_free(r->g);
}

static lc_status set_matmul_precision(const char *name, lc_graph_args *options)
{
    static const char *const names[] = {
        [LC_MATMUL_HIGHEST] = "highest", [LC_MATMUL_HIGH] = "high", [LC_MATMUL_MEDIUM] = "medium"};
    for (int i = 0; i < 3; i++) {
        options->matmul_precision = (lc_matmul_precision)i;
        if (!name || !strcmp(name, names[i])) return LC_OK;
    }
    return lc_fail(LC_ERR_CONFIG, "matmul_precision is highest, high or medium, not \"%.20s\"", name);
}

static lc_status runner_new(const bench *b, const task *t, int64_t batch, runner *r)
{
    lc_graph_args options = LC_ARGS(lc_graph, .threads = (int)b->threads, .tune = b->tune);
    LC_TRY(set_matmul_precision(b->matmul_precision, &options));
    LC_TRY(lc_precision_find(b->precision, &r->precision));
    r->scaled = r->precision->scale_loss && !b->unscaled;
    if (r->precision->configure_graph) LC_TRY(r->precision->configure_graph(&r->precision_self, &options));
    LC_TRY(lc_graph_new_with(&r->g, &options));
    r->m = model_new(t->model, NULL, 0);
    if (!r->m) return lc_fail(LC_ERR_MEMORY, "out of memory: the model");
    LC_TRY(lc_module_status(&r->m->base));
    if (r->precision->convert_module) LC_TRY(r->precision->convert_module(&r->precision_self, &r->m->base));
    lc_module_train(&r->m->base, true);
    if (strcmp(t->model, "resnet18") == 0)
        r->opt = lc_sgd(r->m, .lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4);
    else if (strcmp(t->model, "gpt") == 0)
        r->opt = lc_adamw(r->m, .lr = 1e-3, .weight_decay = 0.1);
    else
        r->opt = lc_adam(r->m, .lr = 1e-3);
    LC_TRY(lc_module_status(&r->m->base));
    return bench_batch_new(t->model, batch, &r->batch);
}

lc_status bench_steps(const bench *b, const char *name)
{
    const task *t = find_task(name);
    runner r = {0};
    lc_status s;
    int64_t steps = b->steps ? b->steps : t->steps, batch = b->batch ? b->batch : t->batch;
    int64_t warm = steps / 10 > 3 ? steps / 10 : 3;
    double spread[ROUNDS], sorted[ROUNDS], first = bench_now();
    LC_TRY_GOTO(s, done, runner_new(b, t, batch, &r));
    for (int64_t i = 0; i < warm; i++) {
        LC_TRY_GOTO(s, done, step(&r));
        if (i == 0) first = bench_now() - first;
    }
    for (int k = 0; k < ROUNDS; k++) {
        double start = bench_now();
        for (int64_t i = 0; i < steps; i++) LC_TRY_GOTO(s, done, step(&r));
        spread[k] = (bench_now() - start) / (double)steps;
    }
    bench_count_start();
    s = step(&r);
    double allocations = (double)bench_count_stop();
    if (s < 0) goto done;
    if (!isfinite(r.loss)) {
        s = lc_fail(LC_ERR_NUMERIC, "the loss of %s is not finite", name);
        goto done;
    }
    memcpy(sorted, spread, sizeof sorted);
    double median = bench_median(sorted, ROUNDS), scale = t->in_ms ? 1e3 : 1e6;
    for (int k = 0; k < ROUNDS; k++) spread[k] *= scale;
    lc_graph_stats stats;
    lc_graph_get_stats(r.g, &stats);
    double units = (double)(batch * (t->ndim == 2 ? t->shape[0] : 1)), part = (double)batch / (double)t->batch;
    BENCH_EMIT(b, "step_no_loader", scale * median, t->in_ms ? "ms" : "us", {t->rate, units / median},
               {"spread", .list = spread, .n = ROUNDS}, {"allocs_per_step", allocations},
               {"first_step_ms", 1e3 * first}, {"flop", t->flop * part}, {"bytes", t->bytes * part},
               {"gflop_s", 1e-9 * t->flop * part / median}, {"nodes", (double)stats.nodes},
               {"recorded", (double)stats.recorded}, {"planned_mb", (double)stats.planned_bytes / 1048576},
               {"lower_bound_mb", (double)stats.lower_bound / 1048576}, {"loss", r.loss});
    s = LC_OK;
done:
    runner_free(&r);
    return s;
}

lc_status bench_resnet18(const bench *b)
{
    return bench_steps(b, "resnet18");
}

lc_status bench_gpt(const bench *b)
{
    return b->loaded ? bench_epochs(b, "gpt", 16) : bench_steps(b, "gpt");
}

/* Child of `startup`. */
lc_status bench_first_step(const bench *b)
{
    runner r = {0};
    lc_status s = runner_new(b, &tasks[0], tasks[0].batch, &r);
    double built = bench_now() - b->since;
    if (s == LC_OK) s = step(&r);
    double end = bench_now() - b->since;
    if (s == LC_OK) BENCH_EMIT(b, "first_step", 1e3 * end, "ms", {"built_ms", 1e3 * built});
    runner_free(&r);
    return s;
}
