/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks that conflict or fail, and the checkpoint that a failure leaves. */
#include "callback_run.h"

#include <dirent.h>

TEST(two_with_one_key_are_refused)
{
    lc_callback cb[2];
    lc_trainer *t;
    lc_trainer_options o = world_options("/tmp");
    CHECK_OK(lc_weight_averaging_new(NULL, &cb[0]));
    CHECK_OK(lc_weight_averaging_new(NULL, &cb[1]));
    o.callbacks = cb;
    o.n_callbacks = 2;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "WeightAveraging");
}

TEST(a_model_has_one_average)
{
    run r;
    lc_callback cb[2];
    run_init(&r);
    CHECK_OK(lc_weight_averaging_new(NULL, &cb[0]));
    CHECK_OK(lc_ema_weight_averaging_new(NULL, &cb[1]));
    CHECK_STATUS(run_fit(&r, cb, 2), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "validation can use only one average");
    run_release(&r);
}

/* Fails at the given place, the second time it gets there. */
typedef struct failing {
    int where, calls;
} failing;
enum { IN_SAVE_STATE, IN_VISIT, IN_SAVE_CHECKPOINT, IN_BATCH_END, IN_BEFORE_STEP, PLACES };

static lc_status fail_at(failing *f, int where)
{
    if (f->where != where) return LC_OK;
    return ++f->calls == 2 ? lc_fail(LC_ERR_USER, "this callback fails") : LC_OK;
}
static lc_status fail_save(void *self, lc_trainer *t, lc_state *out)
{
    (void)t, (void)out;
    return fail_at(self, IN_SAVE_STATE);
}
static lc_status fail_load(void *self, lc_trainer *t, const lc_state *in)
{
    (void)self, (void)t, (void)in;
    return LC_OK;
}
static lc_status fail_visit(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx)
{
    (void)t, (void)fn, (void)ctx;
    return fail_at(self, IN_VISIT);
}
static lc_status fail_on_save(void *self, lc_trainer *t, lc_state *state)
{
    (void)t, (void)state;
    return fail_at(self, IN_SAVE_CHECKPOINT);
}
static lc_status fail_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)t, (void)o, (void)b, (void)i;
    return fail_at(self, IN_BATCH_END);
}
static lc_status fail_before_step(void *self, lc_trainer *t, lc_optimizer *opt)
{
    (void)t, (void)opt;
    return fail_at(self, IN_BEFORE_STEP);
}
static const lc_callback_ops failing_ops = {LC_CALLBACK_OPS_INIT("Failing"),
                                            .save_state = fail_save,
                                            .load_state = fail_load,
                                            .visit_tensors = fail_visit,
                                            .on_save_checkpoint = fail_on_save,
                                            .on_train_batch_end = fail_batch_end,
                                            .on_before_optimizer_step = fail_before_step};

/* Every checkpoint with its final name is whole, and nothing half-written stays. */
TEST(a_callback_that_fails_corrupts_no_checkpoint)
{
    for (int where = 0; where < PLACES; where++) {
        run r;
        failing f = {where, 0};
        lc_callback cb[3];
        char list[1024], path[2000];
        run_init(&r);
        r.o.enable_checkpointing = LC_AUTO;
        CHECK_OK(lc_model_checkpoint(&cb[0], .dirpath = r.dir, .every_n_train_steps = 1, .save_top_k = -1));
        CHECK_OK(lc_on_exception_checkpoint(&cb[1], .dirpath = r.dir));
        cb[2] = (lc_callback){&failing_ops, &f};
        CHECK_STATUS(run_fit(&r, cb, 3), LC_ERR_USER);
        CHECK_CONTAINS(lc_error_message(), "this callback fails");
        CHECK_EQ(f.calls, where <= IN_SAVE_CHECKPOINT ? 3 : 2); /* the save on the exception succeeds */
        lc_trainer_free(r.t);
        r.t = NULL;
        CHECK_CONTAINS(world_list(r.dir, ".ckpt", list, sizeof list), "epoch=0-step=1.ckpt ");
        CHECK_CONTAINS(list, "on_exception.ckpt ");
        DIR *d = opendir(r.dir);
        for (struct dirent *e; (e = readdir(d));) {
            size_t n = strlen(e->d_name);
            if (!strstr(e->d_name, "ckpt")) continue;
            CHECK(e->d_name[0] != '.' && n > 5 && !strcmp(e->d_name + n - 5, ".ckpt"));
            snprintf(path, sizeof path, "%s/%s", r.dir, e->d_name);
            CHECK_OK(lc_checkpoint_verify(path));
        }
        closedir(d);
        run_release(&r);
    }
}

