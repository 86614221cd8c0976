/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the steps of ddp with steps without communication, for ranks started with the variables of
 * docs/launching.md, over any link between them. Steps of each kind alternate in one run, so that all see the same
 * machine, and batches are in memory. */
#include "bench.h"
#include "models.h"

#include <stdlib.h>

enum { WARM = 2 };
typedef enum kind { ALONE, OVERLAPPED, SEQUENTIAL, KINDS } kind;

typedef struct ranks {
    lc_comm *comm;
    lc_fabric *fabric;
    model *model;
    lc_optimizer *optimizer;
    bench_batch batch;
    float *all; /* one element per parameter */
    int64_t n_all;
    double *times[KINDS + 1]; /* by round */
} ranks;

static lc_status ranks_new(const bench *b, const char *name, int64_t samples, int64_t rounds, ranks *r)
{
    LC_TRY(lc_comm_world(&r->comm));
    if (lc_comm_size(r->comm) < 2)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s needs two ranks or more: start it with `lightc launch -np 2`, or with RANK, WORLD_SIZE, "
                       "MASTER_ADDR and MASTER_PORT",
                       b->work);
    lc_fabric_args o = LC_ARGS(lc_fabric, .strategy = "ddp", .comm = r->comm, .threads = (int)b->threads);
    LC_TRY(lc_fabric_new_with(&r->fabric, &o));
    r->model = model_new(name, NULL, 0);
    if (!r->model) return lc_fail(LC_ERR_MEMORY, "out of memory: the model");
    r->optimizer = lc_adamw(r->model, .lr = 1e-3, .weight_decay = 0.1);
    LC_TRY(lc_module_status(&r->model->base));
    LC_TRY(lc_fabric_setup(r->fabric, &r->model->base, &r->optimizer, 1));
    r->n_all = lc_module_parameter_count(&r->model->base, true);
    r->all = calloc((size_t)r->n_all, sizeof *r->all);
    bool there = r->all != NULL;
    for (int k = 0; k <= KINDS; k++) there = (r->times[k] = calloc((size_t)rounds, sizeof(double))) && there;
    if (!there) return lc_fail(LC_ERR_MEMORY, "out of memory: times");
    return bench_batch_new(name, samples, &r->batch);
}

static void ranks_free(ranks *r)
{
    lc_fabric_free(r->fabric);
    lc_optimizer_free(r->optimizer);
    model_free(r->model);
    bench_batch_free(&r->batch);
    lc_comm_free(r->comm);
    for (int k = 0; k <= KINDS; k++) free(r->times[k]);
    free(r->all);
}

static lc_status step(ranks *r, bool alone)
{
    LC_TRY(lc_fabric_begin(r->fabric));
    lc_fabric_no_backward_sync(r->fabric, alone);
    lc_tensor *loss = model_loss(r->model, r->batch.x, r->batch.y);
    lc_fabric_zero_grad(r->fabric);
    lc_fabric_backward(r->fabric, loss);
    if (alone) /* with gradients of this rank, which lc_fabric_step refuses */
        lc_optimizer_step(r->optimizer);
    else
        lc_fabric_step(r->fabric, r->optimizer);
    return lc_fabric_end(r->fabric);
}

/* ---- exposed: what communication adds to a step ---- */

/* *seconds: from the barrier before the step to the one after it, so that every kind includes waiting for the slower
 * rank; *waited: the part spent on communication. SEQUENTIAL: an all-reduce of the same size after the step, which
 * nothing hides. */
static lc_status timed_step(ranks *r, kind k, double *seconds, double *waited)
{
    lc_comm_stats before, after;
    LC_TRY(lc_comm_barrier(r->comm, NULL));
    lc_comm_get_stats(r->comm, &before);
    double start = bench_now();
    LC_TRY(step(r, k != OVERLAPPED));
    if (k == SEQUENTIAL) LC_TRY(lc_comm_all_reduce(r->comm, r->all, r->all, r->n_all, LC_F32, LC_COMM_SUM, NULL));
    lc_comm_get_stats(r->comm, &after);
    LC_TRY(lc_comm_barrier(r->comm, NULL));
    *seconds = bench_now() - start;
    *waited = 1e-9 * (double)(after.waited_ns - before.waited_ns);
    return LC_OK;
}

