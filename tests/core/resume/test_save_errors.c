/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is full when a checkpoint is saved: the training continues (on_save_error), earlier checkpoints stay and
 * keep their names, and the run reports at its end if its last checkpoint is missing. The run database lists only
 * checkpoints that exist. */
#include "logger_run.h"
#include "full_disk.h"
#include "trainer_world.h"

#include "core/ranks/ranks.h"

#include <lightc/callbacks.h>
#include <signal.h>

static const double falling[] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4};

typedef struct ending {
    lc_status status;
    char why[1024], best[4200], last[4200], dir[300];
    double score;
} ending;

typedef struct plan {
    lc_model_checkpoint_args args;
    const char *on_save_error, *no_room_for[8];
    int64_t epochs, batches;
    int at_most;
    bool on_exception, fails, interrupted;
} plan;

static lc_status end_batch(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i);
static const plan *now;

static void train(const char *dir, const plan *p, ending *out)
{
    world w;
    lc_trainer *t;
    lc_callback callbacks[3] = {{&disk_ops, NULL}};
    lc_module_ops ops = world_ops;
    memset(out, 0, sizeof *out);
    disk_reset();
    now = p;
    disk.at_most = p->at_most;
    memcpy(disk.no_room_for, p->no_room_for, sizeof p->no_room_for);
    ops.on_train_batch_end = end_batch;
    world_init(&w, &ops, p->batches ? p->batches : 2, 1);
    w.val_script = falling, w.n_script = 6;
    snprintf(out->dir, sizeof out->dir, "%s/ckpts", dir);
    lc_model_checkpoint_args args = p->args.size ? p->args : lc_model_checkpoint_defaults();
    args.dirpath = out->dir;
    CHECK_OK(lc_model_checkpoint_new(&args, &callbacks[1]));
    if (p->on_exception) CHECK_OK(lc_on_exception_checkpoint(&callbacks[2], .dirpath = out->dir));
    lc_trainer_options o = world_options(dir);
    o.callbacks = callbacks, o.n_callbacks = 2 + p->on_exception;
    o.max_epochs = p->epochs ? p->epochs : 3;
    o.logger = "sqlite";
    o.on_save_error = p->on_save_error;
    CHECK_OK(lc_trainer_new(&o, &t));
    out->status = lc_trainer_fit(t, &w.base);
    snprintf(out->why, sizeof out->why, "%s", lc_error_message());
    lc_model_checkpoint_info info;
    lc_callback mc = lc_trainer_checkpoint_callback(t, 0);
    CHECK_OK(lc_model_checkpoint_get(&mc, &info));
    snprintf(out->best, sizeof out->best, "%s", info.best_model_path);
    snprintf(out->last, sizeof out->last, "%s", info.last_model_path);
    out->score = info.has_best_score ? info.best_model_score : NAN;
    lc_trainer_free(t);
    world_release(&w);
}

static lc_status end_batch(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    lc_trainer *t = self->trainer;
    (void)o, (void)b, (void)i;
    bool late = lc_trainer_current_epoch(t) == 2;
    if (now->fails && late) return lc_fail(LC_ERR_USER, "the sensor is unplugged");
    if (now->interrupted && late && !atomic_load(&t->ranks->signal)) {
        kill(getpid(), SIGTERM);
        while (!atomic_load(&t->ranks->signal)) pause_ms(1); /* a thread reads it */
    }
    return LC_OK;
}

static bool is_there(const char *path)
{
    return lc_checkpoint_verify(path) == LC_OK;
}

/* The database lists exactly what is in the directory. */
static void check_rows(const char *dir, const ending *e, const char *names)
{
    char sql[1024], list[1024], copy[1024];
    int n = 0;
    CHECK_STR(world_list(e->dir, ".ckpt", list, sizeof list), names);
    snprintf(copy, sizeof copy, "%s", names);
    for (char *save, *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        char path[600];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", e->dir, name);
        CHECK(lstat(path, &st) == 0);
        if (S_ISLNK(st.st_mode)) continue;
        CHECK(is_there(path));
        snprintf(sql, sizeof sql, "SELECT count(*) FROM v_checkpoint WHERE path = '%s'", path);
        if (strncmp(name, "interrupted", 11) != 0 && strncmp(name, "on_exception", 12) != 0) {
            CHECK_EQ(query_int(dir, sql), 1);
            n++;
        }
    }
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_checkpoint"), n);
}

