/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders of every kind, of one rank or several, and what they give: the batches of several ranks, joined in the order
 * of ranks, must be those of one process. */
#ifndef TEST_SHARE_LOADERS_H
#define TEST_SHARE_LOADERS_H

#include "test.h"
#include <lightc/data.h>

#include <limits.h>

/* ---- datasets, samplers and loaders ---- */

/* A dataset whose samples identify themselves and their key. */
static inline int64_t probe_length(void *self)
{
    return *(int64_t *)self;
}
static inline lc_status probe_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    spec->n = 2;
    spec->fields[0] = (lc_field){.name = "index", .dtype = LC_I64};
    spec->fields[1] = (lc_field){.name = "key", .dtype = LC_I64};
    return LC_OK;
}
static inline lc_status probe_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)scratch;
    *(int64_t *)out[0] = index;
    *(uint64_t *)out[1] = key;
    return LC_OK;
}
static const lc_dataset_ops probe_ops = {
    LC_DATASET_OPS_INIT,        .name = "probe",  .length = probe_length,
    .describe = probe_describe, .get = probe_get, .free = free,
};

static inline lc_dataset *probe_new(int64_t n)
{
    lc_dataset *d;
    int64_t *self = malloc(sizeof *self);
    *self = n;
    CHECK_OK(lc_dataset_new(&probe_ops, self, &d));
    return d;
}

/* A sampler of epochs of different lengths, with repetitions. */
static inline int64_t odd_length(void *self, int64_t epoch)
{
    return *(int64_t *)self ? *(int64_t *)self + epoch : 0;
}
static inline lc_status odd_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    for (int64_t i = 0; i < n; i++) indices[i] = (i * i + epoch) % *(int64_t *)self;
    return LC_OK;
}
static const lc_sampler_ops odd_ops = {LC_SAMPLER_OPS_INIT, .name = "odd", .length = odd_length, .order = odd_order,
                                       .free = free};

/* A loader of the program, with batches of numbers and a state. */
typedef struct stream {
    int64_t n, batch_size, at, epoch;
    bool drop_last, loaded, silent;
    lc_share share;
    lc_batch batch;
    int64_t data[64];
} stream;

static inline int64_t stream_batch(const stream *s)
{
    return s->batch_size * s->share.batches;
}
static inline lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    stream *s = self;
    s->epoch = epoch;
    if (!s->loaded) s->at = start * stream_batch(s);
    s->loaded = false;
    return LC_OK;
}
/* Samples [offset, offset + n) of a batch that begins at `first`. */
static inline lc_status stream_give(stream *s, int64_t first, int64_t offset, int64_t n, lc_batch **out)
{
    for (int64_t i = 0; i < n; i++) s->data[i] = 1000 * s->epoch + first + offset + i;
    lc_input_set(s->batch.x, s->data, n);
    s->batch.size = n;
    s->batch.global_offset = offset;
    s->batch.first = first + offset;
    *out = &s->batch;
    return LC_OK;
}
static inline lc_status stream_next(void *self, lc_batch **out)
{
    stream *s = self;
    int64_t all = s->n - s->at, offset, n;
    *out = NULL;
    if (all > stream_batch(s)) all = stream_batch(s);
    if (all <= 0 || (s->drop_last && all < stream_batch(s))) return LC_OK;
    lc_share_range(&s->share, stream_batch(s), all, &offset, &n);
    s->batch.global_size = s->silent ? 0 : all;
    s->at += all;
    return stream_give(s, s->at - all, offset, n, out);
}
static inline lc_status stream_cut(void *self, int64_t begin, int64_t n, lc_batch **out)
{
    stream *s = self;
    return stream_give(s, s->at - s->batch.global_size, begin, n, out);
}
static inline int64_t stream_length(void *self, int64_t epoch)
{
    const stream *s = self;
    (void)epoch;
    return (s->n + (s->drop_last ? 0 : stream_batch(s) - 1)) / stream_batch(s);
}
static inline lc_status stream_save(void *self, void *data, size_t *size)
{
    if (data) memcpy(data, &((stream *)self)->at, sizeof(int64_t));
    *size = sizeof(int64_t);
    return LC_OK;
}
static inline lc_status stream_load(void *self, const void *data, size_t size)
{
    if (size != sizeof(int64_t)) return LC_ERR_FORMAT;
    memcpy(&((stream *)self)->at, data, size);
    ((stream *)self)->loaded = true;
    return LC_OK;
}
static inline lc_status stream_share(void *self, const lc_share *share)
{
    ((stream *)self)->share = *share;
    return LC_OK;
}
static inline void stream_free(void *self)
{
    lc_tensor_unref(((stream *)self)->batch.x);
    free(self);
}
static const lc_dataloader_ops stream_ops = {
    LC_DATALOADER_OPS_INIT, .name = "stream",    .begin = stream_begin, .next = stream_next,   .length = stream_length,
    .save = stream_save,    .load = stream_load, .free = stream_free,   .share = stream_share, .cut = stream_cut,
};

