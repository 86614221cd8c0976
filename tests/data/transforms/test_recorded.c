/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms against what torchvision's v2 functions made of the same picture (tests/peers/record_transforms.py):
 * within 1 of 255, and what docs/transforms.md says exactly, in both layouts. Random transforms are given ranges of one
 * number; what remains random is called below. */
#include "data/transforms/policy.h"
#include "data/transforms/warp.h"
#include "image/resize.h"
#include "sources.h"
#include "test.h"
#include <lightc/safetensors.h>
#include <lightc/transforms.h>
#include <stdarg.h>

enum { MOST = 3 * 64 * 96 };

typedef struct recorded {
    int64_t shape[3];
    lc_dtype dtype;
    size_t bytes;
    union {
        uint8_t u8[MOST];
        float f32[MOST];
    } of;
} recorded;

static lc_safetensors *file;

static void read_recorded(const char *name, recorded *r)
{
    if (!file) {
        static char path[5000];
        snprintf(path, sizeof path, "%s/tests/data/transforms/recorded.safetensors", source_root());
        CHECK_OK(lc_safetensors_open(path, &file));
    }
    const int64_t i = lc_safetensors_find(file, name);
    if (i < 0) TEST_FAIL("nothing is recorded for '%s'", name);
    const lc_safetensor_info *info = lc_safetensors_info(file, i);
    CHECK(info->type.ndim == 3 && info->bytes <= sizeof r->of);
    memcpy(r->shape, info->type.shape, sizeof r->shape);
    r->dtype = info->type.dtype;
    r->bytes = info->bytes;
    CHECK_OK(lc_safetensors_read(file, i, &r->of, r->bytes));
}

/* Room for a result like `want`, whose values are none of it yet. */
static void prepare(const recorded *want, recorded *got)
{
    *got = *want;
    for (size_t i = 0; i < want->bytes; i++) got->of.u8[i] ^= 0x55;
}

/* [C,H,W] to [H,W,C] and back. */
static void turn_layout(const void *from, void *to, const int64_t shape[3], size_t size, bool back)
{
    const int64_t planes = shape[0], n = shape[1] * shape[2];
    for (int64_t c = 0; c < planes; c++)
        for (int64_t i = 0; i < n; i++) {
            const size_t chw = (size_t)(c * n + i) * size, hwc = (size_t)(i * planes + c) * size;
            memcpy((char *)to + (back ? chw : hwc), (const char *)from + (back ? hwc : chw), size);
        }
}

/* How far bytes may be off; the test that sets it to 0 sets it back. */
static int tolerance = 1;

static void compare(const char *name, lc_layout layout, const recorded *got, const recorded *want)
{
    if (memcmp(got->shape, want->shape, sizeof want->shape) != 0 || got->dtype != want->dtype)
        TEST_FAIL("%s: [%d,%d,%d] instead of [%d,%d,%d]", name, (int)got->shape[0], (int)got->shape[1],
                  (int)got->shape[2], (int)want->shape[0], (int)want->shape[1], (int)want->shape[2]);
    int most = 0;
    int64_t differ = 0;
    const int64_t n = want->shape[0] * want->shape[1] * want->shape[2];
    for (int64_t i = 0; i < n; i++) {
        if (want->dtype == LC_F32) CHECK_NEAR(got->of.f32[i], want->of.f32[i], 1e-5);
        if (want->dtype == LC_F32) continue;
        const int d = abs(got->of.u8[i] - want->of.u8[i]);
        if (d > tolerance) differ++;
        if (d > most) most = d;
    }
    if (differ)
        TEST_FAIL("%s, layout %d: %d of %d values differ, by up to %d", name, (int)layout, (int)differ, (int)n, most);
}

