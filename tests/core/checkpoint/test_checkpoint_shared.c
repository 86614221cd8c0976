/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs share a directory for checkpoints at the same time: each keeps all of its own, under names that no other
 * run has, and does not touch the others' (docs/checkpoints.md, "Runs that share a directory"). */
#include "checkpoint_runs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { RUNS = 4, EPOCHS = 6 };

typedef struct report {
    char best[600], last[600];
    int warnings;
} report;

/* Shared by the processes: they validate, and so save, at the same time. */
static struct shared {
    atomic_int there[64];
    report of[RUNS];
} * shared;

static const char *dir;
static double scores[EPOCHS * 4];
static int meeting; /* meetings of this process so far */

static void meet(lc_module *self, double value)
{
    atomic_int *there = &shared->there[meeting++];
    atomic_fetch_add(there, 1);
    for (int i = 0; i < 40000 && atomic_load(there) < RUNS; i++) usleep(100); /* a run that failed never comes */
    lc_log_value(self, "val_loss", value);
}

static void count_warnings(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)t;
    if (level != LC_INFO) ((report *)self)->warnings++;
    if (level != LC_INFO) printf("  %s: %s\n", lc_level_name(level), text);
}

/* One of the runs, in a process of its own. */
static int one_run(int number, short_run r)
{
    report *out = &shared->of[number];
    if (!r.log_val) r.log_val = meet;
    r.on_message = count_warnings;
    r.message_to = out;
    if (train(dir, r) < 0) {
        printf("  run %d: %s\n", number, lc_error_message());
        fflush(stdout);
        return 1;
    }
    snprintf(out->best, sizeof out->best, "%s", run_best);
    snprintf(out->last, sizeof out->last, "%s", run_last);
    fflush(stdout);
    return 0;
}

/* from: the checkpoint that each run resumes from; NULL: none. */
static void run_all(short_run r, const char from[RUNS][600])
{
    pid_t pids[RUNS];
    memset(shared, 0, sizeof *shared);
    fflush(stdout);
    for (int i = 0; i < RUNS; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i]) continue;
        r.ckpt_path = from ? from[i] : NULL;
        _exit(one_run(i, r));
    }
    for (int i = 0; i < RUNS; i++) {
        int how;
        CHECK(waitpid(pids[i], &how, 0) == pids[i]);
        CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        CHECK_EQ(shared->of[i].warnings, 0);
    }
}

static void training_of(const char *path, char out[48])
{
    lc__manifest m;
    CHECK_OK(lc__manifest_read(&lc__io_system, path, &m));
    memcpy(out, m.origin.training, 48);
    lc__manifest_release(&m);
    CHECK(*out);
}

/* Every checkpoint in the directory is whole; each run has `each` of them, not counting links. */
static void check_each(int each)
{
    char path[600], own[48], of[48];
    for (int i = 0; i < RUNS; i++) {
        int n = 0;
        CHECK_OK(lc_checkpoint_verify(shared->of[i].best));
        training_of(shared->of[i].best, own);
        for (int k = 0; k < i; k++) {
            training_of(shared->of[k].best, of);
            CHECK(strcmp(own, of) != 0);
        }
        snprintf(path, sizeof path, "%s/ckpt", dir);
        DIR *d = opendir(path);
        CHECK(d);
        for (struct dirent *e; (e = readdir(d));) {
            struct stat st;
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/ckpt/%s", dir, e->d_name);
            CHECK_OK(lc_checkpoint_verify(path));
            training_of(path, of);
            n += lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && !strcmp(of, own);
        }
        closedir(d);
        if (n != each) TEST_FAIL("run %d has %d checkpoints: %s", i, n, kept(dir));
        if (!*shared->of[i].last) continue;
        training_of(shared->of[i].last, of);
        CHECK_STR(of, own);
        for (int k = 0; k < i; k++) CHECK(strcmp(shared->of[i].last, shared->of[k].last) != 0);
    }
    CHECK(is_tidy(dir));
}