lc_status bench_exposed(const bench *b)
{
    int64_t rounds = b->steps ? b->steps : 12, samples = b->batch ? b->batch : 6;
    ranks r = {0};
    double waited, *waits;
    lc_status s;
    LC_TRY_GOTO(s, done, ranks_new(b, "gpt", samples, rounds, &r));
    waits = r.times[KINDS];
    for (int64_t i = -WARM; i < rounds; i++)
        for (int k = 0; k < KINDS; k++) {
            int64_t at = i < 0 ? 0 : i;
            LC_TRY_GOTO(s, done, timed_step(&r, (kind)k, &r.times[k][at], &waited));
            if (k == OVERLAPPED) waits[at] = waited;
        }
    if (lc_comm_rank(r.comm) == 0) {
        double alone = bench_median(r.times[ALONE], (int)rounds), wait = bench_median(waits, (int)rounds),
               overlapped = bench_median(r.times[OVERLAPPED], (int)rounds),
               sequential = bench_median(r.times[SEQUENTIAL], (int)rounds);
        BENCH_EMIT(b, "exposed", (overlapped - alone) / (sequential - alone), "share", {"alone_ms", 1e3 * alone},
                   {"overlapped_ms", 1e3 * overlapped}, {"sequential_ms", 1e3 * sequential}, {"waited_ms", 1e3 * wait},
                   {"bytes", (double)r.n_all * sizeof *r.all}, {"batch", (double)samples}, {"steps", (double)rounds});
    }
done:
    ranks_free(&r);
    return s < 0 ? s : LC_OK;
}

/* ---- share: of the speed of ranks without each other ---- */

enum { STEPS_OF_ROUND = 10 };

/* Samples per second of all ranks together: with each rank's own time, and with the slowest rank's time. */
static lc_status rates(ranks *r, bool alone, int64_t samples, double *each, double *slowest)
{
    int n = lc_comm_size(r->comm);
    double seconds, *all = calloc((size_t)n, sizeof *all);
    lc_status s;
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: times");
    LC_TRY_GOTO(s, done, lc_comm_barrier(r->comm, NULL));
    seconds = bench_now();
    for (int i = 0; i < STEPS_OF_ROUND; i++) LC_TRY_GOTO(s, done, step(r, alone));
    seconds = bench_now() - seconds;
    LC_TRY_GOTO(s, done, lc_comm_all_gather(r->comm, &seconds, all, 1, LC_F64, NULL));
    *each = 0;
    for (int i = 0; i < n; i++) *each += (double)(STEPS_OF_ROUND * samples) / all[i];
    for (int i = 0; i < n; i++) seconds = all[i] > seconds ? all[i] : seconds;
    *slowest = (double)(STEPS_OF_ROUND * samples) / seconds * n;
done:
    free(all);
    return s < 0 ? s : LC_OK;
}

lc_status bench_share(const bench *b)
{
    int64_t rounds = b->steps ? b->steps : 40, samples = b->batch ? b->batch : 100;
    ranks r = {0};
    lc_status s;
    LC_TRY_GOTO(s, done, ranks_new(b, "fashion", samples, rounds, &r));
    double *alone = r.times[ALONE], *together = r.times[OVERLAPPED], *share = r.times[KINDS],
           *even = r.times[SEQUENTIAL];
    for (int64_t i = -WARM; i < rounds; i++) {
        int64_t at = i < 0 ? 0 : i;
        double slowest, unused;
        LC_TRY_GOTO(s, done, rates(&r, true, samples, &alone[at], &slowest));
        LC_TRY_GOTO(s, done, rates(&r, false, samples, &unused, &together[at]));
        share[at] = together[at] / alone[at];
        even[at] = together[at] / slowest;
    }
    if (lc_comm_rank(r.comm) == 0) {
        double median = bench_median(share, (int)rounds); /* sorts them */
        BENCH_EMIT(b, "share", median, "share", {"quarter", share[rounds / 4]},
                   {"three_quarters", share[3 * rounds / 4]}, {"of_slowest", bench_median(even, (int)rounds)},
                   {"alone", bench_median(alone, (int)rounds)}, {"together", bench_median(together, (int)rounds)},
                   {"batch", (double)samples}, {"rounds", (double)rounds});
    }
done:
    ranks_free(&r);
    return s < 0 ? s : LC_OK;
}
