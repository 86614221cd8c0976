/* SPDX-License-Identifier: Apache-2.0 */
/* Random transforms: the key alone decides, both layouts have the same pixels, what is drawn stays in its ranges, and
 * arguments that make no sense are errors. */
#include "data/transforms/box.h"
#include "test.h"
#include <lightc/transforms.h>

enum { H = 20, W = 26, C = 3, N = C * H * W };

typedef lc_status make_fn(lc_transform *t);

static lc_status make_crop(lc_transform *t)
{
    return lc_transform_random_crop(H, W, t, .padding = LC_DIMS(3, 5), .padding_mode = LC_PAD_REFLECT);
}

static lc_status make_large_crop(lc_transform *t)
{
    return lc_transform_random_crop(H + 9, W + 4, t, .pad_if_needed = true, .fill = 4);
}

static lc_status make_resized_crop(lc_transform *t)
{
    return lc_transform_random_resized_crop(15, 17, t);
}

static lc_status make_vertical_flip(lc_transform *t)
{
    return lc_transform_vertical_flip(0.5, t);
}

static lc_status make_rotation(lc_transform *t)
{
    return lc_transform_random_rotation(LC_RANGE(-40, 70), t, .interpolation = LC_RESAMPLE_BILINEAR, .fill = 9);
}

static lc_status make_affine(lc_transform *t)
{
    return lc_transform_random_affine(LC_RANGE(-10, 10), t, .translate_x = 0.2, .translate_y = 0.3,
                                      .scale = LC_RANGE(0.5, 2), .shear_y = LC_RANGE(-20, 20));
}

static lc_status make_perspective(lc_transform *t)
{
    return lc_transform_random_perspective(t, .distortion_scale = 1, .p = 0.9);
}

static lc_status make_jitter(lc_transform *t)
{
    return lc_transform_color_jitter(t, .brightness = LC_RANGE(0.5, 1.5), .contrast = LC_RANGE(0.5, 1.5),
                                     .saturation = LC_RANGE(0.5, 1.5), .hue = LC_RANGE(-0.3, 0.3));
}

static lc_status make_grayscale(lc_transform *t)
{
    return lc_transform_random_grayscale(0.5, t);
}

static lc_status make_blur(lc_transform *t)
{
    return lc_transform_gaussian_blur(5, 7, t);
}

static lc_status make_erasing(lc_transform *t)
{
    return lc_transform_random_erasing(t, .p = 0.8, .value = 200, .ratio = LC_RANGE(0.5, 2));
}

static lc_status make_auto(lc_transform *t)
{
    return lc_transform_auto_augment(t);
}

static lc_status make_auto_cifar(lc_transform *t)
{
    return lc_transform_auto_augment(t, .policy = LC_AUTO_AUGMENT_CIFAR10, .fill = 3);
}

static lc_status make_auto_svhn(lc_transform *t)
{
    return lc_transform_auto_augment(t, .policy = LC_AUTO_AUGMENT_SVHN, .interpolation = LC_RESAMPLE_BILINEAR);
}

static lc_status make_rand(lc_transform *t)
{
    return lc_transform_rand_augment(t, .num_ops = 3, .magnitude = 20, .num_magnitude_bins = 25);
}

static lc_status make_trivial(lc_transform *t)
{
    return lc_transform_trivial_augment_wide(t);
}

static lc_status make_trivial_of_few(lc_transform *t)
{
    return lc_transform_trivial_augment_wide(t, .num_magnitude_bins = 5);
}

static make_fn *const makers[] = {
    make_crop,        make_large_crop, make_resized_crop, make_vertical_flip, make_rotation,      make_affine,
    make_perspective, make_jitter,     make_grayscale,    make_blur,          make_erasing,       make_auto,
    make_auto_cifar,  make_auto_svhn,  make_rand,         make_trivial,       make_trivial_of_few};

static lc_dataset *picture(lc_layout layout, const uint8_t *pixels, lc_transform t)
{
    lc_array a = {.field = {.name = "x", .dtype = LC_U8, .layout = layout, .ndim = 3, .shape = {C, H, W}},
                  .data = pixels};
    lc_dataset *d, *out;
    CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
    CHECK_OK(lc_dataset_transform(d, 0, t, &out));
    lc_dataset_unref(d);
    return out;
}

