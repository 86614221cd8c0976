/* SPDX-License-Identifier: Apache-2.0 */
/* Fusions: each is made only if the backend has its kernel; those around linear layers give the gradients that their
 * parts give, in every kind of step. */
#include "test.h"

#include "backends/cpu/isa.h"
#include "base/number.h"
#include "bench/models.h"
#include "op_values.h"
#include "ops/fused.h"
#include "ops/ops.h"
#include "record/graph_impl.h"

/* ---- kernels that are lacking ---- */

static struct {
    const lc_op *op; /* NULL: none */
    bool (*has)(const lc_call *call);
    const lc_kernel *complete;
} lacking;

static bool supports_some(const lc_call *call)
{
    return lacking.has(call) && (!lacking.complete->supports || lacking.complete->supports(call));
}

static bool has_none(const lc_call *call)
{
    (void)call;
    return false;
}

static bool has_plain(const lc_call *call)
{
    return !call->ints[0];
}

/* The kernels of a set, but for one operator only those calls that `lacking.has` names. */
static const lc__isa *limited_set(const lc__isa *complete)
{
    enum { LISTS = 64, ENTRIES = 160 };
    static lc__kernel_entry entries[LISTS][ENTRIES];
    static const lc__kernel_entry *lists[LISTS + 1];
    static lc_kernel limited;
    static lc__isa set;
    memset(lists, 0, sizeof lists);
    lacking.complete = NULL;
    for (int i = 0; complete->lists[i]; i++) {
        int k = 0;
        for (const lc__kernel_entry *e = complete->lists[i]; e->op; e++) {
            CHECK(i < LISTS && k + 1 < ENTRIES);
            if (e->op == lacking.op && lacking.complete) continue; /* for other types */
            entries[i][k++] = *e;
            if (e->op != lacking.op) continue;
            lacking.complete = e->kernel;
            limited = *lacking.complete;
            limited.supports = supports_some;
            entries[i][k - 1].kernel = &limited;
        }
        entries[i][k] = (lc__kernel_entry){NULL, NULL};
        lists[i] = entries[i];
    }
    set = (lc__isa){complete->name, lists};
    return &set;
}

static lc_graph *graph_of(int threads, lc_dtype autocast)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = threads, .seed = 3, .autocast = autocast));
    if (lacking.op) g->kernel_set = limited_set(g->kernel_set);
    return g;
}

static lc_graph *graph(int threads)
{
    return graph_of(threads, 0);
}

/* Calls of an operator in the plans of a graph; with `activated` only those with an activation. */
static int calls_of(const lc_graph *g, const lc_op *op, bool activated)
{
    int n = 0;
    for (int i = 0; i < g->n_plans; i++)
        for (int k = 0; k < g->plans[i]->n_calls; k++) {
            const lc_call *c = &g->plans[i]->calls[k].call;
            n += c->op == op && (!activated || c->ints[op == &lc__op_conv ? c->n_int - 1 : 0]);
        }
    return n;
}

typedef struct trained {
    double loss;
    float *v; /* the parameters and buffers */
    int64_t n;
    double largest;
} trained;

static lc_status copy_out(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    trained *o = ctx;
    int64_t n = lc_tensor_numel(t->tensor);
    if (lc_tensor_dtype(t->tensor) != LC_F32) return LC_OK;
    o->v = realloc(o->v, (size_t)(o->n + n) * sizeof *o->v);
    CHECK(o->v);
    o->n += n;
    return lc_tensor_read(t->tensor, o->v + o->n - n, (size_t)n * sizeof *o->v);
}

enum { TOKENS = 256 };

