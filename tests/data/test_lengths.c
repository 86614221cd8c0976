/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of different sizes: padding, lengths, masks; the same over workers, ranks, and after a resume. Run under
 * ThreadSanitizer too. */
#include "test.h"
#include <lightc/lightc.h>
#include <math.h>

enum { N = 37, MOST = 11 };

/* Sample i has 1 + 7i % MOST tokens, which are 100 i, 100 i + 1, ...; its targets are one larger. */
static int64_t tokens[N * MOST], targets[N * MOST], offsets[N + 1];

static int64_t length_of(int64_t i)
{
    return 1 + 7 * i % MOST;
}

static lc_dataset *ragged(void)
{
    lc_dataset *d;
    for (int64_t i = 0, at = 0; i < N; i++) {
        offsets[i] = at;
        for (int64_t k = 0; k < length_of(i); k++, at++) tokens[at] = 100 * i + k, targets[at] = tokens[at] + 1;
        offsets[i + 1] = at;
    }
    const lc_field row = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {0}};
    lc_array arrays[] = {{.field = row, .data = tokens, .offsets = offsets},
                         {.field = row, .data = targets, .offsets = offsets}};
    arrays[1].field.name = "y";
    CHECK_OK(lc_array_dataset_new(N, 2, arrays, &d));
    return d;
}

typedef struct seen {
    int count[N];
    int64_t batches, tokens, most; /* tokens of all batches, and of the largest */
    uint64_t print;                /* depends on all bytes of all batches */
} seen;

static void add_bytes(uint64_t *print, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++) *print = (*print ^ ((const unsigned char *)data)[i]) * UINT64_C(1099511628211);
}

/* Checks each number of a batch of ragged(), padded with 0 and -100. */
static void check_batch(const lc_batch *b, bool left, int64_t multiple, seen *s)
{
    static int64_t x[N * 64], y[N * 64], lengths[N];
    const int64_t width = lc_tensor_dim(b->x, 1);
    int64_t most = 0;
    CHECK(b->n == 4 && lc_tensor_ndim(b->x) == 2 && lc_tensor_ndim(b->tensors[2]) == 1);
    CHECK_STR(b->names[2], "x_lengths");
    CHECK_STR(b->names[3], "y_lengths");
    CHECK(lc_tensor_dim(b->x, 0) == b->size && lc_tensor_dim(b->y, 1) == width && width % multiple == 0);
    CHECK_OK(lc_tensor_read(b->x, x, (size_t)(b->size * width) * 8));
    CHECK_OK(lc_tensor_read(b->y, y, (size_t)(b->size * width) * 8));
    CHECK_OK(lc_tensor_read(b->tensors[2], lengths, (size_t)b->size * 8));
    for (int64_t j = 0; j < b->size; j++) {
        const int64_t i = b->indices[j], n = length_of(i), from = left ? width - n : 0;
        CHECK_EQ(lengths[j], n);
        if (n > most) most = n;
        for (int64_t k = 0; k < width; k++) {
            const bool in = k >= from && k < from + n;
            CHECK_EQ(x[j * width + k], in ? 100 * i + k - from : 0);
            CHECK_EQ(y[j * width + k], in ? 100 * i + k - from + 1 : -100);
        }
        if (s) s->count[i]++;
    }
    if (!b->global_size && b->size) CHECK(width < most + multiple);
    if (!s) return;
    add_bytes(&s->print, b->indices, (size_t)b->size * 8);
    add_bytes(&s->print, x, (size_t)(b->size * width) * 8);
    s->tokens += b->size * width;
    if (b->size * width > s->most) s->most = b->size * width;
    s->batches++;
}

static void drain(lc_dataloader *l, bool left, int64_t multiple, seen *s)
{
    for (lc_batch *b;;) {
        CHECK_OK(lc_dataloader_next(l, &b));
        if (!b) return;
        check_batch(b, left, multiple, s);
    }
}

