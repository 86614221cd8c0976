/* SPDX-License-Identifier: Apache-2.0 */
/* Indices and labels that do not exist: every operator with indices fails the step and reports the index, the allowed
 * range and the line of the program; with fast and reference kernels, planned and unplanned, forward and backward. A
 * training ends with that message under every strategy, before any update. */
#include "test.h"

enum { SAMPLES = 100 };
#include "comm_world.h"
#include "op_values.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_data.h"

#include "engine/run/run.h"

/* ---- operators ---- */

enum { ROWS = 6, CLASSES_HERE = 5, MANY = 4000 };

typedef struct operands {
    lc_tensor *x, *x64, *src; /* [ROWS,5], want gradients */
    lc_tensor *ids[2];        /* [ROWS]: i64, i32 */
    lc_tensor *square[2];     /* [ROWS,5] */
} operands;

static lc_tensor *made(lc_dtype dtype, int ndim, bool grad)
{
    lc_tensor *t;
    char bytes[ROWS * CLASSES_HERE * 8];
    CHECK_OK(lc_tensor_new(dtype, ndim, (int64_t[]){ROWS, CLASSES_HERE}, &t));
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        if (dtype == LC_I32)
            ((int32_t *)bytes)[i] = (int32_t)(i % CLASSES_HERE);
        else
            store(lc_dtype_is_float(dtype) ? lc_random_normal(3, (uint64_t)i) : (double)(i % CLASSES_HERE), dtype,
                  bytes + (size_t)i * lc_dtype_size(dtype));
    }
    CHECK_OK(lc_tensor_write(t, bytes, (size_t)n * lc_dtype_size(dtype)));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

/* Sets the index at place `at` to `bad`. */
static void set_index(lc_tensor *t, int64_t at, int64_t bad)
{
    int64_t wide[ROWS * CLASSES_HERE];
    int32_t narrow[ROWS * CLASSES_HERE];
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        wide[i] = i == at ? bad : i % CLASSES_HERE;
        narrow[i] = (int32_t)wide[i];
    }
    bool is_wide = lc_tensor_dtype(t) == LC_I64;
    CHECK_OK(
        lc_tensor_write(t, is_wide ? (void *)wide : narrow, (size_t)n * (is_wide ? sizeof *wide : sizeof *narrow)));
}

#define ON_THIS_LINE(call) (*line = __LINE__, (call))

static lc_tensor *no_gradient(lc_tensor *t)
{
    return lc_mul(lc_cast(t, LC_F32), lc_cast(t, LC_F32));
}

/* Operator k on its indices of the i-th data type; NULL: it does not take that type. */
static lc_tensor *apply(const operands *o, int k, int i, int *line)
{
    lc_tensor *ids = o->ids[i], *square = o->square[i];
    switch (k) {
    case 0:
        return ON_THIS_LINE(lc_cross_entropy(o->x, ids));
    case 1:
        return ON_THIS_LINE(lc_cross_entropy(o->x, ids, .reduction = LC_REDUCE_NONE, .label_smoothing = 0.1));
    case 2:
        return ON_THIS_LINE(lc_cross_entropy(o->x64, ids, .ignore_index = 3));
    case 3:
        return ON_THIS_LINE(lc_nll_loss(o->x, ids));
    case 4:
        return ON_THIS_LINE(lc_nll_loss(o->x64, ids, .reduction = LC_REDUCE_SUM));
    case 5:
        return ON_THIS_LINE(lc_embedding(ids, o->src));
    case 6:
        return ON_THIS_LINE(lc_embedding(ids, o->x64, .padding_idx = 1));
    case 7:
        return ON_THIS_LINE(lc_gather(o->x, 1, square));
    case 8:
        return ON_THIS_LINE(lc_index_select(o->x, 0, ids));
    case 9:
        return ON_THIS_LINE(lc_scatter_add(o->x, 1, square, o->src));
    case 10:
        return ON_THIS_LINE(lc_index_add(o->x, 0, ids, o->src));
    case 11:
        return no_gradient(ON_THIS_LINE(lc_one_hot(ids, CLASSES_HERE)));
    default:
        return NULL;
    }
}

static const struct {
    const char *name, *operand;
    int64_t size;
    bool square;
    const char *also;
} expected[] = {{"cross_entropy", "target", 5, false, "ignore_index, -100"},
                {"cross_entropy", "target", 5, false, "ignore_index, -100"},
                {"cross_entropy", "target", 5, false, "ignore_index, 3"},
                {"nll_loss", "target", 5, false, "ignore_index, -100"},
                {"nll_loss", "target", 5, false, "ignore_index, -100"},
                {"embedding", "ids", 6, false, ""},
                {"embedding", "ids", 6, false, ""},
                {"gather", "ids", 5, true, ""},
                {"index_select", "ids", 6, false, ""},
                {"scatter_add", "ids", 5, true, ""},
                {"index_add", "ids", 6, false, ""},
                {"one_hot", "ids", 5, false, ""}};
