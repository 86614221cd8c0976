/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of picture files: class folders and lists, one size for all, pictures that cannot be read, and the same
 * batches for any number of workers. */
#include "picture_files.h"
#include "fail_malloc.h"
#include "scratch.h"
#include <lightc/image.h>
#include <lightc/transforms.h>

static char root[300];

static const char *in_root(const char *name)
{
    static char path[2][700];
    static int turn;
    char *p = path[turn++ & 1];
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

static void put(const char *name, const void *data, size_t n)
{
    char path[700];
    snprintf(path, sizeof path, "%s", in_root(name));
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0777);
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) TEST_FAIL("cannot write %s", path);
}

/* A copy of a picture of tests/image/pictures. */
static void put_picture(const char *name, const char *from)
{
    bytes b = read_picture_file(from, "");
    put(name, b.data, b.n);
    bytes_free(&b);
}

static void begin(const char *name)
{
    snprintf(root, sizeof root, "%s", fresh_dir(name));
}

/* ---- which files, in which order ---- */

TEST(classes_and_order_as_torchvision)
{
    /* What torchvision.datasets.ImageFolder made of this tree. */
    static const char *const classes[] = {"Z", "_c", "a", "b", "\xC3\xA4"};
    static const struct {
        const char *file;
        int64_t target;
    } samples[] = {{"Z/q.tiff", 0},
                   {"_c/1.bmp", 1},
                   {"a/dangling.png", 2},
                   {"a/z.jpg", 2},
                   {"a/X/9.jpeg", 2},
                   {"a/linked/.hidden.png", 2},
                   {"a/linked/10.png", 2},
                   {"a/linked/2.png", 2},
                   {"a/linked/n.PNG", 2},
                   {"a/x/1.png", 2},
                   {"a/x-y/1.png", 2},
                   {"a/x/deep/0.webp", 2},
                   {"b/.hidden.png", 3},
                   {"b/10.png", 3},
                   {"b/2.png", 3},
                   {"b/n.PNG", 3},
                   {"\xC3\xA4/\xC3\xA9.png", 4}};
    static const char *const files[] = {
        "b/2.png",     "b/10.png",   "b/.hidden.png", "b/n.PNG",  "a/z.jpg", "a/x/1.png",   "a/x/deep/0.webp",
        "a/x-y/1.png", "a/X/9.jpeg", "Z/q.tiff",      "Z/no.txt", "Z/png",   "Z/b.png.txt", "\xC3\xA4/\xC3\xA9.png",
        "_c/1.bmp",    "root.png"};
    begin("order");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) put(files[i], "", 0);
    CHECK(!symlink("b/2.png", in_root("top.png")));
    CHECK(!symlink("../b", in_root("a/linked")));
    CHECK(!symlink("nowhere.png", in_root("a/dangling.png")));
    lc_dataset *d;
    CHECK_OK(lc_image_folder_new(root, &d, .height = 2, .width = 3));
    CHECK_EQ(lc_image_classes(d), 5);
    for (int i = 0; i < 5; i++) CHECK_STR(lc_image_class(d, i), classes[i]);
    CHECK(!lc_image_class(d, 5) && !lc_image_class(d, -1));
    CHECK_EQ(lc_dataset_length(d), sizeof samples / sizeof *samples);
    for (int i = 0; i < (int)(sizeof samples / sizeof *samples); i++) {
        CHECK_STR(lc_image_file(d, i), samples[i].file);
        CHECK_EQ(lc_image_target(d, i), samples[i].target);
    }
    CHECK(!lc_image_file(d, 17) && lc_image_target(d, 17) == LC_UNSET);
    const lc_sample_spec *spec = lc_dataset_spec(d);
    CHECK_EQ(spec->n, 2);
    CHECK(spec->fields[0].dtype == LC_U8 && spec->fields[0].layout == LC_CHANNELS_LAST);
    CHECK(spec->fields[0].shape[0] == 3 && spec->fields[0].shape[1] == 2 && spec->fields[0].shape[2] == 3);
    CHECK(spec->fields[1].dtype == LC_I64 && spec->fields[1].ndim == 0);
    lc_dataset_unref(d);
    CHECK_OK(lc_image_folder_new(root, &d, .height = 2, .width = 3, .extensions = "bmp,PNG", .allow_empty = true));
    CHECK_EQ(lc_dataset_length(d), 13);
    CHECK_EQ(lc_image_classes(d), 5);
    lc_dataset_unref(d);
}

