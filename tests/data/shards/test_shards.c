/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures in tar files: what WebDataset and others write, damaged files, indices, packing, and an order that reads
 * shards one after the other, the same for any number of workers, ranks, and after a resume. */
#include "picture_files.h"
#include "scratch.h"
#include "sources.h"
#include <lightc/image.h>
#include <fcntl.h>
#include <sys/stat.h>

static char root[300];

static const char *in_root(const char *name)
{
    static char path[4][700];
    static int turn;
    char *p = path[turn++ & 3];
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

static void begin(const char *name)
{
    snprintf(root, sizeof root, "%s", fresh_dir(name));
}

static const char *fixture(const char *name)
{
    static char path[5000];
    snprintf(path, sizeof path, "%s/tests/data/shards/fixtures/%s.tar", source_root(), name);
    return path;
}

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) TEST_FAIL("cannot write %s", path);
}

static size_t get(const char *path, void *data, size_t room)
{
    FILE *f = fopen(path, "rb");
    if (!f) TEST_FAIL("cannot read %s", path);
    const size_t n = fread(data, 1, room, f);
    fclose(f);
    return n;
}

TEST(shards_that_others_write)
{
    NEEDS_PNG;
    static const char *const kinds[] = {"webdataset", "ustar", "gnu", "pax"};
    uint8_t x[9 * 13 * 3];
    int64_t y;
    ppm want = read_ppm("grey2.png", ".ppm");
    for (int k = 0; k < 4; k++) {
        lc_dataset *d;
        CHECK_OK(lc_image_shards_new(fixture(kinds[k]), &d));
        CHECK_EQ(lc_dataset_length(d), 4);
        CHECK_EQ(lc_image_shards(d), 1);
        CHECK_EQ(lc_image_classes(d), 0);
        for (int i = 0; i < 4; i++) {
            CHECK_EQ(lc_image_target(d, i), 7 - i);
            CHECK_OK(lc_dataset_read(d, i, 0, (void *[]){x, &y}));
            CHECK_EQ(y, 7 - i);
            CHECK(!memcmp(x, want.pixels, sizeof x));
        }
        CHECK_STR(lc_image_file(d, 1), k == 0 ? "part/0001.png" : "part/0001.PNG");
        CHECK_EQ(strlen(lc_image_file(d, 3)), k < 2 ? 13 : 150 + 1 + 130 + 4);
        lc_dataset_unref(d);
    }
    ppm_free(&want);
}

/* ---- tar files made here ---- */

static uint8_t tar[1 << 16];
static size_t tar_n;

static void seal(uint8_t *header)
{
    unsigned sum = 8 * ' ';
    for (int i = 0; i < 512; i++)
        if (i < 148 || i >= 156) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

static void add(const char *name, const void *data, size_t n)
{
    uint8_t *h = tar + tar_n;
    memset(h, 0, 512 + n + 512);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 124, 12, "%011o", (unsigned)n);
    h[156] = '0';
    memcpy(h + 257, "ustar", 6);
    seal(h);
    memcpy(h + 512, data, n);
    tar_n += 512 + (n + 511) / 512 * 512;
}

static void add_text(const char *name, const char *text)
{
    add(name, text, strlen(text));
}

static const char *finish(const char *name)
{
    memset(tar + tar_n, 0, 1024);
    const char *path = in_root(name);
    put(path, tar, tar_n + 1024);
    tar_n = 0;
    return path;
}

