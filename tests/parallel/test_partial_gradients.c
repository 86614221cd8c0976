/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients over ranks of parameters that not all ranks, backward passes or steps use. */
#include "comm_world.h"
#include "parallel/reduce/reducer.h"

#include <lightc/lightc.h>
#include <math.h>

/* ---- parameters that only some ranks use ---- */

typedef struct two_heads {
    lc_module base;
    lc_linear a, b, never;
} two_heads;

static const lc_module_ops no_ops = {LC_MODULE_OPS_INIT("two_heads")};

typedef struct heads {
    bool thaws;
    int steps;
    size_t bucket_bytes;
} heads;

/* Rank 0 uses head a, the others head b, and no rank uses `never`. As in one process, the loss is the mean over all
 * ranks. `thaws`: all use `never` too, and b is frozen until the third step: from then on all ranks make buckets of it,
 * including the one whose step has not changed. */
static lc_status some_heads(lc_comm *comm, void *ctx)
{
    const heads *h = ctx;
    int n = lc_comm_size(comm), me = lc_comm_rank(comm);
    float got[3][8], want[3][8];
    for (int pass = 0; pass < 2; pass++) {
        bool alone = pass == 1;
        two_heads m;
        lc_graph *g;
        lc__reducer *r = NULL;
        lc_tensor *x;
        float data[4];
        lc_module_init(&m.base, &no_ops, 3);
        lc_linear_init(&m.a, &m, "a", 4, 2);
        lc_linear_init(&m.b, &m, "b", 4, 2);
        lc_linear_init(&m.never, &m, "never", 4, 2);
        LC_TRY(lc_module_status(&m.base));
        LC_TRY(lc_graph_new(&g, .threads = 1));
        lc_optimizer *opt = lc_sgd(&m.base, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.1);
        LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, 4}, LC_ROW_MAJOR, data, &x));
        if (!alone) LC_TRY(lc__reducer_new(g, comm, h->bucket_bytes, &r));
        if (!alone) LC_TRY(lc__reducer_add(r, opt));
        for (int s = 0; s < h->steps; s++) {
            lc_graph_set_window(g, alone ? n : 1);
            lc_tensor_set_requires_grad(m.b.weight, !h->thaws || s >= 2);
            lc_tensor_set_requires_grad(m.b.bias, !h->thaws || s >= 2);
            for (int rank = alone ? 0 : me; rank < (alone ? n : me + 1); rank++) {
                uint8_t flags[LC__SYNC_FLAGS] = {0};
                for (int i = 0; i < 4; i++) data[i] = (float)(rank + 1) * (float)(i + s + 1) * 0.01f;
                LC_TRY(lc_step_begin(g, (uint64_t)s, (uint64_t)rank));
                if (rank == 0 || !alone) lc_zero_grad(g);
                lc_tensor *head = lc_linear_forward(rank ? &m.b : &m.a, x);
                if (h->thaws) head = lc_add(head, lc_linear_forward(&m.never, x));
                lc_backward(lc_mean(lc_square(head)));
                if (r) LC_TRY(lc__reducer_sync(r, flags));
                if (!alone || rank == n - 1) lc_optimizer_step(opt);
                LC_TRY(lc_step_run(g));
                LC_TRY(lc_step_end(g));
            }
        }
        lc_linear *all[] = {&m.a, &m.b, &m.never};
        for (int k = 0; k < 3; k++) LC_TRY(lc_tensor_read(all[k]->weight, (alone ? want : got)[k], sizeof got[k]));
        lc__reducer_free(r);
        lc_optimizer_free(opt);
        lc_tensor_unref(x);
        lc_graph_free(g);
        lc_module_release(&m.base);
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 8; i++) RANK_CHECK(fabsf(got[k][i] - want[k][i]) <= 1e-6f * (1 + fabsf(want[k][i])));
    return LC_OK;
}

