/* SPDX-License-Identifier: Apache-2.0 */
/* With ranks a step is executed when gradients are exchanged. Values computed before that can be used afterwards as in
 * one process: logged by training_step and by hooks, and as inputs of the next loss. */
#include "comm_world.h"
#include "quiet_options.h"
#include "small_net.h"

enum { BATCH = 12, BATCHES = 3 };

typedef struct net {
    small_net base;
    lc_linear aux;
    lc_tensor *shared;
} net;

typedef struct job {
    const lc_module_ops *ops;
    const char *name, *strategy; /* name: of the logged value */
    double value;                /* of one process */
    float weight[WIDTH * FEATURES];
    int samples; /* 0: those of BATCHES whole batches */
} job;

static lc_tensor *loss_of(net *m, const lc_batch *b)
{
    m->shared = lc_relu(lc_linear_forward(&m->base.l1, b->x));
    return lc_cross_entropy(lc_linear_forward(&m->base.l2, m->shared), b->y);
}

/* A loss of its own parameters, from a value that the other loss computed. */
static lc_tensor *second_loss_of(net *m)
{
    return lc_mean(lc_square(lc_linear_forward(&m->aux, lc_detach(m->shared))));
}

static lc_status both_optimizers(net *m, lc_optimizer *list[2])
{
    lc_tensor *first[] = {m->base.l1.weight, m->base.l1.bias, m->base.l2.weight, m->base.l2.bias};
    lc_tensor *second[] = {m->aux.weight, m->aux.bias};
    list[0] = lc_sgd(&m->base.base, .parameters = first, .n_parameters = 4, .lr = 0.1);
    list[1] = lc_adam(&m->base.base, .parameters = second, .n_parameters = 2, .lr = 0.01);
    return LC_OK;
}

/* ---- by hand: Lightning's order, values are logged last ---- */

static lc_status optimize(lc_module *self, lc_optimizer *o, lc_tensor *loss)
{
    LC_TRY(lc_manual_zero_grad(self, o));
    LC_TRY(lc_manual_backward(self, loss));
    return lc_manual_step(self, o);
}

static lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *loss = loss_of(m, b);
    (void)i;
    if (optimize(self, lc_manual_optimizer(self, 0), loss) < 0) return NULL;
    lc_tensor *second = second_loss_of(m);
    if (optimize(self, lc_manual_optimizer(self, 1), second) < 0) return NULL;
    lc_log(self, "value", lc_add(loss, second), .on_epoch = LC_ON);
    return loss;
}

static lc_status manual_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *list[2];
    LC_TRY(both_optimizers((net *)self, list));
    LC_TRY(lc_optimizers_add(out, list[0]));
    return lc_optimizers_add(out, list[1]);
}

static const lc_module_ops manual_ops = {
    LC_MODULE_OPS_INIT("by_hand"),
    .training_step = manual_step,
    .configure_optimizers = manual_optimizers,
    .manual_optimization = true,
};

/* ---- step functions of two optimizers ---- */

static lc_tensor *first_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return loss_of((net *)self, b);
}

static lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = second_loss_of((net *)self);
    (void)b, (void)i;
    lc_log(self, "value", loss, .on_epoch = LC_ON);
    return loss;
}

static lc_status two_steps(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *list[2];
    LC_TRY(both_optimizers((net *)self, list));
    LC_TRY(lc_optimizers_add_step(out, list[0], first_step));
    return lc_optimizers_add_step(out, list[1], second_step);
}

static const lc_module_ops two_steps_ops = {
    LC_MODULE_OPS_INIT("two_steps"),
    .training_step = first_step,
    .configure_optimizers = two_steps,
};

/* ---- a hook between the backward pass and the update ---- */

static lc_tensor *remembering_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *loss = loss_of(m, b);
    m->shared = lc_mean(lc_square(m->shared));
    return loss;
}

static lc_status log_remembered(lc_module *self)
{
    lc_log(self, "value", ((net *)self)->shared, .on_epoch = LC_ON);
    return LC_OK;
}

static const lc_module_ops hook_ops = {
    LC_MODULE_OPS_INIT("hook"),
    .training_step = remembering_step,
    .on_after_backward = log_remembered,
    .configure_optimizers = small_net_sgd,
};