/* One step of a benchmark's model. */
static trained train(lc_graph *g, const char *name)
{
    bool tokens = !strcmp(name, "gpt_small"), colors = !strcmp(name, "resnet18");
    static float pixels[4 * 784];
    static int64_t ids[TOKENS], classes[TOKENS];
    lc_tensor *x, *y;
    trained t = {0};
    for (int i = 0; i < 4 * 784; i++) pixels[i] = (float)lc_random_normal(1, (uint64_t)i);
    for (int i = 0; i < TOKENS; i++) ids[i] = i * 7 % 11, classes[i] = i * 3 % 10;
    model *m = model_new(name, NULL, 7);
    CHECK(m && lc_module_status(&m->base) == LC_OK);
    lc_optimizer *opt = lc_sgd(m, .lr = 0.05);
    CHECK_OK(lc_input_new(tokens ? LC_I64 : LC_F32, tokens ? 2 : 4,
                          tokens   ? (int64_t[]){TOKENS / 16, 16}
                          : colors ? (int64_t[]){4, 3, 16, 16}
                                   : (int64_t[]){4, 1, 28, 28},
                          LC_ROW_MAJOR, tokens ? (void *)ids : pixels, &x));
    CHECK_OK(lc_input_new(LC_I64, tokens ? 2 : 1, tokens ? (int64_t[]){TOKENS / 16, 16} : (int64_t[]){4}, LC_ROW_MAJOR,
                          classes, &y));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *loss = lc_keep(model_loss(m, x, y));
    lc_zero_grad(g);
    lc_backward(loss);
    lc_optimizer_step(opt);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_item(loss, &t.loss));
    CHECK_OK(lc_step_end(g));
    CHECK_OK(lc_module_visit(&m->base, copy_out, &t));
    for (int64_t i = 0; i < t.n; i++) t.largest = fmax(t.largest, fabs((double)t.v[i]));
    lc_optimizer_free(opt);
    model_free(m);
    lc_tensor_unref(x), lc_tensor_unref(y);
    return t;
}

static void check_same(const trained *a, const trained *b, const char *what)
{
    CHECK_EQ(a->n, b->n);
    CHECK_NEAR(a->loss, b->loss, 1e-5 * fabs(a->loss));
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabs((double)a->v[i] - (double)b->v[i]) <= 1e-5 * a->largest))
            TEST_FAIL("without %s: value %lld is %.9g, not %.9g", what, (long long)i, (double)b->v[i], (double)a->v[i]);
}

TEST(a_fusion_without_a_kernel_is_not_made)
{
    static const struct {
        const char *model;
        const lc_op *op, *part; /* part: in its place */
        bool activated;
    } rows[] = {
        {"gpt_small", &lc__op_linear_gelu, &lc__op_gelu, false},
        {"gpt_small", &lc__op_matmul_gelu_backward, &lc__op_gelu_backward_gelu, false},
        {"gpt_small", &lc__op_linear_weight_grad, &lc__op_sum, false},
        {"fashion", &lc__op_batch_norm_relu_pool, &lc__op_max_pool2d, false},
        {"fashion", &lc__op_batch_norm_relu_pool_backward, &lc__op_max_pool2d, false},
        {"fashion", &lc__op_batch_norm, &lc__op_relu, true},
        {"fashion", &lc__op_batch_norm_backward, &lc__op_relu_backward, true},
        {"lstm", &lc__op_linear_weight_grad, &lc__op_sum, false},
    };
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("the kernels that plans use are set");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lc_graph *whole = graph(2);
        trained want = train(whole, rows[i].model);
        lacking.op = rows[i].op;
        lacking.has = rows[i].activated ? has_plain : has_none;
        lc_graph *parts = graph(2);
        lacking.op = NULL;
        trained got = train(parts, rows[i].model);
        if (rows[i].op != &lc__op_batch_norm && rows[i].op != &lc__op_batch_norm_backward)
            CHECK(calls_of(whole, rows[i].op, rows[i].activated) > 0);
        if (calls_of(parts, rows[i].op, rows[i].activated)) TEST_FAIL("%s is in the plan", rows[i].op->name);
        CHECK(calls_of(parts, rows[i].part, false) > calls_of(whole, rows[i].part, false));
        check_same(&want, &got, rows[i].op->name);
        free(want.v), free(got.v);
        lc_graph_free(whole), lc_graph_free(parts);
    }
}