TEST(classes_of_two_datasets)
{
    lc_dataset *train, *test, *list;
    begin("same");
    put("train/cat/1.png", "", 0);
    put("train/dog/1.png", "", 0);
    put("test/cat/2.png", "", 0);
    CHECK_OK(lc_image_folder_new(in_root("train"), &train, .height = 2, .width = 3));
    CHECK_OK(lc_image_folder_new(in_root("test"), &test, .height = 2, .width = 3));
    CHECK_OK(lc_image_same_classes(train, train));
    CHECK_STATUS(lc_image_same_classes(train, test), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "there are 2 classes in ");
    CHECK_CONTAINS(lc_error_message(), "train/, but 1 in ");
    lc_dataset_unref(test);
    put("test/owl/2.png", "", 0);
    CHECK_OK(lc_image_folder_new(in_root("test"), &test, .height = 2, .width = 3));
    CHECK_STATUS(lc_image_same_classes(train, test), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "class 1 is dog in ");
    CHECK_CONTAINS(lc_error_message(), "train/, but owl in ");
    put("list.csv", "1.png,4\n2.png,5\n", 16);
    CHECK_OK(lc_image_list_new(in_root("list.csv"), &list, .height = 2, .width = 3));
    CHECK_STATUS(lc_image_same_classes(list, train), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "there are 0 classes in ");
    lc_dataset_unref(train);
    lc_dataset_unref(test);
    lc_dataset_unref(list);
}

TEST(folders_without_pictures)
{
    lc_dataset *d;
    begin("empty");
    CHECK_STATUS(lc_image_folder_new(in_root("nowhere"), &d, .height = 2, .width = 3), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "nowhere");
    CHECK_STATUS(lc_image_folder_new(root, &d, .height = 2, .width = 3), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "has no folders");
    put("cat/a.png", "", 0);
    put("dog/readme.txt", "", 0);
    put("owl/deep/readme.txt", "", 0);
    CHECK_STATUS(lc_image_folder_new(root, &d, .height = 2, .width = 3), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "classes without a picture: dog, owl;");
    CHECK(!d);
    CHECK_OK(lc_image_folder_new(root, &d, .height = 2, .width = 3, .allow_empty = true));
    CHECK_EQ(lc_image_classes(d), 3);
    CHECK_EQ(lc_dataset_length(d), 1);
    lc_dataset_unref(d);
    CHECK_STATUS(lc_image_folder_new(root, &d, .height = 2, .width = 3, .extensions = "jpg", .allow_empty = true),
                 LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "not one picture in its 3 folders; files ending in jpg count (extensions)");
    CHECK(!strstr(lc_error_message(), "allow_empty"));
    CHECK(!symlink("../../owl", in_root("owl/deep/again")));
    CHECK_STATUS(lc_image_folder_new(root, &d, .height = 2, .width = 3), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "owl/deep/again is a link to a folder that it is in");
}

