/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives, over every backend that needs only this machine, for 1 to 8 ranks: with integers, whose sums have only
 * one result, for every type and size; with other numbers against the tree that comm.h promises; in place, on groups,
 * several at once; and the errors when ranks disagree or one gives up. */
#include "comm_ranks.h"

#include "comm/transport/rings.h"
#include "base/clock.h"

static const char *const backends[] = {"threads", "shm", "tcp", "shm+tcp/2", "shm+tcp/4"};
#define EACH_BACKEND(b) for (size_t b = 0; b < sizeof backends / sizeof *backends; b++)

/* Whether this number of ranks is worth a run. Ranks are threads, or else processes, which share nothing: 4 processes
 * show as many races as any number. */
static bool worth(const char *backend, int n)
{
    return !RACES_ALONE || n == 4 || (n > 1 && !strcmp(backend, "threads"));
}

/* 1, 2, 3, 4 and 8 ranks. */
#define EACH_WORLD(b, n, first, last)                                                                                  \
    EACH_BACKEND(b)                                                                                                    \
    for (int n = first; n <= last; n += n < 4 ? 1 : 4)                                                                 \
        if (worth(backends[b], n))

TEST(reductions_are_exact_for_every_type_and_size)
{
    EACH_WORLD(b, n, 1, 8) CHECK_RANKS(backends[b], n, all_reductions, NULL);
}

TEST(moves_are_exact_for_every_size)
{
    EACH_WORLD(b, n, 1, 8) CHECK_RANKS(backends[b], n, moves, NULL);
}

TEST(sums_follow_the_tree_bit_for_bit)
{
    EACH_WORLD(b, n, 1, 8) CHECK_RANKS(backends[b], n, tree_bits, NULL);
}

/* Hosts with equally many ranks, if that is not a power of two; with different numbers of ranks; and with one each. */
TEST(hosts_may_have_any_number_of_ranks)
{
    static const struct {
        const char *backend;
        int size;
    } worlds[] = {{"shm+tcp/2", 6}, {"shm+tcp/3", 6}, {"shm+tcp/3", 5}, {"shm+tcp/1", 3}, {"shm+tcp/4", 6}};
    for (size_t i = 0; i < (RACES_ALONE ? 1 : sizeof worlds / sizeof *worlds); i++) {
        CHECK_RANKS(worlds[i].backend, worlds[i].size, all_reductions, NULL);
        CHECK_RANKS(worlds[i].backend, worlds[i].size, moves, NULL);
        CHECK_RANKS(worlds[i].backend, worlds[i].size, tree_bits, NULL);
        CHECK_RANKS(worlds[i].backend, worlds[i].size, groups, NULL);
    }
}

/* All ranks make call ctx[0], rank 3 makes call ctx[1], and then all wait for each other. */
static lc_status differ_at_rank_three(lc_comm *c, void *ctx)
{
    enum { N = 40 };
    const int *ops = ctx;
    float in[4 * N] = {0}, out[4 * N];
    lc_comm_call call = {(lc_collective)ops[lc_comm_rank(c) == 3], LC_COMM_SUM, LC_F32, 0, in, out, N};
    if (call.op == LC_COMM_BROADCAST) call.in = call.out;
    lc_status s = lc_comm_start(c, &call, NULL);
    return s >= 0 ? lc_comm_barrier(c, NULL) : s;
}

/* Every pair of different calls (every other, under a sanitizer). A rank that notices the difference notifies all, even
 * ranks that expect nothing from it. Two ranks that both wait for the other's first message cannot notice it. */
TEST(any_two_different_calls_end_on_all_ranks)
{
    for (int a = LC_COMM_BARRIER; a <= LC_COMM_ALL_TO_ALL; a++)
        for (int b = LC_COMM_BARRIER; b <= LC_COMM_ALL_TO_ALL; b++) {
            int ops[] = {a, b};
            bool silent = (a == LC_COMM_GATHER || a == LC_COMM_REDUCE) && b == LC_COMM_SCATTER;
            if (a == b || silent || (!takes_all() && (a + b) % 2)) continue;
            world *w = world_run("shm+tcp/2", 4, differ_at_rank_three, ops);
            int failed = 0;
            for (int r = 0; r < 4; r++) {
                if (w->ranks[r].status >= 0) continue;
                failed++;
                if (!strstr(w->ranks[r].message, "the ranks make different calls"))
                    TEST_FAIL("%s and %s, rank %d: %s", lc_collective_name(a), lc_collective_name(b), r,
                              w->ranks[r].message);
            }
            if (failed < 4)
                TEST_FAIL("%s and %s: %d ranks failed", lc_collective_name(a), lc_collective_name(b), failed);
            world_free(w);
        }
}

