/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that a program has made f16 or bf16: operators compute in f32 and round once, and results have PyTorch's
 * types. tests/precision/test_ops_low.c compares the numbers of every operator. */
#include "quiet_options.h"

#include "base/number.h"

#include "two_layers.h"

#include <math.h>

static lc_graph *graph;

static void begin(void)
{
    CHECK_OK(lc_graph_new(&graph, .threads = 1, .seed = 3));
    CHECK_OK(lc_step_begin(graph, 0, 0));
}

static void end(void)
{
    CHECK_OK(lc_step_run(graph));
    CHECK_OK(lc_step_end(graph));
    lc_graph_free(graph);
}

static const lc_dtype halves[] = {LC_BF16, LC_F16};

/* ---- types ---- */

static void check_type(int line, lc_tensor *t, lc_dtype want)
{
    CHECK_OK(lc_step_status(graph));
    if (lc_tensor_dtype(t) != want)
        TEST_FAIL("line %d: the result is %s, not %s", line, lc_dtype_name(lc_tensor_dtype(t)), lc_dtype_name(want));
}
#define TYPE(t, want) check_type(__LINE__, t, want)

TEST(results_have_the_types_of_pytorch)
{
    for (int k = 0; k < 2; k++) {
        const lc_dtype half = halves[k];
        begin();
        lc_tensor *h = lc_full(0.5, half, 4, 3), *f = lc_full(0.25, LC_F32, 4, 3),
                  *other = lc_full(1, halves[!k], 4, 3);
        lc_tensor *number = lc_scalar(2, LC_F32), *half_number = lc_scalar(2, half);
        lc_tensor *mask = lc_gt(h, f), *ids = lc_argmax(h, .dim = 1), *found;
        TYPE(lc_add(h, h), half);
        TYPE(lc_mul(h, f), LC_F32);
        TYPE(lc_sub(h, other), LC_F32);
        TYPE(lc_mul(h, number), half); /* one without dimensions does not count */
        TYPE(lc_mul(f, half_number), LC_F32);
        TYPE(lc_mul(half_number, number), LC_F32);
        TYPE(lc_mul(half_number, half_number), half);
        TYPE(lc_add_scalar(h, 1), half);
        TYPE(mask, LC_BOOL);
        TYPE(ids, LC_I64);
        TYPE(lc_topk(h, &found, 2, 1), half);
        TYPE(found, LC_I64);
        TYPE(lc_where(mask, h, f), LC_F32);
        TYPE(lc_masked_fill(h, mask, 1), half);
        TYPE(lc_exp(h), half);
        TYPE(lc_sum(h), half);
        TYPE(lc_mean(h, .dims = LC_DIMS(0)), half);
        TYPE(lc_softmax(h, 1), half);
        TYPE(lc_cross_entropy(h, ids), half);
        TYPE(lc_linear(h, h, NULL), half);
        TYPE(lc_linear(h, f, NULL), LC_F32);
        TYPE(lc_matmul(h, lc_transpose(h, 0, 1)), half);
        TYPE(lc_layer_norm(h, lc_full(1, LC_F32, 3), NULL), half); /* the input decides */
        TYPE(lc_layer_norm(f, lc_full(1, half, 3), NULL), LC_F32);
        TYPE(lc_cat(0, h, f), LC_F32);
        TYPE(lc_cat(0, h, h), half);
        TYPE(lc_embedding(ids, h), half);
        TYPE(lc_dropout(h, 0.5), half);
        TYPE(lc_reshape(h, 3, 4), half);
        TYPE(lc_cast(h, LC_F32), LC_F32);
        TYPE(lc_uniform(1, (int64_t[]){4}, .dtype = half), half);
        TYPE(lc_randn_like(h), half);
        end();
    }
}

/* ---- numbers ---- */

static double value_of(lc_tensor *t)
{
    double v;
    CHECK_OK(lc_item(t, &v));
    return v;
}

