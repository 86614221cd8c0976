/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2 in the trainer: N ranks with batch B train as one rank with batch N * B, and everything around the step (logged
 * values, checkpoints, early stopping) is one run's. */
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
            CHECK(!memcmp(r.o[0].weight, r.o[i].weight, sizeof r.o[0].weight));
            CHECK(r.o[0].val_loss == r.o[i].val_loss && r.o[0].smallest == r.o[i].smallest);
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
/* A rank without samples records the same steps whatever is trained, but sends other buckets. */
TEST(ranks_without_samples_follow_what_is_trained)
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

/* A run by hand costs as many calls later as at its beginning, however many backward passes there were. */
TEST(many_backward_passes_by_hand)
{
    static ranks_job r;
    int64_t calls[3];
    for (int i = 0; i < 3; i++) {
        job j = job_of("many");
        manually(&j);
        j.max_epochs = 7 * (i + 1); /* of 18 backward passes */
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
    j->max_epochs = 2; /* each step multiplies what is rounded */
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

/* Steps and where a line search ends depend on the loss and the gradient, so ranks must look at the same ones. */
TEST(lbfgs_takes_one_path)
{
    check("lbfgs", lbfgs);
    check("lbfgs_manual", lbfgs_by_hand);
}
TEST(lbfgs_searches_along_one_line)
{
    check("lbfgs_wolfe", lbfgs_searching);
    check("lbfgs_wolfe_manual", lbfgs_searching_by_hand);
}

/* Smaller buckets are more calls, and the same numbers. */
TEST(bucket_cap_mb_says_how_much_goes_with_one_call)
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
    CHECK(more >= r[0].o[0].steps);
    CHECK_EQ(more % r[0].o[0].steps, 0);
    CHECK(!memcmp(r[0].o[0].weight, r[1].o[0].weight, sizeof r[0].o[0].weight));
}

TEST_MAIN