static int64_t sent_across(const lc_comm *c)
{
    lc_comm_stats stats;
    lc_comm_get_stats(c, &stats);
    return stats.sent_across;
}

/* All bytes sent between hosts for one call, with a multiple of 64 elements for each rank. */
static lc_status crossed(lc_comm *c, lc_collective op, int64_t count, int64_t *all)
{
    int n = lc_comm_size(c);
    float *in = calloc((size_t)(n * count), sizeof *in), *out = calloc((size_t)(n * count), sizeof *out);
    lc_comm_call call = {op, LC_COMM_SUM, LC_F32, op == LC_COMM_BROADCAST ? 1 : -1, in, out, count};
    int64_t before = sent_across(c);
    if (op == LC_COMM_BROADCAST) call.in = call.out;
    LC_TRY(lc_comm_start(c, &call, NULL));
    *all = sent_across(c) - before;
    free(in), free(out);
    return lc_comm_all_reduce(c, all, all, 1, LC_I64, LC_COMM_SUM, NULL);
}

static lc_status bytes_between_hosts(lc_comm *c, void *ctx)
{
    enum { COUNT = 64 * 120 };
    int64_t n = lc_comm_size(c), hosts = n / world_per_host, all, s = COUNT * (int64_t)sizeof(float);
    (void)ctx;
    LC_TRY(crossed(c, LC_COMM_ALL_REDUCE, COUNT, &all));
    RANK_CHECK(all == 2 * s * (hosts - 1));
    LC_TRY(crossed(c, LC_COMM_REDUCE_SCATTER, COUNT, &all));
    RANK_CHECK(all == s * n * (hosts - 1));
    LC_TRY(crossed(c, LC_COMM_ALL_GATHER, COUNT, &all));
    RANK_CHECK(all == s * n * (hosts - 1));
    LC_TRY(crossed(c, LC_COMM_BROADCAST, COUNT, &all));
    RANK_CHECK(all == s * (hosts - 1));
    return LC_OK;
}

/* Each byte leaves a host once, not once for each rank: the bytes that leave each host are those that schedule.h
 * states. */
TEST(each_byte_goes_to_another_host_once)
{
    static const struct {
        const char *backend;
        int size;
    } worlds[] = {{"shm+tcp/2", 4}, {"shm+tcp/2", 6}, {"shm+tcp/4", 8}};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        CHECK_RANKS(worlds[i].backend, worlds[i].size, bytes_between_hosts, NULL);
}

TEST(calls_run_side_by_side_and_are_awaited_in_any_order)
{
    EACH_WORLD(b, n, 1, 4) CHECK_RANKS(backends[b], n, many_at_once, NULL);
}

TEST(groups_are_communicators)
{
    EACH_WORLD(b, n, 1, 8) CHECK_RANKS(backends[b], n, groups, NULL);
}

/* The last rank aborts the group it knows; the others wait in a subgroup of a subgroup. */
static lc_status abort_of_the_whole(lc_comm *c, void *ctx)
{
    lc_comm *all, *part, *half;
    float x = 1;
    int last = lc_comm_size(c) - 1, me = lc_comm_rank(c);
    (void)ctx;
    LC_TRY(lc_comm_split(c, 0, me, &all));
    LC_TRY(lc_comm_split(all, 0, me, &part));
    LC_TRY(lc_comm_split(part, 0, me, &half));
    LC_TRY(lc_comm_barrier(c, NULL)); /* all have made their groups */
    if (me == last)
        lc_comm_abort(all, "the last rank has had enough");
    else
        RANK_CHECK(lc_comm_all_reduce(half, &x, &x, 1, LC_F32, LC_COMM_SUM, NULL) < 0 &&
                   strstr(lc_error_message(), "the last rank has had enough"));
    /* in any order */
    lc_comm_free(me & 1 ? half : part), lc_comm_free(me & 1 ? part : half), lc_comm_free(all);
    return LC_OK;
}

TEST(an_abort_ends_the_groups_too)
{
    EACH_WORLD(b, n, 2, 4) CHECK_RANKS(backends[b], n, abort_of_the_whole, NULL);
}

