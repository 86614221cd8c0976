/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets: of arrays and of the program; subsets, splits, concatenations; permutations. */
#include "test.h"
#include <lightc/data.h>
#include <lightc/hooks.h>
#include <lightc/transforms.h>

/* ---- arrays ---- */

TEST(arrays_convert_on_the_way)
{
    uint8_t pixels[3 * 20];
    uint8_t labels[3] = {7, 0, 255};
    for (int i = 0; i < 60; i++) pixels[i] = (uint8_t)(i * 4);
    lc_array a[2] = {{.field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {1, 4, 5}},
                      .data = pixels,
                      .to = LC_F32,
                      .scale = 1 / (255.0 * 0.3081),
                      .shift = -0.1307 / 0.3081},
                     {.field = {.name = "y", .dtype = LC_U8}, .data = labels, .to = LC_I64}};
    lc_dataset *d;
    CHECK_OK(lc_array_dataset_new(3, 2, a, &d));
    CHECK_EQ(lc_dataset_length(d), 3);
    const lc_sample_spec *spec = lc_dataset_spec(d);
    CHECK_EQ(spec->n, 2);
    CHECK_EQ(spec->fields[0].dtype, LC_F32);
    CHECK_EQ(spec->fields[1].dtype, LC_I64);
    CHECK_EQ(spec->fields[1].ndim, 0);
    CHECK_EQ(lc_field_bytes(&spec->fields[0]), 80);
    float x[40];
    int64_t y[2];
    void *out[2] = {x, y};
    int64_t which[2] = {2, 0};
    uint64_t keys[2] = {0, 0};
    CHECK_OK(lc_dataset_get_many(d, 2, which, keys, out, NULL));
    for (int i = 0; i < 20; i++) {
        CHECK_NEAR(x[i], (pixels[40 + i] / 255.0 - 0.1307) / 0.3081, 1e-6);
        CHECK_NEAR(x[20 + i], (pixels[i] / 255.0 - 0.1307) / 0.3081, 1e-6);
    }
    CHECK_EQ(y[0], 255);
    CHECK_EQ(y[1], 7);
    CHECK_STATUS(lc_dataset_get(d, 3, 0, out, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "sample 3");
    lc_dataset_unref(d);
}

