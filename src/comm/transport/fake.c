/* SPDX-License-Identifier: Apache-2.0 */
/* "fake": the ranks do not exist. Calls are counted (lc_comm_get_stats) and change nothing, to learn what a run of any
 * size would exchange. */
#include "comm/comm_internal.h"
#include "base/handle.h"

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

static void nothing(void *self)
{
    (void)self;
}

lc_status lc_comm_fake(int rank, int size, lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    static const lc_comm_ops fake = {LC_COMM_OPS_INIT("fake"), .start = start, .poll = poll_done, .free = nothing};
    *out = NULL;
    return lc_comm_new(&fake, NULL, rank, size, out);
}
