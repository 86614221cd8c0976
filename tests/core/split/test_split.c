/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that is computed in pieces (chunks of `deterministic`, parts of `data_parallel`, and chunks of parts) gives
 * the loss and the outputs of the whole batch. */
enum { SAMPLES = 30, BATCH = 15 }; /* so that pieces have different sizes */

#include "quiet_options.h"
#include "small_data.h"
#include "test.h"

#include <lightc/optim.h>

static const struct way {
    const char *name, *strategy, *devices;
    bool deterministic;
    int pieces; /* pieces per batch */
} ways[] = {{"whole", NULL, NULL, false, 1},
            {"chunks", NULL, NULL, true, 8},
            {"parts", "data_parallel", "2", false, 2},
            {"chunks of parts", "data_parallel", "2", true, 8}};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct net {
    lc_module base;
    lc_linear linear;
    bool second_half_has_no_loss, loss_has_a_dimension, two_optimizers, lbfgs;
    int batches, wrong;
    double loss; /* of the last batch */
    int n;       /* the last batch's outputs */
    int64_t highest_rows;
} net;

static lc_tensor *loss_of(net *m, const lc_batch *b)
{
    lc_tensor *loss = lc_cross_entropy(lc_linear_forward(&m->linear, b->x), b->y);
    return m->loss_has_a_dimension ? lc_reshape(loss, 1) : loss;
}

static void give_outputs(net *m, const lc_batch *b, lc_tensor *loss)
{
    lc_output(&m->base, "doubled", lc_mul_scalar(b->x, 2));
    lc_output(&m->base, "loss", loss);
    lc_output(&m->base, "highest", lc_argmax(lc_linear_forward(&m->linear, b->x)));
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    if (m->second_half_has_no_loss && b->indices[0] % BATCH > BATCH / 2) return NULL;
    lc_tensor *loss = loss_of(m, b);
    if (!m->second_half_has_no_loss) give_outputs(m, b, loss);
    return loss;
}

static lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    lc_output(self, "of the second", lc_mul_scalar(b->x, 3));
    return loss_of((net *)self, b);
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i, (void)loader;
    give_outputs(m, b, loss_of(m, b));
    return LC_OK;
}

/* Checks that output `o` has the batch's inputs times `times`. */
static lc_status look_at_rows(net *m, const lc_outputs *out, int o, const lc_batch *b, float times)
{
    float all[BATCH][FEATURES];
    if (lc_tensor_numel(out->values[o]) != (int64_t)BATCH * FEATURES) {
        m->wrong++;
        return LC_OK;
    }
    LC_TRY(lc_tensor_read(out->values[o], all, sizeof all));
    for (int k = 0; k < BATCH; k++)
        for (int f = 0; f < FEATURES; f++) m->wrong += all[k][f] != times * inputs[b->indices[k]][f];
    return LC_OK;
}

static lc_status look_at(net *m, const lc_outputs *out, const lc_batch *b, const double *loss)
{
    double again;
    m->batches++;
    m->n = out->n;
    if (out->n < 3) return LC_OK;
    m->wrong += strcmp(out->names[0], "doubled") != 0 || strcmp(out->names[1], "loss") != 0;
    LC_TRY(look_at_rows(m, out, 0, b, 2));
    if (!m->loss_has_a_dimension) LC_TRY(lc_item(out->values[1], &again));
    if (loss && !m->loss_has_a_dimension) m->wrong += fabs(again - *loss) > 1e-6;
    m->highest_rows = lc_tensor_numel(out->values[2]);
    return out->n > 3 ? look_at_rows(m, out, 3, b, 3) : LC_OK;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *out, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    LC_TRY(lc_item(out->loss, &m->loss));
    return look_at(m, out, b, m->two_optimizers ? NULL : &m->loss); /* the last optimizer's loss */
}

