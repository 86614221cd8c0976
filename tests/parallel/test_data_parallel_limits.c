/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of data_parallel and central_storage: the memory of devices, and calls that they do not support. */
#include "device_run.h"

/* ---- memory ---- */

TEST(memory_of_each_device)
{
    const int64_t parameters = 4 * (8 * FEATURES + 8 + CLASSES * 8 + CLASSES);
    for (int s = 0; s < 2; s++) {
        outcome o;
        job j = job_of("memory");
        j.strategy = strategies[s];
        j.devices = "3";
        CHECK_OK(run(&j, &o));
        const lc_device_memory *host = &o.memory[0], *device = &o.memory[1];
        const lc_device_memory *owner = s ? host : device;
        CHECK_EQ(owner->parameters, parameters);
        CHECK(owner->gradients >= parameters &&
              owner->gradients <= parameters + 4 * 256);    /* each gradient begins aligned */
        CHECK_EQ(owner->optimizer_state, owner->gradients); /* momentum */
        for (int i = s ? 0 : 1; i < 3; i++) {
            CHECK_EQ(device[i].parameters, s ? parameters : 0);
            CHECK_EQ(device[i].gradients, owner->gradients);
            CHECK_EQ(device[i].optimizer_state, 0);
            CHECK(device[i].activations > 0);
        }
        if (!s) CHECK_EQ(host->parameters + host->gradients + host->activations, 0);
    }
}

static int64_t held(const lc_device_memory *m)
{
    return m->parameters + m->buffers + m->gradients + m->optimizer_state;
}

/* The fit with that limit. */
static lc_status limited(job *j, int64_t bytes)
{
    outcome o;
    char limit[32];
    snprintf(limit, sizeof limit, "%lld", (long long)bytes);
    j->memory_limit = limit;
    return run(j, &o);
}

TEST(a_limit_holds_for_all_devices_together)
{
    for (int s = 0; s < 2; s++) {
        outcome o;
        char needs[100];
        job j = job_of("limit");
        j.strategy = strategies[s];
        j.devices = "3";
        CHECK_OK(run(&j, &o));
        int64_t all = held(&o.all), of_devices = 0, of_steps = 0;
        for (int i = s ? 0 : 1; i <= 3; i++) {
            of_devices += held(&o.memory[i]);
            of_steps += o.memory[i].activations;
        }
        CHECK_EQ(all, of_devices);
        CHECK_EQ(o.all.activations, of_steps);
        CHECK_OK(limited(&j, all + of_steps));
        CHECK_STATUS(limited(&j, all + of_steps - 1), LC_ERR_MEMORY);
        CHECK_CONTAINS(lc_error_message(), "raise memory_limit to ");
        CHECK_STATUS(limited(&j, all), LC_ERR_MEMORY);
        snprintf(needs, sizeof needs, "a rank needs %.2f KiB", (double)all / 1024);
        CHECK_CONTAINS(lc_error_message(), needs);
        CHECK_CONTAINS(lc_error_message(), "Fewer devices would need memory for fewer gradients");
    }
}

/* ---- unsupported calls ---- */

static const char *failing(lc_module *m, lc_trainer_options *opt)
{
    lc_dataloader *l;
    lc_trainer *t = NULL;
    opt->barebones = true;
    opt->max_epochs = 1;
    opt->handle_signals = false;
    CHECK_OK(loader_of(0, SAMPLES, BATCH, false, &l));
    lc_status s = lc_trainer_new(opt, &t);
    if (s >= 0) s = lc_trainer_fit(t, m, .train_dataloader = l);
    CHECK(s < 0);
    static char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(l);
    return message;
}

static const char *failing_options(const char *devices, int64_t num_nodes, bool tune)
{
    job j = {.accumulate = 1};
    outcome o;
    net m;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.strategy = "data_parallel";
    opt.devices = devices;
    opt.num_nodes = num_nodes;
    opt.tune = tune;
    CHECK_OK(net_init(&m, &j, &o, &net_ops));
    const char *message = failing(&m.base.base, &opt);
    small_net_release(&m.base);
    return message;
}

