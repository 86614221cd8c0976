/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets, IDX files, text, transforms, samplers. */
#include "test.h"
#include <lightc/data.h>

#include <unistd.h>
#include <zlib.h>

static const char *temporary(const char *name, const void *bytes, size_t size)
{
    static char path[8][256];
    static int turn;
    char *p = path[turn++ & 7];
    snprintf(p, sizeof path[0], "%s/lightc-test-%d-%s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid(),
             name);
    FILE *f = fopen(p, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) TEST_FAIL("cannot write %s", p);
    return p;
}

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
                {LC_I32, i32, {-5, 70000}, {1, 0, 1, 1, 0}, {1, 0, 0, 0, 0}},
                {LC_F64, f64, {-1.5, 2.25}, {1, 1, 0, 0, 0}, {1, 1, 0, 0, 0}},
                {LC_F32, f32, {-1.5, 2.25}, {1, 1, 0, 0, 0}, {1, 1, 0, 0, 0}},
                {LC_I64, i64, {-9, 1}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 0}}};
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

/* The vectorised conversion equals the formula for every length, so also in its tail. */
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
    a.to = LC_F16;
    CHECK_STATUS(lc_array_dataset_new(3, 1, &a, &d), LC_ERR_DTYPE);
    CHECK_CONTAINS(lc_error_message(), "from u8 to f16");
    CHECK_EQ(freed, 3);
}

/* ---- IDX ---- */

static size_t idx_file(uint8_t *to, int type, int rank, const uint32_t *dims, size_t data)
{
    size_t n = 0;
    to[n++] = 0, to[n++] = 0, to[n++] = (uint8_t)type, to[n++] = (uint8_t)rank;
    for (int i = 0; i < rank; i++)
        for (int s = 24; s >= 0; s -= 8) to[n++] = (uint8_t)(dims[i] >> s);
    for (size_t i = 0; i < data; i++) to[n++] = (uint8_t)(i * 37 + 5);
    return n;
}

static size_t gzip(const void *from, size_t n, uint8_t *to, size_t room)
{
    z_stream z = {0};
    if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    z.next_in = (Bytef *)(uintptr_t)from;
    z.avail_in = (uInt)n;
    z.next_out = to;
    z.avail_out = (uInt)room;
    deflate(&z, Z_FINISH);
    deflateEnd(&z);
    return room - z.avail_out;
}

TEST(idx_types_and_byte_order)
{
    uint8_t file[256];
    const struct {
        int code;
        size_t width;
        lc_dtype dtype;
    } types[] = {{8, 1, LC_U8}, {9, 1, LC_I32}, {0xB, 2, LC_I32}, {0xC, 4, LC_I32}, {0xD, 4, LC_F32}, {0xE, 8, LC_F64}};
    for (int t = 0; t < 6; t++) {
        size_t n = idx_file(file, types[t].code, 2, (uint32_t[]){2, 3}, 6 * types[t].width);
        lc_idx x;
        CHECK_OK(lc_idx_parse(file, n, "memory", &x));
        CHECK_EQ(x.dtype, types[t].dtype);
        CHECK_EQ(x.ndim, 2);
        CHECK_EQ(x.shape[0], 2);
        CHECK_EQ(x.shape[1], 3);
        CHECK_EQ(x.bytes, 6 * lc_dtype_size(types[t].dtype));
        for (size_t i = 0; i < 6; i++) {
            uint64_t v = 0;
            for (size_t b = 0; b < types[t].width; b++) v = v << 8 | file[12 + i * types[t].width + b];
            switch (types[t].code) {
            case 8:
                CHECK_EQ(((uint8_t *)x.data)[i], v);
                break;
            case 9:
                CHECK_EQ(((int32_t *)x.data)[i], (int8_t)v);
                break;
            case 0xB:
                CHECK_EQ(((int32_t *)x.data)[i], (int16_t)v);
                break;
            case 0xC:
                CHECK_EQ(((int32_t *)x.data)[i], (int32_t)v);
                break;
            case 0xD:
                CHECK(((uint32_t *)x.data)[i] == (uint32_t)v);
                break;
            default:
                CHECK(((uint64_t *)x.data)[i] == v);
            }
        }
        lc_idx_release(&x);
    }
}

