/* SPDX-License-Identifier: Apache-2.0 */
/* Writes of a program to a parameter whose f32 values are stored in another type: the program writes f32, and reads
 * the number of that type that is nearest. */
#include "test.h"

#include "module/tensors.h"

#include <lightc/lightc.h>

enum { N = 8 };

static const char *const names[] = {"64-true", "bf16-true", "16-true"};
static const lc_dtype types[] = {LC_F64, LC_BF16, LC_F16};

typedef struct world {
    lc_module m;
    lc_tensor *p; /* [N], zeros */
    lc_graph *g;
} world;

static void begin(world *w, lc_dtype stored)
{
    lc_module_init(&w->m, NULL, 1);
    w->p = lc_module_add_parameter(&w->m, "p", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){N}, (lc_init){LC_INIT_ZEROS});
    CHECK_OK(lc_module_status(&w->m));
    CHECK_OK(lc__module_store(&w->m, stored));
    CHECK_OK(lc_graph_new(&w->g, .threads = 1, .storage = stored));
}

static void end(world *w)
{
    lc_graph_free(w->g);
    lc_module_release(&w->m);
}

/* (written, added): adds its second operand to the first; out: the sum of what was there. */
static lc_status infer_add_to(lc_infer *call)
{
    if (call->in[0]->dtype != LC_F32) return lc_fail(LC_ERR_DTYPE, "only f32");
    call->out[0] = (lc_type){.dtype = LC_F32};
    return LC_OK;
}

static void add_to(const lc_call *c)
{
    float *w = c->in[0].data, sum = 0;
    const float *x = c->in[1].data;
    int64_t n = 1;
    for (int i = 0; i < c->in[0].ndim; i++) n *= c->in[0].shape[i];
    for (int64_t i = 0; i < n; i++) sum += w[i], w[i] += x[i];
    *(float *)c->out[0].data = sum;
}

static lc_status grad_add_to(lc_grad *g)
{
    (void)g;
    return LC_OK;
}

static const lc_kernel add_to_kernel = {.name = "add_to", .layout = LC_WANT_ROW_MAJOR, .run = add_to};
static const lc_op adds_to = {.name = "adds_to",
                              .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                              .n_out = 1,
                              .infer = infer_add_to,
                              .mutated_inputs = 1,
                              .kernel = &add_to_kernel};
static const lc_op with_rule = {.name = "with_rule",
                                .flags = LC_OP_MUTATES,
                                .n_out = 1,
                                .infer = infer_add_to,
                                .grad = grad_add_to,
                                .mutated_inputs = 1,
                                .kernel = &add_to_kernel};
static const lc_op without_rule = {.name = "without_rule",
                                   .flags = LC_OP_MUTATES,
                                   .n_out = 1,
                                   .infer = infer_add_to,
                                   .mutated_inputs = 1,
                                   .kernel = &add_to_kernel};

static lc_tensor *call_on(const lc_op *op, lc_tensor *to, lc_tensor *x)
{
    return lc_op_call(op, 2, (lc_tensor *[]){to, x}, 0, NULL, 0, NULL, LC_HERE);
}

static double number(lc_tensor *t)
{
    double v;
    CHECK_OK(lc_item(t, &v));
    return v;
}

/* It gets an f32 copy, which is written back, rounded. */
TEST(an_operator_that_writes_a_parameter)
{
    for (int k = 0; k < 3; k++) {
        world w;
        lc_graph_stats first, last;
        begin(&w, types[k]);
        for (int step = 0; step < 4; step++) {
            CHECK_OK(lc_step_begin(w.g, (uint64_t)step, 0));
            lc_tensor *before = lc_keep(lc_sum(w.p));
            lc_tensor *old = lc_keep(call_on(&adds_to, w.p, lc_full(1, LC_F32, N)));
            lc_tensor *after = lc_keep(lc_sum(w.p));
            lc_tensor *twice = lc_keep(call_on(&adds_to, w.p, w.p)); /* reads what it writes */
            lc_tensor *doubled = lc_keep(lc_sum(w.p));
            lc_assign(w.p, lc_mul_scalar(w.p, 0.5));
            CHECK_OK(lc_step_run(w.g));
            CHECK(number(before) == N * step && number(old) == N * step);
            CHECK(number(after) == N * (step + 1) && number(twice) == N * (step + 1));
            CHECK(number(doubled) == N * 2 * (step + 1));
            CHECK_OK(lc_step_end(w.g));
            lc_graph_get_stats(w.g, step ? &last : &first);
        }
        CHECK_EQ(last.misses, first.misses);
        /* 4.001 is not in 16 bits. */
        float values[N];
        CHECK_OK(lc_step_begin(w.g, 4, 0));
        call_on(&adds_to, w.p, lc_full(0.001, LC_F32, N));
        CHECK_OK(lc_step_run(w.g));
        CHECK_OK(lc_step_end(w.g));
        CHECK_OK(lc_tensor_read(w.p, values, sizeof values));
        if (values[0] != (k ? 4 : 4 + 0.001f)) TEST_FAIL("%s: %.9g", names[k], (double)values[0]);
        end(&w);
    }
}