#define REFUSED(path, status, says, ...)                                                                               \
    do {                                                                                                               \
        lc_dataset *d_;                                                                                                \
        CHECK_STATUS(lc_image_shards_new(path, &d_, .height = 2, .width = 2, ##__VA_ARGS__), status);                  \
        CHECK_CONTAINS(lc_error_message(), says);                                                                      \
        CHECK(!d_);                                                                                                    \
    } while (0)

TEST(names_of_shards)
{
    lc_dataset *d;
    begin("names");
    for (int i = 8; i < 12; i++) {
        char name[40];
        snprintf(name, sizeof name, "t-%03d.tar", i);
        add_text("a.jpg", "no picture");
        add_text("a.cls", i == 8 ? " dog\n" : "cat");
        (void)finish(name);
    }
    put(in_root("notes.txt"), "", 0);
    CHECK_OK(lc_image_shards_new(root, &d, .height = 2, .width = 2));
    CHECK(lc_dataset_length(d) == 4 && lc_image_shards(d) == 4 && lc_image_classes(d) == 2);
    CHECK_STR(lc_image_class(d, 0), "cat");
    CHECK(lc_image_target(d, 0) == 1 && lc_image_target(d, 1) == 0);
    lc_dataset_unref(d);
    CHECK_OK(lc_image_shards_new(in_root("t-{009..011}.tar"), &d, .height = 2, .width = 2));
    CHECK_EQ(lc_image_shards(d), 3);
    int64_t y;
    CHECK_STATUS(lc_dataset_read(d, 0, 0, (void *[]){(uint8_t[12]){0}, &y}), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "t-009.tar: a.jpg cannot be read");
    lc_dataset_unref(d);
    static const char *const wrong[] = {"t-{3..1}.tar",  "t-{..2}.tar", "t-{1..}.tar",        "t-{1,2}.tar",
                                        "t-{-1..2}.tar", "t-{1.2}.tar", "t-{1..2}{1..2}.tar", "t-{0..99999999}.tar"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSED(in_root(wrong[i]), LC_ERR_ARGUMENT, "numbered as in train-{000000..000123}.tar");
    REFUSED(in_root("t-{010..012}.tar"), LC_ERR_NOT_FOUND, "t-012.tar");
    REFUSED(in_root("none.tar"), LC_ERR_NOT_FOUND, "none.tar");
    CHECK(!mkdir(in_root("empty"), 0777));
    REFUSED(in_root("empty"), LC_ERR_NOT_FOUND, "has no tar files");
    REFUSED(root, LC_ERR_ARGUMENT, "not for shards", .root = "x");
}

TEST(members_that_describe_a_shard_are_no_samples)
{
    lc_dataset *d;
    begin("meta");
    add_text("__meta__", "{}");
    add_text("__meta__/about.jpg", "of the shard");
    add_text("a.jpg", "?");
    add_text("a.cls", "1");
    add_text("__index__/a.b/c.png", "of the shard");
    add_text("__b.jpg", "?");
    add_text("__b.cls", "2");
    add_text("c/__d__/e.jpg", "?");
    add_text("c/__d__/e.cls", "3");
    CHECK_OK(lc_image_shards_new(finish("t.tar"), &d, .height = 2, .width = 2));
    CHECK_EQ(lc_dataset_length(d), 3);
    for (int i = 0; i < 3; i++) CHECK_EQ(lc_image_target(d, i), i + 1);
    CHECK_STR(lc_image_file(d, 2), "c/__d__/e.jpg");
    lc_dataset_unref(d);
}

TEST(samples_that_lack_something)
{
    begin("lack");
    add_text("a.jpg", "?");
    REFUSED(finish("1.tar"), LC_ERR_FORMAT, "sample a has no target (cls)");
    add_text("a.cls", "1");
    REFUSED(finish("2.tar"), LC_ERR_FORMAT, "sample a has no picture (jpg,");
    add_text("a.jpg", "?");
    add_text("a.png", "?");
    REFUSED(finish("3.tar"), LC_ERR_FORMAT, "sample a has two pictures, a.jpg and a.png");
    add_text("a.jpg", "?");
    add_text("a.cls", "1");
    add_text("a.cls", "1");
    REFUSED(finish("4.tar"), LC_ERR_FORMAT, "sample a has two targets");
    add_text("a.jpg", "?");
    add("a.cls", "1\0", 2);
    REFUSED(finish("5.tar"), LC_ERR_FORMAT, "a.cls is not text");
    static char much[5000];
    memset(much, 'x', sizeof much);
    add_text("a.jpg", "?");
    add("a.cls", much, sizeof much);
    REFUSED(finish("6.tar"), LC_ERR_FORMAT, "a target has at most 4096");
    REFUSED(finish("7.tar"), LC_ERR_FORMAT, "has no samples");
    add_text("a.jpg", "?");
    add_text("a.cls", " \n");
    add_text("b.jpg", "?");
    add_text("b.cls", "12");
    REFUSED(finish("empty.tar"), LC_ERR_FORMAT, "a.cls is empty; a target is an integer");
    /* Others are passed over; extensions may be given. */
    lc_dataset *d;
    add_text("a.seg.png", "?");
    add_text("a.jpg", "?");
    add_text("a.label", "5");
    add_text(".hidden.png", "?");
    add_text("readme", "?");
    CHECK_OK(lc_image_shards_new(finish("8.tar"), &d, .height = 2, .width = 2, .target_extension = "label"));
    CHECK(lc_dataset_length(d) == 1 && lc_image_target(d, 0) == 5);
    lc_dataset_unref(d);
    add_text("a.jpg", "?");
    add_text("a.mask.png", "?");
    add_text("a.cls", "5");
    CHECK_OK(lc_image_shards_new(finish("9.tar"), &d, .height = 2, .width = 2, .extensions = "mask.png"));
    CHECK_STR(lc_image_file(d, 0), "a.mask.png");
    lc_dataset_unref(d);
}

TEST(tar_files_that_are_compressed)
{
    static const char *const begins[] = {"\x1F\x8B\x08", "BZh9", "\xFD\x37zXZ", "\x28\xB5\x2F\xFD"};
    static const char *const says[] = {"compressed by gzip", "compressed by bzip2", "compressed by xz",
                                       "compressed by zstd"};
    begin("compressed");
    for (size_t i = 0; i < 4; i++)
        for (size_t n = 100; n <= 1000; n += 900) { /* less than a header, and more */
            char data[1000] = {0};
            memcpy(data, begins[i], strlen(begins[i]));
            put(in_root("small.tar"), data, n);
            REFUSED(in_root("small.tar"), LC_ERR_FORMAT, says[i]);
        }
    add_text("BZh9.jpg", "?"); /* no compressed file, but one with this name in it */
    add_text("BZh9.cls", "1");
    finish("name.tar");
    lc_dataset *d;
    CHECK_OK(lc_image_shards_new(in_root("name.tar"), &d, .height = 2, .width = 2));
    lc_dataset_unref(d);
}

TEST(tar_files_that_are_damaged)
{
    begin("damaged");
    REFUSED(fixture("torn"), LC_ERR_FORMAT, "the tar file ends early");
    put(in_root("text.tar"), "not a tar file", 14);
    REFUSED(in_root("text.tar"), LC_ERR_FORMAT, "ends early");
    add_text("a.jpg", "?");
    tar[3]++;
    REFUSED(finish("sum.tar"), LC_ERR_FORMAT, "byte 0: there is no header of a tar file");
    add_text("a.jpg", "?");
    memset(tar + 124, 0x80, 12);
    seal(tar);
    REFUSED(finish("large.tar"), LC_ERR_FORMAT, "a header has no size");
    memset(tar + 124, 0, 12), tar[124] = 0x80, tar[130] = 0x7F;
    tar_n = 1024;
    seal(tar);
    REFUSED(finish("larger.tar"), LC_ERR_FORMAT, "longer than the tar file");
    add_text("a.jpg", "?");
    tar[156] = 'S';
    seal(tar);
    REFUSED(finish("sparse.tar"), LC_ERR_FORMAT, "sparse");
    add_text("pax", "22 GNU.sparse.major=1\n");
    tar[156] = 'x';
    seal(tar);
    add_text("a.jpg", "?");
    add_text("a.cls", "1");
    REFUSED(finish("sparse_pax.tar"), LC_ERR_FORMAT, "byte 1024: sparse members are not read");
    static const char *const records[] = {"99 path=x\n", "5 path\n", "9 path=xy",
                                          "0 path=x\n",  "path=x\n", "10 size=x\n"};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        add_text("pax", records[i]);
        tar[156] = 'x';
        seal(tar);
        REFUSED(finish("pax.tar"), LC_ERR_FORMAT, "a pax header is damaged");
    }
}

/* A folder's size says how much may be in it, and a link's is that of the file. */
TEST(headers_with_a_size_and_no_data)
{
    begin("sizes");
    lc_dataset *d;
    for (const char *type = "123456"; *type; type++) {
        add_text("a.jpg", "?");
        add_text("a.cls", "1");
        const size_t at = tar_n;
        add_text("d/", "");
        snprintf((char *)tar + at + 124, 12, "%011o", 1024);
        tar[at + 156] = (uint8_t)*type;
        seal(tar + at);
        add_text("b.jpg", "?");
        add_text("b.cls", "2");
        CHECK_OK(lc_image_shards_new(finish("t.tar"), &d, .height = 2, .width = 2));
        CHECK_EQ(lc_dataset_length(d), 2);
        CHECK(lc_image_target(d, 0) == 1 && lc_image_target(d, 1) == 2);
        lc_dataset_unref(d);
    }
}

/* ---- indices ---- */

static void make_folder(int classes, int each)
{
    bytes b = read_picture_file("grey2.png", "");
    char path[900];
    for (int c = 0; c < classes; c++) {
        snprintf(path, sizeof path, "%s/in", root);
        (void)mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/in/%c", root, 'a' + c);
        (void)mkdir(path, 0777);
        for (int i = 0; i < each; i++) {
            snprintf(path, sizeof path, "%s/in/%c/%02d.png", root, 'a' + c, i);
            put(path, b.data, b.n);
        }
    }
    bytes_free(&b);
}

TEST(an_index_says_the_same)
{
    NEEDS_PNG;
    static char text[1 << 16];
    lc_dataset *d;
    int64_t samples, y;
    uint8_t x[12];
    begin("index");
    size_t n = get(fixture("pax"), tar, sizeof tar);
    put(in_root("t.tar"), tar, n);
    CHECK_OK(lc_image_shards_index(in_root("t.tar"), &samples));
    CHECK_EQ(samples, 4);
    n = get(in_root("t.tar.idx"), text, sizeof text);
    CHECK(n > 30 && !memcmp(text, "lightc,1,20480,\n", 16));
    CHECK_OK(lc_image_shards_new(in_root("t.tar"), &d, .height = 2, .width = 2));
    CHECK_EQ(lc_dataset_length(d), 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(lc_image_target(d, i), 7 - i);
        CHECK_OK(lc_dataset_read(d, i, 0, (void *[]){x, &y}));
    }
    CHECK_EQ(strlen(lc_image_file(d, 3)), 285);
    lc_dataset_unref(d);
    /* An index of another file of that size is noticed by the header before the picture. */
    static const char wrong[] = "lightc,1,20480,\n2048,90,\"a, \"\"b\"\".png\",3\n";
    put(in_root("t.tar.idx"), wrong, sizeof wrong - 1);
    CHECK_OK(lc_image_shards_new(in_root("t.tar"), &d, .height = 2, .width = 2));
    CHECK_STR(lc_image_file(d, 0), "a, \"b\".png");
    CHECK_STATUS(lc_dataset_read(d, 0, 0, (void *[]){x, &y}), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "is not at byte 2048; has the file changed, or is its index an old one?");
    lc_dataset_unref(d);
    static const struct {
        const char *text, *says;
    } damaged[] = {{"", "it is empty"},
                   {"lightc,2,20480,\n", "not an index of this version"},
                   {"lightc,1,20481,\n", "another size"},
                   {"lightc,1,20480\n", "a row has four columns"},
                   {"lightc,1,20480,\n1,2,3\n", "line 2: a row has four columns"},
                   {"lightc,1,20480,\n512,-2,a,1\n", "no offset, size, name and target"},
                   {"lightc,1,20480,\n512,2,,1\n", "no offset, size, name and target"},
                   {"lightc,1,20480,\n512,2,a,\n", "no offset, size, name and target"},
                   {"lightc,1,20480,\n511,2,a,1\n", "not within the shard"},
                   {"lightc,1,20480,\n20480,1,a,1\n", "not within the shard"},
                   {"lightc,1,20480,\n600,18446744073709551615,a,1\n", "not within the shard"},
                   {"lightc,1,20480,\n\"512,2,a,1\n", "a quote has no end"},
                   {"lightc,1,20480,\n", "has no samples"}};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        put(in_root("t.tar.idx"), damaged[i].text, strlen(damaged[i].text));
        REFUSED(in_root("t.tar"), LC_ERR_FORMAT, damaged[i].says);
    }
    CHECK_OK(lc_image_shards_index(in_root("t.tar"), NULL)); /* it makes a damaged one again */
    CHECK_STATUS(lc_image_shards_index(in_root("none.tar"), NULL), LC_ERR_NOT_FOUND);
}

TEST(a_file_that_is_no_index_is_not_replaced)
{
    static const char notes[] = "lightc, as I see it\n";
    char text[64];
    begin("foreign_index");
    add_text("a.jpg", "?");
    add_text("a.cls", "3");
    const char *path = finish("t.tar");
    put(in_root("t.tar.idx"), notes, sizeof notes - 1);
    CHECK_STATUS(lc_image_shards_index(path, NULL), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "t.tar.idx");
    CHECK_CONTAINS(lc_error_message(), "is not an index of a shard; move it away");
    CHECK_EQ(get(in_root("t.tar.idx"), text, sizeof text), sizeof notes - 1);
}

/* The same sizes, but other targets. */
TEST(an_index_older_than_its_shard_is_not_used)
{
    begin("old_index");
    lc_dataset *d;
    for (int target = 3; target <= 4; target++) {
        add_text("a.jpg", "?");
        add_text("a.cls", target == 3 ? "3" : "4");
        const char *path = finish("t.tar");
        if (target == 3) CHECK_OK(lc_image_shards_index(path, NULL));
        struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 5}};
        CHECK(!utimensat(AT_FDCWD, in_root("t.tar.idx"), times, 0));
        times[1].tv_nsec += target - 3;
        CHECK(!utimensat(AT_FDCWD, path, times, 0));
        CHECK_OK(lc_image_shards_new(path, &d, .height = 2, .width = 2));
        CHECK_EQ(lc_image_target(d, 0), target);
        lc_dataset_unref(d);
    }
}

