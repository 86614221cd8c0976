/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 files as h5py writes them: types, chunks, several threads, and broken ones. */
#include "data/files/file.h"
#include "data/files/lzf.h"
#include "fixtures.h"
#include <math.h>
#include <time.h>

static bool opens(void)
{
    lc_array_file *f;
    lc_status status = lc_array_file_open(fixture("some.h5"), &f);
    if (status == LC_ERR_UNSUPPORTED) {
        CHECK_CONTAINS(lc_error_message(), "libhdf5-dev");
        return false;
    }
    CHECK_OK(status);
    lc_array_file_close(f);
    return true;
}

#define NEEDS_HDF5                                                                                                     \
    if (!opens()) SKIP("HDF5 is not installed, or lightc was built without it")

static void check_types(void)
{
    static const struct {
        const char *name, *type;
    } rows[] = {{"u1", "u8"},  {"i1", "i8"}, {"u2", "u16"}, {"i2", "i16"}, {"u4", "u32"},  {"i4", "i32"}, {"u8", "u64"},
                {"i8", "i64"}, {"f2", NULL}, {"f4", "f32"}, {"f8", "f64"}, {"b1", "bool"}, {"big", "i32"}};
    lc_array_file *f = open_fixture("some.h5");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char name[40];
        snprintf(name, sizeof name, "types/%s", rows[k].name);
        int64_t i = lc_array_file_find(f, name);
        const lc_array_info *info = lc_array_file_info(f, i);
        CHECK(info && info->ndim == 2 && info->shape[0] == 4 && info->shape[1] == 3);
        if (rows[k].type) CHECK_STR(info->type, rows[k].type); /* libhdf5 decides what a half becomes */
        double v[12];
        CHECK_OK(lc_array_file_read(f, i, 0, 4, LC_F64, v, sizeof v));
        bool from_zero = rows[k].name[0] == 'u';
        for (int e = 0; e < 12; e++)
            CHECK_NEAR(v[e], rows[k].name[1] == '1' && rows[k].name[0] == 'b' ? e % 3 == 0 : from_zero ? e : e - 3, 0);
    }
    int64_t i = lc_array_file_find(f, "scalar");
    float seven;
    CHECK_OK(lc_array_file_read(f, i, 0, 1, LC_F32, &seven, sizeof seven));
    CHECK_NEAR(seven, 7, 0);
    i = lc_array_file_find(f, "texts");
    CHECK(!lc_array_file_info(f, i)->type);
    CHECK_STATUS(lc_array_file_read(f, i, 0, 1, LC_F32, &seven, sizeof seven), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "some.h5");
    lc_array_file_close(f);
    f = open_fixture("user.h5");
    CHECK_EQ(lc_array_file_count(f), 1);
    lc_array_file_close(f);
}

/* In random order, with one thread and with several, from an array in chunks. */
static void check_samples(void)
{
    lc_array_file *f = open_fixture("some.h5");
    int64_t labels = lc_array_file_find(f, "train/labels");
    lc_file_field fields[] = {
        {.name = "x", .file = f, .arrays = "train/images", .to = LC_F32, .scale = 0.5},
        {.name = "y", .file = f, .arrays = labels < 0 ? "again" : "train/labels"}, /* one array of two names */
    };
    lc_dataset *d;
    CHECK_OK(lc_file_dataset_new(2, fields, &d));
    lc_array_file_close(f);
    CHECK_EQ(lc_dataset_length(d), 300);
    for (int workers = 0; workers < 4; workers += 3) {
        lc_dataloader *l;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 290, .shuffle = true, .num_workers = workers));
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        bool seen[300] = {false};
        for (;;) {
            lc_batch *b;
            float x[290][6];
            int64_t y[290];
            CHECK_OK(lc_dataloader_next(l, &b));
            if (!b) break;
            CHECK_OK(lc_tensor_read(b->x, x, (size_t)b->size * sizeof *x));
            CHECK_OK(lc_tensor_read(b->y, y, (size_t)b->size * sizeof *y));
            for (int64_t j = 0; j < b->size; j++) {
                int64_t i = y[j] + 3;
                CHECK(i >= 0 && i < 300 && !seen[i]);
                seen[i] = true;
                for (int k = 0; k < 6; k++) CHECK_NEAR(x[j][k], 0.5 * (double)(i * 6 + k), 0);
            }
        }
        for (int i = 0; i < 300; i++) CHECK(seen[i]);
        lc_loader_times times;
        lc_dataloader_times(l, &times);
        CHECK(times.read > 0 && times.read <= times.gathered);
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

