/* SPDX-License-Identifier: Apache-2.0 */
/* Runs for the tests of the control channel: ranks are processes made by fork, the coordinator a thread of the test (or
 * of a rank). */
#ifndef LC_TESTS_CONTROL_RUN_H
#define LC_TESTS_CONTROL_RUN_H

#include "test.h"

#include "comm/control/control.h"
#include "comm/control/wire.h"
#include "comm/coordinator/coordinator_internal.h"
#include "comm/net/socket.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET   "0123456789abcdef0123456789abcdef"
#define IDENTITY 77 /* of all ranks, since they have one launcher */
enum { RANKS = 4 };

/* ---- a run ---- */

typedef struct run run;
typedef lc_status rank_fn(run *r, lc__control *c, int rank);

struct run { /* in memory that all processes share */
    int size;
    rank_fn *fn;
    lc__control_times times;
    const char *secrets[RANKS];                /* NULL: the right one */
    bool late[RANKS];                          /* starts when `go` is set */
    const char *launcher;                      /* as of lc__control_args */
    void (*say)(void *said, const char *text); /* NULL: note_said */
    atomic_int port, here, go;
    struct {
        pid_t pid;
        lc_status status;
        char message[LC__END_TEXT], said[512];
        double took; /* seconds until fn returned, or the start failed */
    } ranks[RANKS];
};

__attribute__((unused)) static void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

/* Waits until *what is at least n; false after 20 s. */
__attribute__((unused)) static bool await(atomic_int *what, int n)
{
    for (int i = 0; i < 20000; i++) {
        if (atomic_load(what) >= n) return true;
        nap(0.001);
    }
    return false;
}

__attribute__((unused)) static run *run_new(int size, rank_fn *fn, lc__control_times times)
{
    run *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    r->size = size;
    r->fn = fn;
    r->times = times;
    return r;
}

__attribute__((unused)) static void note_said(void *ctx, const char *text)
{
    snprintf(ctx, sizeof((run *)0)->ranks[0].said, "%s", text);
}

__attribute__((unused)) static lc_status be_rank(run *r, int rank)
{
    lc__control *c = NULL;
    await(&r->port, 1);
    if (r->late[rank]) await(&r->go, 1);
    lc__control_args o = {.rank = rank,
                          .size = r->size,
                          .address = "127.0.0.1",
                          .port = atomic_load(&r->port),
                          .secret = r->secrets[rank] ? r->secrets[rank] : SECRET,
                          .identity = IDENTITY,
                          .times = r->times,
                          .launcher = r->launcher,
                          .say = r->say ? r->say : note_said,
                          .ctx = r->ranks[rank].said};
    LC_TRY(lc__control_open(&o, &c));
    atomic_fetch_add(&r->here, 1);
    lc_status s = r->fn(r, c, rank);
    lc__control_close(c);
    return s;
}

/* Processes are made before there are threads. */
__attribute__((unused)) static void run_fork(run *r, int rank)
{
    fflush(NULL);
    r->ranks[rank].status = LC_ERR_INTERNAL;
    pid_t pid = fork();
    if (pid) {
        r->ranks[rank].pid = pid;
        return;
    }
    double start = lc__seconds();
    lc_status s = be_rank(r, rank);
    r->ranks[rank].took = lc__seconds() - start;
    snprintf(r->ranks[rank].message, sizeof r->ranks[rank].message, "%s", s < 0 ? lc_error_message() : "");
    r->ranks[rank].status = s;
    _exit(0);
}

__attribute__((unused)) static lc__coordinator *run_coordinate(run *r)
{
    lc__coordinator *c = NULL;
    int port = atomic_load(&r->port); /* any, if none was chosen */
    if (lc__coordinator_start(NULL, &port, r->size, SECRET, &r->times, &c) < 0) return NULL;
    atomic_store(&r->port, port);
    return c;
}

__attribute__((unused)) static lc__coordinator *run_start(run *r)
{
    for (int i = 0; i < r->size; i++) run_fork(r, i);
    return run_coordinate(r);
}

/* Waits until the coordinator in this process knows that a rank is in step `step`, or (-1) that it has failed; false
 * after `seconds`. */
__attribute__((unused)) static bool run_hears(lc__coordinator *c, int rank, int64_t step, double seconds)
{
    for (double until = lc__seconds() + seconds; lc__seconds() < until; nap(0.001)) {
        pthread_mutex_lock(&c->lock);
        bool heard = step < 0 ? c->members[rank].state == LC__FAILED : c->members[rank].step == step;
        pthread_mutex_unlock(&c->lock);
        if (heard) return true;
    }
    return false;
}

/* The rank's exit status, as from waitpid. */
__attribute__((unused)) static int run_reap(run *r, int rank)
{
    int how = -1;
    if (r->ranks[rank].pid > 0) waitpid(r->ranks[rank].pid, &how, 0);
    return how;
}

__attribute__((unused)) static void run_signal(run *r, int rank, int signal)
{
    if (r->ranks[rank].pid > 0) kill(r->ranks[rank].pid, signal);
}

__attribute__((unused)) static void run_free(run *r)
{
    munmap(r, sizeof *r);
}

__attribute__((unused)) static const char *host(void)
{
    static char name[80], text[100];
    gethostname(name, sizeof name - 1);
    name[LC__HOST_TEXT - 1] = 0;
    snprintf(text, sizeof text, "(host %s)", name);
    return text;
}

#define CHECK_ENDED(r, rank, text)                                                                                     \
    do {                                                                                                               \
        if ((r)->ranks[rank].status != LC_ERR_PEER)                                                                    \
            TEST_FAIL("rank %d: status %d, \"%s\"", rank, (int)(r)->ranks[rank].status, (r)->ranks[rank].message);     \
        CHECK_CONTAINS((r)->ranks[rank].message, text);                                                                \
    } while (0)

/* Ranks that run without a failure: they exchange data of several sizes. */
__attribute__((unused)) static lc_status meet(run *r, lc__control *c, int rank)
{
    static const size_t sizes[] = {4, 0, 1, 1000, LC__MEETING_BYTES};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        unsigned char *mine = malloc(n + 1), *all = malloc(n * (size_t)r->size + 1);
        memset(mine, 'a' + rank, n);
        LC_TRY(lc__control_all_gather(c, mine, all, n));
        for (size_t i = 0; i < n * (size_t)r->size; i++)
            if (all[i] != 'a' + i / n) return lc_fail(LC_ERR_INTERNAL, "byte %zu of %zu", i, n);
        free(mine), free(all);
    }
    if (lc__control_all_gather(c, NULL, NULL, LC__MEETING_BYTES + 1) != LC_ERR_ARGUMENT)
        return lc_fail(LC_ERR_INTERNAL, "too much is taken");
    return LC_OK;
}

/* A rank that only waits. */
__attribute__((unused)) static lc_status wait_for_end(run *r, lc__control *c, int rank)
{
    (void)r, (void)rank;
    char text[LC__END_TEXT];
    for (int i = 0; i < 20000; i++) {
        if (lc__control_ended(c, text, sizeof text)) return lc_fail(LC_ERR_PEER, "%s", text);
        nap(0.001);
    }
    return LC_OK;
}

/* Rank 0 says goodbye, which does not end the others. */
__attribute__((unused)) static lc_status leave_early(run *r, lc__control *c, int rank)
{
    char text[LC__END_TEXT];
    if (rank == 0) return LC_OK;
    nap(0.6);
    (void)r;
    return lc__control_ended(c, text, sizeof text) ? lc_fail(LC_ERR_INTERNAL, "%s", text) : LC_OK;
}

#endif