TEST(a_folder_is_packed)
{
    NEEDS_PNG;
    lc_dataset *folder, *d;
    int64_t n, y;
    char names[64];
    uint8_t x[2][9 * 13 * 3];
    begin("pack");
    make_folder(3, 7);
    CHECK_OK(lc_image_shards_pack(in_root("in"), in_root("out"), &n, .samples = 8));
    CHECK_EQ(n, 3);
    CHECK_EQ(get(in_root("out-classes.txt"), names, sizeof names), 6);
    CHECK(!memcmp(names, "a\nb\nc\n", 6));
    CHECK_OK(lc_image_shards_new(in_root("out-{000000..000002}.tar"), &d));
    CHECK_OK(lc_image_folder_new(in_root("in"), &folder));
    CHECK_EQ(lc_dataset_length(d), 21);
    int64_t counts[3] = {0}, before = 0;
    bool sorted = true;
    CHECK_OK(lc_dataset_read(folder, 0, 0, (void *[]){x[1], &y}));
    for (int i = 0; i < 21; i++) {
        CHECK_EQ(atoll(lc_image_file(d, i)), i);
        CHECK_OK(lc_dataset_read(d, i, 0, (void *[]){x[0], &y}));
        CHECK(y >= 0 && y < 3 && !memcmp(x[0], x[1], sizeof x[0]));
        counts[y]++;
        sorted = sorted && y >= before;
        before = y;
    }
    CHECK(counts[0] == 7 && counts[1] == 7 && counts[2] == 7);
    CHECK(!sorted);
    lc_dataset_unref(d);
    CHECK_STATUS(lc_image_shards_pack(in_root("in"), in_root("out"), &n), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "out-000000.tar exists");
    static const char *const mine[] = {"mine-000000.tar", "mine-000000.tar.idx", "mine-classes.txt"};
    for (int i = 0; i < 3; i++) {
        put(in_root(mine[i]), "mine", 4);
        CHECK_STATUS(lc_image_shards_pack(in_root("in"), in_root("mine"), &n), LC_ERR_STATE);
        CHECK_CONTAINS(lc_error_message(), mine[i]);
        CHECK_EQ(get(in_root(mine[i]), names, sizeof names), 4);
        CHECK(!unlink(in_root(mine[i])));
    }
    /* Another seed, another order. */
    CHECK_OK(lc_image_shards_pack(in_root("in"), in_root("other"), &n, .samples = 8, .seed = 4));
    static uint8_t shard[2][1 << 16];
    const size_t length = get(in_root("out-000000.tar"), shard[0], sizeof shard[0]);
    CHECK(get(in_root("other-000000.tar"), shard[1], sizeof shard[1]) == length && length > 8000);
    CHECK(memcmp(shard[0], shard[1], length) != 0);
    /* A class without a picture has a number, if that is asked for. */
    CHECK_EQ(mkdir(in_root("in/empty"), 0777), 0);
    CHECK_STATUS(lc_image_shards_pack(in_root("in"), in_root("some"), &n), LC_ERR_NOT_FOUND);
    CHECK_OK(lc_image_shards_pack(in_root("in"), in_root("some"), &n, .allow_empty = true));
    CHECK_EQ(get(in_root("some-classes.txt"), names, sizeof names), 12);
    CHECK(!memcmp(names, "a\nb\nc\nempty\n", 12));
    CHECK_EQ(rmdir(in_root("in/empty")), 0);
    CHECK_OK(lc_image_shards_pack(in_root("in"), in_root("rest"), &n, .bytes = 5500, .shuffle = false));
    CHECK_EQ(n, 11);
    for (int i = 0; i < n; i++) {
        snprintf(names, sizeof names, "rest-%06d.tar", i);
        CHECK(get(in_root(names), shard[0], sizeof shard[0]) <= 5500);
    }
    CHECK_OK(lc_image_shards_new(in_root("rest-000000.tar"), &d));
    CHECK_STR(lc_image_file(d, 0), "0000000000.png");
    lc_dataset_unref(d);
    CHECK_OK(lc_image_shards_pack(in_root("in"), in_root("no/such/x"), &n));
    CHECK(access(in_root("no/such/x-000000.tar"), F_OK) == 0);
    CHECK_STATUS(lc_image_shards_pack(in_root("in"), in_root("x"), &n, .samples = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_image_shards_pack(in_root("in"), in_root("out/"), &n), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "has no name");
    CHECK_STATUS(lc_image_shards_pack(in_root("none"), in_root("x"), &n), LC_ERR_NOT_FOUND);
    lc_dataset_unref(folder);
}

/* Names of classes are lines of a file. */
TEST(a_class_with_a_line_break_is_not_packed)
{
    int64_t n;
    begin("pack_line");
    make_folder(2, 1);
    CHECK(!rename(in_root("in/b"), in_root("in/b\nc")));
    CHECK_STATUS(lc_image_shards_pack(in_root("in"), in_root("out"), &n), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "has a line break in its name");
    CHECK(access(in_root("out-000000.tar"), F_OK) != 0);
}

/* A shard is not opened for each sample: one that was removed can still be read. */
TEST(shards_stay_open_between_samples)
{
    NEEDS_PNG;
    lc_dataset *d;
    int64_t n, y;
    uint8_t x[12];
    begin("open");
    make_folder(1, 4);
    CHECK_OK(lc_image_shards_pack(in_root("in"), in_root("s"), &n, .samples = 2));
    CHECK_OK(lc_image_shards_new(in_root("s-{000000..000001}.tar"), &d, .height = 2, .width = 2));
    CHECK_OK(lc_dataset_read(d, 2, 0, (void *[]){x, &y}));
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){x, &y}));
    CHECK(!remove(in_root("s-000000.tar")) && !remove(in_root("s-000001.tar")));
    CHECK_OK(lc_dataset_read(d, 1, 0, (void *[]){x, &y}));
    CHECK_STATUS(lc_dataset_read(d, 3, 0, (void *[]){x, &y}), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_dataset_read(d, 1, 0, (void *[]){x, &y}), LC_ERR_NOT_FOUND);
    lc_dataset_unref(d);
}

