/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of pictures whose transform sees each picture in its own size: crops of pictures that differ, errors that
 * name the file, pictures decoded at a part of their size, and the same batches for any number of workers. */
#include "picture_files.h"
#include "base/io.h"
#include "scratch.h"
#include <lightc/image.h>
#include <lightc/transforms.h>

static char root[300];

/* A folder with a class of pictures of 9 x 13, 30 x 40, and a third one. */
static void make_folder(const char *name, const char *third)
{
    static const char *const from[] = {"rgb.png", "photo.jpg"};
    snprintf(root, sizeof root, "%s", fresh_dir(name));
    char path[700];
    snprintf(path, sizeof path, "%s/a", root);
    CHECK(!mkdir(path, 0777));
    for (int i = 0; i < 2 + (third != NULL); i++) {
        bytes b = read_picture_file(i < 2 ? from[i] : third, "");
        snprintf(path, sizeof path, "%s/a/%d.picture", root, i);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(b.data, 1, b.n, f) != b.n || fclose(f) != 0) TEST_FAIL("cannot write %s", path);
        bytes_free(&b);
    }
}

static lc_status folder(lc_dataset **out, lc_transform *t)
{
    return lc_image_folder_new(root, out, .extensions = "picture", .transform = t);
}

TEST(each_picture_in_its_own_size)
{
    NEEDS_PNG;
    NEEDS_JPEG;
    lc_transform t[2], both;
    lc_dataset *d;
    int64_t y;
    uint8_t x[17 * 13 * 3];
    make_folder("own_size", NULL);
    CHECK_OK(lc_transform_resize(&t[0], .height = 13, .width = 17));
    CHECK_OK(lc_transform_to_layout(LC_ROW_MAJOR, &t[1]));
    CHECK_OK(lc_transform_compose(2, t, &both));
    CHECK_OK(folder(&d, &both));
    CHECK(!both.ops);
    CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[2], 17);
    CHECK_OK(lc_dataset_read(d, 1, 0, (void *[]){x, &y}));
    ppm want = read_ppm("photo.jpg", ".13x17.ppm");
    for (int i = 0; i < 13 * 17; i++)
        for (int c = 0; c < 3; c++) CHECK(abs(x[c * 13 * 17 + i] - want.pixels[3 * i + c]) <= 1);
    ppm_free(&want);
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){x, &y}));
    lc_dataset_unref(d);
    /* The shorter side, and the middle of what that makes. */
    CHECK_OK(lc_transform_resize(&t[0], .shorter = 15));
    CHECK_OK(lc_transform_center_crop(14, 14, &t[1]));
    CHECK_OK(lc_transform_compose(2, t, &both));
    CHECK_OK(folder(&d, &both));
    for (int i = 0; i < 2; i++) CHECK_OK(lc_dataset_read(d, i, 0, (void *[]){x, &y}));
    lc_dataset_unref(d);
    /* After a size for all. */
    CHECK_OK(lc_transform_center_crop(9, 9, &both));
    CHECK_OK(lc_image_folder_new(root, &d, .extensions = "picture", .height = 12, .width = 12, .transform = &both));
    CHECK_OK(lc_dataset_read(d, 1, 0, (void *[]){x, &y}));
    lc_dataset_unref(d);
}

TEST(a_transform_on_top_draws_its_own_numbers)
{
    NEEDS_PNG;
    lc_transform t;
    lc_dataset *pictures, *d;
    int64_t y;
    uint8_t whole[12], x[12];
    int counts[4] = {0};
    make_folder("on_top", NULL);
    CHECK_OK(lc_image_folder_new(root, &d, .extensions = "picture", .height = 2, .width = 2));
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){whole, &y}));
    for (int i = 0; i < 3; i++) CHECK(memcmp(whole + 3 * i, whole + 9, 3) != 0);
    lc_dataset_unref(d);
    CHECK_OK(lc_transform_horizontal_flip(0.5, &t));
    CHECK_OK(lc_image_folder_new(root, &pictures, .extensions = "picture", .height = 2, .width = 2, .transform = &t));
    CHECK_OK(lc_transform_vertical_flip(0.5, &t));
    CHECK_OK(lc_dataset_transform(pictures, 0, t, &d));
    lc_dataset_unref(pictures);
    for (uint64_t key = 0; key < 400; key++) {
        CHECK_OK(lc_dataset_read(d, 0, lc_random_key(1, key), (void *[]){x, &y}));
        for (int i = 0; i < 4; i++) counts[i] += !memcmp(x, whole + 3 * i, 3);
    }
    for (int i = 0; i < 4; i++) CHECK(counts[i] > 60 && counts[i] < 140);
    lc_dataset_unref(d);
}

