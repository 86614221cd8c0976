/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders of several ranks: their slices, joined in the order of ranks, are the batches of one process whose batch is
 * as large as those of all ranks together. Run under ThreadSanitizer too. */
#include "test.h"
#include <lightc/data.h>
#include "fail_malloc.h"
#include "data/batch_slice.h"

#include <limits.h>

/* ================================================== slices ==================================================== */

TEST(slices_cover_a_batch_without_gaps)
{
    for (int size = 1; size < 10; size++)
        for (int64_t samples = 0; samples < 80; samples++) {
            int64_t at = 0, least = INT64_MAX, most = 0;
            for (int rank = 0; rank < size; rank++) {
                int64_t begin, n;
                lc_shard_slice(&(lc_shard){.rank = rank, .size = size}, 80, samples, &begin, &n);
                CHECK_EQ(begin, at);
                CHECK(n >= 0);
                at += n;
                if (n < least) least = n;
                if (n > most) most = n;
            }
            CHECK_EQ(at, samples);
            CHECK(most - least <= 1);
        }
}

/* Slices consist of whole pieces, which begin at the same samples and belong to the same rank whatever the size of the
 * batch. */
TEST(slices_in_pieces_cut_none)
{
    for (int size = 1; size < 10; size++)
        for (int64_t full = 1; full < 40; full += 3)
            for (int64_t pieces = 1; pieces < 12; pieces++)
                for (int64_t samples = 0; samples <= full; samples++) {
                    int64_t at = 0, piece = (full + pieces - 1) / pieces, each = (pieces + size - 1) / size;
                    for (int rank = 0; rank < size; rank++) {
                        int64_t begin, n;
                        lc_shard s = {.rank = rank, .size = size, .pieces = pieces};
                        lc_shard_slice(&s, full, samples, &begin, &n);
                        CHECK_EQ(lc_shard_piece(&s, full), piece);
                        CHECK_EQ(begin, at);
                        CHECK_EQ(begin, rank * each * piece < samples ? rank * each * piece : samples);
                        CHECK(n >= 0 && n <= each * piece);
                        at += n;
                    }
                    CHECK_EQ(at, samples);
                }
}

TEST(slices_of_very_many_samples)
{
    const int64_t samples = (int64_t)INT_MAX * INT_MAX;
    int64_t begin, n;
    lc_shard_slice(&(lc_shard){.rank = INT_MAX - 1, .size = INT_MAX}, samples, samples, &begin, &n);
    CHECK_EQ(begin, samples - INT_MAX);
    CHECK_EQ(n, INT_MAX);
    lc_shard_slice(&(lc_shard){.rank = 2, .size = 3, .pieces = INT_MAX}, samples, samples, &begin, &n);
    CHECK_EQ(begin, (int64_t)INT_MAX * (2 * (((int64_t)INT_MAX + 2) / 3)));
    CHECK_EQ(n, samples - begin);
}

/* ============================================= slices of one batch ============================================= */

static lc_tensor *input_of(void *data, int64_t n, int64_t columns)
{
    lc_tensor *t = NULL;
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){n, columns}, LC_ROW_MAJOR, data, &t));
    return t;
}

static float first_of(lc_tensor *t)
{
    float v[64];
    CHECK_OK(lc_tensor_read(t, v, (size_t)lc_tensor_numel(t) * sizeof *v));
    return v[0];
}

