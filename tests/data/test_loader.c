/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: order, exact resume, workers, errors, memory. Run under ThreadSanitizer too. */
#include "test.h"
#include <lightc/graph.h>
#include <lightc/transforms.h>
#include "data/workers.h"
#include "fail_malloc.h"

#include <pthread.h>
#include <limits.h>
#include <stdatomic.h>
#include <time.h>

/* ---- a dataset whose samples identify themselves ---- */

typedef struct probe {
    int64_t n, fail_at;
    int delay; /* nanoseconds of work, different for each sample */
    bool scratch;
    atomic_int gets, inside, most_inside;
} probe;

static int64_t probe_length(void *self)
{
    return ((probe *)self)->n;
}
static lc_status probe_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    spec->n = 3;
    spec->fields[0] = (lc_field){.name = "index", .dtype = LC_I64};
    spec->fields[1] = (lc_field){.name = "key", .dtype = LC_I64};
    spec->fields[2] = (lc_field){.name = "pixels", .dtype = LC_F32, .ndim = 2, .shape = {2, 3}};
    return LC_OK;
}
static size_t probe_scratch(void *self)
{
    return ((probe *)self)->scratch ? 100 : 0;
}
static lc_status probe_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    probe *p = self;
    int inside = ++p->inside;
    int most = p->most_inside;
    while (inside > most && !atomic_compare_exchange_weak(&p->most_inside, &most, inside)) {
    }
    p->gets++;
    lc_status status = LC_OK;
    if (p->delay) {
        struct timespec t = {0, p->delay * (long)(1 + index % 7)};
        nanosleep(&t, NULL);
    }
    if (p->scratch) memset(scratch, (int)index, 100); /* a shared one would be a race */
    *(int64_t *)out[0] = index;
    *(int64_t *)out[1] = (int64_t)key;
    for (int i = 0; i < 6; i++) ((float *)out[2])[i] = (float)(index * 10 + i);
    if (index == p->fail_at) status = lc_fail(LC_ERR_USER, "cannot decode number %lld", (long long)index);
    p->inside--;
    return status;
}
static const lc_dataset_ops probe_ops = {LC_DATASET_OPS_INIT,        .name = "probe",  .length = probe_length,
                                         .describe = probe_describe, .get = probe_get, .scratch_size = probe_scratch};

static lc_dataset *dataset_of(probe *p)
{
    lc_dataset *d;
    CHECK_OK(lc_dataset_new(&probe_ops, p, &d));
    return d;
}

/* Reads the rest of the epoch: (index, key) of every sample and the sizes of the batches. Returns the samples. */
static int64_t drain(lc_dataloader *l, int64_t *samples, int64_t *sizes, int64_t *n_batches)
{
    int64_t n = 0, b = 0;
    for (;;) {
        lc_batch *batch;
        CHECK_OK(lc_dataloader_next(l, &batch));
        if (!batch) break;
        int64_t k = batch->size, index[64], key[64];
        float pixels[64 * 6];
        CHECK(k >= 1 && k <= 64);
        CHECK(batch->x == batch->tensors[0] && batch->y == batch->tensors[1] && batch->n == 3);
        CHECK_STR(batch->names[2], "pixels");
        CHECK_EQ(lc_tensor_ndim(batch->tensors[2]), 3);
        CHECK_EQ(lc_tensor_dim(batch->tensors[2], 0), k);
        CHECK_EQ(lc_tensor_dim(batch->tensors[2], 1), 2);
        CHECK_OK(lc_tensor_read(batch->x, index, (size_t)k * 8));
        CHECK_OK(lc_tensor_read(batch->y, key, (size_t)k * 8));
        CHECK_OK(lc_tensor_read(batch->tensors[2], pixels, (size_t)k * 24));
        for (int64_t i = 0; i < k; i++) {
            for (int j = 0; j < 6; j++) CHECK(pixels[i * 6 + j] == (float)(index[i] * 10 + j));
            samples[2 * n] = index[i];
            samples[2 * n++ + 1] = key[i];
        }
        if (sizes) sizes[b] = k;
        b++;
    }
    if (n_batches) *n_batches = b;
    return n;
}