TEST(arguments_that_do_not_fit)
{
    lc_dataset *d;
    begin("arguments");
    CHECK_STATUS(lc_image_folder_new(root, &d, .height = 5), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "only the height was given");
    CHECK_STATUS(lc_image_folder_new(root, &d, .height = -1, .width = 5), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_image_folder_new(root, &d, .max_pixels = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_image_folder_new(root, &d, .on_error = (lc_image_on_error)7), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_image_folder_new(root, &d, .root = "x"), LC_ERR_ARGUMENT);
    static const char *const extensions[] = {".jpg", "jpg,.png", "jpg, png", "jpg,,png", ""};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        CHECK_STATUS(lc_image_folder_new(root, &d, .extensions = extensions[i]), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), "neither a dot in front nor blanks");
    }
    CHECK_STATUS(lc_image_list_new("x.csv", &d, .extensions = "png"), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_image_list_new("x.csv", &d, .file_column = "a"), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_image_list_new(in_root("x.csv"), &d), LC_ERR_NOT_FOUND);
}

/* ---- lists ---- */

TEST(a_csv_of_names_and_targets)
{
    lc_dataset *d;
    begin("csv");
    static const char plain[] = "a.png,3\r\n\"b, \"\"c\"\".png\",-1\n\n/abs/d.png,7,more";
    put("plain.csv", plain, sizeof plain - 1);
    CHECK_OK(lc_image_list_new(in_root("plain.csv"), &d, .height = 2, .width = 2));
    CHECK_EQ(lc_dataset_length(d), 3);
    CHECK_EQ(lc_image_classes(d), 0);
    CHECK_STR(lc_image_file(d, 1), "b, \"c\".png");
    CHECK_STR(lc_image_file(d, 2), "/abs/d.png");
    CHECK_EQ(lc_image_target(d, 0), 3);
    CHECK_EQ(lc_image_target(d, 1), -1);
    CHECK_EQ(lc_image_target(d, 2), 7);
    lc_dataset_unref(d);
    static const char named[] = "\xEF\xBB\xBFid,label,file\n1,dog,a.png\n2,10,b.png\n3,cat,c.png\n4,dog,d.png\n";
    put("named.csv", named, sizeof named - 1);
    CHECK_OK(lc_image_list_new(in_root("named.csv"), &d, .height = 2, .width = 2, .file_column = "file",
                               .target_column = "label"));
    CHECK_EQ(lc_image_classes(d), 3);
    CHECK_STR(lc_image_class(d, 0), "10");
    CHECK_STR(lc_image_class(d, 2), "dog");
    static const int64_t targets[] = {2, 0, 1, 2};
    for (int i = 0; i < 4; i++) CHECK_EQ(lc_image_target(d, i), targets[i]);
    CHECK_STR(lc_image_file(d, 3), "d.png");
    lc_dataset_unref(d);
    static const char blanks[] = "a.png, 2\nb.png,10 \r\nc.png,\"1\t\"\n";
    put("blanks.csv", blanks, sizeof blanks - 1);
    CHECK_OK(lc_image_list_new(in_root("blanks.csv"), &d, .height = 2, .width = 2));
    CHECK_EQ(lc_image_classes(d), 0);
    CHECK(lc_image_target(d, 0) == 2 && lc_image_target(d, 1) == 10 && lc_image_target(d, 2) == 1);
    lc_dataset_unref(d);
    static const char mixed[] = "a.png,99999999999999999999\nb.png,1\nc.png,y\n";
    put("mixed.csv", mixed, sizeof mixed - 1);
    CHECK_OK(lc_image_list_new(in_root("mixed.csv"), &d, .height = 2, .width = 2));
    CHECK_EQ(lc_image_classes(d), 3);
    lc_dataset_unref(d);
    CHECK_STATUS(lc_image_list_new(in_root("named.csv"), &d, .file_column = "file", .target_column = "target"),
                 LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "no column \"target\"");
    static const char bare[] = "d.x/a,x\nb,y\nc.png,y\n";
    put("bare.csv", bare, sizeof bare - 1);
    CHECK_OK(lc_image_list_new(in_root("bare.csv"), &d, .height = 2, .width = 2));
    lc_dataset_unref(d);
    static const struct {
        const char *text, *says;
    } broken[] = {{"a.png,1\nb.png\n", "line 2 has 1 columns"},
                  {"\"a.png,1\n", "line 1: a quote has no end"},
                  {"\"a\"b,1\n", "line 1: a field goes on"},
                  {"\xFF\xFEx", "the text is UTF-16; save it as UTF-8"},
                  {"", "lists no files"},
                  {"\n\n", "lists no files"},
                  {",1\n", "line 1 names no file"},
                  {"a.png,1\nb.png,\n", "line 2 names no target"},
                  {"a.png,cat\nb.png, \nc.png,dog\n", "line 2 names no target"},
                  {"a.png,1\rb.png,2\r", "line 1: a carriage return by itself"},
                  {"a.png,1\nb.png,99999999999999999999\n",
                   "all targets are integers, and 99999999999999999999 does not fit into 64 bits"},
                  {"file,label\na.png,1\nb.png,10\n", "the first target is \"label\", and all others are integers"},
                  {"path,class\nfolder.d/a.png,cat\nb.png,dog\n", "the first file is \"path\", and all others end as"}};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put("broken.csv", broken[i].text, strlen(broken[i].text));
        CHECK_STATUS(lc_image_list_new(in_root("broken.csv"), &d, .height = 2, .width = 2), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), broken[i].says);
    }
}