TEST(arrays_every_conversion)
{
    uint8_t u8[2] = {0, 200};
    int32_t i32[2] = {-5, 70000};
    double f64[2] = {-1.5, 2.25};
    float f32[2] = {-1.5f, 2.25f};
    int64_t i64[2] = {-9, 1};
    static const lc_dtype any[] = {LC_F32, LC_F64, LC_I64, LC_I32, LC_U8};
    const struct {
        lc_dtype dtype;
        const void *data;
        double v[2];
        bool to[5], scaled[5];
    } rows[] = {{LC_U8, u8, {0, 200}, {1, 1, 1, 1, 1}, {1, 1, 0, 0, 0}},
                {LC_I32, i32, {-5, 70000}, {1, 1, 1, 1, 0}, {1, 1, 0, 0, 0}},
                {LC_F64, f64, {-1.5, 2.25}, {1, 1, 0, 0, 0}, {1, 1, 0, 0, 0}},
                {LC_F32, f32, {-1.5, 2.25}, {1, 1, 0, 0, 0}, {1, 1, 0, 0, 0}},
                {LC_I64, i64, {-9, 1}, {1, 1, 1, 0, 0}, {1, 1, 0, 0, 0}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int t = 0; t < 5; t++)
            for (int s = 0; s < 2; s++) {
                lc_array a = {.field = {.name = "v", .dtype = rows[r].dtype}, .data = rows[r].data, .to = any[t]};
                if (s) a.scale = 2, a.shift = 1;
                lc_dataset *d;
                lc_status status = lc_array_dataset_new(2, 1, &a, &d);
                if (!(s ? rows[r].scaled[t] : rows[r].to[t])) {
                    CHECK_EQ(status, LC_ERR_DTYPE);
                    continue;
                }
                CHECK_OK(status);
                for (int i = 0; i < 2; i++) {
                    union {
                        float f;
                        double d;
                        int64_t l;
                        int32_t i;
                        uint8_t u;
                    } v;
                    void *out = &v;
                    CHECK_OK(lc_dataset_read(d, i, 0, &out));
                    double got = any[t] == LC_F32   ? (double)v.f
                                 : any[t] == LC_F64 ? v.d
                                 : any[t] == LC_I64 ? (double)v.l
                                 : any[t] == LC_I32 ? v.i
                                                    : v.u;
                    CHECK_NEAR(got, s ? rows[r].v[i] * 2 + 1 : rows[r].v[i], 0);
                }
                lc_dataset_unref(d);
            }
}

/* The vectorized conversion equals the formula for every length, and so in its tail. */
/* Without a shift nothing is added: -0.0 stays what it is. */
TEST(arrays_keep_the_sign_of_zero)
{
    const double zeros[2] = {-0.0, 0.0};
    static const lc_dtype to[] = {LC_F32, LC_F16, LC_BF16, LC_F64};
    for (int i = 0; i < 4; i++)
        for (int scaled = to[i] == LC_F64; scaled < 2; scaled++) {
            const lc_array a = {.field = {.name = "x", .dtype = LC_F64, .ndim = 1, .shape = {2}},
                                .data = zeros,
                                .to = to[i],
                                .scale = scaled ? 0.5 : 1};
            lc_dataset *d;
            uint8_t got[16];
            const size_t size = lc_dtype_size(to[i]);
            CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
            CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){got}));
            for (size_t k = 0; k < 2 * size; k++) CHECK_EQ(got[k], k == size - 1 ? 0x80 : 0);
            lc_dataset_unref(d);
        }
}

TEST(arrays_odd_lengths)
{
    uint8_t src[100];
    float dst[101];
    for (int i = 0; i < 100; i++) src[i] = (uint8_t)(255 - i * 2);
    for (int n = 1; n <= 99; n++) {
        lc_array a = {.field = {.name = "x", .dtype = LC_U8, .ndim = 1, .shape = {n}},
                      .data = src + 1,
                      .to = LC_F32,
                      .scale = 0.5,
                      .shift = -3};
        lc_dataset *d;
        void *out = dst;
        dst[n] = 12345.0f;
        CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
        CHECK_OK(lc_dataset_read(d, 0, 0, &out));
        for (int i = 0; i < n; i++) CHECK_NEAR(dst[i], src[i + 1] * 0.5 - 3, 0);
        CHECK(dst[n] == 12345.0f);
        lc_dataset_unref(d);
    }
}

static int freed;
static void count_free(void *p)
{
    freed++;
    free(p);
}

TEST(arrays_own_their_memory)
{
    lc_dataset *d;
    freed = 0;
    lc_array a = {.field = {.name = "x", .dtype = LC_U8}, .data = malloc(3), .free = count_free};
    CHECK_OK(lc_array_dataset_new(3, 1, &a, &d));
    lc_dataset_unref(lc_dataset_ref(d));
    CHECK_EQ(freed, 0);
    lc_dataset_unref(d);
    CHECK_EQ(freed, 1);
    a.data = malloc(3);
    a.field.ndim = 1; /* shape {0} */
    CHECK_STATUS(lc_array_dataset_new(3, 1, &a, &d), LC_ERR_SHAPE);
    CHECK_EQ(freed, 2);
    a.data = malloc(3);
    a.field.ndim = 0;
    a.to = LC_BOOL;
    CHECK_STATUS(lc_array_dataset_new(3, 1, &a, &d), LC_ERR_DTYPE);
    CHECK_CONTAINS(lc_error_message(), "from u8 to bool");
    CHECK_EQ(freed, 3);
}

/* ---- a dataset of numbers, and datasets made of others ---- */

typedef struct numbers {
    int64_t n, fail_at, offset;
} numbers;

