/* SPDX-License-Identifier: Apache-2.0 */
/* "fake": the ranks do not exist. Calls are counted (lc_comm_get_stats) and change nothing: what a run of any size
 * would exchange is known without it. */
#include "comm/comm_internal.h"

static lc_status start(void *self, const lc_comm_call *call, void *state)
{
    (void)self, (void)call, (void)state;
    return LC_OK;
}

static lc_status poll_done(void *self, void *state, bool *done)
{
    (void)self;
    if (state) *done = true;
    return LC_OK;
}

static lc_status no_split(void *self, int color, int key, int *rank, int *size, void **out)
{
    (void)self, (void)color, (void)key, (void)rank, (void)size, (void)out;
    return lc_fail(LC_ERR_UNSUPPORTED, "who is in a group of ranks that do not exist cannot be known; make a fake "
                                       "communicator of the group's size");
}

static void nothing(void *self)
{
    (void)self;
}

lc_status lc_comm_fake(int rank, int size, lc_comm **out)
{
    static const lc_comm_ops fake = {LC_COMM_OPS_INIT("fake"), .start = start, .poll = poll_done, .split = no_split,
                                     .free = nothing};
    *out = NULL;
    if (size < 1 || rank < 0 || rank >= size) return lc_fail(LC_ERR_ARGUMENT, "there is no rank %d of %d", rank, size);
    return lc_comm_new(&fake, NULL, rank, size, out);
}
