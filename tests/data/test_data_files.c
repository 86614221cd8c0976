/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets from files: IDX, plain and compressed, a folder of MNIST; text. */
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

TEST(idx_refuses_invalid_files)
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
    /* After gzip's header all damage is found, by its checksum; only a few bits of deflate have no meaning. */
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
    /* Two concatenated streams are one file. */
    size_t first = gzip(file, 100, packed, sizeof packed);
    size_t second = gzip(file + 100, n - 100, packed + first, sizeof packed - first);
    CHECK_OK(lc_idx_parse(packed, first + second, "two.gz", &x));
    CHECK(!memcmp(x.data, file + 12, 3000));
    lc_idx_release(&x);
    /* Zeros after a stream, as on tapes, are not one. */
    memmove(packed + first + 7, packed + first, second);
    memset(packed + first, 0, 7);
    memset(packed + first + 7 + second, 0, 500);
    const size_t padded = first + 7 + second + 500;
    CHECK_OK(lc_idx_parse(packed, padded, "zeros.gz", &x));
    CHECK(!memcmp(x.data, file + 12, 3000));
    lc_idx_release(&x);
    packed[padded - 1] = 'x';
    CHECK_STATUS(lc_idx_parse(packed, padded, "trailing.gz", &x), LC_ERR_FORMAT);
    /* A small file that claims gigabytes is refused before anything is allocated. */
    n = idx_file(file, 8, 2, (uint32_t[]){0xffff, 0xffff}, 100);
    k = gzip(file, n, packed, sizeof packed);
    CHECK_STATUS(lc_idx_parse(packed, k, "bomb.gz", &x), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "at most");
    /* Too long and too short inside the compressed data. */
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
    CHECK_OK(lc_idx_dataset_new(images, labels, &d, .mean = 0.5, .std = 0.25));
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
    CHECK_STATUS(lc_idx_dataset_new(images, more, &d), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "3 images");
    CHECK_CONTAINS(lc_error_message(), "4 labels");
    CHECK_STATUS(lc_idx_dataset_new(labels, labels, &d), LC_ERR_FORMAT);
    CHECK_STATUS(lc_idx_dataset_new(images, labels, &d, .raw = true, .mean = 0.5), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_idx_dataset_new(images, labels, &d, .raw = true, .std = 0.25), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "raw images stay bytes");
    CHECK_OK(lc_idx_dataset_new(images, labels, &d, .raw = true));
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
    CHECK_STATUS(lc_mnist_load(dir, &train, &test), LC_ERR_NOT_FOUND);
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
    CHECK_OK(lc_mnist_load(dir, &train, &test));
    CHECK_EQ(lc_dataset_length(train), 5);
    CHECK_EQ(lc_dataset_length(test), 3);
    lc_dataset_unref(train);
    lc_dataset_unref(test);
    CHECK_OK(lc_mnist_load(dir, NULL, &test));
    lc_dataset_unref(test);
    snprintf(path, sizeof path, "%s/%s", dir, names[2]);
    CHECK(truncate(path, 20) == 0);
    CHECK_STATUS(lc_mnist_load(dir, &train, &test), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), names[2]);
    CHECK(!train && !test);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

TEST(mnist_itself)
{
    char dir[4200];
    if (!test_shared_dir()) SKIP("the shared data are not here");
    snprintf(dir, sizeof dir, "%s/data/mnist", test_shared_dir());
    lc_dataset *train, *test;
    CHECK_OK(lc_mnist_load(dir, &train, &test, .mean = 0.1307, .std = 0.3081));
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
    CHECK_OK(lc_text_windows(t, 0, LC_UNSET, 5, LC_UNSET, &contiguous));
    CHECK_OK(lc_text_windows(t, 2, 12, 5, 1, &sliding));
    CHECK_EQ(lc_dataset_length(contiguous), 3); /* 19 characters: windows at 0, 5, 10; at 15 there are 4 */
    CHECK_EQ(lc_dataset_length(sliding), 5);
    lc_dataset_unref(sliding);
    CHECK_STATUS(lc_text_windows(t, 0, 5, 5, LC_UNSET, &sliding), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_text_windows(t, 0, 99, 5, LC_UNSET, &sliding), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_text_windows(t, 0, LC_UNSET, INT64_MAX, LC_UNSET, &sliding), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_text_windows(t, 0, 0, 5, 1, &sliding), LC_ERR_ARGUMENT); /* a zero is a zero */
    CHECK_STATUS(lc_text_windows(t, 0, 12, 5, 0, &sliding), LC_ERR_ARGUMENT);
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

TEST_MAIN
