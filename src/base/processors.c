/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas are in cpu.max (version 2 of control groups) or in cpu.cfs_quota_us and cpu.cfs_period_us (version 1, in the
 * hierarchy of the controller "cpu"), for a group and all groups below it together. A container may see the tree of its
 * host, or only that of its own group, in which only the top of the path that /proc names exists. */
#define _GNU_SOURCE /* CPU_COUNT */
#include "base/processors.h"

#include <lightc/graph.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* Reads the numbers that a file begins with, at most two ("max" is not a number). Returns how many there are. */
static int read_numbers(const char *dir, const char *name, long long *a, long long *b)
{
    char path[2 * PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    int n = f ? fscanf(f, "%lld %lld", a, b) : 0;
    if (f) fclose(f);
    return n;
}

static int quota_of(const char *dir)
{
    long long quota, period, unused;
    bool known = read_numbers(dir, "cpu.max", &quota, &period) == 2 ||
                 (read_numbers(dir, "cpu.cfs_quota_us", &quota, &unused) == 1 &&
                  read_numbers(dir, "cpu.cfs_period_us", &period, &unused) == 1);
    if (!known || quota <= 0 || period <= 0) return INT_MAX;
    long long processors = quota / period + (quota % period != 0);
    return processors < INT_MAX ? (int)processors : INT_MAX;
}

/* Quota of `group` and those above it, in the tree mounted at `top`. Truncates `group`. */
static int smallest(const char *top, char *group)
{
    char dir[2 * PATH_SIZE];
    int least = INT_MAX;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        snprintf(dir, sizeof dir, "%s%s", top, group);
        int quota = quota_of(dir);
        if (quota < least) least = quota;
    }
    return least;
}

/* Whether "cpuacct,cpu" has cpu. */
static bool has_cpu(const char *controllers)
{
    for (; *controllers; controllers += controllers[0] == ',') {
        size_t n = strcspn(controllers, ",");
        if (n == 3 && !strncmp(controllers, "cpu", n)) return true;
        controllers += n;
    }
    return false;
}

int lc__processors_quota(const char *root)
{
    char line[PATH_SIZE], top[PATH_SIZE];
    int least = INT_MAX;
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
    while (f && fgets(line, sizeof line, f)) { /* "4:cpu,cpuacct:/a/group", or "0::/a/group" */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(++controllers, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (*controllers && !has_cpu(controllers)) continue;
        snprintf(top, sizeof top, "%s/sys/fs/cgroup%s%s", root, *controllers ? "/" : "", controllers);
        int quota = smallest(top, group);
        if (quota < least) least = quota;
    }
    if (f) fclose(f);
    return least;
}

int lc__processors_granted(int n)
{
    int quota = lc__processors_quota("");
    return quota < n ? quota : n;
}

int lc__threads_given(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    int n = text ? atoi(text) : 0;
    return n > 0 ? n : 0;
}

int lc_processors(void)
{
    cpu_set_t set; /* too small on some machines: then all processors count */
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return lc__processors_granted(n < 1 ? 1 : n);
}