static void draw(uint8_t chw[N], uint8_t hwc[N])
{
    for (int c = 0; c < C; c++)
        for (int i = 0; i < H * W; i++) {
            const int x = i % W, y = i / W;
            chw[c * H * W + i] = hwc[i * C + c] = (uint8_t)(7 * x + 3 * y * (c + 1) + (x > 9 && y > 4 ? 90 : 0));
        }
}

TEST(the_key_decides_in_both_layouts)
{
    enum { KEYS = 60, MOST = 4 * N };
    static uint8_t chw[N], hwc[N], planes[MOST], last[MOST], again[MOST];
    draw(chw, hwc);
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        lc_transform t;
        CHECK_OK(makers[m](&t));
        lc_dataset *a = picture(LC_ROW_MAJOR, chw, t);
        CHECK_OK(makers[m](&t));
        lc_dataset *b = picture(LC_CHANNELS_LAST, hwc, t);
        const lc_field *f = &lc_dataset_spec(a)->fields[0];
        const size_t bytes = lc_field_bytes(f), plane = bytes / C;
        int changed = 0;
        CHECK(bytes <= MOST && f->shape[0] == C);
        for (uint64_t key = 0; key < KEYS; key++) {
            CHECK_OK(lc_dataset_read(a, 0, key, (void *[]){planes}));
            CHECK_OK(lc_dataset_read(b, 0, key, (void *[]){last}));
            for (size_t i = 0; i < bytes; i++)
                if (planes[i] != last[i % plane * C + i / plane])
                    TEST_FAIL("transform %d, key %d: the layouts differ at %d", (int)m, (int)key, (int)i);
            changed += key > 0 && memcmp(planes, again, bytes) != 0;
            memcpy(again, planes, bytes);
        }
        CHECK_OK(lc_dataset_read(a, 0, KEYS - 1, (void *[]){planes}));
        CHECK(!memcmp(planes, again, bytes));
        if (changed < 10) TEST_FAIL("transform %d gives the same for %d keys", (int)m, KEYS - changed);
        lc_dataset_unref(a);
        lc_dataset_unref(b);
    }
}

/* ---- colors that fill ---- */

typedef lc_status fill_fn(lc_transform *t, double fill, lc_color color);

static lc_status fill_pad(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_pad(2, 3, 4, 1, t, .fill = fill, .fill_color = color);
}

static lc_status fill_crop(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_random_crop(H + 5, 9, t, .pad_if_needed = true, .fill = fill, .fill_color = color);
}

static lc_status fill_rotation(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_random_rotation(LC_RANGE(-90, 90), t, .fill = fill, .fill_color = color);
}

static lc_status fill_affine(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_random_affine(LC_RANGE(-90, 90), t, .interpolation = LC_RESAMPLE_BILINEAR, .fill = fill,
                                      .fill_color = color);
}

static lc_status fill_perspective(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_random_perspective(t, .fill = fill, .fill_color = color);
}

static lc_status fill_erasing(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_random_erasing(t, .value = fill, .value_color = color);
}

/* The chains of this policy mix no channels after they have filled. */
static lc_status fill_auto(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_auto_augment(t, .policy = LC_AUTO_AUGMENT_SVHN, .fill = fill, .fill_color = color);
}

static lc_status fill_rand(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_rand_augment(t, .num_ops = 1, .interpolation = LC_RESAMPLE_BILINEAR, .fill = fill,
                                     .fill_color = color);
}

static lc_status fill_trivial(lc_transform *t, double fill, lc_color color)
{
    return lc_transform_trivial_augment_wide(t, .fill = fill, .fill_color = color);
}