TEST(results_are_rounded_once)
{
    begin();
    lc_tensor *ones = lc_full(1, LC_BF16, 3000);
    CHECK_EQ(value_of(lc_keep(lc_sum(ones))), 3008); /* bf16's neighbor of 3000; sums in bf16 stay at 256 */
    CHECK_EQ(value_of(lc_keep(lc_mean(lc_full(100, LC_F16, 1000)))), 100); /* the sum is beyond f16 */
    CHECK(isinf(value_of(lc_keep(lc_sum(lc_full(100, LC_F16, 1000))))));
    lc_tensor *a = lc_full(256, LC_BF16, 1), *b = lc_full(1, LC_BF16, 1);
    CHECK_EQ(value_of(lc_keep(lc_sum(lc_sub(lc_add(a, b), a)))), 0);
    CHECK_EQ(value_of(lc_keep(lc_matmul(lc_reshape(ones, 1, -1), lc_reshape(ones, -1, 1)))), 3008);
    end();
}

/* ---- gradients ---- */

enum { N = 6 };

static lc_tensor *parameter(lc_dtype dtype, const double *values)
{
    lc_tensor *t;
    uint16_t bits[N];
    CHECK_OK(lc_tensor_new(dtype, 1, (int64_t[]){N}, &t));
    for (int i = 0; i < N; i++) lc__set_number(bits, dtype, i, values[i]);
    CHECK_OK(lc_tensor_write(t, bits, sizeof bits));
    lc_tensor_set_requires_grad(t, true);
    return t;
}

static lc_tensor *views(lc_tensor *p)
{
    lc_tensor *m = lc_transpose(lc_reshape(p, 2, 3), 0, 1);                      /* [3,2] */
    m = lc_mul(lc_expand(lc_slice(m, 1, 0, 1), 3, 400), lc_full(1, LC_BF16, 1)); /* each of 3 elements 400 times */
    return lc_sum(lc_contiguous(m));
}

static lc_tensor *checkpointed(lc_tensor *p)
{
    lc_checkpoint_begin();
    lc_tensor *y = lc_exp(lc_mul(p, p));
    lc_checkpoint_end();
    return lc_sum(y);
}

static lc_tensor *plain(lc_tensor *p)
{
    return lc_sum(lc_exp(lc_mul(p, p)));
}

static lc_tensor *without_history(lc_tensor *p)
{
    lc_no_grad_begin();
    lc_tensor *scale = lc_mul_scalar(p, 2);
    lc_no_grad_end();
    return lc_sum(lc_mul(p, scale));
}

static void gradient_of(lc_tensor *(*build)(lc_tensor *p), double *out)
{
    static const double values[N] = {0.5, -1.25, 0.75, 1.5, -0.25, 1};
    uint16_t bits[N];
    begin();
    lc_tensor *p = parameter(LC_BF16, values);
    lc_backward(build(p));
    lc_tensor *d = lc_keep(lc_gradient(p));
    CHECK(lc_tensor_dtype(d) == LC_BF16);
    CHECK_OK(lc_step_run(graph));
    CHECK_OK(lc_tensor_read(d, bits, sizeof bits));
    for (int i = 0; i < N; i++) out[i] = lc__number_at(bits, LC_BF16, i);
    end();
    lc_tensor_unref(p);
}

/* f16 has no room for squares of 300, nor for their sums. */
TEST(nothing_in_between_overflows)
{
    double got;
    begin();
    lc_tensor *x = lc_cat(0, lc_full(300, LC_F16, 8), lc_full(-300, LC_F16, 8));
    CHECK_OK(lc_item(lc_std(x, .correction = 0), &got));
    CHECK_EQ(got, 300);
    CHECK_OK(lc_item(lc_cosine_similarity(x, lc_mul_scalar(x, 2), 0), &got));
    CHECK_NEAR(got, 1, 0x1p-10);
    end();
}

TEST(gradients_are_rounded_once)
{
    double g[N], again[N];
    gradient_of(views, g); /* the sum of 400 ones is 400, in bf16 too */
    for (int i = 0; i < N; i++) CHECK_EQ(g[i], i < 3 ? 400 : 0);
    gradient_of(plain, g);
    gradient_of(checkpointed, again);
    CHECK(!memcmp(g, again, sizeof g));
    gradient_of(without_history, g);
    CHECK_EQ(g[0], 1);
    CHECK(g[1] == -2.5);
}

