/* SPDX-License-Identifier: Apache-2.0 */
/* LC_WORKERS_AUTO: how many threads of a loader a machine has room for. */
#ifndef LC_DATA_WORKERS_H
#define LC_DATA_WORKERS_H

/* One for each processor that this rank may keep busy, except for one that trains. */
int lc__workers_auto(void);
/* The same from what is known: the processors that this process may run on, the quota of all ranks of this machine
 * (INT_MAX: none), and how many these are. Ranks that share processors have been given their parts of them before. */
int lc__workers_of(int processors, int quota, int ranks);

#endif