TEST(sequential_and_partial_batches)
{
    probe p = {.n = 10, .fail_at = -1};
    lc_dataset *d = dataset_of(&p);
    for (int workers = 0; workers < 3; workers++)
        for (int drop = 0; drop < 2; drop++) {
            lc_dataloader *l;
            int64_t samples[20], sizes[8], n;
            CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 4, .drop_last = drop, .num_workers = workers));
            CHECK_EQ(lc_dataloader_length(l, 0), drop ? 2 : 3);
            CHECK_EQ(lc_dataloader_batch_size(l), 4);
            for (int epoch = 0; epoch < 3; epoch++) {
                CHECK_OK(lc_dataloader_begin(l, epoch, 0));
                CHECK_EQ(drain(l, samples, sizes, &n), drop ? 8 : 10);
                CHECK_EQ(n, drop ? 2 : 3);
                CHECK_EQ(sizes[n - 1], drop ? 4 : 2);
                for (int i = 0; i < (drop ? 8 : 10); i++) CHECK_EQ(samples[2 * i], i);
                lc_batch *batch;
                CHECK_OK(lc_dataloader_next(l, &batch)); /* the end is final */
                CHECK(!batch);
                int64_t e, c;
                lc_dataloader_cursor(l, &e, &c);
                CHECK_EQ(e, epoch);
                CHECK_EQ(c, n);
            }
            lc_dataloader_free(l);
        }
    lc_dataset_unref(d);
}

enum { N = 103 };

static void epoch_of(lc_dataset *d, int workers, int prefetch, uint64_t seed, int64_t epoch, int64_t start,
                     int64_t *samples, int64_t want)
{
    lc_dataloader *l;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 8, .shuffle = true, .num_workers = workers,
                               .prefetch = prefetch, .seed = seed));
    CHECK_OK(lc_dataloader_begin(l, epoch, start));
    CHECK_EQ(drain(l, samples, NULL, NULL), want);
    lc_dataloader_free(l);
}

TEST(order_and_keys_depend_only_on_the_seed)
{
    probe p = {.n = N, .fail_at = -1, .delay = 1000, .scratch = true};
    lc_dataset *d = dataset_of(&p);
    int64_t a[2 * N], b[2 * N];
    bool seen[N] = {false};
    epoch_of(d, 0, 0, 5, 2, 0, a, N);
    for (int i = 0; i < N; i++) {
        CHECK(!seen[a[2 * i]]);
        seen[a[2 * i]] = true;
    }
    for (int workers = 0; workers < 5; workers++)
        for (int prefetch = 1; prefetch < 4; prefetch++) {
            epoch_of(d, workers, prefetch, 5, 2, 0, b, N);
            CHECK(!memcmp(a, b, sizeof a));
        }
    epoch_of(d, 2, 2, 5, 3, 0, b, N); /* another epoch: other order, other keys */
    CHECK(memcmp(a, b, sizeof a));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (a[2 * i] == b[2 * j]) CHECK(a[2 * i + 1] != b[2 * j + 1]);
    epoch_of(d, 2, 2, 6, 2, 0, b, N);
    CHECK(memcmp(a, b, sizeof a));
    lc_dataset_unref(d);
}

TEST(resume_at_every_batch)
{
    probe p = {.n = N, .fail_at = -1};
    lc_dataset *d = dataset_of(&p);
    int64_t a[2 * N], b[2 * N];
    epoch_of(d, 0, 0, 5, 1, 0, a, N);
    for (int workers = 0; workers < 3; workers += 2)
        for (int64_t start = 0; start <= 13; start++) {
            int64_t rest = N - 8 * start < 0 ? 0 : N - 8 * start;
            epoch_of(d, workers, 2, 5, 1, start, b, rest);
            CHECK(!memcmp(a + 2 * (N - rest), b, (size_t)rest * 16));
        }
    lc_dataloader *l;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 8));
    CHECK_STATUS(lc_dataloader_begin(l, 0, 14), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "batch 14");
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

