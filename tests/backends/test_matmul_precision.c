/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 from numbers of bf16 (float32_matmul_precision), on machines with units for matrices: the error is in
 * proportion to the sum of |a| |b|, 2^-16 of it with high and 2^-8 with medium. */
#include "test.h"

#include "backends/backends.h"
#include "backends/cpu/isa.h"
#include "ops/ops.h"
#include "record/graph_impl.h"

#include <float.h>
#include <lightc/lightc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { M = 192, K = 200, N = 112 };

static float a[M * K], b[K * N], bias[N], got[M * N], again[M * N];

static float number(uint64_t i)
{
    return (float)lc_random_normal(3, i);
}

static void fill(void)
{
    for (uint64_t i = 0; i < M * K; i++) a[i] = number(i);
    for (uint64_t i = 0; i < K * N; i++) b[i] = number(100000 + i);
    for (uint64_t i = 0; i < N; i++) bias[i] = number(200000 + i);
}

/* The largest error of c = a b, as a part of the sum of |a| |b|. b is [K,N], or [N,K] if `transposed`. */
static double error_of(const float *c, bool transposed, const float *plus, bool relu)
{
    double worst = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = plus ? plus[j] : 0, size = plus ? fabs(plus[j]) : 0;
            for (int k = 0; k < K; k++) {
                const double p = (double)a[i * K + k] * (transposed ? b[j * K + k] : b[k * N + j]);
                sum += p;
                size += fabs(p);
            }
            if (relu && sum < 0) sum = 0;
            worst = fmax(worst, fabs(c[i * N + j] - sum) / size);
        }
    return worst;
}

static void run_kernel(lc_call *call, const lc_kernel *kernel, float *out)
{
    call->kernel = kernel;
    call->out[0].data = out;
    CHECK_OK(kernel->prepare(call));
    call->scratch = aligned_alloc(256, (call->scratch_bytes + 255) & ~(size_t)255);
    CHECK(call->scratch != NULL);
    kernel->run(call);
    kernel->release(call);
    free(call->scratch);
}

static void need_units(void)
{
    if (!lc__isa_find("amx")) SKIP("this machine has no units for matrices");
}

static const lc_kernel *lower(const lc_call *call)
{
    return lc__isa_kernel(lc__isa_find("amx"), call);
}

TEST(errors_are_those_of_the_precision)
{
    static const lc_matmul_precision precisions[] = {LC_MATMUL_HIGH, LC_MATMUL_MEDIUM};
    static const double bounds[] = {0x1p-16, 0x1p-8};
    need_units();
    fill();
    for (int p = 0; p < 2; p++) {
        lc_view in[2] = {{a, LC_F32, 2, {M, K}, {K, 1}}, {b, LC_F32, 2, {K, N}, {N, 1}}};
        lc_view out = {got, LC_F32, 2, {M, N}, {N, 1}};
        lc_call call = {.op = &lc__op_matmul,
                        .n_in = 2,
                        .n_out = 1,
                        .in = in,
                        .out = &out,
                        .threads = 1,
                        .matmul_precision = precisions[p]};
        const lc_kernel *kernel = lower(&call);
        run_kernel(&call, kernel, got);
        const double error = error_of(got, false, NULL, false);
        CHECK(error <= bounds[p] && error > bounds[p] / 1024);
        call.threads = 2;
        run_kernel(&call, kernel, again);
        CHECK(!memcmp(got, again, sizeof got));
        call.accumulate = true;
        for (int i = 0; i < M * N; i++) again[i] = got[i];
        run_kernel(&call, kernel, again);
        for (int i = 0; i < M * N; i++) again[i] -= got[i];
        CHECK(error_of(again, false, NULL, false) <= 2 * bounds[p]);
    }
}