/* A picture with the key, planar whatever the layout; returns the bytes of a plane. */
static size_t filled(fill_fn *make, lc_layout layout, uint64_t key, double fill, lc_color color, uint8_t *planes)
{
    static uint8_t chw[N], hwc[N], out[4 * N];
    lc_transform t;
    draw(chw, hwc);
    CHECK_OK(make(&t, fill, color));
    lc_dataset *d = picture(layout, layout == LC_ROW_MAJOR ? chw : hwc, t);
    const size_t bytes = lc_field_bytes(&lc_dataset_spec(d)->fields[0]), plane = bytes / C;
    CHECK(bytes <= sizeof out);
    CHECK_OK(lc_dataset_read(d, 0, key, (void *[]){out}));
    for (size_t i = 0; i < bytes; i++) planes[i] = layout == LC_ROW_MAJOR ? out[i] : out[i % plane * C + i / plane];
    lc_dataset_unref(d);
    return plane;
}

TEST(a_color_fills_each_channel_as_its_number_does)
{
    static fill_fn *const makers_of_fill[] = {fill_pad,     fill_crop, fill_rotation, fill_affine, fill_perspective,
                                              fill_erasing, fill_auto, fill_rand,     fill_trivial};
    static uint8_t color[4 * N], one[4 * N];
    const lc_color numbers = LC_COLOR(9, 200, 121), first = LC_COLOR(9), none = {0};
    for (size_t m = 0; m < sizeof makers_of_fill / sizeof *makers_of_fill; m++) {
        int differ = 0;
        for (uint64_t key = 0; key < 40; key++)
            for (lc_layout layout = LC_ROW_MAJOR; layout <= LC_CHANNELS_LAST; layout++) {
                const size_t plane = filled(makers_of_fill[m], layout, key, 0, numbers, color);
                for (size_t c = 0; c < C; c++) {
                    CHECK_EQ(filled(makers_of_fill[m], layout, key, numbers.of[c], none, one), plane);
                    if (memcmp(color + c * plane, one + c * plane, plane) != 0)
                        TEST_FAIL("filler %d, layout %d, key %d: channel %d differs", (int)m, (int)layout, (int)key,
                                  (int)c);
                    differ += c == 0 && memcmp(color + plane, one + plane, plane) != 0;
                }
                filled(makers_of_fill[m], layout, key, 9, none, color);
                filled(makers_of_fill[m], layout, key, 0, first, one);
                CHECK(!memcmp(color, one, C * plane));
            }
        if (differ < 10) TEST_FAIL("filler %d fills only %d pictures", (int)m, differ);
    }
}

TEST(parts_that_are_drawn_have_the_size_and_shape_asked_for)
{
    double area = 0, aspect = 0;
    int top = 0, left = 0;
    for (uint64_t key = 0; key < 4000; key++) {
        const lc_box b =
            lc__resized_crop_box(200, 300, LC_RANGE(0.08, 1), LC_RANGE(0.75, 4.0 / 3), lc_random_key(1, key));
        CHECK(b.top >= 0 && b.left >= 0 && b.height >= 1 && b.top + b.height <= 200 && b.left + b.width <= 300);
        const double share = (double)(b.height * b.width) / 60000, ratio = (double)b.width / (double)b.height;
        CHECK(share > 0.075 && share < 1.001 && ratio > 0.73 && ratio < 1.36);
        area += share;
        aspect += ratio;
        top += b.top == 0;
        left += b.left > 150;
    }
    /* The means that torchvision's RandomResizedCrop has in 20,000 tries. */
    CHECK_NEAR(area / 4000, 0.391, 0.015);
    CHECK_NEAR(aspect / 4000, 1.046, 0.015);
    CHECK_NEAR(top / 4000.0, 0.056, 0.015);
    CHECK_NEAR(left / 4000.0, 0.090, 0.015);
    /* A side may be as long as the picture's after it is rounded: of 8 x 8 pixels, torchvision takes such a part in
     * 0.216 of 40,000 tries. */
    int whole = 0;
    for (uint64_t key = 0; key < 20000; key++) {
        const lc_box b = lc__resized_crop_box(8, 8, LC_RANGE(0.08, 1), LC_RANGE(0.75, 4.0 / 3), lc_random_key(2, key));
        whole += b.height == 8 || b.width == 8;
    }
    CHECK_NEAR(whole / 20000.0, 0.2157, 0.015);
    /* None fits: the largest in the middle. */
    const lc_box wide = lc__resized_crop_box(4, 400, LC_RANGE(0.9, 1), LC_RANGE(0.75, 4.0 / 3), 1);
    CHECK(wide.height == 4 && wide.width == 5 && wide.left == 197);
    const lc_box tall = lc__resized_crop_box(400, 3, LC_RANGE(0.9, 1), LC_RANGE(0.75, 4.0 / 3), 1);
    CHECK(tall.height == 4 && tall.width == 3 && tall.top == 198);
    const lc_box dot = lc__resized_crop_box(1, 1, LC_RANGE(0.08, 0.1), LC_RANGE(0.75, 4.0 / 3), 1);
    CHECK(dot.height == 1 && dot.width == 1);
}

