/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own threads. */
#ifndef LC_BASE_THREAD_H
#define LC_BASE_THREAD_H

#include <pthread.h>

#include <lightc/status.h>

/* Starts a thread with all signals blocked, so that the program's handlers run on the program's own threads, and
 * without traps of floating-point errors. `purpose` is for the error message: "cannot start a thread for worker 2 of 4
 * of the loader: ...". */
lc_status lc__thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *purpose, ...) LC_MUST_USE
    LC_PRINTF(4, 5);
/* For callers that can do without the thread. Returns 0 or an errno. */
int lc__thread_create(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
