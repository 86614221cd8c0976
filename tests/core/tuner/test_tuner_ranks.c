/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner on several ranks: one curve, one rate and one size on all of them, those of one process with the whole
 * batch, and one set of files. */
#include "comm_world.h"
#include "scratch.h"
#include "wave.h"

#include <sys/stat.h>

typedef struct tuner_job {
    lc_lr_find_result want; /* the result of one process */
    lc_scale_batch_size_args sizes;
    int64_t bytes_of_rank_1; /* max_bytes on rank 1; 0: as on the other ranks */
    int64_t samples, batch;  /* of all ranks together */
    lc_scale_batch_size_result got[WORLD_RANKS];
    double rates[WORLD_RANKS];
    bool failed[WORLD_RANKS];
    char root[300];
    const char *strategy;           /* NULL: ddp */
    bool finds_size;                /* in a fit: a size rather than a rate */
    float weights[WORLD_RANKS][16]; /* after a fit */
} tuner_job;

enum { STAGES = 4 };
static const char *const stages[STAGES] = {"sharded_1", "sharded_2", "sharded_3", "sharded_hybrid"};

static lc_status open_wave(const tuner_job *j, lc_comm *comm, lc_module **m, lc_trainer **t)
{
    wave_values v = WAVE_DEFAULTS;
    lc_trainer_options o = wave_options(NULL);
    v.samples = j->samples;
    v.batch_size = j->batch / (comm ? lc_comm_size(comm) : 1);
    v.shuffle = true;
    o.strategy = !comm ? NULL : j->strategy ? j->strategy : "ddp";
    o.comm = comm;
    o.handle_signals = false;
    LC_TRY(lc_module_new(&wave_class, &v, 1, m));
    return lc_trainer_new(&o, t);
}

static lc_status find_rate(const tuner_job *j, lc_comm *comm, lc_lr_find_result *r, double *rate)
{
    lc_module *m;
    lc_trainer *t;
    float before[16], after[16];
    LC_TRY(open_wave(j, comm, &m, &t));
    LC_TRY(lc_tensor_read(lc_module_find(m, "l1.weight"), before, sizeof before));
    lc_lr_find_args a =
        LC_ARGS(lc_lr_find, .min_lr = 1e-4, .max_lr = 200, .num_training = 60, .early_stop_threshold = 4);
    LC_TRY(lc_tuner_lr_find_with(t, m, NULL, r, &a));
    LC_TRY(lc_tensor_read(lc_module_find(m, "l1.weight"), after, sizeof after));
    RANK_CHECK(!memcmp(before, after, sizeof before));
    *rate = ((wave *)m)->h->optimizer.lr;
    lc_trainer_free(t);
    lc_module_free(m);
    return LC_OK;
}

static lc_status rate_of_rank(lc_comm *comm, void *ctx)
{
    tuner_job *j = ctx;
    lc_lr_find_result r;
    double first[60];
    LC_TRY(find_rate(j, comm, &r, &j->rates[lc_comm_rank(comm)]));
    RANK_CHECK(r.n == j->want.n && r.stopped_early == j->want.stopped_early && r.suggested == j->want.suggested);
    for (int64_t i = 0; i < r.n; i++) {
        RANK_CHECK(r.lr[i] == j->want.lr[i]);
        RANK_CHECK(fabs(r.loss[i] - j->want.loss[i]) < 1e-3 * j->want.loss[i]);
    }
    memcpy(first, r.loss, (size_t)r.n * sizeof *first);
    LC_TRY(lc_comm_broadcast(comm, first, r.n, LC_F64, 0, NULL));
    RANK_CHECK(!memcmp(first, r.loss, (size_t)r.n * sizeof *first));
    lc_lr_find_release(&r);
    return LC_OK;
}