TEST(idx_refuses_what_is_wrong)
{
    uint8_t file[4096];
    lc_idx x;
    size_t n = idx_file(file, 8, 3, (uint32_t[]){2, 3, 4}, 24);
    for (size_t cut = 0; cut < n; cut++) {
        CHECK_STATUS(lc_idx_parse(file, cut, "cut.idx", &x), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "cut.idx");
    }
    file[n] = 0;
    CHECK_STATUS(lc_idx_parse(file, n + 1, "long.idx", &x), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "[2, 3, 4]");
    CHECK_CONTAINS(lc_error_message(), "24 bytes");
    file[2] = 0x0A;
    CHECK_STATUS(lc_idx_parse(file, n, "type.idx", &x), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "0x0a");
    file[2] = 8;
    file[3] = 0;
    CHECK_STATUS(lc_idx_parse(file, n, "rank.idx", &x), LC_ERR_FORMAT);
    file[3] = 9;
    CHECK_STATUS(lc_idx_parse(file, n, "rank.idx", &x), LC_ERR_FORMAT);
    file[0] = 'P';
    CHECK_STATUS(lc_idx_parse(file, n, "png.idx", &x), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "not an IDX file");
    /* Sizes whose product overflows, and one that is merely absurd. */
    n = idx_file(file, 8, 4, (uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 2}, 8);
    CHECK_STATUS(lc_idx_parse(file, n, "huge.idx", &x), LC_ERR_FORMAT);
    n = idx_file(file, 8, 1, (uint32_t[]){0xfffffff0}, 8);
    CHECK_STATUS(lc_idx_parse(file, n, "big.idx", &x), LC_ERR_FORMAT);
    CHECK_STATUS(lc_idx_read("/nonexistent/file", &x), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "/nonexistent/file");
}

TEST(idx_gzip)
{
    uint8_t file[4096], packed[8192];
    lc_idx x;
    size_t n = idx_file(file, 8, 2, (uint32_t[]){50, 60}, 3000);
    size_t k = gzip(file, n, packed, sizeof packed);
    CHECK_OK(lc_idx_parse(packed, k, "memory", &x));
    CHECK(x.bytes == 3000 && !memcmp(x.data, file + 12, 3000));
    lc_idx_release(&x);
    const char *path = temporary("whole.gz", packed, k);
    CHECK_OK(lc_idx_read(path, &x));
    CHECK(x.bytes == 3000 && !memcmp(x.data, file + 12, 3000));
    lc_idx_release(&x);
    unlink(path);
    for (size_t cut = 2; cut < k; cut++) CHECK_STATUS(lc_idx_parse(packed, cut, "cut.gz", &x), LC_ERR_FORMAT);
    /* Behind gzip's header every damage is found, by its checksum; a few bits of deflate mean nothing. */
    int unnoticed = 0;
    for (size_t flip = 10; flip < k; flip++) {
        packed[flip] ^= 0x10;
        lc_status status = lc_idx_parse(packed, k, "flipped.gz", &x);
        packed[flip] ^= 0x10;
        if (status == LC_OK) {
            CHECK(x.bytes == 3000 && !memcmp(x.data, file + 12, 3000));
            lc_idx_release(&x);
            unnoticed++;
        } else {
            CHECK_EQ(status, LC_ERR_FORMAT);
        }
    }
    CHECK(unnoticed <= 1);
    packed[k] = 'x';
    CHECK_STATUS(lc_idx_parse(packed, k + 1, "trailing.gz", &x), LC_ERR_FORMAT);
    /* Two streams one behind the other are one file. */
    size_t first = gzip(file, 100, packed, sizeof packed);
    size_t second = gzip(file + 100, n - 100, packed + first, sizeof packed - first);
    CHECK_OK(lc_idx_parse(packed, first + second, "two.gz", &x));
    CHECK(!memcmp(x.data, file + 12, 3000));
    lc_idx_release(&x);
    /* A small file that claims gigabytes is refused before anything is allocated. */
    n = idx_file(file, 8, 2, (uint32_t[]){0xffff, 0xffff}, 100);
    k = gzip(file, n, packed, sizeof packed);
    CHECK_STATUS(lc_idx_parse(packed, k, "bomb.gz", &x), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "at most");
    /* Too long and too short inside the compression. */
    n = idx_file(file, 8, 1, (uint32_t[]){10}, 11);
    k = gzip(file, n, packed, sizeof packed);
    CHECK_STATUS(lc_idx_parse(packed, k, "long.gz", &x), LC_ERR_FORMAT);
    n = idx_file(file, 8, 1, (uint32_t[]){10}, 9);
    k = gzip(file, n, packed, sizeof packed);
    CHECK_STATUS(lc_idx_parse(packed, k, "short.gz", &x), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "only 9");
}

