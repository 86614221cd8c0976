/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the build that a test runs in a shell, and what they print. */
#ifndef LC_TESTS_SAID_H
#define LC_TESTS_SAID_H

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static char said[1 << 18];

/* The folder of the programs. */
static inline const char *programs(void)
{
    static char dir[PATH_MAX];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    if (!realpath(bin ? bin : "build/bin", dir)) TEST_FAIL("the programs are not here");
    return dir;
}

/* Runs a command; `said` is all its output. Returns its exit status; 128: it was killed. */
__attribute__((format(printf, 1, 2))) static inline int run_command(const char *format, ...)
{
    static char command[4 * PATH_MAX];
    size_t n = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    FILE *f = popen(command, "r");
    CHECK(f != NULL);
    for (size_t k; n < sizeof said - 1 && (k = fread(said + n, 1, sizeof said - 1 - n, f)) > 0;) n += k;
    said[n] = 0;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static inline void check_says(const char *part)
{
    if (!strstr(said, part)) TEST_FAIL("\"%s\" is not in\n%s", part, said);
}

#endif
