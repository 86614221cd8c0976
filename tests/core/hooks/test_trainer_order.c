/* SPDX-License-Identifier: Apache-2.0 */
/* What happens in a run, and in which order, compared with orders, rows and names written down here. */
#include "core/ranks/ranks.h"
#include "core/hooks/trainer_internal.h"
#include "test.h"
#include "trainer_world.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

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

typedef struct setting {
    char dir[256];
    world m;
    memory_logger rows;
    lc_logger logger;
    lc_callback cb[8];
    lc_trainer_options o;
    lc_trainer *t;
} setting;

static void begin(setting *s, int64_t n_train, int64_t n_val)
{
    memset(s, 0, sizeof *s);
    CHECK(world_dir(s->dir, sizeof s->dir));
    world_init(&s->m, n_val ? &world_ops : &world_ops_without_val, n_train, n_val);
    s->o = world_options(s->dir);
    s->logger = (lc_logger){&memory_ops, &s->rows};
    s->o.loggers = &s->logger;
    s->o.n_loggers = 1;
    s->o.callbacks = s->cb;
}

static void end(setting *s)
{
    lc_trainer_free(s->t);
    world_release(&s->m);
    world_remove(s->dir);
}

static lc_status fit(setting *s)
{
    lc_status status = lc_trainer_new(&s->o, &s->t);
    return status < 0 ? status : lc_trainer_fit(s->t, &s->m.base);
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

/* ---- signals ---- */
static lc_status send_signal(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b;
    if (i != *(int *)context) return LC_OK;
    kill(getpid(), SIGTERM);
    for (int k = 0; k < 2000 && !lc_trainer_received_signal(t); k++) usleep(1000);
    return LC_OK;
}

TEST(sigterm_stops_after_the_step_with_a_checkpoint)
{
    static setting s;
    char path[600], files[512];
    int at = 2;
    begin(&s, 6, 1);
    s.m.lr = 0.01;
    CHECK_OK(lc_lambda_callback(&s.cb[s.o.n_callbacks++], .context = &at, .on_train_batch_end = send_signal));
    s.o.max_epochs = 2;
    CHECK_STATUS(fit(&s), LC_ERR_INTERRUPTED);
    CHECK_CONTAINS(lc_error_message(), "SIGTERM after step 3");
    snprintf(path, sizeof path, "%s/checkpoints", lc_trainer_run_dir(s.t));
    CHECK_STR(world_list(path, ".ckpt", files, sizeof files), "interrupted.ckpt ");
    CHECK_EQ(lc_trainer_global_step(s.t), 3);
    lc_trainer_free(s.t);
    s.t = NULL;

    /* and resumed from there */
    at = -1;
    CHECK_OK(lc_lambda_callback(&s.cb[0], .context = &at, .on_train_batch_end = send_signal));
    s.o.callbacks = s.cb;
    s.o.n_loggers = 0;
    s.o.ckpt_path = "last";
    lc_trainer_options o = s.o;
    CHECK_OK(lc_trainer_new(&o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    CHECK_EQ(lc_trainer_global_step(s.t), 12);
    end(&s);
}

TEST(each_run_gets_its_own_signal)
{
    static setting s[2];
    int at = 1;
    for (int k = 0; k < 2; k++) {
        begin(&s[k], 6, 0);
        s[k].m.lr = 0.01;
        CHECK_OK(lc_lambda_callback(&s[k].cb[s[k].o.n_callbacks++], .context = &at, .on_train_batch_end = send_signal));
        CHECK_STATUS(fit(&s[k]), LC_ERR_INTERRUPTED);
        CHECK_EQ(lc_trainer_global_step(s[k].t), 2);
    }
    for (int k = 0; k < 2; k++) end(&s[k]);
}

/* ckpt_path=last skips a newer checkpoint that has only weights, and considers the program's own callbacks as well. */
TEST(last_can_be_resumed_from)
{
    static setting s;
    char own[600], weights[600];
    begin(&s, 4, 1);
    snprintf(own, sizeof own, "%s/own", s.dir);
    snprintf(weights, sizeof weights, "%s/weights", s.dir);
    s.m.lr = 0.01;
    s.o.max_epochs = 1;
    for (int life = 0; life < 2; life++) {
        s.o.n_callbacks = 0;
        CHECK_OK(lc_model_checkpoint(&s.cb[s.o.n_callbacks++], .dirpath = own, .every_n_train_steps = 2));
        CHECK_OK(lc_model_checkpoint(&s.cb[s.o.n_callbacks++], .dirpath = weights, .save_weights_only = true));
        lc_trainer_options o = s.o;
        o.n_loggers = 0;
        CHECK_OK(lc_trainer_new(&o, &s.t));
        CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
        CHECK_EQ(lc_trainer_global_step(s.t), life ? 8 : 4);
        if (life) CHECK_CONTAINS(lc_trainer_ckpt_path(s.t), "/own/epoch=0-step=4.ckpt");
        if (!life) lc_trainer_free(s.t);
        s.o.max_epochs = 2;
        s.o.ckpt_path = "last";
    }
    end(&s);
}

static char heard[8192];

static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    size_t n = strlen(heard);
    (void)self, (void)t, (void)level;
    snprintf(heard + n, sizeof heard - n, "%s\n", text);
}

static const lc_callback_ops listener_ops = {LC_CALLBACK_OPS_INIT("Listener"), .on_message = hear};

TEST(resuming_says_from_where)
{
    static setting s;
    char where[600];
    begin(&s, 4, 1);
    s.m.lr = 0.01;
    s.o.run_name = "mine";
    s.o.ckpt_path = "last";
    s.o.n_callbacks = 1;
    for (int life = 0; life < 2; life++) {
        *heard = 0;
        s.cb[0] = (lc_callback){&listener_ops, NULL};
        s.o.max_epochs = life + 1;
        lc_trainer_options o = s.o;
        o.n_loggers = 0;
        CHECK_OK(lc_trainer_new(&o, &s.t));
        CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
        snprintf(where, sizeof where, "there is no checkpoint below %s/mine yet; starting from scratch\n", s.dir);
        if (!life) CHECK_CONTAINS(heard, where);
        if (life) CHECK_CONTAINS(heard, "resumed from ");
        CHECK(!strstr(heard, "a different directory")); /* each run has its own */
        if (!life) lc_trainer_free(s.t);
    }
    end(&s);
}

/* ckpt_path=best in another process: the best according to the newest checkpoint of the newest run. */
TEST(best_of_an_earlier_run)
{
    static setting s;
    char best[600];
    begin(&s, 4, 1);
    s.m.lr = 0.01;
    s.o.max_epochs = 2;
    s.o.monitor = "step"; /* smallest at the end of the first epoch */
    s.o.save_last = LC_ON;
    CHECK_OK(fit(&s));
    lc_model_checkpoint_info info;
    for (int i = 0; i < lc_trainer_callback_count(s.t); i++) {
        lc_callback cb = lc_trainer_callback(s.t, i);
        if (lc_model_checkpoint_get(&cb, &info) == LC_OK) snprintf(best, sizeof best, "%s", info.best_model_path);
    }
    CHECK_CONTAINS(best, "epoch=0-step=4.ckpt");
    lc_trainer_free(s.t);
    s.t = NULL;

    s.o.n_callbacks = s.o.n_loggers = 0;
    s.o.ckpt_path = "best";
    lc_trainer_options o = s.o;
    CHECK_OK(lc_trainer_new(&o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    CHECK_CONTAINS(lc_trainer_ckpt_path(s.t), "epoch=0-step=4.ckpt");
    CHECK_EQ(lc_trainer_global_step(s.t), 8);
    lc_trainer_free(s.t);

    s.o.default_root_dir = "/nonexistent/of/lightc";
    s.o.logger = "none";
    o = s.o;
    CHECK_OK(lc_trainer_new(&o, &s.t));
    CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "ckpt_path=best");
    end(&s);
}

/* A checkpoint callback of the program's own resolves ckpt_path=best and last, as ModelCheckpoint does. */
typedef struct saver {
    char dir[700], best[800];
} saver;
static lc_status saver_epoch_end(void *self, lc_trainer *t)
{
    saver *v = self;
    char path[800];
    snprintf(path, sizeof path, "%s/mine-%lld.ckpt", v->dir, (long long)lc_trainer_current_epoch(t));
    if (!*v->best) snprintf(v->best, sizeof v->best, "%s", path);
    return lc_trainer_save_checkpoint(t, path, false);
}
static const char *saver_best_path(void *self, double *score)
{
    saver *v = self;
    *score = 0.5;
    return v->best;
}
static const char *saver_dirpath(void *self)
{
    return ((saver *)self)->dir;
}
static const lc_callback_ops saver_ops = {LC_CALLBACK_OPS_INIT("Saver"), .saves_checkpoints = true,
                                          .on_train_epoch_end = saver_epoch_end, .best_path = saver_best_path,
                                          .dirpath = saver_dirpath};

TEST(a_programs_own_checkpoint_callback)
{
    static setting s;
    saver v = {.best = ""};
    begin(&s, 4, 1);
    snprintf(v.dir, sizeof v.dir, "%s/own", s.dir);
    s.m.lr = 0.01;
    s.o.max_epochs = 2;
    s.cb[s.o.n_callbacks++] = (lc_callback){&saver_ops, &v};
    CHECK_OK(fit(&s));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base, .ckpt_path = "best"));
    CHECK_STR(lc_trainer_ckpt_path(s.t), v.best);
    CHECK_CONTAINS(lc_trainer_ckpt_path(s.t), "/own/mine-0.ckpt");
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base, .ckpt_path = "last"));
    CHECK_CONTAINS(lc_trainer_ckpt_path(s.t), "/own/mine-1.ckpt");
    end(&s);
}

