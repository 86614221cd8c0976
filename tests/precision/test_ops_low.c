/* SPDX-License-Identifier: Apache-2.0 */
/* Every float operator in the types of 16 bits: in mixed precision, with everything stored in 16 bits, and with
 * operands to which the program has given such a type. The rows of the table of operators (check/rows_math.h,
 * check/rows_nn.h) and products of various lengths are compared with f64, within the tolerances of docs/precision.md,
 * also if operands are transposed views. Law 1 holds for them, too. */
#include "rounding.h"
#include "test.h"

#include "check/form.h"
#include "record/graph_impl.h"

#include <math.h>

enum { MOST = 20000, SIZES = 16, WIDE = 70 };

/* What the numbers of a row are computed in. */
typedef struct mode {
    const char *name;
    lc_dtype autocast, storage;
    bool fed;        /* operands come from a product, so that in mixed precision they are low */
    bool turned;     /* operands are transposed views */
    lc_dtype halves; /* of the program's operands */
} mode;

static const mode modes[] = {
    {"autocast bf16", .autocast = LC_BF16},
    {"autocast f16", .autocast = LC_F16},
    {"autocast bf16, low operands", .autocast = LC_BF16, .fed = true},
    {"autocast f16, low operands", .autocast = LC_F16, .fed = true},
    {"autocast bf16, low views", .autocast = LC_BF16, .fed = true, .turned = true},
    {"storage bf16", .storage = LC_BF16},
    {"storage f16", .storage = LC_F16},
    {"storage f16, views", .storage = LC_F16, .turned = true},
    {"storage f64", .storage = LC_F64},
    {"operands of bf16", .halves = LC_BF16},
    {"operands of f16", .halves = LC_F16},
};

static lc_dtype low_of(const mode *m)
{
    return m->autocast ? m->autocast : m->storage ? m->storage : m->halves;
}

typedef struct outcome {
    int64_t n, n_grad[FORM_INPUTS]; /* n_grad: -1 if there is none */
    double y[MOST], grad[FORM_INPUTS][MOST];
} outcome;

/* ---- operands ---- */

static bool absolute; /* operands are their absolute values: products are then sums of |a||b| */

static double draw(const form *f, int k, int64_t i, lc_dtype rounded)
{
    uint64_t key = (uint64_t)k + 77;
    double u = lc_random_uniform(key, (uint64_t)i), x;
    uint64_t bits;
    switch (f->kind[k]) {
    case 'm':
        return u > 0.5;
    case 'i':
        return (double)lc_random_below(key, (uint64_t)i, (uint64_t)f->below[k]);
    case 'p':
        x = 0.15 + 2 * u;
        break;
    case 'u':
        x = 0.05 + 0.9 * u;
        break;
    default:
        x = -3.4 + 6.8 * u;
        x += fabs(x - rint(2 * x) / 2) < 0.05 ? 0.11 : 0; /* away from kinks */
    }
    lc__set_number(&bits, rounded, 0, absolute ? fabs(x) : x);
    return lc__number_at(&bits, rounded, 0);
}

/* turned: the last two dimensions are exchanged. */
static lc_tensor *operand(const form *f, int k, lc_dtype dtype, lc_dtype rounded, bool turned)
{
    lc_tensor *t;
    shape s = f->in[k];
    if (turned && s.n > 1) s.d[s.n - 1] = f->in[k].d[s.n - 2], s.d[s.n - 2] = f->in[k].d[s.n - 1];
    lc_dtype d = f->kind[k] == 'm' ? LC_BOOL : f->kind[k] == 'i' ? LC_I64 : dtype;
    static uint64_t values[MOST];
    CHECK_OK(lc_tensor_new(d, s.n, s.d, &t));
    int64_t n = lc_tensor_numel(t);
    CHECK(n <= MOST);
    for (int64_t i = 0; i < n; i++) lc__set_number(values, d, i, draw(f, k, i, lc_dtype_is_float(d) ? rounded : d));
    CHECK_OK(lc_tensor_write(t, values, (size_t)n * lc_dtype_size(d)));
    lc_tensor_set_requires_grad(t, f->grad[k] && lc_dtype_is_float(d));
    return t;
}

/* The same numbers, as the result of a product. */
static lc_tensor *feed(lc_tensor *x)
{
    const lc_type *type = lc_tensor_type(x);
    lc_tensor *one = lc_ones(type->dtype, 1, 1);
    return lc_reshape_at(lc_matmul(lc_reshape(x, -1, 1), one), type->ndim, type->shape, LC_HERE);
}

/* Operand k of the row as the graph has it. */
static lc_tensor *given(const form *f, int k, const mode *m, lc_tensor *x)
{
    bool is_float = lc_dtype_is_float(lc_tensor_dtype(x));
    lc_tensor *y = m->fed && is_float && lc_tensor_dtype(x) == LC_F32 ? feed(x) : x;
    return m->turned && f->in[k].n > 1 ? lc_transpose(y, -1, -2) : y;
}

/* ---- one row ---- */