static int64_t numbers_length(void *self)
{
    return ((numbers *)self)->n;
}
static lc_status numbers_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    spec->n = 2;
    spec->fields[0] = (lc_field){.name = "value", .dtype = LC_F32};
    spec->fields[1] = (lc_field){.name = "key", .dtype = LC_I64};
    return LC_OK;
}
static lc_status numbers_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    numbers *s = self;
    (void)scratch;
    if (index == s->fail_at) return lc_fail(LC_ERR_USER, "this one is rotten");
    *(float *)out[0] = (float)(index + s->offset);
    *(int64_t *)out[1] = (int64_t)key;
    return LC_OK;
}
static const lc_dataset_ops numbers_ops = {LC_DATASET_OPS_INIT,          .name = "numbers",  .length = numbers_length,
                                           .describe = numbers_describe, .get = numbers_get, .free = count_free};

static lc_dataset *make_numbers(int64_t n, int64_t fail_at, int64_t offset)
{
    numbers *s = malloc(sizeof *s);
    *s = (numbers){n, fail_at, offset};
    lc_dataset *d;
    CHECK_OK(lc_dataset_new(&numbers_ops, s, &d));
    return d;
}

static float value_of(lc_dataset *d, int64_t i)
{
    float v = 0;
    int64_t k;
    void *out[2] = {&v, &k};
    CHECK_OK(lc_dataset_read(d, i, 99, out));
    CHECK_EQ(k, 99);
    return v;
}

TEST(ops_are_checked)
{
    lc_dataset *d;
    lc_dataset_ops ops = numbers_ops;
    ops.free = NULL;
    numbers s = {3, -1, 0};
    ops.get = NULL;
    CHECK_STATUS(lc_dataset_new(&ops, &s, &d), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "'get'");
    ops = numbers_ops;
    ops.size = 0;
    CHECK_STATUS(lc_dataset_new(&ops, &s, &d), LC_ERR_ARGUMENT);
    /* A vtable of a smaller header: its missing slots get defaults. */
    ops = numbers_ops;
    ops.size = offsetof(lc_dataset_ops, get_many);
    CHECK_OK(lc_dataset_new(&ops, &s, &d));
    CHECK(value_of(d, 2) == 2);
    lc_dataset_unref(d);
}

TEST(fields_have_names_of_their_own)
{
    float x[2] = {0};
    const lc_array a[2] = {{.field = {.name = "x"}, .data = x}, {.field = {.name = "x"}, .data = x}};
    lc_dataset *d, *with_keys;
    CHECK_STATUS(lc_array_dataset_new(2, 2, a, &d), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "fields 0 and 1 are both named 'x'");
    CHECK_OK(lc_array_dataset_new(2, 1, a, &d));
    CHECK_OK(lc_dataset_keys(d, &with_keys));
    lc_dataset_unref(d);
    CHECK_STATUS(lc_dataset_keys(with_keys, &d), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "both named 'key'");
    lc_dataset_unref(with_keys);
}

TEST(errors_name_the_sample)
{
    lc_dataset *d = make_numbers(10, 7, 0), *sub;
    int64_t indices[3] = {1, 7, 2};
    CHECK_OK(lc_dataset_subset(d, indices, 3, &sub));
    float v[3];
    int64_t k[3];
    void *out[2] = {v, k};
    CHECK_STATUS(lc_dataset_read(d, 7, 0, out), LC_ERR_USER);
    CHECK_STR(lc_error_message(), "sample 7 of dataset 'numbers': this one is rotten");
    uint64_t keys[3] = {0};
    int64_t all[3] = {0, 1, 2};
    CHECK_STATUS(lc_dataset_get_many(sub, 3, all, keys, out, NULL), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "sample 7");
    lc_dataset_unref(d);
    lc_dataset_unref(sub);
}

static lc_status fails_without_a_message(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)index, (void)key, (void)out, (void)scratch;
    return LC_ERR_IO;
}