/* A thread started before the run does not block the signal; it must not die of it, nor keep it. */
static void *idle(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) usleep(1000);
    return NULL;
}

TEST(a_signal_delivered_to_another_thread)
{
    static setting s;
    static int stop;
    int at = 1;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, idle, &stop) == 0);
    begin(&s, 6, 1);
    CHECK_OK(lc_lambda_callback(&s.cb[s.o.n_callbacks++], .context = &at, .on_train_batch_end = send_signal));
    s.o.enable_checkpointing = LC_OFF;
    CHECK_STATUS(fit(&s), LC_ERR_INTERRUPTED);
    CHECK_CONTAINS(lc_error_message(), "SIGTERM after step 2; nothing was saved");
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    end(&s);
}

/* ---- several optimizers, own loop, limits ---- */
typedef struct pair {
    lc_module base;
    lc_tensor *a, *b;
} pair;
static lc_tensor *step_a(lc_module *self, const lc_batch *x, int64_t i)
{
    (void)i;
    return lc_mul(((pair *)self)->a, lc_mean(x->x));
}
static lc_tensor *step_b(lc_module *self, const lc_batch *x, int64_t i)
{
    (void)i;
    pair *p = (pair *)self;
    return lc_mul(lc_mul(p->b, p->a), lc_mean(x->x)); /* gives a a gradient too, which must not reach a's optimizer */
}
static lc_status pair_optimizers(lc_module *self, lc_optimizers *out)
{
    pair *p = (pair *)self;
    LC_TRY(lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.5, .parameters = &p->a, .n_parameters = 1), step_a));
    return lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.25, .parameters = &p->b, .n_parameters = 1), step_b);
}
static lc_status pair_loader(lc_module *self, lc_loaders *out)
{
    (void)self;
    return lc_loaders_add(out, numbers_new(3, 1, false));
}

