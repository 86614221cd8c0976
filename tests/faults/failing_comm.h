/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator over another one that fails in a call chosen by the test, on one rank. A rank's calls are those that
 * it starts and the groups that it splits off, including the calls of these groups.
 *
 *   REFUSED     the call cannot be started, only on this rank
 *   BROKEN_OFF  it is started, and fails when it is polled
 *   LOST        the connections to all others are lost: they get an error too
 *
 * With `carried`, a thread moves bytes while the rank computes, as over TCP. */
#ifndef LC_TESTS_FAILING_COMM_H
#define LC_TESTS_FAILING_COMM_H

#include <lightc/comm.h>
#include <lightc/lightc.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef enum failure { REFUSED, BROKEN_OFF, LOST, FAILURES } failure;
static const char *const failure_names[FAILURES] = {"refused", "broken off", "lost"};

/* The failure that is planned for one rank. */
typedef struct failing_plan {
    int rank;
    bool carried;
    failure how;
    atomic_long at, calls; /* at 0: never */
    lc_comm *root;         /* the communicator to abort on all ranks if one is lost */
} failing_plan;

typedef struct failing {
    lc_comm *inner;
    failing_plan *plan;
} failing;

typedef struct failing_call {
    lc_request *request;
    bool breaks_off;
} failing_call;

static inline void failing_text(const failing_plan *p, char *text, size_t size)
{
    snprintf(text, size, "call %ld of rank %d is %s", atomic_load(&p->at), p->rank, failure_names[p->how]);
}

static inline bool failing_now(failing_plan *p)
{
    return atomic_fetch_add(&p->calls, 1) + 1 == atomic_load(&p->at);
}

static inline lc_status failing_end(const failing_plan *p)
{
    char why[96];
    failing_text(p, why, sizeof why);
    if (p->how == LOST) lc_comm_abort(p->root, why);
    return lc_fail(p->how == LOST ? LC_ERR_PEER : LC_ERR_IO, "%s", why);
}

static inline lc_status failing_start(void *self, const lc_comm_call *call, void *state)
{
    failing *f = self;
    failing_call *c = state;
    bool now = failing_now(f->plan);
    c->breaks_off = now && f->plan->how == BROKEN_OFF;
    if (now && !c->breaks_off) return failing_end(f->plan);
    return lc_comm_start(f->inner, call, &c->request);
}

static inline lc_status failing_poll(void *self, void *state, bool *done)
{
    failing *f = self;
    failing_call *c = state;
    if (!c) return lc_comm_progress(f->inner);
    return c->breaks_off ? failing_end(f->plan) : lc_comm_poll(c->request, done);
}

static inline void failing_free(void *self)
{
    failing *f = self;
    lc_comm_free(f->inner);
    free(f);
}

static inline lc_status failing_split(void *self, int color, int key, int *rank, int *size, void **out)
{
    failing *f = self;
    lc_comm *group;
    if (failing_now(f->plan)) return failing_end(f->plan);
    LC_TRY(lc_comm_split(f->inner, color, key, &group));
    if (!group) return LC_OK;
    failing *made = malloc(sizeof *made);
    *made = (failing){group, f->plan};
    *rank = lc_comm_rank(group);
    *size = lc_comm_size(group);
    *out = made;
    return LC_OK;
}

static inline void failing_abort(void *self, const char *why)
{
    lc_comm_abort(((failing *)self)->inner, why);
}

/* There are fewer cores than ranks. */
static inline void failing_idle(void *self, int microseconds)
{
    (void)self, (void)microseconds;
    nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
}

static inline int failing_sleep(void *self, int microseconds, bool hurry)
{
    (void)self, (void)microseconds, (void)hurry;
    nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    return 0;
}

/* Takes ownership of `inner`, even if it fails. */
static inline lc_status failing_comm_new(lc_comm *inner, failing_plan *plan, lc_comm **out)
{
    const lc_comm_ops ops = {
        LC_COMM_OPS_INIT("failing"),
        .state_bytes = sizeof(failing_call),
        .start = failing_start,
        .poll = failing_poll,
        .split = failing_split,
        .free = failing_free,
        .idle = failing_idle,
        .abort = failing_abort,
        .sleep = plan->carried ? failing_sleep : NULL,
    };
    failing *f = malloc(sizeof *f);
    *f = (failing){inner, plan};
    plan->root = inner;
    return lc_comm_new(&ops, f, lc_comm_rank(inner), lc_comm_size(inner), out);
}

#endif
