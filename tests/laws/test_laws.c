/* SPDX-License-Identifier: Apache-2.0 */
/* The laws of the engine on whole models: planned = unplanned, the same result for any number of threads if requested,
 * no allocation in a steady step, an arena near its lower bound. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "test.h"

#include "bench/models.h"
#include "module/tensors.h"
#include "record/graph_impl.h"

/* ---- counting allocations on this thread; those of oneDNN and of the simulated device's driver do not count ---- */

#ifndef SANITIZED
#include <link.h>
#define COUNTS_ALLOCATIONS 1
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static _Thread_local long allocations;
static _Thread_local bool counting;

static int is_foreign(struct dl_phdr_info *info, size_t size, void *address)
{
    (void)size;
    static const char *const libraries[] = {"libdnnl", "libstdc++", "liblightc_sim"};
    size_t k = 0;
    while (k < 3 && !strstr(info->dlpi_name, libraries[k])) k++;
    if (k == 3) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if ((uintptr_t)address >= at && (uintptr_t)address < at + info->dlpi_phdr[i].p_memsz) return 1;
    }
    return 0;
}

static void count(void *caller)
{
    if (!counting) return;
    counting = false;
    allocations += !dl_iterate_phdr(is_foreign, caller);
    counting = true;
}

void *malloc(size_t n)
{
    return count(__builtin_return_address(0)), __libc_malloc(n);
}
void *calloc(size_t n, size_t s)
{
    return count(__builtin_return_address(0)), __libc_calloc(n, s);
}
void *realloc(void *p, size_t n)
{
    return count(__builtin_return_address(0)), __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n)
{
    return count(__builtin_return_address(0)), __libc_memalign(a, n);
}
#else
#define COUNTS_ALLOCATIONS 0
static long allocations;
static bool counting;
#endif

/* ---- one training run ---- */

typedef struct task {
    const char *model;
    int64_t batch;
    const char *optimizer;
    int ndim;
    int64_t x[4], y[2];
    int64_t classes; /* of y; if x has 2 dimensions, it holds ids below it */
} task;

static const task tasks[] = {
    {"mlp", 16, "adam", 4, {16, 1, 28, 28}, {16}, 10},
    /* Not Adam: the gradient of a bias before batch norm is pure rounding, which Adam scales to whole steps. */
    {"fashion", 6, "sgd", 4, {6, 1, 28, 28}, {6}, 10},
    {"gpt_small", 3, "adamw", 2, {3, 16}, {3, 16}, 11},
    {"lstm", 5, "sgd", 4, {5, 1, 28, 28}, {5}, 10},
    {"resnet18", 2, "sgd", 4, {2, 3, 16, 16}, {2}, 10},
};

#define MAX_TENSORS 256

typedef struct outcome {
    double loss[8];
    float *values; /* every parameter and buffer, one after another */
    int64_t n, ends[MAX_TENSORS];
    int n_tensors;
    int64_t allocations; /* of the last step */
    lc_graph_stats stats;
} outcome;

static lc_status copy_out(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    outcome *o = ctx;
    if (lc_tensor_dtype(t->tensor) != LC_F32) return LC_OK;
    CHECK(o->n_tensors < MAX_TENSORS);
    int64_t n = lc_tensor_numel(t->tensor);
    float *p = realloc(o->values, (size_t)(o->n + n) * sizeof *p);
    if (!p) return LC_ERR_MEMORY;
    o->values = p;
    o->ends[o->n_tensors++] = o->n += n;
    return lc_tensor_read(t->tensor, p + o->n - n, (size_t)n * sizeof *p);
}