TEST(idx_dataset)
{
    uint8_t file[512];
    lc_dataset *d = NULL;
    size_t n = idx_file(file, 8, 3, (uint32_t[]){3, 2, 2}, 12);
    const char *images = temporary("images", file, n);
    size_t m = idx_file(file + 256, 8, 1, (uint32_t[]){3}, 3);
    const char *labels = temporary("labels", file + 256, m);
    m = idx_file(file + 256, 8, 1, (uint32_t[]){4}, 4);
    const char *more = temporary("more-labels", file + 256, m);
    CHECK_OK(lc_idx_dataset_new(images, labels, &(lc_idx_options){.mean = 0.5, .std = 0.25}, &d));
    CHECK_EQ(lc_dataset_length(d), 3);
    CHECK_EQ(lc_dataset_spec(d)->fields[0].ndim, 3);
    CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[0], 1);
    float x[4];
    int64_t y;
    void *out[2] = {x, &y};
    CHECK_OK(lc_dataset_read(d, 1, 0, out));
    for (int i = 0; i < 4; i++) CHECK_NEAR(x[i], (file[16 + 4 + i] / 255.0 - 0.5) / 0.25, 1e-6);
    CHECK_EQ(y, 42);
    lc_dataset_unref(d);
    CHECK_STATUS(lc_idx_dataset_new(images, more, NULL, &d), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "3 images");
    CHECK_CONTAINS(lc_error_message(), "4 labels");
    CHECK_STATUS(lc_idx_dataset_new(labels, labels, NULL, &d), LC_ERR_FORMAT);
    CHECK_OK(lc_idx_dataset_new(images, labels, &(lc_idx_options){.raw = true}, &d));
    CHECK_EQ(lc_dataset_spec(d)->fields[0].dtype, LC_U8);
    lc_dataset_unref(d);
    unlink(images), unlink(labels), unlink(more);
}

TEST(mnist_folder)
{
    char dir[200], path[300];
    uint8_t file[512], packed[1024];
    lc_dataset *train = NULL, *test = NULL;
    snprintf(dir, sizeof dir, "/tmp/lightc-mnist-XXXXXX");
    CHECK(mkdtemp(dir));
    CHECK_STATUS(lc_mnist_load(dir, NULL, &train, &test), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "train-images");
    static const char *const names[4] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte",
                                         "t10k-images.idx3-ubyte", "t10k-labels-idx1-ubyte.gz"};
    for (int i = 0; i < 4; i++) {
        size_t n = i & 1 ? idx_file(file, 8, 1, (uint32_t[]){i < 2 ? 5 : 3}, i < 2 ? 5 : 3)
                         : idx_file(file, 8, 3, (uint32_t[]){i < 2 ? 5 : 3, 2, 3}, i < 2 ? 30 : 18);
        bool gz = strstr(names[i], ".gz") != NULL;
        size_t k = gz ? gzip(file, n, packed, sizeof packed) : n;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(gz ? packed : file, 1, k, f) == k && fclose(f) == 0);
    }
    CHECK_OK(lc_mnist_load(dir, NULL, &train, &test));
    CHECK_EQ(lc_dataset_length(train), 5);
    CHECK_EQ(lc_dataset_length(test), 3);
    lc_dataset_unref(train);
    lc_dataset_unref(test);
    CHECK_OK(lc_mnist_load(dir, NULL, NULL, &test));
    lc_dataset_unref(test);
    snprintf(path, sizeof path, "%s/%s", dir, names[2]);
    CHECK(truncate(path, 20) == 0);
    CHECK_STATUS(lc_mnist_load(dir, NULL, &train, &test), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), names[2]);
    CHECK(!train && !test);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* ---- text ---- */