TEST(a_slice_of_a_batch_has_its_samples)
{
    _Alignas(64) float x[10][3], y[10][1], mask[3][3] = {{0}};
    int64_t indices[10];
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 3; k++) x[i][k] = (float)(10 * i + k);
        y[i][0] = (float)i;
        indices[i] = 100 + i;
    }
    lc_batch b = {.n = 3, .size = 10, .indices = indices, .global_size = 30, .global_offset = 10, .first = 50};
    b.tensors[0] = b.x = input_of(x, 10, 3);
    b.tensors[1] = b.y = input_of(y, 10, 1);
    b.tensors[2] = input_of(mask, 3, 3);
    lc__batch_slice s = {0};
    lc_tensor *kept = NULL;
    const lc_batch *part;
    for (int64_t begin = 0; begin < 10; begin += 4) {
        int64_t n = begin + 4 < 10 ? 4 : 10 - begin;
        CHECK_OK(lc__batch_cut(&s, &b, begin, n, &part));
        CHECK_EQ(part->size, n);
        CHECK_EQ(part->indices[0], 100 + begin);
        CHECK_EQ(part->first, 50 + begin);
        CHECK_EQ(part->global_offset, 10 + begin);
        CHECK_EQ(part->global_size, 30);
        CHECK(part->x == part->tensors[0] && part->y == part->tensors[1] && part->tensors[2] == b.tensors[2]);
        CHECK_EQ(lc_tensor_dim(part->x, 0), n);
        CHECK_EQ(first_of(part->x), 10 * begin);
        CHECK_EQ(first_of(part->y), begin);
        CHECK(!kept || kept == part->x); /* no new tensors in the steady step */
        kept = part->x;
    }
    CHECK_STATUS(lc__batch_cut(&s, &b, 8, 3, &part), LC_ERR_ARGUMENT);
    lc__batch_slice_release(&s);
    for (int i = 0; i < 3; i++) lc_tensor_unref(b.tensors[i]);
}

TEST(slices_of_a_batch_in_parts)
{
    _Alignas(64) float x[12][1], z[7][1];
    for (int i = 0; i < 12; i++) x[i][0] = (float)i;
    for (int i = 0; i < 7; i++) z[i][0] = (float)-i;
    lc_batch a = {.n = 1, .size = 12}, c = {.n = 1, .size = 7};
    a.tensors[0] = a.x = input_of(x, 12, 1);
    c.tensors[0] = c.x = input_of(z, 7, 1);
    const lc_batch *parts[] = {NULL, &a, &c}, *part;
    lc_batch whole = a;
    whole.n_parts = 3;
    whole.parts = parts;
    lc__batch_slice s = {0};
    int64_t seen = 0;
    for (int64_t begin = 0; begin < 12; begin += 5) {
        int64_t n = begin + 5 < 12 ? 5 : 12 - begin;
        CHECK_OK(lc__batch_cut(&s, &whole, begin, n, &part));
        CHECK(part->n_parts == 3 && !part->parts[0] && part->x == part->parts[1]->x);
        CHECK_EQ(part->size, n);
        CHECK_EQ(first_of(part->parts[1]->x), begin);
        CHECK_EQ(first_of(part->parts[2]->x), -seen);
        seen += part->parts[2]->size;
    }
    CHECK_EQ(seen, 7);
    lc__batch_slice_release(&s);
    lc_tensor_unref(a.x), lc_tensor_unref(c.x);
}

/* ============================================ the library's loaders ============================================= */

/* A dataset whose samples identify themselves and their key. */
static int64_t probe_length(void *self)
{
    return *(int64_t *)self;
}
static lc_status probe_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    spec->n = 2;
    spec->fields[0] = (lc_field){.name = "index", .dtype = LC_I64};
    spec->fields[1] = (lc_field){.name = "key", .dtype = LC_I64};
    return LC_OK;
}
static lc_status probe_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
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

static lc_dataset *probe_new(int64_t n)
{
    lc_dataset *d;
    int64_t *self = malloc(sizeof *self);
    *self = n;
    CHECK_OK(lc_dataset_new(&probe_ops, self, &d));
    return d;
}

/* A sampler of epochs of different lengths, with repetitions. */
static int64_t odd_length(void *self, int64_t epoch)
{
    return *(int64_t *)self ? *(int64_t *)self + epoch : 0;
}
static lc_status odd_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
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
    lc_shard shard;
    lc_batch batch;
    int64_t data[64];
} stream;

