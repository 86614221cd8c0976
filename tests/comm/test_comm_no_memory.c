/* SPDX-License-Identifier: Apache-2.0 */
/* If a rank cannot allocate memory for a call, the others do not wait for it. */
#include "comm_world.h"
#include "fail_malloc.h"

#ifndef SANITIZED
/* Rank 1 cannot allocate its second call. The others get the error in the call that they have reached. */
static lc_status second_call(lc_comm *c, void *ctx)
{
    float x[2] = {1, 1};
    lc_request *r = NULL;
    int me = lc_comm_rank(c);
    (void)ctx;
    lc_status s = lc_comm_barrier(c, NULL); /* the next call reuses its request */
    if (s >= 0) s = lc_comm_all_reduce(c, &x[0], &x[0], 1, LC_F32, LC_COMM_SUM, &r);
    RANK_CHECK(s == LC_OK || (me != 1 && s == LC_ERR_PEER));
    if (me == 1) atomic_store(&malloc_fail_at, atomic_load(&mallocs) + 1);
    if (s >= 0) s = lc_comm_all_reduce(c, &x[1], &x[1], 1, LC_F32, LC_COMM_SUM, &r);
    atomic_store(&malloc_fail_at, 0);
    if (s >= 0) s = lc_comm_wait(r);
    RANK_CHECK(s == (me == 1 ? LC_ERR_MEMORY : LC_ERR_PEER));
    RANK_CHECK(strstr(lc_error_message(), "out of memory: a call of all_reduce"));
    RANK_CHECK(lc_comm_barrier(c, NULL) < 0);
    return LC_OK;
}
#endif

TEST(a_call_without_memory_ends_its_group)
{
#ifdef SANITIZED
    SKIP("a sanitizer owns malloc");
#else
    CHECK_RANKS("shm", 2, second_call, NULL);
    CHECK_RANKS("shm", 3, second_call, NULL);
#endif
}

TEST_MAIN
