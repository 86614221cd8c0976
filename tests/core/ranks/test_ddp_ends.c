/* SPDX-License-Identifier: Apache-2.0 */
/* A stop request or a failure of one rank ends the run on all ranks. */
#include "ddp_run.h"

#include <dirent.h>

TEST(one_rank_stops_all)
{
    for (int n = 2; n <= 3; n++) {
        static ranks_job r;
        job j = job_of("stop");
        j.stop_rank = n - 1;
        j.at_batch = 3;
        memset(&r, 0, sizeof r);
        r.j = &j;
        CHECK_RANKS("threads", n, run_rank, &r);
        for (int i = 0; i < n; i++) CHECK_EQ(r.o[i].end.steps, 4);
    }
}

/* ---- stop requests in places without gradient exchange ---- */

typedef enum place { FIT_START, TRAIN_START, EPOCH_START, EPOCH_END, PLACES } place;
static place stops_in;

/* The last rank stops the run, in epoch 1 if epochs have begun. */
static lc_status stop_in(lc_trainer *t, place here)
{
    bool last = lc_trainer_global_rank(t) == lc_trainer_world_size(t) - 1;
    return last && here == stops_in && (here < EPOCH_START || lc_trainer_current_epoch(t) == 1) ? LC_STOP : LC_OK;
}

static lc_status stop_fit_start(void *self, lc_trainer *t)
{
    (void)self;
    return stop_in(t, FIT_START);
}
static lc_status stop_train_start(void *self, lc_trainer *t)
{
    (void)self;
    return stop_in(t, TRAIN_START);
}
static lc_status stop_epoch_start(void *self, lc_trainer *t)
{
    (void)self;
    return stop_in(t, EPOCH_START);
}
static lc_status stop_epoch_end(void *self, lc_trainer *t)
{
    (void)self;
    return stop_in(t, EPOCH_END);
}

static lc_status make_stopper(lc_callback *out)
{
    static const lc_callback_ops ops = {
        LC_CALLBACK_OPS_INIT("stopper"),      .on_fit_start = stop_fit_start,
        .on_train_start = stop_train_start,   .on_train_epoch_start = stop_epoch_start,
        .on_train_epoch_end = stop_epoch_end,
    };
    *out = (lc_callback){&ops, NULL};
    return LC_OK;
}

/* Time is up in the first epoch. */
static lc_status make_timer(lc_callback *out)
{
    return lc_timer_new(1e-9, true, out);
}

static int count_checkpoints(const job *j)
{
    char path[400];
    int n = 0;
    snprintf(path, sizeof path, "%s/lightning_logs/version_0/checkpoints", j->root);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* Values of an epoch that was not trained do not exist. */
static lc_status stopped_rank(lc_comm *comm, void *ctx)
{
    ranks_job *r = ctx;
    outcome *o = &r->o[comm ? lc_comm_rank(comm) : 0];
    lc_status s = run(r->j, comm, o);
    return o->status < 0 ? s : LC_OK;
}

static void check_stop(const char *name, lc_status (*callback)(lc_callback *out), int64_t steps)
{
    for (int n = 0; n <= 3; n++) {
        static ranks_job r;
        static int alone;
        static int64_t epochs;
        job j = job_of(name);
        j.callback = callback;
        memset(&r, 0, sizeof r);
        r.j = &j;
        if (n)
            CHECK_RANKS("threads", n, stopped_rank, &r);
        else
            CHECK_OK(stopped_rank(NULL, &r));
        if (!n) alone = count_checkpoints(&j);
        if (!n) epochs = r.o[0].end.epochs;
        for (int i = 0; i < (n ? n : 1); i++) {
            CHECK_EQ(r.o[i].end.steps, steps);
            CHECK_EQ(r.o[i].end.epochs, epochs);
        }
        CHECK_EQ(count_checkpoints(&j), alone);
    }
}

TEST(ranks_stop_where_one_process_stops)
{
    const int64_t epoch = (SAMPLES + GLOBAL_BATCH - 1) / GLOBAL_BATCH;
    const int64_t steps[PLACES] = {[FIT_START] = 0, [TRAIN_START] = 0, [EPOCH_START] = epoch, [EPOCH_END] = 2 * epoch};
    for (int k = 0; k < PLACES; k++) {
        stops_in = (place)k;
        check_stop("stop_in", make_stopper, steps[k]);
    }
    check_stop("time_is_up", make_timer, epoch);
}

TEST(ranks_stop_when_their_time_is_up)
{
    static ranks_job r;
    char ckpt[400];
    job j = job_of("used_up");
    j.callback = make_timer;
    r.j = &j;
    CHECK_RANKS("threads", 2, run_rank, &r);
    snprintf(ckpt, sizeof ckpt, "%s/lightning_logs/version_0/checkpoints/last.ckpt", j.root);
    j.ckpt_path = ckpt;
    int64_t steps = r.o[0].end.steps;
    CHECK_RANKS("threads", 2, stopped_rank, &r);
    for (int i = 0; i < 2; i++) CHECK_EQ(r.o[i].end.steps, steps);
}

/* ---- failures ---- */

/* Fails rank 1 of n. */
static void check_failure(job *j, int n)
{
    static ranks_job r;
    j->fail_rank = 1;
    j->at_batch = 2;
    memset(&r, 0, sizeof r);
    r.j = j;
    world *w = world_run("threads", n, run_rank, &r);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(r.o[i].status, i == 1 ? LC_ERR_USER : LC_ERR_PEER);
        if (!strstr(w->ranks[i].message, "the sensor of this rank is unplugged"))
            TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
        if (i != 1 && !strstr(w->ranks[i].message, "rank 1")) TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    }
    world_free(w);
}

TEST(a_failure_of_one_rank_is_the_reason_on_all)
{
    job j = job_of("fail");
    check_failure(&j, 3);
    for (int size = 1; size <= 4; size *= 2) { /* sizes: the other ranks wait in different groups */
        j = job_of("fail_copies");
        j.strategy = "sharded_hybrid";
        j.shard_size = size;
        j.bucket_cap_mb = small_buckets;
        check_failure(&j, 4);
    }
}

/* Ranks do not wait for a rank that has moved on to another call: both calls are named. */
TEST(a_rank_that_leaves_the_epoch_by_itself_is_named)
{
    for (int strategy = 0; strategy < 2; strategy++) {
        static ranks_job r;
        job j = job_of("leave");
        j.strategy = strategy ? "sharded" : "ddp";
        j.fail_rank = 1;
        j.leaves = true;
        j.at_batch = 2;
        memset(&r, 0, sizeof r);
        r.j = &j;
        world *w = world_run("threads", 2, run_rank, &r);
        for (int i = 0; i < 2; i++) {
            CHECK(w->ranks[i].status < 0);
            CHECK_CONTAINS(w->ranks[i].message, "the ranks make different calls");
            CHECK_CONTAINS(w->ranks[i].message, "on rank 0");
            CHECK_CONTAINS(w->ranks[i].message, "on rank 1");
            CHECK_EQ(r.o[i].end.steps, 2);
        }
        world_free(w);
    }
}

TEST_MAIN
