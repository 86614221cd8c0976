/* SPDX-License-Identifier: Apache-2.0 */
/* "threads": ranks that are threads of one process. */
#include "comm/transport/rings.h"
#include "base/handle.h"

#include <stdlib.h>
#include <sys/mman.h>

static void leave(lc__rings *w, size_t bytes)
{
    if (lc__rings_leave(w)) munmap(w, bytes);
}

static lc_status rings_new(int size, lc__rings **out)
{
    size_t bytes = lc__rings_bytes(size);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for %d ranks", bytes, size);
    *out = p;
    lc__rings_init(*out, size);
    return LC_OK;
}

/* Rank 0 makes the rings and sends the others their address. */
static lc_status open(void *opening, int rank, int size, const lc__meeting *meeting, void **out)
{
    (void)opening;
    lc_status status = LC_OK;
    lc__rings *mine = NULL, **all = calloc((size_t)size, sizeof(lc__rings *));
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", size);
    /* If rank 0 failed to make them, it reports that too, so no rank waits for it. */
    lc_status made = rank == 0 ? rings_new(size, &mine) : LC_OK;
    LC_TRY_GOTO(status, done, meeting->all_gather(meeting->ctx, &mine, all, sizeof mine));
    if (!all[0]) {
        status = made < 0 ? made : lc_fail(LC_ERR_MEMORY, "rank 0 has no memory for a group of %d ranks", size);
        goto done;
    }
    status = lc__rings_join(all[0], rank, leave, out);
    if (status < 0) leave(all[0], lc__rings_bytes(size));
done:
    free(all);
    return status;
}

static const lc__transport_ops threads = {.name = "threads", .open = open, LC__RINGS_OPS};

lc_status lc_comm_threads(int size, lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc_status status = LC_OK;
    lc__rings *w = NULL;
    int made = 0;
    LC_TRY(lc__comm_check_ranks(0, size));
    for (int i = 0; i < size; i++) out[i] = NULL;
    if (size == 1) return lc__exchange_new(&threads, NULL, NULL, 0, 1, &out[0]);
    LC_TRY(rings_new(size, &w));
    for (; made < size; made++) {
        void *end = NULL;
        status = lc__rings_join(w, made, leave, &end);
        if (status < 0) break;
        status = lc__exchange_new(&threads, end, NULL, made, size, &out[made]); /* on failure, it closes the end */
        if (status >= 0) continue;
        made++;
        break;
    }
    if (status >= 0) return LC_OK;
    for (int i = made; i < size; i++) leave(w, lc__rings_bytes(size));
    for (int i = 0; i < size; i++) {
        lc_comm_free(out[i]);
        out[i] = NULL;
    }
    return status;
}
