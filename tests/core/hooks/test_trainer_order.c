/* SPDX-License-Identifier: Apache-2.0 */
/* What happens in a run, and in which order, compared with orders, rows and names written down here. */
#include "test.h"
#include "trainer_setting.h"

#define VAL_BATCH                                                                                                      \
    "cb.on_validation_batch_start m.on_validation_batch_start m.validation_step cb.on_validation_batch_end "           \
    "m.on_validation_batch_end "
#define VALIDATION(batches)                                                                                            \
    "cb.on_validation_start m.on_validation_start cb.on_validation_epoch_start m.on_validation_epoch_start " batches   \
    "cb.on_validation_epoch_end m.on_validation_epoch_end cb.on_validation_end m.on_validation_end "
#define FORWARD_BACKWARD                                                                                               \
    "m.training_step cb.on_before_zero_grad m.on_before_zero_grad m.optimizer_zero_grad cb.on_before_backward "        \
    "m.on_before_backward m.backward cb.on_after_backward m.on_after_backward "
#define UPDATE      "cb.on_before_optimizer_step m.on_before_optimizer_step m.configure_gradient_clipping "
#define BATCH_START "cb.on_train_batch_start m.on_train_batch_start "
#define BATCH_END   "cb.on_train_batch_end m.on_train_batch_end "
#define FIT_START   "cb.setup m.setup m.configure_optimizers cb.on_fit_start m.on_fit_start "
#define TRAIN_START "cb.on_train_start m.on_train_start cb.on_train_epoch_start m.on_train_epoch_start "
#define FIT_END     "cb.on_train_end m.on_train_end cb.on_fit_end m.on_fit_end cb.teardown m.teardown "

/* The trace without counters. */
static const char *names_of(const trace *tr, char *out, size_t size)
{
    size_t n = 0;
    for (const char *p = tr->text; p && *p && n + 2 < size;) {
        const char *colon = strchr(p, ':'), *end = strchr(p, ' ');
        while (p < colon && n + 2 < size) out[n++] = *p++;
        out[n++] = ' ';
        p = end + 1;
    }
    out[n] = 0;
    return out;
}

TEST(fit_with_sanity_check_and_validation)
{
    static setting s;
    char names[16384], files[512], dir[600];
    begin(&s, 2, 2);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    s.o.max_epochs = 1;
    s.o.num_sanity_val_steps = 1;
    CHECK_OK(fit(&s));
    CHECK_STR(names_of(&s.m.tr, names, sizeof names),
              FIT_START "cb.on_sanity_check_start " VALIDATION(
                  VAL_BATCH) "cb.on_sanity_check_end " TRAIN_START BATCH_START
                             "m.optimizer_step " FORWARD_BACKWARD UPDATE BATCH_END BATCH_START
                             "m.optimizer_step " FORWARD_BACKWARD UPDATE BATCH_END VALIDATION(
                                 VAL_BATCH VAL_BATCH) "cb.on_train_epoch_end m.on_train_epoch_end "
                                                      "cb.on_save_checkpoint m.on_save_checkpoint " FIT_END);
    CHECK_CONTAINS(s.m.tr.text, "m.on_train_epoch_end:0,2 ");
    CHECK_CONTAINS(s.m.tr.text, "m.on_train_end:1,2 ");
    snprintf(dir, sizeof dir, "%s/checkpoints", lc_trainer_run_dir(s.t));
    CHECK_STR(world_list(dir, ".ckpt", files, sizeof files), "epoch=0-step=2.ckpt ");
    CHECK_EQ(lc_trainer_state(s.t), LC_RUN_FINISHED);
    end(&s);
}

/* Weights alone have no state of callbacks, which therefore add none to them. */
TEST(callbacks_add_nothing_to_weights_alone)
{
    static setting s;
    char names[16384];
    begin(&s, 1, 1);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    s.o.max_epochs = 1;
    s.o.save_weights_only = true;
    CHECK_OK(fit(&s));
    CHECK_CONTAINS(names_of(&s.m.tr, names, sizeof names),
                   "cb.on_train_epoch_end m.on_train_epoch_end m.on_save_checkpoint " FIT_END);
    end(&s);
}

TEST(accumulation_steps_at_the_window_and_at_the_end)
{
    static setting s;
    char names[16384];
    begin(&s, 3, 1);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    s.o.max_epochs = 1;
    s.o.accumulate_grad_batches = 2;
    s.m.lr = 1;
    CHECK_OK(fit(&s));
    CHECK_STR(names_of(&s.m.tr, names, sizeof names),
              FIT_START TRAIN_START BATCH_START FORWARD_BACKWARD BATCH_END BATCH_START
              "m.optimizer_step m.training_step cb.on_before_backward m.on_before_backward m.backward "
              "cb.on_after_backward m.on_after_backward " UPDATE BATCH_END BATCH_START
              "m.optimizer_step " FORWARD_BACKWARD UPDATE BATCH_END VALIDATION(
                  VAL_BATCH) "cb.on_train_epoch_end m.on_train_epoch_end cb.on_save_checkpoint "
                             "m.on_save_checkpoint " FIT_END);
    /* gradients 0 and 1 averaged, then 2: each sum is divided by the true length of its window */
    CHECK_NEAR(world_weight(&s.m), 1 - 0.5 - 2, 1e-6);
    CHECK_EQ(lc_trainer_global_step(s.t), 2);
    end(&s);
}