/* Leaving an epoch early, while batches are prefetched, and freeing the loader without an end. */
TEST(leave_early)
{
    probe p = {.n = N, .fail_at = -1, .delay = 2000};
    lc_dataset *d = dataset_of(&p);
    int64_t want[2 * N], got[2 * N];
    epoch_of(d, 0, 0, 9, 4, 0, want, N);
    lc_dataloader *l;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 8, .shuffle = true, .num_workers = 3, .seed = 9));
    for (int round = 0; round < 12; round++) {
        CHECK_OK(lc_dataloader_begin(l, round, round % 3));
        for (int i = 0; i < round % 5; i++) {
            lc_batch *batch;
            CHECK_OK(lc_dataloader_next(l, &batch));
        }
        int64_t e, c;
        lc_dataloader_cursor(l, &e, &c);
        CHECK_EQ(c, round % 3 + round % 5); /* consumed, not prefetched */
        if (round & 1) lc_dataloader_end(l);
    }
    lc_batch *batch;
    lc_dataloader_end(l);
    CHECK_STATUS(lc_dataloader_next(l, &batch), LC_ERR_STATE);
    CHECK_OK(lc_dataloader_begin(l, 4, 0));
    CHECK_EQ(drain(l, got, NULL, NULL), N);
    CHECK(!memcmp(want, got, sizeof got));
    CHECK_OK(lc_dataloader_begin(l, 5, 0));
    lc_dataloader_free(l);
    CHECK_EQ(p.inside, 0);
    lc_dataset_unref(d);
}

/* A batch does not change until the next call, however far ahead the workers are. */
TEST(batch_is_not_overwritten)
{
    probe p = {.n = 64, .fail_at = -1};
    lc_dataset *d = dataset_of(&p);
    for (int prefetch = 1; prefetch < 3; prefetch++) {
        lc_dataloader *l;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 2, .num_workers = 2, .prefetch = prefetch));
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        for (int b = 0; b < 32; b++) {
            lc_batch *batch;
            int64_t index[2];
            CHECK_OK(lc_dataloader_next(l, &batch));
            lc_tensor *first = batch->x;
            struct timespec t = {0, 500000};
            nanosleep(&t, NULL);
            CHECK_OK(lc_tensor_read(batch->x, index, sizeof index));
            CHECK_EQ(index[0], 2 * b);
            CHECK_EQ(index[1], 2 * b + 1);
            CHECK(first == batch->x); /* one tensor for all slots: the engine plans once */
        }
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

TEST(errors_come_in_order_and_name_the_sample)
{
    probe p = {.n = 40, .fail_at = 21};
    lc_dataset *d = dataset_of(&p);
    for (int workers = 0; workers < 4; workers++) {
        lc_dataloader *l;
        lc_batch *batch;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 4, .num_workers = workers));
        for (int round = 0; round < 3; round++) {
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            for (int b = 0; b < 5; b++) CHECK_OK(lc_dataloader_next(l, &batch));
            CHECK_STATUS(lc_dataloader_next(l, &batch), LC_ERR_USER);
            CHECK(!batch);
            CHECK_CONTAINS(lc_error_message(), "batch 5");
            CHECK_CONTAINS(lc_error_message(), "sample 21");
            CHECK_CONTAINS(lc_error_message(), "cannot decode number 21");
            CHECK_STATUS(lc_dataloader_next(l, &batch), LC_ERR_STATE);
        }
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