/* ---- a value that is carried over from batch to batch ---- */

static lc_tensor *carrying_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *before = m->shared, *loss = loss_of(m, b);
    return i > 0 ? lc_add(loss, lc_mean(before)) : loss;
}

static const lc_module_ops carrying_ops = {
    LC_MODULE_OPS_INIT("carrying"),
    .training_step = carrying_step,
    .configure_optimizers = small_net_sgd,
};

/* ---- the runs ---- */

static lc_status fit(job *j, lc_comm *comm, int devices, double *value, float *weight)
{
    int n = comm ? lc_comm_size(comm) : 1;
    net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    char count[16], message[1024];
    opt.max_epochs = 2;
    opt.strategy = j->strategy;
    snprintf(count, sizeof count, "%d", devices);
    if (devices) opt.devices = count;
    LC_TRY(loader_of(0, j->samples ? j->samples : BATCHES * BATCH, BATCH / n, false, &train));
    LC_TRY(small_net_init(&m.base, j->ops, 1));
    if (j->ops == &manual_ops || j->ops == &two_steps_ops) lc_linear_init(&m.aux, &m, "aux", WIDTH, 2);
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train);
    if (s >= 0) s = lc_trainer_metric(t, "value_epoch", value);
    if (s >= 0) s = lc_tensor_read(m.base.l1.weight, weight, sizeof j->weight);
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    double value;
    float weight[WIDTH * FEATURES];
    LC_TRY(fit(j, comm, 0, &value, weight));
    RANK_CHECK(fabs(value - j->value) < 1e-6);
    for (int i = 0; i < WIDTH * FEATURES; i++) RANK_CHECK(fabsf(weight[i] - j->weight[i]) < 3e-6F);
    return LC_OK;
}

static void check(const lc_module_ops *ops)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    job j = {.ops = ops};
    CHECK_OK(fit(&j, NULL, 0, &j.value, j.weight));
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        j.strategy = strategies[i];
        CHECK_RANKS("threads", 2, run_rank, &j);
    }
}

TEST(manual_optimization_logs_and_uses_values_after_a_backward_pass)
{
    check(&manual_ops);
}

TEST(a_step_function_uses_values_of_the_previous_one)
{
    check(&two_steps_ops);
}

TEST(a_hook_after_the_backward_pass_logs_values_of_training_step)
{
    check(&hook_ops);
}

/* Each device has a part of the batch, and a C variable holds the value of the last one. */
TEST(values_of_one_device_are_refused_with_advice)
{
    job j = {.ops = &hook_ops, .strategy = "data_parallel"};
    CHECK_STATUS(fit(&j, NULL, 2, &j.value, j.weight), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "lc_log(\"value\") in on_after_backward: the value is for one device's part");
    CHECK_CONTAINS(lc_error_message(), "test_late_values.c:");
    j.ops = &two_steps_ops;
    CHECK(fit(&j, NULL, 2, &j.value, j.weight) < 0);
    CHECK_CONTAINS(lc_error_message(),
                   "computed for another device's part of the batch, or in an earlier step; compute it in the step "
                   "function that uses it, or lc_assign it to a persistent tensor to carry it over");
}

/* On one device, and of a device that may have no part of the present batch. */
TEST(values_of_an_earlier_step_are_refused_with_what_to_do)
{
    static const int samples[] = {BATCHES * BATCH, BATCH + 1};
    for (int devices = 0; devices <= 2; devices += 2)
        for (int k = 0; k < 2; k++) {
            job j = {.ops = &carrying_ops, .strategy = devices ? "data_parallel" : NULL, .samples = samples[k]};
            CHECK_STATUS(fit(&j, NULL, devices, &j.value, j.weight), LC_ERR_STATE);
            CHECK_CONTAINS(lc_error_message(),
                           devices ? "in an earlier step; " : "of an earlier step, which has expired; ");
            CHECK_CONTAINS(lc_error_message(), "lc_assign it to a persistent tensor to carry it over");
            CHECK_CONTAINS(lc_error_message(), "test_late_values.c:");
        }
}

TEST_MAIN