/* Numbers are rounded, compared and added up as by the parts. */
TEST(pooling_in_16_bits_has_the_bits_of_its_parts)
{
    const lc_dtype types[] = {LC_BF16, LC_F16};
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("the kernels that plans use are set");
    for (int i = 0; i < 2; i++) {
        lc_graph *whole = graph_of(2, types[i]);
        trained want = train(whole, "fashion");
        CHECK_EQ(calls_of(whole, &lc__op_batch_norm_relu_pool, false), 2);
        CHECK_EQ(calls_of(whole, &lc__op_batch_norm_relu_pool_backward, false), 2);
        lacking.op = &lc__op_batch_norm_relu_pool;
        lacking.has = has_none;
        lc_graph *parts = graph_of(2, types[i]);
        lacking.op = NULL;
        trained got = train(parts, "fashion");
        CHECK_EQ(calls_of(parts, &lc__op_batch_norm_relu_pool_backward, false), 0);
        CHECK_EQ(want.n, got.n);
        CHECK(want.loss == got.loss && !memcmp(want.v, got.v, (size_t)want.n * sizeof *want.v));
        free(want.v), free(got.v);
        lc_graph_free(whole), lc_graph_free(parts);
    }
}

static bool has_one_result(const lc_call *call)
{
    return call->n_out == 1;
}

static int calls_with_all_results(const lc_graph *g, const lc_op *op)
{
    int n = 0;
    for (int i = 0; i < g->n_plans; i++)
        for (int k = 0; k < g->plans[i]->n_calls; k++) {
            const lc_call *c = &g->plans[i]->calls[k].call;
            n += c->op == op && c->n_out == op->n_out;
        }
    return n;
}

/* It saves memory, and changes no bit. */
TEST(results_are_computed_again_in_the_backward_pass)
{
    static const struct {
        const char *model;
        lc_dtype autocast;
        const lc_op *op;
        bool (*without)(const lc_call *call);
        bool saves; /* false: the step may need most memory elsewhere */
    } rows[] = {
        {"gpt_small", 0, &lc__op_matmul_gelu_backward, has_one_result, false},
        {"gpt_small", LC_BF16, &lc__op_gelu_backward_gelu, has_none, false},
        {"gpt_small", LC_F16, &lc__op_gelu_backward_gelu, has_none, false},
        {"resnet18", 0, &lc__op_batch_norm_relu_backward, has_none, true},
        {"resnet18", LC_BF16, &lc__op_batch_norm_relu_backward, has_none, true},
    };
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("the kernels that plans use are set");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lc_graph_stats again, kept;
        lc_graph *whole = graph_of(2, rows[i].autocast);
        trained want = train(whole, rows[i].model);
        lacking.op = rows[i].op;
        lacking.has = rows[i].without;
        lc_graph *parts = graph_of(2, rows[i].autocast);
        lacking.op = NULL;
        trained got = train(parts, rows[i].model);
        lc_graph_get_stats(whole, &again);
        lc_graph_get_stats(parts, &kept);
        CHECK(calls_with_all_results(whole, rows[i].op) > 0);
        CHECK_EQ(calls_with_all_results(parts, rows[i].op), 0);
        CHECK(again.planned_bytes < kept.planned_bytes + !rows[i].saves);
        CHECK_EQ(want.n, got.n);
        CHECK(want.loss == got.loss && !memcmp(want.v, got.v, (size_t)want.n * sizeof *want.v));
        free(want.v), free(got.v);
        lc_graph_free(whole), lc_graph_free(parts);
    }
}

static int fused_may_read; /* inputs of a chain that has a kernel */

static bool has_short(const lc_call *call)
{
    return call->n_in <= fused_may_read;
}