static void train(const task *t, int steps, int accumulate, double clip, const lc_graph_args *options, outcome *o)
{
    memset(o, 0, sizeof *o);
    lc_graph *g;
    CHECK_OK(lc_graph_new_with(&g, options));
    model *m = model_new(t->model, NULL, 7);
    CHECK(m != NULL);
    CHECK_OK(lc_module_status(&m->base));
    if (options->storage) CHECK_OK(lc__module_store(&m->base, options->storage));
    lc_module_train(&m->base, true);
    /* The gradient of the bias of keys is pure rounding, too: attention does not depend on it. */
    lc_optimizer *opt = strcmp(t->optimizer, "adam") == 0    ? lc_adam(m, .lr = 1e-3)
                        : strcmp(t->optimizer, "adamw") == 0 ? lc_adamw(m, .lr = 1e-3, .eps = 1e-6)
                                                             : lc_sgd(m, .lr = 0.05, .momentum = 0.9);
    CHECK(opt != NULL);
    int64_t nx = 1, ny = 1;
    for (int i = 0; i < t->ndim; i++) nx *= t->x[i];
    int y_dims = t->ndim == 2 ? 2 : 1;
    for (int i = 0; i < y_dims; i++) ny *= t->y[i];
    float *xf = malloc((size_t)nx * 8);
    int64_t *ys = malloc((size_t)ny * sizeof *ys);
    lc_tensor *x, *y;
    CHECK_OK(lc_input_new(t->ndim == 2 ? LC_I64 : LC_F32, t->ndim, t->x, LC_ROW_MAJOR, xf, &x));
    CHECK_OK(lc_input_new(LC_I64, y_dims, t->y, LC_ROW_MAJOR, ys, &y));
    for (int s = 0; s < steps; s++) {
        for (int micro = 0; micro < accumulate; micro++) {
            uint64_t key = (uint64_t)(100 + s * accumulate + micro);
            for (int64_t i = 0; i < nx; i++) {
                if (t->ndim == 2)
                    ((int64_t *)xf)[i] = (int64_t)lc_random_below(key, (uint64_t)i, (uint64_t)t->classes);
                else
                    xf[i] = (float)lc_random_normal(key, (uint64_t)i);
            }
            for (int64_t i = 0; i < ny; i++)
                ys[i] = (int64_t)lc_random_below(key + 1000, (uint64_t)i, (uint64_t)t->classes);
            long before = allocations;
            counting = true;
            CHECK_OK(lc_step_begin(g, (uint64_t)s, (uint64_t)micro));
            lc_tensor *loss = lc_keep(model_loss(m, x, y));
            if (micro == 0) lc_zero_grad(g);
            lc_backward(loss);
            if (micro == accumulate - 1) {
                if (clip > 0) lc_clip_grad_norm(opt, clip);
                lc_optimizer_step(opt);
            }
            CHECK_OK(lc_step_run(g));
            CHECK_OK(lc_item(loss, &o->loss[s]));
            CHECK_OK(lc_step_end(g));
            counting = false;
            o->allocations = allocations - before;
        }
    }
    CHECK_OK(lc_module_visit(&m->base, copy_out, o));
    lc_graph_get_stats(g, &o->stats);
    lc_optimizer_free(opt);
    model_free(m);
    lc_tensor_unref(x), lc_tensor_unref(y);
    free(xf), free(ys);
    lc_graph_free(g);
}

/* Within `tolerance`, relative to each tensor's largest value. */
static void compare(const outcome *a, const outcome *b, int steps, double tolerance)
{
    CHECK_EQ(a->n, b->n);
    for (int s = 0; s < steps; s++) CHECK_NEAR(a->loss[s], b->loss[s], tolerance * (1 + fabs(a->loss[s])));
    int64_t i = 0;
    for (int t = 0; t < a->n_tensors; t++) {
        double largest = 0, worst = 0;
        for (; i < a->ends[t]; i++) {
            largest = fmax(largest, fabs(a->values[i]));
            worst = fmax(worst, fabs((double)a->values[i] - b->values[i]));
            CHECK(isfinite(a->values[i]) && isfinite(b->values[i]));
        }
        if (!(worst <= tolerance * largest)) TEST_FAIL("tensor %d: values differ by %g of %g", t, worst, largest);
    }
}

/* ---- law 1 ---- */

static void planned_is_unplanned(const char *name, int accumulate, double clip)
{
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        if (strcmp(tasks[i].model, name) != 0) continue;
        outcome on, off;
        const char *was = getenv("LIGHTC_PLAN");
        if (was) SKIP("LIGHTC_PLAN is set");
        train(&tasks[i], 1, accumulate, clip, (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5)}, &on);
        setenv("LIGHTC_PLAN", "off", 1);
        train(&tasks[i], 1, accumulate, clip, (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5)}, &off);
        unsetenv("LIGHTC_PLAN");
        compare(&on, &off, 1,
                2e-5); /* Adam's first update divides gradients by their own magnitude, including small ones */
        CHECK(on.stats.nodes < off.stats.nodes);
        free(on.values), free(off.values);
    }
}