/* `t` of the recorded `source` is what was recorded as `name`, in both layouts. Releases t. */
static void check_with_key(const char *name, const char *source, lc_transform t, uint64_t key)
{
    static recorded from, want, got, turned;
    read_recorded(source, &from);
    read_recorded(name, &want);
    lc_transform once[2] = {t};
    lc_transform both;
    CHECK_OK(lc_transform_compose(1, once, &both));
    for (lc_layout layout = LC_ROW_MAJOR; layout <= LC_CHANNELS_LAST; layout++) {
        lc_field in = {.name = "x", .dtype = LC_U8, .layout = layout, .ndim = 3}, out = {0};
        memcpy(in.shape, from.shape, sizeof from.shape);
        turned = from;
        if (layout == LC_CHANNELS_LAST) turn_layout(&from.of, &turned.of, from.shape, 1, false);
        CHECK_OK(both.ops->describe(both.self, &in, &out));
        CHECK(lc_field_bytes(&out) <= sizeof got.of);
        void *scratch = aligned_alloc(64, (both.ops->scratch_size(both.self, &in) + 127) / 64 * 64);
        CHECK(scratch);
        CHECK_OK(both.ops->apply(both.self, &in, &turned.of, &out, &got.of, key, scratch));
        free(scratch);
        memcpy(got.shape, out.shape, sizeof got.shape);
        got.dtype = out.dtype;
        if (layout == LC_CHANNELS_LAST) {
            turned = got;
            turn_layout(&turned.of, &got.of, got.shape, lc_dtype_size(out.dtype), true);
        }
        compare(name, layout, &got, &want);
    }
    lc_transform_release(&both);
}

static void check(const char *name, const char *source, lc_transform t)
{
    check_with_key(name, source, t, 1);
}

static const char *named(const char *format, ...)
{
    static char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text;
}

static const char *const resamples[] = {"nearest", "nearest_exact", "bilinear", "bicubic"};

TEST(resize)
{
    static const int64_t sizes[][2] = {{30, 41}, {17, 23}, {47, 61}, {12, 90}, {30, 19}, {7, 3}};
    lc_transform t;
    tolerance = 0;
    for (int mode = LC_RESAMPLE_NEAREST; mode <= LC_RESAMPLE_BICUBIC; mode++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int plain = 0; plain <= (mode >= LC_RESAMPLE_BILINEAR); plain++) {
                CHECK_OK(lc_transform_resize(&t, .height = sizes[i][0], .width = sizes[i][1],
                                             .interpolation = (lc_resample)mode, .antialias = !plain));
                check(named("resize %s %dx%d%s", resamples[mode], (int)sizes[i][0], (int)sizes[i][1],
                            plain ? " plain" : ""),
                      "source", t);
            }
    CHECK_OK(lc_transform_resize(&t, .shorter = 20));
    check("resize shorter", "source", t);
    CHECK_OK(lc_transform_resize(&t, .shorter = 20, .max_size = 24));
    check("resize shorter max", "source", t);
    CHECK_OK(lc_transform_resize(&t, .height = 17, .width = 23));
    check("resize gray", "gray", t);
    tolerance = 1;
}

/* The part that was recorded, as a pixel view of the source. */
/* PyTorch rounds the middle of a pixel, here pixel 27 of 55, otherwise if the result has more than 128 rows and columns
 * together. */
TEST(nearest_exact_of_larger_results)
{
    enum { WIDTH = 55 };
    static const uint8_t two[] = {0, 1};
    static uint8_t out[74 * WIDTH];
    for (int height = 73; height <= 74; height++) {
        lc_array a = {.field = {.name = "x", .dtype = LC_U8, .ndim = 2, .shape = {1, 2}}, .data = two};
        lc_transform t;
        lc_dataset *d, *resized;
        CHECK_OK(lc_array_dataset_new(1, 1, &a, &d));
        CHECK_OK(lc_transform_resize(&t, .height = height, .width = WIDTH, .interpolation = LC_RESAMPLE_NEAREST_EXACT));
        CHECK_OK(lc_dataset_transform(d, 0, t, &resized));
        CHECK_OK(lc_dataset_read(resized, 0, 0, (void *[]){out}));
        CHECK_EQ(out[26], 0);
        CHECK_EQ(out[27], height + WIDTH > 128);
        CHECK_EQ(out[28], 1);
        lc_dataset_unref(resized);
        lc_dataset_unref(d);
    }
}