/* With one parameter for each of n optimizers. */
static void begin_pair(setting *s, pair *p, const lc_module_ops *ops, int n)
{
    lc_tensor **weights[] = {&p->a, &p->b};
    begin(s, 1, 0);
    lc_module_init(&p->base, ops, 1);
    for (int i = 0; i < n; i++)
        *weights[i] = lc_module_add_parameter(&p->base, i ? "b" : "a", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1},
                                              (lc_init){.kind = LC_INIT_ONES});
}

TEST(several_optimizers)
{
    static setting s;
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("pair"), .configure_optimizers = pair_optimizers,
                                      .train_dataloader = pair_loader};
    pair p = {0};
    begin_pair(&s, &p, &ops, 2);
    s.o.max_epochs = 1;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &p.base));
    double a = 1, b = 1, got;
    for (int i = 0; i < 3; i++) {
        a -= 0.5 * i;
        b -= 0.25 * a * i;
    }
    CHECK_OK(lc_item(p.a, &got));
    CHECK_NEAR(got, a, 1e-6);
    CHECK_OK(lc_item(p.b, &got));
    CHECK_NEAR(got, b, 1e-6);
    CHECK_EQ(lc_trainer_global_step(s.t), 3); /* counts steps of the trainer */
    lc_module_release(&p.base);
    end(&s);
}

static lc_status one_without_step(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.5));
}

