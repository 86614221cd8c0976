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

/* The number in OMP_NUM_THREADS (the first, if it is a list of nesting levels); 0: it is not set, or says nothing. */
int lc__threads_given(void);

#endif