/* Another loader of the dataset counts for itself, as one for the validation does. */
TEST(loaders_of_one_dataset_have_times_of_their_own)
{
    enum { IMAGES = 20, SIDE = 256 };
    uint8_t *pixels = calloc(IMAGES, SIDE * SIDE);
    lc_array a = {
        .field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {1, SIDE, SIDE}}, .data = pixels, .free = free};
    lc_dataset *arrays, *flipped, *twice;
    lc_transform t;
    CHECK_OK(lc_array_dataset_new(IMAGES, 1, &a, &arrays));
    CHECK_OK(lc_transform_horizontal_flip(1, &t));
    CHECK_OK(lc_dataset_transform(arrays, 0, t, &flipped));
    CHECK_OK(lc_dataset_concat((lc_dataset *[]){flipped, flipped}, 2, &twice));
    for (int workers = 0; workers < 3; workers++) {
        lc_dataloader *used, *other;
        lc_loader_times times;
        lc_batch *batch;
        CHECK_OK(lc_dataloader_new(&used, .dataset = twice, .batch_size = 4, .num_workers = workers));
        CHECK_OK(lc_dataloader_new(&other, .dataset = flipped, .batch_size = 4, .num_workers = workers));
        CHECK_OK(lc_dataloader_begin(used, 0, 0));
        do CHECK_OK(lc_dataloader_next(used, &batch));
        while (batch);
        lc_dataloader_times(used, &times);
        CHECK(times.transformed > 0 && times.transformed <= times.gathered);
        lc_dataloader_times(other, &times);
        CHECK(times.transformed == 0 && times.gathered == 0);
        lc_dataloader_free(used);
        lc_dataloader_free(other);
    }
    lc_dataset_unref(arrays);
    lc_dataset_unref(flipped);
    lc_dataset_unref(twice);
}

TEST(workers_work_at_once)
{
    probe p = {.n = 60, .fail_at = -1, .delay = 300000};
    lc_dataset *d = dataset_of(&p);
    int64_t samples[120];
    lc_dataloader *l;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 5, .num_workers = 3));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_EQ(drain(l, samples, NULL, NULL), 60);
    CHECK(p.most_inside >= 2 && p.most_inside <= 3);
    CHECK_EQ(p.gets, 60);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

TEST(no_allocation_in_the_steady_state)
{
#ifdef SANITIZED
    SKIP("a sanitizer owns malloc");
#else
    enum { IMAGES = 1000 };
    uint8_t *pixels = malloc(IMAGES * 784), *labels = malloc(IMAGES);
    for (int i = 0; i < IMAGES * 784; i++) pixels[i] = (uint8_t)i;
    memset(labels, 3, IMAGES);
    lc_array a[2] = {{.field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {1, 28, 28}},
                      .data = pixels,
                      .to = LC_F32,
                      .scale = 1 / 255.0,
                      .free = free},
                     {.field = {.name = "y", .dtype = LC_U8}, .data = labels, .to = LC_I64, .free = free}};
    lc_dataset *arrays, *flipped;
    lc_transform t;
    CHECK_OK(lc_array_dataset_new(IMAGES, 2, a, &arrays));
    CHECK_OK(lc_transform_horizontal_flip(0.5, &t));
    CHECK_OK(lc_transform_compose(1, &(lc_transform){t.ops, t.self}, &t));
    CHECK_OK(lc_dataset_transform(arrays, 0, t, &flipped));
    for (int which = 0; which < 2; which++)
        for (int workers = 0; workers < 3; workers++) {
            lc_dataloader *l;
            lc_batch *batch;
            CHECK_OK(lc_dataloader_new(&l, .dataset = which ? flipped : arrays, .batch_size = 64, .shuffle = true,
                                       .num_workers = workers));
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            CHECK_OK(lc_dataloader_next(l, &batch));
            long before = 0;
            for (int epoch = 1; epoch < 5; epoch++) {
                if (epoch == 2) before = atomic_load(&mallocs);
                CHECK_OK(lc_dataloader_begin(l, epoch, 0));
                do CHECK_OK(lc_dataloader_next(l, &batch));
                while (batch);
            }
            CHECK_EQ(atomic_load(&mallocs) - before, 0);
            lc_dataloader_free(l);
        }
    lc_dataset_unref(arrays);
    lc_dataset_unref(flipped);
