/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and their slices of a batch: the arithmetic that all loaders share. */
#include "data_internal.h"

#include <limits.h>

lc_status lc__shard_resolve(const lc_shard *given, lc_shard *out)
{
    *out = given ? *given : (lc_shard){.size = 1};
    if (out->size < 1 || out->rank < 0 || out->rank >= out->size)
        return lc_fail(LC_ERR_ARGUMENT, "rank %d of %d: there must be at least one, and they count from 0", out->rank,
                       out->size);
    if (out->batches < 0 || out->grain < 0 || out->grain > INT_MAX)
        return lc_fail(LC_ERR_ARGUMENT,
                       "a global batch of %d batches in pieces of %lld samples: both must be positive (0: the default)",
                       out->batches, (long long)out->grain);
    if (!out->batches) out->batches = out->size;
    if (!out->grain) out->grain = 1;
    return LC_OK;
}

static int64_t pieces_of(const lc_shard *s, int64_t samples)
{
    int64_t grain = s->grain ? s->grain : 1;
    return samples / grain + (samples % grain != 0);
}

/* Where the slice of `rank` begins: piece floor(rank * pieces / size), computed so that it cannot overflow. */
static int64_t begin_of(const lc_shard *s, int rank, int64_t samples)
{
    int64_t pieces = pieces_of(s, samples);
    int64_t piece = rank * (pieces / s->size) + rank * (pieces % s->size) / s->size;
    int64_t begin = piece * (s->grain ? s->grain : 1);
    return begin < samples ? begin : samples; /* the last piece may be a short one */
}

void lc_shard_slice(const lc_shard *s, int64_t samples, int64_t *begin, int64_t *n)
{
    *begin = begin_of(s, s->rank, samples);
    *n = begin_of(s, s->rank + 1, samples) - *begin;
}

int64_t lc__shard_most(const lc_shard *s, int64_t samples)
{
    int64_t pieces = pieces_of(s, samples);
    int64_t most = (pieces / s->size + (pieces % s->size != 0)) * s->grain;
    return most < samples ? most : samples;
}