/* 193 samples: some ranks have none of the last batch of an epoch. The rates go so far that the loss diverges. */
TEST(ranks_find_one_rate)
{
    static tuner_job j;
    double rate;
    j = (tuner_job){.samples = 193, .batch = 24};
    CHECK_OK(find_rate(&j, NULL, &j.want, &rate));
    CHECK(j.want.stopped_early && j.want.n > 20 && j.want.n < 60);
    for (int n = 2; n <= 4; n++) {
        CHECK_RANKS("threads", n, rate_of_rank, &j);
        for (int r = 0; r < n; r++) CHECK(j.rates[r] == rate);
    }
    CHECK_RANKS("shm", 2, rate_of_rank, &j);
    for (int k = 0; k < STAGES; k++) {
        j.strategy = stages[k];
        CHECK_RANKS("threads", 2, rate_of_rank, &j);
    }
    lc_lr_find_release(&j.want);
}

/* ---- sizes ---- */

static lc_status size_of_rank(lc_comm *comm, void *ctx)
{
    tuner_job *j = ctx;
    int me = comm ? lc_comm_rank(comm) : 0;
    lc_scale_batch_size_args a = j->sizes;
    lc_module *m;
    lc_trainer *t;
    if (me == 1 && j->bytes_of_rank_1) a.max_bytes = j->bytes_of_rank_1;
    LC_TRY(open_wave(j, comm, &m, &t));
    lc_status s = lc_tuner_scale_batch_size_with(t, m, NULL, &j->got[me], &a);
    if (s < 0) RANK_CHECK(s == LC_ERR_MEMORY && strstr(lc_error_message(), "even a batch of 1"));
    j->failed[me] = s < 0;
    RANK_CHECK(s < 0 || ((wave *)m)->h->batch_size == j->got[me].batch_size);
    lc_trainer_free(t);
    lc_module_free(m);
    /* Whatever a trial did to its group, the run's is intact. */
    return comm ? lc_comm_barrier(comm, NULL) : LC_OK;
}

TEST(ranks_find_one_size)
{
    static tuner_job j;
    lc_scale_batch_size_result one, all;
    j = (tuner_job){.samples = 1000, .batch = 12, .sizes = lc_scale_batch_size_defaults()};
    CHECK_OK(size_of_rank(NULL, &j));
    all = j.got[0];
    CHECK_EQ(all.batch_size, 1000);
    for (int n = 2; n <= 3; n++) {
        CHECK_RANKS("threads", n, size_of_rank, &j);
        for (int r = 0; r < n; r++) CHECK(!j.failed[r]);
        for (int r = 0; r < n; r++) CHECK_EQ(j.got[r].batch_size, (1000 + n - 1) / n);
        for (int r = 0; r < n; r++) CHECK_EQ(j.got[r].planned_bytes, j.got[0].planned_bytes);
    }
    /* Memory for 100 samples on each rank. */
    j.sizes = LC_ARGS(lc_scale_batch_size, .max_val = 100, .init_val = 100);
    CHECK_OK(size_of_rank(NULL, &j));
    j.sizes = LC_ARGS(lc_scale_batch_size, .max_bytes = j.got[0].planned_bytes);
    CHECK_OK(size_of_rank(NULL, &j));
    one = j.got[0];
    CHECK_EQ(one.batch_size, 64);
    CHECK_RANKS("threads", 3, size_of_rank, &j);
    for (int r = 0; r < 3; r++) CHECK(j.got[r].batch_size == 64 && j.got[r].too_large == 128);
    /* Rank 1 has less, but more than what the sizes of tensors are rounded up by. */
    j.bytes_of_rank_1 = one.planned_bytes / 2;
    CHECK_RANKS("threads", 3, size_of_rank, &j);
    for (int r = 0; r < 3; r++) CHECK(j.got[r].batch_size == j.got[1].batch_size && j.got[r].batch_size < 64);
    for (int k = 0; k < STAGES; k++) {
        int64_t want = j.got[1].batch_size;
        j.strategy = stages[k];
        CHECK_RANKS("threads", 3, size_of_rank, &j);
        for (int r = 0; r < 3; r++) CHECK(!j.failed[r] && j.got[r].batch_size >= want / 2);
    }
    j.strategy = NULL;
    j.sizes.mode = "binsearch";
    j.sizes.margin = 0;
    CHECK_RANKS("threads", 2, size_of_rank, &j);
    CHECK(j.got[0].batch_size == j.got[1].batch_size && j.got[0].too_large == j.got[0].batch_size + 1);
    /* Rank 1 has almost none. */
    j.bytes_of_rank_1 = 64;
    CHECK_RANKS("threads", 3, size_of_rank, &j);
    for (int r = 0; r < 3; r++) CHECK(j.failed[r]);
}

