/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of control groups, in made-up trees. */
#define _GNU_SOURCE
#include "base/processors.h"
#include "scratch.h"

#include <lightc/graph.h>
#include <limits.h>
#include <sched.h>
#include <string.h>

typedef struct file {
    const char *path, *text;
} file;

/* The number of processors that these files grant a process. */
static int quota(const file files[6])
{
    char root[300], path[600], *dir;
    snprintf(root, sizeof root, "%s", fresh_dir("root"));
    for (int i = 0; i < 6 && files[i].path; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i].path);
        CHECK_OK(lc__path_dir(path, &dir));
        CHECK_OK(lc__make_dirs(&lc__io_system, dir));
        CHECK_OK(lc__create_file(&lc__io_system, path, files[i].text, strlen(files[i].text)));
        free(dir);
    }
    return lc__processors_quota(root);
}

#define SELF "proc/self/cgroup"
#define V2   "sys/fs/cgroup/"
#define V1   "sys/fs/cgroup/cpu,cpuacct/"

/* clang-format off */
static const struct {
    const char *what;
    int quota;
    file files[6];
} cases[] = {
    {"no /proc", INT_MAX, {{NULL, NULL}}},
    {"no files", INT_MAX, {{SELF, "0::/a/b\n"}}},
    {"a container that sees its own group", 2, {{SELF, "0::/\n"}, {V2 "cpu.max", "200000 100000\n"}}},
    {"unlimited", INT_MAX, {{SELF, "0::/a\n"}, {V2 "a/cpu.max", "max 100000\n"}}},
    {"rounded up", 3, {{SELF, "0::/a\n"}, {V2 "a/cpu.max", "200001 100000\n"}}},
    {"at least one", 1, {{SELF, "0::/a\n"}, {V2 "a/cpu.max", "1000 100000\n"}}},
    {"a period of its own", 4, {{SELF, "0::/a\n"}, {V2 "a/cpu.max", "40000 10000\n"}}},
    {"a group above", 2, {{SELF, "0::/a/b/c\n"}, {V2 "a/cpu.max", "150000 100000\n"}, {V2 "a/b/cpu.max", "max 100000\n"},
                          {V2 "a/b/c/cpu.max", "800000 100000\n"}}},
    {"its own", 3, {{SELF, "0::/a/b\n"}, {V2 "a/cpu.max", "800000 100000\n"}, {V2 "a/b/cpu.max", "300000 100000\n"}}},
    {"not that of others", INT_MAX, {{SELF, "0::/a\n"}, {V2 "b/cpu.max", "100000 100000\n"},
                                     {V2 "a/b/cpu.max", "100000 100000\n"}}},
    {"a group that is not mounted", 2, {{SELF, "0::/docker/abc\n"}, {V2 "cpu.max", "200000 100000\n"}}},
    {"a name with a colon and a space", 2, {{SELF, "0::/a:b c\n"}, {V2 "a:b c/cpu.max", "200000 100000\n"}}},
    {"version 1", 2, {{SELF, "5:memory:/m\n4:cpu,cpuacct:/a\n"}, {V1 "a/cpu.cfs_quota_us", "150000\n"},
                      {V1 "a/cpu.cfs_period_us", "100000\n"}}},
    {"version 1, unlimited", INT_MAX, {{SELF, "4:cpu,cpuacct:/a\n"}, {V1 "a/cpu.cfs_quota_us", "-1\n"},
                                       {V1 "a/cpu.cfs_period_us", "100000\n"}}},
    {"version 1, a group above", 1, {{SELF, "4:cpu:/a/b\n0::/c\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"},
                                     {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
                                     {"sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "300000\n"},
                                     {"sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n"}}},
    {"other controllers", INT_MAX, {{SELF, "4:cpuset:/a\n3:cpuacct:/a\n2:name=cpu:/a\n"},
                                    {"sys/fs/cgroup/cpuset/a/cpu.max", "100000 100000\n"},
                                    {"sys/fs/cgroup/cpuacct/a/cpu.max", "100000 100000\n"}}},
    {"no sense", INT_MAX, {{SELF, "\n:\n0:\n0::\n::::\n"}, {V2 "cpu.max", "-5 0\n"}}},
    {"no period", INT_MAX, {{SELF, "0::/\n"}, {V2 "cpu.max", "200000\n"}}},
};
/* clang-format on */

TEST(the_smallest_quota_counts)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = quota(cases[i].files);
        if (n != cases[i].quota) TEST_FAIL("%s: %d, not %d", cases[i].what, n, cases[i].quota);
    }
}

TEST(no_more_than_the_affinity_mask)
{
    cpu_set_t before, one;
    int all = lc_processors();
    CHECK(all >= 1 && all == lc__processors_granted(all));
    CHECK(!sched_getaffinity(0, sizeof before, &before));
    CHECK(all <= CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    CHECK(!sched_setaffinity(0, sizeof one, &one));
    CHECK_EQ(lc_processors(), 1);
    CHECK(!sched_setaffinity(0, sizeof before, &before));
}

TEST_MAIN