/* ---- the order ---- */

static lc_dataset *packed(int64_t samples)
{
    lc_dataset *d;
    int64_t n;
    make_folder(4, 15);
    CHECK_OK(lc_image_shards_pack(in_root("in"), in_root("s"), &n, .samples = samples, .shuffle = false));
    char pattern[400];
    snprintf(pattern, sizeof pattern, "%s/s-{000000..%06d}.tar", root, (int)n - 1);
    CHECK_OK(lc_image_shards_new(pattern, &d));
    CHECK_EQ(lc_dataset_length(d), 60);
    return d;
}

TEST(shards_are_read_one_after_the_other)
{
    NEEDS_PNG;
    lc_sampler s;
    begin("order");
    lc_dataset *d = packed(10);
    static const int64_t buffers[] = {1, 8, 1000};
    for (int b = 0; b < 3; b++) {
        int64_t order[2][60];
        CHECK_OK(lc_image_shards_sampler(d, buffers[b], 3, &s));
        for (int64_t epoch = 0; epoch < 2; epoch++) {
            bool seen[60] = {false};
            CHECK_EQ(s.ops->length(s.self, epoch), 60);
            CHECK_OK(s.ops->order(s.self, epoch, 60, order[epoch]));
            int opened = 0, late = 0;
            for (int i = 0; i < 60; i++) {
                const int64_t at = order[epoch][i];
                CHECK(at >= 0 && at < 60 && !seen[at]);
                seen[at] = true;
                opened += i > 0 && at / 10 != order[epoch][i - 1] / 10;
                late += i > 0 && at < order[epoch][i - 1];
            }
            if (b == 0) CHECK(opened == 5);
            if (b == 1) CHECK(opened > 5 && late > 10);
            if (b == 2) CHECK(opened > 30);
        }
        CHECK(memcmp(order[0], order[1], sizeof order[0]) != 0);
        lc_sampler_release(&s);
    }
    CHECK_STATUS(lc_image_shards_sampler(d, 0, 3, &s), LC_ERR_ARGUMENT);
    lc_dataset_unref(d);
    CHECK_OK(lc_image_folder_new(in_root("in"), &d));
    CHECK_EQ(lc_image_shards(d), 0);
    CHECK_STATUS(lc_image_shards_sampler(d, 5, 3, &s), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "has no shards");
    lc_dataset_unref(d);
}

