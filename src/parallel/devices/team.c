/* SPDX-License-Identifier: Apache-2.0 */
/* A run is a round: its number goes up, and members that see the new number work. `left` counts the members that have
 * not finished. */
#include "parallel/devices/team.h"

#include "base/spin.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SPINS 4000 /* about ten microseconds */

typedef struct member {
    lc__team *team;
    int i;
    pthread_t thread;
} member;

struct lc__team {
    int n, spins;
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    atomic_uint round;
    atomic_int left;
    bool stop;
    int active;
    void (*fn)(void *ctx, int i);
    void *ctx;
    member *members; /* from 1 */
};

static unsigned wait_for_round(lc__team *t, unsigned last)
{
    for (int i = 0; i < t->spins; i++) {
        if (atomic_load_explicit(&t->round, memory_order_acquire) != last) break;
        lc__spin();
    }
    if (atomic_load_explicit(&t->round, memory_order_acquire) == last) {
        pthread_mutex_lock(&t->lock);
        while (atomic_load_explicit(&t->round, memory_order_acquire) == last) pthread_cond_wait(&t->begun, &t->lock);
        pthread_mutex_unlock(&t->lock);
    }
    return atomic_load_explicit(&t->round, memory_order_acquire);
}

static void *work(void *arg)
{
    const member *m = arg;
    lc__team *t = m->team;
    for (unsigned round = 0;;) {
        round = wait_for_round(t, round);
        if (t->stop) return NULL;
        if (m->i < t->active) t->fn(t->ctx, m->i);
        if (atomic_fetch_sub_explicit(&t->left, 1, memory_order_acq_rel) > 1) continue;
        pthread_mutex_lock(&t->lock);
        pthread_cond_signal(&t->ended);
        pthread_mutex_unlock(&t->lock);
    }
}

static void begin_round(lc__team *t)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add_explicit(&t->round, 1, memory_order_acq_rel);
    pthread_cond_broadcast(&t->begun);
    pthread_mutex_unlock(&t->lock);
}

void lc__team_run(lc__team *t, int n, void (*fn)(void *ctx, int i), void *ctx)
{
    if (n > 1) {
        t->fn = fn;
        t->ctx = ctx;
        t->active = n;
        atomic_store_explicit(&t->left, t->n - 1, memory_order_relaxed);
        begin_round(t);
    }
    if (n > 0) fn(ctx, 0);
    if (n <= 1) return;
    for (int i = 0; i < t->spins && atomic_load_explicit(&t->left, memory_order_acquire); i++) lc__spin();
    if (!atomic_load_explicit(&t->left, memory_order_acquire)) return;
    pthread_mutex_lock(&t->lock);
    while (atomic_load_explicit(&t->left, memory_order_acquire)) pthread_cond_wait(&t->ended, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

lc_status lc__team_new(int n, lc__team **out)
{
    const char *policy = getenv("OMP_WAIT_POLICY");
    lc__team *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t) t->members = calloc((size_t)n, sizeof *t->members);
    if (!t || !t->members) {
        free(t);
        return lc_fail(LC_ERR_MEMORY, "out of memory: %d threads", n);
    }
    t->n = 1;
    t->spins = policy && !strcmp(policy, "passive") ? 0 : SPINS;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->begun, NULL);
    pthread_cond_init(&t->ended, NULL);
    for (int i = 1; i < n; i++) {
        t->members[i] = (member){.team = t, .i = i};
        lc_status s = lc__thread_start(&t->members[i].thread, work, &t->members[i], "device %d of %d", i + 1, n);
        if (s < 0) {
            lc__team_free(t);
            return s;
        }
        t->n++;
    }
    *out = t;
    return LC_OK;
}

void lc__team_free(lc__team *t)
{
    if (!t) return;
    t->stop = true;
    begin_round(t);
    for (int i = 1; i < t->n; i++) pthread_join(t->members[i].thread, NULL);
    pthread_cond_destroy(&t->begun);
    pthread_cond_destroy(&t->ended);
    pthread_mutex_destroy(&t->lock);
    free(t->members);
    free(t);
}
