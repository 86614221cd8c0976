/* SPDX-License-Identifier: Apache-2.0 */
/* .npy and .npz as NumPy writes them, and broken ones. */
#include "fixtures.h"

static double expected(lc__number number, int64_t i)
{
    switch (number) {
    case LC__BOOL:
        return i % 3 == 0;
    case LC__U8:
    case LC__U16:
    case LC__U32:
    case LC__U64:
        return (double)i;
    default:
        return (double)(i - 3 < 0 && number == LC__NO_NUMBER ? 0 : i - 3);
    }
}

static void check_array(const char *file, int ndim, const int64_t *shape, const char *type)
{
    lc_array_file *f = open_fixture(file);
    CHECK_EQ(lc_array_file_count(f), 1);
    const lc_array_info *info = lc_array_file_info(f, 0);
    CHECK_STR(info->type, type);
    CHECK_EQ(info->ndim, ndim);
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) {
        CHECK_EQ(info->shape[d], shape[d]);
        n *= shape[d];
    }
    double *values = malloc((size_t)(n + 1) * sizeof *values);
    values[n] = 12345;
    CHECK_OK(lc_array_file_read(f, 0, 0, shape[0], LC_F64, values, (size_t)n * sizeof *values));
    for (int64_t i = 0; i < n; i++) CHECK_NEAR(values[i], expected(f->arrays[0].number, i), 0);
    CHECK(values[n] == 12345);
    free(values);
    lc_array_file_close(f);
}

