/* SPDX-License-Identifier: Apache-2.0 */
/* Continues test_zeros.c: zeros in the arguments of datasets, loaders, transforms and plots. */
#include "test.h"

#include <lightc/lightc.h>

enum { H = 20, W = 26, C = 3, PIXELS = C * H * W, KEYS = 40 };

/* ---- transforms: what becomes of a picture, whatever is drawn ---- */

static uint8_t picture[PIXELS];

static void draw_picture(void)
{
    for (int i = 0; i < PIXELS; i++) {
        int x = i % W, y = i / W % H, c = i / (H * W);
        picture[i] = (uint8_t)(20 + 7 * x + 3 * y * (c + 1) + (x > 9 && y > 4 ? 60 : 0));
    }
}

/* Applies `t`, which is taken over, to the picture; returns the size of the result. */
static size_t transformed(const char *name, lc_transform t, uint64_t key, uint8_t out[PIXELS])
{
    lc_array a;
    lc_dataset *d = NULL, *changed = NULL;
    void *fields[] = {out};
    memset(&a, 0, sizeof a);
    a.field.name = "x";
    a.field.dtype = LC_U8;
    a.field.ndim = 3;
    a.field.shape[0] = C, a.field.shape[1] = H, a.field.shape[2] = W;
    a.data = picture;
    CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
    CHECK_OK(lc_dataset_transform(d, 0, t, &changed));
    size_t bytes = lc_field_bytes(&lc_dataset_spec(changed)->fields[0]);
    if (bytes > PIXELS) TEST_FAIL("%s: %zu bytes", name, bytes);
    CHECK_OK(lc_dataset_read(changed, 0, key, fields));
    lc_dataset_unref(changed);
    lc_dataset_unref(d);
    return bytes;
}

static bool is_unchanged(const uint8_t got[PIXELS])
{
    return !memcmp(got, picture, PIXELS);
}
static bool is_flat(const uint8_t got[PIXELS])
{
    for (int i = 1; i < PIXELS; i++)
        if (got[i] != got[0]) return false;
    return true;
}
static bool is_black(const uint8_t got[PIXELS])
{
    return is_flat(got) && got[0] == 0;
}
static bool is_nine(const uint8_t got[PIXELS])
{
    return is_flat(got) && got[0] == 9;
}
static bool is_gray(const uint8_t got[PIXELS])
{
    return !memcmp(got, got + H * W, H * W) && !memcmp(got, got + 2 * H * W, H * W) && !is_flat(got);
}

/* A turn by half a circle about an edge leaves nothing of the picture. */
#define PICTURES(X)                                                                                                    \
    X(lc_transform_random_rotation, center_x, is_nine,                                                                 \
      lc_transform_random_rotation(LC_RANGE(180, 180), &t, .fill = 9, .center_x = 0, .center_y = 5))                   \
    X(lc_transform_random_rotation, center_y, is_nine,                                                                 \
      lc_transform_random_rotation(LC_RANGE(180, 180), &t, .fill = 9, .center_x = 5, .center_y = 0))                   \
    X(lc_transform_random_affine, center_x, is_nine,                                                                   \
      lc_transform_random_affine(LC_RANGE(180, 180), &t, .fill = 9, .center_x = 0, .center_y = 5))                     \
    X(lc_transform_random_affine, center_y, is_nine,                                                                   \
      lc_transform_random_affine(LC_RANGE(180, 180), &t, .fill = 9, .center_x = 5, .center_y = 0))                     \
    X(lc_transform_random_perspective, distortion_scale, is_unchanged,                                                 \
      lc_transform_random_perspective(&t, .p = 1, .distortion_scale = 0))                                              \
    X(lc_transform_random_perspective, p, is_unchanged, lc_transform_random_perspective(&t, .p = 0))                   \
    X(lc_transform_color_jitter, brightness, is_black, lc_transform_color_jitter(&t, .brightness = LC_RANGE(0, 0)))    \
    X(lc_transform_color_jitter, contrast, is_flat, lc_transform_color_jitter(&t, .contrast = LC_RANGE(0, 0)))         \
    X(lc_transform_color_jitter, saturation, is_gray, lc_transform_color_jitter(&t, .saturation = LC_RANGE(0, 0)))     \
    X(lc_transform_random_erasing, p, is_unchanged, lc_transform_random_erasing(&t, .p = 0))                           \
    X(lc_transform_random_erasing, scale, is_unchanged,                                                                \
      lc_transform_random_erasing(&t, .p = 1, .scale = LC_RANGE(0, 0)))                                                \
    X(lc_transform_policy, num_ops, is_unchanged, lc_transform_rand_augment(&t, .num_ops = 0))

