/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT and SIGTERM during a run: a flag that the loop reads between steps; the second one ends the process at once.
 * SIGUSR1 asks for a checkpoint, as often as it comes (requeue.c).
 *
 * A library has no business with a global flag, and a signal handler has no other argument; so no handler does the
 * work. The signals are blocked while a run lasts and read by a thread of its own from a signalfd. Threads that existed
 * before do not block them: there a handler runs which blocks the signal in that thread from then on and sends it to
 * the process again, until only the thread that waits is left to take it. Signals that the program itself handles,
 * ignores or blocks are left alone. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/trainer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <ucontext.h>
#include <unistd.h>

static const int handled[] = {SIGINT, SIGTERM, SIGUSR1};
#define N_HANDLED (int)(sizeof handled / sizeof *handled)

struct lc__signals {
    atomic_int *flag, *save;
    pthread_t thread;
    bool started;
    int fd, pipe[2];
    sigset_t set;
    bool ours[N_HANDLED];
    struct sigaction old[N_HANDLED];
};

static void pass_on(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    ucontext_t *u = context;
    (void)info;
    sigaddset(&u->uc_sigmask, sig); /* takes effect when this returns */
    kill(getpid(), sig);
    errno = saved;
}

static void *watch(void *arg)
{
    struct lc__signals *s = arg;
    for (;;) {
        struct pollfd fds[] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->pipe[0], .events = POLLIN}};
        struct signalfd_siginfo info;
        if (poll(fds, 2, -1) < 0 && errno == EINTR) continue;
        if (fds[1].revents) return NULL;
        if (read(s->fd, &info, sizeof info) != (ssize_t)sizeof info) continue;
        int sig = (int)info.ssi_signo, none = 0;
        if (sig == SIGUSR1) {
            atomic_store(s->save, 1);
            continue;
        }
        if (atomic_compare_exchange_strong(s->flag, &none, sig)) continue;
        /* The second one: nobody wants to wait. */
        sigset_t one;
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigemptyset(&action.sa_mask);
        sigaction(sig, &action, NULL);
        sigemptyset(&one);
        sigaddset(&one, sig);
        pthread_sigmask(SIG_UNBLOCK, &one, NULL);
        raise(sig);
    }
}

lc_status lc__signals_begin(lc_trainer *t)
{
    if (!t->opt.handle_signals || t->signals) return LC_OK;
    struct lc__signals *s = calloc(1, sizeof *s);
    sigset_t blocked;
    int n = 0;
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: signals");
    s->flag = &t->signal;
    s->save = &t->save_requested;
    s->fd = s->pipe[0] = s->pipe[1] = -1;
    sigemptyset(&s->set);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int i = 0; i < N_HANDLED; i++) {
        struct sigaction now;
        if (sigismember(&blocked, handled[i]) || sigaction(handled[i], NULL, &now) != 0) continue;
        if ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) continue;
        s->ours[i] = true;
        sigaddset(&s->set, handled[i]);
        n++;
    }
    t->signals = s;
    if (!n) return LC_OK;
    s->fd = signalfd(-1, &s->set, SFD_CLOEXEC);
    if (s->fd < 0 || pipe2(s->pipe, O_CLOEXEC) != 0) {
        lc__signals_end(t);
        return lc_fail(LC_ERR_IO, "cannot watch for signals: %s (--handle_signals false runs without)",
                       strerror(errno));
    }
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    for (int i = 0; i < N_HANDLED; i++) {
        if (!s->ours[i]) continue;
        struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(handled[i], &action, &s->old[i]);
    }
    int failed = pthread_create(&s->thread, NULL, watch, s);
    s->started = failed == 0;
    if (failed) {
        lc__signals_end(t);
        return lc_fail(LC_ERR_IO, "cannot start the thread that watches for signals: %s", strerror(failed));
    }
    return LC_OK;
}

void lc__signals_end(lc_trainer *t)
{
    struct lc__signals *s = t->signals;
    if (!s) return;
    t->signals = NULL;
    if (s->started) {
        while (write(s->pipe[1], "x", 1) < 0 && errno == EINTR) continue;
        pthread_join(s->thread, NULL);
    }
    if (s->fd >= 0) {
        for (int i = 0; i < N_HANDLED; i++)
            if (s->ours[i] && (s->old[i].sa_handler || s->started)) sigaction(handled[i], &s->old[i], NULL);
        close(s->fd);
        /* What arrived too late for the run is delivered now, as the program wants it. */
        pthread_sigmask(SIG_UNBLOCK, &s->set, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (s->pipe[i] >= 0) close(s->pipe[i]);
    free(s);
}
