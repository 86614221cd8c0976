/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that a run starts. */
#define _GNU_SOURCE /* pipe2 */
#include "base/spawn.h"

#include "base/clock.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LOOK_MS = 20 };

/* posix_spawnp with the signals of a fresh program: this thread may have blocked some, and ignored these two. */
static int spawn(char *const argv[], char *const *environment, const posix_spawn_file_actions_t *files, bool own_group,
                 pid_t *pid)
{
    sigset_t none, ignored;
    posix_spawnattr_t attributes;
    sigemptyset(&none);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    sigaddset(&ignored, SIGXFSZ);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(
        &attributes, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0)));
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ignored);
    int error = posix_spawnp(pid, argv[0], files, &attributes, argv, environment ? environment : environ);
    posix_spawnattr_destroy(&attributes);
    return error;
}

lc_status lc__spawn_shell(const char *command, char *const *environment, bool silent, pid_t *child, int *in)
{
    int fds[2];
    posix_spawn_file_actions_t files;
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)(uintptr_t)command, NULL};
    if (pipe2(fds, O_CLOEXEC) < 0) return lc__io_fail(errno, "make a pipe for", command);
    if (fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0) { /* only for this end */
        lc_status status = lc__io_fail(errno, "write to", command);
        close(fds[0]);
        close(fds[1]);
        return status;
    }
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fds[0], 0);
    for (int fd = 1; fd <= 2 && silent; fd++) posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_WRONLY, 0);
    int error = spawn(argv, environment, &files, true, child);
    posix_spawn_file_actions_destroy(&files);
    close(fds[0]);
    if (error) {
        *child = 0;
        close(fds[1]);
        return lc__io_fail(error, "start", command);
    }
    *in = fds[1];
    return LC_OK;
}

/* Reads what has arrived; the beginning goes into `text`, of which *n bytes are used. False: end of file. */
static bool take(int from, char *text, size_t size, size_t *n)
{
    char rest[256];
    for (;;) {
        bool room = *n + 1 < size;
        ssize_t got = room ? read(from, text + *n, size - 1 - *n) : read(from, rest, sizeof rest);
        if (got > 0 && room) *n += (size_t)got;
        if (got == 0) return false;
        if (got < 0 && errno != EINTR) return errno == EAGAIN;
    }
}

lc_status lc__spawn_ask(char *const argv[], double seconds, char *text, size_t size)
{
    posix_spawn_file_actions_t files;
    pid_t pid;
    int out[2], status = 0;
    size_t n = 0;
    *text = 0;
    if (pipe2(out, O_CLOEXEC) != 0) return lc__io_fail(errno, "make a pipe for", argv[0]);
    fcntl(out[0], F_SETFL, O_NONBLOCK); /* only for this end */
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    int failed = spawn(argv, NULL, &files, false, &pid);
    posix_spawn_file_actions_destroy(&files);
    close(out[1]);
    bool ended = failed != 0, late = false;
    struct pollfd from = {.fd = out[0], .events = POLLIN};
    for (int64_t until = lc__now_ms() + (int64_t)(seconds * 1e3); !ended && !late;) {
        ended = waitpid(pid, &status, WNOHANG) != 0;
        late = !ended && lc__now_ms() > until;
        poll(&from, 1, ended || late ? 0 : LOOK_MS);
        if (from.fd >= 0 && !take(out[0], text, size, &n)) from.fd = -1;
        text[n] = 0;
    }
    close(out[0]);
    if (failed) return lc__io_fail(failed, "start", argv[0]);
    if (late) {
        kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        return lc_fail(LC_ERR_IO, "%s %s did not exit within %g s and was killed", argv[0], argv[1], seconds);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return LC_OK;
    return lc_fail(LC_ERR_IO, "%s %s failed: %s %d", argv[0], argv[1],
                   WIFSIGNALED(status) ? "killed by signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}