TEST(a_run_continues_and_saves_again)
{
    for (int wait = 0; wait < 2; wait++) {
        char dir[256];
        ending e;
        CHECK(world_dir(dir, sizeof dir));
        const plan p = {.args = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_last = LC_ON, .wait = wait),
                        .no_room_for = {"-epoch=1-"},
                        .epochs = 3};
        train(dir, &p, &e);
        CHECK_OK(e.status);
        CHECK_EQ(disk.refused, 1);
        CHECK_CONTAINS(disk.errors, "epoch=1-step=4.ckpt\" was not saved: ");
        CHECK_CONTAINS(disk.errors, "No space left on device");
        CHECK_CONTAINS(disk.errors, "the newest saved one is ");
        CHECK_CONTAINS(e.best, "epoch=2-step=6.ckpt");
        check_rows(dir, &e, "epoch=2-step=6.ckpt last.ckpt ");
        CHECK_EQ(query_int(dir, "SELECT status = 'success' FROM run"), 1);
        CHECK_EQ(query_int(dir, "SELECT count(*) FROM checkpoint WHERE removed_ns IS NOT NULL"), 1);
        world_remove(dir);
    }
}

static int reported_failures(void)
{
    int n = 0;
    for (const char *p = disk.errors; (p = strstr(p, "; training continues and saves again")); p++) n++;
    return n;
}

TEST(a_run_whose_last_checkpoint_is_missing_says_so)
{
    for (int wait = 0; wait < 2; wait++)
        for (int monitors = 0; monitors < 2; monitors++) {
            char dir[256];
            ending e;
            CHECK(world_dir(dir, sizeof dir));
            const plan p = {.args = LC_ARGS(lc_model_checkpoint, .monitor = monitors ? "val_loss" : NULL,
                                            .save_last = LC_ON, .save_top_k = 1, .wait = wait),
                            .no_room_for = {"-epoch=1-", "-epoch=2-"}};
            train(dir, &p, &e);
            CHECK_STATUS(e.status, LC_ERR_IO);
            CHECK_CONTAINS(e.why, "its last checkpoint was not saved: ");
            CHECK_CONTAINS(e.why, "No space left on device");
            CHECK_CONTAINS(e.why, "the newest saved one is ");
            CHECK_CONTAINS(e.why, "epoch=0-step=2.ckpt");
            CHECK_CONTAINS(e.best, "epoch=0-step=2.ckpt");
            CHECK_CONTAINS(disk.messages, "epoch=0-step=2.ckpt");
            CHECK_EQ(reported_failures(), 2); /* only fit reports the last try */
            if (monitors) CHECK_EQ((int)(e.score * 10 + 0.5), 9);
            CHECK(is_there(e.best) && is_there(e.last));
            check_rows(dir, &e, "epoch=0-step=2.ckpt last.ckpt ");
            CHECK_EQ(query_int(dir, "SELECT status = 'failed' FROM run"), 1);
            CHECK_EQ(disk.refused, 3); /* the last one is tried again when the training ends */
            world_remove(dir);
        }
}

/* A best checkpoint that could not be saved does not count, so the next one takes its place. */
TEST(none_is_removed_for_a_failed_save)
{
    char dir[256];
    ending e;
    CHECK(world_dir(dir, sizeof dir));
    const plan p = {.args = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2),
                    .no_room_for = {"-epoch=2-", "-epoch=3-", "-epoch=4-"},
                    .epochs = 5};
    train(dir, &p, &e);
    CHECK_STATUS(e.status, LC_ERR_IO);
    CHECK_CONTAINS(e.best, "epoch=1-step=4.ckpt");
    check_rows(dir, &e, "epoch=0-step=2.ckpt epoch=1-step=4.ckpt ");
    world_remove(dir);
    CHECK(world_dir(dir, sizeof dir));
    const plan q = {.args = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2),
                    .no_room_for = {"-epoch=2-"},
                    .epochs = 5};
    train(dir, &q, &e);
    CHECK_OK(e.status);
    check_rows(dir, &e, "epoch=3-step=8.ckpt epoch=4-step=10.ckpt ");
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM checkpoint"), 4);
    world_remove(dir);
}

TEST(a_failed_save_is_repeated_at_the_end_of_training)
{
    for (int last = 0; last < 2; last++) {
        char dir[256];
        ending e;
        CHECK(world_dir(dir, sizeof dir));
        const plan p = {.args = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_last = last ? LC_ON : LC_OFF),
                        .no_room_for = {"-epoch=2-"},
                        .at_most = 1};
        train(dir, &p, &e);
        CHECK_OK(e.status);
        CHECK_EQ(disk.refused, 1);
        CHECK_CONTAINS(disk.errors, "was not saved");
        check_rows(dir, &e, last ? "epoch=2-step=6.ckpt last.ckpt " : "epoch=2-step=6.ckpt ");
        world_remove(dir);
    }
}

TEST(no_save_succeeds)
{
    char dir[256];
    ending e;
    CHECK(world_dir(dir, sizeof dir));
    const plan p = {.args = LC_ARGS(lc_model_checkpoint, .save_last = LC_ON), .no_room_for = {".ckpt"}};
    train(dir, &p, &e);
    CHECK_STATUS(e.status, LC_ERR_IO);
    CHECK_CONTAINS(e.why, "no other one was saved");
    CHECK_CONTAINS(disk.errors, "nothing has been saved yet");
    CHECK_STR(e.best, "");
    CHECK_STR(e.last, "");
    check_rows(dir, &e, "");
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM checkpoint"), 0);
    world_remove(dir);
}

