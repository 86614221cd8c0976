/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ends of the control channel share: coordinator*.c and control.c. */
#ifndef LC_COMM_CONTROL_INTERNAL_H
#define LC_COMM_CONTROL_INTERNAL_H

#include "comm/control.h"
#include "comm/control_wire.h"

#include <pthread.h>

enum { LC__CONTROL_VERSION = 1 }; /* of the messages */

lc_status lc__control_check_secret(const char *secret) LC_MUST_USE;
/* Defaults in place of zeros; NULL: all of them. */
lc__control_times lc__control_default_times(const lc__control_times *times);
/* A thread that gets no signals: they are for the program's own threads. Returns as pthread_create. */
int lc__control_thread(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