/* That of an earlier error would mislead. */
TEST(an_error_without_a_message_says_so)
{
    lc_dataset *d;
    lc_dataset_ops ops = numbers_ops;
    numbers s = {3, -1, 0};
    float v;
    int64_t k;
    void *out[2] = {&v, &k};
    ops.get = fails_without_a_message;
    ops.free = NULL;
    CHECK_OK(lc_dataset_new(&ops, &s, &d));
    (void)lc_fail(LC_ERR_USER, "something else");
    CHECK_STATUS(lc_dataset_read(d, 1, 0, out), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "sample 1 of dataset 'numbers': get returned an error");
    lc_dataset_unref(d);
}

TEST(subset_split_concat)
{
    freed = 0;
    lc_dataset *a = make_numbers(1000, -1, 0), *b = make_numbers(3, -1, 5000), *empty = make_numbers(0, -1, 0);
    lc_dataset *sub, *parts[3], *again[3], *all;
    int64_t indices[4] = {9, 9, 0, 999}, bad[1] = {1000};
    CHECK_OK(lc_dataset_subset(a, indices, 4, &sub));
    CHECK_EQ(lc_dataset_length(sub), 4);
    for (int i = 0; i < 4; i++) CHECK_EQ(value_of(sub, i), indices[i]);
    CHECK_STATUS(lc_dataset_subset(a, bad, 1, &all), LC_ERR_ARGUMENT);
    int64_t sizes[3] = {600, 0, 400};
    CHECK_OK(lc_dataset_split(a, 42, 3, sizes, parts));
    CHECK_OK(lc_dataset_split(a, 42, 3, sizes, again));
    bool seen[1000] = {false};
    int in_place = 0;
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            int v = (int)value_of(parts[p], i);
            CHECK(!seen[v]);
            seen[v] = true;
            in_place += v == (p ? 600 + i : i);
            CHECK_EQ(v, value_of(again[p], i));
        }
    CHECK(in_place < 20);
    sizes[1] = 1;
    lc_dataset *none[3];
    CHECK_STATUS(lc_dataset_split(a, 42, 3, sizes, none), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "1001");
    lc_dataset *list[5] = {empty, sub, empty, b, empty};
    CHECK_OK(lc_dataset_concat(list, 5, &all));
    CHECK_EQ(lc_dataset_length(all), 7);
    static const int want[7] = {9, 9, 0, 999, 5000, 5001, 5002};
    for (int i = 0; i < 7; i++) CHECK_EQ(value_of(all, i), want[i]);
    uint8_t u = 0;
    lc_array other = {.field = {.name = "value", .dtype = LC_U8}, .data = &u};
    lc_dataset *o, *no;
    CHECK_OK(lc_array_dataset_new(1, 1, &other, &o));
    CHECK_STATUS(lc_dataset_concat((lc_dataset *[]){a, o}, 2, &no), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "concat: the samples of dataset 1 have 1 fields, and those of dataset 0 have 2");
    CHECK_STATUS(lc_dataset_concat((lc_dataset *[]){a, NULL}, 2, &no), LC_ERR_ARGUMENT);
    lc_dataset_unref(o);
    lc_dataset *drop[] = {a, b, empty, sub, parts[0], parts[1], parts[2], again[0], again[1], again[2]};
    for (size_t i = 0; i < sizeof drop / sizeof *drop; i++) lc_dataset_unref(drop[i]);
    CHECK_EQ(freed, 1 - 1 + 0); /* `all` still references every dataset it was made of */
    lc_dataset_unref(all);
    CHECK_EQ(freed, 3);
}