#endif
}

/* ---- samplers and loaders of the program's own ---- */

static int64_t odd_length(void *self, int64_t epoch)
{
    (void)self;
    return 3 + epoch;
}
static lc_status odd_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    (void)epoch;
    for (int64_t i = 0; i < n; i++) indices[i] = 2 * i + 1;
    if (*(bool *)self) indices[0] = 1000;
    return LC_OK;
}
static int released;
static void odd_free(void *self)
{
    (void)self;
    released++;
}
static const lc_sampler_ops odd_ops = {LC_SAMPLER_OPS_INIT, .name = "odd", .length = odd_length, .order = odd_order,
                                       .free = odd_free};

TEST(custom_sampler)
{
    probe p = {.n = 40, .fail_at = -1};
    lc_dataset *d = dataset_of(&p);
    bool wrong = false;
    released = 0;
    lc_sampler s = {&odd_ops, &wrong};
    lc_dataloader *l;
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .sampler = &s, .shuffle = true), LC_ERR_ARGUMENT);
    CHECK(released == 1 && !s.ops);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .sampler = &s), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "the sampler is empty: it was never made, or has been taken over");
    s = (lc_sampler){&odd_ops, &wrong};
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .sampler = &s, .batch_size = 2));
    for (int epoch = 0; epoch < 4; epoch++) {
        int64_t samples[80];
        CHECK_EQ(lc_dataloader_length(l, epoch), (3 + epoch + 1) / 2);
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        CHECK_EQ(drain(l, samples, NULL, NULL), 3 + epoch);
        for (int i = 0; i < 3 + epoch; i++) CHECK_EQ(samples[2 * i], 2 * i + 1);
    }
    wrong = true;
    CHECK_STATUS(lc_dataloader_begin(l, 0, 0), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "sampler 'odd' asks for sample 1000");
    lc_dataloader_free(l);
    CHECK_EQ(released, 2);
    lc_dataset_unref(d);
}

typedef struct stream {
    lc_batch batch;
    float value;
    int64_t at, n, ended;
} stream;

static lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    (void)epoch;
    ((stream *)self)->at = start;
    return LC_OK;
}
static lc_status stream_next(void *self, lc_batch **out)
{
    stream *s = self;
    if (s->at == s->n) {
        *out = NULL;
        return LC_OK;
    }
    if (s->at == 77) return LC_STOP;
    if (s->at == 78) return LC_ERR_IO; /* without a message */
    s->value = (float)s->at++;
    *out = &s->batch;
    return LC_OK;
}
static void stream_end(void *self)
{
    ((stream *)self)->ended++;
}