static lc_status name_file(void *ctx, int64_t index, const char **file, int64_t *target)
{
    static char name[40];
    if (index == *(int64_t *)ctx) return lc_fail(LC_ERR_USER, "enough");
    snprintf(name, sizeof name, "%lld.png", (long long)index);
    *file = name;
    *target = 10 * index;
    return LC_OK;
}

TEST(a_function_that_names_files)
{
    NEEDS_PNG;
    lc_dataset *d;
    int64_t stop = -1, y;
    begin("function");
    put_picture("1.png", "grey.png");
    CHECK_OK(lc_image_list_from(3, name_file, &stop, &d, .height = 9, .width = 13, .root = root));
    uint8_t x[9 * 13 * 3];
    CHECK_OK(lc_dataset_read(d, 1, 0, (void *[]){x, &y}));
    CHECK_EQ(y, 10);
    ppm want = read_ppm("grey.png", ".ppm");
    CHECK(!memcmp(x, want.pixels, sizeof x));
    CHECK_STATUS(lc_dataset_read(d, 2, 0, (void *[]){x, &y}), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "2.png");
    ppm_free(&want);
    lc_dataset_unref(d);
    stop = 2;
    CHECK_STATUS(lc_image_list_from(3, name_file, &stop, &d, .height = 9, .width = 13), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "sample 2 of a list of pictures: enough");
    CHECK_STATUS(lc_image_list_from(0, name_file, &stop, &d, .height = 9, .width = 13), LC_ERR_ARGUMENT);
}

/* ---- pixels ---- */

TEST(one_size_for_all)
{
    NEEDS_PNG;
    NEEDS_JPEG;
    lc_dataset *d;
    int64_t y;
    uint8_t x[30 * 40 * 3];
    begin("size");
    put_picture("a/1.png", "rgb.png"); /* 9 x 13 */
    put_picture("a/2.png", "grey2.png");
    put_picture("b/3.jpg", "photo.jpg"); /* 30 x 40 */
    CHECK_OK(lc_image_folder_new(root, &d));
    const int64_t *shape = lc_dataset_spec(d)->fields[0].shape;
    CHECK(shape[0] == 3 && shape[1] == 9 && shape[2] == 13);
    CHECK_OK(lc_dataset_read(d, 1, 0, (void *[]){x, &y}));
    CHECK_STATUS(lc_dataset_read(d, 2, 0, (void *[]){x, &y}), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "b/3.jpg is 40 x 30 pixels, but the first picture is 13 x 9");
    CHECK_CONTAINS(lc_error_message(), "give the dataset a height and a width");
    lc_dataset_unref(d);
    CHECK_OK(lc_image_folder_new(root, &d, .height = 13, .width = 17));
    CHECK_OK(lc_dataset_read(d, 2, 0, (void *[]){x, &y}));
    CHECK_EQ(y, 1);
    ppm want = read_ppm("photo.jpg", ".13x17.ppm");
    for (int i = 0; i < 13 * 17 * 3; i++) CHECK(abs(x[i] - want.pixels[i]) <= 1);
    ppm_free(&want);
    lc_dataset_unref(d);
}