static void fetch(lc_tensor *t, double *to, int64_t *n)
{
    static uint64_t bytes[MOST];
    *n = lc_tensor_numel(t);
    CHECK(*n <= MOST);
    CHECK_OK(lc_tensor_read(t, bytes, (size_t)*n * lc_dtype_size(lc_tensor_dtype(t))));
    for (int64_t i = 0; i < *n; i++) to[i] = lc__number_at(bytes, lc_tensor_dtype(t), i);
}

static lc_tensor *cotangent_of(lc_tensor *y, lc_dtype rounded)
{
    form f = {.n_in = 1, .kind = {'p'}};
    f.in[0].n = lc_tensor_type(y)->ndim;
    memcpy(f.in[0].d, lc_tensor_type(y)->shape, sizeof f.in[0].d);
    return operand(&f, 0, lc_tensor_dtype(y), rounded, false);
}

/* False: the row has no numbers that could be low. */
static bool run(const form *f, const mode *m, lc_dtype dtype, bool plan, outcome *o)
{
    lc_graph *g;
    lc_tensor *in[FORM_INPUTS] = {NULL}, *fed[FORM_INPUTS] = {NULL}, *c = NULL;
    lc_dtype rounded = low_of(m) == LC_F64 ? LC_F32 : low_of(m);
    bool grad = false;
    if (dtype == LC_F64)
        CHECK_OK(lc_graph_new(&g, .threads = 1, .seed = 5, .device = "cpu"));
    else
        CHECK_OK(
            lc_graph_new(&g, .threads = 1, .seed = 5, .device = "cpu", .autocast = m->autocast, .storage = m->storage));
    g->plan_off = !plan;
    if (m->halves && dtype == LC_F32) dtype = m->halves;
    for (int k = 0; k < f->n_in; k++) in[k] = operand(f, k, dtype, rounded, m->turned);
    CHECK_OK(lc_step_begin(g, 3, 0));
    for (int k = 0; k < f->n_in; k++) fed[k] = given(f, k, m, in[k]);
    lc_tensor *y = f->build(f->row, fed);
    bool floats = lc_step_status(g) >= 0 && lc_dtype_is_float(lc_tensor_dtype(y)) && lc_tensor_numel(y) <= MOST;
    for (int k = 0; k < f->n_in; k++) grad |= lc_tensor_requires_grad(in[k]);
    if (floats && lc_tensor_dtype(y) != dtype)
        TEST_FAIL("%s, %s: the result is %s", m->name, *(const char *const *)f->row, lc_dtype_name(lc_tensor_dtype(y)));
    if (floats) lc_keep(y);
    if (floats && grad) {
        c = cotangent_of(y, rounded);
        lc_zero_grad(g);
        lc_backward(lc_sum(lc_mul(y, c)));
    }
    if (floats) CHECK_OK(lc_step_run(g));
    if (floats) fetch(y, o->y, &o->n);
    for (int k = 0; k < f->n_in; k++) {
        lc_tensor *d = floats && lc_tensor_requires_grad(in[k]) ? lc_gradient(in[k]) : NULL;
        o->n_grad[k] = -1;
        if (d) fetch(d, o->grad[k], &o->n_grad[k]);
    }
    (void)!lc_step_end(g);
    for (int k = 0; k < f->n_in; k++) lc_tensor_unref(in[k]);
    lc_tensor_unref(c);
    lc_graph_free(g);
    return floats;
}

/* The largest error, in units of rounding at the tensor's largest value. */
static double error_of(int64_t n, const double *got, const double *want, double unit)
{
    double scale = 1, worst = 0;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, isfinite(want[i]) ? fabs(want[i]) : 0);
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))) continue;
        double e = fabs(got[i] - want[i]) / (unit * scale);
        worst = isnan(e) ? INFINITY : fmax(worst, e);
    }
    return worst;
}

static const mode *current;

static void check_values(const char *name, const char *what, int k, int64_t n, const double *got, const double *want,
                         const double *unplanned, double most)
{
    double e = error_of(n, got, want, roundoff(low_of(current)));
    if (!(e <= most))
        TEST_FAIL("%s, %s: %s %d is %g roundings from f64, and %g are allowed", current->name, name, what, k, e, most);
    /* What is rounded is the same with and without a plan. A fused kernel may add up a parameter's gradient, which is
     * f32, in another order. */
    double other = error_of(n, got, unplanned, 0x1p-24);
    if (other > (most == RESULTS ? 0 : 4))
        TEST_FAIL("%s, %s: %s %d is %g roundings of f32 from that without a plan", current->name, name, what, k, other);
}

static void compare(const form *f)
{
    static outcome low, unplanned, want;
    const char *name = *(const char *const *)f->row; /* the first member of either kind of row */
    const bool any = run(f, current, LC_F64, true, &want);
    if (run(f, current, LC_F32, true, &low) != any) TEST_FAIL("%s, %s: %s", current->name, name, lc_error_message());
    if (!any) return;
    run(f, current, LC_F32, false, &unplanned);
    check_values(name, "result", 0, low.n, low.y, want.y, unplanned.y, RESULTS);
    for (int k = 0; k < f->n_in; k++)
        if (low.n_grad[k] >= 0)
            check_values(name, "the gradient of operand", k, low.n_grad[k], low.grad[k], want.grad[k],
                         unplanned.grad[k], GRADIENTS);
}

