/* SPDX-License-Identifier: Apache-2.0 */
#include "core/input/pieces.h"

#include "base/status.h"
#include "base/str.h"

enum { MOST_SAMPLES = 16, LEAST_PIECES = 8 };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* By default a power of two, so that up to that many ranks can share them, with at most MOST_SAMPLES samples each and,
 * if there are enough samples, at least LEAST_PIECES pieces. */
int64_t lc__pieces_of(const lc_trainer *t, int64_t samples)
{
    int64_t most = t->opt.deterministic_chunk, n = 1;
    if (most > 0)
        n = ceil_div(samples, most);
    else
        while ((n < LEAST_PIECES || n * MOST_SAMPLES < samples) && 2 * n <= samples) n *= 2;
    return ceil_div(samples, ceil_div(samples, n)); /* all of the same size, except the last */
}

/* Each rank must have a whole, non-empty subtree. */
static bool can_share(int64_t chunks, int64_t ranks)
{
    int64_t each = ceil_div(chunks, ranks);
    return (each & (each - 1)) == 0 && (ranks - 1) * each < chunks;
}

static lc_status cannot_share(const lc_trainer *t, int64_t samples, int64_t chunks)
{
    lc__str good = {0};
    int64_t size = ceil_div(samples, chunks), before = 0;
    for (int64_t each = 1; t->n_ranks * each <= samples && each < 4096; each *= 2) {
        int64_t s = ceil_div(samples, t->n_ranks * each);
        if (s == before || !can_share(ceil_div(samples, s), t->n_ranks)) continue;
        lc__str_add(&good, "%s%lld", before ? ", " : "", (long long)s);
        before = s;
    }
    lc_status status =
        good.n ? lc_fail(LC_ERR_CONFIG,
                         "deterministic: a batch of all ranks (%lld samples) is cut into %lld chunks of %lld, which %d "
                         "ranks cannot divide so that each has a power of two of them; use a deterministic_chunk of %s "
                         "(for every number of ranks that should give the same results), or another batch_size",
                         (long long)samples, (long long)chunks, (long long)size, t->n_ranks, good.s)
               : lc_fail(LC_ERR_CONFIG, "deterministic: a batch of all ranks has %lld samples, fewer than the %d ranks",
                         (long long)samples, t->n_ranks);
    lc__str_free(&good);
    return status;
}

lc_status lc__pieces_share(const lc_trainer *t, const lc_dataloader *l, bool train, lc_share *out)
{
    int64_t samples = lc_dataloader_batch_size(l) * (out->batches ? out->batches : out->size);
    if (samples <= 0) {
        if (out->size == 1) return LC_OK; /* then each batch is cut when it arrives */
        return lc_fail(LC_ERR_CONFIG,
                       "deterministic: the loader does not report how many samples a batch has (batch_size "
                       "of lc_dataloader_ops), so its batches cannot be cut into chunks");
    }
    out->pieces = lc__pieces_of(t, samples);
    if (train && t->comm && !t->mo.manual_optimization && !can_share(out->pieces, t->n_ranks))
        return cannot_share(t, samples, out->pieces);
    return LC_OK;
}