TEST(padding_and_lengths)
{
    lc_dataset *d = ragged();
    for (int workers = 0; workers < 3; workers++)
        for (int left = 0; left < 2; left++)
            for (int64_t multiple = 1; multiple < 9; multiple += 7) {
                lc_dataloader *l;
                seen s = {0};
                CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 5, .shuffle = true, .num_workers = workers,
                                           .target_pad_value = -100, .pad_side = left ? LC_PAD_LEFT : LC_PAD_RIGHT,
                                           .pad_multiple = multiple));
                for (int64_t epoch = 0; epoch < 2; epoch++) {
                    CHECK_OK(lc_dataloader_begin(l, epoch, 0));
                    drain(l, left, multiple, &s);
                }
                CHECK_EQ(s.batches, 16);
                for (int i = 0; i < N; i++) CHECK_EQ(s.count[i], 2);
                lc_dataloader_free(l);
            }
    lc_dataset_unref(d);
}

TEST(lengths_have_a_name_of_their_own)
{
    static const int64_t at[] = {0, 1, 3};
    const int64_t x[3] = {0}, y[2] = {0};
    const lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {0}}, .data = x, .offsets = at},
        {.field = {.name = "x_lengths", .dtype = LC_I64}, .data = y}};
    lc_dataset *d;
    lc_dataloader *l;
    CHECK_OK(lc_array_dataset_new(2, 2, arrays, &d));
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .batch_size = 2), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "'x_lengths' has the name that a batch gives to the lengths of 'x'");
    lc_dataset_unref(d);
}

static lc_dataloader *loader_of(lc_dataset *d, int workers, int64_t batch_size)
{
    lc_dataloader *l;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = batch_size, .shuffle = true, .num_workers = workers,
                               .target_pad_value = -100, .seed = 3));
    return l;
}

TEST(the_same_for_any_workers_and_after_a_resume)
{
    lc_dataset *d = ragged();
    lc_dataloader *alone = loader_of(d, 0, 4);
    for (int64_t start = 0; start < 10; start++) {
        seen want = {0};
        CHECK_OK(lc_dataloader_begin(alone, 2, start));
        drain(alone, false, 1, &want);
        for (int workers = 1; workers <= 4; workers += 3) {
            lc_dataloader *l = loader_of(d, workers, 4);
            seen s = {0};
            CHECK_OK(lc_dataloader_begin(l, 2, start));
            drain(l, false, 1, &s);
            CHECK(s.print == want.print && s.batches == 10 - start);
            lc_dataloader_free(l);
        }
    }
    lc_dataloader_free(alone);
    lc_dataset_unref(d);
}

/* The batches of three ranks, whose epochs have begun, are the parts of one process's, and as wide. */
static void check_parts(lc_dataloader *whole, lc_dataloader **ranks)
{
    for (lc_batch *want, *b;;) {
        int64_t at = 0;
        CHECK_OK(lc_dataloader_next(whole, &want));
        for (int r = 0; r < 3; r++) {
            CHECK_OK(lc_dataloader_next(ranks[r], &b));
            CHECK(!b == !want);
            if (!b) continue;
            CHECK(b->global_size == want->size && b->global_offset == at);
            CHECK_EQ(lc_tensor_dim(b->x, 1), lc_tensor_dim(want->x, 1));
            CHECK(!memcmp(b->indices, want->indices + at, (size_t)b->size * 8));
            check_batch(b, false, 1, NULL);
            at += b->size;
        }
        if (!want) break;
        CHECK_EQ(at, want->size);
    }
}

/* Ranks have the shape of the global batch, and each sample is on one of them. */
TEST(ranks_have_the_batches_of_one)
{
    lc_dataset *d = ragged();
    lc_dataloader *whole = loader_of(d, 0, 6), *ranks[3];
    for (int r = 0; r < 3; r++) {
        ranks[r] = loader_of(d, r, 2);
        CHECK_OK(lc_dataloader_share(ranks[r], &(lc_share){.rank = r, .size = 3}));
        CHECK_OK(lc_dataloader_begin(ranks[r], 1, 0));
    }
    CHECK_OK(lc_dataloader_begin(whole, 1, 0));
    check_parts(whole, ranks);
    for (int r = 0; r < 3; r++) lc_dataloader_free(ranks[r]);
    lc_dataloader_free(whole);
    lc_dataset_unref(d);
}

/* ---- a budget, and like lengths ---- */

static lc_dataloader *budget_of(lc_dataset *d, int workers, bool group, bool shuffle, int64_t multiple)
{
    lc_dataloader *l;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .max_tokens = 40, .group_by_length = group, .shuffle = shuffle,
                               .num_workers = workers, .target_pad_value = -100, .pad_multiple = multiple, .seed = 7));
    return l;
}

