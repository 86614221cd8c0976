/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of samples: each of them, in both layouts; chains of them; the result depends only on the key. */
#include "test.h"
#include <lightc/transforms.h>

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

TEST(any_type_is_filled)
{
    static const struct {
        lc_dtype dtype;
        double fill;
        unsigned char bytes[8];
    } rows[] = {{LC_F32, -1.5, {0, 0, 0xC0, 0xBF}},
                {LC_F64, -1.5, {[6] = 0xF8, 0xBF}},
                {LC_F16, -1.5, {0, 0xBE}},
                {LC_BF16, -1.5, {0xC0, 0xBF}},
                {LC_I64, -2, {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}},
                {LC_I32, 258, {2, 1}},
                {LC_U8, 200.9, {200}},
                {LC_BOOL, 1, {1}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t size = lc_dtype_size(rows[i].dtype);
        int64_t in = 0, out[2];
        void *to = out;
        lc_transform t;
        CHECK_OK(lc_transform_pad(1, 0, 0, 0, &t, .fill = rows[i].fill));
        lc_dataset *d = with(image(rows[i].dtype, LC_ROW_MAJOR, 1, 1, 1, &in), t);
        CHECK_OK(lc_dataset_read(d, 0, 0, &to));
        if (memcmp(out, rows[i].bytes, size) != 0) TEST_FAIL("%s", lc_dtype_name(rows[i].dtype));
        CHECK(!memcmp((char *)out + size, &in, size));
        lc_dataset_unref(d);
    }
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
        CHECK_OK(lc_transform_pad(1, 3, 2, 4, &t, .fill = -7));
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
        /* A crop of 4x3 with a padding of 1: every place occurs, and the result is that part of the image. */
        CHECK_OK(lc_transform_random_crop(4, 3, &t, .padding = LC_DIMS(1)));
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
        /* The result depends only on the key. */
        int32_t first[24];
        CHECK_OK(lc_dataset_read(d, 0, 17, &to));
        memcpy(first, out, sizeof first);
        CHECK_OK(lc_dataset_read(d, 0, 18, &to));
        CHECK_OK(lc_dataset_read(d, 0, 17, &to));
        CHECK(!memcmp(first, out, sizeof first));
        lc_dataset_unref(d);
        lc_dataset *no;
        d = image(LC_I32, layout, C, H, W, in);
        CHECK_OK(lc_transform_random_crop(8, 3, &t, .padding = LC_DIMS(1)));
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

/* Long chains: alternating buffers, sizes that grow and shrink, transforms of transforms. */
TEST(transforms_chain)
{
    uint8_t in[16];
    for (int i = 0; i < 16; i++) in[i] = (uint8_t)(i + 1);
    lc_transform t[5], chain, outer;
    CHECK_OK(lc_transform_pad(8, 8, 8, 8, &t[0], .fill = 9)); /* 20x20 surrounded by 9s */
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

/* As a picture and its mask. */
TEST(two_fields_are_flipped_together)
{
    uint8_t in[4] = {0, 1, 2, 3}, out[2][4];
    lc_field field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {1, 2, 2}};
    lc_array both[2] = {{.field = field, .data = in}, {.field = field, .data = in}};
    both[1].field.name = "mask";
    lc_dataset *d, *flipped;
    CHECK_OK(lc_array_dataset_new(1, 2, both, &d));
    for (int f = 0; f < 2; f++) {
        lc_transform t;
        CHECK_OK(lc_transform_horizontal_flip(0.5, &t));
        CHECK_OK(lc_dataset_transform(d, f, t, &flipped));
        lc_dataset_unref(d);
        d = flipped;
    }
    int flips = 0;
    for (uint64_t key = 0; key < 100; key++) {
        CHECK_OK(lc_dataset_read(d, 0, lc_random_key(1, key), (void *[]){out[0], out[1]}));
        CHECK(!memcmp(out[0], out[1], sizeof out[0]));
        flips += out[0][0] == 1;
    }
    CHECK(flips > 30 && flips < 70);
    lc_dataset_unref(d);
}

static lc_status same_field(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    return LC_OK;
}

static lc_status skips(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst, uint64_t key,
                       void *scratch)
{
    (void)self, (void)in, (void)src, (void)out, (void)dst, (void)key, (void)scratch;
    return LC_SKIP;
}

/* It would leave a sample as it happens to be in memory. */
TEST(a_transform_cannot_skip)
{
    static const lc_transform_ops ops = {LC_TRANSFORM_OPS_INIT, .name = "mine", .describe = same_field, .apply = skips};
    uint8_t in[4] = {0}, out[4];
    for (int chain = 0; chain < 2; chain++) {
        lc_transform t = {&ops, NULL}, all;
        CHECK_OK(lc_transform_compose(1, &t, &all));
        if (!chain) lc_transform_release(&all);
        lc_dataset *d = with(image(LC_U8, LC_ROW_MAJOR, 1, 2, 2, in), chain ? all : t);
        CHECK_STATUS(lc_dataset_read(d, 0, 0, (void *[]){out}), LC_ERR_USER);
        CHECK_CONTAINS(lc_error_message(), "transform 'mine': apply returned");
        lc_dataset_unref(d);
    }
}

/* A flip on top of a flip is not drawn with it, also if there is another dataset between them. */
TEST(transforms_on_transforms_draw_their_own_numbers)
{
    uint8_t in[4] = {0, 1, 2, 3}, out[4];
    for (int between = 0; between < 3; between++) {
        lc_transform horizontal, vertical;
        CHECK_OK(lc_transform_horizontal_flip(0.5, &horizontal));
        CHECK_OK(lc_transform_vertical_flip(0.5, &vertical));
        lc_dataset *d = with(image(LC_U8, LC_ROW_MAJOR, 1, 2, 2, in), horizontal), *view = d;
        if (between == 1) CHECK_OK(lc_dataset_subset(d, (int64_t[]){0}, 1, &view));
        if (between == 2) CHECK_OK(lc_dataset_concat((lc_dataset *[]){d, d}, 2, &view));
        if (between) lc_dataset_unref(d);
        d = with(view, vertical);
        int counts[4] = {0};
        for (uint64_t key = 0; key < 1000; key++) {
            CHECK_OK(lc_dataset_read(d, 0, lc_random_key(1, key), (void *[]){out}));
            counts[out[0]]++;
        }
        for (int i = 0; i < 4; i++) CHECK(counts[i] > 200 && counts[i] < 300);
        lc_dataset_unref(d);
    }
}

TEST_MAIN
