/* SPDX-License-Identifier: Apache-2.0 */
/* Shell commands that a run talks to. */
#define _GNU_SOURCE /* pipe2 */
#include "core/spawn.h"

#include "core/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

extern char **environ;

lc_status lc__spawn_shell(const char *command, char *const *environment, bool silent, pid_t *child, int *in)
{
    int fds[2];
    sigset_t none, pipe_only;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)command, NULL};
    if (pipe2(fds, O_CLOEXEC) < 0) return lc__io_fail(errno, "make a pipe for", command);
    if (fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0) { /* of this end alone */
        lc_status status = lc__io_fail(errno, "write to", command);
        close(fds[0]);
        close(fds[1]);
        return status;
    }
    sigemptyset(&none);
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &pipe_only);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fds[0], 0);
    for (int fd = 1; fd <= 2 && silent; fd++) posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_WRONLY, 0);
    int error = posix_spawn(child, "/bin/sh", &files, &attributes, argv, environment ? environment : environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(fds[0]);
    if (error) {
        *child = 0;
        close(fds[1]);
        return lc__io_fail(error, "start", command);
    }
    *in = fds[1];
    return LC_OK;
}