TEST(batches_of_a_budget)
{
    lc_dataset *d = ragged();
    int64_t padded[2] = {0};
    for (int group = 0; group < 2; group++)
        for (int shuffle = 0; shuffle < 2; shuffle++)
            for (int64_t multiple = 1; multiple < 5; multiple += 3) {
                lc_dataloader *l = budget_of(d, 0, group, shuffle, multiple);
                uint64_t before = 0;
                CHECK_EQ(lc_dataloader_batch_size(l), 0);
                for (int64_t epoch = 0; epoch < 3; epoch++) {
                    seen s = {0};
                    const int64_t length = lc_dataloader_length(l, epoch);
                    CHECK_OK(lc_dataloader_begin(l, epoch, 0));
                    drain(l, false, multiple, &s);
                    CHECK(s.batches == length && s.most > 30 && s.most <= 40);
                    CHECK_EQ(lc_dataloader_length(l, epoch), length);
                    for (int i = 0; i < N; i++) CHECK_EQ(s.count[i], 1);
                    CHECK((s.print == before) == (epoch && !shuffle));
                    before = s.print;
                    padded[group] += s.tokens;
                }
                lc_dataloader_free(l);
            }
    CHECK(padded[1] * 10 < padded[0] * 9);
    lc_dataset_unref(d);
}

TEST(a_budget_is_the_same_for_any_workers_and_after_a_resume)
{
    lc_dataset *d = ragged();
    lc_dataloader *alone = budget_of(d, 0, true, true, 2);
    const int64_t n = lc_dataloader_length(alone, 5);
    for (int64_t start = 0; start <= n; start++) {
        seen want = {0};
        CHECK_OK(lc_dataloader_begin(alone, 5, start));
        drain(alone, false, 2, &want);
        CHECK_EQ(want.batches, n - start);
        for (int workers = 1; workers <= 4; workers += 3) {
            lc_dataloader *l = budget_of(d, workers, true, true, 2);
            seen s = {0};
            CHECK_OK(lc_dataloader_begin(l, 5, start));
            drain(l, false, 2, &s);
            CHECK(s.print == want.print && s.batches == want.batches);
            lc_dataloader_free(l);
        }
    }
    lc_dataloader_free(alone);
    lc_dataset_unref(d);
}

/* The second of two loaders begins again, each time with another number of batches. */
static lc_dataloader *cycled(lc_dataset *d)
{
    lc_dataloader *parts[2] = {loader_of(d, 0, 1), budget_of(d, 0, false, true, 1)}, *l;
    CHECK_OK(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, parts, &l));
    return l;
}

static uint64_t next_print(lc_dataloader *l)
{
    lc_batch *b;
    uint64_t print = 1;
    CHECK_OK(lc_dataloader_next(l, &b));
    if (!b) return 0;
    for (int k = 0; k < 2; k++) add_bytes(&print, b->parts[k]->indices, (size_t)b->parts[k]->size * 8);
    return print;
}

TEST(a_combined_loader_of_a_budget_begins_at_any_batch)
{
    lc_dataset *d = ragged();
    lc_dataloader *all = cycled(d), *l = cycled(d);
    uint64_t prints[N + 1];
    CHECK_OK(lc_dataloader_begin(all, 0, 0));
    for (int i = 0; i <= N; i++) prints[i] = next_print(all);
    CHECK(prints[N - 1] && !prints[N]);
    for (int start = 0; start <= N; start++) {
        CHECK_OK(lc_dataloader_begin(l, 0, start));
        for (int i = start; i <= N; i++) CHECK(next_print(l) == prints[i]);
    }
    CHECK_STATUS(lc_dataloader_begin(l, 0, N + 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "cannot start at batch 38: the epoch has 37");
    lc_dataloader_free(all);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

/* Three ranks of 40 tokens have the batches of one process of 120. */
TEST(ranks_share_a_budget)
{
    lc_dataset *d = ragged();
    lc_dataloader *whole, *ranks[3];
    CHECK_OK(lc_dataloader_new(&whole, .dataset = d, .max_tokens = 120, .group_by_length = true, .shuffle = true,
                               .target_pad_value = -100, .seed = 7));
    CHECK_OK(lc_dataloader_begin(whole, 1, 0));
    for (int r = 0; r < 3; r++) {
        ranks[r] = budget_of(d, r, true, true, 1);
        CHECK_EQ(lc_dataloader_length(ranks[r], 1) > lc_dataloader_length(whole, 1), true);
        CHECK_OK(lc_dataloader_share(ranks[r], &(lc_share){.rank = r, .size = 3}));
        CHECK_OK(lc_dataloader_begin(ranks[r], 1, 0));
        CHECK_EQ(lc_dataloader_length(ranks[r], 1), lc_dataloader_length(whole, 1));
    }
    check_parts(whole, ranks);
    CHECK_STATUS(lc_dataloader_share(ranks[0], &(lc_share){.size = 1, .pieces = 4}), LC_ERR_UNSUPPORTED);
    for (int r = 0; r < 3; r++) lc_dataloader_free(ranks[r]);
    lc_dataloader_free(whole);
    lc_dataset_unref(d);
}

TEST(a_budget_that_is_never_spent)
{
    static const int64_t budgets[] = {INT64_MAX, INT64_MAX / 2, INT64_MAX / 100};
    lc_dataset *d = ragged();
    for (int i = 0; i < 3; i++) {
        lc_dataloader *l;
        seen s = {0};
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .max_tokens = budgets[i], .group_by_length = true, .shuffle = true,
                                   .target_pad_value = -100));
        CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2}));
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        drain(l, false, 1, &s);
        CHECK_EQ(s.batches, 1);
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

