/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics that callbacks, monitors and programs get are those of one run: the next run begins with none. */
#include "test.h"

#include "quiet_options.h"
#include "small_net.h"

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = small_net_training_step(self, b, i);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status test_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    small_net *m = (small_net *)self;
    return log_scores(self, "test", logits_of(m, b->x), b->y, m->accuracy);
}

static const lc_module_ops ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .test_step = test_step,
    .configure_optimizers = small_net_sgd,
};

TEST(a_run_begins_without_metrics_of_the_previous_one)
{
    small_net m = {0};
    lc_dataloader *l;
    lc_trainer *t;
    double v;
    lc_trainer_options opt = quiet_options(NULL);
    opt.max_epochs = 1;
    CHECK_OK(loader_of(0, SAMPLES, 20, false, &l));
    CHECK_OK(small_net_init(&m, &ops, 1));
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK(!lc_trainer_metric_at(t, LC_CALLBACK_METRICS, 0).name);
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = l));
    CHECK_OK(lc_trainer_metric(t, "train_loss", &v));
    CHECK_EQ(lc_trainer_metric_count(t, LC_PROGRESS_BAR_METRICS), 1);
    CHECK_OK(lc_trainer_test(t, &m.base, .dataloaders = &l, .n_dataloaders = 1));
    CHECK_OK(lc_trainer_metric(t, "test_loss", &v));
    CHECK_STATUS(lc_trainer_metric(t, "train_loss", &v), LC_ERR_NOT_FOUND);
    for (int i = 0; i < lc_trainer_metric_count(t, LC_PROGRESS_BAR_METRICS); i++)
        CHECK(strcmp(lc_trainer_metric_at(t, LC_PROGRESS_BAR_METRICS, i).name, "train_loss"));
    CHECK(!lc_trainer_metric_at(t, LC_CALLBACK_METRICS, -1).name);
    CHECK(!lc_trainer_metric_at(t, LC_CALLBACK_METRICS, lc_trainer_metric_count(t, LC_CALLBACK_METRICS)).name);
    CHECK_EQ(lc_trainer_metric_count(t, (lc_metric_set)7), 0);
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = l));
    CHECK_STATUS(lc_trainer_metric(t, "test_loss", &v), LC_ERR_NOT_FOUND);
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m);
}

TEST_MAIN
