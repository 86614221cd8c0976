/* SPDX-License-Identifier: Apache-2.0 */
/* In a program that traps floating-point errors, as simulators do, lightc computes without traps: NaN and infinity are
 * values to it. The program has its traps back afterwards. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fegetexcept */
#endif
#include "base/thread.h"
#include "quiet_options.h"
#include "small_net.h"
#include "test.h"

#ifdef __GLIBC__
#include <fenv.h>

enum { TRAPS = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW };

static int in_hook;

/* 1 / 0, and 0 / 0. */
static lc_tensor *loss_of_infinity_and_nan(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *zero = lc_mul_scalar(small_net_training_step(self, b, i), 0);
    lc_tensor *infinity = lc_reciprocal(zero);
    in_hook |= fegetexcept();
    lc_log(self, "infinity", infinity);
    lc_log(self, "nan", lc_div(zero, zero));
    return lc_add(infinity, lc_div(zero, zero));
}

static lc_status adam_that_decays(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *adam = lc_adamw(self, .lr = 0.1);
    LC_TRY(lc_optimizers_add(out, adam));
    return lc_optimizers_add_scheduler(out,
                                       (lc_scheduler_config){.scheduler = lc_cosine_annealing_lr(adam, .T_max = 9)});
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"),
                                  .training_step = loss_of_infinity_and_nan,
                                  .validation_step = small_net_validation_step,
                                  .test_step = small_net_validation_step,
                                  .predict_step = small_net_predict_step,
                                  .configure_optimizers = adam_that_decays};

static void traps(bool on)
{
    feclearexcept(FE_ALL_EXCEPT);
    if (on) feenableexcept(TRAPS);
    if (!on) fedisableexcept(FE_ALL_EXCEPT);
}

typedef struct fixture {
    small_net m;
    lc_dataloader *data;
    lc_trainer *t;
} fixture;

static void begin(fixture *f)
{
    const char *arguments[] = {"program", "--gradient_clip_val=1.0", "--limit_val_batches=0.5", "--threads=2"};
    *f = (fixture){0};
    in_hook = 0;
    traps(true);
    lc_trainer_options opt = quiet_options(NULL);
    lc_callback early;
    CHECK_OK(lc_trainer_options_parse(&opt, 4, (char **)arguments));
    CHECK_OK(lc_early_stopping(&early, .monitor = "nan", .patience = 5, .strict = false, .check_finite = false));
    opt.max_epochs = 2;
    opt.callbacks = &early;
    opt.n_callbacks = 1;
    CHECK_OK(loader_of(0, 32, 8, true, &f->data));
    CHECK_OK(small_net_init(&f->m, &ops, 1));
    CHECK_OK(lc_trainer_new(&opt, &f->t));
    CHECK_EQ(fegetexcept(), TRAPS);
}

static void end(fixture *f)
{
    CHECK_EQ(fegetexcept(), TRAPS);
    CHECK_EQ(in_hook, 0);
    lc_trainer_free(f->t);
    lc_dataloader_free(f->data);
    small_net_release(&f->m);
    traps(false);
}

TEST(runs_of_a_trainer_have_no_traps)
{
    fixture f;
    begin(&f);
    CHECK_OK(lc_trainer_fit(f.t, &f.m.base, .train_dataloader = f.data, .val_dataloader = f.data));
    CHECK_EQ(fegetexcept(), TRAPS);
    CHECK_OK(lc_trainer_validate(f.t, &f.m.base, .dataloaders = &f.data, .n_dataloaders = 1));
    CHECK_OK(lc_trainer_test(f.t, &f.m.base, .dataloaders = &f.data, .n_dataloaders = 1));
    CHECK_OK(lc_trainer_predict(f.t, &f.m.base, .dataloaders = &f.data, .n_dataloaders = 1));
    end(&f);
}

TEST(own_loops_have_no_traps)
{
    fixture f;
    lc_batch *batch;
    double loss;
    begin(&f);
    CHECK_OK(lc_trainer_begin(f.t, &f.m.base));
    CHECK_EQ(fegetexcept(), TRAPS);
    CHECK_OK(lc_dataloader_begin(f.data, 0, 0));
    while (lc_dataloader_next(f.data, &batch) == LC_OK && batch) {
        CHECK_OK(lc_trainer_step(f.t, batch, &loss));
        CHECK_EQ(fegetexcept(), TRAPS);
    }
    CHECK_OK(lc_trainer_end_epoch(f.t));
    CHECK_OK(lc_trainer_end(f.t));
    end(&f);
}

TEST(steps_have_no_traps)
{
    float out;
    lc_graph *g;
    traps(true);
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)i, 0));
        lc_tensor *x = lc_full(0, LC_F32, 1), *nan = lc_keep(lc_div(x, x));
        if (i & 1) CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_tensor_read(nan, &out, sizeof out));
        CHECK(out != out);
        CHECK_OK(lc_step_end(g));
        CHECK_EQ(fegetexcept(), TRAPS);
    }
    lc_graph_free(g);
    traps(false);
}

static void *traps_here(void *at)
{
    *(int *)at = fegetexcept();
    return NULL;
}

TEST(threads_of_lightc_have_no_traps)
{
    pthread_t thread;
    int found = -1;
    traps(true);
    CHECK_EQ(lc__thread_create(&thread, traps_here, &found), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(found, 0);
    CHECK_EQ(fegetexcept(), TRAPS);
    traps(false);
}
#endif
TEST_MAIN
