/* SPDX-License-Identifier: Apache-2.0 */
/* A name that a step logs several times: the last value is the step's, and the epoch counts all of them, whether the
 * batch is computed in one piece or in several. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

enum { BATCH = 24, BATCHES = 2, LAST = BATCH * (BATCHES - 1) };

typedef struct job {
    char root[320];
    const char *devices; /* NULL: no data_parallel */
    bool deterministic, lbfgs;
} job;

typedef struct net {
    small_net base;
    bool lbfgs;
    int calls;
} net;

static double mean_index(const lc_batch *b)
{
    double sum = 0;
    for (int64_t k = 0; k < b->size; k++) sum += (double)b->indices[k];
    return sum / (double)b->size;
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    static const char *const names[] = {"mean", "sum", "min", "max"};
    static const lc_log_reduce how[] = {LC_LOG_MEAN, LC_LOG_SUM, LC_LOG_MIN, LC_LOG_MAX};
    double mean = mean_index(b), first = (double)b->indices[0], last = (double)b->indices[b->size - 1];
    double v[][2] = {
        {10 * mean, mean}, {10 * (double)b->size, (double)b->size}, {first - 1000, first}, {last + 1000, last}};
    for (int k = 0; k < 4; k++)
        for (int again = 0; again < 2; again++)
            lc_log_value(self, names[k], v[k][again], .on_step = LC_ON, .on_epoch = LC_ON, .reduce_fx = how[k],
                         .sync_dist = true);
    lc_log(self, "tensor", lc_mul_scalar(lc_mean(b->x), 10), .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log(self, "tensor", lc_mean(b->x), .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log(self, "number_last", lc_mean(b->x), .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log_value(self, "number_last", mean, .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log_value(self, "tensor_last", mean, .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log(self, "tensor_last", lc_mean(b->x), .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    ((net *)self)->calls++;
    return small_net_training_step(self, b, i);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return ((net *)self)->lbfgs ? lc_optimizers_add(out, lc_lbfgs(self, .max_iter = 3)) : small_net_sgd(self, out);
}

/* The mean of x over `n` samples from `first` on. */
static double mean_input(int64_t first, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n * FEATURES; k++) sum += (double)inputs[first + k / FEATURES][k % FEATURES];
    return sum / (double)(n * FEATURES);
}

static lc_status compare(lc_trainer *t, const char *name, double want)
{
    double v;
    LC_TRY(lc_trainer_metric(t, name, &v));
    if (fabs(v - want) <= 1e-6 * fmax(1, fabs(want))) return LC_OK;
    return lc_fail(LC_ERR_INTERNAL, "%s is %.9g, wanted %.9g", name, v, want);
}

/* `evaluations`: how often each batch was computed, on average. */
static lc_status compare_all(lc_trainer *t, double evaluations)
{
    const double all = BATCH * BATCHES, mean = (all - 1) / 2, x = mean_input(0, BATCH * BATCHES);
    LC_TRY(compare(t, "mean_step", LAST + (BATCH - 1) / 2.0));
    LC_TRY(compare(t, "sum_step", BATCH));
    LC_TRY(compare(t, "min_step", LAST));
    LC_TRY(compare(t, "max_step", all - 1));
    LC_TRY(compare(t, "tensor_step", mean_input(LAST, BATCH)));
    LC_TRY(compare(t, "number_last_step", LAST + (BATCH - 1) / 2.0));
    LC_TRY(compare(t, "tensor_last_step", mean_input(LAST, BATCH)));
    LC_TRY(compare(t, "sum_epoch", 11 * all * evaluations));
    LC_TRY(compare(t, "min_epoch", -1000));
    if (evaluations != 1) return LC_OK; /* batches count by how often they were evaluated */
    LC_TRY(compare(t, "mean_epoch", 11 * mean / 2));
    LC_TRY(compare(t, "number_last_epoch", (mean + x) / 2));
    LC_TRY(compare(t, "tensor_last_epoch", (mean + x) / 2));
    return compare(t, "tensor_epoch", 11 * x / 2);
}

static lc_status run(lc_comm *comm, void *ctx)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .configure_optimizers = configure_optimizers};
    const job *j = ctx;
    net m = {.lbfgs = j->lbfgs};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    int n = comm ? lc_comm_size(comm) : 1, pieces = j->deterministic ? 4 / n : j->devices ? atoi(j->devices) : 1;
    opt.strategy = comm ? "ddp" : j->devices ? "data_parallel" : NULL;
    opt.devices = j->devices;
    opt.max_epochs = 1;
    opt.default_root_dir = j->root;
    opt.log_every_n_steps = 1;
    opt.deterministic = j->deterministic;
    opt.deterministic_chunk = j->deterministic ? BATCH / 4 : 0;
    LC_TRY(small_net_init(&m.base, &ops, 1));
    LC_TRY(loader_of(0, BATCH * BATCHES, BATCH / n, false, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base.base, .train_dataloader = train));
    LC_TRY(compare_all(t, m.calls / (double)(pieces * BATCHES)));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return LC_OK;
}

static void check(job j)
{
    snprintf(j.root, sizeof j.root, "%s", fresh_dir("again"));
    CHECK_OK(run(NULL, &j));
}

TEST(a_batch_in_one_piece)
{
    check((job){0});
}

TEST(device_parts)
{
    check((job){.devices = "2"});
    check((job){.devices = "3"});
}

TEST(chunks)
{
    check((job){.deterministic = true});
    check((job){.deterministic = true, .devices = "2"});
}

TEST(ranks)
{
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        job j = {.deterministic = deterministic};
        snprintf(j.root, sizeof j.root, "%s", fresh_dir("again"));
        CHECK_RANKS("threads", 2, run, &j);
    }
}

TEST(a_batch_that_is_computed_again)
{
    check((job){.lbfgs = true});
    check((job){.lbfgs = true, .devices = "2"});
    check((job){.lbfgs = true, .deterministic = true});
}

TEST_MAIN
