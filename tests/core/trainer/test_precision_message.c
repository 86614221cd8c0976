/* SPDX-License-Identifier: Apache-2.0 */
/* A run whose precision is slower than f32 says so once, at its start. */
#include "core/trainer/precision_time.h"
#include "quiet_options.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 32 };
#include "small_data.h"

static int said;
static char text[400];

static void listen(void *context, lc_trainer *t, lc_level level, const char *message)
{
    (void)context, (void)t;
    if (!strstr(message, "products take") && !strstr(message, "falls back")) return;
    CHECK_EQ(level, LC_WARNING);
    snprintf(text, sizeof text, "%s", message);
    said++;
}

typedef struct net {
    lc_module base;
    lc_tensor *w;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_cross_entropy(lc_linear(b->x, ((net *)self)->w, NULL), b->y);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers};

/* As if products had been measured on a machine without units for them. */
static void measured(int thousandths)
{
    setenv("LIGHTC_ISA", "base", 1);
    atomic_store(&lc__product_ratios[0], thousandths);
    atomic_store(&lc__product_ratios[1], thousandths);
}

/* A fit. */
static const char *products;

static void train(const char *precision, bool barebones)
{
    static const int64_t shape[] = {CLASSES, FEATURES};
    net m;
    lc_dataloader *loader;
    lc_trainer *t;
    lc_callback listener;
    memset(&m, 0, sizeof m);
    said = 0;
    CHECK_OK(loader_of(0, SAMPLES, 8, false, &loader));
    lc_module_init(&m.base, &ops, 3);
    m.w = lc_module_add_parameter(&m.base, "w", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0});
    CHECK_OK(lc_lambda_callback(&listener, .on_message = listen));
    lc_trainer_options opt = quiet_options(NULL);
    opt.precision = precision;
    opt.max_epochs = 1;
    opt.callbacks = &listener;
    opt.n_callbacks = 1;
    opt.barebones = barebones;
    opt.float32_matmul_precision = products;
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
}

TEST(a_run_whose_precision_is_slower_says_so_once)
{
    measured(1240);
    train("bf16-mixed", false);
    CHECK_EQ(said, 1);
    CHECK(strstr(text, "bf16-mixed runs without bf16 units on this CPU: products take 1.2 times as long as in f32") ==
          text);
    train("16-mixed", false);
    CHECK_EQ(said, 1);
    CHECK(strstr(text, "16-mixed runs without f16 units on this CPU: products take ") == text);
}

TEST(other_runs_say_nothing)
{
    measured(1240);
    train("32-true", false);
    CHECK_EQ(said, 0);
    train("bf16-mixed", true);
    CHECK_EQ(said, 0);
    measured(1010);
    train("bf16-mixed", false);
    CHECK_EQ(said, 0);
}

TEST(products_that_fall_back_are_reported)
{
    measured(1000);
    products = "high";
    train("32-true", false);
    CHECK_EQ(said, 1);
    CHECK(strstr(text, "float32_matmul_precision: high falls back to highest: ") == text);
    products = "highest";
    train("32-true", false);
    CHECK_EQ(said, 0);
    products = NULL;
}

TEST(a_precision_of_products_that_does_not_exist_is_an_error)
{
    lc_trainer *t;
    lc_fabric *f;
    lc_trainer_options opt = quiet_options(NULL);
    opt.float32_matmul_precision = "low";
    CHECK_EQ(lc_trainer_new(&opt, &t), LC_ERR_CONFIG);
    CHECK_STR(lc_error_message(), "float32_matmul_precision is \"low\"; it must be highest, high or medium");
    CHECK_EQ(lc_fabric_new(&f, .float32_matmul_precision = "low"), LC_ERR_CONFIG);
}

TEST(a_fabric_says_so_too)
{
    measured(1240);
    lc_fabric *f;
    char line[400] = "";
    int pipes[2], before = dup(2);
    CHECK(before >= 0 && pipe(pipes) == 0 && dup2(pipes[1], 2) == 2);
    lc_status s = lc_fabric_new(&f, .precision = "bf16-mixed", .threads = 1);
    dup2(before, 2);
    close(before);
    close(pipes[1]);
    CHECK_OK(s);
    CHECK(read(pipes[0], line, sizeof line - 1) > 0);
    CHECK(strstr(line, "warning: bf16-mixed runs without bf16 units on this CPU: products take ") == line);
    CHECK(strchr(line, '\n') == line + strlen(line) - 1);
    close(pipes[0]);
    lc_fabric_free(f);
}

TEST(precisions_are_measured)
{
    measured(0);
    train("bf16-mixed", false);
    CHECK(atomic_load(&lc__product_ratios[1]) > 0 && atomic_load(&lc__product_ratios[0]) == 0);
    const lc_dtype types[] = {LC_F32, LC_BF16, LC_F16};
    lc_precision_times t[3];
    CHECK_OK(lc_precision_measure(types, 3, 32, 1, t));
    for (int i = 0; i < 3; i++) CHECK(t[i].product_ms > 0 && t[i].chain_ms > 0);
    CHECK_EQ(lc_precision_measure(types, 0, 32, 1, t), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_precision_measure(types, 3, 0, 1, t), LC_ERR_ARGUMENT);
}

TEST_MAIN