/* A decoder is not to make one into which another part fits by rounding. */
TEST(a_smaller_picture_has_the_same_part)
{
    const lc_range scale = LC_RANGE(0.08, 1), ratio = LC_RANGE(0.75, 4.0 / 3);
    const lc_field in = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {3, 800, 1200}};
    lc_transform t;
    CHECK_OK(lc_transform_random_resized_crop(10, 15, &t));
    int less = 0;
    for (uint64_t key = 0; key < 5000; key++) {
        const lc_box large = lc__resized_crop_box(800, 1200, scale, ratio, key);
        int64_t part = 8;
        while (part > 1 && 1.0 / (double)part < t.ops->least_scale(t.self, &in, key)) part /= 2;
        less += part == 8;
        const lc_box small = lc__resized_crop_box(800 / part, 1200 / part, scale, ratio, key);
        CHECK_NEAR(small.height * part, large.height, part);
        CHECK_NEAR(small.width * part, large.width, part);
        CHECK_NEAR(small.top * part, large.top, 2 * part);
        CHECK_NEAR(small.left * part, large.left, 2 * part);
    }
    CHECK(less > 4800 && less < 5000);
    lc_transform_release(&t);
}

static void apply_once(lc_transform t, uint8_t *out, size_t room)
{
    static uint8_t chw[N], hwc[N];
    draw(chw, hwc);
    lc_dataset *d = picture(LC_CHANNELS_LAST, hwc, t);
    CHECK(lc_field_bytes(&lc_dataset_spec(d)->fields[0]) <= room);
    CHECK_OK(lc_dataset_read(d, 0, 7, (void *[]){out}));
    lc_dataset_unref(d);
}

/* All of a picture is a part too. */
TEST(a_part_that_is_the_whole_picture_is_a_resize)
{
    static uint8_t a[N], b[N];
    const lc_range whole = LC_RANGE(1, 1), ratio = LC_RANGE((double)W / H, (double)W / H);
    lc_transform t;
    for (int i = 0; i < 8; i++) {
        const lc_resample mode = (lc_resample)(i / 2);
        CHECK_OK(lc_transform_random_resized_crop(9, 11, &t, .scale = whole, .ratio = ratio, .interpolation = mode,
                                                  .antialias = i % 2));
        apply_once(t, a, sizeof a);
        CHECK_OK(lc_transform_resize(&t, .height = 9, .width = 11, .interpolation = mode, .antialias = i % 2));
        apply_once(t, b, sizeof b);
        CHECK(!memcmp(a, b, 9 * 11 * 3));
    }
}

TEST(warps_between_pixels_and_beyond_the_edge)
{
    static uint8_t a[N], b[N], c[N];
    lc_transform t;
    CHECK_OK(lc_transform_random_affine(LC_RANGE(20, 20), &t));
    apply_once(t, a, sizeof a);
    CHECK_OK(lc_transform_random_affine(LC_RANGE(20, 20), &t, .interpolation = LC_RESAMPLE_BILINEAR));
    apply_once(t, b, sizeof b);
    CHECK(memcmp(a, b, sizeof a) != 0 && a[0] == 0 && b[0] == 0);
    CHECK_OK(lc_transform_random_perspective(&t, .p = 1));
    apply_once(t, a, sizeof a);
    CHECK_OK(lc_transform_random_perspective(&t, .p = 1, .interpolation = LC_RESAMPLE_NEAREST));
    apply_once(t, b, sizeof b);
    CHECK_OK(lc_transform_random_perspective(&t, .p = 1, .interpolation = LC_RESAMPLE_NEAREST, .fill = 12));
    apply_once(t, c, sizeof c);
    CHECK(memcmp(a, b, sizeof a) != 0 && b[0] == 0 && c[0] == 12);
    for (int i = 0; i < N; i++) CHECK(b[i] == c[i] || (b[i] == 0 && c[i] == 12));
}

