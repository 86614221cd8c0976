/* SPDX-License-Identifier: Apache-2.0 */
/* The helper process of a rank, which sends what the rank prints (prints.h).
 *
 * It is forked from the rank and reparented: the rank may wait for all of its own children. It is in a session of its
 * own, since mpirun kills a rank with its process group, and the last output must still be sent. It uses none of the
 * rank's memory, but pages that the rank writes later are duplicated, so start it early. */
#define _GNU_SOURCE
#include "comm/world/prints.h"

#include "comm/world/world.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Sockets and files of the rank would stay open with this process. */
static void close_from(int fd)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)fd, ~0u, 0u) == 0) return;
#endif
    long open = sysconf(_SC_OPEN_MAX);
    for (long i = fd; i < (open > 0 && open < 65536 ? open : 65536); i++) close((int)i);
}

/* A frame that follows earlier output of the rank could be cut by the end of a block. */
static void await_empty(void)
{
    int bytes;
    for (int ms = 0; ms < 1000 && ioctl(2, FIONREAD, &bytes) == 0 && bytes > 0; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* If mpirun is gone it keeps reading: a rank that prints at its end must not die of that. Signals are blocked. */
_Noreturn static void forward(int from, const char *mark, int rank)
{
    char bytes[LC__PRINT_BYTES], frame[LC__PRINT_SIZE];
    ssize_t n;
    bool sent = true;
    setsid();
    prctl(PR_SET_NAME, LC__FORWARDER);
    if (dup2(from, 0) < 0 || chdir("/") != 0) _exit(1);
    close(1);
    close_from(3);
    await_empty();
    while ((n = read(0, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0 || !sent) continue;
        lc__print_make(frame, mark, rank, bytes, (size_t)n);
        sent = lc__show(2, frame, sizeof frame);
    }
    _exit(0);
}

/* False: nobody would read from the pipe. */
static bool start(int from, const char *mark, int rank)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the program runs in the new processes */
    pid_t between = fork();
    if (between == 0) {
        if (fork() == 0) forward(from, mark, rank);
        _exit(0);
    }
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return between > 0;
}

void lc__prints_forward(void)
{
    const char *keep = getenv("LIGHTC_KEEP");
    char mark[LC__MARK_SIZE];
    struct stat s, out;
    lc__world here;
    int ends[2];
    if (!keep) return;
    bool ok = strlen(keep) == sizeof mark;
    if (ok) memcpy(mark, keep, sizeof mark);
    unsetenv("LIGHTC_KEEP");
    ok = ok && lc__world_find(&here) >= 0 && here.supervisor_reports && here.rank > 0;
    /* Anything except a pipe is not mpirun's. */
    if (!ok || fstat(2, &s) != 0 || !S_ISFIFO(s.st_mode) || pipe2(ends, O_CLOEXEC) != 0) return;
    ok = start(ends[0], mark, here.rank);
    close(ends[0]);
    struct pollfd reader = {.fd = ends[1], .events = POLLOUT};
    if (ok && poll(&reader, 1, 0) == 1 && !(reader.revents & POLLERR)) {
        if (fstat(1, &out) != 0 || !S_ISREG(out.st_mode)) dup2(ends[1], 1); /* else a script has redirected it */
        dup2(ends[1], 2);
    }
    close(ends[1]);
}
