/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that communicators refuse: ranks that do not exist, overlapping memory, waits that cannot end. */
#include "comm_world.h"

/* ---- making one ---- */

static lc_status alone(void *ctx, const void *mine, void *all, size_t bytes)
{
    (void)ctx;
    memcpy(all, mine, bytes);
    return LC_OK;
}

TEST(rank_and_size_must_fit)
{
    static const int wrong[][2] = {{5, 2}, {-1, 2}, {0, 0}, {0, -3}, {3, 1}, {2, 2}};
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = alone};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int rank = wrong[i][0], size = wrong[i][1];
        lc_comm *c = (lc_comm *)&meeting;
        CHECK_EQ(lc_comm_shm(rank, size, &meeting, &c), LC_ERR_ARGUMENT);
        CHECK(!c);
        CHECK_EQ(lc_comm_tcp(NULL, rank, size, &meeting, &c), LC_ERR_ARGUMENT);
        CHECK_EQ(lc_comm_shm_tcp(NULL, 0, rank, size, &meeting, &c), LC_ERR_ARGUMENT);
        CHECK_EQ(lc_comm_fake(rank, size, &c), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), size < 1 ? "there must be at least 1" : "there is no rank ");
    }
}

TEST(several_ranks_need_a_meeting)
{
    const lc_meeting empty = {0};
    lc_comm *c;
    CHECK_EQ(lc_comm_shm(0, 2, NULL, &c), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_tcp(NULL, 0, 2, &empty, &c), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_shm_tcp(NULL, 0, 0, 2, NULL, &c), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_shm_over(NULL, 0, NULL, &c), LC_ERR_ARGUMENT);
    CHECK_OK(lc_comm_self(&c));
    CHECK_OK(lc_comm_shm_over(c, 0, NULL, &c)); /* of one rank */
    lc_comm_free(c);
    CHECK_OK(lc_comm_shm(0, 1, NULL, &c));
    lc_comm_free(c);
}

/* A meeting of a program that was compiled when the struct ended with ctx: what is beyond it is not called. */
static lc_status open_shorter(int rank, int size, const lc__meeting *full, lc_comm **out)
{
    char *p = malloc(sizeof *full);
    CHECK(p != NULL);
    memset(p, 0xff, sizeof *full);
    memcpy(p, full, offsetof(lc_meeting, check));
    lc_meeting *shorter = (lc_meeting *)(void *)p;
    shorter->size = offsetof(lc_meeting, check);
    lc_status s = lc_comm_tcp("127.0.0.1", rank, size, shorter, out);
    free(p);
    return s;
}

static lc_status add_up(lc_comm *c, void *ctx)
{
    int32_t x = 1;
    (void)ctx;
    LC_TRY(lc_comm_all_reduce(c, &x, &x, 1, LC_I32, LC_COMM_SUM, NULL));
    return x == lc_comm_size(c) ? LC_OK : lc_fail(LC_ERR_INTERNAL, "the sum is %d", x);
}

TEST(a_meeting_has_a_size)
{
    lc_meeting meeting = {LC_MEETING_INIT, .all_gather = alone}, none = {.all_gather = alone};
    lc_comm *c;
    meeting.size += 8;
    CHECK_EQ(lc_comm_shm(0, 2, &meeting, &c), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "newer");
    CHECK_EQ(lc_comm_tcp(NULL, 0, 2, &none, &c), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "LC_MEETING_INIT");
    world *w = world_new(3);
    world_run_processes(w, open_shorter, add_up, NULL);
    for (int i = 0; i < 3; i++)
        if (w->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    world_free(w);
}

static lc_status begin(void *self, const lc_comm_call *call, void *state)
{
    (void)self, (void)call, (void)state;
    return LC_OK;
}

static lc_status look(void *self, void *state, bool *done)
{
    (void)self, (void)state;
    *done = true;
    return LC_OK;
}

static void count_free(void *self)
{
    ++*(int *)self;
}

TEST(a_backend_has_what_every_call_needs)
{
    lc_comm_ops ops = {LC_COMM_OPS_INIT("some"), .start = begin, .poll = look, .free = count_free};
    lc_comm *c;
    int freed = 0;
    CHECK_EQ(lc_comm_new(NULL, &freed, 0, 1, &c), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_new(&ops, &freed, 7, 2, &c), LC_ERR_ARGUMENT);
    CHECK_EQ(freed, 1);
    ops.start = NULL;
    CHECK_EQ(lc_comm_new(&ops, &freed, 0, 2, &c), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "needs a name, start, poll and free");
    CHECK_EQ(freed, 2);
    ops.free = NULL;
    CHECK_EQ(lc_comm_new(&ops, &freed, 0, 2, &c), LC_ERR_ARGUMENT);
    CHECK_EQ(freed, 2);
}

/* ---- calls ---- */

enum { N = 8 };

/* For rank 1 of 3. */
static const struct {
    lc_collective op;
    int in, out; /* offsets in an array */
    bool fine;
} places[] = {
    {LC_COMM_ALL_REDUCE, 0, 0, true},
    {LC_COMM_ALL_REDUCE, 0, N, true},
    {LC_COMM_ALL_REDUCE, 0, N - 1, false},
    {LC_COMM_ALL_REDUCE, 1, 0, false},
    {LC_COMM_REDUCE, 0, 0, true},
    {LC_COMM_REDUCE, 0, 1, false},
    {LC_COMM_ALL_GATHER, N, 0, true},
    {LC_COMM_ALL_GATHER, 0, 0, false},
    {LC_COMM_ALL_GATHER, 3 * N, 0, true},
    {LC_COMM_ALL_GATHER, 3 * N - 1, 0, false},
    {LC_COMM_REDUCE_SCATTER, 0, N, true},
    {LC_COMM_REDUCE_SCATTER, 0, 0, false},
    {LC_COMM_REDUCE_SCATTER, 0, 3 * N, true},
    {LC_COMM_ALL_TO_ALL, 0, 0, false},
    {LC_COMM_ALL_TO_ALL, 0, 3 * N, true},
    {LC_COMM_GATHER, N, 0, false},
    {LC_COMM_GATHER, 3 * N, 0, true},
    {LC_COMM_SCATTER, 0, N, false},
    {LC_COMM_SCATTER, 0, 3 * N, true},
    {LC_COMM_BROADCAST, 0, 0, true},
};

TEST(memory_of_a_call_overlaps_only_where_that_is_defined)
{
    float x[6 * N];
    lc_comm *c;
    CHECK_OK(lc_comm_fake(1, 3, &c));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        lc_comm_call call = {.op = places[i].op,
                             .dtype = LC_F32,
                             .peer = 1,
                             .in = x + places[i].in,
                             .out = x + places[i].out,
                             .count = N};
        lc_status s = lc_comm_start(c, &call, NULL);
        if (s != (places[i].fine ? LC_OK : LC_ERR_ARGUMENT))
            TEST_FAIL("%zu, %s: %d", i, lc_collective_name(call.op), (int)s);
        if (s < 0) CHECK_CONTAINS(lc_error_message(), "`in` and `out` overlap on rank 1");
        call.count = 0;
        CHECK_OK(lc_comm_start(c, &call, NULL));
    }
    lc_comm_free(c);
}

