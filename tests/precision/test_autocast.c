/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of lc_autocast_begin and lc_autocast_end: which products are rounded, in which type, in which region; and
 * their gradients. A product is x * w of 1x1 matrices. */
#include "test.h"

#include <lightc/lightc.h>

/* FINE is 1 in bf16, and f16 has it; FINER is 1 in both. */
static const double FINE = 1 + 0x1p-9, FINER = 1 + 0x1p-12;
enum { MOST = 12 };

typedef struct world {
    lc_graph *g;
    lc_module m;
    lc_tensor *w, *fine, *finer;
    float data[2];
    lc_tensor *kept[MOST];
    double want[MOST];
    int n;
} world;

static void begin(world *w, lc_graph_args args)
{
    const int64_t shape[] = {1, 1};
    memset(w, 0, sizeof *w);
    args.threads = 1;
    CHECK_OK(lc_graph_new_with(&w->g, &args));
    lc_module_init(&w->m, NULL, 1);
    w->w = lc_module_add_parameter(&w->m, "w", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){.kind = LC_INIT_ONES});
    w->data[0] = (float)FINE, w->data[1] = (float)FINER;
    CHECK_OK(lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, &w->data[0], &w->fine));
    CHECK_OK(lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, &w->data[1], &w->finer));
}

static void end(world *w)
{
    lc_tensor_unref(w->fine);
    lc_tensor_unref(w->finer);
    lc_module_release(&w->m);
    lc_graph_free(w->g);
}

static void expect(world *w, lc_tensor *y, double want)
{
    CHECK(w->n < MOST);
    w->kept[w->n] = lc_keep(y);
    w->want[w->n++] = want;
}

/* What a product of `x`, which is FINE or FINER, is here. */
static void product_is(world *w, lc_tensor *x, double want)
{
    expect(w, lc_matmul(x, w->w), want);
}

static void finish(world *w)
{
    CHECK_OK(lc_step_run(w->g));
    for (int i = 0; i < w->n; i++) {
        float got;
        CHECK_OK(lc_tensor_read(w->kept[i], &got, sizeof got));
        if ((double)got != w->want[i]) TEST_FAIL("value %d is %.9g, not %.9g", i, (double)got, w->want[i]);
    }
    w->n = 0;
    CHECK_OK(lc_step_end(w->g));
}

/* The second step replays the plan of the first. */
#define STEPS(w)                                                                                                       \
    for (int64_t step_ = 0; step_ < 2; finish(w), step_++)                                                             \
        if (lc_step_begin((w)->g, step_, 0) != LC_OK)                                                                  \
            TEST_FAIL("%s", lc_error_message());                                                                       \
        else

TEST(regions_nest)
{
    world w;
    begin(&w, lc_graph_defaults());
    STEPS(&w)
    {
        product_is(&w, w.fine, FINE);
        lc_autocast_begin(true);
        product_is(&w, w.fine, 1);
        lc_autocast_begin(false);
        product_is(&w, w.fine, FINE);
        lc_autocast_begin(true);
        product_is(&w, w.fine, 1);
        lc_autocast_end();
        product_is(&w, w.fine, FINE);
        lc_autocast_end();
        product_is(&w, w.fine, 1);
        lc_autocast_end();
        product_is(&w, w.fine, FINE);
    }
    end(&w);
}

/* In a graph with autocast. */
TEST(off_inside_on)
{
    world w;
    begin(&w, LC_ARGS(lc_graph, .autocast = LC_BF16));
    STEPS(&w)
    {
        product_is(&w, w.fine, 1);
        lc_autocast_begin(false);
        product_is(&w, w.fine, FINE);
        lc_autocast_begin(false);
        product_is(&w, w.fine, FINE);
        lc_autocast_end();
        product_is(&w, w.fine, FINE);
        lc_autocast_end();
        product_is(&w, w.fine, 1);
        lc_autocast_begin(false);
        product_is(&w, w.fine, FINE);
        lc_autocast_end();
    }
    end(&w);
}

TEST(the_type_is_the_graphs)
{
    world w;
    begin(&w, LC_ARGS(lc_graph, .autocast = LC_F16));
    STEPS(&w)
    {
        product_is(&w, w.fine, FINE);
        product_is(&w, w.finer, 1);
        lc_autocast_begin(false);
        product_is(&w, w.finer, FINER);
        lc_autocast_begin(true);
        product_is(&w, w.fine, FINE);
        product_is(&w, w.finer, 1);
        lc_autocast_end();
        lc_autocast_end();
    }
    end(&w);
}

/* Everything is stored in one type, which no region changes. */
TEST(a_graph_with_storage)
{
    world w;
    begin(&w, LC_ARGS(lc_graph, .storage = LC_F16));
    STEPS(&w)
    {
        lc_autocast_begin(false);
        product_is(&w, w.fine, FINE);
        product_is(&w, w.finer, 1);
        lc_autocast_end();
        lc_autocast_begin(true);
        product_is(&w, w.fine, FINE);
        product_is(&w, w.finer, 1);
        lc_autocast_end();
    }
    end(&w);
}

/* A sum is f32: what the region before it rounded stays rounded, and the next product rounds again. */
TEST(results_of_a_region_are_used_outside)
{
    world w;
    begin(&w, lc_graph_defaults());
    STEPS(&w)
    {
        lc_autocast_begin(true);
        lc_tensor *rounded = lc_matmul(w.fine, w.w);
        lc_autocast_end();
        expect(&w, lc_add(rounded, w.fine), 1 + FINE);
        product_is(&w, w.fine, FINE);
        lc_tensor *exact = lc_matmul(w.fine, w.w);
        lc_autocast_begin(true);
        expect(&w, lc_matmul(exact, w.w), 1);
        lc_autocast_end();
    }
    end(&w);
}

