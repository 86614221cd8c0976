/* SPDX-License-Identifier: Apache-2.0 */
/* The types that kernels of a program's operators get: those that its infer has seen, however values are stored. */
#include "quiet_options.h"
#include "test.h"

#include <lightc/lightc.h>

enum { N = 8 };

static int n_calls[2];         /* of the operator's own kernel, of the added one */
static lc_dtype seen = LC_F32; /* by infer */
static char mistake[128];      /* the first call with another type */

static void check_types(const lc_call *c, int which)
{
    n_calls[which]++;
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const lc_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        if (v->dtype != seen && !*mistake)
            snprintf(mistake, sizeof mistake, "operand or result %d of %s is %s", i, c->kernel->name,
                     lc_dtype_name(v->dtype));
    }
}

/* ---- operators ---- */

static lc_status infer_same(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

/* (x, y) -> xy */
static void multiply(const lc_call *c, int which)
{
    check_types(c, which);
    if (*mistake) return;
    for (int i = 0; i < N; i++) {
        if (c->in[0].dtype == LC_F64)
            ((double *)c->out[0].data)[i] = ((double *)c->in[0].data)[i] * ((double *)c->in[1].data)[i];
        else
            ((float *)c->out[0].data)[i] = ((float *)c->in[0].data)[i] * ((float *)c->in[1].data)[i];
    }
}

static void run_own(const lc_call *c)
{
    multiply(c, 0);
}

static void run_added(const lc_call *c)
{
    multiply(c, 1);
}

static const lc_kernel own_kernel = {.name = "own", .layout = LC_WANT_ROW_MAJOR, .run = run_own};
static const lc_kernel added_kernel = {.name = "added", .layout = LC_WANT_ROW_MAJOR, .run = run_added};

/* The gradient is that of a program, too. */
static lc_status grad_product(lc_grad *g)
{
    for (int i = 0; i < 2; i++) {
        lc_tensor *in[] = {g->dout[0], g->in[1 - i]};
        if (g->need[i]) g->din[i] = lc_op_call(g->op, 2, in, 0, NULL, 0, NULL, LC_HERE);
    }
    return LC_OK;
}

#define PRODUCT(id, which)                                                                                             \
    static const lc_op id = {                                                                                          \
        .name = #id, .flags = which, .n_out = 1, .infer = infer_same, .grad = grad_product, .kernel = &own_kernel}
PRODUCT(product, 0);
PRODUCT(elementwise, LC_OP_ELEMENTWISE);
PRODUCT(counted, LC_OP_SIDE_EFFECT);
PRODUCT(hosted, LC_OP_HOST);
PRODUCT(faster, 0);              /* has an added kernel */
PRODUCT(mul, LC_OP_ELEMENTWISE); /* the name of another */
static const lc_op *const products[] = {&product, &elementwise, &counted, &hosted, &faster, &mul};
enum { PRODUCTS = sizeof products / sizeof products[0] };

static lc_tensor *multiplied(const lc_op *op, lc_tensor *x, lc_tensor *y)
{
    return lc_op_call(op, 2, (lc_tensor *[]){x, y}, 0, NULL, 0, NULL, LC_HERE);
}

/* (written, x): written += x. */
static lc_status infer_none(lc_infer *call)
{
    call->n_out = 0;
    return LC_OK;
}

static void add(const lc_call *c)
{
    check_types(c, 0);
    for (int i = 0; i < N && !*mistake; i++) ((float *)c->in[0].data)[i] += ((float *)c->in[1].data)[i];
}

static const lc_kernel add_kernel = {.name = "add_to", .layout = LC_WANT_ROW_MAJOR, .run = add};
static const lc_op adds_to = {.name = "adds_to",
                              .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                              .n_out = 1,
                              .infer = infer_none,
                              .mutated_inputs = 1,
                              .kernel = &add_kernel};

/* ---- in a graph ---- */

typedef struct mode {
    const char *name;
    lc_graph_args args;
} mode;

static const mode modes[] = {{"f32", {0}},
                             {"f64", {.storage = LC_F64}},
                             {"bf16", {.storage = LC_BF16}},
                             {"f16", {.storage = LC_F16}},
                             {"bf16-mixed", {.autocast = LC_BF16}}};
enum { MODES = sizeof modes / sizeof modes[0] };

/* Small whole numbers: all types hold them, their products and their sums. */
static void run_graph(const mode *in, const lc_op *op)
{
    lc_graph_args args = lc_graph_defaults();
    lc_graph *g;
    lc_module m;
    float three[N], got[N], dx[N];
    for (int i = 0; i < N; i++) three[i] = 3;
    args.threads = 1;
    args.storage = in->args.storage, args.autocast = in->args.autocast;
    lc_module_init(&m, NULL, 1);
    lc_tensor *w = lc_module_add_parameter(&m, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){N}, (lc_init){LC_INIT_ONES});
    CHECK_OK(lc_graph_new_with(&g, &args));
    n_calls[0] = n_calls[1] = 0;
    for (int step = 0; step < 2; step++) {
        lc_tensor *x = NULL;
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        CHECK_OK(lc_input_new(LC_F32, 1, (int64_t[]){N}, LC_ROW_MAJOR, three, &x));
        lc_tensor *y = multiplied(op, lc_add(x, w), lc_square(x)); /* 4 * 9 */
        lc_autocast_begin(false);
        y = multiplied(op, y, lc_add(w, w)); /* 72 w (x + w) / 4, of gradient 72 + 18 */
        lc_autocast_end();
        y = lc_keep(multiplied(op, lc_reshape(y, N), w));
        lc_zero_grad(g);
        lc_backward(lc_sum(y));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(y, got, sizeof got));
        lc_tensor *gradient = lc_keep(lc_gradient(w));
        CHECK_OK(lc_tensor_read(gradient, dx, sizeof dx));
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(x);
        for (int i = 0; i < N; i++)
            if (got[i] != 72 || dx[i] != 162)
                TEST_FAIL("%s of %s: %g, gradient %g; %s", op->name, in->name, (double)got[i], (double)dx[i], mistake);
    }
    CHECK(n_calls[op == &faster] > 0 && n_calls[op != &faster] == 0);
    lc_module_release(&m);
    lc_graph_free(g);
}