/* The corners of pictures this small may meet, so that no perspective is possible: these are kept. */
TEST(a_perspective_of_a_few_pixels)
{
    for (int i = 0; i < 18; i++) {
        const int64_t h = i / 2 % 3 + 1, w = i / 6 + 1;
        const lc_resample mode = i % 2 ? LC_RESAMPLE_BILINEAR : LC_RESAMPLE_NEAREST;
        const int darkest = i % 2 ? 87 : 100; /* torchvision mixes the fill with pixels that are mixed with black */
        uint8_t *pixels = malloc((size_t)(3 * h * w)), *out = malloc((size_t)(3 * h * w));
        CHECK(pixels && out);
        memset(pixels, 200, (size_t)(3 * h * w));
        const lc_array array = {.field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {3, h, w}}, .data = pixels};
        lc_dataset *d, *warped;
        lc_transform t;
        CHECK_OK(lc_array_dataset_new(1, 1, &array, &d));
        CHECK_OK(
            lc_transform_random_perspective(&t, .distortion_scale = 1, .p = 1, .interpolation = mode, .fill = 100));
        CHECK_OK(lc_dataset_transform(d, 0, t, &warped));
        lc_dataset_unref(d);
        for (uint64_t key = 0; key < 200; key++) {
            CHECK_OK(lc_dataset_read(warped, 0, key, (void *[]){out}));
            for (int64_t k = 0; k < 3 * h * w; k++)
                CHECK(out[k] >= darkest && out[k] <= 200 && (h * w > 1 || out[k] == 200));
        }
        lc_dataset_unref(warped);
        free(pixels);
        free(out);
    }
}

TEST(a_rectangle_is_erased)
{
    static uint8_t chw[N], out[N];
    int kept = 0;
    memset(chw, 7, sizeof chw);
    for (uint64_t key = 0; key < 300; key++) {
        lc_transform t;
        CHECK_OK(lc_transform_random_erasing(&t, .p = 0.7, .scale = LC_RANGE(0.1, 0.2), .value = 250));
        lc_dataset *d = picture(LC_ROW_MAJOR, chw, t);
        CHECK_OK(lc_dataset_read(d, 0, key, (void *[]){out}));
        lc_dataset_unref(d);
        int x0 = W, x1 = 0, y0 = H, y1 = 0, n = 0;
        for (int i = 0; i < N; i++) {
            CHECK(out[i] == 7 || out[i] == 250);
            CHECK_EQ(out[i], out[i % (H * W)]);
            if (out[i] == 7 || i >= H * W) continue;
            const int x = i % W, y = i / W;
            n++;
            x0 = x < x0 ? x : x0, x1 = x > x1 ? x : x1, y0 = y < y0 ? y : y0, y1 = y > y1 ? y : y1;
        }
        if (!n) kept++;
        if (!n) continue;
        CHECK_EQ(n, (x1 - x0 + 1) * (y1 - y0 + 1));
        CHECK(n > 0.07 * H * W && n < 0.24 * H * W);
    }
    CHECK(kept > 50 && kept < 150);
    /* Random values, of floats. */
    static float floats[N], noise[N];
    lc_array a = {.field = {.name = "x", .dtype = LC_F32, .ndim = 3, .shape = {C, H, W}}, .data = floats};
    lc_dataset *plain, *d;
    lc_transform t;
    double sum = 0, squares = 0;
    CHECK_OK(lc_array_dataset_new(1, 1, &a, &plain));
    CHECK_OK(lc_transform_random_erasing(&t, .p = 1, .scale = LC_RANGE(0.5, 0.5), .random = true));
    CHECK_OK(lc_dataset_transform(plain, 0, t, &d));
    CHECK_OK(lc_dataset_read(d, 0, 5, (void *[]){noise}));
    for (int i = 0; i < N; i++) sum += noise[i], squares += noise[i] * noise[i];
    CHECK_NEAR(sum / (0.5 * N), 0, 0.15);
    CHECK_NEAR(squares / (0.5 * N), 1, 0.2);
    lc_dataset_unref(d);
    lc_dataset_unref(plain);
}