/* Whether a call that no other rank joins ends in time, with the message `why`. */
static bool ends_with(lc_comm *c, const char *why)
{
    static _Thread_local float x;
    lc_request *r;
    bool done = false;
    lc_status s = lc_comm_all_reduce(c, &x, &x, 1, LC_F32, LC_COMM_SUM, &r);
    for (int64_t until = lc__now_ns() + (int64_t)(patience(5) * 1e9); s >= 0 && !done && lc__now_ns() < until;) {
        s = lc_comm_poll(r, &done);
        usleep(100);
    }
    return s < 0 && strstr(lc_error_message(), why);
}

/* The groups between the aborted one and the one in use have been freed. */
static lc_status abort_past_freed_groups(lc_comm *c, void *ctx)
{
    lc_comm *all, *part, *half, *used[2];
    int last = lc_comm_size(c) - 1, me = lc_comm_rank(c);
    (void)ctx;
    LC_TRY(lc_comm_split(c, 0, me, &all));
    LC_TRY(lc_comm_split(all, 0, me, &part));
    LC_TRY(lc_comm_split(part, 0, me, &half));
    for (int i = 0; i < 2; i++) LC_TRY(lc_comm_split(half, 0, me, &used[i]));
    LC_TRY(lc_comm_barrier(c, NULL));
    lc_comm_free(me & 1 ? half : part), lc_comm_free(me & 1 ? part : half);
    if (me == last)
        lc_comm_abort(all, "the last rank has had enough");
    else
        RANK_CHECK(ends_with(used[0], "had enough") && ends_with(used[1], "had enough"));
    lc_comm_free(used[0]), lc_comm_free(used[1]), lc_comm_free(all);
    return LC_OK;
}

TEST(an_abort_reaches_groups_of_groups_that_were_freed)
{
    EACH_WORLD(b, n, 2, 4) CHECK_RANKS(backends[b], n, abort_past_freed_groups, NULL);
}

/* A backend without ranks: its calls never end, and it keeps the message it is aborted with. */
typedef struct recorder {
    char why[64];
    lc_comm *split_from;    /* aborted while the group is made */
    struct recorder *group; /* what it is split into */
} recorder;

static lc_status record_start(void *self, const lc_comm_call *call, void *state)
{
    (void)self, (void)call, (void)state;
    return LC_OK;
}

static lc_status record_poll(void *self, void *state, bool *done)
{
    (void)state, (void)done;
    return *((recorder *)self)->why ? lc_fail(LC_ERR_STATE, "%s", ((recorder *)self)->why) : LC_OK;
}

static lc_status record_split(void *self, int color, int key, int *rank, int *size, void **out)
{
    recorder *r = self;
    (void)color, (void)key;
    lc_comm_abort(r->split_from, "it came in between");
    *rank = 0, *size = 2, *out = r->group;
    return LC_OK;
}

static void record_free(void *self)
{
    (void)self;
}

static void record_abort(void *self, const char *why)
{
    recorder *r = self;
    if (!*r->why) snprintf(r->why, sizeof r->why, "%s", why);
}

static lc_comm *recorder_comm(recorder *r)
{
    const lc_comm_ops ops = {LC_COMM_OPS_INIT("recorder"), .start = record_start, .poll = record_poll,
                             .split = record_split,        .free = record_free,   .abort = record_abort};
    lc_comm *c;
    CHECK_OK(lc_comm_new(&ops, r, 0, 2, &c));
    return c;
}

TEST(an_abort_that_comes_while_a_group_is_made_is_the_groups_too)
{
    recorder later = {.why = ""}, whole = {.group = &later};
    lc_comm *c = recorder_comm(&whole), *group;
    whole.split_from = c;
    CHECK_OK(lc_comm_split(c, 0, 0, &group));
    CHECK_STR(later.why, "it came in between");
    lc_comm_free(group), lc_comm_free(c);
}

/* Otherwise the call would continue in memory that the caller believes to be free after the error. */
TEST(a_call_given_up_for_the_error_of_another_group_is_ended)
{
    recorder waits = {.why = ""}, fails = {.why = "the other one has failed"};
    lc_comm *c = recorder_comm(&waits), *other = recorder_comm(&fails);
    lc_request *r, *call;
    float x = 1;
    CHECK_OK(lc_comm_all_reduce(other, &x, &x, 1, LC_F32, LC_COMM_SUM, &r));
    CHECK_EQ(lc_comm_wait(r), LC_ERR_STATE);
    CHECK_OK(lc_comm_all_reduce(c, &x, &x, 1, LC_F32, LC_COMM_SUM, &call));
    CHECK_EQ(lc__comm_wait_with(call, &other, 1), LC_ERR_STATE);
    CHECK_STR(waits.why, "the other one has failed");
    CHECK_EQ(lc_comm_barrier(c, NULL), LC_ERR_PEER);
    lc_comm_free(c), lc_comm_free(other);
}

