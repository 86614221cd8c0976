/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that a signal ends, where the next one continues, and which of their checkpoints are last and best. */
#include "test.h"
#include "trainer_setting.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

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

/* ---- checkpoints of runs that ended ---- */
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
