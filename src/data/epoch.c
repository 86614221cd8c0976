/* SPDX-License-Identifier: Apache-2.0 */
/* With several ranks (lc_share) each has the whole order, and takes its share of every global batch. */
#include "base/status.h"
#include "data/epoch.h"
#include "data/batches.h"
#include "data_internal.h"

#include <stdlib.h>

int64_t lc__epoch_samples(const lc__epoch *e, int64_t epoch)
{
    return e->sequential ? e->dataset->length : e->sampler.ops->length(e->sampler.self, epoch);
}

static int64_t batches_of(const lc__epoch *e, int64_t samples)
{
    return samples / e->global_batch + (!e->drop_last && samples % e->global_batch != 0);
}

/* The order of n samples. */
static lc_status find_order(lc__epoch *e, int64_t epoch, int64_t n)
{
    if (n > e->order_room) {
        int64_t *order = (uint64_t)n > SIZE_MAX / sizeof *order ? NULL : realloc(e->order, (size_t)n * sizeof *order);
        if (!order) return lc_fail(LC_ERR_MEMORY, "out of memory for the order of %lld samples", (long long)n);
        e->order = order;
        e->order_room = n;
    }
    unsigned before = lc__error_count();
    lc_status status = LC_OK;
    if (n && !e->sequential)
        status = lc__answered(e->sampler.ops->order(e->sampler.self, epoch, n, e->order), before, "order", "a sampler");
    for (int64_t i = 0; e->sequential && i < n; i++) e->order[i] = i;
    if (status != LC_OK) return lc_fail_context(status, "sampler '%s'", e->sampler.ops->name);
    for (int64_t i = 0; i < n; i++)
        if (e->order[i] < 0 || e->order[i] >= e->dataset->length)
            return lc_fail(LC_ERR_USER, "sampler '%s' asks for sample %lld, but dataset '%s' has %lld",
                           e->sampler.ops->name, (long long)e->order[i], lc_dataset_name(e->dataset),
                           (long long)e->dataset->length);
    return LC_OK;
}

lc_status lc__epoch_begin(lc__epoch *e, int64_t epoch, int64_t start)
{
    int64_t n = lc__epoch_samples(e, epoch);
    if (n < 0)
        return lc_fail(LC_ERR_USER, "sampler '%s' has the invalid length %lld", e->sampler.ops->name, (long long)n);
    LC_TRY(find_order(e, epoch, n));
    e->n_samples = n;
    e->n_batches = e->max_tokens ? 0 : batches_of(e, n);
    LC_TRY(lc__batches_find(e, epoch));
    const int64_t batches = e->n_batches;
    if (start > batches)
        return lc_fail(LC_ERR_ARGUMENT, "cannot start at batch %lld: the epoch has %lld", (long long)start,
                       (long long)batches);
    e->key = lc_random_key(lc_random_key_name(e->seed, "samples"), (uint64_t)epoch);
    return LC_OK;
}

/* With a budget the batches are made to count them; an error is reported by lc__epoch_begin. */
int64_t lc__epoch_batches(lc__epoch *e, int64_t epoch)
{
    int64_t n = lc__epoch_samples(e, epoch);
    if (n < 0 || !e->max_tokens) return n < 0 ? -1 : batches_of(e, n);
    if (e->counted < 0 || e->counted_epoch != epoch) {
        lc__epoch other = *e;
        other.order = other.ends = NULL;
        other.order_room = other.ends_room = 0;
        e->counted = lc__epoch_begin(&other, epoch, 0) == LC_OK ? other.n_batches : -1;
        e->counted_epoch = epoch;
        free(other.order);
        free(other.ends);
    }
    return e->counted;
}

void lc__epoch_changed(lc__epoch *e)
{
    e->counted = -1;
}

lc__rank_share lc__epoch_share(const lc__epoch *e, int64_t batch)
{
    const bool fixed = !e->max_tokens;
    int64_t global_begin = fixed ? batch * e->global_batch : batch ? e->ends[batch - 1] : 0;
    int64_t left = (fixed ? e->n_samples : e->ends[batch]) - global_begin;
    lc__rank_share s = {.global_size = fixed && left > e->global_batch ? e->global_batch : left};
    lc_share_range(&e->share, fixed ? e->global_batch : left, s.global_size, &s.offset, &s.n);
    s.begin = global_begin + s.offset;
    return s;
}

bool lc__epoch_is_share(const lc__epoch *e)
{
    return e->share.size > 1 || e->share.pieces > 0;
}

void lc__epoch_release(lc__epoch *e)
{
    lc__sampler_free(&e->sampler);
    lc_dataset_unref(e->dataset);
    free(e->order);
    free(e->ends);
}
