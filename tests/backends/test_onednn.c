/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN's kernels and the reference kernels against plain loops in double: every candidate for a call, on one and two
 * threads, deterministic and not, accumulating and not. To add a case: a line in the tables of the tests below. */
#include "test.h"
#include "backends/cpu/onednn/onednn.h"
#include "ops/ops.h"

#include <stdint.h>

static uint64_t random_state = 1;

static float random_float(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 40) / (double)(1 << 24) - 0.5);
}

/* The kernel that the call gets. */
static const lc_kernel *find(const lc_call *call)
{
    const lc_kernel *best = NULL;
    int n;
    CHECK_OK(lc__onednn_candidates(call, 1, &best, &n));
    CHECK(n == (best != NULL));
    return best;
}

/* Skips the test if this build lacks the kernels. */
static void need_onednn(void)
{
    float data[4] = {0};
    lc_view in[2] = {{data, LC_F32, 2, {2, 2}, {2, 1}}, {data, LC_F32, 2, {2, 2}, {2, 1}}}, out = in[0];
    lc_call call = {.op = &lc__op_matmul, .n_in = 2, .n_out = 1, .in = in, .out = &out, .threads = 1};
    if (!find(&call)) SKIP("built without oneDNN");
}

/* ---- operands ---- */
#define GUARD 64

/* A view of its own memory with random numbers. `order` names the dimensions from the slowest to the fastest; if `pad`
 * every stride is a little larger than dense. */
static lc_view make_view(int ndim, const int64_t *shape, const int *order, int64_t pad)
{
    lc_view v = {NULL, LC_F32, ndim, {0}, {0}};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        int d = order ? order[i] : i;
        v.shape[d] = shape[d];
        v.stride[d] = stride;
        stride = stride * shape[d] + (i == ndim - 1 ? pad : 0);
    }
    int64_t n = stride + GUARD;
    float *data = aligned_alloc(64, ((size_t)n * sizeof(float) + 63) & ~(size_t)63);
    if (!data) abort();
    for (int64_t i = 0; i < n; i++) data[i] = random_float();
    v.data = data;
    return v;
}

static lc_view channels_last(int ndim, const int64_t *shape)
{
    int order[LC_MAX_DIMS] = {0};
    for (int i = 1; i < ndim - 1; i++) order[i] = i + 1;
    order[ndim - 1] = 1;
    return make_view(ndim, shape, order, 0);
}

static lc_view none(void)
{
    return (lc_view){NULL, LC_F32, -1, {0}, {0}};
}

static double at(const lc_view *v, const int64_t *index)
{
    int64_t offset = 0;
    for (int i = 0; i < v->ndim; i++) offset += (v->shape[i] == 1 ? 0 : index[i]) * v->stride[i];
    return ((const float *)v->data)[offset];
}

static bool next_index(const lc_view *v, int64_t *index)
{
    for (int i = v->ndim - 1; i >= 0; i--) {
        if (++index[i] < v->shape[i]) return true;
        index[i] = 0;
    }
    return false;
}

static int64_t count(const lc_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->ndim; i++) n *= v->shape[i];
    return n;
}

static double activate(double x, int64_t activation)
{
    return activation == 1 ? (x > 0 ? x : 0) : activation == 2 ? tanh(x) : activation == 3 ? 1 / (1 + exp(-x)) : x;
}

/* ---- running ---- */
#define BEYOND 4096 /* bytes after the workspace, which must not change */

static void run_kernel(lc_call *call)
{
    CHECK_OK(call->kernel->prepare(call));
    CHECK(call->scratch_bytes % 64 == 0);
    call->scratch = call->scratch_bytes ? aligned_alloc(64, call->scratch_bytes + BEYOND) : NULL;
    CHECK(!call->scratch_bytes || call->scratch);
    if (call->scratch) memset(call->scratch, 0xff, call->scratch_bytes + BEYOND);
    const char *impl = lc__onednn_impl(call);
    CHECK(*impl && !strstr(impl, "ref"));
    call->kernel->run(call);
    for (size_t i = 0; call->scratch && i < BEYOND; i++)
        if (((unsigned char *)call->scratch)[call->scratch_bytes + i] != 0xff)
            TEST_FAIL("%s (%s) writes %zu bytes after its workspace of %zu", call->op->name, impl, i + 1,
                      call->scratch_bytes);
}