static double chains(int may_read, int *calls)
{
    double value;
    fused_may_read = may_read;
    lacking.op = may_read ? &lc__op_fused : NULL;
    lacking.has = has_short;
    lc_graph *g = graph(1);
    lacking.op = NULL;
    lc_tensor *t[5];
    for (int i = 0; i < 5; i++) {
        double x[32];
        for (int k = 0; k < 32; k++) x[k] = lc_random_normal((uint64_t)i, (uint64_t)k);
        CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){32}, &t[i]));
        fill(t[i], x);
    }
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *a = lc_exp(lc_tanh(t[0])), *s = lc_cumsum(a, 0);
    lc_tensor *b = lc_add(lc_mul(lc_mul(lc_mul(lc_sigmoid(a), t[1]), t[2]), t[3]), t[4]);
    lc_tensor *loss = lc_keep(lc_sum(lc_mul(lc_add(lc_neg(s), b), lc_add(b, a))));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_item(loss, &value));
    CHECK_OK(lc_step_end(g));
    *calls = g->plans[0]->n_calls;
    lc_graph_free(g);
    for (int i = 0; i < 5; i++) lc_tensor_unref(t[i]);
    return value;
}

TEST(a_chain_without_a_kernel_is_not_made)
{
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("the kernels that plans use are set");
    int calls[7] = {0};
    double want = chains(0, &calls[0]);
    for (int may_read = 2; may_read < 7; may_read++) {
        CHECK_NEAR(chains(may_read, &calls[may_read]), want, 1e-5 * fabs(want));
        CHECK(calls[may_read] >= calls[0]);
    }
    CHECK(calls[2] > calls[0]);
}

TEST(conversions_are_part_of_chains)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    const lc_dtype low[] = {LC_BF16, LC_F16};
    for (int i = 0; i < 2; i++) {
        lc_graph *g = graph(1);
        lc_tensor *x;
        uint16_t bits[40], got[40];
        for (int k = 0; k < 40; k++) bits[k] = (uint16_t)(0x3c00 + 50 * k);
        CHECK_OK(lc_tensor_new(low[i], 1, (int64_t[]){40}, &x));
        CHECK_OK(lc_tensor_write(x, bits, sizeof bits));
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *rounded = lc_cast(lc_mul_scalar(lc_cast(x, LC_F32), 0.7), low[i]);
        lc_tensor *y = lc_keep(lc_cast(lc_mul_scalar(lc_cast(rounded, LC_F32), 4), low[i]));
        CHECK_OK(lc_step_run(g));
        CHECK_EQ(g->plans[0]->n_calls, 1);
        CHECK_OK(lc_tensor_read(y, got, sizeof got));
        for (int k = 0; k < 40; k++) {
            uint64_t want = 0; /* with place for any type */
            lc__store_number(&want, low[i], (double)(float)(lc__number_at(bits, low[i], k) * (double)0.7f));
            lc__store_number(&want, low[i], 4 * lc__load_number(&want, low[i]));
            CHECK_EQ(got[k], (uint16_t)want);
        }
        CHECK_OK(lc_step_end(g));
        lc_graph_free(g);
        lc_tensor_unref(x);
    }
}

/* ---- linear layers ---- */

typedef struct shape_of_step {
    lc_dtype dtype;
    bool tanh, permuted;
    int checkpointed; /* layers, from the first */
    int64_t batch;
    int passes; /* backward passes, whose gradients add up */
    double moved;
} shape_of_step;

enum { W1, B1, W2, B2, X, TENSORS, TIME = 3, IN = 12, HIDDEN = 24, OUT = 9, MOST = IN * HIDDEN };

typedef struct result {
    double loss, gradient[TENSORS][MOST];
} result;

static lc_tensor *tensor(lc_dtype dtype, int which, double moved, int ndim, const int64_t *sizes)
{
    static double x[MAX_N];
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(dtype, ndim, sizes, &t));
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) x[i] = 0.3 * lc_random_normal((uint64_t)which, (uint64_t)i);
    if (which < X) x[n / 2] += moved;
    if (which == X)
        for (int64_t i = 0; i < n; i++) x[i] *= 4;
    fill(t, x);
    lc_tensor_set_requires_grad(t, which < X);
    return t;
}

/* The loss of two linear layers with gelu between them, and its gradients. moved: the middle number of tensor `of` is
 * larger by that. */