enum { OPERATORS = sizeof expected / sizeof *expected };

static void check_message(int k, int line, int64_t at, int64_t bad)
{
    char text[200];
    const char *message = lc_error_message();
    if (!strstr(message, expected[k].name)) TEST_FAIL("operator %d: %s", k, message);
    if (expected[k].square)
        snprintf(text, sizeof text, "%s[%lld,%lld] is %lld", expected[k].operand, (long long)(at / CLASSES_HERE),
                 (long long)(at % CLASSES_HERE), (long long)bad);
    else
        snprintf(text, sizeof text, "%s[%lld] is %lld", expected[k].operand, (long long)at, (long long)bad);
    CHECK_CONTAINS(message, text);
    snprintf(text, sizeof text, "0 to %lld", (long long)expected[k].size - 1);
    CHECK_CONTAINS(message, text);
    CHECK_CONTAINS(message, expected[k].also);
    snprintf(text, sizeof text, "test_bad_index.c:%d", line);
    CHECK_CONTAINS(message, text);
}

/* PyTorch checks indices even if nothing reads the result. */
enum { KEPT, DIFFERENTIATED, UNREAD, N_USES };

/* What runs on a device is judged when the host waits for it. */
static lc_status run_step(lc_graph *g)
{
    lc_status status = lc_step_run(g);
    return status < 0 ? status : lc__graph_host.wait(g);
}

/* A valid step, an invalid one, and a valid one again: the graph still works. */
static void try(lc_graph *g, const operands *o, int k, int i, int use, int64_t at, int64_t bad)
{
    lc_tensor *indices = expected[k].square ? o->square[i] : o->ids[i];
    for (int round = 0; round < 3; round++) {
        int line = 0;
        double value;
        set_index(indices, round == 1 ? at : -1, bad);
        CHECK_OK(lc_step_begin(g, (uint64_t)round, 0));
        lc_tensor *y = apply(o, k, i, &line);
        /* The gradient of a sum does not read y. */
        lc_tensor *sum = use == UNREAD ? NULL : lc_sum(y);
        lc_zero_grad(g);
        if (use == DIFFERENTIATED && k != OPERATORS - 1) lc_backward(sum);
        if (use == KEPT) lc_keep(sum);
        lc_status s = run_step(g);
        if (round == 1) {
            if (s != LC_ERR_ARGUMENT) TEST_FAIL("operator %d, use %d: status %d", k, use, s);
            check_message(k, line, at, bad);
            CHECK_STATUS(lc_step_end(g), LC_ERR_ARGUMENT);
        } else {
            CHECK_OK(s);
            if (use == KEPT) CHECK_OK(lc_item(sum, &value));
            if (use == KEPT) CHECK(isfinite(value));
            CHECK_OK(lc_step_end(g));
        }
    }
}

static void try_all(void)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 2));
    operands o = {.x = made(LC_F32, 2, true), .x64 = made(LC_F64, 2, true), .src = made(LC_F32, 2, true)};
    for (int i = 0; i < 2; i++) {
        o.ids[i] = made(i ? LC_I32 : LC_I64, 1, false);
        o.square[i] = made(i ? LC_I32 : LC_I64, 2, false);
    }
    static const int64_t bad[] = {8, 6, -1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    for (int k = 0; k < OPERATORS; k++)
        for (int i = 0; i < 2; i++)
            for (int b = 0; b < (i ? 5 : 7); b++)
                for (int use = KEPT; use < N_USES; use++) try(g, &o, k, i, use, b % ROWS, bad[b]);
    lc_graph_free(g);
    for (int i = 0; i < 2; i++) {
        lc_tensor_unref(o.ids[i]);
        lc_tensor_unref(o.square[i]);
    }
    lc_tensor_unref(o.x);
    lc_tensor_unref(o.x64);
    lc_tensor_unref(o.src);
}