static void end_kernel(lc_call *call)
{
    free(call->scratch);
    call->scratch = NULL;
    call->kernel->release(call);
}

static void compare(const char *what, const lc_call *call, const char *impl, int way, const double *want, double tol)
{
    const lc_view *out = &call->out[0];
    int64_t index[LC_MAX_DIMS] = {0}, i = 0;
    do {
        double w = want[i++] + (call->accumulate ? 0.5 : 0);
        if (!(fabs(at(out, index) - w) <= tol * (1 + fabs(w))))
            TEST_FAIL("%s: %s (%s), way %d: element %lld is %g, wanted %g", what, call->kernel->name, impl, way,
                      (long long)(i - 1), at(out, index), w);
    } while (next_index(out, index));
}

/* Runs the reference kernel, then every candidate in every way, and compares with `want` (minus what accumulation
 * adds). */
static void check_all(const char *what, lc_call *call, const double *want, double tol)
{
    lc_view *out = &call->out[0];
    int64_t n = count(out);
    float *data = out->data;
    int tried = 0;
    call->threads = 1;
    call->accumulate = false;
    call->kernel = call->op->kernel;
    if (call->kernel->prepare) CHECK_OK(call->kernel->prepare(call));
    call->scratch = call->scratch_bytes ? aligned_alloc(64, (call->scratch_bytes + 63) & ~(size_t)63) : NULL;
    for (int64_t i = 0; i < n; i++) data[i] = 77.0f;
    call->kernel->run(call);
    compare(what, call, "", 0, want, tol);
    free(call->scratch);
    if (call->kernel->release) call->kernel->release(call);
    call->scratch_bytes = 0;
    for (int way = 0; way < 8; way++) {
        call->threads = way & 1 ? 2 : 1;
        call->deterministic = way & 2;
        call->accumulate = way & 4;
        const lc_kernel *found[LC_ONEDNN_MAX_CANDIDATES];
        int n_found;
        CHECK_OK(lc__onednn_candidates(call, LC_ONEDNN_MAX_CANDIDATES, found, &n_found));
        if (n_found < 1) TEST_FAIL("%s: no kernel, way %d", what, way);
        for (int k = 0; k < n_found; k++) {
            call->kernel = found[k];
            if (call->accumulate && !(call->kernel->flags & LC_KERNEL_ACCUMULATES)) continue;
            tried++;
            for (int64_t i = 0; i < n + GUARD / 2; i++) data[i] = i < n && call->accumulate ? 0.5f : 77.0f;
            run_kernel(call);
            /* A second time: nothing may be left from the first. */
            for (int64_t i = 0; i < n && call->accumulate; i++) data[i] = 0.5f;
            memset(call->scratch ? call->scratch : data, 0xff, call->scratch ? call->scratch_bytes : 0);
            call->kernel->run(call);
            compare(what, call, lc__onednn_impl(call), way, want, tol);
            for (int64_t j = n; j < n + GUARD / 2; j++) CHECK(data[j] == 77.0f);
            end_kernel(call);
        }
    }
    CHECK(tried >= 4);
}

/* Two threads and one give the same bits, whether determinism is requested or not. */
static void check_bits(const char *what, lc_call *call, bool deterministic)
{
    lc_view *out = &call->out[0];
    size_t bytes = (size_t)count(out) * sizeof(float);
    float *first = malloc(bytes);
    CHECK(first);
    call->deterministic = deterministic;
    call->accumulate = false;
    for (int threads = 1; threads <= 4; threads++) {
        call->threads = threads;
        call->kernel = find(call);
        CHECK(call->kernel);
        run_kernel(call);
        if (threads == 1)
            memcpy(first, out->data, bytes);
        else if (memcmp(first, out->data, bytes))
            TEST_FAIL("%s: %d threads give other bits than one", what, threads);
        end_kernel(call);
    }
    free(first);
}

/* ---- matmul and linear ---- */
/* out = x * y with numpy's broadcasting; all with the same number of dimensions. */
static double *naive_matmul(const lc_view *x, const lc_view *y, const lc_view *out)
{
    double *want = calloc((size_t)count(out), sizeof *want);
    if (!want) abort();
    int64_t index[LC_MAX_DIMS] = {0}, xi[LC_MAX_DIMS], yi[LC_MAX_DIMS], i = 0;
    int n = out->ndim;
    do {
        memcpy(xi, index, sizeof xi);
        memcpy(yi, index, sizeof yi);
        for (int64_t k = 0; k < x->shape[n - 1]; k++) {
            xi[n - 1] = yi[n - 2] = k;
            want[i] += at(x, xi) * at(y, yi);
        }
        i++;
    } while (next_index(out, index));
    return want;
}

