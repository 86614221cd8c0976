/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores belong to which rank.
 *
 * Ranks that move between cores lose their caches, and two ranks on the two hyperthreads of one core halve each other
 * while another core idles. So every rank gets whole, neighboring cores. If the kernel does not say which processors
 * share a core, each counts as one. */
#define _GNU_SOURCE /* cpu_set_t */
#include "base/cores.h"

#include "base/processors.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

/* The first number of /sys/devices/system/cpu/cpuN/topology/NAME. */
static int topology(int cpu, const char *name, int otherwise)
{
    char path[128];
    int value = otherwise;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    FILE *f = fopen(path, "re");
    if (!f) return otherwise;
    if (fscanf(f, "%d", &value) != 1) value = otherwise;
    fclose(f);
    return value;
}

static int compare(const void *a, const void *b)
{
    const struct lc__core *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->cpu < y->cpu ? -1 : 1;
}

lc_status lc__cores_find(lc__cores *out)
{
    cpu_set_t set;
    *out = (lc__cores){0};
    /* There are more processors than a cpu_set_t holds: no rank is pinned. */
    if (sched_getaffinity(0, sizeof set, &set) != 0) return LC_OK;
    int n = CPU_COUNT(&set);
    out->granted = lc__processors_granted(n);
    out->cpus = calloc((size_t)n, sizeof *out->cpus);
    if (!out->cpus) return lc_fail(LC_ERR_MEMORY, "out of memory: a list of %d processors", n);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            out->cpus[out->n++] = (struct lc__core){topology(cpu, "physical_package_id", 0),
                                                    topology(cpu, "thread_siblings_list", cpu), cpu};
    qsort(out->cpus, (size_t)out->n, sizeof *out->cpus, compare);
    for (int i = 0; i < out->n; i++)
        out->n_cores +=
            i == 0 || out->cpus[i].package != out->cpus[i - 1].package || out->cpus[i].core != out->cpus[i - 1].core;
    return LC_OK;
}

void lc__cores_release(lc__cores *c)
{
    free(c->cpus);
    *c = (lc__cores){0};
}

/* Index at which part i of n begins. */
static int part(int i, int n, int total)
{
    return (int)((int64_t)i * total / n);
}

int lc__cores_share(const lc__cores *c, int i, int n, cpu_set_t *out)
{
    bool whole = c->n_cores >= n;
    int total = whole ? c->n_cores : c->n, granted = c->granted < total ? c->granted : total;
    int first = part(i, n, total), end = part(i + 1, n, total);
    CPU_ZERO(out);
    if (granted < n) return 0;
    for (int k = 0, unit = -1; k < c->n; k++) {
        unit +=
            !whole || k == 0 || c->cpus[k].package != c->cpus[k - 1].package || c->cpus[k].core != c->cpus[k - 1].core;
        if (unit >= first && unit < end) CPU_SET(c->cpus[k].cpu, out);
    }
    int threads = part(i + 1, n, granted) - part(i, n, granted);
    return threads < end - first ? threads : end - first;
}

int lc__cores_of_quota(int threads, int quota, int i, int n)
{
    int mine = part(i + 1, n, quota) - part(i, n, quota);
    if (mine < 1) mine = 1;
    return threads < mine ? threads : mine;
}

int lc__cores_take(int i, int n)
{
    lc__cores cores;
    cpu_set_t mine;
    int threads = lc__cores_find(&cores) >= 0 && cores.n ? lc__cores_share(&cores, i, n, &mine) : 0;
    if (threads && sched_setaffinity(0, sizeof mine, &mine) != 0) threads = 0;
    lc__cores_release(&cores);
    return threads;
}