/* Without rows there is no row to add to. */
static void try_empty(void)
{
    lc_graph *g;
    lc_tensor *x, *src = made(LC_F32, 2, true), *ids = made(LC_I64, 1, false), *square = made(LC_I64, 2, false);
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){0, CLASSES_HERE}, &x));
    CHECK_OK(lc_graph_new(&g, .threads = 2));
    for (int k = 0; k < 4; k++) {
        CHECK_OK(lc_step_begin(g, 0, 0));
        lc_tensor *y = k % 2 ? lc_index_add(x, 0, ids, src) : lc_scatter_add(x, 0, square, src);
        if (k < 2) lc_keep(y);
        CHECK_STATUS(run_step(g), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), k % 2 ? "ids[0] is 0" : "ids[0,0] is 0");
        CHECK_STATUS(lc_step_end(g), LC_ERR_ARGUMENT);
    }
    lc_graph_free(g);
    lc_tensor_unref(x);
    lc_tensor_unref(src);
    lc_tensor_unref(ids);
    lc_tensor_unref(square);
}

TEST(every_operator_names_an_index_that_does_not_exist)
{
    try_all();
    try_empty();
}

TEST(unplanned_too)
{
    setenv("LIGHTC_PLAN", "off", 1);
    try_all();
    try_empty();
    unsetenv("LIGHTC_PLAN");
}

TEST(reference_kernels_too)
{
    setenv("LIGHTC_KERNELS", "reference", 1);
    try_all();
    try_empty();
    unsetenv("LIGHTC_KERNELS");
}

/* Several threads find one each: the first of all is named, every time. */
TEST(the_first_of_several_bad_indices_is_named)
{
    static int64_t ids[MANY];
    lc_tensor *t, *x, *table;
    lc_graph *g;
    for (int i = 0; i < MANY; i++) ids[i] = i >= 1234 && i % 3 == 0 ? 1000 + i : i % 7;
    CHECK_OK(lc_tensor_new(LC_I64, 1, (int64_t[]){MANY}, &t));
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){MANY, 7}, &x));
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){7, 64}, &table));
    lc_tensor_set_requires_grad(table, true);
    CHECK_OK(lc_tensor_write(t, ids, sizeof ids));
    CHECK_OK(lc_graph_new(&g, .threads = 4));
    for (int round = 0; round < 60; round++) {
        CHECK_OK(lc_step_begin(g, 0, 0));
        if (round % 3 == 0) lc_keep(lc_cross_entropy(x, t));
        if (round % 3 == 1) lc_keep(lc_sum(lc_embedding(t, table)));
        if (round % 3 == 2) lc_backward(lc_sum(lc_embedding(t, table)));
        CHECK_STATUS(run_step(g), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), "[1236] is 2236");
        (void)!lc_step_end(g);
    }
    lc_graph_free(g);
    lc_tensor_unref(t);
    lc_tensor_unref(x);
    lc_tensor_unref(table);
}

/* Both lines record the same, so the second step runs the plan of the first. On a device the plan's line is named. */
TEST(the_line_is_that_of_the_step)
{
    const char *device = getenv("LIGHTC_ACCELERATOR");
    if (device && strcmp(device, "cpu") != 0) SKIP("not on the host");
    for (int nan = 0; nan < 2; nan++) {
        operands o = {.x = made(LC_F32, 2, false), .ids = {made(LC_I64, 1, false)}};
        char want[64];
        int number = 0, *line = &number;
        lc_graph *g;
        if (nan) setenv("LIGHTC_NAN_CHECK", "1", 1);
        CHECK_OK(lc_graph_new(&g));
        unsetenv("LIGHTC_NAN_CHECK");
        for (int step = 0; step < 2; step++) {
            if (step && nan)
                CHECK_OK(lc_tensor_write(o.x, (float[ROWS * CLASSES_HERE]){INFINITY}, ROWS * CLASSES_HERE * 4));
            if (step && !nan) set_index(o.ids[0], 2, 9);
            CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
            if (step)
                lc_keep(ON_THIS_LINE(lc_cross_entropy(o.x, o.ids[0])));
            else
                lc_keep(lc_cross_entropy(o.x, o.ids[0]));
            if (!step) CHECK_OK(run_step(g));
            if (!step) CHECK_OK(lc_step_end(g));
        }
        CHECK_STATUS(run_step(g), nan ? LC_ERR_NUMERIC : LC_ERR_ARGUMENT);
        snprintf(want, sizeof want, "test_bad_index.c:%d", number);
        CHECK_CONTAINS(lc_error_message(), want);
        CHECK_EQ(g->stats.misses, 1);
        (void)!lc_step_end(g);
        lc_graph_free(g);
        lc_tensor_unref(o.x), lc_tensor_unref(o.ids[0]);
    }
}

/* ---- the trainer ---- */

enum { OUTPUTS = 2, BATCH = 12 };

typedef struct net {
    lc_module base;
    lc_linear l;
} net;

