/* SPDX-License-Identifier: Apache-2.0 */
/* The next life of a run that has failed: which processes go on, and as which ranks. */
#include "launch/supervisor/supervisor_internal.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How many of the `left` ranks can share the batches of all ranks. */
static int n_that_go_on(const supervisor *s, int left)
{
    int keep = 1;
    while (2 * keep <= left) keep *= 2;
    return s->terms & LC__POWER_OF_TWO ? keep : left;
}

/* ---- ranks of this machine ---- */

/* Gives the children new places, in order; nodes without ranks are removed. */
static void renumber(supervisor *s)
{
    int rank = 0, nodes = 0;
    for (int first = 0, end; first < s->n; first = end, nodes++) {
        int node = s->children[first].place.node_rank;
        for (end = first; end < s->n && s->children[end].place.node_rank == node; end++) continue;
        for (int i = first; i < end; i++)
            s->children[i].place = (lc__place){rank++, s->n, i - first, end - first, nodes, 0};
    }
    for (int i = 0; i < s->n; i++) s->children[i].place.num_nodes = nodes;
    s->size = s->n;
}

static void drop(supervisor *s, int i)
{
    if (s->children[i].output >= 0) close(s->children[i].output);
    memmove(&s->children[i], &s->children[i + 1], (size_t)(s->n - i - 1) * sizeof *s->children);
    s->n--;
}

/* The rank that is to blame, if any, is lost, and so are ranks that something else has killed. */
static void go_on_here(supervisor *s)
{
    int left = 0;
    for (int i = 0; i < s->n; i++) {
        child *c = &s->children[i];
        c->lost = (i == s->culprit && !s->common) || (WIFSIGNALED(c->status) && !c->ended_here);
        left += !c->lost;
    }
    if (!left) return;
    int keep = n_that_go_on(s, left);
    for (int i = s->n - 1; i >= 0; i--)
        if (s->children[i].lost || left > keep) {
            left -= !s->children[i].lost;
            drop(s, i);
        }
    renumber(s);
    if (s->children[0].output >= 0) close(s->children[0].output); /* it is rank 0 now, whose output is shown */
    s->children[0].output = -1;
}

/* ---- ranks of other hosts ---- */

static void forget(supervisor *s, int rank)
{
    if (s->kept[rank] >= 0) close(s->kept[rank]);
    s->kept[rank] = -1;
}

/* mpirun ends all ranks when one is gone, so their status says nothing: the coordinator knows which are lost. mpirun
 * numbers ranks host by host. If mpirun itself was killed, and the ranks with it, no rank is to blame. */
static void go_on_elsewhere(supervisor *s)
{
    int left = 0, rank = s->size;
    const child *mpirun = &s->children[0];
    if (WIFSIGNALED(mpirun->status) && !mpirun->ended_here && !s->run_ended) return;
    for (int i = 0; i < s->size; i++) left += !s->lost[i];
    if (!left) return;
    int keep = n_that_go_on(s, left);
    for (int node = s->plan->num_nodes - 1; node >= 0; node--)
        for (int k = s->nodes[node]; k > 0; k--)
            if (s->lost[--rank] || left > keep) {
                left -= !s->lost[rank];
                s->nodes[node]--;
                forget(s, rank);
                memmove(&s->kept[rank], &s->kept[rank + 1], (size_t)(s->began - rank - 1) * sizeof *s->kept);
                s->kept[s->began - 1] = -1;
            }
    s->size = keep;
    forget(s, 0); /* the output of rank 0 is shown */
}

void lc__supervisor_go_on(supervisor *s)
{
    if (s->terms & LC__OWN_DATA) return;
    if (s->plan->hosts)
        go_on_elsewhere(s);
    else
        go_on_here(s);
}