static result run(lc_graph *g, const shape_of_step *s, int of)
{
    result r = {0};
    const int64_t shapes[TENSORS][3] = {{HIDDEN, IN}, {HIDDEN}, {OUT, HIDDEN}, {OUT}, {s->batch, TIME, IN}};
    const int ndim[TENSORS] = {2, 1, 2, 1, 3};
    lc_tensor *t[TENSORS], *d[TENSORS];
    for (int i = 0; i < TENSORS; i++) t[i] = tensor(s->dtype, i, i == of ? s->moved : 0, ndim[i], shapes[i]);
    for (int pass = 0; pass < s->passes; pass++) {
        bool last = pass == s->passes - 1;
        CHECK_OK(lc_step_begin(g, 0, (uint64_t)pass));
        if (s->checkpointed) lc_checkpoint_begin();
        lc_tensor *x = t[X];
        if (s->permuted) x = lc_permute(lc_mul_scalar(lc_permute(x, 2, 0, 1), 1), 1, 2, 0); /* dense in another order */
        lc_tensor *h = lc_gelu(lc_linear(x, t[W1], t[B1]), .tanh = s->tanh);
        if (s->checkpointed == 1) lc_checkpoint_end();
        lc_tensor *y = lc_linear(h, t[W2], t[B2]);
        if (s->checkpointed == 2) lc_checkpoint_end();
        lc_tensor *loss = lc_keep(lc_sum(lc_square(y)));
        if (!pass) lc_zero_grad(g);
        lc_backward(loss);
        for (int i = 0; i < X && last; i++) d[i] = lc_keep(lc_gradient(t[i]));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_item(loss, &r.loss));
        for (int i = 0; i < X && last; i++) fetch(d[i], r.gradient[i]);
        CHECK_OK(lc_step_end(g));
    }
    for (int i = 0; i < TENSORS; i++) lc_tensor_unref(t[i]);
    return r;
}

static void compare_results(const shape_of_step *s, const result *want, const result *got)
{
    CHECK_NEAR(got->loss, want->loss, 1e-5 * fabs(want->loss));
    for (int i = 0; i < X; i++) {
        double largest = 0;
        for (int k = 0; k < MOST; k++) largest = fmax(largest, fabs(want->gradient[i][k]));
        for (int k = 0; k < MOST; k++) {
            double off = fabs(want->gradient[i][k] - got->gradient[i][k]);
            if (!(off <= (s->dtype == LC_F64 ? 1e-12 : 1e-5) * largest))
                TEST_FAIL("gradient %d at %d is %g, not %g", i, k, got->gradient[i][k], want->gradient[i][k]);
        }
    }
}

/* Against the parts, and the numbers of fused nodes. */
static void check_step(const shape_of_step *s, int linear_gelu, int slope, int weight_grad)
{
    setenv("LIGHTC_PLAN", "off", 1);
    lc_graph *off = graph(1);
    unsetenv("LIGHTC_PLAN");
    lc_graph *one = graph(1), *three = graph(3);
    result want = run(off, s, -1), got = run(one, s, -1), again = run(three, s, -1);
    compare_results(s, &want, &got);
    CHECK(memcmp(&got, &again, sizeof got) == 0);
    CHECK_EQ(calls_of(off, &lc__op_linear_gelu, false) + calls_of(off, &lc__op_matmul_gelu_backward, false) +
                 calls_of(off, &lc__op_linear_weight_grad, false),
             0);
    CHECK_EQ(calls_of(one, &lc__op_linear_gelu, false), linear_gelu);
    CHECK_EQ(calls_of(one, &lc__op_matmul_gelu_backward, false), slope);
    CHECK_EQ(calls_of(one, &lc__op_linear_weight_grad, false), weight_grad);
    lc_graph_free(off), lc_graph_free(one), lc_graph_free(three);
}