static void matmul_case(const char *what, lc_view x, lc_view y)
{
    int64_t shape[LC_MAX_DIMS];
    int n = x.ndim;
    for (int i = 0; i < n - 2; i++) shape[i] = x.shape[i] > y.shape[i] ? x.shape[i] : y.shape[i];
    shape[n - 2] = x.shape[n - 2];
    shape[n - 1] = y.shape[n - 1];
    lc_view in[2] = {x, y}, out = make_view(n, shape, NULL, 0);
    double *want = naive_matmul(&x, &y, &out);
    lc_call call = {.op = &lc__op_matmul, .n_in = 2, .n_out = 1, .in = in, .out = &out};
    check_all(what, &call, want, 1e-4);
    free(want);
    free(x.data);
    free(y.data);
    free(out.data);
}

static lc_view mat(int64_t rows, int64_t cols, bool transposed, int64_t pad)
{
    return make_view(2, (int64_t[]){rows, cols}, transposed ? (int[]){1, 0} : (int[]){0, 1}, pad);
}

TEST(matmul_of_matrices_in_any_layout)
{
    need_onednn();
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 1},     {5, 1, 3},     {1, 9, 4},     {9, 4, 1},
                                       {3, 5, 7},    {16, 16, 16},  {64, 128, 10}, {128, 64, 10}, {10, 64, 128},
                                       {33, 65, 17}, {128, 64, 96}, {512, 31, 70}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 8; how++) {
            int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
            char what[96];
            snprintf(what, sizeof what, "%lldx%lldx%lld how %d", (long long)m, (long long)k, (long long)n, how);
            matmul_case(what, mat(m, k, how & 1, how & 4 ? 3 : 0), mat(k, n, how & 2, how & 4 ? 5 : 0));
        }
}

TEST(matmul_of_batches)
{
    need_onednn();
    matmul_case("plain batch", make_view(3, (int64_t[]){4, 5, 6}, NULL, 0),
                make_view(3, (int64_t[]){4, 6, 7}, NULL, 0));
    matmul_case("broadcast right", make_view(3, (int64_t[]){4, 5, 6}, NULL, 0),
                make_view(3, (int64_t[]){1, 6, 7}, NULL, 0));
    matmul_case("broadcast left", make_view(3, (int64_t[]){1, 5, 6}, NULL, 0),
                make_view(3, (int64_t[]){4, 6, 7}, NULL, 0));
    matmul_case("both", make_view(4, (int64_t[]){2, 1, 5, 6}, NULL, 0), make_view(4, (int64_t[]){1, 3, 6, 7}, NULL, 0));
    matmul_case("left transposed, broadcast right", make_view(3, (int64_t[]){4, 5, 6}, (int[]){0, 2, 1}, 0),
                make_view(3, (int64_t[]){1, 6, 7}, (int[]){0, 2, 1}, 0));
    matmul_case("one row each", make_view(3, (int64_t[]){4, 1, 6}, NULL, 0),
                make_view(3, (int64_t[]){1, 6, 7}, NULL, 0));
    /* Attention's heads inside packed rows: stored B,T,H,D, seen as B,H,T,D. */
    matmul_case("heads", make_view(4, (int64_t[]){2, 3, 17, 8}, (int[]){0, 2, 1, 3}, 0),
                make_view(4, (int64_t[]){2, 3, 8, 17}, (int[]){0, 3, 1, 2}, 0));
    matmul_case("heads by values", make_view(4, (int64_t[]){2, 3, 17, 17}, NULL, 0),
                make_view(4, (int64_t[]){2, 3, 17, 8}, (int[]){0, 2, 1, 3}, 0));
}

