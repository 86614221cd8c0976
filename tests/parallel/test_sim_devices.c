/* SPDX-License-Identifier: Apache-2.0 */
/* Devices with memory of their own (backends/sim/sim.h) train to the bits that the CPU's come to. */
#define _GNU_SOURCE
#include "device_run.h"
#include "sim_device.h"

static void check(const job *j)
{
    static const char *const schedules[] = {"lazy", "eager", "random:5"};
    static outcome want, got;
    find_plugin();
    use(NULL, NULL);
    CHECK_OK(run(j, &want));
    for (int i = 0; i < 3; i++) { /* a device reads its schedule when it is opened */
        use(i == 0 ? "sim" : i == 1 ? "sim:2" : "sim:4", schedules[i]);
        CHECK_OK(run(j, &got));
        CHECK(small_net_same_bits(&want.end, &got.end));
        CHECK_EQ(got.befores, want.befores);
        CHECK(got.last_step == want.last_step && got.output_error == want.output_error);
    }
    use(NULL, NULL);
}

static job on_devices(const char *strategy, const char *devices)
{
    job j = job_of(strategy);
    j.strategy = strategy;
    j.devices = devices;
    j.dropout = 0.2;
    j.accumulate = 2;
    j.clip = 0.5;
    return j;
}

TEST(data_parallel)
{
    job j = on_devices("data_parallel", "4");
    check(&j);
}
TEST(central_storage)
{
    job j = on_devices("central_storage", "2");
    check(&j);
}
TEST(batches_that_a_hook_computes)
{
    job j = on_devices("data_parallel", "4");
    j.transfers = true;
    check(&j);
}
TEST(losses_that_a_hook_reads)
{
    job j = on_devices("data_parallel", "3");
    j.spikes = j.freezes = true;
    check(&j);
}

/* ---- a tensor of one device ---- */

static lc_tensor *scale;

static lc_tensor *scaled_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    return lc_cross_entropy(lc_mul(logits_of(&m->base, b->x), scale), b->y);
}

TEST(a_tensor_that_is_no_buffer_is_refused_on_other_devices)
{
    net m;
    outcome o = {0};
    lc_module_ops ops = {LC_MODULE_OPS_INIT("scaled"), .training_step = scaled_step,
                         .configure_optimizers = configure_optimizers};
    lc_dataloader *train;
    lc_trainer *t;
    find_plugin();
    use("sim", "lazy");
    job j = on_devices("data_parallel", "2");
    lc_trainer_options opt = options_of(&j);
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &scale));
    CHECK_OK(loader_of(0, SAMPLES, BATCH, true, &train));
    CHECK_OK(net_init(&m, &j, &o, &ops));
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_STATUS(lc_trainer_fit(t, &m.base.base, .train_dataloader = train), LC_ERR_STATE);
    CHECK(strstr(lc_error_message(), "on sim, but the step runs on sim:1"));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    lc_tensor_unref(scale);
    use(NULL, NULL);
}

/* ---- what a steady step does ---- */

/* A few steps of the second epoch. */
enum { DEVICES = 2, STEADY = 12, STEPS = 4 };

static lc_sim_counters at[2][DEVICES];

static lc_status count(void *ctx, lc_trainer *t, const lc_batch *b, int64_t i)
{
    int64_t step = lc_trainer_global_step(t);
    (void)ctx, (void)b, (void)i;
    for (int d = 0; d < DEVICES && (step == STEADY || step == STEADY + STEPS); d++) at[step != STEADY][d] = counters(d);
    return LC_OK;
}

static lc_tensor *plain_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_cross_entropy(logits_of(&((net *)self)->base, b->x), b->y);
}

/* The host waits until a device has computed its part, and while it reads the loss of that: twice for the first one,
 * which has more to do by then. Before that it waits for the parameters of the first one, which the others get. */
static void steady(const char *strategy)
{
    net m;
    outcome o = {0};
    lc_callback counting;
    lc_module_ops ops = {LC_MODULE_OPS_INIT("plain"), .training_step = plain_step,
                         .configure_optimizers = configure_optimizers};
    lc_dataloader *train;
    lc_trainer *t;
    find_plugin();
    use("sim", "lazy");
    job j = on_devices(strategy, "2");
    j.accumulate = 1;
    j.max_epochs = 2;
    lc_trainer_options opt = options_of(&j);
    CHECK_OK(lc_lambda_callback(&counting, .on_train_batch_start = count));
    opt.callbacks = &counting;
    opt.n_callbacks = 1;
    opt.log_every_n_steps = 100;
    CHECK_OK(loader_of(0, SAMPLES, BATCH, true, &train));
    CHECK_OK(net_init(&m, &j, &o, &ops));
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base.base, .train_dataloader = train));
    for (int d = 0; d < DEVICES; d++) {
        lc_sim_counters from = at[0][d], to = at[1][d];
        CHECK_EQ(to.launches - from.launches, 0);
        CHECK_EQ(to.allocations - from.allocations, 0);
        CHECK_EQ(to.programs - from.programs, STEPS * (d == 0 ? 2 : 1)); /* of the part, and on one the update */
        CHECK_EQ(to.waits - from.waits, STEPS * (d == 0 ? 4 : 2));
    }
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    use(NULL, NULL);
}

TEST(a_steady_step)
{
    steady("data_parallel");
    steady("central_storage");
}

TEST_MAIN