/* Rank 0 waits for rank 1 in one group, and rank 1 for rank 0 in another, with more data in flight than the rings
 * hold. */
static lc_status wait_in_two_groups(lc_comm *c, void *ctx)
{
    enum { N = 1 << 20 };
    int n = lc_comm_size(c), me = lc_comm_rank(c);
    int32_t *all = malloc((size_t)n * N * sizeof *all), word = me;
    lc_comm *first, *second;
    lc_request *gather;
    (void)ctx;
    LC_TRY(lc_comm_split(c, 0, me, &first));
    LC_TRY(lc_comm_split(c, 0, me, &second));
    for (int i = 0; i < N; i++) all[me * N + i] = me + i;
    LC_TRY(lc_comm_all_gather(first, all + me * N, all, N, LC_I32, &gather));
    if (me == 0) {
        LC_TRY(lc_comm_recv(second, &word, 1, LC_I32, 1, NULL));
        RANK_CHECK(word == 1);
    }
    LC_TRY(lc_comm_wait(gather));
    if (me == 1) LC_TRY(lc_comm_send(second, &word, 1, LC_I32, 0, NULL));
    for (int r = 0; r < n; r++) RANK_CHECK(all[r * N] == r && all[r * N + N - 1] == r + N - 1);
    /* A communicator's total includes its groups. */
    lc_comm_stats one, both, two, total;
    lc_comm_get_stats(c, &one), lc_comm_get_stats(first, &both), lc_comm_get_stats(second, &two);
    lc__comm_total(c, &total);
    RANK_CHECK(both.sent == (n - 1) * (int64_t)sizeof(int32_t) * N && total.sent == one.sent + both.sent + two.sent);
    RANK_CHECK(total.calls[LC_COMM_ALL_GATHER] == one.calls[LC_COMM_ALL_GATHER] + 1);
    LC_TRY(lc_comm_barrier(c, NULL));
    lc_comm_free(first), lc_comm_free(second);
    free(all);
    return LC_OK;
}

TEST(waiting_in_one_group_moves_the_others)
{
    EACH_WORLD(b, n, 2, 4) CHECK_RANKS(backends[b], n, wait_in_two_groups, NULL);
}

/* Rank 1 leaves too early. */
static lc_status leave_early(lc_comm *c, void *ctx)
{
    int64_t x = 1;
    lc_comm *group;
    lc_status s = LC_ERR_PEER;
    (void)ctx;
    LC_TRY(lc_comm_split(c, 0, lc_comm_rank(c), &group));
    if (lc_comm_rank(c) != 1) s = lc_comm_all_reduce(group, &x, &x, 1, LC_I64, LC_COMM_SUM, NULL);
    RANK_CHECK(s == LC_ERR_PEER);
    RANK_CHECK(lc_comm_rank(c) == 1 || strstr(lc_error_message(), "rank 1 has left the group while rank "));
    lc_comm_free(group);
    return LC_OK;
}

TEST(a_rank_that_has_left_is_missed)
{
    EACH_WORLD(b, n, 2, 4) CHECK_RANKS(backends[b], n, leave_early, NULL);
}

TEST(different_calls_are_named_with_both_ranks)
{
    EACH_BACKEND(b)
    {
        world *w = world_run(backends[b], 3, disagree, NULL);
        for (int r = 0; r < 3; r++) {
            const char *m = w->ranks[r].message;
            CHECK(w->ranks[r].status < 0);
            if (!strstr(m, "call 2 is all_reduce of 8 f32, sum on rank") ||
                !strstr(m, "call 2 is broadcast of 5 f32 from rank 0 on rank 1"))
                TEST_FAIL("%s, rank %d: %s", backends[b], r, m);
        }
        world_free(w);
    }
}

TEST(a_receive_of_another_size_is_an_error)
{
    EACH_BACKEND(b)
    {
        world *w = world_run(backends[b], 2, wrong_count, NULL);
        CHECK(w->ranks[1].status < 0);
        CHECK(strstr(w->ranks[1].message, "send of 8 f32 to rank 1 on rank 0"));
        CHECK(strstr(w->ranks[1].message, "recv of 7 f32 from rank 0 on rank 1"));
        world_free(w);
    }
}

