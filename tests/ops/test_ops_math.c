/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of lightc/ops_math.h.
 *
 * The rows are those of check/rows_math.h. Every one is
 * checked forward (if there is a formula), backward against central differences in f64, in f32 against f64, and
 * elementwise ones with channels-last operands as well. Ties, NaN, integers, views and messages are in
 * test_ops_cases.c. */
#include "op_values.h"

#include "check/rows_math.h"
#include "device/device.h"
#include "ops/fused.h"
#include "ops/ops.h"

static int64_t numel(const shape *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->n; d++) n *= s->d[d];
    return n;
}

static int operands(const row *r)
{
    return (int)strlen(r->domain);
}

/* Fixed numbers that stay away from kinks (multiples of 1/2) and from each other. */
static double draw(char domain, int operand, int64_t i)
{
    double u = lc_random_uniform((uint64_t)operand + 77, (uint64_t)i);
    switch (domain) {
    case 'p':
        return 0.15 + 2 * u;
    case 'u':
        return 0.05 + 0.9 * u;
    case 'm':
        return u > 0.5;
    case 'i':
        return floor(3 * u);
    default:
        break;
    }
    double x = -3.4 + 6.8 * u, kink = rint(2 * x) / 2;
    return fabs(x - kink) < 0.02 ? x + 0.05 : x;
}

/* A case set up in one data type and layout. */
typedef struct bench {
    const row *r;
    lc_graph *g;
    lc_tensor *in[MAX_IN], *cotangent;
    double values[MAX_IN][MAX_N];
    lc_type out;
} bench;

static lc_tensor *build(const bench *b)
{
    return b->r->build(b->in[0], b->in[1], b->in[2]);
}

static void set_up(bench *b, const row *r, lc_dtype dtype, lc_layout layout)
{
    memset(b, 0, sizeof *b);
    b->r = r;
    CHECK_OK(lc_graph_new(&b->g, .threads = 1));
    for (int k = 0; k < operands(r); k++) {
        char c = r->domain[k];
        lc_dtype d = c == 'm' ? LC_BOOL : c == 'i' ? LC_I64 : dtype;
        lc_layout l = r->in[k].n >= 3 ? layout : LC_ROW_MAJOR;
        CHECK_OK(lc_tensor_new_layout(d, r->in[k].n, r->in[k].d, l, &b->in[k]));
        for (int64_t i = 0; i < numel(&r->in[k]); i++) {
            b->values[k][i] = draw(c, k, i);
            if (d == LC_F32 || d == LC_F64) b->values[k][i] = (double)(float)b->values[k][i];
        }
        fill(b->in[k], b->values[k]);
        if (lc_dtype_is_float(d) && !(r->flags & NO_GRAD)) lc_tensor_set_requires_grad(b->in[k], true);
    }
    CHECK_OK(lc_step_begin(b->g, 0, 0));
    lc_tensor *y = build(b);
    if (lc_tensor_is_error(y)) TEST_FAIL("%s: %s", r->name, lc_step_status(b->g) < 0 ? lc_error_message() : "?");
    b->out = *lc_tensor_type(y);
    CHECK_OK(lc_step_end(b->g));
    CHECK_OK(lc_tensor_new(lc_dtype_is_float(b->out.dtype) ? b->out.dtype : LC_F32, b->out.ndim, b->out.shape,
                           &b->cotangent));
    double c[MAX_N];
    CHECK(lc_tensor_numel(b->cotangent) <= MAX_N);
    for (int64_t i = 0; i < lc_tensor_numel(b->cotangent); i++) c[i] = draw('n', 9, i);
    fill(b->cotangent, c);
}

static void tear_down(bench *b)
{
    for (int k = 0; k < MAX_IN; k++) lc_tensor_unref(b->in[k]);
    lc_tensor_unref(b->cotangent);
    lc_graph_free(b->g);
}

static void check_step(const bench *b)
{
    if (lc_step_status(b->g) < 0) TEST_FAIL("%s: %s", b->r->name, lc_error_message());
}

static void forward(bench *b, double *y)
{
    CHECK_OK(lc_step_begin(b->g, 0, 0));
    lc_no_grad_begin();
    lc_tensor *t = build(b);
    lc_no_grad_end();
    check_step(b);
    fetch(t, y);
    CHECK_OK(lc_step_end(b->g));
}

/* Gradients of sum(y * cotangent). */
static void backward(bench *b, double grads[MAX_IN][MAX_N])
{
    CHECK_OK(lc_step_begin(b->g, 0, 0));
    lc_zero_grad(b->g);
    lc_tensor *loss = lc_sum(lc_mul(build(b), b->cotangent));
    lc_backward(loss);
    CHECK_OK(lc_step_run(b->g));
    check_step(b);
    for (int k = 0; k < operands(b->r); k++) {
        if (!lc_tensor_requires_grad(b->in[k])) continue;
        lc_tensor *d = lc_gradient(b->in[k]);
        if (!d) TEST_FAIL("%s: no gradient reached operand %d", b->r->name, k);
        fetch(d, grads[k]);
    }
    CHECK_OK(lc_step_end(b->g));
}

/* sum(y * cotangent) in f64. */
static double objective(bench *b)
{
    double y[MAX_N], c[MAX_N], sum = 0;
    forward(b, y);
    fetch(b->cotangent, c);
    for (int64_t i = 0; i < lc_tensor_numel(b->cotangent); i++) sum += y[i] * c[i];
    return sum;
}