TEST(an_optimizer_without_a_step_needs_that_of_the_module)
{
    static setting s;
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("pair"), .configure_optimizers = one_without_step,
                                      .train_dataloader = pair_loader};
    pair p = {0};
    begin_pair(&s, &p, &ops, 1);
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_STATUS(lc_trainer_fit(s.t, &p.base), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "pair has no training_step, which fit needs");
    lc_module_release(&p.base);
    end(&s);
}

/* Sends SIGUSR1; returns when the trainer has received it. */
static void ask_for_a_checkpoint(lc_trainer *t)
{
    CHECK(kill(getpid(), SIGUSR1) == 0);
    for (int ms = 0; ms < 10000 && !atomic_load(&t->ranks->save_requested); ms++) usleep(1000);
    CHECK(atomic_load(&t->ranks->save_requested));
}

TEST(own_loop)
{
    static setting s;
    double loss;
    char path[400];
    lc_checkpoint *c;
    int64_t step;
    begin(&s, 4, 1);
    s.m.lr = 0.1;
    lc_dataloader *l = numbers_new(4, 1, false);
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_begin(s.t, &s.m.base));
    double w = 1;
    for (int epoch = 0; epoch < 2; epoch++) {
        lc_batch *b;
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        for (int i = 0; i < 4; i++) {
            CHECK_OK(lc_dataloader_next(l, &b));
            if (epoch == 0 && i == 2) ask_for_a_checkpoint(s.t);
            CHECK_OK(lc_trainer_step(s.t, b, &loss));
            CHECK_NEAR(loss, w * i, 1e-5);
            w -= 0.1 * i;
        }
        CHECK_OK(lc_trainer_end_epoch(s.t));
    }
    CHECK_OK(lc_trainer_end(s.t));
    CHECK_NEAR(world_weight(&s.m), w, 1e-5);
    CHECK_EQ(lc_trainer_global_step(s.t), 8);
    CHECK_EQ(lc_trainer_current_epoch(s.t), 2);
    snprintf(path, sizeof path, "%s/hpc_ckpt_1.ckpt", s.dir);
    CHECK_OK(lc_checkpoint_open(path, &c));
    CHECK_OK(lc_state_get_int(lc_checkpoint_state(c), "global_step", &step));
    CHECK_EQ(step, 3);
    lc_checkpoint_close(c);
    lc_dataloader_free(l);
    end(&s);
}

TEST(impossible_options_are_refused)
{
    static setting s;
    static const struct {
        const char *option, *value, *says;
    } cases[] = {
        {"strategy", "sdp", "single_device"},      {"precision", "8-mixed", "32-true"}, {"accelerator", "tpu", "cpu"},
        {"gradient_clip_algorithm", "l2", "norm"}, {"max_time", "5", "unit"},           {"save_top_k", "3", "monitor"},
    };
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        begin(&s, 1, 0);
        s.o.n_loggers = 0;
        for (int i = 0; i < n; i++)
            if (!strcmp(table[i].name, cases[k].option)) CHECK_OK(lc_option_set_text(&table[i], &s.o, cases[k].value));
        CHECK(lc_trainer_new(&s.o, &s.t) < 0);
        CHECK_CONTAINS(lc_error_message(), cases[k].says);
        end(&s);
    }
}

/* When validation runs: the global steps at on_validation_start. */
static const char *validations(const char *interval, int64_t n_train, int64_t epochs, int64_t accumulate, char *out)
{
    static setting s;
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    out[0] = 0;
    begin(&s, n_train, 1);
    s.o.max_epochs = epochs;
    s.o.accumulate_grad_batches = accumulate;
    s.o.enable_checkpointing = LC_OFF;
    for (int i = 0; i < n; i++)
        if (!strcmp(table[i].name, "val_check_interval")) CHECK_OK(lc_option_set_text(&table[i], &s.o, interval));
    CHECK_OK(fit(&s));
    for (const char *p = s.m.tr.text; (p = strstr(p, "m.on_validation_start:")); p++) {
        const char *step = strchr(p, ',') + 1;
        strncat(out, step, strcspn(step, " ") + 1);
    }
    end(&s);
    return out;
}

TEST(intervals_of_every_unit)
{
    char got[256];
    CHECK_STR(validations("0.5", 4, 2, 1, got), "2 4 6 8 ");
    CHECK_STR(validations("3ba", 4, 2, 1, got), "3 7 ");
    CHECK_STR(validations("3st", 4, 2, 1, got), "3 6 ");   /* counts continue in the next epoch */
    CHECK_STR(validations("2st", 5, 2, 2, got), "2 4 6 "); /* three steps per epoch */
    CHECK_STR(validations("2ep", 2, 5, 1, got), "4 8 ");
    CHECK_STR(validations("1h", 4, 2, 1, got), "");
}