static void run_all(void)
{
    for (int k = 0; k < MODES; k++)
        for (int i = 0; i < PRODUCTS; i++) run_graph(&modes[k], products[i]);
}

TEST(kernels_get_f32)
{
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("LIGHTC_PLAN or LIGHTC_KERNELS is set");
    CHECK_OK(lc_op_add_kernel(&faster, "cpu", &added_kernel));
    run_all();
    setenv("LIGHTC_PLAN", "off", 1);
    run_all();
    unsetenv("LIGHTC_PLAN");
    CHECK(!*mistake);
}

/* A tensor that the program converts to f64 itself reaches the kernel as f64. */
TEST(kernels_get_f64_if_they_are_given_it)
{
    lc_graph *g;
    double third[N], got[N];
    lc_tensor *x;
    for (int i = 0; i < N; i++) third[i] = 1. / 3;
    seen = LC_F64;
    for (int k = 0; k < 2; k++) {
        CHECK_OK(lc_graph_new(&g, .threads = 1, .storage = k ? LC_F64 : 0));
        CHECK_OK(lc_step_begin(g, 0, 0));
        CHECK_OK(lc_input_new(LC_F64, 1, (int64_t[]){N}, LC_ROW_MAJOR, third, &x));
        lc_tensor *y = lc_keep(multiplied(&product, x, lc_cast(lc_full(1, LC_F32, N), LC_F64)));
        CHECK_EQ(lc_tensor_dtype(y), LC_F64);
        CHECK_OK(lc_tensor_read(y, got, sizeof got));
        CHECK(!*mistake && !memcmp(got, third, sizeof got));
        CHECK_OK(lc_step_end(g));
        lc_tensor_unref(x);
        lc_graph_free(g);
    }
    seen = LC_F32;
}