TEST(an_abort_ends_all_ranks_with_its_reason)
{
    EACH_BACKEND(b)
    {
        world *w = world_run(backends[b], 3, gives_up, NULL);
        for (int r = 0; r < 2; r++)
            if (w->ranks[r].status != LC_OK) TEST_FAIL("rank %d: %s", r, w->ranks[r].message);
        CHECK_EQ(w->ranks[2].status, LC_ERR_USER);
        world_free(w);
    }
}

static void keep_window(lc__rings *w, size_t bytes)
{
    (void)w, (void)bytes;
}

/* Reading the reason kills the process, so the abort has begun but is not finished. */
static void die_in_an_abort(lc__rings *w)
{
    void *end, *nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, SIG_DFL);
    if (lc__rings_join(w, 0, keep_window, &end) >= 0) lc__rings_abort(end, nothing);
    _exit(0);
}

TEST(a_rank_killed_in_an_abort_does_not_block_other_aborts)
{
    size_t bytes = lc__rings_bytes(2);
    lc__rings *w = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void *end;
    int how = 0;
    CHECK(w != MAP_FAILED);
    lc__rings_init(w, 2);
    pid_t pid = fork();
    if (pid == 0) die_in_an_abort(w);
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
    CHECK_OK(lc__rings_join(w, 1, keep_window, &end));
    CHECK_OK(lc__rings_progress(end));
    lc__rings_abort(end, "rank 0 was killed");
    CHECK_EQ(lc__rings_progress(end), LC_ERR_PEER);
    CHECK_STR(lc_error_message(), "rank 0 was killed");
    lc__rings_close(end);
    munmap(w, bytes);
}

TEST(bad_arguments_are_refused_and_do_no_harm)
{
    lc_comm *c;
    float x[4] = {1, 2, 3, 4};
    CHECK_OK(lc_comm_self(&c));
    CHECK_EQ(lc_comm_broadcast(c, x, 4, LC_F32, 1, NULL), LC_ERR_ARGUMENT);
    CHECK(strstr(lc_error_message(), "there is no rank 1"));
    CHECK_EQ(lc_comm_all_reduce(c, x, x, -1, LC_F32, LC_COMM_SUM, NULL), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_all_reduce(c, x, x, INT64_MAX / 2, LC_F32, LC_COMM_SUM, NULL), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_all_reduce(c, NULL, x, 4, LC_F32, LC_COMM_SUM, NULL), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_all_reduce(c, x, x, 4, (lc_dtype)99, LC_COMM_SUM, NULL), LC_ERR_DTYPE);
    CHECK_EQ(lc_comm_all_reduce(c, x, x, 4, LC_BOOL, LC_COMM_SUM, NULL), LC_ERR_DTYPE);
    CHECK_EQ(lc_comm_all_reduce(c, x, x, 4, LC_F32, (lc_reduce_op)9, NULL), LC_ERR_ARGUMENT);
    CHECK_OK(lc_comm_all_reduce(c, x, x, 4, LC_F32, LC_COMM_SUM, NULL));
    CHECK(x[3] == 4);
    lc_comm_free(c);
    CHECK_EQ(lc_comm_threads(0, &c), LC_ERR_ARGUMENT);
    CHECK_EQ(lc_comm_fake(3, 3, &c), LC_ERR_ARGUMENT);
}

TEST(ranks_that_do_not_exist_are_counted)
{
    lc_comm *c;
    lc_comm_stats stats;
    lc_request *r;
    bool done;
    float x[64];
    CHECK_OK(lc_comm_fake(2, 4, &c));
    CHECK_OK(lc_comm_all_reduce(c, x, x, 64, LC_F32, LC_COMM_SUM, &r));
    CHECK_OK(lc_comm_poll(r, &done));
    CHECK(done);
    CHECK_OK(lc_comm_reduce_scatter(c, x, x + 32, 16, LC_F32, LC_COMM_SUM, NULL));
    lc_comm_get_stats(c, &stats);
    CHECK_EQ(stats.calls[LC_COMM_ALL_REDUCE], 1);
    CHECK_EQ(stats.bytes[LC_COMM_ALL_REDUCE], 256);
    CHECK_EQ(stats.sent, 2 * 256 * 3 / 4 + 64 * 3);
    lc_comm_free(c);
}

TEST_MAIN
