/* SPDX-License-Identifier: Apache-2.0 */
/* A pipe that is never read, like the standard error of a program whose terminal is stopped or that is piped to
 * `less`. */
#ifndef LC_TESTS_FULL_PIPE_H
#define LC_TESTS_FULL_PIPE_H

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* A writer to ends[1] blocks. Closed by exec. */
static bool full_pipe(int ends[2])
{
    static const char line[] = "...............................................................\n";
    if (pipe(ends) != 0) return false;
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], line, sizeof line - 1) > 0) continue;
    return fcntl(ends[1], F_SETFL, 0) == 0;
}

/* Reads until every writer has closed the pipe, including this process. Leaves the end of what was read in `text`. */
static void full_pipe_drain(int ends[2], char *text, size_t size)
{
    char part[4096];
    size_t n = 0;
    close(ends[1]);
    for (ssize_t k; (k = read(ends[0], part, sizeof part)) > 0;)
        for (ssize_t i = 0; i < k; i++) {
            if (n + 1 == size) memmove(text, text + size / 2, n -= size / 2);
            text[n++] = part[i];
        }
    text[n] = 0;
    close(ends[0]);
}

#endif