TEST(planned_is_unplanned_mlp)
{
    planned_is_unplanned("mlp", 1, 0);
}
TEST(planned_is_unplanned_cnn)
{
    planned_is_unplanned("fashion", 1, 0);
}
TEST(planned_is_unplanned_gpt)
{
    planned_is_unplanned("gpt_small", 1, 0);
}
TEST(planned_is_unplanned_lstm)
{
    planned_is_unplanned("lstm", 1, 0);
}
TEST(planned_is_unplanned_resnet)
{
    planned_is_unplanned("resnet18", 1, 0);
}
TEST(planned_is_unplanned_accumulating_and_clipping)
{
    planned_is_unplanned("mlp", 3, 0.1);
    planned_is_unplanned("gpt_small", 2, 0.5);
}

/* ---- other precisions: roundings are part of what a step means, not of its plan ---- */

static const lc_dtype low_types[] = {LC_BF16, LC_F16};

/* The threads of a graph are for kernels that run on the host. */
static bool has_threads(void)
{
    const char *device = getenv("LIGHTC_ACCELERATOR");
    return !device || !strcmp(device, "cpu");
}

static void mixed(const task *t, int steps, int threads, lc_dtype dtype, outcome *o)
{
    lc_graph_args args = LC_ARGS(lc_graph, .threads = threads, .seed = 5, .deterministic = true, .autocast = dtype);
    train(t, steps, 2, 0.5, &args, o);
}

/* A rounding elsewhere would change the loss. Gradients of parameters are f32 sums, as without autocast; those of
 * parameters that are stored in 16 bits are rounded, as is the parameter. */
static void check_plan(const task *t, const lc_graph_args *args)
{
    const double tolerance = args->storage == LC_BF16 ? 0x1p-7 : args->storage == LC_F16 ? 0x1p-10 : 2e-6;
    outcome on, off;
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    train(t, 1, 2, 0.5, args, &on);
    setenv("LIGHTC_PLAN", "off", 1);
    train(t, 1, 2, 0.5, args, &off);
    unsetenv("LIGHTC_PLAN");
    if (on.loss[0] != off.loss[0])
        TEST_FAIL("%s: a loss of %.9g, and %.9g unplanned", t->model, on.loss[0], off.loss[0]);
    compare(&on, &off, 1, tolerance);
    CHECK(on.stats.nodes < off.stats.nodes);
    free(on.values), free(off.values);
}

TEST(planned_is_unplanned_in_mixed_precision)
{
    for (size_t i = 0; i < 2 * (sizeof tasks / sizeof tasks[0]); i += takes_all() ? 1 : 5)
        check_plan(&tasks[i / 2], (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5, .deterministic = true,
                                                            .autocast = low_types[i % 2])});
}

TEST(planned_is_unplanned_in_true_precision)
{
    static const lc_dtype types[] = {LC_BF16, LC_F16, LC_F64};
    for (size_t i = 0; i < 3 * (sizeof tasks / sizeof tasks[0]); i += takes_all() ? 2 : 7)
        check_plan(&tasks[i / 3],
                   (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5, .storage = types[i % 3])});
}

TEST(any_number_of_threads_in_mixed_precision)
{
    if (!has_threads()) SKIP("a device does not use them");
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i += takes_all() ? 1 : 3) {
        const task *t = &tasks[i];
        outcome one, more;
        mixed(t, 3, 1, low_types[i % 2], &one);
        for (int threads = 2; threads <= 3; threads++) {
            mixed(t, 3, threads, low_types[i % 2], &more);
            CHECK_EQ(one.n, more.n);
            if (memcmp(one.values, more.values, (size_t)one.n * sizeof *one.values) != 0)
                TEST_FAIL("%s, %s: 1 and %d threads differ", t->model, lc_dtype_name(low_types[i % 2]), threads);
            free(more.values);
        }
        free(one.values);
    }
}

/* ---- fast kernels = reference kernels ---- */

TEST(fast_kernels_are_the_reference)
{
    if (getenv("LIGHTC_KERNELS")) SKIP("LIGHTC_KERNELS is set");
    for (size_t i = 0; i + 1 < sizeof tasks / sizeof tasks[0]; i++) {
        outcome fast, reference;
        train(&tasks[i], 2, 1, 1.0, (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5)}, &fast);
        setenv("LIGHTC_KERNELS", "reference", 1);
        train(&tasks[i], 2, 1, 1.0, (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5)}, &reference);
        unsetenv("LIGHTC_KERNELS");
        for (int s = 0; s < 2; s++) CHECK_NEAR(fast.loss[s], reference.loss[s], 2e-4 * (1 + fabs(fast.loss[s])));
        free(fast.values), free(reference.values);
    }
}

