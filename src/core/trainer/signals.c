/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT, SIGTERM and SIGHUP during a run set a flag that the loop reads between steps; a second signal ends the
 * process at once. Each SIGUSR1 asks for a checkpoint (requeue.c). A separate thread reads the signals (signal_fd.h).
 *
 * scancel, systemctl stop and pkill signal every process of a run, and the launcher of the ranks (lightc's supervisor,
 * mpirun, torchrun) passes signals on. So signals from the launcher and from others are counted separately, and one of
 * each is one request, in any order and however long the launcher takes. Ctrl-C in a terminal comes only through the
 * launcher, since each rank has its own process group: two Ctrl-C are two requests. SIGHUP never counts as a second
 * request: kernel and shell both send it when a terminal closes, and systemd sends it along with SIGTERM. SIGXFSZ is
 * ignored. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include "core/ranks/ranks.h"
#include "core/trainer/run.h"
#include "base/signal_fd.h"
#include "base/thread.h"
#include "core/hooks/trainer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

struct lc__signals {
    pthread_mutex_t lock; /* for the two pointers */
    atomic_int *flag, *save;
    atomic_int unread; /* their target when the run is over */
    pthread_t thread;
    bool started;
    lc__signal_fd signals;
    int pipe[2];
    pid_t launcher;
    int asked[2]; /* requests to end: by others, by the launcher */
};

/* The parent of the leader of this process group. The leader is this process or a script that runs it, since launchers
 * give each rank a group. -1: the leader is gone. */
static pid_t find_launcher(void)
{
    char path[64], line[256];
    int parent = -1;
    if (getpgrp() == getpid()) return getppid();
    snprintf(path, sizeof path, "/proc/%d/status", (int)getpgrp());
    FILE *f = fopen(path, "re");
    while (f && parent < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "PPid: %d", &parent) != 1) parent = -1;
    if (f) fclose(f);
    return parent;
}

/* Whether this is a second request to end, not a copy of the first that came the other way. */
static bool is_second(struct lc__signals *s, pid_t sender)
{
    bool passed_on = sender == s->launcher;
    return ++s->asked[passed_on] > 1 && s->asked[passed_on] > s->asked[!passed_on];
}

static void *watch(void *arg)
{
    struct lc__signals *s = arg;
    for (;;) {
        struct pollfd fds[] = {{.fd = s->signals.fd, .events = POLLIN}, {.fd = s->pipe[0], .events = POLLIN}};
        struct signalfd_siginfo info;
        if (poll(fds, 2, -1) < 0 && errno == EINTR) continue;
        if (fds[1].revents) return NULL;
        if (read(s->signals.fd, &info, sizeof info) != (ssize_t)sizeof info) continue;
        int sig = (int)info.ssi_signo, none = 0;
        pthread_mutex_lock(&s->lock);
        if (sig == SIGUSR1)
            atomic_store(s->save, 1);
        else
            atomic_compare_exchange_strong(s->flag, &none, sig);
        pthread_mutex_unlock(&s->lock);
        if (sig == SIGUSR1) continue;
        if (sig == SIGHUP || !is_second(s, (pid_t)info.ssi_pid)) continue;
        /* A second request: end at once, by the default action. */
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

/* The watch of a run that a signal ended. It outlives the run and its trainer, until another run begins: the second
 * copy of the same request may come when the program is about to print why it ended, and must not kill it. */
static struct {
    pthread_mutex_t lock;
    struct lc__signals *watch;
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void end_watch(struct lc__signals *s)
{
    if (!s) return;
    if (s->started) {
        while (write(s->pipe[1], "x", 1) < 0 && errno == EINTR) continue;
        pthread_join(s->thread, NULL);
    }
    lc__signal_fd_close(&s->signals);
    for (int i = 0; i < 2; i++)
        if (s->pipe[i] >= 0) close(s->pipe[i]);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void replace_kept(struct lc__signals *by)
{
    pthread_mutex_lock(&keeper.lock);
    struct lc__signals *kept = keeper.watch;
    keeper.watch = by;
    pthread_mutex_unlock(&keeper.lock);
    end_watch(kept);
}

void lc__signals_end(lc_trainer *t)
{
    struct lc__signals *s = t->run->signals;
    t->run->signals = NULL;
    t->ranks->signals = NULL;
    end_watch(s);
}

void lc__signals_keep(lc_trainer *t)
{
    struct lc__signals *s = t->run->signals;
    t->run->signals = NULL;
    t->ranks->signals = NULL;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->flag = s->save = &s->unread;
    pthread_mutex_unlock(&s->lock);
    replace_kept(s);
}

/* A write past the limit on file sizes then fails with EFBIG, which names the file, and does not end the process. It
 * stays so, since loggers and profilers write until the trainer is released. */
static void ignore_file_limit(void)
{
    struct sigaction now, ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&ignore.sa_mask);
    if (sigaction(SIGXFSZ, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) return;
    sigaction(SIGXFSZ, &ignore, NULL);
}

lc_status lc__signals_begin(lc_trainer *t)
{
    if (!t->opt.handle_signals) return LC_OK;
    ignore_file_limit();
    replace_kept(NULL);
    struct lc__signals *s = calloc(1, sizeof *s);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: signals");
    pthread_mutex_init(&s->lock, NULL);
    s->flag = &t->ranks->signal;
    s->save = &t->ranks->save_requested;
    s->launcher = find_launcher();
    s->signals.fd = s->pipe[0] = s->pipe[1] = -1;
    t->run->signals = s;
    lc_status status = LC_OK;
    LC_TRY_GOTO(status, done, lc__signal_fd_open(&s->signals, handled, sizeof handled / sizeof *handled));
    if (s->signals.fd < 0) return LC_OK;
    if (pipe2(s->pipe, O_CLOEXEC) != 0)
        status = lc_fail(LC_ERR_IO, "cannot watch for signals: %s", strerror(errno));
    else
        status = lc__thread_start(&s->thread, watch, s, "signals");
    s->started = status >= 0;
    if (s->started) t->ranks->signals = &s->signals;
done:
    if (status >= 0) return status;
    char why[256];
    lc__copy_message(why, sizeof why);
    lc__signals_end(t);
    return lc_fail(status, "%s (--handle_signals false runs without)", why);
}
