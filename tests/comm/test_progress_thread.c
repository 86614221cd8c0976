/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that drives calls, over a backend that counts its naps. (test_tcp.c tests that calls make progress over
 * TCP.) */
#define _GNU_SOURCE
#include "comm_world.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NAPS = 3 };

/* Its calls are done after the thread has slept NAPS times in a hurry. */
typedef struct dozer {
    atomic_int naps[2]; /* [hurry] */
    int rest;           /* microseconds that the thread sleeps */
} dozer;

static lc_status start(void *self, const lc_comm_call *call, void *state)
{
    (void)self, (void)call, (void)state;
    return LC_OK;
}

static lc_status poll_call(void *self, void *state, bool *done)
{
    dozer *d = self;
    if (state) *done = atomic_load(&d->naps[true]) >= NAPS;
    return LC_OK;
}

static int doze(void *self, int microseconds, bool hurry)
{
    dozer *d = self;
    CHECK(microseconds > 0);
    usleep(100);
    atomic_fetch_add(&d->naps[hurry], 1);
    return hurry ? 0 : d->rest;
}

static void leave(void *self)
{
    (void)self;
}

TEST(the_thread_hurries_only_while_the_rank_waits)
{
    const lc_comm_ops ops = {LC_COMM_OPS_INIT("dozer"), .start = start, .poll = poll_call, .free = leave,
                             .sleep = doze};
    dozer d = {0};
    float x = 1;
    lc_comm *c;
    lc_request *r;
    CHECK_OK(lc_comm_new(&ops, &d, 0, 2, &c));
    CHECK_OK(lc_comm_all_reduce(c, &x, &x, 1, LC_F32, LC_COMM_SUM, &r));
    CHECK_OK(lc_comm_progress(c));
    while (atomic_load(&d.naps[false]) < NAPS) usleep(100);
    CHECK_EQ(atomic_load(&d.naps[true]), 0);
    CHECK_OK(lc_comm_wait(r));
    CHECK(atomic_load(&d.naps[true]) >= NAPS);
    lc_comm_free(c);
}

/* A long sleep ends when the rank waits, or frees the communicator. */
TEST(the_thread_rests_only_while_the_rank_computes)
{
    const lc_comm_ops ops = {LC_COMM_OPS_INIT("dozer"), .start = start, .poll = poll_call, .free = leave,
                             .sleep = doze};
    for (int waits = 0; waits < 2; waits++) {
        dozer d = {.rest = 2000000000};
        float x = 1;
        lc_comm *c;
        lc_request *r;
        CHECK_OK(lc_comm_new(&ops, &d, 0, 2, &c));
        CHECK_OK(lc_comm_all_reduce(c, &x, &x, 1, LC_F32, LC_COMM_SUM, &r));
        CHECK_OK(lc_comm_progress(c));
        while (atomic_load(&d.naps[false]) < 1) usleep(100);
        usleep(20000);
        CHECK_EQ(atomic_load(&d.naps[false]), 1);
        if (waits) CHECK_OK(lc_comm_wait(r));
        lc_comm_free(c);
    }
}

/* A call that ends when its memory says so, which the thread checks repeatedly. */
typedef struct reader {
    const float *memory;
    atomic_int looks;
} reader;

static lc_status start_reading(void *self, const lc_comm_call *call, void *state)
{
    (void)state;
    ((reader *)self)->memory = call->in;
    return LC_OK;
}

static lc_status read_again(void *self, void *state, bool *done)
{
    reader *r = self;
    for (int i = 0; i < 1000 && state; i++) *done = ((const volatile float *)r->memory)[0] != 0;
    atomic_fetch_add(&r->looks, 1);
    return LC_OK;
}

static int doze_on(void *self, int microseconds, bool hurry)
{
    (void)self, (void)microseconds, (void)hurry;
    usleep(10);
    return 0;
}

TEST(memory_of_calls_that_are_given_up_is_not_touched)
{
    const lc_comm_ops ops = {LC_COMM_OPS_INIT("reader"), .start = start_reading, .poll = read_again, .free = leave,
                             .sleep = doze_on};
    for (int i = 0; i < 20; i++) {
        reader r = {0};
        float *x = calloc(1, sizeof *x);
        lc_comm *c;
        lc_request *request;
        CHECK_OK(lc_comm_new(&ops, &r, 0, 2, &c));
        CHECK_OK(lc_comm_all_reduce(c, x, x, 1, LC_F32, LC_COMM_SUM, &request));
        CHECK_OK(lc_comm_progress(c));
        while (atomic_load(&r.looks) < i) usleep(10);
        lc__comm_give_up(c, "the rank has lost interest");
        free(x);
        int looks = atomic_load(&r.looks);
        usleep(1000);
        CHECK_EQ(atomic_load(&r.looks), looks);
        CHECK_STATUS(lc_comm_wait(request), LC_ERR_PEER);
        CHECK_STR(lc_error_message(), "the rank has lost interest");
        CHECK_STATUS(lc_comm_barrier(c, NULL), LC_ERR_PEER);
        lc_comm_free(c);
    }
}

static lc_status give_up_a_group(lc_comm *c, void *ctx)
{
    enum { N = 8 << 20 };
    lc_comm *group;
    lc_request *r;
    LC_TRY(lc_comm_split(c, 0, lc_comm_rank(c), &group));
    float *x = mmap(NULL, N * sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RANK_CHECK(x != MAP_FAILED);
    lc_status s = lc_comm_barrier(c, NULL); /* the other rank may have given up already */
    if (s >= 0) s = lc_comm_all_reduce(group, x, x, N, LC_F32, LC_COMM_SUM, &r);
    if (s >= 0) s = lc_comm_progress(group);
    RANK_CHECK(s >= 0 || s == LC_ERR_PEER);
    usleep((useconds_t)(2000 + *(int *)ctx * 700));
    lc__comm_give_up(c, "enough");
    munmap(x, N * sizeof *x);
    usleep(10000);
    lc_comm_free(group);
    return LC_OK;
}

TEST(memory_of_calls_of_a_group_is_not_touched_either)
{
    for (int i = 0; i < 20; i++) CHECK_RANKS("tcp", 2, give_up_a_group, &i);
}

/* The nice value of this process's thread; -100: there is no thread yet. */
static int niceness(void)
{
    DIR *d = opendir("/proc/self/task");
    int nice = -100;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f && fgets(name, sizeof name, f) && !strcmp(name, "lc_progress\n"))
            nice = getpriority(PRIO_PROCESS, (id_t)atoi(e->d_name));
        if (f) fclose(f);
    }
    if (d) closedir(d);
    return nice;
}

/* The thread never runs at a higher priority than the program: neither when it has just started, nor after it has
 * looked at the program's. */
static lc_status look_at_nice(lc_comm *c, void *ctx)
{
    static float x[1 << 20];
    lc_request *r;
    (void)ctx;
    RANK_CHECK(setpriority(PRIO_PROCESS, 0, 19) == 0);
    LC_TRY(lc_comm_all_reduce(c, x, x, 1 << 20, LC_F32, LC_COMM_SUM, &r));
    LC_TRY(lc_comm_progress(c));
    for (int ms = 0; ms < 10000 && niceness() == -100; ms++) usleep(1000);
    usleep(20000);
    RANK_CHECK(niceness() == 19);
    return lc_comm_wait(r);
}

TEST(the_thread_is_as_nice_as_the_program)
{
    CHECK_RANKS("tcp", 2, look_at_nice, NULL);
}

TEST_MAIN