/* Also if all operands have 16 bits: the fraction of this product has 14, of which bf16 keeps 7. */
TEST(results_in_mixed_precision_are_f32)
{
    lc_graph *g;
    float got[N];
    for (int i = 0; i < PRODUCTS; i++) CHECK_EQ(lc_autocast_class_of(products[i]), LC_AUTOCAST_F32);
    CHECK_OK(lc_graph_new(&g, .threads = 1, .autocast = LC_BF16));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *x = lc_reshape(lc_matmul(lc_full(129. / 128, LC_F32, N, 1), lc_full(1, LC_F32, 1, 1)), N);
    lc_tensor *y = lc_keep(multiplied(&elementwise, x, x));
    CHECK_OK(lc_tensor_read(y, got, sizeof got));
    for (int i = 0; i < N; i++) CHECK_EQ(got[i], 129.f * 129 / (128 * 128));
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
}

/* ---- in trainings ---- */

typedef struct net {
    lc_module base;
    lc_tensor *w, *sum;
    bool own, writes;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    (void)i;
    lc_tensor *x = lc_mean(b->x, .dims = LC_DIMS(0)), *y = m->own ? multiplied(&product, x, m->w) : lc_mul(x, m->w);
    if (m->writes) lc_op_call(&adds_to, 2, (lc_tensor *[]){m->sum, y}, 0, NULL, 0, NULL, LC_HERE);
    return lc_mean(lc_square(lc_sub_scalar(y, 1)));
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("own"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers};

static void train(const char *precision, const char *devices, bool own, float *w, float *sum)
{
    enum { SAMPLES = 16 };
    float x[SAMPLES][N];
    net m = {.own = own, .writes = own && !devices};
    lc_trainer_options opt = quiet_options(NULL);
    lc_trainer *t;
    lc_dataset *data;
    lc_dataloader *loader;
    for (int i = 0; i < SAMPLES * N; i++) (&x[0][0])[i] = (float)(i * 7 % 11) / 11;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {N}}, .data = x}};
    CHECK_OK(lc_array_dataset_new(SAMPLES, 1, arrays, &data));
    CHECK_OK(lc_dataloader_new(&loader, .dataset = data, .batch_size = 4));
    lc_module_init(&m.base, &ops, 1);
    m.w = lc_module_add_parameter(&m.base, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){N}, (lc_init){LC_INIT_ONES});
    m.sum = lc_module_add_parameter(&m.base, "sum", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){N}, (lc_init){LC_INIT_ZEROS});
    lc_tensor_set_requires_grad(m.sum, false);
    opt.precision = precision;
    opt.max_epochs = 3;
    if (devices) opt.strategy = "data_parallel", opt.devices = devices;
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    CHECK_OK(lc_tensor_read(m.w, w, N * sizeof *w));
    CHECK_OK(lc_tensor_read(m.sum, sum, N * sizeof *sum));
    lc_trainer_free(t);
    lc_module_release(&m.base);
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
}

TEST(trainings)
{
    static const char *const devices[] = {NULL, "2"};
    for (int k = 0; k < 2; k++) {
        float own[N], sum[N], want[N], none[N], f32[N], f32_sum[N];
        train("32-true", devices[k], true, f32, f32_sum);
        train("64-true", devices[k], true, own, sum);
        train("64-true", devices[k], false, want, none);
        if (*mistake) TEST_FAIL("%s", mistake);
        for (int i = 0; i < N; i++) {
            CHECK_NEAR(own[i], want[i], 1e-6);
            CHECK_NEAR(own[i], f32[i], 1e-6);
            CHECK_NEAR(sum[i], f32_sum[i], 1e-5);
            CHECK(k || sum[i] != 0);
        }
    }
}

TEST_MAIN
