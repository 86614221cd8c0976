/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pthread_setname_np, syscall */
#include "comm/progress_thread.h"
#include "base/status.h"
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long the thread sleeps at most if nothing moves: calls that are handed over meanwhile begin that much later, or
 * as much later as the backend lets bytes gather. */
enum { SLEEP_US = 1000 };

/* A call under way: the state that comm.c keeps for it. */
typedef struct job {
    struct job *next;
    lc_comm_call call;
    bool over;           /* set by the owner of the backend */
    atomic_bool done;    /* for the rank, which then may use the memory again */
    max_align_t state[]; /* the backend's */
} job;

typedef struct jobs {
    job *first, *last;
} jobs;

typedef struct carried {
    lc_comm_ops ops; /* the backend */
    void *self;
    jobs running;           /* used by the owner of the backend */
    atomic_bool away;       /* the thread owns the backend; set by the rank, cleared by the thread */
    atomic_bool waited_for; /* the rank waits for the thread */

    pthread_t thread;
    bool has_thread, cannot; /* cannot: no thread can be started */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t more, less;
    jobs handed; /* started while the thread has the backend */
    bool stop, dropped;
    lc_comm_stats stats; /* as of the thread's last look */
    atomic_uint_fast64_t ended;
    uint_fast64_t seen; /* `ended` as of the rank's last poll */
    atomic_int failed;  /* a status; if it is an error, there is a message */
    char message[1024];
} carried;

static void append(jobs *list, job *j)
{
    if (list->last)
        list->last->next = j;
    else
        list->first = j;
    list->last = j;
}

static void remove_job(jobs *list, const job *j)
{
    job *before = NULL, **at = &list->first;
    for (; *at != j; at = &(*at)->next) before = *at;
    *at = j->next;
    if (list->last == j) list->last = before;
}

/* ---- the thread ---- */

static lc_status begin_handed(carried *c)
{
    lc_status s = LC_OK;
    for (job *j = c->handed.first, *next; j && s >= 0; j = next) {
        next = j->next;
        j->next = NULL;
        append(&c->running, j);
        s = c->ops.start(c->self, &j->call, j->state);
    }
    c->handed = (jobs){NULL, NULL};
    return s;
}

/* Collectives end in the order of their starts, so only the first unfinished one is polled. */
static lc_status advance(carried *c)
{
    bool waits = false;
    for (job *j = c->running.first; j; j = j->next) {
        bool direct = j->call.op == LC_COMM_SEND || j->call.op == LC_COMM_RECV;
        if (j->over || (waits && !direct)) continue;
        LC_TRY(c->ops.poll(c->self, j->state, &j->over));
        if (!j->over && !direct) waits = true;
    }
    return LC_OK;
}

/* A job belongs to the rank again when `done` is set. When no job is left, the rank owns the backend again (`away`). */
static void return_done(carried *c)
{
    bool any = false;
    if (c->ops.stats) c->ops.stats(c->self, &c->stats);
    for (job *j = c->running.first, *next; j; j = next) {
        next = j->next;
        if (!j->over) continue;
        remove_job(&c->running, j);
        atomic_store(&j->done, true);
        any = true;
    }
    if (any) {
        atomic_fetch_add(&c->ended, 1);
        pthread_cond_broadcast(&c->less);
    }
    if (!c->running.first && !c->handed.first) atomic_store(&c->away, false);
}

static void drop_all(carried *c)
{
    c->running = c->handed = (jobs){NULL, NULL};
    atomic_store(&c->away, false);
    pthread_cond_broadcast(&c->less);
}

static void fail_all(carried *c, lc_status s)
{
    lc__copy_message(c->message, sizeof c->message);
    atomic_store(&c->failed, (int)s);
    atomic_fetch_add(&c->ended, 1);
    drop_all(c);
}

/* The thread needs the core for a moment at a time, but soon: the rank, which computes on it, would otherwise keep it
 * for the rest of a time slice of milliseconds. From Linux 6.12 on short slices can be asked for; otherwise nothing
 * changes. */
static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* ns */
    } attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0U) != 0) return;
    attributes.runtime = 100000;
    if (attributes.policy == SCHED_OTHER) (void)syscall(SYS_sched_setattr, 0, &attributes, 0U);
}

