/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2 in the trainer: N ranks with batch B train as one rank with batch N * B, and everything around the step (logged
 * values, checkpoints, early stopping) is that of a single run. */
#include "ddp_run.h"

#include <dirent.h>

static int count_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* `change` is applied to every job. */
static void check(const char *name, void (*change)(job *j))
{
    outcome one;
    job single = job_of(name);
    change(&single);
    CHECK_OK(run(&single, NULL, &one));
    for (int n = 1; n <= 4; n++) {
        static ranks_job r;
        char dir[64];
        snprintf(dir, sizeof dir, "%s-%d", name, n);
        job j = job_of(dir);
        change(&j);
        memset(&r, 0, sizeof r);
        r.j = &j;
        CHECK_RANKS("threads", n, run_rank, &r);
        for (int i = 0; i < n; i++) {
            compare(&one, &r.o[i]);
            CHECK(!memcmp(r.o[0].end.weight, r.o[i].end.weight, sizeof r.o[0].end.weight));
            CHECK(r.o[0].end.val_loss == r.o[i].end.val_loss && r.o[0].smallest == r.o[i].smallest);
        }
        for (int i = 0; i < (j.samples ? j.samples : SAMPLES); i++) CHECK(j.seen[i]);
        /* One run, one set of checkpoints, the same names. */
        char a[512], b[512];
        snprintf(a, sizeof a, "%s/lightning_logs", j.root);
        CHECK_EQ(count_entries(a), 1);
        snprintf(a, sizeof a, "%s/lightning_logs/version_0/checkpoints", j.root);
        snprintf(b, sizeof b, "%s/lightning_logs/version_0/checkpoints", single.root);
        CHECK_EQ(count_entries(a), count_entries(b));
    }
}

static void plain(job *j)
{
    (void)j;
}

TEST(ranks_train_as_one)
{
    check("plain", plain);
}
TEST(ranks_train_as_one_over_accumulation_and_clipping)
{
    check("accumulate", accumulating);
}
/* A rank without samples runs the same number of steps whatever is trained, but sends other buckets. */
TEST(ranks_without_samples_follow_frozen_parameters)
{
    outcome one;
    job j = job_of("thawing");
    thawing(&j);
    CHECK_OK(run(&j, NULL, &one));
    for (int n = 2; n <= 4; n++) {
        static ranks_job r;
        j = job_of("thawing");
        thawing(&j);
        r.j = &j;
        CHECK_RANKS("threads", n, run_rank, &r);
        for (int i = 0; i < n; i++) compare(&one, &r.o[i]);
    }
}

TEST(ranks_stop_early_together)
{
    check("early", stopping_early);
}

TEST(several_backward_passes_for_a_step)
{
    check("manual", manually);
    check("manual_accumulate", manually_accumulating);
}

/* A manual run makes as many calls per step later as at its beginning, however many backward passes there were. */
TEST(many_backward_passes_by_hand)
{
    static ranks_job r;
    int64_t calls[3];
    for (int i = 0; i < 3; i++) {
        job j = job_of("many");
        manually(&j);
        j.max_epochs = 7 * (i + 1); /* with 18 backward passes */
        memset(&r, 0, sizeof r);
        r.j = &j;
        CHECK_RANKS("threads", 2, run_rank, &r);
        calls[i] = r.o[0].all_reduces;
    }
    CHECK_EQ(calls[2] - calls[1], calls[1] - calls[0]);
}

static void lbfgs(job *j)
{
    unevenly(j);
    j->lbfgs = LBFGS;
    j->max_epochs = 2; /* each step amplifies rounding errors */
}
static void lbfgs_searching(job *j)
{
    lbfgs(j);
    j->lbfgs = LBFGS_STRONG_WOLFE;
}
static void lbfgs_by_hand(job *j)
{
    lbfgs(j);
    j->manual = true;
}
static void lbfgs_searching_by_hand(job *j)
{
    lbfgs_searching(j);
    j->manual = true;
}