TEST(last_has_the_newest_state)
{
    static setting s;
    static const double script[] = {3, 1, 2, 0.5, 4};
    char dir[600], files[512];
    begin(&s, 2, 1);
    s.m.val_script = script;
    s.m.n_script = 5;
    s.o.max_epochs = 5;
    s.o.monitor = "val_loss";
    s.o.save_last = LC_ON;
    CHECK_OK(fit(&s));
    snprintf(dir, sizeof dir, "%s/checkpoints", lc_trainer_run_dir(s.t));
    CHECK_STR(world_list(dir, ".ckpt", files, sizeof files), "epoch=3-step=8.ckpt last.ckpt ");
    snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "/last.ckpt");
    lc_checkpoint *c;
    int64_t step;
    CHECK_OK(lc_checkpoint_open(dir, &c));
    CHECK_OK(lc_state_get_int(lc_checkpoint_state(c), "global_step", &step));
    CHECK_EQ(step, 10);
    lc_checkpoint_close(c);
    end(&s);
}

TEST(a_saved_step_has_the_values_of_its_validation)
{
    static setting s;
    static const double script[] = {3, 1, 2, 0.5, 4};
    char dir[600], files[512];
    begin(&s, 2, 1);
    s.m.val_script = script;
    s.m.n_script = 5;
    s.o.max_epochs = 5;
    s.o.monitor = "val_loss";
    s.o.every_n_train_steps = 2;
    s.o.save_top_k = -1;
    s.o.filename = "{step}-{val_loss:.1f}";
    CHECK_OK(fit(&s));
    snprintf(dir, sizeof dir, "%s/checkpoints", lc_trainer_run_dir(s.t));
    CHECK_STR(world_list(dir, ".ckpt", files, sizeof files),
              "step=10-val_loss=4.0.ckpt step=2-val_loss=3.0.ckpt step=4-val_loss=1.0.ckpt step=6-val_loss=2.0.ckpt "
              "step=8-val_loss=0.5.ckpt ");
    end(&s);
}

/* Lightning would train to the end without a checkpoint. */
TEST(a_monitor_that_is_never_logged)
{
    static setting s;
    for (int64_t n = 1; n <= 10; n += 9) {
        begin(&s, 3, 1);
        s.o.max_epochs = 5;
        s.o.monitor = "nope";
        s.o.every_n_train_steps = n;
        s.o.accumulate_grad_batches = 2;
        if (n > 5)
            s.o.val_check_interval = (lc_duration){1, LC_UNIT_BATCHES}; /* inside an epoch: an error, as in Lightning */
        CHECK_STATUS(fit(&s), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), "could not find the monitored key");
        CHECK_EQ(lc_trainer_global_step(s.t), n > 5 ? 1 : 2);
        CHECK_EQ(lc_trainer_current_epoch(s.t), 0);
        end(&s);
    }
}

TEST(best_is_loaded_without_a_module)
{
    static setting s;
    begin(&s, 2, 2);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    s.m.lr = 0.1;
    s.o.max_epochs = 1;
    CHECK_OK(fit(&s));
    double trained = world_weight(&s.m);
    float w = 100;
    CHECK_OK(lc_tensor_write(s.m.w, &w, sizeof w));
    CHECK_OK(lc_trainer_validate(s.t, &s.m.base));
    CHECK(world_weight(&s.m) == 100);
    CHECK(!strstr(s.m.tr.text, "on_load_checkpoint"));
    CHECK_OK(lc_trainer_test(s.t, NULL));
    CHECK_CONTAINS(s.m.tr.text, "m.on_load_checkpoint:1,2 cb.on_load_checkpoint:1,2 ");
    CHECK(world_weight(&s.m) == trained);
    lc_metrics r = lc_trainer_results(s.t, 0);
    CHECK_EQ(r.n, 1);
    CHECK_STR(r.values[0].name, "test_loss");
    CHECK(r.values[0].value == 0.5);
    CHECK_OK(lc_trainer_predict(s.t, &s.m.base));
    CHECK_EQ(lc_trainer_prediction_count(s.t, 0), 2);
    double v;
    CHECK_OK(lc_item(lc_trainer_prediction(s.t, 0, 1), &v));
    CHECK(v == 2);
    end(&s);
}

TEST_MAIN
