/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and their slices of a batch: the arithmetic that all loaders share. */
#include "comm/world/world.h"
#include "base/args.h"
#include "base/handle.h"
#include "data_internal.h"

#include <limits.h>

lc_status lc__shard_resolve(const lc_shard *given, lc_shard *out)
{
    *out = given ? *given : (lc_shard){.size = 1};
    LC_TRY(lc__reserved_check(out->reserved, "lc_shard"));
    if (out->size < 1 || out->rank < 0 || out->rank >= out->size)
        return lc_fail(LC_ERR_ARGUMENT, "rank %d of %d: there must be at least one rank, and ranks count from 0",
                       out->rank, out->size);
    if (out->batches < 0 || out->pieces < 0 || out->pieces > INT_MAX)
        return lc_fail(LC_ERR_ARGUMENT,
                       "a global batch of %d batches in %lld pieces: both must be positive (0: default)", out->batches,
                       (long long)out->pieces);
    if (!out->batches) out->batches = lc__world_batches(out->size);
    return LC_OK;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

int64_t lc_shard_piece(const lc_shard *s, int64_t full)
{
    LC__NEEDS(s, 0);
    return s->pieces ? ceil_div(full, s->pieces) : 0;
}

/* Start of the slice of `rank`, computed without overflow. */
static int64_t begin_of(const lc_shard *s, int rank, int64_t full, int64_t samples)
{
    int64_t share = lc_shard_piece(s, full) * ceil_div(s->pieces, s->size), begin;
    if (!s->pieces) return rank * (samples / s->size) + rank * (samples % s->size) / s->size;
    return __builtin_mul_overflow(share, rank, &begin) || begin > samples ? samples : begin;
}

void lc_shard_slice(const lc_shard *s, int64_t full, int64_t samples, int64_t *begin, int64_t *n)
{
    LC__NEEDS(s, );
    LC__NEEDS(begin, );
    LC__NEEDS(n, );
    *begin = begin_of(s, s->rank, full, samples);
    *n = begin_of(s, s->rank + 1, full, samples) - *begin;
}

int64_t lc__shard_most(const lc_shard *s, int64_t full)
{
    int64_t begin, n;
    if (!s->pieces) return ceil_div(full, s->size);
    lc_shard first = *s;
    first.rank = 0;
    lc_shard_slice(&first, full, full, &begin, &n);
    return n;
}
