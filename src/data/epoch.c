/* SPDX-License-Identifier: Apache-2.0 */
/* With several ranks (lc_share) each has the whole order, and takes its share of every global batch. */
#include "data/epoch.h"
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

int64_t lc__epoch_batches(const lc__epoch *e, int64_t epoch)
{
    int64_t n = lc__epoch_samples(e, epoch);
    return n < 0 ? -1 : batches_of(e, n);
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
    lc_status status = n && !e->sequential ? e->sampler.ops->order(e->sampler.self, epoch, n, e->order) : LC_OK;
    for (int64_t i = 0; e->sequential && i < n; i++) e->order[i] = i;
    if (status != LC_OK)
        return lc_fail_context(status < 0 ? status : LC_ERR_USER, "sampler '%s'", e->sampler.ops->name);
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
    int64_t batches = batches_of(e, n);
    if (start > batches)
        return lc_fail(LC_ERR_ARGUMENT, "cannot start at batch %lld: the epoch has %lld", (long long)start,
                       (long long)batches);
    e->key = lc_random_key(lc_random_key_name(e->seed, "samples"), (uint64_t)epoch);
    e->n_samples = n;
    e->n_batches = batches;
    return LC_OK;
}

lc__batch_part lc__epoch_part(const lc__epoch *e, int64_t batch)
{
    int64_t global_begin = batch * e->global_batch, left = e->n_samples - global_begin;
    lc__batch_part s = {.global_size = left < e->global_batch ? left : e->global_batch};
    lc_share_range(&e->share, e->global_batch, s.global_size, &s.offset, &s.n);
    s.begin = global_begin + s.offset;
    return s;
}

bool lc__epoch_is_share(const lc__epoch *e)
{
    return e->share.size > 1 || e->share.pieces > 0;
}

void lc__epoch_release(lc__epoch *e)
{
    lc_sampler_release(&e->sampler);
    lc_dataset_unref(e->dataset);
    free(e->order);
}