typedef struct stranger {
    lc_module base;
    lc_linear l;
    lc_tensor *mine;
} stranger;

static lc_tensor *writing_step(lc_module *self, const lc_batch *b, int64_t i)
{
    stranger *m = (stranger *)self;
    (void)i;
    lc_assign(m->mine, lc_add_scalar(m->mine, 1));
    return lc_cross_entropy(lc_linear_forward(&m->l, b->x), b->y);
}

static lc_tensor *assigning_step(lc_module *self, const lc_batch *b, int64_t i)
{
    stranger *m = (stranger *)self;
    (void)i;
    lc_assign(m->l.bias, lc_add_scalar(m->l.bias, 1));
    return lc_cross_entropy(lc_linear_forward(&m->l, b->x), b->y);
}

static lc_status infer_add_one(lc_infer *call)
{
    call->n_out = 0;
    return LC_OK;
}

static void add_one(const lc_call *c)
{
    float *x = c->in[0].data;
    for (int64_t i = 0; i < c->in[0].shape[0]; i++) x[i] += 1;
}

static lc_tensor *calling_step(lc_module *self, const lc_batch *b, int64_t i)
{
    static const lc_kernel kernel = {.name = "add_one", .layout = LC_WANT_ROW_MAJOR, .run = add_one};
    static const lc_op op = {.name = "add_one",
                             .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                             .infer = infer_add_one,
                             .mutated_inputs = 1,
                             .kernel = &kernel};
    stranger *m = (stranger *)self;
    (void)i;
    lc_op_call(&op, 1, &m->l.bias, 0, NULL, 0, NULL, LC_HERE);
    return lc_cross_entropy(lc_linear_forward(&m->l, b->x), b->y);
}

static lc_tensor *training_a_stranger(lc_module *self, const lc_batch *b, int64_t i)
{
    stranger *m = (stranger *)self;
    (void)i;
    lc_tensor_set_requires_grad(m->mine, true);
    return lc_cross_entropy(lc_mul(lc_linear_forward(&m->l, b->x), m->mine), b->y);
}

static lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)self, (void)b, (void)i;
    return NULL;
}

static const char *failing_step(lc_training_step_fn *step, bool manual, const char *precision)
{
    stranger m = {0};
    lc_module_ops ops = {LC_MODULE_OPS_INIT("stranger"), .training_step = step,
                         .configure_optimizers = configure_optimizers, .manual_optimization = manual};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.strategy = "data_parallel";
    opt.devices = "2";
    opt.precision = precision;
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.l, &m, "l", FEATURES, CLASSES);
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &m.mine));
    const char *message = failing(&m.base, &opt);
    lc_tensor_unref(m.mine);
    lc_module_release(&m.base);
    return message;
}

TEST(unsupported_calls_are_refused)
{
    CHECK_CONTAINS(failing_options("0", 1, false), "number of devices");
    CHECK_CONTAINS(failing_options("two", 1, false), "number of devices");
    CHECK_CONTAINS(failing_options("2", 1, true), "tune");
    CHECK_CONTAINS(failing_options("2", 2, false), "num_nodes");
    CHECK_CONTAINS(failing_step(writing_step, false, NULL), "lc_module_add_buffer");
    CHECK_CONTAINS(failing_step(training_a_stranger, false, NULL), "lc_module_add_parameter");
    CHECK_CONTAINS(failing_step(manual_step, true, NULL), "use --strategy ddp");
}

/* They share its memory, or each has a copy that is lost. */
TEST(devices_write_no_parameter)
{
    static const char *const precisions[] = {NULL, "bf16-true"};
    for (int k = 0; k < 4; k++)
        CHECK_CONTAINS(failing_step(k / 2 ? calling_step : assigning_step, false, precisions[k % 2]),
                       "it writes input 0, a parameter");
}

TEST_MAIN