TEST(text_windows)
{
    lc_text *t;
    const char *s = "to be, or not to be";
    CHECK_OK(lc_text_new(s, strlen(s), &t));
    CHECK_EQ(lc_text_vocabulary(t), 8); /* space , b e n o r t */
    CHECK_EQ(lc_text_encode(t, ' '), 0);
    CHECK_EQ(lc_text_encode(t, 't'), 7);
    CHECK_EQ(lc_text_encode(t, 'z'), -1);
    CHECK_EQ(lc_text_decode(t, 7), 't');
    CHECK_EQ(lc_text_decode(t, 8), '?');
    lc_dataset *contiguous, *sliding;
    CHECK_OK(lc_text_windows(t, 0, 0, 5, 0, &contiguous));
    CHECK_OK(lc_text_windows(t, 2, 12, 5, 1, &sliding));
    CHECK_EQ(lc_dataset_length(contiguous), 3); /* 19 characters: windows at 0, 5, 10; at 15 there are 4 */
    CHECK_EQ(lc_dataset_length(sliding), 5);
    lc_dataset_unref(sliding);
    CHECK_STATUS(lc_text_windows(t, 0, 5, 5, 0, &sliding), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_text_windows(t, 0, 99, 5, 0, &sliding), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_text_windows(t, 0, 0, INT64_MAX, 0, &sliding), LC_ERR_ARGUMENT);
    CHECK_OK(lc_text_windows(t, 2, 12, 5, 1, &sliding));
    int64_t x[5], y[5];
    void *out[2] = {x, y};
    CHECK_OK(lc_dataset_read(contiguous, 2, 0, out));
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(lc_text_decode(t, x[i]), s[10 + i]);
        CHECK_EQ(lc_text_decode(t, y[i]), s[11 + i]);
    }
    lc_text_free(t); /* the windows keep the text */
    CHECK_OK(lc_dataset_read(sliding, 4, 0, out));
    CHECK_EQ(y[4], 5 /* 'o' of "not", at 2 + 4 + 5 */);
    lc_dataset_unref(contiguous);
    lc_dataset_unref(sliding);
    const char *path = temporary("empty", "", 0);
    CHECK_STATUS(lc_text_read(path, &t), LC_ERR_FORMAT);
    unlink(path);
}

/* ---- a dataset of numbers, and what is made of datasets ---- */

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
    lc_dataset_unref(o);
    lc_dataset *drop[] = {a, b, empty, sub, parts[0], parts[1], parts[2], again[0], again[1], again[2]};
    for (size_t i = 0; i < sizeof drop / sizeof *drop; i++) lc_dataset_unref(drop[i]);
    CHECK_EQ(freed, 1 - 1 + 0); /* `all` still holds every one it was made of */
    lc_dataset_unref(all);
    CHECK_EQ(freed, 3);
}

/* A big subset is gathered in pieces. */
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
    /* Of three things every order comes up about equally often: chi-squared with 5 degrees of freedom. */
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

/* ---- transforms ---- */