TEST(a_run_stops_if_so_configured)
{
    char dir[256];
    ending e;
    CHECK(world_dir(dir, sizeof dir));
    const plan p = {.args = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss"),
                    .on_save_error = "stop",
                    .no_room_for = {"-epoch=1-"}};
    train(dir, &p, &e);
    CHECK_STATUS(e.status, LC_ERR_IO);
    CHECK_CONTAINS(e.why, "epoch=1-step=4.ckpt\" was not saved");
    CHECK_CONTAINS(e.best, "epoch=0-step=2.ckpt");
    check_rows(dir, &e, "epoch=0-step=2.ckpt ");
    world_remove(dir);
    lc_trainer *t;
    lc_trainer_options o = world_options(dir);
    o.on_save_error = "ignore";
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "on_save_error=\"ignore\"; it must be continue or stop");
}

/* A run that ends early saves its state even if an earlier save failed, and reports it if that save fails as well. */
TEST(a_run_that_ends_early)
{
    for (int full = 0; full < 2; full++) {
        char dir[256], path[600];
        ending e;
        CHECK(world_dir(dir, sizeof dir));
        plan p = {.args = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss"),
                  .interrupted = true,
                  .epochs = 4,
                  .no_room_for = {full ? ".ckpt" : "-epoch=1-"}};
        /* With one batch per epoch the save is still running, or has failed, when the signal comes. */
        p.batches = 1;
        train(dir, &p, &e);
        CHECK_STATUS(e.status, LC_ERR_INTERRUPTED);
        snprintf(path, sizeof path, "%s/lightning_logs/version_0/checkpoints/interrupted.ckpt", dir);
        if (is_there(path) == full) TEST_FAIL("%s: %s", path, e.why);
        CHECK_CONTAINS(e.why, full ? "the state could not be saved: " : "continue with --ckpt_path");
        CHECK_CONTAINS(disk.errors, "was not saved");
        world_remove(dir);
        CHECK(world_dir(dir, sizeof dir));
        p.interrupted = false, p.fails = p.on_exception = true;
        train(dir, &p, &e);
        CHECK_STATUS(e.status, LC_ERR_USER);
        snprintf(path, sizeof path, "%s/on_exception.ckpt", e.dir);
        if (is_there(path) == full) TEST_FAIL("%s%s%s", path, disk.messages, disk.errors);
        if (full) CHECK_CONTAINS(disk.messages, "on_exception of OnExceptionCheckpoint: ");
        world_remove(dir);
    }
}

TEST(a_save_of_the_program_names_its_path_once)
{
    char dir[256], path[300];
    world w;
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    world_init(&w, &world_ops_without_val, 2, 0);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 1;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &w.base));
    snprintf(path, sizeof path, "%s/file", dir);
    FILE *f = fopen(path, "w");
    CHECK(f && fclose(f) == 0);
    strcat(path, "/x.ckpt");
    CHECK(lc_trainer_save_checkpoint(t, path, false) < 0);
    const char *named = strstr(lc_error_message(), "checkpoint \"");
    CHECK(named == lc_error_message() && !strstr(named + 1, "x.ckpt\": checkpoint"));
    CHECK_CONTAINS(named, "x.ckpt\" was not saved: ");
    CHECK_STATUS(lc_trainer_save_checkpoint(t, NULL, false), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "path must not be NULL");
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

/* A callback whose tensors are made later than the first save: an error names it, and is none of the disk. */
static lc_status save_nothing(void *self, lc_trainer *t, lc_state *state)
{
    (void)self, (void)t, (void)state;
    return LC_OK;
}

static lc_status load_nothing(void *self, lc_trainer *t, const lc_state *state)
{
    (void)self, (void)t, (void)state;
    return LC_OK;
}

static lc_status visit_nothing(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx)
{
    (void)self, (void)t;
    return fn(ctx, "mean", NULL);
}

static const lc_callback_ops later_ops = {LC_CALLBACK_OPS_INIT("Later"), .save_state = save_nothing,
                                          .load_state = load_nothing, .visit_tensors = visit_nothing};

TEST(a_callback_without_its_tensor)
{
    for (int sharded = 0; sharded < 2; sharded++) {
        char dir[256];
        world w;
        lc_trainer *t;
        lc_callback later = {&later_ops, NULL};
        CHECK(world_dir(dir, sizeof dir));
        world_init(&w, &world_ops_without_val, 2, 0);
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 1;
        o.callbacks = &later, o.n_callbacks = 1;
        o.state_dict_type = sharded ? "sharded" : "full";
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_STATUS(lc_trainer_fit(t, &w.base), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), "visit_tensors of Later: \"mean\" is not a persistent tensor");
        lc_trainer_free(t);
        world_release(&w);
        world_remove(dir);
    }
}

TEST_MAIN
