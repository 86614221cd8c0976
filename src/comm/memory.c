/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a communicator. If its ranks are processes of one host, it consists of unnamed files that all of them map,
 * so an all_reduce in it needs no copies (exposed.h); otherwise it is ordinary memory. */
#include "comm/comm_internal.h"
#include "base/handle.h"
#include "base/memory_file.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void release(lc__comm_memory *m)
{
    if (m && m->data) munmap(m->data, m->bytes);
    free(m);
}

/* Private memory at first, which the kernel refuses if there is not enough. NULL: out of memory. */
static lc__comm_memory *map(size_t bytes)
{
    lc__comm_memory *m = calloc(1, sizeof *m);
    void *data = m ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (data == MAP_FAILED) {
        free(m);
        return NULL;
    }
    m->data = data;
    m->bytes = bytes;
    return m;
}

/* Makes it the mapping of a file, which is returned; -1: there is no file, and the memory stays as it is. */
static int make_file(lc__comm_memory *m)
{
    int fd = lc__memory_file("lightc-memory", m->bytes);
    void *data = fd < 0 ? MAP_FAILED : mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data != MAP_FAILED) {
        munmap(m->data, m->bytes);
        m->data = data;
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

lc_status lc_comm_alloc_mem(lc_comm *comm, size_t bytes, void **out)
{
    LC__IS(comm, COMM, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc_status status = LC_OK;
    int fd = -1;
    *out = NULL;
    const size_t most = PTRDIFF_MAX - 4096; /* no rank has so much: all ranks then fail together */
    const int64_t wanted = (int64_t)(bytes < most ? bytes : most);
    lc__comm_memory *m = bytes && bytes < most ? map(bytes) : NULL;
    int64_t least[] = {m ? 1 : 0, wanted, -wanted};
    LC_TRY_GOTO(status, done, lc_comm_all_reduce(comm, least, least, 3, LC_I64, LC_COMM_MIN, NULL));
    if (least[1] != -least[2])
        LC_TRY_GOTO(status, done,
                    lc_fail(LC_ERR_ARGUMENT,
                            "lc_comm_alloc_mem: the ranks ask for %lld to %lld bytes; all must ask for the same",
                            (long long)least[1], (long long)-least[2]));
    if (!bytes) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_ARGUMENT, "lc_comm_alloc_mem: memory of 0 bytes"));
    if (!least[0])
        LC_TRY_GOTO(status, done,
                    lc_fail(LC_ERR_MEMORY, "out of memory on one of %d ranks: %zu bytes", lc_comm_size(comm), bytes));
    if (lc__comm_can_expose(comm)) {
        fd = make_file(m);
        LC_TRY_GOTO(status, done, lc__comm_expose(comm, m->data, bytes, fd));
    }
    lc__comm_memory **list = lc__comm_memories(comm);
    m->next = *list;
    *list = m;
    *out = m->data;
    m = NULL;
done:
    if (fd >= 0) close(fd);
    release(m);
    return status;
}

void lc_comm_free_mem(lc_comm *comm, void *data)
{
    LC__IS(comm, COMM, );
    lc__comm_memory **at = lc__comm_memories(comm), *m;
    while (*at && (*at)->data != data) at = &(*at)->next;
    if (!(m = *at)) return;
    *at = m->next;
    if (lc__comm_can_expose(comm)) lc__comm_conceal(comm, m->data);
    release(m);
}

void lc__comm_memory_release(lc__comm_memory *m)
{
    for (lc__comm_memory *next; m; m = next) {
        next = m->next;
        release(m);
    }
}