TEST(turned_pictures)
{
    NEEDS_JPEG;
    lc_dataset *d;
    int64_t y;
    uint8_t x[6 * 9 * 3];
    begin("turned");
    put_picture("a/1.jpg", "turned6.jpg"); /* stored as 6 x 9 */
    CHECK_OK(lc_image_folder_new(root, &d));
    CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[1], 6);
    lc_dataset_unref(d);
    CHECK_OK(lc_image_folder_new(root, &d, .exif_transpose = true));
    CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[1], 9);
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){x, &y}));
    ppm want = read_ppm("turned6.jpg", ".upright.ppm");
    for (int i = 0; i < 6 * 9 * 3; i++) CHECK(abs(x[i] - want.pixels[i]) <= 1);
    ppm_free(&want);
    lc_dataset_unref(d);
}

/* ---- batches ---- */

enum { EPOCHS = 2, MOST = 1 << 17 };

typedef struct read_run {
    uint8_t pixels[MOST]; /* of all batches, and targets */
    size_t n;
    int64_t batches, replaced;
    char why[300];
} read_run;

/* Everything that a loader gives in two epochs. */
static void read_all(lc_dataset *d, int workers, read_run *out)
{
    lc_dataloader *l;
    lc_batch *b;
    const char *why;
    *out = (read_run){0};
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 4, .shuffle = true, .seed = 3, .num_workers = workers));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        CHECK_EQ(lc_dataloader_replaced(l, &why), 0);
        for (;;) {
            CHECK_OK(lc_dataloader_next(l, &b));
            if (!b) break;
            out->batches++;
            size_t x = (size_t)lc_tensor_numel(b->x), y = (size_t)b->size * sizeof(int64_t);
            CHECK(out->n + x + y <= MOST);
            CHECK_OK(lc_tensor_read(b->x, out->pixels + out->n, x));
            CHECK_OK(lc_tensor_read(b->y, out->pixels + out->n + x, y));
            out->n += x + y;
        }
        int64_t n = lc_dataloader_replaced(l, &why);
        if (n) snprintf(out->why, sizeof out->why, "%s", why);
        out->replaced += n;
    }
    lc_dataloader_free(l);
}

static void make_folder(const char *name)
{
    static const char *const from[] = {"rgb.png",    "grey.jpg", "lossless.webp", "color420.jpg", "palette.png",
                                       "lossy.webp", "cmyk.jpg", "rgb16.png",     "photo.jpg",    "grey1.png"};
    char to[60];
    begin(name);
    for (int i = 0; i < 30; i++) {
        snprintf(to, sizeof to, "%c/%02d.picture", 'a' + i / 8, i);
        put_picture(to, from[i % 10]);
    }
}

TEST(the_same_batches_for_any_number_of_workers)
{
    NEEDS_JPEG;
    NEEDS_PNG;
    NEEDS_WEBP;
    static read_run want, got;
    lc_dataset *d;
    make_folder("workers");
    CHECK_OK(lc_image_folder_new(root, &d, .height = 12, .width = 16, .extensions = "picture"));
    read_all(d, 0, &want);
    CHECK_EQ(want.batches, 2 * 8);
    CHECK_EQ(want.replaced, 0);
    for (int workers = 1; workers <= 4; workers += 3) {
        read_all(d, workers, &got);
        CHECK(got.n == want.n && !memcmp(got.pixels, want.pixels, want.n));
    }
    /* From any batch on the rest of an epoch is the same. */
    size_t batch = 4 * (12 * 16 * 3 + sizeof(int64_t));
    static uint8_t x[4 * 12 * 16 * 3];
    lc_dataloader *l;
    lc_batch *b;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 4, .shuffle = true, .seed = 3, .num_workers = 2));
    for (int64_t start = 0; start < 7; start++) {
        CHECK_OK(lc_dataloader_begin(l, 0, start));
        for (int64_t i = start; i < 7; i++) { /* the eighth has two samples */
            CHECK_OK(lc_dataloader_next(l, &b));
            CHECK_OK(lc_tensor_read(b->x, x, sizeof x));
            CHECK(!memcmp(x, want.pixels + (size_t)i * batch, sizeof x));
        }
    }
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