static void log_three(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "a", loss);
    lc_log(self, "b", loss, .on_step = true, .on_epoch = true);
    lc_log(self, "c", loss, .on_step = false, .on_epoch = true);
}
static void log_two(lc_module *self, double value)
{
    lc_log_value(self, "v", value);
    lc_log_value(self, "vb", value, .on_step = true, .on_epoch = true);
}

TEST(rows)
{
    static setting s;
    begin(&s, 5, 3);
    s.o.max_epochs = 2;
    s.o.log_every_n_steps = 2;
    s.m.log_train = log_three;
    s.m.log_val = log_two;
    CHECK_OK(fit(&s));
    CHECK_STR(s.rows.text,
              "step=1 epoch=0 a=1 b_step=1|step=3 epoch=0 a=3 b_step=3|step=0 vb_step=0|step=1 vb_step=1|step=2 "
              "vb_step=2|step=4 epoch=0 v=1 vb_epoch=1|step=4 epoch=0 b_epoch=2 c=2|step=5 epoch=1 a=0 b_step=0|step=7 "
              "epoch=1 a=2 b_step=2|step=9 epoch=1 a=4 b_step=4|step=3 vb_step=0|step=4 vb_step=1|step=5 vb_step=2|"
              "step=9 epoch=1 v=1 vb_epoch=1|step=9 epoch=1 b_epoch=2 c=2|");
    double v;
    CHECK_OK(lc_trainer_metric(s.t, "b", &v));
    CHECK(v == 2);
    CHECK_OK(lc_trainer_metric(s.t, "b_step", &v));
    CHECK(v == 4);
    CHECK_STATUS(lc_trainer_metric(s.t, "nope", &v), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "`vb_epoch`");
    end(&s);
}

/* The last batch has a row, whatever the interval, unless there are none of steps at all. */
TEST(a_stop_sends_a_row_of_the_step)
{
    static const struct {
        int64_t interval;
        const char *rows;
    } rows[] = {{50, "step=1 epoch=0 a=1 b_step=1|step=1 epoch=0 b_epoch=0.5 c=0.5|"},
                {0, "step=1 epoch=0 b_epoch=0.5 c=0.5|"}};
    for (int i = 0; i < 2; i++) {
        static setting s;
        begin(&s, 5, 0);
        s.o.max_epochs = 2;
        s.o.log_every_n_steps = rows[i].interval;
        s.m.log_train = log_three;
        s.m.stop_at[0] = 0, s.m.stop_at[1] = 1;
        CHECK_OK(fit(&s));
        CHECK_STR(s.rows.text, rows[i].rows);
        end(&s);
    }
}

static void log_bad(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "x", loss);
    lc_log(self, "x", loss, .prog_bar = true);
}
static void log_none(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "x", loss, .on_step = false, .on_epoch = false);
}
static void log_at_epoch_end(lc_module *self)
{
    lc_log_value(self, "x", 1, .on_step = true);
}

TEST(logging_errors)
{
    static setting s;
    begin(&s, 2, 0);
    s.m.log_train = log_bad;
    CHECK_STATUS(fit(&s), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "different arguments");
    CHECK_CONTAINS(lc_error_message(), "test_trainer_order.c:");
    end(&s);
    begin(&s, 2, 0);
    s.m.log_train = log_none;
    CHECK_STATUS(fit(&s), LC_ERR_CONFIG);
    end(&s);
    begin(&s, 2, 2);
    s.m.log_epoch_end = log_at_epoch_end;
    CHECK_STATUS(fit(&s), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "on_train_epoch_end");
    end(&s);
}

TEST(an_error_reaches_on_exception_and_teardown)
{
    static setting s;
    char names[16384];
    begin(&s, 4, 1);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    s.m.raise_at[0] = 0;
    s.m.raise_at[1] = 1;
    CHECK_STATUS(fit(&s), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "scripted failure");
    CHECK_CONTAINS(lc_error_message(), "training_step of world, epoch 0, batch 1");
    CHECK_STR(names_of(&s.m.tr, names, sizeof names), FIT_START TRAIN_START BATCH_START
              "m.optimizer_step " FORWARD_BACKWARD UPDATE BATCH_END BATCH_START
              "m.optimizer_step m.training_step cb.on_exception cb.teardown m.teardown ");
    CHECK_EQ(lc_trainer_state(s.t), LC_RUN_INTERRUPTED);
    end(&s);
}

static lc_status failing_teardown(lc_module *self, lc_stage stage)
{
    (void)world_teardown(self, stage);
    return lc_fail(LC_ERR_IO, "the disk is gone");
}