TEST(parameters_that_only_some_ranks_use)
{
    for (int n = 1; n <= 3; n++) CHECK_RANKS("threads", n, some_heads, &(heads){.steps = 3});
}

TEST(parameters_that_thaw_on_ranks_that_do_not_use_them)
{
    heads small = {.thaws = true, .steps = 5, .bucket_bytes = 64}, one = {.thaws = true, .steps = 5};
    for (int n = 1; n <= 3; n++) {
        CHECK_RANKS("threads", n, some_heads, &small);
        CHECK_RANKS("threads", n, some_heads, &one);
    }
}

/* ---- ranks that do different things ---- */

typedef struct difference {
    int stage;
    bool freezes; /* rank 0 freezes head a, the others head b; otherwise each uses only the other head */
} difference;

/* The heads have the same size, so all calls of the ranks match. */
static lc_status other_head(lc_comm *comm, void *ctx)
{
    const difference *d = ctx;
    int me = lc_comm_rank(comm);
    float data[4] = {1, 2, 3, 4};
    uint8_t flags[LC__SYNC_FLAGS] = {0};
    two_heads m;
    lc_graph *g;
    lc__reducer *r;
    lc_tensor *x;
    lc_module_init(&m.base, &no_ops, 3);
    lc_linear_init(&m.a, &m, "a", 4, 2);
    lc_linear_init(&m.b, &m, "b", 4, 2);
    LC_TRY(lc_module_status(&m.base));
    LC_TRY(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_sgd(&m.base, .lr = 0.1);
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, 4}, LC_ROW_MAJOR, data, &x));
    LC_TRY(lc__reducer_new(g, comm, 16, &r));
    lc__reducer_shard(r, d->stage);
    LC_TRY(lc__reducer_add(r, opt));
    if (d->freezes) lc_module_requires_grad(me ? &m.b.base : &m.a.base, false);
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_tensor *a = lc_linear_forward(&m.a, x), *b = lc_linear_forward(&m.b, x);
    lc_backward(lc_mean(lc_square(d->freezes ? lc_add(a, b) : me ? b : a)));
    lc_status status = lc__reducer_sync(r, flags);
    RANK_CHECK(status < 0);
    RANK_CHECK(strstr(lc_error_message(), d->freezes ? "frozen on others" : "needs all to use the same parameters"));
    (void)!lc_step_end(g);
    lc__reducer_free(r);
    lc_optimizer_free(opt);
    lc_tensor_unref(x);
    lc_graph_free(g);
    lc_module_release(&m.base);
    return LC_OK;
}

TEST(ranks_that_gather_other_parameters_are_refused)
{
    difference d = {.stage = 3};
    for (int n = 2; n <= 3; n++) CHECK_RANKS("threads", n, other_head, &d);
}

TEST(ranks_that_freeze_other_parameters_are_refused)
{
    difference d = {.freezes = true};
    for (d.stage = 0; d.stage <= 3; d.stage++) CHECK_RANKS("threads", 2, other_head, &d);
}

/* ---- several consecutive backward passes, not all of which reach all parameters ---- */

enum { USES_A = 1, USES_B = 2, FREEZES_A = 4, FREEZES_B = 8, FREEZES_BIAS = 16, WIDE = 16 };

typedef struct passes {
    int pass[6], n; /* one window: what each pass uses, and what is frozen during it */
    int stage;
} passes;