static int64_t stream_batch(const stream *s)
{
    return s->batch_size * s->shard.batches;
}
static lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    stream *s = self;
    s->epoch = epoch;
    if (!s->loaded) s->at = start * stream_batch(s);
    s->loaded = false;
    return LC_OK;
}
/* Samples [offset, offset + n) of a batch that begins at `first`. */
static lc_status stream_give(stream *s, int64_t first, int64_t offset, int64_t n, lc_batch **out)
{
    for (int64_t i = 0; i < n; i++) s->data[i] = 1000 * s->epoch + first + offset + i;
    lc_input_set(s->batch.x, s->data, n);
    s->batch.size = n;
    s->batch.global_offset = offset;
    s->batch.first = first + offset;
    *out = &s->batch;
    return LC_OK;
}
static lc_status stream_next(void *self, lc_batch **out)
{
    stream *s = self;
    int64_t all = s->n - s->at, offset, n;
    *out = NULL;
    if (all > stream_batch(s)) all = stream_batch(s);
    if (all <= 0 || (s->drop_last && all < stream_batch(s))) return LC_OK;
    lc_shard_slice(&s->shard, stream_batch(s), all, &offset, &n);
    s->batch.global_size = s->silent ? 0 : all;
    s->at += all;
    return stream_give(s, s->at - all, offset, n, out);
}
static lc_status stream_cut(void *self, int64_t begin, int64_t n, lc_batch **out)
{
    stream *s = self;
    return stream_give(s, s->at - s->batch.global_size, begin, n, out);
}
static int64_t stream_length(void *self, int64_t epoch)
{
    const stream *s = self;
    (void)epoch;
    return (s->n + (s->drop_last ? 0 : stream_batch(s) - 1)) / stream_batch(s);
}
static lc_status stream_save(void *self, void *data, size_t *size)
{
    if (data) memcpy(data, &((stream *)self)->at, sizeof(int64_t));
    *size = sizeof(int64_t);
    return LC_OK;
}
static lc_status stream_load(void *self, const void *data, size_t size)
{
    if (size != sizeof(int64_t)) return LC_ERR_FORMAT;
    memcpy(&((stream *)self)->at, data, size);
    ((stream *)self)->loaded = true;
    return LC_OK;
}
static lc_status stream_shard(void *self, const lc_shard *shard)
{
    ((stream *)self)->shard = *shard;
    return LC_OK;
}
static void stream_free(void *self)
{
    lc_tensor_unref(((stream *)self)->batch.x);
    free(self);
}
static const lc_dataloader_ops stream_ops = {
    LC_DATALOADER_OPS_INIT, .name = "stream",    .begin = stream_begin, .next = stream_next,   .length = stream_length,
    .save = stream_save,    .load = stream_load, .free = stream_free,   .shard = stream_shard, .cut = stream_cut,
};