TEST(an_order_by_length_is_not_that_of_the_dataset)
{
    lc_dataset *d = ragged();
    for (int group = 0; group < 2; group++) {
        lc_dataloader *l;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 5, .group_by_length = group));
        CHECK_EQ(lc_dataloader_sequential(l, true), group);
        CHECK_EQ(lc_dataloader_sequential(l, false), group);
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

TEST(groups_with_a_batch_size)
{
    lc_dataset *d = ragged();
    for (int drop = 0; drop < 2; drop++) {
        lc_dataloader *l;
        lc_batch *b;
        seen s = {0};
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 5, .group_by_length = true, .shuffle = true,
                                   .drop_last = drop, .target_pad_value = -100));
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        for (int64_t i = 0; i < (drop ? 7 : 8); i++) {
            CHECK_OK(lc_dataloader_next(l, &b));
            CHECK_EQ(b->size, i < 7 ? 5 : 2);
            check_batch(b, false, 1, &s);
        }
        CHECK_OK(lc_dataloader_next(l, &b));
        CHECK(!b && s.tokens < 37 * 8);
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

/* ---- two sizes that differ, channels-last ---- */

static int64_t ten(void *self)
{
    (void)self;
    return 10;
}
static lc_status describe_pictures(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){.n = 1};
    spec->fields[0] =
        (lc_field){.name = "x", .dtype = LC_U8, .layout = LC_CHANNELS_LAST, .ndim = 3, .shape = {3, 0, 0}};
    return LC_OK;
}
static lc_status picture_sizes(void *self, int64_t index, int field, int64_t *sizes)
{
    (void)self, (void)field;
    sizes[1] = 1 + index % 4;
    sizes[2] = 1 + index % 3;
    return LC_OK;
}
static unsigned char pixel(int64_t i, int64_t h, int64_t w, int64_t c)
{
    return (unsigned char)(1 + i * 24 + h * 9 + w * 3 + c);
}
static lc_status get_picture(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)key, (void)scratch;
    int64_t n[3];
    unsigned char *to = out[0];
    CHECK_OK(picture_sizes(NULL, index, 0, n));
    for (int64_t h = 0; h < n[1]; h++)
        for (int64_t w = 0; w < n[2]; w++)
            for (int64_t c = 0; c < 3; c++) *to++ = pixel(index, h, w, c);
    return LC_OK;
}
static const lc_dataset_ops picture_ops = {LC_DATASET_OPS_INIT,           .name = "pictures", .length = ten,
                                           .describe = describe_pictures, .get = get_picture, .sizes = picture_sizes};

static lc_status at_most(void *ctx, lc_field *batch)
{
    if (batch->shape[1] > *(int64_t *)ctx) batch->shape[1] = *(int64_t *)ctx;
    return LC_OK;
}