TEST(linear_layers_with_gelu)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    for (int form = 0; form < 2; form++) {
        check_step(&(shape_of_step){LC_F32, .tanh = form, .batch = 5, .passes = 1}, 1, 1, 2);
        check_step(&(shape_of_step){LC_F64, .tanh = form, .batch = 5, .passes = 1}, 1, 1, 2);
        check_step(&(shape_of_step){LC_F32, .tanh = form, .batch = 55, .passes = 1}, 1, 1, 2);
    }
}

TEST(a_batch_of_nothing)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    check_step(&(shape_of_step){LC_F32, .batch = 0, .passes = 1}, 1, 1, 2);
}

/* The operand of the first layer is a view that its kernel takes in place; linear_gelu would copy it. */
TEST(operands_in_another_order)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    check_step(&(shape_of_step){LC_F32, .batch = 5, .passes = 1, .permuted = true}, 0, 1, 2);
}

/* The gradients of a step over an operand in channels-last order. */
static void over_pixels(double gradient[3][MAX_N], int *fused)
{
    static float pixels[2 * 6 * 5 * 8];
    lc_graph *g = graph(2);
    lc_tensor *x, *t[3], *d[3];
    for (int i = 0; i < 2 * 6 * 5 * 8; i++) pixels[i] = (float)lc_random_normal(9, (uint64_t)i);
    CHECK_OK(lc_input_new(LC_F32, 4, (int64_t[]){2, 6, 5, 8}, LC_CHANNELS_LAST, pixels, &x));
    t[0] = tensor(LC_F32, W1, 0, 2, (int64_t[]){12, 8});
    t[1] = tensor(LC_F32, B1, 0, 1, (int64_t[]){12});
    t[2] = tensor(LC_F32, W2, 0, 2, (int64_t[]){7, 12});
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *h = lc_gelu(lc_linear(x, t[0], t[1]));
    lc_backward(lc_sum(lc_square(lc_linear(h, t[2], NULL))));
    for (int i = 0; i < 3; i++) d[i] = lc_keep(lc_gradient(t[i]));
    CHECK_OK(lc_step_run(g));
    for (int i = 0; i < 3; i++) fetch(d[i], gradient[i]);
    CHECK_OK(lc_step_end(g));
    *fused = calls_of(g, &lc__op_linear_gelu, false) + calls_of(g, &lc__op_linear_weight_grad, false);
    for (int i = 0; i < 3; i++) lc_tensor_unref(t[i]);
    lc_tensor_unref(x);
    lc_graph_free(g);
}

TEST(operands_in_channels_last_order)
{
    static double want[3][MAX_N], got[3][MAX_N];
    const int64_t n[3] = {96, 12, 84};
    int fused;
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    setenv("LIGHTC_PLAN", "off", 1);
    over_pixels(want, &fused);
    unsetenv("LIGHTC_PLAN");
    CHECK_EQ(fused, 0);
    over_pixels(got, &fused);
    CHECK_EQ(fused, 2);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < n[i]; k++) CHECK_NEAR(got[i][k], want[i][k], 1e-5 * (1 + fabs(want[i][k])));
}

/* With both layers in it, the region is fused when it is recorded and when it is recorded again. With only the first,
 * gelu's operand does not exist yet when the product of the last layer's backward pass runs, so this one stays alone.
 */
TEST(checkpointed_layers)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    check_step(&(shape_of_step){LC_F32, .batch = 5, .passes = 1, .checkpointed = 2}, 2, 1, 2);
    check_step(&(shape_of_step){LC_F32, .batch = 5, .passes = 1, .checkpointed = 1}, 1, 0, 2);
}

/* Products round to bf16 what gelu reads, so they are not one with it. */
TEST(products_in_a_low_type)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    shape_of_step s = {LC_F32, .batch = 5, .passes = 1};
    setenv("LIGHTC_PLAN", "off", 1);
    lc_graph *off = graph_of(1, LC_BF16);
    unsetenv("LIGHTC_PLAN");
    lc_graph *on = graph_of(1, LC_BF16);
    result want = run(off, &s, -1), got = run(on, &s, -1);
    for (int i = 0; i < X; i++) {
        double largest = 0;
        for (int k = 0; k < MOST; k++) largest = fmax(largest, fabs(want.gradient[i][k]));
        for (int k = 0; k < MOST; k++) CHECK_NEAR(got.gradient[i][k], want.gradient[i][k], 0.01 * largest);
    }
    CHECK_EQ(calls_of(on, &lc__op_linear_gelu, false) + calls_of(on, &lc__op_matmul_gelu_backward, false), 0);
    lc_graph_free(off), lc_graph_free(on);
}

