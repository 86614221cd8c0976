/* SPDX-License-Identifier: Apache-2.0 */
/* A directory (in $TMPDIR) for what a test program writes, removed when the program ends (but not when its children
 * do), and clocks. */
#ifndef LC_TESTS_SCRATCH_H
#define LC_TESTS_SCRATCH_H

#include "remove_tree.h"
#include "test.h"
#include "base/io.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char scratch_root[200];
static pid_t scratch_owner;

__attribute__((constructor)) static void scratch_make(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch_root, sizeof scratch_root, "%s/lightc-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch_root)) abort();
    scratch_owner = getpid();
}

__attribute__((destructor)) static void scratch_remove(void)
{
    if (getpid() == scratch_owner && !remove_tree(scratch_root)) fprintf(stderr, "%s is left behind\n", scratch_root);
}

/* An empty directory in it; the path is valid until the next call. */
static inline const char *fresh_dir(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", scratch_root, name);
    CHECK(remove_tree(path));
    CHECK(!mkdir(path, 0777));
    return path;
}

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

#endif