static void check_pictures(const lc_batch *b, bool left)
{
    unsigned char got[10 * 4 * 3 * 3], *p = got;
    int64_t lengths[20], height = lc_tensor_dim(b->x, 2), width = lc_tensor_dim(b->x, 3);
    CHECK(lc_tensor_dim(b->x, 1) == 3 && lc_tensor_dim(b->tensors[1], 1) == 2);
    CHECK_OK(lc_tensor_read(b->tensors[1], lengths, (size_t)b->size * 16));
    /* lc_tensor_read gives them in the order of the shape. */
    CHECK_OK(lc_tensor_read(b->x, got, (size_t)(b->size * 3 * height * width)));
    for (int64_t j = 0; j < b->size; j++) {
        const int64_t i = b->indices[j], ih = 1 + i % 4, iw = 1 + i % 3, kept = ih < height ? ih : height;
        CHECK(lengths[2 * j] == kept && lengths[2 * j + 1] == iw);
        for (int64_t c = 0; c < 3; c++)
            for (int64_t h = 0; h < height; h++)
                for (int64_t w = 0; w < width; w++) {
                    const int64_t y = left ? h - (height - ih) : h, x = left ? w - (width - iw) : w;
                    CHECK_EQ(*p++, y >= 0 && y < ih && x >= 0 && x < iw ? pixel(i, y, x, c) : 255);
                }
    }
}

TEST(several_sizes_and_a_limit)
{
    lc_dataset *d;
    CHECK_OK(lc_dataset_new(&picture_ops, NULL, &d));
    for (int left = 0; left < 2; left++)
        for (int64_t limit = 2; limit < 5; limit++) {
            lc_dataloader *l;
            CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 4, .pad_value = 255,
                                       .pad_side = left ? LC_PAD_LEFT : LC_PAD_RIGHT, .collate_sizes = at_most,
                                       .collate_ctx = &limit));
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            for (lc_batch *b;;) {
                CHECK_OK(lc_dataloader_next(l, &b));
                if (!b) break;
                CHECK_EQ(lc_tensor_dim(b->x, 2), b->size < 4 ? 2 : limit);
                check_pictures(b, left);
            }
            lc_dataloader_free(l);
        }
    lc_dataset_unref(d);
}

/* ---- a function of the program's own ---- */

/* Repeats a sample until its place is full. */
static lc_status repeat(void *ctx, const lc_field *sample, const void *data, const lc_field *batch, void *place)
{
    (void)ctx;
    for (int64_t k = 0; k < batch->shape[0]; k++) ((int64_t *)place)[k] = ((const int64_t *)data)[k % sample->shape[0]];
    return LC_OK;
}

static lc_status refuse(void *ctx, const lc_field *sample, const void *data, const lc_field *batch, void *place)
{
    (void)ctx, (void)data, (void)batch, (void)place;
    return lc_fail(LC_ERR_USER, "no place for %lld", (long long)sample->shape[0]);
}

/* It would never be called. */
TEST(a_collate_function_needs_samples_that_differ)
{
    const int64_t x[4] = {0};
    const lc_array array = {.field = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {2}}, .data = x};
    lc_dataset *d;
    lc_dataloader *l;
    CHECK_OK(lc_array_dataset_new(2, 1, &array, &d));
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .collate = repeat), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .collate_sizes = at_most), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "are for samples that differ in size");
    lc_dataset_unref(d);
}

TEST(a_collate_function)
{
    lc_dataset *d = ragged();
    lc_dataloader *l;
    lc_batch *b;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 8, .num_workers = 1, .collate = repeat));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_OK(lc_dataloader_next(l, &b));
    int64_t x[8 * MOST], width = lc_tensor_dim(b->x, 1);
    CHECK_OK(lc_tensor_read(b->x, x, (size_t)(8 * width) * 8));
    for (int64_t j = 0; j < 8; j++)
        for (int64_t k = 0; k < width; k++) CHECK_EQ(x[j * width + k], 100 * j + k % length_of(j));
    lc_dataloader_free(l);
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 8, .collate = refuse));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_STATUS(lc_dataloader_next(l, &b), LC_ERR_USER);
    CHECK(strstr(lc_error_message(), "no place for 1"));
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