/* The first pass writes the gradients, the second adds to them: that of a weight in the product. */
TEST(gradients_add_up)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    check_step(&(shape_of_step){LC_F32, .batch = 5, .passes = 2}, 2, 2, 4);
    lc_graph *g = graph(1);
    run(g, &(shape_of_step){LC_F32, .batch = 5, .passes = 2}, -1);
    int added = 0;
    for (int i = 0; i < g->n_plans; i++)
        for (int k = 0; k < g->plans[i]->n_calls; k++)
            added +=
                g->plans[i]->calls[k].call.op == &lc__op_linear_weight_grad && g->plans[i]->calls[k].call.accumulate;
    CHECK_EQ(added, 2);
    lc_graph_free(g);
}

/* In double precision, with the reference kernels of the fused nodes. */
TEST(gradients_are_differences_of_losses)
{
    const double h = 1e-6;
    lc_graph *g = graph(1);
    for (int form = 0; form < 2; form++) {
        shape_of_step s = {LC_F64, .tanh = form, .batch = 4, .passes = 1};
        const int64_t n[X] = {HIDDEN * IN, HIDDEN, OUT * HIDDEN, OUT};
        result r = run(g, &s, -1);
        for (int i = 0; i < X; i++) {
            s.moved = h;
            double up = run(g, &s, i).loss;
            s.moved = -h;
            double down = run(g, &s, i).loss, slope = r.gradient[i][n[i] / 2];
            CHECK_NEAR((up - down) / (2 * h), slope, 1e-6 * (1 + fabs(slope)));
        }
    }
    lc_graph_free(g);
}

/* The simulated device can be told to lack operators. */
TEST(a_device_without_the_kernels)
{
    const char *name = getenv("LIGHTC_ACCELERATOR");
    if (!name || strcmp(name, "sim") != 0 || getenv("LIGHTC_PLAN")) SKIP("not on a simulated device");
    shape_of_step s = {LC_F32, .batch = 5, .passes = 2};
    lc_graph *whole = graph(1), *parts = graph(1);
    result want = run(whole, &s, -1);
    setenv("LIGHTC_SIM_WITHOUT", "linear_gelu,matmul_gelu_backward,linear_weight_grad,fused", 1);
    result got = run(parts, &s, -1);
    unsetenv("LIGHTC_SIM_WITHOUT");
    compare_results(&s, &want, &got);
    CHECK(calls_of(whole, &lc__op_linear_gelu, false) == 2 && calls_of(parts, &lc__op_linear_gelu, false) == 0);
    CHECK(calls_of(parts, &lc__op_sum, false) > calls_of(whole, &lc__op_sum, false));
    lc_graph_free(whole), lc_graph_free(parts);
}

/* Without a backward pass nobody reads what gelu read. */
TEST(evaluation_has_no_second_result)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    lc_graph *g = graph(1);
    lc_tensor *x = tensor(LC_F32, X, 0, 2, (int64_t[]){8, IN}), *w = tensor(LC_F32, W1, 0, 2, (int64_t[]){HIDDEN, IN});
    for (int kept = 0; kept < 2; kept++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)kept, 0));
        lc_tensor *sum = lc_linear(x, w, NULL);
        if (kept) lc_keep(sum);
        lc_keep(lc_gelu(sum));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        CHECK_EQ(g->plans[kept]->n_calls, 1);
        CHECK_EQ(g->plans[kept]->calls[0].call.n_out, kept ? 2 : 1);
    }
    lc_graph_free(g);
    lc_tensor_unref(x), lc_tensor_unref(w);
}

TEST_MAIN
