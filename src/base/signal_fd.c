/* SPDX-License-Identifier: Apache-2.0 */
/* Signals read from a descriptor (signal_fd.h says how). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/clock.h"
#include "base/signal_fd.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define SKIPS 16

/* The kernel lets a thread other than the first name another sender only with SI_QUEUE. */
static void send_to_process(int sig, const siginfo_t *info)
{
    siginfo_t queued = *info;
    queued.si_code = SI_QUEUE;
    if (syscall(SYS_rt_sigqueueinfo, getpid(), sig, &queued) != 0) kill(getpid(), sig);
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    ucontext_t *u = context;
    sigaddset(&u->uc_sigmask, sig); /* takes effect when this returns */
    send_to_process(sig, info);
    errno = saved;
}

void lc__signal_fd_share(lc__signal_fd *s, bool now)
{
    sigset_t pending;
    if (!s || s->fd < 0) return;
    if (!now && s->skips-- > 0) return;
    const int64_t tick = lc__coarse_ns();
    s->skips = tick == s->shared_ns ? SKIPS : 0;
    if (!now && s->skips) return;
    s->shared_ns = tick;
    if (sigpending(&pending) != 0) return;
    for (int i = 0; i < s->n; i++) {
        siginfo_t info;
        sigset_t one;
        if (!sigismember(&pending, s->signals[i])) continue;
        sigemptyset(&one);
        sigaddset(&one, s->signals[i]);
        if (sigtimedwait(&one, &info, &(struct timespec){0}) == s->signals[i]) send_to_process(s->signals[i], &info);
    }
}

lc_status lc__signal_fd_open(lc__signal_fd *s, const int *signals, int n)
{
    sigset_t blocked;
    *s = (lc__signal_fd){.fd = -1};
    sigemptyset(&s->set);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int i = 0; i < n; i++) {
        struct sigaction now;
        if (sigismember(&blocked, signals[i]) || sigaction(signals[i], NULL, &now) != 0) continue;
        if ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) continue;
        s->signals[s->n++] = signals[i];
        sigaddset(&s->set, signals[i]);
    }
    if (!s->n) return LC_OK;
    s->fd = signalfd(-1, &s->set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0) return lc_fail(LC_ERR_IO, "cannot watch for signals: %s", strerror(errno));
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    for (int i = 0; i < s->n; i++) {
        struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(s->signals[i], &action, &s->old[i]);
    }
    return LC_OK;
}

void lc__signal_fd_close(lc__signal_fd *s)
{
    if (s->fd < 0) return;
    for (int i = 0; i < s->n; i++) sigaction(s->signals[i], &s->old[i], NULL);
    close(s->fd);
    s->fd = -1;
    pthread_sigmask(SIG_UNBLOCK, &s->set, NULL);
}
