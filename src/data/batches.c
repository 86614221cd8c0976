/* SPDX-License-Identifier: Apache-2.0 */
/* An epoch whose samples differ in size: brought into batches of like length, and cut where a budget is spent. */
#include "data/batches.h"
#include "base/grow.h"
#include "data/collate.h"
#include "data_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    POOL_BATCHES = 50
}; /* as many batches are sorted together, so that neighbors still differ from epoch to epoch */

/* The product of the sizes in which samples differ. */
static int64_t tokens_of(const lc_field *f, const int64_t *sizes)
{
    int64_t n = 1;
    for (int i = 0; i < f->ndim; i++)
        if (!f->shape[i] && __builtin_mul_overflow(n, sizes[i], &n)) return INT64_MAX;
    return n;
}

/* The length of a sample: that of its longest field. */
static lc_status length_of(const lc__epoch *e, int64_t sample, int64_t *out)
{
    int64_t sizes[LC_MAX_DIMS - 1];
    *out = 0;
    for (int f = 0; f < e->dataset->spec.n; f++) {
        const lc_field *field = &e->dataset->spec.fields[f];
        if (!lc__field_differs(field)) continue;
        LC_TRY(lc_dataset_sizes(e->dataset, sample, f, sizes));
        const int64_t n = tokens_of(field, sizes);
        if (n > *out) *out = n;
    }
    return LC_OK;
}

/* ---- like lengths ---- */

typedef struct item {
    int64_t length, position, sample;
} item;

static int longest_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? 1 : -1;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* How many samples from `begin` on are sorted together. */
static int64_t pool_of(const lc__epoch *e, const item *items, int64_t begin)
{
    const int64_t left = e->n_samples - begin;
    int64_t room, n = 0;
    if (!e->shuffles) return left;
    if (!e->max_tokens)
        return __builtin_mul_overflow(e->global_batch, POOL_BATCHES, &room) || room > left ? left : room;
    if (__builtin_mul_overflow(e->max_tokens, e->share.batches, &room) ||
        __builtin_mul_overflow(room, POOL_BATCHES, &room))
        return left;
    for (; n < left && room > 0; n++) room -= items[begin + n].length;
    return n;
}

static lc_status sort_pools(lc__epoch *e)
{
    item *items = malloc(((size_t)e->n_samples + 1) * sizeof *items);
    if (!items) return lc_fail(LC_ERR_MEMORY, "out of memory for the lengths of %lld samples", (long long)e->n_samples);
    lc_status status = LC_OK;
    for (int64_t i = 0; status == LC_OK && i < e->n_samples; i++) {
        items[i] = (item){.position = i, .sample = e->order[i]};
        status = length_of(e, e->order[i], &items[i].length);
    }
    for (int64_t i = 0, n; status == LC_OK && i < e->n_samples; i += n) {
        n = pool_of(e, items, i);
        qsort(items + i, (size_t)n, sizeof *items, longest_first);
    }
    for (int64_t i = 0; status == LC_OK && i < e->n_samples; i++) e->order[i] = items[i].sample;
    free(items);
    return status;
}

/* ---- a budget ---- */

/* The batch that is being filled: its largest sizes, and the tokens of a sample that is padded to them. */
typedef struct open_batch {
    int64_t sizes[LC_MAX_BATCH_TENSORS][LC_MAX_DIMS - 1];
    int64_t n, tokens;
} open_batch;

static lc_status add_sample(const lc__epoch *e, open_batch *b, int64_t sample)
{
    int64_t sizes[LC_MAX_DIMS - 1];
    for (int f = 0; f < e->dataset->spec.n; f++) {
        const lc_field *field = &e->dataset->spec.fields[f];
        bool larger = !b->n;
        if (!lc__field_differs(field)) continue;
        LC_TRY(lc_dataset_sizes(e->dataset, sample, f, sizes));
        for (int i = 0; i < field->ndim; i++)
            if (sizes[i] > b->sizes[f][i]) b->sizes[f][i] = sizes[i], larger = true;
        if (!larger) continue;
        memcpy(sizes, b->sizes[f], sizeof sizes);
        LC_TRY(lc__padding_sizes(e->padding, e->dataset, f, sizes));
        const int64_t n = tokens_of(field, sizes);
        if (n > b->tokens) b->tokens = n;
    }
    b->n++;
    return LC_OK;
}

static lc_status cut(lc__epoch *e)
{
    int64_t budget, total;
    open_batch b = {0};
    e->n_batches = 0;
    if (__builtin_mul_overflow(e->max_tokens, e->share.batches, &budget)) budget = INT64_MAX;
    for (int64_t i = 0; i < e->n_samples; i++) {
        for (int again = 0;; again++) {
            LC_TRY(add_sample(e, &b, e->order[i]));
            if (!__builtin_mul_overflow(b.n, b.tokens, &total) && total <= budget) break;
            if (b.n == 1)
                return lc_fail(
                    LC_ERR_ARGUMENT,
                    "sample %lld of dataset '%s' has %lld tokens in a batch, more than max_tokens %lld; raise "
                    "it, or leave longer samples out",
                    (long long)e->order[i], lc_dataset_name(e->dataset), (long long)b.tokens, (long long)e->max_tokens);
            LC_TRY(lc__grow(&e->ends, &e->ends_room, e->n_batches, 1, "the batches of an epoch"));
            e->ends[e->n_batches++] = i;
            b = (open_batch){0};
        }
    }
    if (!b.n) return LC_OK;
    LC_TRY(lc__grow(&e->ends, &e->ends_room, e->n_batches, 1, "the batches of an epoch"));
    e->ends[e->n_batches++] = e->n_samples;
    return LC_OK;
}

/* ---- a random order of batches ---- */

static int64_t begin_of(const lc__epoch *e, int64_t batch)
{
    return !batch ? 0 : e->max_tokens ? e->ends[batch - 1] : batch * e->global_batch;
}

/* An incomplete batch stays the last. */
static lc_status shuffle(lc__epoch *e, int64_t epoch)
{
    const int64_t n = e->max_tokens ? e->n_batches : e->n_samples / e->global_batch;
    int64_t *which = malloc(((size_t)n + 1) * sizeof *which),
            *order = malloc(((size_t)e->n_samples + 1) * sizeof *order);
    int64_t *ends = malloc(((size_t)n + 1) * sizeof *ends), at = 0;
    const bool enough = which && order && ends;
    if (enough) {
        lc_random_permutation(lc_random_key_name(e->seed, "batches"), epoch, n, which);
        for (int64_t b = 0; b < n; b++) {
            const int64_t from = begin_of(e, which[b]), count = begin_of(e, which[b] + 1) - from;
            memcpy(order + at, e->order + from, (size_t)count * sizeof *order);
            ends[b] = at += count;
        }
        memcpy(e->order, order, (size_t)at * sizeof *order);
        if (e->max_tokens) memcpy(e->ends, ends, (size_t)n * sizeof *ends);
    }
    free(which);
    free(order);
    free(ends);
    return enough ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory for the order of %lld batches", (long long)n);
}

lc_status lc__batches_find(lc__epoch *e, int64_t epoch)
{
    const bool groups = e->group_by_length && !e->sequential;
    if (groups) LC_TRY(sort_pools(e));
    if (e->max_tokens) LC_TRY(cut(e));
    return groups && e->shuffles ? shuffle(e, epoch) : LC_OK;
}