/* Every dimension of that size is wide: operands of vectors and blocks. */
static void compare_wide(const form *f, int64_t size)
{
    form wide = *f;
    for (int k = 0; k < f->n_in; k++) {
        int64_t n = 1;
        for (int d = 0; d < f->in[k].n; d++) {
            if (f->in[k].d[d] == size) wide.in[k].d[d] = WIDE;
            n *= wide.in[k].d[d];
        }
        if (n > MOST) return;
    }
    compare(&wide);
}

/* What math_rows.c and nn_rows.c do with each row. */
lc_status check_form(check *c, const form *f)
{
    (void)c;
    if (f->n_in == 1 && !f->grad[0] && f->kind[0] == 'p') return LC_OK; /* casts, which say their types themselves */
    compare(f);
    for (int64_t size = 1; size < SIZES; size++) {
        bool any = false;
        for (int k = 0; k < f->n_in; k++)
            for (int d = 0; d < f->in[k].n; d++) any |= f->in[k].d[d] == size;
        if (any) compare_wide(f, size);
    }
    return LC_OK;
}

TEST(the_table_of_operators)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i += ROUNDS(1, 3)) {
        current = &modes[i];
        CHECK_OK(check_math_rows(NULL));
        CHECK_OK(check_nn_rows(NULL));
    }
}

/* ---- products and sums of various lengths ---- */

static lc_tensor *build_matmul(const void *row, lc_tensor *const *in)
{
    (void)row;
    return lc_matmul(in[0], in[1]);
}

static lc_tensor *build_linear(const void *row, lc_tensor *const *in)
{
    (void)row;
    return lc_linear(in[0], in[1], in[2]);
}

static lc_tensor *build_conv(const void *row, lc_tensor *const *in)
{
    (void)row;
    return lc_conv2d(in[0], in[1], in[2], .padding = LC_DIMS(1, 1));
}

static lc_tensor *build_sum(const void *row, lc_tensor *const *in)
{
    (void)row;
    return lc_sum(in[0], .dims = LC_DIMS(1));
}

static void check_sums(const char *name, int64_t length, int64_t n, const double *got, const double *want,
                       const double *sums, double u)
{
    for (int64_t i = 0; i < n; i++) {
        double most = sum_error(want[i], (double)length, sums[i], u);
        if (!(fabs(got[i] - want[i]) <= most))
            TEST_FAIL("%s, %s of length %lld: element %lld is %.9g, and %.9g in f64; %g is allowed", current->name,
                      name, (long long)length, (long long)i, got[i], want[i], most);
    }
}

/* lengths: of the sums that the result and each gradient are. */
static void check_products(const char *name, const form *f, const int64_t *lengths)
{
    static outcome low, want, sums;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i += ROUNDS(1, 3)) {
        current = &modes[i];
        double u = roundoff(low_of(current));
        CHECK(run(f, current, LC_F32, true, &low));
        CHECK(run(f, current, LC_F64, true, &want));
        absolute = true;
        CHECK(run(f, current, LC_F64, true, &sums));
        absolute = false;
        check_sums(name, lengths[0], low.n, low.y, want.y, sums.y, u);
        /* Gradients that no operator reads are not rounded. */
        for (int k = 0; k < f->n_in; k++)
            check_sums(name, lengths[k + 1], low.n_grad[k], low.grad[k], want.grad[k], sums.grad[k],
                       current->fed || current->halves ? u : 0);
    }
}

TEST(products_and_sums)
{
    static const int64_t lengths[] = {1, 2, 7, 64, 300, 2000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t n = lengths[i], c = n < 9 ? 1 : n / 9;
        form inner = {2, {{2, {9, n}}, {2, {n, 7}}}, "nn", .grad = {true, true}, .build = build_matmul};
        form outer = {
            3, {{2, {n, 9}}, {2, {7, 9}}, {1, {7}}}, "nnn", .grad = {true, true, true}, .build = build_linear};
        form conv = {3,
                     {{4, {2, c, 5, 6}}, {4, {4, c, 3, 3}}, {1, {4}}},
                     "nnn",
                     .grad = {true, true, true},
                     .build = build_conv};
        form sum = {1, {{2, {5, n}}}, "n", .grad = {true}, .build = build_sum};
        check_products("matmul", &inner, (int64_t[]){n, 7, 9});
        check_products("linear", &outer, (int64_t[]){9 + 1, 7, n, n});
        if (2 * c * 30 <= MOST && 4 * c * 9 <= MOST) check_products("conv", &conv, (int64_t[]){9 * c + 1, 36, 60, 60});
        check_products("sum", &sum, (int64_t[]){n, 1});
    }
}

TEST_MAIN