static stream *stream_self(int64_t n, int64_t batch_size, bool drop_last)
{
    stream *s = calloc(1, sizeof *s);
    *s = (stream){.n = n, .batch_size = batch_size, .drop_last = drop_last, .shard = {.size = 1, .batches = 1}};
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
static lc_dataset *dataset_of(what kind, int64_t n)
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

static lc_dataloader *loader_of(const setting *s)
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

/* ============================================== batches of loaders ============================================== */

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

static void log_part(const lc_batch *b, part_log *out)
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
static void read_batches(lc_dataloader *l, int most, epoch_log *out)
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
static void check_shares(const part_log *want, const epoch_log *ranks, int b, int size)
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
static void check_union(const epoch_log *whole, int skip, const epoch_log *ranks, int size, int64_t full)
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
static void read_whole(const setting *s, int64_t batch_size, int64_t epoch)
{
    setting one = *s;
    one.batch_size = batch_size;
    lc_dataloader *l = loader_of(&one);
    CHECK_EQ(lc_dataloader_get_shard(l)->size, 1);
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

/* =================================================== tests ==================================================== */

TEST(ranks_together_have_the_batches_of_one_process)
{
    static const int64_t lengths[] = {0, 1, 2, 3, 7, 12, 23};
    setting s;
    long joined = 0;
    for (int k = 0; k < KINDS; k++)
        for (int size = 1; size <= MOST_RANKS; size++)
            for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
                for (int64_t batch_size = 1; batch_size <= 4; batch_size += 1 + (batch_size == 2))
                    for (int mode = 0; mode < 4; mode++) {
                        s = (setting){(what)k, lengths[n], batch_size, mode & 1, mode & 2};
                        lc_dataloader *l[MOST_RANKS];
                        for (int r = 0; r < size; r++) {
                            l[r] = loader_of(&s);
                            CHECK_OK(lc_dataloader_shard(l[r], &(lc_shard){.rank = r, .size = size}));
                            CHECK_EQ(lc_dataloader_get_shard(l[r])->rank, r);
                            CHECK_EQ(lc_dataloader_get_shard(l[r])->batches, size);
                            if (k < OWN) CHECK_EQ(lc_dataloader_batch_size(l[r]), batch_size);
                        }
                        for (int64_t epoch = 1; epoch < 3; epoch++) {
                            read_whole(&s, size * batch_size, epoch);
                            for (int r = 0; r < size; r++) {
                                CHECK_EQ(lc_dataloader_length(l[r], epoch), whole.n);
                                CHECK_OK(lc_dataloader_begin(l[r], epoch, 0));
                                read_batches(l[r], INT_MAX, &logs[r]);
                            }
                            check_union(&whole, 0, logs, size, size * batch_size);
                            joined += whole.n;
                        }
                        for (int r = 0; r < size; r++) lc_dataloader_free(l[r]);
                    }
    CHECK(joined > 10000);
}

/* Evaluation, the simplest case in numbers: 7 samples, 3 ranks, 2 for each; then 4 ranks for the last one. */
TEST(the_last_batch_may_be_empty_on_some_ranks)
{
    static const int64_t sizes[3][2] = {{2, 0}, {2, 0}, {2, 1}};
    setting s = {PLAIN, 7, 2, false, 0};
    for (int r = 0; r < 3; r++) {
        lc_dataloader *l = loader_of(&s);
        lc_batch *b;
        CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = r, .size = 3}));
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        for (int i = 0; i < 2; i++) {
            CHECK_OK(lc_dataloader_next(l, &b));
            CHECK_EQ(b->size, sizes[r][i]);
            CHECK_EQ(b->global_size, i ? 1 : 6);
            CHECK_EQ(b->global_offset, i ? 0 : 2 * r);
            CHECK_EQ(b->first, i ? 6 : 2 * r);
            CHECK_EQ(lc_tensor_dim(b->x, 0), b->size);
            for (int64_t j = 0; j < b->size; j++) CHECK_EQ(b->indices[j], b->first + j);
        }
        CHECK_OK(lc_dataloader_next(l, &b));
        CHECK(!b);
        lc_dataloader_free(l);
    }
}

/* A run of `from` ranks stops after batch k; one of `to` ranks continues. */
static void check_resume(const setting *s, int from, int to, int64_t epoch)
{
    int64_t global = s->batch_size * from;
    read_whole(s, global, epoch);
    for (int k = 0; k <= whole.n; k++) {
        int64_t state[64];
        size_t size = sizeof state;
        lc_dataloader *l = loader_of(s);
        CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = from - 1, .size = from}));
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        read_batches(l, k, &logs[0]);
        CHECK_EQ(logs[0].n, k);
        CHECK_OK(lc_dataloader_save(l, state, &size));
        lc_dataloader_free(l);
        /* The loaders keep their sizes for another number of ranks; and, if it divides, they are given another size. */
        for (int divided = 0; divided < 1 + (global % to == 0); divided++) {
            setting now = *s;
            if (divided) now.batch_size = global / to;
            for (int r = 0; r < to; r++) {
                l = loader_of(&now);
                CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = r, .size = to, .batches = divided ? 0 : from}));
                if (size) CHECK_OK(lc_dataloader_load(l, state, size));
                CHECK_OK(lc_dataloader_begin(l, epoch, k));
                read_batches(l, INT_MAX, &logs[r]);
                lc_dataloader_free(l);
            }
            check_union(&whole, k, logs, to, global);
        }
    }
}

TEST(resume_at_every_batch_with_other_ranks)
{
    setting s;
    for (int k = 0; k < KINDS; k++)
        for (int from = 1; from <= 4; from++)
            for (int to = 1; to <= MOST_RANKS; to++)
                for (int64_t batch_size = 1; batch_size <= 3; batch_size += 2) {
                    s = (setting){(what)k, 17, batch_size, to == 3, k == SHUFFLED ? 2 : 0};
                    check_resume(&s, from, to, 1);
                }
}