TEST(loader_of_the_programs_own)
{
    stream s = {.n = 5};
    lc_dataloader_ops ops = {LC_DATALOADER_OPS_INIT, .name = "stream", .begin = stream_begin};
    lc_dataloader *l;
    CHECK_STATUS(lc_dataloader_from_ops(&ops, &s, &l), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "'next'");
    ops.next = stream_next;
    ops.end = stream_end;
    s.batch = (lc_batch){.n = 1, .size = 1};
    CHECK_OK(lc_input_new(LC_F32, 1, (int64_t[]){1}, LC_ROW_MAJOR, &s.value, &s.batch.tensors[0]));
    CHECK_OK(lc_dataloader_from_ops(&ops, &s, &l));
    CHECK_EQ(lc_dataloader_length(l, 0), -1);
    CHECK_EQ(lc_dataloader_batch_size(l), 0);
    CHECK_OK(lc_dataloader_begin(l, 0, 2));
    lc_batch *batch;
    for (int i = 2; i < 5; i++) {
        CHECK_OK(lc_dataloader_next(l, &batch));
        CHECK(batch == &s.batch && s.value == (float)i);
    }
    CHECK_OK(lc_dataloader_next(l, &batch));
    CHECK(!batch);
    lc_dataloader_end(l);
    lc_dataloader_end(l);
    CHECK_EQ(s.ended, 1);
    s.n = 100;
    CHECK_OK(lc_dataloader_begin(l, 1, 77));
    CHECK_STATUS(lc_dataloader_next(l, &batch), LC_ERR_USER);
    CHECK_OK(lc_dataloader_begin(l, 1, 78));
    CHECK_STATUS(lc_dataloader_next(l, &batch), LC_ERR_IO);
    CHECK_STR(lc_error_message(),
              "loader 'stream', batch 78: next returned an error (input or output failed) without a "
              "message; lc_fail(status, \"what is wrong\") gives one");
    size_t size = 9;
    CHECK_OK(lc_dataloader_save(l, NULL, &size));
    CHECK_EQ(size, 0);
    CHECK_OK(lc_dataloader_load(l, NULL, 0));
    CHECK_STATUS(lc_dataloader_load(l, "x", 1), LC_ERR_STATE);
    lc_dataloader_free(l);
    lc_tensor_unref(s.batch.tensors[0]);
}

/* The position of a combined loader comes from a checkpoint, which may be damaged: it gives an error, or another
 * position. */
TEST(state_of_a_combined_loader_may_be_anything)
{
    static const int64_t wild[] = {-1, 1, 3, INT32_MAX, INT64_MAX, INT64_MIN};
    probe p = {.n = 6, .fail_at = -1};
    lc_dataset *d = dataset_of(&p);
    int refused = 0;
    for (int mode = LC_MAX_SIZE_CYCLE; mode <= LC_SEQUENTIAL; mode++) {
        int64_t state[16];
        size_t size = sizeof state;
        lc_batch *batch;
        for (int word = -1; word < (int)(size / sizeof *state); word++)
            for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
                lc_dataloader *parts[2], *l;
                for (int k = 0; k < 2; k++) CHECK_OK(lc_dataloader_new(&parts[k], .dataset = d, .batch_size = 2 + k));
                CHECK_OK(lc_combined_loader_new((lc_combine)mode, 2, parts, &l));
                if (word < 0) {
                    CHECK_OK(lc_dataloader_begin(l, 1, 0));
                    CHECK_OK(lc_dataloader_next(l, &batch));
                    size = sizeof state;
                    CHECK_OK(lc_dataloader_save(l, state, &size));
                } else {
                    int64_t bad[16];
                    memcpy(bad, state, size);
                    bad[word] = wild[i];
                    lc_status status = lc_dataloader_load(l, bad, size);
                    if (status == LC_OK) status = lc_dataloader_begin(l, 1, 1);
                    for (int n = 0; status == LC_OK && n < 20; n++) {
                        status = lc_dataloader_next(l, &batch);
                        if (!batch) break;
                    }
                    refused += status < 0;
                }
                lc_dataloader_free(l);
            }
    }
    CHECK(refused > 80);
    lc_dataset_unref(d);
}

TEST(options_are_checked)
{
    probe p = {.n = 0, .fail_at = -1};
    lc_dataset *d = dataset_of(&p);
    lc_dataloader *l;
    lc_batch *batch;
    CHECK_STATUS(lc_dataloader_new(&l), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .batch_size = -1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .batch_size = (int64_t)1 << 62), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "from 1 to 2147483647");
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .num_workers = -2), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .num_workers = 1, .prefetch = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .timeout = -1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .timeout = NAN), LC_ERR_ARGUMENT);
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .pin_memory = true));
    lc_dataloader_free(l);
    /* An empty dataset has epochs without batches. */
    for (int workers = 0; workers < 2; workers++) {
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .shuffle = true, .num_workers = workers));
        CHECK_EQ(lc_dataloader_length(l, 0), 0);
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        CHECK_OK(lc_dataloader_next(l, &batch));
        CHECK(!batch);
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