TEST(linear_with_bias_and_activation)
{
    need_onednn();
    static const int64_t sizes[][3] = {{64, 784, 128}, {64, 128, 10},  {3, 5, 7},
                                       {1, 17, 1},     {100, 240, 60}, {96, 30, 65}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int64_t activation = 0; activation < 8; activation++) {
            int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
            bool bias = activation >= 4;
            int64_t act = activation & 3;
            /* Three-dimensional x if m can be halved. */
            lc_view x = m % 2 ? mat(m, k, false, 0) : make_view(3, (int64_t[]){2, m / 2, k}, NULL, 0);
            lc_view out = m % 2 ? mat(m, n, false, 0) : make_view(3, (int64_t[]){2, m / 2, n}, NULL, 0);
            lc_view in[3] = {x, mat(n, k, false, 0), bias ? make_view(1, &n, NULL, 0) : none()};
            double *want = calloc((size_t)(m * n), sizeof *want);
            CHECK(want);
            for (int64_t r = 0; r < m; r++)
                for (int64_t c = 0; c < n; c++) {
                    double sum = bias ? at(&in[2], &c) : 0;
                    for (int64_t j = 0; j < k; j++)
                        sum += (double)((float *)x.data)[r * k + j] * at(&in[1], (int64_t[]){c, j});
                    want[r * n + c] = activate(sum, act);
                }
            lc_call call = {
                .op = &lc__op_linear, .n_in = 3, .n_out = 1, .in = in, .out = &out, .n_int = 1, .ints = &act};
            char what[96];
            snprintf(what, sizeof what, "linear %lldx%lld->%lld activation %lld bias %d", (long long)m, (long long)k,
                     (long long)n, (long long)act, bias);
            check_all(what, &call, want, 1e-4);
            free(want);
            for (int j = 0; j < 3; j++) free(in[j].data);
            free(out.data);
        }
}