TEST(datasets_that_differ_are_not_concatenated)
{
    static const uint8_t data[64];
    const lc_field x = {.name = "x", .dtype = LC_U8, .ndim = 2, .shape = {2, 3}};
    static const char *const says[] = {
        "concat: field 0 ('x') has the name z in dataset 1, but x in dataset 0",
        "concat: field 0 ('x') has the dtype i32 in dataset 1, but u8 in dataset 0",
        "concat: field 0 ('x') has the shape [2,4] in dataset 1, but [2,3] in dataset 0",
        "concat: field 0 ('x') has the shape [2] in dataset 1, but [2,3] in dataset 0",
        "concat: field 0 ('x') has the layout channels-last in dataset 1, but row-major in dataset 0",
    };
    for (int i = 0; i < 5; i++) {
        lc_array a = {.field = x, .data = data}, b = a;
        lc_dataset *both[2], *no;
        if (i == 0) b.field.name = "z";
        if (i == 1) b.field.dtype = LC_I32;
        if (i == 2) b.field.shape[1] = 4;
        if (i == 3) b.field.ndim = 1;
        if (i == 4) b.field.layout = LC_CHANNELS_LAST;
        CHECK_OK(lc_array_dataset_new(1, 1, &a, &both[0]));
        CHECK_OK(lc_array_dataset_new(1, 1, &b, &both[1]));
        CHECK_STATUS(lc_dataset_concat(both, 2, &no), LC_ERR_SHAPE);
        CHECK_CONTAINS(lc_error_message(), says[i]);
        lc_dataset_unref(both[0]), lc_dataset_unref(both[1]);
    }
}

/* A large subset is gathered in pieces. */
TEST(subset_in_pieces)
{
    enum { N = 700 };
    lc_dataset *d = make_numbers(N, -1, 0), *sub;
    int64_t indices[N], all[N], k[N];
    uint64_t keys[N];
    float v[N];
    for (int i = 0; i < N; i++) indices[i] = N - 1 - i, all[i] = i, keys[i] = (uint64_t)i * 3;
    CHECK_OK(lc_dataset_subset(d, indices, N, &sub));
    void *out[2] = {v, k};
    CHECK_OK(lc_dataset_get_many(sub, N, all, keys, out, NULL));
    for (int i = 0; i < N; i++) {
        CHECK_EQ(v[i], N - 1 - i);
        CHECK_EQ(k[i], i * 3);
    }
    lc_dataset_unref(d);
    lc_dataset_unref(sub);
}

/* ---- samplers ---- */

TEST(permutation)
{
    enum { N = 1001 };
    int64_t a[N], b[N];
    bool seen[N] = {false};
    lc_random_permutation(7, 3, N, a);
    lc_random_permutation(7, 3, N, b);
    CHECK(!memcmp(a, b, sizeof a));
    for (int i = 0; i < N; i++) {
        CHECK(a[i] >= 0 && a[i] < N && !seen[a[i]]);
        seen[a[i]] = true;
    }
    lc_random_permutation(7, 4, N, b);
    CHECK(memcmp(a, b, sizeof a));
    lc_random_permutation(8, 3, N, b);
    CHECK(memcmp(a, b, sizeof a));
    /* Every order of three elements is about equally frequent: chi-squared with 5 degrees of freedom. */
    int count[6] = {0};
    for (int64_t e = 0; e < 60000; e++) {
        int64_t p[3];
        lc_random_permutation(1, e, 3, p);
        count[p[0] * 2 + (p[1] > p[2])]++;
    }
    double chi = 0;
    for (int i = 0; i < 6; i++) chi += (count[i] - 10000.0) * (count[i] - 10000.0) / 10000.0;
    CHECK(chi < 25); /* p = 0.0001 */
}

TEST(a_transform_cannot_be_twice_in_a_list)
{
    lc_transform one, both[2], out;
    CHECK_OK(lc_transform_normalize(1, (const double[]){0.5}, (const double[]){0.5}, &one));
    both[0] = both[1] = one;
    CHECK_STATUS(lc_transform_compose(2, both, &out), LC_ERR_ARGUMENT); /* and frees it */
    CHECK_CONTAINS(lc_error_message(), "transform 1 ('");
    CHECK_CONTAINS(lc_error_message(), "is in the list twice");
}