/* One loader that is used as one rank after another, and then as all of them again; with epochs that are left early. */
TEST(the_same_loader_as_other_ranks)
{
    for (int workers = 0; workers < 3; workers += 2) {
        setting s = {SHUFFLED, 23, 2, false, workers};
        lc_dataloader *l = loader_of(&s);
        lc_batch *b;
        for (int round = 0; round < 3; round++)
            for (int size = 1; size <= MOST_RANKS; size++)
                for (int batches = 0; batches <= MOST_RANKS; batches++) {
                    int64_t global = 2 * (batches ? batches : size);
                    read_whole(&s, global, round);
                    for (int r = 0; r < size; r++) {
                        CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = r, .size = size, .batches = batches}));
                        CHECK_OK(lc_dataloader_begin(l, round, 0));
                        read_batches(l, INT_MAX, &logs[r]);
                        CHECK_OK(lc_dataloader_begin(l, round + 1, 0)); /* workers are busy when it is sharded again */
                        CHECK_OK(lc_dataloader_next(l, &b));
                    }
                    check_union(&whole, 0, logs, size, global);
                }
        read_whole(&s, 2, 0);
        CHECK_OK(lc_dataloader_shard(l, NULL));
        CHECK_STATUS(lc_dataloader_next(l, &b), LC_ERR_STATE); /* the epoch was ended */
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        read_batches(l, INT_MAX, &logs[0]);
        CHECK(!memcmp(&whole, &logs[0], sizeof whole));
        lc_dataloader_free(l);
    }
}

/* Sums over parts of a batch that do not depend on the number of ranks need slices of whole pieces. */
TEST(slices_of_whole_pieces)
{
    for (int size = 1; size <= MOST_RANKS; size++) {
        setting s = {SHUFFLED, 31, 4, false, 0};
        int64_t at[16] = {0};
        int n = 0;
        for (int r = 0; r < size; r++) {
            lc_dataloader *l = loader_of(&s);
            lc_batch *b;
            CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = r, .size = size, .batches = 3, .pieces = 3}));
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            for (n = 0;; n++) {
                CHECK_OK(lc_dataloader_next(l, &b));
                if (!b) break;
                CHECK_EQ(b->global_offset, at[n]);
                CHECK_EQ(b->piece, 4);
                CHECK(b->size % 4 == 0 || b->global_offset + b->size == b->global_size);
                CHECK_EQ(b->global_offset,
                         n == 2 && 4 * r * ((3 + size - 1) / size) > 7
                             ? 7
                             : (4 * r * ((3 + size - 1) / size) < 12 ? 4 * r * ((3 + size - 1) / size) : 12));
                at[n] += b->size;
                CHECK_EQ(b->global_size, n == 2 ? 31 - 24 : 12);
            }
            lc_dataloader_free(l);
        }
        CHECK_EQ(n, 3);
        CHECK(at[0] == 12 && at[1] == 12 && at[2] == 7);
    }
}

TEST(a_loader_of_the_program_must_support_shards)
{
    lc_dataloader_ops ops = stream_ops;
    lc_dataloader *plain, *parts[2], *l;
    setting s = {PLAIN, 9, 2, false, 0};
    ops.shard = NULL;
    CHECK_OK(lc_dataloader_from_ops(&ops, stream_self(9, 2, false), &l));
    CHECK_STATUS(lc_dataloader_shard(l, &(lc_shard){.rank = 1, .size = 2}), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "loader 'stream'");
    CHECK_CONTAINS(lc_error_message(), "rank 1 of 2");
    CHECK_CONTAINS(lc_error_message(), "--use_distributed_sampler false");
    CHECK_EQ(lc_dataloader_get_shard(l)->size, 1);
    CHECK_OK(lc_dataloader_shard(l, NULL)); /* a single rank needs nothing */
    CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = 0, .size = 1}));

    /* In a combined loader: the loader before it has all its samples again. */
    plain = parts[0] = loader_of(&s);
    parts[1] = l;
    CHECK_OK(lc_combined_loader_new(LC_MAX_SIZE, 2, parts, &l));
    CHECK_STATUS(lc_dataloader_shard(l, &(lc_shard){.rank = 1, .size = 2}), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "'stream'");
    CHECK_EQ(lc_dataloader_get_shard(plain)->size, 1);
    CHECK_EQ(lc_dataloader_length(plain, 0), 5);
    CHECK_EQ(lc_dataloader_length(l, 0), 5);
    lc_dataloader_free(l);

    /* A loader that can be sharded, but does not know how large the global batch is. */
    stream *silent = stream_self(9, 2, false);
    silent->silent = true;
    CHECK_OK(lc_dataloader_from_ops(&stream_ops, silent, &l));
    lc_batch *b;
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_OK(lc_dataloader_next(l, &b));
    CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = 0, .size = 2}));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_STATUS(lc_dataloader_next(l, &b), LC_ERR_USER);
    CHECK(!b);
    CHECK_CONTAINS(lc_error_message(), "global_size");
    lc_dataloader_free(l);
}