/* One image field over `data`. */
static lc_dataset *image(lc_dtype dtype, lc_layout layout, int64_t c, int64_t h, int64_t w, const void *data)
{
    lc_array a = {.field = {.name = "x", .dtype = dtype, .layout = layout, .ndim = 3, .shape = {c, h, w}},
                  .data = data};
    lc_dataset *d;
    CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
    return d;
}

static lc_dataset *with(lc_dataset *d, lc_transform t)
{
    lc_dataset *out;
    CHECK_OK(lc_dataset_transform(d, 0, t, &out));
    lc_dataset_unref(d);
    return out;
}

/* The offset of an element in either layout. */
static int64_t at(lc_layout layout, int64_t c, int64_t y, int64_t x, int64_t C, int64_t H, int64_t W)
{
    return layout == LC_CHANNELS_LAST ? (y * W + x) * C + c : (c * H + y) * W + x;
}

TEST(transforms_to_tensor_and_normalize)
{
    for (lc_layout layout = LC_ROW_MAJOR; layout <= LC_CHANNELS_LAST; layout++) {
        uint8_t in[2 * 3 * 4];
        for (int i = 0; i < 24; i++) in[i] = (uint8_t)(i * 10);
        lc_transform t[2];
        CHECK_OK(lc_transform_to_tensor(&t[0]));
        CHECK_OK(lc_transform_normalize(2, (double[]){0.1, 0.2}, (double[]){0.5, 0.25}, &t[1]));
        lc_transform both;
        CHECK_OK(lc_transform_compose(2, t, &both));
        lc_dataset *d = with(image(LC_U8, layout, 2, 3, 4, in), both);
        CHECK_EQ(lc_dataset_spec(d)->fields[0].dtype, LC_F32);
        CHECK_EQ(lc_dataset_spec(d)->fields[0].layout, layout);
        float out[24];
        void *to = out;
        CHECK_OK(lc_dataset_read(d, 0, 0, &to));
        for (int c = 0; c < 2; c++)
            for (int y = 0; y < 3; y++)
                for (int x = 0; x < 4; x++) {
                    int64_t i = at(layout, c, y, x, 2, 3, 4);
                    CHECK_NEAR(out[i], (in[i] / 255.0 - (c ? 0.2 : 0.1)) / (c ? 0.25 : 0.5), 1e-6);
                }
        lc_dataset_unref(d);
    }
    lc_transform t;
    lc_dataset *d = image(LC_F32, LC_ROW_MAJOR, 3, 1, 1, (float[]){1, 2, 3}), *no;
    CHECK_OK(lc_transform_to_tensor(&t));
    CHECK_STATUS(lc_dataset_transform(d, 0, t, &no), LC_ERR_DTYPE);
    CHECK_OK(lc_transform_normalize(2, (double[]){0, 0}, (double[]){1, 1}, &t));
    CHECK_STATUS(lc_dataset_transform(d, 0, t, &no), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "2 channels");
    CHECK_STATUS(lc_transform_normalize(1, (double[]){0}, (double[]){0}, &t), LC_ERR_ARGUMENT);
    CHECK_OK(lc_transform_one_hot(3, &t));
    CHECK_STATUS(lc_dataset_transform(d, 1, t, &no), LC_ERR_ARGUMENT);
    lc_dataset_unref(d);
}