/* ---- a device = the CPU ---- */

/* A simulated device runs the reference kernels (src/backends/sim/sim.h), so no bit differs from theirs on the host. */
static void check_device(const task *t, const lc_graph_args *args)
{
    enum { STEPS = 3 }; /* one that plans, one that makes a program, and one that only starts it */
    outcome sim, cpu;
    train(t, STEPS, 1, 0.5, args, &sim);
    simulate(false);
    train(t, STEPS, 1, 0.5, args, &cpu);
    simulate(true);
    CHECK_EQ(sim.n, cpu.n);
    if (memcmp(sim.loss, cpu.loss, sizeof sim.loss) != 0 ||
        memcmp(sim.values, cpu.values, (size_t)sim.n * sizeof *sim.values) != 0)
        TEST_FAIL("%s, autocast %d, storage %d: not the bits of the CPU", t->model, args->autocast, args->storage);
    free(sim.values), free(cpu.values);
}

TEST(a_simulated_device_has_the_bits_of_the_cpu)
{
    const lc_graph_args f32 = LC_ARGS(lc_graph, .threads = 1, .seed = 5);
    if (!is_simulated()) SKIP("there is no simulated device");
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        lc_graph_args others[] = {f32, f32, f32};
        others[0].autocast = others[1].storage = low_types[i % 2];
        others[2].storage = LC_F64;
        check_device(&tasks[i], &f32);
        for (size_t k = 0; k < 3; k++)
            if (takes_all() || k == i % 3) check_device(&tasks[i], &others[k]);
    }
}

/* ---- determinism ---- */

TEST(deterministic_for_any_number_of_threads)
{
    if (!has_threads()) SKIP("a device does not use them");
    for (size_t i = 0; i + 1 < sizeof tasks / sizeof tasks[0]; i++) {
        outcome one, two;
        train(&tasks[i], 3, 1, 1.0,
              (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 1, .seed = 5, .deterministic = true)}, &one);
        train(&tasks[i], 3, 1, 1.0,
              (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5, .deterministic = true)}, &two);
        CHECK_EQ(one.n, two.n);
        if (memcmp(one.values, two.values, (size_t)one.n * sizeof *one.values) != 0)
            TEST_FAIL("%s: 1 and 2 threads differ", tasks[i].model);
        free(one.values), free(two.values);
    }
}

TEST(repeated_runs_are_equal)
{
    for (size_t i = 0; i + 1 < sizeof tasks / sizeof tasks[0]; i++) {
        outcome one, two;
        train(&tasks[i], 3, 2, 0, (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5)}, &one);
        train(&tasks[i], 3, 2, 0, (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5)}, &two);
        if (memcmp(one.values, two.values, (size_t)one.n * sizeof *one.values) != 0)
            TEST_FAIL("%s: two runs differ", tasks[i].model);
        free(one.values), free(two.values);
    }
}

/* ---- law 7 ---- */

static void check_allocations(const task *t, const lc_graph_args *args)
{
    outcome o;
    if (!COUNTS_ALLOCATIONS) SKIP("a sanitizer owns the allocator");
    train(t, 3, 1, 1.0, args, &o); /* one that plans, one that finds the plan, and a steady one */
    if (o.allocations) TEST_FAIL("%s: %lld allocations in a steady step", t->model, (long long)o.allocations);
    CHECK_EQ(o.stats.misses, 1);
    free(o.values);
}

TEST(no_allocation_in_the_steady_step)
{
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
        check_allocations(&tasks[i], (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5)});
}

TEST(no_allocation_in_the_steady_step_of_any_precision)
{
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        lc_dtype low = low_types[i % 2], other = i % 3 ? low_types[(i + 1) % 2] : LC_F64;
        check_allocations(&tasks[i], (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5, .autocast = low)});
        check_allocations(&tasks[i], (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2, .seed = 5, .storage = other)});
    }
}

/* ---- the arena ---- */

TEST(arena_is_near_its_lower_bound)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        outcome o;
        train(&tasks[i], 1, 1, 0, (lc_graph_args[]){LC_ARGS(lc_graph, .threads = 2)}, &o);
        if (o.stats.planned_bytes > 1.1 * (double)o.stats.lower_bound)
            TEST_FAIL("%s: %lld bytes, lower bound %lld", tasks[i].model, (long long)o.stats.planned_bytes,
                      (long long)o.stats.lower_bound);
        free(o.values);
    }
}

TEST_MAIN