/* ---- pictures that cannot be read ---- */

static void break_files(void)
{
    bytes b = read_picture_file("color420.jpg", "");
    put("a/03.picture", b.data, b.n / 2); /* truncated */
    bytes_free(&b);
    put("b/10.picture", "", 0);
    put("b/11.picture", "GIF89a no picture", 17);
    CHECK(!unlink(in_root("d/29.picture"))); /* the last: its place is taken by the first */
    CHECK(!symlink("nowhere", in_root("d/29.picture")));
}

TEST(an_error_names_the_file)
{
    NEEDS_JPEG;
    NEEDS_PNG;
    NEEDS_WEBP;
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *b;
    make_folder("fails");
    break_files();
    CHECK_OK(lc_image_folder_new(root, &d, .height = 12, .width = 16, .extensions = "picture"));
    for (int workers = 0; workers <= 4; workers += 2) {
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 4, .num_workers = workers));
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        CHECK_STATUS(lc_dataloader_next(l, &b), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "sample 3 of dataset 'images'");
        CHECK_CONTAINS(lc_error_message(), "a/03.picture ends early: the JPEG file is truncated");
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

/* A transform that takes the class "b" for an error, or a request, which it cannot make. */
static lc_status picky_describe(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    return LC_OK;
}
static lc_status picky_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                             uint64_t key, void *scratch)
{
    (void)in, (void)out, (void)key, (void)scratch;
    memcpy(dst, src, sizeof(int64_t));
    if (*(const int64_t *)src != 1) return LC_OK;
    return *(const lc_status *)self < 0 ? lc_fail(LC_ERR_USER, "no class like this one") : LC_STOP;
}
static const lc_transform_ops picky_ops = {LC_TRANSFORM_OPS_INIT, .name = "picky", .describe = picky_describe,
                                           .apply = picky_apply};

TEST(an_error_of_a_transform_names_the_file)
{
    NEEDS_PNG;
    static lc_status returns[] = {LC_ERR_USER, LC_STOP};
    begin("picky");
    put_picture("a/1.png", "rgb.png");
    put_picture("b/two.png", "rgb.png");
    for (int workers = 0; workers <= 2; workers += 2)
        for (int i = 0; i < 2; i++) {
            lc_dataset *pictures, *picky, *part, *both;
            lc_dataloader *l;
            lc_batch *batch;
            CHECK_OK(lc_image_folder_new(root, &pictures, .height = 8, .width = 8));
            CHECK_OK(lc_dataset_subset(pictures, (const int64_t[]){0, 1}, 2, &part));
            CHECK_OK(lc_dataset_concat(&part, 1, &both));
            CHECK_OK(lc_dataset_transform(both, 1, (lc_transform){&picky_ops, &returns[i]}, &picky));
            CHECK_OK(lc_dataloader_new(&l, .dataset = picky, .num_workers = workers));
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            CHECK_OK(lc_dataloader_next(l, &batch));
            CHECK_STATUS(lc_dataloader_next(l, &batch), LC_ERR_USER);
            CHECK_CONTAINS(lc_error_message(), "b/two.png: transform 'picky'");
            CHECK_CONTAINS(lc_error_message(), i ? "which a transform cannot return" : "no class like this one");
            lc_dataloader_free(l);
            lc_dataset_unref(picky);
            lc_dataset_unref(both);
            lc_dataset_unref(part);
            lc_dataset_unref(pictures);
        }
}