static lc_status message_of(void *self, lc_trainer *t, lc_status status, const char *message)
{
    CHECK_EQ(status, LC_ERR_IO);
    CHECK_CONTAINS(message, "teardown of world: the disk is gone");
    return traced_exception(self, t, status, message);
}

TEST(an_error_in_teardown_reaches_on_exception)
{
    for (int fails_before = 0; fails_before < 2; fails_before++) {
        static setting s;
        lc_module_ops ops = world_ops;
        lc_callback_ops traced = traced_ops;
        char names[16384];
        ops.teardown = failing_teardown;
        if (!fails_before) traced.on_exception = message_of;
        begin(&s, 2, 1);
        s.m.base.ops = &ops;
        s.o.max_epochs = 1;
        s.cb[s.o.n_callbacks++] = (lc_callback){&traced, &s.m.tr};
        if (fails_before) s.m.raise_at[0] = s.m.raise_at[1] = 0;
        CHECK_STATUS(fit(&s), fails_before ? LC_ERR_USER : LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), fails_before ? "scripted failure" : "teardown of world: the disk is gone");
        const char *end_of_run =
            strstr(names_of(&s.m.tr, names, sizeof names), fails_before ? "cb.on_exception" : "cb.on_fit_end");
        CHECK_STR(end_of_run ? end_of_run : "",
                  fails_before ? "cb.on_exception cb.teardown m.teardown "
                               : "cb.on_fit_end m.on_fit_end cb.teardown m.teardown cb.on_exception ");
        CHECK_EQ(lc_trainer_state(s.t), LC_RUN_INTERRUPTED);
        end(&s);
    }
}

static lc_status failing_epoch_end(lc_module *self)
{
    (void)world_on_train_epoch_end(self);
    return lc_trainer_current_epoch(self->trainer) ? LC_OK : lc_fail(LC_ERR_IO, "the disk is full");
}

/* As in Lightning, an epoch whose end fails is over: the next fit trains the one after it. */
TEST(a_fit_after_a_failed_end_of_an_epoch)
{
    static setting s;
    lc_module_ops ops = world_ops;
    char files[512], dir[600];
    ops.on_train_epoch_end = failing_epoch_end;
    begin(&s, 2, 1);
    s.m.base.ops = &ops;
    s.o.max_epochs = 2;
    CHECK_STATUS(fit(&s), LC_ERR_IO);
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    CHECK_EQ(lc_trainer_current_epoch(s.t), 2);
    CHECK_EQ(lc_trainer_global_step(s.t), 4);
    CHECK_CONTAINS(s.m.tr.text, "m.on_train_epoch_start:1,2 ");
    snprintf(dir, sizeof dir, "%s/checkpoints", lc_trainer_run_dir(s.t));
    CHECK_STR(world_list(dir, ".ckpt", files, sizeof files), "epoch=1-step=4.ckpt ");
    end(&s);
}

/* A fit that ends before its first validation has no value to rank checkpoints by, whatever ran before it. */
TEST(a_fit_without_a_validation_after_an_evaluation)
{
    static setting s;
    begin(&s, 4, 1);
    s.o.max_steps = 3;
    s.o.monitor = "val_loss";
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_test(s.t, &s.m.base));
    CHECK_OK(lc_trainer_validate(s.t, &s.m.base));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    CHECK_EQ(lc_trainer_current_epoch(s.t), 1);
    end(&s);
}

static void log_nan(lc_module *self, lc_tensor *loss)
{
    (void)loss;
    lc_log_value(self, "a", -NAN);
    lc_log_value(self, "b", -NAN, .on_epoch = LC_ON);
    lc_log(self, "c", lc_mul_scalar(((world *)self)->w, -NAN), .on_epoch = LC_ON);
}

TEST(a_nan_has_no_sign)
{
    static setting s;
    begin(&s, 1, 0);
    s.m.log_train = log_nan;
    s.o.max_epochs = s.o.log_every_n_steps = 1;
    CHECK_OK(fit(&s));
    CHECK_STR(s.rows.text, "step=0 epoch=0 a=nan b_step=nan c_step=nan|step=0 epoch=0 b_epoch=nan c_epoch=nan|");
    end(&s);
}

static lc_tensor *wrong_shapes(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)i;
    float v[6] = {0};
    lc_tensor *x = NULL;
    int64_t shape[] = {2, 3};
    if (lc_tensor_new(LC_F32, 2, shape, &x) < 0 || lc_tensor_write(x, v, sizeof v) < 0) return NULL;
    lc_tensor *loss = lc_mean(lc_matmul(x, lc_mul(((world *)self)->w, batch->x)));
    lc_tensor_unref(x);
    return loss;
}

TEST(an_error_of_an_operation_is_reported_once)
{
    static setting s;
    begin(&s, 2, 0);
    lc_module_ops ops = world_ops_without_val;
    ops.training_step = wrong_shapes;
    s.m.base.ops = &ops;
    CHECK_STATUS(fit(&s), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "matmul");
    CHECK_CONTAINS(lc_error_message(), "test_trainer_order.c:");
    end(&s);
}

TEST_MAIN