/* ---- a checkpoint on exceptions ---- */

static lc_status read_then_fail(void *context, lc_trainer *t, lc_optimizer *opt)
{
    double v;
    int64_t *left = context;
    (void)t;
    if (--*left) return LC_OK;
    LC_TRY(lc_item(lc_sum(lc_gradient(opt->groups[0].parameters[0])), &v));
    return lc_fail(LC_ERR_USER, "between two steps");
}
static lc_status fail_after_backward(void *context, lc_trainer *t)
{
    int64_t *left = context;
    (void)t;
    return --*left ? LC_OK : lc_fail(LC_ERR_USER, "between two steps");
}

static lc_status fail_setup(void *context, lc_trainer *t, lc_stage stage)
{
    (void)context, (void)t, (void)stage;
    return lc_fail(LC_ERR_USER, "before anything began");
}

enum { IN_SETUP = -1 }; /* fail_before */

static void fit_on_exception(const char *dir, int64_t accumulate, int64_t fail_before, bool host_read, lc_status want,
                             float w[NET_WEIGHTS])
{
    net m;
    lc_trainer *t;
    lc_callback cb[2];
    lc_lambda_args l = LC_ARGS(lc_lambda, .context = &fail_before);
    if (fail_before == IN_SETUP)
        l.setup = fail_setup;
    else if (host_read)
        l.on_before_optimizer_step = read_then_fail;
    else if (fail_before > 0)
        l.on_after_backward = fail_after_backward;
    net_init(&m);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 2;
    o.accumulate_grad_batches = accumulate;
    o.threads = 1;
    o.enable_checkpointing = LC_OFF;
    o.callbacks = cb;
    o.n_callbacks = 2;
    CHECK_OK(lc_on_exception_checkpoint(&cb[0], .dirpath = dir));
    CHECK_OK(lc_lambda_callback_new(&l, &cb[1]));
    o.enable_checkpointing = LC_AUTO;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &m.base), want);
    net_weights(&m, w);
    lc_trainer_free(t);
    net_release(&m);
}

/* If a batch failed, even in the middle of a window, the next fit ends like one that did not fail. */
TEST(the_next_fit_resumes_where_one_failed)
{
    static float whole[NET_WEIGHTS], w[NET_WEIGHTS];
    for (int64_t accumulate = 1; accumulate <= 4; accumulate += 3) {
        char dir[256], list[256];
        CHECK(world_dir(dir, sizeof dir));
        fit_on_exception(dir, accumulate, 0, false, LC_OK, whole);
        for (int64_t k = 1; k <= 2 * NET_BATCHES; k += 2) {
            fit_on_exception(dir, accumulate, k, false, LC_ERR_USER, w);
            CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "on_exception.ckpt ");
            fit_on_exception(dir, accumulate, 0, false, LC_OK, w);
            CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "");
            if (memcmp(w, whole, sizeof w) != 0)
                TEST_FAIL("weights differ after a failure in batch %lld (accumulate %lld)", (long long)k,
                          (long long)accumulate);
        }
        world_remove(dir);
    }
}

/* There is nothing to save, and what an earlier failure left is not lost. */
TEST(a_fit_that_fails_before_it_begins_saves_nothing)
{
    static float whole[NET_WEIGHTS], w[NET_WEIGHTS];
    char dir[256], list[256];
    CHECK(world_dir(dir, sizeof dir));
    fit_on_exception(dir, 1, IN_SETUP, false, LC_ERR_USER, w);
    CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "");
    fit_on_exception(dir, 1, 0, false, LC_OK, whole);
    fit_on_exception(dir, 1, 5, false, LC_ERR_USER, w);
    fit_on_exception(dir, 1, IN_SETUP, false, LC_ERR_USER, w);
    CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "on_exception.ckpt ");
    fit_on_exception(dir, 1, 0, false, LC_OK, w);
    CHECK(!memcmp(w, whole, sizeof w));
    world_remove(dir);
}

TEST(a_state_between_two_steps_is_not_saved)
{
    static float w[NET_WEIGHTS];
    char dir[256], list[256];
    CHECK(world_dir(dir, sizeof dir));
    fit_on_exception(dir, 1, 3, true, LC_ERR_USER, w);
    CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "");
    world_remove(dir);
}

TEST_MAIN