/* Gradients add up over the passes, with a sync after each, followed by the update. */
static lc_status run_passes(lc_comm *comm, const passes *j, float got[4][4 * WIDE])
{
    two_heads m;
    lc_graph *g;
    lc__reducer *r = NULL;
    lc_tensor *x;
    float data[4];
    lc_module_init(&m.base, &no_ops, 3);
    lc_linear_init(&m.a, &m, "a", 4, WIDE);
    lc_linear_init(&m.b, &m, "b", 4, WIDE);
    LC_TRY(lc_module_status(&m.base));
    LC_TRY(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_sgd(&m.base, .lr = 0.1);
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, 4}, LC_ROW_MAJOR, data, &x));
    lc_tensor *all[] = {m.a.weight, m.a.bias, m.b.weight, m.b.bias};
    if (comm) LC_TRY(lc__reducer_new(g, comm, 64, &r));
    if (comm) lc__reducer_shard(r, j->stage);
    if (comm) LC_TRY(lc__reducer_add(r, opt));
    lc_graph_set_window(g, 1);
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < j->n; k++) {
            int what = j->pass[k];
            uint8_t flags[LC__SYNC_FLAGS] = {0};
            for (int i = 0; i < 4; i++) {
                data[i] = (float)(k + 1) * (float)(i + s + 1) * 0.01f;
                bool frozen = (what & (i < 2 ? FREEZES_A : FREEZES_B)) || (i == 3 && (what & FREEZES_BIAS));
                lc_tensor_set_requires_grad(all[i], !frozen);
            }
            LC_TRY(lc_step_begin(g, (uint64_t)s, (uint64_t)k));
            if (k == 0) lc_zero_grad(g);
            lc_tensor *la = lc_mean(lc_square(lc_linear_forward(&m.a, x)));
            lc_tensor *lb = lc_mean(lc_square(lc_linear_forward(&m.b, x)));
            lc_backward((what & USES_A) && (what & USES_B) ? lc_add(la, lb) : what & USES_A ? la : lb);
            if (r) LC_TRY(lc__reducer_sync(r, flags));
            if (k == j->n - 1) lc_optimizer_step(opt);
            LC_TRY(lc_step_run(g));
            LC_TRY(lc_step_end(g));
        }
    }
    if (j->stage == 3 && r) LC_TRY(lc__reducer_gather(r));
    for (int i = 0; i < 4; i++) LC_TRY(lc_tensor_read(all[i], got[i], (i % 2 ? 1 : 4) * WIDE * sizeof(float)));
    lc__reducer_free(r);
    lc_optimizer_free(opt);
    lc_tensor_unref(x);
    lc_graph_free(g);
    lc_module_release(&m.base);
    return LC_OK;
}

/* All ranks have the same samples, so they equal one rank. */
static lc_status passes_are_those_of_one(lc_comm *comm, void *ctx)
{
    float got[4][4 * WIDE] = {{0}}, want[4][4 * WIDE] = {{0}};
    const passes *j = ctx;
    LC_TRY(run_passes(NULL, j, want));
    LC_TRY(run_passes(comm, j, got));
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 4 * WIDE; i++)
            if (!(fabsf(got[t][i] - want[t][i]) <= 1e-6f * (1 + fabsf(want[t][i]))))
                return lc_fail(LC_ERR_INTERNAL, "stage %d: value %d of tensor %d is %.9g, not %.9g", j->stage, i, t,
                               (double)got[t][i], (double)want[t][i]);
    return LC_OK;
}

static void check_passes(passes j)
{
    for (j.stage = 0; j.stage <= 3; j.stage++)
        for (int n = 1; n <= 3; n++) CHECK_RANKS("threads", n, passes_are_those_of_one, &j);
}

TEST(passes_that_reach_all)
{
    check_passes((passes){.pass = {USES_A | USES_B, USES_A | USES_B}, .n = 2});
}
TEST(passes_that_do_not_reach_the_first_bucket)
{
    check_passes((passes){.pass = {USES_A | USES_B, USES_A, USES_A}, .n = 3});
}
TEST(passes_that_do_not_reach_the_last_bucket)
{
    check_passes((passes){.pass = {USES_A | USES_B, USES_B, USES_B}, .n = 3});
}
TEST(sums_of_frozen_parameters_survive)
{
    check_passes(
        (passes){.pass = {USES_A | FREEZES_B, USES_B | FREEZES_A, USES_A | FREEZES_B, USES_A | USES_B}, .n = 4});
}
TEST(sums_of_frozen_parameters_survive_until_the_update)
{
    check_passes(
        (passes){.pass = {USES_A | USES_B, USES_A | FREEZES_B, USES_A | FREEZES_BIAS | USES_B, USES_A}, .n = 4});
}
TEST(sums_of_small_frozen_parameters_survive)
{
    check_passes((passes){.pass = {USES_A | USES_B, USES_A | USES_B | FREEZES_BIAS, USES_A | USES_B}, .n = 3});
}

