/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that make no more calls while others wait for them in one, and what the coordinator knows about their calls. */
#include "control_run.h"

#include "comm/comm_internal.h"

/* A communicator whose calls are done when `test` says so. */
typedef struct test_comm {
    bool done;
    lc_request *last; /* not waited for */
} test_comm;

static lc_status begin(void *self, const lc_comm_call *call, void *state)
{
    (void)self, (void)call, (void)state;
    return LC_OK;
}

static lc_status look(void *self, void *state, bool *done)
{
    if (state) *done = ((test_comm *)self)->done;
    return LC_OK;
}

static lc_status no_split(void *self, int color, int key, int *rank, int *size, void **out)
{
    (void)self, (void)color, (void)key, (void)rank, (void)size, (void)out;
    return lc_fail(LC_ERR_UNSUPPORTED, "no groups");
}

static void release(void *self)
{
    (void)self;
}

/* One more call, of all ranks or, with `peer`, a receive; `ends`: waits until it is done. */
static lc_status call(lc_comm *comm, test_comm *t, int peer, bool ends)
{
    lc_request *q = NULL;
    char x = 0;
    t->done = ends;
    LC_TRY(peer < 0 ? lc_comm_barrier(comm, &q) : lc_comm_recv(comm, &x, 1, LC_U8, peer, &q));
    t->last = q;
    return ends ? lc_comm_wait(q) : LC_OK;
}

static lc_status until_the_end(lc__control *c)
{
    char why[LC__END_TEXT] = "";
    for (int i = 0; i < 5000; i++, nap(0.001))
        if (lc__control_ended(c, why, sizeof why)) return lc_fail(LC_ERR_PEER, "%s", why);
    return LC_OK;
}

/* Rank 2 leaves after its second call, which the others are still in; they continue as `then` says. */
typedef lc_status then(lc__control *c, lc_comm *comm, test_comm *t, int rank);

static lc_status after_two(run *r, lc__control *c, int rank, then *go_on)
{
    static const lc_comm_ops ops = {LC_COMM_OPS_INIT("test"), .start = begin, .poll = look, .split = no_split,
                                    .free = release};
    test_comm t = {0};
    lc_comm *comm = NULL;
    LC_TRY(lc_comm_new(&ops, &t, rank, r->size, &comm));
    lc__control_watch(c, comm);
    lc_status s = call(comm, &t, -1, true);
    if (s >= 0) s = call(comm, &t, -1, rank == 2);
    if (s >= 0) s = rank == 2 ? lc__control_leave(c, NULL, NULL) : go_on(c, comm, &t, rank);
    lc__control_unwatch(c, comm);
    lc_comm_free(comm);
    return s;
}

/* A call that one rank has finished may take others long, and calls between two ranks do not concern the others. */
static lc_status leave_late(lc__control *c, lc_comm *comm, test_comm *t, int rank)
{
    lc_request *second = t->last;
    if (rank == 0) LC_TRY(call(comm, t, 1, false));
    nap(rank == 0 ? 1.5 : 3); /* rank 1 exists as long as rank 0 waits for it */
    t->done = true;
    LC_TRY(lc_comm_wait(second));
    if (rank == 0) LC_TRY(lc_comm_wait(t->last));
    return lc__control_leave(c, NULL, NULL);
}

static lc_status two_then_late(run *r, lc__control *c, int rank)
{
    return after_two(r, c, rank, leave_late);
}

TEST(ranks_leave_together)
{
    run *r = run_new(3, two_then_late, (lc__control_times){.heartbeat = 0.05});
    lc__coordinator *c = run_start(r);
    for (int i = 0; i < 3; i++) {
        run_reap(r, i);
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    }
    lc__coordinator_stop(c);
    run_free(r);
}

/* A rank computes while the others wait for it in a call, makes that call and ends before the others can report that
 * they have finished it. It computes for longer than ranks may wait for each other (lc__calls_judge); on a busy machine
 * heartbeats are late. */
enum { LATER_MS = 600 };

static double silent_for(void)
{
    return patience(1.5);
}
static double computes_for(void)
{
    return 2 * silent_for() + 3;
}

static uint64_t nothing_moved(void *self)
{
    (void)self;
    return 0;
}

static lc_status done_later(void *self, void *state, bool *done)
{
    if (state) *done = lc__seconds() > *(double *)self;
    return LC_OK;
}

static lc_status compute_and_end(run *r, lc__control *c, int rank)
{
    static const lc_comm_ops ops = {LC_COMM_OPS_INIT("test"), .start = begin,  .poll = done_later,
                                    .split = no_split,        .free = release, .moved = nothing_moved};
    double until = lc__seconds() + computes_for() + (rank == 2 ? 0 : 1e-3 * LATER_MS);
    lc_comm *comm = NULL;
    LC_TRY(lc_comm_new(&ops, &until, rank, r->size, &comm));
    lc__control_watch(c, comm);
    if (rank == 2) nap(computes_for());
    lc_status s = lc_comm_barrier(comm, NULL);
    char why[LC__END_TEXT] = "";
    if (s >= 0 && lc__control_ended(c, why, sizeof why)) s = lc_fail(LC_ERR_PEER, "%s", why);
    lc__control_unwatch(c, comm);
    lc_comm_free(comm);
    return s;
}

TEST(a_rank_that_ends_after_a_long_computation_is_no_deadlock)
{
    run *r = run_new(3, compute_and_end, (lc__control_times){.heartbeat = 0.05, .silence = silent_for()});
    lc__coordinator *c = run_start(r);
    for (int i = 0; i < 3; i++) {
        run_reap(r, i);
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    }
    lc__coordinator_stop(c);
    run_free(r);
}

static void check_missed(rank_fn *fn)
{
    run *r = run_new(3, fn, (lc__control_times){.heartbeat = 0.05});
    lc__coordinator *c = run_start(r);
    for (int i = 0; i < 3; i++) {
        run_reap(r, i);
        CHECK_EQ(r->ranks[i].status, LC_ERR_PEER);
        CHECK_CONTAINS(r->ranks[i].message, "rank 2 ");
        CHECK_CONTAINS(r->ranks[i].message, ": it has left the group while rank 1 still waits for it");
    }
    lc__coordinator_stop(c);
    run_free(r);
}

static lc_status call_again(lc__control *c, lc_comm *comm, test_comm *t, int rank)
{
    if (rank == 1) LC_TRY(call(comm, t, -1, false));
    return until_the_end(c);
}

static lc_status two_then_a_third(run *r, lc__control *c, int rank)
{
    return after_two(r, c, rank, call_again);
}

static lc_status ask_for_more(lc__control *c, lc_comm *comm, test_comm *t, int rank)
{
    if (rank == 1) LC_TRY(call(comm, t, 2, false));
    return until_the_end(c);
}

static lc_status two_then_a_receive(run *r, lc__control *c, int rank)
{
    return after_two(r, c, rank, ask_for_more);
}

TEST(a_rank_that_has_left_is_missed_in_a_call)
{
    check_missed(two_then_a_third);
}

TEST(a_rank_that_has_left_is_missed_by_its_receiver)
{
    check_missed(two_then_a_receive);
}

TEST_MAIN
