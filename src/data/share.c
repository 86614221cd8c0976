/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and their shares of a batch: the arithmetic that all loaders have in common. */
#include "comm/world/world.h"
#include "base/args.h"
#include "base/handle.h"
#include "data_internal.h"

#include <limits.h>

lc_status lc__share_resolve(const lc_share *given, lc_share *out)
{
    *out = given ? *given : (lc_share){.size = 1};
    LC_TRY(lc__reserved_check(out->reserved, "lc_share"));
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

int64_t lc_share_piece(const lc_share *s, int64_t full)
{
    LC__NEEDS(s, 0);
    return s->pieces ? ceil_div(full, s->pieces) : 0;
}

/* Start of the share of `rank`, computed without overflow. */
static int64_t begin_of(const lc_share *s, int rank, int64_t full, int64_t samples)
{
    int64_t share = lc_share_piece(s, full) * ceil_div(s->pieces, s->size), begin;
    if (!s->pieces) return rank * (samples / s->size) + rank * (samples % s->size) / s->size;
    return __builtin_mul_overflow(share, rank, &begin) || begin > samples ? samples : begin;
}

void lc_share_range(const lc_share *s, int64_t full, int64_t samples, int64_t *begin, int64_t *n)
{
    LC__NEEDS(s, );
    LC__NEEDS(begin, );
    LC__NEEDS(n, );
    *begin = begin_of(s, s->rank, full, samples);
    *n = begin_of(s, s->rank + 1, full, samples) - *begin;
}

int64_t lc__share_most(const lc_share *s, int64_t full)
{
    int64_t begin, n;
    if (!s->pieces) return ceil_div(full, s->size);
    lc_share first = *s;
    first.rank = 0;
    lc_share_range(&first, full, full, &begin, &n);
    return n;
}
