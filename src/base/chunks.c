/* SPDX-License-Identifier: Apache-2.0 */
/* A loop over chunks, shared by a few threads. */
#define _GNU_SOURCE
#include "base/chunks.h"
#include "base/thread.h"

#include <lightc/graph.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MAX_THREADS 4 /* more do not make a device or the page cache faster */

typedef struct work {
    uint64_t n;
    lc_status (*fn)(void *ctx, uint64_t i);
    void *ctx;
    atomic_ullong next;
    atomic_bool failed;
    pthread_mutex_t lock;
    lc_status status;
    char message[1024];
} work;

static void *run(void *arg)
{
    work *w = arg;
    while (!atomic_load(&w->failed)) {
        uint64_t i = atomic_fetch_add(&w->next, 1);
        if (i >= w->n) break;
        lc_status status = w->fn(w->ctx, i);
        if (status >= 0) continue;
        pthread_mutex_lock(&w->lock);
        if (w->status >= 0) {
            w->status = status;
            snprintf(w->message, sizeof w->message, "%s", lc_error_message());
        }
        pthread_mutex_unlock(&w->lock);
        atomic_store(&w->failed, true);
    }
    return NULL;
}

lc_status lc__for_chunks(uint64_t n, lc_status (*fn)(void *ctx, uint64_t i), void *ctx)
{
    work w = {.n = n, .fn = fn, .ctx = ctx, .status = LC_OK};
    atomic_init(&w.next, 0);
    atomic_init(&w.failed, false);
    pthread_mutex_init(&w.lock, NULL);
    int processors = lc_processors();
    uint64_t threads = processors > MAX_THREADS ? MAX_THREADS : (uint64_t)processors;
    if (threads > n) threads = n;
    pthread_t others[MAX_THREADS];
    uint64_t started = 0;
    while (started + 1 < threads && !lc__thread_create(&others[started], run, &w)) started++;
    run(&w);
    for (uint64_t i = 0; i < started; i++) pthread_join(others[i], NULL);
    pthread_mutex_destroy(&w.lock);
    return w.status < 0 ? lc_fail(w.status, "%s", w.message) : LC_OK;
}
