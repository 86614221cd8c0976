/* SPDX-License-Identifier: Apache-2.0 */
/* The static arena: an offset for every storage, so that storages alive at the same time do not overlap.
 *
 * Choosing offsets of least total size is NP-complete; placing the largest first, each at the lowest offset that is
 * free over its whole life, comes within a few per cent of the lower bound (the largest sum of live bytes at any
 * moment) for the graphs of training steps. */
#include "engine/plan/plan_impl.h"

#include <limits.h>
#include <stdlib.h>

#define ALIGN 256

typedef struct block {
    size_t size, offset;
    int first, last;
    int storage;
} block;

static int larger_first(const void *a, const void *b)
{
    const block *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->storage - y->storage;
}

static int by_offset(const void *a, const void *b)
{
    const block *x = *(const block *const *)a, *y = *(const block *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t lower_bound(const block *blocks, int n, int n_calls, lc_status *status)
{
    /* Changes of the live size at each call; storages that live on never end. */
    int64_t *change = calloc((size_t)n_calls + 2, sizeof *change);
    if (!change) {
        *status = lc_fail(LC_ERR_MEMORY, "out of memory while planning the step");
        return 0;
    }
    for (int i = 0; i < n; i++) {
        change[blocks[i].first] += (int64_t)blocks[i].size;
        if (blocks[i].last < n_calls) change[blocks[i].last + 1] -= (int64_t)blocks[i].size;
    }
    int64_t live = 0, peak = 0;
    for (int i = 0; i <= n_calls; i++) {
        live += change[i];
        if (live > peak) peak = live;
    }
    free(change);
    return (size_t)peak;
}

lc_status lc__assign_arena(lc_build *b)
{
    lc_status status = LC_OK;
    block *blocks = malloc((size_t)(b->n_storages + 1) * sizeof *blocks);
    const block **busy = malloc((size_t)(b->n_storages + 1) * sizeof *busy);
    int n = 0;
    size_t end = 0;
    if (!blocks || !busy) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory while planning the step");
        goto done;
    }
    for (int i = 0; i < b->n_storages; i++) {
        const lc_storage *s = &b->storages[i];
        if (s->external || s->fixed || s->merged >= 0 || s->first == INT_MAX) continue;
        blocks[n++] =
            (block){.size = (s->bytes + ALIGN - 1) / ALIGN * ALIGN, .first = s->first, .last = s->last, .storage = i};
    }
    b->plan->lower_bound = lower_bound(blocks, n, b->n_calls, &status);
    if (status < 0) goto done;
    if (b->optimize) {
        qsort(blocks, (size_t)n, sizeof *blocks, larger_first);
        for (int i = 0; i < n; i++) {
            int n_busy = 0;
            for (int k = 0; k < i; k++)
                if (blocks[k].first <= blocks[i].last && blocks[i].first <= blocks[k].last) busy[n_busy++] = &blocks[k];
            qsort(busy, (size_t)n_busy, sizeof *busy, by_offset);
            size_t at = 0;
            for (int k = 0; k < n_busy && at + blocks[i].size > busy[k]->offset; k++)
                if (busy[k]->offset + busy[k]->size > at) at = busy[k]->offset + busy[k]->size;
            blocks[i].offset = at;
            if (at + blocks[i].size > end) end = at + blocks[i].size;
        }
    } else {
        for (int i = 0; i < n; i++) {
            blocks[i].offset = end;
            end += blocks[i].size;
        }
    }
    for (int i = 0; i < n; i++) b->storages[blocks[i].storage].offset = blocks[i].offset;
    b->plan->arena_bytes = end;
done:
    free(blocks);
    free(busy);
    return status;
}