/* [batch,rows,columns] of `data`, or as many matrices that are stored by columns. */
static lc_view matrices(float *data, int64_t batch, int64_t rows, int64_t columns, bool turned)
{
    lc_view v = {data, LC_F32, 3, {batch, rows, columns}, {rows * columns, columns, 1}};
    if (turned) v.stride[1] = 1, v.stride[2] = rows;
    return v;
}

static double element(const lc_view *v, int64_t matrix, int64_t i, int64_t j)
{
    return ((const float *)v->data)[matrix * v->stride[0] + i * v->stride[1] + j * v->stride[2]];
}

static double worst_error(const lc_view *x, const lc_view *y, const lc_view *z)
{
    double worst = 0;
    for (int64_t n = 0; n < z->shape[0]; n++)
        for (int64_t i = 0; i < z->shape[1]; i++)
            for (int64_t j = 0; j < z->shape[2]; j++) {
                double sum = 0, size = 1e-30;
                for (int64_t k = 0; k < x->shape[2]; k++) {
                    const double p = element(x, n, i, k) * element(y, n, k, j);
                    sum += p;
                    size += fabs(p);
                }
                worst = fmax(worst, fabs(element(z, n, i, j) - sum) / size);
            }
    return worst;
}

/* Some sizes are smaller than a tile, some are tiles, and some need several blocks. Small products gain nothing from
 * halves, and are left to f32. */
TEST(any_shape_and_layout)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 1},      {1, 3, 5, 7},       {2, 33, 31, 17}, {3, 16, 32, 16},
                                       {1, 40, 1300, 50}, {1, 150, 33, 70},   {5, 64, 64, 33}, {1, 131, 33, 133},
                                       {2, 260, 70, 90},  {1, 150, 1300, 120}};
    need_units();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s][0], m = sizes[s][1], k = sizes[s][2], columns = sizes[s][3];
        float *x = malloc((size_t)(n * m * k) * sizeof *x), *y = malloc((size_t)(n * k * columns) * sizeof *y);
        float *z = malloc((size_t)(n * m * columns) * sizeof *z);
        CHECK(x && y && z);
        for (int64_t i = 0; i < n * m * k; i++) x[i] = number((uint64_t)i);
        for (int64_t i = 0; i < n * k * columns; i++) y[i] = number(500000 + (uint64_t)i);
        for (int how = 0; how < 8; how++) {
            lc_view in[2] = {matrices(x, n, m, k, how & 1), matrices(y, n, k, columns, how & 2)};
            lc_view out = matrices(z, n, m, columns, false);
            lc_call call = {.op = &lc__op_matmul,
                            .n_in = 2,
                            .n_out = 1,
                            .in = in,
                            .out = &out,
                            .threads = 2,
                            .matmul_precision = how & 4 ? LC_MATMUL_MEDIUM : LC_MATMUL_HIGH};
            const lc_kernel *kernel = lower(&call);
            const bool splits = kernel && !strcmp(kernel->name, "product_amx");
            CHECK_EQ(splits, (how & 4) || m * columns >= 64 * (m + columns));
            if (!splits) continue;
            run_kernel(&call, kernel, z);
            const double error = worst_error(&in[0], &in[1], &out);
            if (!(error <= (how & 4 ? 0x1p-7 : 0x1p-15)))
                TEST_FAIL("%lld times %lld x %lld x %lld, %d: an error of %g", (long long)n, (long long)m, (long long)k,
                          (long long)columns, how, error);
        }
        free(x), free(y), free(z);
    }
}

/* Whether c may be x * y, whose parts are rounded: infinities and NaN are exact, and what is finite stays finite. */
static bool is_product(float c, float x, float y)
{
    const double want = (double)x * y;
    if (isnan(want)) return isnan(c);
    if (isinf(want) || fabs(want) > (double)FLT_MAX) return (double)c == copysign(INFINITY, want);
    return fabs(c - want) <= 0x1p-15 * fabs(want);
}