TEST(sizes_that_stay_open)
{
    NEEDS_PNG;
    lc_transform t;
    lc_dataset *d;
    make_folder("open_size", NULL);
    CHECK_OK(lc_transform_resize(&t, .shorter = 15));
    CHECK_STATUS(folder(&d, &t), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "end it with a crop or a resize to a height and a width");
    CHECK(!t.ops && !d);
    CHECK_OK(lc_transform_horizontal_flip(1, &t));
    CHECK_STATUS(folder(&d, &t), LC_ERR_SHAPE);
    CHECK(!t.ops);
    /* Released with arguments that do not fit. */
    CHECK_OK(lc_transform_center_crop(3, 3, &t));
    CHECK_STATUS(lc_image_folder_new(root, &d, .transform = &t, .height = 3), LC_ERR_ARGUMENT);
    CHECK(!t.ops);
    CHECK_STATUS(folder(&d, &t), LC_ERR_ARGUMENT);
}

static lc_status no_file(void *ctx, int64_t index, const char **file, int64_t *target)
{
    (void)ctx, (void)index, (void)file, (void)target;
    return LC_OK;
}

/* Also where there is nothing to make a dataset from, or nowhere to put it. */
TEST(transforms_are_taken_over_with_null_arguments)
{
    lc_transform t;
    lc_dataset *d;
#define RELEASED(call)                                                                                                 \
    do {                                                                                                               \
        CHECK_OK(lc_transform_center_crop(3, 3, &t));                                                                  \
        CHECK_STATUS(call, LC_ERR_ARGUMENT);                                                                           \
        CHECK_CONTAINS(lc_error_message(), "NULL");                                                                    \
        CHECK(!t.ops);                                                                                                 \
    } while (0)
    RELEASED(lc_image_folder_new(NULL, &d, .transform = &t));
    RELEASED(lc_image_folder_new("x", NULL, .transform = &t));
    RELEASED(lc_image_list_new(NULL, &d, .transform = &t));
    RELEASED(lc_image_list_new("x", NULL, .transform = &t));
    RELEASED(lc_image_list_from(1, NULL, NULL, &d, .transform = &t));
    RELEASED(lc_image_list_from(1, no_file, NULL, NULL, .transform = &t));
    RELEASED(lc_image_shards_new(NULL, &d, .transform = &t));
    RELEASED(lc_image_shards_new("x", NULL, .transform = &t));
#undef RELEASED
}

TEST(an_error_names_the_file_and_the_transform)
{
    NEEDS_PNG;
    lc_transform t;
    lc_dataset *d;
    int64_t y;
    uint8_t x[20 * 20 * 3];
    make_folder("errors", NULL);
    CHECK_OK(lc_transform_random_crop(20, 20, &t));
    CHECK_OK(folder(&d, &t));
    CHECK_STATUS(lc_dataset_read(d, 0, 0, (void *[]){x, &y}), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "a/0.picture: random_crop of 20x20 does not fit into 9x13");
    CHECK_OK(lc_dataset_read(d, 1, 0, (void *[]){x, &y}));
    lc_dataset_unref(d);
}

/* A PNG file of one gray line, of which `width` and `height` are bytes of its header. */
static void put_line(const char *name, uint8_t high, uint8_t low, bool upright)
{
    uint8_t png[4096], header[13] = {0, 0, 0, 1, 0, 0, 0, 1, 8}, deflated[2048];
    const size_t length = (size_t)high << 8 | low;
    uint8_t *pixels = calloc(length, 2);
    uLongf n = sizeof deflated;
    char path[700];
    CHECK(pixels);
    header[upright ? 6 : 2] = high, header[upright ? 7 : 3] = low;
    CHECK_EQ(compress(deflated, &n, pixels, upright ? 2 * length : 1 + length), Z_OK);
    free(pixels);
    const size_t size = png_of(png, 3, (const char *const[]){"IHDR", "IDAT", "IEND"},
                               (const void *const[]){header, deflated, ""}, (size_t[]){sizeof header, n, 0});
    snprintf(path, sizeof path, "%s/a/%s", root, name);
    CHECK_OK(lc__replace_file(&lc__io_system, path, png, size));
}