TEST(transforms_crop_flip_pad)
{
    enum { C = 2, H = 5, W = 6 };
    for (lc_layout layout = LC_ROW_MAJOR; layout <= LC_CHANNELS_LAST; layout++) {
        int32_t in[C * H * W], out[C * 20 * 20];
        void *to = out;
        for (int i = 0; i < C * H * W; i++) in[i] = i + 1;
        lc_transform t;
        /* Pad. */
        CHECK_OK(lc_transform_pad(1, 2, 3, 4, -7, &t));
        lc_dataset *d = with(image(LC_I32, layout, C, H, W, in), t);
        CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[1], H + 7);
        CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[2], W + 3);
        CHECK_OK(lc_dataset_read(d, 0, 0, &to));
        for (int c = 0; c < C; c++)
            for (int y = 0; y < H + 7; y++)
                for (int x = 0; x < W + 3; x++) {
                    bool inside = y >= 3 && y < 3 + H && x >= 1 && x < 1 + W;
                    int32_t want = inside ? in[at(layout, c, y - 3, x - 1, C, H, W)] : -7;
                    CHECK_EQ(out[at(layout, c, y, x, C, H + 7, W + 3)], want);
                }
        lc_dataset_unref(d);
        /* Flip: always, never, and about half the time. */
        for (int p = 0; p < 3; p++) {
            CHECK_OK(lc_transform_horizontal_flip(p / 2.0, &t));
            d = with(image(LC_I32, layout, C, H, W, in), t);
            int flipped = 0;
            for (uint64_t key = 0; key < 400; key++) {
                CHECK_OK(lc_dataset_read(d, 0, key, &to));
                bool f = out[0] != in[0];
                flipped += f;
                for (int c = 0; c < C; c++)
                    for (int y = 0; y < H; y++)
                        for (int x = 0; x < W; x++)
                            CHECK_EQ(out[at(layout, c, y, x, C, H, W)],
                                     in[at(layout, c, y, f ? W - 1 - x : x, C, H, W)]);
            }
            CHECK(p == 0 ? flipped == 0 : p == 2 ? flipped == 400 : flipped > 150 && flipped < 250);
            lc_dataset_unref(d);
        }
        /* Crop of 4x3 with a padding of 1: every place comes up, and its content is the window. */
        CHECK_OK(lc_transform_random_crop(4, 3, 1, &t));
        d = with(image(LC_I32, layout, C, H, W, in), t);
        bool place[4][6] = {{false}};
        for (uint64_t key = 0; key < 600; key++) {
            CHECK_OK(lc_dataset_read(d, 0, key, &to));
            int found = 0;
            for (int top = -1; top <= 2; top++)
                for (int left = -1; left <= 4; left++) {
                    bool same = true;
                    for (int c = 0; same && c < C; c++)
                        for (int y = 0; same && y < 4; y++)
                            for (int x = 0; same && x < 3; x++) {
                                int sy = top + y, sx = left + x;
                                bool inside = sy >= 0 && sy < H && sx >= 0 && sx < W;
                                int32_t want = inside ? in[at(layout, c, sy, sx, C, H, W)] : 0;
                                same = out[at(layout, c, y, x, C, 4, 3)] == want;
                            }
                    if (same) found++, place[top + 1][left + 1] = true;
                }
            CHECK_EQ(found, 1);
        }
        for (int i = 0; i < 24; i++) CHECK(place[i / 6][i % 6]);
        /* A key decides alone. */
        int32_t first[24];
        CHECK_OK(lc_dataset_read(d, 0, 17, &to));
        memcpy(first, out, sizeof first);
        CHECK_OK(lc_dataset_read(d, 0, 18, &to));
        CHECK_OK(lc_dataset_read(d, 0, 17, &to));
        CHECK(!memcmp(first, out, sizeof first));
        lc_dataset_unref(d);
        lc_dataset *no;
        d = image(LC_I32, layout, C, H, W, in);
        CHECK_OK(lc_transform_random_crop(8, 3, 1, &t));
        CHECK_STATUS(lc_dataset_transform(d, 0, t, &no), LC_ERR_SHAPE);
        lc_dataset_unref(d);
    }
}

