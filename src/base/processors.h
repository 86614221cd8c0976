/* SPDX-License-Identifier: Apache-2.0 */
/* How many of the machine's processors this process may use. */
#ifndef LC_BASE_PROCESSORS_H
#define LC_BASE_PROCESSORS_H

/* How many of `n` processors control groups let this process keep busy: a container may see 64, yet be stopped for the
 * rest of every tenth of a second in which it has used two processors' time. */
int lc__processors_granted(int n);

/* The smallest quota of a process's control group and of those above it, in processors (rounded up); INT_MAX: none.
 * `root` is prepended to /proc/self/cgroup and /sys/fs/cgroup: "" except in tests. */
int lc__processors_quota(const char *root);

#endif
