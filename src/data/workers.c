/* SPDX-License-Identifier: Apache-2.0 */
#include "data/workers.h"
#include "base/processors.h"
#include "comm/world/world.h"

#include <lightc/graph.h>
#include <limits.h>

enum { MOST = 8 }; /* more rarely help, and each keeps batches in memory */

int lc__workers_of(int processors, int quota, int ranks)
{
    if (ranks > 1 && quota != INT_MAX && quota / ranks < processors) processors = quota / ranks;
    int n = processors - 1;
    return n < 0 ? 0 : n > MOST ? MOST : n;
}

int lc__workers_auto(void)
{
    lc__world here;
    int ranks = lc__world_find(&here) < 0 ? 1 : here.local_size;
    return lc__workers_of(lc_processors(), lc__processors_quota(""), ranks);
}