/* A gradient would end at the copy. */
TEST(an_operator_that_passes_gradients)
{
    static const lc_op *const ops[] = {&with_rule, &without_rule};
    for (int k = 0; k < 6; k++) {
        world w;
        const lc_op *op = ops[k % 2];
        begin(&w, types[k / 2]);
        CHECK_OK(lc_step_begin(w.g, 0, 0));
        CHECK(lc_tensor_is_error(call_on(op, w.p, lc_full(1, LC_F32, N))));
        CHECK_STATUS(lc_step_run(w.g), LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(lc_error_message(), "passes gradients; write it with lc_assign");
        (void)!lc_step_end(w.g); /* the error again */
        CHECK_OK(lc_step_begin(w.g, 1, 0));
        lc_no_grad_begin();
        call_on(op, w.p, lc_full(1, LC_F32, N));
        lc_no_grad_end();
        CHECK_OK(lc_step_run(w.g));
        CHECK_OK(lc_step_end(w.g));
        end(&w);
    }
}

/* Assigned values are rounded, and what is read after them is new. */
TEST(assigned_values_are_rounded)
{
    world w;
    begin(&w, LC_BF16);
    CHECK_OK(lc_step_begin(w.g, 1, 0));
    lc_tensor *before = lc_keep(lc_sum(w.p));
    lc_assign(w.p, lc_full(1.001, LC_F32, N));
    lc_tensor *after = lc_keep(lc_sum(w.p));
    CHECK(number(before) == 0);
    CHECK(number(after) == N);
    CHECK_OK(lc_step_end(w.g));
    end(&w);
}

/* A program reads and writes the gradient of an f32 parameter as f32. */
TEST(gradients_are_written_as_f32)
{
    for (int i = 0; i < 3; i++) {
        world w;
        float g[N], got[N];
        for (int k = 0; k < N; k++) g[k] = (float)k - 3;
        begin(&w, types[i]);
        CHECK_OK(lc_gradient_write(w.p, g, sizeof g));
        CHECK_STATUS(lc_gradient_write(w.p, g, sizeof g / 2), LC_ERR_ARGUMENT);
        CHECK(strstr(lc_error_message(), "has 32 bytes as f32"));
        CHECK_OK(lc_step_begin(w.g, 0, 0));
        lc_tensor *read = lc_keep(lc_gradient(w.p));
        CHECK_OK(lc_step_run(w.g));
        CHECK_OK(lc_tensor_read(read, got, sizeof got));
        CHECK(!memcmp(g, got, sizeof g));
        CHECK_OK(lc_step_end(w.g));
        end(&w);
    }
}

/* As a toggled optimizer's parameters: what a step computes from them after they are thawed has gradients again. */
TEST(a_parameter_that_is_frozen_for_a_part_of_a_step)
{
    for (int k = 0; k < 3; k++) {
        world w;
        double sum;
        float gradient[N];
        begin(&w, types[k]);
        CHECK_OK(lc_step_begin(w.g, 0, 0));
        lc_tensor_set_requires_grad(w.p, false);
        CHECK_OK(lc_item(lc_sum(lc_add_scalar(w.p, 1)), &sum));
        CHECK_NEAR(sum, N, 0);
        lc_tensor_set_requires_grad(w.p, true);
        lc_backward(lc_sum(lc_mul_scalar(w.p, 2)));
        CHECK_OK(lc_tensor_read(lc_gradient(w.p), gradient, sizeof gradient));
        for (int i = 0; i < N; i++) CHECK_NEAR(gradient[i], 2, 0);
        CHECK_OK(lc_step_end(w.g));
        end(&w);
    }
}

TEST_MAIN
