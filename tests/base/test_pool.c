/* SPDX-License-Identifier: Apache-2.0 */
/* The helper threads of loops: every piece is done once, callers wait for a helper only in the piece it is working on,
 * no wake-up is lost, threads that gain nothing are left out for a while, and a forked child has helpers of its own. */
#define _GNU_SOURCE
#include "test.h"

#include "base/clock.h"
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS ((int64_t)1000000)

static void busy(int64_t ns)
{
    for (int64_t end = lc__now_ns() + ns; lc__now_ns() < end;) {
    }
}

static void sleep_ns(int64_t ns)
{
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

typedef struct count {
    atomic_int hits[LC__POOL_MAX_PIECES];
    atomic_int seated[LC__POOL_SEATS];
    atomic_int bad;
    int threads;
} count;

static void count_piece(void *context, int64_t piece, int seat)
{
    count *c = context;
    if (seat < 0 || seat >= c->threads || atomic_fetch_add(&c->seated[seat], 1)) atomic_fetch_add(&c->bad, 1);
    atomic_fetch_add(&c->hits[piece], 1);
    atomic_fetch_sub(&c->seated[seat], 1);
}

TEST(every_piece_is_done_once)
{
    static const int64_t pieces[] = {0, 1, 2, 3, 7, 64, 1000, LC__POOL_MAX_PIECES};
    count *c = calloc(1, sizeof *c);
    CHECK(c);
    for (int threads = 1; threads <= 9; threads++) {
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            c->threads = threads;
            lc__pool_run(threads, pieces[k], count_piece, c);
            for (int64_t i = 0; i < LC__POOL_MAX_PIECES; i++) {
                CHECK_EQ(atomic_load(&c->hits[i]), i < pieces[k]);
                atomic_store(&c->hits[i], 0);
            }
        }
    }
    CHECK_EQ(atomic_load(&c->bad), 0);
    free(c);
}

typedef struct sum {
    int64_t part[64];
} sum;

static void add_piece(void *context, int64_t piece, int seat)
{
    (void)seat;
    ((sum *)context)->part[piece] += piece; /* not atomic: visible to the thread that waits for the loop */
}

static void add_both(void *context, int64_t piece, int seat)
{
    sum inner = {{0}};
    lc__pool_run(2, 4, add_piece, &inner);
    if (inner.part[3] == 3) add_piece(context, piece, seat);
}

static void *many_loops(void *result)
{
    sum s = {{0}};
    unsigned seed = (unsigned)(uintptr_t)result;
    for (int i = 0; i < 3000; i++) {
        lc__pool_run(1 + i % 4, 1 + i % 64, i % 16 ? add_piece : add_both, &s);
        if (i % 8 == 0)
            sleep_ns(rand_r(&seed) % 400000); /* so that helpers are in all states: spinning, falling asleep, asleep */
    }
    int64_t total = 0;
    for (int i = 0; i < 64; i++) total += s.part[i];
    *(int64_t *)result = total;
    return NULL;
}

static int64_t expected_total(void)
{
    int64_t total = 0;
    for (int i = 0; i < 3000; i++) total += (int64_t)(i % 64) * (1 + i % 64) / 2;
    return total;
}

TEST(no_wakeup_is_lost)
{
    int64_t total = 0;
    many_loops(&total);
    CHECK_EQ(total, expected_total());
}

TEST(callers_side_by_side)
{
    enum { CALLERS = 12 }; /* more callers than rows of runs */
    pthread_t thread[CALLERS];
    int64_t total[CALLERS];
    for (int i = 0; i < CALLERS; i++) CHECK_EQ(pthread_create(&thread[i], NULL, many_loops, &total[i]), 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < CALLERS; i++) CHECK_EQ(total[i], expected_total());
}

enum { STALL_PIECES = 64 };

typedef struct stall {
    pthread_t caller;
    int64_t ns;          /* duration of each piece done by a helper */
    atomic_int helper_s; /* pieces begun by a helper */
    atomic_int done;
    atomic_int done_when_it_went_on;
} stall;