/* The operators that a step records: exponentials of p, before number `write` of which it writes p. */
static int64_t recorded(lc_tensor *p, int n, int write)
{
    lc_graph_stats stats;
    lc_tensor *y = NULL;
    CHECK_OK(lc_graph_new(&graph, .threads = 1));
    CHECK_OK(lc_step_begin(graph, 0, 0));
    for (int i = 0; i < n; i++) {
        if (i == write) lc_assign(p, lc_full(2, LC_F16, N));
        y = lc_exp(p);
    }
    lc_keep(y);
    CHECK_OK(lc_step_run(graph));
    CHECK_OK(lc_step_end(graph));
    lc_graph_get_stats(graph, &stats);
    lc_graph_free(graph);
    return stats.recorded;
}

static const double one_to_six[N] = {1, 2, 3, 4, 5, 6};

/* A weight that several operators read is converted once, and again after it was written. */
TEST(a_weight_is_converted_once)
{
    lc_tensor *p = parameter(LC_F16, one_to_six);
    CHECK_EQ(recorded(p, 5, -1), recorded(p, 1, -1) + 4 * 2); /* each is followed by its rounding */
    CHECK_EQ(recorded(p, 5, 3), recorded(p, 5, 0) + 1);
    lc_tensor_unref(p);
}

TEST(a_weight_that_is_written_is_read_again)
{
    lc_tensor *p = parameter(LC_F16, one_to_six);
    begin();
    lc_tensor *before = lc_keep(lc_sum(p));
    lc_assign(p, lc_full(2, LC_F16, N));
    lc_tensor *after = lc_keep(lc_sum(p));
    CHECK_OK(lc_step_run(graph));
    CHECK_EQ(value_of(before), 21);
    CHECK_EQ(value_of(after), 2 * N);
    end();
    lc_tensor_unref(p);
}

TEST(steps_replay_their_plan)
{
    lc_tensor *p = parameter(LC_F16, one_to_six);
    lc_graph_stats stats;
    CHECK_OK(lc_graph_new(&graph, .threads = 1));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lc_step_begin(graph, (uint64_t)i, 0));
        lc_keep(lc_sum(lc_mul(p, p)));
        CHECK_OK(lc_step_run(graph));
        CHECK_OK(lc_step_end(graph));
    }
    lc_graph_get_stats(graph, &stats);
    CHECK_EQ(stats.misses, 1);
    CHECK_EQ(stats.hits, 2);
    lc_graph_free(graph);
    lc_tensor_unref(p);
}

/* ---- a module ---- */

enum { EPOCHS = 4, BATCH = 16 };

typedef struct run {
    const char *root, *strategy, *precision, *ckpt_path;
    lc_dtype dtype;
    bool deterministic, master;
    int64_t stop_after;
} run;

typedef struct outcome {
    double loss[EPOCHS * SAMPLES / BATCH];
    uint16_t w1[2 * N1];
    int n;
    lc_dtype dtype; /* of the network's result */
} outcome;

#include "runs.h"

typedef struct net {
    lc_module base;
    lc_tensor *w1, *w2;
    const run *r;
    outcome *out;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    (void)i;
    lc_tensor *y = lc_gelu(lc_linear(lc_cast(b->x, m->r->dtype), m->w1, NULL));
    y = lc_dropout(lc_layer_norm(y, NULL, NULL), 0.1);
    y = lc_linear(y, m->w2, NULL);
    m->out->dtype = lc_tensor_dtype(y);
    return lc_cross_entropy(y, b->y);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 0.01, .master_weights = ((net *)self)->r->master));
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b, (void)i;
    LC_TRY(lc_item(o->loss, &m->out->loss[m->out->n++]));
    return die_after(self->trainer, m->r->stop_after);
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("halves"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers,
                                  .on_train_batch_end = on_train_batch_end};