/* A checkpoint between a backward pass and its update changes nothing: each rank saves its share and keeps the sum. */
static lc_status update_after_a_save(lc_comm *comm, void *ctx)
{
    int stage = *(const int *)ctx;
    float got[2][4 * WIDE];
    for (int saves = 0; saves < 2; saves++) {
        two_heads m;
        lc_graph *g;
        lc__reducer *r;
        lc_tensor *x;
        float data[4] = {1, 2, 3, (float)lc_comm_rank(comm)};
        uint8_t flags[LC__SYNC_FLAGS] = {0};
        lc_module_init(&m.base, &no_ops, 3);
        lc_linear_init(&m.a, &m, "a", 4, WIDE);
        LC_TRY(lc_module_status(&m.base));
        LC_TRY(lc_graph_new(&g, .threads = 1));
        lc_optimizer *opt = lc_sgd(&m.base, .lr = 0.1);
        LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, 4}, LC_ROW_MAJOR, data, &x));
        LC_TRY(lc__reducer_new(g, comm, 64, &r));
        lc__reducer_shard(r, stage);
        LC_TRY(lc__reducer_add(r, opt));
        lc_graph_set_window(g, 1);
        for (int s = 0; s < 4; s++) {
            LC_TRY(lc_step_begin(g, (uint64_t)s, 0));
            if (s % 3 == 0) lc_zero_grad(g);
            if (s % 3 < 2) lc_backward(lc_mean(lc_square(lc_linear_forward(&m.a, x))));
            if (s % 3 < 2) LC_TRY(lc__reducer_sync(r, flags));
            if (s % 3 == 2) lc_optimizer_step(opt);
            LC_TRY(lc_step_run(g));
            LC_TRY(lc_step_end(g));
            if (saves) LC_TRY(lc__reducer_share(r));
            lc__reducer_unshare(r);
        }
        if (stage == 3) LC_TRY(lc__reducer_gather(r));
        LC_TRY(lc_tensor_read(m.a.weight, got[saves], sizeof got[saves]));
        lc__reducer_free(r);
        lc_optimizer_free(opt);
        lc_tensor_unref(x);
        lc_graph_free(g);
        lc_module_release(&m.base);
    }
    RANK_CHECK(!memcmp(got[0], got[1], sizeof got[0]));
    return LC_OK;
}

TEST(a_save_keeps_sums_for_the_update)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int n = 1; n <= 3; n++) CHECK_RANKS("threads", n, update_after_a_save, &stage);
}

/* Without an optimizer only flags are reduced. */
static lc_status only_flags(lc_comm *comm, void *ctx)
{
    lc_graph *g;
    lc__reducer *r;
    uint8_t flags[LC__SYNC_FLAGS] = {(uint8_t)lc_comm_rank(comm)};
    (void)ctx;
    LC_TRY(lc_graph_new(&g, .threads = 1));
    LC_TRY(lc__reducer_new(g, comm, 0, &r));
    LC_TRY(lc_step_begin(g, 0, 0));
    LC_TRY(lc__reducer_sync(r, flags));
    LC_TRY(lc_step_end(g));
    RANK_CHECK(flags[0] == lc_comm_size(comm) - 1);
    lc__reducer_free(r);
    lc_graph_free(g);
    return LC_OK;
}

TEST(flags_without_parameters)
{
    for (int n = 1; n <= 3; n++) CHECK_RANKS("threads", n, only_flags, NULL);
}

TEST_MAIN