TEST(resized_crop)
{
    static recorded from, want, got;
    static uint8_t room[1 << 16] __attribute__((aligned(64)));
    read_recorded("source", &from);
    tolerance = 0;
    for (int mode = LC_RESAMPLE_NEAREST; mode <= LC_RESAMPLE_BICUBIC; mode++) {
        const char *name = named("resized_crop %s", resamples[mode]);
        const lc__resize_sizes s = {21, 13, 16, 20, 1, (lc__filter)mode, true};
        lc__resize_plan plan;
        read_recorded(name, &want);
        prepare(&want, &got);
        CHECK(lc__resize_room(&s) && lc__resize_room(&s) <= sizeof room);
        lc__resize_prepare(&plan, &s, room);
        for (int c = 0; c < 3; c++)
            lc__resize_run(&plan, from.of.u8 + (c * 30 + 4) * 41 + 9, 41, got.of.u8 + c * 16 * 20);
        compare(name, LC_ROW_MAJOR, &got, &want);
    }
    tolerance = 1;
}

TEST(crops_pads_and_flips)
{
    static const int64_t sizes[][2] = {{12, 12}, {13, 14}, {40, 20}, {60, 61}};
    static const char *const modes[] = {"constant", "edge", "reflect", "symmetric"};
    lc_transform t;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_OK(lc_transform_center_crop(sizes[i][0], sizes[i][1], &t));
        check(named("center_crop %dx%d", (int)sizes[i][0], (int)sizes[i][1]), "source", t);
    }
    for (int mode = LC_PAD_CONSTANT; mode <= LC_PAD_SYMMETRIC; mode++) {
        CHECK_OK(lc_transform_pad(3, 5, 7, 2, &t, .fill = 9, .padding_mode = (lc_padding_mode)mode));
        check(named("pad %s", modes[mode]), "source", t);
    }
    CHECK_OK(lc_transform_pad(3, 5, 7, 2, &t, .fill_color = LC_COLOR(250, 3, 120.6)));
    check("pad color", "source", t);
    CHECK_OK(lc_transform_horizontal_flip(1, &t));
    check("horizontal_flip", "source", t);
    CHECK_OK(lc_transform_vertical_flip(1, &t));
    check("vertical_flip", "source", t);
}

static const lc_resample warps[] = {LC_RESAMPLE_NEAREST, LC_RESAMPLE_BILINEAR};

TEST(rotation)
{
    static const double angles[] = {17, -63.5, 180};
    lc_transform t;
    for (int w = 0; w < 2; w++) {
        const lc_resample mode = warps[w];
        for (int i = 0; i < 3; i++) {
            const lc_range r = LC_RANGE(angles[i], angles[i]);
            CHECK_OK(lc_transform_random_rotation(r, &t, .interpolation = mode));
            check(named("rotate %s %g", resamples[mode], angles[i]), "source", t);
            CHECK_OK(lc_transform_random_rotation(r, &t, .interpolation = mode, .fill = 77));
            check(named("rotate %s %g fill", resamples[mode], angles[i]), "source", t);
        }
        CHECK_OK(lc_transform_random_rotation(LC_RANGE(31, 31), &t, .interpolation = mode,
                                              .fill_color = LC_COLOR(250, 3, 120.6)));
        check(named("rotate %s color", resamples[mode]), "source", t);
        CHECK_OK(
            lc_transform_random_rotation(LC_RANGE(31, 31), &t, .interpolation = mode, .center_x = 5, .center_y = 8));
        check(named("rotate %s center", resamples[mode]), "source", t);
        for (int angle = 90; angle <= 270; angle += 180) {
            CHECK_OK(lc_transform_random_rotation(LC_RANGE(angle, angle), &t, .interpolation = mode));
            check(named("rotate %s %d", resamples[mode], angle), "square", t);
            CHECK_OK(lc_transform_random_rotation(LC_RANGE(angle, angle), &t, .interpolation = mode));
            check(named("rotate %s %d odd", resamples[mode], angle), "odd", t);
        }
    }
}