/* Channels-last fields become channels-last tensors: read back, they have the logical order. */
TEST(channels_last)
{
    uint8_t hwc[2 * 3] = {1, 2, 3, 10, 20, 30}; /* a pixel (1,2,3), a pixel (10,20,30): C = 3, H = 1, W = 2 */
    lc_array a = {.field = {.name = "x", .dtype = LC_U8, .layout = LC_CHANNELS_LAST, .ndim = 3, .shape = {3, 1, 2}},
                  .data = hwc,
                  .to = LC_F32};
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *batch;
    float out[6];
    static const float want[6] = {1, 10, 2, 20, 3, 30};
    CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_OK(lc_dataloader_next(l, &batch));
    CHECK_OK(lc_tensor_read(batch->x, out, sizeof out));
    CHECK(!memcmp(out, want, sizeof out));
    CHECK(!batch->y);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

/* The time for a batch of 64 images of 28x28; only a mistake in the inner loop exceeds the bound. */
TEST(gather_is_fast)
{
    enum { IMAGES = 20000 };
    uint8_t *pixels = calloc(IMAGES, 784), *labels = calloc(IMAGES, 1);
    lc_array a[2] = {{.field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {1, 28, 28}},
                      .data = pixels,
                      .to = LC_F32,
                      .scale = 0.01,
                      .shift = -0.4,
                      .free = free},
                     {.field = {.name = "y", .dtype = LC_U8}, .data = labels, .to = LC_I64, .free = free}};
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *batch;
    for (int i = 0; i < IMAGES * 784; i++) pixels[i] = (uint8_t)i;
    CHECK_OK(lc_array_dataset_new(IMAGES, 2, a, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 64, .shuffle = true));
    struct timespec t0, t1, t2;
    double best = 1e9, shuffle = 1e9;
    for (int epoch = 0; epoch < 5; epoch++) {
        clock_gettime(CLOCK_MONOTONIC, &t0);
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        clock_gettime(CLOCK_MONOTONIC, &t1);
        int n = 0;
        for (;; n++) {
            CHECK_OK(lc_dataloader_next(l, &batch));
            if (!batch) break;
        }
        clock_gettime(CLOCK_MONOTONIC, &t2);
        double us = ((double)(t2.tv_sec - t1.tv_sec) * 1e9 + (double)(t2.tv_nsec - t1.tv_nsec)) / 1e3 / n;
        double order = ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / 1e3;
        if (us < best) best = us;
        if (order < shuffle) shuffle = order;
    }
    printf("  64 images in %.1f us, order of %d samples in %.0f us\n", best, IMAGES, shuffle);
    CHECK(best < 2000);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

TEST(workers_for_the_machine)
{
    static const struct {
        int processors, quota, ranks, want;
    } rows[] = {{1, INT_MAX, 1, 0}, {2, INT_MAX, 1, 1}, {4, 4, 1, 3},        {64, INT_MAX, 1, 8},
                {4, 4, 4, 0},       {16, 8, 2, 3},      {4, INT_MAX, 16, 3}, {4, 64, 2, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_EQ(lc__workers_of(rows[i].processors, rows[i].quota, rows[i].ranks), rows[i].want);
    CHECK(lc__workers_auto() >= 0 && lc__workers_auto() < (lc_processors() > 1 ? lc_processors() : 1));
    probe p = {.n = N, .fail_at = -1};
    lc_dataset *d = dataset_of(&p);
    int64_t a[2 * N], b[2 * N];
    epoch_of(d, 0, 1, 5, 2, 0, a, N);
    epoch_of(d, LC_WORKERS_AUTO, 2, 5, 2, 0, b, N);
    CHECK(!memcmp(a, b, sizeof a));
    lc_dataloader *l;
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .num_workers = -2), LC_ERR_ARGUMENT);
    lc_dataset_unref(d);
}

TEST_MAIN