/* ---- convolution ---- */
typedef struct conv_case {
    const char *name;
    int nd;
    int64_t n, in, out, groups, size[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t extra; /* rows that no window reaches (output_padding of a transposed convolution) */
} conv_case;

static const conv_case conv_cases[] = {
    {"1d", 1, 3, 4, 6, 1, {17}, {3}, {1}, {1}, {1}, 0},
    {"1d odd", 1, 2, 5, 7, 1, {23}, {4}, {2}, {3}, {2}, 0},
    {"1d long", 1, 2, 2, 3, 1, {30000}, {9}, {1}, {4}, {1}, 0},
    {"1d one channel", 1, 2, 1, 1, 1, {9}, {3}, {1}, {0}, {1}, 0},
    {"first layer", 2, 4, 1, 32, 1, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
    {"second layer", 2, 4, 32, 64, 1, {14, 14}, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 0},
    {"colors", 2, 2, 3, 16, 1, {15, 13}, {5, 3}, {1, 1}, {2, 1}, {1, 1}, 0},
    {"strided", 2, 2, 16, 32, 1, {17, 16}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 0},
    {"large stride", 2, 2, 3, 24, 1, {32, 32}, {4, 4}, {4, 4}, {0, 0}, {1, 1}, 0},
    {"stride beyond kernel", 2, 1, 4, 4, 1, {19, 19}, {2, 2}, {5, 5}, {0, 0}, {1, 1}, 0},
    {"1x1", 2, 3, 20, 24, 1, {9, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 0},
    {"1x1 stride 2", 2, 2, 64, 128, 1, {8, 8}, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 0},
    {"1x1 stride 2, colors", 2, 2, 3, 8, 1, {6, 4}, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 0},
    {"1x1 rows apart", 2, 1, 2, 3, 1, {6, 4}, {1, 1}, {2, 1}, {0, 0}, {1, 1}, 0},
    {"1x1 stride 2, 20 channels", 2, 2, 20, 24, 1, {9, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 0},
    {"1x1 image", 2, 4, 32, 48, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 0},
    {"whole image", 2, 5, 8, 12, 1, {6, 6}, {6, 6}, {1, 1}, {0, 0}, {1, 1}, 0},
    {"dilated", 2, 2, 8, 8, 1, {16, 19}, {3, 3}, {1, 1}, {2, 4}, {2, 4}, 0},
    {"dilated, strided", 2, 1, 6, 10, 1, {21, 20}, {3, 2}, {2, 3}, {2, 1}, {2, 3}, 0},
    {"groups", 2, 2, 12, 18, 3, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
    {"groups of 16", 2, 2, 64, 64, 4, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 0},
    {"depthwise", 2, 2, 24, 24, 24, {12, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
    {"depthwise multiplied", 2, 2, 6, 12, 6, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 0},
    {"odd channels", 2, 3, 17, 31, 1, {7, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
    {"deep", 2, 16, 48, 64, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
    {"many pixels", 2, 6, 64, 4, 1, {32, 32}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
    {"unreached rows", 2, 2, 6, 5, 1, {6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1},
    {"3d", 3, 2, 4, 8, 1, {5, 7, 6}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}, 0},
    {"3d groups", 3, 1, 6, 4, 2, {4, 4, 5}, {2, 2, 2}, {1, 1, 2}, {0, 1, 0}, {1, 2, 1}, 0},
};

static int64_t out_size(const conv_case *c, int i)
{
    return (c->size[i] + 2 * c->padding[i] - c->dilation[i] * (c->kernel[i] - 1) - 1) / c->stride[i] + 1;
}

typedef void conv_visit_fn(const int64_t *xi, const int64_t *wi, const int64_t *yi, void *context);

/* Calls `visit` for every product of an element of x and an element of w that is part of an element of y. */
static void conv_walk(const conv_case *c, const lc_view *w, const lc_view *y, conv_visit_fn *visit, void *context)
{
    int64_t yi[LC_MAX_DIMS] = {0}, xi[LC_MAX_DIMS], wi[LC_MAX_DIMS];
    int64_t per_group_in = c->in / c->groups, per_group_out = c->out / c->groups;
    do {
        memset(wi, 0, sizeof wi);
        do {
            if (wi[0] != 0) break;
            bool inside = true;
            for (int i = 0; i < c->nd; i++) {
                xi[2 + i] = yi[2 + i] * c->stride[i] - c->padding[i] + wi[2 + i] * c->dilation[i];
                inside &= xi[2 + i] >= 0 && xi[2 + i] < c->size[i];
            }
            if (!inside) continue;
            int64_t full[LC_MAX_DIMS];
            memcpy(full, wi, sizeof full);
            full[0] = yi[1];
            xi[0] = yi[0];
            xi[1] = yi[1] / per_group_out * per_group_in + wi[1];
            visit(xi, full, yi, context);
        } while (next_index(w, wi));
    } while (next_index(y, yi));
}

typedef struct conv_sum {
    lc_view *x, *w, *y;
    double *want;
    int which; /* 0 y, 1 x, 2 w */
} conv_sum;

static int64_t row_major(const lc_view *v, const int64_t *index)
{
    int64_t i = 0;
    for (int d = 0; d < v->ndim; d++) i = i * v->shape[d] + index[d];
    return i;
}

static void conv_visit(const int64_t *xi, const int64_t *wi, const int64_t *yi, void *context)
{
    conv_sum *s = context;
    if (s->which == 0) s->want[row_major(s->y, yi)] += at(s->x, xi) * at(s->w, wi);
    if (s->which == 1) s->want[row_major(s->x, xi)] += at(s->y, yi) * at(s->w, wi);
    if (s->which == 2) s->want[row_major(s->w, wi)] += at(s->y, yi) * at(s->x, xi);
}

static void conv_views(const conv_case *c, lc_view *x, lc_view *w, lc_view *y)
{
    int64_t xd[5] = {c->n, c->in}, wd[5] = {c->out, c->in / c->groups}, yd[5] = {c->n, c->out};
    for (int i = 0; i < c->nd; i++) {
        xd[2 + i] = c->size[i];
        wd[2 + i] = c->kernel[i];
        yd[2 + i] = out_size(c, i);
    }
    *x = channels_last(c->nd + 2, xd);
    *w = channels_last(c->nd + 2, wd);
    *y = channels_last(c->nd + 2, yd);
}

static int conv_ints(const conv_case *c, int64_t *ints)
{
    int n = 0;
    ints[n++] = c->nd;
    for (int i = 0; i < c->nd; i++) ints[n++] = c->stride[i];
    for (int i = 0; i < c->nd; i++) ints[n++] = c->padding[i];
    for (int i = 0; i < c->nd; i++) ints[n++] = c->dilation[i];
    ints[n++] = c->groups;
    return n;
}

static void conv_run(const conv_case *c, int which, int bias_and_activation, bool deterministic_only)
{
    lc_view x, w, y, bias = none();
    int64_t ints[16];
    conv_views(c, &x, &w, &y);
    int n_int = conv_ints(c, ints);
    int64_t activation = bias_and_activation & 3, channels = which == 0 ? c->out : c->in;
    if (bias_and_activation & 4) bias = make_view(1, &channels, NULL, 0);
    lc_view *out = which == 0 ? &y : which == 1 ? &x : &w;
    double *want = calloc((size_t)count(out), sizeof *want);
    CHECK(want);
    conv_sum sum = {&x, &w, &y, want, which};
    if (!deterministic_only) conv_walk(c, &w, &y, conv_visit, &sum);
    if (bias.data || activation) {
        int64_t index[LC_MAX_DIMS] = {0}, i = 0;
        do {
            if (bias.data) want[i] += at(&bias, &index[1]);
            want[i] = activate(want[i], activation);
            i++;
        } while (next_index(out, index));
    }
    lc_view in[3] = {which == 0 ? x : y, which == 2 ? x : w, bias};
    lc_call call = {.op = which == 0   ? &lc__op_conv
                          : which == 1 ? &lc__op_conv_input_grad
                                       : &lc__op_conv_weight_grad,
                    .n_in = which == 2 ? 2 : 3,
                    .n_out = 1,
                    .in = in,
                    .out = out,
                    .ints = ints};
    if (which == 0) ints[n_int++] = activation;
    for (int i = 0; i < c->nd && which; i++) ints[n_int++] = which == 1 ? c->size[i] : c->kernel[i];
    call.n_int = n_int;
    char what[96];
    snprintf(what, sizeof what, "%s (%s)", c->name, call.op->name);
    if (deterministic_only)
        for (int deterministic = 0; deterministic < 2; deterministic++) check_bits(what, &call, deterministic);
    else
        check_all(what, &call, want, 1e-4);
    free(want);
    free(x.data);
    free(w.data);
    free(y.data);
    free(bias.data);
}

#define N_CONV_CASES (sizeof conv_cases / sizeof *conv_cases)

TEST(conv_forward)
{
    need_onednn();
    for (size_t i = 0; i < N_CONV_CASES; i++) conv_run(&conv_cases[i], 0, i % 2 ? 4 : 0, false);
    for (int how = 1; how < 8; how++) {
        conv_run(&conv_cases[3], 0, how, false);
        conv_run(&conv_cases[9], 0, how, false);
    }
}

TEST(conv_input_gradient)
{
    need_onednn();
    for (size_t i = 0; i < N_CONV_CASES; i++) conv_run(&conv_cases[i], 1, i % 2 ? 4 : 0, false);
}

TEST(conv_weight_gradient)
{
    need_onednn();
    for (size_t i = 0; i < N_CONV_CASES; i++) conv_run(&conv_cases[i], 2, 0, false);
}

TEST(threads_do_not_change_results)
{
    need_onednn();
    static const int64_t sizes[][3] = {{256, 300, 128}, {4096, 64, 65},  {128, 512, 784},
                                       {97, 301, 203},  {2, 1000, 4096}, {4096, 999, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 4; how++) {
            int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
            lc_view in[2] = {mat(m, k, how & 1, 0), mat(k, n, how & 2, 0)}, out = mat(m, n, false, 0);
            lc_call call = {.op = &lc__op_matmul, .n_in = 2, .n_out = 1, .in = in, .out = &out};
            for (int deterministic = 0; deterministic < 2; deterministic++) check_bits("matmul", &call, deterministic);
            free(in[0].data);
            free(in[1].data);
            free(out.data);
        }
    static const conv_case cases[] = {
        {"conv1", 2, 20, 1, 32, 1, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
        {"conv2", 2, 20, 32, 64, 1, {14, 14}, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 0},
        {"deep", 2, 32, 128, 128, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
        {"prime batch", 2, 23, 16, 24, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int which = 0; which < 3; which++) conv_run(&cases[i], which, 0, true);
}

TEST(unsupported_calls_are_declined)
{
    need_onednn();
    lc_view in[2] = {mat(4, 4, false, 0), mat(4, 4, false, 0)}, out = mat(4, 4, false, 0);
    lc_call call = {.op = &lc__op_matmul, .n_in = 2, .n_out = 1, .in = in, .out = &out, .threads = 1};
    CHECK(find(&call));
    in[0].dtype = LC_F64;
    CHECK(!find(&call));
    in[0].dtype = LC_F32;
    in[0].stride[0] = 0; /* an expanded row: the planner makes a dense copy of it */
    CHECK(find(&call));
    in[0].stride[0] = 4;
    out.shape[0] = in[0].shape[0] = 0;
    CHECK(!find(&call));
    lc_op other = {.name = "relu", .n_out = 1};
    out.shape[0] = in[0].shape[0] = 4;
    call.op = &other;
    CHECK(!find(&call));
    free(in[0].data);
    free(in[1].data);
    free(out.data);
}

TEST_MAIN