TEST(transforms_one_hot)
{
    int64_t labels[2] = {2, 5};
    lc_array a = {.field = {.name = "y", .dtype = LC_I64}, .data = labels};
    lc_dataset *d;
    lc_transform t;
    CHECK_OK(lc_array_dataset_new(2, 1, &a, &d));
    CHECK_OK(lc_transform_one_hot(4, &t));
    d = with(d, t);
    CHECK_EQ(lc_dataset_spec(d)->fields[0].ndim, 1);
    float out[4];
    void *to = out;
    CHECK_OK(lc_dataset_read(d, 0, 0, &to));
    for (int i = 0; i < 4; i++) CHECK_NEAR(out[i], i == 2, 0);
    CHECK_STATUS(lc_dataset_read(d, 1, 0, &to), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "sample 1");
    CHECK_CONTAINS(lc_error_message(), "label 5");
    lc_dataset_unref(d);
}

/* Long chains: buffers in turn, sizes that grow and shrink, transforms over transforms. */
TEST(transforms_chain)
{
    uint8_t in[16];
    for (int i = 0; i < 16; i++) in[i] = (uint8_t)(i + 1);
    lc_transform t[5], chain, outer;
    CHECK_OK(lc_transform_pad(8, 8, 8, 8, 9, &t[0])); /* 20x20 of 9s around */
    CHECK_OK(lc_transform_horizontal_flip(1, &t[1]));
    CHECK_OK(lc_transform_to_tensor(&t[2]));
    CHECK_OK(lc_transform_horizontal_flip(1, &t[3]));
    CHECK_OK(lc_transform_normalize(1, (double[]){0}, (double[]){1 / 255.0}, &t[4]));
    CHECK_OK(lc_transform_compose(5, t, &chain));
    CHECK_OK(lc_transform_compose(1, &chain, &outer));
    lc_dataset *d = with(image(LC_U8, LC_ROW_MAJOR, 1, 4, 4, in), outer);
    CHECK_OK(lc_transform_horizontal_flip(1, &chain));
    d = with(d, chain);
    float out[400];
    void *to = out;
    CHECK_OK(lc_dataset_read(d, 0, 0, &to));
    for (int y = 0; y < 20; y++)
        for (int x = 0; x < 20; x++) {
            int sy = y - 8, sx = 19 - x - 8;
            CHECK_NEAR(out[y * 20 + x], sy >= 0 && sy < 4 && sx >= 0 && sx < 4 ? in[sy * 4 + sx] : 9, 1e-4);
        }
    lc_dataset_unref(d);
    CHECK_OK(lc_transform_compose(0, NULL, &chain));
    d = with(image(LC_U8, LC_ROW_MAJOR, 1, 4, 4, in), chain);
    uint8_t same[16];
    to = same;
    CHECK_OK(lc_dataset_read(d, 0, 0, &to));
    CHECK(!memcmp(same, in, 16));
    lc_dataset_unref(d);
}

TEST(mnist_itself)
{
    char dir[4200];
    if (!test_shared_dir()) SKIP("the shared data are not here");
    snprintf(dir, sizeof dir, "%s/data/mnist", test_shared_dir());
    lc_dataset *train, *test;
    CHECK_OK(lc_mnist_load(dir, &(lc_idx_options){.mean = 0.1307, .std = 0.3081}, &train, &test));
    CHECK_EQ(lc_dataset_length(train), 60000);
    CHECK_EQ(lc_dataset_length(test), 10000);
    static float x[784];
    int64_t y;
    void *out[2] = {x, &y};
    double sum = 0, squares = 0;
    for (int i = 0; i < 2000; i++) {
        CHECK_OK(lc_dataset_read(train, i * 30, 0, out));
        for (int j = 0; j < 784; j++) sum += x[j], squares += x[j] * (double)x[j];
    }
    double mean = sum / (2000 * 784);
    CHECK_NEAR(mean, 0, 0.04);
    CHECK_NEAR(sqrt(squares / (2000 * 784) - mean * mean), 1, 0.04);
    static const int64_t first[5] = {5, 0, 4, 1, 9};
    for (int i = 0; i < 5; i++) {
        CHECK_OK(lc_dataset_read(train, i, 0, out));
        CHECK_EQ(y, first[i]);
    }
    lc_dataset_unref(train);
    lc_dataset_unref(test);
}

TEST_MAIN