/* For another root they are ignored. */
TEST(memory_that_is_not_used_overlaps_nothing)
{
    float x[N];
    lc_comm *c;
    CHECK_OK(lc_comm_fake(1, 3, &c));
    CHECK_OK(lc_comm_gather(c, x, x, N, LC_F32, 0, NULL));
    CHECK_OK(lc_comm_scatter(c, x, x, N, LC_F32, 0, NULL));
    lc_comm_free(c);
}

TEST(a_rank_does_not_wait_for_itself_forever)
{
    lc_comm *c;
    lc_request *sent, *got;
    int x = 7, y = 0;
    CHECK_OK(lc_comm_self(&c));
    CHECK_EQ(lc_comm_send(c, &x, 1, LC_I32, 0, NULL), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "start the recv first, with a request");
    CHECK_EQ(lc_comm_recv(c, &y, 1, LC_I32, 0, NULL), LC_ERR_STATE);
    /* Rank 0 can continue. */
    CHECK_OK(lc_comm_send(c, &x, 1, LC_I32, 0, &sent));
    CHECK_EQ(lc_comm_send(c, &x, 1, LC_I32, 0, NULL), LC_ERR_STATE);
    CHECK_OK(lc_comm_recv(c, &y, 1, LC_I32, 0, NULL));
    CHECK_OK(lc_comm_wait(sent));
    CHECK_EQ(y, 7);
    x = 8;
    CHECK_OK(lc_comm_recv(c, &y, 1, LC_I32, 0, &got));
    CHECK_OK(lc_comm_send(c, &x, 1, LC_I32, 0, NULL));
    CHECK_OK(lc_comm_wait(got));
    CHECK_EQ(y, 8);
    lc_comm_free(c);
}

TEST(a_backend_without_groups_works)
{
    lc_comm *c, *group;
    int x = 0;
    CHECK_OK(lc_comm_fake(1, 3, &c));
    CHECK_EQ(lc_comm_split(c, 0, 0, &group), LC_ERR_UNSUPPORTED);
    CHECK(!group);
    CHECK_CONTAINS(lc_error_message(), "make a communicator of the group's size instead");
    CHECK_OK(lc_comm_broadcast(c, &x, 1, LC_I32, 0, NULL));
    lc_comm_free(c);
}

static lc_status ask_for_nothing(lc_comm *c, void *ctx)
{
    bool none = *(const int *)ctx || lc_comm_rank(c) == 1;
    void *memory;
    RANK_CHECK(lc_comm_alloc_mem(c, none ? 0 : 200, &memory) == LC_ERR_ARGUMENT);
    RANK_CHECK(
        strstr(lc_error_message(), *(const int *)ctx ? "memory of 0 bytes" : "the ranks ask for 0 to 200 bytes"));
    RANK_CHECK(lc_comm_alloc_mem(c, lc_comm_rank(c) == 1 ? SIZE_MAX : 200, &memory) == LC_ERR_ARGUMENT);
    RANK_CHECK(lc_comm_alloc_mem(c, SIZE_MAX, &memory) == LC_ERR_MEMORY);
    LC_TRY(lc_comm_alloc_mem(c, 200, &memory));
    return lc_comm_barrier(c, NULL);
}

TEST(memory_of_no_bytes_is_an_error_of_all)
{
    for (int all = 0; all < 2; all++) CHECK_RANKS("shm", 2, ask_for_nothing, &all);
}

static lc_status abort_without_a_word(lc_comm *c, void *ctx)
{
    if (lc_comm_rank(c) == 0) lc_comm_abort(c, ctx);
    RANK_CHECK(lc_comm_barrier(c, NULL) == LC_ERR_PEER);
    RANK_CHECK(strstr(lc_error_message(), "without a reason"));
    return LC_OK;
}

TEST(an_abort_needs_no_reason)
{
    CHECK_RANKS("threads", 2, abort_without_a_word, NULL);
    CHECK_RANKS("threads", 2, abort_without_a_word, (void *)"");
}

TEST_MAIN