static inline stream *stream_self(int64_t n, int64_t batch_size, bool drop_last)
{
    stream *s = calloc(1, sizeof *s);
    *s = (stream){.n = n, .batch_size = batch_size, .drop_last = drop_last, .share = {.size = 1, .batches = 1}};
    s->batch.n = 1;
    s->batch.names[0] = "x";
    CHECK_OK(lc_input_new(LC_I64, 1, (int64_t[]){1}, LC_ROW_MAJOR, s->data, &s->batch.x));
    s->batch.tensors[0] = s->batch.x;
    return s;
}

typedef enum what {
    PLAIN,
    SHUFFLED,
    SAMPLER,
    SUBSET,
    CONCAT,
    WINDOWS,
    OVERFIT,
    OWN,
    COMBINED, /* a combined loader, in its four modes */
    KINDS = COMBINED + LC_SEQUENTIAL + 1
} what;

typedef struct setting {
    what kind;
    int64_t samples, batch_size;
    bool drop_last;
    int workers;
} setting;

/* The dataset of a kind, with about `n` samples. */
static inline lc_dataset *dataset_of(what kind, int64_t n)
{
    lc_dataset *d, *parts[2];
    int64_t indices[64];
    lc_text *text;
    switch (kind) {
    case SUBSET:
        parts[0] = probe_new(3 * n + 1);
        for (int64_t i = 0; i < n; i++) indices[i] = 3 * n - 2 * i;
        CHECK_OK(lc_dataset_subset(parts[0], indices, n, &d));
        lc_dataset_unref(parts[0]);
        return d;
    case CONCAT:
        for (int i = 0; i < 2; i++) parts[i] = probe_new((n + i) / 2);
        CHECK_OK(lc_dataset_concat(parts, 2, &d));
        for (int i = 0; i < 2; i++) lc_dataset_unref(parts[i]);
        return d;
    case WINDOWS: /* 5 tokens each, 3 apart */
        CHECK_OK(lc_text_new("It is a long text, in which no two windows of five are the same; or are they? No.", 81,
                             &text));
        CHECK_OK(lc_text_windows(text, 0, 3 * n + 6 < 81 ? 3 * n + 6 : 81, 5, 3, &d));
        lc_text_free(text);
        return d;
    default:
        return probe_new(n);
    }
}

static inline lc_dataloader *loader_of(const setting *s)
{
    lc_dataloader *l;
    if (s->kind >= COMBINED) {
        setting of[] = {*s, *s, *s};
        lc_dataloader *parts[3];
        of[0].kind = PLAIN;
        of[1].kind = SHUFFLED;
        of[1].samples = s->samples / 2;
        of[2].kind = OWN;
        of[2].samples = s->samples / 3 + 1;
        for (int i = 0; i < 3; i++) parts[i] = loader_of(&of[i]);
        CHECK_OK(lc_combined_loader_new((lc_combine)(s->kind - COMBINED), 3, parts, &l));
        return l;
    }
    if (s->kind == OWN) {
        CHECK_OK(lc_dataloader_from_ops(&stream_ops, stream_self(s->samples, s->batch_size, s->drop_last), &l));
        return l;
    }
    lc_sampler odd = {&odd_ops, NULL};
    lc_dataset *d = dataset_of(s->kind, s->samples);
    lc_dataloader_args o =
        LC_ARGS(lc_dataloader, .dataset = d, .batch_size = s->batch_size, .drop_last = s->drop_last,
                .num_workers = s->workers, .shuffle = s->kind != PLAIN && s->kind != SAMPLER, .seed = 11);
    if (s->kind == SAMPLER) {
        odd.self = malloc(sizeof(int64_t));
        *(int64_t *)odd.self = s->samples;
        o.sampler = &odd;
    }
    CHECK_OK(lc_dataloader_new_with(&l, &o));
    if (s->kind == OVERFIT) CHECK(lc_dataloader_sequential(l, true));
    lc_dataset_unref(d);
    return l;
}

/* ---- batches read from loaders ---- */

enum { MOST_BATCHES = 72, MOST_SAMPLES = 20, MOST_PARTS = 3, MOST_RANKS = 5 };

typedef struct part_log {
    bool there;
    int64_t n, global_size, global_offset, first;
    uint64_t samples[MOST_SAMPLES]; /* of the contents of all tensors */
} part_log;

typedef struct epoch_log {
    int n, n_parts; /* n_parts 0: not combined; parts[0] is the batch */
    part_log batches[MOST_BATCHES][MOST_PARTS];
} epoch_log;