static void begin(const char *name)
{
    if (!shared) shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    dir = fresh_dir(name);
    for (int i = 0; i < EPOCHS * 4; i++) scores[i] = 100 - i;
}

static short_run with(lc_model_checkpoint_args keep)
{
    return (short_run){.keep = keep, .epochs = EPOCHS, .script = scores, .n_script = EPOCHS};
}

TEST(best_and_last_of_each_run)
{
    char last[RUNS][600];
    begin("best");
    short_run r = with(LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON));
    run_all(r, NULL);
    check_each(2);
    CHECK_STR(kept(dir), "epoch=4-step=10-v1.ckpt epoch=4-step=10-v2.ckpt epoch=4-step=10-v3.ckpt epoch=4-step=10.ckpt "
                         "epoch=5-step=12-v1.ckpt epoch=5-step=12-v2.ckpt epoch=5-step=12-v3.ckpt epoch=5-step=12.ckpt "
                         "last-v1.ckpt last-v2.ckpt last-v3.ckpt last.ckpt ");
    /* All resume, each from its own, and keep managing that. */
    for (int i = 0; i < RUNS; i++) snprintf(last[i], sizeof last[i], "%s", shared->of[i].last);
    r.epochs = 2 * EPOCHS, r.script = scores + EPOCHS;
    run_all(r, last);
    for (int i = 0; i < RUNS; i++) CHECK_STR(shared->of[i].last, last[i]);
    /* The checkpoints that runs resume from stay. */
    check_each(3);
}

TEST(newest_of_each_run)
{
    begin("newest");
    run_all(with(LC_ARGS(lc_model_checkpoint, .save_last = LC_ON)), NULL);
    check_each(1);
    CHECK_STR(kept(dir), "epoch=5-step=12-v1.ckpt epoch=5-step=12-v2.ckpt epoch=5-step=12-v3.ckpt epoch=5-step=12.ckpt "
                         "last-v1.ckpt last-v2.ckpt last-v3.ckpt last.ckpt ");
}

TEST(all_of_each_run)
{
    begin("all");
    run_all(with(LC_ARGS(lc_model_checkpoint, .save_top_k = -1, .filename = "{epoch}")), NULL);
    check_each(EPOCHS);
}

/* A single name, which each new checkpoint of a run takes over from the previous one. */
TEST(one_name_for_each_run)
{
    begin("one");
    run_all(with(LC_ARGS(lc_model_checkpoint, .filename = "newest")), NULL);
    check_each(1);
    CHECK_STR(kept(dir), "newest-v1.ckpt newest-v2.ckpt newest-v3.ckpt newest.ckpt ");
}

/* `last` is a checkpoint of its own. */
TEST(only_the_last)
{
    begin("last");
    run_all(with(LC_ARGS(lc_model_checkpoint, .save_top_k = 0, .save_last = LC_ON, .monitor = "val_loss")), NULL);
    char list[4000] = "";
    snprintf(list, sizeof list, "%s", kept(dir));
    CHECK_STR(list, "last-v1.ckpt last-v2.ckpt last-v3.ckpt last.ckpt ");
    for (int i = 0; i < RUNS; i++) CHECK_OK(lc_checkpoint_verify(shared->of[i].last));
    CHECK(is_tidy(dir));
}

/* Number of checkpoints of this training in the directory, not counting links. */
static int count_of(const char *training)
{
    char path[600], of[48];
    int n = 0;
    snprintf(path, sizeof path, "%s/ckpt", dir);
    DIR *d = opendir(path);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/ckpt/%s", dir, e->d_name);
        if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode)) continue;
        CHECK_OK(lc_checkpoint_verify(path));
        training_of(path, of);
        n += !strcmp(of, training);
    }
    closedir(d);
    return n;
}

