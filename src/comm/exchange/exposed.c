/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/exchange/exposed.h"
#include "comm/exchange/schedule_impl.h"
#include "base/memory_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A token is a piece's number and an offset in it. */
#define OFFSET_BITS 40
#define NUMBERS     ((int64_t)1 << 22)
#define LARGEST     ((size_t)1 << OFFSET_BITS)

/* NULL: it cannot be mapped. */
static char *map(const lc__file_place *p, size_t bytes)
{
    int fd = lc__file_open(p, bytes);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void unmap(const lc__exposed *x, char **at, size_t bytes)
{
    for (int i = 0; i < x->size && at; i++)
        if (i != x->rank && at[i]) munmap(at[i], bytes);
    free(at);
}

static bool all_have(const lc__exposed *x, const lc__file_place *all)
{
    bool have = true;
    for (int i = 0; i < x->size; i++) have = have && all[i].fd >= 0;
    return have;
}

lc_status lc__exposed_add(lc__exposed *x, void *data, size_t bytes, int fd, const lc__meeting *meeting)
{
    lc_status status = LC_OK;
    int k = 0;
    int64_t number = x->numbers++;
    while (k < LC__EXPOSED && x->pieces[k].bytes) k++;
    if (number >= NUMBERS || bytes >= LARGEST) fd = -1;
    char **at = calloc((size_t)x->size, sizeof *at);
    lc__file_place *all = calloc((size_t)x->size, sizeof *all);
    lc__file_place here = lc__file_place_of(at && k < LC__EXPOSED ? fd : -1); /* exchanged between ranks */
    if (!all) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", x->size));
    LC_TRY_GOTO(status, done, meeting->all_gather(meeting->ctx, &here, all, sizeof here));
    if (!all_have(x, all)) goto done;
    for (int i = 0; i < x->size; i++) {
        at[i] = i == x->rank ? data : map(&all[i], bytes);
        if (!at[i]) here.fd = -1;
    }
    LC_TRY_GOTO(status, done, meeting->all_gather(meeting->ctx, &here, all, sizeof here));
    if (!all_have(x, all)) goto done;
    x->pieces[k].bytes = bytes;
    x->pieces[k].at = at;
    x->pieces[k].number = number;
    x->any = true;
    at = NULL;
done:
    unmap(x, at, bytes);
    free(all);
    return status;
}

static void forget(lc__exposed *x, int k)
{
    if (!x->pieces[k].bytes) return;
    unmap(x, x->pieces[k].at, x->pieces[k].bytes);
    x->pieces[k].bytes = 0;
}

void lc__exposed_remove(lc__exposed *x, const void *data)
{
    int k = 0;
    while (k < LC__EXPOSED && (!x->pieces[k].bytes || x->pieces[k].at[x->rank] != data)) k++;
    if (k < LC__EXPOSED) forget(x, k);
}

void lc__exposed_release(lc__exposed *x)
{
    for (int k = 0; k < LC__EXPOSED; k++) forget(x, k);
}

int64_t lc__exposed_token(const lc__exposed *x, const void *data, int64_t bytes)
{
    for (int k = 0; k < LC__EXPOSED; k++) {
        if (!x->pieces[k].bytes) continue;
        int64_t offset = (const char *)data - x->pieces[k].at[x->rank];
        if (offset >= 0 && offset + bytes <= (int64_t)x->pieces[k].bytes)
            return x->pieces[k].number << OFFSET_BITS | offset;
    }
    return -1;
}

bool lc__exposed_is_common(const lc__exposed *x, const int64_t *tokens)
{
    bool is = true;
    for (int i = 0; i < x->size; i++) is = is && tokens[i] >= 0 && tokens[i] >> OFFSET_BITS == tokens[0] >> OFFSET_BITS;
    return is;
}

/* Address of the data of a rank's token; NULL: not in exposed memory. */
static char *find(const lc__exposed *x, int rank, int64_t token, int64_t bytes)
{
    int64_t number = token >> OFFSET_BITS, offset = token & (int64_t)(LARGEST - 1);
    for (int k = 0; k < LC__EXPOSED; k++)
        if (x->pieces[k].bytes && x->pieces[k].number == number && offset + bytes <= (int64_t)x->pieces[k].bytes)
            return x->pieces[k].at[rank] + offset;
    return NULL;
}

lc_status lc__exposed_combine(const lc__exposed *x, const lc_comm_call *call, const int64_t *tokens, const void **parts,
                              int64_t *combined, bool *done)
{
    enum { BLOCK = 16 << 10, AT_ONCE = 512 << 10 }; /* bytes: that stay in a cache; that are combined in one call */
    int64_t width = (int64_t)lc_dtype_size(call->dtype), all = call->count * width, bytes;
    int64_t part = lc__part(all, x->size, x->rank, &bytes);
    for (int64_t until = *combined + AT_ONCE; *combined < bytes && *combined < until;) {
        int64_t n = bytes - *combined < BLOCK ? bytes - *combined : BLOCK;
        for (int i = 0; i < x->size; i++) {
            const char *data = find(x, i, tokens[i], all);
            if (!data) return lc_fail(LC_ERR_INTERNAL, "the data of rank %d is not where it should be", i);
            parts[i] = data + part + *combined;
        }
        char *own = (char *)(uintptr_t)parts[x->rank];
        lc_comm_combine(call->dtype, call->reduce, x->size, parts, own, n / width);
        for (int i = 0; i < x->size; i++)
            if (i != x->rank) memcpy((char *)(uintptr_t)parts[i], own, (size_t)n);
        *combined += n;
    }
    *done = *combined >= bytes;
    return LC_OK;
}