static void check_npy(void)
{
    static const struct {
        const char *file, *type;
    } types[] = {{"u1.npy", "u8"},      {"i1.npy", "i8"},      {"u2.npy", "u16"},     {"i2.npy", "i16"},
                 {"u4.npy", "u32"},     {"i4.npy", "i32"},     {"u8.npy", "u64"},     {"i8.npy", "i64"},
                 {"f2.npy", "f16"},     {"f4.npy", "f32"},     {"f8.npy", "f64"},     {"b1.npy", "bool"},
                 {"big_u2.npy", "u16"}, {"big_i4.npy", "i32"}, {"big_f2.npy", "f16"}, {"big_f8.npy", "f64"},
                 {"v1.npy", "f32"},     {"v2.npy", "f32"},     {"v3.npy", "f32"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_array(types[i].file, 2, (int64_t[]){4, 3}, types[i].type);
    check_array("fortran.npy", 3, (int64_t[]){4, 2, 3}, "f32");
    check_array("fortran_big.npy", 3, (int64_t[]){4, 2, 3}, "i16");
    check_array("vector.npy", 1, (int64_t[]){5}, "i64");
    check_array("empty.npy", 2, (int64_t[]){0, 3}, "f32");
}

TEST(types_orders_and_versions)
{
    check_npy();
}

static void check_npz(void)
{
    static const char *const files[] = {"stored.npz", "deflated.npz", "zip64.npz"};
    for (int k = 0; k < 3; k++) {
        lc_array_file *f = open_fixture(files[k]);
        CHECK_EQ(lc_array_file_count(f), k == 1 ? 4 : 3);
        CHECK_STR(lc_array_file_info(f, 0)->name, "images");
        CHECK_EQ(lc_array_file_find(f, "labels"), 1);
        CHECK_EQ(lc_array_file_find(f, "label"), -1);
        CHECK(!lc_array_file_info(f, 4));
        uint8_t images[24];
        int64_t labels[4];
        int32_t pairs[2];
        CHECK_OK(lc_array_file_read(f, 0, 0, 4, LC_U8, images, sizeof images));
        for (int i = 0; i < 24; i++) CHECK_EQ(images[i], i);
        CHECK_OK(lc_array_file_read(f, 1, 0, 4, LC_I64, labels, sizeof labels));
        for (int i = 0; i < 4; i++) CHECK_EQ(labels[i], i - 3);
        CHECK_OK(lc_array_file_read(f, 2, 1, 2, LC_I32, pairs, sizeof pairs));
        CHECK(pairs[0] == 1 && pairs[1] == 2);
        lc_array_file_close(f);
    }
}

TEST(archives)
{
    check_npz();
}

TEST(live_numpy)
{
    with_live_files("numpy", check_npy);
    with_live_files("numpy", check_npz);
}

TEST(a_number_is_one_sample_to_read_and_none_to_train_on)
{
    lc_array_file *f = open_fixture("scalar.npy");
    float v;
    CHECK_OK(lc_array_file_read(f, 0, 0, 1, LC_F32, &v, sizeof v));
    CHECK_NEAR(v, 7, 0);
    lc_dataset *d;
    CHECK_STATUS(lc_file_dataset_new(1, &(lc_file_field){.name = "x", .file = f}, &d), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "no dimension of samples");
    lc_array_file_close(f);
}

TEST(empty_arrays)
{
    lc_dataset *d;
    lc_array_file *f = open_fixture("empty.npy");
    CHECK_OK(lc_file_dataset_new(1, &(lc_file_field){.name = "x", .file = f}, &d));
    CHECK_EQ(lc_dataset_length(d), 0);
    lc_dataset_unref(d);
    lc_array_file_close(f);
    f = open_fixture("hollow.npy");
    CHECK_STATUS(lc_file_dataset_new(1, &(lc_file_field){.name = "x", .file = f}, &d), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "empty");
    lc_array_file_close(f);
}

TEST(types_that_are_not_numbers)
{
    static const struct {
        const char *file, *says;
    } rows[] = {{"object.npy", "Python objects"}, {"structured.npy", "structured"},   {"text.npy", "texts"},
                {"complex.npy", "a.real"},        {"deflated.npz", "Python objects"}, {"lzma.npz", "savez_compressed"}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        lc_array_file *f = open_fixture(rows[k].file);
        int64_t i = k == 4 ? 3 : 0;
        float v[8];
        CHECK(!lc_array_file_info(f, i)->type);
        CHECK_STATUS(lc_array_file_read(f, i, 0, 1, LC_F32, v, sizeof v), LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(lc_error_message(), rows[k].says);
        CHECK_CONTAINS(lc_error_message(), rows[k].file);
        lc_array_file_close(f);
    }
}

/* ---- datasets ---- */

TEST(fields_of_a_dataset)
{
    lc_array_file *f = open_fixture("deflated.npz"), *g = open_fixture("fortran.npy");
    lc_file_field fields[] = {
        {.name = "x", .file = f, .arrays = "images", .to = LC_F32, .scale = 0.5, .shift = 1},
        {.name = "y", .file = f, .arrays = "labels"},
        {.name = "z", .file = g},
        {.name = "hwc", .file = g, .layout = LC_CHANNELS_LAST},
        {.name = "a,b", .file = f, .to = LC_I64},
        {.name = "pair", .file = f, .arrays = "labels,\"a,b\"", .to = LC_F64},
    };
    lc_dataset *d;
    CHECK_OK(lc_file_dataset_new(6, fields, &d));
    lc_array_file_close(f), lc_array_file_close(g);
    CHECK_EQ(lc_dataset_length(d), 4);
    const lc_sample_spec *spec = lc_dataset_spec(d);
    CHECK(spec->fields[0].dtype == LC_F32 && spec->fields[0].ndim == 2 && spec->fields[0].shape[1] == 3);
    CHECK(spec->fields[1].dtype == LC_I64 && spec->fields[1].ndim == 0);
    CHECK(spec->fields[2].ndim == 2 && spec->fields[2].shape[0] == 2 && spec->fields[2].shape[1] == 3);
    CHECK(spec->fields[3].ndim == 2 && spec->fields[3].shape[0] == 3 && spec->fields[3].shape[1] == 2);
    CHECK(spec->fields[5].ndim == 1 && spec->fields[5].shape[0] == 2);
    float x[3][6], z[3][6], hwc[3][6];
    int64_t y[3], ab[3];
    double pair[3][2];
    void *out[] = {x, y, z, hwc, ab, pair};
    CHECK_OK(lc_dataset_get_many(d, 3, (int64_t[]){3, 0, 2}, (uint64_t[]){0, 0, 0}, out, NULL));
    for (int j = 0; j < 3; j++) {
        int i = j == 0 ? 3 : j == 1 ? 0 : 2;
        for (int k = 0; k < 6; k++) {
            CHECK_NEAR(x[j][k], (i * 6 + k) * 0.5 + 1, 0);
            CHECK_NEAR(z[j][k], i * 6 + k - 3, 0);
            CHECK_NEAR(hwc[j][k], i * 6 + k - 3, 0);
        }
        CHECK_EQ(y[j], i - 3);
        CHECK_EQ(ab[j], i);
        CHECK(pair[j][0] == i - 3 && pair[j][1] == i);
    }
    lc_dataset_unref(d);
}

TEST(the_arrays_that_are_left)
{
    lc_array_file *f = open_fixture("stored.npz");
    lc_file_field fields[] = {{.name = "x", .file = f, .arrays = "*", .to = LC_F32},
                              {.name = "images", .file = f},
                              {.name = "y", .file = f, .arrays = "labels"}};
    lc_dataset *d;
    CHECK_OK(lc_file_dataset_new(3, fields, &d));
    CHECK_EQ(lc_dataset_spec(d)->fields[0].ndim, 0); /* "a,b" alone */
    lc_dataset_unref(d);
    fields[0].arrays = "a,b", fields[1].arrays = "*", fields[1].name = "none";
    fields[2].arrays = "labels,a,b";
    CHECK_STATUS(lc_file_dataset_new(2, fields + 1, &d), LC_ERR_NOT_FOUND);
    fields[2].arrays = "labels,images";
    CHECK_STATUS(lc_file_dataset_new(1, fields + 2, &d), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "3 dimensions");
    lc_array_file_close(f);
}

TEST(wrong_fields)
{
    lc_array_file *f = open_fixture("stored.npz"), *g = open_fixture("vector.npy");
    lc_dataset *d;
#define REFUSED(code, says, ...)                                                                                       \
    do {                                                                                                               \
        lc_file_field wrong[] = {__VA_ARGS__};                                                                         \
        CHECK_STATUS(lc_file_dataset_new((int)(sizeof wrong / sizeof *wrong), wrong, &d), code);                       \
        CHECK(!d);                                                                                                     \
        CHECK_CONTAINS(lc_error_message(), says);                                                                      \
    } while (0)
    REFUSED(LC_ERR_NOT_FOUND, "it has 'images', 'labels', 'a,b'", {.name = "x", .file = f});
    REFUSED(LC_ERR_NOT_FOUND, "no array 'c'", {.name = "x", .file = f, .arrays = "labels,c"});
    REFUSED(LC_ERR_DTYPE, ".to = LC_F32", {.name = "x", .file = f, .arrays = "a,b"});
    REFUSED(LC_ERR_DTYPE, "from i64 to i32", {.name = "labels", .file = f, .to = LC_I32});
    REFUSED(LC_ERR_DTYPE, "scale", {.name = "labels", .file = f, .scale = 2});
    REFUSED(LC_ERR_SHAPE, "5 samples", {.name = "labels", .file = f}, {.name = "y", .file = g});
    REFUSED(LC_ERR_ARGUMENT, "no name", {.file = f});
    REFUSED(LC_ERR_ARGUMENT, "NULL", {.name = "x"});
    REFUSED(LC_ERR_SHAPE, "channels-last", {.name = "labels", .file = f, .layout = LC_CHANNELS_LAST});
    CHECK_STATUS(lc_file_dataset_new(0, NULL, &d), LC_ERR_ARGUMENT);
    int64_t v[5];
    CHECK_STATUS(lc_array_file_read(g, 0, 4, 2, LC_I64, v, 16), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_array_file_read(g, 0, -1, 2, LC_I64, v, 16), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_array_file_read(g, 0, 0, 2, LC_I64, v, 15), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_array_file_read(g, 1, 0, 2, LC_I64, v, 16), LC_ERR_ARGUMENT);
    lc_array_file_close(f), lc_array_file_close(g);
}

/* ---- broken files ---- */

TEST(files_that_end_early_or_are_changed)
{
    static const char *const files[] = {"v1.npy",     "v2.npy",       "structured.npy",
                                        "stored.npz", "deflated.npz", "zip64.npz"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) try_broken(files[k], true);
}

static lc_status open_header(const char *header)
{
    unsigned char bytes[600] = "\x93NUMPY\1";
    size_t n = strlen(header);
    bytes[8] = (unsigned char)n, bytes[9] = (unsigned char)(n >> 8);
    memcpy(bytes + 10, header, n);
    return try_bytes("odd.npy", bytes, 10 + n + 24);
}

TEST(headers)
{
    CHECK_OK(open_header("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }   \n"));
    CHECK_OK(open_header("{\"shape\": (3L, 1), 'fortran_order': True, 'descr': '=f8'}"));
    static const char *const wrong[] = {
        "",
        "{'descr': '<f8', 'fortran_order': False}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), 'shape': (3,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<f8', 'fortran_order': Maybe, 'shape': (3,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)} x",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK_STATUS(open_header(wrong[i]), LC_ERR_FORMAT);
    CHECK_STATUS(open_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,3)}"),
                 LC_ERR_UNSUPPORTED);
    CHECK_STATUS(open_header("{'descr': '<q9', 'fortran_order': False, 'shape': (3,)}"), LC_ERR_UNSUPPORTED);
    /* A header of 4 GiB. */
    CHECK_STATUS(try_bytes("long.npy", "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "4294967295");
    CHECK_STATUS(try_bytes("new.npy", "\x93NUMPY\4\0\0\0\0\0\0\0", 14), LC_ERR_UNSUPPORTED);
    CHECK_STATUS(try_bytes("empty", "", 0), LC_ERR_FORMAT);
    CHECK_STATUS(try_bytes("text.txt", "hello, world", 12), LC_ERR_FORMAT);
    lc_array_file *f;
    CHECK_STATUS(lc_array_file_open("/nonexistent/file", &f), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_array_file_open("/tmp", &f), LC_ERR_FORMAT);
    CHECK_STATUS(lc_array_file_open(fixture("none.npz"), &f), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "without any .npy");
}

/* The place of the nth record of a kind in an archive. */
static unsigned char *record(unsigned char *bytes, size_t size, const char *magic, int nth)
{
    for (size_t i = 0; i + 4 <= size; i++)
        if (!memcmp(bytes + i, "PK", 2) && !memcmp(bytes + i + 2, magic, 2) && !nth--) return bytes + i;
    TEST_FAIL("the archive has no such record");
}

static void set32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> 8 * i);
}

TEST(archives_that_lie)
{
    size_t size;
    unsigned char *bytes = fixture_bytes("deflated.npz", &size), *kept = fixture_bytes("deflated.npz", &size);
    unsigned char *entry = record(bytes, size, "\1\2", 1);
#define LIE(says, ...)                                                                                                 \
    do {                                                                                                               \
        __VA_ARGS__;                                                                                                   \
        CHECK_STATUS(try_bytes("lie.npz", bytes, size), LC_ERR_FORMAT);                                                \
        CHECK_CONTAINS(lc_error_message(), says);                                                                      \
        memcpy(bytes, kept, size);                                                                                     \
    } while (0)
    LIE("cannot have 4000000000", set32(entry + 24, 4000000000u));
    LIE("truncated", set32(entry + 20, 4000000000u));
    LIE("not where", set32(entry + 42, 4000000000u));
    LIE("another name", set32(entry + 42, 0));
    LIE("entry 1", set32(entry + 24, UINT32_MAX)); /* without a field of 64 bits */
    LIE("checksum", set32(entry + 16, 1));
    LIE("directory does not fit", set32(record(bytes, size, "\5\6", 0) + 16, (uint32_t)size));
    LIE("directory does not fit", set32(record(bytes, size, "\5\6", 0) + 10, 60000));
    LIE("twice", memcpy(entry + 46, "images", 6); memcpy(record(bytes, size, "\3\4", 1) + 30, "images", 6));
    /* A size that is too small, or one too large, for what is inflated. */
    LIE("array 'labels'", set32(entry + 24, 159));
    LIE("array 'labels'", set32(entry + 24, 161));
    free(bytes), free(kept);
}

TEST_MAIN