static struct timespec from_now(int microseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + INT64_C(1000) * microseconds;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* Sleeps, unless the rank waits for the thread. With the lock. */
static void rest(carried *c, int microseconds)
{
    const struct timespec until = from_now(microseconds);
    int status = 0;
    while (status == 0 && !atomic_load(&c->waited_for) && !c->stop && !c->dropped)
        status = pthread_cond_timedwait(&c->more, &c->lock, &until);
}

static void *carry_on(void *arg)
{
    carried *c = arg;
    ask_for_short_slices();
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (c->dropped) drop_all(c);
        if (!atomic_load(&c->away)) {
            pthread_cond_wait(&c->more, &c->lock);
            continue;
        }
        lc_status s = begin_handed(c);
        pthread_mutex_unlock(&c->lock);
        if (s >= 0) s = advance(c);
        pthread_mutex_lock(&c->lock);
        if (s < 0)
            fail_all(c, s);
        else
            return_done(c);
        if (!atomic_load(&c->away) || c->handed.first || c->stop) continue;
        pthread_mutex_unlock(&c->lock);
        int microseconds = c->ops.sleep(c->self, SLEEP_US, atomic_load(&c->waited_for));
        pthread_mutex_lock(&c->lock);
        if (microseconds > 0) rest(c, microseconds);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static bool has_thread(carried *c)
{
    if (c->has_thread || c->cannot) return c->has_thread;
    c->has_thread = lc__thread_create(&c->thread, carry_on, c) == 0;
    if (c->has_thread) (void)pthread_setname_np(c->thread, "lc_progress");
    c->cannot = !c->has_thread;
    return c->has_thread;
}

/* ---- the rank ---- */

static lc_status start(void *self, const lc_comm_call *call, void *state)
{
    carried *c = self;
    job *j = state;
    j->call = *call;
    if (atomic_load(&c->away)) {
        pthread_mutex_lock(&c->lock);
        bool away = atomic_load(&c->away);
        if (away) append(&c->handed, j);
        pthread_mutex_unlock(&c->lock);
        if (away) return LC_OK;
    }
    LC_TRY(c->ops.start(c->self, call, j->state));
    append(&c->running, j);
    return LC_OK;
}

static lc_status failure(const carried *c)
{
    int s = atomic_load(&c->failed);
    return s < 0 ? lc_fail((lc_status)s, "%s", c->message) : LC_OK;
}

/* Called when the rank goes on with something else. */
static lc_status hand_over(carried *c)
{
    if (!c->running.first) return LC_OK;
    if (!has_thread(c)) return c->ops.poll(c->self, NULL, NULL);
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->away, true);
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    return LC_OK;
}

static lc_status poll_call(void *self, void *state, bool *done)
{
    carried *c = self;
    job *j = state;
    c->seen = atomic_load(&c->ended);
    bool away = atomic_load(&c->away); /* read before `done` and `failed`, which are set first */
    LC_TRY(failure(c));
    if (!j) return away ? LC_OK : hand_over(c);
    *done = atomic_load(&j->done);
    if (*done || away) return LC_OK;
    LC_TRY(c->ops.poll(c->self, j->state, done));
    if (*done) remove_job(&c->running, j);
    return LC_OK;
}

static void idle(void *self, int microseconds)
{
    carried *c = self;
    if (!atomic_load(&c->away)) {
        if (atomic_load(&c->ended) != c->seen) return;
        if (c->ops.idle) c->ops.idle(c->self, microseconds);
        return;
    }
    const struct timespec until = from_now(microseconds);
    atomic_store(&c->waited_for, true);
    pthread_mutex_lock(&c->lock);
    pthread_cond_signal(&c->more);
    if (atomic_load(&c->ended) == c->seen) (void)pthread_cond_timedwait(&c->less, &c->lock, &until);
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->waited_for, false);
}

static void abort_all(void *self, const char *why)
{
    carried *c = self;
    if (c->ops.abort) c->ops.abort(c->self, why);
}

static void stats(void *self, lc_comm_stats *io)
{
    carried *c = self;
    if (!c->ops.stats) return;
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->away))
        io->sent = c->stats.sent, io->sent_across = c->stats.sent_across;
    else
        c->ops.stats(c->self, io);
    pthread_mutex_unlock(&c->lock);
}

static uint64_t moved(void *self)
{
    carried *c = self;
    return c->ops.moved(c->self);
}

void lc__progress_thread_drop(void *self)
{
    carried *c = self;
    pthread_mutex_lock(&c->lock);
    c->dropped = true;
    pthread_cond_signal(&c->more);
    while (atomic_load(&c->away)) pthread_cond_wait(&c->less, &c->lock);
    c->running = (jobs){NULL, NULL};
    pthread_mutex_unlock(&c->lock);
}

static void carried_free(void *self)
{
    carried *c = self;
    if (c->has_thread) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_cond_signal(&c->more);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
    }
    c->ops.free(c->self);
    pthread_cond_destroy(&c->more);
    pthread_cond_destroy(&c->less);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- around a backend ---- */

/* Takes ownership of the backend, also on failure. */
static lc_status wrap(const lc_comm_ops *ops, void *self, void **out)
{
    pthread_condattr_t monotonic;
    carried *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        ops->free(self);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a communicator");
    }
    c->ops = *ops;
    c->self = self;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, &monotonic);
    pthread_cond_init(&c->less, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = c;
    return LC_OK;
}

static lc_status split(void *self, int color, int key, int *rank, int *size, void **out)
{
    carried *c = self;
    void *group = NULL;
    LC_TRY(c->ops.split(c->self, color, key, rank, size, &group));
    return group ? wrap(&c->ops, group, out) : LC_OK;
}

lc_status lc__progress_thread_new(lc_comm_ops *ops, void **self)
{
    void *c;
    LC_TRY(wrap(ops, *self, &c));
    *self = c;
    *ops = (lc_comm_ops){
        .size = sizeof *ops,
        .name = ops->name,
        .state_bytes = sizeof(job) + ops->state_bytes,
        .start = start,
        .poll = poll_call,
        .split = ops->split ? split : NULL,
        .free = carried_free,
        .idle = idle,
        .abort = abort_all,
        .stats = stats,
        .moved = ops->moved ? moved : NULL,
    };
    return LC_OK;
}