/* ---- in a fit ---- */

static lc_status make_finder(const tuner_job *j, lc_callback *out)
{
    if (!j->finds_size) return lc_learning_rate_finder(out, .num_training = 30, .early_stop_threshold = INFINITY);
    return lc_batch_size_finder_new(&j->sizes, out);
}

static lc_status fit_of_rank(lc_comm *comm, void *ctx)
{
    tuner_job *j = ctx;
    int me = lc_comm_rank(comm);
    wave_values v = WAVE_DEFAULTS;
    lc_module *m;
    lc_trainer *t;
    lc_callback cb;
    lc_trainer_options o = wave_options(j->root);
    o.logger = "csv";
    o.strategy = j->strategy ? j->strategy : "ddp";
    o.comm = comm;
    o.handle_signals = false;
    v.optimizer.momentum = 0.9;
    LC_TRY(make_finder(j, &cb));
    o.callbacks = &cb;
    o.n_callbacks = 1;
    LC_TRY(lc_module_new(&wave_class, &v, 1 + (uint64_t)me, &m));
    LC_TRY(lc_trainer_new(&o, &t));
    LC_TRY(lc_trainer_fit(t, m));
    j->rates[me] = ((wave *)m)->h->optimizer.lr;
    j->got[me].batch_size = ((wave *)m)->h->batch_size;
    LC_TRY(lc_tensor_read(lc_module_find(m, "l1.weight"), j->weights[me], sizeof j->weights[me]));
    lc_trainer_free(t);
    lc_module_free(m);
    return LC_OK;
}

TEST(a_fit_begins_with_one_rate_and_one_rank_writes_the_curve)
{
    static tuner_job j;
    struct stat s;
    char path[400];
    snprintf(j.root, sizeof j.root, "%s", fresh_dir("finder"));
    CHECK_RANKS("threads", 3, fit_of_rank, &j);
    CHECK(j.rates[0] != 0.05 && j.rates[0] == j.rates[1] && j.rates[0] == j.rates[2]);
    snprintf(path, sizeof path, "%s/lightning_logs/version_0/lr_find.csv", j.root);
    CHECK(stat(path, &s) == 0 && s.st_size > 0);
}

/* The trials of a finder shard the module for themselves; the fit around them has its slices afterwards. */
static void check_fits(tuner_job *j)
{
    static tuner_job want;
    snprintf(j->root, sizeof j->root, "%s", fresh_dir("finder_shards"));
    want = *j;
    CHECK_RANKS("threads", 2, fit_of_rank, &want);
    for (int k = 0; k < STAGES; k++) {
        j->strategy = stages[k];
        CHECK_RANKS("threads", 2, fit_of_rank, j);
        for (int r = 0; r < 2; r++) {
            CHECK(j->rates[r] == want.rates[0] && j->got[r].batch_size == want.got[0].batch_size);
            CHECK(!memcmp(j->weights[r], want.weights[0], sizeof want.weights[0]));
        }
    }
}

TEST(a_sharded_fit_trains_as_ddp_after_an_lr_finder)
{
    static tuner_job j;
    check_fits(&j);
}

/* Trials that every rank reports as too large: the last of them leaves slices afterwards. */
TEST(a_sharded_fit_trains_as_ddp_after_a_batch_size_finder)
{
    static tuner_job j;
    j = (tuner_job){.finds_size = true,
                    .sizes = LC_ARGS(lc_scale_batch_size, .init_val = 8, .max_val = 256, .max_bytes = 20000)};
    check_fits(&j);
    CHECK(j.got[0].batch_size < 256);
}

TEST_MAIN