/* The largest numbers have an upper part that would be rounded to infinity. */
TEST(numbers_that_are_not_finite_or_nearly_so)
{
    need_units();
    enum { S = 128, DEPTH = 40 };
    static const float numbers[] = {INFINITY,     -INFINITY,  NAN, FLT_MAX, -FLT_MAX, 3.4e38f, 0x1.fep127f,
                                    -0x1.ffp127f, 1.2345678f, -1,  1e-3f,   0,        0.9999f, 1};
    enum { COUNT = sizeof numbers / sizeof *numbers };
    static float x[S * DEPTH], y[DEPTH * S], z[S * S];
    for (int how = 0; how < 4; how++) {
        lc_view in[2] = {matrices(x, 1, S, DEPTH, how & 1), matrices(y, 1, DEPTH, S, how & 2)};
        lc_view out = matrices(z, 1, S, S, false);
        lc_call call = {.op = &lc__op_matmul,
                        .n_in = 2,
                        .n_out = 1,
                        .in = in,
                        .out = &out,
                        .threads = 1,
                        .matmul_precision = LC_MATMUL_HIGH};
        const int k = 37;
        for (int i = 0; i < S; i++) {
            x[i * in[0].stride[1] + k * in[0].stride[2]] = numbers[i % COUNT];
            y[k * in[1].stride[1] + i * in[1].stride[2]] = numbers[i % COUNT];
        }
        run_kernel(&call, lower(&call), z);
        for (int i = 0; i < S; i++)
            for (int j = 0; j < S; j++)
                if (!is_product(z[i * S + j], numbers[i % COUNT], numbers[j % COUNT]))
                    TEST_FAIL("%d: %.9g times %.9g is %.9g", how, (double)numbers[i % COUNT],
                              (double)numbers[j % COUNT], (double)z[i * S + j]);
        memset(x, 0, sizeof x);
        memset(y, 0, sizeof y);
    }
}

/* A fused gelu is computed from the sums, which are f32. */
TEST(gelu_follows_a_product)
{
    need_units();
    fill();
    lc_view in[3] = {{a, LC_F32, 2, {M, K}, {K, 1}}, {b, LC_F32, 2, {N, K}, {K, 1}}, {bias, LC_F32, 1, {N}, {1}}};
    lc_view out[2] = {{again, LC_F32, 2, {M, N}, {N, 1}}, {got, LC_F32, 2, {M, N}, {N, 1}}};
    lc_call call = {.op = &lc__op_linear_gelu,
                    .n_in = 3,
                    .n_out = 2,
                    .in = in,
                    .out = out,
                    .n_int = 1,
                    .ints = (const int64_t[]){0},
                    .threads = 1,
                    .matmul_precision = LC_MATMUL_HIGH};
    run_kernel(&call, lower(&call), again);
    CHECK(error_of(got, true, bias, false) <= 0x1p-16);
    for (int i = 0; i < M * N; i++) {
        const double x = got[i], want = 0.5 * x * (1 + erf(x * sqrt(0.5)));
        CHECK(fabs(again[i] - want) <= 1e-5 * (1 + fabs(want)));
    }
}

TEST(linear_adds_its_bias_and_activates)
{
    static const int64_t ints[] = {1};
    need_units();
    fill();
    lc_view in[3] = {{a, LC_F32, 2, {M, K}, {K, 1}}, {b, LC_F32, 2, {N, K}, {K, 1}}, {bias, LC_F32, 1, {N}, {1}}};
    lc_view out = {got, LC_F32, 2, {M, N}, {N, 1}};
    lc_call call = {.op = &lc__op_linear,
                    .n_in = 3,
                    .n_out = 1,
                    .in = in,
                    .out = &out,
                    .n_int = 1,
                    .ints = ints,
                    .threads = 1,
                    .matmul_precision = LC_MATMUL_HIGH};
    run_kernel(&call, lower(&call), got);
    CHECK(error_of(got, true, bias, true) <= 0x1p-16);
}