/* One run continues the training, the others become trainings of their own; later each of them is continued. */
TEST(resumed_from_one_checkpoint_at_the_same_time)
{
    char from[RUNS][600], continued[48], of[RUNS][48], again[48];
    int same = 0;
    begin("forked");
    short_run r = with(LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON));
    CHECK_OK(train(dir, r));
    training_of(run_last, continued);
    for (int i = 0; i < RUNS; i++) snprintf(from[i], sizeof from[i], "%s", run_last);
    r.epochs = 2 * EPOCHS, r.script = scores + EPOCHS;
    run_all(r, from);
    for (int i = 0; i < RUNS; i++) {
        CHECK_OK(lc_checkpoint_verify(shared->of[i].best));
        CHECK_OK(lc_checkpoint_verify(shared->of[i].last));
        training_of(shared->of[i].best, of[i]);
        training_of(shared->of[i].last, again);
        CHECK_STR(of[i], again);
        for (int k = 0; k < i; k++) CHECK(strcmp(of[i], of[k]) != 0);
        same += !strcmp(of[i], continued);
        /* The checkpoint that all resumed from stays. */
        CHECK_EQ(count_of(of[i]), 2 + !strcmp(of[i], continued));
    }
    CHECK_EQ(same, 1);
    CHECK(is_tidy(dir));
    for (int i = 0; i < RUNS; i++) snprintf(from[i], sizeof from[i], "%s", shared->of[i].last);
    r.epochs = 3 * EPOCHS, r.script = scores + 2 * EPOCHS;
    run_all(r, from);
    for (int i = 0; i < RUNS; i++) {
        training_of(shared->of[i].best, again);
        CHECK_STR(of[i], again);
    }
}

/* A run that became a training of its own counts the checkpoint it resumed from, does not remove it, and recognizes it
 * again when it is continued. */
static void leave_and_wait(lc_module *self, double value)
{
    if (meeting++ == 3) {
        atomic_store(&shared->there[0], 1);
        for (int i = 0; i < 40000 && !atomic_load(&shared->there[1]); i++) usleep(1000);
    }
    lc_log_value(self, "val_loss", value);
}

TEST(resumed_while_it_still_trains)
{
    static const double worse[] = {200, 201, 202, 203, 204, 205, 206, 207, 208};
    char last[600], own[48], of[48];
    int how;
    begin("at_once");
    memset(shared, 0, sizeof *shared);
    short_run r =
        with(LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON, .wait = true));
    fflush(stdout);
    pid_t first = fork();
    CHECK(first >= 0);
    if (!first) {
        r.log_val = leave_and_wait;
        _exit(one_run(0, r));
    }
    for (int i = 0; i < 40000 && !atomic_load(&shared->there[0]); i++) usleep(1000);
    CHECK(atomic_load(&shared->there[0]));
    snprintf(last, sizeof last, "%s/ckpt/epoch=2-step=6.ckpt", dir);
    training_of(last, own);
    for (int i = 0; i < 5000 && strstr(kept(dir), "epoch=0-"); i++) usleep(1000); /* it is removed in the background */
    /* All of its values are worse than what it counts, so it keeps its last state and nothing else. */
    r.ckpt_path = last, r.script = worse, r.epochs = 5;
    CHECK_OK(train(dir, r));
    CHECK_CONTAINS(run_last, "last-v1.ckpt");
    CHECK_CONTAINS(run_best, "epoch=2-step=6.ckpt");
    CHECK_EQ(count_of(own), 2);
    /* The same when that run is continued: it still counts that checkpoint. */
    char ended[600];
    snprintf(ended, sizeof ended, "%s", run_last);
    training_of(ended, of);
    CHECK(strcmp(of, own) != 0);
    r.ckpt_path = ended, r.epochs = 7;
    CHECK_OK(train(dir, r));
    CHECK_STR(run_last, ended);
    CHECK_EQ(count_of(of), 1);
    CHECK_EQ(count_of(own), 2);
    /* Better ones take its place in the list, but not in the directory. */
    r.ckpt_path = last;
    r.script = scores + EPOCHS, r.epochs = EPOCHS;
    CHECK_OK(train(dir, r));
    training_of(run_best, of);
    CHECK(strcmp(of, own) != 0);
    CHECK_CONTAINS(run_last, "last-v2.ckpt");
    CHECK_EQ(count_of(of), 2);
    atomic_store(&shared->there[1], 1);
    CHECK(waitpid(first, &how, 0) == first);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    CHECK_EQ(shared->of[0].warnings, 0);
    training_of(shared->of[0].best, of);
    CHECK_STR(of, own);
    training_of(shared->of[0].last, of);
    CHECK_STR(of, own);
    CHECK_OK(lc_checkpoint_verify(shared->of[0].best));
    CHECK_EQ(count_of(own), 2);
    CHECK(is_tidy(dir));
}