/* A thin picture would be resized to gigabytes: it is as one that cannot be read. */
TEST(thin_pictures_are_not_resized_to_any_size)
{
    NEEDS_PNG;
    static uint8_t x[6000 * 8 * 3];
    lc_transform t[2], both;
    lc_dataset *d;
    int64_t y;
    make_folder("thin", NULL);
    put_line("2.picture", 0xEA, 0x60, false); /* 60000 x 1 */
    for (int skip = 0; skip < 2; skip++) {
        CHECK_OK(lc_transform_resize(&t[0], .shorter = 256));
        CHECK_OK(lc_transform_center_crop(4, 4, &t[1]));
        CHECK_OK(lc_transform_compose(2, t, &both));
        CHECK_OK(lc_image_folder_new(root, &d, .extensions = "picture", .transform = &both,
                                     .on_error = skip ? LC_IMAGE_SKIP : LC_IMAGE_FAIL));
        CHECK_EQ(lc_dataset_read(d, 2, 0, (void *[]){x, &y}), skip ? LC_OK : LC_ERR_FORMAT);
        if (!skip) CHECK_CONTAINS(lc_error_message(), "a/2.picture: resize makes 15360000 x 256 pixels of 60000 x 1");
        if (!skip) CHECK_CONTAINS(lc_error_message(), "max_size");
        lc_dataset_unref(d);
    }
    /* With a limit of the longer side it can be. */
    CHECK_OK(lc_transform_resize(&t[0], .shorter = 256, .max_size = 6000));
    CHECK_OK(lc_transform_center_crop(1, 4, &t[1]));
    CHECK_OK(lc_transform_compose(2, t, &both));
    CHECK_OK(folder(&d, &both));
    CHECK_OK(lc_dataset_read(d, 2, 0, (void *[]){x, &y}));
    lc_dataset_unref(d);
    /* Between the passes a picture is as high as it was and as wide as it will be. */
    put_line("2.picture", 0xEA, 0x60, true);
    CHECK_OK(lc_image_folder_new(root, &d, .extensions = "picture", .height = 8, .width = 6000));
    CHECK_STATUS(lc_dataset_read(d, 2, 0, (void *[]){x, &y}), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "a/2.picture: resize makes 6000 x 60000 pixels of 1 x 60000");
    lc_dataset_unref(d);
    CHECK_OK(lc_transform_random_resized_crop(8, 6000, &t[0]));
    CHECK_OK(folder(&d, &t[0]));
    CHECK_STATUS(lc_dataset_read(d, 2, 0, (void *[]){x, &y}), LC_ERR_FORMAT);
    lc_dataset_unref(d);
}

static void mean_color(const uint8_t *x, int64_t n, double mean[3])
{
    memset(mean, 0, 3 * sizeof *mean);
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) mean[c] += (double)x[3 * i + c] / (double)n;
}

/* Less is decoded, and the picture stays about the same. */
TEST(jpeg_at_a_part_of_its_size)
{
    NEEDS_PNG;
    NEEDS_JPEG;
    static uint8_t x[2][7 * 10 * 3];
    double mean[2][3];
    make_folder("fast", NULL);
    for (int crop = 0; crop < 3; crop++) {
        for (int fast = 0; fast < 2; fast++) {
            lc_image_args a = lc_image_defaults();
            lc_dataset *d;
            lc_transform t;
            int64_t y;
            a.extensions = "picture";
            a.fast_scale = fast;
            if (crop == 0) a.height = 7, a.width = 10;
            if (crop == 1) CHECK_OK(lc_transform_resize(&t, .height = 7, .width = 10));
            if (crop == 2) CHECK_OK(lc_transform_random_resized_crop(7, 10, &t, .scale = LC_RANGE(0.9, 1)));
            if (crop) a.transform = &t;
            CHECK_OK(lc_image_folder_new_with(root, &d, &a));
            CHECK_OK(lc_dataset_read(d, 1, 3, (void *[]){x[fast], &y}));
            mean_color(x[fast], 70, mean[fast]);
            lc_dataset_unref(d);
        }
        CHECK(memcmp(x[0], x[1], sizeof x[0]) != 0);
        for (int c = 0; c < 3; c++) CHECK_NEAR(mean[0][c], mean[1][c], 5);
    }
    /* Nothing can be left out of a picture that is not reduced. */
    lc_dataset *d;
    static uint8_t full[30 * 40 * 3];
    int64_t y;
    CHECK_OK(lc_image_folder_new(root, &d, .extensions = "picture", .height = 30, .width = 40, .fast_scale = true));
    CHECK_OK(lc_dataset_read(d, 1, 3, (void *[]){full, &y}));
    ppm want = read_ppm("photo.jpg", ".ppm");
    for (int i = 0; i < 30 * 40 * 3; i++) CHECK(abs(full[i] - want.pixels[i]) <= 1);
    ppm_free(&want);
    lc_dataset_unref(d);
}

/* ---- parts of pictures ---- */