static inline void log_part(const lc_batch *b, part_log *out)
{
    out->there = true;
    out->n = b->size;
    out->global_size = b->global_size;
    out->global_offset = b->global_offset;
    out->first = b->first;
    CHECK(b->size >= 0 && b->size <= MOST_SAMPLES);
    for (int64_t i = 0; i < b->size; i++) out->samples[i] = 14695981039346656037u;
    for (int t = 0; t < b->n; t++) {
        int64_t data[MOST_SAMPLES * 5], width = lc_tensor_ndim(b->tensors[t]) > 1 ? lc_tensor_dim(b->tensors[t], 1) : 1;
        CHECK_EQ(lc_tensor_dim(b->tensors[t], 0), b->size);
        CHECK(width <= 5);
        CHECK_OK(lc_tensor_read(b->tensors[t], data, (size_t)(b->size * width) * sizeof *data));
        for (int64_t i = 0; i < b->size * width; i++) {
            uint64_t *h = &out->samples[i / width];
            *h = (*h ^ (uint64_t)data[i]) * 1099511628211u;
            *h ^= *h >> 29;
        }
    }
}

/* Reads up to `most` batches. */
static inline void read_batches(lc_dataloader *l, int most, epoch_log *out)
{
    memset(out, 0, sizeof *out);
    for (lc_batch *b; out->n < most; out->n++) {
        CHECK_OK(lc_dataloader_next(l, &b));
        if (!b) break;
        CHECK(out->n < MOST_BATCHES);
        part_log *parts = out->batches[out->n];
        out->n_parts = b->n_parts;
        if (!b->n_parts) log_part(b, parts);
        const lc_batch *first = NULL;
        for (int p = 0; p < b->n_parts; p++) {
            if (!b->parts[p]) continue;
            log_part(b->parts[p], &parts[p]);
            if (!first) first = b->parts[p];
        }
        if (b->n_parts) CHECK(first && b->size == first->size && b->global_size == first->global_size);
    }
}

/* Every rank has the same share of all parts, or, if no common divisor allows it, at least one sample of each. */
static inline void check_shares(const part_log *want, const epoch_log *ranks, int b, int size)
{
    int64_t divisor = 0, least = INT64_MAX;
    for (int p = 0; p < MOST_PARTS; p++) {
        if (!want[p].there) continue;
        int64_t rest = divisor;
        if (want[p].n < least) least = want[p].n;
        for (divisor = want[p].n; rest;) {
            int64_t next = divisor % rest;
            divisor = rest;
            rest = next;
        }
    }
    for (int r = 0; r < size; r++)
        for (int p = 0; p < MOST_PARTS; p++)
            for (int q = 0; q < p; q++) {
                const part_log *got = ranks[r].batches[b];
                if (!want[p].there || !want[q].there) continue;
                if (divisor >= size || least < size)
                    CHECK_EQ(got[p].n * want[q].n, got[q].n * want[p].n);
                else
                    CHECK(got[p].n && got[q].n);
            }
}

/* The ranks' batches, joined, are those of `whole` from batch `skip` on. */
static inline void check_union(const epoch_log *whole, int skip, const epoch_log *ranks, int size, int64_t full)
{
    for (int r = 0; r < size; r++) CHECK_EQ(ranks[r].n, whole->n - skip);
    for (int b = skip; b < whole->n; b++) {
        bool plain = whole->n_parts == 0;
        if (!plain) check_shares(whole->batches[b], ranks, b - skip, size);
        for (int p = 0; p < MOST_PARTS; p++) {
            const part_log *want = &whole->batches[b][p];
            int64_t at = 0, least = INT64_MAX, most = 0;
            for (int r = 0; r < size; r++) {
                const part_log *got = &ranks[r].batches[b - skip][p];
                CHECK_EQ(got->there, want->there);
                if (!want->there) continue;
                if (size > 1) CHECK_EQ(got->global_size, want->n);
                if (got->n || plain) CHECK_EQ(got->global_offset, at);
                if (got->n || plain) CHECK_EQ(got->first, want->first + at);
                CHECK(at + got->n <= want->n);
                for (int64_t i = 0; i < got->n; i++) CHECK(got->samples[i] == want->samples[at + i]);
                at += got->n;
                if (got->n < least) least = got->n;
                if (got->n > most) most = got->n;
            }
            CHECK_EQ(at, want->n);
            if (want->there && plain) CHECK(most - least <= (want->n % size != 0));
            if (want->n == full && plain) CHECK_EQ(most, (full + size - 1) / size);
        }
    }
}

static epoch_log whole, logs[MOST_RANKS];

/* The epoch of one process whose batches are those of all ranks together. */
static inline void read_whole(const setting *s, int64_t batch_size, int64_t epoch)
{
    setting one = *s;
    one.batch_size = batch_size;
    lc_dataloader *l = loader_of(&one);
    CHECK_EQ(lc_dataloader_get_share(l)->size, 1);
    CHECK_OK(lc_dataloader_begin(l, epoch, 0));
    read_batches(l, INT_MAX, &whole);
    CHECK_EQ(lc_dataloader_length(l, epoch), whole.n);
    if (s->kind < OWN)
        for (int b = 0; b < whole.n; b++) {
            CHECK_EQ(whole.batches[b][0].global_size, 0);
            CHECK_EQ(whole.batches[b][0].first, b * batch_size);
        }
    lc_dataloader_free(l);
}

#endif