static void meet_and_ask(lc_module *self, double value)
{
    meet(self, value);
    if (meeting == 1) kill(getpid(), SIGUSR1);
}

/* SIGUSR1 reaches all runs at the same time, as from Slurm before a job's time is up. */
TEST(one_for_each_run_on_sigusr1)
{
    char path[600], of[RUNS][48];
    begin("request");
    short_run r = with(lc_model_checkpoint_defaults());
    r.log_val = meet_and_ask;
    r.handle_signals = true;
    run_all(r, NULL);
    for (int i = 0; i < RUNS; i++) {
        snprintf(path, sizeof path, "%s/hpc_ckpt_%d.ckpt", dir, i + 1);
        CHECK_OK(lc_checkpoint_verify(path));
        training_of(path, of[i]);
        for (int k = 0; k < i; k++) CHECK(strcmp(of[i], of[k]) != 0);
    }
}

/* A run that died while it chose an id has left its claim to that; a continued run has nothing to train and saves
 * nothing. */
TEST(a_dead_runs_claim_to_an_id_is_removed)
{
    char id[48], path[700], last[600];
    begin("dead-id");
    short_run r = with(LC_ARGS(lc_model_checkpoint, .save_top_k = -1));
    CHECK_OK(train(dir, r));
    training_of(run_best, id);
    snprintf(last, sizeof last, "%s", run_best);
    snprintf(path, sizeof path, "%s/ckpt/.taken-training-%s", dir, id);
    CHECK(!mkdir(path, 0777));
    int held = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(held >= 0 && flock(held, LOCK_EX) == 0);
    r.ckpt_path = last;
    CHECK_OK(train(dir, r));
    struct stat st;
    CHECK(lstat(path, &st) == 0); /* its process lives */
    close(held);
    CHECK_OK(train(dir, r));
    CHECK(lstat(path, &st) < 0);
}

TEST(a_dead_runs_claim_to_a_name_is_removed)
{
    static const char *const names[] = {".taken-epoch=5-step=12.ckpt", ".taken-other.ckpt",
                                        ".taken-epoch=4-step=10.ckpt", ".taken-epoch=3-step=8.ckpt"};
    char path[4][600], inside[700];
    begin("dead");
    snprintf(path[0], sizeof path[0], "%s/ckpt", dir);
    CHECK(!mkdir(path[0], 0777));
    for (int i = 0; i < 4; i++) {
        snprintf(path[i], sizeof path[i], "%s/ckpt/%s", dir, names[i]);
        CHECK(!mkdir(path[i], 0777));
    }
    int held = open(path[2], O_RDONLY | O_DIRECTORY);
    CHECK(held >= 0 && flock(held, LOCK_EX) == 0);
    snprintf(inside, sizeof inside, "%s/thesis.tex", path[3]);
    CHECK_OK(lc__create_file(&lc__io_system, inside, "precious", 8));
    run_all(with(LC_ARGS(lc_model_checkpoint, .save_top_k = -1)), NULL);
    struct stat st;
    CHECK(lstat(path[0], &st) < 0 && lstat(path[1], &st) < 0);
    CHECK(lstat(path[2], &st) == 0 && lstat(inside, &st) == 0);
    CHECK(remove_tree(path[2]) && remove_tree(path[3]));
    close(held);
    check_each(EPOCHS);
    CHECK_CONTAINS(kept(dir), "epoch=5-step=12-v1.ckpt epoch=5-step=12-v2.ckpt epoch=5-step=12-v3.ckpt "
                              "epoch=5-step=12.ckpt ");
    CHECK_CONTAINS(kept(dir), "epoch=4-step=10-v1.ckpt epoch=4-step=10-v2.ckpt epoch=4-step=10-v3.ckpt "
                              "epoch=4-step=10-v4.ckpt epoch=5");
    CHECK_CONTAINS(kept(dir), "epoch=3-step=8-v1.ckpt epoch=3-step=8-v2.ckpt epoch=3-step=8-v3.ckpt "
                              "epoch=3-step=8-v4.ckpt epoch=4");
}