static lc_status the_file(void *ctx, int64_t index, const char **file, int64_t *target)
{
    (void)index;
    *file = ctx;
    *target = 0;
    return LC_OK;
}

static lc_dataset *pictures_of(const char *name, bool upright, lc_transform *t)
{
    char path[600];
    lc_dataset *d;
    snprintf(path, sizeof path, "%s/tests/image/pictures/%s", getenv("LIGHTC_TEST_SOURCE"), name);
    CHECK_OK(lc_image_list_from(1, the_file, path, &d, .exif_transpose = upright, .transform = t));
    return d;
}

/* Transforms after a crop, which get its rows as they are decoded. */
static lc_transform chain_of(lc_transform crop)
{
    lc_transform t[3] = {crop}, all;
    CHECK_OK(lc_transform_horizontal_flip(0.5, &t[1]));
    CHECK_OK(lc_transform_normalize(3, (const double[]){0.4, 0.5, 0.6}, (const double[]){0.2, 0.3, 0.4}, &t[2]));
    CHECK_OK(lc_transform_compose(3, t, &all));
    return all;
}

/* A file of which only a part is decoded, against the part of the whole picture. */
static void compare_parts(const char *name, bool upright, lc_transform inside, lc_transform after)
{
    static float want[9 * 9 * 3], got[9 * 9 * 3];
    int64_t y;
    lc_dataset *whole = pictures_of(name, upright, NULL), *part = pictures_of(name, upright, &inside), *cropped;
    CHECK_OK(lc_dataset_transform(whole, 0, after, &cropped));
    for (uint64_t key = 0; key < 80; key++) {
        CHECK_OK(lc_dataset_read(cropped, 0, key, (void *[]){want, &y}));
        CHECK_OK(lc_dataset_read(part, 0, key, (void *[]){got, &y}));
        if (memcmp(want, got, sizeof want)) TEST_FAIL("%s: key %d differs", name, (int)key);
    }
    lc_dataset_unref(cropped);
    lc_dataset_unref(whole);
    lc_dataset_unref(part);
}

TEST(a_part_is_that_of_the_whole_picture)
{
    NEEDS_JPEG;
    static const char *const names[] = {"photo.jpg",   "progressive.jpg", "cmyk.jpg",    "grey.jpg",
                                        "turned1.jpg", "turned3.jpg",     "turned6.jpg", "turned8.jpg"};
    if (!getenv("LIGHTC_TEST_SOURCE")) SKIP("LIGHTC_TEST_SOURCE names no copy of the sources");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int upright = 0; upright < 2; upright++) {
            lc_transform a, b;
            CHECK_OK(lc_transform_random_crop(9, 9, &a, .pad_if_needed = true));
            CHECK_OK(lc_transform_random_crop(9, 9, &b, .pad_if_needed = true));
            compare_parts(names[i], upright, a, b);
            CHECK_OK(lc_transform_random_crop(9, 9, &a, .padding = LC_DIMS(2)));
            CHECK_OK(lc_transform_random_crop(9, 9, &b, .padding = LC_DIMS(2)));
            compare_parts(names[i], upright, chain_of(a), chain_of(b));
            CHECK_OK(lc_transform_random_resized_crop(9, 9, &a));
            CHECK_OK(lc_transform_random_resized_crop(9, 9, &b));
            compare_parts(names[i], upright, a, b);
        }
}

/* A transform of a program that reads the first pixel, and says that it reads what is not there. */
static lc_status pixel_describe(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    out->shape[1] = out->shape[2] = 1;
    return LC_OK;
}

static lc_status pixel_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                             uint64_t key, void *scratch)
{
    (void)self, (void)in, (void)out, (void)key, (void)scratch;
    memcpy(dst, src, 3);
    return LC_OK;
}

static void reads_beyond(void *self, const lc_field *in, uint64_t key, lc_box *part)
{
    (void)self;
    CHECK(part->height == in->shape[1] && part->width == in->shape[2] && !part->top && !part->left);
    *part = key % 2 ? (lc_box){-5, -5, 1000, 1000} : (lc_box){1000, -7, 3, 4};
}

/* A transform of a program that refuses the second rows that it gets. */
static lc_status refuses_describe(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    return LC_OK;
}

static lc_status refuses_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                               uint64_t key, void *scratch)
{
    (void)out, (void)key, (void)scratch;
    memcpy(dst, src, lc_field_bytes(in));
    return ++*(int *)self == 2 ? lc_fail(LC_ERR_USER, "these rows are not good") : LC_OK;
}