TEST(layouts_and_types)
{
    static uint8_t chw[N], hwc[N];
    static float out[N];
    draw(chw, hwc);
    lc_transform t[2], both;
    CHECK_OK(lc_transform_to_layout(LC_ROW_MAJOR, &t[0]));
    CHECK_OK(lc_transform_to_dtype(LC_F32, &t[1], .scale = true));
    CHECK_OK(lc_transform_compose(2, t, &both));
    lc_dataset *d = picture(LC_CHANNELS_LAST, hwc, both);
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){out}));
    CHECK_EQ(lc_dataset_spec(d)->fields[0].layout, LC_ROW_MAJOR);
    for (int i = 0; i < N; i++) CHECK_NEAR(out[i], chw[i] / 255.0, 1e-6);
    lc_dataset_unref(d);
    int64_t whole[N];
    CHECK_OK(lc_transform_to_layout(LC_CHANNELS_LAST, &t[0]));
    CHECK_OK(lc_transform_to_dtype(LC_I64, &t[1]));
    CHECK_OK(lc_transform_compose(2, t, &both));
    d = picture(LC_ROW_MAJOR, chw, both);
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){whole}));
    for (int i = 0; i < N; i++) CHECK_EQ(whole[i], hwc[i]);
    lc_dataset_unref(d);
    uint16_t halves[N];
    CHECK_OK(lc_transform_to_dtype(LC_BF16, &t[0], .scale = true));
    d = picture(LC_ROW_MAJOR, chw, t[0]);
    CHECK_EQ(lc_dataset_spec(d)->fields[0].dtype, LC_BF16);
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){halves}));
    for (int i = 0; i < N; i++) {
        const uint32_t bits = (uint32_t)halves[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        CHECK_NEAR(value, chw[i] / 255.0, 0.003);
    }
    lc_dataset_unref(d);
}