TEST(impossible_shards)
{
    static const lc_shard wrong[] = {
        {0, 0}, {-1, 2}, {2, 2}, {0, -1}, {0, 1, -1, 0}, {0, 1, 0, -1}, {0, 2, 0, INT64_MAX}};
    setting s = {PLAIN, 9, 2, false, 0};
    lc_dataloader *l = loader_of(&s);
    CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = 1, .size = 3}));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(lc_dataloader_shard(l, &wrong[i]), LC_ERR_ARGUMENT);
        CHECK_EQ(lc_dataloader_get_shard(l)->size, 3);
        CHECK_EQ(lc_dataloader_length(l, 0), 2);
    }
    CHECK_STATUS(lc_dataloader_shard(l, &(lc_shard){.rank = 0, .size = 1, .batches = INT_MAX}),
                 LC_ERR_ARGUMENT); /* a batch of 2^32 samples */
    CHECK_EQ(lc_dataloader_length(l, 0), 2);
    lc_dataloader_free(l);
}

/* Larger slices than before need memory; without it the loader stays as it was. */
TEST(no_memory_for_larger_slices)
{
#ifdef SANITIZED
    SKIP("a sanitizer owns malloc");
#else
    setting s = {SHUFFLED, 23, 2, false, 2};
    int failures = 0;
    read_whole(&s, 2, 0);
    for (long at = 1;; at++) {
        lc_dataloader *l = loader_of(&s);
        atomic_store(&malloc_fail_at, atomic_load(&mallocs) + at);
        lc_status status = lc_dataloader_shard(l, &(lc_shard){.rank = 1, .size = 2, .batches = 4});
        atomic_store(&malloc_fail_at, 0);
        if (status < 0) {
            CHECK_EQ(status, LC_ERR_MEMORY);
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            read_batches(l, INT_MAX, &logs[0]);
            CHECK(!memcmp(&whole, &logs[0], sizeof whole));
            failures++;
        }
        lc_dataloader_free(l);
        if (status == LC_OK) break;
    }
    CHECK(failures >= 8); /* the keys of two workers, and two fields of five slots */
#endif
}

TEST(ranks_allocate_nothing_in_the_steady_state)
{
#ifdef SANITIZED
    SKIP("a sanitizer owns malloc");
#else
    for (int workers = 0; workers < 3; workers += 2) {
        setting s = {SHUFFLED, 23, 2, false, workers};
        lc_dataloader *l = loader_of(&s);
        long before = 0, batches = 0;
        CHECK_OK(lc_dataloader_shard(l, &(lc_shard){.rank = 2, .size = 3}));
        for (int epoch = 0; epoch < 4; epoch++) {
            if (epoch == 1) before = atomic_load(&mallocs);
            CHECK_OK(lc_dataloader_begin(l, epoch, 0));
            for (lc_batch *b;; batches++) {
                CHECK_OK(lc_dataloader_next(l, &b));
                if (!b) break;
            }
        }
        CHECK_EQ(batches, 16);
        CHECK_EQ(atomic_load(&mallocs) - before, 0);
        lc_dataloader_free(l);
    }
#endif
}

TEST_MAIN