/* The step size and the end of a line search depend on the loss and the gradient, so all ranks must use the same ones.
 */
TEST(lbfgs_takes_the_same_steps_on_all_ranks)
{
    check("lbfgs", lbfgs);
    check("lbfgs_manual", lbfgs_by_hand);
}
TEST(lbfgs_line_searches_are_the_same_on_all_ranks)
{
    check("lbfgs_wolfe", lbfgs_searching);
    check("lbfgs_wolfe_manual", lbfgs_searching_by_hand);
}

/* Smaller buckets make more calls and give the same numbers. */
TEST(bucket_cap_mb_limits_what_one_call_reduces)
{
    static ranks_job r[2];
    for (int small = 0; small < 2; small++) {
        job j = job_of("buckets");
        j.max_epochs = 1;
        if (small) j.bucket_cap_mb = small_buckets;
        memset(&r[small], 0, sizeof r[small]);
        r[small].j = &j;
        CHECK_RANKS("threads", 2, run_rank, &r[small]);
    }
    int64_t more = r[1].o[0].all_reduces - r[0].o[0].all_reduces;
    CHECK(more >= r[0].o[0].end.steps);
    CHECK_EQ(more % r[0].o[0].end.steps, 0);
    CHECK(!memcmp(r[0].o[0].end.weight, r[1].o[0].end.weight, sizeof r[0].o[0].end.weight));
}

/* ---- a trainer that runs twice ---- */

typedef struct two_runs {
    const char *compression;
    int64_t accumulate;
    float head[8 * CLASSES]; /* rank 0's */
} two_runs;

static const lc_module_ops bare_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = small_net_training_step,
    .configure_optimizers = small_net_sgd,
};

static lc_status train_an_epoch(lc_trainer *t, lc_module *m, lc_dataloader *l, int64_t epoch)
{
    lc_batch *b;
    LC_TRY(lc_trainer_begin(t, m));
    LC_TRY(lc_dataloader_begin(l, epoch, 0));
    for (;;) {
        LC_TRY(lc_dataloader_next(l, &b));
        if (!b) break;
        LC_TRY(lc_trainer_step(t, b, NULL));
    }
    lc_dataloader_end(l);
    return lc_trainer_end(t);
}

static lc_status run_twice(lc_comm *comm, void *ctx)
{
    two_runs *r = ctx;
    int n = comm ? lc_comm_size(comm) : 1, me = comm ? lc_comm_rank(comm) : 0;
    small_net m = {0};
    lc_dataloader *l;
    lc_trainer *t = NULL;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? "ddp" : NULL;
    opt.gradient_compression = comm ? r->compression : NULL;
    opt.accumulate_grad_batches = r->accumulate;
    opt.bucket_cap_mb = small_buckets;
    LC_TRY(small_net_init(&m, &bare_ops, 7));
    LC_TRY(loader_of(0, 4 * GLOBAL_BATCH, GLOBAL_BATCH / n, false, &l));
    LC_TRY(lc_dataloader_share(l, &(lc_share){.rank = me, .size = n}));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = train_an_epoch(t, &m.base, l, 0);
    if (s >= 0) s = train_an_epoch(t, &m.base, l, 1);
    if (s >= 0 && me == 0) s = lc_tensor_read(m.l2.weight, r->head, sizeof r->head);
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m);
    return s;
}

/* The second run has a reducer of its own, possibly at the address of the first one. */
TEST(a_trainer_runs_again)
{
    static const char *const compression[] = {NULL, "bf16"};
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        two_runs one = {.accumulate = accumulate};
        CHECK_OK(run_twice(NULL, &one));
        for (int k = 0; k < 2; k++) {
            static two_runs two;
            two = (two_runs){.compression = compression[k], .accumulate = accumulate};
            CHECK_RANKS("threads", 2, run_twice, &two);
            for (size_t i = 0; i < sizeof one.head / 4; i++) CHECK_NEAR(one.head[i], two.head[i], k ? 1e-2 : 3e-6);
        }
    }
}

TEST_MAIN