/* Random moves are drawn; these are given. */
TEST(affine_and_perspective)
{
    static const double corners[4][2] = {{0, 0}, {40, 0}, {40, 29}, {0, 29}},
                        moved[4][2] = {{3, 5}, {33, 2}, {39, 26}, {6, 27}};
    static recorded from, want, got;
    read_recorded("source", &from);
    for (int i = 0; i < 6; i++) {
        const lc_resample mode = warps[i % 2];
        const lc__affine a = {23, {4, -3}, 1.3, {11, -7}, {0, 0}},
                         around = {-8, {0, 0}, 0.7, {5, 0}, {9 - 20.5, 2 - 15}};
        const char *name = named(i < 2 ? "affine %s" : i < 4 ? "affine %s center" : "perspective %s", resamples[mode]);
        lc__warp w = lc__warp_of(mode, i == 2 || i == 3 ? 30 : 0, &(lc_color){0});
        if (i < 4) lc__warp_affine(&w, i < 2 ? &a : &around, 30, 41);
        if (i >= 4) CHECK(lc__warp_perspective(&w, corners, moved, 30, 41));
        read_recorded(name, &want);
        prepare(&want, &got);
        const lc__pixels source = {30, 41, 3, true, from.of.u8, 41}, target = {30, 41, 3, true, got.of.u8, 41};
        lc__warp_run(&w, &source, &target);
        compare(name, LC_ROW_MAJOR, &got, &want);
    }
    /* The transform draws its moves from 0 pixels here. */
    lc_transform t;
    CHECK_OK(lc_transform_random_affine(LC_RANGE(-8, -8), &t, .scale = LC_RANGE(0.7, 0.7), .shear_x = LC_RANGE(5, 5),
                                        .center_x = 9, .center_y = 2, .fill = 30));
    check("affine nearest center", "source", t);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(lc_transform_random_affine(LC_RANGE(-8, -8), &t, .scale = LC_RANGE(0.7, 0.7),
                                            .shear_x = LC_RANGE(5, 5), .interpolation = warps[i],
                                            .fill_color = LC_COLOR(250, 3, 120.6)));
        check(named("affine %s color", resamples[warps[i]]), "source", t);
    }
}

TEST(colors)
{
    static const double factors[] = {0, 0.6, 1.7}, hues[] = {-0.5, -0.2, 0.13};
    static const char *const texts[] = {"0.0", "0.6", "1.7"};
    lc_transform t;
    tolerance = 0;
    for (int i = 0; i < 3; i++) {
        const lc_range r = LC_RANGE(factors[i], factors[i]);
        CHECK_OK(lc_transform_color_jitter(&t, .brightness = r));
        check(named("brightness %s", texts[i]), "source", t);
        CHECK_OK(lc_transform_color_jitter(&t, .contrast = r));
        check(named("contrast %s", texts[i]), "source", t);
        CHECK_OK(lc_transform_color_jitter(&t, .contrast = r));
        check(named("contrast gray %s", texts[i]), "gray", t);
        CHECK_OK(lc_transform_color_jitter(&t, .saturation = r));
        check(named("saturation %s", texts[i]), "source", t);
        tolerance = 1;
        CHECK_OK(lc_transform_color_jitter(&t, .hue = LC_RANGE(hues[i], hues[i])));
        check(named("hue %g", hues[i]), "source", t);
        tolerance = 0;
    }
    CHECK_OK(lc_transform_grayscale(1, &t));
    check("grayscale 1", "source", t);
    CHECK_OK(lc_transform_grayscale(3, &t));
    check("grayscale 3", "source", t);
    CHECK_OK(lc_transform_grayscale(3, &t));
    check("grayscale gray 3", "gray", t);
    CHECK_OK(lc_transform_random_grayscale(1, &t));
    check("grayscale 3", "source", t);
    tolerance = 1;
}

TEST(blur)
{
    static const int64_t sizes[][2] = {{5, 5}, {3, 9}, {23, 23}};
    static const double sigmas[] = {1.1, 0.6, 7};
    lc_transform t;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lc_transform_gaussian_blur(sizes[i][0], sizes[i][1], &t, .sigma = LC_RANGE(sigmas[i], sigmas[i])));
        check(named("blur %dx%d", (int)sizes[i][0], (int)sizes[i][1]), "source", t);
    }
}

