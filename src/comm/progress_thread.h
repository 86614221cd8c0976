/* SPDX-License-Identifier: Apache-2.0 */
/* A backend whose calls progress while their rank computes: a thread drives them, sleeping unless data moves.
 *
 * Either the rank or the thread has the backend, never both. The rank has it at first, so a call that is waited for at
 * once costs nothing more. When the rank turns to other work (lc_comm_progress), the thread gets it until all calls are
 * done; calls that the rank starts meanwhile are handed over, and it is notified of those it waits for. */
#ifndef LC_COMM_PROGRESS_THREAD_H
#define LC_COMM_PROGRESS_THREAD_H

#include <lightc/comm.h>

/* Wraps a backend that has `sleep`: *ops and *self become those of the wrapper, which frees the backend. */
lc_status lc__progress_thread_new(lc_comm_ops *ops, void **self) LC_MUST_USE;
/* The rank makes no more calls. When this returns, the memory of running calls is no longer used. */
void lc__progress_thread_drop(void *self);

#endif
