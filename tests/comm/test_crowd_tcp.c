/* SPDX-License-Identifier: Apache-2.0 */
/* Many silent connections to the listeners of ranks while these connect to each other. */
#define _GNU_SOURCE
#include "comm_world.h"
#include "crowd.h"

#include "comm/comm_internal.h"
#include "comm/net/socket.h"
#include "comm/transport/tcp_mesh.h"
#include "base/descriptors.h"

typedef struct meeting {
    world_meeting m;
    int rank, strangers, fds[MOST];
    bool done;
} meeting;

/* Runs between announcing the listeners and connecting to them. */
static lc_status meet_a_crowd(void *ctx, const void *mine, void *all, size_t bytes)
{
    meeting *m = ctx;
    LC_TRY(world_all_gather(&m->m, mine, all, bytes));
    if (m->done || bytes != sizeof(lc__tcp_card)) return LC_OK;
    m->done = true;
    lc__descriptors_allow(MOST);
    const lc__tcp_card *cards = all;
    int to = (m->rank + 1) % m->m.w->size;
    crowd(cards[to].port, m->strangers, m->fds);
    return LC_OK;
}

static int mesh_strangers; /* for the ranks that are made next */

static lc_status open_in_a_crowd(int rank, int size, const lc__meeting *given, lc_comm **out)
{
    static meeting m;
    lc__tcp_place here;
    m = (meeting){.m = *(world_meeting *)given->ctx, .rank = rank, .strangers = mesh_strangers};
    lc__meeting mine = {LC_MEETING_INIT, .all_gather = meet_a_crowd, .ctx = &m};
    LC_TRY(lc__tcp_place_set(&here, "127.0.0.1", "a secret of the run that nobody knows", 0));
    double begun = lc__seconds();
    lc_status s = lc__comm_tcp(&here, rank, size, &mine, out);
    double took = lc__seconds() - begun;
    disperse(m.fds, m.strangers);
    if (s >= 0 && (took > patience(1) || took > 4)) return lc_fail(LC_ERR_INTERNAL, "it took %.3f s", took);
    return s;
}

static lc_status add(lc_comm *c, void *ctx)
{
    (void)ctx;
    int64_t x = lc_comm_rank(c) + 1;
    LC_TRY(lc_comm_all_reduce(c, &x, &x, 1, LC_I64, LC_COMM_SUM, NULL));
    RANK_CHECK(x == 6);
    return LC_OK;
}

TEST(silent_callers_do_not_delay_connections)
{
    static const int crowds[] = {64, MOST};
    for (size_t k = 0; k < sizeof crowds / sizeof *crowds; k++) {
        mesh_strangers = crowds[k];
        world *w = world_new(3);
        world_run_processes(w, open_in_a_crowd, add, NULL);
        for (int i = 0; i < 3; i++)
            if (w->ranks[i].status < 0) TEST_FAIL("%d strangers, rank %d: %s", crowds[k], i, w->ranks[i].message);
        world_free(w);
    }
}

TEST_MAIN