/* Chunks that are larger than the library's cache by default. */
static void check_wide(void)
{
    enum { WIDTH = 300000 };
    lc_array_file *f = open_fixture("some.h5");
    lc_dataset *d;
    CHECK_OK(lc_file_dataset_new(1, &(lc_file_field){.name = "wide", .file = f, .to = LC_F32}, &d));
    lc_array_file_close(f);
    float *rows = malloc(3 * WIDTH * sizeof *rows);
    void *scratch = malloc(lc_dataset_scratch_size(d)), *out[] = {rows};
    CHECK(rows && scratch);
    CHECK_OK(lc_dataset_get_many(d, 3, (int64_t[]){2, 3, 0}, (uint64_t[]){0, 0, 0}, out, scratch));
    for (int i = 0; i < WIDTH; i++) CHECK(rows[i] == 2 && rows[WIDTH + i] == 3 && rows[2 * WIDTH + i] == 0);
    free(rows), free(scratch);
    lc_dataset_unref(d);
}

static void check_windows(void)
{
    lc_array_file *f = open_fixture("some.h5");
    lc_dataset *d;
    int64_t x[8], y[8];
    void *out[] = {x, y};
    CHECK_OK(lc_file_windows_new(f, &d, .array = lc_array_file_find(f, "again") < 0 ? "train/labels" : "again",
                                 .window = 8));
    lc_array_file_close(f);
    CHECK_OK(lc_dataset_read(d, 5, 0, out));
    for (int k = 0; k < 8; k++) CHECK(x[k] == 40 + k - 3 && y[k] == x[k] + 1);
    lc_dataset_unref(d);
}

static void check_filters(void)
{
    static const char *const names[] = {"lzf", "all", "gzip"};
    lc_array_file *f = open_fixture("filters.h5");
    float want[1000], v[1000];
    CHECK_OK(lc_array_file_read(f, lc_array_file_find(f, "values"), 0, 1000, LC_F32, want, sizeof want));
    for (int k = 0; k < 3; k++) {
        CHECK_OK(lc_array_file_read(f, lc_array_file_find(f, names[k]), 0, 1000, LC_F32, v, sizeof v));
        CHECK(!memcmp(v, want, sizeof v));
    }
    const int64_t zstd = lc_array_file_find(f, "zstd");
    CHECK(!lc_array_file_info(f, zstd)->type);
    CHECK_STATUS(lc_array_file_read(f, zstd, 0, 1000, LC_F32, v, sizeof v), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "(filter 32015), which the installed library lacks");
    lc_array_file_close(f);
}

TEST(types)
{
    NEEDS_HDF5;
    check_types();
}