TEST(arguments_that_make_no_sense)
{
    lc_transform t;
    const double nan = LC_NOT_GIVEN;
    const lc_color many = {.n = LC_MAX_COLOR + 1};
#define REFUSED(...) CHECK_STATUS(__VA_ARGS__, LC_ERR_ARGUMENT)
    REFUSED(lc_transform_resize(&t));
    REFUSED(lc_transform_resize(&t, .height = 3));
    REFUSED(lc_transform_resize(&t, .height = 3, .width = 4, .shorter = 2));
    REFUSED(lc_transform_resize(&t, .height = 3, .width = 4, .max_size = 9));
    REFUSED(lc_transform_resize(&t, .shorter = 5, .max_size = 5));
    REFUSED(lc_transform_resize(&t, .shorter = -5));
    REFUSED(lc_transform_resize(&t, .shorter = 5, .interpolation = (lc_resample)9));
    REFUSED(lc_transform_center_crop(0, 3, &t));
    REFUSED(lc_transform_center_crop(3, (int64_t)1 << 40, &t));
    REFUSED(lc_transform_pad(1, -1, 1, 1, &t));
    REFUSED(lc_transform_pad(1, 1, 1, 1, &t, .padding_mode = (lc_padding_mode)-1));
    REFUSED(lc_transform_random_crop(3, 3, &t, .padding = LC_DIMS(1, 2, 3)));
    REFUSED(lc_transform_random_crop(3, 3, &t, .padding = LC_DIMS(-1)));
    REFUSED(lc_transform_random_resized_crop(3, 3, &t, .scale = LC_RANGE(0.5, 0.2)));
    REFUSED(lc_transform_random_resized_crop(3, 3, &t, .scale = LC_RANGE(0, 1)));
    REFUSED(lc_transform_random_resized_crop(3, 3, &t, .ratio = LC_RANGE(nan, 1)));
    REFUSED(lc_transform_vertical_flip(1.5, &t));
    REFUSED(lc_transform_vertical_flip(nan, &t));
    REFUSED(lc_transform_random_rotation(LC_RANGE(5, -5), &t));
    REFUSED(lc_transform_random_rotation(LC_RANGE(-5, 5), &t, .interpolation = LC_RESAMPLE_BICUBIC));
    REFUSED(lc_transform_random_rotation(LC_RANGE(-5, 5), &t, .fill = 256));
    REFUSED(lc_transform_random_rotation(LC_RANGE(-5, 5), &t, .center_x = 4));
    REFUSED(lc_transform_random_affine(LC_RANGE(0, 0), &t, .translate_x = 1.5));
    REFUSED(lc_transform_random_affine(LC_RANGE(0, 0), &t, .scale = LC_RANGE(0, 1)));
    REFUSED(lc_transform_random_affine(LC_RANGE(0, 0), &t, .shear_x = LC_RANGE(0, 90)));
    REFUSED(lc_transform_resize(&t, .height = 5));
    CHECK_CONTAINS(lc_error_message(), "resize: .width is missing; give both sides, or .shorter");
    REFUSED(lc_transform_resize(&t, .width = 5));
    CHECK_CONTAINS(lc_error_message(), "resize: .height is missing");
    REFUSED(lc_transform_resize(&t));
    CHECK_CONTAINS(lc_error_message(), "resize: give .height and .width, or .shorter");
    REFUSED(lc_transform_random_perspective(&t, .distortion_scale = 2));
    REFUSED(lc_transform_random_perspective(&t, .p = -1));
    REFUSED(lc_transform_color_jitter(&t, .brightness = LC_RANGE(-1, 1)));
    REFUSED(lc_transform_color_jitter(&t, .hue = LC_RANGE(-1, 1)));
    REFUSED(lc_transform_grayscale(2, &t));
    REFUSED(lc_transform_random_grayscale(2, &t));
    REFUSED(lc_transform_gaussian_blur(4, 5, &t));
    REFUSED(lc_transform_gaussian_blur(5, 513, &t));
    REFUSED(lc_transform_gaussian_blur(5, 5, &t, .sigma = LC_RANGE(0, 1)));
    REFUSED(lc_transform_random_erasing(&t, .scale = LC_RANGE(0.5, 1.5)));
    REFUSED(lc_transform_random_erasing(&t, .ratio = LC_RANGE(0, 1)));
    REFUSED(lc_transform_auto_augment(&t, .policy = (lc_auto_augment_policy)3));
    REFUSED(lc_transform_rand_augment(&t, .magnitude = 31));
    REFUSED(lc_transform_rand_augment(&t, .num_ops = -1));
    REFUSED(lc_transform_trivial_augment_wide(&t, .num_magnitude_bins = 1));
    REFUSED(lc_transform_trivial_augment_wide(&t, .fill = -1));
    REFUSED(lc_transform_trivial_augment_wide(&t, .magnitude = 5));
    REFUSED(lc_transform_trivial_augment_wide(&t, .num_ops = 1));
    REFUSED(lc_transform_auto_augment(&t, .num_magnitude_bins = 10));
    REFUSED(lc_transform_rand_augment(&t, .policy = LC_AUTO_AUGMENT_SVHN));
    CHECK_CONTAINS(lc_error_message(), "rand_augment has no policy");
    REFUSED(lc_transform_pad(1, 1, 1, 1, &t, .fill = 2, .fill_color = LC_COLOR(1, 2, 3)));
    REFUSED(lc_transform_pad(1, 1, 1, 1, &t, .fill_color = LC_COLOR(1), .padding_mode = LC_PAD_EDGE));
    REFUSED(lc_transform_random_crop(3, 3, &t, .fill_color = many));
    REFUSED(lc_transform_random_rotation(LC_RANGE(-5, 5), &t, .fill_color = LC_COLOR(1, 2, 256)));
    REFUSED(lc_transform_random_perspective(&t, .fill_color = LC_COLOR(1, nan, 3)));
    REFUSED(lc_transform_random_erasing(&t, .random = true, .value_color = LC_COLOR(1)));
    REFUSED(lc_transform_random_erasing(&t, .random = true, .value = 1));
    REFUSED(lc_transform_rand_augment(&t, .fill = 1, .fill_color = LC_COLOR(1)));
    REFUSED(lc_transform_to_layout((lc_layout)7, &t));
    CHECK_STATUS(lc_transform_to_dtype((lc_dtype)77, &t), LC_ERR_DTYPE);
    CHECK(!t.ops);
#undef REFUSED
}