/* The samples that `size` ranks see from batch `start` of epoch 1 on, in their places in the global order. */
static int64_t read_order(lc_dataset *d, int size, int workers, int64_t start, int64_t out[60])
{
    int64_t n = 0;
    for (int rank = 0; rank < size; rank++) {
        lc_sampler s;
        lc_dataloader *l;
        lc_batch *b;
        CHECK_OK(lc_image_shards_sampler(d, 16, 3, &s));
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 6 / size, .sampler = &s, .num_workers = workers));
        if (size > 1) CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = rank, .size = size}));
        CHECK_OK(lc_dataloader_begin(l, 1, start));
        for (int64_t k = start;; k++) {
            CHECK_OK(lc_dataloader_next(l, &b));
            if (!b) break;
            for (int64_t i = 0; i < b->size; i++) out[6 * k + b->global_offset + i] = b->indices[i];
            n += b->size;
        }
        lc_dataloader_free(l);
    }
    return n;
}

TEST(ranks_workers_and_resume_inside_a_shard)
{
    NEEDS_PNG;
    begin("ranks");
    lc_dataset *d = packed(10);
    int64_t want[60], got[60];
    CHECK_EQ(read_order(d, 1, 0, 0, want), 60);
    CHECK_EQ(read_order(d, 1, 3, 0, got), 60);
    CHECK(!memcmp(want, got, sizeof want));
    CHECK_EQ(read_order(d, 3, 1, 0, got), 60);
    CHECK(!memcmp(want, got, sizeof want));
    memset(got, 0, sizeof got);
    CHECK_EQ(read_order(d, 2, 0, 7, got), 18);
    CHECK(!memcmp(want + 42, got + 42, 18 * sizeof *got));
    lc_dataset_unref(d);
}

TEST_MAIN
