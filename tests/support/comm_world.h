/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a function once for each rank of a group, over a backend: threads of this process, or processes made by fork. A
 * rank function returns the first error; RANK_CHECK is its CHECK. */
#ifndef LC_COMM_WORLD_H
#define LC_COMM_WORLD_H

#include "test.h"

#include "comm/comm_internal.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANK_CHECK(cond)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) return lc_fail(LC_ERR_INTERNAL, "%s:%d: RANK_CHECK(%s) failed", __FILE__, __LINE__, #cond);       \
    } while (0)

typedef lc_status rank_fn(lc_comm *comm, void *ctx);

enum { WORLD_RANKS = 16, WORLD_BLOB = 4096 };

/* What ranks leave for each other and for the test, in memory that processes share. */
typedef struct world {
    int size;
    struct {
        lc_status status;
        char message[1024];
        _Alignas(16) char blob[WORLD_BLOB];
    } ranks[WORLD_RANKS];
    atomic_int arrived, generation;
} world;

/* ---- a meeting over the shared page ---- */
typedef struct world_meeting {
    world *w;
    int rank;
} world_meeting;

static inline void world_barrier(world *w)
{
    int now = atomic_load(&w->generation);
    if (atomic_fetch_add(&w->arrived, 1) + 1 == w->size) {
        atomic_store(&w->arrived, 0);
        atomic_fetch_add(&w->generation, 1);
    } else {
        while (atomic_load(&w->generation) == now) sched_yield();
    }
}

static inline lc_status world_all_gather(void *ctx, const void *mine, void *all, size_t bytes)
{
    world_meeting *m = ctx;
    if (bytes > WORLD_BLOB) return lc_fail(LC_ERR_INTERNAL, "the test's meeting is too small");
    memcpy(m->w->ranks[m->rank].blob, mine, bytes);
    world_barrier(m->w);
    for (int i = 0; i < m->w->size; i++) memcpy((char *)all + (size_t)i * bytes, m->w->ranks[i].blob, bytes);
    world_barrier(m->w);
    return LC_OK;
}

/* ---- running ---- */
typedef struct world_rank {
    world *w;
    int rank;
    lc_comm *comm;
    rank_fn *fn;
    void *ctx;
    pthread_t thread;
} world_rank;

static inline void world_note(world *w, int rank, lc_status s)
{
    w->ranks[rank].status = s;
    if (s < 0) snprintf(w->ranks[rank].message, sizeof w->ranks[rank].message, "%s", lc_error_message());
}

static inline void *world_thread(void *arg)
{
    world_rank *r = arg;
    lc_status s = r->fn(r->comm, r->ctx);
    world_note(r->w, r->rank, s);
    if (s < 0) lc_comm_abort(r->comm, r->w->ranks[r->rank].message);
    return NULL;
}

static inline world *world_new(int size)
{
    world *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w == MAP_FAILED) return NULL;
    w->size = size;
    return w;
}

static inline void world_run_threads(world *w, rank_fn *fn, void *ctx)
{
    lc_comm *comms[WORLD_RANKS];
    world_rank ranks[WORLD_RANKS];
    lc_status made = lc_comm_threads(w->size, comms);
    for (int i = 0; i < w->size; i++) {
        ranks[i] = (world_rank){w, i, comms[i], fn, ctx, 0};
        if (made < 0) world_note(w, i, made);
        if (made >= 0) pthread_create(&ranks[i].thread, NULL, world_thread, &ranks[i]);
    }
    for (int i = 0; i < w->size && made >= 0; i++) {
        pthread_join(ranks[i].thread, NULL);
    }
    for (int i = 0; i < w->size && made >= 0; i++) lc_comm_free(comms[i]);
}

typedef lc_status world_open_fn(int rank, int size, const lc__meeting *meeting, lc_comm **out);

static inline void world_run_processes(world *w, world_open_fn *open, rank_fn *fn, void *ctx)
{
    pid_t pids[WORLD_RANKS];
    fflush(NULL);
    for (int i = 0; i < w->size; i++) {
        pids[i] = fork();
        if (pids[i]) continue;
        world_meeting m = {w, i};
        lc__meeting meeting = {LC_MEETING_INIT, .all_gather = world_all_gather, .ctx = &m};
        world_rank r = {w, i, NULL, fn, ctx, 0};
        lc_status s = open(i, w->size, &meeting, &r.comm);
        if (s < 0)
            world_note(w, i, s);
        else
            world_thread(&r);
        lc_comm_free(r.comm);
        _exit(0);
    }
    for (int i = 0; i < w->size; i++) {
        int how = 0;
        waitpid(pids[i], &how, 0);
        if (!WIFEXITED(how) || WEXITSTATUS(how)) {
            w->ranks[i].status = LC_ERR_INTERNAL;
            snprintf(w->ranks[i].message, sizeof w->ranks[i].message, "the process ended with %#x", how);
        }
    }
}

static inline lc_status world_tcp(int rank, int size, const lc__meeting *meeting, lc_comm **out)
{
    return lc_comm_tcp("127.0.0.1", rank, size, meeting, out);
}

static int world_per_host; /* ranks of a simulated host */

static inline lc_status world_shm_tcp(int rank, int size, const lc__meeting *meeting, lc_comm **out)
{
    return lc_comm_shm_tcp("127.0.0.1", rank / world_per_host + 40, rank, size, meeting, out);
}

/* Runs fn on `size` ranks; "threads", "shm", "tcp", or "shm+tcp/L" with L ranks on each host. The caller unmaps with
 * world_free. */
static inline world *world_run(const char *backend, int size, rank_fn *fn, void *ctx)
{
    world *w = world_new(size);
    if (!strcmp(backend, "threads")) {
        world_run_threads(w, fn, ctx);
    } else if (!strncmp(backend, "shm+tcp/", 8)) {
        world_per_host = atoi(backend + 8);
        world_run_processes(w, world_shm_tcp, fn, ctx);
    } else {
        world_run_processes(w, !strcmp(backend, "tcp") ? world_tcp : lc_comm_shm, fn, ctx);
    }
    return w;
}

static inline void world_free(world *w)
{
    munmap(w, sizeof *w);
}

#define CHECK_RANKS(backend, size, fn, ctx)                                                                            \
    do {                                                                                                               \
        world *world_ = world_run(backend, size, fn, ctx);                                                             \
        for (int rank_ = 0; rank_ < (size); rank_++)                                                                   \
            if (world_->ranks[rank_].status != LC_OK)                                                                  \
                TEST_FAIL("%s, %d ranks, rank %d: %s", backend, size, rank_, world_->ranks[rank_].message);            \
        world_free(world_);                                                                                            \
    } while (0)

#endif
