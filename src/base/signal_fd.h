/* SPDX-License-Identifier: Apache-2.0 */
/* Signals read from a descriptor, while it is open.
 *
 * A library should have no global flag, and nothing else reaches a signal handler; so no handler does the work. The
 * signals are blocked in the calling thread and read from a signalfd. Threads that existed before do not block them: in
 * these, a handler blocks the signal from then on and sends it to the process again, with the original sender, until
 * only the descriptor is left to take it. Signals that the program itself handles, ignores or blocks are left as they
 * are. */
#ifndef LC_BASE_SIGNAL_FD_H
#define LC_BASE_SIGNAL_FD_H

#include <lightc/status.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define LC__MAX_SIGNALS 5

typedef struct lc__signal_fd {
    int fd;       /* of struct signalfd_siginfo; -1: none of the signals was left to its default */
    sigset_t set; /* those that are read */
    int n, signals[LC__MAX_SIGNALS];
    struct sigaction old[LC__MAX_SIGNALS];
    int64_t shared_ns; /* when lc__signal_fd_share last looked */
    int skips;         /* calls that do not even ask for the time, since it stood still */
} lc__signal_fd;

lc_status lc__signal_fd_open(lc__signal_fd *s, const int *signals, int n) LC_MUST_USE;
/* Sends to the process what was sent to the calling thread alone (raise), which no other thread can read. It asks the
 * kernel once in a few milliseconds, though if calls come faster, up to 16 of them later; with `now` at each call. NULL
 * is fine. */
void lc__signal_fd_share(lc__signal_fd *s, bool now);
/* Signals that arrived and were not read are delivered now, as the program handles them. Closing twice is fine. */
void lc__signal_fd_close(lc__signal_fd *s);

#endif