/* Only one of 0 and 1 is a bool; the others would lose their numbers. */
TEST(enumerations)
{
    NEEDS_HDF5;
    lc_array_file *f = open_fixture("enums.h5");
    uint8_t v[2];
    const int64_t i = lc_array_file_find(f, "bool");
    CHECK_STR(lc_array_file_info(f, i)->type, "bool");
    CHECK_OK(lc_array_file_read(f, i, 0, 2, LC_U8, v, sizeof v));
    CHECK(v[0] == 1 && v[1] == 0);
    static const char *const others[] = {"numbers", "three"};
    for (int k = 0; k < 2; k++) {
        CHECK_STATUS(lc_array_file_read(f, lc_array_file_find(f, others[k]), 0, 2, LC_U8, v, sizeof v),
                     LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(lc_error_message(), "enumerations");
    }
    lc_array_file_close(f);
}

TEST(samples_in_chunks)
{
    NEEDS_HDF5;
    check_samples();
    check_windows();
    check_wide();
}

/* Datasets without chunks, in this machine's byte order, unless nothing was ever written to them; also after a block of
 * the user's. */
TEST(plain_datasets_are_mapped)
{
    NEEDS_HDF5;
    static const struct {
        const char *file, *array;
        bool mapped;
    } rows[] = {{"user.h5", "x", true},
                {"some.h5", "types/f4", true},
                {"some.h5", "types/big", false},
                {"some.h5", "train/images", false},
                {"unwritten.h5", "x", false}};
    for (int k = 0; k < 5; k++) {
        lc_array_file *f = open_fixture(rows[k].file);
        lc_dataset *d;
        float v[12];
        const lc_file_field field = {.name = "x", .file = f, .arrays = rows[k].array, .to = LC_F32};
        CHECK_OK(lc_file_dataset_new(1, &field, &d));
        CHECK_EQ(lc_dataset_scratch_size(d) == 0, rows[k].mapped);
        CHECK_OK(lc_dataset_read(d, 2, 0, (void *[]){v}));
        for (int i = 0; i < 3; i++) CHECK_NEAR(v[i], k == 4 ? 7 : k == 3 ? 12 + i : 3 + i, 0);
        lc_dataset_unref(d);
        lc_array_file_close(f);
    }
}

/* A sample of each chunk; returns the time it takes. */
static double read_from_each_chunk(lc_array_file *f)
{
    struct timespec start, end;
    uint8_t row[16384];
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (int i = 0; i < 1024; i += 16) {
        CHECK_OK(lc_array_file_read(f, 0, i, 1, LC_U8, row, sizeof row));
        CHECK(row[0] == (uint8_t)i && row[16383] == (uint8_t)i);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}

TEST(chunks_are_decompressed_once)
{
    NEEDS_HDF5;
    lc_array_file *f = open_fixture("chunks.h5");
    const double first = read_from_each_chunk(f);
    double later = first;
    for (int i = 0; i < 10; i++) later = fmin(later, read_from_each_chunk(f));
    if (later > first / 3) TEST_FAIL("at first %.3g s, later %.3g s", first, later);
    lc_array_file_close(f);
}

static int reads;

static lc_status count_reads(const lc_array_file *f, const lc__file_array *a, int64_t first, int64_t n, void *to)
{
    (void)f, (void)a;
    for (int64_t i = 0; i < n; i++) ((int64_t *)to)[i] = first + i;
    reads++;
    return LC_OK;
}

/* Small samples of another type: each read has a price of its own. */
TEST(many_samples_are_read_at_once)
{
    enum { N = 100000 };
    static float v[N];
    static const lc__file_kind kind = {.read = count_reads};
    lc__file_array a = {.info = {.name = "y", .type = "i64", .dtype = LC_I64, .ndim = 1, .shape = {N + 5}},
                        .number = (lc__number)LC_I64,
                        .stride = {8}};
    lc_array_file f = {.path = "some", .kind = &kind, .arrays = &a, .n = 1, .mark = LC__MARK_OF(ARRAY_FILE)};
    CHECK_OK(lc_array_file_read(&f, 0, 5, N, LC_F32, v, sizeof v));
    for (int i = 0; i < N; i++) CHECK(v[i] == (float)(i + 5));
    CHECK(reads <= 4);
}

TEST(live_h5py)
{
    NEEDS_HDF5;
    with_live_files("h5py", check_types);
    with_live_files("h5py", check_samples);
    with_live_files("h5py", check_filters);
}

TEST(elements_in_another_file)
{
    NEEDS_HDF5;
    lc_array_file *f = open_fixture("outside.h5");
    float v[4];
    CHECK_STATUS(lc_array_file_read(f, 0, 0, 4, LC_F32, v, sizeof v), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "other files");
    lc_array_file_close(f);
}

TEST(filters)
{
    NEEDS_HDF5;
    check_filters();
}

TEST(lzf_that_is_damaged)
{
    static const struct {
        const char *data;
        size_t n, want;
    } cases[] = {
        {"\x02xyz", 4, 3},             /* three bytes */
        {"\x02xyz\x20\x02", 6, 6},     /* and again */
        {"\x00x\xE0\xFF\x00", 5, 265}, /* a byte 265 times */
        {"\x02xy", 3, 0},              /* ends in a run, */
        {"\x00x\x20", 3, 0},           /* before the place, */
        {"\x00x\xE0", 3, 0},           /* before the length, */
        {"\x00x\xE0\x05", 4, 0},       /* and after it */
        {"\x00x\x20\x01", 4, 0},       /* a copy from before the beginning */
        {"\x20\x00", 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t to[300];
        const uint8_t *from = (const uint8_t *)cases[i].data;
        CHECK_EQ(lc__lzf_decode(from, cases[i].n, NULL, SIZE_MAX), cases[i].want);
        CHECK_EQ(lc__lzf_decode(from, cases[i].n, to, sizeof to), cases[i].want);
        if (!cases[i].want) continue;
        CHECK_EQ(lc__lzf_decode(from, cases[i].n, to, cases[i].want - 1), 0);
        CHECK_EQ(lc__lzf_decode(from, cases[i].n, to, cases[i].want), cases[i].want);
        for (size_t k = 0; k < cases[i].want; k++) CHECK_EQ(to[k], i < 2 ? "xyz"[k % 3] : 'x');
    }
}

/* As one of a later version of the format, whose others can be read. */
TEST(a_dataset_that_cannot_be_opened)
{
    NEEDS_HDF5;
    static const unsigned char layout[] = {8, 0, 24, 0, 0, 0, 0, 0, 3}; /* a message of 24 bytes, in version 3 */
    size_t size, at = 0;
    unsigned char *bytes = fixture_bytes("some.h5", &size);
    char path[400];
    snprintf(path, sizeof path, "%s/later.h5", scratch_root);
    while (at + sizeof layout < size && memcmp(bytes + at, layout, sizeof layout) != 0) at++;
    CHECK(at + sizeof layout < size);
    bytes[at + sizeof layout - 1] = 99;
    CHECK_OK(lc__replace_file(&lc__io_system, path, bytes, size));
    free(bytes);
    lc_array_file *f;
    double v[12];
    int closed = 0;
    CHECK_OK(lc_array_file_open(path, &f));
    for (int64_t i = 0; i < lc_array_file_count(f); i++) {
        const lc_array_info *info = lc_array_file_info(f, i);
        if (strncmp(info->name, "types/", 6) != 0) continue;
        const lc_status status = lc_array_file_read(f, i, 0, 4, LC_F64, v, sizeof v);
        if (status == LC_OK) continue;
        CHECK_EQ(status, LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(lc_error_message(), "cannot be opened");
        CHECK(!info->type);
        closed++;
    }
    CHECK_EQ(closed, 1);
    lc_array_file_close(f);
}

TEST(files_that_end_early)
{
    NEEDS_HDF5;
    size_t size;
    unsigned char *bytes = fixture_bytes("some.h5", &size);
    char path[400];
    snprintf(path, sizeof path, "%s/cut.h5", scratch_root);
    for (size_t cut = 8; cut < size; cut += size / 40) {
        lc_array_file *f;
        CHECK_OK(lc__replace_file(&lc__io_system, path, bytes, cut));
        CHECK_STATUS(lc_array_file_open(path, &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "cut.h5");
    }
    free(bytes);
}

TEST_MAIN
