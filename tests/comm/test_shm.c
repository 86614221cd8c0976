/* SPDX-License-Identifier: Apache-2.0 */
/* How processes of a host find each other's memory: the memory at the address that a rank names may be another
 * process's, if two containers number their processes alike. */
#include "comm_world.h"

#include "comm/transport/rings.h"
#include "base/memory_file.h"

#include <errno.h>

TEST(memory_of_another_process_is_not_taken)
{
    int fd = lc__memory_file("meant", 8192), other = lc__memory_file("other", 8192), again;
    CHECK(fd >= 0 && other >= 0);
    lc__file_place p = lc__file_place_of(fd);
    again = lc__file_open(&p, 8192);
    CHECK(again >= 0);
    close(again);
    CHECK(lc__file_open(&p, 8193) < 0 && errno == ESTALE);
    p.fd = other;
    CHECK(lc__file_open(&p, 8192) < 0 && errno == ESTALE);
    close(other);
    CHECK(lc__file_open(&p, 8192) < 0 && errno == ENOENT);
    close(fd);
    CHECK_EQ(lc__file_place_of(-1).fd, -1);
}

/* Rank 1 takes rank 0's numbers for those of another file. */
typedef struct confused {
    world_meeting meeting;
    int64_t descriptor;
    lc_status status;
    char message[512];
} confused;

static lc_status confuse(void *ctx, const void *mine, void *all, size_t bytes)
{
    confused *c = ctx;
    lc__file_place first;
    LC_TRY(world_all_gather(&c->meeting, mine, all, bytes));
    memcpy(&first, all, sizeof first);
    if (c->meeting.rank == 1 && first.fd > 0) {
        first.fd = c->descriptor;
        memcpy(all, &first, sizeof first);
    }
    return LC_OK;
}

static void *join(void *arg)
{
    confused *c = arg;
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = confuse, .ctx = c};
    lc_comm *comm;
    c->status = lc_comm_shm(c->meeting.rank, 2, &meeting, &comm);
    snprintf(c->message, sizeof c->message, "%s", lc_error_message());
    lc_comm_free(comm);
    return NULL;
}

TEST(ranks_of_different_containers_do_not_share_a_file_by_chance)
{
    static world w = {.size = 2};
    int other = lc__memory_file("other", lc__rings_bytes(2));
    confused ranks[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        ranks[i] = (confused){.meeting = {&w, i}, .descriptor = other};
        CHECK(!pthread_create(&threads[i], NULL, join, &ranks[i]));
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(ranks[i].status, LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(ranks[i].message, "use tcp");
    }
    close(other);
}

TEST_MAIN