/* As one that trains and one that tests might. */
TEST(a_transform_belongs_to_one_dataset)
{
    lc_transform t, all;
    lc_dataset *d = make_numbers(3, -1, 0), *one, *two;
    CHECK_OK(lc_transform_normalize(1, (const double[]){1}, (const double[]){2}, &t));
    CHECK_OK(lc_dataset_transform(d, 0, t, &one));
    CHECK_STATUS(lc_dataset_transform(d, 0, t, &two), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "transform 'normalize' was taken over before");
    lc_transform parts[2] = {{0}, t};
    CHECK_OK(lc_transform_normalize(1, (const double[]){0}, (const double[]){1}, &parts[0]));
    CHECK_STATUS(lc_transform_compose(2, parts, &all), LC_ERR_ARGUMENT); /* and frees the other */
    CHECK_CONTAINS(lc_error_message(), "taken over before");
    lc_transform_release(&t); /* of no effect */
    CHECK_STATUS(lc_dataset_transform(d, 0, t, &two), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "the transform is empty: it was never made, or has been taken over");
    CHECK(value_of(one, 2) == 0.5f);
    lc_dataset_unref(one);
    CHECK_OK(lc_transform_normalize(1, (const double[]){0}, (const double[]){1}, &parts[0]));
    CHECK_OK(lc_transform_compose(1, parts, &all));
    CHECK_STATUS(lc_dataset_transform(d, 0, parts[0], &two), LC_ERR_ARGUMENT);
    CHECK_OK(lc_dataset_transform(d, 0, all, &one));
    CHECK(value_of(one, 1) == 1);
    lc_dataset_unref(one);
    lc_dataset_unref(d);
}

TEST(a_loader_belongs_to_one_combined_loader)
{
    lc_dataset *d = make_numbers(3, -1, 0);
    lc_dataloader *one, *other, *all, *again;
    lc_loaders list = {0};
    CHECK_OK(lc_dataloader_new(&one, .dataset = d));
    CHECK_OK(lc_dataloader_new(&other, .dataset = d));
    CHECK_OK(lc_combined_loader_new(LC_SEQUENTIAL, 1, &one, &all));
    CHECK_STATUS(lc_combined_loader_new(LC_SEQUENTIAL, 2, (lc_dataloader *[]){other, one}, &again), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "loader 1 belongs to another combined loader; make another");
    CHECK_STATUS(lc_loaders_add(&list, one), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "the loader to add belongs to a combined loader");
    lc_dataloader_free(one); /* of no effect */
    CHECK_STATUS(lc_combined_loader_new(LC_SEQUENTIAL, 1, (lc_dataloader *[]){(lc_dataloader *)d}, &again),
                 LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "this is not a data loader");
    CHECK_EQ(lc_dataloader_length(all, 0), 3);
    lc_dataloader_free(all);
    lc_dataset_unref(d);
}

TEST(a_sampler_belongs_to_one_loader)
{
    lc_dataset *d = make_numbers(3, -1, 0);
    lc_dataloader *one, *two;
    static max_align_t room[16];
    lc_sampler sampler, copy;
    CHECK_OK(lc_sampler_random(3, 1, &sampler));
    const lc_sampler_ops *ops = sampler.ops;
    copy = sampler;
    CHECK_OK(lc_dataloader_new(&one, .dataset = d, .sampler = &sampler));
    CHECK_STATUS(lc_dataloader_new(&two, .dataset = d, .sampler = &copy), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "sampler 'random' was taken over before");
    lc_sampler_release(&copy); /* of no effect */
    CHECK_OK(lc_dataloader_begin(one, 0, 0));
    /* Memory that a constructor did not make, as that of a sampler that has been freed. */
    copy = (lc_sampler){ops, room + 8};
    CHECK_STATUS(lc_dataloader_new(&two, .dataset = d, .sampler = &copy), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "sampler 'random' was taken over before");
    lc_dataloader_free(one);
    lc_dataset_unref(d);
}

TEST_MAIN
