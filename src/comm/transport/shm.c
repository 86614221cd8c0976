/* SPDX-License-Identifier: Apache-2.0 */
/* "shm": ranks that are processes of one host.
 *
 * Rank 0 makes an unnamed memory file and sends the others the numbers of its process and of the descriptor; they open
 * it through /proc. When the last process has gone, however it ended, the memory is gone: nothing is left in
 * /dev/shm. */
#include "comm/transport/rings.h"
#include "base/handle.h"
#include "base/memory_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void leave(lc__rings *w, size_t bytes)
{
    munmap(w, bytes);
}

static lc_status map(int fd, size_t bytes, lc__rings **out)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return lc_fail(LC_ERR_MEMORY, "cannot get %zu bytes of shared memory: %s", bytes, strerror(errno));
    *out = p;
    return LC_OK;
}

static lc_status make(int size, int *fd, lc__rings **out)
{
    size_t bytes = lc__rings_bytes(size);
    *fd = lc__memory_file("lightc", bytes);
    if (*fd < 0) return lc_fail(LC_ERR_MEMORY, "cannot get %zu bytes of shared memory: %s", bytes, strerror(errno));
    LC_TRY(map(*fd, bytes, out));
    lc__rings_init(*out, size);
    return LC_OK;
}

/* The message that ranks exchange: where rank 0's file is, then whether all have it. */
typedef struct place {
    lc__file_place file; /* fd -1: there is none */
    char why[240];
} place;

static lc_status attach(const place *p, int size, lc__rings **out)
{
    int fd = lc__file_open(&p->file, lc__rings_bytes(size));
    if (fd < 0)
        return lc_fail(
            LC_ERR_UNSUPPORTED,
            "the memory of rank 0 (process %lld): %s; ranks in different containers cannot share it: use tcp",
            (long long)p->file.pid, strerror(errno));
    lc_status s = map(fd, lc__rings_bytes(size), out);
    close(fd);
    return s;
}

static lc_status open_rings(void *opening, int rank, int size, const lc__meeting *meeting, void **out)
{
    (void)opening;
    lc_status status = LC_OK, mine = LC_OK;
    int fd = -1;
    lc__rings *w = NULL;
    place here = {.file.fd = -1}, *all = calloc((size_t)size, sizeof *all);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", size);
    if (rank == 0) {
        mine = make(size, &fd, &w);
        if (mine >= 0) here.file = lc__file_place_of(fd);
    }
    LC_TRY_GOTO(status, done, meeting->all_gather(meeting->ctx, &here, all, sizeof here));
    if (rank > 0 && all[0].file.fd >= 0) mine = attach(&all[0], size, &w);
    here.file.fd = mine < 0 ? -1 : 0;
    if (mine < 0) snprintf(here.why, sizeof here.why, "%s", lc_error_message());
    LC_TRY_GOTO(status, done, meeting->all_gather(meeting->ctx, &here, all, sizeof here));
    for (int i = 0; i < size; i++)
        if (all[i].file.fd < 0) {
            status = lc_fail(LC_ERR_UNSUPPORTED, "rank %d: %.*s", i, (int)sizeof all[i].why, all[i].why);
            goto done;
        }
    LC_TRY_GOTO(status, done, lc__rings_join(w, rank, leave, out));
    w = NULL;
done:
    if (fd >= 0) close(fd);
    if (w) leave(w, lc__rings_bytes(size));
    free(all);
    return status;
}

const lc__transport_ops lc__shm = {.name = "shm", .open = open_rings, .sees_files = true, LC__RINGS_OPS};

lc_status lc_comm_shm(int rank, int size, const lc_meeting *given, lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    void *end = NULL;
    lc_meeting meeting;
    *out = NULL;
    LC_TRY(lc__comm_take_meeting(rank, size, given, &meeting));
    if (size > 1) LC_TRY(open_rings(NULL, rank, size, &meeting, &end));
    return lc__exchange_new(&lc__shm, end, NULL, rank, size, out);
}