static lc_tensor *net_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_cross_entropy(lc_linear_forward(&((net *)self)->l, b->x), b->y);
}
enum { LINE_OF_LOSS = __LINE__ - 2 };

static lc_status net_validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log(self, "val_loss", lc_cross_entropy(lc_linear_forward(&((net *)self)->l, b->x), b->y));
    return LC_OK;
}

static lc_status net_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = net_training_step,
    .configure_optimizers = net_optimizers,
};

static const lc_module_ops validated_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = net_training_step,
    .validation_step = net_validation_step,
    .configure_optimizers = net_optimizers,
};

typedef struct training {
    const char *strategy;
    const char *devices;
    bool only_validates;
} training;

static lc_status train(lc_comm *comm, const training *what, char *message, size_t size,
                       float weight[OUTPUTS * FEATURES])
{
    net m = {0};
    lc_dataloader *train = NULL, *val = NULL;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    int n = comm ? lc_comm_size(comm) : 1;
    opt.strategy = what->strategy;
    if (what->devices) opt.devices = what->devices;
    opt.max_epochs = 1;
    opt.num_sanity_val_steps = 0;
    lc_module_init(&m.base, what->only_validates ? &validated_ops : &net_ops, 1);
    lc_linear_init(&m.l, &m, "l", FEATURES, OUTPUTS);
    LC_TRY(loader_of(0, what->only_validates ? BATCH : SAMPLES, BATCH / n, false, &train));
    if (what->only_validates) LC_TRY(loader_of(0, SAMPLES, BATCH / n, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val);
    snprintf(message, size, "%s", lc_error_message());
    if (weight && lc_tensor_read(m.l.weight, weight, OUTPUTS * FEATURES * sizeof *weight) < 0) weight[0] = NAN;
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    lc_module_release(&m.base);
    return s;
}

/* Labels 0 and 1, except for one sample in the second half of the fifth batch. */
static void one_bad_label(void)
{
    for (int i = 0; i < SAMPLES; i++) labels[i] = i % 2;
    labels[4 * BATCH + 9] = 7;
}

static lc_status check_sentence(const char *message, const char *batch)
{
    char where[64];
    snprintf(where, sizeof where, "test_bad_index.c:%d", (int)LINE_OF_LOSS);
    const char *const words[] = {"cross_entropy", " is 7", "0 to 1", "ignore_index", where, batch};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(message, words[i])) return lc_fail(LC_ERR_INTERNAL, "no \"%s\" in: %.600s", words[i], message);
    return LC_OK;
}

/* One device is waited for in no batch, so the batch that is named may be a later one. */
static void ends(const training *what)
{
    char message[1024];
    float weight[OUTPUTS * FEATURES];
    const lc_device *on;
    CHECK_OK(lc__device_default(&on));
    one_bad_label();
    CHECK_STATUS(train(NULL, what, message, sizeof message, weight), LC_ERR_ARGUMENT);
    bool later = !what->strategy && !lc__on_host(on);
    CHECK_OK(check_sentence(message, later ? "noticed in epoch 0, batch " : "epoch 0, batch 4"));
    for (int i = 0; i < OUTPUTS * FEATURES; i++) CHECK(isfinite(weight[i])); /* nothing was updated from it */
}

TEST(a_training_ends_with_a_bad_label)
{
    ends(&(training){0});
    ends(&(training){.strategy = "data_parallel", .devices = "2"});
}

TEST(a_validation_ends_with_a_bad_label)
{
    char message[1024];
    one_bad_label();
    CHECK_STATUS(train(NULL, &(training){.only_validates = true}, message, sizeof message, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(message, " is 7");
}

/* The rank that has the sample reports it; the others report that this rank has ended the run. */
static lc_status run_rank(lc_comm *comm, void *ctx)
{
    char message[1024];
    bool mine = lc_comm_rank(comm) == lc_comm_size(comm) - 1;
    lc_status s = train(comm, ctx, message, sizeof message, NULL);
    if (mine && s != LC_ERR_ARGUMENT) return lc_fail(LC_ERR_INTERNAL, "status %d: %s", s, message);
    if (!mine && s != LC_ERR_PEER) return lc_fail(LC_ERR_INTERNAL, "status %d of another rank: %s", s, message);
    return check_sentence(message, "epoch 0, batch 4");
}

TEST(ranks_end_with_a_bad_label_of_one)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    one_bad_label();
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        for (int n = 2; n <= 3; n++) {
            training what = {.strategy = strategies[i]};
            CHECK_RANKS("threads", n, run_rank, &what);
            CHECK_RANKS("shm", n, run_rank, &what);
        }
}

TEST_MAIN