static void check_augment(const char *name, const char *source, lc__augment op, double magnitude)
{
    static recorded from, want, got;
    read_recorded(source, &from);
    read_recorded(name, &want);
    prepare(&want, &got);
    const lc__pixels in = {30, 41, 3, true, from.of.u8, 41}, to = {30, 41, 3, true, got.of.u8, 41};
    const lc__warp how = lc__warp_of(LC_RESAMPLE_NEAREST, LC_NOT_GIVEN, &(lc_color){0});
    lc__augment_run(op, magnitude, &how, &in, &to);
    compare(name, LC_ROW_MAJOR, &got, &want);
}

TEST(operations_of_policies)
{
    static const struct {
        const char *name;
        lc__augment op;
        double times; /* the magnitude that was recorded, in these */
    } ops[] = {{"shear_x", LC__SHEAR_X, 1},          {"shear_y", LC__SHEAR_Y, 1}, {"translate_x", LC__TRANSLATE_X, 20},
               {"translate_y", LC__TRANSLATE_Y, 20}, {"rotate", LC__ROTATE, 60},  {"sharpness", LC__SHARPNESS, 1}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        check_augment(named("augment %s -0.37", ops[i].name), "source", ops[i].op, -0.37 * ops[i].times);
        check_augment(named("augment %s 0.83", ops[i].name), "source", ops[i].op, 0.83 * ops[i].times);
    }
    check_augment("augment posterize", "source", LC__POSTERIZE, 3);
    check_augment("augment solarize", "source", LC__SOLARIZE, 0.4);
    check_augment("augment autocontrast", "augment autocontrast source", LC__AUTOCONTRAST, 0);
    check_augment("augment equalize", "source", LC__EQUALIZE, 0);
    check_augment("augment invert", "source", LC__INVERT, 0);
    check_augment("brightness 1.7", "source", LC__BRIGHTNESS, 0.7);
    check_augment("contrast 0.6", "source", LC__CONTRAST, -0.4);
    check_augment("saturation 1.7", "source", LC__COLOR, 0.7);
    check_augment("source", "source", LC__IDENTITY, 0);
}

/* To the last bit: a translation is cut to pixels, and a threshold compared with bytes. */
TEST(magnitudes_of_policies)
{
    static const char *const names[] = {"trivial", "rand", "auto"};
    const lc__strength strengths[] = {lc__strength_wide, lc__strength_usual(331, 662), lc__strength_usual(227, 500)};
    static recorded want;
    for (int k = 0; k < 3; k++) {
        read_recorded(named("magnitudes %s", names[k]), &want);
        const int ops = (int)want.shape[1], bins = (int)want.shape[2];
        CHECK_EQ(ops, LC__SOLARIZE + 1);
        for (int op = 0; op < ops; op++)
            for (int i = 0; i < bins; i++) {
                const double got = lc__magnitude((lc__augment)op, &strengths[k], i, bins);
                if (got != (double)want.of.f32[op * bins + i])
                    TEST_FAIL("%s: magnitude %d of operation %d is %.9g instead of %.9g", names[k], i, op, got,
                              (double)want.of.f32[op * bins + i]);
            }
    }
    check_augment("augment solarize 1 of 18", "source", LC__SOLARIZE,
                  lc__magnitude(LC__SOLARIZE, &lc__strength_wide, 1, 18));
}

TEST(normalize)
{
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    lc_transform t, two[2];
    CHECK_OK(lc_transform_normalize(3, mean, std, &t));
    check("normalize", "source", t);
    CHECK_OK(lc_transform_to_tensor(&two[0]));
    CHECK_OK(lc_transform_normalize(3, mean, std, &two[1]));
    CHECK_OK(lc_transform_compose(2, two, &t));
    check("normalize", "source", t);
    CHECK_OK(lc_transform_to_dtype(LC_F32, &two[0], .scale = true));
    CHECK_OK(lc_transform_normalize(3, mean, std, &two[1]));
    CHECK_OK(lc_transform_compose(2, two, &t));
    check("normalize", "source", t);
}

TEST_MAIN
