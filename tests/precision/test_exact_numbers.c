/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of a step whose f32 values are stored as f64: the program reads and logs them as they are stored. */
#include "test.h"

#include "quiet_options.h"
#include "sim_device.h"

static const double third = 1. / 3;

/* A number as the host reads it, and as a tensor of f32. */
static void number_is(lc_tensor *t, double want)
{
    double number;
    float f32;
    CHECK_OK(lc_item(t, &number));
    CHECK_EQ(lc_tensor_dtype(t), LC_F32);
    CHECK_OK(lc_tensor_read(t, &f32, sizeof f32));
    CHECK(f32 == (float)want);
    if (number != want) TEST_FAIL("%.17g, not %.17g", number, want);
}

static void numbers_are_exact(void)
{
    lc_graph *g;
    lc_tensor *p;
    CHECK_OK(lc_tensor_new(LC_F64, 1, (int64_t[]){1}, &p));
    CHECK_OK(lc_tensor_write(p, &(double){5}, sizeof(double)));
    CHECK_OK(lc_graph_new(&g, .threads = 1, .storage = LC_F64));
    for (int step = 0; step < 2; step++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        lc_tensor *x = lc_div_scalar(lc_full(1, LC_F32, 4), 3);
        lc_tensor *mean = lc_keep(lc_mean(x)), *view = lc_keep(lc_reshape(mean, 1, 1));
        lc_tensor *more = lc_keep(lc_add_scalar(mean, 1)); /* fused with what it reads */
        lc_tensor *rounded = lc_keep(lc_cast(lc_cast(mean, LC_F64), LC_F32)), *one = lc_keep(lc_full(1, LC_F32, 1));
        lc_tensor *of_memory = lc_keep(lc_reshape(lc_cast(p, LC_F32), 1, 1));
        lc_assign(p, lc_cast(lc_full(7, LC_F32, 1), LC_F64)); /* after that value was taken */
        CHECK_OK(lc_step_run(g));
        number_is(mean, third);
        number_is(view, third);
        number_is(more, third + 1);
        number_is(one, 1);
        number_is(of_memory, step ? 7 : 5);
        number_is(rounded, (double)(float)third);
        CHECK_OK(lc_step_end(g));
    }
    lc_tensor_unref(p);
    lc_graph_free(g);
}

TEST(numbers_of_a_step)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    numbers_are_exact();
    setenv("LIGHTC_PLAN", "off", 1);
    numbers_are_exact();
    unsetenv("LIGHTC_PLAN");
}

/* ---- logged ---- */

typedef struct net {
    lc_module base;
    lc_tensor *w;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    (void)i;
    lc_tensor *value = lc_div_scalar(lc_mean(lc_add_scalar(lc_mul_scalar(b->x, 0), 1)), 3);
    lc_log(self, "third", value);
    lc_log(self, "again", value, .on_epoch = true);
    return lc_mean(lc_mul(b->x, m->w));
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("exact"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers};

static void logged_is(const char *precision, const char *devices, double want)
{
    float x[8] = {0};
    double value, mean;
    net m;
    lc_trainer *t;
    lc_dataset *data;
    lc_dataloader *loader;
    lc_trainer_options opt = quiet_options(NULL);
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = x}};
    CHECK_OK(lc_array_dataset_new(8, 1, arrays, &data));
    CHECK_OK(lc_dataloader_new(&loader, .dataset = data, .batch_size = 4));
    lc_module_init(&m.base, &ops, 1);
    m.w = lc_module_add_parameter(&m.base, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){LC_INIT_ONES});
    opt.precision = precision;
    opt.max_epochs = 1;
    if (devices) opt.strategy = "data_parallel", opt.devices = devices;
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    CHECK_OK(lc_trainer_metric(t, "third", &value));
    CHECK_OK(lc_trainer_metric(t, "again", &mean));
    if (value != want || mean != want) TEST_FAIL("%s: %.17g, %.17g, not %.17g", precision, value, mean, want);
    lc_trainer_free(t);
    lc_module_release(&m.base);
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
}

TEST(logged_numbers)
{
    logged_is("64-true", NULL, third);
    logged_is("64-true", "2", third);
    logged_is("32-true", NULL, (double)(float)third);
}

/* They are copied from the device while it computes. */
TEST(logged_numbers_of_a_device)
{
    find_plugin();
    use("sim", "lazy");
    logged_is("64-true", NULL, third);
    logged_is("32-true", NULL, (double)(float)third);
    use(NULL, NULL);
    unsetenv("LIGHTC_KERNELS");
}

TEST_MAIN