TEST(an_error_of_rows_names_the_file_and_the_transform)
{
    NEEDS_PNG;
    NEEDS_JPEG;
    static const lc_transform_ops ops = {LC_TRANSFORM_OPS_INIT, .name = "refuses", .describe = refuses_describe,
                                         .apply = refuses_apply, .by_rows = true};
    static uint8_t x[20 * 20 * 3];
    int calls = 0;
    int64_t y;
    lc_transform t[2] = {{0}, {&ops, &calls}}, both;
    lc_dataset *d;
    make_folder("rows", NULL);
    CHECK_OK(lc_transform_random_crop(20, 20, &t[0]));
    CHECK_OK(lc_transform_compose(2, t, &both));
    CHECK_OK(folder(&d, &both));
    CHECK_STATUS(lc_dataset_read(d, 1, 0, (void *[]){x, &y}), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "these rows are not good");
    CHECK_CONTAINS(lc_error_message(), "a/1.picture");
    CHECK_CONTAINS(lc_error_message(), "'refuses'");
    calls = 2;
    CHECK_OK(lc_dataset_read(d, 1, 0, (void *[]){x, &y}));
    CHECK_EQ(calls, 2 + 3);
    CHECK_STATUS(lc_dataset_read(d, 0, 0, (void *[]){x, &y}), LC_ERR_SHAPE); /* too small for it */
    CHECK_CONTAINS(lc_error_message(), "a/0.picture: ");
    lc_dataset_unref(d);
}

TEST(a_part_beyond_the_picture)
{
    NEEDS_JPEG;
    static const lc_transform_ops ops = {LC_TRANSFORM_OPS_INIT, .name = "pixel", .describe = pixel_describe,
                                         .apply = pixel_apply, .reads = reads_beyond};
    lc_transform t = {&ops, NULL};
    uint8_t x[3];
    int64_t y;
    ppm want = read_ppm("photo.jpg", ".ppm");
    lc_dataset *d = pictures_of("photo.jpg", false, &t);
    for (uint64_t key = 0; key < 20; key++) {
        CHECK_OK(lc_dataset_read(d, 0, key, (void *[]){x, &y}));
        for (int c = 0; c < 3; c++) CHECK(abs(x[c] - want.pixels[c]) <= 1);
    }
    ppm_free(&want);
    lc_dataset_unref(d);
}

/* Everything that two epochs give, from batch `start` of each. */
static size_t read_all(int workers, int64_t start, uint8_t *out)
{
    lc_transform t[6], all;
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *b;
    size_t n = 0;
    CHECK_OK(lc_transform_random_resized_crop(12, 15, &t[0]));
    CHECK_OK(lc_transform_horizontal_flip(0.5, &t[1]));
    CHECK_OK(lc_transform_rand_augment(&t[2]));
    CHECK_OK(lc_transform_color_jitter(&t[3], .hue = LC_RANGE(-0.5, 0.5), .contrast = LC_RANGE(0.5, 2)));
    CHECK_OK(lc_transform_normalize(3, (const double[]){0.4, 0.5, 0.6}, (const double[]){0.2, 0.3, 0.4}, &t[4]));
    CHECK_OK(lc_transform_random_erasing(&t[5], .random = true));
    CHECK_OK(lc_transform_compose(6, t, &all));
    CHECK_OK(folder(&d, &all));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 1, .shuffle = true, .seed = 7, .num_workers = workers));
    lc_dataset_unref(d);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        CHECK_OK(lc_dataloader_begin(l, epoch, start));
        for (;;) {
            CHECK_OK(lc_dataloader_next(l, &b));
            if (!b) break;
            CHECK_OK(lc_tensor_read(b->x, out + n, 12 * 15 * 3 * sizeof(float)));
            n += 12 * 15 * 3 * sizeof(float);
        }
    }
    lc_dataloader_free(l);
    return n;
}

TEST(the_same_batches_for_any_number_of_workers)
{
    NEEDS_PNG;
    NEEDS_JPEG;
    static uint8_t want[1 << 16], got[1 << 16];
    make_folder("workers", "turned6.jpg");
    const size_t n = read_all(0, 0, want), one = n / 6;
    CHECK(n == 6 * 12 * 15 * 3 * sizeof(float));
    CHECK(memcmp(want, want + 3 * one, 3 * one) != 0);
    static const int workers[] = {1, 2, 4};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(read_all(workers[i], 0, got), n);
        CHECK(!memcmp(want, got, n));
    }
    CHECK_EQ(read_all(2, 2, got), 2 * one);
    CHECK(!memcmp(want + 2 * one, got, one) && !memcmp(want + 5 * one, got + one, one));
}

TEST_MAIN