/* The plan of a graph whose device gains from lower products has this kernel. */
TEST(a_graph_computes_in_its_precision)
{
    lc_graph *g;
    lc_tensor *x, *y;
    fill();
    CHECK_OK(lc_graph_new(&g, .threads = 1, .matmul_precision = LC_MATMUL_HIGH, .device = "cpu"));
    if (g->products == LC_MATMUL_HIGHEST) g->products = LC_MATMUL_HIGH; /* as on a machine with units for matrices */
    CHECK_OK(lc_tensor_new(LC_F32, 2, (const int64_t[]){M, K}, &x));
    CHECK_OK(lc_tensor_new(LC_F32, 2, (const int64_t[]){K, N}, &y));
    CHECK_OK(lc_tensor_write(x, a, sizeof a));
    CHECK_OK(lc_tensor_write(y, b, sizeof b));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *z = lc_keep(lc_matmul(x, y));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(z, got, sizeof got));
    const char *kernel = g->plans[g->n_plans - 1]->calls[0].call.kernel->name;
    const double error = error_of(got, false, NULL, false);
    CHECK_OK(lc_step_end(g));
    lc_tensor_unref(x);
    lc_tensor_unref(y);
    lc_graph_free(g);
    if (getenv("LIGHTC_KERNELS") || strcmp(kernel, "product_amx") != 0) SKIP("this machine has no units for matrices");
    CHECK(error <= 0x1p-16 && error > 0x1p-26);
}

/* A square of two operands is not taken for their product. */
TEST(other_operators_compute_in_f32)
{
    enum { SIDE = 64 };
    lc_graph *g;
    lc_tensor *x, *y;
    fill();
    CHECK_OK(lc_graph_new(&g, .threads = 1, .matmul_precision = LC_MATMUL_HIGH, .device = "cpu"));
    if (g->products == LC_MATMUL_HIGHEST) g->products = LC_MATMUL_HIGH;
    CHECK_OK(lc_tensor_new(LC_F32, 2, (const int64_t[]){SIDE, SIDE}, &x));
    CHECK_OK(lc_tensor_new(LC_F32, 2, (const int64_t[]){SIDE, SIDE}, &y));
    CHECK_OK(lc_tensor_write(x, a, SIDE * SIDE * sizeof *a));
    CHECK_OK(lc_tensor_write(y, b, SIDE * SIDE * sizeof *b));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *sum = lc_keep(lc_add(x, y)), *all = lc_keep(lc_cat(0, x, y)), *tall = lc_keep(lc_pad(x, 0, 0, 1, 0));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(sum, got, SIDE * SIDE * sizeof *got));
    for (int i = 0; i < SIDE * SIDE; i++) CHECK_EQ(got[i], a[i] + b[i]);
    static float more[2 * SIDE * SIDE];
    CHECK_OK(lc_tensor_read(all, more, sizeof more));
    CHECK(!memcmp(more, a, SIDE * SIDE * sizeof *a) && !memcmp(more + SIDE * SIDE, b, SIDE * SIDE * sizeof *b));
    CHECK_OK(lc_tensor_read(tall, more, (SIDE + 1) * SIDE * sizeof *more));
    CHECK(!memcmp(more + SIDE, a, SIDE * SIDE * sizeof *a));
    CHECK_OK(lc_step_end(g));
    lc_tensor_unref(x);
    lc_tensor_unref(y);
    lc_graph_free(g);
}

TEST(a_graph_without_units_computes_in_f32)
{
    lc_graph *g;
    setenv("LIGHTC_ISA", "base", 1);
    CHECK_OK(lc_graph_new(&g, .matmul_precision = LC_MATMUL_MEDIUM, .device = "cpu"));
    CHECK_EQ(g->products, LC_MATMUL_HIGHEST);
    lc_graph_free(g);
    CHECK_EQ(lc_graph_new(&g, .matmul_precision = (lc_matmul_precision)3), LC_ERR_ARGUMENT);
}

TEST_MAIN