/* ---- what loggers get ---- */

static struct {
    char saved[EPOCHS][64], removed[EPOCHS][64]; /* names */
    int n_saved, n_removed;
} logged;

static lc_status begin_log(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}

static lc_status log_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}

static lc_status hear_saved(void *self, const char *path, int64_t step, double score, bool has_score)
{
    (void)self, (void)step, (void)score, (void)has_score;
    CHECK(logged.n_saved < EPOCHS);
    snprintf(logged.saved[logged.n_saved++], sizeof *logged.saved, "%s", strrchr(path, '/') + 1);
    return LC_OK;
}

static lc_status hear_removed(void *self, const char *path)
{
    (void)self;
    CHECK(logged.n_removed < EPOCHS);
    snprintf(logged.removed[logged.n_removed++], sizeof *logged.removed, "%s", strrchr(path, '/') + 1);
    return LC_OK;
}

/* Another run saves under the name that this run's first checkpoint has freed, before this run has looked. */
static lc_status take_the_free_name(lc_module *self)
{
    char path[600], others[600];
    struct stat st;
    if (lc_trainer_current_epoch(self->trainer) != 1) return LC_OK;
    snprintf(path, sizeof path, "%s/ckpt/epoch=0-step=2.ckpt", dir);
    snprintf(others, sizeof others, "%s/ckpt/others.ckpt", dir);
    for (int i = 0; i < 40000 && lstat(path, &st) == 0; i++) usleep(1000);
    CHECK(rename(others, path) == 0);
    return LC_OK;
}

TEST(a_removed_checkpoint_is_reported_though_another_run_has_its_name)
{
    static const lc_logger_ops ops = {LC_LOGGER_OPS_INIT,           .name = "hears",
                                      .start = begin_log,           .log_row = log_row,
                                      .log_checkpoint = hear_saved, .log_checkpoint_removed = hear_removed};
    const lc_logger logger = {&ops, NULL};
    char path[600];
    begin("names");
    short_run r = with(LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 1,
                               .save_on_train_epoch_end = LC_OFF, .filename = "others"));
    r.epochs = 1;
    CHECK_OK(train(dir, r));
    r.keep.filename = NULL;
    r.epochs = EPOCHS;
    r.on_validation_end = take_the_free_name;
    r.logger = &logger;
    memset(&logged, 0, sizeof logged);
    CHECK_OK(train(dir, r));
    CHECK_EQ(logged.n_saved, EPOCHS);
    CHECK_EQ(logged.n_removed, EPOCHS - 1);
    for (int i = 0; i < EPOCHS - 1; i++) CHECK_STR(logged.removed[i], logged.saved[i]);
    snprintf(path, sizeof path, "%s/ckpt/epoch=0-step=2.ckpt", dir);
    CHECK_OK(lc_checkpoint_verify(path));
}

TEST_MAIN