TEST(skipped_pictures_are_replaced)
{
    NEEDS_JPEG;
    NEEDS_PNG;
    NEEDS_WEBP;
    static read_run want, got;
    uint8_t x[2][12 * 16 * 3];
    int64_t y[2];
    lc_dataset *d, *part, *both;
    make_folder("skips");
    break_files();
    CHECK_OK(
        lc_image_folder_new(root, &d, .height = 12, .width = 16, .extensions = "picture", .on_error = LC_IMAGE_SKIP));
    static const int64_t replaced[][2] = {{3, 4}, {10, 12}, {11, 12}, {29, 0}};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(lc_dataset_read(d, replaced[i][0], 0, (void *[]){x[0], &y[0]}));
        CHECK_OK(lc_dataset_read(d, replaced[i][1], 0, (void *[]){x[1], &y[1]}));
        CHECK(!memcmp(x[0], x[1], sizeof x[0]) && y[0] == y[1]);
        CHECK(lc_dataset_replaced(d, replaced[i][0]) && !lc_dataset_replaced(d, replaced[i][1]));
    }
    CHECK_CONTAINS(lc_dataset_replaced(d, 29), "29.picture");
    lc_dataset_unref(d);
    for (int workers = 0; workers <= 4; workers += 2) {
        CHECK_OK(lc_image_folder_new(root, &d, .height = 12, .width = 16, .extensions = "picture",
                                     .on_error = LC_IMAGE_SKIP));
        read_all(d, workers, workers ? &got : &want);
        CHECK_EQ(want.batches, 2 * 8);
        CHECK_EQ(want.replaced, 2 * 4);
        CHECK_CONTAINS(want.why, ".picture");
        if (workers) CHECK(got.n == want.n && !memcmp(got.pixels, want.pixels, want.n));
        if (workers) CHECK(got.replaced == want.replaced);
        lc_dataset_unref(d);
    }
    /* Datasets made of it count as well. */
    CHECK_OK(
        lc_image_folder_new(root, &d, .height = 12, .width = 16, .extensions = "picture", .on_error = LC_IMAGE_SKIP));
    CHECK_OK(lc_dataset_subset(d, (int64_t[]){3, 4, 5, 10}, 4, &part));
    CHECK_OK(lc_dataset_concat((lc_dataset *[]){part, part}, 2, &both));
    read_all(both, 2, &got);
    CHECK_EQ(got.replaced, 2 * 4);
    /* So does a combined loader, in which one of two begins again seven times. */
    lc_dataloader *l, *two[2];
    lc_batch *b;
    CHECK_OK(lc_dataloader_new(&two[0], .dataset = d, .batch_size = 4));
    CHECK_OK(lc_dataloader_new(&two[1], .dataset = part, .batch_size = 4));
    CHECK_OK(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, two, &l));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        do CHECK_OK(lc_dataloader_next(l, &b));
        while (b);
        CHECK_EQ(lc_dataloader_replaced(l, NULL), 4 + 8 * 2);
    }
    lc_dataloader_free(l);
    lc_transform t;
    lc_dataset *floats;
    CHECK_OK(lc_transform_to_tensor(&t));
    CHECK_OK(lc_dataset_transform(both, 0, t, &floats));
    float image[12 * 16 * 3];
    CHECK_OK(lc_dataset_read(floats, 4, 0, (void *[]){image, &y[0]}));
    CHECK_CONTAINS(lc_dataset_replaced(floats, 4), "03.picture");
    CHECK(!lc_dataset_replaced(floats, 5));
    lc_dataset_unref(floats);
    lc_dataset_unref(both);
    lc_dataset_unref(part);
    lc_dataset_unref(d);
}