/* What a transform cannot take is an error when the dataset is made. */
static void refused_on(lc_dtype dtype, int64_t channels, int64_t height, lc_transform t, lc_status want,
                       const char *says)
{
    static int64_t zeros[2000];
    lc_array a = {.field = {.name = "x", .dtype = dtype, .ndim = 3, .shape = {channels, height, 9}}, .data = zeros};
    lc_dataset *d, *out;
    CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
    CHECK_STATUS(lc_dataset_transform(d, 0, t, &out), want);
    CHECK_CONTAINS(lc_error_message(), says);
    lc_dataset_unref(d);
}

TEST(fields_that_do_not_fit)
{
    lc_transform t;
    CHECK_OK(lc_transform_resize(&t, .shorter = 5));
    refused_on(LC_F32, 3, 9, t, LC_ERR_DTYPE, "put it before to_tensor or normalize");
    CHECK_OK(lc_transform_color_jitter(&t));
    refused_on(LC_U8, 4, 9, t, LC_ERR_SHAPE, "1 or 3 channels");
    CHECK_OK(lc_transform_gaussian_blur(23, 3, &t));
    refused_on(LC_U8, 3, 9, t, LC_ERR_SHAPE, "too large for a picture of 9x9");
    CHECK_OK(lc_transform_pad(9, 0, 0, 0, &t, .padding_mode = LC_PAD_REFLECT));
    refused_on(LC_U8, 3, 9, t, LC_ERR_SHAPE, "more than a mirrored picture of 9 pixels has");
    CHECK_OK(lc_transform_pad(1, 0, 0, 0, &t, .fill = 300));
    refused_on(LC_U8, 3, 9, t, LC_ERR_ARGUMENT, "300 does not fit into u8");
    CHECK_OK(lc_transform_pad(1, 0, 0, 0, &t, .fill = 4e9));
    refused_on(LC_I32, 3, 9, t, LC_ERR_ARGUMENT, "4e+09 does not fit into i32");
    CHECK_OK(lc_transform_pad(1, 0, 0, 0, &t, .fill = -0x1p64));
    refused_on(LC_I64, 3, 9, t, LC_ERR_ARGUMENT, "does not fit into i64");
    CHECK_OK(lc_transform_pad(1, 0, 0, 0, &t, .fill_color = LC_COLOR(1, 300, 2)));
    refused_on(LC_U8, 3, 9, t, LC_ERR_ARGUMENT, "300 does not fit into u8");
    CHECK_OK(lc_transform_random_erasing(&t, .value_color = LC_COLOR(1, 2)));
    refused_on(LC_F32, 3, 9, t, LC_ERR_SHAPE, "a color of 2 numbers does not fit field 'x' of 3 channels");
    CHECK_OK(lc_transform_random_affine(LC_RANGE(-5, 5), &t, .fill_color = LC_COLOR(1, 2)));
    refused_on(LC_U8, 1, 9, t, LC_ERR_SHAPE, "does not fit field 'x' of 1 channel");
    CHECK_OK(lc_transform_auto_augment(&t, .fill_color = LC_COLOR(1, 2)));
    refused_on(LC_U8, 3, 9, t, LC_ERR_SHAPE, "a color of 2 numbers");
    CHECK_OK(lc_transform_random_erasing(&t, .value = NAN));
    refused_on(LC_I64, 3, 9, t, LC_ERR_ARGUMENT, "nan does not fit into i64");
    CHECK_OK(lc_transform_random_crop(20, 4, &t, .padding = LC_DIMS(1)));
    refused_on(LC_U8, 3, 9, t, LC_ERR_SHAPE, ".pad_if_needed");
    CHECK_OK(lc_transform_random_erasing(&t, .random = true));
    refused_on(LC_U8, 3, 9, t, LC_ERR_DTYPE, "random values need f32");
    CHECK_OK(lc_transform_to_dtype(LC_I32, &t));
    refused_on(LC_F32, 3, 9, t, LC_ERR_DTYPE, "does not become");
}

TEST_MAIN