static lc_status on_validation_batch_end(lc_module *self, const lc_outputs *out, const lc_batch *b, int64_t i, int l)
{
    (void)i, (void)l;
    return look_at((net *)self, out, b, NULL);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    net *m = (net *)self;
    if (m->lbfgs) return lc_optimizers_add(out, lc_lbfgs(self, .max_iter = 10));
    if (!m->two_optimizers) return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
    lc_optimizer *first = lc_sgd(self, .parameters = &m->linear.weight, .n_parameters = 1, .lr = 0.1);
    lc_optimizer *second = lc_sgd(self, .parameters = &m->linear.bias, .n_parameters = 1, .lr = 0.1);
    LC_TRY(lc_optimizers_add_step(out, first, training_step));
    return lc_optimizers_add_step(out, second, second_step);
}

static const lc_module_ops ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = validation_step,
    .on_validation_batch_end = on_validation_batch_end,
    .configure_optimizers = configure_optimizers,
};

/* A fit, or with `evaluates` a validation, of the module that *m describes; *m gets what it saw. */
static lc_status run(const struct way *way, net *m, bool evaluates)
{
    lc_trainer_options opt = quiet_options(NULL);
    lc_dataloader *loader;
    lc_trainer *t;
    opt.strategy = way->strategy;
    opt.devices = way->devices;
    opt.deterministic = way->deterministic;
    opt.max_epochs = 1;
    LC_TRY(loader_of(0, SAMPLES, BATCH, false, &loader));
    lc_module_init(&m->base, &ops, 1);
    lc_linear_init(&m->linear, m, "linear", FEATURES, CLASSES);
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0)
        s = evaluates ? lc_trainer_validate(t, &m->base, .val_dataloader = loader)
                      : lc_trainer_fit(t, &m->base, .train_dataloader = loader);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m->base);
    return s;
}

/* Runs `like` in every way; all[w] gets what way w saw. */
static void run_all(const net *like, bool evaluates, net all[WAYS])
{
    for (int w = 0; w < WAYS; w++) {
        all[w] = *like;
        lc_status s = run(&ways[w], &all[w], evaluates);
        if (s < 0) printf("  %s: %s\n", ways[w].name, lc_error_message());
        CHECK(s >= 0);
        CHECK_EQ(all[w].batches, SAMPLES / BATCH);
        if (all[w].wrong) printf("  %s\n", ways[w].name);
        CHECK_EQ(all[w].wrong, 0);
    }
}

static void check_losses(const net all[WAYS], int from)
{
    for (int w = from; w < WAYS; w++) CHECK_NEAR(all[w].loss, all[from].loss, 1e-6);
}

TEST(outputs_of_training)
{
    net all[WAYS];
    run_all(&(net){0}, false, all);
    check_losses(all, 0);
    for (int w = 0; w < WAYS; w++) {
        CHECK_EQ(all[w].n, 3);
        CHECK_EQ(all[w].highest_rows, ways[w].pieces); /* not a floating-point number, so the pieces are concatenated */
    }
}

TEST(outputs_of_evaluation)
{
    net all[WAYS];
    run_all(&(net){0}, true, all);
    for (int w = 0; w < WAYS; w++) CHECK_EQ(all[w].n, 3);
}

TEST(each_optimizer_adds_its_outputs)
{
    net all[WAYS];
    run_all(&(net){.two_optimizers = true}, false, all);
    check_losses(all, 0);
    for (int w = 0; w < WAYS; w++) CHECK_EQ(all[w].n, 4);
}

TEST(a_loss_is_a_number_whatever_its_shape)
{
    net all[WAYS];
    run_all(&(net){.loss_has_a_dimension = true}, false, all);
    check_losses(all, 0);
}

TEST(a_piece_without_a_loss_adds_nothing)
{
    net all[WAYS];
    run_all(&(net){.second_half_has_no_loss = true}, false, all);
    check_losses(all, 1); /* without pieces this batch has a loss */
}

/* Each evaluation of the loss runs the closure again. */
TEST(outputs_are_those_of_the_last_evaluation)
{
    for (int w = 0; w < WAYS - 1; w++) { /* with deterministic it needs one rank and one device */
        net m = {.lbfgs = true};
        CHECK_OK(run(&ways[w], &m, false));
        CHECK_EQ(m.n, 3);
    }
}

TEST_MAIN