/* Without memory for any one allocation a sample is an error, and never replaced. */
TEST(too_little_memory)
{
#ifdef SANITIZED
    SKIP("a sanitizer owns malloc");
#else
    NEEDS_JPEG;
    NEEDS_PNG;
    NEEDS_WEBP;
    uint8_t x[12 * 16 * 3];
    int64_t y;
    make_folder("memory");
    int failures = 0;
    for (long at = 1;; at++) {
        lc_dataset *d = NULL;
        const char *replaced = NULL;
        atomic_store(&mallocs, 0);
        atomic_store(&malloc_fail_at, at);
        lc_status status = lc_image_folder_new(root, &d, .height = 12, .width = 16, .extensions = "picture",
                                               .on_error = LC_IMAGE_SKIP);
        for (int64_t i = 0; i < 10 && status == LC_OK; i++) {
            status = lc_dataset_read(d, i, 0, (void *[]){x, &y});
            if (!replaced) replaced = lc_dataset_replaced(d, i);
        }
        const bool failed = atomic_load(&mallocs) >= at;
        atomic_store(&malloc_fail_at, 0);
        if (replaced) TEST_FAIL("allocation %ld: %s", at, replaced);
        if (failed && status != LC_ERR_MEMORY) TEST_FAIL("allocation %ld: %d, %s", at, status, lc_error_message());
        lc_dataset_unref(d);
        if (!failed) break;
        failures++;
    }
    CHECK(failures > 30);
#endif
}

TEST(nothing_is_left_to_read)
{
    NEEDS_PNG;
    lc_dataset *d;
    int64_t y;
    uint8_t x[12];
    begin("nothing");
    put("a/1.png", "", 0);
    put("a/2.png", "?", 1);
    CHECK_STATUS(lc_image_folder_new(root, &d, .on_error = LC_IMAGE_SKIP), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "none of the 2 pictures can be read; the first: ");
    CHECK_CONTAINS(lc_error_message(), "a/1.png is empty");
    CHECK_STATUS(lc_image_folder_new(root, &d), LC_ERR_FORMAT);
    CHECK_OK(lc_image_folder_new(root, &d, .on_error = LC_IMAGE_SKIP, .height = 2, .width = 2));
    CHECK_STATUS(lc_dataset_read(d, 1, 0, (void *[]){x, &y}), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "none of the 2 pictures");
    lc_dataset_unref(d);
    /* The size is that of the first that can be read. */
    put_picture("a/3.png", "rgb.png");
    CHECK_OK(lc_image_folder_new(root, &d, .on_error = LC_IMAGE_SKIP));
    CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[1], 9);
    lc_dataset_unref(d);
    /* A limit on pixels counts as broken; another size does not. */
    CHECK_OK(lc_image_folder_new(root, &d, .on_error = LC_IMAGE_SKIP, .height = 2, .width = 2, .max_pixels = 100));
    CHECK_STATUS(lc_dataset_read(d, 2, 0, (void *[]){x, &y}), LC_ERR_FORMAT);
    lc_dataset_unref(d);
    if (!LIGHTC_HAVE_JPEG) return;
    put_picture("a/4.jpg", "photo.jpg");
    static uint8_t large[9 * 13 * 3];
    CHECK_OK(lc_image_folder_new(root, &d, .on_error = LC_IMAGE_SKIP));
    CHECK_STATUS(lc_dataset_read(d, 3, 0, (void *[]){large, &y}), LC_ERR_SHAPE);
    lc_dataset_unref(d);
}

TEST(another_dataset_has_no_files)
{
    static const float numbers[2];
    lc_dataset *d;
    lc_array a = {.field = {.name = "x", .dtype = LC_F32}, .data = numbers};
    CHECK_OK(lc_array_dataset_new(2, 1, &a, &d));
    CHECK_EQ(lc_image_classes(d), 0);
    CHECK_CONTAINS(lc_error_message(), "dataset 'arrays' has no pictures");
    CHECK(!lc_image_class(d, 0) && !lc_image_file(d, 0) && lc_image_target(d, 0) == LC_UNSET);
    lc_dataset_unref(d);
}
TEST_MAIN
