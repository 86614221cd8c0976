/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own. */
#ifndef LC_BASE_THREAD_H
#define LC_BASE_THREAD_H

#include <pthread.h>

/* pthread_create with all signals blocked, so that the program's handlers run on the program's own threads. */
int lc__thread_create(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
