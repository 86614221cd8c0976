/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor in slices is put together by all ranks. If one of them cannot take part, all get its error, none waits for
 * it, and the next gather works. */
#include "comm_world.h"

#include "parallel/shard/shard.h"
#include "tensor/host_access.h"

enum { RANKS = 3, ROWS = 40, COLUMNS = 50, N = ROWS * COLUMNS, TIMES = 3 };

/* In place of a graph, on the rank that fails: one of the waits before host access is an error. */
static _Thread_local int countdown;

static lc_status run_or_fail(lc_tensor *t)
{
    (void)t;
    return --countdown ? LC_OK : lc_fail(LC_ERR_MEMORY, "there is no room on this rank");
}
static lc_status wait_for(lc_graph *g)
{
    (void)g;
    return LC_OK;
}
static void wrote(lc_tensor *t)
{
    (void)t;
}
static bool keep(lc_tensor *t)
{
    (void)t;
    return false;
}
static const lc__host_ops failing_ops = {.run = run_or_fail, .wait = wait_for, .wrote = wrote, .keep = keep};

typedef struct gathering {
    bool flat; /* the whole buffer, not a tensor */
    lc_layout layout;
    int root;
    int rank, after; /* the n-th time that this rank waits for the graph is an error */
} gathering;

static float number(int64_t i)
{
    return (float)(3 * i % 1009);
}

static lc_status gather(const gathering *w, lc_tensor *t, float *whole)
{
    if (w->flat) return lc__flat_gather(t->flat);
    return w->root < 0 ? lc_tensor_gather(t, whole, N * sizeof *whole) : lc__tensor_gather(t, LC_OK, w->root, whole);
}

static lc_status check_values(const gathering *w, lc_tensor *t, int rank, float *whole)
{
    if (w->flat) LC_TRY(lc_tensor_read(t, whole, N * sizeof *whole));
    for (int64_t i = 0; i < N && (w->root < 0 || rank == w->root); i++) RANK_CHECK(whole[i] == number(i));
    return LC_OK;
}

static lc_status fail_and_go_on(lc_comm *comm, void *ctx)
{
    const gathering *w = ctx;
    static const int64_t shape[3] = {ROWS, COLUMNS / 10, 10};
    int rank = lc_comm_rank(comm), owner;
    bool fails = rank == w->rank;
    float whole[N];
    lc_tensor *t;
    lc_flat *flat;
    lc__recorder graph = {LC__MARK_OF(GRAPH), &failing_ops};
    for (int64_t i = 0; i < N; i++) whole[i] = number(i);
    LC_TRY(lc_tensor_new_layout(LC_F32, 3, shape, w->layout, &t));
    LC_TRY(lc_tensor_write(t, whole, sizeof whole));
    lc_tensor_set_requires_grad(t, true);
    LC_TRY(lc__flat_of(t, &flat));
    LC_TRY(lc__flat_shard(flat, comm, NULL, 3, 1 << 20, &owner));
    memset(whole, 0, sizeof whole);

    lc__current = fails ? (lc_graph *)&graph : NULL;
    countdown = w->after;
    lc_status status = gather(w, t, whole);
    bool never_came_to_it = fails && countdown > 0;
    lc__current = NULL;
    if (never_came_to_it) return lc_fail(LC_ERR_INTERNAL, "rank %d never failed", rank);
    RANK_CHECK(status == LC_ERR_MEMORY);
    RANK_CHECK(
        !strcmp(lc_error_message(), fails ? "there is no room on this rank" : "rank 1: there is no room on this rank"));
    LC_TRY(gather(w, t, whole));
    LC_TRY(check_values(w, t, rank, whole));
    LC_TRY(lc__flat_gather(flat));
    LC_TRY(lc__flat_forget_sharding(flat));
    lc_tensor_unref(t);
    return LC_OK;
}

/* `times`: how often a rank waits for the graph. */
static void try_all(gathering w, int times)
{
    for (w.after = 1; w.after <= times; w.after++) {
        w.rank = 1;
        alarm(60);
        CHECK_RANKS("threads", RANKS, fail_and_go_on, &w);
        alarm(0);
    }
}

/* What a caller fails at before, on rank 1: it gathers nevertheless, and the others do not wait for it. */
static lc_status fail_before(lc_comm *comm, void *ctx)
{
    static const int64_t shape[1] = {N};
    const int *root = ctx;
    int rank = lc_comm_rank(comm), owner;
    float whole[N];
    lc_tensor *t;
    lc_flat *flat;
    LC_TRY(lc_tensor_new(LC_F32, 1, shape, &t));
    LC_TRY(lc__flat_of(t, &flat));
    LC_TRY(lc__flat_shard(flat, comm, NULL, 3, 1 << 20, &owner));
    lc_status mine = rank == 1 ? lc_fail(LC_ERR_MEMORY, "there is no room on this rank") : LC_OK;
    RANK_CHECK(lc__tensor_gather(t, mine, *root, whole) == LC_ERR_MEMORY);
    RANK_CHECK(strstr(lc_error_message(), "there is no room on this rank"));
    LC_TRY(lc__tensor_gather(t, LC_OK, *root, whole));
    LC_TRY(lc__flat_forget_sharding(flat));
    lc_tensor_unref(t);
    return LC_OK;
}

TEST(a_caller_that_has_failed_fails_on_all_ranks)
{
    for (int root = -1; root < 2; root++) {
        alarm(60);
        CHECK_RANKS("threads", RANKS, fail_before, &root);
        alarm(0);
    }
}

TEST(of_a_tensor_fails_on_all_ranks)
{
    try_all((gathering){.root = -1}, 2);
    try_all((gathering){.root = -1, .layout = LC_CHANNELS_LAST}, 2);
}

TEST(to_one_rank_fails_on_all_ranks)
{
    try_all((gathering){.root = 0}, 2);
    try_all((gathering){.root = 1}, 2);
}

TEST(of_a_flat_buffer_fails_on_all_ranks)
{
    try_all((gathering){.flat = true, .root = -1}, 2);
}

TEST_MAIN