/* The gradient of w is x, as the product had it, wherever backward is called. */
TEST(gradients_of_a_region)
{
    for (int low = 0; low < 2; low++)
        for (int inside = 0; inside < 2; inside++) {
            world w;
            begin(&w, low ? lc_graph_defaults() : LC_ARGS(lc_graph, .autocast = LC_BF16));
            STEPS(&w)
            {
                lc_zero_grad(w.g);
                lc_autocast_begin(low);
                lc_tensor *y = lc_sum(lc_matmul(w.fine, w.w));
                lc_autocast_end();
                if (inside) lc_autocast_begin(!low);
                lc_backward(y);
                if (inside) lc_autocast_end();
                expect(&w, lc_gradient(w.w), low ? 1 : FINE);
            }
            end(&w);
        }
}

/* Two products of one weight, one in a region: each adds its own. */
TEST(a_weight_inside_and_outside)
{
    world w;
    begin(&w, lc_graph_defaults());
    STEPS(&w)
    {
        lc_zero_grad(w.g);
        lc_tensor *exact = lc_matmul(w.fine, w.w);
        lc_autocast_begin(true);
        lc_tensor *rounded = lc_matmul(w.fine, w.w);
        lc_autocast_end();
        lc_backward(lc_sum(lc_add(exact, rounded)));
        expect(&w, lc_gradient(w.w), FINE + 1);
    }
    end(&w);
}

static lc_tensor *without_dims(lc_tensor *x)
{
    return lc_select(lc_select(x, 0, 0), 0, 0);
}

/* As in PyTorch an f32 operand of no dimensions does not make a result f32. */
TEST(a_number_without_dimensions_does_not_count)
{
    world w;
    begin(&w, LC_ARGS(lc_graph, .autocast = LC_BF16));
    STEPS(&w)
    {
        lc_tensor *one = lc_matmul(w.fine, w.w), *number = without_dims(w.fine);
        expect(&w, lc_mul(one, number), 1);
        expect(&w, lc_mul(number, one), 1);
        expect(&w, lc_where(lc_gt(one, lc_full_like(one, 0)), number, one), 1);
        expect(&w, lc_mul(one, w.fine), FINE);
        expect(&w, lc_mul(w.fine, without_dims(one)), FINE);
        expect(&w, lc_mul(number, without_dims(one)), FINE);
        expect(&w, lc_mul(number, number), (double)((float)FINE * (float)FINE));
    }
    end(&w);
}

/* It is stored as its input, whatever the weight is. */
TEST(prelu_follows_its_input)
{
    world w;
    begin(&w, LC_ARGS(lc_graph, .autocast = LC_BF16));
    STEPS(&w)
    {
        lc_zero_grad(w.g);
        lc_tensor *one = lc_matmul(w.fine, w.w), *weight = lc_reshape(w.fine, 1);
        expect(&w, lc_prelu(lc_neg(one), weight), -1);
        expect(&w, lc_prelu(lc_neg(w.fine), weight), -(double)((float)FINE * (float)FINE));
        lc_backward(lc_sum(lc_prelu(lc_neg(one), weight)));
        expect(&w, lc_gradient(w.w), -1); /* of one it is -FINE, rounded */
    }
    end(&w);
}

/* Operands of 16 bits lose nothing in a loss: f16 has neither 513 squared nor 1024.998. */
TEST(losses_are_f32)
{
    world w;
    begin(&w, LC_ARGS(lc_graph, .autocast = LC_F16));
    STEPS(&w)
    {
        lc_tensor *one = lc_matmul(w.fine, w.w), *x = lc_mul_scalar(one, 512), *zero = lc_sub(one, one);
        expect(&w, lc_mse_loss(x, zero), 513. * 513);
        expect(&w, lc_mse_loss(x, zero, .reduction = LC_REDUCE_NONE), 513. * 513);
        expect(&w, lc_l1_loss(lc_mul_scalar(x, 2), one), 1026 - FINE);
        lc_tensor *half = lc_full_like(w.fine, 0.5), *ones = lc_full_like(w.fine, 1);
        lc_tensor *loss = lc_bce_with_logits(one, half), *weighted = lc_bce_with_logits(one, half, .pos_weight = ones);
        expect(&w, lc_cast(lc_lt(lc_abs(lc_sub(loss, weighted)), lc_full_like(loss, 1e-6)), LC_F32), 1);
    }
    end(&w);
}

/* Operands that f16 can hold give the same loss whether they are stored in f16 or in f32. */
TEST(products_of_losses_are_f32)
{
    world w;
    begin(&w, LC_ARGS(lc_graph, .autocast = LC_F16));
    STEPS(&w)
    {
        lc_tensor *fine[] = {lc_matmul(w.fine, w.w), w.fine}, *loss[2][3];
        for (int i = 0; i < 2; i++) {
            lc_tensor *x = lc_mul_scalar(fine[i], 4), *t = lc_mul_scalar(fine[i], 0.5), *p = lc_mul_scalar(fine[i], 8);
            loss[i][0] = lc_kl_div(x, t);
            loss[i][1] = lc_kl_div(x, t, .log_target = true);
            loss[i][2] = lc_bce_with_logits(x, t, .pos_weight = p);
        }
        for (int k = 0; k < 3; k++) expect(&w, lc_cast(lc_eq(loss[0][k], loss[1][k]), LC_F32), 1);
    }
    end(&w);
}

TEST_MAIN