TEST(subsets_and_transforms)
{
    lc_dataset *d = ragged(), *part, *both;
    const int64_t some[] = {3, 36, 5};
    int64_t sizes[LC_MAX_DIMS];
    CHECK_OK(lc_dataset_subset(d, some, 3, &part));
    CHECK_OK(lc_dataset_concat((lc_dataset *[]){part, d}, 2, &both));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lc_dataset_sizes(both, i, 1, sizes));
        CHECK_EQ(sizes[0], length_of(some[i]));
    }
    CHECK_OK(lc_dataset_sizes(both, 3, 0, sizes));
    CHECK_EQ(sizes[0], length_of(0));
    CHECK_STATUS(lc_dataset_sizes(both, 40, 0, sizes), LC_ERR_ARGUMENT);
    lc_transform t;
    lc_dataset *none;
    CHECK_OK(lc_transform_compose(0, NULL, &t));
    CHECK_STATUS(lc_dataset_transform(d, 0, t, &none), LC_ERR_UNSUPPORTED);
    lc_dataset_unref(both);
    lc_dataset_unref(part);
    lc_dataset_unref(d);
}

/* ---- what becomes of lengths in a model ---- */

enum { WIDTH = 4 };

static lc_tensor *weights(int n, const int64_t *shape)
{
    lc_tensor *t;
    float values[16 * WIDTH];
    CHECK_OK(lc_tensor_new(LC_F32, n, shape, &t));
    for (int64_t i = 0; i < lc_tensor_numel(t); i++) values[i] = (float)((i * 37 + 11 * n) % 23 - 11) / 10;
    CHECK_OK(lc_tensor_write(t, values, (size_t)lc_tensor_numel(t) * 4));
    return t;
}

typedef struct net {
    lc_graph *graph;
    lc_tensor *features, *w_ih, *w_hh;
} net;

/* Each sample from its end to its beginning, with padding where it is. */
static lc_tensor *reversed(lc_tensor *x, lc_tensor *lengths)
{
    const int64_t samples = lc_tensor_dim(x, 0), size = lc_tensor_dim(x, 1);
    lc_tensor *mask = lc_length_mask(lengths, size), *p = lc_arange(0, 1, size, LC_I64);
    lc_tensor *ids = lc_where(mask, lc_sub(lc_unsqueeze(lc_sub_scalar(lengths, 1), 1), p), p);
    return lc_gather(x, 1, lc_expand(lc_unsqueeze(ids, 2), samples, size, WIDTH));
}

/* Attention, the last hidden state of an LSTM in both directions, and the summed loss of each position, for samples of
 * some lengths. */
static void run_net(net *m, lc_tensor *x, lc_tensor *y, lc_tensor *lengths, float *attended, float *state, float *loss)
{
    const int64_t size = lc_tensor_dim(x, 1), samples = lc_tensor_dim(x, 0);
    CHECK_OK(lc_step_begin(m->graph, 0, 0));
    lc_tensor *h = lc_embedding(x, m->features);                    /* [B,T,WIDTH] */
    lc_tensor *mask = lc_length_mask(lengths, size);                /* [B,T] */
    lc_tensor *a = lc_sdpa(h, h, h, .mask = lc_unsqueeze(mask, 1)); /* for every query the same keys */
    lc_tensor *all = lc_lstm(h, m->w_ih, m->w_hh);                  /* padding comes after what counts */
    all = lc_add(all, reversed(lc_lstm(reversed(h, lengths), m->w_ih, m->w_hh), lengths));
    lc_tensor *last = lc_reshape(lc_sub_scalar(lengths, 1), -1, 1, 1);                        /* [B,1,1] */
    last = lc_gather(all, 1, lc_expand(last, samples, 1, WIDTH));                             /* [B,1,WIDTH] */
    lc_tensor *each = lc_cross_entropy(lc_transpose(a, 1, 2), y, .reduction = LC_REDUCE_SUM); /* -100 is ignored */
    CHECK_OK(lc_tensor_read(a, attended, (size_t)(samples * size * WIDTH) * 4));
    CHECK_OK(lc_tensor_read(last, state, (size_t)(samples * WIDTH) * 4));
    CHECK_OK(lc_tensor_read(each, loss, 4));
    CHECK_OK(lc_step_end(m->graph));
}