TEST(pictures)
{
    static uint8_t got[PIXELS];
    lc_transform t;
    draw_picture();
#define CHECK_PICTURE(kind, argument, expected, make)                                                                  \
    for (uint64_t key = 0; key < KEYS; key++) {                                                                        \
        CHECK_OK(make);                                                                                                \
        if (transformed(#kind, t, key, got) != PIXELS || !expected(got))                                               \
            TEST_FAIL("%s: %s: not " #expected, #kind, #argument);                                                     \
    }
    PICTURES(CHECK_PICTURE)
}

/* With the argument 0, and without it: some pictures differ. */
#define OTHER_PICTURES(X)                                                                                              \
    X(lc_transform_resize, interpolation, lc_transform_resize(&t, .shorter = 9, .interpolation = LC_RESAMPLE_NEAREST), \
      lc_transform_resize(&t, .shorter = 9))                                                                           \
    X(lc_transform_resize, antialias, lc_transform_resize(&t, .shorter = 9, .antialias = false),                       \
      lc_transform_resize(&t, .shorter = 9))                                                                           \
    X(lc_transform_random_resized_crop, interpolation,                                                                 \
      lc_transform_random_resized_crop(5, 7, &t, .interpolation = LC_RESAMPLE_NEAREST),                                \
      lc_transform_random_resized_crop(5, 7, &t))                                                                      \
    X(lc_transform_random_resized_crop, antialias, lc_transform_random_resized_crop(5, 7, &t, .antialias = false),     \
      lc_transform_random_resized_crop(5, 7, &t))                                                                      \
    X(lc_transform_random_perspective, interpolation,                                                                  \
      lc_transform_random_perspective(&t, .interpolation = LC_RESAMPLE_NEAREST), lc_transform_random_perspective(&t))  \
    X(lc_transform_policy, magnitude, lc_transform_rand_augment(&t, .magnitude = 0), lc_transform_rand_augment(&t))    \
    X(lc_transform_policy, fill, lc_transform_rand_augment(&t, .interpolation = LC_RESAMPLE_BILINEAR, .fill = 0),      \
      lc_transform_rand_augment(&t, .interpolation = LC_RESAMPLE_BILINEAR))

TEST(other_pictures)
{
    static uint8_t with[PIXELS], without[PIXELS];
    lc_transform t;
    draw_picture();
#define CHECK_OTHER(kind, argument, make, make_default)                                                                \
    {                                                                                                                  \
        int differ = 0;                                                                                                \
        for (uint64_t key = 0; key < KEYS; key++) {                                                                    \
            CHECK_OK(make);                                                                                            \
            size_t bytes = transformed(#kind, t, key, with);                                                           \
            CHECK_OK(make_default);                                                                                    \
            CHECK_EQ(transformed(#kind, t, key, without), bytes);                                                      \
            differ += memcmp(with, without, bytes) != 0;                                                               \
        }                                                                                                              \
        if (!differ) TEST_FAIL("%s: %s: as without it", #kind, #argument);                                             \
    }
    OTHER_PICTURES(CHECK_OTHER)
}

/* ---- zeros that are refused, with a message that names the argument ---- */

#define DATA_REFUSALS(X)                                                                                               \
    X(lc_transform_random_resized_crop, scale, lc_transform_random_resized_crop(5, 7, &t, .scale = LC_RANGE(0, 0)))    \
    X(lc_transform_random_resized_crop, ratio, lc_transform_random_resized_crop(5, 7, &t, .ratio = LC_RANGE(0, 0)))    \
    X(lc_transform_random_affine, scale, lc_transform_random_affine(LC_RANGE(0, 0), &t, .scale = LC_RANGE(0, 0)))      \
    X(lc_transform_gaussian_blur, sigma, lc_transform_gaussian_blur(3, 3, &t, .sigma = LC_RANGE(0, 0)))                \
    X(lc_transform_random_erasing, ratio, lc_transform_random_erasing(&t, .ratio = LC_RANGE(0, 0)))                    \
    X(lc_transform_policy, num_magnitude_bins, lc_transform_rand_augment(&t, .num_magnitude_bins = 0))                 \
    X(lc_dataloader, batch_size, lc_dataloader_new(&loader, .dataset = data, .batch_size = 0))                         \
    X(lc_dataloader, prefetch, lc_dataloader_new(&loader, .dataset = data, .num_workers = 1, .prefetch = 0))           \
    X(lc_dataloader, pad_multiple, lc_dataloader_new(&loader, .dataset = data, .pad_multiple = 0))                     \
    X(lc_dataloader, mix_alpha, lc_dataloader_new(&loader, .dataset = data, .mix = LC_MIXUP, .mix_alpha = 0))          \
    X(lc_file_windows, stride, lc_file_windows_new(tokens, &read, .window = 1, .stride = 0))                           \
    X(lc_file_windows, end, lc_file_windows_new(tokens, &read, .window = 1, .end = 0))                                 \
    X(lc_idx, std, lc_idx_dataset_new("a", "b", &read, .std = 0))                                                      \
    X(lc_idx, std, lc_mnist_load("a", &read, NULL, .std = 0))                                                          \
    X(lc_image, max_pixels, lc_image_folder_new(".", &read, .max_pixels = 0))                                          \
    X(lc_image_shards_pack, samples, lc_image_shards_pack(".", "none", &shards, .samples = 0))                         \
    X(lc_image_shards_pack, bytes, lc_image_shards_pack(".", "none", &shards, .bytes = 0))                             \
    X(lc_plot_lines, width, lc_plot_lines(1, &line, &plot, .width = 0))                                                \
    X(lc_plot_lines, height, lc_plot_lines(1, &line, &plot, .height = 0))                                              \
    X(lc_plot_histogram, bins, lc_plot_histogram(2, numbers, &plot, .bins = 0))                                        \
    X(lc_plot_histogram, width, lc_plot_histogram(2, numbers, &plot, .width = 0))                                      \
    X(lc_plot_histogram, height, lc_plot_histogram(2, numbers, &plot, .height = 0))                                    \
    X(lc_plot_pictures, columns, lc_plot_pictures(grays, &plot, .columns = 0))                                         \
    X(lc_plot_text, columns, lc_plot_text(shown, &text, .columns = 0))                                                 \
    X(lc_plot_text, rows, lc_plot_text(shown, &text, .rows = 0))

static const char *source_file(const char *name, char path[4200])
{
    const char *source = getenv("LIGHTC_TEST_SOURCE");
    snprintf(path, 4200, "%s/tests/%s", source ? source : ".", name);
    return path;
}

static const double numbers[] = {1, 2};

/* [1,1,4] */
static lc_tensor *four_grays(void)
{
    const int64_t shape[] = {1, 1, 4};
    const float values[] = {-1, -0.5f, 0, 0.5f};
    lc_tensor *t = NULL;
    CHECK_OK(lc_tensor_new(LC_F32, 3, shape, &t));
    CHECK_OK(lc_tensor_write(t, values, sizeof values));
    return t;
}

TEST(data_that_refuse_zero)
{
    char file[4200], *text = NULL;
    float values[] = {1, 2};
    lc_array x;
    lc_dataset *data = NULL, *read = NULL;
    lc_dataloader *loader = NULL;
    lc_array_file *tokens = NULL;
    lc_transform t;
    lc_plot *plot = NULL, *shown = NULL;
    lc_plot_series line;
    lc_tensor *grays = four_grays();
    int64_t shards = 0;
    memset(&x, 0, sizeof x);
    x.field.name = "x";
    x.data = values;
    memset(&line, 0, sizeof line);
    line.n = 2;
    line.y = numbers;
    CHECK_OK(lc_array_dataset_new(2, 1, &x, &data));
    CHECK_OK(lc_array_file_open(source_file("data/files/fixtures/vector.npy", file), &tokens));
    CHECK_OK(lc_plot_lines(1, &line, &shown));
#define CHECK_REFUSED_DATA(kind, argument, call)                                                                       \
    CHECK((call) < 0);                                                                                                 \
    CHECK_CONTAINS(lc_error_message(), #argument);
    DATA_REFUSALS(CHECK_REFUSED_DATA)
    lc_plot_free(shown);
    lc_tensor_unref(grays);
    lc_array_file_close(tokens);
    lc_dataset_unref(data);
}

/* ---- zeros that are values ---- */

/* X(lc_plot_pictures, low, ...) and X(lc_plot_pictures, high, ...): the values of black and white. */
static char *pictures_text(double low, double high)
{
    lc_tensor *grays = four_grays();
    lc_plot *plot = NULL;
    char *text = NULL;
    CHECK_OK(lc_plot_pictures(grays, &plot, .low = low, .high = high));
    CHECK_OK(lc_plot_text(plot, &text));
    lc_plot_free(plot);
    lc_tensor_unref(grays);
    return text;
}

TEST(black_and_white_at_zero)
{
    char *dark = pictures_text(0, 1), *all = pictures_text(-1, 1), *light = pictures_text(-1, 0);
    char *other = pictures_text(-1, LC_NOT_GIVEN);
    CHECK(strcmp(dark, all) != 0 && strcmp(all, light) != 0 && strcmp(dark, light) != 0);
    CHECK_STR(other, all); /* white is 1 if it is not given, and not 0 */
    free(dark), free(all), free(light), free(other);
}

/* X(lc_dataloader, target_pad_value, ...): in place of pad_value. */
TEST(targets_padded_with_zeros)
{
    const int64_t offsets[] = {0, 1, 3};
    const int64_t values[] = {4, 5, 6};
    lc_array a[2];
    lc_dataset *d = NULL;
    lc_dataloader *l = NULL;
    lc_batch *b = NULL;
    int64_t x[4], y[4];
    memset(a, 0, sizeof a);
    for (int i = 0; i < 2; i++) {
        a[i].field.name = i ? "y" : "x";
        a[i].field.dtype = LC_I64;
        a[i].field.ndim = 1;
        a[i].data = values;
        a[i].offsets = offsets;
    }
    CHECK_OK(lc_array_dataset_new(2, 2, a, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 2, .pad_value = 7, .target_pad_value = 0));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_OK(lc_dataloader_next(l, &b));
    CHECK(b != NULL);
    CHECK_OK(lc_tensor_read(b->x, x, sizeof x));
    CHECK_OK(lc_tensor_read(b->y, y, sizeof y));
    CHECK(x[0] == 4 && x[1] == 7 && y[0] == 4 && y[1] == 0);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

/* X(lc_image_shards_pack, shuffle, ...): in the order of the folder, by the endings of its files. */
TEST(shards_in_order)
{
    char from[4200], root[] = "/tmp/lightc-zeros-XXXXXX", folder[80], prefix[80], pattern[100], command[13000];
    int64_t n = 0;
    lc_dataset *in = NULL, *packed = NULL;
    if (!(LIGHTC_HAVE_JPEG && LIGHTC_HAVE_PNG && LIGHTC_HAVE_WEBP)) SKIP("not all formats can be decoded");
    CHECK(mkdtemp(root) != NULL);
    source_file("image/pictures", from);
    snprintf(folder, sizeof folder, "%s/in", root);
    snprintf(command, sizeof command, "mkdir -p %s/a && cp '%s'/*.png '%s'/*.jpg '%s'/*.webp %s/a", folder, from, from,
             from, folder);
    CHECK_EQ(system(command), 0);
    CHECK_OK(lc_image_folder_new(folder, &in));
    CHECK(lc_dataset_length(in) > 10);
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        int64_t moved = 0;
        snprintf(prefix, sizeof prefix, "%s/%d", root, shuffled);
        if (shuffled)
            CHECK_OK(lc_image_shards_pack(folder, prefix, &n));
        else
            CHECK_OK(lc_image_shards_pack(folder, prefix, &n, .shuffle = false));
        CHECK_EQ(n, 1);
        snprintf(pattern, sizeof pattern, "%s-000000.tar", prefix);
        CHECK_OK(lc_image_shards_new(pattern, &packed));
        CHECK_EQ(lc_dataset_length(packed), lc_dataset_length(in));
        for (int64_t i = 0; i < lc_dataset_length(in); i++)
            moved += strcmp(strrchr(lc_image_file(in, i), '.'), strrchr(lc_image_file(packed, i), '.')) != 0;
        CHECK(shuffled ? moved > 0 : moved == 0);
        lc_dataset_unref(packed);
    }
    lc_dataset_unref(in);
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK_EQ(system(command), 0);
}

/* X(lc_array_file, header, ...) and X(lc_array_file, missing, ...): a first row of values, and a value. */
TEST(a_table_with_zeros)
{
    lc_array_file *f = NULL;
    char file[4200];
    double first = -1;
    source_file("data/files/fixtures/pandas.csv", file);
    CHECK_STATUS(lc_array_file_open(file, &f, .header = 0, .missing = 0), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "column '0': -3 is a number, but earlier values are texts");
    CHECK_OK(lc_array_file_open(file, &f, .missing = 0));
    CHECK_OK(lc_array_file_read(f, lc_array_file_find(f, "real"), 0, 1, LC_F64, &first, sizeof first));
    CHECK_NEAR(first, 0, 0);
    lc_array_file_close(f);
}

TEST_MAIN