static lc_status train(lc_comm *comm, const run *r, outcome *out)
{
    net m = {.r = r, .out = out};
    lc_dataloader *loader;
    lc_trainer *t;
    memset(out, 0, sizeof *out);
    LC_TRY(loader_of(0, SAMPLES, comm ? BATCH / lc_comm_size(comm) : BATCH, true, &loader));
    lc_module_init(&m.base, &ops, 3);
    add_layers(&m.base, r->dtype, &m.w1, &m.w2);
    LC_TRY(lc_module_status(&m.base));
    lc_trainer_options opt = quiet_options(comm);
    opt.default_root_dir = r->root;
    opt.strategy = r->strategy;
    opt.precision = r->precision;
    opt.deterministic = r->deterministic;
    opt.max_epochs = EPOCHS;
    opt.gradient_clip_val = 0.5;
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = loader, .ckpt_path = r->ckpt_path);
    if (s >= 0) s = lc_tensor_gather(m.w1, out->w1, N1 * lc_dtype_size(r->dtype));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return s;
}

static bool same(const outcome *a, const outcome *b)
{
    return !memcmp(a->w1, b->w1, sizeof a->w1);
}

TEST(a_module_of_halves_is_trained)
{
    static outcome f32, o;
    CHECK_OK(train(NULL, &(run){.dtype = LC_F32}, &f32));
    CHECK(f32.loss[f32.n - 1] < 0.7 * f32.loss[0]);
    for (int k = 0; k < 4; k++) {
        run r = {.dtype = halves[k % 2], .precision = k / 2 ? "bf16-mixed" : NULL, .master = k / 2};
        CHECK_OK(train(NULL, &r, &o));
        CHECK(o.dtype == r.dtype);
        for (int i = 0; i < o.n; i++) CHECK_NEAR(o.loss[i], f32.loss[i], 0.05 * f32.loss[0]);
    }
}

TEST(ranks_and_resumed_runs_have_the_same_bits)
{
    static outcome whole, o;
    for (int k = 0; k < 2; k++) {
        run r = {.dtype = halves[k], .deterministic = true};
        CHECK_OK(train(NULL, &r, &whole));
        for (int n = 2; n <= 4; n *= 2) {
            run several = r;
            several.strategy = n == 2 ? "sharded_2" : "ddp";
            train_ranks(&several, n, &o);
            CHECK(same(&whole, &o));
        }
        train_in_two(&r, 9, &o);
        CHECK(same(&whole, &o));
    }
}

/* ---- what is refused, and what is left alone ---- */

static void refused(lc_tensor *t, const char *part)
{
    CHECK(lc_tensor_is_error(t));
    CHECK(lc_step_status(graph) < 0);
    CHECK_CONTAINS(lc_error_message(), part);
    (void)!lc_step_end(graph);
    CHECK_OK(lc_step_begin(graph, 0, 0));
}

TEST(errors)
{
    begin();
    refused(lc_add(lc_full(1, LC_BF16, 2), lc_full(1, LC_F64, 2)), "f64 and bf16; convert one");
    refused(lc_linear(lc_full(1, LC_BF16, 2, 2), lc_full(1, LC_F64, 2, 2), NULL),
            "x is bf16, which cannot be combined");
    refused(lc_add(lc_full(1, LC_BF16, 2), lc_full(1, LC_I64, 2)), "lc_cast");
    refused(lc_add(lc_full(1, LC_BF16, 2), lc_full(1, LC_BF16, 3)), "do not broadcast");
    refused(lc_exp(NULL), "NULL");
    end();
}

static lc_dtype given;

static lc_status infer_own(lc_infer *call)
{
    given = call->in[0]->dtype;
    call->out[0] = *call->in[0];
    return LC_OK;
}

static void copy(const lc_call *c)
{
    memcpy(c->out[0].data, c->in[0].data, N * sizeof(uint16_t));
}

static const lc_kernel own_kernel = {.name = "own", .layout = LC_WANT_ROW_MAJOR, .run = copy};
static const lc_op own = {.name = "own", .flags = LC_OP_NO_GRAD, .n_out = 1, .infer = infer_own, .kernel = &own_kernel};

TEST(an_operator_of_the_program_gets_halves)
{
    begin();
    lc_tensor *x = lc_full(3, LC_F16, N);
    lc_tensor *y = lc_op_call(&own, 1, &x, 0, NULL, 0, NULL, LC_HERE);
    CHECK(given == LC_F16);
    CHECK_EQ(value_of(lc_keep(lc_sum(y))), 3 * N);
    end();
}

TEST_MAIN