TEST(a_padded_sample_gives_what_it_gives_alone)
{
    const int64_t lengths[] = {5, 2, 7}, table[] = {9, WIDTH}, square[] = {4 * WIDTH, WIDTH};
    static int64_t values[14];
    float a[3 * 8 * WIDTH], state[3 * WIDTH], loss, sum = 0;
    int64_t at[] = {0, 5, 7, 14};
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *b;
    net m = {.features = weights(2, table), .w_ih = weights(2, square), .w_hh = weights(2, square)};
    CHECK_OK(lc_graph_new(&m.graph, .threads = 1));
    for (int i = 0; i < 14; i++) values[i] = (i * 5 + 1) % WIDTH;
    const lc_field row = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {0}};
    lc_array arrays[] = {{.field = row, .data = values, .offsets = at}, {.field = row, .data = values, .offsets = at}};
    arrays[1].field.name = "y";
    CHECK_OK(lc_array_dataset_new(3, 2, arrays, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 3, .pad_multiple = 8, .pad_value = 8,
                               .target_pad_value = -100));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_OK(lc_dataloader_next(l, &b));
    run_net(&m, b->x, b->y, b->tensors[2], a, state, &loss);
    lc_dataloader_free(l);
    CHECK_OK(lc_dataloader_new(&l, .dataset = d));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    for (int i = 0; i < 3; i++) {
        float alone[7 * WIDTH], own[WIDTH], part;
        CHECK_OK(lc_dataloader_next(l, &b));
        run_net(&m, b->x, b->y, b->tensors[2], alone, own, &part);
        for (int k = 0; k < lengths[i] * WIDTH; k++) CHECK(fabsf(alone[k] - a[i * 8 * WIDTH + k]) < 1e-5F);
        for (int k = 0; k < WIDTH; k++) CHECK(fabsf(own[k] - state[i * WIDTH + k]) < 1e-5F);
        sum += part;
    }
    CHECK(fabsf(sum - loss) < 1e-4F);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    lc_graph_free(m.graph);
    lc_tensor_unref(m.features), lc_tensor_unref(m.w_ih), lc_tensor_unref(m.w_hh);
}

TEST(what_is_refused)
{
    lc_dataset *d = ragged(), *none;
    lc_dataloader *l;
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .pad_multiple = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .pad_side = (lc_pad_side)2), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .pad_value = 0.5), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .mix = LC_MIXUP), LC_ERR_UNSUPPORTED);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .max_tokens = -1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .max_tokens = 40, .batch_size = 2), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .max_tokens = 40, .drop_last = true), LC_ERR_ARGUMENT);
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .max_tokens = 10));
    CHECK_EQ(lc_dataloader_length(l, 0), -1);
    CHECK_STATUS(lc_dataloader_begin(l, 0, 0), LC_ERR_ARGUMENT);
    CHECK(strstr(lc_error_message(), "sample 3 of dataset 'arrays' has 11 tokens"));
    lc_dataloader_free(l);
    const int64_t back[] = {0, 3, 2}, index = 0;
    const uint64_t key = 0;
    int64_t room[2][MOST];
    lc_array a = {.field = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {0}}, .data = tokens, .offsets = back};
    CHECK_STATUS(lc_array_dataset_new(2, 1, &a, &none), LC_ERR_ARGUMENT);
    a.field.shape[0] = 2;
    CHECK_STATUS(lc_array_dataset_new(2, 1, &a, &none), LC_ERR_SHAPE);
    /* Padding of what needs none would be silent. */
    lc_array equal[2] = {{.field = {.name = "x", .dtype = LC_I64}, .data = tokens},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = tokens}};
    CHECK_OK(lc_array_dataset_new(2, 2, equal, &none));
    for (int i = 0; i < 4; i++) {
        lc_status s = i == 0   ? lc_dataloader_new(&l, .dataset = none, .pad_multiple = 8)
                      : i == 1 ? lc_dataloader_new(&l, .dataset = none, .pad_value = 1)
                      : i == 2 ? lc_dataloader_new(&l, .dataset = none, .target_pad_value = 0)
                               : lc_dataloader_new(&l, .dataset = none, .pad_side = LC_PAD_LEFT);
        CHECK_STATUS(s, LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), "pad_multiple are for samples that differ in size, and those of dataset");
    }
    lc_dataset_unref(none);
    equal[0].field.ndim = 1;
    equal[0].offsets = (const int64_t[]){0, 1, 3};
    CHECK_OK(lc_array_dataset_new(2, 2, equal, &none));
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = none, .target_pad_value = -100), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "has no second field that differs in size");
    lc_dataset_unref(none);
    CHECK_STATUS(lc_dataset_get_many(d, 1, &index, &key, (void *[]){room[0], room[1]}, NULL), LC_ERR_UNSUPPORTED);
    lc_dataset_unref(d);
}

TEST_MAIN