static void stall_piece(void *context, int64_t piece, int seat)
{
    stall *s = context;
    (void)piece;
    (void)seat;
    if (pthread_equal(pthread_self(), s->caller)) {
        busy(20000);
        atomic_fetch_add(&s->done, 1);
    } else {
        atomic_fetch_add(&s->helper_s, 1);
        sleep_ns(s->ns);
        atomic_store(&s->done_when_it_went_on, atomic_load(&s->done));
    }
}

static void use_both(void)
{
    for (int64_t end = lc__now_ns() + 10000 * MS; lc__pool_allowed(2) < 2 && lc__now_ns() < end;) sleep_ns(10 * MS);
    CHECK_EQ(lc__pool_allowed(2), 2);
}

/* A helper stays in its first piece until the caller has done all others; the caller lets it come before its first. */
static void held_piece(void *context, int64_t piece, int seat)
{
    stall *s = context;
    (void)piece;
    (void)seat;
    bool is_caller = pthread_equal(pthread_self(), s->caller);
    if (!is_caller) atomic_fetch_add(&s->helper_s, 1);
    for (int64_t end = lc__now_ns() + s->ns; lc__now_ns() < end; sleep_ns(MS))
        if (is_caller ? atomic_load(&s->helper_s) || atomic_load(&s->done) : atomic_load(&s->done) == STALL_PIECES - 1)
            break;
    if (is_caller)
        atomic_fetch_add(&s->done, 1);
    else
        atomic_store(&s->done_when_it_went_on, atomic_load(&s->done));
}

TEST(a_stalled_helper_holds_up_one_piece)
{
    int met = 0;
    for (int round = 0; round < 50 && met < 3; round++) {
        stall s = {.caller = pthread_self(), .ns = 20000 * MS};
        use_both();
        lc__pool_run(2, STALL_PIECES, held_piece, &s);
        int by_helper = atomic_load(&s.helper_s);
        CHECK_EQ(atomic_load(&s.done) + by_helper, STALL_PIECES);
        CHECK(by_helper <= 1);
        if (!by_helper) continue; /* the helper got no processor in all that time */
        met++;
        CHECK_EQ(atomic_load(&s.done_when_it_went_on), STALL_PIECES - 1);
    }
    CHECK(met >= 1);
}

TEST(threads_that_are_no_gain_are_skipped_for_a_while)
{
    stall s = {.caller = pthread_self(), .ns = 3 * MS};
    use_both();
    int loops = 0;
    for (; loops < 2000 && lc__pool_allowed(2) == 2; loops++) lc__pool_run(2, 16, stall_piece, &s);
    CHECK_EQ(lc__pool_allowed(2), 1);
    int before = atomic_load(&s.helper_s);
    lc__pool_run(2, 16, stall_piece, &s);
    CHECK_EQ(atomic_load(&s.helper_s), before); /* only the caller has worked */
    /* The processors are free again: the helper is tried again, and stays. */
    use_both();
    sum t = {{0}};
    for (int i = 0; i < 1000; i++) lc__pool_run(2, 64, add_piece, &t);
    use_both();
}

TEST(a_forked_child_has_its_own)
{
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer ends a child that starts threads");
#endif
    sum s = {{0}};
    lc__pool_run(3, 64, add_piece, &s);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 200; i++) lc__pool_run(3, 64, add_piece, &s);
        _exit(s.part[63] == 201 * 63 ? 0 : 1);
    }
    int status = -1;
    for (int64_t end = lc__now_ns() + 60000 * MS; lc__now_ns() < end; sleep_ns(MS))
        if (waitpid(child, &status, WNOHANG) == child) break;
    if (status == -1) kill(child, SIGKILL);
    CHECK_EQ(status, 0);
    lc__pool_run(3, 64, add_piece, &s);
    CHECK_EQ(s.part[63], 2 * 63);
}

TEST_MAIN