static void compare(const row *r, const char *what, int64_t n, const double *got, const double *want, double tol)
{
    double max = 1;
    for (int64_t i = 0; i < n; i++) max = fmax(max, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tol * max))
            TEST_FAIL("%s: %s, element %lld: got %.12g, wanted %.12g", r->name, what, (long long)i, got[i], want[i]);
}

/* Element i of a broadcast operand for logical element `at` of the result. */
static double operand_at(const bench *b, int k, int64_t at)
{
    const shape *s = &b->r->in[k];
    int64_t offset = 0, stride = 1;
    for (int d = b->out.ndim - 1, own = s->n - 1; own >= 0; d--, own--) {
        int64_t i = at % b->out.shape[d];
        at /= b->out.shape[d];
        if (s->d[own] != 1) offset += i * stride;
        stride *= s->d[own];
    }
    return b->values[k][offset];
}

static void check_formula(bench *b, double tol)
{
    double got[MAX_N], want[MAX_N];
    int64_t n = lc_tensor_numel(b->cotangent);
    forward(b, got);
    for (int64_t i = 0; i < n; i++) {
        double v[MAX_IN] = {0};
        for (int k = 0; k < operands(b->r); k++) v[k] = operand_at(b, k, i);
        want[i] = b->r->formula(v[0], v[1], v[2]);
    }
    compare(b->r, "forward", n, got, want, tol);
}

static double grads_64[MAX_IN][MAX_N], grads_32[MAX_IN][MAX_N];

static void check_differences(bench *b)
{
    const double h = 1e-5;
    backward(b, grads_64);
    for (int k = 0; k < operands(b->r); k++) {
        if (!lc_tensor_requires_grad(b->in[k])) continue;
        double want[MAX_N], *v = b->values[k];
        int64_t n = numel(&b->r->in[k]);
        for (int64_t i = 0; i < n; i++) {
            double x = v[i];
            v[i] = x + h;
            fill(b->in[k], v);
            double up = objective(b);
            v[i] = x - h;
            fill(b->in[k], v);
            want[i] = (up - objective(b)) / (2 * h);
            v[i] = x;
        }
        fill(b->in[k], v);
        char what[32];
        snprintf(what, sizeof what, "gradient of operand %d", k);
        compare(b->r, what, n, grads_64[k], want, 1e-7);
    }
}

static void check_row(const row *r)
{
    bench b, f;
    double y64[MAX_N], y32[MAX_N];
    set_up(&b, r, LC_F64, LC_ROW_MAJOR);
    if (r->formula) check_formula(&b, 1e-12);
    if (!(r->flags & NO_GRAD)) check_differences(&b);
    forward(&b, y64);
    int64_t n = lc_tensor_numel(b.cotangent);

    for (int layout = LC_ROW_MAJOR; layout <= LC_CHANNELS_LAST; layout++) {
        set_up(&f, r, LC_F32, (lc_layout)layout);
        forward(&f, y32);
        compare(r, layout ? "f32, channels last" : "f32", n, y32, y64, 2e-6);
        if (!(r->flags & NO_GRAD)) {
            backward(&f, grads_32);
            for (int k = 0; k < operands(r); k++)
                if (lc_tensor_requires_grad(f.in[k]))
                    compare(r, layout ? "gradient in f32, channels last" : "gradient in f32", numel(&r->in[k]),
                            grads_32[k], grads_64[k], 2e-6);
        }
        tear_down(&f);
    }
    tear_down(&b);
}

TEST(table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_row(&rows[i]);
}

CASE(cast, lc_cast(lc_mul(lc_cast(x, LC_F64), lc_cast(x, LC_F64)), LC_F32))

/* The results of a cast are f32 whatever its operand is. */
TEST(cast_gradient)
{
    row r = C(cast, {S(2, 3)}, "n");
    bench b;
    set_up(&b, &r, LC_F32, LC_ROW_MAJOR);
    backward(&b, grads_32);
    for (int i = 0; i < 6; i++) {
        double c = (double)(float)draw('n', 9, i);
        CHECK_NEAR(grads_32[0][i], 2 * b.values[0][i] * c, 1e-5);
    }
    tear_down(&b);
}

/* The table of elementwise operators numbers them for fused programs. */
TEST(elementwise_index)
{
    for (int i = 0; i < lc__elementwise_count; i++) {
        CHECK_EQ(lc__elementwise_index(lc__elementwise_table[i]), i);
        CHECK(lc__elementwise_table[i]->flags & LC_OP_ELEMENTWISE);
        CHECK(lc__elementwise_table[i]->n_out == 1 && lc__elementwise_table[i]->kernel);
    }
    CHECK_EQ(lc__elementwise_index(&lc__op_sum), -1);
}

static bool is_collective(const lc_op *op)
{
#define IS(name) op == &lc__op_##name ||
    return LC_OPS_COMM_LIST(IS) false;
#undef IS
}

/* Every operator is found by its name and is implemented: as a view, by a kernel, or by nodes of the planner. */
TEST(operator_table)
{
    for (const lc_op *const *at = lc__math_ops; *at; at++) {
        const lc_op *op = *at;
        if (lc__op_find(op->name) != op) TEST_FAIL("two operators are called %s", op->name);
        bool works = op->flags & LC_OP_VIEW ? (const void *)op->view != NULL : op->kernel && op->kernel->run;
        if ((!op->infer && op != &lc__op_fused) || works == is_collective(op))
            TEST_FAIL("%s lacks its functions", op->name);
        if ((op->flags & LC_OP_NO_GRAD) && op->grad) TEST_FAIL("%s has a gradient despite LC_OP_NO_GRAD", op->name);
    }
    CHECK(lc__op_find("no such operator") == NULL);
}

TEST_MAIN
